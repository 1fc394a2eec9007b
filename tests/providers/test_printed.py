"""What is read out of what programs print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from making import call_usage

from judgekit.errors import CallUsage, FailureKind, GatewayError
from judgekit.providers import command as printed
from judgekit.providers import registry
from judgekit.providers.base import endpoint
from judgekit.providers.registry import CommandProfile, Price

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint, Reply

TEXT = '{"score": 4}'
CODEX = [
    {"type": "thread.started", "thread_id": "1"},
    {"type": "item.completed", "item": {"id": "0", "type": "reasoning", "text": "Hm."}},
    {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "Let me see."}},
    {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": TEXT}},
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 20},
    },
]
OPENCODE = [
    {"type": "step_start", "part": {}},
    {"type": "text", "part": {"type": "text", "text": TEXT}},
    {
        "type": "step_finish",
        "part": {
            "tokens": {"input": 60, "output": 15, "reasoning": 5, "cache": {"write": 10, "read": 30}},
            "cost": 0.25,
        },
    },
]
GEMINI = {
    "response": TEXT,
    "stats": {
        "models": {
            "a": {"tokens": {"prompt": 70, "candidates": 10, "thoughts": 5, "cached": 40}},
            "b": {"tokens": {"prompt": 30, "candidates": 5, "thoughts": 0, "cached": 0}},
        }
    },
}
CLAUDE = {
    "type": "result",
    "is_error": False,
    "result": TEXT,
    "total_cost_usd": 0.25,
    "usage": {
        "input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 30,
        "output_tokens": 20,
    },
}
LLM = [{"response": TEXT, "model": "gpt-x", "input_tokens": 100, "output_tokens": 20}]


def lines(values: list[Any]) -> str:
    return "\n".join(json.dumps(value) for value in values)


def bundled(name: str) -> Endpoint:
    return endpoint(registry.find(name), "a-model", {})


def command(**more: Any) -> Endpoint:  # noqa: ANN401 - keys of a profile
    profile = {
        "provider": "program",
        "title": "A program",
        "kind": "command",
        "detect": {"command": "program"},
        "output": "text",
        "argv": ["program"],
        **more,
    }
    return endpoint(CommandProfile.model_validate(profile), "a-model", {})


def read(output: str, there: Endpoint) -> Reply:
    assert isinstance(there.profile, CommandProfile)
    return printed.reply_of(output, there.profile, there)


@pytest.mark.parametrize(
    ("name", "output", "model", "usage"),
    [
        (
            "codex",
            lines(CODEX),
            "a-model",
            call_usage(100, 20, None, None, cache_read_tokens=40, cache_write_tokens=0, unpriced_calls=1),
        ),
        (
            "opencode",
            lines(OPENCODE),
            "a-model",
            call_usage(100, 20, 0.25, "provider", cache_read_tokens=30, cache_write_tokens=10),
        ),
        (
            "gemini-cli",
            json.dumps(GEMINI, indent=2),
            "a-model",
            call_usage(100, 20, None, None, cache_read_tokens=40, cache_write_tokens=0, unpriced_calls=1),
        ),
        (
            "claude-code",
            json.dumps(CLAUDE),
            "a-model",
            call_usage(100, 20, 0.25, "provider", cache_read_tokens=30, cache_write_tokens=10),
        ),
        ("llm", json.dumps(LLM, indent=2), "gpt-x", call_usage(100, 20, unpriced_calls=1)),
    ],
)
def test_what_each_bundled_program_prints(name: str, output: str, model: str, usage: CallUsage) -> None:
    reply = read(output, bundled(name))
    assert (reply.text, reply.model, reply.usage) == (TEXT, model, usage)


@pytest.mark.parametrize("name", ["codex", "opencode", "gemini-cli", "claude-code", "llm"])
@pytest.mark.parametrize("output", ["", "\n", "null", "[]", "{}", "4", "[" * 100_000, '{"a": ' * 50_000])
def test_what_is_no_reply_is_a_failure(name: str, output: str) -> None:
    with pytest.raises(GatewayError) as caught:
        read(output, bundled(name))
    assert caught.value.kind is FailureKind.INVALID_REPLY


@pytest.mark.parametrize("cost", ["NaN", "Infinity", "-Infinity", "1" + "0" * 400])
def test_a_cost_that_is_no_amount_is_not_known(cost: str) -> None:
    output = json.dumps({**CLAUDE, "total_cost_usd": 0.25}).replace("0.25", cost)
    reply = read(output, bundled("claude-code"))
    assert (reply.text, reply.usage.cost_usd, reply.usage.cost_source) == (TEXT, None, None)


def test_words_around_json_are_passed_over() -> None:
    there = command(reply="json", reply_key="text")
    for output in (
        'A warning.\n{"text": "yes"}',
        '{"text": "yes"}\nDone.',
        'A {warning}.\n{\n "text": "yes"\n}\nDone.',
    ):
        assert read(output, there).text == "yes"
    there = command(reply="jsonl", reply_key="text")
    assert read('Starting\n{"text": "no"}\n{"text": "yes"}\n{"text": "cut', there).text == "yes"


@pytest.mark.parametrize("reply", ["json", "jsonl"])
def test_a_text_may_hold_any_line_separator(reply: str) -> None:
    """JSON takes them as they are, and so does what programs on Node print."""
    text = "one\u2028two\u2029three\x85four"
    printed = json.dumps({"text": text}, ensure_ascii=False)
    assert read(f"Starting\r\n{printed}\r\nDone.", command(reply=reply, reply_key="text")).text == text


def test_only_lines_that_hold_what_is_wanted_are_read() -> None:
    there = command(reply="jsonl", reply_key="text", reply_where={"kind": "reply", "final": True})
    output = lines(
        [
            {"kind": "reply", "final": True, "text": "yes"},
            {"kind": "reply", "final": False, "text": "no"},
            {"kind": "thought", "final": True, "text": "no"},
            {"text": "no"},
        ]
    )
    assert read(output, there).text == "yes"


def test_a_failure_says_what_the_program_said_and_what_it_took() -> None:
    told = {"type": "error", "error": {"name": "ApiError", "data": {"message": "Your quota\nis spent"}}}
    with pytest.raises(GatewayError) as caught:
        read(lines([told, OPENCODE[2]]), bundled("opencode"))
    assert caught.value.message == (
        "opencode printed no JSON with 'part.text' where type is 'text': Your quota is spent"
    )
    assert caught.value.usage == call_usage(
        100, 20, 0.25, "provider", cache_read_tokens=30, cache_write_tokens=10
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"type": "error", "message": "no network"}, "no network"),
        ({"type": "turn.failed", "error": {"message": "no  quota"}}, "no quota"),
        ({"error": "plain"}, "plain"),
        ({"error": {"code": 1}}, ""),
        ({"other": 1}, ""),
    ],
)
def test_what_programs_say_went_wrong(value: object, said: str) -> None:
    profile = registry.find("codex")
    assert isinstance(profile, CommandProfile)
    assert printed.explained(json.dumps(value), profile) == said


def test_a_price_in_the_profile_goes_before_what_the_program_says() -> None:
    price = {"a-": Price(input=1, output=2, cache_read=0).model_dump()}
    there = command(
        reply="json",
        reply_key="text",
        price=price,
        usage={"input": ["read"], "output": ["written"], "cache_read": ["kept"], "cost": "cost"},
    )
    reply = read('{"text": "yes", "read": 100, "written": 10, "kept": 40, "cost": 9}', there)
    assert reply.usage.cost_usd == pytest.approx((60 + 20) / 1e6)
    assert reply.usage.cost_source == "profile"


@pytest.mark.parametrize("count", ["many", None, True, {}, -5])
def test_a_count_that_is_no_number_counts_nothing(count: object) -> None:
    there = command(reply="json", reply_key="text", usage={"input": ["read"], "cost": "cost"})
    assert read(json.dumps({"text": "yes", "read": count}), there).usage == call_usage(unpriced_calls=1)


def test_a_key_leads_into_json() -> None:
    value = {"a": [{"b": 1}, {"b": 2}], "c": "x"}
    for key, found in {"a.0.b": [1], "a.*.b": [1, 2], "*": [value["a"], "x"], "c": ["x"]}.items():
        assert printed.at(value, key) == found
    for key in ("a.2.b", "c.d", "none", "a.b"):
        assert printed.at(value, key) == []
