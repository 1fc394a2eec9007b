"""Which commits a push brings, which files each of them changed, and which of these the gate judges."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.config.patterns import Patterns
from judgekit.errors import InputError
from judgekit.git import GitError, Repository
from judgekit.text import escaped, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Wanted: TypeAlias = "Callable[[ChangedFile], bool]"
    Updates: TypeAlias = "Sequence[RefUpdate]"

MAX_COMMITS = 2_000  # of one push that are looked at, the newest: a whole history is not judged
_LOG = (
    *("log", "--ignore-missing", "--stdin", "--topo-order", "--raw", "-r", "-z", "-c", "--root", "-M100%"),
    *("--no-abbrev", "--no-ext-diff", "--no-textconv", "--no-color"),
    "--format=tformat:%H%x00%an <%ae>%x00%cn <%ce>%x00%(trailers:only,unfold)",
)
_NUMBERS = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
_FILE = "100"  # the beginning of the mode of a regular file: not a link, not a submodule
_CO_AUTHOR = "co-authored-by:"
_FIELDS = 4  # of a line on a pre-push hook's stdin
_URL = re.compile(r"(?:\w[\w+.-]*)://(?:[^@/]*@)?(?P<host>[^/:]*)(?::\d+)?/+(?P<path>.*)", re.DOTALL)
_SCP = re.compile(r"(?:[^@/:]*@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)", re.DOTALL)


class UnknownCommit(InputError):  # noqa: N818 - not a fault: the caller can correct it
    """A name that leads to no commit."""


class RefUpdate(NamedTuple):
    """One ref of a push; an object id of zeros stands for nothing: a new ref, or a deleted one."""

    local_ref: str
    local_oid: str
    remote_ref: str
    remote_oid: str

    @property
    def deletes(self) -> bool:
        return not self.local_oid.strip("0")

    @property
    def is_new(self) -> bool:
        return not self.remote_oid.strip("0")


class Commit(NamedTuple):
    """A commit's author, committer and co-authors (`Name <address>`), and its trailers (`Key: value`)."""

    oid: str
    people: tuple[str, ...]  # the author first
    trailers: tuple[str, ...] = ()


class ChangedFile(NamedTuple):
    """A blob that a commit put at a path; `earlier` commits of the push changed it before, newest first."""

    commit: Commit
    path: str
    blob: str
    earlier: tuple[Commit, ...] = ()


class PushedChanges(NamedTuple):
    """The newest change of each file that stands in what is pushed, and lines about what is not judged."""

    changes: list[ChangedFile]
    unjudged: list[str]


def change_filter(*rules: tuple[Sequence[str], Sequence[str]]) -> Wanted:
    """Return whether a change is judged: one of the `rules`, paths and authors each, must choose it.

    Paths are patterns as in `.gitignore`, also in other capitals. Authors are patterns (`*`, `?`) for the
    author, the committer and the co-authors, each as `Name <address>`, or for a whole trailer
    (`Generated-By: *`). No authors mean all of them.
    """
    compiled = [
        (Patterns(paths), Patterns(path.lower() for path in paths), [each.casefold() for each in authors])
        for paths, authors in rules
    ]

    def is_wanted(change: ChangedFile) -> bool:
        path, texts = change.path, [*change.commit.people, *change.commit.trailers]
        return any(
            not authors or any(fnmatchcase(text.casefold(), author) for author in authors for text in texts)
            for patterns, any_case, authors in compiled
            if patterns.match(path) or any_case.match(path.lower())
        )

    return is_wanted


def parse(text: str) -> list[RefUpdate]:
    updates = []
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        fields = line.rsplit(" ", _FIELDS - 1)
        oids = fields[1::2] if len(fields) == _FIELDS else [""]
        if not all(len(oid) in (40, 64) and not oid.strip("0123456789abcdef") for oid in oids):
            raise InputError(f"stdin:{number}: expected <local ref> <local oid> <remote ref> <remote oid>")
        updates.append(RefUpdate(*fields))
    return updates


def remotes_at(repository: Repository, remote: str, url: str) -> tuple[list[str], list[str]]:
    """Return the names of the remotes at the place that is pushed to, a name or a URL, and of all remotes."""
    addresses: dict[str, list[str]] = {}
    for line in os.fsdecode(repository.ask("remote", "-v")).split("\n")[:-1]:  # with `insteadOf` applied
        name, _, address = line.partition("\t")
        addresses.setdefault(name, []).append(address.rpartition(" (")[0])
    folder = os.path.realpath(repository.folder)

    def place(address: str) -> str:
        found = _URL.fullmatch(address) or _SCP.fullmatch(address)
        if found is not None and found["host"]:
            return f"{found['host'].lower()}/{found['path'].rstrip('/').removesuffix('.git')}"
        path = f"/{found['path']}" if found is not None else address
        return os.path.realpath(os.path.join(folder, path)).removesuffix(".git")  # noqa: PTH118 - no file is meant

    mine = {url, remote if remote not in addresses else "", *addresses.get(remote, ())} - {""}
    places = {place(address) for address in mine}
    same = [name for name, theirs in addresses.items() if not places.isdisjoint(map(place, theirs))]
    return list(dict.fromkeys([remote, *same])), list(addresses)


