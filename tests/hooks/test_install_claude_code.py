"""The hook in Claude Code's settings files, and out again, folders and all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.errors import ConfigError, InputError, UsageError
from judgekit.hooks import entries, files
from judgekit.hooks import install as claude_code
from judgekit.hooks.install import SCOPES, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

ORIGINALS = [None, b"", b" \n", b"{}", b'\xef\xbb\xbf{\r\n\t"model": "opus"\r\n}', b'{"hooks":{"Stop":[]}}\n']


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / ".git").mkdir(parents=True)
    return path


def tree(*folders: Path) -> dict[str, bytes | None]:
    return {str(path): content for folder in folders for path, content in walk(folder)}


def walk(folder: Path) -> Iterator[tuple[Path, bytes | None]]:
    for path in sorted(folder.rglob("*")):
        if "judgekit" not in path.relative_to(folder).parts:  # our own folder, in the home folder
            yield path, None if path.is_dir() else path.read_bytes()


def install(scope: Scope, project: Path) -> claude_code.SettingsChange:
    change = claude_code.planned_install(scope, project)
    claude_code.install(change)
    return change


def uninstall(scope: Scope, project: Path) -> claude_code.SettingsChange:
    change = claude_code.planned_uninstall(scope, project)
    claude_code.uninstall(change)
    return change


def prepare(scope: Scope, project: Path, original: bytes | None) -> None:
    if original is not None:
        path = claude_code.settings_file(scope, project)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(original)


@pytest.mark.parametrize("original", ORIGINALS)
@pytest.mark.parametrize("scope", SCOPES)
def test_in_and_out_leaves_no_trace(
    scope: Scope, original: bytes | None, project: Path, isolated: Path
) -> None:
    prepare(scope, project, original)
    before = tree(project, isolated)
    assert install(scope, project).changes
    assert tree(project, isolated) != before
    assert not install(scope, project).changes
    assert uninstall(scope, project).changes
    assert tree(project, isolated) == before
    assert not uninstall(scope, project).changes
    assert not files.location().exists()


@pytest.mark.parametrize("original", [each for each in ORIGINALS if each != b""])
@pytest.mark.parametrize("scope", SCOPES)
def test_no_memory_of_the_installation_is_needed(
    scope: Scope, original: bytes | None, project: Path, isolated: Path
) -> None:
    prepare(scope, project, original)
    before = tree(project, isolated)
    install(scope, project)
    shutil.rmtree(isolated / "judgekit")
    uninstall(scope, project)
    assert tree(project, isolated) == before


def test_a_folder_that_was_there_stays(project: Path) -> None:
    (project / ".claude").mkdir()
    install("project", project)
    uninstall("project", project)
    assert (project / ".claude").is_dir()


def test_a_folder_made_for_two_files_goes_with_the_second(project: Path) -> None:
    install("project", project)
    install("local", project)
    uninstall("project", project)
    assert (project / ".claude").is_dir()
    uninstall("local", project)
    assert not (project / ".claude").exists()


def test_a_folder_that_is_used_meanwhile_stays(project: Path) -> None:
    install("project", project)
    (project / ".claude" / "agents").mkdir()
    uninstall("project", project)
    assert (project / ".claude" / "agents").is_dir()


def test_an_empty_file_stays_one_after_a_change_of_form(project: Path) -> None:
    prepare("local", project, b"")
    install("local", project)
    change = claude_code.planned_install("local", project, python="/elsewhere/python3")
    assert change.changes
    claude_code.install(change)
    uninstall("local", project)
    assert claude_code.settings_file("local", project).read_bytes() == b""


@pytest.mark.parametrize("damage", ["[]", "{", '{"folders": 3, "files": 4}', '{"folders": [1]}', "\x00"])
def test_a_damaged_record_is_none(project: Path, damage: str) -> None:
    install("project", project)
    files.location().write_text(damage)
    uninstall("project", project)
    assert not (project / ".claude").exists()


def test_an_installation_does_not_fail_for_its_records_sake(project: Path, isolated: Path) -> None:
    (isolated / "judgekit").write_text("a file in our folder's place")
    install("project", project)
    uninstall("project", project)
    assert not (project / ".claude").exists()


def test_shared_settings_name_nothing_of_this_machine(project: Path) -> None:
    change = claude_code.planned_install("project", project)
    assert change.after is not None
    hooks = json.loads(change.after)["hooks"]
    assert hooks["UserPromptSubmit"][0]["hooks"] == [entries.portable()]
    assert str(Path.home()) not in change.after.decode()


@pytest.mark.parametrize("scope", ["user", "local"])
def test_other_settings_start_the_hook_fast(scope: Scope, project: Path) -> None:
    change = claude_code.planned_install(scope, project)
    assert change.after is not None
    assert json.loads(change.after)["hooks"]["UserPromptSubmit"][0]["hooks"] == [entries.fastest()]
    assert not change.path.exists(), "a plan writes nothing"


def test_the_clients_folder_can_be_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    assert claude_code.settings_file("user", project) == isolated / ".claude" / "settings.json"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    install("user", project)
    assert (tmp_path / "elsewhere" / "settings.json").is_file()
    assert not (isolated / ".claude").exists()
    uninstall("user", project)
    assert not (tmp_path / "elsewhere").exists()


def test_a_project_in_the_home_folder_is_not_the_users_settings(isolated: Path) -> None:
    with pytest.raises(UsageError, match="--scope user"):
        claude_code.planned_install("project", isolated)
    assert not (isolated / ".claude").exists()


def test_what_is_not_utf8_is_refused(project: Path) -> None:
    prepare("local", project, b'{\n"a": "\xe9"}')
    for plan in (claude_code.planned_install, claude_code.planned_uninstall):
        with pytest.raises(ConfigError, match=r"settings.local.json:2: not UTF-8"):
            plan("local", project)


def test_utf16_is_refused(project: Path) -> None:
    prepare("local", project, "{}".encode("utf-16"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        claude_code.planned_install("local", project)


def test_an_edit_between_plan_and_writing_stays(project: Path) -> None:
    prepare("local", project, b"{}")
    change = claude_code.planned_install("local", project)
    change.path.write_bytes(b'{"theirs": 1}')
    with pytest.raises(InputError):
        claude_code.install(change)
    assert change.path.read_bytes() == b'{"theirs": 1}'
    assert not files.location().exists()


def test_edits_made_after_the_installation_stay(project: Path) -> None:
    install("project", project)
    path = claude_code.settings_file("project", project)
    path.write_bytes(path.read_bytes().replace(b"{\n", b'{\n  "model": "opus",\n', 1))
    uninstall("project", project)
    assert path.read_bytes() == b'{\n  "model": "opus"\n}\n'
