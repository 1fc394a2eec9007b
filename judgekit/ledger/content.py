"""The content that a verdict was about, if it can still be had."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from judgekit.git import GitError, Repository
from judgekit.text import visible

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.ledger.records import VerdictLine

_MOST = 4_000_000  # bytes of one file; a larger one is not shown


def texts(verdict: VerdictLine, project: Path) -> dict[str, str | None]:
    """Return each judged file's text by its path, from the verdict's commit or the working tree.

    None where it is gone or is not what was judged any more; control characters are left out.
    """
    return {each.path: _text(each.path, each.sha256, verdict.commit, project) for each in verdict.subjects}


def _text(path: str, sha256: str, commit: str | None, project: Path) -> str | None:
    for data in (_pushed(path, commit, project), _present(project / path)):
        if data is not None and (not sha256 or hashlib.sha256(data).hexdigest() == sha256):
            return visible(data.decode("utf-8", "replace"))
    return None


def _pushed(path: str, commit: str | None, project: Path) -> bytes | None:
    if not commit or commit.startswith("-"):
        return None
    try:
        repository = Repository(project)
        blob = repository.ask("rev-parse", "--verify", "--quiet", f"{commit}:{path}").decode().strip()
        return next(content for _, content in repository.blobs([blob], _MOST))
    except (GitError, ValueError):  # ValueError: a NUL in the path
        return None


def _present(path: Path) -> bytes | None:
    try:
        return path.read_bytes()[:_MOST]
    except (OSError, ValueError):
        return None
