"""Installs the search skill beside the prompt hook, so that an agent knows how to search for memories.

A skill names the commands that an agent may run. If the program isn't on its PATH, ours names its path.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from judgekit.config import files as bundled
from judgekit.errors import UsageError
from judgekit.hooks import context, files, install
from judgekit.hooks.files import FileChange

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.hooks.clients import Client
    from judgekit.hooks.entries import Scope

SKILL_NAME = "memory-search"
_COMMAND_PREFIX = "judgekit "  # our program and the space after it, as in the text of the skill


def get_skill_path(scope: Scope, project: Path, client: Client) -> Path:
    """Return the path of the skill's file next to the client's settings. It may not exist."""
    return (
        install.get_settings_path(scope, project, client).parent
        / "skills"
        / SKILL_NAME
        / "SKILL.md"
    )


def render_skill(scope: Scope) -> bytes:
    """Render the skill for the user or for a project."""
    file = bundled.get_data_folder("skills") / SKILL_NAME / "SKILL.md"
    text = file.read_text(encoding="utf-8")
    # A project's skill is shared with other people, so it mustn't contain paths of this machine.
    program = context.PROGRAM if scope == "project" else context.find_agent_command()
    if program and program != context.PROGRAM:
        text = _replace_program(text, program)
    return text.encode()


def _replace_program(text: str, program: str) -> str:
    """Put a program in place of ours, in a skill's permissions, `Bash(...)`, and in its lines of commands."""
    command = f"{program} "  # with the same space as `_COMMAND_PREFIX`
    text = text.replace(f"Bash({_COMMAND_PREFIX}", f"Bash({command}")
    return text.replace(f"\n{_COMMAND_PREFIX}", f"\n{command}")


def plan_install(scope: Scope, project: Path, client: Client) -> FileChange:
    """Plan the installation of the skill; raises `UsageError` if another file is in its place."""
    path = get_skill_path(scope, project, client)
    before = files.read_content(path)
    after = render_skill(scope)
    may_be_written = before is None or before == after or _is_ours(path, before)
    if not may_be_written:
        problem = "is there already, and judgekit did not write it; move it away, or install without --skill"
        raise UsageError(f"{path} {problem}")
    return FileChange(path, before, after, is_user_file=scope == "user")


def plan_uninstall(scope: Scope, project: Path, client: Client) -> FileChange | None:
    """Plan the removal of our skill; None if it's missing or was edited."""
    path = get_skill_path(scope, project, client)
    before = files.read_content(path)
    if before is None or not _is_ours(path, before):
        return None
    return FileChange(path, before, None, is_user_file=scope == "user")


def _is_ours(path: Path, content: bytes | None) -> bool:
    """Whether a file still has the content that we installed."""
    record = files.find_record(path)
    if record is None:
        return False
    return record.sha256 == hashlib.sha256(content or b"").hexdigest()
