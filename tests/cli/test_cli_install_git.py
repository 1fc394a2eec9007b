"""`judgekit install git` and `pre-commit` at the command line, and what doctor says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.hooks import git_hook, pre_commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the hook of the repository will be; it is the current folder."""
    work = GitRepo(tmp_path / "work")
    monkeypatch.chdir(work.folder)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    return work.folder / ".git" / "hooks" / "pre-push"


def test_in_twice_and_out_twice(judgekit: Callable[..., Outcome], hook: Path) -> None:
    done = judgekit("install", "git")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"wrote {hook}: git runs the gate before a push",
        "mode: advisory, for **/*.md; undo: judgekit uninstall git",
    ]
    assert judgekit("install", "git").out.startswith(f"nothing to change in {hook}")
    assert judgekit("uninstall", "git").out == f"removed {hook}\n"
    assert judgekit("uninstall", "git").out == f"nothing to change: judgekit's hook is not in {hook}\n"


def test_a_hook_that_was_there(judgekit: Callable[..., Outcome], hook: Path) -> None:
    hook.parent.mkdir(exist_ok=True)
    for mode, told in (
        (0o755, f"the earlier hook runs first: {hook.with_name(git_hook.KEPT)}\n"),
        (0o644, "the earlier hook does not run, as before: it is not executable: "),
    ):
        hook.write_text("#!/bin/sh\n")
        hook.chmod(mode)
        assert told in judgekit("install", "git").out
        hook.chmod(0o644)
        assert judgekit("install", "git").out.startswith(f"wrote {hook}"), "a lost run bit"
        assert judgekit("uninstall", "git").out == f"put back {hook}\n"


def test_it_says_the_mode_that_holds(judgekit: Callable[..., Outcome], hook: Path) -> None:
    config = hook.parents[2] / ".judgekit" / "config.yaml"
    config.parent.mkdir()
    config.write_text("gate: {mode: blocking, paths: [docs/]}\n")
    assert "mode: blocking, for docs/;" in judgekit("install", "git").out
    config.write_text("gate: {mode: sometimes}\n")
    done = judgekit("install", "git")
    assert (done.code, "mode: unknown, " in done.out) == (0, True)


@pytest.mark.parametrize("command", ["install", "uninstall"])
@pytest.mark.parametrize("what", ["git", "pre-commit"])
def test_print_changes_nothing(judgekit: Callable[..., Outcome], hook: Path, command: str, what: str) -> None:
    done = judgekit(command, what, "--print")
    assert done.code == 0
    assert not hook.exists()
    assert not (hook.parents[2] / pre_commit.FILE).exists()
    shown = {"git": git_hook.text().decode(), "pre-commit": "id: judgekit-gate"}[what]
    assert (shown in done.out) == (command == "install")


def test_where_there_is_none(
    judgekit: Callable[..., Outcome], hook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = judgekit("install", "git", "--scope", "project")
    assert (done.code, "judgekit install pre-commit" in done.err) == (64, True)
    monkeypatch.chdir(tmp_path)
    done = judgekit("install", "git")
    assert (done.code, "no git repository" in done.err) == (64, True)


def test_pre_commit_in_and_out(judgekit: Callable[..., Outcome], hook: Path) -> None:
    file = hook.parents[2] / pre_commit.FILE
    done = judgekit("install", "pre-commit")
    assert done.out.splitlines() == [
        f"wrote {file}",
        "run once in each clone: pre-commit install --hook-type pre-push",
    ]
    assert judgekit("install", "pre-commit").out.startswith(f"nothing to change in {file}")
    assert judgekit("uninstall", "pre-commit").out == f"removed {file}\n"
    assert judgekit("uninstall", "pre-commit").out == f"nothing to change: the gate is not in {file}\n"


def test_what_doctor_says(judgekit: Callable[..., Outcome], hook: Path) -> None:
    assert f"git hook: no {hook}; install it with judgekit install git" in judgekit("doctor").out
    judgekit("install", "git")
    assert f"ok     git hook: git runs {hook}" in judgekit("doctor").out
    hook.chmod(0o644)
    done = judgekit("doctor")
    assert f"wrong  git hook: {hook} is not executable" in done.out
    assert done.code == 78


def test_the_mode_is_that_of_the_remote(judgekit: Callable[..., Outcome], hook: Path, tmp_path: Path) -> None:
    work = GitRepo(hook.parents[2])
    origin = GitRepo(tmp_path / "origin.git", "--bare")
    work("remote", "add", "origin", str(origin.folder))
    work.write(".judgekit/config.yaml", "gate: {mode: blocking}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    work.write(".judgekit/config.yaml", "gate: {mode: advisory}\n")
    assert "mode: blocking, for **/*.md (the rules on origin);" in judgekit("install", "git").out
