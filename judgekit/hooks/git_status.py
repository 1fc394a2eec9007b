"""Which pre-push hook git runs in a repository, why that one, and whether other repositories share it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from judgekit import programs
from judgekit.errors import InputError, UsageError
from judgekit.git import GitError, Repository
from judgekit.hooks import files, git_hook, pre_commit
from judgekit.hooks.git_hook import HOOK, KEPT
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.hooks.launch import Scope


class HooksFolder(NamedTuple):
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


def find(folder: Path) -> HooksFolder:
    """Return the place of the hooks of the repository around `folder`; raises `UsageError` without one."""
    try:
        tree = _asked(Repository(folder), "--show-toplevel", folder)
        repository = Repository(tree)
    except UsageError:
        tree, bare = None, Repository(folder, bare=True)
        repository = Repository(_asked(bare, "--absolute-git-dir", folder), bare=True)
    # Relative paths in git's configuration count from where hooks are run.
    hooks = _asked(repository, "--git-path", repository.folder, "hooks")
    common = _asked(repository, "--git-common-dir", repository.folder)
    real = hooks.resolve()
    is_own = any(real.is_relative_to(path.resolve()) for path in (common, tree) if path is not None)
    return HooksFolder(hooks, tree, not is_own)


def of_scope(scope: Scope, folder: Path) -> HooksFolder:
    """Return where the hook of a scope is installed.

    `local` is the repository around `folder`; `user` the folder that `core.hooksPath` names for many of them.
    Raises `UsageError` where there is no such place, or it is another scope's.
    """
    if scope == "project":
        raise UsageError(
            "git does not share hooks with clones: use judgekit install pre-commit, or add a line to the "
            "project's hook manager (docs/gate-install.md)"
        )
    if scope == "local":
        place = find(folder)
        if place.shared:
            told = "core.hooksPath sets it; --scope user installs there, for all repositories"
            raise UsageError(f"other repositories share {place.hooks}: {told}")
        return place
    named = _configured(folder, "core.hooksPath", "--global", "--type=path")
    if named is not None and Path(named).is_absolute():
        return HooksFolder(Path(named), None, shared=True)
    with contextlib.suppress(UsageError):
        around = find(folder)
        if around.shared:
            return around
    told = (
        "set one with git config --global core.hooksPath FOLDER, which replaces the hooks of every repository"
    )
    raise UsageError(f"no shared hooks folder is set up; {told}")


def _configured(folder: Path, key: str, *options: str) -> str | None:
    """Return a value of git's configuration, None where there is none."""
    try:
        raw = Repository(folder).ask("config", *options, "--get", key)
    except GitError:
        return None
    return os.fsdecode(raw).rstrip("\n")


def refuse_managed(place: HooksFolder) -> None:
    """Raise `UsageError` where another program writes this folder anew and knows its hooks by their names."""
    if place.hooks.name == "_" and (place.hooks / "h").is_file():
        line = 'judgekit gate --pre-push "$1" "$2"'
        raise UsageError(
            f"husky manages {place.hooks}: add the content of examples/git/husky, or {line}, to its pre-push"
        )


def _asked(repository: Repository, option: str, base: Path, *words: str) -> Path:
    try:
        raw = repository.ask("rev-parse", option, *words)
    except GitError as error:
        raise UsageError(f"no git repository at {base}; change to one ({error})") from None
    return Path(os.path.abspath(base / os.fsdecode(raw).removesuffix("\n")))


_AGAIN = "run judgekit install git again"
_SECONDS = 10


class HookFinding(NamedTuple):
    """One thing about git's hook: `note` is worth knowing, `wrong` keeps the gate from being asked."""

    state: Literal["ok", "note", "wrong"]
    text: str


def findings(folder: Path) -> Iterator[HookFinding]:
    """Yield what there is to say about the pre-push hook of the repository around `folder`."""
    try:
        place = find(folder)
        path = git_hook.endpoint(place.hooks)
        content = files.read(path)
    except UsageError:
        return
    except InputError as error:
        yield HookFinding("wrong", str(error))
        return
    origin = _configured(folder, "core.hooksPath", "--show-origin")
    if origin is not None:
        where = origin.partition("\t")[0]
        yield HookFinding("ok", f"hooks are in {place.hooks}, set by core.hooksPath ({where})")
    kind = git_hook.kind(content)
    if content is None or kind == "foreign":
        yield from _without(place, path, content)
    else:
        yield _ours(path, kind, content)
        yield from _runs(place, path, content)
        kept = path.with_name(KEPT)
        if os.access(kept, os.X_OK):
            yield HookFinding("ok", f"{kept}, the earlier hook, runs first and can stop a push")
        elif os.path.lexists(kept):
            yield HookFinding("note", f"{kept}, the earlier hook, does not run: it was not executable")
    yield from _in_configuration(folder)
    yield from (HookFinding("note", line) for line in notes(place))


