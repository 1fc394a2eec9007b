"""judgekit as git's pre-push hook: finds the hook that git runs, plans its installation and removal."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit import programs
from judgekit.config.files import folder as data_folder
from judgekit.errors import InputError, UsageError
from judgekit.git import GitError, Repository
from judgekit.hooks import files, husky, pre_commit
from judgekit.hooks.files import FileChange
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.hooks.entries import Scope
    from judgekit.hooks.install import Finding, State

    Remark: TypeAlias = tuple[State, str]

HOOK = "pre-push"
HOOKS_PATH = "core.hooksPath"
KEPT = "pre-push.before-judgekit"  # an earlier hook, which ours runs first
# Added to the hooks folder's name: there the earlier hook finds its neighbours
BESIDE = ".before-judgekit"
LEGACY = "pre-push.legacy"  # the pre-commit framework's name for ours if it's installed later
_NAMES = (HOOK, LEGACY, "pre-push.old")  # the last is lefthook's name for it

_HEAD = re.compile(rb"\A#!/bin/sh\r?\n# judgekit: git's pre-push hook ([0-9a-f]{16})\r?\n")
_INSTALLATION = re.compile(r"^python=(.*)\n(?:root=(.*)\n)?(?:before|hooks)=", re.MULTILINE)
_MAX_PATH_CHARS = 4096  # characters of a path in quotes
_AGAIN = "run judgekit install git again"

Owner: TypeAlias = Literal["none", "ours", "edited", "foreign"]


class HooksFolder(NamedTuple):
    """The folder of a repository's hooks, and its working tree; `shared` if others may use it too.

    `usual` is their folder without `core.hooksPath`. `is_off`: that setting names no folder, so git runs
    none.
    """

    hooks: Path
    tree: Path | None  # None for a bare repository
    shared: bool
    usual: Path | None = None
    is_off: bool = False


def find_hooks(folder: Path) -> HooksFolder:
    """Find the folder with the git hooks of the repository that contains `folder`.

    Raises `UsageError` if there's no repository.
    """
    try:
        tree = _ask_for_path(Repository(folder), folder, "--show-toplevel")
        repository = Repository(tree)
    except UsageError:  # without a working tree, it may be a bare repository
        tree = None
        bare = Repository(folder, bare=True)
        repository = Repository(_ask_for_path(bare, folder, "--absolute-git-dir"), bare=True)

    # Relative paths in git's configuration are relative to the folder where hooks run.
    hooks = _ask_for_path(repository, repository.folder, "--git-path", "hooks")
    common = _ask_for_path(repository, repository.folder, "--git-common-dir")

    # A folder outside the repository is probably shared with other repositories.
    real_hooks = hooks.resolve()
    is_in_git_folder = real_hooks.is_relative_to(common.resolve())
    is_in_tree = tree is not None and real_hooks.is_relative_to(tree.resolve())
    is_elsewhere = not is_in_git_folder and not is_in_tree

    # Find out if the configuration switches hooks off.
    is_no_folder = hooks.exists() and not hooks.is_dir()  # e.g. /dev/null
    # git takes an empty path as the root folder, which contains no hooks.
    is_off = is_no_folder or _read_setting(folder, HOOKS_PATH) == ""
    return HooksFolder(hooks, tree, shared=is_elsewhere, usual=common / "hooks", is_off=is_off)


def _ask_for_path(repository: Repository, base: Path, *words: str) -> Path:
    """Ask `git rev-parse` for a path; raises `UsageError` outside a repository."""
    try:
        raw = repository.ask("rev-parse", *words)
    except GitError as error:
        raise UsageError(f"no git repository at {base}; change to one ({error})") from None
    return Path(os.path.abspath(base / os.fsdecode(raw).removesuffix("\n")))


def choose_hooks(scope: Scope, folder: Path) -> HooksFolder:
    """Choose the hooks folder: the repository's for scope "local", the user's shared folder for "user".

    Raises `UsageError` if there's no suitable folder.
    """
    if scope == "project":
        instead = "use judgekit install pre-commit, or add a line to the project's hook manager"
        raise UsageError(f"git does not share hooks with clones: {instead} (docs/gate-install.md)")

    if scope == "local":
        repository_folder = find_hooks(folder)
        _refuse_if_off(repository_folder, folder)
        if repository_folder.shared:
            remedy = "core.hooksPath sets it; --scope user installs there, for all repositories"
            raise UsageError(f"other repositories share {repository_folder.hooks}: {remedy}")
        return repository_folder

    # For the scope "user", git's global configuration names the folder.
    users_path = _read_setting(folder, HOOKS_PATH, "--global", "--type=path")
    if users_path is not None and Path(users_path).is_absolute():
        return HooksFolder(Path(users_path), tree=None, shared=True)

    # The path can be relative, or be set for this repository or machine. Use the folder that git uses here,
    # if other repositories share it.
    with contextlib.suppress(UsageError):
        repository_folder = find_hooks(folder)
        _refuse_if_off(repository_folder, folder)
        if repository_folder.shared:
            return repository_folder

    remedy = "set one with git config --global core.hooksPath FOLDER"
    effect = "which replaces the hooks of every repository"
    raise UsageError(f"no shared hooks folder is set up; {remedy}, {effect}")


def _refuse_if_off(hooks_folder: HooksFolder, folder: Path) -> None:
    """Raise `UsageError` if git's configuration switches all hooks off."""
    if hooks_folder.is_off:
        raise UsageError(f"{_describe_off(folder)}; unset it: git config --unset {HOOKS_PATH}")


