"""judgekit as git's pre-push hook: finds the hook that git runs, plans its installation and removal."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit import programs
from judgekit.config.files import get_data_folder as data_folder
from judgekit.errors import InputError, UsageError
from judgekit.git import GitError, Repository
from judgekit.hooks import files, husky, pre_commit
from judgekit.hooks.files import FileChange
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.hooks.entries import Scope
    from judgekit.hooks.install import Finding, State

    Remark: TypeAlias = tuple[State, str]

HOOK = "pre-push"
HOOKS_PATH = "core.hooksPath"
EARLIER_HOOK = "pre-push.before-judgekit"  # the hook that ours replaced and runs first
# Added to the hooks folder's name: there the earlier hook finds its neighbours
LINKS_FOLDER_SUFFIX = ".before-judgekit"
LEGACY = "pre-push.legacy"  # the pre-commit framework's name for ours if it's installed later
# Of our hook: git's name for it, pre-commit's and lefthook's
_POSSIBLE_NAMES = (HOOK, LEGACY, "pre-push.old")

_HOOK_HEAD_PATTERN = re.compile(
    rb"\A#!/bin/sh\r?\n# judgekit: git's pre-push hook ([0-9a-f]{16})\r?\n"
)
_INSTALLATION_PATTERN = re.compile(r"^python=(.*)\n(?:root=(.*)\n)?(?:before|hooks)=", re.MULTILINE)
_MAX_PATH_CHARS = 4096  # characters of a path in quotes
_INSTALL_AGAIN = "run judgekit install git again"

Owner: TypeAlias = Literal["none", "ours", "edited", "foreign"]


class HooksFolder(NamedTuple):
    """The folder of a repository's hooks, and its working tree; `is_shared` if others may use it too.

    `default_path` is their folder without `core.hooksPath`. `is_disabled`: that setting names no folder, so
    git runs none.
    """

    path: Path
    working_tree: Path | None  # None for a bare repository
    is_shared: bool
    default_path: Path | None = None
    is_disabled: bool = False


def find_hooks(folder: Path) -> HooksFolder:
    """Find the folder with the git hooks of the repository that contains `folder`.

    Raises `UsageError` if there's no repository.
    """
    tree, repository = _find_repository(folder)

    # Relative paths in git's configuration are relative to the folder where hooks run.
    hooks = _ask_for_path(repository, repository.folder, "--git-path", "hooks")
    # All worktrees of a repository have this git folder in common.
    git_folder = _ask_for_path(repository, repository.folder, "--git-common-dir")

    is_in_tree = tree is not None and _is_inside(hooks, tree)
    is_in_repository = is_in_tree or _is_inside(hooks, git_folder)
    return HooksFolder(
        hooks,
        tree,
        # A folder outside the repository is probably shared with other repositories.
        is_shared=not is_in_repository,
        default_path=git_folder / "hooks",
        is_disabled=_are_hooks_off(folder, hooks),
    )


def _find_repository(folder: Path) -> tuple[Path | None, Repository]:
    """Find the working tree and the repository that contain `folder`. A bare repository has no tree: None.

    Raises `UsageError` if there's no repository.
    """
    try:
        tree = _ask_for_path(Repository(folder), folder, "--show-toplevel")
        return tree, Repository(tree)
    except UsageError:  # without a working tree, it may be a bare repository
        bare = Repository(folder, is_bare=True)
        git_folder = _ask_for_path(bare, folder, "--absolute-git-dir")
        return None, Repository(git_folder, is_bare=True)


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a path is inside a folder once all links are resolved."""
    return path.resolve().is_relative_to(folder.resolve())


def _are_hooks_off(folder: Path, hooks: Path) -> bool:
    """Whether git's configuration switches hooks off."""
    is_file = hooks.exists() and not hooks.is_dir()  # e.g. /dev/null
    # git takes an empty path as the root folder, which contains no hooks.
    return is_file or _read_setting(folder, HOOKS_PATH) == ""


def _ask_for_path(repository: Repository, base: Path, *words: str) -> Path:
    """Ask `git rev-parse` for a path, which may be relative to `base`. Returns it as an absolute path.

    Raises `UsageError` outside a repository.
    """
    try:
        output = repository.ask("rev-parse", *words)
    except GitError as error:
        raise UsageError(f"no git repository at {base}; change to one ({error})") from None

    path = os.fsdecode(output).removesuffix("\n")
    absolute_path = os.path.abspath(base / path)  # unlike `resolve`, this leaves links alone
    return Path(absolute_path)


