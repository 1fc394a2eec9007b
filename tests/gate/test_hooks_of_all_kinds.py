"""Real pushes through hooks of all kinds: one that was there before, another folder, shell, framework.

So do the examples for other programs that run hooks: they let the gate decide.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from git_repo import GitRepo
from pushing import bad, good, path_without_judgekit

from judgekit.config import files as bundled
from judgekit.config import yaml_text
from judgekit.hooks import files, git_hook, pre_commit

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow


def program(name: str) -> str:
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which(name, path=folders)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def put_on_path(world: World) -> None:
    """Give pushes a PATH with `judgekit` in `bin`."""
    binary = world.folder / "bin" / "judgekit"
    binary.parent.mkdir()
    binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m judgekit "$@"\n')
    binary.chmod(0o755)
    world.environ["PATH"] = f"{binary.parent}{os.pathsep}{path_without_judgekit()}"


def set_up(world: World, *command: str) -> None:
    environ = os.environ | world.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        command, cwd=world.work.folder, env=environ, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check(world: World) -> None:
    """Check that a bad document is held up, a good one is not, and a judgekit that fails holds up nothing."""
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)
    world.work.commit("good", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    world.work.commit("bad", a_md=bad("a"))
    (world.folder / "bin" / "judgekit").write_text("#!/bin/sh\nexit 1\n")
    world.push("--dry-run", "origin", "main")
    (world.folder / "bin" / "judgekit").unlink()
    world.push()


NOTES = """#!/bin/sh
printf '%s\\n' "$0" "$@" >args
cat >lines
exit {code}
"""


def foreign(world: World, text: str, mode: int = 0o755) -> Path:
    """Take judgekit's hook out, write another one, and install ours again."""
    files.uninstall(git_hook.plan_uninstall(git_hook.find_hooks(world.work.folder)))
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
    assert (
        world.work.folder / "lines"
    ).read_text() == f"refs/heads/main {new} refs/heads/main {old}\n"
    program, *words = (world.work.folder / "args").read_text().splitlines()
    assert Path(program).name == "pre-push"
    assert words == ["origin", "../origin.git"]


def test_a_hook_that_was_there_can_stop_the_push_unless_it_lacks_its_run_bit(world: World) -> None:
    hook = foreign(world, NOTES.format(code=1))
    world.work.commit("good", a_md=good("a"))
    kept = hook.with_name(git_hook.EARLIER_HOOK)
    for code in (1, 3, 85):
        kept.write_text(NOTES.format(code=code))
        world.push(code=1)
    (world.work.folder / "args").unlink()
    kept.chmod(0o644)
    world.push(judged={"a.md": "GO"})
    assert not (world.work.folder / "args").exists()


def test_a_hook_that_was_there_may_be_any_program_and_need_not_read(world: World) -> None:
    lines = (
        f"#!{sys.executable}",
        "import sys",
        "sys.exit('no' if sys.argv[1] == 'nowhere' else 0)",
    )
    foreign(world, "\n".join(lines))
    world.work("remote", "add", "nowhere", "../origin.git")
    world.push("nowhere", "main:topic", code=1)
    for number in range(200):
        world.work("branch", f"branch-with-a-rather-long-name-{number:04}")
    world.work.commit("bad", a_md=bad("a"))
    push = world.push("--all", "origin", judged={"a.md": "NO-GO"}, code=1)
    assert "error" not in push.err.partition("error: failed to push")[0].lower()


