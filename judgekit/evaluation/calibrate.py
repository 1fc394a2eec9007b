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

from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import TIE, TIERS, ModeName, Outcome, TierName
from judgekit.errors import InputError
from judgekit.evaluation.cases import COURSE, Case, Recorded
from judgekit.evaluation.likelihood import learn_likelihood
from judgekit.evaluation.samples import (
    FAILED,
    WHOLE,
    Sample,
    SampleReader,
    TierOpinion,
    asked,
    by_tier,
    points,
    samples,
    score_sources,
)
from judgekit.judging import calibration, ranking
from judgekit.judging.binomial import needed
from judgekit.judging.calibration import CalibratedRule, Calibration, Promise, RefusedRule, bound
from judgekit.judging.escalation import EscalationRules, Final, FinalityRules, towards
from judgekit.judging.ranking import MeansByVoter, RankingRules, RankingStep
from judgekit.judging.verdict import RubricRef
from judgekit.judging.wording import wording
from judgekit.rubric.schema import CompareRubric, Rubric, ScoreRubric, SelectRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from judgekit.judging.score import DocumentJudge
    from judgekit.rubric.loader import LoadedRubric

# Gates of a chain at most: each step should let in many more opinions than the one before.
STEPS = 6
# The same, where a chain holds both what is believed and what is not: finer, so that it ends between them.
LEANING_STEPS = 300
COARSE = 20  # different leanings
_SIDES: tuple[Outcome, Outcome] = ("accept", "reject")
# The first gate is wide enough to hold with errors at this share of the promised rate.
FREE_SHARE = 0.25
# By how much more opinions a step must let through at least.
WIDER = 1.15


class Chain(NamedTuple):
    """Opinions with the outcome of `tier` after another; or wins of a tier that may stand against its tie.

    Of a decision model it is all opinions, the farthest on the side of the outcome first: where it leans to
    one side throughout, the least leaning of them may be right about the other.
    """

    tier: TierName
    outcome: Outcome
    after: Outcome | None
    stands: TierName | None = None
    leans: bool = False

    def margin(self, sample: Sample) -> float:
        if self.leans:
            return towards(self.outcome, sample.leanings[self.tier])
        return sample.margin(self.stands or self.tier) or 0.0

    def margin_fields(self, value: float) -> dict[str, float | None]:
        """Return the fields of a gate that lets through what is at least so far."""
        if self.leans:
            return {"least_margin": 0.0, "leaning": value}
        return {"least_margin": value}

    def is_wrong(self, sample: Sample) -> bool:
        if self.stands is not None:
            return sample.label != "accept"
        if self.leans:
            return not sample.is_right(self.outcome)
        return sample.is_wrong(self.tier)


Chains: TypeAlias = dict[Chain, list[Sample]]


class ChosenRules(NamedTuple):
    """The gates that hold, the evidence for each of them, and the classes without one."""

    finality: FinalityRules
    gates: list[CalibratedRule]
    refused: list[RefusedRule]


def choose_rules(
    samples: Sequence[Sample], tiers: Sequence[TierName], promise: Promise
) -> ChosenRules:
    """Return the widest gates that keep the promise; `tiers` are those of the panel, in order."""
    chains = _chains(samples, tiers, promise.reference)
    doubt = 1 - promise.confidence
    able = _testable(chains, doubt, promise)
    gates: list[CalibratedRule] = []
    refused = []
    steps: dict[Chain, int] = {}
    for chain, members in chains.items():
        if chain not in able:
            # Its own share, if it were one class more that is tested.
            level = doubt / (len(able) + 1)
            least = min(map(chain.margin, members))
            tested = _test_gate(chain, least, members, level, promise)
            if isinstance(tested, RefusedRule):
                refused.append(tested)
            continue
        place = tiers.index(chain.tier)
        level = doubt / len(able) / _possible_results(chain, tiers, steps)
        reaching = _reaching(members, tiers[:place], FinalityRules(rules=tuple(gates)))
        widest = None
        steps[chain] = 0
        for least in _margins(chain, reaching, level, promise):
            steps[chain] += 1
            inside = [sample for sample in reaching if chain.margin(sample) >= least]
            tested = _test_gate(chain, least, inside, level, promise)
            if isinstance(tested, RefusedRule):
                refused.append(tested)
                break
            widest = tested
        if widest is not None:
            gates.append(widest)
    gates = _apart(gates)
    finality = FinalityRules(rules=tuple(gates), last=promise.reference)
    return ChosenRules(finality, gates, refused)