def choose_hooks(scope: Scope, folder: Path) -> HooksFolder:
    """Choose the hooks folder: the repository's for scope "local", the user's shared folder for "user".

    Raises `UsageError` if there's no suitable folder.
    """
    if scope == "project":
        instead = "use judgekit install pre-commit, or add a line to the project's hook manager"
        raise UsageError(f"git does not share hooks with clones: {instead} (docs/gate-install.md)")
    if scope == "local":
        return _choose_repositorys_hooks(folder)
    return _choose_users_hooks(folder)


def _choose_repositorys_hooks(folder: Path) -> HooksFolder:
    """Choose a repository's own hooks folder. Raises `UsageError` if other repositories share it."""
    hooks_folder = find_hooks(folder)
    _refuse_if_off(hooks_folder, folder)
    if hooks_folder.is_shared:
        remedy = "core.hooksPath sets it; --scope user installs there, for all repositories"
        raise UsageError(f"other repositories share {hooks_folder.path}: {remedy}")
    return hooks_folder


def _choose_users_hooks(folder: Path) -> HooksFolder:
    """Choose the hooks folder that the user's repositories share. Raises `UsageError` if there's none."""
    users_path = _read_setting(folder, HOOKS_PATH, "--global", "--type=path")
    if users_path is not None and Path(users_path).is_absolute():
        return HooksFolder(Path(users_path), working_tree=None, is_shared=True)

    # The path can also be relative to a repository, or set in another of git's configuration files. So ask
    # git which folder it uses here.
    hooks_folder = _find_shared_hooks(folder)
    if hooks_folder is not None:
        return hooks_folder

    remedy = "set one with git config --global core.hooksPath FOLDER"
    effect = "which replaces the hooks of every repository"
    raise UsageError(f"no shared hooks folder is set up; {remedy}, {effect}")


def _find_shared_hooks(folder: Path) -> HooksFolder | None:
    """Find the hooks folder that git uses in `folder`. None if it's off or isn't shared."""
    try:
        hooks_folder = find_hooks(folder)
        _refuse_if_off(hooks_folder, folder)
    except UsageError:
        return None
    return hooks_folder if hooks_folder.is_shared else None


def _refuse_if_off(hooks_folder: HooksFolder, folder: Path) -> None:
    """Raise `UsageError` if git's configuration switches all hooks off."""
    if hooks_folder.is_disabled:
        problem = _describe_wrong_hooks_path(folder)
        raise UsageError(f"{problem}; unset it: git config --unset {HOOKS_PATH}")


def _describe_wrong_hooks_path(folder: Path) -> str:
    """Explain that git runs no hooks because `core.hooksPath` isn't a folder. Names the file that sets it."""
    # With `--show-origin`, git prints the file, a tab and the value.
    line = _read_setting(folder, HOOKS_PATH, "--show-origin") or ""
    source, _, value = line.partition("\t")
    shown_value = value or "empty"
    return f"{HOOKS_PATH} is {shown_value} ({source}), which is no folder: git runs no hooks here"


def _read_setting(folder: Path, key: str, *options: str) -> str | None:
    """Read a key of git's configuration; None if it isn't set."""
    try:
        raw = Repository(folder).ask("config", *options, "--get", key)
    except GitError:
        return None
    return os.fsdecode(raw).rstrip("\n")


def render_hook(python: str | None = None, root: str = programs.ROOT) -> bytes:
    """Render the git hook, a shell script that runs judgekit from the folder `root`.

    `python` is the path of the interpreter, by default the current one.
    """
    script = (data_folder("hooks") / "git-pre-push.sh").read_text(encoding="utf-8")
    value_by_placeholder = {
        "PYTHON": shlex.quote(python or sys.executable or ""),
        "ROOT": shlex.quote(root),
        "OWN_PYTHON": programs.UNSET_PYTHON_VARIABLES,
        "KEPT": EARLIER_HOOK,
        "HOOK": HOOK,
        "BESIDE": LINKS_FOLDER_SUFFIX,
        "BLOCKED": str(pre_commit.BLOCKED_EXIT_CODE),
    }
    for placeholder, value in value_by_placeholder.items():
        script = script.replace(f"@{placeholder}@", value)
    return _insert_checksum(os.fsencode(script))


