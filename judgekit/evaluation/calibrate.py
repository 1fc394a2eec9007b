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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import TIE, TIERS, ModeName, Outcome, TierName
from judgekit.errors import InputError
from judgekit.evaluation.cases import COURSE, Case, Recorded
from judgekit.evaluation.samples import (
    Reader,
    Sample,
    TierOpinion,
    asked,
    points,
    samples,
    score_sources,
)
from judgekit.judging import calibration, ranking
from judgekit.judging.binomial import needed
from judgekit.judging.calibration import CalibratedRule, Calibration, Promise, RefusedRule, bound
from judgekit.judging.escalation import EscalationRules, Final, FinalityRules
from judgekit.judging.ranking import MeansByVoter, RankingRules, RankingStep
from judgekit.judging.verdict import RubricRef
from judgekit.rubric.schema import CompareRubric, Rubric, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from judgekit.judging.score import DocumentJudge
    from judgekit.rubric.loader import LoadedRubric

STEPS = (
    6  # gates of a chain at most: each step should let in many more opinions than the one before
)
FREE_SHARE = (
    0.25  # the first gate is wide enough to hold with errors at this share of the promised rate
)
WIDER = 1.15  # by how much more opinions a step must let through at least


class Chain(NamedTuple):
    """Opinions with the outcome of `tier` after another; or wins of a tier that may stand against its tie."""

    tier: TierName
    outcome: Outcome
    after: Outcome | None
    stands: TierName | None = None

    def margin(self, sample: Sample) -> float:
        return sample.margin(self.stands or self.tier) or 0.0


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
    # Chains that have labels enough to pass without any error share the confidence.
    largest = sorted(chains, key=lambda chain: -len(chains[chain]))
    doubt = 1 - promise.confidence
    able = set[Chain]()
    for count in range(1, len(largest) + 1):
        least_labels = _labels(promise, doubt / count)
        if least_labels is not None and len(chains[largest[count - 1]]) >= least_labels:
            able = set(largest[:count])
    gates: list[CalibratedRule] = []
    refused: list[RefusedRule] = []
    steps: dict[Chain, int] = {}
    for chain, members in chains.items():
        if chain not in able:
            # Its own share, if it were one class more that is tested.
            least = min(map(chain.margin, members))
            tested = _tested(chain, least, members, doubt / (len(able) + 1), promise)
            refused += [tested] if isinstance(tested, RefusedRule) else []
            continue
        # As many results as the chains before this one had gates, and none, were possible.
        place = tiers.index(chain.tier)
        source = tiers[place - 1] if chain.after is not None else None, chain.after
        results = [count for step, count in steps.items() if (step.tier, step.outcome) == source]
        level = doubt / len(able) / (1 + sum(results))
        finality = FinalityRules(rules=tuple(gates))
        reaching = []
        for sample in members:
            seen = {tier: sample.united(tier) for tier in tiers[:place]}
            if not any(finality.final(tier, seen, sample.margins) for tier in seen):
                reaching.append(sample)
        held: list[CalibratedRule] = []
        steps[chain] = 0
        for least in _margins(chain, reaching, level, promise):
            steps[chain] += 1
            inside = [each for each in reaching if chain.margin(each) >= least]
            tested = _tested(chain, least, inside, level, promise)
            if isinstance(tested, RefusedRule):
                refused.append(tested)
                break
            held.append(tested)
        gates += held[-1:]
    return ChosenRules(FinalityRules(rules=tuple(gates), last=promise.reference), gates, refused)