def _apart(gates: Sequence[CalibratedRule]) -> list[CalibratedRule]:
    """Return gates, of two sides of a decision model that overlap only the one with more labels."""
    kept = list(gates)
    for gate in gates:
        for other in gates:
            if gate.leaning is None or other.leaning is None or gate.tier != other.tier:
                continue
            overlaps = gate.outcome != other.outcome and gate.leaning + other.leaning <= 0
            if overlaps and gate.labels < other.labels and gate in kept:
                kept.remove(gate)
    return kept


def _testable(chains: Chains, doubt: float, promise: Promise) -> set[Chain]:
    """Return the chains with labels enough to pass without any error: they share the confidence."""
    largest = sorted(chains, key=lambda chain: -len(chains[chain]))
    able = set[Chain]()
    for count, chain in enumerate(largest, 1):
        least_labels = _labels_needed(promise, doubt / count)
        if least_labels is not None and len(chains[chain]) >= least_labels:
            able = set(largest[:count])
    return able


def _possible_results(chain: Chain, tiers: Sequence[TierName], steps: Mapping[Chain, int]) -> int:
    """Return how many results were possible before a chain: as many as there were steps, and none."""
    before = None
    if chain.after is not None:
        before = tiers[tiers.index(chain.tier) - 1]
    results = 1
    for step, count in steps.items():
        if (step.tier, step.outcome) == (before, chain.after):
            results += count
    return results


def _reaching(
    members: Iterable[Sample], earlier: Sequence[TierName], finality: FinalityRules
) -> list[Sample]:
    """Return the samples that no gate of an earlier tier ends."""
    reaching = []
    for sample in members:
        seen = {tier: sample.united(tier) for tier in earlier}
        is_final = any(finality.final(tier, seen, sample.margins) for tier in seen)
        is_decided = any(finality.decided(tier, sample.leanings) for tier in seen)
        if not is_final and not is_decided:
            reaching.append(sample)
    return reaching


def _chains(
    samples: Sequence[Sample], tiers: Sequence[TierName], reference: TierName | None
) -> Chains:
    """Return the classes of opinions with their members, an earlier tier's first."""
    chains: Chains = {}
    last = tiers.index(reference or tiers[-1])
    for place, tier in enumerate(tiers[:last]):
        for sample in samples:
            outcome = sample.united(tier)
            if outcome is None or sample.margin(tier) is None:
                continue
            if place == 0 and tier in sample.leanings:
                if reference is None or sample.is_measured_by(reference):
                    for side in _SIDES:
                        chains.setdefault(Chain(tier, side, None, leans=True), []).append(sample)
                continue
            after = sample.united(tiers[place - 1]) if place else None
            if reference:
                is_testable = sample.is_measured_by(reference)
            else:
                # A deeper opinion ends the judging anyway; a test would only take from the others.
                is_dispute = sample.wrong is not None or {outcome, after} == {"accept", "reject"}
                is_testable = place == 0 or is_dispute
            if is_testable:
                chains.setdefault(Chain(tier, outcome, after), []).append(sample)
    first, second = tiers[:2]
    for sample in samples:
        win_and_tie = (sample.united(first), sample.united(second)) == ("accept", "improve")
        if sample.stands and win_and_tie and sample.margin(first) is not None:
            chain = Chain(second, "improve", after="accept", stands=first)
            chains.setdefault(chain, []).append(sample)
    return chains


def _labels_needed(promise: Promise, level: float, share: float = 0.0) -> int | None:
    """Return how many labels, `share` of them errors, keep a promise: with a reference half is for gains."""
    if promise.reference:
        level = level / 2
    return needed(promise.rate, level, share)


