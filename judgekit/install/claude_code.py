"""judgekit in Claude Code's settings: which file, what would stand in it, and writing it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import paths
from judgekit.errors import ConfigError, UsageError
from judgekit.install import entries, files, forms, record

if TYPE_CHECKING:
    from judgekit.install.scopes import Scope


class Change(NamedTuple):
    """What an installation would make of one settings file; None stands for no file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.before != self.after


def settings_file(scope: Scope, project: Path) -> Path:
    """Return the settings file of a scope, for the project in the folder `project`."""
    if scope == "user":
        return user_folder() / "settings.json"
    return project / ".claude" / ("settings.json" if scope == "project" else "settings.local.json")


def user_folder() -> Path:
    """Return the folder of the user's own settings."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path("~/.claude").expanduser()).absolute()


def project_folder(folder: Path | None = None) -> Path:
    """Return the project around `folder` (the current one)."""
    return Path(paths.project_root(str(folder or Path.cwd())))


def planned_install(scope: Scope, project: Path, python: str | None = None) -> Change:
    """Return what installing the hook would change.

    `python` is the interpreter that runs it (this one); the project scope, which is shared, names none.

    Raises `ConfigError` when the file is not what Claude Code reads, `InputError` when it cannot be read, and
    `UsageError` when the project's file is the user's own.
    """
    path = settings_file(scope, project)
    if scope != "user" and path.resolve() == settings_file("user", project).resolve():
        raise UsageError(f"{path} is your own settings file: --scope user writes it; or go into a project")
    before = files.read(path)
    hook = forms.portable() if scope == "project" else forms.fastest(python)
    after = entries.installed(_text(path, before), hook, str(path))
    return Change(path, before, after.encode())


def planned_uninstall(scope: Scope, project: Path) -> Change:
    """Return what taking the hook out would change: a file that holds nothing else goes.

    Raises as `planned_install` does.
    """
    path = settings_file(scope, project)
    before = files.read(path)
    text = _text(path, before)
    if not entries.found(text, str(path)):
        return Change(path, before, before)
    after = entries.uninstalled(text, str(path))
    gone = not after and not record.was_empty(path)
    return Change(path, before, None if gone else after.encode())


def install(change: Change) -> None:
    """Write a planned installation.

    Raises `InputError` when that cannot be done; then nothing has changed.
    """
    if change.changes:
        made = files.replace(change.path, change.before, change.after)
        record.add(change.path, made, before=change.before)


def uninstall(change: Change) -> None:
    """Carry out a planned removal, that of folders made for it too. Raises as `install` does."""
    if not change.changes:
        return
    files.replace(change.path, change.before, change.after)
    record.forget(change.path)


def _text(path: Path, content: bytes | None) -> str:
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        line = (content or b"").count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte {error.start}); save it as UTF-8, nothing was changed"
        raise ConfigError(problem, path=path, line=line) from None