def test_hooks_that_call_each_other_come_to_an_end(world: World) -> None:
    """As when pre-commit keeps ours as its legacy hook, and ours has kept pre-commit's."""
    hooks = world.work.folder / ".git" / "hooks"
    foreign(world, '#!/bin/sh\nexec "${0%/*}/pre-push.legacy" "$@"\n')
    shutil.copy(hooks / "pre-push", hooks / "pre-push.legacy")
    world.work.commit("bad", a_md=bad("a"))
    before = len(world.ledger())
    assert world.run("origin", "main").returncode == 1
    assert {each["verdict"] for each in world.ledger()[before:]} == {"reject"}
    assert (hooks / git_hook.EARLIER_HOOK).exists()


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
    path_of_shell = program(shell)
    hook = foreign(world, NOTES.format(code=0))
    folder = hook.parent
    words = {"busybox": "sh", "bash": "--posix"}.get(shell, "")
    for path in (hook, folder / git_hook.EARLIER_HOOK):
        path.write_text(
            path.read_text().replace("#!/bin/sh", f"#!{path_of_shell} {words}".rstrip(), 1)
        )
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)
    world.work.commit("good", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    assert (world.work.folder / "lines").stat().st_size > 80


def test_a_path_with_quotes_in_it_and_an_environment_with_next_to_nothing_in_it(
    world: World,
) -> None:
    """As programs that are started from a menu pass it on."""
    python = world.folder / 'it\'s "my" $HOME `venv`' / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    world.install(python=str(python))
    world.work.commit("bad", a_md=bad("a"))
    git = shutil.which("git") or "git"
    kept = {
        "JUDGEKIT_HOME": os.environ["JUDGEKIT_HOME"],
        "JUDGEKIT_REPLAY": str(world.record(world.work)),
    }
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


@pytest.fixture
def pre_committed(world: World) -> World:
    framework = program("pre-commit")
    files.uninstall(git_hook.plan_uninstall(git_hook.find_hooks(world.work.folder)))
    files.install(pre_commit.plan_install(world.work.folder))
    world.work.commit("the gate")
    world.work("push", "--quiet", "origin", "main")
    put_on_path(world)
    world.environ["PRE_COMMIT_HOME"] = str(world.folder / "cache")
    set_up(world, framework, "install", "--hook-type", "pre-push")
    return world


def test_the_pre_commit_framework(pre_committed: World) -> None:
    world = pre_committed
    world.work("push", "--quiet", "--no-verify", "origin", "main:old")
    world.push("origin", ":old")
    oid = world.work.commit("good", a_md=good("a"))
    push = world.push(judged={"a.md": "GO"})
    assert (push.verdicts[0]["commit"], push.verdicts[0]["gate"]["remote"]) == (
        oid,
        "../origin.git",
    )
    assert "GO            a.md" in push.out + push.err
    world.work("switch", "--quiet", "--create", "topic")
    world.work.write(".judgekit/config.yaml", "gate: {mode: advisory}\n")
    world.work.commit("bad", b_md=bad("b"))
    push = world.push("origin", "topic", judged={"b.md": "NO-GO"}, code=1)
    assert "judgekit override" in push.out + push.err
    other = GitRepo(world.folder / "other.git", "--bare")
    world.push(str(other.folder), "topic", judged={"b.md": "NO-GO"}, code=1)
    (world.folder / "bin" / "judgekit").write_text("#!/bin/sh\nexit 1\n")
    world.push("--dry-run", "origin", "topic")
    (world.folder / "bin" / "judgekit").unlink()
    push = world.push("origin", "topic")
    assert "this push is not judged" in push.out + push.err


def test_pre_commit_that_is_installed_over_our_hook(world: World) -> None:
    """It keeps ours as its legacy hook, and installing ours again finds it there."""
    (world.work.folder / pre_commit.CONFIG_FILE).write_text("repos: []\n")
    world.environ["PRE_COMMIT_HOME"] = str(world.folder / "cache")
    set_up(world, program("pre-commit"), "install", "--hook-type", "pre-push")
    assert world.install().name == git_hook.LEGACY
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)


ROOT = Path(__file__).parents[2]
EXAMPLES = bundled.get_data_folder("examples") / "git"


def example(name: str) -> str:
    return (EXAMPLES / name).read_text(encoding="utf-8")


def configured_command() -> str:
    repository = GitRepo(EXAMPLES)
    assert repository("config", "--file", "gitconfig", "hook.judgekit.event") == "pre-push"
    return repository("config", "--file", "gitconfig", "hook.judgekit.command")