def _insert_checksum(script: bytes) -> bytes:
    """Replace `@SUM@` by a checksum of the lines after it, which shows later if anyone edited the hook."""
    head, _, body = script.partition(b"@SUM@\n")
    return head + _compute_checksum(body) + b"\n" + body


def identify_owner(content: bytes | None) -> Owner:
    """Identify a hook's owner by its content.

    "none" means that there's no file, "edited" that our hook was changed by hand, and "foreign" that it's
    another program's.
    """
    if content is None:
        return "none"
    head = _HOOK_HEAD_PATTERN.match(content)
    if head is None:
        return "foreign"
    checksum = head[1]
    body = content[head.end() :]
    return "ours" if checksum == _compute_checksum(body) else "edited"


def _compute_checksum(body: bytes) -> bytes:
    """Return a short digest of a hook's lines that ignores the kind of line endings."""
    digest = hashlib.sha256(body.replace(b"\r\n", b"\n")).hexdigest()
    return digest[:16].encode()


def read_installation(content: bytes) -> tuple[str, str]:
    """Read the paths of Python and of judgekit's folder from our hook; "" if they're missing."""
    match = _INSTALLATION_PATTERN.search(os.fsdecode(content))
    if match is None:
        return "", ""
    python, root = match.groups(default="")  # earlier versions of the hook didn't name a folder
    return _unquote(python), _unquote(root)


def _unquote(path: str) -> str:
    """Remove shell quotes from a path; "" if it's too long."""
    if len(path) > _MAX_PATH_CHARS:
        return ""
    return "".join(shlex.split(path))


def _find_our_file(hooks: Path) -> Path:
    """Return the path of our hook in a hooks folder, whether it's installed yet or not."""
    legacy = hooks / LEGACY  # pre-commit renames an earlier hook to this, and runs it
    if identify_owner(files.read_content(legacy)) == "ours":
        return legacy
    return hooks / HOOK


def plan_install(hooks_folder: HooksFolder, python: str | None = None) -> FileChange:
    """Plan the installation of our hook. Another program's hook is renamed, and ours runs it first.

    Raises `UsageError` if our hook was edited, if a different hook has already been renamed, or if husky
    manages the folder.
    """
    hooks = hooks_folder.path
    husky_file = husky.find_hook_file(hooks)
    if husky_file is not None:
        raise UsageError(f"husky manages {hooks}; {husky.describe_setup(hooks, husky_file)}")

    path = _find_our_file(hooks)
    before, owner = _read_hook(path)  # raises if our hook was edited
    backup = None
    if owner == "foreign":
        backup = path.with_name(EARLIER_HOOK)
        _refuse_other_backup(path, before, backup)

    # Git skips a hook that isn't executable, so there's something to do even if its content is up to date.
    lacks_run_bit = owner == "ours" and not os.access(path, os.X_OK)
    return FileChange(
        path,
        before,
        after=render_hook(python),
        backup_path=backup,
        needs_run_bit=lacks_run_bit,
        is_user_file=hooks_folder.is_shared,
    )


def _refuse_other_backup(path: Path, content: bytes | None, backup: Path) -> None:
    """Raise `UsageError` if the hook at `path` can't be renamed to `backup`, because another one is there.

    `content` is the content of `path`.
    """
    if not os.path.lexists(backup):
        return
    # Git LFS can write its hook over ours, and then the backup is the same hook.
    is_same_hook = files.read_content(backup) == content
    if is_same_hook:
        return

    conflict = (
        f"{path} belongs to another program, and so does {backup}, which ran before judgekit's"
    )
    raise UsageError(f"{conflict}; remove one or combine both in one file, then run this again")


def plan_uninstall(hooks_folder: HooksFolder) -> FileChange:
    """Plan the removal of our hook, and the return of any hook that it replaced.

    Another program's hook is left alone. Raises `UsageError` if our hook was edited.
    """
    path = _find_our_file(hooks_folder.path)
    before, owner = _read_hook(path)
    if owner == "foreign":
        return FileChange(path, before, after=before)
    return _plan_removal(path, path.with_name(EARLIER_HOOK), is_user_file=hooks_folder.is_shared)


