"""judgekit in git's hooks and in pre-commit's configuration: in, out again, and what the doctor says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.config import yaml_text
from judgekit.errors import ConfigError, Exit, InputError, UsageError
from judgekit.hooks import files, git_hook, pre_commit
from judgekit.hooks.git_hook import HOOK, KEPT, LEGACY

if TYPE_CHECKING:
    from judgekit.hooks.entries import Scope
    from judgekit.hooks.files import FileChange

FOREIGN = b"#!/bin/sh\necho \xff\n"


def install(folder: Path, scope: Scope = "local", python: str | None = None) -> FileChange:
    change = git_hook.planned_change(git_hook.of_scope(scope, folder), python, installs=True)
    files.install(change, program=True)
    return change


def uninstall(folder: Path, scope: Scope = "local") -> FileChange:
    change = git_hook.planned_change(git_hook.of_scope(scope, folder), installs=False)
    files.uninstall(change)
    return change


def write(path: Path, content: bytes, mode: int = 0o755) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def state(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    return {
        path.name: (path.lstat().st_mode, str(path.readlink()) if path.is_symlink() else path.read_bytes())
        for path in folder.glob("*")
    }


def test_in_once_and_out_again(repository: GitRepo, hooks: Path) -> None:
    hooks.rmdir()
    hook = hooks / HOOK
    assert install(repository.folder).changes
    assert os.access(hook, os.X_OK)
    assert git_hook.kind(hook.read_bytes()) == "ours"
    assert git_hook.installation(hook.read_bytes())[0] == sys.executable
    assert not install(repository.folder).changes
    hook.chmod(0o644)
    assert install(repository.folder).changes, "a lost run bit is given back"
    assert os.access(hook, os.X_OK)
    hook.write_bytes(git_hook.text("/gone/python"))
    assert install(repository.folder).changes, "an older one is renewed"
    assert git_hook.installation(hook.read_bytes())[0] == sys.executable
    assert not (hooks / KEPT).exists()
    edited = hook.read_bytes() + b"echo mine\n"
    hook.write_bytes(edited)
    for change in (install, uninstall):
        with pytest.raises(UsageError, match="edited"):
            change(repository.folder)
    assert hook.read_bytes() == edited, "an edited one is neither renewed nor removed"
    hook.write_bytes(git_hook.text())
    assert uninstall(repository.folder).changes
    assert not hooks.exists(), "the folder was made for it"
    assert not uninstall(repository.folder).changes
    assert not files.location().exists()


def test_another_programs_hook_comes_back_as_it_was(repository: GitRepo, hooks: Path) -> None:
    (repository.folder / "shared").write_bytes(FOREIGN)
    for made in (0o755, 0o644, 0o700, "../../shared", "/nowhere/pre-push"):
        if isinstance(made, int):
            write(hooks / HOOK, FOREIGN, made)
        else:
            (hooks / HOOK).symlink_to(made)
        before = state(hooks)
        assert install(repository.folder).aside
        assert not (hooks / HOOK).is_symlink()
        assert state(hooks)[KEPT] == before[HOOK]
        assert not install(repository.folder).changes
        assert uninstall(repository.folder).aside
        assert state(hooks) == before, made
        install(repository.folder)
        (hooks / HOOK).unlink()
        assert uninstall(repository.folder).changes, "somebody removed ours"
        assert state(hooks) == before, made
        (hooks / HOOK).unlink()
    assert (repository.folder / "shared").read_bytes() == FOREIGN


def test_two_foreign_hooks_are_for_a_person_to_sort_out(repository: GitRepo, hooks: Path) -> None:
    """A hook of ours that pre-commit calls is renewed and removed where it is."""
    (hooks / HOOK).write_bytes(FOREIGN)
    (hooks / LEGACY).write_bytes(git_hook.text("/gone/python"))
    assert install(repository.folder).path.name == LEGACY
    assert (hooks / HOOK).read_bytes() == FOREIGN
    assert uninstall(repository.folder).changes
    assert [path.name for path in hooks.glob("*")] == [HOOK]
    install(repository.folder)
    (hooks / HOOK).write_bytes(b"#!/bin/sh\nanother program was here\n")
    before = state(hooks)
    with pytest.raises(UsageError, match="belongs to another program"):
        install(repository.folder)
    assert not uninstall(repository.folder).changes
    assert state(hooks) == before


def test_what_is_in_the_way_is_said(repository: GitRepo, hooks: Path) -> None:
    (hooks / HOOK).mkdir()
    with pytest.raises(
        InputError, match="check that it is a file, and that you can read and write it and its folder"
    ):
        install(repository.folder)
    (hooks / HOOK).rmdir()
    hooks.rmdir()
    hooks.write_text("no folder")
    with pytest.raises(InputError, match="nothing was changed"):
        install(repository.folder)


def test_where_hooks_are(repository: GitRepo, hooks: Path, tmp_path: Path) -> None:
    """Of a linked worktree, a submodule, a bare repository, and in the project's own folder."""
    repository.commit("one", a_md="a")
    repository("worktree", "add", "--quiet", "../linked")
    linked = git_hook.find(repository.folder.parent / "linked")
    assert (linked.hooks, linked.shared) == (hooks, False)
    allow = ("-c", "protocol.file.allow=always")
    repository(*allow, "submodule", "--quiet", "add", str(repository.folder), "inner")
    inner = git_hook.find(repository.folder / "inner")
    assert inner.hooks == repository.folder / ".git" / "modules" / "inner" / "hooks"
    assert not inner.shared
    bare = GitRepo(tmp_path / "bare.git", "--bare")
    place = git_hook.find(bare.folder)
    assert (place.hooks, place.tree, place.shared) == (bare.folder / "hooks", None, False)
    repository("config", "core.hooksPath", "tools/hooks")
    (repository.folder / "docs" / "api").mkdir(parents=True)
    for folder in (repository.folder, repository.folder / "docs" / "api"):
        place = git_hook.find(folder)
        assert place.hooks == repository.folder / "tools" / "hooks"
        assert not place.shared


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
    repository.write(".husky/_/h", "")
    repository("config", "core.hooksPath", ".husky/_")
    with pytest.raises(UsageError, match="husky"):
        install(repository.folder)
    repository("config", "--unset", "core.hooksPath")
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n\thooksPath = ~/hooks\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    for folder in (repository.folder, tmp_path):
        assert git_hook.of_scope("user", folder).hooks == Path.home() / "hooks"
    with pytest.raises(UsageError, match="--scope user"):
        git_hook.of_scope("local", repository.folder)


