"""The task `compare`: which of two texts is better, asked in both orders of every model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from judgekit import prompt
from judgekit.comparison import TIE
from judgekit.fence import Fence
from judgekit.gateway.base import Matter
from judgekit.judging import outgoing
from judgekit.judging.asking import Points, Question, ask, ask_pointwise
from judgekit.judging.ballots import ORDERS, WINS, Ballot, Vote, ballot, ended, outcomes, vote
from judgekit.judging.calls import all_of
from judgekit.judging.contest import Ended, Terms, compare_round, comparison
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.judge import Judge
from judgekit.judging.pair_replies import (
    POINTS,
    Said,
    compare_reply_model,
    pair_labels,
    pair_messages,
    point_question,
)
from judgekit.judging.session import Stopwatch
from judgekit.judging.subject import CONTEXT_CHARS, is_cut
from judgekit.rubric import CompareRubric
from judgekit.subject import Part
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.comparison import CompareRound, Comparison
    from judgekit.gateway.base import Endpoint, Message
    from judgekit.judging.asking import Answer
    from judgekit.judging.ballots import PairWord
    from judgekit.judging.contest import Contest
    from judgekit.judging.session import Session
    from judgekit.rubric import TierName

REPLY_TOKENS = 1024
_IDENTICAL = Ended(TIE, "none", reasoning="The two texts are the same.")


@dataclass(frozen=True, slots=True)
class PairJudge(Judge[CompareRubric]):
    """Compares two texts; of the `manner` only whether secrets are sent matters here."""

    async def judge(self, contest: Contest) -> Comparison:
        """Return which is better; what failed on the way is in it, never raised."""
        watch = Stopwatch()
        contest = self._outgoing(contest)
        session = self.session()
        cut = {tier for tier in self.seats if self._is_cut(tier, contest)}
        rules = self.rules(cut)
        ballots: dict[TierName, Ballot] = {}
        rounds: list[CompareRound] = []
        same = contest.files[0].sha256 == contest.files[1].sha256
        step = rules.next({}) if self.seats and not same else UNDETERMINED
        while not isinstance(step, Final):
            asked = _Asked(self, step, contest, tuple(ballots.values()), session)
            ballots[step] = await asked.ballot(rounds)
            step = rules.next(outcomes(ballots), {tier: each.lead for tier, each in ballots.items()})
        found = _IDENTICAL if same else ended(step, ballots, self.mode, cut, self.gates)
        voices = {seat.model for tier in ballots for seat in self.juries[tier]}
        # One model in two tiers is one voice, however often it agrees with itself.
        found = replace(found, consensus="single") if found.tier and len(voices) == 1 else found
        calibration = self.gates.id if self.gates else None
        terms = Terms(self.loaded, self.mode, calibration, "" if same else self.nobody, self.stale)
        return comparison(contest, terms, found, rounds, watch.ms)

    def prompts(self, tier: TierName, contest: Contest) -> list[tuple[Message, ...]]:
        """Return what would be sent to `tier`, were it asked first: a prompt for each order."""
        contest = self._outgoing(contest)
        asked = _Asked(self, tier, contest, (), self.session())
        jury = self.juries.get(tier)
        seat = jury[0] if jury else None
        if seat is not None and seat.pointwise:
            return [each for order in ORDERS for each in asked.points(Fence(), seat, order).prompts()]
        return [asked.messages(seat, order) for order in ORDERS]

    def part(self, tier: TierName, seat: Endpoint | None, contest: Contest, letter: str, label: str) -> Part:
        """Return one of the texts as a tier sees it under a label: each gets half of the characters."""
        bearable = seat.profile.limits.context_chars if seat else None
        limit = getattr(self.rubric.tiers, tier).max_chars
        file = contest.file(letter)
        most = min(limit or CONTEXT_CHARS, bearable or CONTEXT_CHARS) // len(WINS)
        return Part(label, file.text[:most], file.total)

    def _outgoing(self, contest: Contest) -> Contest:
        return outgoing.contest(contest) if self.manner.redact else contest

    def _is_cut(self, tier: TierName, contest: Contest) -> bool:
        jury = self.juries[tier]
        return any(
            is_cut(tuple(self.part(tier, seat, contest, each, each) for each in WINS)) for seat in jury
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """One tier's turn: what its models are asked, and what their words in both orders come to."""

    judge: PairJudge
    tier: TierName
    contest: Contest
    earlier: tuple[Ballot, ...]
    session: Session

    async def ballot(self, rounds: list[CompareRound]) -> Ballot:
        """Ask every model in both orders, and append what came of it to `rounds`."""
        seats = self.judge.juries[self.tier]
        asked = await all_of([partial(self._both, seat) for seat in seats], self.session)
        for order, answer in (pair for answers in asked for pair in zip(ORDERS, answers, strict=True)):
            said = answer.value
            opinion = {"better": said.word, "reasoning": said.reasoning} if said else None
            rounds.append(compare_round(len(rounds) + 1, self.tier, order, answer, opinion))
        return ballot([vote([each.value for each in answers]) for answers in asked])

    async def _both(self, seat: Endpoint) -> list[Answer[Vote]]:
        return await all_of([partial(self._once, seat, order) for order in ORDERS], self.session, seat)

    async def _once(self, seat: Endpoint, order: str) -> Answer[Vote]:
        timeout = getattr(self.judge.rubric.tiers, self.tier).timeout
        if seat.pointwise:
            points = self.points(self.session.fence, seat, order)
            told = await ask_pointwise(self.session, seat, points, timeout)
            return told.map(lambda found: Vote(_likelier(found["better"], order)))
        ids = {label: each for each, label in self._labels.items()}
        question = Question(
            self.messages(seat, order), compare_reply_model(list(ids)), self._matter(order), REPLY_TOKENS, ids
        )
        reply = await ask(self.session, seat, question, timeout)
        return reply.map(lambda said: Vote(self._word(ids.get(said.better)), visible(said.reasoning)))

    def messages(self, seat: Endpoint | None, order: str) -> tuple[Message, ...]:
        """Return the messages for one order."""
        labels, rubric = self._labels, self.judge.rubric
        shown = [
            self.judge.part(self.tier, seat, self.contest, each, labels[self.contest.file(each).sha256])
            for each in order
        ]
        if self.tier != "tiebreaker":
            return pair_messages(rubric, self.tier, self.contest.prompt, shown)
        told = [self._said(each) for heard in self.earlier for each in heard.votes]
        heard = [each for each in self.earlier if each.votes]
        # Where nobody disagrees the tiebreaker stands in for the deep tier, and is told what that is told.
        words: TierName = self.tier if len(heard) > 1 else "deep"
        return pair_messages(rubric, words, self.contest.prompt, shown, told)

    def points(self, fence: Fence, seat: Endpoint, order: str) -> Points:
        """Return the question for one order, to a model that answers in one token."""
        shown = [
            self.judge.part(self.tier, seat, self.contest, each, point)
            for each, point in zip(order, POINTS, strict=True)
        ]
        rubric = self.judge.rubric
        return Points(
            f"{rubric.prompt.system} {fence.guard}",
            prompt.pair_context(fence, self.contest.prompt, shown),
            {"better": point_question(rubric)},
            POINTS,
            self._matter(order),
        )

    def _matter(self, order: str) -> Matter:
        return Matter(self.contest.subject(order), self.judge.rubric.ref, self.tier)

    @property
    def _labels(self) -> dict[str, str]:
        return pair_labels(self.contest.prompt, [each.sha256 for each in self.contest.files])

    def _said(self, each: Vote) -> Said:
        better = None if each.word == TIE else self._labels[self.contest.file(each.word).sha256]
        return Said(better, outgoing.words(each.reasoning))

    def _word(self, sha256: str | None) -> PairWord:
        return next((each for each in WINS if self.contest.file(each).sha256 == sha256), "tie")


def _likelier(found: Mapping[str, float], order: str) -> PairWord:
    """Return the likelier of the two texts; a model that leans to neither says it is a tie."""
    first, second = (found[point] for point in POINTS)
    if first == second:
        return "tie"
    return "A" if (first > second) == (order == ORDERS[0]) else "B"
