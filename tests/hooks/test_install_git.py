"""judgekit in git's hooks and in pre-commit's configuration: installed, removed, checked by the doctor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.config import yaml_text
from judgekit.errors import ConfigError, Exit, UsageError
from judgekit.hooks import files, git_hook, pre_commit
from judgekit.hooks.git_hook import EARLIER_HOOK, HOOK, LEGACY

if TYPE_CHECKING:
    from git_repo import GitRepo

    from judgekit.hooks.entries import Scope
    from judgekit.hooks.files import FileChange

FOREIGN = b"#!/bin/sh\necho \xff\n"


def install(folder: Path, scope: Scope = "local", python: str | None = None) -> FileChange:
    change = git_hook.plan_install(git_hook.choose_hooks(scope, folder), python)
    files.install(change, is_program=True)
    return change


def uninstall(folder: Path, scope: Scope = "local") -> FileChange:
    change = git_hook.plan_uninstall(git_hook.choose_hooks(scope, folder))
    files.uninstall(change)
    return change


def write(path: Path, content: bytes, mode: int = 0o755) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def state(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    return {
        path.name: (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_bytes(),
        )
        for path in folder.glob("*")
    }


def test_in_once_and_out_again(repository: GitRepo, hooks: Path) -> None:
    hooks.rmdir()
    hook = hooks / HOOK
    assert install(repository.folder).has_changes
    assert os.access(hook, os.X_OK)
    assert git_hook.identify_owner(hook.read_bytes()) == "ours"
    assert git_hook.read_installation(hook.read_bytes())[0] == sys.executable
    assert not install(repository.folder).has_changes
    hook.chmod(0o644)
    assert install(repository.folder).has_changes, "a lost run bit is given back"
    assert os.access(hook, os.X_OK)
    hook.write_bytes(git_hook.render_hook("/gone/python"))
    assert install(repository.folder).has_changes, "an older one is renewed"
    assert git_hook.read_installation(hook.read_bytes())[0] == sys.executable
    assert not (hooks / EARLIER_HOOK).exists()
    edited = hook.read_bytes() + b"echo mine\n"
    hook.write_bytes(edited)
    for change in (install, uninstall):
        with pytest.raises(UsageError, match="edited"):
            change(repository.folder)
    assert hook.read_bytes() == edited, "an edited one is neither renewed nor removed"
    hook.write_bytes(git_hook.render_hook())
    assert uninstall(repository.folder).has_changes
    assert not hooks.exists(), "the folder was made for it"
    assert not uninstall(repository.folder).has_changes
    assert not files.get_records_path().exists()


def test_another_programs_hook_comes_back_as_it_was(repository: GitRepo, hooks: Path) -> None:
    (repository.folder / "shared").write_bytes(FOREIGN)
    for made in (0o755, 0o644, 0o700, "../../shared", "/nowhere/pre-push"):
        if isinstance(made, int):
            write(hooks / HOOK, FOREIGN, made)
        else:
            (hooks / HOOK).symlink_to(made)
        before = state(hooks)
        assert install(repository.folder).backup_path
        assert not (hooks / HOOK).is_symlink()
        assert state(hooks)[EARLIER_HOOK] == before[HOOK]
        assert not install(repository.folder).has_changes
        assert uninstall(repository.folder).backup_path
        assert state(hooks) == before, made
        install(repository.folder)
        (hooks / HOOK).unlink()
        assert uninstall(repository.folder).has_changes, "somebody removed ours"
        assert state(hooks) == before, made
        (hooks / HOOK).unlink()
    assert (repository.folder / "shared").read_bytes() == FOREIGN


def test_two_foreign_hooks_are_for_a_person_to_sort_out(repository: GitRepo, hooks: Path) -> None:
    """A hook of ours that pre-commit calls keeps its place when it's renewed or removed."""
    (hooks / HOOK).write_bytes(FOREIGN)
    (hooks / LEGACY).write_bytes(git_hook.render_hook("/gone/python"))
    assert install(repository.folder).path.name == LEGACY
    assert (hooks / HOOK).read_bytes() == FOREIGN
    assert uninstall(repository.folder).has_changes
    assert [path.name for path in hooks.glob("*")] == [HOOK]
    install(repository.folder)
    (hooks / HOOK).write_bytes(b"#!/bin/sh\nanother program was here\n")
    before = state(hooks)
    with pytest.raises(UsageError, match="belongs to another program"):
        install(repository.folder)
    assert not uninstall(repository.folder).has_changes
    assert state(hooks) == before


