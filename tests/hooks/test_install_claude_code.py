"""The hook in Claude Code's settings files, in and out again; which hooks are ours; whether they answer."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from git_repo import GitRepo

from judgekit import programs
from judgekit.errors import InputError, UsageError
from judgekit.hooks import entries, files, install
from judgekit.hooks.clients import CLAUDE_CODE
from judgekit.hooks.install import SCOPES

if TYPE_CHECKING:
    from judgekit.hooks.entries import Scope


UNSET = ("note", "prompt hook", "not set up; judgekit install claude-code sets it up")
ORIGINALS = [
    None,
    b"",
    b" \n",
    b"{}",
    b'\xef\xbb\xbf{\r\n\t"model": "opus"\r\n}',
    b'{"model":1, "model": 2.50,\n\n  "hooks" : {"Stop":[ ]}, "a": "\\u00e9"}\n',
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return GitRepo(tmp_path / "project").folder


def tree(*folders: Path) -> dict[str, bytes | None]:
    """Map each path in the folders to its bytes, leaving out git's and our own in the home folder."""
    paths = [
        (path, path.relative_to(folder).parts)
        for folder in folders
        for path in sorted(folder.rglob("*"))
    ]
    ours = {"judgekit", ".git"}
    return {
        str(path): None if path.is_dir() else path.read_bytes()
        for path, parts in paths
        if not ours & {*parts}
    }


def put(scope: Scope, project: Path) -> files.FileChange:
    change = install.plan_install(scope, project)
    files.install(change)
    return change


def take_out(scope: Scope, project: Path) -> files.FileChange:
    change = install.plan_uninstall(scope, project)
    files.uninstall(change)
    return change


def write(scope: Scope, project: Path, content: bytes | dict[str, Any]) -> Path:
    path = install.get_settings_path(scope, project)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def hooks(*each: dict[str, Any], event: str = "UserPromptSubmit") -> dict[str, Any]:
    return {"hooks": {event: [{"hooks": list(each)}]}}


@pytest.mark.parametrize("scope", SCOPES)
def test_in_and_out_leaves_no_trace(scope: Scope, project: Path, isolated: Path) -> None:
    for original in ORIGINALS:
        if original is not None:
            write(scope, project, original)
        before = tree(project, isolated)
        change = put(scope, project)
        assert change.has_changes
        form = (
            entries.build_portable_entry() if scope == "project" else entries.build_fastest_entry()
        )
        written = json.loads((change.after or b"").decode("utf-8-sig"))
        assert written["hooks"]["UserPromptSubmit"][0]["hooks"] == [form]
        assert (str(programs.ROOT).encode() in change.path.read_bytes()) == (scope != "project")
        assert stat.S_IMODE(files.get_records_path().stat().st_mode) == 0o600, (
            "settings may hold keys"
        )
        assert not put(scope, project).has_changes
        assert take_out(scope, project).has_changes
        assert tree(project, isolated) == before
        assert not take_out(scope, project).has_changes
        assert not files.get_records_path().exists()


def test_no_record_of_the_installation_is_needed_nor_a_place_for_it(
    project: Path, isolated: Path
) -> None:
    write("local", project, b'{\n  "model": "opus"\n}\n')
    before = tree(project, isolated)
    for record in ("{", '{"folders": 3, "files": 4}', "\x00"):
        put("local", project)
        files.get_records_path().write_text(record)
        take_out("local", project)
        assert tree(project, isolated) == before, record
    shutil.rmtree(isolated / "judgekit")
    (isolated / "judgekit").write_text("a file in our folder's place")
    put("local", project)
    take_out("local", project)
    assert tree(project).items() <= before.items()


def test_folders_and_edits_of_others_stay(project: Path) -> None:
    (project / ".claude").mkdir()
    put("project", project)
    take_out("project", project)
    (project / ".claude").rmdir()  # it was there before, so it is there now
    put("project", project)
    put("local", project)
    take_out("project", project)
    assert (project / ".claude").is_dir(), "the second file is in it"
    (project / ".claude" / "agents").mkdir()
    take_out("local", project)
    (project / ".claude" / "agents").rmdir()
    path = put("project", project).path
    path.write_bytes(path.read_bytes().replace(b"{\n", b'{\n  "model": "opus",\n', 1))
    take_out("project", project)
    assert path.read_bytes() == b'{\n  "model": "opus"\n}\n'
    change = install.plan_install("project", project)
    path.write_bytes(b'{"theirs": 1}')
    with pytest.raises(InputError):
        files.install(change)
    assert path.read_bytes() == b'{"theirs": 1}'
    assert files.find_record(path) is None


