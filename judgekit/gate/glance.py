"""A look at a push before anything heavy is imported: most pushes change nothing that is judged.

What the rules say about that is kept from the last full run, while all that decides it stays the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import environment, paths
from judgekit.gate import commits
from judgekit.gate.rules_commit import RULES, commits_of
from judgekit.gate.selection import Wanted
from judgekit.retrieval import cachefile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository

FOLDER = "gate"
_VARIABLES = "JUDGEKIT_GATE_"


def nothing_to_judge(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, url: str = ""
) -> bool:
    """Whether a push is sure to bring nothing that is judged; False also where that is not known yet.

    Raises `InputError` when git cannot answer.
    """
    if all(each.deletes for each in updates):
        return True
    rules = commits_of(repository, updates, remote, url)
    wanted = _kept(repository, rules)
    if wanted is None:
        return False
    found = commits.of_push(repository, updates, remote, wanted, url)
    return not (found.changes or found.notes or found.unjudged)


def keep(repository: Repository, rules: Sequence[str], chosen: list[str], authors: list[str]) -> None:
    """Keep what the one commit of `rules` chooses, for the next push; else that is read again."""
    if len(rules) > 1:  # which of them hold is not known here
        return
    text = json.dumps({"key": _key(repository, rules), "paths": chosen, "authors": authors})
    try:
        cachefile.write(_path(repository), text)
    except OSError:
        return


def _kept(repository: Repository, rules: Sequence[str]) -> Wanted | None:
    try:
        kept = json.loads(Path(_path(repository)).read_bytes())
        return Wanted(kept["paths"], kept["authors"]) if kept["key"] == _key(repository, rules) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(repository: Repository) -> str:
    return f"{cachefile.folder(FOLDER)}/{cachefile.name_for(str(repository.folder))}.json"


def _key(repository: Repository, commits: Sequence[str]) -> str:
    """Return what the choice depends on: judgekit, the project's rules, the user's, and the variables."""
    rules = [repository.ask("ls-tree", "--full-tree", each, "--", *RULES) for each in commits]
    try:
        status = Path(paths.config_home(), "config.yaml").stat()
        user = [status.st_size, status.st_mtime_ns, status.st_ino]
    except OSError:
        user = []
    given = environment.environ().items()
    variables = sorted((name, value) for name, value in given if name.startswith(_VARIABLES))
    return repr([environment.__version__, *rules, user, variables])
