"""The last turns of a Claude Code conversation, read defensively: its transcript's format is internal."""

from __future__ import annotations

import json
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import Any

from judgekit import environment

_TAIL_BYTES = 400_000  # the end of a transcript; far more than a few turns need
_HEAD_BYTES = 200_000  # its beginning, which says when it began
_TURN_CHARS = 2_000


def last_turns(path: str, count: int) -> tuple[str, ...]:
    """Return up to `count` turns, oldest first, as "user: …" or "assistant: …".

    Read only if `path` is a regular `.jsonl` file under the client's own projects folder; whatever else
    it is, and whatever is wrong in it, gives fewer turns or none.
    """
    if count <= 0 or not _is_transcript(path):
        return ()
    turns: list[str] = []
    for line in reversed(_tail(path)):
        turn = _turn(line)
        if turn:
            turns.append(turn)
        if len(turns) == count:
            break
    return tuple(reversed(turns))


def started(path: str) -> float | None:
    """Return when a conversation began, in seconds since the epoch; None where that is not known."""
    if not _is_transcript(path):
        return None
    try:
        with Path(path).open("rb") as file:
            lines = file.read(_HEAD_BYTES).split(b"\n")
    except OSError:
        return None
    return next((time for line in lines if (time := _time(line)) is not None), None)


def _time(line: bytes) -> float | None:
    try:
        entry = json.loads(line)
        told = entry.get("timestamp") if isinstance(entry, dict) else None
        return datetime.fromisoformat(told).timestamp() if isinstance(told, str) else None
    except (ValueError, OverflowError, RecursionError):
        return None


def _is_transcript(path: str) -> bool:
    home = environment.environ().get("CLAUDE_CONFIG_DIR") or str(Path("~/.claude").expanduser())
    projects = (Path(home) / "projects").resolve()
    try:
        return (
            path.endswith(".jsonl")
            and Path(path).resolve().is_relative_to(projects)
            and stat.S_ISREG(Path(path).lstat().st_mode)
        )
    except (OSError, ValueError):
        return False


def _tail(path: str) -> list[bytes]:
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).split(b"\n")
    except OSError:
        return []


def _turn(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("isSidechain") or entry.get("isMeta"):
        return None
    role, message = entry.get("type"), entry.get("message")
    if role not in ("user", "assistant") or not isinstance(message, dict):
        return None
    text = _text(message.get("content")).strip()
    return f"{role}: {text[:_TURN_CHARS]}" if text and not text.startswith("<") else None


def _text(content: Any) -> str:  # noqa: ANN401 - whatever the client wrote there
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    blocks = (each for each in content if isinstance(each, dict) and each.get("type") == "text")
    return " ".join(str(block.get("text", "")) for block in blocks)
