"""judgekit as git's pre-push hook: what is written where, what was there before, and back again."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit import programs
from judgekit.config.files import folder
from judgekit.errors import InputError, UsageError
from judgekit.hooks import files

if TYPE_CHECKING:
    from pathlib import Path

HOOK = "pre-push"
KEPT = "pre-push.before-judgekit"  # a hook that was there before, which ours runs first
LEGACY = "pre-push.legacy"  # what the pre-commit framework makes of ours when it is installed later
BLOCKED = (
    85  # no exit code of ours, of Python (1, 2, 120), of a shell (126 and more) or of sysexits (64 to 78)
)

_HEAD = re.compile(rb"\A#!/bin/sh\r?\n# judgekit: git's pre-push hook ([0-9a-f]{16})\r?\n")
_INSTALLATION = re.compile(
    r"^python=((?:(?!^python=).)*?)\n(?:root=((?:(?!^root=).)*?)\n)?before=", re.MULTILINE | re.DOTALL
)

_LONGEST = 4096  # characters of a path in quotes

Kind: TypeAlias = Literal["none", "ours", "edited", "foreign"]


class HookChange(NamedTuple):
    """What would become of the hook at `path`; None stands for no file.

    `moves`: a hook of another program is put aside, or back in its place. `lame`: git skips it, for it lacks
    its run bit.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    moves: bool = False
    lame: bool = False

    @property
    def changes(self) -> bool:
        return self.before != self.after or self.moves or self.lame

    @property
    def kept(self) -> Path:
        """Where the other program's hook is kept."""
        return self.path.with_name(KEPT)


def text(python: str | None = None, root: str = programs.ROOT) -> bytes:
    """Return the hook that runs the judgekit in the folder `root` with an interpreter (this one)."""
    template = (folder("hooks") / "git-pre-push.sh").read_text(encoding="utf-8")
    values = {
        "PYTHON": shlex.quote(python or sys.executable or ""),
        "ROOT": shlex.quote(root),
        "OWN_PYTHON": programs.OWN_PYTHON,
        "KEPT": KEPT,
        "BLOCKED": str(BLOCKED),
    }
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    head, _, body = os.fsencode(template).partition(b"@SUM@\n")
    return head + _sum(body) + b"\n" + body


def kind(content: bytes | None) -> Kind:
    """Say whose hook this is; `edited` is one of ours that was changed by hand."""
    if content is None:
        return "none"
    found = _HEAD.match(content)
    if found is None:
        return "foreign"
    return "ours" if found[1] == _sum(content[found.end() :]) else "edited"


def installation(content: bytes) -> tuple[str, str]:
    """Return the interpreter that a hook of ours runs, and the folder of its judgekit.

    The latter is "" where the hook is older and names none.
    """
    found = _INSTALLATION.search(os.fsdecode(content))
    quoted = found.groups(default="") if found else ("", "")
    python, root = ("".join(shlex.split(each)) if len(each) <= _LONGEST else "" for each in quoted)
    return python, root


def endpoint(hooks: Path) -> Path:
    """Return the file in a folder of hooks that is ours or is to be it."""
    legacy = hooks / LEGACY
    return legacy if kind(files.read(legacy)) == "ours" else hooks / HOOK


def planned_install(hooks: Path, python: str | None = None) -> HookChange:
    """Return what installing the hook would change.

    Raises `UsageError` when our hook was edited, or another one stands where one is kept already.
    """
    path = endpoint(hooks)
    before = files.read(path)
    found = "foreign" if before is None and path.is_symlink() else kind(before)
    _refuse_edited(path, found)
    lame = found == "ours" and not os.access(path, os.X_OK)
    change = HookChange(path, before, text(python), found == "foreign", lame)
    if change.moves and os.path.lexists(change.kept):
        both = f"{path} belongs to another program, and so does {change.kept}, which ran before"
        raise UsageError(f"{both} judgekit's; remove one or combine both in one file, then run this again")
    return change


def planned_uninstall(hooks: Path) -> HookChange:
    """Return what taking the hook out would change: one that was kept comes back as it was.

    Raises `UsageError` when our hook was edited.
    """
    path = endpoint(hooks)
    before = files.read(path)
    found = kind(before)
    _refuse_edited(path, found)
    if found == "foreign" or (found == "none" and path.is_symlink()):
        return HookChange(path, before, before)
    change = HookChange(path, before, None)
    return change._replace(moves=os.path.lexists(change.kept))


def install(change: HookChange) -> None:
    """Write a planned installation.

    Raises `InputError` when that cannot be done; then nothing has changed.
    """
    if not change.changes or change.after is None:
        return
    if change.moves:
        _move(change.path, change.kept)
    try:
        made = files.replace(change.path, None if change.moves else change.before, change.after)
        change.path.chmod(change.path.stat().st_mode | 0o111)
    except (InputError, OSError):
        if change.moves:
            _move(change.kept, change.path)
        raise
    files.remember(change.path, made, None, change.after)


def uninstall(change: HookChange) -> None:
    """Carry out a planned removal; raises as `install` does."""
    if not change.changes:
        return
    if change.moves:
        _move(change.kept, change.path)
    else:
        files.replace(change.path, change.before, None)
    files.forget(change.path)


def _refuse_edited(path: Path, found: Kind) -> None:
    if found == "edited":
        told = f"move your additions to {path.with_name(KEPT)}, which runs first, and remove it"
        raise UsageError(f"{path}: judgekit's hook, but edited; {told}")


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body.replace(b"\r\n", b"\n")).hexdigest()[:16].encode()


def _move(path: Path, target: Path) -> None:
    try:
        path.replace(target)
    except OSError as error:
        told = "check that you can write to the folder; nothing was changed"
        raise InputError(f"{path}: cannot be moved to {target} ({error.strerror}); {told}") from None
