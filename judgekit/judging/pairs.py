"""The task `compare`: which of two texts is better, asked in both orders of every model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from judgekit.comparison import TIE
from judgekit.errors import GatewayError
from judgekit.fence import Fence
from judgekit.judging import outgoing
from judgekit.judging.ballots import Ballot, ballot, ended, outcomes
from judgekit.judging.calls import all_of
from judgekit.judging.contest import comparison, identical, terms_of, unprepared
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.judge import Judge
from judgekit.judging.pair_replies import Said
from judgekit.judging.preferring import Preference, compare_round
from judgekit.judging.session import Stopwatch
from judgekit.rubric import CompareRubric

if TYPE_CHECKING:
    from judgekit.comparison import CompareRound, Comparison
    from judgekit.gateway.base import Endpoint, Message
    from judgekit.judging.contest import Contest, Ended
    from judgekit.judging.session import Session
    from judgekit.names import TierName


@dataclass(slots=True)
class _Course:
    """The ballots of the tiers that were asked, in order, and every call."""

    ballots: dict[TierName, Ballot] = field(default_factory=dict)
    rounds: list[CompareRound] = field(default_factory=list)

    def partial(self, contest: Contest) -> set[TierName]:
        """Return the tiers of which only models of the family voted for a win that wrote the winner."""
        return {tier for tier, each in self.ballots.items() if _is_partial(each, contest)}


@dataclass(frozen=True, slots=True)
class PairJudge(Judge[CompareRubric]):
    """Compares two texts."""

    async def judge(self, contest: Contest) -> Comparison:
        """Return which is better; what failed on the way is in it, never raised."""
        contest = contest.written_by(self.written_by)
        # In a thread: it may ask local servers, or a proxy, of whom they are.
        judge = await asyncio.to_thread(self.facing, contest) if contest.wrote and self.seats else self
        return await PairJudge._judge(judge, contest)

    def facing(self, contest: Contest) -> PairJudge:
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
        refusal = self.manner.refusal(left_out)
        cut = {tier for tier in self.seats if self._is_cut(tier, contest)}
        rules = self.rules(cut)
        course = _Course()
        same = len(contest.distinct) == 1
        step = rules.next({}) if self.seats and not same and not refusal else UNDETERMINED
        while not isinstance(step, Final):
            await self._ask(step, contest, course, session)
            rules = replace(rules, partial=course.partial(contest))
            leads = {tier: each.lead for tier, each in course.ballots.items()}
            step = rules.next(outcomes(course.ballots), leads)
        outcome = identical(contest) if same else ended(step, course.ballots, self.mode, rules)
        nobody = "" if same else refusal or self.nobody
        terms = terms_of(self, nobody, self._cuts(contest, course), left_out, course.rounds)
        agreed = self._agreed(outcome, course)
        if not same:
            readable = Preference(self.rubric, contest, "quick", self.manner, "quick").readable
            agreed = replace(agreed, reasoning=readable(agreed.reasoning))
        found = comparison(contest, terms, agreed, course.rounds, watch.ms)
        return outgoing.replies(found) if self.manner.redact else found

    def prompts(
        self, tier: TierName, contest: Contest, seat: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: a prompt for each order.

        Of several models that sit there `seat` is the one that is meant, the first where none is given.
        """
        contest, left_out = outgoing.contest(contest, self.manner)
        if self.manner.refusal(left_out):
            return []
        first = seat or next(iter(self.juries.get(tier, ())), None)
        return self._preference(tier, contest, _Course()).prompts(first, Fence())

    def _is_cut(self, tier: TierName, contest: Contest) -> bool:
        return bool(self._cut(tier, contest))

    def _cut(self, tier: TierName, contest: Contest) -> str:
        """Return the texts of which some model of a tier does not see all."""
        preference = self._preference(tier, contest, _Course())
        found = {letter for seat in self.juries[tier] for letter in preference.cut(seat)}
        return "".join(sorted(found))

    def _cuts(self, contest: Contest, course: _Course) -> str:
        """Say which texts the tiers that were asked did not see whole; "" where they saw all."""
        cut = {tier: self._cut(tier, contest) for tier in course.ballots}
        told = [f"{' and '.join(letters)} for {tier}" for tier, letters in cut.items() if letters]
        return f"cut: {', '.join(told)}" if told else ""

    def _preference(self, tier: TierName, contest: Contest, course: _Course) -> Preference:
        asked = Preference(self.rubric, contest, tier, self.manner, tier)
        if tier != "tiebreaker":
            return asked
        heard = [each for each in course.ballots.values() if each.votes]
        told = [
            Said(None if each.word == TIE else asked.label(each.word), outgoing.words(each.reasoning))
            for one in heard
            for each in one.votes
        ]
        # Where nobody disagrees the tiebreaker stands in for the deep tier, and is told what that is told.
        return replace(asked, words=tier if len(heard) > 1 else "deep", told=told)

    async def _ask(self, tier: TierName, contest: Contest, course: _Course, session: Session) -> None:
        """Ask every model of a tier, and note in `course` what each call brings and what they come to."""
        seats, preference = self.juries[tier], self._preference(tier, contest, course)
        asked = await all_of([partial(preference.ask, seat, session) for seat in seats], session)
        for call in (each for calls in asked for each in calls):
            course.rounds.append(compare_round(len(course.rounds) + 1, tier, call, preference.readable))
        said = [(seat, preference.vote(calls)) for seat, calls in zip(seats, asked, strict=True)]
        course.ballots[tier] = ballot(said, self.manner.jury)

    def _agreed(self, found: Ended, course: _Course) -> Ended:
        """Return the end with the agreement that there is, and the families of the models behind it.

        Where nothing was settled these are the families behind what each tier said.
        """
        settled = found.tier is not None
        words = [one for one in course.ballots.values() if not settled or one.word == found.verdict]
        found = replace(found, families=tuple(sorted({each for one in words for each in one.behind})))
        if found.tier is None:
            return found
        consensus = course.ballots[found.tier].agreement or found.consensus
        if consensus == "unanimous" and any(each.agreement for each in words):
            consensus = "majority"
        # One model in two tiers is one voice, however often it agrees with itself.
        if len({seat.model for tier in course.ballots for seat in self.juries[tier]}) == 1:
            consensus = "single"
        return replace(found, consensus=consensus)


def _is_partial(one: Ballot, contest: Contest) -> bool:
    if one.word is None or one.word == TIE:
        return False
    return bool(one.behind) and one.behind <= set(contest.families(one.word)) & set(contest.sided)
