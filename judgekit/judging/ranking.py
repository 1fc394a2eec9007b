"""The task `compare` by scores: only while the best subjects are near each other do they go up a tier.

A subject's score is the mean over all models. Which subjects go up a tier, and when it ends, is a pure
function of the tiers' scores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.config import TIE
from judgekit.judging import jury
from judgekit.judging.compare import ComparisonJudge, ComparisonResult
from judgekit.judging.documents import ComparisonInput, Document, TaskDescription, is_cut
from judgekit.judging.escalation import DIGITS, UNDETERMINED, Final, FinalityRules
from judgekit.judging.fence import Fence
from judgekit.judging.jury import Opinion
from judgekit.judging.question import ModelTurn, TierQuestion
from judgekit.judging.score_question import ScoreQuestion
from judgekit.judging.score_source import score_source
from judgekit.judging.verdict import CompareRound, Comparison, Consensus
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from judgekit.config import ModeName, Outcome, TierName
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


def values(
    scored: Iterable[tuple[Hashable, DimensionMeans]],
    letters: Collection[str],
    asked: int | None = None,
) -> dict[str, float] | None:
    """Return the mean score of each subject over models that scored all; a group weighs as one."""
    whole = []
    for group, points in scored:
        if all(map(points.get, letters)):
            whole.append((group, points))
    if not whole or (asked is not None and not jury.has_quorum(len(whole), asked)):
        return None
    sizes = Counter(group for group, _ in whole)
    means = {}
    for letter in letters:
        weighed = []
        for group, points in whole:
            for point in points[letter]:
                weighed.append((point, 1 / sizes[group]))
        means[letter] = fmean([point for point, _ in weighed], [share for _, share in weighed])
    return means


def contending(found: Mapping[str, float], margin: float) -> list[str]:
    """Return the subjects within `margin` of the best, the best first."""
    least = max(found.values()) - margin - EQUAL_WITHIN
    return sorted(
        (name for name in found if found[name] >= least), key=lambda name: (-found[name], name)
    )


def lead(found: Mapping[str, float]) -> float:
    first, second, *_ = sorted(found.values(), reverse=True)
    return first - second


def last_word(found: Mapping[str, float], margin: float, mode: ModeName) -> str | None:
    """Return the winner where no further tier can be asked, None for a tie; in lenient mode any lead wins."""
    near = contending(found, margin if mode == "strict" else 0.0)
    return near[0] if len(near) == 1 else None


def asked(said: MeansByVoter, letters: Collection[str]) -> int:
    """Return how many calls a tier took; a score that is missing was asked for, too."""
    return sum(
        max(1, len(scored.get(letter, ()))) for scored in said.values() for letter in letters
    )


class RankingStep(NamedTuple):
    """The result of one tier: means so far (`found`), which go up (`near`), and the models `heard` so far."""

    tier: TierName
    near: tuple[str, ...]
    said: MeansByVoter
    found: Mapping[str, float] | None = None
    leader: str = ""
    heard: frozenset[Voter] = frozenset()
    last: bool = False
    trusted: bool = False
    cut: bool = False

    @property
    def is_end(self) -> bool:
        return self.found is not None and (self.last or len(self.near) == 1)

    @property
    def lead(self) -> float:
        if self.found:
            return round(lead(self.found), DIGITS)
        return 0.0

    @property
    def outcome(self) -> Outcome | None:
        return None if self.found is None else "accept" if self.lead else "improve"

    @property
    def best(self) -> str | None:
        if self.found and self.lead:
            return contending(self.found, 0.0)[0]
        return None


Steps: TypeAlias = "Sequence[RankingStep]"


class RankingRules(NamedTuple):
    """Which subjects go up a tier, by `margins` in points; `favouring_families` favour a letter."""

    letters: tuple[str, ...]
    panel: Mapping[TierName, Collection[str]]
    margins: Margins
    mode: ModeName
    finality: FinalityRules | None = None
    favouring_families: Mapping[str, Collection[str]] = {}

    def step(
        self,
        before: Steps,
        tier: TierName,
        said: MeansByVoter,
        *,
        cut: bool = False,
        barred: bool = False,
    ) -> RankingStep:
        """Return the result of a tier after `before`; a tier that is `barred` ends nothing by calibration."""
        alive = before[-1].near if before else self.letters
        scores_by_voter = [(voter.name, scored) for voter, scored in said.items()]
        tier_means = values(scores_by_voter, alive, len(self.panel[tier]))
        if tier_means is None:
            return RankingStep(tier, alive, said)
        counted = [(step.tier, step.said) for step in before if step.found is not None]
        counted.append((tier, said))
        pooled = []
        heard = set()
        for name, means_by_voter in counted:
            for voter, scored in means_by_voter.items():
                pooled.append(((name, voter.name), scored))
                if all(scored.get(letter) for letter in alive):
                    heard.add(voter)
        means = values(pooled, alive) or {}
        step = RankingStep(
            tier=tier,
            near=alive,
            said=said,
            found=means,
            leader=max(tier_means, key=tier_means.__getitem__),
            heard=frozenset(heard),
            cut=cut,
        )
        finality = self.finality
        best = contending(means, 0.0)[0]
        last = self._after([*before, step]) is None
        if finality is not None and tier == finality.last:
            last = True
        partial = {voter.family for voter in heard} <= set(self.favouring_families.get(best, ()))
        trusted = False
        if finality is not None and step.lead > 0 and not (last or cut or barred or partial):
            outcomes = {step.tier: step.outcome for step in (*before, step)}
            trusted = finality.final(tier, outcomes, {tier: step.lead})
        if trusted:
            return step._replace(near=(best,), last=last, trusted=True)
        near = contending(means, self.margins.get(tier, 0.0))
        # One tier alone must not settle it.
        is_first = len(counted) == 1
        is_strict = finality is not None or self.mode == "strict" or partial
        if len(near) == 1 and (cut or (is_first and is_strict)):
            others = sorted(means.keys() - {best}, key=lambda letter: (-means[letter], letter))
            near += others[:1]
        return step._replace(near=tuple(near), last=last)

    def following(self, steps: Sequence[RankingStep]) -> TierName | None:
        if steps and steps[-1].is_end:
            return None
        return self._after(steps)

    def _after(self, steps: Sequence[RankingStep]) -> TierName | None:
        """Return the tier that can be asked next: no tiebreaker of which every model was heard."""
        tiers = list(self.panel)
        after = next(iter(tiers[tiers.index(steps[-1].tier) + 1 :] if steps else tiers), None)
        known = [step for step in steps if step.found is not None]
        if after == "tiebreaker" and any(step.tier == "deep" for step in known):
            if set(self.panel[after]) <= {voter.model for voter in known[-1].heard}:
                return None
            return after
        return after

    def winner(self, step: RankingStep) -> str | None:
        """Return who wins, if no tier is asked after a step; None for a tie."""
        if step.trusted or step.found is None:
            return step.best
        return last_word(step.found, self.margins.get(step.tier, 0.0), self.mode)


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
        file = replace(self.subject.file(letter), shown=NAME)
        document = Document((file,), letter, TaskDescription(self.subject.prompt))
        # The opinions of other tiers are not shown: there is no disagreement to settle.
        words: TierName = "deep" if self.tier == "tiebreaker" else self.tier
        return ScoreQuestion(self.settings, document, self.tier, words, compared=True)

    @property
    def is_cut(self) -> bool:
        """Whether some model of the tier does not see a subject whole."""
        documents = [self.score_question(letter).subject for letter in self.letters]
        return any(
            is_cut(each.seen_by(self.limits, model)) for each in documents for model in self.models
        )

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[Messages]:
        tasks = map(self.score_question, self.letters)
        return [prompt for task in tasks for prompt in task.prompts(endpoint, fence)]

    def sample_plans(self, endpoint: Endpoint) -> list[Sequence[int]]:
        del endpoint
        return [[0]]  # the question about a subject has its own samples

    def calls_in_one(self, endpoint: Endpoint) -> int:
        if endpoint.pointwise:
            return 1
        return self.settings.calls_at_once(len(self.rubric.dimensions))

    def calls(self, endpoint: Endpoint, session: Session, sample: int) -> Calls[Opinion]:
        del sample  # the calls about each subject have their own
        return [partial(self._once, endpoint, session, letter) for letter in self.letters]

    async def _once(self, endpoint: Endpoint, session: Session, letter: str) -> Answer[Opinion]:
        spent_before = session.spent_usd
        # Of other subjects a model is to remember nothing.
        apart = replace(session, fence=Fence(), remembered={})
        turn = await self.score_question(letter).ask(endpoint, apart)
        session.spent_usd += apart.spent_usd - spent_before
        session.unpriced |= apart.unpriced
        return turn.answer

    def opinion(self, samples: Sequence[Sequence[Opinion | None]]) -> dict[str, Opinion]:
        return {
            letter: opinion
            for letter, opinion in zip(self.letters, samples[0], strict=True)
            if opinion
        }

    def combine(self, voices: Sequence[tuple[Endpoint, dict[str, Opinion] | None]]) -> RankingStep:
        finality = self.rules.finality
        read = set()
        scored: dict[Voter, dict[str, list[float]]] = {}
        for endpoint, opinions in voices:
            for letter, opinion in (opinions or {}).items():
                points = scored.setdefault(
                    Voter(endpoint.model, endpoint.family), defaultdict(list)
                )
                points[letter].append(self.rubric.mean(opinion.scores))
                read.add((endpoint.model, score_source(endpoint, opinion)))
        barred = finality is not None and not finality.knows(self.tier, read)
        return self.rules.step(self.before, self.tier, scored, cut=self.is_cut, barred=barred)

    def record(self, opinion: dict[str, Opinion]) -> dict[str, Any]:
        return {letter: self.score_question(letter).record(own) for letter, own in opinion.items()}

    def rounds(
        self, first: int, turns: Sequence[ModelTurn[dict[str, Opinion]]]
    ) -> list[CompareRound]:
        calls = [
            (letter, turn.calls[place])
            for place, letter in enumerate(self.letters)
            for turn in turns
        ]
        found = []
        for number, (letter, answer) in enumerate(calls, first):
            about = answer.record(self.score_question(letter).record)
            found.append(CompareRound(round=number, tier=self.tier, order=[letter], **about))
        return found


@dataclass(frozen=True, slots=True)
class RankingJudge(ComparisonJudge[ScoreRubric]):
    """Ranks subjects by their scores; a model that stands several times in a tier is asked as often."""

    def examine(self, state: JudgingState[ComparisonInput]) -> None:
        ComparisonJudge.examine(self, state)
        tier = next(iter(self.models_by_tier), None)
        if tier is not None and not state.refused:
            # A rubric for documents may need what a comparison does not have.
            document = self.question(tier, state).score_question("A").subject
            state.refused = document.lacks(self.rubric) or ""

    def ranking_rules(self, subject: ComparisonInput) -> RankingRules:
        panel = {
            tier: {endpoint.model for endpoint in jury}
            for tier, jury in self.models_by_tier.items()
        }
        favouring_families = {
            letter: set(subject.families(letter)) & set(subject.families_of_some_texts)
            for letter in subject.letters
        }
        margins = usual_margins(self.rubric)
        return RankingRules(
            letters=subject.distinct,
            panel=panel,
            margins=margins,
            mode=self.settings.mode,
            finality=self.settings.finality,
            favouring_families=favouring_families,
        )

    def question(self, tier: TierName, state: JudgingState[ComparisonInput]) -> RankingQuestion:
        rules = self.ranking_rules(state.subject)
        before = list(state.opinions.values())
        models = self.models_by_tier.get(tier, ())
        if before:
            letters = before[-1].near
        else:
            letters = rules.letters
        return RankingQuestion(
            self.settings,
            state.subject,
            tier,
            rules=rules,
            before=before,
            models=models,
            letters=letters,
        )

    def step(self, state: JudgingState[ComparisonInput]) -> TierName | Final:
        return (
            self.ranking_rules(state.subject).following(list(state.opinions.values()))
            or UNDETERMINED
        )

    def record(self, state: JudgingState[ComparisonInput], final: Final) -> Comparison:
        del final  # the last step knows more
        rules = self.ranking_rules(state.subject)
        subject = state.subject
        steps: list[RankingStep] = list(state.opinions.values())
        known = {
            letter: (mean, step.tier)
            for step in steps
            for letter, mean in (step.found or {}).items()
        }
        originals = {letter: subject.original(letter) for letter in subject.letters}
        scores = {}
        for letter, original in originals.items():
            if original in known:
                scores[letter] = known[original]
        if not steps or not steps[-1].is_end:
            return self.comparison(state, ComparisonResult(), scores=scores)
        step = steps[-1]
        if step.cut:
            why = "no model saw the whole of the best texts, so the result is open"
            return self.comparison(
                state, ComparisonResult(degraded=why, truncated=True), scores=scores
            )
        winner = rules.winner(step)
        told = [own for own in state.rounds if own.opinion]
        leaders = [own.leader for own in steps if own.found]
        consensus: Consensus = "unanimous" if set(leaders) == {winner} else "majority"
        if len({own.model for own in told}) == 1 or len(leaders) == 1:
            consensus = "single"
        reasons = []
        for own in told:
            if own.order == [winner]:
                reasons.append(own.opinion["reasoning"])
        reasoning = next(filter(None, reversed(reasons)), "")
        # A subject that did not go up keeps its last score: the best may be ahead of no other.
        ahead = lead({letter: mean for letter, (mean, _) in scores.items()})
        families = tuple(sorted({voter.family for voter in step.heard}))
        if winner is not None and list(originals.values()).count(originals[winner]) > 1:
            winner = None  # a copy is as good
        found = ComparisonResult(
            winner or TIE, consensus, step.tier, ahead, reasoning, families=families
        )
        return self.comparison(state, found, scores=scores)