def plan_uninstalls(scope: Scope, folder: Path) -> list[FileChange]:
    """Plan the removal of our hooks. For scope "local", look in all folders of this repository's hooks.

    If there's nothing to remove, the list has a single change that does nothing. Raises `UsageError` outside
    a repository, and for the same reasons as `plan_uninstall`.
    """
    if scope != "local":
        return [plan_uninstall(choose_hooks(scope, folder))]
    return _plan_local_uninstalls(find_hooks(folder))


def _plan_local_uninstalls(hooks_folder: HooksFolder) -> list[FileChange]:
    """Plan the removal of our hooks from all folders of a repository's hooks."""
    # Since the installation, another program can have renamed our hook, or the hooks folder can have changed.
    changes: list[FileChange] = []
    for hooks in _list_folders(hooks_folder):
        changes += _plan_removals(hooks)
        if not changes and _has_only_backup(hooks):
            # Our hook is already gone, but the hook that it replaced must get its name back.
            changes.append(_plan_removal(hooks / HOOK, hooks / EARLIER_HOOK, is_user_file=False))
    if changes:
        return changes

    _refuse_shared_hook(hooks_folder)
    return [_plan_nothing(hooks_folder)]


def _plan_removals(hooks: Path) -> list[FileChange]:
    """Plan the removal of all our hooks from a folder. The first removal also restores a replaced hook."""
    changes = []
    backup: Path | None = hooks / EARLIER_HOOK
    for path in _list_our_hooks(hooks):
        changes.append(_plan_removal(path, backup, is_user_file=False))
        backup = None  # it can be restored only once
    return changes


def _has_only_backup(hooks: Path) -> bool:
    """Whether a folder has the backup of a replaced hook, but no hook in its place."""
    has_backup = os.path.lexists(hooks / EARLIER_HOOK)
    has_hook = os.path.lexists(hooks / HOOK)
    return has_backup and not has_hook


def _refuse_shared_hook(hooks_folder: HooksFolder) -> None:
    """Raise `UsageError` if our hook is in a folder that other repositories use too."""
    if hooks_folder.is_shared and _list_our_hooks(hooks_folder.path):
        remedy = "judgekit uninstall git --scope user removes it"
        raise UsageError(
            f"judgekit's hook is in {hooks_folder.path}, for all repositories; {remedy}"
        )


def _plan_nothing(hooks_folder: HooksFolder) -> FileChange:
    """Plan a change that does nothing. Its path, which the user sees, is where our hook would be."""
    hooks = hooks_folder.path
    # If git's configuration disables hooks, it names no folder, so use the default one.
    if hooks_folder.is_disabled and hooks_folder.default_path is not None:
        hooks = hooks_folder.default_path
    return FileChange(hooks / HOOK, None, after=None)


def _list_folders(hooks_folder: HooksFolder) -> list[Path]:
    """List the folders that may contain our hook and that only this repository uses."""
    is_own = not hooks_folder.is_shared

    possible_folders = []
    if is_own and not hooks_folder.is_disabled:
        possible_folders.append(hooks_folder.path)

    # The default folder is inside the repository, so it's never shared.
    if hooks_folder.default_path is not None:
        possible_folders.append(hooks_folder.default_path)

    husky_file = husky.find_hook_file(hooks_folder.path)
    if is_own and husky_file is not None:
        possible_folders.append(husky_file.parent)

    # A dict drops duplicates and keeps the order.
    return list(dict.fromkeys(possible_folders))


def _list_our_hooks(hooks: Path) -> list[Path]:
    """List our hooks in a folder, including those that another program has renamed."""
    our_hooks = []
    for name in _POSSIBLE_NAMES:
        path = hooks / name
        if path.is_file() and _is_our_hook(path):
            our_hooks.append(path)
    return our_hooks


def _is_our_hook(path: Path) -> bool:
    """Whether a hook is ours, even if somebody has edited it."""
    owner = identify_owner(files.read_content(path))
    return owner in ("ours", "edited")


def _plan_removal(path: Path, backup: Path | None, *, is_user_file: bool) -> FileChange:
    """Plan a hook's removal. If there's a `backup` of a replaced hook, restore it."""
    before, _ = _read_hook(path)
    if backup is not None and not os.path.lexists(backup):
        backup = None
    return FileChange(path, before, after=None, backup_path=backup, is_user_file=is_user_file)