def _describe_off(folder: Path) -> str:
    """Explain that git runs no hooks because `core.hooksPath` isn't a folder. Names the file that sets it."""
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
    template = (data_folder("hooks") / "git-pre-push.sh").read_text(encoding="utf-8")
    values = {
        "PYTHON": shlex.quote(python or sys.executable or ""),
        "ROOT": shlex.quote(root),
        "OWN_PYTHON": programs.OWN_PYTHON,
        "KEPT": KEPT,
        "HOOK": HOOK,
        "BESIDE": BESIDE,
        "BLOCKED": str(pre_commit.BLOCKED),
    }

    for name, value in values.items():
        template = template.replace(f"@{name}@", value)

    # Insert the checksum of the lines below it. It shows later whether anyone edited the hook.
    head, _, body = os.fsencode(template).partition(b"@SUM@\n")
    return head + _compute_checksum(body) + b"\n" + body


def identify_owner(content: bytes | None) -> Owner:
    """Identify a hook's owner by its content.

    "none" means that there's no file, "edited" that our hook was changed by hand, and "foreign" that it's
    another program's.
    """
    if content is None:
        return "none"
    head = _HEAD.match(content)
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
    match = _INSTALLATION.search(os.fsdecode(content))
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

    Raises `UsageError` if our hook was edited, if there's already another backup, or if husky manages the
    folder.
    """
    file = husky.find_hook_file(hooks_folder.hooks)
    if file is not None:
        raise UsageError(
            f"husky manages {hooks_folder.hooks}; {husky.describe_setup(hooks_folder.hooks, file)}"
        )

    path = _find_our_file(hooks_folder.hooks)
    before, owner = _read_hook(path)
    backup = path.with_name(KEPT)
    is_foreign = owner == "foreign"

    # Git LFS can overwrite our hook with its hook, which then equals the backup. If they differ, there are
    # two hooks of other programs, and only one can be renamed.
    if is_foreign and os.path.lexists(backup) and files.read_content(backup) != before:
        conflict = (
            f"{path} belongs to another program, and so does {backup}, which ran before judgekit's"
        )
        raise UsageError(f"{conflict}; remove one or combine both in one file, then run this again")

    lacks_run_bit = owner == "ours" and not os.access(path, os.X_OK)
    return FileChange(
        path,
        before,
        after=render_hook(python),
        backup=backup if is_foreign else None,
        not_executable=lacks_run_bit,
        is_users=hooks_folder.shared,
    )


def plan_uninstall(hooks_folder: HooksFolder) -> FileChange:
    """Plan the removal of our hook, and the return of any hook that it replaced.

    Another program's hook is left alone. Raises `UsageError` if our hook was edited.
    """
    path = _find_our_file(hooks_folder.hooks)
    before, owner = _read_hook(path)
    if owner == "foreign":
        return FileChange(path, before, after=before)
    return _plan_removal(path, path.with_name(KEPT), is_users=hooks_folder.shared)


def plan_uninstalls(scope: Scope, folder: Path) -> list[FileChange]:
    """Plan the removal of our hooks from all folders in which this repository can have them.

    If there's no hook of ours, the only change does nothing. Raises `UsageError` outside a repository, and
    for the same reasons as `plan_uninstall`.
    """
    if scope != "local":
        return [plan_uninstall(choose_hooks(scope, folder))]

    # Since the installation, another program can have renamed our hook, or the hooks folder can have changed.
    hooks_folder = find_hooks(folder)
    changes: list[FileChange] = []
    for hooks in _list_folders(hooks_folder):
        backup: Path | None = hooks / KEPT  # where another program's hook was moved to
        for path in _list_our_hooks(hooks):
            changes.append(_plan_removal(path, backup, is_users=False))
            backup = None  # restore the backup only once, in place of our first hook

        # If our hook is gone but its backup remains, restore the backup.
        is_backup_alone = backup is not None and not changes and os.path.lexists(backup)
        if is_backup_alone and not os.path.lexists(hooks / HOOK):
            changes.append(_plan_removal(hooks / HOOK, backup, is_users=False))

    if changes:
        return changes

    # Don't remove a hook that other repositories use.
    if hooks_folder.shared and any(_list_our_hooks(hooks_folder.hooks)):
        remedy = "judgekit uninstall git --scope user removes it"
        raise UsageError(
            f"judgekit's hook is in {hooks_folder.hooks}, for all repositories; {remedy}"
        )

    # There's nothing to remove. Name the place where the hook would be.
    usual_hooks = hooks_folder.hooks
    if hooks_folder.is_off and hooks_folder.usual is not None:
        usual_hooks = hooks_folder.usual
    return [FileChange(usual_hooks / HOOK, None, after=None)]


def _list_folders(hooks_folder: HooksFolder) -> list[Path]:
    """List the folders that may contain our hook and that only this repository uses."""
    folders = []
    if not hooks_folder.shared and not hooks_folder.is_off:
        folders.append(hooks_folder.hooks)
    if hooks_folder.usual is not None and hooks_folder.usual not in folders:
        folders.append(hooks_folder.usual)
    husky_file = husky.find_hook_file(hooks_folder.hooks)
    if husky_file is not None and husky_file.parent not in folders and not hooks_folder.shared:
        folders.append(husky_file.parent)
    return folders


def _list_our_hooks(hooks: Path) -> list[Path]:
    """List our hooks in a folder, including those that another program has renamed."""
    our_hooks = []
    for name in _NAMES:
        path = hooks / name
        if path.is_file() and identify_owner(files.read_content(path)) in ("ours", "edited"):
            our_hooks.append(path)
    return our_hooks


def _plan_removal(path: Path, backup: Path | None, *, is_users: bool) -> FileChange:
    """Plan a hook's removal. If there's a `backup` of a replaced hook, restore it."""
    before, _ = _read_hook(path)
    if backup is not None and not os.path.lexists(backup):
        backup = None
    return FileChange(path, before, after=None, backup=backup, is_users=is_users)


def list_other_callers(folder: Path) -> Iterator[str]:
    """Yield a remark about each other program that runs the gate before a push, such as husky or pre-commit.

    The gate is the check of pushed files that our git hook runs.
    """
    hooks_folder = find_hooks(folder)
    if hooks_folder.is_off:  # git runs no hooks at all
        return

    husky_file = husky.find_hook_file(hooks_folder.hooks)
    if husky_file is not None and husky.runs_gate(husky_file):
        yield f"{husky_file} still runs the gate; remove its line with judgekit"

    if hooks_folder.tree is not None and pre_commit.runs_gate(hooks_folder.tree):
        path = pre_commit.get_active_config_path(hooks_folder.tree)
        yield f"{path} still lists the gate; judgekit uninstall pre-commit removes it"

    lefthook = _find_lefthook(hooks_folder.tree)
    if lefthook is not None and files.mentions_in_code(files.read_content(lefthook), "judgekit"):
        yield f"{lefthook} still runs the gate; remove its lines with judgekit"


def uninstall(change: FileChange) -> None:
    """Carry out a planned removal. Without any hook of ours left, also remove the folder of links."""
    files.uninstall(change)
    hooks = change.path.parent
    if not _list_our_hooks(hooks):
        _remove_links(hooks.with_name(hooks.name + BESIDE))


def _remove_links(folder: Path) -> None:
    """Remove the links that our hook made in a folder, and the folder if it's empty then."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_symlink() or path.name in (HOOK, ".gitignore"):
            path.unlink()
    files.remove_folders([folder])


