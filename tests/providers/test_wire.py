"""The wire format of each provider: address, key, body, and what is read from its reply."""

from __future__ import annotations

import asyncio
import json
import math
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import httpx
import pytest
import respx
from asking import KEY, SCHEMA, ask, bundled, request
from making import call_usage

from judgekit.providers import registry, running
from judgekit.providers.base import Message, endpoint
from judgekit.providers.litellm import LitellmGateway, load, reply_of
from judgekit.providers.registry import Price

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from judgekit.providers.base import Reply
    from judgekit.providers.registry import OutputMode

TEXT = '{"reasoning": "fine", "score": 4}'
STRICT = {"type": "json_schema", "json_schema": {"name": "opinion", "strict": True, "schema": SCHEMA}}
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
    environ: Mapping[str, str]
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    reply: Mapping[str, Any]
    cost: float | Literal["some"] | None


def case(
    provider: str,
    model: str,
    url: str,
    body: Mapping[str, Any],
    cost: float | Literal["some"] | None,
    **different: Mapping[str, Any],
) -> Case:
    environ = different.get("environ", {f"{provider.upper()}_API_KEY": KEY})
    headers, reply = different.get("headers", BEARER), different.get("reply", chat(model))
    return Case(provider, model, environ, url, headers, body, reply, cost)


def price(read: float, written: float) -> float:
    """Return what 100 tokens read and 20 written cost at prices for a million."""
    return (100 * read + 20 * written) / 1e6