def list_other_callers(folder: Path) -> Iterator[str]:
    """Yield a remark about each other program, such as husky, that runs the gate before a push.

    These still check pushed files after our git hook is removed.
    """
    hooks_folder = find_hooks(folder)
    if hooks_folder.is_disabled:  # git runs no hooks at all
        return

    husky_file = husky.find_hook_file(hooks_folder.path)
    if husky_file is not None and husky.runs_gate(husky_file):
        yield f"{husky_file} still runs the gate; remove its line with judgekit"

    if hooks_folder.working_tree is not None and pre_commit.runs_gate(hooks_folder.working_tree):
        path = pre_commit.get_active_config_path(hooks_folder.working_tree)
        yield f"{path} still lists the gate; judgekit uninstall pre-commit removes it"

    lefthook_file = _find_lefthook(hooks_folder.working_tree)
    if lefthook_file is not None:
        content = files.read_content(lefthook_file)
        if files.mentions_in_code(content, "judgekit"):
            yield f"{lefthook_file} still runs the gate; remove its lines with judgekit"


def uninstall(change: FileChange) -> None:
    """Carry out a planned removal. After the last of our hooks, also remove the links that it made."""
    files.uninstall(change)

    hooks = change.path.parent
    has_our_hook = bool(_list_our_hooks(hooks))
    if not has_our_hook:
        # Our hook ran an earlier hook from this folder of links.
        folder_of_links = hooks.with_name(f"{hooks.name}{LINKS_FOLDER_SUFFIX}")
        _remove_links(folder_of_links)


def _remove_links(folder: Path) -> None:
    """Remove the links and files that our hook made in a folder, and the folder if it's empty then."""
    # If the folder is a link, our hook never wrote into it, so its files aren't ours.
    is_real_folder = folder.is_dir() and not folder.is_symlink()
    if not is_real_folder:
        return

    for path in folder.iterdir():
        is_our_file = path.name in (HOOK, ".gitignore")
        if path.is_symlink() or is_our_file:
            path.unlink()
    files.remove_folders([folder])


def _read_hook(path: Path) -> tuple[bytes | None, Owner]:
    """Read the hook at `path` and identify its owner. The content is None if there's no file.

    Raises `UsageError` if our hook was edited.
    """
    content = files.read_content(path)
    is_dangling_link = content is None and path.is_symlink()
    if is_dangling_link:  # our hook is never a link, so this one is another program's
        return None, "foreign"
    owner = identify_owner(content)
    if owner == "edited":
        remedy = f"move your additions to {path.with_name(EARLIER_HOOK)}, which runs first, and remove it"
        raise UsageError(f"{path}: judgekit's hook, but edited; {remedy}")
    return content, owner


def list_notes(hooks_folder: HooksFolder) -> Iterator[str]:
    """Yield warnings: our hook could be committed, other repositories use it, or lefthook replaces it."""
    if _can_be_committed(hooks_folder):
        remedy = (
            "do not commit the hook, because it names paths of this machine; or install pre-commit"
        )
        yield f"{hooks_folder.path} is inside the project; {remedy}"

    if hooks_folder.is_shared:
        yield f"all repositories with this core.hooksPath use {hooks_folder.path}"

    # `lefthook install` would replace our hook, so lefthook itself has to run the gate.
    lefthook_file = _find_lefthook(hooks_folder.working_tree)
    if lefthook_file is not None:
        runs_gate = files.mentions_in_code(files.read_content(lefthook_file), "judgekit")
        if not runs_gate:
            remedy = f"add the gate to {lefthook_file} (docs/gate-install.md)"
            yield f"lefthook install replaces hooks: {remedy}"


def _can_be_committed(hooks_folder: HooksFolder) -> bool:
    """Whether our hook is in the working tree, and git doesn't ignore it."""
    if hooks_folder.working_tree is None:  # a bare repository
        return False
    if hooks_folder.is_shared:  # the folder is outside the repository
        return False
    is_in_git_folder = ".git" in hooks_folder.path.parts
    if is_in_git_folder:
        return False

    hook = str(hooks_folder.path / HOOK)
    is_ignored = Repository(hooks_folder.working_tree).succeeds("check-ignore", "--quiet", hook)
    return not is_ignored


