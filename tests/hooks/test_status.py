"""Whether the hook is set up, and whether it answers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from judgekit.hooks import entries, install, launch
from judgekit.hooks.install import SCOPES, Scope


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / ".git").mkdir(parents=True)
    return path


def write(scope: Scope, project: Path, hook: dict[str, Any], event: str = "UserPromptSubmit") -> None:
    path = install.settings_file(scope, project)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": {event: [{"hooks": [hook]}]}}))


def command(program: str, *args: str) -> dict[str, Any]:
    return {"type": "command", "command": program, "args": list(args)}


def script(folder: Path, text: str) -> dict[str, Any]:
    """Return a hook of ours whose program does something else."""
    program = folder / "judgekit"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return command(str(program), "hook")


@pytest.mark.parametrize(
    "hook",
    [
        entries.fastest(),
        command(sys.executable, "-m", "judgekit", "hook"),
        {"type": "command", "command": f"'{sys.executable}' -P -m judgekit hook"},
    ],
    ids=["fastest", "module", "shell"],
)
def test_the_hook_answers(hook: dict[str, Any]) -> None:
    assert install.problem(hook) is None


def test_the_portable_form_answers_where_judgekit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert install.problem(entries.portable()) is None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if not shutil.which("judgekit"):
        assert install.problem(entries.portable()) == "its program judgekit is not on this shell's PATH"


def test_the_users_configuration_has_no_say(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "config.yaml").write_text("retrieval: {enabled: false}\n")
    monkeypatch.setenv("JUDGEKIT_DISABLE", "1")
    assert install.problem(entries.fastest()) is None
    assert [path.name for path in (isolated / "judgekit").iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 0", "it does not answer: it says nothing"),
        ("echo hello", "it does not answer: it says nothing"),
        ("echo wrong >&2; echo worse >&2; exit 2", "it ends with code 2: worse"),
        ("exec sleep 30", "it does not answer within 2 s"),
    ],
)
def test_what_does_not_answer_is_said(tmp_path: Path, text: str, said: str) -> None:
    assert install.problem(script(tmp_path, text), deadline=2) == said


def test_a_package_that_is_gone_is_said(tmp_path: Path) -> None:
    hook = command(sys.executable, *launch.OPTIONS, launch.code(str(tmp_path)))
    assert "No module named 'judgekit'" in str(install.problem(hook))


def test_an_interpreter_that_is_gone_is_said(tmp_path: Path) -> None:
    hook = entries.fastest(str(tmp_path / "bin" / "python3"))
    assert install.problem(hook) == f"its program {tmp_path}/bin/python3 is gone"


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    hook = script(tmp_path, "exit 0")
    Path(hook["command"]).chmod(0o644)
    assert install.problem(hook) == "it cannot be started (Permission denied)"


def test_nothing_is_set_up_at_first(project: Path) -> None:
    assert list(install.findings(project)) == []


@pytest.mark.parametrize("scope", SCOPES)
def test_each_scope_is_found(scope: Scope, project: Path) -> None:
    install.install(install.planned_install(scope, project))
    (scope_status,) = install.findings(project)
    assert (scope_status.scope, scope_status.path) == (scope, install.settings_file(scope, project))
    assert scope_status.portable is (scope == "project")
    assert scope_status.asked
    assert scope_status.missing == ()
    assert scope_status.form.startswith("the portable form" if scope == "project" else "the fastest form, /")


@pytest.mark.parametrize("scope", ["project", "local"])
def test_a_command_of_a_clone_is_not_run(scope: Scope, project: Path, tmp_path: Path) -> None:
    """What stands in a project's folder may come from anybody."""
    write(scope, project, script(tmp_path, f"touch '{tmp_path}/run'"))
    (scope_status,) = install.findings(project)
    assert not scope_status.asked
    assert scope_status.problem is None
    assert not (tmp_path / "run").exists()


def test_a_command_of_the_user_is_run(project: Path, tmp_path: Path) -> None:
    write("user", project, script(tmp_path, f"touch '{tmp_path}/run'"))
    (scope_status,) = install.findings(project)
    assert scope_status.asked
    assert scope_status.problem == "it does not answer: it says nothing"
    assert (tmp_path / "run").exists()


def test_an_interpreter_of_a_clone_that_is_gone_is_said(project: Path) -> None:
    write("local", project, entries.fastest("/no/such/python3"))
    (scope_status,) = install.findings(project)
    assert scope_status.problem == "its program /no/such/python3 is gone"
    assert scope_status.form == "the fastest form of another installation, /no/such/python3"


def test_events_that_are_missing_are_named(project: Path) -> None:
    write("user", project, command(sys.executable, "-m", "judgekit", "hook"))
    (scope_status,) = install.findings(project)
    assert scope_status.missing == ("PostToolUse", "Stop", "SessionStart")
    assert scope_status.form == f"another form, {sys.executable} -m judgekit hook"
    write("user", project, entries.fastest(), event="PostToolUse")
    (scope_status,) = install.findings(project)
    assert scope_status.missing == ("UserPromptSubmit", "Stop", "SessionStart")
