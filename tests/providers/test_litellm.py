"""The litellm gateway: exceptions, misbehaving servers, token probabilities, side effects in the process."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

import pytest
from asking import KEY, SCHEMA, ask, custom, failure, request
from loopback import DRIP, RESET, SILENT, Answer, Loopback, calls, fails, says, sends

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import base, failures, litellm, registry
from judgekit.providers.base import build_endpoint
from judgekit.providers.litellm import ATTEMPTS, LitellmGateway
from judgekit.providers.registry import Price
from judgekit.providers.resolve import PanelRequest, resolve

if TYPE_CHECKING:
    from loopback import Answer, Asked, Script

    from judgekit.providers.base import Reply


exceptions = litellm.load().exceptions
CLASSES = [
    each
    for _, each in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(each, Exception) and each.__module__ == exceptions.__name__
]


def test_litellm_has_the_classes_that_are_mapped_and_no_others() -> None:
    assert {each.__name__ for each in CLASSES} == set(failures.KIND_BY_CLASS)
    for kind in CLASSES:
        error = kind.__new__(kind)  # their constructors all differ, and only the class counts here
        error.__dict__.update(
            message="it", num_retries=None, max_retries=None, original_exception=None
        )
        assert failures.classify_exception(error).kind is failures.KIND_BY_CLASS[kind.__name__]
    own = GatewayError(FailureKind.BUDGET, "spent")
    assert failures.classify_exception(own) is own
    for cause, found in (
        (ConnectionRefusedError("no"), FailureKind.CONNECTION),
        (TimeoutError("late"), FailureKind.TIMEOUT),
        (json.JSONDecodeError("bad", "{", 0), FailureKind.INVALID_REPLY),
        (ModuleNotFoundError("No module named 'google'"), FailureKind.BAD_REQUEST),
    ):
        error = exceptions.APIConnectionError("vague", llm_provider="x", model="m")
        error.__cause__ = cause
        assert failures.classify_exception(error).kind is found, cause
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one  # a ring of causes ends
    assert failures.classify_exception(one).kind is FailureKind.SERVER_ERROR


def test_a_message_is_the_providers_own_in_one_line_and_without_a_key() -> None:
    for text, message in (
        (
            'litellm.BadRequestError: X - {"error": {"message": "no such thing", "code": 1}}',
            "X - no such thing",
        ),
        ("boom\nTraceback (most recent call last):\n  File secret.py", "boom"),
        ("litellm.InternalServerError: Y. Handle with `litellm.InternalServerError`.", "Y"),
        ("", "ValueError"),
    ):
        assert failures.classify_exception(ValueError(text)).message == message
    assert (
        len(failures.classify_exception(ValueError("x" * 5000)).message) == base.MAX_MESSAGE_CHARS
    )
    for shown in ("sk-secret-0123456789", "sk-sec****6789", "sk-secret-01…", "*****6789"):
        error = failures.classify_exception(
            ValueError(f"Incorrect key: {shown}."), ["sk-secret-0123456789"]
        )
        assert error.message == "Incorrect key: [key]."
    for end in ("wxyz9", "yz9-wxyz9", "xyz9"):
        for before, after in (("ending in ", "."), ("…", ""), ("...", ","), ('"', '"')):
            shown = base.hide_secrets(f"{before}{end}{after}", ["sk-0123456789yz9-wxyz9"])
            assert shown == f"{before}[key]{after}"
    assert base.hide_secrets("a motorway, ways", ["sk-0123456789-away"]) == "a motorway, ways"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "kind", "tries"),
    [
        (SILENT, FailureKind.TIMEOUT, 1),
        (DRIP, FailureKind.TIMEOUT, 1),
        (fails(400), FailureKind.BAD_REQUEST, 1),
        (fails(401, f"Incorrect key: {KEY}"), FailureKind.AUTHENTICATION, 1),
        (fails(404), FailureKind.NOT_FOUND, 1),
        (fails(408), FailureKind.TIMEOUT, 1),
        (fails(429, retry_after=0), FailureKind.RATE_LIMIT, ATTEMPTS),
        (fails(429, retry_after=60), FailureKind.RATE_LIMIT, 1),  # beyond the deadline
        (fails(429, "You exceeded your current quota", retry_after=0), FailureKind.PAYMENT, 1),
        (fails(500), FailureKind.SERVER_ERROR, ATTEMPTS),
        (fails(529, "Overloaded"), FailureKind.OVERLOADED, ATTEMPTS),
        (fails(400, "maximum context length is 4096 tokens"), FailureKind.CONTEXT_WINDOW, 1),
        (sends(b'{"choices": ['), FailureKind.INVALID_REPLY, 1),
        (sends({"id": "1"}), FailureKind.INVALID_REPLY, 1),
    ],
)
def test_each_fault_has_its_kind_and_ends_by_the_deadline(
    answer: Answer, kind: FailureKind, tries: int
) -> None:
    with Loopback(answer) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=3))
    assert error.kind is kind, error.message
    assert tries == len(server.requests), error.message
    if kind is FailureKind.RATE_LIMIT:
        assert error.retry_after == (60 if tries == 1 else 0)


def test_what_a_useless_reply_cost_is_not_lost() -> None:
    cases: list[tuple[Answer, FailureKind]] = [
        (says(""), FailureKind.INVALID_REPLY),
        (says(None, refusal="I cannot help"), FailureKind.REFUSAL),
        (says("", finish="content_filter"), FailureKind.CONTENT_FILTER),
        (says('{"reasoning": "it is', finish="length"), FailureKind.TRUNCATED),
    ]
    for answer, kind in cases:
        with Loopback(answer) as server:
            priced = replace(custom(server.base), price=Price(input=2, output=10))
            error = failure(LitellmGateway(), priced, request())
        assert (error.kind, len(server.requests)) == (kind, 1)
        assert error.usage is not None
        assert (astuple(error.usage)[:2], error.usage.cost_source) == ((11, 7), "profile")
        assert error.usage.cost_usd == pytest.approx((11 * 2 + 7 * 10) / 1e6)


def test_a_passing_overload_is_tried_again_after_the_pause_that_was_asked_for() -> None:
    start = time.monotonic()
    with Loopback(fails(429, retry_after=1), fails(500), says("good")) as server:
        reply = ask(LitellmGateway(), custom(server.base), request())
    assert (reply.text, len(server.requests)) == ("good", 3)
    assert time.monotonic() - start >= 1


NO_SCHEMA = fails(400, "response_format of type json_schema is not supported")


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
    assert ["additionalProperties" in asked.text for asked in server.requests] == [
        *[False] * 3,
        *[True] * 3,
    ]
    with Loopback(fails(400, "response_format is not supported")) as server:  # until none is left
        error = failure(LitellmGateway(), custom(server.base), request(schema=SCHEMA))
    assert error.kind is FailureKind.BAD_REQUEST
    forms = [asked.body.get("response_format", {}).get("type") for asked in server.requests]
    assert forms == ["json_schema", "json_object", None]


def test_an_address_is_never_sent_the_keys_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "HOSTED_VLLM_API_KEY",
        "OPENAI_ORGANIZATION",
        "OPENAI_PROJECT_ID",
    ):
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


TEXT = '{"score": 4}'
BESIDE: list[dict[str, float]] = [
    {'{"': -0.01},
    {"score": -0.01},
    {'":': -0.01},
    {" ": -0.01},
    {"4": -0.5, "3": -1.0, "1": -9.0},
    {"}": 0.0},
]
TOKENS = tuple(next(iter(each)) for each in BESIDE)
KEPT = (*BESIDE[:4], {"4": -0.5, "3": -1.0}, BESIDE[5])


def raw(tokens: list[dict[str, Any]]) -> Answer:
    """Answer with tokens as a server of another make gives them."""
    body = json.loads(says(TEXT).body)
    body["choices"][0]["logprobs"] = {"content": tokens}
    return sends(body)


def told(answer: Script) -> Reply:
    with Loopback(answer) as server:
        return ask(LitellmGateway(), custom(server.base), request(schema=SCHEMA, top=8))


def test_a_provider_that_gives_probabilities_is_asked_for_them_and_no_other() -> None:
    azure = {"AZURE_API_KEY": KEY, "AZURE_API_BASE": "x", "AZURE_API_VERSION": "v1"}
    keys = {"openai": "OPENAI_API_KEY", "xai": "XAI_API_KEY", "deepseek": "DEEPSEEK_API_KEY"}
    for name in (
        "openai/gpt-4.1-mini",
        "azure/gpt-4.1-mini",
        "deepseek/deepseek-v4-flash",
        "ollama/any",
    ):
        provider, _, model = name.partition("/")
        environ = azure if provider == "azure" else {keys.get(provider, "NONE"): KEY}
        with Loopback(says(TEXT, logprobs=BESIDE)) as server:
            found = build_endpoint(registry.find(provider), model, environ, base=server.base)
            assert found.has_logprobs, name
            reply = ask(LitellmGateway(), found, request(schema=SCHEMA, top=8))
        body = server.requests[0].body
        assert (body["logprobs"], body["top_logprobs"]) == (True, 8)
        assert (reply.text, reply.tokens, reply.logprobs) == (TEXT, TOKENS, KEPT)
    for name in (
        "openai/o3",
        "xai/grok-4.20-reasoning",
        "lm-studio/any",
        "anthropic/claude-haiku-5-5",
    ):
        provider, _, model = name.partition("/")
        assert not build_endpoint(registry.find(provider), model, {}).has_logprobs, name
    profile = registry.find(
        "openai-compatible"
    )  # a profile says it of all its models or by their names
    tables: list[bool | dict[str, bool]] = [True, {"a": True, "a-thinks": False}]
    whole, some = (profile.model_copy(update={"logprobs": table}) for table in tables)
    assert build_endpoint(whole, "custom/x", {}).has_logprobs
    names = ("a-1", "a-thinks-1", "b")
    assert [build_endpoint(some, f"custom/{name}", {}).has_logprobs for name in names] == [
        True,
        False,
        False,
    ]


def test_a_model_that_refuses_to_tell_is_asked_without_and_that_is_remembered() -> None:
    gateway, refused = (
        LitellmGateway(),
        fails(400, "You are not allowed to request logprobs from this model"),
    )
    with Loopback(refused, says(TEXT)) as server:
        for _ in range(2):
            reply = ask(gateway, custom(server.base), request(schema=SCHEMA, top=8))
            assert (reply.text, reply.tokens) == (TEXT, ())
    assert ["top_logprobs" in asked.body for asked in server.requests] == [True, False, False]
    assert all(asked.body["response_format"]["type"] == "json_schema" for asked in server.requests)
    with Loopback(refused) as server:  # where they are the answer, that is a failure
        error = failure(LitellmGateway(), custom(server.base), request(top=8))
    assert (error.kind, len(server.requests)) == (FailureKind.BAD_REQUEST, 1)


def test_tokens_are_read_as_servers_give_them() -> None:
    flour = "f\u00fcr 🙂".encode()
    parts = [flour[:2], flour[2:4], flour[4:6], flour[6:]]
    tokens = [
        {
            "token": part.decode("utf-8", "replace"),
            "logprob": -0.1,
            "bytes": list(part),
            "top_logprobs": [],
        }
        for part in parts
    ]
    reply = told(raw(tokens))  # a character in several tokens belongs to the last
    assert (reply.tokens, len(reply.logprobs)) == (("f", "ür", " ", "🙂"), 4)
    other = {"token": "5", "logprob": -0.2, "bytes": None}
    chosen = {"token": "4", "logprob": -8.0, "bytes": None, "top_logprobs": [other]}
    assert told(raw([chosen])).logprobs == ({"5": -0.2, "4": -8.0},)
    odd: list[dict[str, Any]] = [
        {"token": "4", "logprob": -0.1, "bytes": [300], "top_logprobs": []},
        {"token": None, "logprob": -0.1, "bytes": None, "top_logprobs": None},
        {},
    ]
    for token in odd:  # which cost no reply

        def answer(asked: Asked, token: dict[str, Any] = token) -> Answer:
            return raw([token]) if "logprobs" in asked.body else says(TEXT)

        reply = told(answer)
        assert reply.text == TEXT
        assert len(reply.tokens) == len(reply.logprobs) <= 1


CALLING = """
import asyncio, os, sys
from judgekit.errors import GatewayError
from judgekit.providers.base import CallKey, Message, Request
from judgekit.providers.gateway import open_gateway
from judgekit.providers.resolve import PanelRequest, resolve

