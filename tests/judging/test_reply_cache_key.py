"""What makes a question a new one: how a model is asked, not where the question was put."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from scripted import PROFILE, scripted_endpoint

from judgekit.judging import cache
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


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": {"": {"reasoning_effort": "high"}}},
        {"thinking": {"": 4000}},
        {"client": "openai"},
        {"prompt_caching": True},
    ],
)
def test_a_profile_that_asks_otherwise_makes_a_new_question(changes: dict[str, Any]) -> None:
    own = scripted_endpoint("model")
    other = dataclasses.replace(own, profile=PROFILE.model_copy(update=changes))
    assert key(other) != key(own)


def test_what_only_describes_a_profile_makes_none() -> None:
    own = scripted_endpoint("model")
    words = {"title": "Another", "rank": 3, "notes": "New.", "key": ["OTHER_KEY"]}
    assert key(dataclasses.replace(own, profile=PROFILE.model_copy(update=words))) == key(own)


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