def test_scopes(repository: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"core\.hooksPath FOLDER"):
        install(repository.folder, "user")
    shared = tmp_path / "shared"
    shared.mkdir()
    repository("config", "core.hooksPath", str(shared))
    with pytest.raises(UsageError, match="--scope user"):
        install(repository.folder)
    assert install(repository.folder, "user").path == shared / HOOK
    uninstall(repository.folder, "user")
    assert state(shared) == {}
    (repository.folder / "docs").mkdir()
    repository("config", "core.hooksPath", "tools/hooks")  # the project's own folder, from wherever
    assert install(repository.folder / "docs").path == repository.folder / "tools" / "hooks" / HOOK
    repository.write(".husky/_/h", "")
    repository("config", "core.hooksPath", ".husky/_")
    with pytest.raises(UsageError, match="husky"):
        install(repository.folder)
    repository("config", "--unset", "core.hooksPath")
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n\thooksPath = ~/hooks\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    for folder in (repository.folder, tmp_path):
        assert git_hook.choose_hooks("user", folder).path == Path.home() / "hooks"
    with pytest.raises(UsageError, match="--scope user"):
        git_hook.choose_hooks("local", repository.folder)


def test_the_hook_is_sound_shell_and_known_as_ours(tmp_path: Path) -> None:
    hook = tmp_path / HOOK
    for python in (
        "/usr/bin/python3",
        "/a b/it's $x `y`/python",
        "C:\\Python\\python.exe",
        "/é/\udcff",
    ):
        hook.write_bytes(git_hook.render_hook(python))
        assert b"@" not in hook.read_bytes().replace(b'"$@"', b"")
        assert git_hook.read_installation(hook.read_bytes())[0] == python
        subprocess.run(["sh", "-n", hook], check=True, timeout=10)
        lines = os.fsdecode(hook.read_bytes()).splitlines()
        assigned = next(line for line in lines if line.startswith("python="))
        assert shlex.split(assigned) == [f"python={python}"]
    assert pre_commit.BLOCKED_EXIT_CODE not in [
        *Exit,
        0,
        1,
        2,
        120,
        *range(64, 79),
        *range(123, 256),
    ]
    assert git_hook.identify_owner(git_hook.render_hook().replace(b"\n", b"\r\n")) == "ours"
    for foreign in (b"#!/bin/sh\n# judgekit: git's pre-push hook\n", b""):
        assert git_hook.identify_owner(foreign) == "foreign"