def _read_hook(path: Path) -> tuple[bytes | None, Owner]:
    """Read the hook's file and identify its owner; the content is None if it can't be found.

    Raises `UsageError` if our hook was edited.
    """
    content = files.read_content(path)
    is_dangling_link = content is None and path.is_symlink()
    if is_dangling_link:  # our hook is never a link, so this one is another program's
        return None, "foreign"
    owner = identify_owner(content)
    if owner == "edited":
        remedy = f"move your additions to {path.with_name(KEPT)}, which runs first, and remove it"
        raise UsageError(f"{path}: judgekit's hook, but edited; {remedy}")
    return content, owner


def list_notes(hooks_folder: HooksFolder) -> Iterator[str]:
    """Yield remarks on what to know about a hooks folder, for example that the hook could be committed."""
    tree = hooks_folder.tree
    hook = str(hooks_folder.hooks / HOOK)
    may_be_in_tree = not hooks_folder.shared and ".git" not in hooks_folder.hooks.parts
    if tree is not None and may_be_in_tree:
        is_ignored = Repository(tree).succeeds("check-ignore", "--quiet", hook)
        if not is_ignored:
            remedy = "do not commit the hook, because it names paths of this machine; or install pre-commit"
            yield f"{hooks_folder.hooks} is inside the project; {remedy}"

    if hooks_folder.shared:
        yield f"all repositories with this core.hooksPath use {hooks_folder.hooks}"

    # lefthook, another hook manager, would replace our hook.
    configuration = _find_lefthook(tree)
    if configuration is not None and not files.mentions_in_code(
        files.read_content(configuration), "judgekit"
    ):
        instead = f"add the gate to {configuration} (docs/gate-install.md)"
        yield f"lefthook install replaces hooks: {instead}"


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
        if hooks_folder.is_off:
            yield "note", f"{_describe_off(folder)}; judgekit install git says what to do"
            return

        path = _find_our_file(hooks_folder.hooks)
        content = files.read_content(path)
    except UsageError:  # there is no repository
        return
    except InputError as error:
        yield "wrong", str(error)
        return

    # First describe any hooks of ours that git doesn't run, and the setting that chose the folder.
    for folder_of_hooks in _list_folders(hooks_folder):
        for our_path in _list_our_hooks(folder_of_hooks):
            if our_path != path:
                remedy = "judgekit uninstall git removes it"
                yield "note", f"{our_path} is judgekit's, but git doesn't run it itself; {remedy}"

    origin = _read_setting(folder, HOOKS_PATH, "--show-origin")
    if origin is not None:
        source, _, _ = origin.partition("\t")
        yield "ok", f"hooks are in {hooks_folder.hooks}, set by core.hooksPath ({source})"

    # Then describe the hook that git runs, and hooks from other sources.
    husky_file = husky.find_hook_file(hooks_folder.hooks)
    if husky_file is not None:
        yield from _describe_husky(hooks_folder.hooks, husky_file)
    elif content is None or identify_owner(content) == "foreign":
        yield from _describe_foreign(hooks_folder, path, content)
    else:
        yield from _describe_ours(path, content)

    yield from _describe_configured_hooks(folder)
    for note in list_notes(hooks_folder):
        yield "note", note