def request(seconds):
    return Request((Message("user", "x"),), CallKey("s", "r", "quick"), seconds, 16, {"type": "object"})
"""
MANY = """
async def main():
    gateway = open_gateway(os.environ)
    endpoint = resolve(PanelRequest(), os.environ).endpoints["quick"][0]
    for _ in range(9):
        try:
            await gateway.complete(endpoint, request(10))
        except GatewayError:
            pass
    await gateway.aclose()
asyncio.run(main())
"""
LATE = """
async def main():
    endpoint = resolve(PanelRequest(), os.environ).endpoints['quick'][0]
    calls = (open_gateway({}).complete(endpoint, request(0.05)) for _ in range(3))
    print([str(e.kind) for e in await asyncio.gather(*calls, return_exceptions=True)], flush=True)
asyncio.run(main())
print('left', 'main' in vars(sys.modules.get('litellm', object)), flush=True)
os._exit(0)
"""

CALLED_OFF = """
import gc, time
from judgekit.providers.litellm import load_in_thread

async def main():
    litellm = await load_in_thread()
    make_coroutine = litellm.main.completion
    def make_slowly(*words, **names):
        time.sleep(0.3)
        return make_coroutine(*words, **names)
    litellm.main.completion = make_slowly
    endpoint = resolve(PanelRequest(), os.environ).endpoints['quick'][0]
    call = asyncio.create_task(open_gateway({}).complete(endpoint, request(10)))
    await asyncio.sleep(0.1)
    call.cancel()
    await asyncio.wait([call])
    await asyncio.sleep(0.5)
    gc.collect()
    print('called off', call.cancelled())