def notes(place: HooksFolder) -> Iterator[str]:
    """Yield what a person should know about the place where the hook is."""
    tree, hook = place.tree, str(place.hooks / HOOK)
    if tree and place.in_tree and not Repository(tree).holds("check-ignore", "--quiet", hook):
        told = "do not commit the hook, because it names paths of this machine; or install pre-commit"
        yield f"{place.hooks} is inside the project; {told}"
    if place.shared:
        yield f"all repositories with this core.hooksPath use {place.hooks}"
    if tree and any(tree.glob("lefthook.y*ml")):
        yield "lefthook install replaces hooks: add the gate to its configuration (docs/gate-install.md)"


def _without(place: HooksFolder, path: Path, content: bytes | None) -> Iterator[HookFinding]:
    if content is None:
        yield HookFinding("note", f"no {path}; install it with judgekit install git")
    elif b"judgekit" in content or _by_pre_commit(place, content):
        yield HookFinding("ok", f"{path} belongs to another program and runs the gate")
    else:
        yield HookFinding(
            "note", f"{path} belongs to another program; judgekit install git runs it first, then the gate"
        )
    if content is not None and not os.access(path, os.X_OK):
        yield HookFinding("note", f"{path} is not executable: git skips it")
    kept = path.with_name(KEPT)
    if os.path.lexists(kept):
        lost = "it ran before judgekit's hook, but another program replaced that"
        yield HookFinding("note", f"{kept} does not run: {lost}; move it back or remove it")


def _by_pre_commit(place: HooksFolder, content: bytes) -> bool:
    if b"pre-commit.com" not in content or place.tree is None:
        return False
    return pre_commit.ID.encode() in (files.read(place.tree / pre_commit.FILE) or b"")


def _ours(path: Path, kind: git_hook.Kind, content: bytes) -> HookFinding:
    python, root = git_hook.installation(content)
    if not os.access(path, os.X_OK):
        return HookFinding("wrong", f"{path} is not executable: git skips it; {_AGAIN}")
    if kind == "edited":
        edited = "edited by hand: judgekit does not change or remove it"
        return HookFinding("note", f"{path} is judgekit's, {edited}")
    if not root:
        older = "is outdated: PYTHONPATH and PATH can make it run files of the repository"
        return HookFinding("note", f"{path} {older}; {_AGAIN}")
    if content != git_hook.text(python, root):
        return HookFinding("note", f"{path} is from another version of judgekit; {_AGAIN}")
    by = "" if path.name == HOOK else f" (from {HOOK}, which pre-commit has written)"
    return HookFinding("ok", f"git runs {path}{by}, which runs judgekit of {python}")


def _runs(place: HooksFolder, path: Path, content: bytes) -> Iterator[HookFinding]:
    """Yield whether the hook finds a judgekit; one that came with a clone is not tried."""
    python, root = git_hook.installation(content)
    if not python or not os.access(python, os.X_OK):
        instead = programs.find("judgekit", os.environ)
        lost = f"{path}: its interpreter {python} no longer exists"
        if instead is None:
            yield HookFinding("wrong", f"{lost}: pushes are not judged; {_AGAIN}")
        else:
            yield HookFinding("note", f"{lost}: it runs {instead} where that is on the PATH; {_AGAIN}")
    elif place.in_tree or (python, root) == (sys.executable, programs.ROOT) or not root:
        return
    elif not os.path.isabs(root) or not _has_us(python, root):
        yield HookFinding(
            "wrong", f"{path}: {python} no longer has judgekit: pushes are not judged; {_AGAIN}"
        )


def _has_us(python: str, root: str) -> bool:
    code = (
        f"import sys; sys.path.insert(0, {root!a}); from judgekit import programs; del sys.path[0]; "
        "programs.make_importable(); import judgekit.cli.app"
    )
    try:
        done = subprocess.run(  # noqa: S603 - what git runs on every push
            [python, "-I", "-c", code], capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _in_configuration(folder: Path) -> Iterator[HookFinding]:
    """Yield the hooks that git 2.54 and newer run from its configuration."""
    try:
        raw = Repository(folder).ask("config", "--get-regexp", r"^hook\..*\.event$", "^pre-push$")
    except GitError:
        return
    for line in lines_of(os.fsdecode(raw)):
        name = line.split(" ")[0].removeprefix("hook.").removesuffix(".event")
        command = _configured(folder, f"hook.{name}.command") or ""
        yield HookFinding("note", f'git 2.54 and newer also run the configured hook "{name}": {command}')