def _describe_configured_hooks(folder: Path) -> Iterator[Remark]:
    """Yield a remark on each pre-push hook in git's configuration. Git 2.54 and newer run these."""
    try:
        raw = Repository(folder).ask("config", "--get-regexp", r"^hook\..*\.event$", "^pre-push$")
    except GitError:  # there's none
        return
    for line in lines_of(os.fsdecode(raw)):
        key, _, _ = line.partition(" ")  # a line is `hook.NAME.event pre-push`
        name = key.removeprefix("hook.").removesuffix(".event")
        command = _read_setting(folder, f"hook.{name}.command") or ""
        yield "note", f'git 2.54 and newer also run the configured hook "{name}": {command}'


def _describe_foreign(
    hooks_folder: HooksFolder, path: Path, content: bytes | None
) -> Iterator[Remark]:
    """Yield remarks about another program's hook at `path`, such as whether it runs our gate.

    `content` is None if there's no hook.
    """
    if content is None:
        yield "note", f"no {path}; install it with judgekit install git"
    else:
        runs_gate = files.mentions_in_code(content, "judgekit")
        if not runs_gate and hooks_folder.tree is not None:
            # The hook can belong to a hook manager, whose configuration lists the gate. Ignore an unreadable
            # configuration: its manager will report that.
            with contextlib.suppress(InputError):
                runs_gate = _manager_runs_gate(content, hooks_folder.tree)

        if runs_gate:
            yield "ok", f"{path} belongs to another program and runs the gate"
        else:
            instead = "judgekit install git runs it first, then the gate"
            yield "note", f"{path} belongs to another program; {instead}"

        if not os.access(path, os.X_OK):
            yield "note", f"{path} is not executable: git skips it"

    # Our hook once moved another program's hook here, and is gone now.
    earlier_hook = path.with_name(KEPT)
    if os.path.lexists(earlier_hook):
        reason = "it ran before judgekit's hook, but another program replaced that"
        yield "note", f"{earlier_hook} does not run: {reason}; move it back or remove it"


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


