from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from judgekit import environment
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

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
    monkeypatch.setattr(environment, "_owner", lambda path: changed.get(path, os.getuid()))
    assert environment.project_root(str(start)) == str(shared if is_project else start)