def _chains(
    samples: Sequence[Sample], tiers: Sequence[TierName], reference: TierName | None
) -> Chains:
    """Return the classes of opinions with their members, an earlier tier's first."""
    found: Chains = {}
    if reference:
        last = list(tiers).index(reference)
    else:
        last = len(tiers) - 1
    for place, tier in enumerate(tiers[:last]):
        for sample in samples:
            outcome = sample.united(tier)
            if outcome is None or sample.margin(tier) is None:
                continue
            if place:
                after = sample.united(tiers[place - 1])
            else:
                after = None
            # Elsewhere a deeper opinion ends the judging anyway; a test would only take from the others.
            ends = sample.wrong is None and {outcome, after} != {"accept", "reject"}
            if sample.is_measured_by(reference) if reference else not (place and ends):
                found.setdefault(Chain(tier, outcome, after), []).append(sample)
    first, second = tiers[:2]
    for sample in samples:
        win_and_tie = (sample.united(first), sample.united(second)) == ("accept", "improve")
        if sample.stands and win_and_tie and sample.margin(first) is not None:
            found.setdefault(Chain(second, "improve", "accept", first), []).append(sample)
    return found


def _labels(promise: Promise, level: float, share: float = 0.0) -> int | None:
    """Return how many labels, `share` of them errors, keep a promise: with a reference half is for gains."""
    return needed(promise.rate, level / 2 if promise.reference else level, share)


def _margins(
    chain: Chain, members: Sequence[Sample], level: float, promise: Promise
) -> list[float]:
    """Return the margins to try, largest first, from the opinions alone; the last lets all through."""
    margins = sorted(map(chain.margin, members), reverse=True)
    least = _labels(promise, level, promise.rate * FREE_SHARE)
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
    if not found or found[-1] > margins[-1]:
        return [*found, margins[-1]]
    return found


def _tested(
    chain: Chain, least_margin: float, members: Sequence[Sample], level: float, promise: Promise
) -> CalibratedRule | RefusedRule:
    """Return the gate that holds for a class, or why none does; `more` labels do if errors are as rare."""
    losses = 0
    gains = 0
    last = promise.reference
    for member in members:
        if chain.stands:
            wrong = member.label != "accept"
        else:
            wrong = member.is_wrong(chain.tier)
        # A reference that failed counts as right: nothing is gained without it.
        answered = last is not None and member.outcome(last) is not None and last not in member.ties
        beaten = last is not None and answered and member.is_wrong(last)
        # A win that stands against a tie of the reference is worse than that where it is wrong.
        losses += wrong and (chain.stands is not None or not beaten)
        gains += beaten and not wrong
    labels = len(members)
    limit = bound(labels, losses, gains, level, promise)
    evidence = {"labels": labels, "errors": losses, "gains": gains, "bound": round(limit, 6)}
    evidence |= {**chain._asdict(), "least_margin": least_margin}
    if limit <= promise.rate:
        return CalibratedRule(**evidence)
    wanted = _labels(promise, level, max(0.0, (losses - gains) / labels))
    why = "too many errors" if wanted is None else "too few labels"
    if wanted is None:
        more = None
    else:
        more = max(1, wanted - labels)
    return RefusedRule(**evidence, why=why, more=more)


# --- What rules come to on the labelled cases


class Walked(NamedTuple):
    """How one judging would end: its calls, whether it is right (None: undecided), whether by a gate."""

    calls: Mapping[TierName, int]
    right: bool | None
    by_gate: bool


def measured(walks: Sequence[Walked], tiers: Sequence[TierName]) -> calibration.Measured:
    decided = sum(walked.right is not None for walked in walks)
    errors = sum(walked.right is False for walked in walks)
    by_gate = sum(walked.by_gate for walked in walks)
    calls = {tier: sum(walked.calls.get(tier, 0) for walked in walks) for tier in tiers}
    return calibration.Measured(
        decided=decided,
        errors=errors,
        by_gate=by_gate,
        calls=calls,
    )


def walk(sample: Sample, rules: EscalationRules) -> Walked:
    final, tiers = walk_tiers(sample, rules)
    calls = dict.fromkeys(tiers, 1)
    gates = rules.finality
    if final.tier is None:
        return Walked(calls, None, by_gate=False)
    outcomes = {tier: sample.united(tier) for tier in tiers}
    by_gate = (
        gates and final.tier != gates.last and gates.final(final.tier, outcomes, sample.margins)
    )
    return Walked(calls, sample.is_right(final.verdict), bool(by_gate))


