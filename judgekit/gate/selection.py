"""Which changes of a push the gate judges: by path, and by who made them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from judgekit.globs import Patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate.commits import Change, Commit

_CO_AUTHOR = "co-authored-by:"


class Wanted:
    """Says of a change whether it is judged.

    `paths` are patterns as in `.gitignore`; a path that matches but for capitals (`A.MD`) is judged too.
    `authors` are patterns (`*`, `?`, in any case) for the author, the committer and the co-authors, each as
    `Name <address>`, or for a whole trailer (`Generated-By: *`); with none of them everybody's changes are
    judged.
    """

    def __init__(self, paths: Sequence[str], authors: Sequence[str] = ()) -> None:
        self._paths, self._authors = Patterns(paths), [each.casefold() for each in authors]
        self._any_case = Patterns(each.lower() for each in paths)

    def __call__(self, change: Change) -> bool:
        """Whether `change` is judged."""
        path = change.path
        return (self._paths.match(path) or self._any_case.match(path.lower())) and self._is_by(change.commit)

    def _is_by(self, commit: Commit) -> bool:
        if not self._authors:
            return True
        names = [each.casefold() for each in people(commit)]
        trailers = [each.casefold() for each in commit.trailers]
        return any(fnmatchcase(text, author) for author in self._authors for text in (*names, *trailers))


def people(commit: Commit) -> list[str]:
    """Return who had a hand in a commit: author, committer and co-authors, each as `Name <address>`."""
    trailers = [each for each in commit.trailers if each.casefold().startswith(_CO_AUTHOR)]
    return [commit.author, commit.committer, *(each[len(_CO_AUTHOR) :].strip() for each in trailers)]
