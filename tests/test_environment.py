"""Whose environment holds: the process's own, or the one that a request brought with it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from judgekit import environment
from judgekit.config import settings
from judgekit.providers import running

if TYPE_CHECKING:
    from pathlib import Path


def test_the_process_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_SOMETHING", "here")
    assert environment.environ()["JUDGEKIT_SOMETHING"] == "here"


def test_what_a_request_brings_holds_while_it_is_worked_on(tmp_path: Path) -> None:
    before = environment.config_home()
    with environment.Brought({"JUDGEKIT_HOME": str(tmp_path), "JUDGEKIT_JUDGE_MODE": "lenient"}):
        assert environment.config_home() == str(tmp_path)
        assert settings.load(None).judge.mode == "lenient"
        assert "JUDGEKIT_JUDGE_MODE" not in os.environ
    assert environment.config_home() == before
    assert settings.load(None).judge.mode == "strict"


def test_requests_do_not_see_each_other() -> None:
    async def one(name: str) -> str:
        with environment.Brought({"NAME": name}):
            await asyncio.sleep(0)
            return environment.environ()["NAME"] + await asyncio.to_thread(_name)

    async def both() -> tuple[str, str]:
        first, second = await asyncio.gather(one("a"), one("b"))
        return first, second

    assert asyncio.run(both()) == ("aa", "bb")


def test_it_holds_in_a_loop_beside_a_running_one() -> None:
    async def inner() -> str:
        return _name()

    async def outer() -> str:
        with environment.Brought({"NAME": "brought"}):
            return running.run(inner())

    assert asyncio.run(outer()) == "brought"


def _name() -> str:
    return environment.environ()["NAME"]


@pytest.mark.parametrize("value", ["", "0", "false", "No", "off"])
def test_a_variable_that_says_no_switches_nothing_on(value: str) -> None:
    with environment.Brought({"JUDGEKIT_DISABLE": value}):
        assert not environment.is_on("JUDGEKIT_DISABLE")


@pytest.mark.parametrize("value", ["1", "true", "yes", "because"])
def test_any_other_value_switches_on(value: str) -> None:
    with environment.Brought({"JUDGEKIT_DISABLE": value}):
        assert environment.is_on("JUDGEKIT_DISABLE")
        assert not environment.is_on("JUDGEKIT_SKIP")
