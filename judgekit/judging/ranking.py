"""The task `compare` by scores: only while the best subjects are near each other do they go up a tier.

A subject's score is the mean over all models. Which subjects go up a tier, and when it ends, is a pure
function of the tiers' scores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import TIE
from judgekit.judging import jury
from judgekit.judging.compare import ComparisonJudge, ComparisonResult
from judgekit.judging.documents import ComparisonInput, Document, TaskDescription, is_cut
from judgekit.judging.escalation import DIGITS, UNDETERMINED, Final, FinalityRules
from judgekit.judging.fence import Fence
from judgekit.judging.jury import Opinion
from judgekit.judging.kinds import kind_of
from judgekit.judging.question import ModelTurn, TierQuestion
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.score_source import score_source
from judgekit.judging.verdict import CompareRound, Comparison, Consensus
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.judging.compare import SubjectScore
    from judgekit.judging.round import Answer, Calls, Session
    from judgekit.judging.state import JudgingState
    from judgekit.providers.base import Endpoint, Messages

EQUAL_WITHIN = 1e-9  # two means of the same numbers may differ by so much
QUICK_SHARE = 0.1
DEEP_SHARE = 0.05  # of the scale's length

# A model's means of dimensions, by letter.
DimensionMeans: TypeAlias = "Mapping[str, Sequence[float]]"
Margins: TypeAlias = "Mapping[TierName, float]"


class Voter(NamedTuple):
    model: str
    family: str

    @property
    def name(self) -> str:
        return jury.voter(self.model, self.family)


# Of one tier; a model that stands there twice has twice as many.
MeansByVoter: TypeAlias = "Mapping[Voter, DimensionMeans]"


def usual_margins(rubric: ScoreRubric) -> dict[TierName, float]:
    """Return the margins of a rubric where no labels say better ones, in points of its scale."""
    length = rubric.scale.max - rubric.scale.min
    deep = DEEP_SHARE * length
    return {"quick": QUICK_SHARE * length, "deep": deep, "tiebreaker": deep, **rubric.margins}


def mean_scores(
    means_by_group: Iterable[tuple[Hashable, DimensionMeans]],
    letters: Collection[str],
    asked: int | None = None,
) -> dict[str, float] | None:
    """Return the mean score of each subject over models that scored all; a group of models weighs as one.

    None where no model did, or no more than half of those `asked`.
    """
    complete = []
    for group, points_by_letter in means_by_group:
        if all(points_by_letter.get(letter) for letter in letters):
            complete.append((group, points_by_letter))
    if not complete:
        return None
    if asked is not None and not jury.has_quorum(len(complete), asked):
        return None
    sizes = Counter(group for group, _ in complete)
    means = {}
    for letter in letters:
        points: list[float] = []
        weights: list[float] = []
        for group, points_by_letter in complete:
            points += points_by_letter[letter]
            weights += [1 / sizes[group]] * len(points_by_letter[letter])
        means[letter] = fmean(points, weights)
    return means


def contending(means: Mapping[str, float], margin: float) -> list[str]:
    """Return the subjects within `margin` of the best, the best first."""
    least = max(means.values()) - margin - EQUAL_WITHIN
    near_best = [letter for letter, mean in means.items() if mean >= least]
    return sorted(near_best, key=lambda letter: (-means[letter], letter))


def lead_of(means: Mapping[str, float]) -> float:
    """Return how far the best subject is ahead of the next."""
    first, second, *_ = sorted(means.values(), reverse=True)
    return first - second


def last_word(means: Mapping[str, float], margin: float, mode: ModeName) -> str | None:
    """Return the winner where no further tier can be asked; None for a tie.

    In strict mode it must be ahead by more than `margin`; in lenient mode any lead wins.
    """
    near_best = contending(means, margin if mode == "strict" else 0.0)
    return near_best[0] if len(near_best) == 1 else None


def count_calls(means_by_voter: MeansByVoter, letters: Collection[str]) -> int:
    """Return how many calls a tier took; a score that is missing was asked for, too."""
    calls = 0
    for points_by_letter in means_by_voter.values():
        for letter in letters:
            calls += max(1, len(points_by_letter.get(letter, ())))
    return calls


class RankingStep(NamedTuple):
    """The result of one tier: which subjects go up, and what its models gave them."""

    tier: TierName
    contenders: tuple[str, ...]
    """The subjects that go up; one alone is the best."""
    means_by_voter: MeansByVoter
    means: Mapping[str, float] | None = None
    """The mean scores by all tiers so far; None where too few models of this one answered."""
    leader: str = ""
    """The best by this tier alone."""
    voters: frozenset[Voter] = frozenset()
    """The models behind `means`."""
    is_last: bool = False
    """Whether no tier can be asked after it."""
    is_by_calibration: bool = False
    """Whether a calibration ends the ranking here."""
    is_cut: bool = False
    """Whether some model did not see a subject whole."""

    @property
    def has_result(self) -> bool:
        """Whether the ranking ends with this step, because no tier is left or one subject."""
        return self.means is not None and (self.is_last or len(self.contenders) == 1)

    @property
    def lead(self) -> float:
        return round(lead_of(self.means), DIGITS) if self.means else 0.0

    @property
    def outcome(self) -> Outcome | None:
        """What a calibration sees: an acceptance is a lead of the best, `improve` a tie."""
        if self.means is None:
            return None
        return "accept" if self.lead else "improve"

    @property
    def best(self) -> str | None:
        if self.means and self.lead:
            return contending(self.means, 0.0)[0]
        return None


Steps: TypeAlias = "Sequence[RankingStep]"


class RankingRules(NamedTuple):
    """Which subjects go up a tier, and when the ranking ends."""

    letters: tuple[str, ...]
    panel: Mapping[TierName, Collection[str]]
    """The names of each tier's models."""
    margins: Margins
    """In points: who is as near to the best as that goes up with it."""
    mode: ModeName
    finality: FinalityRules | None = None
    favouring_families: Mapping[str, Collection[str]] = {}
    """By letter, the families that wrote this subject and not the others: their models favour it."""

    def step(
        self,
        before: Steps,
        tier: TierName,
        means_by_voter: MeansByVoter,
        *,
        is_cut: bool = False,
        is_barred: bool = False,
    ) -> RankingStep:
        """Return the result of a tier after the steps `before`: without means, where too few models answered.

        A tier that `is_barred` ends nothing by calibration.
        """
        contenders = before[-1].contenders if before else self.letters
        step = RankingStep(tier, contenders, means_by_voter, is_cut=is_cut)
        means_by_name = [(voter.name, points) for voter, points in means_by_voter.items()]
        tier_means = mean_scores(means_by_name, contenders, asked=len(self.panel[tier]))
        if tier_means is None:
            return step
        counted_steps = [*_complete(before), step]
        means, voters = _pooled(counted_steps, contenders)
        leader = max(tier_means, key=tier_means.__getitem__)
        step = step._replace(means=means, leader=leader, voters=voters)
        # Which tier is next depends on the voters of the step.
        is_reference = self.finality is not None and tier == self.finality.last
        is_last = is_reference or self._after([*before, step]) is None
        step = step._replace(is_last=is_last)
        best = contending(means, 0.0)[0]
        families = {voter.family for voter in voters}
        is_partial = families <= set(self.favouring_families.get(best, ()))
        if self._is_final(before, step) and not (is_barred or is_partial):
            return step._replace(contenders=(best,), is_by_calibration=True)
        near_best = contending(means, self.margins.get(tier, 0.0))
        if len(near_best) == 1:
            is_first = len(counted_steps) == 1
            must_not_be_alone = self.finality is not None or self.mode == "strict" or is_partial
            if is_cut or (is_first and must_not_be_alone):
                near_best = contending(means, inf)[:2]  # the next goes up with it
        return step._replace(contenders=tuple(near_best))

    def _is_final(self, before: Steps, step: RankingStep) -> bool:
        """Whether a calibration says that the lead of a tier is large enough to end the ranking."""
        if self.finality is None or step.is_last or step.is_cut or step.lead <= 0:
            return False
        outcomes = {earlier.tier: earlier.outcome for earlier in (*before, step)}
        return self.finality.final(step.tier, outcomes, {step.tier: step.lead})

    def following(self, steps: Sequence[RankingStep]) -> TierName | None:
        """Return the tier to ask after `steps`; None where the ranking has ended."""
        if steps and steps[-1].has_result:
            return None
        return self._after(steps)

    def _after(self, steps: Sequence[RankingStep]) -> TierName | None:
        """Return the tier that can be asked next, if one can.

        After a deep tier that answered, that is no tiebreaker of which every model was heard.
        """
        tiers_left = list(self.panel)
        if steps:
            tiers_left = tiers_left[tiers_left.index(steps[-1].tier) + 1 :]
        if not tiers_left:
            return None
        next_tier = tiers_left[0]
        complete = _complete(steps)
        if next_tier == "tiebreaker" and any(step.tier == "deep" for step in complete):
            heard_models = {voter.model for voter in complete[-1].voters}
            if set(self.panel[next_tier]) <= heard_models:
                return None
        return next_tier

    def winner(self, step: RankingStep) -> str | None:
        """Return who wins if no tier is asked after `step`; None for a tie, and for a step without means."""
        if step.is_by_calibration or step.means is None:
            return step.best
        return last_word(step.means, self.margins.get(step.tier, 0.0), self.mode)


