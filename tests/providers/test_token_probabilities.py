"""Token probabilities on the wire: which models are asked for them, what comes back, and where it is kept."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asking import KEY, SCHEMA, ask, custom, failure, request
from loopback import Loopback, fails, says, sends

from judgekit.errors import FailureKind
from judgekit.judging.cache import ReplyCache
from judgekit.providers import registry
from judgekit.providers.base import endpoint
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.replay import Recorder, ReplayGateway, read, recorded_models

if TYPE_CHECKING:
    from pathlib import Path

    from loopback import Answer, Asked, Script

    from judgekit.providers.base import Reply

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
        *("openai/gpt-4.1-mini", "openai/gpt-6-luna", "azure/gpt-4.1-mini", "xai/grok-4.20-non-reasoning"),
        *("deepseek/deepseek-v4-flash", "llama-server/any", "ollama/any"),
    ):
        provider, _, model = name.partition("/")
        environ = azure if provider == "azure" else {keys.get(provider, "NONE"): KEY}
        with Loopback(says(TEXT, logprobs=BESIDE)) as server:
            found = endpoint(registry.find(provider), model, environ, base=server.base)
            assert found.logprobs, name
            reply = ask(LitellmGateway(), found, request(schema=SCHEMA, top=8))
        body = server.requests[0].body
        assert (body["logprobs"], body["top_logprobs"]) == (True, 8)
        assert (reply.text, reply.tokens, reply.logprobs) == (TEXT, TOKENS, KEPT)
    for name in (
        *("openai/gpt-6-sol", "openai/o3", "xai/grok-4.20-reasoning", "deepseek/deepseek-v4-pro"),
        *("mistral/mistral-large-4", "lm-studio/any", "openai-compatible/any", "local/any"),
        "anthropic/claude-haiku-5-5",
    ):
        provider, _, model = name.partition("/")
        assert not endpoint(registry.find(provider), model, {}).logprobs, name
    profile = registry.find("openai-compatible")  # a profile says it of all its models or by their names
    tables: list[bool | dict[str, bool]] = [True, {"a": True, "a-thinks": False}]
    whole, some = (profile.model_copy(update={"logprobs": table}) for table in tables)
    assert endpoint(whole, "custom/x", {}).logprobs
    names = ("a-1", "a-thinks-1", "b")
    assert [endpoint(some, f"custom/{name}", {}).logprobs for name in names] == [True, False, False]


def test_a_model_that_refuses_to_tell_is_asked_without_and_that_is_remembered() -> None:
    gateway, refused = LitellmGateway(), fails(400, "You are not allowed to request logprobs from this model")
    with Loopback(refused, says(TEXT)) as server:
        for _ in range(2):
            reply = ask(gateway, custom(server.base), request(schema=SCHEMA, top=8))
            assert (reply.text, reply.tokens) == (TEXT, ())
    assert ["top_logprobs" in asked.body for asked in server.requests] == [True, False, False]
    assert all(asked.body["response_format"]["type"] == "json_schema" for asked in server.requests)
    with Loopback(refused) as server:  # where they are the answer, that is a failure
        error = failure(LitellmGateway(), custom(server.base), request(top=8))
    assert (error.kind, len(server.requests)) == (FailureKind.BAD_REQUEST, 1)


def test_a_reply_that_is_cut_is_one_only_where_the_first_token_is_wanted() -> None:
    with Loopback(says('{"sco', finish="length", logprobs=BESIDE[:2])) as server:
        error = failure(LitellmGateway(), custom(server.base), request(schema=SCHEMA, top=8))
    assert error.kind is FailureKind.TRUNCATED
    alternatives = {"yes": -0.1, "no": -2.5}
    with Loopback(says("yes", finish="length", logprobs=[alternatives])) as server:
        reply = ask(LitellmGateway(), custom(server.base), request(top=2))
    assert reply.logprobs == (alternatives,)
    assert (server.requests[0].body["logprobs"], server.requests[0].body["top_logprobs"]) == (True, 2)


def test_tokens_are_read_as_servers_give_them() -> None:
    flour = "f\u00fcr 🙂".encode()
    parts = [flour[:2], flour[2:4], flour[4:6], flour[6:]]
    tokens = [
        {"token": part.decode("utf-8", "replace"), "logprob": -0.1, "bytes": list(part), "top_logprobs": []}
        for part in parts
    ]
    reply = told(raw(tokens))  # a character in several tokens belongs to the last
    assert (reply.tokens, len(reply.logprobs)) == (("f", "ür", " ", "🙂"), 4)
    other = {"token": "5", "logprob": -0.2, "bytes": None}
    chosen = {"token": "4", "logprob": -8.0, "bytes": None, "top_logprobs": [other]}
    assert told(raw([chosen])).logprobs == ({"5": -0.2, "4": -8.0},)
    odd: list[dict[str, Any]] = [
        {"token": "4", "logprob": -0.1},
        {"token": "4", "logprob": -0.1, "bytes": [300], "top_logprobs": []},
        {"token": "4", "logprob": None, "bytes": None, "top_logprobs": []},
        {"token": None, "logprob": -0.1, "bytes": None, "top_logprobs": None},
        {},
    ]
    for token in odd:  # which cost no reply

        def answer(asked: Asked, token: dict[str, Any] = token) -> Answer:
            return raw([token]) if "logprobs" in asked.body else says(TEXT)

        reply = told(answer)
        assert reply.text == TEXT
        assert len(reply.tokens) == len(reply.logprobs) <= 1


def test_they_are_recorded_replayed_and_kept_between_sessions(tmp_path: Path) -> None:
    file, cache, asked = (
        tmp_path / "recording.jsonl",
        ReplyCache(tmp_path / "replies.sqlite"),
        request(schema=SCHEMA, top=8),
    )
    with Loopback(says(TEXT, logprobs=BESIDE)) as server:
        there = custom(server.base)
        reply = ask(Recorder(LitellmGateway(), file), there, asked)
    recorded = recorded_models(file)["quick"][0]
    assert recorded.logprobs
    again = ask(ReplayGateway(), recorded, request(schema=SCHEMA))
    assert (again.tokens, again.logprobs) == (reply.tokens, reply.logprobs) == (TOKENS, KEPT)
    cache.keep(there, asked, reply)
    kept = cache.find(there, asked)
    assert kept is not None
    assert (kept.tokens, kept.logprobs) == (TOKENS, KEPT)
    assert cache.find(there, replace(asked, top_logprobs=0)) is None
    line = json.loads(file.read_text())
    del line["reply"]["tokens"]  # as a recording of before
    file.write_text(json.dumps(line) + "\n")
    recorded = recorded_models(file)["quick"][0]
    assert not recorded.logprobs
    assert ask(ReplayGateway(), recorded, request(schema=SCHEMA)).tokens == ()
    file.unlink()
    with Loopback(says(TEXT, logprobs=[{"\ud800": -0.1, "x": -math.inf}])) as server:
        ask(Recorder(LitellmGateway(), file), custom(server.base), asked)
    [only] = read(file)  # it can be read again whatever the tokens
    assert only.reply is not None
    assert only.reply.logprobs == [{"?": -0.1}]