def test_the_clients_folder_can_be_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    assert install.get_settings_path("user", project) == isolated / ".claude" / "settings.json"
    with pytest.raises(UsageError, match="--scope user"):  # a project in the home folder
        install.plan_install("project", isolated)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    put("user", project)
    assert (tmp_path / "elsewhere" / "settings.json").is_file()
    assert not (isolated / ".claude").exists()
    take_out("user", project)
    assert not (tmp_path / "elsewhere").exists()


def command(program: str, *args: str) -> dict[str, Any]:
    return {"type": "command", "command": program, "args": list(args)}


def script(folder: Path, text: str) -> dict[str, Any]:
    program = folder / "judgekit"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return command(str(program), "hook")


def test_the_hook_answers_whatever_is_configured(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "config.yaml").write_text("retrieval: {enabled: false}\n")
    monkeypatch.setenv("JUDGEKIT_DISABLE", "1")
    assert install.find_problem(entries.build_fastest_entry()) is None
    assert install.find_problem(command(sys.executable, "-m", "judgekit", "hook")) is None
    shell = {"type": "command", "command": f"'{sys.executable}' -P -m judgekit hook"}
    assert install.find_problem(shell) is None
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert install.find_problem(entries.build_portable_entry()) is None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if not shutil.which("judgekit"):
        assert (
            install.find_problem(entries.build_portable_entry())
            == "its program judgekit is not on this shell's PATH"
        )
    assert [path.name for path in (isolated / "judgekit").iterdir()] == ["config.yaml"]


def test_what_does_not_answer_is_said(tmp_path: Path) -> None:
    for text, said in (
        ("echo hello", "it does not respond: it prints nothing"),
        ("echo wrong >&2; echo worse >&2; exit 2", "it ends with code 2: worse"),
        ("exec sleep 30", "it does not respond within 2 s"),
    ):
        assert install.find_problem(script(tmp_path, text), deadline=2) == said
    hook = command(sys.executable, *entries.PYTHON_OPTIONS, entries.build_code(str(tmp_path)))
    assert "No module named 'judgekit'" in str(install.find_problem(hook))
    hook = entries.build_fastest_entry(str(tmp_path / "bin" / "python3"))
    assert install.find_problem(hook) == f"its program {tmp_path}/bin/python3 no longer exists"
    hook = script(tmp_path, "exit 0")
    Path(hook["command"]).chmod(0o644)
    assert install.find_problem(hook) == "it cannot be started (Permission denied)"


@pytest.mark.parametrize("scope", SCOPES)
def test_a_hook_is_found_and_a_clones_command_is_not_run(
    scope: Scope, project: Path, tmp_path: Path
) -> None:
    """Files in a project's folder may come from anybody; the user's own settings don't."""
    assert list(install.check_prompt_hooks(project)) == [UNSET]
    put(scope, project)
    where = ("ok", "prompt hook", f"set up in the {scope} settings")
    subject, path = f"prompt hook, {scope}", install.get_settings_path(scope, project)
    form = "the portable form" if scope == "project" else f"the fastest form, {sys.executable}"
    found = list(install.check_prompt_hooks(project))
    assert [each[:2] for each in found] == [where[:2], (found[1][0], subject)]
    assert found[1][2].startswith(f"{path}: {form}")
    write(scope, project, hooks(script(tmp_path, f"touch '{tmp_path}/run'")))
    said, (state, _, text), *_ = install.check_prompt_hooks(project)
    assert said == where
    assert (tmp_path / "run").exists() is (scope == "user")
    assert state == ("wrong" if scope == "user" else "ok")
    assert ("it does not respond: it prints nothing; run judgekit" in text) is (scope == "user")
    assert ("not run: decide yourself whether to trust" in text) is (scope != "user")