def walk_tiers(sample: Sample, rules: EscalationRules) -> tuple[Final, list[TierName]]:
    rules = replace(rules, truncated=sample.cut)
    seen: dict[TierName, Outcome | None] = {}
    divided: dict[TierName, bool] = {}
    while not isinstance(step := rules.next(seen, sample.margins, divided), Final):
        opinion = sample.voices.get(step, TierOpinion(None))
        seen[step] = opinion.outcome
        if opinion.divided is not None:
            divided[step] = opinion.divided
    winner = None
    if sample.stands and rules.finality and step.tier and step.verdict == "improve":
        winner = rules.finality.stands(step.tier, seen, sample.margins)
    return Final("accept", "single", winner) if winner else step, list(seen)


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
        panel = {tier: {voter.model for voter in said} for tier, said in self.said.items()}
        margins = ranking.usual_margins(self.rubric)
        letters = tuple(self.case.letters)
        rules = RankingRules(letters, panel, margins, self.mode, finality)
        steps: list[RankingStep] = []
        while tier := rules.following(steps):
            if steps:
                alive = steps[-1].near
            else:
                alive = letters
            said = self.said[tier]
            cut = self.case.judges[tier].cut
            barred = tier in self.apart
            steps.append(step := rules.step(steps, tier, said, cut=cut, barred=barred))
            if step.found is None or step.cut:
                word = None
            else:
                word = rules.winner(step) or TIE
            yield ranking.asked(said, alive), step, word

    def walk(self, finality: FinalityRules | None) -> Walked:
        turns = list(self.turns(finality))
        _, last, word = turns[-1]
        if word is None:
            right = None
        else:
            right = word == self.best
        return Walked({step.tier: calls for calls, step, _ in turns}, right, last.trusted)

    def sample(self) -> Sample:
        """Return the case as gates are learned from it: each tier's step, none before it having ended it."""
        turns = [(step.tier, step, word) for _, step, word in self.turns(FinalityRules())]
        if self.best == TIE:
            best = None
        else:
            best = self.best
        voices = {}
        for tier, step, _ in turns:
            barred = step.is_end or step.cut or tier in self.apart
            voices[tier] = TierOpinion(step.outcome, None if barred else step.lead or None)
        ties = frozenset(tier for tier, _, word in turns if word == TIE)
        wrong = frozenset(tier for tier, step, _ in turns if step.best != best)
        return Sample(self.case.id, "accept", voices, ties=ties, wrong=wrong)


