"""The commits that a push brings, and which files each of them changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import InputError
from judgekit.gate.policy import names_of
from judgekit.text import escaped, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository

MAX_COMMITS = (
    2_000  # of one push that are looked at, the newest; a whole history is not judged commit by commit
)
_FORMAT = "%H%x00%an <%ae>%x00%cn <%ce>%x00%(trailers:only,unfold)%x00"
_FILE = "100"  # the beginning of the mode of a regular file: not a link, not a submodule


class UnknownCommit(InputError):  # noqa: N818 - said of what was given, which whoever gave it can mend
    """There is no such commit here: fetch it, or name another one."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Who made a commit (`Name <address>`), and the trailers of its message (`Key: value`)."""

    oid: str
    author: str
    committer: str
    trailers: tuple[str, ...]


class ChangedFile(NamedTuple):
    """A file that a commit added or changed: its path, as git has it, and the blob it became.

    `earlier` are the commits that changed it before in the same push, the newest first.
    """

    commit: Commit
    path: str
    blob: str
    earlier: tuple[Commit, ...] = ()


class _Step(NamedTuple):
    """A change, or a file that was only moved: then `before` is its earlier path."""

    change: ChangedFile
    before: str | None


class PushedChanges(NamedTuple):
    """The newest change of each file that stands in what is pushed, and what was not looked at."""

    changes: list[ChangedFile]
    notes: list[str]
    unjudged: list[str] = []


def of_push(
    repository: Repository,
    updates: Sequence[RefUpdate],
    remote: str,
    wanted: Callable[[ChangedFile], bool],
    url: str = "",
) -> PushedChanges:
    """Return the `wanted` changes that a push brings to `remote`, a name or a URL, as they are pushed.

    Commits that a ref of the remote reaches are not new, whatever branch they stand on. A file is left out
    when a later commit of the push removed it, or when it is pushed as the remote's ref has it.
    """
    pushed = PushedChanges([], [], [])
    seen: set[tuple[str, str]] = set()
    known = _remote_commits(repository, updates, remote, url)
    for update in updates:
        tip = None if update.deletes else repository.commit(update.local_oid)
        if tip is None:
            if not update.deletes:
                told = "it leads to no commit that is here, so its files are not judged"
                pushed.unjudged.append(f"{escaped(update.remote_ref)}: {told}")
            continue
        before = None if update.is_new else repository.commit(update.remote_oid)
        for change in _of_tip(repository, tip, before, known, wanted, pushed.unjudged):
            if (change.path, change.blob) not in seen:
                seen.add((change.path, change.blob))
                pushed.changes.append(change)
    return pushed


def since(
    repository: Repository, base: str, tip: str, wanted: Callable[[ChangedFile], bool]
) -> PushedChanges:
    """Return the `wanted` changes of the commits between `base` and `tip`, each file as it stands at `tip`.

    Raises `UnknownCommit` where one of them is not here.
    """
    before, after = commit_id(repository, base), commit_id(repository, tip)
    notes: list[str] = []
    return PushedChanges(_of_tip(repository, after, before, [before], wanted, notes), [], notes)


def commit_id(repository: Repository, name: str) -> str:
    """Return the id of the commit that `name` leads to; raises `UnknownCommit` where there is none."""
    commit = repository.commit(name)
    if commit is not None:
        return commit
    if not repository.holds("rev-parse", "--git-dir"):
        raise UnknownCommit(f"no git repository at {repository.folder}: go into one")
    raise UnknownCommit(f"{name or repr(name)}: no commit of this repository; fetch it, or name another one")


def _remote_commits(repository: Repository, updates: Iterable[RefUpdate], remote: str, url: str) -> list[str]:
    """Return what the remote is known to have: the refs it is updated from, and what was fetched from it.

    A remote may be known by another name. Of one that was never fetched, only what others have is known.
    """
    told = [update.remote_oid for update in updates if not update.is_new]
    names = names_of(repository, remote, url)
    fetched = [oid for name in names for oid in _refs(repository, f"refs/remotes/{name}/")]
    fetched = fetched or _refs(repository, "refs/remotes/")
    return list(dict.fromkeys([*told, *fetched]))


def _refs(repository: Repository, below: str) -> list[str]:
    return lines_of(repository.ask("for-each-ref", "--format=%(objectname)", below).decode())


