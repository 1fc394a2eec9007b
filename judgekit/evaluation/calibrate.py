"""Chooses gates: which opinions may be final at a promised rate, shown by exact tests on labelled samples.

Opinions of one tier with the same outcome, after the same outcome of the tier before, make a *chain*: the
gate with the largest margin lies within the one with the next smaller, down to the whole class. In a chain
the gates are tested in that order, each at the chain's full level, up to the first that fails (fixed-
sequence testing, Maurer, Hothorn and Lehmacher, 1995; Angelopoulos and others, "Learn then test",
arXiv:2110.01052, use it for risk control). Chains share the error of the whole by Bonferroni. So with the
promised confidence *every* gate that is chosen holds, and no label is kept back for a second look.

Which gates are tried depends on the opinions alone, never on the labels. The one exception is a deeper
tier: what reaches it depends on the gates that the tier before it won, so its level is shared among all the
results which that chain could have had.

From labelled cases with the tiers' opinions to a calibration.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Literal, NamedTuple

from judgekit.config.names import TIERS
from judgekit.errors import InputError
from judgekit.evaluation import ranked, reply_source
from judgekit.evaluation.readings import asked, samples
from judgekit.evaluation.samples import walk
from judgekit.judging import fingerprint
from judgekit.judging.binomial import needed
from judgekit.judging.calibration import (
    SCHEMA,
    CalibratedRule,
    Calibration,
    ErrorCounts,
    Measured,
    Promised,
    RefusedRule,
    Subjects,
    bound,
)
from judgekit.judging.escalation import EscalationRules, FinalityRule, FinalityRules
from judgekit.judging.fingerprint import TOGETHER, Was
from judgekit.judging.verdict import RubricRef
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pydantic import AwareDatetime

    from judgekit.config.names import ModeName, Outcome, TierName
    from judgekit.evaluation.labelled import Case
    from judgekit.evaluation.samples import Sample, Walked
    from judgekit.judging.calibration import Promise
    from judgekit.rubric.loader import LoadedRubric


STEPS = 6  # gates of a chain at most: each step should let in many more opinions than the one before
FREE_SHARE = 0.25  # the first gate is wide enough to hold with errors at this share of the promised rate
WIDER = 1.15  # by how much more opinions a step must let through at least


class Chain(NamedTuple):
    """A class of opinions: what `tier` said after what the tier before it said.

    Where it names one that `stands`: the wins of that tier which `tier` answers with a tie.
    """

    tier: TierName
    outcome: Outcome
    after: Outcome | None
    stands: TierName | None = None

    def rule(self, least_margin: float) -> FinalityRule:
        """Return the gate that lets through what has at least this margin."""
        return FinalityRule(self.tier, self.outcome, least_margin, self.after, self.stands)

    def margin(self, sample: Sample) -> float:
        """Return the margin that counts; a member of the class has one."""
        return sample.margin(self.stands or self.tier) or 0.0

    def is_wrong(self, sample: Sample) -> bool:
        """Whether what the class would make final is not what the label says."""
        return sample.label != "accept" if self.stands else sample.is_wrong(self.tier)


class Tested(NamedTuple):
    """A gate that was tried: what was seen, the bound at its level, and whether it keeps the promise."""

    rule: FinalityRule
    tally: ErrorCounts
    bound: float
    holds: bool


Why = Literal["too few labels", "too many errors"]


class Refused(NamedTuple):
    """A class of opinions that may not be final: its widest gate that failed, and how many `more` labels.

    That many more of this class would do if its share of errors stays; None where no number would.
    """

    chain: Chain
    least_margin: float
    tally: ErrorCounts
    bound: float
    why: Why
    more: int | None


class ChosenRules(NamedTuple):
    """What was found: the gates for the rules, how each of them was shown, and what could not be."""

    finality: FinalityRules
    shown: list[Tested]
    refused: list[Refused]
    chains: int


def choose_rules(samples: Sequence[Sample], tiers: Sequence[TierName], promise: Promise) -> ChosenRules:
    """Return the widest gates that keep the promise; `tiers` are those of the panel, in order."""
    below = list(tiers)[: _last(tiers, promise)]
    chains = _chains(samples, below, promise.reference)
    chains |= _ties(samples, tiers)
    able = _able(chains, promise)
    level = (1 - promise.confidence) / max(1, len(able))
    shown: list[Tested] = []
    refused: list[Refused] = []
    steps: dict[Chain, int] = {}
    for chain, members in chains.items():
        if chain not in able:
            refused.append(_hopeless(chain, members, (1 - promise.confidence) / (len(able) + 1), promise))
            continue
        share = level / (1 + _results_before(chain, steps, tiers))
        reaching = [member for member in members if not _is_final_before(member, chain, tiers, shown)]
        tested = _sequence(chain, reaching, share, promise)
        steps[chain] = len(tested)
        held = [each for each in tested if each.holds]
        shown += held[-1:]
        refused += [_refusal(chain, tested[-1], share, promise)] if tested and not tested[-1].holds else []
    finality = FinalityRules(rules=tuple(each.rule for each in shown), last=promise.reference)
    return ChosenRules(finality, shown, refused, len(chains))


def _last(tiers: Sequence[TierName], promise: Promise) -> int:
    return list(tiers).index(promise.reference) if promise.reference else len(tiers) - 1


def _chains(
    samples: Iterable[Sample], below: Sequence[TierName], reference: TierName | None
) -> dict[Chain, list[Sample]]:
    """Return the classes of opinions with their members, an earlier tier's first.

    Without a reference a deeper tier's opinion is looked at only where it makes an acceptance a rejection or
    the other way round: elsewhere it ends the judging anyway, and a test would only take from the others.
    With one only what it measures is a member.
    """
    found: dict[Chain, list[Sample]] = {}
    for place, tier in enumerate(below):
        for sample in samples:
            outcome = sample.united(tier)
            if outcome is None or sample.margin(tier) is None:
                continue
            after = sample.united(below[place - 1]) if place else None
            ends = sample.wrong is None and {outcome, after} != {"accept", "reject"}
            if place and ends and reference is None:
                continue
            if reference is not None and not sample.is_measured_by(reference):
                continue
            found.setdefault(Chain(tier, outcome, after), []).append(sample)
    return found


def _ties(samples: Iterable[Sample], tiers: Sequence[TierName]) -> dict[Chain, list[Sample]]:
    """Return the wins of the first tier that the second answers with a tie, where they may stand."""
    first, second = tiers[:2]
    members = [
        sample
        for sample in samples
        if sample.stands
        and (sample.united(first), sample.united(second)) == ("accept", "improve")
        and sample.margin(first) is not None
    ]
    return {Chain(second, "improve", "accept", first): members} if members else {}


def _able(chains: dict[Chain, list[Sample]], promise: Promise) -> set[Chain]:
    """Return the chains that have labels enough to pass without any error, the confidence shared by these."""
    ordered = sorted(chains, key=lambda each: -len(chains[each]))
    for count in range(len(ordered), 0, -1):
        least = needed(promise.rate, _one_sided((1 - promise.confidence) / count, promise))
        if least is not None and len(chains[ordered[count - 1]]) >= least:
            return set(ordered[:count])
    return set()


def _one_sided(level: float, promise: Promise) -> float:
    """Return the level at which errors alone are bounded: with a reference half is spent on the gains."""
    return level if promise.reference is None else level / 2


def _results_before(chain: Chain, steps: dict[Chain, int], tiers: Sequence[TierName]) -> int:
    """Return how many gates the chains before this one had: as many results, and none, were possible."""
    place = tiers.index(chain.tier)
    if not place or chain.after is None:
        return 0
    before = [step for step in steps if step.tier == tiers[place - 1] and step.outcome == chain.after]
    return sum(steps[each] for each in before)


def _is_final_before(
    sample: Sample, chain: Chain, tiers: Sequence[TierName], shown: Sequence[Tested]
) -> bool:
    """Whether a gate that holds already ends the judging of a sample before it reaches the chain's tier."""
    finality = FinalityRules(rules=tuple(tested.rule for tested in shown))
    seen: dict[TierName, Outcome | None] = {}
    for tier in tiers[: tiers.index(chain.tier)]:
        seen[tier] = sample.united(tier)
        if finality.final(tier, seen, sample.margins):
            return True
    return False


