"""Whose environment holds, where files are kept, and where it is told that a configured rubric is missing."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from judgekit import environment
from judgekit.config import settings
from judgekit.errors import ConfigError, UsageError
from judgekit.judging import service
from judgekit.providers import running
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_request_brings_holds_while_it_is_worked_on(tmp_path: Path) -> None:
    before = environment.config_home()
    with environment.Brought({"JUDGEKIT_HOME": str(tmp_path), "JUDGEKIT_JUDGE_MODE": "lenient"}):
        assert environment.config_home() == str(tmp_path)
        assert settings.load(None).judge.mode == "lenient"
        assert "JUDGEKIT_JUDGE_MODE" not in os.environ
    assert environment.config_home() == before
    assert settings.load(None).judge.mode == "strict"


def test_requests_do_not_see_each_other_also_in_threads_and_other_loops() -> None:
    def name() -> str:
        return environment.environ()["NAME"]

    async def inner() -> str:
        return name()

    async def one(own: str) -> str:
        with environment.Brought({"NAME": own}):
            await asyncio.sleep(0)
            return name() + await asyncio.to_thread(name) + running.run(inner())

    async def both() -> tuple[str, str]:
        first, second = await asyncio.gather(one("a"), one("b"))
        return first, second

    assert asyncio.run(both()) == ("aaa", "bbb")


def test_a_variable_switches_something_on_unless_it_says_no() -> None:
    for value in ("", "0", "false", "No", "off", "1", "true", "yes", "because"):
        with environment.Brought({"JUDGEKIT_DISABLE": value}):
            assert environment.is_on("JUDGEKIT_DISABLE") == (value in ("1", "true", "yes", "because"))
            assert not environment.is_on("JUDGEKIT_SKIP")


HOMES = (environment.config_home, environment.cache_home, environment.state_home)
STRANGER = 54_321  # a user's number


def test_where_homes_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for given in ("rel", "./rel", "~/judgekit"):  # would depend on the folder
        monkeypatch.setenv("JUDGEKIT_HOME", given)
        for home in HOMES:
            with pytest.raises(ConfigError, match="JUDGEKIT_HOME: expected an absolute path, got"):
                home()
    monkeypatch.setenv("JUDGEKIT_HOME", str(tmp_path))
    assert [home() for home in HOMES] == [str(tmp_path), str(tmp_path / "cache"), str(tmp_path / "state")]
    monkeypatch.delenv("JUDGEKIT_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for given in ("", "rel"):  # ignored
        for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(variable, given)
        folders = (".config", ".cache", ".local/state")
        assert [home() for home in HOMES] == [str(tmp_path / each / "judgekit") for each in folders]


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


@pytest.mark.parametrize(
    ("rubric", "told"),
    [
        ("nosuch", "no rubric of that name; there are: "),
        ("/etc/passwd", "the value is neither ID, ID@VERSION nor the path of a YAML file"),
        ("none.yaml", "; name an ID, ID@VERSION or a YAML file that exists"),
        ("memory-relevance", "is for the task"),
    ],
)
def test_a_rubric_that_a_configuration_names_in_vain_is_told_where_it_stands(
    tmp_path: Path, rubric: str, told: str
) -> None:
    path = settings.project_file(tmp_path)
    path.parent.mkdir()
    path.write_text(f"judge:\n  mode: strict\n  rubric: {rubric}\n")
    with pytest.raises(ConfigError) as caught:
        service.rubric(settings.load(tmp_path), tmp_path)
    assert str(caught.value).startswith(f"{path}:3: judge.rubric: ")
    assert told in str(caught.value)


def test_a_rubric_that_a_variable_names_in_vain_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_RUBRIC", "kls")
    with pytest.raises(ConfigError, match=r"^JUDGEKIT_RETRIEVAL_RUBRIC: .*kls"):
        loader.configured_rubric("retrieval", settings.load(None).retrieval.rubric, None)


def test_a_rubric_that_is_asked_for_in_vain_is_no_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rubric 'nosuch'"):
        service.rubric(settings.load(tmp_path), tmp_path, service.JudgeRequest(rubric="nosuch"))
