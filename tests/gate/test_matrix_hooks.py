"""Real pushes through hooks of all kinds: one that was there before, another folder, shell, framework."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo
from pushing import bad, good, path_without_judgekit

from judgekit.hooks import files, git_hook, pre_commit

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

NOTES = """#!/bin/sh
printf '%s\\n' "$0" "$@" >args
cat >lines
exit {code}
"""


def foreign(world: World, text: str, mode: int = 0o755) -> Path:
    """Take judgekit's hook out, write another one, and install ours again."""
    files.uninstall(git_hook.planned_change(git_hook.find(world.work.folder), installs=False))
    hook = world.work.folder / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(text)
    hook.chmod(mode)
    return world.install()


def test_a_hook_that_was_there_runs_first_with_the_same_words_and_lines(world: World) -> None:
    foreign(world, NOTES.format(code=0))
    world.push()
    assert (world.work.folder / "lines").read_bytes() == b"", "none when there are none"
    old = world.work("rev-parse", "origin/main")
    new = world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)
    assert (world.work.folder / "lines").read_text() == f"refs/heads/main {new} refs/heads/main {old}\n"
    program, *words = (world.work.folder / "args").read_text().splitlines()
    assert Path(program).name == git_hook.KEPT
    assert words == ["origin", "../origin.git"]


def test_a_hook_that_was_there_can_stop_the_push(world: World) -> None:
    hook = foreign(world, NOTES.format(code=1))
    world.work.commit("good", a_md=good("a"))
    for code in (1, 3, 85):
        hook.with_name(git_hook.KEPT).write_text(NOTES.format(code=code))
        world.push(code=1)


def test_a_hook_that_was_there_need_not_read(world: World) -> None:
    foreign(world, "#!/bin/sh\nexit 0\n")
    for number in range(200):
        world.work("branch", f"branch-with-a-rather-long-name-{number:04}")
    world.work.commit("bad", a_md=bad("a"))
    push = world.push("--all", "origin", judged={"a.md": "NO-GO"}, code=1)
    assert "error" not in push.err.partition("error: failed to push")[0].lower()


