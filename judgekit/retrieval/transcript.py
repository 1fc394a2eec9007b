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
    turns: list[str] = []
    for line in reversed(_lines(path, -_TAIL_BYTES) if count > 0 else []):
        turn = _turn(_entry(line))
        if turn:
            turns.append(turn)
        if len(turns) == count:
            break
    return tuple(reversed(turns))


def started(path: str) -> float | None:
    """Return when a conversation began, in seconds since the epoch; None where that is not known."""
    for line in _lines(path, _HEAD_BYTES):
        moment = _entry(line).get("timestamp")
        try:
            if isinstance(moment, str):
                return datetime.fromisoformat(moment).timestamp()
        except (ValueError, OverflowError):
            continue
    return None


def _lines(path: str, size: int) -> list[bytes]:
    """Return the lines in the first `size` bytes of a transcript, or in the last ones of a negative size."""
    home = environment.environ().get("CLAUDE_CONFIG_DIR") or str(Path("~/.claude").expanduser())
    projects = (Path(home) / "projects").resolve()
    try:
        file = Path(path)
        if not path.endswith(".jsonl") or not file.resolve().is_relative_to(projects):
            return []
        if not stat.S_ISREG(file.lstat().st_mode):
            return []
        with file.open("rb") as stream:
            if size < 0:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) + size))
            return stream.read(abs(size)).split(b"\n")
    except (OSError, ValueError):
        return []


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _turn(entry: dict[str, Any]) -> str | None:
    role, message = entry.get("type"), entry.get("message")
    if role not in ("user", "assistant") or not isinstance(message, dict):
        return None
    if entry.get("isSidechain") or entry.get("isMeta"):
        return None
    content = message.get("content")
    if isinstance(content, list):
        blocks = (block for block in content if isinstance(block, dict) and block.get("type") == "text")
        content = " ".join(str(block.get("text", "")) for block in blocks)
    text = content.strip() if isinstance(content, str) else ""
    return f"{role}: {text[:_TURN_CHARS]}" if text and not text.startswith("<") else None
