"""Where git looks for a repository's pre-push hook, and whether other repositories look there too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import UsageError
from judgekit.git import GitError, Repository

if TYPE_CHECKING:
    from judgekit.install.scopes import Scope

_NO_PROJECT = (
    "git shares no hooks with those who clone a project: judgekit install pre-commit, or a line in what the "
    "project uses for hooks (docs/gate-install.md)"
)


class Place(NamedTuple):
    """The folder of a repository's hooks.

    `tree` is its working tree, None for a bare repository. `shared`: the folder belongs to none of
    the repository's own folders, so others may use it too.
    """

    hooks: Path
    tree: Path | None
    shared: bool

    @property
    def in_tree(self) -> bool:
        """Whether the hooks lie among the files of the project, where they can be committed."""
        return self.tree is not None and not self.shared and ".git" not in self.hooks.parts


def find(folder: Path) -> Place:
    """Return the place of the hooks of the repository around `folder`; raises `UsageError` without one."""
    tree = _tree(folder)
    # Relative paths in git's configuration count from where hooks are run.
    bare = Repository(folder, bare=True)
    repository = (
        Repository(tree) if tree else Repository(_asked(bare, "--absolute-git-dir", folder), bare=True)
    )
    hooks = _asked(repository, "--git-path", repository.folder, "hooks")
    common = _asked(repository, "--git-common-dir", repository.folder)
    own = [each for each in (common, tree) if each is not None]
    return Place(hooks, tree, not any(_below(hooks, each) for each in own))


def of_scope(scope: Scope, folder: Path) -> Place:
    """Return where the hook of a scope is installed.

    `local` is the repository around `folder`; `user` the folder that `core.hooksPath` names for many of them.
    Raises `UsageError` where there is no such place, or it is another scope's.
    """
    if scope == "project":
        raise UsageError(_NO_PROJECT)
    if scope == "user":
        return _users(folder)
    place = find(folder)
    if place.shared:
        told = "core.hooksPath makes it so; --scope user installs there, for all of them"
        raise UsageError(f"{place.hooks} is not this repository's alone: {told}")
    return place


def _users(folder: Path) -> Place:
    named = configured(folder, "core.hooksPath", "--global", "--type=path")
    if named is not None and Path(named).is_absolute():
        return Place(Path(named), None, shared=True)
    try:
        place = find(folder)
    except UsageError:
        place = None
    if place is None or not place.shared:
        told = (
            "git config --global core.hooksPath FOLDER sets one, which then replaces every repository's own"
        )
        raise UsageError(f"no folder of hooks for all your repositories is set up; {told}")
    return place


def configured(folder: Path, key: str, *options: str) -> str | None:
    """Return a value of git's configuration, None where there is none."""
    try:
        raw = Repository(folder).ask("config", *options, "--get", key)
    except GitError:
        return None
    return os.fsdecode(raw).rstrip("\n")


def refuse_managed(place: Place) -> None:
    """Raise `UsageError` where another program writes this folder anew and knows its hooks by their names."""
    if place.hooks.name == "_" and (place.hooks / "h").is_file():
        line = 'judgekit gate --pre-push "$1" "$2"'
        raise UsageError(
            f"husky keeps {place.hooks}: put what examples/git/husky has, or {line}, in its pre-push"
        )


def _tree(folder: Path) -> Path | None:
    try:
        return _asked(Repository(folder), "--show-toplevel", folder)
    except UsageError:
        return None


def _asked(repository: Repository, option: str, base: Path, *words: str) -> Path:
    try:
        raw = repository.ask("rev-parse", option, *words)
    except GitError as error:
        raise UsageError(f"no git repository at {base}: go into one ({error})") from None
    return Path(os.path.abspath(base / os.fsdecode(raw).removesuffix("\n")))  # noqa: PTH100 - links stay as they are


def _below(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
