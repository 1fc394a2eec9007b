"""What the litellm gateway makes of exceptions, and of servers that misbehave, over real sockets."""

from __future__ import annotations

import inspect
import json
import os
import socket
import time
from dataclasses import replace

import pytest
from asking import KEY, SCHEMA, ask, custom, failure, request
from loopback import DRIP, RESET, SILENT, Answer, Loopback, calls, fails, says, sends
from making import call_usage

from judgekit.errors import FailureKind, GatewayError, of_failure
from judgekit.providers import failures, litellm
from judgekit.providers.failures import failure_of
from judgekit.providers.litellm import ATTEMPTS, LitellmGateway
from judgekit.providers.registry import Price
from judgekit.providers.resolve import PanelRequest, resolve

exceptions = litellm.load().exceptions
CLASSES = [
    each
    for _, each in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(each, Exception) and each.__module__ == exceptions.__name__
]


def test_litellm_has_the_classes_that_are_mapped_and_no_others() -> None:
    assert {each.__name__ for each in CLASSES} == set(failures.KINDS)
    for kind in CLASSES:
        error = kind.__new__(kind)  # their constructors all differ, and only the class counts here
        error.__dict__.update(message="it", num_retries=None, max_retries=None, original_exception=None)
        assert failure_of(error).kind is failures.KINDS[kind.__name__]
    own = GatewayError(FailureKind.BUDGET, "spent")
    assert failure_of(own) is own
    for cause, found in (
        (ConnectionRefusedError("no"), FailureKind.CONNECTION),
        (TimeoutError("late"), FailureKind.TIMEOUT),
        (json.JSONDecodeError("bad", "{", 0), FailureKind.INVALID_REPLY),
        (IndexError("list index out of range"), FailureKind.INVALID_REPLY),
        (ModuleNotFoundError("No module named 'google'"), FailureKind.BAD_REQUEST),
        (OSError("disk"), FailureKind.CONNECTION),  # what the class itself says
    ):
        error = exceptions.APIConnectionError("vague", llm_provider="x", model="m")
        error.__cause__ = cause
        assert failure_of(error).kind is found, cause
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one  # a ring of causes ends
    assert failure_of(one).kind is FailureKind.SERVER_ERROR


def test_a_message_is_the_providers_own_in_one_line_and_without_a_key() -> None:
    for text, message in (
        (
            'litellm.BadRequestError: X - {"error": {"message": "no such thing", "code": 1}}',
            "X - no such thing",
        ),
        ('XException - {"error": "flat"}', "flat"),
        ("boom\nTraceback (most recent call last):\n  File secret.py", "boom"),
        ("litellm.InternalServerError: Y. Handle with `litellm.InternalServerError`.", "Y"),
        ("", "ValueError"),
        ("{not json", "{not json"),
    ):
        assert failure_of(ValueError(text)).message == message
    assert len(failure_of(ValueError("x" * 5000)).message) == failures.MAX_MESSAGE
    for shown in ("sk-secret-0123456789", "sk-sec****6789", "sk-secret-01…", "*****6789"):
        error = failure_of(ValueError(f"Incorrect key: {shown}."), ["sk-secret-0123456789"])
        assert error.message == "Incorrect key: [key]."
    for end in ("wxyz9", "yz9-wxyz9", "xyz9"):
        for before, after in (("ending in ", "."), ("…", ""), ("...", ","), ('"', '"')):
            shown = failures.without_values(f"{before}{end}{after}", ["sk-0123456789yz9-wxyz9"])
            assert shown == f"{before}[key]{after}"
    assert failures.without_values("a motorway, ways", ["sk-0123456789-away"]) == "a motorway, ways"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "kind", "tries"),
    [
        (SILENT, FailureKind.TIMEOUT, 1),
        (DRIP, FailureKind.TIMEOUT, 1),
        (RESET, FailureKind.CONNECTION, None),
        (fails(400), FailureKind.BAD_REQUEST, 1),
        (fails(401, f"Incorrect key: {KEY}"), FailureKind.AUTHENTICATION, 1),
        (fails(402), FailureKind.PERMISSION, 1),
        (fails(403), FailureKind.PERMISSION, 1),
        (fails(404), FailureKind.NOT_FOUND, 1),
        (fails(408), FailureKind.TIMEOUT, 1),
        (fails(413), FailureKind.CONTEXT_WINDOW, 1),
        (fails(422), FailureKind.BAD_REQUEST, 1),
        (fails(429, retry_after=0), FailureKind.RATE_LIMIT, ATTEMPTS),
        (fails(429, retry_after=60), FailureKind.RATE_LIMIT, 1),  # beyond the deadline
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
    ],
)
def test_each_fault_has_its_kind_and_ends_by_the_deadline(
    answer: Answer, kind: FailureKind, tries: int | None
) -> None:
    with Loopback(answer) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=3))
    assert error.kind is kind, error.message
    assert tries in (None, len(server.requests)), error.message
    if kind is FailureKind.RATE_LIMIT:
        assert error.retry_after == (60 if tries == 1 else 0)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (says(""), FailureKind.INVALID_REPLY),
        (says(None, refusal="I cannot help"), FailureKind.REFUSAL),
        (says("", finish="content_filter"), FailureKind.CONTENT_FILTER),
        (says('{"reasoning": "it is', finish="length"), FailureKind.TRUNCATED),
    ],
)
def test_what_a_useless_reply_cost_is_not_lost(answer: Answer, kind: FailureKind) -> None:
    with Loopback(answer) as server:
        priced = replace(custom(server.base), price=Price(input=2, output=10))
        error = failure(LitellmGateway(), priced, request())
    assert (error.kind, len(server.requests)) == (kind, 1)
    assert error.usage is not None
    assert (error.usage[:2], error.usage.cost_source) == ((11, 7), "profile")
    assert error.usage.cost_usd == pytest.approx((11 * 2 + 7 * 10) / 1e6)