def _describe_husky(hooks: Path, file: Path) -> Iterator[Remark]:
    """Yield a remark on husky, which manages the hooks folder, and whether it runs the gate."""
    if not husky.runs_gate(file):
        yield "note", f"husky does not run the gate; {husky.describe_setup(hooks, file)}"
    elif not husky.is_set_up(hooks):
        yield "wrong", f"{file} runs the gate, but {husky.describe_setup(hooks, file)}"
    else:
        yield "ok", f"husky runs {file}, which runs the gate"


def _describe_ours(path: Path, content: bytes) -> Iterator[Remark]:
    """Yield remarks about our hook at `path`.

    They say whether git runs the hook, whether its Python is missing, and whether the hook that it replaced
    still runs.
    """
    python, root = read_installation(content)
    if not os.access(path, os.X_OK):
        yield "wrong", f"{path} is not executable: git skips it; {_AGAIN}"
    elif identify_owner(content) == "edited":
        yield "note", f"{path} is judgekit's, edited by hand: judgekit does not change or remove it"
    elif content != render_hook(python, root):
        yield "note", f"{path} is from another version of judgekit; {_AGAIN}"
    else:
        caller = "" if path.name == HOOK else f" (from {HOOK}, which pre-commit has written)"
        yield "ok", f"git runs {path}{caller}, which runs judgekit of {python}"

    if not python or not os.access(python, os.X_OK):
        yield _describe_missing_python(path, python)

    # When our hook was installed, another program's hook was renamed to this.
    earlier_hook = path.with_name(KEPT)
    if os.access(earlier_hook, os.X_OK):
        yield "ok", f"{earlier_hook}, the earlier hook, runs first and can stop a push"
    elif os.path.lexists(earlier_hook):
        yield "note", f"{earlier_hook}, the earlier hook, does not run: it was not executable"


def _describe_missing_python(path: Path, python: str) -> Remark:
    """Describe a hook whose Python no longer exists. It runs the `judgekit` on the PATH if there's one."""
    problem = f"{path}: its interpreter {python} no longer exists"
    program_on_path = programs.find("judgekit", os.environ)
    if program_on_path is None:
        return "wrong", f"{problem}: pushes are not judged; {_AGAIN}"
    return "note", f"{problem}: it runs {program_on_path} where that is on the PATH; {_AGAIN}"
