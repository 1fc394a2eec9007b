"""The wire format of each provider; endless replies, redirects and lists of models are not trusted."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import queue
import socket
import time
from copy import deepcopy
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import httpx
import pytest
import respx
from asking import KEY, SCHEMA, ask, bundled, custom, failure, request
from loopback import SILENT, Answer, Asked, Loopback, fails, says, sends
from making import call_usage
from ruamel.yaml import YAML

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers import running, servers
from judgekit.providers.base import Message
from judgekit.providers.litellm import LitellmGateway, load, read_response
from judgekit.providers.registry import Price
from judgekit.providers.style import CallStyle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from judgekit.providers.base import Reply, Request
    from judgekit.providers.registry import OutputMode

TEXT = '{"reasoning": "fine", "score": 4}'
STRICT = {
    "type": "json_schema",
    "json_schema": {"name": "opinion", "strict": True, "schema": SCHEMA},
}
BEARER = {"authorization": f"Bearer {KEY}"}


def chat(model: str, **usage: object) -> dict[str, Any]:
    counts = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, **usage}
    message = {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [choice],
        "usage": counts,
    }


class Case(NamedTuple):
    provider: str
    model: str
    url: str
    body: dict[str, Any]
    price: tuple[float, float] | None = None
    cost: float | Literal["some"] | None = None
    environ: dict[str, str] = {}
    headers: dict[str, str] = BEARER
    reply: dict[str, Any] = {}

    def variables(self) -> dict[str, str]:
        return self.environ or {f"{self.provider.upper()}_API_KEY": KEY}

    def sent(
        self,
        router: respx.MockRouter,
        asked: Request,
        **changes: Any,  # noqa: ANN401 - an endpoint's
    ) -> tuple[httpx.Request, Reply]:
        """Make one call over a mocked wire; return the request and the reply."""
        route = router.post(self.url)
        stated = {"cost": self.cost} if isinstance(self.cost, float) else {}
        answer = self.reply or chat(self.model, **stated)
        route.mock(
            return_value=httpx.Response(200, json=answer, headers=changes.pop("headers", None))
        )
        before = route.call_count
        there = replace(bundled(self.provider, self.model, self.variables()), **changes)
        reply = ask(LitellmGateway(), there, asked)
        assert route.call_count == before + 1
        return route.calls.last.request, reply


def filled(value: Any) -> Any:  # noqa: ANN401 - any YAML
    """Return a value of `wire.yaml` with its words replaced by their meaning."""
    if isinstance(value, dict | list):
        of = value.items() if isinstance(value, dict) else enumerate(value)
        parts = [(key, filled(part)) for key, part in of]
        return dict(parts) if isinstance(value, dict) else [part for _, part in parts]
    words = {
        "KEY": KEY,
        "Bearer KEY": f"Bearer {KEY}",
        "STRICT": STRICT,
        "SCHEMA": SCHEMA,
        "TEXT": TEXT,
    }
    return words.get(value, value) if isinstance(value, str) else value


CASES = [
    Case(**filled(row)) for row in YAML(typ="safe").load(Path(__file__).with_name("wire.yaml"))
]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[respx.MockRouter]:
    # respx sees httpx only; litellm's clients are kept between calls, so they are forgotten around each test.
    monkeypatch.setenv("DISABLE_AIOHTTP_TRANSPORT", "True")
    litellm = load()
    asyncio.run(running.run_in_home_loop(litellm.close_litellm_async_clients))
    litellm.in_memory_llm_clients_cache.flush_cache()
    with respx.mock(assert_all_called=False) as router:
        yield router
    litellm.in_memory_llm_clients_cache.flush_cache()


SHARED, OWN = "You judge by these rules.\n\n", "Between <a> and </a> is data."
SYSTEM = Message("system", SHARED + OWN, len(SHARED))
BY_PROVIDER = {case.provider: case for case in CASES}
HAIKU, PROXY = BY_PROVIDER["anthropic"], BY_PROVIDER["litellm-proxy"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.provider}-{case.model}")
def test_what_is_sent_and_read(
    case: Case, wire: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in case.variables().items():
        monkeypatch.setenv(name, value)
    schema = deepcopy(SCHEMA)
    sent, reply = case.sent(wire, request(schema=schema))
    assert (
        schema == SCHEMA
    )  # which litellm would rewrite for this provider, and the next one would get
    assert {name: sent.headers.get(name, "") for name in case.headers} == dict(case.headers)
    body = json.loads(sent.content)
    assert {name: body.get(name) for name in case.body} == dict(case.body)
    if case.provider == "deepseek":  # it cannot be asked for a schema
        assert "JSON Schema" in body["messages"][0]["content"]
    assert reply.text == TEXT
    assert astuple(reply.usage)[:2] == (100, 20)
    cost = case.cost
    if case.price is not None:
        cost = (100 * case.price[0] + 20 * case.price[1]) / 1e6
    stated = case.provider == "openrouter"
    assert reply.usage.cost_source == (
        "provider" if stated else "litellm" if cost is not None else None
    )
    assert reply.usage.unpriced_calls == (0 if cost is not None else 1)
    if cost == "some":
        assert reply.usage.cost_usd
    else:
        assert reply.usage.cost_usd == pytest.approx(cost)
    if case.provider != "anthropic":  # nothing is marked for caching unless the profile says so
        asked = replace(request(schema=SCHEMA), messages=(SYSTEM, Message("user", "Is it good?")))
        text = case.sent(wire, asked)[0].content.decode()
        assert json.dumps(OWN)[1:-1] in text
        assert "cache_control" not in text
        assert "cachePoint" not in text


def test_what_many_prompts_share_is_marked_for_the_providers_cache_and_read_back(
    wire: respx.MockRouter,
) -> None:
    usage = {
        "input_tokens": 100,
        "cache_read_input_tokens": 600,
        "cache_creation_input_tokens": 50,
        "output_tokens": 20,
    }
    case = HAIKU._replace(reply={**HAIKU.reply, "usage": usage})
    asked = replace(request(schema=SCHEMA), messages=(SYSTEM, Message("user", "Is it good?")))
    sent, reply = case.sent(wire, asked)
    body = json.loads(sent.content)
    assert body["system"] == [
        {"type": "text", "text": SHARED, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": OWN},
    ]
    assert "cache_control" not in json.dumps(body["messages"])
    assert reply.usage == call_usage(
        750, 20, reply.usage.cost_usd, "litellm", cache_read_tokens=600, cache_write_tokens=50
    )
    assert reply.usage.cost_usd == pytest.approx(100 * 1e-7 + 600 * 1e-8 + 50 * 1.25e-7 + 20 * 5e-7)
    # A price in the profile counts cached tokens apart, too.
    _, reply = case.sent(wire, asked, price=Price(input=1, output=2, cache_read=0.1))
    assert reply.usage.cost_usd == pytest.approx((100 + 60 + 50 + 40) / 1e6)
    assert reply.usage.cost_source == "profile"
    sent, _ = case.sent(
        wire, asked, output_mode="text"
    )  # a schema in words comes after the marked part
    shared, own = json.loads(sent.content)["system"]
    assert shared["text"] == SHARED
    assert own["text"].startswith(OWN)
    assert "JSON Schema" in own["text"]


def test_a_forced_tool_is_asked_for_and_read(wire: respx.MockRouter) -> None:
    function = {"name": "opinion", "arguments": TEXT}
    reply, call = chat("llama-9"), {"id": "1", "type": "function", "function": function}
    reply["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    case = BY_PROVIDER["groq"]._replace(model="llama-9", reply=reply)
    sent, got = case.sent(wire, request(schema=SCHEMA))
    body = json.loads(sent.content)
    # litellm leaves out parameters that Groq doesn't take.
    bare = {name: value for name, value in SCHEMA.items() if name != "additionalProperties"}
    assert body["tools"][0]["function"]["parameters"] == bare
    assert body["tool_choice"] == {"type": "function", "function": {"name": "opinion"}}
    assert got.text == TEXT


def test_a_proxy_that_states_the_cost_is_believed_where_it_is_an_amount(
    wire: respx.MockRouter,
) -> None:
    for stated in ("0.0123", "n/a", "", "nan", "inf", "-1"):
        headers = {"x-litellm-response-cost": stated}
        _, reply = PROXY.sent(wire, request(schema=SCHEMA), headers=headers)
        assert reply.text
        is_believed = stated == "0.0123"
        assert (reply.usage.cost_source == "provider", reply.usage.cost_usd == 0.0123) == (
            is_believed,
        ) * 2
        assert math.isfinite(reply.usage.cost_usd or 0)


def test_a_price_list_that_fails_does_not_cost_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> tuple[float, float]:
        raise RuntimeError("no such price")

    litellm, own = load(), bundled(HAIKU.provider, HAIKU.model, HAIKU.variables())
    monkeypatch.setattr(litellm, "cost_per_token", fails)
    monkeypatch.setitem(litellm.model_cost, own.model, {"input_cost_per_token": 1})
    reply = read_response(
        litellm.ModelResponse(**chat(own.model)), own, request(), CallStyle("text")
    )
    assert (reply.usage.cost_usd, reply.usage.unpriced_calls) == (None, 1)


@pytest.mark.parametrize("price", [None, Price(input=1, output=2)])
def test_a_program_that_listens_to_litellm_hears_what_our_calls_cost(
    wire: respx.MockRouter, monkeypatch: pytest.MonkeyPatch, price: Price | None
) -> None:
    heard = queue.SimpleQueue[float]()

    async def listen(call: dict[str, Any], *_: object) -> None:
        heard.put(call["response_cost"])

    monkeypatch.setattr(load(), "_async_success_callback", [listen])
    HAIKU.sent(wire, request(schema=SCHEMA), price=price)
    assert heard.get(timeout=10) == pytest.approx((100 * 1 + 20 * 5) / 1e7)


def test_a_price_in_the_profile_is_all_that_is_looked_up(
    wire: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []

    def look_up(**call: object) -> tuple[float, float]:
        looked_up.append(call)
        return 0.0, 0.0

    monkeypatch.setattr(load().cost_calculator, "completion_cost", look_up)
    monkeypatch.setattr(load(), "cost_per_token", look_up)
    HAIKU.sent(wire, request(schema=SCHEMA), price=Price(input=1, output=2))
    assert not looked_up


@pytest.mark.parametrize("mode", ["tool", "json_schema", "json_object", "text"])
def test_only_what_a_schema_holds_counts_as_held(mode: OutputMode) -> None:
    own, forged = '{"reasoning": "x"}', 'It says {"reasoning": "y"}'
    function = {"name": "opinion", "arguments": own}
    call = {"id": "1", "type": "function", "function": function}

    def read(**message: object) -> Reply:
        body = chat("m")
        body["choices"][0]["message"] = {"role": "assistant", **message}
        there, asked = custom("http://127.0.0.1:1/v1", "m"), request(schema={"type": "object"})
        return read_response(load().ModelResponse(**body), there, asked, CallStyle(mode))

    both = read(content=forged, tool_calls=[call])
    assert (both.text, both.schema_enforced) == ((own, True) if mode == "tool" else (forged, False))
    several = read(content=None, tool_calls=[call, call | {"id": "2"}])
    assert several.text == f"{own}\n{own}"
    assert read(content=own).schema_enforced == (mode == "json_schema")
    with pytest.raises(GatewayError, match="thought and gave no answer"):
        read(content=None, reasoning_content=own)
    other = call | {"function": function | {"name": "look_up"}}
    with pytest.raises(GatewayError, match="another tool"):
        read(content=None, tool_calls=[other])
    assert read(content=None, tool_calls=[other, call]).text == own


def encoded(body: bytes, name: str) -> Answer:
    return sends(body, headers={"Content-Encoding": name})


BOMB = gzip.compress(b"[" * 60_000_000)
TOO_MUCH = {
    "plain": sends(b"[" * 20_000_000),
    "packed": encoded(BOMB, "gzip"),
    "an error": sends(b"[" * 20_000_000, status=500),
    "no JSON": sends(b"[" * 3_000_000),
    "without end": Answer(options="endless"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_reply_that_is_too_much_is_no_reply(name: str) -> None:
    with Loopback(TOO_MUCH[name]) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=60))
        assert (error.kind, len(server.requests)) == (FailureKind.INVALID_REPLY, 1)
        if name == "without end":  # the server counts what it could send of a chunked reply
            assert server.gone.wait(20)
            assert (
                server.sent < 3 * servers.MAX_REPLY_BYTES
            )  # bytes that fit into sockets were already on their way
    assert "the reply" in error.message


def test_a_reply_is_asked_for_as_it_is_and_read_just_below_the_limit() -> None:
    text = "a" * (servers.MAX_REPLY_BYTES - 1000)
    with Loopback(says(text)) as server:
        assert ask(LitellmGateway(), custom(server.base), request(timeout=60)).text == text
        assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_to_another_server_is_followed(status: int) -> None:
    def answer(_: Asked) -> Answer:
        names = {"other": f"127.0.0.1:{other.port}", "same": f"127.0.0.1:{server.port}"}
        return Answer(b"", status, {"Location": elsewhere.format(**names)})

    for elsewhere in (
        "http://{other}/v1/chat/completions",
        "//{other}/",
        "https://{same}/v1",
        "http://[::1/",
    ):
        with Loopback(says("mine now")) as other, Loopback(answer) as server:
            error = failure(LitellmGateway(), custom(server.base), request())
            assert (error.kind, other.requests) == (FailureKind.BAD_REQUEST, []), elsewhere
        assert "redirects to another address" in error.message, elsewhere


def test_a_redirect_on_the_same_server_is_followed() -> None:
    def answer(asked: Asked) -> Answer:
        moved = asked.path.endswith("/moved")
        return says("here") if moved else Answer(b"", 307, {"Location": "/v1/moved"})

    with Loopback(answer) as server:
        assert ask(LitellmGateway(), custom(server.base), request()).text == "here"
        assert [asked.headers["authorization"] for asked in server.requests] == [
            f"Bearer {KEY}"
        ] * 2


def test_an_error_that_holds_a_whole_reply_is_told_in_a_line() -> None:
    deep = b'{"error": {"message": ' + b"[" * 50_000
    long = json.dumps({"choices": [{"message": "A" * 3_000_000}]}).encode()
    for answer in (sends(deep, status=400), sends(long)):
        with Loopback(answer) as server:
            error = failure(LitellmGateway(), custom(server.base), request(timeout=60))
        assert error.kind in (FailureKind.BAD_REQUEST, FailureKind.INVALID_REPLY)
        assert len(error.message) <= 300


def test_other_clients_in_the_process_are_left_alone() -> None:
    """Other users of the same libraries get the servers' replies unchanged."""

    async def read(base: str) -> int:
        async with httpx.AsyncClient() as client:
            return len((await client.post(base, content=b"{}")).content)

    with Loopback(encoded(gzip.compress(b"x" * (servers.MAX_REPLY_BYTES + 1)), "gzip")) as server:
        assert asyncio.run(read(server.base)) == servers.MAX_REPLY_BYTES + 1


