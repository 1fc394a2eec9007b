"""husky, which manages a project's folder of hooks: finds its pre-push file, and whether it runs the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.hooks import files
from judgekit.hooks.pre_commit import BLOCKED_EXIT_CODE

if TYPE_CHECKING:
    from pathlib import Path

# husky runs a hook with `sh -e`, which ends at a failing command, so check the exit code at once. If judgekit
# isn't there, the shell's own code isn't one that stops a push.
HUSKY_HOOK_LINE = (
    f'judgekit gate --pre-push "$1" "$2" --blocked-code {BLOCKED_EXIT_CODE} '
    f"|| [ $? -ne {BLOCKED_EXIT_CODE} ]"
)
_HOOK_NAME = "pre-push"
_SET_UP_COMMAND = "npx husky (or npm install)"


def find_hook_file(hooks: Path) -> Path | None:
    """Return the file that husky runs before a push; None if husky doesn't manage `hooks`.

    The folder needn't exist. In a new worktree, it's missing until husky is set up there.
    """
    if _is_version_9(hooks):
        # husky overwrites the files in `hooks`, so the user's own are in the folder above.
        return hooks.parent / _HOOK_NAME
    if _is_version_5_to_8(hooks):
        return hooks / _HOOK_NAME
    return None


def _is_version_9(hooks: Path) -> bool:
    """Whether a hooks folder is husky 9's or newer: `.husky/_`."""
    return hooks.name == "_"


def _is_version_5_to_8(hooks: Path) -> bool:
    """Whether a hooks folder is that of husky 5 to 8: `.husky`, or another name that was chosen for it."""
    has_husky_script = (hooks / "_" / "husky.sh").is_file()
    return hooks.name == ".husky" or has_husky_script


def runs_gate(file: Path) -> bool:
    """Whether husky's file mentions judgekit outside of comments."""
    return files.mentions_in_code(files.read_content(file), "judgekit")


def is_set_up(hooks: Path) -> bool:
    """Whether husky's own programs are installed, which git needs to run its hooks."""
    return any((hooks / name).is_file() for name in ("h", "husky.sh", "_/husky.sh"))


def describe_setup(hooks: Path, file: Path) -> str:
    """Describe the remaining steps until husky runs the gate from `file`."""
    steps = []
    if not is_set_up(hooks):
        steps.append(f"git runs no hook of husky's here until you run {_SET_UP_COMMAND}")
    if not runs_gate(file):
        # Since version 9, husky runs the file with `sh`. Before, git runs it directly.
        executable_note = "" if _is_version_9(hooks) else ", and make that file executable"
        steps.append(f"add this line to {file}{executable_note}: {HUSKY_HOOK_LINE}")
    if not steps:
        return f"{file} runs the gate already; nothing is to be installed"
    return "; ".join(steps)
