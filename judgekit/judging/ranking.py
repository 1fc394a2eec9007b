"""The task `compare` by scores: only while the best two subjects are near each other do they go up a tier.

A subject's score is the mean over all models. Which subjects go up a tier, and when it ends, is a pure
function of the tiers' scores.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from judgekit.errors import GatewayError
from judgekit.judging import logprobs, redact
from judgekit.judging.comparison import Ended, comparison, identical, terms_of, unprepared
from judgekit.judging.escalation import DIGITS
from judgekit.judging.judge import Judge
from judgekit.judging.jury import has_quorum, voter
from judgekit.judging.round import Stopwatch, gather_limited
from judgekit.judging.score import DocumentJudge
from judgekit.judging.subject import Document, Task, is_cut
from judgekit.judging.verdict import TIE, CompareRound
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from judgekit.config.names import ModeName, Outcome, TierName
    from judgekit.judging.comparison import Comparison, ComparisonInput
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.judging.round import Session
    from judgekit.judging.verdict import Consensus, Verdict
    from judgekit.providers.base import Endpoint, Message
    from judgekit.rubric.schema import Scale


Key = TypeVar("Key", bound="Hashable")
NEARLY = 1e-9  # two means of the same numbers may differ by so much
_PAIR = 2
QUICK_SHARE, DEEP_SHARE = 0.1, 0.05  # of the scale's length: the margins where no labels say better ones

Scored: TypeAlias = "Mapping[str, Sequence[float]]"
"""What one model gave to each subject, by letter: a mean of dimensions for each time it was asked."""

Margins: TypeAlias = "Mapping[TierName, float]"


def usual_margins(rubric: ScoreRubric) -> dict[TierName, float]:
    """Return the margins of a rubric where no labels say better ones, in points of its scale."""
    return default_margins(rubric.scale) | rubric.margins


def default_margins(scale: Scale) -> dict[TierName, float]:
    """Return the margins that hold without a calibration, in points of a scale."""
    length = scale.max - scale.min
    deep = DEEP_SHARE * length
    return {"quick": QUICK_SHARE * length, "deep": deep, "tiebreaker": deep}


def _itself(key: Hashable) -> Hashable:
    return key


def values(
    said: Mapping[Key, Scored],
    letters: Iterable[str],
    asked: int | None = None,
    group: Callable[[Key], Hashable] = _itself,
) -> dict[str, float] | None:
    """Return the mean score of each subject over what models said; None where one cannot be known.

    A model counts when it scored every one of `letters`: its leniency must not fall on some of them alone.
    Where `asked` says of how many models this is, more than half of them must count. Those of one `group`
    weigh together as much as one does, however many of them count.
    """
    among = list(letters)
    whole = {key: each for key, each in said.items() if is_whole(each, among)}
    if not whole or (asked is not None and not has_quorum(len(whole), asked)):
        return None
    sizes = Counter(group(key) for key in whole)
    weighed = [(1 / sizes[group(key)], each) for key, each in whole.items()]
    return {
        letter: _mean([(share, point) for share, own in weighed for point in own[letter]]) for letter in among
    }


def is_whole(scored: Scored, letters: Iterable[str]) -> bool:
    """Whether a model scored every one of the subjects."""
    return all(scored.get(letter) for letter in letters)


def _mean(weighed: Sequence[tuple[float, float]]) -> float:
    return fmean([point for _, point in weighed], [share for share, _ in weighed])


def contending(found: Mapping[str, float], margin: float) -> list[str]:
    """Return the subjects within `margin` of the best, the best first."""
    best = max(found.values())
    near = [each for each in found if found[each] >= best - margin - NEARLY]
    return sorted(near, key=lambda each: (-found[each], each))


def going_on(found: Mapping[str, float], margin: float, *, at_least: int = 1) -> list[str]:
    """Return who goes up a tier: the contending, and of the others the best until there are `at_least`."""
    near = contending(found, margin)
    rest = sorted(found.keys() - set(near), key=lambda each: (-found[each], each))
    return [*near, *rest[: max(0, at_least - len(near))]]


def next_up(found: Mapping[str, float], margin: float, *, trusted: bool, alone: bool) -> list[str]:
    """Return who goes up a tier: nobody but the best where its lead is `trusted`.

    Where one tier is `alone` and must not settle it, two go up at least.
    """
    if trusted:
        return contending(found, 0.0)[:1]
    return going_on(found, margin, at_least=_PAIR if alone else 1)


def lead(found: Mapping[str, float]) -> float:
    """Return by how much the best is ahead of the next."""
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
        """Whether nobody is asked after it."""
        return self.found is not None and (self.last or len(self.near) == 1)

    @property
    def lead(self) -> float:
        """By how much the best is ahead."""
        return round(lead(self.found), DIGITS) if self.found else 0.0

    @property
    def outcome(self) -> Outcome | None:
        """What the rules of escalation see: a leader, a tie, or a failure."""
        if self.found is None:
            return None
        return "accept" if self.lead else "improve"

    @property
    def best(self) -> str | None:
        """The leader; None where there is none."""
        return contending(self.found, 0.0)[0] if self.found and self.lead else None


def _nobody(_: str) -> bool:
    return False


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
        partial: Callable[[str], bool] = _nobody,
    ) -> RankingStep:
        """Return what comes of what a tier gave, and note who goes up.

        Of a tier that is `barred` no gate lets the lead through. `partial` tells of a subject whether nobody
        scored it but models that have a reason to prefer it: these are not final alone.
        """
        self.seen[tier] = None
        here = values(said, self.alive, len(self.panel[tier]), _voter)
        if here is None:
            return RankingStep(tier)
        self.said[tier] = said
        self.leaders[tier] = max(here, key=here.__getitem__)
        pooled = {(each, voice): scored for each, by in self.said.items() for voice, scored in by.items()}
        found = values(pooled, self.alive, group=_voter_in_tier)
        self.heard = {key[1] for key, scored in pooled.items() if is_whole(scored, self.alive)}
        turn = RankingStep(tier, found, last=self._is_last(tier), cut=cut)
        self.seen[tier] = turn.outcome
        own = partial(contending(found or {}, 0.0)[0])
        trusted = not (turn.last or cut or barred or own) and self._is_let_through(turn)
        alone = cut or (len(self.said) == 1 and (self.finality is not None or self.mode == "strict" or own))
        near = next_up(found or {}, self._margin(tier), trusted=trusted, alone=alone)
        self.alive = tuple(near)
        return turn._replace(near=self.alive, trusted=trusted)

    def following(self, tier: TierName) -> TierName | None:
        """Return the tier that can be asked after this one, if there is any.

        A tiebreaker of which every model was heard would only say the same again, unless it stands in for a
        deep tier that failed.
        """
        tiers = list(self.panel)
        after = next(iter(tiers[tiers.index(tier) + 1 :]), None)
        heard = {voice.model for voice in self.heard}
        again = after == "tiebreaker" and "deep" in self.said and set(self.panel[after]) <= heard
        return None if again else after

    def winner(self, turn: RankingStep) -> str | None:
        """Return who wins, were nobody asked after a turn; None for a tie."""
        if turn.trusted or turn.found is None:
            return turn.best
        return last_word(turn.found, self._margin(turn.tier), self.mode)

    def _is_last(self, tier: TierName) -> bool:
        return self.following(tier) is None or (self.finality is not None and tier == self.finality.last)

    def _is_let_through(self, turn: RankingStep) -> bool:
        lead = {turn.tier: turn.lead}
        return (
            self.finality is not None and bool(turn.lead) and self.finality.final(turn.tier, self.seen, lead)
        )

    def _margin(self, tier: TierName) -> float:
        return self.margins.get(tier, 0.0)


def asked(said: Said, letters: Collection[str]) -> int:
    """Return how many calls a tier took; a score that is missing was asked for, too."""
    return sum(max(1, len(scored.get(letter, ()))) for scored in said.values() for letter in letters)


def _voter(voice: Voter) -> str:
    return voice.voter


def _voter_in_tier(key: tuple[TierName, Voter]) -> tuple[TierName, str]:
    return key[0], key[1].voter


NAME = "text"  # what models are told: a path may say who wrote it


@dataclass(frozen=True, slots=True)
class RankingJudge(Judge[ScoreRubric]):
    """Ranks subjects under a rubric that scores.

    The models of one family weigh as much as one model in a tier. A model that stands several times there is
    asked as often. Who goes up is said by the rubric's margins, else a tenth and a twentieth of the scale;
    with the `finality` of a calibration the best of a tier is final where they let its lead through, and of
    the first tier nobody else.
    """

    async def judge(self, comparison_input: ComparisonInput) -> Comparison:
        """Return which is best; what failed on the way is in it, never raised."""
        comparison_input = comparison_input.written_by(self.written_by)
        # In a thread: it may ask local servers, or a proxy, of whom they are.
        judge = (
            await asyncio.to_thread(self.for_subject, comparison_input)
            if comparison_input.wrote and self.panel
            else self
        )
        return await RankingJudge._judge(judge, comparison_input)

    def for_subject(self, comparison_input: ComparisonInput) -> RankingJudge:
        """Return the judge without models that may favour one of the texts, where others are there."""
        told = comparison_input.written_by(self.written_by)
        return self.excluding_families(told.wrote, told.sided)

    async def _judge(self, comparison_input: ComparisonInput) -> Comparison:
        watch, session = Stopwatch(), self.session()
        try:
            sent, left_out = await session.aside(
                partial(redact.comparison_input, comparison_input, self.options), comparison_input.size
            )
        except GatewayError as error:
            return unprepared(comparison_input, self.loaded, self.mode, error, watch.ms)
        comparison_input = sent
        run = _Run(self, comparison_input, session, self.ranks(comparison_input))
        same = len(comparison_input.distinct) == 1
        refusal = self.options.refusal(left_out)
        ended = (
            identical(comparison_input)
            if same
            else await run.end()
            if not refusal
            else Ended("undetermined", "none")
        )
        nobody = "" if same else refusal or self.nobody
        terms = terms_of(self, nobody, run.note, left_out, run.rounds)
        found = comparison(comparison_input, terms, ended, run.rounds, watch.ms, run.shared())
        return redact.replies(found) if self.options.redact else found

    def prompts(
        self, tier: TierName, comparison_input: ComparisonInput, endpoint: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: for each subject in turn.

        Of several models that sit there `endpoint` is the one that is meant, the first where none is given.
        """
        comparison_input, left_out = redact.comparison_input(comparison_input, self.options)
        if self.options.refusal(left_out):
            return []
        document_judge = self.one(tier, endpoint or next(iter(self.models_by_tier.get(tier, ())), None))
        return [
            prompt
            for letter in comparison_input.distinct
            for prompt in document_judge.prompts(tier, document(comparison_input, letter))
        ]

    def one(self, tier: TierName, endpoint: Endpoint | None, session: Session | None = None) -> DocumentJudge:
        """Return the judge that asks one model of one tier about one subject, within the limits of a session.

        What such a judge gives is compared, and not accepted: scores are taken as they are first given.
        """
        endpoints = {tier: endpoint} if endpoint else {}
        sent = self.options._replace(redact=False)  # what is compared was searched as a whole
        own = replace(self, panel=endpoints, options=sent)
        if session is not None:
            own = replace(own, deadline=session.left(), spent_usd=session.spent_usd)
        # Who judges was settled for all subjects together.
        own = replace(
            own, finality=None, calibration_warning=None, written_by=None, others=tuple, independence="prefer"
        )
        return replace(own.as_judge(DocumentJudge), compared=True)

    async def each(
        self,
        tier: TierName,
        endpoint: Endpoint,
        comparison_input: ComparisonInput,
        letters: Sequence[str],
        session: Session,
    ) -> list[Verdict]:
        """Return what one model gives to each of several subjects, within the limits of a session."""

        async def once(letter: str) -> Verdict:
            verdict = await self.one(tier, endpoint, session).judge(document(comparison_input, letter))
            session.spent_usd += verdict.cost_usd or 0.0
            return verdict

        at_once = 1 if endpoint.pointwise else self.options.calls(len(self.rubric.dimensions))
        return await gather_limited([partial(once, letter) for letter in letters], session, endpoint, at_once)

    def is_cut(self, tier: TierName, comparison_input: ComparisonInput, letter: str) -> bool:
        """Whether some model of a tier does not see a subject whole."""
        limits, subject = getattr(self.rubric.tiers, tier), document(comparison_input, letter)
        return any(is_cut(subject.seen_by(limits, endpoint)) for endpoint in self.models_by_tier[tier])

    def ranks(self, comparison_input: ComparisonInput) -> Ranks:
        """Begin a comparison."""
        panel = {tier: {endpoint.model for endpoint in jury} for tier, jury in self.models_by_tier.items()}
        margins = usual_margins(self.rubric)
        return Ranks(comparison_input.distinct, panel, margins, self.mode, self.finality)


