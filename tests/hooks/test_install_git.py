"""judgekit as git's hook: in, in again, out again, and what was there before."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.errors import Exit, InputError, UsageError
from judgekit.hooks import files, git_hook, git_status
from judgekit.hooks.git_hook import HOOK, KEPT, LEGACY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.hooks.launch import Scope

FOREIGN = b"#!/bin/sh\r\necho \xff\n"


def install(folder: Path, scope: Scope = "local") -> git_hook.HookChange:
    change = git_hook.planned_install(git_status.of_scope(scope, folder).hooks)
    git_hook.install(change)
    return change


def uninstall(folder: Path, scope: Scope = "local") -> git_hook.HookChange:
    change = git_hook.planned_uninstall(git_status.of_scope(scope, folder).hooks)
    git_hook.uninstall(change)
    return change


def state(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    return dict(entries(folder))


def entries(folder: Path) -> Iterator[tuple[str, tuple[int, bytes | str]]]:
    for path in sorted(folder.glob("*")):
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes()
        yield path.name, (path.lstat().st_mode, content)


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
    assert uninstall(repository.folder).changes
    assert not hooks.exists(), "the folder was made for it"
    assert not uninstall(repository.folder).changes
    assert not files.location().exists()


@pytest.mark.parametrize("mode", [0o755, 0o644, 0o700])
def test_another_programs_hook_comes_back_as_it_was(repository: GitRepo, hooks: Path, mode: int) -> None:
    (hooks / HOOK).write_bytes(FOREIGN)
    (hooks / HOOK).chmod(mode)
    before = state(hooks)
    assert install(repository.folder).moves
    assert state(hooks)[KEPT] == before[HOOK]
    assert not install(repository.folder).changes
    assert uninstall(repository.folder).moves
    assert state(hooks) == before


@pytest.mark.parametrize("target", ["../../shared", "/nowhere/pre-push"])
def test_a_link_comes_back_as_a_link(repository: GitRepo, hooks: Path, target: str) -> None:
    (repository.folder / "shared").write_bytes(FOREIGN)
    (hooks / HOOK).symlink_to(target)
    install(repository.folder)
    assert (repository.folder / "shared").read_bytes() == FOREIGN
    assert not (hooks / HOOK).is_symlink()
    uninstall(repository.folder)
    assert str((hooks / HOOK).readlink()) == target
    assert (repository.folder / "shared").read_bytes() == FOREIGN


def test_an_edited_hook_of_ours_is_neither_renewed_nor_removed(repository: GitRepo, hooks: Path) -> None:
    install(repository.folder)
    edited = (hooks / HOOK).read_bytes() + b"echo mine\n"
    (hooks / HOOK).write_bytes(edited)
    for change in (install, uninstall):
        with pytest.raises(UsageError, match="edited"):
            change(repository.folder)
    assert (hooks / HOOK).read_bytes() == edited


def test_two_foreign_hooks_are_for_a_person_to_sort_out(repository: GitRepo, hooks: Path) -> None:
    (hooks / HOOK).write_bytes(FOREIGN)
    install(repository.folder)
    (hooks / HOOK).write_bytes(b"#!/bin/sh\nanother program was here\n")
    before = state(hooks)
    with pytest.raises(UsageError, match="belongs to another program"):
        install(repository.folder)
    assert not uninstall(repository.folder).changes
    assert state(hooks) == before


def test_a_hook_of_ours_that_somebody_removed(repository: GitRepo, hooks: Path) -> None:
    (hooks / HOOK).write_bytes(FOREIGN)
    before = state(hooks)
    install(repository.folder)
    (hooks / HOOK).unlink()
    assert uninstall(repository.folder).changes
    assert state(hooks) == before


def test_a_hook_that_pre_commit_calls_is_renewed_and_removed_where_it_is(
    repository: GitRepo, hooks: Path
) -> None:
    (hooks / HOOK).write_bytes(FOREIGN)
    (hooks / LEGACY).write_bytes(git_hook.text("/gone/python"))
    assert install(repository.folder).path.name == LEGACY
    assert (hooks / HOOK).read_bytes() == FOREIGN
    assert uninstall(repository.folder).changes
    assert [path.name for path in hooks.glob("*")] == [HOOK]


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


@pytest.mark.parametrize("below", ["", "docs/api"])
def test_hooks_of_the_projects_own_folder(repository: GitRepo, below: str) -> None:
    repository("config", "core.hooksPath", "tools/hooks")
    folder = repository.folder / below
    folder.mkdir(parents=True, exist_ok=True)
    place = git_status.find(folder)
    assert place.hooks == repository.folder / "tools" / "hooks"
    assert (place.shared, place.in_tree) == (False, True)


def test_hooks_of_a_linked_worktree_and_a_submodule(repository: GitRepo, hooks: Path) -> None:
    repository.commit("one", a_md="a")
    repository("worktree", "add", "--quiet", "../linked")
    linked = git_status.find(repository.folder.parent / "linked")
    assert (linked.hooks, linked.shared, linked.in_tree) == (hooks, False, False)
    allow = ("-c", "protocol.file.allow=always")
    repository(*allow, "submodule", "--quiet", "add", str(repository.folder), "inner")
    inner = git_status.find(repository.folder / "inner")
    assert inner.hooks == repository.folder / ".git" / "modules" / "inner" / "hooks"
    assert not inner.shared


def test_hooks_of_a_bare_repository(tmp_path: Path) -> None:
    bare = GitRepo(tmp_path / "bare.git", "--bare")
    place = git_status.find(bare.folder)
    assert (place.hooks, place.tree, place.shared) == (bare.folder / "hooks", None, False)


def test_hooks_that_others_share_need_another_scope(repository: GitRepo, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    repository("config", "core.hooksPath", str(shared))
    with pytest.raises(UsageError, match="--scope user"):
        install(repository.folder)
    assert install(repository.folder, "user").path == shared / HOOK
    uninstall(repository.folder, "user")
    assert state(shared) == {}


def test_the_users_own_folder_of_hooks(
    repository: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"core\.hooksPath FOLDER"):
        install(repository.folder, "user")
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n\thooksPath = ~/hooks\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    for folder in (repository.folder, tmp_path):
        assert git_status.of_scope("user", folder).hooks == Path.home() / "hooks"
    with pytest.raises(UsageError, match="--scope user"):
        git_status.of_scope("local", repository.folder)


def test_what_git_cannot_do_is_said(repository: GitRepo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="install pre-commit"):
        install(repository.folder, "project")
    with pytest.raises(UsageError, match="no git repository"):
        install(tmp_path)


def test_a_folder_that_husky_keeps(repository: GitRepo) -> None:
    repository.write(".husky/_/h", "")
    repository("config", "core.hooksPath", ".husky/_")
    with pytest.raises(UsageError, match="husky"):
        git_status.refuse_managed(git_status.find(repository.folder))


def test_nothing_else_ends_with_the_code_of_a_block() -> None:
    assert git_hook.BLOCKED not in [*Exit, 0, 1, 2, 120, *range(64, 79), *range(123, 256)]


@pytest.mark.parametrize(
    "python", ["/usr/bin/python3", "/a b/it's $x `y`/python", "C:\\Python\\python.exe", "/é/\udcff"]
)
def test_the_hook_is_sound_shell(python: str, tmp_path: Path) -> None:
    hook = tmp_path / HOOK
    hook.write_bytes(git_hook.text(python))
    assert b"@" not in hook.read_bytes().replace(b'"$@"', b"")
    assert git_hook.installation(hook.read_bytes())[0] == python
    subprocess.run(["sh", "-n", hook], check=True, timeout=10)
    assigned = next(
        line for line in os.fsdecode(hook.read_bytes()).splitlines() if line.startswith("python=")
    )
    assert shlex.split(assigned) == [f"python={python}"]


def test_a_hook_with_other_line_ends_is_still_ours() -> None:
    assert git_hook.kind(git_hook.text().replace(b"\n", b"\r\n")) == "ours"
    assert git_hook.kind(b"#!/bin/sh\n# judgekit: git's pre-push hook\n") == "foreign"
    assert git_hook.kind(b"") == "foreign"
