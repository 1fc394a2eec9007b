"""What makes a question a new one: how a model is asked, not where the question was put."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from scripted import PROFILE, scripted_endpoint

from judgekit.judging import cache
from judgekit.judging.fence import Fence, without_nonce
from judgekit.providers import base, registry
from judgekit.providers.base import CallKey, Endpoint, Message, Request
from judgekit.providers.registry import CommandProfile

REQUEST = Request((Message("user", "judge this"),), CallKey("s", "kls@1.0.0", "quick"), 5, 100)
HERE = {"PATH": "/bin", "HOME": "/somewhere/a", "USER": "a", "CLAUDE_CODE_OAUTH_TOKEN": "t"}


def command(environ: dict[str, str], changes: dict[str, Any] | None = None) -> Endpoint:
    profile = registry.find("claude-code").model_copy(update=changes or {})
    return base.endpoint(profile, "some-model", environ)


def key(own: Endpoint) -> str:
    return cache.key(own, REQUEST)


def test_the_key_is_all_that_an_answer_depends_on_but_the_nonce_and_the_time() -> None:
    own = scripted_endpoint("model")

    def fenced(**changes: Any) -> Request:  # noqa: ANN401 - any field
        asked = dataclasses.replace(REQUEST, messages=(Message("user", Fence().around("text")),))
        return dataclasses.replace(asked, **changes)

    def asking(**changes: Any) -> Endpoint:  # noqa: ANN401 - any key of a profile
        return dataclasses.replace(own, profile=PROFILE.model_copy(update=changes))

    usual = cache.key(own, fenced())
    others = [
        *(
            cache.key(own, each)
            for each in (REQUEST, fenced(max_tokens=7), fenced(schema={}), fenced(sample=2))
        ),
        cache.key(own, fenced(top_logprobs=3)),
        cache.key(scripted_endpoint("other"), fenced()),
        cache.key(dataclasses.replace(own, api_base="http://127.0.0.1:1"), fenced()),
        cache.key(dataclasses.replace(own, parameters={"region": "eu"}), fenced()),
        cache.key(asking(arguments={"": {"reasoning_effort": "high"}}), fenced()),
        cache.key(asking(thinking={"": 4000}), fenced()),
        cache.key(asking(client="openai"), fenced()),
        cache.key(asking(prompt_caching=True), fenced()),
    ]
    assert len({usual, *others}) == 1 + len(others)
    words = {"title": "Another", "rank": 3, "notes": "New.", "key": ["OTHER_KEY"]}
    assert cache.key(own, fenced(timeout=1)) == usual
    assert cache.key(dataclasses.replace(own, api_key="k"), fenced()) == usual
    assert cache.key(asking(**words), fenced()) == usual


def test_a_text_cannot_pass_for_another_by_looking_like_a_nonce() -> None:
    """Inside a fence the word is broken up, so what is taken out of the key is only ever ours."""
    one, other = (Fence().around(f"judged-{letter * 14}") for letter in "ab")
    assert without_nonce(one) != without_nonce(other)


def test_a_program_that_is_run_otherwise_is_a_new_question() -> None:
    profile = registry.find("claude-code")
    assert isinstance(profile, CommandProfile)
    others: list[dict[str, Any]] = [
        {},
        {"argv": [*profile.argv, "--effort", "high"]},
        {"files": {"settings.json": "{}"}},
        {"links": {"auth.json": ["~/.auth.json"]}},
        {"set_env": {**profile.set_env, "EFFORT": "high"}},
        {"reply_key": "text"},
    ]
    assert len({key(command(HERE, each)) for each in others}) == len(others)


@pytest.mark.parametrize(
    "there",
    [
        {"PATH": "/usr/lib/git-core:/bin"},
        {"CLAUDE_CODE_OAUTH_TOKEN": "renewed"},
        {"TMPDIR": "/tmp/x", "LANG": "C"},
    ],
)
def test_a_hook_a_shell_and_an_environment_of_python_share_what_a_program_replied(
    there: dict[str, str],
) -> None:
    assert key(command({**HERE, **there})) == key(command(HERE))


def test_another_address_is_another_program_s_answer() -> None:
    there = {**HERE, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    assert key(command(there)) != key(command(HERE))


def test_credentials_that_are_renewed_cost_no_call() -> None:
    own = dataclasses.replace(
        scripted_endpoint("m"), parameters={"aws_session_token": "a", "aws_region_name": "eu"}
    )
    renewed = dataclasses.replace(own, parameters={**own.parameters, "aws_session_token": "b"})
    moved = dataclasses.replace(own, parameters={**own.parameters, "aws_region_name": "us"})
    assert key(renewed) == key(own) != key(moved)
