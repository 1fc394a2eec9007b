"""Several subjects compared by scores: only while the best two are near each other do they go up a tier."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from judgekit.comparison import TIE, CompareRound
from judgekit.errors import GatewayError
from judgekit.judging import outgoing, readings, standing
from judgekit.judging.calls import all_of
from judgekit.judging.contest import Ended, comparison, identical, terms_of, unprepared
from judgekit.judging.documents import DocumentJudge
from judgekit.judging.judge import Judge
from judgekit.judging.jury import voter
from judgekit.judging.ranks import Ranks, Voice
from judgekit.judging.session import Stopwatch
from judgekit.judging.subject import Document, is_cut
from judgekit.rubric import ScoreRubric
from judgekit.subject import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.comparison import Comparison
    from judgekit.gateway.base import Endpoint, Message
    from judgekit.judging.contest import Contest
    from judgekit.judging.ranks import Turn
    from judgekit.judging.readings import How
    from judgekit.judging.session import Session
    from judgekit.names import TierName
    from judgekit.verdict import Consensus, Verdict

NAME = "text"  # what models are told: a path may say who wrote it


@dataclass(frozen=True, slots=True)
class RankingJudge(Judge[ScoreRubric]):
    """Ranks subjects under a rubric that scores.

    The models of one family weigh as much as one model in a tier. A model that stands several times there is
    asked as often. Who goes up is said by the rubric's margins, else a tenth and a twentieth of the scale;
    with the `gates` of a calibration the best of a tier is final where they let its lead through, and of the
    first tier nobody else.
    """

    async def judge(self, contest: Contest) -> Comparison:
        """Return which is best; what failed on the way is in it, never raised."""
        contest = contest.written_by(self.written_by)
        # In a thread: it may ask local servers, or a proxy, of whom they are.
        judge = await asyncio.to_thread(self.facing, contest) if contest.wrote and self.seats else self
        return await RankingJudge._judge(judge, contest)

    def facing(self, contest: Contest) -> RankingJudge:
        """Return the judge without models that may favour one of the texts, where others are there."""
        told = contest.written_by(self.written_by)
        return self.apart_from(told.wrote, told.sided)

    async def _judge(self, contest: Contest) -> Comparison:
        watch, session = Stopwatch(), self.session()
        try:
            sent, left_out = await session.aside(
                partial(outgoing.contest, contest, self.manner), contest.size
            )
        except GatewayError as error:
            return unprepared(contest, self.loaded, self.mode, error, watch.ms)
        contest = sent
        run = _Run(self, contest, session, self.ranks(contest))
        same = len(contest.distinct) == 1
        refusal = self.manner.refusal(left_out)
        ended = (
            identical(contest) if same else await run.end() if not refusal else Ended("undetermined", "none")
        )
        nobody = "" if same else refusal or self.nobody
        terms = terms_of(self, nobody, run.note, left_out, run.rounds)
        found = comparison(contest, terms, ended, run.rounds, watch.ms, run.shared())
        return outgoing.replies(found) if self.manner.redact else found

    def prompts(
        self, tier: TierName, contest: Contest, seat: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: for each subject in turn.

        Of several models that sit there `seat` is the one that is meant, the first where none is given.
        """
        contest, left_out = outgoing.contest(contest, self.manner)
        if self.manner.refusal(left_out):
            return []
        one = self.one(tier, seat or next(iter(self.juries.get(tier, ())), None))
        return [each for letter in contest.distinct for each in one.prompts(tier, document(contest, letter))]

    def one(self, tier: TierName, seat: Endpoint | None, session: Session | None = None) -> DocumentJudge:
        """Return the judge that asks one model of one tier about one subject, within the limits of a session.

        What such a judge gives is compared, and not accepted: scores are taken as they are first given.
        """
        seats = {tier: seat} if seat else {}
        sent = self.manner._replace(redact=False)  # what is compared was searched as a whole
        own = replace(self, seats=seats, manner=sent)
        if session is not None:
            own = replace(own, deadline=session.left(), spent_usd=session.spent_usd)
        # Who judges was settled for all subjects together.
        own = replace(own, gates=None, stale=None, written_by=None, others=tuple, independence="prefer")
        return replace(own.turned(DocumentJudge), compared=True)

    async def each(
        self, tier: TierName, seat: Endpoint, contest: Contest, letters: Sequence[str], session: Session
    ) -> list[Verdict]:
        """Return what one model gives to each of several subjects, within the limits of a session."""

        async def once(letter: str) -> Verdict:
            found = await self.one(tier, seat, session).judge(document(contest, letter))
            session.spent_usd += found.cost_usd or 0.0
            return found

        at_once = 1 if seat.pointwise else self.manner.calls(len(self.rubric.dimensions))
        return await all_of([partial(once, letter) for letter in letters], session, seat, at_once)

    def is_cut(self, tier: TierName, contest: Contest, letter: str) -> bool:
        """Whether some model of a tier does not see a subject whole."""
        limits, subject = getattr(self.rubric.tiers, tier), document(contest, letter)
        return any(is_cut(subject.seen_by(limits, seat)) for seat in self.juries[tier])

    def ranks(self, contest: Contest) -> Ranks:
        """Begin the course of a comparison."""
        panel = {tier: {seat.model for seat in jury} for tier, jury in self.juries.items()}
        margins = standing.usual_margins(self.rubric)
        return Ranks(contest.distinct, panel, margins, self.mode, self.gates)


