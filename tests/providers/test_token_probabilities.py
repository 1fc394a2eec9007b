"""Token probabilities on the wire: who is asked for them, what comes back, and where it is kept."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from asking import KEY, SCHEMA, ask, custom, failure, request
from loopback import Loopback, fails, says, sends

from judgekit.errors import FailureKind
from judgekit.judging.cache import ReplyCache
from judgekit.providers import registry
from judgekit.providers.base import endpoint
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.registry import LitellmProfile
from judgekit.providers.replay import Recorder, ReplayGateway, read, recorded_models

if TYPE_CHECKING:
    from pathlib import Path

    from loopback import Answer, Asked

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


@pytest.mark.parametrize(
    ("provider", "model", "environ"),
    [
        ("openai", "gpt-4.1-mini", {"OPENAI_API_KEY": KEY}),
        ("openai", "gpt-6-luna", {"OPENAI_API_KEY": KEY}),
        ("azure", "gpt-4.1-mini", {"AZURE_API_KEY": KEY, "AZURE_API_BASE": "x", "AZURE_API_VERSION": "v1"}),
        ("xai", "grok-4.20-non-reasoning", {"XAI_API_KEY": KEY}),
        ("deepseek", "deepseek-v4-flash", {"DEEPSEEK_API_KEY": KEY}),
        ("llama-server", "any", {}),
        ("ollama", "any", {}),
    ],
)
def test_a_provider_that_gives_probabilities_is_asked_for_them(
    provider: str, model: str, environ: dict[str, str]
) -> None:
    with Loopback(says(TEXT, logprobs=BESIDE)) as server:
        found = endpoint(registry.find(provider), model, environ, base=server.base)
        assert found.logprobs
        reply = ask(LitellmGateway(), found, request(schema=SCHEMA, top=8))
    body = server.requests[0].body
    assert (body["logprobs"], body["top_logprobs"]) == (True, 8)
    assert (reply.text, reply.tokens, reply.logprobs) == (TEXT, TOKENS, KEPT)


def test_one_that_does_not_or_of_which_it_is_not_known_is_not() -> None:
    for name in (
        *("openai/gpt-6-sol", "openai/o3", "xai/grok-4.20-reasoning", "deepseek/deepseek-v4-pro"),
        *("mistral/mistral-large-4", "lm-studio/any", "openai-compatible/any", "local/any"),
        "anthropic/claude-haiku-5-5",
    ):
        provider, _, model = name.partition("/")
        assert not endpoint(registry.find(provider), model, {}).logprobs, name
    profile = registry.find("openai-compatible")  # a profile says it of all its models or by their names
    assert isinstance(profile, LitellmProfile)
    tables: list[bool | dict[str, bool]] = [True, {"a": True, "a-thinks": False}]
    whole, some = (profile.model_copy(update={"logprobs": table}) for table in tables)
    assert endpoint(whole, "custom/x", {}).logprobs
    found = [endpoint(some, f"custom/{name}", {}).logprobs for name in ("a-1", "a-thinks-1", "b")]
    assert found == [True, False, False]


def test_a_model_that_refuses_to_tell_is_asked_without_and_that_is_remembered() -> None:
    gateway = LitellmGateway()
    with Loopback(
        fails(400, "You are not allowed to request logprobs from this model"), says(TEXT)
    ) as server:
        for _ in range(2):
            reply = ask(gateway, custom(server.base), request(schema=SCHEMA, top=8))
            assert (reply.text, reply.tokens) == (TEXT, ())
    assert ["top_logprobs" in asked.body for asked in server.requests] == [True, False, False]
    assert all(asked.body["response_format"]["type"] == "json_schema" for asked in server.requests)


def test_where_probabilities_are_the_answer_a_refusal_is_a_failure() -> None:
    with Loopback(fails(400, "logprobs are not supported")) as server:
        error = failure(LitellmGateway(), custom(server.base), request(top=8))
    assert (error.kind, len(server.requests)) == (FailureKind.BAD_REQUEST, 1)


def test_a_whole_reply_that_was_cut_is_cut_whatever_else_it_tells() -> None:
    with Loopback(says('{"sco', finish="length", logprobs=BESIDE[:2])) as server:
        error = failure(LitellmGateway(), custom(server.base), request(schema=SCHEMA, top=8))
    assert error.kind is FailureKind.TRUNCATED


def test_a_character_in_several_tokens_belongs_to_the_last() -> None:
    flour = "f\u00fcr 🙂".encode()
    parts = [flour[:2], flour[2:4], flour[4:6], flour[6:]]
    tokens = [
        {"token": part.decode("utf-8", "replace"), "logprob": -0.1, "bytes": list(part), "top_logprobs": []}
        for part in parts
    ]
    with Loopback(raw(tokens)) as server:
        reply = ask(LitellmGateway(), custom(server.base), request(schema=SCHEMA, top=8))
    assert reply.tokens == ("f", "ür", " ", "🙂")
    assert len(reply.logprobs) == 4


def test_the_token_that_was_chosen_is_among_its_alternatives() -> None:
    other = {"token": "5", "logprob": -0.2, "bytes": None}
    with Loopback(raw([{"token": "4", "logprob": -8.0, "bytes": None, "top_logprobs": [other]}])) as server:
        reply = ask(LitellmGateway(), custom(server.base), request(schema=SCHEMA, top=1))
    assert reply.logprobs == ({"5": -0.2, "4": -8.0},)


@pytest.mark.parametrize(
    "tokens",
    [
        [{"token": "4", "logprob": -0.1}],
        [{"token": "4", "logprob": -0.1, "bytes": [300], "top_logprobs": []}],
        [{"token": "4", "logprob": None, "bytes": None, "top_logprobs": []}],
        [{"token": None, "logprob": -0.1, "bytes": None, "top_logprobs": None}],
        [{}],
    ],
)
def test_odd_probabilities_cost_no_reply(tokens: list[dict[str, Any]]) -> None:
    def answer(asked: Asked) -> Answer:
        return raw(tokens) if "logprobs" in asked.body else says(TEXT)

    with Loopback(answer) as server:
        reply = ask(LitellmGateway(), custom(server.base), request(schema=SCHEMA, top=8))
    assert reply.text == TEXT
    assert len(reply.tokens) == len(reply.logprobs) <= 1


def test_they_are_recorded_and_replayed(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    with Loopback(says(TEXT, logprobs=BESIDE)) as server:
        reply = ask(Recorder(LitellmGateway(), file), custom(server.base), request(schema=SCHEMA, top=8))
    endpoint = recorded_models(file)["quick"][0]
    assert endpoint.logprobs
    again = ask(ReplayGateway(), endpoint, request(schema=SCHEMA))
    assert (again.tokens, again.logprobs) == (reply.tokens, reply.logprobs) == (TOKENS, KEPT)
    line = json.loads(file.read_text())
    del line["reply"]["tokens"]  # as a recording of before
    file.write_text(json.dumps(line) + "\n")
    endpoint = recorded_models(file)["quick"][0]
    assert not endpoint.logprobs
    assert ask(ReplayGateway(), endpoint, request(schema=SCHEMA)).tokens == ()


def test_what_stands_in_a_recording_can_be_read_again_whatever_the_tokens(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    odd = [{"\ud800": -0.1, "x": -math.inf}]
    with Loopback(says(TEXT, logprobs=odd)) as server:
        ask(Recorder(LitellmGateway(), file), custom(server.base), request(schema=SCHEMA, top=8))
    [line] = read(file)
    assert line.reply is not None
    assert line.reply.logprobs == [{"?": -0.1}]


def test_they_are_kept_between_sessions(tmp_path: Path) -> None:
    cache, asked = ReplyCache(tmp_path / "replies.sqlite"), request(schema=SCHEMA, top=8)
    with Loopback(says(TEXT, logprobs=BESIDE)) as server:
        endpoint = custom(server.base)
        cache.keep(endpoint, asked, ask(LitellmGateway(), endpoint, asked))
    kept = cache.find(endpoint, asked)
    assert kept is not None
    assert (kept.tokens, kept.logprobs) == (TOKENS, KEPT)
    assert cache.find(endpoint, replace(asked, top_logprobs=0)) is None
