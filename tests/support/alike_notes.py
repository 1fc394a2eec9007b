"""Notes: three say the same, in slightly different words, and one says something else."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DAY = 86_400  # seconds
QUESTION = "How do we deploy a release to production?"
SAME = (
    "Deploying to production. Run make release on the main branch, wait for the smoke tests, then tell the "
    "channel. Never deploy on a Friday; whoever is on call may roll back with make rollback."
)
NEWEST = "deploy-3.md"
OLDER = ["deploy-2.md", "deploy-1.md"]
TEXTS = {
    "deploy-1.md": SAME,
    "deploy-2.md": SAME.replace("channel", "team"),
    NEWEST: SAME.replace("tell the", "inform the"),
    "deploy-docs.md": "The pages of the handbook deploy themselves: merge, and a job builds the site.",
}
TITLE = "How we deploy"
TITLES = dict.fromkeys((NEWEST, *OLDER), TITLE)


def write(folder: Path) -> Path:
    """Write the notes, the first of them the oldest: ten days for each."""
    folder.mkdir(parents=True)
    for days, (name, text) in enumerate(reversed(TEXTS.items())):
        put(folder / name, text, days=10 * days, title=TITLES.get(name))
    return folder


def put(path: Path, text: str, *, days: float = 0, title: str | None = None) -> None:
    """Write a note that's as many days old; its title is the name of the file unless given."""
    path.write_text(f"# {title or path.stem}\n\n{text}\n", encoding="utf-8")
    written = time.time() - days * DAY
    os.utime(path, (written, written))
