"""A look at a push before anything heavy is imported: most pushes change nothing that is judged.

What the rules say about that is kept from the last full run, while all that decides it stays the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import judgekit
from judgekit import environment, paths
from judgekit.gate import commits
from judgekit.gate.rules_commit import RULES, commit_of
from judgekit.gate.selection import Wanted
from judgekit.retrieval import cachefile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository

FOLDER = "gate"
_VARIABLES = "JUDGEKIT_GATE_"


def nothing_to_judge(repository: Repository, updates: Sequence[RefUpdate], remote: str) -> bool:
    """Whether a push is sure to bring nothing that is judged; False also where that is not known yet.

    Raises `InputError` when git cannot answer.
    """
    if all(each.deletes for each in updates):
        return True
    wanted = _kept(repository, commit_of(repository, updates, remote))
    if wanted is None:
        return False
    found = commits.of_push(repository, updates, remote, wanted)
    return not found.changes and not found.notes


def keep(repository: Repository, commit: str | None, chosen: list[str], authors: list[str]) -> None:
    """Keep what the rules at `commit` choose, for the next push; where it cannot be kept it is read again."""
    text = json.dumps({"key": _key(repository, commit), "paths": chosen, "authors": authors})
    try:
        cachefile.write(_path(repository), text)
    except OSError:
        return


def _kept(repository: Repository, commit: str | None) -> Wanted | None:
    try:
        kept = json.loads(Path(_path(repository)).read_bytes())
        return Wanted(kept["paths"], kept["authors"]) if kept["key"] == _key(repository, commit) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(repository: Repository) -> str:
    return f"{cachefile.folder(FOLDER)}/{cachefile.name_for(str(repository.folder))}.json"


def _key(repository: Repository, commit: str | None) -> str:
    """Return what the choice depends on: judgekit, the project's rules, the user's, and the variables."""
    rules = repository.ask("ls-tree", "--full-tree", commit, "--", *RULES) if commit else b""
    try:
        status = Path(paths.config_home(), "config.yaml").stat()
        user = [status.st_size, status.st_mtime_ns, status.st_ino]
    except OSError:
        user = []
    given = environment.environ().items()
    variables = sorted((name, value) for name, value in given if name.startswith(_VARIABLES))
    return repr([judgekit.__version__, rules, user, variables])