def document(contest: Contest, letter: str) -> Document:
    """Return one subject as a document of its own, made for the prompt, under a name that tells nothing."""
    return Document((replace(contest.file(letter), shown=NAME),), letter, Task(contest.prompt))


@dataclass(slots=True)
class _Run:
    """One comparison on its way: what every model gave so far, in which tier."""

    judge: RankingJudge
    contest: Contest
    session: Session
    ranks: Ranks
    said: dict[TierName, dict[Voice, dict[str, list[float]]]] = field(default_factory=dict)
    scores: dict[str, tuple[float, TierName]] = field(default_factory=dict)
    rounds: list[CompareRound] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    families: dict[Voice, str] = field(default_factory=dict)
    read: dict[TierName, set[tuple[str, How]]] = field(default_factory=dict)
    note: str | None = None

    async def end(self) -> Ended:
        """Ask tier by tier until one ends it."""
        tier = next(iter(self.judge.seats), None)
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
        seats = self.judge.juries[tier]
        calls = [partial(self.judge.each, tier, seat, self.contest, alive, self.session) for seat in seats]
        asked = await all_of(calls, self.session)
        for place, letter in enumerate(alive):
            for seat, found in zip(seats, asked, strict=True):
                self._note(letter, seat, found[place])

    def _note(self, letter: str, seat: Endpoint, found: Verdict) -> None:
        if not found.rounds:
            self.note = found.degraded
        for each in found.rounds:
            kept = each.model_dump(include={"tier", "model", "opinion", "failure", "latency_ms", "usage"})
            self.rounds.append(CompareRound(round=len(self.rounds) + 1, order=[letter], **kept))
            if each.opinion is not None:
                voice = Voice(seat.model, voter(seat))
                self.families[voice] = seat.family
                scored = self.said.setdefault(each.tier, {}).setdefault(voice, defaultdict(list))
                scored[letter].append(fmean(each.opinion["scores"].values()))
                how = readings.how(seat, each.opinion["scores"], each.opinion.get("expected", ()))
                self.read.setdefault(each.tier, set()).add((seat.model, how))
                self.reasons[letter] = each.opinion.get("reasoning") or self.reasons.get(letter, "")

    def _turn(self, tier: TierName, alive: Sequence[str]) -> Turn:
        """Return what comes of what a tier gave."""
        gates, said = self.judge.gates, self.said.get(tier, {})
        turn = self.ranks.take(
            tier,
            said,
            cut=any(self.judge.is_cut(tier, self.contest, each) for each in alive),
            barred=gates is not None and not gates.knows(tier, self.read.get(tier, ())),
            partial=self._is_partial,
        )
        if turn.found is not None:
            self.scores |= {each: (value, tier) for each, value in turn.found.items()}
        return turn

    def _ended(self, turn: Turn) -> Ended:
        if turn.cut:
            why = "no model saw the best texts whole, so none is known to be better"
            return Ended("undetermined", "none", degraded=why, truncated=True)
        winner = self.ranks.winner(turn)
        words, voices = self.ranks.leaders, {each.model for each in self.rounds if each.opinion}
        consensus: Consensus = "unanimous" if set(words.values()) == {winner} else "majority"
        if len(voices) == 1 or len(words) == 1:
            consensus = "single"
        # Who did not go up keeps the last score: the best may be ahead of nobody else.
        lead = standing.lead({letter: value for letter, (value, _) in self.shared().items()})
        reasoning, families = self.reasons.get(winner or "", ""), tuple(sorted(self._heard()))
        if winner is not None and self.contest.has_copy(winner):
            winner = None
        return Ended(winner or TIE, consensus, turn.tier, lead, reasoning, families=families)

    def shared(self) -> dict[str, tuple[float, TierName]]:
        """Return the mean of each subject: a copy has that of its original."""
        scores, original = self.scores, self.contest.original
        return {each: scores[original(each)] for each in self.contest.letters if original(each) in scores}

    def _heard(self) -> set[str]:
        """Return the families of the models that count."""
        return {self.families[voice] for voice in self.ranks.heard}

    def _is_partial(self, leader: str) -> bool:
        """Whether nobody scored but models of families that wrote the best subject, and not the others."""
        return self._heard() <= set(self.contest.families(leader)) & set(self.contest.sided)
