"""Calibrations: the file format, and a check that the gates follow from the file's own counts.

The file doesn't hold the labels. But each chosen gate passed its test at an even share, or less, of the
error allowed for all gates together. If a gate's counts have too few labels or too many errors for that
share, no labels can have led to it, and the file is refused.
"""

from __future__ import annotations

import hashlib
import json
import operator
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AwareDatetime, Field

from judgekit.config import TIERS, ModeName, TierName
from judgekit.config.yamlfile import Strict
from judgekit.judging.binomial import compute_upper_bound, lower
from judgekit.judging.finality import FinalityRule, FinalityRules
from judgekit.judging.jury import JuryRule
from judgekit.judging.score_source import ScoreSource
from judgekit.judging.verdict import RubricRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = "judgekit/calibration@2"
MODEL_SEPARATOR = " + "  # joins the models of one jury into one name
Readings: TypeAlias = dict[TierName, dict[str, ScoreSource]]
Answered: TypeAlias = dict[TierName, dict[str, str]]
Asking: TypeAlias = dict[TierName, dict[str, str]]
# Nobody gives more, and a bound on more takes long.
Count: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


class Asked(Strict):
    """The options with which the opinions were requested. With other options, the gates don't hold."""

    samples: Annotated[int, Field(ge=1)] = 1
    criteria: Literal["together", "each"] = "together"
    jury: JuryRule = "mean"
    redact: bool = True


DEFAULT_OPTIONS = Asked()


class Promise(Strict):
    """Every gate holds with `confidence`: at most this `rate` of its opinions differ from the label.

    With a `reference`, `rate` is the excess over the same rate for that tier on the same subjects. The
    tier's own opinion is then final.
    """

    rate: Share
    confidence: Share
    reference: TierName | None = None


class CalibratedRule(FinalityRule):
    """A gate, with the counts that show it keeps the promise."""

    labels: Count
    errors: Count
    gains: Count = 0
    bound: float


class RefusedRule(CalibratedRule):
    """A class of opinions that can't be promised. `more` is the number of labels that could change that."""

    why: Literal["too few labels", "too many errors"]
    more: int | None = None


class Measured(Strict):
    decided: Count
    errors: Count
    by_gate: Count = 0
    calls: dict[TierName, Annotated[int, Field(ge=0)]]


class Subjects(Strict):
    """The number of subjects in the labelled comparisons."""

    least: int
    most: int
    all: int


class Likelihood(Strict):
    """The probability that the labels accept, at each of a decision model's leanings, in order."""

    kind: Literal["platt", "isotonic"]
    points: list[tuple[float, float]]


class Saved(Strict):
    """The savings per hundred subjects in calls to the next tier: US dollars and seconds, if known."""

    usd: float | None = None
    seconds: float | None = None


class Calibration(Strict):
    """`judgekit/calibration@2`: fits one rubric file, mode and panel of models, and no other.

    `read` says how each model's opinions were read. `read_otherwise` counts opinions that were skipped
    because they were read in another way, or came from another model than the `answered` one. `asking` is a
    hash of how a model's profile asks it. With `subjects`, it was learned from comparisons that score each
    of several subjects; there an acceptance means that the best one leads.
    """

    schema_: Literal["judgekit/calibration@2"] = Field(alias="schema")
    id: str
    made: AwareDatetime
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    wording_sha256: str | None = Field(
        default=None,
        exclude_if=lambda digest: digest is None,
        description="hash of a part of what models are asked, in calibrations of earlier checkouts",
    )
    questions_sha256: str | None = Field(
        default=None,
        exclude_if=lambda digest: digest is None,
        description="hash of all that a model is asked, where it was noted",
    )
    models: dict[TierName, str]
    answered: Answered = Field(
        default={},
        description="the model that each reply named, by tier and by the name that was asked",
    )
    asked: Asked = DEFAULT_OPTIONS
    read: Readings = {}
    asking: Asking = {}
    subjects: Subjects | None = None
    promise: Promise
    gates: list[CalibratedRule]
    not_promised: list[RefusedRule] = []
    read_otherwise: dict[TierName, int] = {}
    cases: Count
    labels_sha256: str
    with_gates: Measured
    without: Measured
    likelihoods: Annotated[dict[TierName, Likelihood], Field(exclude_if=operator.not_)] = {}
    saved: Annotated[Saved | None, Field(exclude_if=operator.not_)] = None

    def build_finality_rules(self) -> FinalityRules:
        """Convert the calibration to the rules that escalation uses."""
        # The ways in which each model's answers were read
        readings = set()
        for tier, source_by_model in self.read.items():
            for model, source in source_by_model.items():
                readings.add((tier, model, source))

        # The names in the replies, which can differ from those in the requests
        answering_names = set()
        for tier, name_by_model in self.answered.items():
            for model, name in name_by_model.items():
                answering_names.add((tier, model, name))

        return FinalityRules(
            id=self.id,
            rules=tuple(self.gates),
            last_tier=self.promise.reference,  # the opinion of this tier is always final
            score_sources=frozenset(readings),
            answering_models=frozenset(answering_names),
        )

    def format_json(self) -> str:
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def join_model_names(models: Iterable[str]) -> str:
    """Join the names of a tier's models into one. The order of `models` doesn't matter."""
    return MODEL_SEPARATOR.join(sorted(models))


