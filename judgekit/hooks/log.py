"""The local log of what was injected: one JSON line a prompt, for `judgekit hook --explain`.

Off unless the user's own configuration says `retrieval: {log: true}`. It holds the beginning of each prompt
and the titles of memories, stays on this machine, readable by its owner alone, and is bounded in size.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.retrieval import quickjson
from judgekit.text import lines_of, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from judgekit.hooks.context import ShownMemories
    from judgekit.hooks.settings import Settings
    from judgekit.retrieval.confidence import Candidate, RankedCandidates

PROMPT_CHARS = 200
MAX_BYTES = 1_000_000  # of the file; then it becomes the older one, and the older one goes
_TITLE = 100  # characters


def file() -> str:
    """Return where the log is kept; `.1` is appended to the name of the older half."""
    return os.path.join(environment.state_home(), "injections.jsonl")


def add(prompt: str, ranked: RankedCandidates, shown: ShownMemories, configured: Settings) -> None:
    """Write down what became of a prompt; where that cannot be, nothing is lost but the line."""
    rest = [
        candidate
        for candidate in ranked.candidates
        if candidate not in shown.injected and candidate not in shown.mentioned
    ]
    line = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "project": configured.project,
        "prompt": beginning(prompt),
        "pinned": [_entry(candidate) for candidate in shown.pinned],
        "injected": [_entry(candidate) for candidate in shown.injected],
        "mentioned": [_entry(hit) for hit in shown.mentioned],
        "left_out": len(rest),
        "judge": configured["judge"],
    }
    try:
        _append(file(), quickjson.dumps(line).encode("utf-8", "replace") + b"\n")
    except OSError:
        return


def beginning(prompt: str) -> str:
    """Return as much of a prompt as the log holds."""
    return one_line(prompt, PROMPT_CHARS)


def last(prompt: str, project: str, most: int = 3) -> list[dict[str, Any]]:
    """Return the latest lines about this prompt in this project, the newest first."""
    wanted, found = beginning(prompt), []
    for path in (file(), f"{file()}.1"):
        for line in reversed(_lines(path)):
            if line.get("prompt") == wanted and line.get("project") == project:
                found.append(line)
            if len(found) == most:
                return found
    return found


def _entry(candidate: Candidate) -> dict[str, Any]:
    return {
        "path": candidate.path,
        "title": one_line(candidate.title, _TITLE),
        "confidence": round(candidate.confidence, 3),
    }


def _append(path: str, line: bytes) -> None:
    """Write one line at once, so that several hooks do not mix theirs."""
    environment.private_folder(os.path.dirname(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line)
        full = os.fstat(descriptor).st_size > MAX_BYTES
    finally:
        os.close(descriptor)
    if full and os.stat(path).st_size > MAX_BYTES:  # not what another hook has begun anew meanwhile
        os.replace(path, f"{path}.1")


def _lines(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            texts = lines_of(file.read(2 * MAX_BYTES).decode("utf-8", "replace"))
    except OSError:
        return []
    found = []
    for text in texts:
        try:
            line = quickjson.loads(text)
        except ValueError:  # cut off, by a full disk for instance
            continue
        if isinstance(line, dict):
            found.append(line)
    return found