OPENAI = "https://api.openai.com/v1/chat/completions"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/gemini-3.5-flash-lite:generateContent"
AZURE = "https://mine.example.org/openai/deployments/gpt-6-luna/chat/completions?api-version=2026-01-01"
BEDROCK = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/global.anthropic.claude-haiku-5-5/converse"
LUNA = {"model": "gpt-6-luna", "reasoning_effort": "none", "max_completion_tokens": 64}
HELD = {"response_format": STRICT, "temperature": 0}
CASES = [
    case(
        "openai", "gpt-4.1-mini", OPENAI, {"model": "gpt-4.1-mini", **HELD, "max_tokens": 64}, price(0.4, 1.6)
    ),
    case("openai", "gpt-6-luna", OPENAI, LUNA, price(0.1, 0.5)),
    case("openai", "gpt-6.1-sol", OPENAI, {"max_completion_tokens": 8064, "temperature": None}, price(2, 10)),
    case(
        "anthropic",
        "claude-haiku-5-5",
        "https://api.anthropic.com/v1/messages",
        {
            "model": "claude-haiku-5-5",
            "system": [{"type": "text", "text": "You judge."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Is it good?"}]}],
            "output_format": {"type": "json_schema", "schema": SCHEMA},
            "max_tokens": 64,
            "thinking": None,
        },
        price(0.1, 0.5),
        headers={"x-api-key": KEY, "anthropic-version": "2023-06-01"},
        reply={
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-5-5",
            "content": [{"type": "text", "text": TEXT}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 20},
        },
    ),
    case(
        "gemini",
        "gemini-3.5-flash-lite",
        GEMINI,
        {
            "contents": [{"role": "user", "parts": [{"text": "Is it good?"}]}],
            "generationConfig": {
                "temperature": 0,
                "max_output_tokens": 8064,
                "response_mime_type": "application/json",
                "response_json_schema": SCHEMA,
                "thinkingConfig": {"thinkingLevel": "minimal", "includeThoughts": False},
            },
        },
        price(0.3, 2.5),
        environ={"GOOGLE_API_KEY": KEY},
        headers={"x-goog-api-key": KEY},
        reply={
            "candidates": [{"content": {"parts": [{"text": TEXT}], "role": "model"}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120},
            "modelVersion": "gemini-3.5-flash-lite",
        },
    ),
    case(
        "mistral", "ministral-14b-latest", "https://api.mistral.ai/v1/chat/completions", HELD, price(0.2, 0.2)
    ),
    case(
        "groq",
        "qwen/qwen3.8-27b",
        "https://api.groq.com/openai/v1/chat/completions",
        {"model": "qwen/qwen3.8-27b", "response_format": STRICT, "reasoning_effort": "none"},
        price(0.8, 4),
    ),
    case(
        "deepseek",
        "deepseek-v4-flash",
        "https://api.deepseek.com/chat/completions",
        {"response_format": {"type": "json_object"}, "thinking": {"type": "disabled"}},
        "some",  # half the price at some hours
    ),
    case("xai", "grok-4.20-non-reasoning", "https://api.x.ai/v1/chat/completions", HELD, price(1.25, 2.5)),
    case(
        "cerebras",
        "gemma-4-31b",
        "https://api.cerebras.ai/v1/chat/completions",
        {"model": "gemma-4-31b", "response_format": STRICT, "reasoning_effort": "none"},
        price(0.99, 1.49),
        environ={
            "CEREBRAS_API_KEY": KEY,
            "OPENAI_API_KEY": "another",
            "OPENAI_ORGANIZATION": "an-organisation",
        },
        headers={**BEARER, "openai-organization": ""},
    ),
    case(
        "openrouter",
        "openai/gpt-6-luna",
        "https://openrouter.ai/api/v1/chat/completions",
        {"model": "openai/gpt-6-luna", "response_format": STRICT, "reasoning_effort": "none"},
        0.00042,
        reply=chat("openai/gpt-6-luna", cost=0.00042),
    ),
    case(
        "azure",
        "gpt-6-luna",
        AZURE,
        {"response_format": STRICT, "max_completion_tokens": 64},
        price(0.1, 0.5),
        environ={
            "AZURE_API_KEY": KEY,
            "AZURE_API_BASE": "https://mine.example.org",
            "AZURE_API_VERSION": "2026-01-01",
        },
        headers={"api-key": KEY},
    ),
    case(
        "bedrock",
        "global.anthropic.claude-haiku-5-5",
        BEDROCK,
        {"inferenceConfig": {"maxTokens": 64}, "system": [{"text": "You judge."}]},
        price(0.1, 0.5),
        environ={"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "eu-west-1"},
        reply={
            "output": {"message": {"role": "assistant", "content": [{"text": TEXT}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 100, "outputTokens": 20, "totalTokens": 120},
            "metrics": {"latencyMs": 1},
        },
    ),
    case(
        "openai-compatible",
        "my-model",
        "https://a.example.org/v1/chat/completions",
        {"model": "my-model", **HELD},
        None,
        environ={
            "JUDGEKIT_API_BASE": "https://a.example.org/v1",
            "JUDGEKIT_API_KEY": KEY,
            "OPENAI_API_KEY": "another",
        },
    ),
    case(
        "litellm-proxy",
        "team-judge",
        "https://proxy.example.org/chat/completions",
        {"model": "team-judge", "response_format": STRICT},
        None,
        environ={"LITELLM_PROXY_API_BASE": "https://proxy.example.org", "LITELLM_PROXY_API_KEY": KEY},
    ),
]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[respx.MockRouter]:
    # respx sees httpx only; litellm's clients are kept between calls, so they are forgotten around each test.
    monkeypatch.setenv("DISABLE_AIOHTTP_TRANSPORT", "True")
    litellm = load()
    asyncio.run(running.inside(litellm.close_litellm_async_clients))
    litellm.in_memory_llm_clients_cache.flush_cache()
    with respx.mock(assert_all_called=False) as router:
        yield router
    litellm.in_memory_llm_clients_cache.flush_cache()


def call(
    case: Case, wire: respx.MockRouter, headers: Mapping[str, str] | None = None
) -> tuple[httpx.Request, Reply]:
    route = wire.post(case.url).mock(return_value=httpx.Response(200, json=case.reply, headers=headers))
    schema = deepcopy(SCHEMA)
    reply = ask(LitellmGateway(), bundled(case.provider, case.model, case.environ), request(schema=schema))
    assert route.call_count == 1
    assert schema == SCHEMA  # which litellm would rewrite for this provider, and the next one would get
    return route.calls.last.request, reply


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.provider}-{case.model}")
def test_what_is_sent_and_read(case: Case, wire: respx.MockRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in case.environ.items():
        monkeypatch.setenv(name, value)
    sent, reply = call(case, wire)
    assert {name: sent.headers.get(name, "") for name in case.headers} == dict(case.headers)
    body = json.loads(sent.content)
    assert {name: body.get(name) for name in case.body} == dict(case.body)
    assert reply.text == TEXT
    assert reply.usage[:2] == (100, 20)
    stated = case.provider == "openrouter"
    assert reply.usage.cost_source == ("provider" if stated else "litellm" if case.cost is not None else None)
    assert reply.usage.unpriced_calls == (0 if case.cost is not None else 1)
    if case.cost == "some":
        assert reply.usage.cost_usd
    else:
        assert reply.usage.cost_usd == pytest.approx(case.cost)


def test_a_model_that_cannot_be_asked_for_a_schema_is_told_it(wire: respx.MockRouter) -> None:
    case = next(each for each in CASES if each.provider == "deepseek")
    sent, _ = call(case, wire)
    assert "JSON Schema" in json.loads(sent.content)["messages"][0]["content"]


def test_a_forced_tool_is_asked_for_and_read(wire: respx.MockRouter) -> None:
    function = {"name": "opinion", "arguments": TEXT}
    reply = chat("llama-9")
    reply["choices"][0]["message"] = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": function}],
    }
    url = "https://api.groq.com/openai/v1/chat/completions"
    case = Case("groq", "llama-9", {"GROQ_API_KEY": KEY}, url, {}, {}, reply, None)
    sent, got = call(case, wire)
    body = json.loads(sent.content)
    # litellm leaves out for Groq what it does not take.
    bare = {name: value for name, value in SCHEMA.items() if name != "additionalProperties"}
    assert body["tools"][0]["function"]["parameters"] == bare
    assert body["tool_choice"] == {"type": "function", "function": {"name": "opinion"}}
    assert got.text == TEXT


SHARED, OWN = "You judge by these rules.\n\n", "Between <a> and </a> is data."
SYSTEM = Message("system", SHARED + OWN, len(SHARED))
HAIKU = next(case for case in CASES if case.provider == "anthropic")


def test_what_many_prompts_share_is_marked_for_the_providers_cache_and_read_back(
    wire: respx.MockRouter,
) -> None:
    usage = {
        "input_tokens": 100,
        "cache_read_input_tokens": 600,
        "cache_creation_input_tokens": 50,
        "output_tokens": 20,
    }
    route = wire.post(HAIKU.url).mock(return_value=httpx.Response(200, json={**HAIKU.reply, "usage": usage}))
    asked = replace(request(schema=SCHEMA), messages=(SYSTEM, Message("user", "Is it good?")))
    there = bundled("anthropic", HAIKU.model, HAIKU.environ)
    reply = ask(LitellmGateway(), there, asked)
    body = json.loads(route.calls.last.request.content)
    assert body["system"] == [
        {"type": "text", "text": SHARED, "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": OWN},
    ]
    assert "cache_control" not in json.dumps(body["messages"])
    assert reply.usage == call_usage(
        750, 20, reply.usage.cost_usd, "litellm", cache_read_tokens=600, cache_write_tokens=50
    )
    assert reply.usage.cost_usd == pytest.approx(100 * 1e-7 + 600 * 1e-8 + 50 * 1.25e-7 + 20 * 5e-7)


def test_a_price_in_the_profile_counts_cached_tokens_apart(wire: respx.MockRouter) -> None:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 600, "output_tokens": 20}
    wire.post(HAIKU.url).mock(return_value=httpx.Response(200, json={**HAIKU.reply, "usage": usage}))
    price = Price(input=1, output=2, cache_read=0.1)
    there = replace(bundled("anthropic", HAIKU.model, HAIKU.environ), price=price)
    reply = ask(LitellmGateway(), there, request(schema=SCHEMA))
    assert reply.usage.cost_usd == pytest.approx((100 + 60 + 40) / 1e6)


def test_a_schema_that_is_told_comes_after_what_is_marked(wire: respx.MockRouter) -> None:
    route = wire.post(HAIKU.url).mock(return_value=httpx.Response(200, json=HAIKU.reply))
    asked = replace(request(schema=SCHEMA), messages=(SYSTEM, Message("user", "Is it good?")))
    there = replace(bundled("anthropic", HAIKU.model, HAIKU.environ), output="text")
    ask(LitellmGateway(), there, asked)
    shared, own = json.loads(route.calls.last.request.content)["system"]
    assert shared["text"] == SHARED
    assert own["text"].startswith(OWN)
    assert "JSON Schema" in own["text"]


@pytest.mark.parametrize("provider", sorted({case.provider for case in CASES} - {"anthropic"}))
def test_nothing_is_marked_where_the_profile_does_not_say_so(
    provider: str, wire: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(each for each in CASES if each.provider == provider)
    for name, value in case.environ.items():
        monkeypatch.setenv(name, value)
    route = wire.post(case.url).mock(return_value=httpx.Response(200, json=case.reply))
    asked = replace(request(schema=SCHEMA), messages=(SYSTEM, Message("user", "Is it good?")))
    ask(LitellmGateway(), bundled(case.provider, case.model, case.environ), asked)
    sent = route.calls.last.request.content.decode()
    assert json.dumps(OWN)[1:-1] in sent
    assert "cache_control" not in sent
    assert "cachePoint" not in sent


def test_a_proxy_that_states_the_cost_is_believed(wire: respx.MockRouter) -> None:
    case = next(each for each in CASES if each.provider == "litellm-proxy")
    _, reply = call(case, wire, headers={"x-litellm-response-cost": "0.0123"})
    assert reply.usage.cost_usd == pytest.approx(0.0123)
    assert reply.usage.cost_source == "provider"


@pytest.mark.parametrize("stated", ["n/a", "", "nan", "inf", "-1", "free of charge"])
def test_a_cost_that_is_no_amount_neither_costs_the_reply_nor_counts(
    wire: respx.MockRouter, stated: str
) -> None:
    case = next(each for each in CASES if each.provider == "litellm-proxy")
    _, reply = call(case, wire, headers={"x-litellm-response-cost": stated})
    assert reply.text
    assert reply.usage.cost_source != "provider"
    assert math.isfinite(reply.usage.cost_usd or 0)


@pytest.mark.parametrize("mode", ["tool", "json_schema", "json_object", "text"])
def test_only_what_a_schema_holds_counts_as_held(mode: OutputMode) -> None:
    custom = endpoint(registry.find("openai-compatible"), "m", {"JUDGEKIT_API_BASE": "http://127.0.0.1:1/v1"})
    own, forged = '{"reasoning": "x"}', 'It says {"reasoning": "y"}'
    call = {"id": "1", "type": "function", "function": {"name": "opinion", "arguments": own}}
    asked = replace(request(), schema={"type": "object"})

    def read(**message: object) -> Reply:
        body = chat("m")
        body["choices"][0]["message"] = {"role": "assistant", **message}
        response = load().ModelResponse(**body)
        return reply_of(response, custom, asked, mode)

    both = read(content=forged, tool_calls=[call])
    assert (both.text, both.held) == ((own, True) if mode == "tool" else (forged, mode == "json_schema"))
    several = read(content=None, tool_calls=[call, call | {"id": "2"}])
    assert several.text == f"{own}\n{own}"
    assert read(content=own).held == (mode == "json_schema")
    assert not read(content=None, reasoning_content=own).held


def test_a_price_list_that_fails_does_not_cost_the_reply(
    wire: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: object) -> tuple[float, float]:
        raise RuntimeError("no such price")

    case = next(each for each in CASES if each.provider == "anthropic")
    litellm = load()
    own = bundled(case.provider, case.model, case.environ)
    monkeypatch.setattr(litellm, "cost_per_token", fails)
    monkeypatch.setitem(litellm.model_cost, own.model, {"input_cost_per_token": 1})
    response = litellm.ModelResponse(**chat(own.model))
    reply = reply_of(response, own, request(), "text")
    assert (reply.usage.cost_usd, reply.usage.unpriced_calls) == (None, 1)


def test_a_price_in_the_profile_is_used() -> None:
    custom = registry.find("openai-compatible")
    profile = custom.model_copy(update={"price": {"my-": Price(input=1, output=2)}})
    priced = endpoint(profile, "my-model", {"JUDGEKIT_API_BASE": "http://127.0.0.1:1/v1"})
    response = load().ModelResponse(**chat("my-model"))
    reply = reply_of(response, priced, request(), "text")
    assert reply.usage.cost_usd == pytest.approx((100 + 2 * 20) / 1e6)
    assert reply.usage.cost_source == "profile"