def _margins(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise
) -> list[float]:
    """Return the margins to try, largest first, from the opinions alone; the last lets all through."""
    margins = sorted(map(chain.margin, members), reverse=True)
    is_coarse = chain.leans and len(set(margins)) <= COARSE
    # On a coarse scale the first gate is what ties there, and may be as small as can hold.
    share = 0.0 if is_coarse else promise.rate * FREE_SHARE
    least = _labels_needed(promise, level, share)
    if least is None or len(margins) <= least:
        return margins[-1:]
    steps: list[float] = []
    most = STEPS
    wider = WIDER
    if chain.leans:
        most = LEANING_STEPS
        wider = 1.0
    # As many steps as there are lead to the whole class in even ratios.
    even = (len(margins) / least) ** (1 / (most - 1))
    wider = max(wider, even)
    size = float(least)
    while size < len(margins) and len(steps) < most - 1:
        margin = margins[ceil(size) - 1]
        inside = sum(other >= margin for other in margins)
        steps.append(margin)
        size = max(inside * wider, inside + 1)
    if not steps or steps[-1] > margins[-1]:
        steps.append(margins[-1])
    return steps


def _test_gate(
    chain: Chain, least_margin: float, members: Sequence[Sample], level: float, promise: Promise
) -> CalibratedRule | RefusedRule:
    """Return the gate that lets opinions of `chain` from `least_margin` on through, or why none may.

    `members` are the labelled cases with such opinions. The gate holds where the bound on its errors, at this
    `level` of doubt, is within the promise. A refused one says how many labels more would do if errors stay
    as rare.
    """
    errors = 0
    gains = 0
    for member in members:
        is_wrong = chain.is_wrong(member)
        is_reference_wrong = _is_reference_wrong(member, promise.reference)
        if is_wrong:
            # An error that the reference makes, too, costs nothing. But where a win stands against a tie of
            # the reference, the tie is less wrong than the win, so the error counts.
            if chain.stands is not None or not is_reference_wrong:
                errors += 1
        elif is_reference_wrong:
            gains += 1
    labels = len(members)
    error_bound = bound(labels, errors, gains, level, promise)
    evidence = {
        "tier": chain.tier,
        "outcome": chain.outcome,
        "after": chain.after,
        "stands": chain.stands,
        **chain.margin_fields(least_margin),
        "labels": labels,
        "errors": errors,
        "gains": gains,
        "bound": round(error_bound, 6),
    }
    if error_bound <= promise.rate:
        return CalibratedRule(**evidence)
    error_rate = max(0.0, (errors - gains) / labels)
    labels_needed = _labels_needed(promise, level, error_rate)
    if labels_needed is None:
        return RefusedRule(**evidence, why="too many errors", more=None)
    more = max(1, labels_needed - labels)  # the gate was refused, so at least one is missing
    return RefusedRule(**evidence, why="too few labels", more=more)


def _is_reference_wrong(member: Sample, reference: TierName | None) -> bool:
    """Whether the reference erred; one that failed counts as right, since nothing is gained without it."""
    if reference is None or member.outcome(reference) is None or reference in member.ties:
        return False
    return member.is_wrong(reference)


# --- What rules come to on the labelled cases


class Walked(NamedTuple):
    """How one judging would end: its calls, whether it is right (None: undecided), whether by a gate."""

    calls: Mapping[TierName, int]
    right: bool | None
    by_gate: bool


def measured(walks: Sequence[Walked], tiers: Sequence[TierName]) -> calibration.Measured:
    calls = dict.fromkeys(tiers, 0)
    decided = 0
    errors = 0
    by_gate = 0
    for walked in walks:
        for tier in tiers:
            calls[tier] += walked.calls.get(tier, 0)
        decided += walked.right is not None
        errors += walked.right is False
        by_gate += walked.by_gate
    return calibration.Measured(decided=decided, errors=errors, by_gate=by_gate, calls=calls)


def walk(sample: Sample, rules: EscalationRules) -> Walked:
    final, tiers = walk_tiers(sample, rules)
    calls = dict.fromkeys(tiers, 1)
    gates = rules.finality
    if final.tier is None:
        return Walked(calls, None, by_gate=False)
    by_gate = False
    if gates and final.tier != gates.last:
        outcomes = {tier: sample.united(tier) for tier in tiers}
        by_gate = gates.decided(final.tier, sample.leanings) is not None
        by_gate = by_gate or bool(gates.final(final.tier, outcomes, sample.margins))
    return Walked(calls, sample.is_right(final.verdict), by_gate)