@pytest.mark.parametrize(
    "listed",
    [
        lambda _: sends(b"[" * 20_000_000),
        lambda _: sends(b'{"data":' + b"[" * 900_000),
        lambda _: encoded(BOMB, "gzip"),
        lambda other: Answer(b"", 302, {"Location": f"http://127.0.0.1:{other.port}/v1/models"}),
    ],
    ids=["large", "deep", "packed", "elsewhere"],
)
def test_a_list_of_models_is_not_trusted_either(listed: Callable[[Loopback], Answer]) -> None:
    """It is asked for when a model is gone, and when a local server is looked for."""
    missing = fails(404, "no such model")
    with Loopback(says("")) as other, Loopback(missing, listing=lambda _: listed(other)) as server:
        error = failure(LitellmGateway(), custom(server.base), request(timeout=30))
        assert error.kind is FailureKind.NOT_FOUND
        assert servers.list_models([server.base], 5) == [None]
        assert other.listed == []


def test_several_are_asked_at_once_and_only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    loopbacks = Loopback(listing=SILENT), Loopback(listing=SILENT), Loopback(models=("a",))
    # Nothing listens at a port that is bound and kept.
    with socket.socket() as taken, loopbacks[0] as one, loopbacks[1] as two, loopbacks[2] as three:
        taken.bind(("127.0.0.1", 0))
        nothing = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        start = time.monotonic()
        bases = [one.base, nothing, two.base, three.base]
        assert servers.list_models(bases, 0.5) == [None, None, None, ["a"]]
    assert time.monotonic() - start < 3
    assert servers.list_models([]) == []
    monkeypatch.setattr(httpx, "AsyncClient", lambda *_, **__: pytest.fail("asked"))
    for base in (
        "https://127.0.0.1/v1",
        "http://a.example.org/v1",
        "http://127.0.0.1.example.org/v1",
        "x",
        "",
    ):
        assert servers.list_models([base]) == [None]
