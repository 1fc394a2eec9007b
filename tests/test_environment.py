"""Whose environment holds, and where files are kept: the process's own, or what a request brought with it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from judgekit import environment
from judgekit.config import settings
from judgekit.errors import ConfigError
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


HOMES = (environment.config_home, environment.cache_home, environment.state_home)
STRANGER = 54_321  # a user's number


@pytest.mark.parametrize("given", ["rel", "./rel", "~/judgekit"])
def test_a_home_that_depends_on_the_folder_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("JUDGEKIT_HOME", given)
    for home in HOMES:
        with pytest.raises(ConfigError, match="JUDGEKIT_HOME: expected an absolute path, got"):
            home()


def test_a_home_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUDGEKIT_HOME", str(tmp_path))
    assert [home() for home in HOMES] == [str(tmp_path), str(tmp_path / "cache"), str(tmp_path / "state")]


@pytest.mark.parametrize("given", ["", "rel"])
def test_a_base_that_is_not_absolute_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    monkeypatch.delenv("JUDGEKIT_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, given)
    assert [home() for home in HOMES] == [
        str(tmp_path / ".config" / "judgekit"),
        str(tmp_path / ".cache" / "judgekit"),
        str(tmp_path / ".local" / "state" / "judgekit"),
    ]


@pytest.mark.parametrize(
    ("mode", "owners", "is_project"),
    [
        (0o755, {}, True),
        (0o777, {}, True),
        (0o777, {"shared/.claude/memory": STRANGER}, False),  # /tmp, and what somebody put there
        (0o777, {"shared/.git": STRANGER}, False),
        (0o775, {"shared/.claude/memory": STRANGER}, True),  # a group's folder, a colleague's memories
        (0o755, dict.fromkeys(("shared", "shared/.git"), STRANGER), False),
        (0o755, dict.fromkeys(("shared", "shared/.git", "shared/mine"), STRANGER), True),  # mounted
    ],
)
def test_what_a_stranger_can_put_above_is_no_project(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    owners: dict[str, int],
    is_project: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    shared, start = tmp_path / "shared", tmp_path / "shared" / "mine"
    for folder in (start, shared / ".git", shared / ".claude" / "memory"):
        folder.mkdir(parents=True)
    shared.chmod(mode)
    changed = {str(tmp_path / name): owner for name, owner in owners.items()}
    lstat = os.lstat

    def owned(path: str) -> os.stat_result:
        status = lstat(path)
        return os.stat_result((*status[:4], changed.get(path, os.getuid()), *status[5:]))

    monkeypatch.setattr(os, "lstat", owned)
    assert environment.project_root(str(start)) == str(shared if is_project else start)