def _find_lefthook(tree: Path | None) -> Path | None:
    """Find lefthook's configuration in a working tree, or None."""
    if tree is None:
        return None
    for stem in ("lefthook", ".lefthook", ".config/lefthook"):
        for variant in ("", "-local"):
            for suffix in ("yml", "yaml", "toml", "json", "jsonc"):
                path = tree / f"{stem}{variant}.{suffix}"
                if path.is_file():
                    return path
    return None


def check_git_hook(folder: Path) -> Iterator[Finding]:
    """Yield findings on the pre-push hook. A `wrong` one means that the gate doesn't run."""
    for state, line in _describe_hook(folder):
        yield state, "git hook", line


def _describe_hook(folder: Path) -> Iterator[Remark]:
    """Yield remarks on the hook that git runs before a push. Yields nothing outside a repository."""
    try:
        hooks_folder = find_hooks(folder)
        if hooks_folder.is_disabled:
            problem = _describe_wrong_hooks_path(folder)
            yield "note", f"{problem}; judgekit install git says what to do"
            return

        used_hook = _find_our_file(hooks_folder.path)  # another program's hook may be there instead
        content = files.read_content(used_hook)
    except UsageError:  # there is no repository
        return
    except InputError as error:
        yield "wrong", str(error)
        return

    yield from _describe_unused_hooks(hooks_folder, used=used_hook)
    yield from _describe_hooks_path(folder, hooks_folder)
    yield from _describe_used_hook(hooks_folder, used_hook, content)
    yield from _describe_configured_hooks(folder)
    for note in list_notes(hooks_folder):
        yield "note", note


def _describe_unused_hooks(hooks_folder: HooksFolder, used: Path) -> Iterator[Remark]:
    """Yield a remark on each hook of ours except the `used` one, since git doesn't run the others."""
    for folder in _list_folders(hooks_folder):
        for path in _list_our_hooks(folder):
            if path != used:
                remedy = "judgekit uninstall git removes it"
                yield "note", f"{path} is judgekit's, but git doesn't run it itself; {remedy}"


def _describe_hooks_path(folder: Path, hooks_folder: HooksFolder) -> Iterator[Remark]:
    """Yield a remark on the setting that chose the hooks folder, if there's one."""
    # With `--show-origin`, git prints the file with the setting, a tab and the value.
    line = _read_setting(folder, HOOKS_PATH, "--show-origin")
    if line is not None:
        source, _, _ = line.partition("\t")
        yield "ok", f"hooks are in {hooks_folder.path}, set by core.hooksPath ({source})"


def _describe_used_hook(
    hooks_folder: HooksFolder, path: Path, content: bytes | None
) -> Iterator[Remark]:
    """Yield remarks on the hook that git runs: husky's, another program's or ours."""
    husky_file = husky.find_hook_file(hooks_folder.path)
    if husky_file is not None:
        yield from _describe_husky(hooks_folder.path, husky_file)
    elif content is None:
        yield "note", f"no {path}; install it with judgekit install git"
        yield from _describe_left_backup(path)
    elif identify_owner(content) == "foreign":
        yield from _describe_foreign(hooks_folder, path, content)
    else:
        yield from _describe_ours(path, content)


def _describe_configured_hooks(folder: Path) -> Iterator[Remark]:
    """Yield a remark on each pre-push hook in git's configuration. Git 2.54 and newer run these."""
    try:
        raw = Repository(folder).ask("config", "--get-regexp", r"^hook\..*\.event$", "^pre-push$")
    except GitError:  # there's none
        return
    for line in split_lines(os.fsdecode(raw)):
        key, _, _ = line.partition(" ")  # a line is `hook.NAME.event pre-push`
        name = key.removeprefix("hook.").removesuffix(".event")
        command = _read_setting(folder, f"hook.{name}.command") or ""
        yield "note", f'git 2.54 and newer also run the configured hook "{name}": {command}'


def _describe_foreign(hooks_folder: HooksFolder, path: Path, content: bytes) -> Iterator[Remark]:
    """Yield remarks about another program's hook at `path`, such as whether it runs the gate."""
    if _runs_gate(content, hooks_folder.working_tree):
        yield "ok", f"{path} belongs to another program and runs the gate"
    else:
        remedy = "judgekit install git runs it first, then the gate"
        yield "note", f"{path} belongs to another program; {remedy}"

    if not os.access(path, os.X_OK):
        yield "note", f"{path} is not executable: git skips it"

    yield from _describe_left_backup(path)


