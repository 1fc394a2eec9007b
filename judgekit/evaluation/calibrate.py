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
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config import TIERS
from judgekit.errors import InputError
from judgekit.evaluation.samples import asked, ranked, samples, score_sources, walk, walk_ranked
from judgekit.judging import fingerprint
from judgekit.judging.binomial import needed
from judgekit.judging.calibration import (
    SCHEMA,
    CalibratedRule,
    Calibration,
    ErrorCounts,
    Promised,
    RefusedRule,
    Subjects,
    bound,
)
from judgekit.judging.escalation import EscalationRules, FinalityRules
from judgekit.judging.fingerprint import TOGETHER
from judgekit.judging.verdict import RubricRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.evaluation.cases import Case
    from judgekit.evaluation.samples import Sample
    from judgekit.judging.calibration import Promise
    from judgekit.rubric.loader import LoadedRubric


STEPS = 6  # gates of a chain at most: each step should let in many more opinions than the one before
FREE_SHARE = 0.25  # the first gate is wide enough to hold with errors at this share of the promised rate
WIDER = 1.15  # by how much more opinions a step must let through at least


class Chain(NamedTuple):
    """A class of opinions: the outcome of `tier` after that of the tier before it.

    Where it names one that `stands`: the wins of that tier which `tier` answers with a tie.
    """

    tier: TierName
    outcome: Outcome
    after: Outcome | None
    stands: TierName | None = None

    def margin(self, sample: Sample) -> float:
        """Return the margin that counts; a member of the class has one."""
        return sample.margin(self.stands or self.tier) or 0.0

    def is_wrong(self, sample: Sample) -> bool:
        """Whether the label differs from what the class would make final."""
        return sample.label != "accept" if self.stands else sample.is_wrong(self.tier)


class ChosenRules(NamedTuple):
    """The rules with the gates that hold, the evidence for each of these, and the classes without one."""

    finality: FinalityRules
    gates: list[CalibratedRule]
    refused: list[RefusedRule]


def choose_rules(samples: Sequence[Sample], tiers: Sequence[TierName], promise: Promise) -> ChosenRules:
    """Return the widest gates that keep the promise; `tiers` are those of the panel, in order."""
    chains = _chains(samples, tiers, promise.reference)
    able = _able(chains, promise)
    gates: list[CalibratedRule] = []
    refused: list[RefusedRule] = []
    steps: dict[Chain, int] = {}
    for chain, members in chains.items():
        if chain not in able:
            # Its own share, if it were one class more that is tested.
            level = (1 - promise.confidence) / (len(able) + 1)
            least = min(map(chain.margin, members))
            refused.append(_refusal(chain, least, _tally(chain, members, promise), level, promise))
            continue
        # As many results as the chains before this one had gates, and none, were possible.
        before = tiers[tiers.index(chain.tier) - 1] if chain.after is not None else None
        results = [
            count for step, count in steps.items() if (step.tier, step.outcome) == (before, chain.after)
        ]
        level = (1 - promise.confidence) / len(able) / (1 + sum(results))
        reaching = [sample for sample in members if not _is_final_before(sample, chain, tiers, gates)]
        held: list[CalibratedRule] = []
        steps[chain] = 0
        for least in _margins(chain, reaching, level, promise):
            steps[chain] += 1
            tally = _tally(chain, [each for each in reaching if chain.margin(each) >= least], promise)
            limit = bound(tally, level, promise)
            if limit > promise.rate:
                refused.append(_refusal(chain, least, tally, level, promise))
                break
            evidence = {**chain._asdict(), **tally._asdict(), "bound": round(limit, 6)}
            held.append(CalibratedRule(least_margin=least, **evidence))
        gates += held[-1:]
    rules = tuple(gate.rule for gate in gates)
    return ChosenRules(FinalityRules(rules=rules, last=promise.reference), gates, refused)


def _chains(
    samples: Sequence[Sample], tiers: Sequence[TierName], reference: TierName | None
) -> dict[Chain, list[Sample]]:
    """Return the classes of opinions with their members, an earlier tier's first.

    Without a reference a deeper tier's opinion is looked at only where it makes an acceptance a rejection or
    the other way round: elsewhere it ends the judging anyway, and a test would only take from the others.
    With one only what it measures is a member. The last class are the wins of the first tier that the second
    answers with a tie, where they may stand.
    """
    found: dict[Chain, list[Sample]] = {}
    last = list(tiers).index(reference) if reference else len(tiers) - 1
    for place, tier in enumerate(tiers[:last]):
        for sample in samples:
            outcome = sample.united(tier)
            if outcome is None or sample.margin(tier) is None:
                continue
            after = sample.united(tiers[place - 1]) if place else None
            ends = sample.wrong is None and {outcome, after} != {"accept", "reject"}
            if place and ends and reference is None:
                continue
            if reference is None or sample.is_measured_by(reference):
                found.setdefault(Chain(tier, outcome, after), []).append(sample)
    first, second = tiers[:2]
    for sample in samples:
        win_and_tie = (sample.united(first), sample.united(second)) == ("accept", "improve")
        if sample.stands and win_and_tie and sample.margin(first) is not None:
            found.setdefault(Chain(second, "improve", "accept", first), []).append(sample)
    return found