def test_other_forms_missing_events_and_broken_settings(project: Path) -> None:
    write("local", project, hooks(entries.build_fastest_entry("/no/such/python3")))
    _, (state, _, text), *_ = install.check_prompt_hooks(project)
    assert state == "wrong"
    assert (
        "the fastest form, /no/such/python3: its program /no/such/python3 no longer exists; run"
        in text
    )
    write(
        "local",
        project,
        hooks({"type": "command", "command": "judgekit hook"}, event="PostToolUse"),
    )
    *_, (state, _, text) = install.check_prompt_hooks(project)
    assert (state, "not called on UserPromptSubmit, Stop, SessionStart; run judgekit" in text) == (
        "note",
        True,
    )
    for content in ("", "{", "[]", "[" * 100_000, '{"disableAllHooks": "yes"}'):
        write("local", project, content.encode())
        assert list(install.list_notes(project)) == []
        ((state, _, _),) = found = list(install.check_prompt_hooks(project))
        assert (state == "wrong") is (content in ("{", "[]", "[" * 100_000)) is (found != [UNSET])
        assert not install.is_plugin_enabled(project)


def test_what_stops_all_hooks_is_said(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "MANAGED_FOLDER_BY_PLATFORM", {sys.platform: str(tmp_path)})
    (tmp_path / "managed-settings.d").mkdir()
    for path, switch in (
        (write("local", project, {}), "disableAllHooks"),
        (tmp_path / "managed-settings.json", "allowManagedHooksOnly"),
        (tmp_path / "managed-settings.d/20-hooks.json", "disableAllHooks"),
    ):
        path.write_text(json.dumps({switch: True}))
        (line,) = install.list_notes(project)
        assert line.startswith(str(path))
        assert f" sets {switch}: Claude Code runs no" in line
        path.write_text(json.dumps({switch: False}))


def test_how_often_a_prompt_is_answered(project: Path) -> None:
    write("user", project, hooks(entries.build_fastest_entry()))
    write("local", project, hooks(entries.build_fastest_entry()))
    assert list(install.list_notes(project)) == [], "equal commands are one answer"
    write("project", project, hooks(entries.build_portable_entry()))
    (line,) = install.list_notes(project)
    assert "answered 2 times: the hook is in the user settings and in the project settings" in line
    for enabled in (True, False):  # the narrower scope's word holds
        write("project", project, {"enabledPlugins": {"judgekit@shop": True, "x@y": True}})
        write(
            "local",
            project,
            hooks(entries.build_fastest_entry()) | {"enabledPlugins": {"judgekit@shop": enabled}},
        )
        said = [
            "in the user settings and in the plugin" in line for line in install.list_notes(project)
        ]
        assert said == [True] * enabled


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_bytes(b"old")
    return path


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_content_is_replaced_and_mode_and_owner_stay(file: Path) -> None:
    for mode in (0o600, 0o664, 0o755):
        file.write_bytes(b"old")
        file.chmod(mode)
        os.utime(file, (1, 1))
        assert files.replace(file, b"old", b"new") == []
        assert file.read_bytes() == b"new"
        assert stat.S_IMODE(file.stat().st_mode) == mode
        assert file.stat().st_mtime > 1, "who watches the file by its time must see the change"
    if os.geteuid() == 0:  # only root may give a file away
        os.chown(file, 12345, 23456)
        files.replace(file, b"new", b"newer")
        assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)
    assert only(file.parent) == ["settings.json"]


def test_links_of_the_user_are_followed(tmp_path: Path, file: Path) -> None:
    link = tmp_path / "home" / "settings.json"
    link.parent.mkdir()
    link.symlink_to("../settings.json")
    # A link to nothing is followed both ways.
    changes = [(b"old", b"new"), (b"new", None), (None, b"again"), (b"again", None)]
    for before, after in changes:
        files.replace(link, before, after, is_user_file=True)
        assert link.is_symlink()
        assert files.read_content(file) == after
    assert (only(link.parent), only(tmp_path)) == (["settings.json"], ["home"])


def test_a_strangers_edit_is_not_overwritten_nor_a_removal_undone(file: Path) -> None:
    changes: list[tuple[bytes | None, bytes | None]] = [
        (b"older", b"new"),
        (None, b"new"),
        (b"older", None),
    ]
    for before, after in changes:
        with pytest.raises(InputError, match="another program just changed it"):
            files.replace(file, before, after)
        assert (file.read_bytes(), only(file.parent)) == (b"old", ["settings.json"])
    file.unlink()
    with pytest.raises(InputError):
        files.replace(file, b"old", b"new")
    assert only(file.parent) == []


