"""What new commits did to which paths, newest first, as one `git log` tells it; and where it cannot tell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.git import PARTIAL, GitError
from judgekit.text import counted, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.git import Repository

    What: TypeAlias = Literal["file", "gone", "no file"]

MAX_COMMITS = 2_000  # of one push that are looked at, the newest: a whole history is not judged
FILE = "100"  # the beginning of the mode of a regular file: not a link, not a submodule
SHALLOW = "at the edge of a shallow clone; fetch with depth 0 (git fetch --unshallow)"
_FORMAT = "--format=tformat:%H%x00%an <%ae>%x00%cn <%ce>%x00%(trailers:only,unfold)"
_LOG = (
    *(
        "log",
        "--ignore-missing",
        "--stdin",
        "--topo-order",
        "--raw",
        "-r",
        "-z",
        "-c",
        "--root",
        "-M100%",
    ),
    *(
        "--combined-all-paths",
        "--no-abbrev",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        _FORMAT,
    ),
)
_NO_BLOB = "000000"  # the mode of nothing
_CO_AUTHOR = "co-authored-by:"


class Commit(NamedTuple):
    """A commit's author, committer and co-authors (`Name <address>`), and its trailers (`Key: value`)."""

    oid: str
    people: tuple[str, ...]  # the author first
    trailers: tuple[str, ...] = ()


class Step(NamedTuple):
    """What a commit made of a path: a `blob` in a regular file, nothing, or what is no regular file.

    `before` is the earlier path of a file that was only moved.
    """

    commit: Commit
    path: str
    what: What
    blob: str = ""
    before: str | None = None


class History(NamedTuple):
    """The steps of new commits, newest first.

    Of the commits at the `edges` it is not known what they changed. `gap` says why the steps are not all.
    """

    steps: list[Step]
    edges: list[Commit]
    gap: str = ""
    is_long: bool = False


def read(repository: Repository, tip: str, known: Sequence[str]) -> History:
    """Return what the commits did that `tip` reaches and no `known` commit does."""
    revisions = "".join(f"{line}\n" for line in (tip, *(f"^{oid}" for oid in known))).encode()
    limit = f"--max-count={MAX_COMMITS + 1}"
    try:
        raw = repository.ask(*_LOG, limit, stdin=revisions)
    except GitError:
        if not is_partial(repository):
            raise
        return History([], [read_commit(repository, tip)], gap=PARTIAL)
    shallow = _shallow_commits(repository)
    steps: list[Step] = []
    edges: list[Commit] = []
    for count, (commit, changes) in enumerate(_commits(raw), 1):
        if count > MAX_COMMITS:
            return History(steps, edges, _edge_text(edges), is_long=True)
        # A shallow clone's oldest commits seem to have no parents, and so to have made every file there is.
        if commit.oid in shallow:
            edges.append(commit)
        else:
            steps += changes
    return History(steps, edges, _edge_text(edges))


def is_partial(repository: Repository) -> bool:
    """Whether a clone may lack objects of its history."""
    names = r"^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$"
    return repository.holds("config", "--get-regexp", names)


def _edge_text(edges: Sequence[Commit]) -> str:
    if not edges:
        return ""
    return f"{counted(len(edges), 'commit is', 'commits are')} {SHALLOW}"


def _shallow_commits(repository: Repository) -> set[str]:
    place = os.fsdecode(repository.ask("rev-parse", "--git-path", "shallow")).rstrip("\n")
    file = repository.folder / place
    if file.exists():
        return set(lines_of(file.read_bytes().decode("ascii")))
    return set()


def read_commit(repository: Repository, oid: str) -> Commit:
    """Return one commit, without what it changed."""
    raw = repository.ask("log", "--max-count=1", "--no-patch", "-z", _FORMAT, oid)
    return next(commit for commit, _ in _commits(raw + b"\0"))


def _commits(raw: bytes) -> Iterator[tuple[Commit, list[Step]]]:
    """Yield each commit that git printed, with its steps."""
    fields = iter(os.fsdecode(raw).split("\0"))
    commit: Commit | None = None
    steps: list[Step] = []
    for field in fields:
        entry = field.lstrip("\n:")
        if not entry:
            continue
        parents = field.count(":", 0, len(field) - len(entry))
        if parents == 0:
            if commit is not None:
                yield commit, steps
            commit = _commit(entry, fields)
            steps = []
        elif (
            commit is not None
            and (step := _step(commit, entry.split(" "), parents, fields)) is not None
        ):
            steps.append(step)
    if commit is not None:
        yield commit, steps


def _commit(oid: str, fields: Iterator[str]) -> Commit:
    people = [next(fields), next(fields)]
    trailers = tuple(filter(None, lines_of(next(fields))))
    authored = [trailer for trailer in trailers if trailer.casefold().startswith(_CO_AUTHOR)]
    people += [trailer[len(_CO_AUTHOR) :].strip() for trailer in authored]
    return Commit(oid, tuple(people), trailers)


def _step(commit: Commit, parts: Sequence[str], parents: int, fields: Iterator[str]) -> Step | None:
    """Return what one entry of the log says; None where the path is as in a parent of the commit."""
    modes = parts[:parents]
    blobs = parts[parents + 1 : -2]
    status = parts[-1]
    mode = parts[parents]
    blob = parts[-2]
    if parents > 1:
        earlier_paths = [next(fields) for _ in range(parents)]
        path = next(fields)
    else:
        earlier_paths = [next(fields)]
        if status[:1] in "RC":
            path = next(fields)
        else:
            path = earlier_paths[0]
    if mode == _NO_BLOB:
        return Step(commit, path, "gone")
    if not mode.startswith(FILE):
        return Step(commit, path, "no file")
    before = None
    for earlier_mode, earlier_blob, earlier_path in zip(modes, blobs, earlier_paths, strict=True):
        if earlier_blob != blob or not earlier_mode.startswith(FILE):
            continue
        if earlier_path == path:
            return None
        before = earlier_path
    return Step(commit, path, "file", blob, before)