def known_to(repository: Repository, updates: Updates, remote: str, url: str = "") -> list[str]:
    """Return commits that a remote, a name or a URL, has: those that its refs reach, whatever they are."""
    # The remote may be known by another name. Of one that was never fetched, only what others have is known.
    below = [f"refs/remotes/{name}/" for name in remotes_at(repository, remote, url)[0]]
    words = ("for-each-ref", "--format=%(objectname)")
    fetched = repository.ask(*words, *below) or repository.ask(*words, "refs/remotes/")
    updated = [update.remote_oid for update in updates if not update.is_new]
    return list(dict.fromkeys([*updated, *lines_of(fetched.decode())]))


def commit_id(repository: Repository, name: str) -> str:
    if (commit := repository.commit(name)) is not None:
        return commit
    if not repository.holds("rev-parse", "--git-dir"):
        raise UnknownCommit(f"no git repository at {repository.folder}; change to one")
    shown = name or repr(name)
    raise UnknownCommit(f"{shown}: not a commit of this repository; fetch it, or name another one")


def lines_changed(repository: Repository, updates: Updates, known: Sequence[str]) -> dict[str, int]:
    """Return by path how many lines the updates add, or remove where these are more; what git can tell."""
    counts: dict[str, int] = {}
    for update in updates:
        # There may be no commit in common, or no file of it in this clone.
        with suppress(GitError):
            before = repository.ask("merge-base", update.local_oid, *known).decode().strip()
            for entry in os.fsdecode(repository.ask(*_NUMBERS, before, update.local_oid)).split("\0")[:-1]:
                added, removed, path = entry.split("\t", 2)
                if added.isdigit():  # else it is binary
                    counts[path] = max(counts.get(path, 0), int(added), int(removed))
    return counts


def of_push(repository: Repository, updates: Updates, known: Sequence[str], wanted: Wanted) -> PushedChanges:
    """Return the `wanted` changes beyond `known` commits that are still in what is pushed, and new there."""
    pushed = PushedChanges([], [])
    seen: set[tuple[str, str]] = set()
    for update in updates:
        if update.deletes:
            continue
        if (tip := repository.commit(update.local_oid)) is None:
            problem = "it points to no commit in this clone, so its files are not judged"
            pushed.unjudged.append(f"{escaped(update.remote_ref)}: {problem}")
            continue
        changes = [each for each in _newest(_changes(repository, tip, known, pushed), wanted) if wanted(each)]
        before = None if update.is_new or not changes else repository.commit(update.remote_oid)
        trees: list[dict[str, str]] = []  # the blob of each regular file of the tip, and before
        for commit in filter(None, (tip, before) if changes else ()):
            listed = os.fsdecode(repository.ask("ls-tree", "-r", "-z", "--full-tree", commit)).split("\0")
            entries = (entry.partition("\t") for entry in listed if entry.startswith(_FILE))
            trees.append({path: about.rpartition(" ")[2] for about, _, path in entries})
        for change in changes:
            path, blob = change.path, trees[0].get(change.path)
            if blob and (path, blob) not in seen and all(old.get(path) != blob for old in trees[1:]):
                seen.add((path, blob))
                pushed.changes.append(change._replace(blob=blob))
    return pushed


def _newest(steps: Iterable[tuple[ChangedFile, str | None]], wanted: Wanted) -> Iterator[ChangedFile]:
    """Yield the newest change of each path.

    A file that was only moved counts as made where it was made, if that is in the push too. If it is not,
    there is nothing new to judge, unless the file was not wanted where it was.
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
    for (before, _), later in moved.items():
        for change in later:
            if wanted(change._replace(path=before)):
                newest.pop(change.path, None)
    for path, change in newest.items():
        others = [commit for commit in dict.fromkeys(touched[path]) if commit != change.commit]
        yield change._replace(earlier=tuple(others))


def _changes(
    repository: Repository, tip: str, known: Sequence[str], pushed: PushedChanges
) -> Iterator[tuple[ChangedFile, str | None]]:
    """Yield what new commits added or changed, newest first, and its earlier path; of merges their own."""
    # A shallow clone's oldest commits seem to have no parents, and so to have made every file there is.
    shallow = os.fsdecode(repository.ask("rev-parse", "--git-path", "shallow")).rstrip("\n")
    file = repository.folder / shallow
    cut = lines_of(file.read_bytes().decode("ascii")) if file.exists() else []
    revisions = "".join(f"{line}\n" for line in (tip, *(f"^{oid}" for oid in known))).encode()
    most = f"--max-count={MAX_COMMITS + 1}"
    fields = iter(os.fsdecode(repository.ask(*_LOG, most, stdin=revisions)).split("\0"))
    commit, count = Commit("", ("",)), 0
    for field in fields:
        raw = field.lstrip("\n:")
        parents = field.count(":", 0, len(field) - len(raw))
        if raw and not parents:
            people, trailers = [next(fields), next(fields)], tuple(filter(None, lines_of(next(fields))))
            others = [each for each in trailers if each.casefold().startswith(_CO_AUTHOR)]
            people += [each[len(_CO_AUTHOR) :].strip() for each in others]
            commit, count = Commit(raw, tuple(people), trailers), count + 1
            if count > MAX_COMMITS:
                told = "new commits; only files changed by the newest are judged"
                pushed.unjudged.append(f"more than {MAX_COMMITS:,} {told}")
                return
        elif raw:
            parts = raw.split(" ")
            mode, blob, status = parts[parents], parts[2 * parents + 1], parts[-1]
            before = next(fields) if parents == 1 and status[:1] in "RC" else None
            path = next(fields)
            is_file = mode.startswith(_FILE) and commit.oid not in cut
            if is_file and (before is not None or blob not in parts[parents + 1 : -2]):
                yield ChangedFile(commit, path, blob), before