def test_a_hook_that_was_there_without_its_run_bit_is_not_run(world: World) -> None:
    foreign(world, NOTES.format(code=1), mode=0o644)
    world.work.commit("good", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    assert not (world.work.folder / "args").exists()


def test_a_hook_that_was_there_may_be_any_program(world: World) -> None:
    foreign(
        world,
        f"#!{sys.executable}\nimport sys\nsys.exit('no' if b'topic' in sys.stdin.buffer.read() else 0)\n",
    )
    world.work.commit("good", a_md=good("a"))
    world.push("origin", "main:topic", code=1)
    world.push(judged={"a.md": "GO"})


def test_hooks_that_call_each_other_come_to_an_end(world: World) -> None:
    """As when pre-commit keeps ours as its legacy hook, and ours has kept pre-commit's."""
    hooks = world.work.folder / ".git" / "hooks"
    foreign(world, '#!/bin/sh\nexec "${0%/*}/pre-push" "$@"\n')
    world.work.commit("bad", a_md=bad("a"))
    before = len(world.ledger())
    assert world.run("origin", "main").returncode == 1
    assert {each["verdict"] for each in world.ledger()[before:]} == {"reject"}
    assert (hooks / git_hook.KEPT).exists()


@pytest.mark.parametrize("where", [".githooks", "absolute"])
def test_another_folder_of_hooks(world: World, where: str) -> None:
    (world.work.folder / ".git" / "hooks" / "pre-push").unlink()
    path = where if where != "absolute" else str(world.work.folder / ".git" / "own")
    world.work("config", "core.hooksPath", path)
    hook = world.install()
    assert hook.parent.name == Path(path).name
    world.work.write(".git/info/exclude", "/.githooks\n")
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "ksh"])
def test_other_shells(world: World, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    hook = foreign(world, NOTES.format(code=0))
    folder = hook.parent
    words = {"busybox": "sh", "bash": "--posix"}.get(shell, "")
    for path in (hook, folder / git_hook.KEPT):
        path.write_text(path.read_text().replace("#!/bin/sh", f"#!{program} {words}".rstrip(), 1))
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)
    world.work.commit("good", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    assert (world.work.folder / "lines").stat().st_size > 80


def test_an_environment_with_next_to_nothing_in_it(world: World) -> None:
    """As programs that are started from a menu pass it on."""
    world.work.commit("bad", a_md=bad("a"))
    git = shutil.which("git") or "git"
    kept = {"JUDGEKIT_HOME": os.environ["JUDGEKIT_HOME"], "JUDGEKIT_REPLAY": str(world.record(world.work))}
    done = subprocess.run(
        [git, "push", "origin", "main"],
        cwd=world.work.folder,
        env={"HOME": str(world.home), "PATH": "/usr/bin:/bin", **kept},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert [each["verdict"] for each in world.ledger()] == ["reject"]


def test_a_path_with_quotes_in_it(world: World) -> None:
    program = world.folder / 'it\'s "my" $HOME `venv`' / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    world.install(python=str(program))
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)


def framework() -> str:
    program = shutil.which("pre-commit", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("pre-commit is not installed")
    return program


@pytest.fixture
def pre_committed(world: World) -> World:
    """Return a world whose hook is pre-commit's, with the gate in its configuration."""
    program = framework()
    files.uninstall(git_hook.planned_change(git_hook.find(world.work.folder), installs=False))
    files.install(pre_commit.planned_change(world.work.folder, installs=True))
    world.work.commit("the gate")
    world.work("push", "--quiet", "origin", "main")
    binaries = world.folder / "bin"
    binaries.mkdir()
    (binaries / "judgekit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m judgekit "$@"\n')
    (binaries / "judgekit").chmod(0o755)
    world.environ["PATH"] = f"{binaries}{os.pathsep}{path_without_judgekit()}"
    world.environ["PRE_COMMIT_HOME"] = str(world.folder / "cache")
    done = subprocess.run(
        [program, "install", "--hook-type", "pre-push"],
        cwd=world.work.folder,
        env=os.environ | world.environ | {"GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return world


def test_the_pre_commit_framework(pre_committed: World) -> None:
    world = pre_committed
    oid = world.work.commit("good", a_md=good("a"))
    push = world.push(judged={"a.md": "GO"})
    assert (push.verdicts[0]["commit"], push.verdicts[0]["gate"]["remote"]) == (oid, "../origin.git")
    assert "GO            a.md" in push.out + push.err
    world.work.commit("bad", b_md=bad("b"))
    push = world.push(judged={"b.md": "NO-GO"}, code=1)
    assert "judgekit override" in push.out + push.err


def test_a_new_branch_with_the_pre_commit_framework(pre_committed: World) -> None:
    world = pre_committed
    world.work("switch", "--quiet", "--create", "topic")
    world.work.write(".judgekit/config.yaml", "gate: {mode: advisory}\n")
    world.work.commit("bad", a_md=bad("a"))
    world.push("origin", "topic", judged={"a.md": "NO-GO"}, code=1)


def test_a_whole_history_with_the_pre_commit_framework(pre_committed: World) -> None:
    world = pre_committed
    world.work.commit("bad", a_md=bad("a"))
    other = GitRepo(world.folder / "other.git", "--bare")
    world.push(str(other.folder), "main", judged={"a.md": "NO-GO"}, code=1)


def test_a_deletion_with_the_pre_commit_framework(pre_committed: World) -> None:
    world = pre_committed
    world.work("push", "--quiet", "--no-verify", "origin", "main:old")
    world.push("origin", ":old")


def test_a_judgekit_that_is_gone_or_broken_does_not_stop_pre_commit(pre_committed: World) -> None:
    world = pre_committed
    world.work.commit("bad", a_md=bad("a"))
    (world.folder / "bin" / "judgekit").write_text("#!/bin/sh\nexit 1\n")
    world.push("--dry-run", "origin", "main")
    (world.folder / "bin" / "judgekit").unlink()
    push = world.push()
    assert "this push is not judged" in push.out + push.err


def test_pre_commit_that_is_installed_over_our_hook(world: World) -> None:
    """It keeps ours as its legacy hook, and installing ours again finds it there."""
    program = framework()
    (world.work.folder / pre_commit.FILE).write_text("repos: []\n")
    subprocess.run(
        [program, "install", "--hook-type", "pre-push"],
        cwd=world.work.folder,
        env=os.environ | {"PRE_COMMIT_HOME": str(world.folder / "cache"), "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert world.install().name == git_hook.LEGACY
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1, PRE_COMMIT_HOME=str(world.folder / "cache"))