def test_the_hook_is_sound_shell_and_known_as_ours(tmp_path: Path) -> None:
    hook = tmp_path / HOOK
    for python in ("/usr/bin/python3", "/a b/it's $x `y`/python", "C:\\Python\\python.exe", "/é/\udcff"):
        hook.write_bytes(git_hook.text(python))
        assert b"@" not in hook.read_bytes().replace(b'"$@"', b"")
        assert git_hook.installation(hook.read_bytes())[0] == python
        subprocess.run(["sh", "-n", hook], check=True, timeout=10)
        lines = os.fsdecode(hook.read_bytes()).splitlines()
        assigned = next(line for line in lines if line.startswith("python="))
        assert shlex.split(assigned) == [f"python={python}"]
    assert pre_commit.BLOCKED not in [*Exit, 0, 1, 2, 120, *range(64, 79), *range(123, 256)]
    assert git_hook.kind(git_hook.text().replace(b"\n", b"\r\n")) == "ours"
    for foreign in (b"#!/bin/sh\n# judgekit: git's pre-push hook\n", b""):
        assert git_hook.kind(foreign) == "foreign"


# What the doctor says


def said(repository: GitRepo) -> list[tuple[str, str]]:
    return list(git_hook.findings(repository.folder))


def assert_only(repository: GitRepo, state: str, text: str) -> None:
    ((found, told),) = said(repository)
    assert (found, text in told) == (state, True), told


def test_no_hook_and_ours(repository: GitRepo, hooks: Path, tmp_path: Path) -> None:
    assert list(git_hook.findings(tmp_path)) == [], "outside of a repository"
    install(repository.folder)
    hook, text = hooks / HOOK, git_hook.text()
    write(hook, text + b"# mine\n")
    assert_only(repository, "note", "edited by hand")
    first, second, rest = text.split(b"\n", 2)
    body = rest + b"# older\n"
    write(hook, b"\n".join([first, second[: -len(git_hook._sum(body))] + git_hook._sum(body), body]))
    assert_only(repository, "note", "another version")
    write(hook, FOREIGN)
    write(hooks / LEGACY, text)
    assert_only(repository, "ok", "which pre-commit has written")