@pytest.mark.parametrize("before", [b"old", None])
def test_parallel_edit(file: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None) -> None:
    real = os.fsync

    def meddle(descriptor: int) -> None:
        file.write_bytes(b"theirs")
        real(descriptor)

    if before is None:
        file.unlink()
    monkeypatch.setattr(os, "fsync", meddle)
    with pytest.raises(InputError, match="another program just changed it"):
        files.replace(file, before, b"new")
    assert file.read_bytes() == b"theirs"
    assert only(file.parent) == ["settings.json"]


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
                files.replace(tmp_path / "a" / "settings.json", None, b"new")
            assert only(tmp_path) == []
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "no links here")))
    path = tmp_path / "a" / "b" / "settings.json"
    assert files.replace(path, None, b"new") == [tmp_path / "a", tmp_path / "a" / "b"]
    assert only(path.parent) == ["settings.json"]


def hook_of(command: object, *args: object, **more: object) -> dict[str, Any]:
    return {"type": "command", "command": command, **({"args": list(args)} if args else {}), **more}


OURS = [
    *(
        entries.build_fastest_entry(),
        entries.build_fastest_entry("/usr/bin/python3.13"),
        entries.build_portable_entry(),
    ),
    *map(hook_of, ("judgekit hook", "'/with space/judgekit' hook", "exec judgekit hook")),
    *map(hook_of, ("python3 -m judgekit hook", "uv run --project . judgekit hook")),
    *(
        hook_of("/home/you/.local/bin/judgekit", "hook"),
        hook_of(r"C:\Tools\judgekit.exe", "hook", timeout=60),
    ),
    hook_of("python3", "-m", "judgekit.hooks.claude_code"),
    hook_of("pypy3", "-I", "-S", "-c", entries.build_code("/opt/elsewhere/site-packages")),
    hook_of("/usr/bin/env", "JUDGEKIT_DISABLE=1", "python", "-m", "judgekit", "hook"),
]
NOT_OURS: list[object] = [
    *map(
        hook_of,
        (
            "judgekit hook_of && notify-send done",
            "log-prompt; judgekit hook",
            "judgekit hook_of | tee log",
        ),
    ),
    *map(
        hook_of,
        ("judgekit hook_of\nnotify-send done", "judgekit 'hook", "my-judgekit hook", "  ", None),
    ),
    *(
        hook_of("judgekit", "search"),
        hook_of("judgekit"),
        hook_of(["judgekit", "hook"]),
        hook_of("judgekit hook", ""),
    ),
    *(
        hook_of("python3", "-m"),
        hook_of("", "-c", 3),
        hook_of("python3", "-m", "judgekit", "search"),
    ),
    *(hook_of("python3", "-m", "judgekit_other", "hook"), hook_of("judgekit-other", "hook")),
    *(
        hook_of("/opt/judgekit/bin/other", "hook"),
        hook_of("python3", "/home/you/judgekit/other.py", "hook"),
    ),
    *(hook_of("python3", "-c", "print('judgekit.hooks')"), {"command": "judgekit hook"}),
    *({"type": "prompt", "prompt": "judgekit hook"}, {}, None, "judgekit hook", 3),
]


def test_which_hooks_are_ours_and_the_portable_form_names_no_place() -> None:
    for each in OURS:
        assert entries.is_ours(each), each
    for other in NOT_OURS:
        assert not entries.is_ours(other), other
    text = json.dumps(entries.build_portable_entry())
    assert sys.executable not in text
    assert programs.ROOT not in text


def test_the_portable_form_never_costs_the_prompt(tmp_path: Path) -> None:
    """Code 2, with which a stranger's `judgekit` would refuse our argument, erases a prompt."""
    there = 'read -r line || :; echo "$1 got $line"'
    program = tmp_path / "judgekit"
    for shell in ("/bin/sh", "/bin/bash"):
        program.unlink(missing_ok=True)
        for script in (None, there, "exit 2", "kill -9 $$"):
            if script is not None:
                program.write_text(f"#!/bin/sh\n{script}\n")
                program.chmod(0o755)
            done = subprocess.run(
                [shell, "-c", entries.PORTABLE_COMMAND],
                input=b"the prompt",
                env={"PATH": str(tmp_path)},
                capture_output=True,
                timeout=30,
                check=False,
            )
            printed = b"hook got the prompt\n" if script == there else b""
            assert (done.returncode, done.stdout) == (0, printed), script
            assert script is not None or done.stderr == b""