def walk_tiers(sample: Sample, rules: EscalationRules) -> tuple[Final, list[TierName]]:
    rules = replace(rules, truncated=sample.cut)
    seen: dict[TierName, Outcome | None] = {}
    divided: dict[TierName, bool] = {}
    while not isinstance(step := rules.next(seen, sample.margins, divided, sample.leanings), Final):
        opinion = sample.voices.get(step, FAILED)
        seen[step] = opinion.outcome
        if opinion.divided is not None:
            divided[step] = opinion.divided
    final = step
    if sample.stands and rules.finality and final.tier and final.verdict == "improve":
        winner = rules.finality.stands(final.tier, seen, sample.margins)
        if winner:
            final = Final("accept", "single", winner)
    return final, list(seen)


class RankedCase(NamedTuple):
    """A case with the scores of its subjects by tier; `apart` are tiers that were read otherwise."""

    case: Case
    rubric: ScoreRubric
    mode: ModeName
    said: Mapping[TierName, MeansByVoter]
    best: str
    apart: frozenset[TierName] = frozenset()

    def turns(
        self, finality: FinalityRules | None
    ) -> Iterator[tuple[int, RankingStep, str | None]]:
        """Yield each tier's calls, its step, and the winner or tie, if no tier is asked after it."""
        panel = {tier: {voter.model for voter in means} for tier, means in self.said.items()}
        margins = ranking.usual_margins(self.rubric)
        letters = tuple(self.case.letters)
        rules = RankingRules(letters, panel, margins, self.mode, finality)
        steps: list[RankingStep] = []
        while tier := rules.following(steps):
            alive = steps[-1].contenders if steps else letters
            means = self.said[tier]
            cut = self.case.judges[tier].cut
            step = rules.step(steps, tier, means, is_cut=cut, is_barred=tier in self.apart)
            steps.append(step)
            word = None
            if step.means is not None and not step.is_cut:
                word = rules.winner(step) or TIE
            yield ranking.count_calls(means, alive), step, word

    def walk(self, finality: FinalityRules | None) -> Walked:
        turns = list(self.turns(finality))
        _, last, word = turns[-1]
        is_right = None if word is None else word == self.best
        calls = {step.tier: count for count, step, _ in turns}
        return Walked(calls, is_right, by_gate=last.is_by_calibration)

    def sample(self) -> Sample:
        """Return the case as gates are learned from it: each tier's step, none before it having ended it."""
        best = None if self.best == TIE else self.best
        voices = {}
        ties = set()
        wrong = set()
        for _, step, word in self.turns(FinalityRules()):
            tier = step.tier
            margin = step.lead or None
            if step.has_result or step.is_cut or tier in self.apart:
                margin = None
            voices[tier] = TierOpinion(step.outcome, margin)
            if word == TIE:
                ties.add(tier)
            if step.best != best:
                wrong.add(tier)
        return Sample(self.case.id, "accept", voices, ties=frozenset(ties), wrong=frozenset(wrong))


