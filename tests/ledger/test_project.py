from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from judgekit import environment
from judgekit.ledger import Ledger, store

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.invalid", "-c", "protocol.file.allow=always"]
    subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, timeout=60
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


def test_a_name_is_readable_and_stands_for_one_place(repository: Path, tmp_path: Path) -> None:
    name = store.project_name(repository)
    assert re.fullmatch(r"my-project-[0-9a-f]{12}", name)
    (repository / "docs" / ".claude" / "memory").mkdir(parents=True)
    assert store.project_name(repository / "docs") == name
    (tmp_path / "link").symlink_to(repository)
    assert store.project_name(tmp_path / "link") == name
    other = tmp_path / "other" / "my project"
    other.mkdir(parents=True)
    assert store.project_name(other) != name
    assert store.same_project(name, "my-project")
    assert not store.same_project(name, "my")


def test_worktrees_share_a_ledger_and_submodules_do_not(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert store.project_name(tmp_path / "tree") == store.project_name(repository)
    git(repository, "submodule", "add", "-q", str(repository), "inner")
    assert store.project_name(repository / "inner").startswith("inner-")


@pytest.mark.parametrize("text", ["", "gitdir: ", "gitdir: ../gone", "nonsense", "gitdir: \x00"])
def test_a_strange_git_file_is_the_folders_own_mark(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").write_text(text)
    (tmp_path / "docs").mkdir()
    assert store.project_name(tmp_path / "docs") == store.project_name(tmp_path)


def test_where_the_ledger_lies(isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Ledger.of(tmp_path).folder.parent == isolated / "judgekit" / "state" / "ledger"
    monkeypatch.delenv("JUDGEKIT_HOME")
    assert environment.state_home() == str(isolated / ".local" / "state" / "judgekit")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert environment.state_home() == str(tmp_path / "judgekit")