def ranked(cases: Sequence[Case], rubric: Rubric, mode: ModeName) -> list[RankedCase]:
    """Return cases about the best of several subjects, none of other cases; raises `InputError`."""
    if not any(case.subjects for case in cases):
        return []
    if not isinstance(rubric, ScoreRubric):
        raise InputError(
            f"subjects are scored; name a rubric of the task 'score', got {rubric.ref}"
        )
    found = []
    reader = Reader(rubric, mode)
    for case, apart in zip(cases, score_sources(cases)[1], strict=True):
        if len(case.subjects) < 2:  # noqa: PLR2004 - one text is not compared
            wanted = "at least two texts" if case.subjects else "in all cases, or in none"
            raise case.wrong(f"subjects: expected {wanted}")
        said = {}
        for tier in TIERS:
            if tier in case.judges:
                said[tier] = points(case, case.judges[tier])
        found.append(RankedCase(case, rubric, mode, said, reader.labels(case)[""], apart))
    return found


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
        reader = Reader(rubric, mode)
        found: list[Case] = []
        for case, apart in zip(self.cases, score_sources(self.cases)[1], strict=True):
            answers = {tier: case.judges[tier] for tier in rules.tiers if tier in case.judges}
            opinions = {
                tier: reader.opinions(rubric, case, recorded) for tier, recorded in answers.items()
            }
            cut = frozenset(tier for tier, recorded in answers.items() if recorded.cut)
            ends: dict[str, Final] = {}
            asked: set[TierName] = set()
            for part in next(iter(opinions.values())):
                voices = {tier: own[part] for tier, own in opinions.items()}
                voices |= {tier: voices[tier]._replace(margin=None) for tier in apart}
                # A tier that was not asked is none to wait for.
                own_rules = replace(rules, tiers=tuple(voices))
                ends[part], tiers = walk_tiers(Sample(part, "accept", voices, cut), own_rules)
                asked |= {*tiers}
            said: dict[str, Any] = {"calls": sum(answers[tier].calls for tier in asked)}
            if "" not in ends:
                said["keep"] = [part for part, end in ends.items() if end.verdict == "accept"]
                said["unjudged"] = [part for part, end in ends.items() if not end.tier]
            elif tier := ends[""].tier:
                rated = opinions[tier][""].rated or {}
                said["scores"] = {name: rated[name] for name in rubric.questions}
            else:
                said["failure"] = ends[""].verdict
            found.append(
                case.model_copy(update={"judges": case.judges | {COURSE: Recorded(**said)}})
            )
        return found


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
    tiers = tuple(tier for tier in TIERS if tier in models)
    if len(tiers) < 2 or (promise.reference is not None and promise.reference not in tiers):  # noqa: PLR2004 - as said
        wanted = f"judges: expected opinions of quick and deep, got {', '.join(tiers) or 'none'}"
        raise InputError(f"{wanted}; a calibration needs a next tier")
    counts = [len(case.subjects) for case in cases]
    subjects = None
    rubric = loaded.rubric
    if several := ranked(cases, rubric, mode):
        choice = choose_rules([each.sample() for each in several], tiers, promise)
        with_gates, without = (
            [each.walk(gates) for each in several] for gates in (choice.finality, None)
        )
        subjects = calibration.Subjects(least=min(counts), most=max(counts), all=sum(counts))
    else:
        found = samples(cases, rubric, mode)
        choice = choose_rules(found, tiers, promise)
        voices = {}
        for tier, name in models.items():
            voices[tier] = frozenset(name.split(calibration.TOGETHER))
        rules = EscalationRules(getattr(rubric.modes, mode).confirm, tiers, models=voices)
        own = replace(rules, finality=choice.finality)
        with_gates, without = ([walk(each, how) for each in found] for how in (own, rules))
    read, apart = score_sources(cases)
    known = Calibration(
        schema=calibration.SCHEMA,
        id="",
        made=made,
        rubric=RubricRef(id=rubric.rubric, version=rubric.version, sha256=loaded.sha256),
        mode=mode,
        prompt_sha256=rubric.prompt.sha256,
        wording_sha256=calibration.wording(loaded, mode),
        models=dict(models),
        asked=asked(cases),
        read=read,
        asking=opinions.asking,
        subjects=subjects,
        promise=promise,
        gates=choice.gates,
        not_promised=choice.refused,
        read_otherwise={
            tier: count for tier in TIERS if (count := sum(tier in each for each in apart))
        },
        cases=len(without),
        labels_sha256=digest,
        with_gates=measured(with_gates, tiers),
        without=measured(without, tiers),
    )
    # The same for the same labels, models, promise and gates.
    content: list[object] = [known.rubric.sha256, known.mode, known.models, known.prompt_sha256]
    content += [known.labels_sha256, known.asked.model_dump(), known.read, known.asking]
    content += [known.promise.model_dump(), [gate.model_dump() for gate in known.gates]]
    return known.model_copy(
        update={"id": f"{rubric.rubric}-{mode}-{calibration.sha256(content)[:12]}"}
    )
