"""Token probabilities: the scores expected by them, and the single tokens of small models."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import math
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback, fails, says
from making import call_usage, document, document_judge, file, reply
from scripted import NothingOpen, ScriptedGateway, beside, scores, scripted_endpoint, telling_reply

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import pointwise
from judgekit.judging.cache import ReplyCache
from judgekit.judging.pointwise import PointwiseQuestions, ask_pointwise
from judgekit.judging.questionnaire import average_points
from judgekit.judging.reply_file import ReplyFile
from judgekit.judging.round import Answer, Session
from judgekit.providers import base, registry
from judgekit.providers.base import CallKey, Reply, Request
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.replay import Recorder, ReplayGateway
from judgekit.providers.replay import load_recorded_models as recorded_endpoints
from judgekit.replies.extract import extract
from judgekit.replies.forms import make_score_reply_model
from judgekit.replies.logprobs import compute_expectation, compute_expectations, locate_scores
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from judgekit.judging.verdict import ScoreOpinion, Verdict
    from judgekit.providers.base import Endpoint, Gateway, Reply


RUBRIC = loader.find_rubric("kls").rubric
assert isinstance(RUBRIC, ScoreRubric)
KLS = make_score_reply_model(("semantic", "pragmatic", "syntactic"), 1, 5)
FIVE = range(1, 6)
PLAIN = '{"reasoning": "Sound.", "scores": {"semantic": 4, "pragmatic": 3, "syntactic": 4}, "findings": []}'


def logs(probabilities: Mapping[str, float]) -> dict[str, float]:
    return {token: math.log(each) for token, each in probabilities.items()}


def pieces(text: str) -> list[str]:
    """Cut a text as tokenizers do: words with the blank before them, digits alone, marks together."""
    return re.findall(r" ?[^\W\d]+|\d| ?[^\w\s]+|\s", text)


def replied(
    text: str, doubts: Mapping[int, Mapping[str, float]], tokens: Sequence[str] | None = None
) -> Reply:
    """Return a reply that was sure of all tokens but its numbers, counted from 0, that `doubts` names."""
    tokens = pieces(text) if tokens is None else tokens
    numbers = iter(range(len(tokens)))
    beside = [
        logs(doubts.get(next(numbers), {token: 1.0}) if token.isdigit() else {token: 1.0})
        for token in tokens
    ]
    return reply(text, "m", logprobs=tuple(beside), tokens=tuple(tokens))


def expected(reply: Reply, points: range = FIVE) -> dict[str, float]:
    return compute_expectations(reply, extract(reply.text, KLS), points)


def test_numbers_are_found_in_whatever_form_the_reply_is_read() -> None:
    cases: list[str] = [
        f"Here it is:\n```json\n{PLAIN}\n```\nTell me if more is wanted.",
        PLAIN.replace("Sound.", 'It says \\"semantic\\": 4, and 3 times so: 4, 4.'),
        PLAIN.replace("Sound.", "Gut — aber »knapp« 🙂."),
        '{"semantic": 4, "pragmatic": 3, "syntactic": 4, "reasoning": "flat"}',
        '{"scores": {"semantic": {"score": 4, "why": "x"}, "pragmatic": {"score": 3}, "syntactic": 4}}',
        PLAIN.replace(" ", ""),
        '<think>{"scores": {"semantic": 1, "pragmatic": 1, "syntactic": 1}} No, rather:</think>'
        + PLAIN,
    ]
    for text in cases:
        score_reply = extract(text, KLS)
        found = locate_scores(text, score_reply, FIVE)
        assert set(found) == {"semantic", "pragmatic", "syntactic"}
        given = score_reply.model_dump()["scores"]
        assert {name: int(text[slice(*place)]) for name, place in found.items()} == given
        doubted = {
            at: {token: 0.7, "2": 0.3}
            for at, token in enumerate(token for token in pieces(text) if token.isdigit())
        }
        assert len(set(found.values())) == 3
        wanted = {name: 0.7 * score + 0.6 for name, score in given.items()}
        assert expected(replied(text, doubted)) == pytest.approx(wanted)


def test_thinking_and_marks_around_the_text_move_no_number() -> None:
    cases: list[tuple[str, str]] = [
        ("", "<|im_end|>"),
        ("<think>\nA 4.\n</think>\n\n", ""),
        ("  \n", "\n"),
        (f"<think>{PLAIN}</think>", ""),
    ]
    for before, behind in cases:
        own = replied(PLAIN, {0: {"4": 0.6, "3": 0.4}})
        tokens = (*pieces(before), *own.tokens, behind)
        sure = tuple({token: 0.0} for token in tokens)
        start = len(pieces(before))
        logprobs = (*sure[:start], *own.logprobs, *sure[start + len(own.tokens) :])
        found = expected(reply(PLAIN, "m", logprobs=logprobs, tokens=tokens))
        assert found["semantic"] == pytest.approx(3.6)


@pytest.mark.parametrize(
    "reply",
    [
        reply(PLAIN, "m"),
        reply(PLAIN, "m", logprobs=({"4": 0.0},)),
        replied(PLAIN, {}, tokens=[*pieces(PLAIN)[:-2], "?"]),
        reply(PLAIN, "m", logprobs=({PLAIN: 0.0},), tokens=(PLAIN,)),
        reply(PLAIN, "m", logprobs=({},) * len(pieces(PLAIN)), tokens=tuple(pieces(PLAIN))),
        reply(PLAIN, "m", logprobs=({"1": 0.0},) * len(pieces(PLAIN)), tokens=tuple(pieces(PLAIN))),
    ],
    ids=[
        "no tokens",
        "fewer",
        "another text",
        "one token",
        "no alternatives",
        "chosen not among them",
    ],
)
def test_nothing_is_expected_of_a_reply_whose_tokens_are_odd(reply: Reply) -> None:
    assert expected(reply) == {}


def test_an_expectation_needs_the_number_and_most_of_the_probability() -> None:
    cases: list[tuple[str, dict[str, float], float | None]] = [
        ("4", {"4": 0.5, "5": 0.5}, 4.5),
        ("4,", {"4,": 0.5, "4": 0.2, "3": 0.3}, 3.7),
        ('"4', {'"4': 0.75, '"3': 0.25}, 3.75),
        ("4", {"4": 0.5, "5": 0.25}, None),  # the rest is unknown
        ("4", {"5": 0.9, "3": 0.1}, None),  # what was written is not told of
        ("4", {"4": 1.0, "5": 1.0}, None),  # no probabilities
        ("3", {"3": 1.0}, None),  # another value than was read
        (": 4, 5", {": 4, 5": 1.0}, None),
    ]
    for token, told, wanted in cases:
        found = compute_expectation(token, logs(told), 4, FIVE)
        assert found == (wanted if wanted is None else pytest.approx(wanted)), token
    # A digit that may go on is no point of a scale to 10.
    going: list[tuple[dict[str, float], float | None]] = [
        ({"8": 0.6, "9": 0.3, "1": 0.1}, None),  # 1, or the beginning of 10
        ({"8": 0.6, "9": 0.2, "1": 0.1, "10": 0.1}, 7.7),  # numbers are single tokens here
        ({"8": 0.6, "9": 0.395, "1": 0.005}, 8.36),
    ]
    for told, wanted in going:
        found = compute_expectation("8", logs(told), 8, range(1, 11))
        assert found == (wanted if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(("doubt", "wanted"), [(0.04, 4.0), (0.06, 3.94)])
def test_a_model_that_is_nearly_sure_gave_a_whole_number(doubt: float, wanted: float) -> None:
    beside = {
        "4": math.log(0.9),
        "3": -math.inf,
        "2": math.nan,
        "5": 1000.0,
    }  # the others are no logarithms
    assert compute_expectation("4", beside, 4, FIVE) == pytest.approx(4.0)
    flood = PLAIN.replace("Sound.", "a: 4,\\n" * 40)
    assert locate_scores(flood, extract(flood, KLS), FIVE) == {}
    assert expected(replied(PLAIN, {}), range(-1, 6)) == {}
    found = expected(replied(PLAIN, {0: {"4": 1 - doubt, "3": doubt}}))
    assert found["semantic"] == pytest.approx(wanted)


SCORES = st.fixed_dictionaries(
    dict.fromkeys(("semantic", "pragmatic", "syntactic"), st.integers(1, 5))
)


@given(
    scores=SCORES,
    reasoning=st.text(max_size=60),
    prose=st.sampled_from(["", "Well.\n", "```json\n", "<think>a 3</think>"]),
    cuts=st.sets(st.integers(1, 400), max_size=200),
    ascii_only=st.booleans(),
)
def test_however_a_text_is_cut_into_tokens_only_its_own_number_counts(
    scores: dict[str, int], reasoning: str, prose: str, cuts: set[int], *, ascii_only: bool
) -> None:
    """A number that is a token of its own is weighed, each other one stays; no other token is looked at."""
    body = {"reasoning": reasoning, "scores": scores, "findings": []}
    text = prose + json.dumps(body, ensure_ascii=ascii_only)
    score_reply = extract(text, KLS)
    assert score_reply.model_dump()["scores"] == scores
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    tokens = [text[at:end] for at, end in itertools.pairwise(bounds)]
    # Every token is in the same doubt: a wrong one would give a wrong mean.
    beside = [logs({token: 0.6} | ({"5": 0.4} if "1" in token else {"1": 0.4})) for token in tokens]
    found = compute_expectations(
        reply(text, "m", logprobs=tuple(beside), tokens=tuple(tokens)), score_reply, FIVE
    )
    for name, mean in found.items():
        other = 5 if scores[name] == 1 else 1
        assert mean == pytest.approx(0.6 * scores[name] + 0.4 * other)
    whole = pieces(text)
    sure = reply(text, "m", logprobs=tuple({token: 0.0} for token in whole), tokens=tuple(whole))
    if "".join(whole) == text:
        assert compute_expectations(sure, score_reply, FIVE) == scores


DOCUMENT = document((file("docs/a.md", "Some text.", sha256="ab" * 32),), "docs/a.md@abab")
GOOD = scores(4, 4, 4)
TELLING = dataclasses.replace(scripted_endpoint("m"), has_logprobs=True)


def judge(gateway: Gateway, endpoint: Endpoint, **options: Any) -> Verdict:  # noqa: ANN401 - passed on
    own = document_judge(gateway, {"deep": endpoint}, mode="strict", **options)

    async def run() -> Verdict:
        try:
            return await own.judge(DOCUMENT)
        finally:
            await gateway.aclose()

    return asyncio.run(run())


def semantic(verdict: Verdict) -> float:
    assert verdict.scores is not None
    return verdict.scores["semantic"]


def opinion(verdict: Verdict) -> ScoreOpinion:
    found = verdict.rounds[0].opinion
    assert found is not None
    return found


def telling(doubt: dict[str, float], _: object) -> Reply:
    return telling_reply(GOOD, doubt)


def test_scores_are_expectations_and_decide() -> None:
    for doubt, score, outcome in (
        ({"4": 0.75, "5": 0.25}, 4.25, "accept"),
        ({"4": 0.6, "1": 0.4}, 2.8, "improve"),  # a 4 that was nearly a 1
        ({"4": 0.99, "1": 0.01}, 4.0, "accept"),
    ):
        verdict = judge(ScriptedGateway({"deep": [partial(telling, doubt)]}), TELLING)
        names = ["semantic", "pragmatic", "syntactic"]
        assert (verdict.scores, verdict.verdict) == (dict.fromkeys(names, score), outcome)
        assert opinion(verdict).expected == names
    # Numbers stay where probabilities tell nothing.
    verdict = judge(
        ScriptedGateway({"deep": [lambda _: telling_reply(GOOD, {"4": 0.5, "?": 0.5})]}), TELLING
    )
    assert verdict.scores == dict.fromkeys(("semantic", "pragmatic", "syntactic"), 4)
    assert not opinion(verdict).expected


@pytest.mark.parametrize("first", [GOOD, GatewayError(FailureKind.SERVER_ERROR, "down")])
def test_samples_are_drawn_where_they_do_not(first: str | GatewayError) -> None:
    gateway = ScriptedGateway({"deep": [first, scores(3, 3, 3), scores(5, 5, 5)]})
    verdict = judge(gateway, TELLING, samples=2)
    assert [request.sample for request in gateway.requests] == [0, 1, 2]
    assert semantic(verdict) == 4
    assert opinion(verdict).samples == 2
    assert verdict.rounds[0].usage.output_tokens == (30 if first == GOOD else 20)


def test_a_recording_and_what_is_kept_bring_the_same_verdict(tmp_path: Path) -> None:
    file, cache = tmp_path / "recording.jsonl", ReplyCache(ReplyFile(tmp_path / "replies.sqlite"))
    told = says(GOOD, logprobs=beside(GOOD, {"4": 0.7, "3": 0.3}))
    with Loopback(told, fails(500)) as server:
        endpoint = base.build_endpoint(registry.find("llama-server"), "m", {}, base=server.base)
        first = judge(
            Recorder(LitellmGateway(), file),
            endpoint,
            cache=cache,
            samples=3,
        )
        kept = judge(LitellmGateway(), endpoint, cache=cache, samples=3)
        assert len(server.requests) == 1
    replayed = judge(ReplayGateway(), recorded_endpoints(file)["deep"][0], samples=3)
    assert first.scores == kept.scores == replayed.scores
    assert semantic(first) == 3.7


ENDPOINT = scripted_endpoint("here/small", pointwise=True)
MATTER = CallKey("subject", "kls@1.0.0", "quick", "memory-1")


def likely_reply(probabilities: Mapping[str, float], cost: float | None = None) -> Reply:
    alternatives = {token: math.log(value) for token, value in probabilities.items()}
    return reply("…", "small-1", call_usage(100, 1, cost), logprobs=(alternatives,))


@dataclass
class Queue(NothingOpen):
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


def ask(
    gateway: Queue,
    questions: Mapping[str, str],
    tokens: Sequence[str] = ("yes", "no"),
    seconds: float = 5.0,
    examples: Sequence[tuple[str, str]] = (),
) -> Answer[dict[str, dict[str, float]]]:
    points = PointwiseQuestions(
        "You judge.", "<text>it</text>", questions, tokens, MATTER, examples
    )
    return asyncio.run(
        ask_pointwise(Session(gateway, 60), ENDPOINT, points, seconds / len(questions))
    )


def test_the_answers_are_named_by_question_and_sum_to_one() -> None:
    gateway = Queue(
        [likely_reply({"4": 0.3, "5": 0.3, "x": 0.4}), likely_reply({"1": 0.5, "2": 0.5})]
    )
    answer = ask(gateway, {"semantic": "?", "pragmatic": "??"}, tokens=("1", "2", "3", "4", "5"))
    assert answer.value is not None
    assert answer.value["semantic"] == pytest.approx({"1": 0, "2": 0, "3": 0, "4": 0.5, "5": 0.5})
    assert average_points(answer.value["semantic"]) == pytest.approx(4.5)
    assert average_points(answer.value["pragmatic"]) == pytest.approx(1.5)
    # Spellings of one answer are added up.
    spelt = {
        "Yes": 0.3,
        " yes": 0.1,
        "YES": 0.1,
        '"yes': 0.1,
        "**no": 0.1,
        "No.": 0.1,
        "Yesterday": 0.2,
    }
    for alternatives, yes in (
        (spelt, 0.75),
        ({"The": 0.7, "no": pointwise.MIN_MASS + 0.01}, 0.0),
    ):
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


CHANCES = st.floats(0.01, 0.99)


@given(yes=CHANCES, idle=CHANCES, more=CHANCES)
def test_what_is_earned_is_at_most_the_yes_and_less_the_likelier_for_an_idle_request(
    yes: float, idle: float, more: float
) -> None:
    low, high = sorted((idle, more))
    assert 0 < pointwise.correct_for_bias(yes, high) <= pointwise.correct_for_bias(yes, low) <= yes


def test_yes_counts_when_the_request_earned_it() -> None:
    for yes, idle, kept in (
        (0.6, 0.6, False),  # the same for any request
        (0.9, 0.6, True),  # odds of 9 against 1.5
        (0.6, 0.39, True),  # 1.5 against .64
        (0.6, 0.42, False),  # 1.5 against .72
        (0.4, 0.01, False),  # never likelier than no
        (1.0, 1.0, False),  # certain of it, whatever is asked
    ):
        assert (pointwise.correct_for_bias(yes, idle) >= 0.5) is kept, (yes, idle)


POINTS = st.dictionaries(st.sampled_from("abc"), st.floats(1, 5), min_size=1)


@given(scores=POINTS, idle=st.floats(1, 5), more=st.floats(1, 5), bar=st.floats(2, 5))
def test_no_score_is_raised_and_the_higher_the_idle_one_the_less_is_earned(
    scores: dict[str, float], idle: float, more: float, bar: float
) -> None:
    low, high = sorted((idle, more))
    one, other = (pointwise.lower_unearned_scores(scores, each, bar, 4) for each in (low, high))
    assert all(other[name] <= one[name] <= scores[name] for name in scores)
