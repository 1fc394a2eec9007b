"""What else decides whether the hook runs, and how often."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from judgekit.hooks import entries, install
from judgekit.hooks.install import SCOPES, Scope

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    subprocess.run(["git", "init", "--quiet", path], check=True, timeout=60)
    return path


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test depend on where this interpreter lies."""
    monkeypatch.setattr(sys, "prefix", "/opt/judgekit")


def write(scope: Scope, project: Path, **settings: object) -> None:
    path = install.settings_file(scope, project)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings))


def hooks(*each: dict[str, object]) -> dict[str, object]:
    return {"UserPromptSubmit": [{"hooks": list(each)}]}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_switch_that_stops_all_hooks_is_said(scope: Scope, project: Path) -> None:
    write(scope, project, disableAllHooks=True)
    (line,) = install.switched_off(project)
    assert line.startswith(f"{install.settings_file(scope, project)} sets disableAllHooks")
    assert line in list(install.notes("user", project))
    write(scope, project, disableAllHooks=False)
    assert list(install.switched_off(project)) == []


@pytest.mark.parametrize("name", ["managed-settings.json", "managed-settings.d/20-hooks.json"])
@pytest.mark.parametrize("switch", ["allowManagedHooksOnly", "disableAllHooks"])
def test_a_policy_is_said(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, switch: str
) -> None:
    monkeypatch.setattr(install, "MANAGED", {sys.platform: str(tmp_path)})
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(json.dumps({switch: True}))
    (line,) = install.switched_off(project)
    assert line == f"{tmp_path / name} (managed) sets {switch}: Claude Code runs no hook of yours"


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"', "[" * 100_000, '{"disableAllHooks": "yes"}'])
def test_unreadable_settings_say_nothing(project: Path, content: str) -> None:
    path = install.settings_file("local", project)
    path.parent.mkdir()
    path.write_text(content)
    assert list(install.switched_off(project)) == []
    assert install.installed("local", project) == []
    assert not install.plugin_enabled(project)


def test_equal_commands_are_one_answer(project: Path) -> None:
    write("user", project, hooks=hooks(entries.fastest()))
    write("local", project, hooks=hooks(entries.fastest()))
    assert list(install.doubled(project)) == []


def test_different_commands_are_two(project: Path) -> None:
    write("user", project, hooks=hooks(entries.fastest()))
    write("project", project, hooks=hooks(entries.portable()))
    (line,) = install.doubled(project)
    assert "2 answers: the hook is in the user settings and in the project settings" in line


def test_the_plugin_is_one_more(project: Path) -> None:
    write(
        "user", project, hooks=hooks(entries.fastest()), enabledPlugins={"judgekit@shop": True, "x@y": True}
    )
    (line,) = install.doubled(project)
    assert "in the user settings and in the plugin" in line


@pytest.mark.parametrize(
    ("user", "local", "enabled"),
    [
        ({"judgekit@a": True}, None, True),
        ({"judgekit@a": True}, {"judgekit@a": False}, False),
        ({"judgekit@a": False}, {"judgekit@a": True}, True),
        ({"judgekit-other@a": True}, None, False),
        (["judgekit@a"], None, False),
    ],
)
def test_whether_the_plugin_is_on(project: Path, user: object, local: object, *, enabled: bool) -> None:
    write("user", project, enabledPlugins=user)
    write("local", project, **({} if local is None else {"enabledPlugins": local}))
    assert install.plugin_enabled(project) is enabled


def test_a_hook_that_runs_us_among_other_things_is_said(project: Path) -> None:
    write("user", project, hooks=hooks({"type": "command", "command": "judgekit hook | tee log"}))
    lines = list(install.notes("user", project))
    assert ["judgekit hook | tee log" in line for line in lines] == [True]
    write("user", project, hooks={"UserPromptSubmit": [3, {"hooks": 3}, {"hooks": [3]}]})
    assert list(install.notes("user", project)) == []


def test_local_settings_that_git_would_take_are_said(project: Path) -> None:
    write("local", project)
    assert ["git does not ignore" in line for line in install.notes("local", project)] == [True]
    (project / ".gitignore").write_text(".claude/settings.local.json\n")
    assert list(install.notes("local", project)) == []


def test_without_git_there_is_nothing_to_ignore(tmp_path: Path, project: Path) -> None:
    write("local", tmp_path / "elsewhere")
    assert list(install.notes("local", tmp_path / "elsewhere")) == []


def test_a_shared_hook_that_finds_nothing_here_is_said(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ["not on this shell's PATH" in line for line in install.notes("project", project)] == [True]
    program = tmp_path / "judgekit"
    program.touch()
    program.chmod(0o755)
    assert list(install.notes("project", project)) == []


@pytest.mark.parametrize(
    ("prefix", "scope", "said"),
    [
        ("{tmp}/venv", "user", "a temporary folder"),
        ("{tmp}/venv", "local", "a temporary folder"),
        ("{home}/.cache/uv/environments-v2/x", "user", "a cache"),
        ("{project}/.venv", "user", "depends on this one's .venv"),
        ("{home}/.judgekit-venv", "user", None),
    ],
)
def test_an_interpreter_that_may_go_is_said(
    project: Path,
    tmp_path: Path,
    isolated: Path,
    monkeypatch: pytest.MonkeyPatch,
    prefix: str,
    scope: Scope,
    said: str | None,
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    where = prefix.format(tmp=tmp_path / "tmp", home=isolated, project=project)
    monkeypatch.setattr(sys, "prefix", where)
    (project / ".gitignore").write_text(".claude/\n")
    lines = list(install.notes(scope, project))
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


def test_a_projects_own_environment_may_serve_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/nowhere")
    monkeypatch.setattr(sys, "prefix", str(project / ".venv"))
    (project / ".gitignore").write_text(".claude/\n")
    assert list(install.notes("local", project)) == []
