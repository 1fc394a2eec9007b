"""Calibrations: the file's format, and whether its gates follow from its own counts.

The labels are not in the file, but every chosen gate passed its test at an even share of the error that all
gates may have, or at less. With fewer labels or more errors than that share allows, no labels can have led to
the gate, and the file is refused.
"""

from __future__ import annotations

import hashlib
import json
import operator
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AwareDatetime, Field

from judgekit.config import TIERS, ModeName, TierName
from judgekit.config.yamlfile import Strict
from judgekit.judging.binomial import lower, upper
from judgekit.judging.finality import FinalityRule, FinalityRules
from judgekit.judging.jury import JuryRule
from judgekit.judging.score_source import ScoreSource
from judgekit.judging.verdict import RubricRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = "judgekit/calibration@2"
TOGETHER = " + "  # between the models of one jury, where they stand as one name
Readings: TypeAlias = dict[TierName, dict[str, ScoreSource]]
Answered: TypeAlias = dict[TierName, dict[str, str]]
Asking: TypeAlias = dict[TierName, dict[str, str]]
# Nobody gives more; a bound on more takes long.
Count: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


class Asked(Strict):
    """How the opinions came about, in the words of the configuration: other opinions need other gates."""

    samples: Annotated[int, Field(ge=1)] = 1
    criteria: Literal["together", "each"] = "together"
    jury: JuryRule = "mean"
    redact: bool = True


USUALLY = Asked()


class Promise(Strict):
    """Every gate holds with `confidence`: at most this `rate` of its opinions differ from the label.

    With a `reference` it is by how much more often they differ than those of that tier on the same subjects,
    whose own opinion is then the last word.
    """

    rate: Share
    confidence: Share
    reference: TierName | None = None


class CalibratedRule(FinalityRule):
    """A gate, and what shows that it keeps the promise."""

    labels: Count
    errors: Count
    gains: Count = 0
    bound: float


class RefusedRule(CalibratedRule):
    """A class of opinions for which the promise cannot be given; `more` labels of it would do, if any."""

    why: Literal["too few labels", "too many errors"]
    more: int | None = None


class Measured(Strict):
    decided: Count
    errors: Count
    by_gate: Count = 0
    calls: dict[TierName, Annotated[int, Field(ge=0)]]


class Subjects(Strict):
    """How many subjects the labelled comparisons had."""

    least: int
    most: int
    all: int


class Likelihood(Strict):
    """How likely an acceptance is by the labels: at each of the leanings of a decision model, in order."""

    kind: Literal["platt", "isotonic"]
    points: list[tuple[float, float]]


class Saved(Strict):
    """What gates save in a hundred subjects of calls to the next tier: US dollars, seconds; where known."""

    usd: float | None = None
    seconds: float | None = None


class Calibration(Strict):
    """`judgekit/calibration@2`: fits one rubric file, mode and panel of models, and no other.

    `read` says how the opinions of each model were read, `read_otherwise` counts those from which nothing
    was learned because they were not, or because another model than the one `answered` gave them; `asking` is
    a hash of how its profile asks it. With `subjects` it was learned of comparisons in which each of several
    subjects is scored: an acceptance is a lead of the best.
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
    asked: Asked = USUALLY
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

    def rules(self) -> FinalityRules:
        """Return what its gates say, as escalation follows them."""
        readings = set()
        for tier, models in self.read.items():
            readings |= {(tier, model, source) for model, source in models.items()}
        answered = set()
        for tier, names in self.answered.items():
            answered |= {(tier, model, name) for model, name in names.items()}
        return FinalityRules(
            id=self.id,
            rules=tuple(self.gates),
            last=self.promise.reference,
            read=frozenset(readings),
            answered=frozenset(answered),
        )

    def text(self) -> str:
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def together(models: Iterable[str]) -> str:
    """Return the models of a tier as one name; their order says nothing."""
    return TOGETHER.join(sorted(models))


def sha256(content: object) -> str:
    """Return the hash of anything that can be written as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def bound(labels: int, errors: int, gains: int, level: float, promise: Promise) -> float:
    """Return what the rate of `errors` exceeds with a probability of at most `level`.

    With a reference it is less the rate of the `gains`, where only that one erred: both share the `level`.
    """
    if promise.reference is None:
        return upper(errors, labels, level)
    return upper(errors, labels, level / 2) - lower(gains, labels, level / 2)