def _sequence(chain: Chain, members: Sequence[Sample], level: float, promise: Promise) -> list[Tested]:
    """Test a chain's gates from the narrowest to the widest, up to the first that fails."""
    found: list[Tested] = []
    for least in _margins(chain, members, level, promise):
        inside = [member for member in members if chain.margin(member) >= least]
        tally = _tally(chain, inside, promise)
        limit = bound(tally, level, promise)
        found.append(Tested(chain.rule(least), tally, limit, limit <= promise.rate))
        if not found[-1].holds:
            break
    return found


def _margins(chain: Chain, members: Sequence[Sample], level: float, promise: Promise) -> list[float]:
    """Return the margins to try, largest first, from the opinions alone; the last lets all through."""
    margins = sorted(map(chain.margin, members), reverse=True)
    least = needed(promise.rate, _one_sided(level, promise), promise.rate * FREE_SHARE)
    if least is None or len(margins) <= least:
        return margins[-1:]
    found: list[float] = []
    # As many steps as there are lead to the whole class in even ratios.
    wider = max(WIDER, (len(margins) / least) ** (1 / (STEPS - 1)))
    size = float(least)
    while size < len(margins) and len(found) < STEPS - 1:
        margin = margins[ceil(size) - 1]
        inside = sum(each >= margin for each in margins)
        found.append(margin)
        size = max(inside * wider, inside + 1)
    return [*found, margins[-1]] if not found or found[-1] > margins[-1] else found


