"""The task `compare`: which of two texts is better, asked in both orders of every model."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import GatewayError
from judgekit.judging import prompt, redact
from judgekit.judging.ballots import ORDERS, WINS, Ballot, Vote, ballot, ended, of_calls, outcomes
from judgekit.judging.comparison import TIE, CompareRound
from judgekit.judging.contest import comparison, identical, terms_of, unprepared
from judgekit.judging.escalation import UNDETERMINED, Final
from judgekit.judging.fence import Fence
from judgekit.judging.judge import Judge
from judgekit.judging.pair_replies import (
    POINTS,
    Said,
    compare_reply_model,
    pair_labels,
    pair_messages,
    point_question,
)
from judgekit.judging.round import Points, Question, all_of, ask, ask_pointwise
from judgekit.judging.session import Stopwatch
from judgekit.judging.subject import CONTEXT_CHARS, Part, is_cut
from judgekit.judging.verdict import Usage
from judgekit.providers.base import Matter
from judgekit.rubric.schema import CompareRubric
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.config.names import TierName
    from judgekit.judging.ballots import PairWord
    from judgekit.judging.comparison import Comparison
    from judgekit.judging.contest import Contest, Ended
    from judgekit.judging.options import Manner
    from judgekit.judging.round import Answer
    from judgekit.judging.session import Session
    from judgekit.providers.base import Endpoint, Message


REPLY_TOKENS = 1024
LEAST_LEANING = 0.55
"""Of a model that answers in one token: the probability from which on a text is preferred.

