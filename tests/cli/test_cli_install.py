"""`judgekit install` and `judgekit uninstall` at the command line, and what doctor says of them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.hooks import git_hook, pre_commit

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run

SETTINGS = b'{\n\t"model": "opus"\n}'
IN, OUT = ("install", "claude-code"), ("uninstall", "claude-code")


@pytest.fixture
def user_file(project: Path, isolated: Path) -> Path:
    path = isolated / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_bytes(SETTINGS)
    return path


def test_in_and_out_of_the_users_settings_twice(judgekit: Run, project: Path, user_file: Path) -> None:
    done = judgekit(*IN)
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            f"wrote {user_file}: Claude Code runs judgekit on every prompt in all your projects",
            f"memories: {project}/.claude/memory",
            'try: judgekit hook --explain "…"; undo: judgekit uninstall claude-code --scope user',
        ],
    )
    assert set(json.loads(user_file.read_bytes())) == {"model", "hooks"}
    content, time = user_file.read_bytes(), user_file.stat().st_mtime_ns
    assert judgekit(*IN).out.startswith(f"nothing to change in {user_file}")
    assert (user_file.read_bytes(), user_file.stat().st_mtime_ns) == (content, time)
    done = judgekit(*OUT)
    assert (done.code, done.out) == (0, f"removed the hook from {user_file}\n")
    assert user_file.read_bytes() == SETTINGS
    done = judgekit(*OUT)
    assert (done.code, done.out) == (0, f"nothing to change: the hook is not in {user_file}\n")


@pytest.mark.parametrize(("scope", "name"), [("project", "settings.json"), ("local", "settings.local.json")])
def test_projects(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch, scope: str, name: str
) -> None:
    (project / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "er")
    path = project / ".claude" / name
    done = judgekit(*IN, "--scope", scope)
    assert done.out.startswith(f"wrote {path}: ")
    assert ("taking" in done.err, path.is_file()) == (False, True)
    assert judgekit(*OUT, "--scope", scope).out == f"removed {path}, which held nothing else\n"
    assert not path.exists()


def test_without_a_project_it_says_so(judgekit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = judgekit(*IN, "--scope", "project")
    none = "no project here (no .git, .judgekit or .claude/memory above)"
    assert f"{none}: taking {tmp_path} as one" in done.err
    assert "memories: none in this project yet" in done.out
    assert (tmp_path / ".claude" / "settings.json").is_file()


def test_print_changes_nothing(judgekit: Run, user_file: Path, isolated: Path) -> None:
    for command in ("install", "uninstall"):
        before = user_file.read_bytes()
        shown = judgekit(command, "claude-code", "--print")
        assert (shown.code, user_file.read_bytes()) == (0, before)
        assert shown.err.splitlines()[0] == f"judgekit: would write {user_file}"
        judgekit(command, "claude-code")
        assert shown.out.encode() == user_file.read_bytes() != before
        shown = judgekit(command, "claude-code", "--print")
        assert shown.out.encode() == user_file.read_bytes()
        assert "would stay as it is" in shown.err
    shutil.rmtree(user_file.parent)
    before_that = sorted(isolated.rglob("*"))
    assert "UserPromptSubmit" in judgekit(*IN, "--print").json["hooks"]
    done = judgekit(*OUT, "--print")
    assert (done.code, done.out, sorted(isolated.rglob("*"))) == (0, "", before_that)  # no folder is made
    judgekit(*IN)
    done = judgekit(*OUT, "--print")
    assert (done.out, "would remove" in done.err) == ("", True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{\n  "model": "opus",\n}', ":3: not valid JSON"),
        (b'{\n// why\n"model": "opus"}', ":2: not valid JSON"),
        (b'{\n"hooks": []}', ": hooks: expected an object of events"),
        (b"[]", ": expected an object of settings"),
        (b'{"a": "\xff"}', ":1: not UTF-8"),
    ],
)
def test_settings_beyond_editing_stay(judgekit: Run, user_file: Path, content: bytes, said: str) -> None:
    user_file.write_bytes(content)
    done = judgekit(*IN)
    assert (done.code, done.out, done.err.count("\n")) == (78, "", 1)
    assert done.err.startswith(f"judgekit: {user_file}{said}")
    assert user_file.read_bytes() == content


def test_wrong_usage_read_only_settings_and_hooks_that_are_off(judgekit: Run, user_file: Path) -> None:
    for arguments in ("claude-code --scope team", "claude-code --scope", "claude-code extra", "emacs"):
        assert judgekit("install", *arguments.split()).code == 64
    user_file.chmod(0o444)
    done = judgekit(*IN)
    assert (done.code, done.out, user_file.read_bytes()) == (65, "", SETTINGS)
    assert "read-only; make it writable" in done.err
    user_file.chmod(0o600)
    user_file.write_text('{"disableAllHooks": true}')
    done = judgekit(*IN)
    assert done.code == 0
    assert f"judgekit: {user_file} sets disableAllHooks" in done.err


def test_doctor_knows_each_scope(judgekit: Run, user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def states() -> tuple[dict[str, str], str]:
        done = judgekit("doctor")
        lines = [line.partition(" ") for line in done.out.splitlines()]
        found = {rest.strip().partition(": ")[0]: state for state, _, rest in lines}
        return {name: state for name, state in found.items() if name.startswith("prompt hook")}, done.out

    assert states()[0] == {"prompt hook": "note"}
    judgekit(*IN)
    judgekit(*IN, "--scope", "local")
    found, out = states()
    assert found == {"prompt hook": "ok", "prompt hook, user": "ok", "prompt hook, local": "ok"}
    assert out.count("it answers") == 2
    judgekit(*OUT, "--scope", "local")
    judgekit(*IN, "--scope", "project")
    assert "each prompt is answered 2 times" in states()[1]
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if not shutil.which("judgekit"):
        assert states()[0]["prompt hook, project"] == "note"
    judgekit(*OUT, "--scope", "project")
    hook = {"type": "command", "command": "/no/such/python3", "args": ["-m", "judgekit", "hook"]}
    user_file.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    done = judgekit("doctor")
    again = "run judgekit install claude-code --scope user again"
    assert f"its program /no/such/python3 no longer exists; {again}" in done.out
    assert done.code == 78
    judgekit(*IN)
    assert judgekit("doctor").code == 0


# git and pre-commit


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the hook of the repository will be; it is the current folder."""
    work = GitRepo(tmp_path / "work")
    monkeypatch.chdir(work.folder)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    return work.folder / ".git" / "hooks" / "pre-push"


