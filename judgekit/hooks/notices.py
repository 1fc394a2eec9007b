"""Says what is wrong with a store's files now and then, and not on every prompt."""

from __future__ import annotations

import os
import time

from judgekit.retrieval import cachefile, sqljson

FOLDER = "notices"
AGAIN = 86_400  # seconds after which what is still wrong is said once more
_MOST = 200  # notices that are remembered


def due(project: str, notes: list[str], now: float | None = None) -> list[str]:
    """Return those of `notes` that were not said in `project` within the last day, and remember them.

    Where nothing can be remembered, all are due.
    """
    now = time.time() if now is None else now
    try:
        path = os.path.join(cachefile.folder(FOLDER), cachefile.name_for(project) + ".json")
        said = {note: at for note, at in _read(path).items() if now - AGAIN < at <= now}
        fresh = [note for note in dict.fromkeys(notes) if note not in said]
        if fresh:
            kept = list({**said, **dict.fromkeys(fresh, now)}.items())[-_MOST:]
            cachefile.write(path, sqljson.dumps(dict(kept)))
    except OSError:
        return notes
    return fresh


def _read(path: str) -> dict[str, float]:
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            found = sqljson.loads(file.read(1_000_000))
    except (FileNotFoundError, ValueError):
        return {}
    said = found.items() if isinstance(found, dict) else ()
    return {note: at for note, at in said if isinstance(at, (int, float))}
