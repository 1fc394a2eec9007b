"""One model of one tier says which of two texts is better: in both orders, in one call each or several."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from judgekit import prompt
from judgekit.comparison import CompareRound
from judgekit.gateway.base import Matter
from judgekit.judging.asking import Points, Question, ask, ask_pointwise
from judgekit.judging.ballots import ORDERS, WINS, Vote, of_calls
from judgekit.judging.calls import all_of
from judgekit.judging.pair_replies import (
    POINTS,
    compare_reply_model,
    pair_labels,
    pair_messages,
    point_question,
)
from judgekit.judging.subject import CONTEXT_CHARS, is_cut
from judgekit.subject import Part
from judgekit.text import visible
from judgekit.verdict import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.fence import Fence
    from judgekit.gateway.base import Endpoint, Message
    from judgekit.judging.asking import Answer
    from judgekit.judging.ballots import PairWord
    from judgekit.judging.contest import Contest
    from judgekit.judging.manner import Manner
    from judgekit.judging.pair_replies import Said
    from judgekit.judging.session import Session
    from judgekit.names import TierName
    from judgekit.rubric import CompareRubric

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