def test_in_twice_and_out_twice(judgekit: Run, hook: Path) -> None:
    file = hook.parents[2] / pre_commit.FILE
    for command, path, what, lines in (
        (
            "git",
            hook,
            "judgekit's hook",
            [
                f"wrote {hook}: git runs the gate before a push",
                "mode: advisory, for **/*.md; undo: judgekit uninstall git",
            ],
        ),
        (
            "pre-commit",
            file,
            "the gate",
            [f"wrote {file}", "run once in each clone: pre-commit install --hook-type pre-push"],
        ),
    ):
        shown = judgekit("install", command, "--print")
        text = {"git": git_hook.text().decode(), "pre-commit": "id: judgekit-gate"}[command]
        assert (shown.code, text in shown.out, path.exists()) == (0, True, False)
        done = judgekit("install", command)
        assert (done.code, done.err, done.out.splitlines()) == (0, "", lines)
        assert judgekit("install", command).out.startswith(f"nothing to change in {path}")
        assert judgekit("uninstall", command).out == f"removed {path}\n"
        shown = judgekit("uninstall", command, "--print")
        assert (shown.code, text in shown.out, path.exists()) == (0, False, False)
        assert judgekit("uninstall", command).out == f"nothing to change: {what} is not in {path}\n"


def test_a_hook_that_was_there(judgekit: Run, hook: Path) -> None:
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


def test_it_says_the_mode_that_holds(judgekit: Run, hook: Path, tmp_path: Path) -> None:
    work = GitRepo(hook.parents[2])
    work.write(".judgekit/config.yaml", "gate: {mode: sometimes}\n")
    done = judgekit("install", "git")
    assert (done.code, "mode: unknown, " in done.out) == (0, True)
    work.write(".judgekit/config.yaml", "gate: {mode: blocking, paths: [docs/]}\n")
    assert "mode: blocking, for docs/;" in judgekit("install", "git").out
    origin = GitRepo(tmp_path / "origin.git", "--bare")
    work("remote", "add", "origin", str(origin.folder))
    work.write(".judgekit/config.yaml", "gate: {mode: blocking}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    work.write(".judgekit/config.yaml", "gate: {mode: advisory}\n")
    assert "mode: blocking, for **/*.md (the rules on origin);" in judgekit("install", "git").out


def test_doctor_and_no_repository_at_all(judgekit: Run, hook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"git hook: no {hook}; install it with judgekit install git" in judgekit("doctor").out
    judgekit("install", "git")
    assert f"ok     git hook: git runs {hook}" in judgekit("doctor").out
    hook.chmod(0o644)
    done = judgekit("doctor")
    assert (done.code, f"wrong  git hook: {hook} is not executable" in done.out) == (78, True)
    done = judgekit("install", "git", "--scope", "project")
    assert (done.code, "judgekit install pre-commit" in done.err) == (64, True)
    monkeypatch.chdir(hook.parents[3])
    done = judgekit("install", "git")
    assert (done.code, "no git repository" in done.err) == (64, True)