def _complete(steps: Steps) -> list[RankingStep]:
    """Return the steps of tiers of which enough models answered."""
    return [step for step in steps if step.means is not None]


def _pooled(steps: Steps, letters: Sequence[str]) -> tuple[dict[str, float], frozenset[Voter]]:
    """Return the means of subjects over several tiers, and the models that scored every subject."""
    means_by_group = []
    voters = set()
    for step in steps:
        for voter, points_by_letter in step.means_by_voter.items():
            means_by_group.append(((step.tier, voter.name), points_by_letter))
            if all(points_by_letter.get(letter) for letter in letters):
                voters.add(voter)
    return mean_scores(means_by_group, letters) or {}, frozenset(voters)


NAME = "text"  # what models are told: a path may say who wrote it


@dataclass(frozen=True, kw_only=True)
class RankingQuestion(TierQuestion[ScoreRubric, ComparisonInput, Opinion, dict[str, Opinion]]):
    """What the models of a tier are asked about each of these `letters`: the same as about a document."""

    rules: RankingRules
    before: Sequence[RankingStep]
    models: Sequence[Endpoint]
    letters: Sequence[str]

    def score_question(self, letter: str) -> ScoreQuestion:
        """Return what is asked about one subject, under a name that tells nothing."""
        file = replace(self.subject.file(letter), alias=NAME)
        document = Document((file,), letter, TaskDescription(self.subject.prompt))
        # The opinions of other tiers are not shown: there is no disagreement to settle.
        instructions: TierName = "deep" if self.tier == "tiebreaker" else self.tier
        return ScoreQuestion(self.settings, document, self.tier, instructions, compared=True)

    @property
    def is_cut(self) -> bool:
        """Whether some model of the tier does not see a subject whole."""
        for letter in self.letters:
            document = self.score_question(letter).subject
            if any(is_cut(document.visible_files(self.limits, model)) for model in self.models):
                return True
        return False

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        prompts = []
        for letter in self.letters:
            prompts += self.score_question(letter).prompts(endpoint, fence)
        return prompts

    def sample_plans(self, endpoint: Endpoint) -> list[Sequence[int]]:
        del endpoint
        return [[0]]  # the question about a subject has its own samples

    def calls_in_one(self, endpoint: Endpoint) -> int:
        if not kind_of(endpoint).gives_reasons:
            return 1
        return self.settings.calls_at_once(len(self.rubric.dimensions))

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Opinion]:
        del sample  # the calls about each subject have their own
        return [partial(self._ask_about, endpoint, session, letter) for letter in self.letters]

    async def _ask_about(
        self, endpoint: Endpoint, session: Session, letter: str
    ) -> Answer[Opinion]:
        """Ask about one subject in a session of its own, and note in `session` what that cost."""
        spent_before = session.spent_usd
        # Of other subjects a model is to remember nothing.
        own_session = replace(session, fence=Fence(), remembered={})
        turn = await self.score_question(letter).ask(endpoint, own_session)
        # Other subjects may have been asked about meanwhile, so what this one cost is added.
        session.spent_usd += own_session.spent_usd - spent_before
        session.unpriced |= own_session.unpriced
        return turn.answer

    def opinion(self, samples: Sequence[Sequence[Opinion | None]]) -> dict[str, Opinion]:
        opinions = {}
        for letter, opinion in zip(self.letters, samples[0], strict=True):
            if opinion:
                opinions[letter] = opinion
        return opinions

    def combine(self, voices: Sequence[tuple[Endpoint, dict[str, Opinion] | None]]) -> RankingStep:
        sources = set()
        means_by_voter: dict[Voter, dict[str, list[float]]] = {}
        for endpoint, opinions in voices:
            voter = Voter(endpoint.model, endpoint.family)
            for letter, opinion in (opinions or {}).items():
                points_by_letter = means_by_voter.setdefault(voter, defaultdict(list))
                points_by_letter[letter].append(self.rubric.mean(opinion.scores))
                sources.add((endpoint.model, score_source(endpoint, opinion)))
        finality = self.rules.finality
        is_barred = finality is not None and not finality.knows(self.tier, sources)
        return self.rules.step(
            self.before, self.tier, means_by_voter, is_cut=self.is_cut, is_barred=is_barred
        )

    def record(self, opinion: dict[str, Opinion]) -> dict[str, Any]:
        record = {}
        for letter, opinion_of_one in opinion.items():
            record[letter] = self.score_question(letter).record(opinion_of_one)
        return record

    def rounds(
        self, first: int, turns: Sequence[ModelTurn[dict[str, Opinion]]]
    ) -> list[CompareRound]:
        """Return a round for each subject and model, subject by subject."""
        rounds: list[CompareRound] = []
        for place, letter in enumerate(self.letters):
            for turn in turns:
                fields = turn.calls[place].record(self.score_question(letter).record)
                number = first + len(rounds)
                row = CompareRound(round=number, tier=self.tier, order=[letter], **fields)
                rounds.append(row)
        return rounds


