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

NAME = "memory-search"
_COMMAND = "judgekit "  # as the skill's own text calls the program


def place_of(scope: Scope, project: Path, client: Client) -> Path:
    """Return the path of the skill's file, beside the client's settings; it may not exist."""
    return install.settings_file(scope, project, client).parent / "skills" / NAME / "SKILL.md"


def text_for(scope: Scope) -> bytes:
    """Return the text of the skill. A project's skill is for other people's machines, so it names no path."""
    text = (bundled.folder("skills") / NAME / "SKILL.md").read_text(encoding="utf-8")
    program = context.PROGRAM if scope == "project" else context.search_program()
    if program and program != context.PROGRAM:
        text = text.replace(f"Bash({_COMMAND}", f"Bash({program} ")
        text = text.replace(f"\n{_COMMAND}", f"\n{program} ")
    return text.encode()


def plan_install(scope: Scope, project: Path, client: Client) -> FileChange:
    """Plan the installation of the skill; raises `UsageError` if somebody else's file is there."""
    path = place_of(scope, project, client)
    before = files.read_content(path)
    after = text_for(scope)
    if before not in (None, after) and not _is_ours(path, before):
        problem = "is there already, and judgekit did not write it; move it away, or install without --skill"
        raise UsageError(f"{path} {problem}")
    return FileChange(path, before, after, is_users=scope == "user")


def plan_uninstall(scope: Scope, project: Path, client: Client) -> FileChange | None:
    """Plan the removal of the skill that judgekit installed; None if it's missing or has been edited."""
    path = place_of(scope, project, client)
    before = files.read_content(path)
    if before is None or not _is_ours(path, before):
        return None
    return FileChange(path, before, None, is_users=scope == "user")


def _is_ours(path: Path, content: bytes | None) -> bool:
    """Whether a file has the content that our installation wrote."""
    record = files.find_record(path)
    if record is None:
        return False
    return record.sha256 == hashlib.sha256(content or b"").hexdigest()