The 1.5B model of the demo gave 0.46 to 0.54 to the ten labelled pairs of `answer-preference` whatever their
label was (22 November 2026): that is no preference.
"""


class Call(NamedTuple):
    """One call: the letters in the order in which the model saw them, and what came of it.

    `criterion` is the one that was asked about alone; of several replies `sample` is the number, from 1.
    """

    order: str
    criterion: str
    sample: int
    answer: Answer[Vote]


@dataclass(frozen=True, slots=True)
class Preference:
    """What a tier is asked about two texts.

    `words` is the tier whose instructions are given, `told` are the earlier opinions that the tiebreaker
    is shown.
    """

    rubric: CompareRubric
    contest: Contest
    tier: TierName
    manner: Manner
    words: TierName
    told: Sequence[Said] = ()

    def prompts(self, seat: Endpoint | None, fence: Fence) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model: a prompt for each order, for each criterion asked alone."""
        pairs = [(rubric, order) for rubric in self._asked().values() for order in ORDERS]
        if seat is not None and seat.pointwise:
            return [each for pair in pairs for each in self._points(*pair, seat, fence).prompts()]
        return [self._messages(*pair, seat) for pair in pairs]

    async def ask(self, seat: Endpoint, session: Session) -> list[Call]:
        """Return all calls of a model, by sample, by criterion, by order."""
        samples = self.manner.samples_of(seat)
        numbers = range(1, samples + 1) if samples > 1 else (0,)
        calls = [
            partial(self._once, seat, session, order, criterion, number)
            for number in numbers
            for criterion in self._asked()
            for order in ORDERS
        ]
        return await all_of(calls, session, seat)

    def vote(self, calls: Sequence[Call]) -> Vote | None:
        """Return what all calls of a model come to; None where too many failed."""
        return of_calls([each.answer.value for each in calls], len(self._asked()))

    def cut(self, seat: Endpoint) -> str:
        """Return the letters of the texts that a model of the tier does not see whole."""
        return "".join(each for each in WINS if is_cut((self._part(seat, each, each),)))

    def readable(self, told: str) -> str:
        """Return what a model said with the letters of the texts, which users know, for their labels."""
        letters = {self.label(each): each for each in WINS}
        named = re.compile(rf"\b({'|'.join(map(re.escape, letters))})\b")
        return named.sub(lambda found: letters[found[0]], told)

    def label(self, letter: str) -> str:
        """Return what a text is called in prompts."""
        return self._labels[self.contest.file(letter).sha256]

    def _asked(self) -> dict[str, CompareRubric]:
        return self.manner.asked(self.rubric)

    async def _once(self, seat: Endpoint, session: Session, order: str, criterion: str, sample: int) -> Call:
        asked, timeout = self._asked()[criterion], getattr(self.rubric.tiers, self.tier).timeout
        if seat.pointwise:
            points = self._points(asked, order, seat, session.fence, criterion)
            found = await ask_pointwise(session, seat, points, timeout)
            vote = found.map(lambda likely: Vote(_likelier(likely["better"], order)))
            return Call(order, criterion, sample, vote)
        ids = {label: each for each, label in self._labels.items()}
        question = Question(
            partial(self._messages, asked, order, seat),
            self.contest.size,
            compare_reply_model(list(ids)),
            self._matter(order, criterion),
            REPLY_TOKENS,
            ids,
            sample,
        )
        reply = await ask(session, seat, question, timeout)
        vote = reply.map(lambda said: Vote(self._word(ids.get(said.better)), visible(said.reasoning)))
        return Call(order, criterion, sample, vote)

    def _messages(self, rubric: CompareRubric, order: str, seat: Endpoint | None) -> tuple[Message, ...]:
        shown = [self._part(seat, each, self.label(each)) for each in order]
        return pair_messages(rubric, self.words, self.contest.prompt, shown, self.told)

    def _points(
        self, rubric: CompareRubric, order: str, seat: Endpoint, fence: Fence, criterion: str = ""
    ) -> Points:
        """Return the question for one order, to a model that answers in one token."""
        shown = [self._part(seat, each, point) for each, point in zip(order, POINTS, strict=True)]
        return Points(
            f"{rubric.prompt.system} {fence.guard}",
            prompt.pair_context(fence, self.contest.prompt, shown),
            {"better": point_question(rubric)},
            POINTS,
            self._matter(order, criterion),
        )

    def _part(self, seat: Endpoint | None, letter: str, label: str) -> Part:
        """Return one of the texts as a model sees it under a label: each gets half of the characters."""
        bearable = seat.profile.limits.context_chars if seat else None
        limit = getattr(self.rubric.tiers, self.tier).max_chars
        file = self.contest.file(letter)
        most = min(limit or CONTEXT_CHARS, bearable or CONTEXT_CHARS) // len(WINS)
        return Part(label, file.text[:most], file.total)

    def _matter(self, order: str, criterion: str) -> Matter:
        return Matter(self.contest.subject(order), self.rubric.ref, self.tier, criterion)

    @property
    def _labels(self) -> dict[str, str]:
        return pair_labels(self.contest.prompt, [each.sha256 for each in self.contest.files])

    def _word(self, sha256: str | None) -> PairWord:
        return next((each for each in WINS if self.contest.file(each).sha256 == sha256), "tie")


def _likelier(found: Mapping[str, float], order: str) -> PairWord:
    """Return the likelier of the two texts; a model that hardly leans to either says it is a tie."""
    first, second = (found[point] for point in POINTS)
    if max(first, second) < LEAST_LEANING:
        return "tie"
    return "A" if (first > second) == (order == ORDERS[0]) else "B"


def compare_round(
    number: int, tier: TierName, call: Call, readable: Callable[[str], str] = str
) -> CompareRound:
    """Return the record of one call about a pair, its reasons as `readable` makes them."""
    answer = call.answer
    said = answer.value
    return CompareRound(
        round=number,
        tier=tier,
        model=answer.model,
        order=list(call.order),
        criterion=call.criterion or None,
        sample=call.sample or None,
        opinion={"better": said.word, "reasoning": readable(said.reasoning)} if said else None,
        failure=answer.failure,
        latency_ms=answer.latency_ms,
        usage=Usage(**answer.usage._asdict()),
    )


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
            sent, left_out = await session.aside(partial(redact.contest, contest, self.manner), contest.size)
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
        return redact.replies(found) if self.manner.redact else found

    def prompts(
        self, tier: TierName, contest: Contest, seat: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: a prompt for each order.

        Of several models that sit there `seat` is the one that is meant, the first where none is given.
        """
        contest, left_out = redact.contest(contest, self.manner)
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
            Said(None if each.word == TIE else asked.label(each.word), redact.words(each.reasoning))
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