@dataclass(frozen=True, slots=True)
class RankingJudge(ComparisonJudge[ScoreRubric]):
    """Ranks subjects by their scores; a model that stands several times in a tier is asked as often."""

    def note_refusal_and_cuts(self, state: JudgingState[ComparisonInput]) -> None:
        ComparisonJudge.note_refusal_and_cuts(self, state)
        tier = next(iter(self.models_by_tier), None)
        if tier is not None and not state.refused:
            # A rubric for documents may need what a comparison does not have.
            document = self.question(tier, state).score_question("A").subject
            state.refused = document.lacks(self.rubric) or ""

    def ranking_rules(self, subject: ComparisonInput) -> RankingRules:
        favouring_families = {}
        for letter in subject.letters:
            families = set(subject.families(letter)) & set(subject.families_of_some_texts)
            favouring_families[letter] = families
        return RankingRules(
            letters=subject.distinct,
            panel=self.settings.model_names,
            margins=usual_margins(self.rubric),
            mode=self.settings.mode,
            finality=self.settings.finality,
            favouring_families=favouring_families,
        )

    def question(self, tier: TierName, state: JudgingState[ComparisonInput]) -> RankingQuestion:
        rules = self.ranking_rules(state.subject)
        before = list(state.opinions.values())
        return RankingQuestion(
            self.settings,
            state.subject,
            tier,
            rules=rules,
            before=before,
            models=self.models_by_tier.get(tier, ()),
            letters=before[-1].contenders if before else rules.letters,
        )

    def step(self, state: JudgingState[ComparisonInput]) -> TierName | Final:
        rules = self.ranking_rules(state.subject)
        return rules.following(list(state.opinions.values())) or UNDETERMINED

    def record(self, state: JudgingState[ComparisonInput], final: Final) -> Comparison:
        """Return the record: of no winner, of texts that nobody saw whole, or of the last step's result."""
        del final  # it says only that no tier is asked now; the last step says who is ahead
        steps: list[RankingStep] = list(state.opinions.values())
        scores = _last_scores(state.subject, steps)
        if not steps or not steps[-1].has_result:
            result = ComparisonResult(verdict="undetermined")
        elif steps[-1].is_cut:
            why = "no model saw the whole of the best texts, so the result is open"
            result = ComparisonResult(degraded=why, truncated=True)
        else:
            result = self._result(state, steps, scores)
        return self.comparison(state, result, scores=scores)

    def _result(
        self,
        state: JudgingState[ComparisonInput],
        steps: Sequence[RankingStep],
        scores: Mapping[str, SubjectScore],
    ) -> ComparisonResult:
        """Return who won, by how much and by whom; the last of `steps` has means."""
        subject = state.subject
        last_step = steps[-1]
        winner = self.ranking_rules(subject).winner(last_step)
        if winner is None or _has_copies(subject, winner):
            verdict = TIE
        else:
            verdict = winner
        answered_rounds = [row for row in state.rounds if row.opinion]
        reasons = []
        for row in answered_rounds:
            if row.order == [winner]:  # a round of a ranking is about one subject
                reasons.append(row.opinion["reasoning"])
        # Subjects that left early have means of earlier tiers, so the winner's lead may be 0.
        means = {letter: mean for letter, (mean, _) in scores.items()}
        return ComparisonResult(
            verdict=verdict,
            consensus=_consensus(answered_rounds, steps, winner),
            judge_tier=last_step.tier,
            lead=lead_of(means),
            reasoning=next(filter(None, reversed(reasons)), ""),
            families=tuple(sorted({voter.family for voter in last_step.voters})),
        )


def _consensus(
    answered_rounds: Iterable[CompareRound], steps: Steps, winner: str | None
) -> Consensus:
    """Return how far models and tiers agree: one alone is `single`, else each tier says who led."""
    models = {row.model for row in answered_rounds}
    leaders = [step.leader for step in steps if step.means]
    if len(models) == 1 or len(leaders) == 1:
        return "single"
    return "unanimous" if set(leaders) == {winner} else "majority"


def _last_scores(subject: ComparisonInput, steps: Iterable[RankingStep]) -> dict[str, SubjectScore]:
    """Return by letter the last mean that a subject was given, and the tier that gave it."""
    means: dict[str, SubjectScore] = {}
    for step in steps:
        for letter, mean in (step.means or {}).items():
            means[letter] = (mean, step.tier)
    scores = {}
    for letter in subject.letters:
        original = subject.original(letter)
        if original in means:
            scores[letter] = means[original]
    return scores


def _has_copies(subject: ComparisonInput, letter: str) -> bool:
    """Whether another subject has the same text."""
    original = subject.original(letter)
    return sum(subject.original(other) == original for other in subject.letters) > 1
