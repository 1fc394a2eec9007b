"""The updates of a push, the changes in it, and the ones that the gate's rules select."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.config.patterns import Patterns
from judgekit.errors import InputError
from judgekit.gate import Omission, Skipped
from judgekit.git import GitError
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate.history import Commit
    from judgekit.git import Repository

    Updates: TypeAlias = "Sequence[RefUpdate]"

_COUNT_LINES = (
    "diff-tree",
    "-r",
    "-z",
    "--numstat",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
)
_FIELDS_PER_UPDATE = 4  # in a line on a pre-push hook's stdin


class UnknownCommit(InputError):  # noqa: N818 - not a fault: the caller can correct it
    """A name that doesn't lead to a commit."""


class RefUpdate(NamedTuple):
    """One ref of a push. An object id of zeros means none: the ref is new, or deleted."""

    local_ref: str
    local_oid: str
    remote_ref: str
    remote_oid: str

    @property
    def is_deletion(self) -> bool:
        return not self.local_oid.strip("0")  # all zeros

    @property
    def is_new(self) -> bool:
        return not self.remote_oid.strip("0")  # all zeros


class ChangedFile(NamedTuple):
    """A blob put at a path by a commit. `earlier_commits` of the push changed it before, newest first.

    If not `is_attributed`, nobody knows who changed the file, and the commit is just one that has it.
    """

    commit: Commit
    path: str
    blob: str
    earlier_commits: tuple[Commit, ...] = ()
    is_attributed: bool = True


@dataclass
class PushedChanges:
    """The changes to judge, the newest for each pushed file, and the rest with reasons.

    `notes` tell people if more may be judged than the push really brings. `updates_with_commits` are those
    with new commits.
    """

    changes: list[ChangedFile] = field(default_factory=list)
    skipped: Skipped = field(default_factory=Skipped)
    unexamined: list[Omission] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    updates_with_commits: list[RefUpdate] = field(default_factory=list)


class _Rule(NamedTuple):
    """Path patterns, as written and in lower case, and author patterns in lower case."""

    patterns: Patterns
    lower_patterns: Patterns
    author_patterns: list[str]

    def covers(self, path: str) -> bool:
        """Whether a pattern matches a path, ignoring case."""
        return self.patterns.match(path) or self.lower_patterns.match(path.lower())


class ChangeFilter:
    """Selects the changes to judge: at least one of the `rules`, each with paths and authors, must match.

    Paths are patterns as in `.gitignore`, in any case. Authors are patterns (`*`, `?`) for the author, the
    committer and the co-authors, each as `Name <address>`, or for a whole trailer (`Generated-By: *`). No
    authors means everyone.
    """

    def __init__(self, *rules: tuple[Sequence[str], Sequence[str]]) -> None:
        """Each rule is a pair: the path patterns and the authors that it covers."""
        self._rules: list[_Rule] = []
        for paths, authors in rules:
            rule = _Rule(
                patterns=Patterns(paths),
                lower_patterns=Patterns(path.lower() for path in paths),
                author_patterns=[author.casefold() for author in authors],
            )
            self._rules.append(rule)

    def __call__(self, change: ChangedFile) -> bool:
        """Whether to judge a change."""
        lines = (*change.commit.people, *change.commit.trailers)
        signatures = [line.casefold() for line in lines]
        covering_rules = [rule for rule in self._rules if rule.covers(change.path)]

        for rule in covering_rules:
            is_for_everyone = not rule.author_patterns
            # An unknown author could be any of the rule's authors.
            is_author_unknown = not change.is_attributed
            if is_for_everyone or is_author_unknown:
                return True
            if _any_matches(signatures, rule.author_patterns):
                return True
        return False

    def covers(self, path: str) -> bool:
        """Whether changes to a path can be selected, depending on their author."""
        return any(rule.covers(path) for rule in self._rules)


def _any_matches(texts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether any text matches any pattern (`*`, `?`)."""
    return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def parse_updates(text: str) -> list[RefUpdate]:
    """Parse the ref updates that git sends to a pre-push hook, one per line.

    Raises `InputError` with the number of a malformed line.
    """
    updates = []
    for number, line in enumerate(split_lines(text), 1):
        if not line.strip():
            continue

        update = _parse_update(line)
        if update is None:
            raise InputError(
                f"stdin:{number}: expected <local ref> <local oid> <remote ref> <remote oid>"
            )
        updates.append(update)

    return updates


def _parse_update(line: str) -> RefUpdate | None:
    """Parse `LOCAL_REF LOCAL_OID REMOTE_REF REMOTE_OID`; None if the line is malformed."""
    # Split from the right: the local ref is given as typed and can contain spaces, as in `HEAD@{2 days ago}`.
    fields = line.rsplit(" ", _FIELDS_PER_UPDATE - 1)
    if len(fields) != _FIELDS_PER_UPDATE:
        return None
    update = RefUpdate(*fields)
    if not _is_object_id(update.local_oid) or not _is_object_id(update.remote_oid):
        return None
    return update


def _is_object_id(text: str) -> bool:
    """Whether a string is a full SHA-1 id (40 hex digits) or SHA-256 id (64)."""
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")


def resolve_commit(repository: Repository, name: str) -> str:
    """Resolve a name to a commit id; raises `UnknownCommit` if that fails."""
    commit = repository.resolve_commit(name)
    if commit is not None:
        return commit

    is_repository = repository.succeeds("rev-parse", "--git-dir")
    if not is_repository:
        raise UnknownCommit(f"no git repository at {repository.folder}; change to one")
    visible_name = name or repr(name)  # '' for an empty name
    remedy = "fetch it, or name another one"
    raise UnknownCommit(f"{visible_name}: not a commit of this repository; {remedy}")


def count_changed_lines(
    repository: Repository, updates: Updates, remote_commits: Sequence[str]
) -> dict[str, int]:
    """Count each file's changed lines, by path. With 3 added and 5 removed lines, the count is 5.

    Binary files are skipped, and so are updates that git can't compare with `remote_commits`.
    """
    counts: dict[str, int] = {}

    for update in updates:
        for entry in _list_line_counts(repository, update, remote_commits):
            added, removed, path = entry.split("\t", 2)
            if not added.isdigit():  # for binary files, git prints `-` instead of a number
                continue

            changed_lines = max(int(added), int(removed))
            # Another update of the same path may have a higher count.
            counts[path] = max(changed_lines, counts.get(path, 0))

    return counts


def _list_line_counts(
    repository: Repository, update: RefUpdate, remote_commits: Sequence[str]
) -> list[str]:
    """List `ADDED TAB REMOVED TAB PATH` for each changed file; empty if git can't compare the commits."""
    try:
        base = repository.ask("merge-base", update.local_oid, *remote_commits).decode().strip()
        raw = repository.ask(*_COUNT_LINES, base, update.local_oid)
    except GitError:  # there's no common commit, or this clone lacks some files
        return []
    return os.fsdecode(raw).split("\0")[:-1]  # each entry ends with a NUL
