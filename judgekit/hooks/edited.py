"""Answers the client's edit hook: a memory that the agent wrote is in the index before the next prompt."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TOOLS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
ENDINGS = (".json", ".md", ".markdown", ".mdx")  # of files that can be in any store


def refresh(payload: Mapping[str, Any], project: str) -> None:
    """Read the file that a tool wrote into the indexes that hold it; nothing is printed."""
    path = payload.get("tool_input.file_path") or payload.get("tool_input.notebook_path")
    if payload.get("tool_name") not in TOOLS or not isinstance(path, str) or "\0" in path:
        return
    if not path.lower().endswith(ENDINGS):
        return
    from judgekit.hooks import settings  # noqa: PLC0415 - most edits end above
    from judgekit.retrieval import index  # noqa: PLC0415 - the same

    configured, _ = settings.load(project)
    if configured["enabled"]:
        index.refresh_file(os.path.join(str(payload.get("cwd") or project), path), configured.profiles)