def hash_json(content: object) -> str:
    """Hash any JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def bound(labels: int, errors: int, gains: int, level: float, promise: Promise) -> float:
    """Return an upper bound of a gate's error rate. The true rate is higher with probability `level` at most.

    If the promise has a reference, this bounds how much higher the gate's error rate is than the reference's.
    `gains` is then the number of labels that only the reference got wrong.
    """
    if promise.reference is None:
        return compute_upper_bound(errors, labels, level)
    # The difference is at most the highest rate of errors less the lowest rate of gains. Either of these two
    # bounds could be wrong, so each gets half of the level.
    half_level = level / 2
    highest_error_rate = compute_upper_bound(errors, labels, half_level)
    lowest_gain_rate = lower(gains, labels, half_level)
    return highest_error_rate - lowest_gain_rate


_BOUND_ROUNDING_ERROR = 1e-6  # bounds are written with six digits
Flaw: TypeAlias = tuple[str, str]
"""A wrong key, and the problem with its value."""


def find_flaws(calibration: Calibration) -> Iterator[Flaw]:
    """Yield each contradiction in a calibration: the key in the file, and the problem."""
    later_tiers = _list_tiers(calibration)[1:]
    reference = calibration.promise.reference
    if reference is not None and reference not in later_tiers:
        yield "promise.reference", f"expected a tier after the first one, got {reference}"
    for key, count, max_count in _list_count_limits(calibration):
        if count > max_count:
            yield key, f"expected {max_count} at most, got {count}"
    for index, gate in enumerate(calibration.gates):
        for gate_key, problem in _find_class_flaws(calibration, gate):
            yield f"gates.{index}{gate_key}", problem
        for gate_key, problem in _find_count_flaws(calibration, gate):
            yield f"gates.{index}{gate_key}", problem


def _list_tiers(calibration: Calibration) -> list[TierName]:
    """List the tiers with models, in order."""
    return [tier for tier in TIERS if tier in calibration.models]


def _list_count_limits(calibration: Calibration) -> Iterator[tuple[str, int, int]]:
    """Yield the key, value and maximum of each count in a calibration file."""
    has_reference = bool(calibration.promise.reference)
    for key, rule in _list_keyed_rules(calibration):
        # A gain is a label that only the reference got wrong.
        most_gains = rule.labels - rule.errors if has_reference else 0
        yield f"{key}.labels", rule.labels, calibration.cases
        yield f"{key}.errors", rule.errors, rule.labels
        yield f"{key}.gains", rule.gains, most_gains

    measurements = {"with_gates": calibration.with_gates, "without": calibration.without}
    for key, measured in measurements.items():
        yield f"{key}.decided", measured.decided, calibration.cases
        yield f"{key}.errors", measured.errors, measured.decided
        yield f"{key}.by_gate", measured.by_gate, measured.decided


def _list_keyed_rules(calibration: Calibration) -> Iterator[tuple[str, CalibratedRule]]:
    """Yield each rule of a calibration with its key in the file, such as "gates.0"."""
    for index, gate in enumerate(calibration.gates):
        yield f"gates.{index}", gate
    for index, refused_rule in enumerate(calibration.not_promised):
        yield f"not_promised.{index}", refused_rule


def _find_class_flaws(calibration: Calibration, gate: CalibratedRule) -> Iterator[Flaw]:
    """Yield each flaw in a gate's class: a key, such as ".tier", and the problem.

    A gate is a calibration's rule for a class of opinions. The class is a tier, its outcome, and the outcome
    of the previous tier (`after`).
    """
    first_tier = _list_tiers(calibration)[0]
    allowed_tiers = _list_allowed_tiers(calibration, gate)
    if gate.tier not in allowed_tiers:
        yield ".tier", f"expected {' or '.join(allowed_tiers) or 'none'}, got {gate.tier}"

    # With `stands`, the gate upholds the first tier's win although the gate's own tier sees a tie.
    if gate.stands and not _is_win_against_tie(gate, first_tier):
        yield ".stands", f"expected a win of {first_tier} against a tie of {gate.tier}"

    if gate.after is not None and gate.tier == first_tier:
        yield ".after", f"expected none, because {gate.tier} is the first tier"

    class_keys = [_make_class_key(other_gate) for other_gate in calibration.gates]
    if class_keys.count(_make_class_key(gate)) > 1:
        yield "", "expected one gate for each class of opinions, got several"


def _is_win_against_tie(gate: CalibratedRule, winner: TierName) -> bool:
    """Whether a gate upholds a win of the tier `winner` against a tie of the gate's tier."""
    is_tie = gate.outcome == "improve"
    is_after_win = gate.after == "accept"
    return is_tie and is_after_win and gate.stands == winner


