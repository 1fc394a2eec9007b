"""The examples for other programs that run hooks: they are what those read, and they let the gate decide."""

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

from judgekit.config import files, yaml_text
from judgekit.hooks import pre_commit

if TYPE_CHECKING:
    from pushing import World

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = files.folder("examples") / "git"


def example(name: str) -> str:
    return (EXAMPLES / name).read_text(encoding="utf-8")


def configured_command() -> str:
    """Return the command as git reads it from its configuration."""
    repository = GitRepo(EXAMPLES)
    assert repository("config", "--file", "gitconfig", "hook.judgekit.event") == "pre-push"
    return repository("config", "--file", "gitconfig", "hook.judgekit.command")


def lefthook_job() -> dict[str, Any]:
    (job,) = yaml_text.parsed(example("lefthook.yml"))["pre-push"]["jobs"]
    return dict(job)


def started(name: str, folder: Path) -> str:
    """Return what a hook runs: a command as git 2.54 starts it, a file as husky, a job as lefthook."""
    if name == "gitconfig":
        command = shlex.quote(configured_command() + ' "$@"')
        return f'exec sh -c {command} judgekit "$@"'
    if name == "husky-pre-push":
        (folder / "husky").write_text(example(name))
        return f'exec sh -e {shlex.quote(str(folder / "husky"))} "$@"'
    return str(lefthook_job()["run"]).replace("{1}", "$1").replace("{2}", "$2")


@pytest.fixture
def on_path(world: World) -> World:
    """Return a world in which `judgekit` is on the PATH, and no hook is installed."""
    (world.work.folder / ".git" / "hooks" / "pre-push").unlink()
    program = world.folder / "bin" / "judgekit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m judgekit "$@"\n')
    program.chmod(0o755)
    world.environ["PATH"] = f"{program.parent}{os.pathsep}{path_without_judgekit()}"
    return world


def check(world: World, *, whole: bool = True) -> None:
    """Check that a bad document is held up, a good one is not, and a judgekit that fails holds up nothing."""
    world.work.commit("bad", a_md=bad("a"))
    world.push(judged={"a.md": "NO-GO"}, code=1)
    world.work.commit("good", a_md=good("a"))
    world.push(judged={"a.md": "GO"})
    if whole:
        world.work.commit("bad", a_md=bad("a"))
        (world.folder / "bin" / "judgekit").write_text("#!/bin/sh\nexit 1\n")
        world.push("--dry-run", "origin", "main")
        (world.folder / "bin" / "judgekit").unlink()
        world.push()


@pytest.mark.parametrize("name", ["gitconfig", "husky-pre-push", "lefthook.yml"])
def test_an_example_lets_the_gate_decide(on_path: World, name: str) -> None:
    hook = on_path.work.folder / ".git" / "hooks" / "pre-push"
    hook.write_text(f"#!/bin/sh\n{started(name, on_path.folder)}\n")
    hook.chmod(0o755)
    check(on_path)


def test_lefthook_passes_gits_lines_on() -> None:
    assert lefthook_job()["use_stdin"] is True


@pytest.mark.parametrize("name", ["gitconfig", "husky-pre-push", "lefthook.yml"])
def test_an_example_stops_for_the_private_code_alone(name: str) -> None:
    assert f"--blocked-code {pre_commit.BLOCKED}" in example(name)
    assert f"-ne {pre_commit.BLOCKED} ]" in example(name)


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def set_up(world: World, *command: str) -> None:
    environ = os.environ | world.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        command, cwd=world.work.folder, env=environ, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_real_lefthook(on_path: World) -> None:
    lefthook = program("lefthook")
    on_path.work.write("lefthook.yml", example("lefthook.yml"))
    set_up(on_path, lefthook, "install")
    check(on_path)


def test_the_real_husky(on_path: World) -> None:
    set_up(on_path, program("husky"))
    on_path.work.write(".husky/pre-push", example("husky-pre-push"))
    check(on_path)


def test_git_with_configured_hooks(on_path: World) -> None:
    version = on_path.work("version").split()[2].split(".")
    if (int(version[0]), int(version[1])) < (2, 54):
        pytest.skip("this git has no configured hooks")
    on_path.work("config", "include.path", str(EXAMPLES / "gitconfig"))
    check(on_path)


def test_the_manifest_for_pre_commit() -> None:
    (hook,) = yaml_text.parsed((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"] == pre_commit.ENTRY
    assert (hook["id"], hook["stages"]) == (pre_commit.ID, ["pre-push"])
    assert (hook["pass_filenames"], hook["always_run"], hook["verbose"]) == (False, True, True)
    (item,) = yaml_text.parsed(pre_commit.ITEM)
    shared = {key: hook[key] for key in ("id", "stages", "pass_filenames", "always_run", "verbose")}
    assert shared.items() <= item["hooks"][0].items()


def test_the_manifest_is_what_pre_commit_reads() -> None:
    set_of_hooks = ROOT / ".pre-commit-hooks.yaml"
    done = subprocess.run(
        [program("pre-commit"), "validate-manifest", set_of_hooks],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


def actions() -> dict[str, Any]:
    workflow = yaml_text.parsed(example("github-actions.yml"))
    return {each.get("name", each.get("uses", "")): each for each in workflow["jobs"]["gate"]["steps"]}


def test_the_workflow_gives_no_secret_and_no_right_away() -> None:
    workflow = yaml_text.parsed(example("github-actions.yml"))
    assert workflow["on"] == "pull_request", "pull_request_target would run a fork's files with secrets"
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
    for step in actions().values():
        assert "${{" not in step.get("run", ""), "an expression in a script is code of whoever names a branch"


def test_the_workflow_judges_and_writes_what_is_uploaded(world: World, tmp_path: Path) -> None:
    base = world.work("rev-parse", "HEAD")
    world.work.commit("bad", a_md=bad("a"))
    steps = actions()
    assert steps["actions/checkout@v4"]["with"]["fetch-depth"] == 0
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "judgekit").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m judgekit "$@"\n')
    (binaries / "judgekit").chmod(0o755)
    known = {
        "BASE": base,
        "PATH": f"{binaries}{os.pathsep}{path_without_judgekit()}",
        "JUDGEKIT_REPLAY": str(world.record(world.work)),
    }
    script = ["bash", "-e", "-c", steps["judge"]["run"]]
    done = subprocess.run(
        script, cwd=world.work.folder, env=os.environ | known, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stderr
    written = world.work.folder / steps["show"]["with"]["sarif_file"]
    results = json.loads(written.read_bytes())["runs"][0]["results"]
    places = {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results}
    assert places == {"a.md"}