HOOK = entries.build_fastest_entry("/usr/bin/python3")
EDIT, STOP = HOOK | {"timeout": 10}, HOOK | {"timeout": 75}
FOREIGN = {"type": "command", "command": "notify-send", "args": ["prompt"]}
OLD = {"type": "command", "command": "judgekit", "args": ["hook"], "timeout": 10}
TOOLS = "Edit|Write|MultiEdit|NotebookEdit"
WHOLE = [
    ("UserPromptSubmit", None, HOOK),
    ("PostToolUse", TOOLS, EDIT),
    ("Stop", None, STOP),
    ("SessionStart", None, EDIT),
]
OTHER_HOOKS = {
    "hooks": {
        "UserPromptSubmit": [{"hooks": [FOREIGN]}],
        "PostToolUse": [{"matcher": "Bash", "hooks": [FOREIGN, FOREIGN]}],
        "SessionEnd": [3, {}, {"hooks": 1}, {"hooks": []}, None],
        "Nope": 3,
    },
    "disableAllHooks": False,
}


def installed_in(text: str, hook_of: dict[str, Any] = HOOK) -> str:
    return entries.add_hook(text, hook_of, "settings.json")


def uninstalled_from(text: str) -> str:
    return entries.remove_hooks(text, "settings.json")


def our_entries(text: str) -> list[tuple[object, ...]]:
    return sorted(
        map(tuple, entries.list_our_entries(entries.parse_settings(text, "settings.json"))), key=str
    )


def parsed(text: str) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(text.strip("\ufeff \r\n") or "{}")


def test_a_file_keeps_its_layout_and_another_form_replaces_ours() -> None:
    for text in (
        *("", " \r\n", "\ufeff"),
        '{\n  "model": "opus"\n}\n',
        '{\n  "model": "opus"\n}',
        '\ufeff{\n    "permissions": {\n        "allow": [\n            "Bash"\n        ]\n    }\n}\n\n\n',
        '{\r\n  "model": "opus"\r\n}\r\n',
        '{\n\t"model": "opus",\n\t"hooks": {\n\t\t"SessionEnd": []\n\t}\n}\n',
        '{\n"model": "opus"\n}\n',
        '{"model": "opus", "env": {"A": "b"}}',
        '{"公司": "Ünïcödé \u200b\u2028 🙂"}',
        '{"caf\\u00e9": "\\ud83d\\ude00"}',
        json.dumps(OTHER_HOOKS, indent=3),
    ):
        there = installed_in(text)
        assert our_entries(there) == sorted(WHOLE, key=str)
        assert installed_in(there) == there
        assert uninstalled_from(there) == (text if text.strip("\ufeff \r\n") else "")
        assert ("\r\n" in text) == ("\r\n" in there)
        rest = iter(there)
        assert all(character in rest for character in text), "what stood there still stands there"
        for second in (
            entries.build_portable_entry(),
            OLD,
            entries.build_fastest_entry("/elsewhere/python3"),
        ):
            changed = installed_in(there, second)
            assert our_entries(changed) == sorted(
                (
                    (
                        event,
                        matcher,
                        second
                        | {
                            "timeout": entries.TIMEOUT_SECONDS_BY_EVENT.get(
                                event, entries.DEFAULT_TIMEOUT_SECONDS
                            )
                        },
                    )
                    for event, matcher in CLAUDE_CODE.events.items()
                ),
                key=str,
            )
            assert installed_in(changed) == there


def test_an_earlier_installation_is_completed_and_an_edited_file_keeps_its_edits() -> None:
    earlier = [
        {"UserPromptSubmit": [{"hooks": [HOOK]}]},
        {"Stop": [{"hooks": [HOOK]}]},  # its time is too short to judge anything
        {
            "UserPromptSubmit": [{"hooks": [FOREIGN, OLD]}, {"hooks": [HOOK]}],
            "SessionEnd": [{"hooks": [OLD]}],
        },
    ]
    for hooks in earlier:
        assert our_entries(installed_in(json.dumps({"hooks": hooks}))) == sorted(WHOLE, key=str), (
            hooks
        )
    edited = installed_in('{\n  "model": "opus"\n}\n').replace(
        '"opus"', '"haiku",\n  "env": {\n    "A": "b"\n  }'
    )
    assert uninstalled_from(edited) == '{\n  "model": "haiku",\n  "env": {\n    "A": "b"\n  }\n}\n'
    assert parsed(installed_in('{"a": "\\ud800 ü"}'))["a"] == "\ud800 ü"
