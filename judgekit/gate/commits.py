"""Which commits a push brings, which files each of them changed, and which of these the gate judges."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config.patterns import Patterns
from judgekit.errors import InputError
from judgekit.text import escaped, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from judgekit.git import Repository

    Wanted: TypeAlias = "Callable[[ChangedFile], bool]"

MAX_COMMITS = 2_000  # of one push that are looked at, the newest: a whole history is not judged
_FORMAT = "%H%x00%an <%ae>%x00%cn <%ce>%x00%(trailers:only,unfold)%x00"
_FILE = "100"  # the beginning of the mode of a regular file: not a link, not a submodule
_CO_AUTHOR = "co-authored-by:"
_FIELDS = 4  # of a line on a pre-push hook's stdin
_ADDRESSES = r"^(remote\..*\.(push)?url|url\..*\.(push)?insteadof)$"
_URL = re.compile(r"(?:\w[\w+.-]*)://(?:[^@/]*@)?(?P<host>[^/:]*)(?::\d+)?/+(?P<path>.*)", re.DOTALL)
_SCP = re.compile(r"(?:[^@/:]*@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)", re.DOTALL)


class UnknownCommit(InputError):  # noqa: N818 - said of what was given, which whoever gave it can mend
    """There is no such commit here: fetch it, or name another one."""


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
        """Whether the remote has no such ref yet."""
        return not self.remote_oid.strip("0")


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
    """A blob that a commit put at a path; `earlier` commits of the push changed it before, newest first."""

    commit: Commit
    path: str
    blob: str
    earlier: tuple[Commit, ...] = ()


class PushedChanges(NamedTuple):
    """The newest change of each file that stands in what is pushed, and lines about what is not judged."""

    changes: list[ChangedFile]
    unjudged: list[str]


class ChangeFilter:
    """Whether a change is judged: one of the `rules`, paths and authors each, must choose it.

    Paths are patterns as in `.gitignore`, also in other capitals. Authors are patterns (`*`, `?`) for the
    author, the committer and the co-authors, each as `Name <address>`, or for a whole trailer
    (`Generated-By: *`). No authors mean all of them.
    """

    def __init__(self, *rules: tuple[Sequence[str], Sequence[str]]) -> None:
        self._rules = [
            (Patterns(paths), Patterns(path.lower() for path in paths), [each.casefold() for each in authors])
            for paths, authors in rules
        ]

    def __call__(self, change: ChangedFile) -> bool:
        path, texts = change.path, [*change.commit.people, *change.commit.trailers]
        return any(
            not authors or any(fnmatchcase(text.casefold(), author) for author in authors for text in texts)
            for patterns, any_case, authors in self._rules
            if patterns.match(path) or any_case.match(path.lower())
        )


def parse(text: str) -> list[RefUpdate]:
    """Return git's lines to a pre-push hook as updates; raises `InputError` for others."""
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
    raw = b""
    if repository.holds("config", "--get-regexp", _ADDRESSES):
        raw = repository.ask("config", "-z", "--get-regexp", _ADDRESSES)
    addresses: dict[str, list[str]] = {}
    instead: list[tuple[str, str]] = []  # a beginning of an address, and what git puts in its place
    for entry in filter(None, os.fsdecode(raw).split("\0")):
        key, _, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        name = rest.rpartition(".")[0]
        if section == "remote":
            addresses.setdefault(name, []).append(value)
        else:
            instead.append((value, name))
    instead.sort(key=lambda pair: -len(pair[0]))
    folder = os.path.realpath(repository.folder)

    def place(address: str) -> str:
        """Return what is the same for all addresses of a place: its host and path, or its folder here."""
        for beginning, other in instead:
            if beginning and address.startswith(beginning):
                address = other + address.removeprefix(beginning)
                break
        found = _URL.fullmatch(address) or _SCP.fullmatch(address)
        if found is not None and found["host"]:
            return f"{found['host'].lower()}/{found['path'].rstrip('/').removesuffix('.git')}"
        path = f"/{found['path']}" if found is not None else address
        return os.path.realpath(os.path.join(folder, path)).removesuffix(".git")  # noqa: PTH118 - no file is meant

    mine = {url, remote if remote not in addresses else "", *addresses.get(remote, ())} - {""}
    places = {place(address) for address in mine}
    same = [name for name, theirs in addresses.items() if not places.isdisjoint(map(place, theirs))]
    return list(dict.fromkeys([remote, *same])), list(addresses)


def of_push(
    repository: Repository, updates: Sequence[RefUpdate], remote: str, wanted: Wanted, url: str = ""
) -> PushedChanges:
    """Return the `wanted` changes that a push brings to `remote`, a name or a URL, as they are pushed.

    Commits that a ref of the remote reaches are not new, whatever branch they stand on. A file is left out
    when a later commit of the push removed it, or when it is pushed as the remote's ref has it.
    """
    # The remote may be known by another name. Of one that was never fetched, only what others have is known.
    below = [f"refs/remotes/{name}/" for name in remotes_at(repository, remote, url)[0]]
    words = ("for-each-ref", "--format=%(objectname)")
    fetched = repository.ask(*words, *below) or repository.ask(*words, "refs/remotes/")
    updated = [update.remote_oid for update in updates if not update.is_new]
    known = list(dict.fromkeys([*updated, *lines_of(fetched.decode())]))
    pushed = PushedChanges([], [])
    seen: set[tuple[str, str]] = set()
    for update in updates:
        if update.deletes:
            continue
        tip = repository.commit(update.local_oid)
        if tip is None:
            problem = "it points to no commit in this clone, so its files are not judged"
            pushed.unjudged.append(f"{escaped(update.remote_ref)}: {problem}")
            continue
        before = None if update.is_new else repository.commit(update.remote_oid)
        for change in _of_tip(repository, tip, before, known, wanted, pushed.unjudged):
            if (change.path, change.blob) not in seen:
                seen.add((change.path, change.blob))
                pushed.changes.append(change)
    return pushed


def since(repository: Repository, base: str, tip: str, wanted: Wanted) -> PushedChanges:
    """Return the `wanted` changes between two commits, as they stand at `tip`; raises `UnknownCommit`."""
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
    shown = name or repr(name)
    raise UnknownCommit(f"{shown}: not a commit of this repository; fetch it, or name another one")


def _of_tip(
    repository: Repository,
    tip: str,
    before: str | None,
    known: Sequence[str],
    wanted: Wanted,
    unjudged: list[str],
) -> list[ChangedFile]:
    """Return the wanted changes of the commits that `tip` reaches and no known commit does."""
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
    steps = _changes(repository, commits[:MAX_COMMITS]) if commits else ()
    changes = [change for change in _newest(steps, wanted) if wanted(change)]
    if not changes:
        return []
    trees: list[dict[str, str]] = []  # the blob of each regular file of the tip, and before
    for commit in filter(None, (tip, before)):
        listed = os.fsdecode(repository.ask("ls-tree", "-r", "-z", "--full-tree", commit)).split("\0")
        entries = (entry.partition("\t") for entry in listed if entry.startswith(_FILE))
        trees.append({path: about.rpartition(" ")[2] for about, _, path in entries})
    tree, *unchanged = trees
    return [
        change._replace(blob=tree[change.path])
        for change in changes
        if change.path in tree and not any(old.get(change.path) == tree[change.path] for old in unchanged)
    ]


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


def _changes(repository: Repository, commits: Sequence[Commit]) -> Iterator[tuple[ChangedFile, str | None]]:
    """Yield what each commit added or changed, a merge beside its parents, and from where it was moved."""
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