def _tally(chain: Chain, members: Sequence[Sample], promise: Promise) -> ErrorCounts:
    wrong = [chain.is_wrong(member) for member in members]
    if promise.reference is None:
        return ErrorCounts(len(members), sum(wrong))
    last = promise.reference
    # A reference that failed counts as right: nothing is gained without it.
    beaten = [
        member.outcome(last) is not None and last not in member.ties and member.is_wrong(last)
        for member in members
    ]
    # A win that stands against a tie of the reference is worse than that where it is wrong.
    stands = chain.stands is not None
    losses = sum(one and (stands or not other) for one, other in zip(wrong, beaten, strict=True))
    gains = sum(other and not one for one, other in zip(wrong, beaten, strict=True))
    return ErrorCounts(len(members), losses, gains)


def _hopeless(chain: Chain, members: Sequence[Sample], level: float, promise: Promise) -> Refused:
    """Return the refusal of a class with too few labels even for a test that finds no error.

    `level` is its own share, were it one class more that is tested.
    """
    tally = _tally(chain, members, promise)
    rule = chain.rule(min(map(chain.margin, members)))
    return _refusal(chain, Tested(rule, tally, bound(tally, level, promise), holds=False), level, promise)


def _refusal(chain: Chain, failed: Tested, level: float, promise: Promise) -> Refused:
    wanted = needed(promise.rate, _one_sided(level, promise), max(0.0, failed.tally.rate))
    more = None if wanted is None else max(1, wanted - failed.tally.labels)
    why: Why = "too many errors" if more is None else "too few labels"
    return Refused(chain, failed.rule.least_margin, failed.tally, failed.bound, why, more)


class Learned(NamedTuple):
    """What was learned of whom; of opinions that were `read_otherwise` nothing was."""

    models: Mapping[TierName, str]
    was: Was
    choice: ChosenRules
    read_otherwise: Mapping[TierName, int]
    subjects: Subjects | None = None


def learn(
    cases: Sequence[Case],
    models: Mapping[TierName, str],
    loaded: LoadedRubric,
    mode: ModeName,
    promise: Promise,
    *,
    made: datetime,
    labels_sha256: str,
    asking: Mapping[TierName, Mapping[str, str]] = {},
) -> Calibration:
    """Return what the labels allow to promise; `cases` hold the opinions of the tiers in `models`.

    `asking` is a hash of how each model was asked, where it was asked just now.

    Raises `InputError` for a label that the rubric does not know, or fewer than two tiers.
    """
    tiers = tuple(tier for tier in TIERS if tier in models)
    if len(tiers) < 2 or (promise.reference is not None and promise.reference not in tiers):  # noqa: PLR2004 - as said
        raise InputError(
            f"judges: expected opinions of quick and deep, got {', '.join(tiers) or 'none'};"
            " there is nothing to learn where nobody could be asked next"
        )
    choice, measured = _chosen(cases, models, loaded, mode, tiers, promise)
    read = reply_source.readings(cases)
    apart = Counter(tier for tiers in reply_source.otherwise(cases, read) for tier in tiers)
    counts = [len(case.subjects) for case in cases if case.subjects]
    subjects = Subjects(least=min(counts), most=max(counts), all=sum(counts)) if counts else None
    learned = Learned(models, Was(asked(cases), read, asking), choice, apart, subjects)
    return calibration(loaded, mode, promise, learned, measured, made=made, labels_sha256=labels_sha256)