def test_a_call_without_a_reply_cost_nothing_that_is_known() -> None:
    with Loopback(fails(403)) as server:
        error = failure(LitellmGateway(), custom(server.base), request())
    assert (error.usage, of_failure(error)) == (None, call_usage())
    with socket.socket() as free:  # a refused connection fails at once
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = failure(LitellmGateway(), custom(f"http://127.0.0.1:{port}/v1"), request(timeout=8))
    assert error.kind is FailureKind.CONNECTION


def test_a_passing_overload_is_tried_again_after_the_pause_that_was_asked_for() -> None:
    start = time.monotonic()
    with Loopback(fails(429, retry_after=1), fails(500), says("good")) as server:
        reply = ask(LitellmGateway(), custom(server.base), request())
    assert (reply.text, len(server.requests)) == ("good", 3)
    assert time.monotonic() - start >= 1


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


NO_SCHEMA = fails(400, "response_format of type json_schema is not supported")


def test_a_rejected_format_is_asked_for_more_weakly_and_that_is_remembered() -> None:
    gateway = LitellmGateway()
    with Loopback(NO_SCHEMA, fails(403), says('{"score": 1}')) as server:
        assert failure(gateway, custom(server.base), request(schema=SCHEMA)).kind is FailureKind.PERMISSION
        assert ask(gateway, custom(server.base), request(schema=SCHEMA)).text == '{"score": 1}'
    forms = [asked.body["response_format"]["type"] for asked in server.requests]
    assert forms == ["json_schema", "json_object", "json_object"]
    assert ["additionalProperties" in asked.text for asked in server.requests] == [False, True, True]
    with Loopback(fails(400, "response_format is not supported")) as server:  # until none is left
        error = failure(LitellmGateway(), custom(server.base), request(schema=SCHEMA))
    assert error.kind is FailureKind.BAD_REQUEST
    forms = [asked.body.get("response_format", {}).get("type") for asked in server.requests]
    assert forms == ["json_schema", "json_object", None]


def test_an_address_may_reject_everything_that_can_be_left_out() -> None:
    rejections = (
        fails(400, "Unsupported parameter: use 'max_completion_tokens' instead"),
        fails(400, "Unsupported value: 'temperature' does not support 0"),
        NO_SCHEMA,
        fails(400, "response_format of type json_object is not supported"),
    )
    gateway = LitellmGateway()
    with Loopback(*rejections, says("good")) as server:
        for _ in range(2):
            assert ask(gateway, custom(server.base), request(schema=SCHEMA)).text == "good"
    names = ("max_tokens", "max_completion_tokens", "temperature", "response_format")
    sent = [{name for name in names if name in asked.body} for asked in server.requests]
    assert sent[0] == {"max_tokens", "temperature", "response_format"}
    assert sent[1] == {"max_completion_tokens", "temperature", "response_format"}
    assert sent[2] == sent[3] == {"max_completion_tokens", "response_format"}
    assert sent[4] == sent[5] == {"max_completion_tokens"}
    assert server.requests[5].body["max_completion_tokens"] == 64
    assert len(server.requests) == 6


def test_an_address_is_never_sent_the_keys_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HOSTED_VLLM_API_KEY", "OPENAI_ORGANIZATION", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "belongs-to-another")
    environ = {**os.environ, "JUDGEKIT_MODEL": "gpt-4.1-mini"}
    with Loopback(says("good")) as server:
        environ["JUDGEKIT_API_BASE"] = server.base
        ask(LitellmGateway(), resolve(PanelRequest(), environ).endpoints["quick"][0], request())
    assert server.requests[0].headers["authorization"] == "Bearer no-key"
    assert "belongs-to-another" not in str(server.requests[0])
    nowhere = custom("http://127.0.0.1:9/v1")
    assert KEY not in repr(nowhere)
    error = failure(LitellmGateway(), replace(nowhere, api_key=None), request())
    assert error.kind is FailureKind.AUTHENTICATION  # said before anything is sent
    assert "JUDGEKIT_API_KEY" in error.message
