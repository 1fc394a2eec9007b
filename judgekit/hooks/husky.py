"""husky, which manages a project's folder of hooks: which file it runs, and whether that runs the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.hooks import files
from judgekit.hooks.pre_commit import BLOCKED

if TYPE_CHECKING:
    from pathlib import Path

# husky runs a hook with `sh -e`, where a command that fails ends it: so its code is looked at at once. Where
# there is no judgekit, the shell's own code is none that stops a push.
LINE = f'judgekit gate --pre-push "$1" "$2" --blocked-code {BLOCKED} || [ $? -ne {BLOCKED} ]'
_HOOK = "pre-push"
_SET_UP = "npx husky (or npm install)"


def file_of(hooks: Path) -> Path | None:
    """Return the file that husky runs before a push; None where husky does not manage the folder `hooks`.

    A new worktree has no such folder yet: `git worktree` makes only what is committed, and husky's own
    programs are not.
    """
    if _is_version_9(hooks):  # what stands in that folder is husky's, and is written again
        return hooks.parent / _HOOK
    is_version_5_to_8 = hooks.name == ".husky" or (hooks / "_" / "husky.sh").is_file()
    if is_version_5_to_8:
        return hooks / _HOOK
    return None


def _is_version_9(hooks: Path) -> bool:
    return hooks.name == "_"


def runs_gate(file: Path) -> bool:
    return files.names_in_code(files.read(file), "judgekit")


def is_set_up(hooks: Path) -> bool:
    """Whether husky's own programs are there; without them git runs no hook of husky's."""
    return any((hooks / name).is_file() for name in ("h", "husky.sh", "_/husky.sh"))


def describe_setup(hooks: Path, file: Path) -> str:
    """Return in a sentence what is left to do until husky, by `file`, runs the gate."""
    steps = []
    if not is_set_up(hooks):
        steps.append(f"git runs no hook of husky's here until you run {_SET_UP}")
    if not runs_gate(file):
        # Version 9 starts the file with `sh`; before, git itself does.
        executable_note = "" if _is_version_9(hooks) else ", and make that file executable"
        steps.append(f"add this line to {file}{executable_note}: {LINE}")
    if not steps:
        return f"{file} runs the gate already; nothing is to be installed"
    return "; ".join(steps)