def test_our_hook_and_one_that_was_there(repository: GitRepo, hooks: Path) -> None:
    write(hooks / HOOK, FOREIGN)
    assert_only(repository, "note", "belongs to another program")
    install(repository.folder)
    assert [state for state, _ in said(repository)] == ["ok", "ok"]
    assert f"{KEPT}, the earlier hook, runs first and can stop a push" in said(repository)[1][1]
    (hooks / KEPT).chmod(0o644)
    assert said(repository)[1][0] == "note"
    write(hooks / HOOK, FOREIGN)
    assert "does not run" in said(repository)[1][1]
    (hooks / KEPT).unlink()
    write(hooks / HOOK, FOREIGN, 0o644)
    assert "is not executable" in said(repository)[1][1]
    write(hooks / HOOK, b"#!/bin/sh\njudgekit gate --pre-push $1 $2\n")
    assert said(repository)[0][0] == "ok"
    write(hooks / HOOK, b"#!/usr/bin/env bash\n# File generated by pre-commit: https://pre-commit.com\n")
    assert said(repository)[0][0] == "note"
    files.install(pre_commit.planned_change(repository.folder, installs=True))
    assert said(repository)[0][0] == "ok"


def test_a_lost_interpreter(repository: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(repository.folder, python="/gone/python")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for expected in ("wrong", "note"):  # without and with a judgekit on the PATH
        state, text = said(repository)[1]
        assert (state, "/gone/python no longer exists" in text) == (expected, True)
        write(binaries / "judgekit", FOREIGN)


def test_other_places_of_hooks(repository: GitRepo, tmp_path: Path) -> None:
    repository.write("lefthook.yml", "pre-push: {}\n")
    assert "lefthook install replaces hooks" in said(repository)[-1][1]
    (repository.folder / "lefthook.yml").unlink()
    repository("config", "core.hooksPath", str(tmp_path))
    assert "all repositories with this core.hooksPath use" in said(repository)[-1][1]
    repository("config", "core.hooksPath", "tools")
    install(repository.folder)
    (first, origin), (second, _), (third, remedy) = said(repository)
    assert (first, second, third) == ("ok", "ok", "note")
    assert "core.hooksPath" in origin
    assert "do not commit the hook, because it names paths of this machine; or install pre-commit" in remedy
    repository.write(".gitignore", "tools\n")
    assert [state for state, _ in said(repository)] == ["ok", "ok"]
    repository("config", "hook.gate.event", "pre-push")
    repository("config", "hook.gate.command", "judgekit gate --pre-push")
    assert 'the configured hook "gate": judgekit gate' in said(repository)[-1][1]


# In `.pre-commit-config.yaml`

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
    change = pre_commit.planned_change(project, installs=installs)
    (files.install if installs else files.uninstall)(change)
    return change.changes


@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS)
def test_in_the_frameworks_file_once_and_out_again(tmp_path: Path, original: str | None) -> None:
    path = tmp_path / pre_commit.FILE
    if original is not None:
        path.write_bytes(original.encode())
    before = yaml_text.parsed(original or "") or {}
    assert framework(tmp_path, installs=True)
    written = path.read_bytes()
    after = yaml_text.parsed(written.decode())
    assert after["repos"] == [*before.get("repos", []), *yaml_text.parsed(pre_commit.ITEM)]
    assert not framework(tmp_path, installs=True)
    assert path.read_bytes() == written
    if original == USUAL:
        indented = "".join(f"  {line}\n" for line in pre_commit.ITEM.splitlines())
        head, tail = written.decode().split(indented)
        assert head + tail == USUAL
        assert head.endswith("# - id: two\n")
    assert framework(tmp_path, installs=False)
    assert not framework(tmp_path, installs=False)
    if original is None:
        assert not path.exists()
    elif "repos" in before:
        assert path.read_text(encoding="utf-8").rstrip() == original.replace("\r\n", "\n").rstrip()
        assert (b"\r\n" in path.read_bytes()) == ("\r\n" in original)
    else:
        assert yaml_text.parsed(path.read_text(encoding="utf-8")) == {**before, "repos": []}


def test_what_else_stands_in_the_frameworks_file(tmp_path: Path) -> None:
    path = tmp_path / pre_commit.FILE
    path.write_text("repos:\n" + pre_commit.ITEM.replace("verbose: true", "verbose: false"))
    assert framework(tmp_path, installs=True), "an older entry of ours is renewed"
    assert yaml_text.parsed(path.read_text())["repos"] == yaml_text.parsed(pre_commit.ITEM)
    for repo in (
        "- repo: https://example.org/judgekit\n  rev: v1\n  hooks: [{id: judgekit-gate}]\n",
        "- repo: local\n  hooks: [{id: a}, {id: judgekit-gate}]\n",
    ):
        path.write_text("repos:\n" + repo)
        assert not framework(tmp_path, installs=True), "the project's own making is left alone"
        with pytest.raises(ConfigError, match="by hand"):
            framework(tmp_path, installs=False)
    for text in ("repos: {a: 1}\n", "- a\n", "repos: [\n", "repos: [{repo: meta}]\n", "repos:\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=pre_commit.FILE):
            framework(tmp_path, installs=True)
        assert path.read_text() == text