def lefthook_job() -> dict[str, Any]:
    (job,) = yaml_text.parse_yaml(example("lefthook.yml"))["pre-push"]["jobs"]
    return dict(job)


def started(name: str, folder: Path) -> str:
    """Return the script of a hook: a command as git 2.54 starts it, a file as husky, a job as lefthook."""
    if name == "gitconfig":
        command = shlex.quote(configured_command() + ' "$@"')
        return f'exec sh -c {command} judgekit "$@"'
    if name == "husky-pre-push":
        (folder / "husky").write_text(example(name))
        return f'exec sh -e {shlex.quote(str(folder / "husky"))} "$@"'
    return str(lefthook_job()["run"]).replace("{1}", "$1").replace("{2}", "$2")


@pytest.fixture
def on_path(world: World) -> World:
    (world.work.folder / ".git" / "hooks" / "pre-push").unlink()
    put_on_path(world)
    return world


@pytest.mark.parametrize("name", ["gitconfig", "husky-pre-push", "lefthook.yml"])
def test_an_example_lets_the_gate_decide(on_path: World, name: str) -> None:
    assert f"--blocked-code {pre_commit.BLOCKED_EXIT_CODE}" in example(name)
    assert f"-ne {pre_commit.BLOCKED_EXIT_CODE} ]" in example(name)
    assert lefthook_job()["use_stdin"] is True
    hook = on_path.work.folder / ".git" / "hooks" / "pre-push"
    hook.write_text(f"#!/bin/sh\n{started(name, on_path.folder)}\n")
    hook.chmod(0o755)
    check(on_path)


def test_the_manifest_for_pre_commit() -> None:
    manifest = ROOT / ".pre-commit-hooks.yaml"
    (hook,) = yaml_text.parse_yaml(manifest.read_text(encoding="utf-8"))
    assert hook["entry"] == pre_commit.HOOK_ENTRY
    assert (hook["id"], hook["stages"]) == (pre_commit.HOOK_ID, ["pre-push"])
    assert (hook["pass_filenames"], hook["always_run"], hook["verbose"]) == (False, True, True)
    (item,) = yaml_text.parse_yaml(pre_commit.CONFIG_ITEM)
    shared = {key: hook[key] for key in ("id", "stages", "pass_filenames", "always_run", "verbose")}
    assert shared.items() <= item["hooks"][0].items()
    command = [program("pre-commit"), "validate-manifest", str(manifest)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def actions() -> dict[str, Any]:
    workflow = yaml_text.parse_yaml(example("github-actions.yml"))
    return {
        each.get("name", each.get("uses", "")): each for each in workflow["jobs"]["gate"]["steps"]
    }


def test_the_workflow_gives_no_secret_and_no_right_away() -> None:
    workflow = yaml_text.parse_yaml(example("github-actions.yml"))
    # pull_request_target would run a fork's files with secrets
    assert workflow["on"].keys() == {"pull_request", "merge_group"}
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
    for step in actions().values():
        assert "${{" not in step.get("run", ""), (
            "an expression in a script is code of whoever names a branch"
        )


def test_the_workflow_judges_and_writes_what_is_uploaded(world: World) -> None:
    base = world.work("rev-parse", "HEAD")
    world.work.commit("bad", a_md=bad("a"))
    steps = actions()
    assert steps["actions/checkout@v4"]["with"]["fetch-depth"] == 0
    put_on_path(world)
    known = {"BASE": base, "JUDGEKIT_REPLAY": str(world.record(world.work)), **world.environ}
    script = ["bash", "-e", "-c", steps["judge"]["run"]]
    done = subprocess.run(
        script,
        cwd=world.work.folder,
        env=os.environ | known,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    written = world.work.folder / steps["show"]["with"]["sarif_file"]
    results = json.loads(written.read_bytes())["runs"][0]["results"]
    places = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results
    }
    assert places == {"a.md"}