asyncio.run(main())
"""


def printed(code: str, base: str = "http://127.0.0.1:9/v1", **environ: str) -> list[str]:
    """Return the lines that a process prints which has an address of its own; none on stderr."""
    own = {name: os.environ[name] for name in ("PATH", "HOME", "JUDGEKIT_HOME")}
    own |= {
        "JUDGEKIT_API_BASE": base,
        "JUDGEKIT_API_KEY": KEY,
        "JUDGEKIT_MODEL": "stand-in",
        **environ,
    }
    words = [sys.executable, "-c", code, base]
    done = subprocess.run(words, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.slow
def test_nothing_is_printed_whatever_happens() -> None:
    script = [
        says("fine"),
        fails(401, f"bad key {KEY}"),
        fails(404),
        fails(400, "response_format"),
        fails(500),
        fails(429, retry_after=0),
        sends(b"{broken"),
        sends({"choices": []}),
        calls("{}"),
        RESET,
        fails(403),
    ]
    with Loopback(*script) as server:
        assert printed(CALLING + MANY, server.base) == []
        assert len(server.requests) > len(script)


def test_the_first_call_keeps_its_deadline_although_litellm_is_not_loaded_yet() -> None:
    assert printed(CALLING + LATE) == ["['timeout', 'timeout', 'timeout']", "left False"]


@pytest.mark.slow
def test_a_call_that_is_called_off_while_litellm_begins_it_prints_nothing() -> None:
    assert printed(CALLING + CALLED_OFF) == ["called off True"]
