"""The task `compare` by scores: only while the best subjects are near each other do they go up a tier.

A subject's score is the mean over all models. Which subjects go up a tier, and when it ends, is a pure
function of the tiers' scores.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from judgekit.judging import logprobs
from judgekit.judging.compare import ComparisonJudge, Ended
from judgekit.judging.documents import ComparisonInput, Document, Task, is_cut
from judgekit.judging.escalation import DIGITS, UNDETERMINED, Final
from judgekit.judging.fence import Fence
from judgekit.judging.jury import has_quorum, voter
from judgekit.judging.orchestrator import JudgingState, ModelTurn
from judgekit.judging.round import gather_limited, joined
from judgekit.judging.score import ScoreTask
from judgekit.judging.verdict import TIE, CompareRound
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.jury import Opinion
    from judgekit.judging.round import Answer, Session
    from judgekit.judging.verdict import Comparison, Consensus
    from judgekit.providers.base import Endpoint, Message


Key = TypeVar("Key", bound="Hashable")
NEARLY = 1e-9  # two means of the same numbers may differ by so much
QUICK_SHARE, DEEP_SHARE = 0.1, 0.05  # of the scale's length: the margins where no labels say better ones

Scored: TypeAlias = "Mapping[str, Sequence[float]]"
"""What one model gave to each subject, by letter: a mean of dimensions for each time it was asked."""

Margins: TypeAlias = "Mapping[TierName, float]"


def usual_margins(rubric: ScoreRubric) -> dict[TierName, float]:
    """Return the margins of a rubric where no labels say better ones, in points of its scale."""
    length = rubric.scale.max - rubric.scale.min
    deep = DEEP_SHARE * length
    return {"quick": QUICK_SHARE * length, "deep": deep, "tiebreaker": deep, **rubric.margins}


def values(
    said: Mapping[Key, Scored],
    letters: Iterable[str],
    asked: int | None = None,
    group: Callable[[Key], Hashable] | None = None,
) -> dict[str, float] | None:
    """Return the mean score of each subject over what models said; None where one cannot be known.

    A model counts when it scored every one of `letters`: its leniency must not fall on some of them alone.
    Where `asked` says of how many models this is, more than half of them must count. Those of one `group`
    weigh together as much as one does, however many of them count.
    """
    among = list(letters)
    whole = {key: scored for key, scored in said.items() if all(scored.get(letter) for letter in among)}
    if not whole or (asked is not None and not has_quorum(len(whole), asked)):
        return None
    groups: dict[Key, Hashable] = {key: group(key) if group else key for key in whole}
    sizes = Counter(groups.values())
    means = {}
    for letter in among:
        points = [
            (point, 1 / sizes[groups[key]]) for key, scored in whole.items() for point in scored[letter]
        ]
        means[letter] = fmean([point for point, _ in points], [share for _, share in points])
    return means


def contending(found: Mapping[str, float], margin: float) -> list[str]:
    """Return the subjects within `margin` of the best, the best first."""
    best = max(found.values())
    near = [letter for letter in found if found[letter] >= best - margin - NEARLY]
    return sorted(near, key=lambda letter: (-found[letter], letter))


def lead(found: Mapping[str, float]) -> float:
    first, second, *_ = sorted(found.values(), reverse=True)
    return first - second


def last_word(found: Mapping[str, float], margin: float, mode: ModeName) -> str | None:
    """Return the winner where nobody is left to be asked, None for a tie.

    In strict mode a lead within the margin is none; in lenient mode any lead wins.
    """
    near = contending(found, margin if mode == "strict" else 0.0)
    return near[0] if len(near) == 1 else None


class Voter(NamedTuple):
    """A model, and in whose name it votes: as `judgekit.judging.jury.voter` says."""

    model: str
    voter: str


Said: TypeAlias = "Mapping[Voter, Scored]"
"""What the models of one tier gave; a model that stands there twice has twice the scores."""


def asked(said: Said, letters: Collection[str]) -> int:
    """Return how many calls a tier took; a score that is missing was asked for, too."""
    return sum(max(1, len(scored.get(letter, ()))) for scored in said.values() for letter in letters)


class RankingStep(NamedTuple):
    """What comes of a tier's turn.

    `found` are the means of all that was said so far, None where the tier failed. `near` are those that go up
    where somebody can be asked: nobody can after the `last` one. Where it is `trusted` a gate ends it. Where
    it is `cut` nobody wins by it.
    """

    tier: TierName
    found: Mapping[str, float] | None = None
    near: tuple[str, ...] = ()
    last: bool = False
    trusted: bool = False
    cut: bool = False

    @property
    def is_end(self) -> bool:
        return self.found is not None and (self.last or len(self.near) == 1)

    @property
    def lead(self) -> float:
        return round(lead(self.found), DIGITS) if self.found else 0.0

    @property
    def outcome(self) -> Outcome | None:
        """What the rules of escalation see: a leader, a tie, or a failure."""
        if self.found is None:
            return None
        return "accept" if self.lead else "improve"

    @property
    def best(self) -> str | None:
        return contending(self.found, 0.0)[0] if self.found and self.lead else None


@dataclass(slots=True)
class Ranks:
    """One comparison on its way, of the subjects that are still `alive`.

    `panel` names the models of each tier, in order. Who goes up is said by the `margins` in points of the
    scale; with the `finality` of a calibration the best of a tier is final where they let its lead through,
    and of the first tier nobody else. `said` is what counts, tier by tier, `leaders` are the best of each
    tier alone, and `heard` are those who scored all that are compared.
    """

    alive: tuple[str, ...]
    panel: Mapping[TierName, Collection[str]]
    margins: Margins
    mode: ModeName
    finality: FinalityRules | None = None
    said: dict[TierName, Said] = field(default_factory=dict)
    seen: dict[TierName, Outcome | None] = field(default_factory=dict)
    leaders: dict[TierName, str] = field(default_factory=dict)
    heard: set[Voter] = field(default_factory=set)

    def take(
        self,
        tier: TierName,
        said: Said,
        *,
        cut: bool = False,
        barred: bool = False,
        partial: Callable[[str], bool] | None = None,
    ) -> RankingStep:
        """Return what comes of what a tier gave, and note who goes up.

        Of a tier that is `barred` no gate lets the lead through. `partial` tells of a subject whether nobody
        scored it but models that have a reason to prefer it: these are not final alone.
        """
        finality, margin, self.seen[tier] = self.finality, self.margins.get(tier, 0.0), None
        here = values(said, self.alive, len(self.panel[tier]), lambda each: each.voter)
        if here is None:
            return RankingStep(tier)
        self.said[tier] = said
        self.leaders[tier] = max(here, key=here.__getitem__)
        pooled = {(each, voter): scored for each, by in self.said.items() for voter, scored in by.items()}
        found = values(pooled, self.alive, group=lambda key: (key[0], key[1].voter)) or {}
        self.heard = {key[1] for key, scored in pooled.items() if all(map(scored.get, self.alive))}
        last = self.following(tier) is None or (finality is not None and tier == finality.last)
        turn = RankingStep(tier, found, last=last, cut=cut)
        self.seen[tier] = turn.outcome
        best = contending(found, 0.0)[0]
        own = partial is not None and partial(best)
        gated = (
            finality is not None and bool(turn.lead) and finality.final(tier, self.seen, {tier: turn.lead})
        )
        trusted = gated and not (last or cut or barred or own)
        near = [best] if trusted else contending(found, margin)
        first = len(self.said) == 1 and (finality is not None or self.mode == "strict" or own)
        if not trusted and len(near) == 1 and (cut or first):  # one tier alone must not settle it
            rest = sorted(found.keys() - {best}, key=lambda letter: (-found[letter], letter))
            near += rest[:1]
        self.alive = tuple(near)
        return turn._replace(near=self.alive, trusted=trusted)

    def following(self, tier: TierName) -> TierName | None:
        """Return the tier that can be asked after this one, if there is any.

        A tiebreaker of which every model was heard would only say the same again, unless it stands in for a
        deep tier that failed.
        """
        tiers = list(self.panel)
        after = next(iter(tiers[tiers.index(tier) + 1 :]), None)
        heard = {voter.model for voter in self.heard}
        again = after == "tiebreaker" and "deep" in self.said and set(self.panel[after]) <= heard
        return None if again else after

    def winner(self, turn: RankingStep) -> str | None:
        """Return who wins, were nobody asked after a turn; None for a tie."""
        if turn.trusted or turn.found is None:
            return turn.best
        return last_word(turn.found, self.margins.get(turn.tier, 0.0), self.mode)


NAME = "text"  # what models are told: a path may say who wrote it


@dataclass(frozen=True, slots=True)
class RankingTask:
    """What a tier is asked about each subject of these `letters`: what it would be about a document.

    What is compared is not accepted: scores are taken as they are first given.
    """

    judge: RankingJudge
    subject: ComparisonInput
    tier: TierName
    ranks: Ranks
    letters: Sequence[str]

    def score_task(self, letter: str) -> ScoreTask:
        """Return what is asked about one subject, under a name that tells nothing."""
        file = replace(self.subject.file(letter), shown=NAME)
        document = Document((file,), letter, Task(self.subject.prompt))
        # The opinions of other tiers are not shown: nobody disagrees.
        words: TierName = "deep" if self.tier == "tiebreaker" else self.tier
        judge = self.judge
        return ScoreTask(judge.rubric, judge.mode, document, self.tier, judge.options, words, compared=True)

    @property
    def is_cut(self) -> bool:
        """Whether some model of the tier does not see a subject whole."""
        return any(
            is_cut(self.score_task(letter).seen_by(endpoint))
            for letter in self.letters
            for endpoint in self.judge.models_by_tier[self.tier]
        )

    def prompts(self, endpoint: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        return [
            prompt for letter in self.letters for prompt in self.score_task(letter).prompts(endpoint, fence)
        ]

    async def ask(self, endpoint: Endpoint, session: Session) -> ModelTurn[dict[str, Opinion]]:
        """Ask one model about each subject; one that stands there twice is asked as often."""

        async def once(letter: str) -> Answer[Opinion]:
            before, own = session.spent_usd, replace(session, fence=Fence(), remembered={})
            turn = await self.score_task(letter).ask(endpoint, own)
            session.spent_usd += own.spent_usd - before
            session.unpriced |= own.unpriced
            return turn.answer

        options, started = self.judge.options, time.monotonic()
        at_once = 1 if endpoint.pointwise else options.calls(len(self.judge.rubric.dimensions))
        calls = [partial(once, letter) for letter in self.letters]
        answers = await gather_limited(calls, session, endpoint, at_once)
        said = zip(self.letters, answers, strict=True)
        opinions = {letter: answer.value for letter, answer in said if answer.value}
        return ModelTurn(endpoint, answers, joined(answers, opinions, started))

    def combine(self, said: Sequence[tuple[Endpoint, dict[str, Opinion] | None]]) -> RankingStep:
        finality, read = self.judge.finality, set()
        scored: dict[Voter, dict[str, list[float]]] = {}
        for endpoint, opinions in said:
            for letter, opinion in (opinions or {}).items():
                points = scored.setdefault(Voter(endpoint.model, voter(endpoint)), defaultdict(list))
                points[letter].append(fmean(opinion.scores.values()))
                how = logprobs.score_source(endpoint, opinion.scores, opinion.expected)
                read.add((endpoint.model, how))
        barred = finality is not None and not finality.knows(self.tier, read)
        return self.ranks.take(self.tier, scored, cut=self.is_cut, barred=barred, partial=self._is_partial)

    def _is_partial(self, leader: str) -> bool:
        """Whether nobody scored but models of families that wrote the best subject, and not the others."""
        own = set(self.subject.families(leader)) & set(self.subject.sided)
        return self.judge.heard(self.ranks) <= own

    def rounds(self, first: int, turns: Sequence[ModelTurn[dict[str, Opinion]]]) -> list[CompareRound]:
        """Return the record: of each subject a round for each model."""
        calls = [(letter, turn.calls[place]) for place, letter in enumerate(self.letters) for turn in turns]
        return [
            CompareRound(
                round=number,
                tier=self.tier,
                order=[letter],
                opinion=answer.value.record() if answer.value else None,
                **answer.record(),
            )
            for number, (letter, answer) in enumerate(calls, first)
        ]


@dataclass(frozen=True, slots=True)
class RankingJudge(ComparisonJudge[ScoreRubric]):
    """Ranks subjects under a rubric that scores.

    The models of one family weigh as much as one model in a tier. A model that stands several times there is
    asked as often. Who goes up is said by the rubric's margins, else a tenth and a twentieth of the scale;
    with the `finality` of a calibration the best of a tier is final where they let its lead through, and of
    the first tier nobody else.
    """

    async def run(self, state: JudgingState[ComparisonInput]) -> Comparison:
        if self.panel:  # a rubric for documents may need what a comparison does not have
            task = self.task(next(iter(self.panel)), state)
            state.refused = state.refused or task.score_task("A").subject.lacks(self.rubric) or ""
        return await ComparisonJudge.run(self, state)

    def task(self, tier: TierName, state: JudgingState[ComparisonInput]) -> RankingTask:
        if state.ranks is None:
            panel = {
                tier: {endpoint.model for endpoint in jury} for tier, jury in self.models_by_tier.items()
            }
            margins = usual_margins(self.rubric)
            state.ranks = Ranks(state.subject.distinct, panel, margins, self.mode, self.finality)
        return RankingTask(self, state.subject, tier, state.ranks, state.ranks.alive)

    def step(self, state: JudgingState[ComparisonInput]) -> TierName | Final:
        turns: list[RankingStep] = list(state.opinions.values())
        if not turns:
            return next(iter(self.panel))
        following = None if turns[-1].is_end else state.ranks.following(turns[-1].tier)
        return following or UNDETERMINED

    def record(self, state: JudgingState[ComparisonInput], final: Final) -> Comparison:
        del final  # the last turn knows more
        turns: list[RankingStep] = list(state.opinions.values())
        known = {letter: (value, turn.tier) for turn in turns for letter, value in (turn.found or {}).items()}
        subject = state.subject
        scores = {
            letter: known[original]
            for letter in subject.letters
            if (original := subject.original(letter)) in known
        }
        outcome = Ended("undetermined", "none")
        if turns and turns[-1].is_end:
            outcome = self._ended(turns[-1], state, scores)
        return self.comparison(state, outcome, scores=scores)

    def _ended(
        self,
        turn: RankingStep,
        state: JudgingState[ComparisonInput],
        scores: Mapping[str, tuple[float, TierName]],
    ) -> Ended:
        if turn.cut:
            why = "no model saw the whole of the best texts, so the result is open"
            return Ended("undetermined", "none", degraded=why, truncated=True)
        ranks: Ranks = state.ranks
        winner, said = ranks.winner(turn), [each for each in state.rounds if each.opinion]
        consensus: Consensus = "unanimous" if set(ranks.leaders.values()) == {winner} else "majority"
        if len({each.model for each in said}) == 1 or len(ranks.leaders) == 1:
            consensus = "single"
        reasons = [each.opinion["reasoning"] for each in said if each.order == [winner]]
        reasoning = next(filter(None, reversed(reasons)), "")
        # Who did not go up keeps the last score: the best may be ahead of nobody else.
        ahead = lead({letter: value for letter, (value, _) in scores.items()})
        families = tuple(sorted(self.heard(ranks)))
        if winner is not None and state.subject.has_copy(winner):
            winner = None
        return Ended(winner or TIE, consensus, turn.tier, ahead, reasoning, families=families)

    def heard(self, ranks: Ranks) -> set[str]:
        """Return the families of the models that count."""
        endpoints = [endpoint for jury in self.models_by_tier.values() for endpoint in jury]
        return {each.family for each in endpoints if Voter(each.model, voter(each)) in ranks.heard}