def _chosen(
    cases: Sequence[Case],
    models: Mapping[TierName, str],
    loaded: LoadedRubric,
    mode: ModeName,
    tiers: tuple[TierName, ...],
    promise: Promise,
) -> tuple[ChosenRules, tuple[Walked, Walked]]:
    """Return the gates, and what judging comes to on the labelled cases with them and without."""
    if ranked.are_ranked(cases, loaded.rubric) and isinstance(loaded.rubric, ScoreRubric):
        items = ranked.items(cases, loaded.rubric, mode)
        choice = choose_rules([item.sample() for item in items], tiers, promise)
        return choice, (ranked.walk(items, choice.finality), ranked.walk(items, None))
    found = samples(cases, loaded, mode)
    choice = choose_rules(found, tiers, promise)
    confirm = getattr(loaded.rubric.modes, mode).confirm
    voices = {tier: frozenset(name.split(TOGETHER)) for tier, name in models.items()}
    rules = EscalationRules(confirm, tiers, models=voices)
    return choice, (walk(found, replace(rules, finality=choice.finality)), walk(found, rules))


def calibration(
    loaded: LoadedRubric,
    mode: ModeName,
    promise: Promise,
    learned: Learned,
    measured: tuple[Walked, Walked],
    *,
    made: AwareDatetime,
    labels_sha256: str,
) -> Calibration:
    """Return what was learned, bound to what it was learned with; `measured` with the gates and without."""
    choice, was = learned.choice, learned.was
    return _named(
        Calibration(
            schema=SCHEMA,
            id="",
            made=made,
            rubric=RubricRef(id=loaded.rubric.rubric, version=loaded.rubric.version, sha256=loaded.sha256),
            mode=mode,
            prompt_sha256=loaded.rubric.prompt.sha256,
            wording_sha256=fingerprint.wording(loaded.rubric, mode),
            models=dict(learned.models),
            asked=was.asked,
            read=was.read,
            asking={tier: dict(models) for tier, models in was.asking.items()},
            subjects=learned.subjects,
            promise=Promised(rate=promise.rate, confidence=promise.confidence, reference=promise.reference),
            gates=[_shown(tested) for tested in choice.shown],
            not_promised=[_not_shown(refused) for refused in choice.refused],
            read_otherwise=dict(learned.read_otherwise),
            cases=measured[0].cases,
            labels_sha256=labels_sha256,
            with_gates=_measured(measured[0]),
            without=_measured(measured[1]),
        )
    )


def _named(known: Calibration) -> Calibration:
    """Return a calibration with its id: the same for the same labels, models, promise and gates."""
    content: list[object] = [known.rubric.sha256, known.mode, known.models, known.prompt_sha256]
    content += [known.labels_sha256, known.asked.model_dump(), known.read, known.asking]
    content += [known.promise.model_dump(), [gate.model_dump() for gate in known.gates]]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return known.model_copy(update={"id": f"{known.rubric.id}-{known.mode}-{digest[:12]}"})


def _shown(tested: Tested) -> CalibratedRule:
    return CalibratedRule(**tested.rule._asdict(), **tested.tally._asdict(), bound=round(tested.bound, 6))


def _not_shown(refused: Refused) -> RefusedRule:
    return RefusedRule(
        **refused.chain._asdict(),
        least_margin=refused.least_margin,
        **refused.tally._asdict(),
        bound=round(refused.bound, 6),
        why=refused.why,
        more=refused.more,
    )


def _measured(walked: Walked) -> Measured:
    return Measured(
        decided=walked.decided, errors=walked.errors, by_gate=walked.by_gate, calls=dict(walked.calls)
    )
