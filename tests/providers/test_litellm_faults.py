"""What the litellm gateway makes of servers that misbehave, over real sockets."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace

import pytest
from asking import KEY, SCHEMA, ask, custom, failure, request
from loopback import DRIP, RESET, SILENT, Answer, Loopback, calls, fails, says, sends
from making import call_usage

from judgekit.errors import FailureKind, of_failure
from judgekit.providers.litellm import ATTEMPTS, LitellmGateway
from judgekit.providers.registry import Price
from judgekit.providers.resolve import PanelRequest, resolve

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("answer", "kind", "tries"),
    [
        (SILENT, FailureKind.TIMEOUT, 1),
        (DRIP, FailureKind.TIMEOUT, 1),
        (fails(400), FailureKind.BAD_REQUEST, 1),
        (fails(401, f"Incorrect key: {KEY}"), FailureKind.AUTHENTICATION, 1),
        (fails(402), FailureKind.PERMISSION, 1),
        (fails(403), FailureKind.PERMISSION, 1),
        (fails(404), FailureKind.NOT_FOUND, 1),
        (fails(408), FailureKind.TIMEOUT, 1),
        (fails(413), FailureKind.CONTEXT_WINDOW, 1),
        (fails(422), FailureKind.BAD_REQUEST, 1),
        (fails(429, retry_after=0), FailureKind.RATE_LIMIT, ATTEMPTS),
        (fails(429, "You exceeded your current quota", retry_after=0), FailureKind.PERMISSION, 1),
        (fails(500), FailureKind.SERVER_ERROR, ATTEMPTS),
        (fails(502), FailureKind.SERVER_ERROR, ATTEMPTS),
        (fails(503), FailureKind.OVERLOADED, ATTEMPTS),
        (fails(529, "Overloaded"), FailureKind.OVERLOADED, ATTEMPTS),
        (fails(400, "maximum context length is 4096 tokens"), FailureKind.CONTEXT_WINDOW, 1),
        (sends(b'{"choices": ['), FailureKind.INVALID_REPLY, 1),
        (sends(b"<html>Welcome</html>"), FailureKind.INVALID_REPLY, 1),
        (sends({"id": "1"}), FailureKind.INVALID_REPLY, 1),
        (sends({"id": "1", "model": "m", "choices": []}), FailureKind.INVALID_REPLY, 1),
        (says(""), FailureKind.INVALID_REPLY, 1),
        (says(None, refusal="I cannot help"), FailureKind.REFUSAL, 1),
        (says("", finish="content_filter"), FailureKind.CONTENT_FILTER, 1),
        (says('{"reasoning": "it is', finish="length"), FailureKind.TRUNCATED, 1),
    ],
)
def test_each_fault_has_its_kind_and_ends_by_the_deadline(
    answer: Answer, kind: FailureKind, tries: int
) -> None:
    with Loopback(answer) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=3))
    assert (error.kind, len(server.requests)) == (kind, tries), error.message


@pytest.mark.parametrize(
    "answer",
    [
        says(""),
        says(None, refusal="I cannot help"),
        says("", finish="content_filter"),
        says('{"reasoning": "it is', finish="length"),
    ],
)
def test_what_a_useless_reply_cost_is_not_lost(answer: Answer) -> None:
    with Loopback(answer) as server:
        priced = replace(custom(server.base), price=Price(input=2, output=10))
        error = failure(LitellmGateway(), priced, request())
    assert error.usage is not None
    assert (error.usage[:2], error.usage.cost_source) == ((11, 7), "profile")
    assert error.usage.cost_usd == pytest.approx((11 * 2 + 7 * 10) / 1e6)


def test_a_call_without_a_reply_cost_nothing_that_is_known() -> None:
    with Loopback(fails(403)) as server:
        error = failure(LitellmGateway(), custom(server.base), request())
    assert (error.usage, of_failure(error)) == (None, call_usage())


def test_a_connection_that_breaks_is_no_reply() -> None:
    with Loopback(RESET) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=8))
    assert error.kind is FailureKind.CONNECTION


def test_a_refused_connection_fails_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = failure(LitellmGateway(), custom(f"http://127.0.0.1:{port}/v1"), request(timeout=8))
    assert error.kind is FailureKind.CONNECTION


def test_a_passing_overload_is_tried_again() -> None:
    with Loopback(fails(529), fails(500), says("good")) as server:
        reply = ask(LitellmGateway(), custom(server.base), request())
    assert (reply.text, len(server.requests)) == ("good", 3)


def test_retry_after_is_waited_for() -> None:
    with Loopback(fails(429, retry_after=1), says("good")) as server:
        start = time.monotonic()
        reply = ask(LitellmGateway(), custom(server.base), request())
        assert time.monotonic() - start >= 1
    assert reply.text == "good"


def test_a_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    with Loopback(fails(429, retry_after=60)) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=5))
    assert (error.kind, error.retry_after, len(server.requests)) == (FailureKind.RATE_LIMIT, 60, 1)


def test_a_name_that_is_gone_is_answered_with_what_is_offered() -> None:
    answer = fails(404, "The model `stand-in-1` does not exist")
    with Loopback(answer, models=("other", "stand-in-2", "stand-in-3")) as server:
        error = failure(LitellmGateway(), custom(server.base, "stand-in-1"), request())
    assert "has no model custom/stand-in-1; it offers stand-in-" in error.message
    assert "other" in error.message


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (says('<think>well</think>{"score": 1}'), '{"score": 1}'),
        (calls('{"score": 1}'), '{"score": 1}'),
        (says("", reasoning_content='{"score": 1}'), '{"score": 1}'),
        (says('well</think>{"score": 1}'), 'well</think>{"score": 1}'),
    ],
)
def test_the_text_is_found_where_servers_put_it(answer: Answer, text: str) -> None:
    with Loopback(answer) as server:
        assert ask(LitellmGateway(), custom(server.base), request()).text == text


def test_probabilities_of_the_first_token_come_back_though_the_reply_is_cut() -> None:
    alternatives = {"yes": -0.1, "no": -2.5}
    with Loopback(says("yes", finish="length", logprobs=[alternatives])) as server:
        reply = ask(LitellmGateway(), custom(server.base), request(top=2))
    assert reply.logprobs == (alternatives,)
    assert (server.requests[0].body["logprobs"], server.requests[0].body["top_logprobs"]) == (True, 2)


def test_a_rejected_format_is_asked_for_more_weakly_once_and_remembered() -> None:
    rejected = fails(400, "response_format of type json_schema is not supported")
    gateway = LitellmGateway()
    with Loopback(rejected, says('{"score": 1}')) as server:
        assert ask(gateway, custom(server.base), request(schema=SCHEMA)).text == '{"score": 1}'
        ask(gateway, custom(server.base), request(schema=SCHEMA))
    forms = [asked.body["response_format"]["type"] for asked in server.requests]
    assert forms == ["json_schema", "json_object", "json_object"]
    assert "additionalProperties" not in server.requests[0].text
    assert "additionalProperties" in server.requests[1].text


def test_a_format_is_weakened_until_none_is_left() -> None:
    with Loopback(fails(400, "response_format is not supported")) as server:
        error = failure(LitellmGateway(), custom(server.base), request(schema=SCHEMA))
    assert error.kind is FailureKind.BAD_REQUEST
    forms = [asked.body.get("response_format", {}).get("type") for asked in server.requests]
    assert forms == ["json_schema", "json_object", None]


def test_an_address_may_reject_everything_that_can_be_left_out() -> None:
    rejections = (
        fails(400, "Unsupported parameter: use 'max_completion_tokens' instead"),
        fails(400, "'temperature' does not support 0"),
        fails(400, "response_format of type json_schema is not supported"),
        fails(400, "response_format of type json_object is not supported"),
    )
    gateway = LitellmGateway()
    with Loopback(*rejections, says("good")) as server:
        assert ask(gateway, custom(server.base), request(schema=SCHEMA)).text == "good"
        assert ask(gateway, custom(server.base), request(schema=SCHEMA)).text == "good"
    assert len(server.requests) == 6
    for asked in server.requests[4:]:
        assert not {"max_tokens", "temperature", "response_format"}.intersection(asked.body)
        assert asked.body["max_completion_tokens"] == 64


def test_what_an_address_rejected_is_remembered_although_it_then_failed() -> None:
    rejected = fails(400, "response_format of type json_schema is not supported")
    gateway = LitellmGateway()
    with Loopback(rejected, fails(403), says("good")) as server:
        assert failure(gateway, custom(server.base), request(schema=SCHEMA)).kind is FailureKind.PERMISSION
        ask(gateway, custom(server.base), request(schema=SCHEMA))
    forms = [asked.body["response_format"]["type"] for asked in server.requests]
    assert forms == ["json_schema", "json_object", "json_object"]


@pytest.mark.parametrize(
    ("message", "absent", "present"),
    [
        ("Unsupported value: 'temperature' does not support 0", "temperature", "max_tokens"),
        ("Unsupported parameter: use 'max_completion_tokens' instead", "max_tokens", "max_completion_tokens"),
    ],
)
def test_a_rejected_parameter_is_left_out(message: str, absent: str, present: str) -> None:
    with Loopback(fails(400, message), says("good")) as server:
        assert ask(LitellmGateway(), custom(server.base), request()).text == "good"
    assert absent in server.requests[0].body
    assert absent not in server.requests[1].body
    assert server.requests[1].body[present] == 64


def test_an_address_is_never_sent_the_keys_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "OPENAI_ORGANIZATION", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "belongs-to-another")
    environ = {**os.environ, "JUDGEKIT_MODEL": "gpt-4.1-mini"}
    with Loopback(says("good")) as server:
        environ["JUDGEKIT_API_BASE"] = server.base
        chosen = resolve(PanelRequest(), environ).endpoints["quick"][0]
        ask(LitellmGateway(), chosen, request())
    assert server.requests[0].headers["authorization"] == "Bearer no-key"
    assert "belongs-to-another" not in str(server.requests[0])


def test_a_key_that_is_missing_is_said_before_anything_is_sent() -> None:
    keyless = replace(custom("http://127.0.0.1:9/v1"), api_key=None)
    error = failure(LitellmGateway(), keyless, request())
    assert error.kind is FailureKind.AUTHENTICATION
    assert "JUDGEKIT_API_KEY" in error.message


def test_a_key_is_not_in_the_text_of_an_endpoint() -> None:
    assert KEY not in repr(custom("http://127.0.0.1:9/v1"))