def test_what_doctor_finds(
    repository: GitRepo, hooks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    text = git_hook.render_hook()
    first, second, rest = text.split(b"\n", 2)
    body = rest + b"# older\n"
    older = b"\n".join([first, second[:-16] + git_hook._compute_checksum(body), body])
    gate, framework = (
        b"#!/bin/sh\njudgekit gate --pre-push $1 $2\n",
        b"#!/bin/sh\n# https://pre-commit.com\n",
    )
    for content, mode, state, told in (
        (text, 0o755, "ok", f"git runs {hooks / HOOK}, which runs judgekit of {sys.executable}"),
        (text, 0o644, "wrong", "is not executable"),
        (text + b"# mine\n", 0o755, "note", "edited by hand"),
        (older, 0o755, "note", "from another version"),
        (git_hook.render_hook("/gone/python"), 0o755, "wrong", "/gone/python no longer exists"),
        (gate, 0o755, "ok", "belongs to another program and runs the gate"),
        (framework, 0o755, "note", "belongs to another program; "),
        (FOREIGN, 0o644, "note", "is not executable: git skips it"),
    ):
        write(hooks / HOOK, content, mode)
        found = list(git_hook.check_git_hook(repository.folder))
        assert [each for each in found if each[0] == state and told in each[2]], found
    write(hooks / HOOK, framework)
    files.install(pre_commit.plan_install(repository.folder))
    repository("config", "hook.gate.event", "pre-push")
    repository("config", "hook.gate.command", "judgekit gate --pre-push")
    (first_state, _, _), (_, _, configured) = git_hook.check_git_hook(repository.folder)
    assert (first_state, 'the configured hook "gate": judgekit gate' in configured) == ("ok", True)
    repository("config", "core.hooksPath", "tools")
    install(repository.folder)
    (_, _, origin), _, _, (_, _, remedy) = git_hook.check_git_hook(repository.folder)
    assert "set by core.hooksPath (file:.git/config)" in origin
    assert "do not commit the hook, because it names paths of this machine" in remedy


USUAL = """\
# ours
default_install_hook_types: [pre-commit, pre-push]
repos:
  - repo: https://example.org/hooks   # kept
    rev: v1
    hooks:
      - id: one
        args: ["--a", 'b']
      # - id: two

# the end
ci:
    skip: [one]
"""
ORIGINALS = {
    "none": None,
    "usual": USUAL,
    "at the margin": "repos:\n- repo: local\n  hooks:\n  - id: one\n    entry: |\n      # a\n      b\n",
    "no newline at its end": "repos:\n  - repo: meta\n    hooks: [{id: identity}]",
    "crlf": USUAL.replace("\n", "\r\n"),
    "no list": "fail_fast: true\n",
    "two locals": "repos:\n- repo: local\n  hooks: [{id: a}]\n- repo: local\n  hooks: [{id: b}]\n\n# end\n",
}


def framework(project: Path, *, installs: bool) -> bool:
    if installs:
        change = pre_commit.plan_install(project)
        files.install(change)
    else:
        change = pre_commit.plan_uninstall(project)
        files.uninstall(change)
    return change.has_changes


@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS)
def test_in_the_frameworks_file_once_and_out_again(tmp_path: Path, original: str | None) -> None:
    path = tmp_path / pre_commit.CONFIG_FILE
    if original is not None:
        path.write_bytes(original.encode())
    before = yaml_text.parse_yaml(original or "") or {}
    assert framework(tmp_path, installs=True)
    written = path.read_bytes()
    after = yaml_text.parse_yaml(written.decode())
    assert after["repos"] == [
        *before.get("repos", []),
        *yaml_text.parse_yaml(pre_commit.CONFIG_ITEM),
    ]
    assert not framework(tmp_path, installs=True)
    assert path.read_bytes() == written
    if original == USUAL:
        assert written.decode().startswith(USUAL.partition("ci:")[0])
        assert written.decode().endswith("ci:\n    skip: [one]\n")
    assert framework(tmp_path, installs=False)
    assert not framework(tmp_path, installs=False)
    assert files.read_content(path) == (None if original is None else original.encode())


@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS)
def test_out_of_the_frameworks_file_on_another_machine(
    tmp_path: Path, original: str | None
) -> None:
    """The record keeps nothing of the file's former content."""
    path = tmp_path / pre_commit.CONFIG_FILE
    if original is not None:
        path.write_bytes(original.encode())
    before = yaml_text.parse_yaml(original or "") or {}
    assert framework(tmp_path, installs=True)
    files.get_records_path().unlink()
    assert framework(tmp_path, installs=False)
    assert path.exists() == (original is not None)
    if original is not None:
        left = path.read_text(encoding="utf-8")
        assert yaml_text.parse_yaml(left) == {"repos": [], **before}


@pytest.mark.parametrize(
    "original",
    [
        "repos: []\n",
        "# ask before you change this\nrepos: []\n",
        "repos: [] # none yet\nci:\n  autofix_prs: false\n",
        "repos:\n# add yours below\n",
        "---\nrepos:\n\n- repo: meta\n  hooks: [{id: identity}]\n\n\n# end",
        "",
    ],
)
def test_what_was_in_the_frameworks_file_is_there_again(tmp_path: Path, original: str) -> None:
    path = tmp_path / pre_commit.CONFIG_FILE
    path.write_text(original)
    assert framework(tmp_path, installs=True)
    assert framework(tmp_path, installs=False)
    assert path.read_text() == original


