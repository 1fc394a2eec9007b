"""The hook in Claude Code's settings files, and out again; whether it answers there, and how often."""

from __future__ import annotations

import json
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from git_repo import GitRepo

from judgekit import programs
from judgekit.errors import ConfigError, InputError, UsageError
from judgekit.hooks import entries, files, install
from judgekit.hooks.install import SCOPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.hooks.entries import Scope

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


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test depend on where this interpreter lies."""
    monkeypatch.setattr(sys, "prefix", "/opt/judgekit")


def tree(*folders: Path) -> dict[str, bytes | None]:
    return {str(path): content for folder in folders for path, content in walk(folder)}


def walk(folder: Path) -> Iterator[tuple[Path, bytes | None]]:
    for path in sorted(folder.rglob("*")):
        if not {"judgekit", ".git"} & {*path.relative_to(folder).parts}:  # our own folder, in the home folder
            yield path, None if path.is_dir() else path.read_bytes()


def put(scope: Scope, project: Path, python: str | None = None) -> files.FileChange:
    change = install.planned_change(scope, project, python, installs=True)
    files.install(change)
    return change


def take_out(scope: Scope, project: Path) -> files.FileChange:
    change = install.planned_change(scope, project, installs=False)
    files.uninstall(change)
    return change


def write(scope: Scope, project: Path, content: bytes | dict[str, Any]) -> Path:
    path = install.settings_file(scope, project)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def hooks(*each: dict[str, Any], event: str = "UserPromptSubmit") -> dict[str, Any]:
    return {"hooks": {event: [{"hooks": list(each)}]}}


@pytest.mark.parametrize("original", ORIGINALS)
@pytest.mark.parametrize("scope", SCOPES)
def test_in_and_out_leaves_no_trace(
    scope: Scope, original: bytes | None, project: Path, isolated: Path
) -> None:
    if original is not None:
        write(scope, project, original)
    before = tree(project, isolated)
    change = put(scope, project)
    assert change.changes
    assert tree(project, isolated) != before
    assert stat.S_IMODE(files.location().stat().st_mode) == 0o600, "settings may hold keys"
    assert not put(scope, project).changes
    if scope != "project":
        assert put(scope, project, "/elsewhere/python3").changes
    assert take_out(scope, project).changes
    assert tree(project, isolated) == before
    assert not take_out(scope, project).changes
    assert not files.location().exists()


def test_no_record_of_the_installation_is_needed(project: Path, isolated: Path) -> None:
    write("local", project, b'{\n  "model": "opus"\n}\n')
    before = tree(project, isolated)
    for record in (None, "[]", "{", '{"folders": 3, "files": 4}', '{"folders": [1]}', "\x00"):
        put("user", project)
        put("local", project)
        if record is None:
            shutil.rmtree(isolated / "judgekit")
        else:
            files.location().write_text(record)
        take_out("user", project)
        take_out("local", project)
        assert tree(project, isolated) == before, record


def test_a_record_that_an_earlier_version_wrote_is_read(project: Path) -> None:
    paths = [put(scope, project).path for scope in ("project", "local")]
    folder = str(project / ".claude")
    earlier = {"folders": [folder], "files": {str(paths[0]): True, str(paths[1]): False}}
    files.location().write_text(json.dumps(earlier))
    take_out("project", project)
    take_out("local", project)
    assert paths[0].read_bytes() == b"", "it was there, empty"
    assert not paths[1].exists()


def test_an_installation_does_not_fail_for_its_records_sake(project: Path, isolated: Path) -> None:
    (isolated / "judgekit").write_text("a file in our folder's place")
    put("project", project)
    take_out("project", project)
    assert not (project / ".claude").exists()


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
    assert (project / ".claude" / "agents").is_dir()
    (project / ".claude" / "agents").rmdir()
    path = put("project", project).path
    path.write_bytes(path.read_bytes().replace(b"{\n", b'{\n  "model": "opus",\n', 1))
    take_out("project", project)
    assert path.read_bytes() == b'{\n  "model": "opus"\n}\n'


def test_an_edit_between_plan_and_writing_stays(project: Path) -> None:
    write("local", project, b"{}")
    change = install.planned_change("local", project, installs=True)
    assert change.path.read_bytes() == b"{}", "a plan writes nothing"
    change.path.write_bytes(b'{"theirs": 1}')
    with pytest.raises(InputError):
        files.install(change)
    assert change.path.read_bytes() == b'{"theirs": 1}'
    assert not files.location().exists()


def test_which_form_is_written(project: Path) -> None:
    for scope in SCOPES:
        form = entries.portable() if scope == "project" else entries.fastest()
        written = install.planned_change(scope, project, installs=True).after or b""
        assert json.loads(written)["hooks"]["UserPromptSubmit"][0]["hooks"] == [form]
        assert (str(programs.ROOT) in written.decode()) == (scope != "project")


def test_the_clients_folder_can_be_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    assert install.settings_file("user", project) == isolated / ".claude" / "settings.json"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    put("user", project)
    assert (tmp_path / "elsewhere" / "settings.json").is_file()
    assert not (isolated / ".claude").exists()
    take_out("user", project)
    assert not (tmp_path / "elsewhere").exists()


def test_a_project_in_the_home_folder_is_not_the_users_settings(isolated: Path) -> None:
    with pytest.raises(UsageError, match="--scope user"):
        install.planned_change("project", isolated, installs=True)
    assert not (isolated / ".claude").exists()


@pytest.mark.parametrize(("content", "line"), [(b'{\n"a": "\xe9"}', 2), ("{}".encode("utf-16"), 1)])
def test_what_is_not_utf8_is_refused(project: Path, content: bytes, line: int) -> None:
    write("local", project, content)
    for installs in (True, False):
        with pytest.raises(ConfigError, match=rf"settings.local.json:{line}: not UTF-8"):
            install.planned_change("local", project, installs=installs)


# Whether it answers.


def command(program: str, *args: str) -> dict[str, Any]:
    return {"type": "command", "command": program, "args": list(args)}


def script(folder: Path, text: str) -> dict[str, Any]:
    """Return a hook of ours whose program does something else."""
    program = folder / "judgekit"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return command(str(program), "hook")


def test_the_hook_answers_whatever_the_user_configured(
    isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "config.yaml").write_text("retrieval: {enabled: false}\n")
    monkeypatch.setenv("JUDGEKIT_DISABLE", "1")
    assert install.problem(entries.fastest()) is None
    assert install.problem(command(sys.executable, "-m", "judgekit", "hook")) is None
    shell = {"type": "command", "command": f"'{sys.executable}' -P -m judgekit hook"}
    assert install.problem(shell) is None
    assert [path.name for path in (isolated / "judgekit").iterdir()] == ["config.yaml"]


def test_the_portable_form_answers_where_judgekit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert install.problem(entries.portable()) is None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if not shutil.which("judgekit"):
        assert install.problem(entries.portable()) == "its program judgekit is not on this shell's PATH"


def test_what_does_not_answer_is_said(tmp_path: Path) -> None:
    for text, said in (
        ("echo hello", "it does not respond: it prints nothing"),
        ("echo wrong >&2; echo worse >&2; exit 2", "it ends with code 2: worse"),
        ("exec sleep 30", "it does not respond within 2 s"),
    ):
        assert install.problem(script(tmp_path, text), deadline=2) == said
    hook = command(sys.executable, *entries.OPTIONS, entries.code(str(tmp_path)))
    assert "No module named 'judgekit'" in str(install.problem(hook))
    hook = entries.fastest(str(tmp_path / "bin" / "python3"))
    assert install.problem(hook) == f"its program {tmp_path}/bin/python3 no longer exists"
    hook = script(tmp_path, "exit 0")
    Path(hook["command"]).chmod(0o644)
    assert install.problem(hook) == "it cannot be started (Permission denied)"


@pytest.mark.parametrize("scope", SCOPES)
def test_a_hook_is_found_and_a_command_of_a_clone_is_not_run(
    scope: Scope, project: Path, tmp_path: Path
) -> None:
    """What stands in a project's folder may come from anybody; the user's own settings do not."""
    assert list(install.findings(project)) == []
    put(scope, project)
    (status,) = install.findings(project)
    assert (status.scope, status.path) == (scope, install.settings_file(scope, project))
    assert (status.asked, status.missing, status.portable) == (True, (), scope == "project")
    assert status.form.startswith("the portable form" if scope == "project" else "the fastest form, /")
    write(scope, project, hooks(script(tmp_path, f"touch '{tmp_path}/run'")))
    (status,) = install.findings(project)
    assert status.asked is (tmp_path / "run").exists() is (scope == "user")
    assert status.problem == ("it does not respond: it prints nothing" if scope == "user" else None)


def test_other_forms_and_missing_events_are_named(project: Path) -> None:
    write("local", project, hooks(entries.fastest("/no/such/python3")))
    (status,) = install.findings(project)
    assert status.problem == "its program /no/such/python3 no longer exists"
    assert status.form == "the fastest form, of another installation, /no/such/python3"
    write("local", project, {})
    write("user", project, hooks(command(sys.executable, "-m", "judgekit", "hook")))
    (status,) = install.findings(project)
    assert status.missing == ("PostToolUse", "Stop", "SessionStart")
    assert status.form == f"another form, {sys.executable} -m judgekit hook"
    write("user", project, hooks(entries.fastest(), event="PostToolUse"))
    (status,) = install.findings(project)
    assert status.missing == ("UserPromptSubmit", "Stop", "SessionStart")


# What else decides whether the hook runs, and how often.


def test_what_stops_all_hooks_is_said(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for scope in SCOPES:
        path = write(scope, project, {"disableAllHooks": True})
        (line,) = install.switched_off(project)
        assert line.startswith(f"{path} sets disableAllHooks")
        assert line in list(install.notes("user", project))
        write(scope, project, {"disableAllHooks": False})
        assert list(install.switched_off(project)) == []
    monkeypatch.setattr(install, "MANAGED", {sys.platform: str(tmp_path)})
    for name, switch in (
        ("managed-settings.json", "allowManagedHooksOnly"),
        ("managed-settings.d/20-hooks.json", "disableAllHooks"),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({switch: True}))
        (line,) = install.switched_off(project)
        assert line == f"{path} (managed) sets {switch}: Claude Code runs none of your hooks"
        path.unlink()


def test_unreadable_settings_say_nothing(project: Path) -> None:
    for content in ("", "{", "[]", "[" * 100_000, '{"disableAllHooks": "yes"}'):
        write("local", project, content.encode())
        assert list(install.switched_off(project)) == []
        assert list(install.findings(project)) == []
        assert not install.plugin_enabled(project)


def test_how_often_a_prompt_is_answered(project: Path) -> None:
    write("user", project, hooks(entries.fastest()))
    write("local", project, hooks(entries.fastest()))
    assert list(install.doubled(project)) == [], "equal commands are one answer"
    write("project", project, hooks(entries.portable()))
    (line,) = install.doubled(project)
    assert "answered 2 times: the hook is in the user settings and in the project settings" in line
    write("project", project, {"enabledPlugins": {"judgekit@shop": True, "x@y": True}})
    (line,) = install.doubled(project)
    assert "in the user settings and in the plugin" in line


def test_whether_the_plugin_is_on(project: Path) -> None:
    for user, local, enabled in (
        ({"judgekit@a": True}, None, True),
        ({"judgekit@a": True}, {"judgekit@a": False}, False),
        ({"judgekit@a": False}, {"judgekit@a": True}, True),
        ({"judgekit-other@a": True}, None, False),
        (["judgekit@a"], None, False),
    ):
        write("user", project, {"enabledPlugins": user})
        write("local", project, {} if local is None else {"enabledPlugins": local})
        assert install.plugin_enabled(project) is enabled


def test_notes(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def assert_notes(scope: Scope, *texts: str, folder: Path = project) -> None:
        assert [text in line for text, line in zip(texts, install.notes(scope, folder), strict=True)] == [
            True for _ in texts
        ]

    write("user", project, hooks(command("judgekit hook | tee log") | {"args": None}))
    assert_notes("user", "judgekit hook | tee log")
    write("user", project, {"hooks": {"UserPromptSubmit": [3, {"hooks": 3}, {"hooks": [3]}]}})
    assert_notes("user")
    write("local", project, {})
    assert_notes("local", "git does not ignore")
    (project / ".gitignore").write_text(".claude/settings.local.json\n")
    assert_notes("local")
    (tmp_path / "elsewhere" / ".claude").mkdir(parents=True)
    assert_notes("local", folder=tmp_path / "elsewhere")  # without git there is nothing to ignore
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_notes("project", "not on this shell's PATH")
    script(tmp_path, "")
    assert_notes("project")


def test_an_interpreter_that_may_go_is_said(
    project: Path, tmp_path: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (project / ".gitignore").write_text(".claude/\n")
    cases: list[tuple[Path, Scope, str | None]] = [
        (tmp_path / "tmp" / "venv", "user", "a temporary folder"),
        (tmp_path / "tmp" / "venv", "local", "a temporary folder"),
        (isolated / ".cache" / "uv" / "environments-v2" / "x", "user", "a cache"),
        (project / ".venv", "user", "now depends on .venv of this project"),
        (project / ".venv", "local", None),
        (isolated / ".judgekit-venv", "user", None),
    ]
    for prefix, scope, said in cases:
        monkeypatch.setattr(sys, "prefix", str(prefix))
        lines = list(install.notes(scope, project))
        assert len(lines) == (said is not None)
        assert said is None or said in lines[0]