def ranked(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[RankedCase]:
    """Return cases about the best of several subjects, none of other cases; raises `InputError`."""
    if not any(case.subjects for case in cases):
        return []
    if not isinstance(rubric, ScoreRubric):
        raise InputError(
            f"subjects are scored; name a rubric of the task 'score', got {rubric.ref}"
        )
    ranked_cases = []
    reader = SampleReader(rubric, mode)
    _, apart_by_case = score_sources(cases)
    for case, apart in zip(cases, apart_by_case, strict=True):
        if len(case.subjects) < 2:  # noqa: PLR2004 - one text is not compared
            wanted = "at least two texts" if case.subjects else "in all cases, or in none"
            raise case.wrong(f"subjects: expected {wanted}")
        means = {}
        for tier, recorded in by_tier(case).items():
            means[tier] = points(case, recorded)
        best = reader.labels(case)[WHOLE]
        ranked_cases.append(RankedCase(case, rubric, mode, means, best, apart))
    return ranked_cases


class Opinions(NamedTuple):
    """The cases with the models' answers, the model of each tier, a hash of how each is asked; who asked."""

    cases: list[Case]
    models: Mapping[TierName, str]
    asking: calibration.Asking
    judge: DocumentJudge | None = None

    def with_course(self, rubric: Rubric, mode: ModeName) -> list[Case]:
        """Return cases about documents or candidates with one judge more: what the tiers come to."""
        has_several = any(case.subjects for case in self.cases)
        if self.judge is None or isinstance(rubric, CompareRubric) or has_several:
            return self.cases
        settings = self.judge.settings
        rules = settings.escalation_rules(margin=settings.margin)
        reader = SampleReader(rubric, mode)
        _, apart_by_case = score_sources(self.cases)
        cases = []
        for case, apart in zip(self.cases, apart_by_case, strict=True):
            course = Recorded(**_walk_case(case, apart, rules, rubric, reader))
            cases.append(case.with_judges({COURSE: course}))
        return cases


def _walk_case(
    case: Case,
    apart: Collection[TierName],
    rules: EscalationRules,
    rubric: ScoreRubric | SelectRubric,
    reader: SampleReader,
) -> dict[str, Any]:
    """Return what the tiers come to about a case, as the fields of `Recorded`."""
    opinions = {}
    for tier in rules.tiers:
        if tier in case.judges:
            opinions[tier] = reader.opinions(rubric, case, case.judges[tier])
    cut = frozenset(tier for tier in opinions if case.judges[tier].cut)
    ends = {}
    asked_tiers = set[TierName]()
    for part in next(iter(opinions.values())):
        voices = {}
        for tier, opinion_by_part in opinions.items():
            voices[tier] = opinion_by_part[part]
            if tier in apart:
                voices[tier] = voices[tier]._replace(margin=None)
        # A tier that was not asked is none to wait for.
        rules_of_asked = replace(rules, tiers=tuple(voices))
        sample = Sample(part, "accept", voices, cut)
        ends[part], tiers = walk_tiers(sample, rules_of_asked)
        asked_tiers.update(tiers)
    calls = sum(case.judges[tier].calls for tier in asked_tiers)
    if WHOLE not in ends:
        keep = []
        unjudged = []
        for part, end in ends.items():
            if end.verdict == "accept":
                keep.append(part)
            if not end.tier:
                unjudged.append(part)
        return {"calls": calls, "keep": keep, "unjudged": unjudged}
    end = ends[WHOLE]
    if not end.tier:
        return {"calls": calls, "failure": end.verdict}
    rated = opinions[end.tier][WHOLE].rated or {}
    scores = {name: rated[name] for name in rubric.questions}
    return {"calls": calls, "scores": scores}


def learn(
    opinions: Opinions,
    loaded: LoadedRubric,
    mode: ModeName,
    promise: Promise,
    *,
    made: datetime,
    digest: str,
) -> Calibration:
    """Return what labels (of this `digest`) promise; raises `InputError` for odd ones, or too few tiers."""
    cases = opinions.cases
    models = opinions.models
    rubric = loaded.rubric
    tiers = tuple(tier for tier in TIERS if tier in models)
    if len(tiers) < 2 or (promise.reference is not None and promise.reference not in tiers):  # noqa: PLR2004 - as said
        wanted = f"judges: expected opinions of quick and deep, got {', '.join(tiers) or 'none'}"
        raise InputError(f"{wanted}; a calibration needs a next tier")
    read, tiers_read_otherwise = score_sources(cases)
    ranked_cases = ranked(cases, rubric, mode)
    likelihoods = {}
    saved = None
    with_gates = []
    without_gates = []
    if ranked_cases:
        choice = choose_rules([case.sample() for case in ranked_cases], tiers, promise)
        for case in ranked_cases:
            with_gates.append(case.walk(choice.finality))
            without_gates.append(case.walk(None))
    else:
        labelled = samples(cases, rubric, mode)
        choice = choose_rules(labelled, tiers, promise)
        rules = _usual_rules(rubric, mode, models, read)
        gated_rules = replace(rules, finality=choice.finality)
        for sample in labelled:
            with_gates.append(walk(sample, gated_rules))
            without_gates.append(walk(sample, rules))
        likelihoods = _likelihoods(labelled)
    if likelihoods:
        saved = _saved(cases, with_gates, tiers)
    read_otherwise = {}
    for tier in TIERS:
        count = sum(tier in tiers_of_case for tiers_of_case in tiers_read_otherwise)
        if count:
            read_otherwise[tier] = count
    reference = RubricRef(id=rubric.rubric, version=rubric.version, sha256=loaded.sha256)
    learned = Calibration(
        schema=calibration.SCHEMA,
        id="",
        made=made,
        rubric=reference,
        mode=mode,
        prompt_sha256=rubric.prompt.sha256,
        wording_sha256=wording(loaded, mode),
        models=dict(models),
        asked=asked(cases),
        read=read,
        asking=opinions.asking,
        subjects=_count_subjects(ranked_cases),
        promise=promise,
        gates=choice.gates,
        not_promised=choice.refused,
        read_otherwise=read_otherwise,
        cases=len(without_gates),
        labels_sha256=digest,
        with_gates=measured(with_gates, tiers),
        without=measured(without_gates, tiers),
        likelihoods=likelihoods,
        saved=saved,
    )
    return learned.model_copy(update={"id": f"{rubric.rubric}-{mode}-{_digest(learned)}"})


def _usual_rules(
    rubric: Rubric, mode: ModeName, models: Mapping[TierName, str], readings: calibration.Readings
) -> EscalationRules:
    """Return the rules of escalation as they are without anything learned."""
    models_by_tier = {}
    unproven = []
    for tier in TIERS:
        if tier in models:
            models_by_tier[tier] = frozenset(models[tier].split(calibration.TOGETHER))
        # Decision models alone accept nothing in strict mode.
        sources = set(readings.get(tier, {}).values())
        if mode == "strict" and sources == {"decided"}:
            unproven.append(tier)
    confirm = getattr(rubric.modes, mode).confirm
    tiers = tuple(models_by_tier)
    return EscalationRules(confirm, tiers, models=models_by_tier, unproven=unproven)


def _likelihoods(samples: Sequence[Sample]) -> dict[TierName, calibration.Likelihood]:
    """Return how likely an acceptance is by the leaning of each tier whose models decide."""
    likelihoods = {}
    for tier in TIERS:
        labelled = []
        for sample in samples:
            if tier in sample.leanings:
                labelled.append((sample.leanings[tier], sample.label == "accept"))
        curve = learn_likelihood(labelled)
        if curve is not None:
            likelihoods[tier] = curve
    return likelihoods


def _saved(
    cases: Sequence[Case], walks: Sequence[Walked], tiers: Sequence[TierName]
) -> calibration.Saved:
    """Return what the second tier's calls that gates spare would take, a hundred subjects."""
    second = tiers[1]
    costs = []
    waits = []
    for case in cases:
        recorded = case.judges.get(second)
        if recorded is not None and recorded.cost_usd is not None:
            costs.append(recorded.cost_usd)
        if recorded is not None and recorded.latency_ms is not None:
            waits.append(recorded.latency_ms / 1000)
    final = sum(walked.by_gate and second not in walked.calls for walked in walks)
    share = 100 * final / len(walks)
    usd = None
    seconds = None
    if costs:
        usd = round(share * fmean(costs), 6)
    if waits:
        seconds = round(share * fmean(waits), 1)
    return calibration.Saved(usd=usd, seconds=seconds)


def _count_subjects(cases: Sequence[RankedCase]) -> calibration.Subjects | None:
    if not cases:
        return None
    counts = [len(ranked_case.case.subjects) for ranked_case in cases]
    return calibration.Subjects(least=min(counts), most=max(counts), all=sum(counts))


def _digest(learned: Calibration) -> str:
    """Return a hash that is the same for the same labels, models, promise and gates."""
    content = [
        learned.rubric.sha256,
        learned.mode,
        learned.models,
        learned.prompt_sha256,
        learned.labels_sha256,
        learned.asked.model_dump(),
        learned.read,
        learned.asking,
        learned.promise.model_dump(),
        [gate.model_dump() for gate in learned.gates],
    ]
    return calibration.sha256(content)[:12]