def _of_tip(
    repository: Repository,
    tip: str,
    before: str | None,
    known: Sequence[str],
    wanted: Callable[[ChangedFile], bool],
    notes: list[str],
) -> list[ChangedFile]:
    commits = _new_commits(repository, tip, known, notes)
    asked = [change for change in _newest(_changes(repository, commits), wanted) if wanted(change)]
    if not asked:
        return []
    tree = _files(repository, tip)
    unchanged = _files(repository, before) if before else {}
    return [
        change._replace(blob=tree[change.path])
        for change in asked
        if change.path in tree and unchanged.get(change.path) != tree[change.path]
    ]


def _newest(steps: Iterable[_Step], wanted: Callable[[ChangedFile], bool]) -> Iterator[ChangedFile]:
    """Yield the newest change of each path.

    What was only moved counts as made where it was made, if that is in the push too. If it is not, there is
    nothing new to judge, unless nobody asked for it where it was.
    """
    newest: dict[str, ChangedFile] = {}
    touched: dict[str, list[Commit]] = {}
    moved: dict[tuple[str, str], list[ChangedFile]] = {}  # by the earlier path and the blob
    for change, before in steps:
        hands = touched.setdefault(change.path, [])
        if before is None:
            hands.append(change.commit)
        else:
            touched[before] = hands  # whoever changed it under its earlier name did so before
        later = moved.pop((change.path, change.blob), [])
        if change.path not in newest:
            newest[change.path] = change
            later.append(change)
        if before is not None:
            moved.setdefault((before, change.blob), []).extend(later)
        else:
            newest.update(
                (changed_file.path, changed_file._replace(commit=change.commit)) for changed_file in later
            )
    known = {
        changed_file.path: changed_file
        for (before, _), later in moved.items()
        for changed_file in later
        if wanted(changed_file._replace(path=before))
    }
    for path, file in newest.items():
        if path not in known:
            hands = list(dict.fromkeys(touched[path]))
            yield file._replace(earlier=tuple(commit for commit in hands if commit != file.commit))


def _new_commits(repository: Repository, tip: str, known: Iterable[str], notes: list[str]) -> list[Commit]:
    """Return the commits that `tip` reaches and nothing known does, children before their parents."""
    revisions = "".join(f"{line}\n" for line in (tip, *(f"^{oid}" for oid in known))).encode()
    most = f"--max-count={MAX_COMMITS + 1}"
    words = ("log", "--ignore-missing", "--stdin", "--topo-order", most, f"--format=tformat:{_FORMAT}")
    fields = os.fsdecode(repository.ask(*words, stdin=revisions)).split("\0")
    commits = [
        Commit(oid.strip(), author, committer, tuple(filter(None, lines_of(trailers))))
        for oid, author, committer, trailers in zip(*(fields[at:-1:4] for at in range(4)), strict=True)
    ]
    if len(commits) > MAX_COMMITS:
        notes.append(f"more than {MAX_COMMITS:,} commits are new; only what the newest changed is judged")
    return commits[:MAX_COMMITS]


def _changes(repository: Repository, commits: Sequence[Commit]) -> Iterator[_Step]:
    """Yield what each commit added, changed or moved; of a merge only what stands in none of its parents."""
    if not commits:
        return
    by_oid = {commit.oid: commit for commit in commits}
    # A shallow clone's oldest commits seem to have no parents, and so to have made every file there is.
    cut = set(_shallow(repository))
    asked = "".join(f"{commit.oid}\n" for commit in commits if commit.oid not in cut).encode()
    words = ("diff-tree", "--stdin", "-r", "-z", "-c", "--root", "-M100%", "--no-ext-diff", "--no-textconv")
    fields = iter(os.fsdecode(repository.ask(*words, stdin=asked)).split("\0"))
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
        if commit is None or not mode.startswith(_FILE):
            continue
        if before is not None or blob not in parts[parents + 1 : -2]:
            yield _Step(ChangedFile(commit, path, blob), before)


def _shallow(repository: Repository) -> list[str]:
    if repository.ask("rev-parse", "--is-shallow-repository").strip() != b"true":
        return []
    path = os.fsdecode(repository.ask("rev-parse", "--git-path", "shallow")).rstrip("\n")
    return lines_of((repository.folder / path).read_bytes().decode("ascii"))


def _files(repository: Repository, commit: str) -> dict[str, str]:
    """Return the blob of each regular file in a commit, by path."""
    listed = os.fsdecode(repository.ask("ls-tree", "-r", "-z", "--full-tree", commit)).split("\0")
    found = {}
    for entry in filter(None, listed):
        told, _, path = entry.partition("\t")
        mode, _, blob = told.split(" ")
        if mode.startswith(_FILE):
            found[path] = blob
    return found