def _list_allowed_tiers(calibration: Calibration, gate: CalibratedRule) -> list[TierName]:
    """List the tiers for which a calibration can have a gate like this."""
    tiers = _list_tiers(calibration)
    if gate.stands:
        # The gate upholds the first tier's win against the second tier's tie. It belongs to the second tier.
        return tiers[1:2]
    # The reference is final without a gate. If there's none, the last tier is.
    reference = calibration.promise.reference
    if reference:
        return tiers[: tiers.index(reference)]
    return tiers[:-1]


def _make_class_key(gate: CalibratedRule) -> tuple[str | None, ...]:
    return (gate.tier, gate.outcome, gate.after, gate.stands)


def _find_count_flaws(calibration: Calibration, gate: CalibratedRule) -> Iterator[Flaw]:
    """Yield each flaw in a gate's counts: a key, such as ".labels", and the problem."""
    cases = calibration.cases
    # A case belongs to at most one gate of a tier. So the gates of a tier can't have more labels than there
    # are cases.
    tier_labels = _count_labels_of_tier(calibration, gate.tier)
    if tier_labels > cases:
        yield ".labels", f"expected up to {cases} in all gates of {gate.tier}, got {tier_labels}"

    promised_rate = calibration.promise.rate
    computed_bound = _compute_bound(calibration, gate)
    if computed_bound > promised_rate:
        count = f"{gate.errors} wrong of {gate.labels}"
        support = f"{count} does not support a rate of at most {promised_rate:g}"
        yield ".labels", f"{support}: it may be up to {computed_bound:.3g}"

    # The bound in the file has been rounded.
    is_high_enough = computed_bound - _BOUND_ROUNDING_ERROR <= gate.bound
    is_as_promised = gate.bound <= promised_rate + _BOUND_ROUNDING_ERROR
    is_valid_bound = is_high_enough and is_as_promised
    if not is_valid_bound:
        yield ".bound", f"expected {computed_bound:.6f} to {promised_rate:g}, got {gate.bound:g}"


def _compute_bound(calibration: Calibration, gate: CalibratedRule) -> float:
    """Compute the upper bound of a gate's error rate from its labels."""
    promise = calibration.promise
    # All gates together may break the promise with this probability. Each gets an equal share.
    gate_count = max(1, len(calibration.gates))
    level = (1 - promise.confidence) / gate_count
    return bound(gate.labels, gate.errors, gate.gains, level, promise)


def _count_labels_of_tier(calibration: Calibration, tier: TierName) -> int:
    """Count the labels of a tier's ordinary gates, which are those without `stands`."""
    labels = 0
    for gate in calibration.gates:
        # A case of a gate with `stands` can also belong to an ordinary gate. Don't count it twice.
        if gate.tier == tier and not gate.stands:
            labels += gate.labels
    return labels
