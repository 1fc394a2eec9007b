"""Which changes of a push the gate judges, looked at before anything heavy is imported.

What the rules say is kept from the last full run while all that decides it stays the same.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.config.patterns import Patterns
from judgekit.gate import commits
from judgekit.gate.policy import RULES, commits_of
from judgekit.retrieval import cachefile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate.commits import ChangedFile, Commit
    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository


_CO_AUTHOR = "co-authored-by:"


class ChangeFilter:
    """Says of a change whether it is judged.

    `paths` are patterns as in `.gitignore`; a path that matches but for capitals (`A.MD`) is judged too.
    `authors` are patterns (`*`, `?`, in any case) for the author, the committer and the co-authors, each as
    `Name <address>`, or for a whole trailer (`Generated-By: *`); with none of them everybody's changes are
    judged.
    """

    def __init__(self, paths: Sequence[str], authors: Sequence[str] = ()) -> None:
        self._paths, self._authors = Patterns(paths), [author.casefold() for author in authors]
        self._any_case = Patterns(path.lower() for path in paths)

    def __call__(self, change: ChangedFile) -> bool:
        """Whether `change` is judged."""
        path = change.path
        return (self._paths.match(path) or self._any_case.match(path.lower())) and self._is_by(change.commit)

    def _is_by(self, commit: Commit) -> bool:
        if not self._authors:
            return True
        names = [each.casefold() for each in people(commit)]
        trailers = [trailer.casefold() for trailer in commit.trailers]
        return any(fnmatchcase(text, author) for author in self._authors for text in (*names, *trailers))


def people(commit: Commit) -> list[str]:
    """Return who had a hand in a commit: author, committer and co-authors, each as `Name <address>`."""
    trailers = [trailer for trailer in commit.trailers if trailer.casefold().startswith(_CO_AUTHOR)]
    return [commit.author, commit.committer, *(trailer[len(_CO_AUTHOR) :].strip() for trailer in trailers)]


FOLDER = "gate"
_VARIABLES = "JUDGEKIT_GATE_"


def nothing_to_judge(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, url: str = ""
) -> bool:
    """Whether a push is sure to bring nothing that is judged; False also where that is not known yet.

    Raises `InputError` when git cannot answer.
    """
    if all(update.deletes for update in updates):
        return True
    rules = commits_of(repository, updates, remote, url)
    wanted = _kept(repository, rules)
    if wanted is None:
        return False
    pushed_changes = commits.of_push(repository, updates, remote, wanted, url)
    return not (pushed_changes.changes or pushed_changes.notes or pushed_changes.unjudged)


def keep(repository: Repository, rules: Sequence[str], chosen: list[str], authors: list[str]) -> None:
    """Keep what the one commit of `rules` chooses, for the next push; else that is read again."""
    if len(rules) > 1:  # which of them hold is not known here
        return
    text = json.dumps({"key": _key(repository, rules), "paths": chosen, "authors": authors})
    try:
        cachefile.write(_path(repository), text)
    except OSError:
        return


def _kept(repository: Repository, rules: Sequence[str]) -> ChangeFilter | None:
    try:
        kept = json.loads(Path(_path(repository)).read_bytes())
        return (
            ChangeFilter(kept["paths"], kept["authors"]) if kept["key"] == _key(repository, rules) else None
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(repository: Repository) -> str:
    return f"{cachefile.folder(FOLDER)}/{cachefile.name_for(str(repository.folder))}.json"


def _key(repository: Repository, commits: Sequence[str]) -> str:
    """Return what the choice depends on: judgekit, the project's rules, the user's, and the variables."""
    rules = [repository.ask("ls-tree", "--full-tree", commit, "--", *RULES) for commit in commits]
    try:
        status = Path(environment.config_home(), "config.yaml").stat()
        user = [status.st_size, status.st_mtime_ns, status.st_ino]
    except OSError:
        user = []
    given = environment.environ().items()
    variables = sorted((name, value) for name, value in given if name.startswith(_VARIABLES))
    return repr([environment.__version__, *rules, user, variables])
