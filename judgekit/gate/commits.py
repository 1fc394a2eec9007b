"""The commits that a push brings, which files each of them changed, and which of these the gate judges."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config.patterns import Patterns
from judgekit.errors import InputError
from judgekit.gate.remotes import names_of
from judgekit.text import escaped, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from judgekit.gate.remotes import RefUpdate
    from judgekit.git import Repository

    Wanted: TypeAlias = "Callable[[ChangedFile], bool]"

MAX_COMMITS = (
    2_000  # of one push that are looked at, the newest; a whole history is not judged commit by commit
)
_FORMAT = "%H%x00%an <%ae>%x00%cn <%ce>%x00%(trailers:only,unfold)%x00"
_FILE = "100"  # the beginning of the mode of a regular file: not a link, not a submodule
_CO_AUTHOR = "co-authored-by:"


class UnknownCommit(InputError):  # noqa: N818 - said of what was given, which whoever gave it can mend
    """There is no such commit here: fetch it, or name another one."""


class Commit(NamedTuple):
    """Who made a commit (`Name <address>`), and the trailers of its message (`Key: value`)."""

    oid: str
    author: str
    committer: str
    trailers: tuple[str, ...]

    @property
    def people(self) -> list[str]:
        """Author, committer and co-authors."""
        trailers = [trailer for trailer in self.trailers if trailer.casefold().startswith(_CO_AUTHOR)]
        return [self.author, self.committer, *(trailer[len(_CO_AUTHOR) :].strip() for trailer in trailers)]


class ChangedFile(NamedTuple):
    """A file that a commit added or changed: its path, as git has it, and the blob it became.

    `earlier` are the commits that changed it before in the same push, the newest first.
    """

    commit: Commit
    path: str
    blob: str
    earlier: tuple[Commit, ...] = ()


class ChangeFilter:
    """Says of a change whether it is judged: some of the `rules`, paths and authors each, choose it.

    Paths are patterns as in `.gitignore`; a path that matches but for capitals (`A.MD`) is judged too.
    Authors are patterns (`*`, `?`, in any case) for the author, the committer and the co-authors, each as
    `Name <address>`, or for a whole trailer (`Generated-By: *`); with none of them everybody's changes are
    judged.
    """

    def __init__(self, *rules: tuple[Sequence[str], Sequence[str]]) -> None:
        self._rules = [
            (Patterns(paths), Patterns(path.lower() for path in paths), [each.casefold() for each in authors])
            for paths, authors in rules
        ]

    def __call__(self, change: ChangedFile) -> bool:
        path, texts = change.path, [*change.commit.people, *change.commit.trailers]
        for patterns, any_case, authors in self._rules:
            if patterns.match(path) or any_case.match(path.lower()):
                if not authors:
                    return True
                if any(fnmatchcase(text.casefold(), author) for author in authors for text in texts):
                    return True
        return False


class PushedChanges(NamedTuple):
    """The newest change of each file that stands in what is pushed, and lines about what is not judged."""

    changes: list[ChangedFile]
    unjudged: list[str]


def of_push(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, wanted: Wanted, url: str = ""
) -> PushedChanges:
    """Return the `wanted` changes that a push brings to `remote`, a name or a URL, as they are pushed.

    Commits that a ref of the remote reaches are not new, whatever branch they stand on. A file is left out
    when a later commit of the push removed it, or when it is pushed as the remote's ref has it.
    """
    pushed = PushedChanges([], [])
    seen: set[tuple[str, str]] = set()
    known = _remote_commits(repository, updates, remote, url)
    for update in updates:
        if update.deletes:
            continue
        tip = repository.commit(update.local_oid)
        if tip is None:
            told = "it points to no commit in this clone, so its files are not judged"
            pushed.unjudged.append(f"{escaped(update.remote_ref)}: {told}")
            continue
        before = None if update.is_new else repository.commit(update.remote_oid)
        for change in _of_tip(repository, tip, before, known, wanted, pushed.unjudged):
            if (change.path, change.blob) not in seen:
                seen.add((change.path, change.blob))
                pushed.changes.append(change)
    return pushed


def since(repository: Repository, base: str, tip: str, wanted: Wanted) -> PushedChanges:
    """Return the `wanted` changes of the commits between `base` and `tip`, each file as it stands at `tip`.

    Raises `UnknownCommit` where one of them is not here.
    """
    before, after = commit_id(repository, base), commit_id(repository, tip)
    unjudged: list[str] = []
    return PushedChanges(_of_tip(repository, after, before, [before], wanted, unjudged), unjudged)


def commit_id(repository: Repository, name: str) -> str:
    """Return the id of the commit that `name` leads to; raises `UnknownCommit` where there is none."""
    commit = repository.commit(name)
    if commit is not None:
        return commit
    if not repository.holds("rev-parse", "--git-dir"):
        raise UnknownCommit(f"no git repository at {repository.folder}; change to one")
    raise UnknownCommit(
        f"{name or repr(name)}: not a commit of this repository; fetch it, or name another one"
    )


def _remote_commits(repository: Repository, updates: Iterable[RefUpdate], remote: str, url: str) -> list[str]:
    """Return what the remote is known to have: the refs it is updated from, and what was fetched from it.

    A remote may be known by another name. Of one that was never fetched, only what others have is known.
    """
    below = [f"refs/remotes/{name}/" for name in names_of(repository, remote, url)]
    words = ("for-each-ref", "--format=%(objectname)")
    fetched = repository.ask(*words, *below) or repository.ask(*words, "refs/remotes/")
    updated = [update.remote_oid for update in updates if not update.is_new]
    return list(dict.fromkeys([*updated, *lines_of(fetched.decode())]))


def _of_tip(
    repository: Repository,
    tip: str,
    before: str | None,
    known: Sequence[str],
    wanted: Wanted,
    unjudged: list[str],
) -> list[ChangedFile]:
    """Return the wanted changes of the commits that `tip` reaches and nothing known does."""
    revisions = "".join(f"{line}\n" for line in (tip, *(f"^{oid}" for oid in known))).encode()
    most = f"--max-count={MAX_COMMITS + 1}"
    words = ("log", "--ignore-missing", "--stdin", "--topo-order", most, f"--format=tformat:{_FORMAT}")
    fields = os.fsdecode(repository.ask(*words, stdin=revisions)).split("\0")
    commits = [  # children before their parents
        Commit(oid.strip(), author, committer, tuple(filter(None, lines_of(trailers))))
        for oid, author, committer, trailers in zip(*(fields[at:-1:4] for at in range(4)), strict=True)
    ]
    if len(commits) > MAX_COMMITS:
        unjudged.append(f"more than {MAX_COMMITS:,} new commits; only files changed by the newest are judged")
    steps = _changes(repository, commits[:MAX_COMMITS])
    changes = [change for change in _newest(steps, wanted) if wanted(change)]
    if not changes:
        return []
    tree = _files(repository, tip)
    unchanged = _files(repository, before) if before else {}
    return [
        change._replace(blob=tree[change.path])
        for change in changes
        if change.path in tree and unchanged.get(change.path) != tree[change.path]
    ]


def _newest(steps: Iterable[tuple[ChangedFile, str | None]], wanted: Wanted) -> Iterator[ChangedFile]:
    """Yield the newest change of each path.

    What was only moved counts as made where it was made, if that is in the push too. If it is not, there is
    nothing new to judge, unless nobody asked for it where it was.
    """
    newest: dict[str, ChangedFile] = {}
    touched: dict[str, list[Commit]] = {}
    moved: dict[tuple[str, str], list[ChangedFile]] = {}  # by the earlier path and the blob
    for change, before in steps:
        hands = touched.setdefault(change.path, [])
        later = moved.pop((change.path, change.blob), [])
        if change.path not in newest:
            newest[change.path] = change
            later.append(change)
        if before is None:
            hands.append(change.commit)
            newest.update((each.path, each._replace(commit=change.commit)) for each in later)
        else:
            touched[before] = hands  # whoever changed it under its earlier name did so before
            moved.setdefault((before, change.blob), []).extend(later)
    known = {
        change.path
        for (before, _), later in moved.items()
        for change in later
        if wanted(change._replace(path=before))
    }
    for path, change in newest.items():
        if path not in known:
            others = [commit for commit in dict.fromkeys(touched[path]) if commit != change.commit]
            yield change._replace(earlier=tuple(others))


def _changes(repository: Repository, commits: Sequence[Commit]) -> Iterator[tuple[ChangedFile, str | None]]:
    """Yield what each commit added or changed; of a merge only what stands in none of its parents.

    With it comes the earlier path of a file that was only moved, else None.
    """
    if not commits:
        return
    # A shallow clone's oldest commits seem to have no parents, and so to have made every file there is.
    cut: list[str] = []
    if repository.ask("rev-parse", "--is-shallow-repository").strip() == b"true":
        file = os.fsdecode(repository.ask("rev-parse", "--git-path", "shallow")).rstrip("\n")
        cut = lines_of((repository.folder / file).read_bytes().decode("ascii"))
    by_oid = {commit.oid: commit for commit in commits}
    oids = "".join(f"{oid}\n" for oid in by_oid if oid not in set(cut)).encode()
    words = ("diff-tree", "--stdin", "-r", "-z", "-c", "--root", "-M100%", "--no-ext-diff", "--no-textconv")
    fields = iter(os.fsdecode(repository.ask(*words, stdin=oids)).split("\0"))
    commit: Commit | None = None
    for field in fields:
        if not field.startswith(":"):
            commit = by_oid.get(field.strip()) or commit
            continue
        parents = len(field) - len(field.lstrip(":"))
        parts = field.lstrip(":").split(" ")
        mode, blob, status = parts[parents], parts[2 * parents + 1], parts[-1]
        before = next(fields) if parents == 1 and status[:1] in "RC" else None
        path = next(fields)
        is_file = commit is not None and mode.startswith(_FILE)
        if commit and is_file and (before is not None or blob not in parts[parents + 1 : -2]):
            yield ChangedFile(commit, path, blob), before


def _files(repository: Repository, commit: str) -> dict[str, str]:
    """Return the blob of each regular file in a commit, by path."""
    listed = os.fsdecode(repository.ask("ls-tree", "-r", "-z", "--full-tree", commit)).split("\0")
    entries = (entry.partition("\t") for entry in listed if entry.startswith(_FILE))
    return {path: about.rpartition(" ")[2] for about, _, path in entries}