_ROUNDED = 1e-6  # bounds are written with six digits
Flaw: TypeAlias = tuple[str, str]
"""The key that is wrong, and what was expected of it."""


def flaws(calibration: Calibration) -> Iterator[Flaw]:
    """Yield the keys that do not follow from the others, and what was expected of each."""
    tiers = _tiers(calibration)
    reference = calibration.promise.reference
    if reference is not None and reference not in tiers[1:]:
        yield "promise.reference", f"expected a tier after the first one, got {reference}"
    for key, count, most in _limits(calibration):
        if count > most:
            yield key, f"expected {most} at most, got {count}"
    for place, gate in enumerate(calibration.gates):
        for key, expected in _flaws_of_class(calibration, gate):
            yield f"gates.{place}{key}", expected
        for key, expected in _flaws_of_counts(calibration, gate):
            yield f"gates.{place}{key}", expected


def _tiers(calibration: Calibration) -> list[TierName]:
    """Return the tiers that have models, in the order in which they are asked."""
    return [tier for tier in TIERS if tier in calibration.models]


def _limits(calibration: Calibration) -> Iterator[tuple[str, int, int]]:
    """Yield the key of each count, the count, and how much it may be at most."""
    for name, rules in (("gates", calibration.gates), ("not_promised", calibration.not_promised)):
        for place, rule in enumerate(rules):
            most_gains = 0  # without a reference nothing is gained on it
            if calibration.promise.reference:
                most_gains = rule.labels - rule.errors
            yield f"{name}.{place}.labels", rule.labels, calibration.cases
            yield f"{name}.{place}.errors", rule.errors, rule.labels
            yield f"{name}.{place}.gains", rule.gains, most_gains
    measurements = (("with_gates", calibration.with_gates), ("without", calibration.without))
    for name, measured in measurements:
        yield f"{name}.decided", measured.decided, calibration.cases
        yield f"{name}.errors", measured.errors, measured.decided
        yield f"{name}.by_gate", measured.by_gate, measured.decided


def _flaws_of_class(calibration: Calibration, gate: CalibratedRule) -> Iterator[Flaw]:
    """Yield what is wrong with the opinions that a gate is for; keys are those within the gate."""
    tiers = _tiers(calibration)
    first = tiers[0]
    reference = calibration.promise.reference
    if gate.stands:
        allowed = tiers[1:2]  # a win stands against the tie of the second tier
    elif reference:
        allowed = tiers[: tiers.index(reference)]
    else:
        allowed = tiers[:-1]
    if gate.tier not in allowed:
        yield ".tier", f"expected {' or '.join(allowed) or 'none'}, got {gate.tier}"
    if gate.stands and (gate.outcome, gate.after, gate.stands) != ("improve", "accept", first):
        yield ".stands", f"expected a win of {first} against a tie of {gate.tier}"
    if gate.after is not None and gate.tier == first:
        yield ".after", f"expected none, because {gate.tier} is the first tier"
    gates_of_class = [other for other in calibration.gates if _class_of(other) == _class_of(gate)]
    if len(gates_of_class) > 1:
        yield "", "expected one gate for each class of opinions, got several"


def _class_of(gate: CalibratedRule) -> tuple[str | None, ...]:
    return (gate.tier, gate.outcome, gate.after, gate.stands)


def _flaws_of_counts(calibration: Calibration, gate: CalibratedRule) -> Iterator[Flaw]:
    """Yield where the counts of a gate do not support it; keys are those within the gate."""
    cases = calibration.cases
    promise = calibration.promise
    # The classes of one tier have no opinion in common.
    labels_of_tier = 0
    for other in calibration.gates:
        if other.tier == gate.tier and not other.stands:
            labels_of_tier += other.labels
    if labels_of_tier > cases:
        yield ".labels", f"expected up to {cases} in all gates of {gate.tier}, got {labels_of_tier}"
    # At the largest share of the doubt that a gate can have been tested at.
    level = (1 - promise.confidence) / max(1, len(calibration.gates))
    least_bound = bound(gate.labels, gate.errors, gate.gains, level, promise)
    if least_bound > promise.rate:
        count = f"{gate.errors} wrong of {gate.labels}"
        support = f"{count} does not support a rate of at most {promise.rate:g}"
        yield ".labels", f"{support}: it may be up to {least_bound:.3g}"
    if not least_bound - _ROUNDED <= gate.bound <= promise.rate + _ROUNDED:
        yield ".bound", f"expected {least_bound:.6f} to {promise.rate:g}, got {gate.bound:g}"
