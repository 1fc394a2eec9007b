"""`judgekit install` and `judgekit uninstall` at the command line, and what doctor says of them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from outcome import Outcome

SETTINGS = b'{\n\t"model": "opus"\n}'


@pytest.fixture
def user_file(isolated: Path) -> Path:
    path = isolated / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_bytes(SETTINGS)
    return path


def test_it_says_what_where_and_how_to_undo(
    judgekit: Callable[..., Outcome], project: Path, user_file: Path
) -> None:
    done = judgekit("install", "claude-code")
    assert done.code == 0
    first, second, third = done.out.splitlines()
    assert first == f"wrote {user_file}: Claude Code runs judgekit on every prompt in all your projects"
    assert second == f"memories: {project}/.claude/memory"
    assert third == 'try: judgekit hook --explain "…"; undo: judgekit uninstall claude-code --scope user'
    assert set(json.loads(user_file.read_bytes())) == {"model", "hooks"}


def test_twice_is_once_and_out_again(
    judgekit: Callable[..., Outcome], project: Path, user_file: Path
) -> None:
    judgekit("install", "claude-code")
    content, time = user_file.read_bytes(), user_file.stat().st_mtime_ns
    done = judgekit("install", "claude-code")
    assert done.out.startswith(f"nothing to change in {user_file}")
    assert (user_file.read_bytes(), user_file.stat().st_mtime_ns) == (content, time)
    done = judgekit("uninstall", "claude-code")
    assert (done.code, done.out) == (0, f"removed the hook from {user_file}\n")
    assert user_file.read_bytes() == SETTINGS
    done = judgekit("uninstall", "claude-code")
    assert (done.code, done.out) == (0, f"nothing to change: the hook is not in {user_file}\n")


@pytest.mark.parametrize(("scope", "name"), [("project", "settings.json"), ("local", "settings.local.json")])
def test_the_projects_files(
    judgekit: Callable[..., Outcome],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    scope: str,
    name: str,
) -> None:
    (project / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(project / "deep" / "er")
    path = project / ".claude" / name
    done = judgekit("install", "claude-code", "--scope", scope)
    assert done.out.startswith(f"wrote {path}: ")
    assert "taking" not in done.err
    assert path.is_file()
    done = judgekit("uninstall", "claude-code", "--scope", scope)
    assert done.out == f"removed {path}, which held nothing else\n"
    assert not path.exists()


def test_without_a_project_it_says_which_folder_is_taken(
    judgekit: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = judgekit("install", "claude-code", "--scope", "project")
    assert (
        f"no project here (no .git, .judgekit or .claude/memory above): taking {tmp_path} as one" in done.err
    )
    assert "memories: none in this project yet" in done.out
    assert (tmp_path / ".claude" / "settings.json").is_file()


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_print_changes_nothing(
    judgekit: Callable[..., Outcome], project: Path, user_file: Path, command: str
) -> None:
    if command == "uninstall":
        judgekit("install", "claude-code")
    before = user_file.read_bytes()
    shown = judgekit(command, "claude-code", "--print")
    assert shown.code == 0
    assert user_file.read_bytes() == before
    assert shown.err.splitlines()[0] == f"judgekit: would write {user_file}"
    judgekit(command, "claude-code")
    assert shown.out.encode() == user_file.read_bytes() != before
    shown = judgekit(command, "claude-code", "--print")
    assert shown.out.encode() == user_file.read_bytes()
    assert "would stay as it is" in shown.err


def test_print_makes_no_folder(judgekit: Callable[..., Outcome], project: Path, isolated: Path) -> None:
    done = judgekit("install", "claude-code", "--print")
    assert "UserPromptSubmit" in done.json["hooks"]
    assert list(isolated.iterdir()) == []
    done = judgekit("uninstall", "claude-code", "--print")
    assert (done.code, done.out) == (0, "")
    judgekit("install", "claude-code")
    done = judgekit("uninstall", "claude-code", "--print")
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
def test_settings_that_cannot_be_edited_stay(
    judgekit: Callable[..., Outcome], project: Path, user_file: Path, content: bytes, said: str
) -> None:
    user_file.write_bytes(content)
    done = judgekit("install", "claude-code")
    assert (done.code, done.out) == (78, "")
    assert done.err.startswith(f"judgekit: {user_file}{said}")
    assert done.err.count("\n") == 1
    assert user_file.read_bytes() == content


def test_read_only_settings_stay(judgekit: Callable[..., Outcome], project: Path, user_file: Path) -> None:
    user_file.chmod(0o444)
    done = judgekit("install", "claude-code")
    assert (done.code, done.out) == (65, "")
    assert "read-only; make it writable" in done.err
    assert user_file.read_bytes() == SETTINGS


def test_wrong_usage_and_switched_off_hooks_are_said(
    judgekit: Callable[..., Outcome], project: Path, user_file: Path
) -> None:
    for arguments in (["--scope", "team"], ["--scope"], ["extra"]):
        assert judgekit("install", "claude-code", *arguments).code == 64
    assert judgekit("install", "emacs").code == 64
    user_file.write_text('{"disableAllHooks": true}')
    done = judgekit("install", "claude-code")
    assert done.code == 0
    assert f"judgekit: {user_file} sets disableAllHooks" in done.err


def hook_lines(done: Outcome) -> dict[str, str]:
    """Return doctor's lines about the hook: state by subject."""
    found = {}
    for line in done.out.splitlines():
        state, _, rest = line.partition(" ")
        subject = rest.strip().partition(": ")[0]
        if subject.startswith("prompt hook"):
            found[subject] = state
    return found


def test_doctor_knows_each_scope(judgekit: Callable[..., Outcome], project: Path) -> None:
    assert hook_lines(judgekit("doctor")) == {"prompt hook": "note"}
    judgekit("install", "claude-code")
    judgekit("install", "claude-code", "--scope", "local")
    done = judgekit("doctor")
    assert hook_lines(done) == {"prompt hook": "ok", "prompt hook, user": "ok", "prompt hook, local": "ok"}
    assert done.out.count("it answers") == 2


def test_doctor_finds_two_answers(
    judgekit: Callable[..., Outcome], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgekit("install", "claude-code")
    judgekit("install", "claude-code", "--scope", "project")
    done = judgekit("doctor")
    assert "each prompt is answered 2 times" in done.out
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if not shutil.which("judgekit"):
        assert hook_lines(judgekit("doctor"))["prompt hook, project"] == "note"


def test_doctor_finds_an_interpreter_that_is_gone(
    judgekit: Callable[..., Outcome], project: Path, user_file: Path
) -> None:
    hook = {"type": "command", "command": "/no/such/python3", "args": ["-m", "judgekit", "hook"]}
    user_file.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    done = judgekit("doctor")
    assert done.code == 78
    assert (
        "its program /no/such/python3 no longer exists; run judgekit install claude-code --scope user again"
    ) in done.out
    judgekit("install", "claude-code")
    assert judgekit("doctor").code == 0
