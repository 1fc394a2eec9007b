"""judgekit's advice to people with husky, lefthook or Git LFS works: each remedy is carried out here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from npm_hooks import hook_manager
from pushing import bad, good, path_without_judgekit

from judgekit.config import files as bundled
from judgekit.errors import UsageError
from judgekit.hooks import git_hook, husky

if TYPE_CHECKING:
    from pushing import World

    from judgekit.hooks.files import FileChange

pytestmark = pytest.mark.slow
EXAMPLES = bundled.get_data_folder("examples") / "git"


def put_on_path(world: World, *programs: str) -> None:
    """Give pushes a PATH with `judgekit`, and the folders of other programs."""
    binary = world.folder / "bin" / "judgekit"
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m judgekit "$@"\n')
    binary.chmod(0o755)
    folders = [
        str(binary.parent),
        *(str(Path(each).parent) for each in programs),
        path_without_judgekit(),
    ]
    world.environ["PATH"] = os.pathsep.join(folders)


def run(world: World, folder: Path, *command: str) -> None:
    environ = os.environ | world.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def plan(folder: Path) -> FileChange:
    return git_hook.plan_install(git_hook.find_hooks(folder))


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as raised:
        plan(folder)
    return str(raised.value)


@pytest.fixture
def managed(world: World) -> World:
    """Return a world in which git runs no hook yet."""
    (world.work.folder / ".git" / "hooks" / "pre-push").unlink()
    return world


def test_the_line_for_husky_lets_the_gate_decide_and_stops_nobody_without_judgekit(
    managed: World,
) -> None:
    program = hook_manager("husky")
    put_on_path(managed, program)
    run(managed, managed.work.folder, program)
    message = refusal(managed.work.folder)
    before, _, line = message.partition(": judgekit gate")
    file = Path(before.rpartition("add this line to ")[2])
    assert file == managed.work.folder / ".husky" / "pre-push"
    assert f"judgekit gate{line}" == husky.HUSKY_HOOK_LINE
    file.write_text(f"judgekit gate{line}\n")
    managed.work.commit("bad", a_md=bad("a"))
    managed.push(judged={"a.md": "NO-GO"}, code=1)
    managed.work.commit("good", a_md=good("a"))
    managed.push(judged={"a.md": "GO"})
    managed.work.commit("bad again", a_md=bad("a"))
    (managed.folder / "bin" / "judgekit").unlink()
    managed.push()


def test_the_example_for_husky_ends_with_that_line() -> None:
    assert (EXAMPLES / "husky-pre-push").read_text().splitlines()[-1] == husky.HUSKY_HOOK_LINE


def test_nothing_is_written_into_a_worktree_that_husky_has_not_set_up(managed: World) -> None:
    program = hook_manager("husky")
    put_on_path(managed, program)
    run(managed, managed.work.folder, program)
    managed.work.write(".husky/pre-push", f"{husky.HUSKY_HOOK_LINE}\n")
    managed.work.commit("the gate")
    managed.work("worktree", "add", "--quiet", "-b", "topic", "../linked")
    linked = GitRepo(managed.folder / "linked")
    message = refusal(linked.folder)
    assert not (linked.folder / ".husky" / "_").exists()
    assert "git runs no hook of husky's here until you run npx husky" in message
    found = list(git_hook.check_git_hook(linked.folder))
    assert [
        text for state, _, text in found if state == "wrong" and "until you run npx husky" in text
    ]
    linked.commit("bad", a_md=bad("a"))
    managed.push("--dry-run", "origin", "topic", of=linked)  # no hook runs, as was said
    run(managed, linked.folder, program)
    managed.push("origin", "topic", of=linked, judged={"a.md": "NO-GO"}, code=1)
    assert "runs the gate already" in refusal(linked.folder)
    assert (
        "ok",
        "git hook",
        f"husky runs {linked.folder / '.husky' / 'pre-push'}, which runs the gate",
    ) in list(git_hook.check_git_hook(linked.folder))


@pytest.mark.parametrize("path", [".husky", "absolute"])
def test_a_project_with_an_older_husky(managed: World, path: str) -> None:
    """Up to version 8 git runs the project's own file, which reads husky's program."""
    hooks = managed.work.folder / ".husky"
    managed.work.write(".husky/_/husky.sh", "")
    managed.work("config", "core.hooksPath", str(hooks) if path == "absolute" else path)
    message = refusal(managed.work.folder)
    assert f"add this line to {hooks / 'pre-push'}, and make that file executable" in message
    put_on_path(managed)
    managed.work.write(
        ".husky/pre-push",
        f'#!/usr/bin/env sh\n. "$(dirname -- "$0")/_/husky.sh"\n{husky.HUSKY_HOOK_LINE}\n',
    )
    (hooks / "pre-push").chmod(0o755)
    managed.work.commit("bad", a_md=bad("a"))
    managed.push(judged={"a.md": "NO-GO"}, code=1)


@pytest.fixture
def lefthook(managed: World) -> World:
    program = hook_manager("lefthook")
    put_on_path(managed, program)
    shutil.copy(EXAMPLES / "lefthook.yml", managed.work.folder)
    run(managed, managed.work.folder, program, "install")
    managed.work.commit("the gate")
    managed.work("push", "--quiet", "--no-verify", "origin", "main")
    return managed


def test_lefthook_asks_the_gate_whatever_is_pushed(lefthook: World) -> None:
    """A branch that is not checked out, a tag, a detached HEAD, a linked worktree."""
    work = lefthook.work
    work("switch", "--quiet", "--create", "topic")
    work.commit("bad", a_md=bad("a"))
    work("tag", "v1")
    work("switch", "--quiet", "main")
    judged = {"a.md": "NO-GO"}
    lefthook.push("origin", "topic", judged=judged, code=1)
    lefthook.push("origin", "v1", judged=judged, code=1)
    work("switch", "--quiet", "--detach", "main")
    lefthook.push("origin", "topic:other", judged=judged, code=1)
    work("worktree", "add", "--quiet", "../linked", "main")
    linked = GitRepo(lefthook.folder / "linked")
    lefthook.push("origin", "topic", of=linked, judged=judged, code=1)
    lefthook.push("origin", "main:copy", of=linked)


def test_lefthook_stops_nobody_without_judgekit(lefthook: World) -> None:
    lefthook.work.commit("bad", a_md=bad("a"))
    (lefthook.folder / "bin" / "judgekit").unlink()
    lefthook.push()


LFS = b'#!/bin/sh\ncommand -v git-lfs >/dev/null 2>&1 || exit 0\ngit lfs pre-push "$@"\n'


def test_a_hook_that_another_program_writes_anew_over_ours_is_no_second_one(world: World) -> None:
    """As `git lfs update --force` does: both hooks are the same bytes."""
    hook = world.work.folder / ".git" / "hooks" / "pre-push"
    ours = hook.read_bytes()
    hook.write_bytes(LFS)
    world.install()
    kept = hook.with_name(git_hook.EARLIER_HOOK)
    hook.write_bytes(LFS)
    world.install()
    assert (hook.read_bytes(), kept.read_bytes()) == (ours, LFS)
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)
    hook.write_bytes(LFS + b"# another\n")
    with pytest.raises(UsageError, match="and so does"):
        plan(world.work.folder)
    kept.unlink()  # the remedy: remove one, then run it again
    world.install()
    assert kept.read_bytes() == LFS + b"# another\n"
