from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import call_usage, reply
from scripted import scripted_endpoint

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import pointwise
from judgekit.judging.pointwise import Points, ask_pointwise
from judgekit.judging.round import Answer, Session
from judgekit.providers.base import CallKey, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.providers.base import Endpoint

ENDPOINT = scripted_endpoint("here/small", pointwise=True)
MATTER = CallKey("subject", "kls@1.0.0", "quick", "memory-1")


def likely_reply(probabilities: Mapping[str, float], cost: float | None = None) -> Reply:
    alternatives = {token: math.log(value) for token, value in probabilities.items()}
    return reply("…", "small-1", call_usage(100, 1, cost), logprobs=(alternatives,))


@dataclass
class Queue:
    """A gateway that gives prepared replies in order; each takes `seconds`."""

    replies: list[Reply | GatewayError]
    seconds: float = 0.0
    asked: list[Request] = field(default_factory=list)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        self.asked.append(request)
        await asyncio.sleep(self.seconds)
        answer = self.replies.pop(0)
        if isinstance(answer, GatewayError):
            raise answer
        return answer

    async def aclose(self) -> None:
        pass


def ask(
    gateway: Queue,
    questions: Mapping[str, str],
    tokens: Sequence[str] = ("yes", "no"),
    seconds: float = 5.0,
    examples: Sequence[tuple[str, str]] = (),
) -> Answer[dict[str, dict[str, float]]]:
    points = Points("You judge.", "<text>it</text>", questions, tokens, MATTER, examples)
    return asyncio.run(ask_pointwise(Session(gateway, 60), ENDPOINT, points, seconds / len(questions)))


def test_the_answers_are_named_by_question_and_sum_to_one() -> None:
    gateway = Queue([likely_reply({"4": 0.3, "5": 0.3, "x": 0.4}), likely_reply({"1": 0.5, "2": 0.5})])
    answer = ask(gateway, {"semantic": "?", "pragmatic": "??"}, tokens=("1", "2", "3", "4", "5"))
    assert answer.value is not None
    assert answer.value["semantic"] == pytest.approx({"1": 0, "2": 0, "3": 0, "4": 0.5, "5": 0.5})
    assert pointwise.expectation(answer.value["semantic"]) == pytest.approx(4.5)
    assert pointwise.expectation(answer.value["pragmatic"]) == pytest.approx(1.5)
    # Spellings of one answer are added up.
    spelt = {"Yes": 0.3, " yes": 0.1, "YES": 0.1, '"yes': 0.1, "**no": 0.1, "No.": 0.1, "Yesterday": 0.2}
    for alternatives, yes in ((spelt, 0.75), ({"The": 0.7, "no": pointwise.LEAST_MASS + 0.01}, 0.0)):
        answer = ask(Queue([likely_reply(alternatives)]), {"q": "?"})
        assert answer.value is not None
        assert answer.value["q"] == pytest.approx({"yes": yes, "no": 1 - yes})


def test_an_answer_that_was_not_offered_is_no_answer() -> None:
    for answer, message in (
        (
            likely_reply({"The": 0.7, "yes": 0.1, "no": 0.05}),
            "small-1 answered '…': 15% of the probability is on yes, no",
        ),
        (likely_reply({"{": 1.0}), "0% of the probability is on yes, no"),
        (reply("yes", "small-1"), "small-1 gave no token probabilities"),
        (reply("", "small-1", call_usage(), logprobs=({},)), "0% of the probability"),
    ):
        failure = ask(Queue([answer]), {"q": "?"}).failure
        assert failure is not None
        assert failure.kind is FailureKind.INVALID_REPLY
        assert message in failure.message


def test_one_deadline_covers_all_questions() -> None:
    gateway = Queue([likely_reply({"yes": 1})] * 20, seconds=0.15)
    questions = {str(number): f"{number}?" for number in range(20)}
    answer = ask(gateway, questions, seconds=0.3)
    assert answer.failure is not None
    assert answer.failure.kind is FailureKind.TIMEOUT
    assert "of 20 questions were answered in 0.3 s" in answer.failure.message
    timeouts = [request.timeout for request in gateway.asked]
    assert timeouts == sorted(timeouts, reverse=True)
    assert all(0 < timeout <= 0.3 for timeout in timeouts)


def test_a_scale_of_two_digits_is_refused_before_anything_is_asked() -> None:
    gateway = Queue([])
    failure = ask(gateway, {"q": "?"}, tokens=[str(value) for value in range(1, 11)]).failure
    assert failure is not None
    assert failure.kind is FailureKind.BAD_REQUEST
    assert "the scale has 10" in failure.message
    assert gateway.asked == []


chances = st.floats(0.01, 0.99)


@given(yes=chances, idle=chances, more=chances)
def test_what_is_earned_is_at_most_the_yes_and_less_the_likelier_for_an_idle_request(
    yes: float, idle: float, more: float
) -> None:
    low, high = sorted((idle, more))
    assert 0 < pointwise.earned(yes, high) <= pointwise.earned(yes, low) <= yes


def test_yes_counts_when_the_request_earned_it() -> None:
    for yes, idle, kept in (
        (0.6, 0.6, False),  # the same for any request
        (0.9, 0.6, True),  # odds of 9 against 1.5
        (0.6, 0.39, True),  # 1.5 against .64
        (0.6, 0.42, False),  # 1.5 against .72
        (0.4, 0.01, False),  # never likelier than no
        (1.0, 1.0, False),  # certain of it, whatever is asked
    ):
        assert (pointwise.earned(yes, idle) >= 0.5) is kept, (yes, idle)


scores = st.dictionaries(st.sampled_from("abc"), st.floats(1, 5), min_size=1)


@given(scores=scores, idle=st.floats(1, 5), more=st.floats(1, 5), bar=st.floats(2, 5))
def test_no_score_is_raised_and_the_higher_the_idle_one_the_less_is_earned(
    scores: dict[str, float], idle: float, more: float, bar: float
) -> None:
    low, high = sorted((idle, more))
    one, other = (pointwise.earned_scores(scores, each, bar, 4) for each in (low, high))
    assert all(other[name] <= one[name] <= scores[name] for name in scores)