def _runs_gate(content: bytes, tree: Path | None) -> bool:
    """Whether another program's hook runs the gate, by itself or as its manager's configuration says."""
    if files.mentions_in_code(content, "judgekit"):
        return True
    if tree is None:  # a bare repository has no files, and so no configuration
        return False
    try:
        return _manager_runs_gate(content, tree)
    except InputError:  # the configuration is unreadable, which its manager will report
        return False


def _manager_runs_gate(content: bytes, tree: Path) -> bool:
    """Whether a hook was written by pre-commit, prek or lefthook, and their configuration lists the gate."""
    if b"pre-commit.com" in content or b"prek" in content:
        return pre_commit.runs_gate(tree)
    if b"lefthook" not in content:
        return False
    configuration = _find_lefthook(tree)
    if configuration is None:
        return False
    return files.mentions_in_code(files.read_content(configuration), "judgekit")


def _describe_left_backup(path: Path) -> Iterator[Remark]:
    """Yield a remark if our hook is gone, but its backup of an earlier hook is still there."""
    backup = path.with_name(EARLIER_HOOK)
    if os.path.lexists(backup):
        reason = "it ran before judgekit's hook, but another program replaced that"
        yield "note", f"{backup} does not run: {reason}; move it back or remove it"


def _describe_husky(hooks: Path, file: Path) -> Iterator[Remark]:
    """Yield a remark on husky, which manages the hooks folder, and whether it runs the gate."""
    if not husky.runs_gate(file):
        yield "note", f"husky does not run the gate; {husky.describe_setup(hooks, file)}"
    elif not husky.is_set_up(hooks):
        yield "wrong", f"{file} runs the gate, but {husky.describe_setup(hooks, file)}"
    else:
        yield "ok", f"husky runs {file}, which runs the gate"


def _describe_ours(path: Path, content: bytes) -> Iterator[Remark]:
    """Yield remarks about our hook at `path`, its Python, and the hook that it replaced."""
    python, root = read_installation(content)
    yield _describe_our_hook(path, content, python, root)

    has_python = bool(python) and os.access(python, os.X_OK)
    if not has_python:
        yield _describe_missing_python(path, python)

    yield from _describe_earlier_hook(path)


def _describe_our_hook(path: Path, content: bytes, python: str, root: str) -> Remark:
    """Describe whether git runs our hook, and whether its content is what this version writes."""
    if not os.access(path, os.X_OK):
        return "wrong", f"{path} is not executable: git skips it; {_INSTALL_AGAIN}"
    if identify_owner(content) == "edited":
        return (
            "note",
            f"{path} is judgekit's, edited by hand: judgekit does not change or remove it",
        )
    if content != render_hook(python, root):
        return "note", f"{path} is from another version of judgekit; {_INSTALL_AGAIN}"

    # If pre-commit was installed later, it renamed our hook, and runs it from its own.
    is_renamed = path.name != HOOK
    caller = f" (from {HOOK}, which pre-commit has written)" if is_renamed else ""
    return "ok", f"git runs {path}{caller}, which runs judgekit of {python}"


def _describe_missing_python(path: Path, python: str) -> Remark:
    """Describe a hook whose Python no longer exists.

    Such a hook runs the `judgekit` on the PATH instead. Without one, it judges nothing.
    """
    problem = f"{path}: its interpreter {python} no longer exists"
    program_on_path = programs.find("judgekit", os.environ)
    if program_on_path is None:
        return "wrong", f"{problem}: pushes are not judged; {_INSTALL_AGAIN}"
    return (
        "note",
        f"{problem}: it runs {program_on_path} where that is on the PATH; {_INSTALL_AGAIN}",
    )


def _describe_earlier_hook(path: Path) -> Iterator[Remark]:
    """Yield a remark on the earlier hook that ours at `path` replaced and renamed, if there's one."""
    earlier_hook = path.with_name(EARLIER_HOOK)
    if os.access(earlier_hook, os.X_OK):
        yield "ok", f"{earlier_hook}, the earlier hook, runs first and can stop a push"
    elif os.path.lexists(earlier_hook):
        yield "note", f"{earlier_hook}, the earlier hook, does not run: it was not executable"