def document(comparison_input: ComparisonInput, letter: str) -> Document:
    """Return one subject as a document of its own, made for the prompt, under a name that tells nothing."""
    return Document(
        (replace(comparison_input.file(letter), shown=NAME),), letter, Task(comparison_input.prompt)
    )


@dataclass(slots=True)
class _Run:
    """One comparison on its way: what every model gave so far, in which tier."""

    judge: RankingJudge
    comparison_input: ComparisonInput
    session: Session
    ranks: Ranks
    said: dict[TierName, dict[Voter, dict[str, list[float]]]] = field(default_factory=dict)
    scores: dict[str, tuple[float, TierName]] = field(default_factory=dict)
    rounds: list[CompareRound] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    families: dict[Voter, str] = field(default_factory=dict)
    read: dict[TierName, set[tuple[str, ScoreSource]]] = field(default_factory=dict)
    note: str | None = None

    async def end(self) -> Ended:
        """Ask tier by tier until one ends it."""
        tier = next(iter(self.judge.panel), None)
        while tier is not None:
            alive = self.ranks.alive
            await self.ask(tier, alive)
            turn = self._turn(tier, alive)
            if turn.is_end:
                return self._ended(turn)
            tier = self.ranks.following(tier)
        return Ended("undetermined", "none")

    async def ask(self, tier: TierName, alive: Sequence[str]) -> None:
        """Ask every model of a tier about every subject that is still in question."""
        endpoints = self.judge.models_by_tier[tier]
        calls = [
            partial(self.judge.each, tier, endpoint, self.comparison_input, alive, self.session)
            for endpoint in endpoints
        ]
        asked = await gather_limited(calls, self.session)
        for place, letter in enumerate(alive):
            for endpoint, found in zip(endpoints, asked, strict=True):
                self._note(letter, endpoint, found[place])

    def _note(self, letter: str, endpoint: Endpoint, verdict: Verdict) -> None:
        if not verdict.rounds:
            self.note = verdict.degraded
        for each in verdict.rounds:
            kept = each.model_dump(include={"tier", "model", "opinion", "failure", "latency_ms", "usage"})
            self.rounds.append(CompareRound(round=len(self.rounds) + 1, order=[letter], **kept))
            if each.opinion is not None:
                voice = Voter(endpoint.model, voter(endpoint))
                self.families[voice] = endpoint.family
                scored = self.said.setdefault(each.tier, {}).setdefault(voice, defaultdict(list))
                scored[letter].append(fmean(each.opinion["scores"].values()))
                how = logprobs.score_source(
                    endpoint, each.opinion["scores"], each.opinion.get("expected", ())
                )
                self.read.setdefault(each.tier, set()).add((endpoint.model, how))
                self.reasons[letter] = each.opinion.get("reasoning") or self.reasons.get(letter, "")

    def _turn(self, tier: TierName, alive: Sequence[str]) -> RankingStep:
        """Return what comes of what a tier gave."""
        finality, said = self.judge.finality, self.said.get(tier, {})
        turn = self.ranks.take(
            tier,
            said,
            cut=any(self.judge.is_cut(tier, self.comparison_input, each) for each in alive),
            barred=finality is not None and not finality.knows(tier, self.read.get(tier, ())),
            partial=self._is_partial,
        )
        if turn.found is not None:
            self.scores |= {each: (value, tier) for each, value in turn.found.items()}
        return turn

    def _ended(self, turn: RankingStep) -> Ended:
        if turn.cut:
            why = "no model saw the best texts whole, so none is known to be better"
            return Ended("undetermined", "none", degraded=why, truncated=True)
        winner = self.ranks.winner(turn)
        words, voices = (
            self.ranks.leaders,
            {compare_round.model for compare_round in self.rounds if compare_round.opinion},
        )
        consensus: Consensus = "unanimous" if set(words.values()) == {winner} else "majority"
        if len(voices) == 1 or len(words) == 1:
            consensus = "single"
        # Who did not go up keeps the last score: the best may be ahead of nobody else.
        ahead = lead({letter: value for letter, (value, _) in self.shared().items()})
        reasoning, families = self.reasons.get(winner or "", ""), tuple(sorted(self._heard()))
        if winner is not None and self.comparison_input.has_copy(winner):
            winner = None
        return Ended(winner or TIE, consensus, turn.tier, ahead, reasoning, families=families)

    def shared(self) -> dict[str, tuple[float, TierName]]:
        """Return the mean of each subject: a copy has that of its original."""
        scores, original = self.scores, self.comparison_input.original
        return {
            letter: scores[original(letter)]
            for letter in self.comparison_input.letters
            if original(letter) in scores
        }

    def _heard(self) -> set[str]:
        """Return the families of the models that count."""
        return {self.families[voice] for voice in self.ranks.heard}

    def _is_partial(self, leader: str) -> bool:
        """Whether nobody scored but models of families that wrote the best subject, and not the others."""
        return self._heard() <= set(self.comparison_input.families(leader)) & set(self.comparison_input.sided)