def test_what_was_added_since_to_the_frameworks_file_stays(tmp_path: Path) -> None:
    path = tmp_path / pre_commit.CONFIG_FILE
    path.write_text("repos: [] # none yet\nci: {skip: []}\n")
    assert framework(tmp_path, installs=True)
    path.write_text(path.read_text() + "fail_fast: true # soon\n")
    assert framework(tmp_path, installs=False)
    text = path.read_text()
    assert yaml_text.parse_yaml(text) == {"repos": [], "ci": {"skip": []}, "fail_fast": True}
    assert "# none yet" in text
    assert "# soon" in text


def test_prek_reads_another_file(tmp_path: Path) -> None:
    toml = tmp_path / "prek.toml"
    toml.write_text('[[repos]]\nrepo = "meta"\n')
    with pytest.raises(UsageError, match=r"prek\.toml: prek reads this file"):
        framework(tmp_path, installs=True)
    assert not (tmp_path / pre_commit.CONFIG_FILE).exists()
    toml.write_text(toml.read_text() + pre_commit.PREK_ITEM)
    assert not framework(tmp_path, installs=True)
    with pytest.raises(UsageError, match="by hand"):
        framework(tmp_path, installs=False)


def test_the_lines_for_prek_are_those_for_pre_commit() -> None:
    ours = tomllib.loads(pre_commit.PREK_ITEM)["repos"]
    assert ours == yaml_text.parse_yaml(pre_commit.CONFIG_ITEM)


def test_the_other_name_of_the_frameworks_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / ".pre-commit-config.yml"
    path.write_text(USUAL)
    assert framework(tmp_path, installs=True)
    assert not (tmp_path / pre_commit.CONFIG_FILE).exists()
    assert pre_commit.HOOK_ID in path.read_text()
    assert framework(tmp_path, installs=False)
    assert path.read_text() == USUAL


def test_what_else_stands_in_the_frameworks_file(tmp_path: Path) -> None:
    path = tmp_path / pre_commit.CONFIG_FILE
    path.write_text("repos:\n" + pre_commit.CONFIG_ITEM.replace("verbose: true", "verbose: false"))
    assert framework(tmp_path, installs=True), "an older entry of ours is renewed"
    assert yaml_text.parse_yaml(path.read_text())["repos"] == yaml_text.parse_yaml(
        pre_commit.CONFIG_ITEM
    )
    path.write_text(path.read_text() + "\n# behind\nci: {skip: [a]}  # here\n")
    assert framework(tmp_path, installs=False)
    assert path.read_text() == "repos: []\n\n# behind\nci: {skip: [a]}  # here\n"
    for empty in ("repos:\n", "repos: [{repo: meta}]\n", "# none yet\n"):
        path.write_text(empty)
        assert framework(tmp_path, installs=True)
        assert yaml_text.parse_yaml(path.read_text())["repos"][-1:] == yaml_text.parse_yaml(
            pre_commit.CONFIG_ITEM
        )
        assert path.read_text().startswith("# none yet\n" if "none" in empty else "repos:")
    for repo in (
        "- repo: https://example.org/judgekit\n  rev: v1\n  hooks: [{id: judgekit-gate}]\n",
        "- repo: local\n  hooks: [{id: a}, {id: judgekit-gate}]\n",
    ):
        path.write_text("repos:\n" + repo)
        assert not framework(tmp_path, installs=True), "the project's own making is left alone"
        with pytest.raises(ConfigError, match="by hand"):
            framework(tmp_path, installs=False)
    for text in ("repos: {a: 1}\n", "- a\n", "repos: [\n", "repos: 3\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=pre_commit.CONFIG_FILE):
            framework(tmp_path, installs=True)
        assert path.read_text() == text