def _able(chains: Mapping[Chain, Sequence[Sample]], promise: Promise) -> set[Chain]:
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


def _is_final_before(
    sample: Sample, chain: Chain, tiers: Sequence[TierName], gates: Sequence[CalibratedRule]
) -> bool:
    """Whether a gate that holds already ends the judging of a sample before it reaches the chain's tier."""
    finality = FinalityRules(rules=tuple(gate.rule for gate in gates))
    seen: dict[TierName, Outcome | None] = {}
    for tier in tiers[: tiers.index(chain.tier)]:
        seen[tier] = sample.united(tier)
        if finality.final(tier, seen, sample.margins):
            return True
    return False


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
    losses, gains, last = 0, 0, promise.reference
    for member in members:
        wrong = chain.is_wrong(member)
        # A reference that failed counts as right: nothing is gained without it.
        answered = last is not None and member.outcome(last) is not None and last not in member.ties
        beaten = last is not None and answered and member.is_wrong(last)
        # A win that stands against a tie of the reference is worse than that where it is wrong.
        losses += wrong and (chain.stands is not None or not beaten)
        gains += beaten and not wrong
    return ErrorCounts(len(members), losses, gains)


def _refusal(
    chain: Chain, least_margin: float, tally: ErrorCounts, level: float, promise: Promise
) -> RefusedRule:
    """Return a class that may not be final, with its widest gate that failed.

    `more` labels of this class would do if its share of errors stays; None where no number would.
    """
    wanted = needed(promise.rate, _one_sided(level, promise), max(0.0, tally.rate))
    return RefusedRule(
        **chain._asdict(),
        **tally._asdict(),
        least_margin=least_margin,
        bound=round(bound(tally, level, promise), 6),
        why="too many errors" if wanted is None else "too few labels",
        more=None if wanted is None else max(1, wanted - tally.labels),
    )


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
            f"judges: expected opinions of quick and deep, got {', '.join(tiers) or 'none'}; a "
            "calibration needs a next tier"
        )
    rubric, subjects = loaded.rubric, None
    if items := ranked(cases, rubric, mode):
        choice = choose_rules([item.sample() for item in items], tiers, promise)
        measured = walk_ranked(items, choice.finality), walk_ranked(items, None)
        counts, total = [len(case.subjects) for case in cases], len(items)
        subjects = Subjects(least=min(counts), most=max(counts), all=sum(counts))
    else:
        found = samples(cases, rubric, mode)
        total = len(found)
        choice = choose_rules(found, tiers, promise)
        voices = {tier: frozenset(name.split(TOGETHER)) for tier, name in models.items()}
        rules = EscalationRules(getattr(rubric.modes, mode).confirm, tiers, models=voices)
        measured = walk(found, replace(rules, finality=choice.finality)), walk(found, rules)
    read, apart = score_sources(cases)
    known = Calibration(
        schema=SCHEMA,
        id="",
        made=made,
        rubric=RubricRef(id=rubric.rubric, version=rubric.version, sha256=loaded.sha256),
        mode=mode,
        prompt_sha256=rubric.prompt.sha256,
        wording_sha256=fingerprint.wording(rubric, mode),
        models=dict(models),
        asked=asked(cases),
        read=read,
        asking={tier: dict(hashes) for tier, hashes in asking.items()},
        subjects=subjects,
        promise=Promised(rate=promise.rate, confidence=promise.confidence, reference=promise.reference),
        gates=choice.gates,
        not_promised=choice.refused,
        read_otherwise=dict(Counter(tier for tiers in apart for tier in tiers)),
        cases=total,
        labels_sha256=labels_sha256,
        with_gates=measured[0],
        without=measured[1],
    )
    return known.model_copy(update={"id": f"{rubric.rubric}-{mode}-{_digest(known)[:12]}"})


def _digest(known: Calibration) -> str:
    """Return a hash that is the same for the same labels, models, promise and gates."""
    content: list[object] = [known.rubric.sha256, known.mode, known.models, known.prompt_sha256]
    content += [known.labels_sha256, known.asked.model_dump(), known.read, known.asking]
    content += [known.promise.model_dump(), [gate.model_dump() for gate in known.gates]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
