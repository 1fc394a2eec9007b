"""Reads the changes of new commits to paths, newest first, from one `git log`, and notes any gaps."""

from __future__ import annotations

import heapq
import os
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.git import PARTIAL, GitError
from judgekit.text import counted, lines_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from judgekit.git import Repository

    What: TypeAlias = Literal["file", "gone", "not regular"]

MAX_COMMITS = 2_000  # in one push, the newest ones: the gate doesn't judge a whole history
FILE = "100"  # prefix of a regular file's mode, unlike a link's or a submodule's
SHALLOW = "at the edge of a shallow clone; fetch with depth 0 (git fetch --unshallow)"
_FORMAT = "--format=tformat:%H%x00%an <%ae>%x00%cn <%ce>%x00%(trailers:only,unfold)"
# Prints a commit as four fields, followed by an entry for each path it changed.
_LOG = (
    *("log", "--ignore-missing", "--stdin", "--topo-order", "--raw", "-r", "-z", "-c", "--root"),
    *("-M100%", "--combined-all-paths", "--no-abbrev", "--no-ext-diff", "--no-textconv"),
    *("--no-color", _FORMAT),
)
_GRAPH = ("log", "--ignore-missing", "--stdin", "--topo-order", "--no-color", "--format=%H %P")
_MODE_OF_NOTHING = "000000"  # mode of a deleted path
_CO_AUTHOR = "co-authored-by:"


class Commit(NamedTuple):
    """A commit's author, committer and co-authors (`Name <address>`), and its trailers (`Key: value`)."""

    oid: str
    people: tuple[str, ...]  # the author first
    trailers: tuple[str, ...] = ()


class Step(NamedTuple):
    """A commit's change to a path: a `blob` in a regular file, a deletion, or something else.

    `moved_from` is the earlier path of a file that was only moved.
    """

    commit: Commit
    path: str
    what: What
    blob: str = ""
    moved_from: str | None = None


class History(NamedTuple):
    """The steps of new commits, newest first.

    The changes of commits at the `edges` are unknown. `gap` says why steps are missing.
    """

    steps: list[Step]
    edges: list[Commit]
    gap: str = ""
    is_long: bool = False


def read_histories(
    repository: Repository, tips: Sequence[str], remote_commits: Sequence[str]
) -> dict[str, History]:
    """Read the changes in each tip's new commits, which aren't reachable from a remote commit.

    Tips without new commits are omitted. Raises `GitError`.
    """
    # For multiple tips, list the commits of all with one call of git, however many tips there are. For a
    # single tip, this stays None, and git selects the commits itself.
    oids_by_tip: dict[str, list[str]] | None = None
    try:
        if len(tips) == 1:
            revisions = [tips[0], *(f"^{oid}" for oid in remote_commits)]
            limit = f"--max-count={MAX_COMMITS + 1}"  # one more shows that there are too many
        else:
            oids_by_tip = _list_new_commits(repository, tips, remote_commits)
            revisions = list(dict.fromkeys(chain.from_iterable(oids_by_tip.values())))
            limit = "--no-walk=unsorted"

        if not revisions:
            return {}

        lines = "\n".join([*revisions, ""])  # "" adds a newline at the end
        raw = repository.ask(*_LOG, limit, stdin=lines.encode())
    except GitError:
        if not is_partial(repository):
            raise
        return _make_partial_histories(repository, oids_by_tip or tips)  # with the tips alone

    shallow_oids = _read_shallow_oids(repository)
    logged_commits = list(_parse_log(raw))
    if oids_by_tip is None:
        if not logged_commits:
            return {}
        return {tips[0]: _make_history(logged_commits, shallow_oids)}

    logged_by_oid = {commit.oid: (commit, steps) for commit, steps in logged_commits}
    histories = {}
    for tip, oids in oids_by_tip.items():
        logged_of_tip = [logged_by_oid[oid] for oid in oids if oid in logged_by_oid]
        histories[tip] = _make_history(logged_of_tip, shallow_oids)
    return histories


def _make_partial_histories(repository: Repository, tips: Iterable[str]) -> dict[str, History]:
    """Make histories without steps, for a partial clone in which git can't list changes."""
    histories = {}
    for tip in tips:
        edge = read_commit(
            repository, tip
        )  # at least one commit that is known to contain the files
        histories[tip] = History(steps=[], edges=[edge], gap=PARTIAL)
    return histories


def _list_new_commits(
    repository: Repository, tips: Sequence[str], remote_commits: Sequence[str]
) -> dict[str, list[str]]:
    """List each tip's commits that no remote commit reaches, newest first.

    Tips without new commits are omitted. A list stops after `MAX_COMMITS` + 1 commits.
    """
    # `^OID` excludes a commit and its ancestors. The empty string ends the last line with a newline.
    revisions = [*tips, *(f"^{oid}" for oid in remote_commits), ""]
    output = repository.ask(*_GRAPH, stdin="\n".join(revisions).encode()).decode()

    parents_by_oid: dict[str, list[str]] = {}
    for line in output.split("\n")[:-1]:  # each line ends with a newline
        oid, *parents = line.split()
        parents_by_oid[oid] = parents

    # The rank is a commit's position in git's order, in which children come before their parents.
    oids = list(parents_by_oid)
    rank_by_oid = {oid: rank for rank, oid in enumerate(oids)}

    oids_by_tip: dict[str, list[str]] = {}
    for tip in tips:
        if tip not in rank_by_oid:  # the remote has this tip, so it has no new commits
            continue

        # Walk from the tip to its ancestors. The heap always gives the newest commit that's waiting.
        waiting_ranks = [rank_by_oid[tip]]
        seen_ranks = set(waiting_ranks)
        oids_by_tip[tip] = []
        while waiting_ranks and len(oids_by_tip[tip]) <= MAX_COMMITS:
            oid = oids[heapq.heappop(waiting_ranks)]
            oids_by_tip[tip].append(oid)
            for parent in parents_by_oid[oid]:
                rank = rank_by_oid.get(parent)  # None if the remote has the parent
                if rank is not None and rank not in seen_ranks:
                    seen_ranks.add(rank)
                    heapq.heappush(waiting_ranks, rank)

    return oids_by_tip


def _make_history(
    logged_commits: Iterable[tuple[Commit, list[Step]]], shallow_oids: Container[str]
) -> History:
    """Build a history from commits and their steps (the changed paths), newest first.

    At most `MAX_COMMITS` commits are read; `is_long` marks a history with more. `shallow_oids` are the oldest
    commits of a shallow clone. If the history contains one of them, `gap` says so.
    """
    steps: list[Step] = []
    edges: list[Commit] = []  # the commits whose parents this clone lacks
    is_long = False

    for number, (commit, commit_steps) in enumerate(logged_commits, 1):
        if number > MAX_COMMITS:
            is_long = True
            break

        # Without its parents, a commit seems to create every file, so its steps mean nothing.
        if commit.oid in shallow_oids:
            edges.append(commit)
        else:
            steps += commit_steps

    gap = f"{counted(len(edges), 'commit is', 'commits are')} {SHALLOW}" if edges else ""
    return History(steps=steps, edges=edges, gap=gap, is_long=is_long)


def is_partial(repository: Repository) -> bool:
    """Whether this is a partial clone (`git clone --filter=…`), which may lack objects of its history."""
    names = r"^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$"
    return repository.succeeds("config", "--get-regexp", names)


def _read_shallow_oids(repository: Repository) -> set[str]:
    """Read the ids of commits at a shallow clone's boundary, whose parents are missing."""
    git_path = os.fsdecode(repository.ask("rev-parse", "--git-path", "shallow")).rstrip("\n")
    file = repository.folder / git_path
    if not file.exists():  # the clone isn't shallow
        return set()
    text = file.read_bytes().decode("ascii")
    return set(lines_of(text))


def read_commit(repository: Repository, oid: str) -> Commit:
    """Read a single commit, without its changes."""
    raw = repository.ask("log", "--max-count=1", "--no-patch", "-z", _FORMAT, oid)
    commit, _ = next(_parse_log(raw))
    return commit


def _parse_log(raw: bytes) -> Iterator[tuple[Commit, list[Step]]]:
    """Yield each commit in the output of `git log`, with its steps (its changes to paths)."""
    # Each commit and each changed path takes up multiple fields. The loop reads the first of these fields,
    # and the parsing functions take the others from the same iterator.
    fields = iter(os.fsdecode(raw).split("\0"))
    # The commit that's being read, and its steps so far.
    commit: Commit | None = None
    steps: list[Step] = []

    for field in fields:
        entry = field.lstrip("\n:")
        if not entry:
            continue

        # A changed path's entry starts with a colon for each parent. A commit id has no colons.
        prefix = field.removesuffix(entry)
        parent_count = prefix.count(":")
        if parent_count == 0:
            if commit is not None:  # the previous commit is complete
                yield commit, steps
            commit = _parse_commit(entry, fields)
            steps = []
        elif commit is not None:
            step = _parse_step(commit, entry.split(" "), parent_count, fields)
            if step is not None:
                steps.append(step)

    if commit is not None:
        yield commit, steps


def _parse_commit(oid: str, fields: Iterator[str]) -> Commit:
    """Build a commit from its id and the next fields: author, committer and trailers."""
    author = next(fields)
    committer = next(fields)
    trailers = [trailer for trailer in lines_of(next(fields)) if trailer]
    people = [author, committer]
    for trailer in trailers:
        if trailer.casefold().startswith(_CO_AUTHOR):
            co_author = trailer[len(_CO_AUTHOR) :]
            people.append(co_author.strip())
    return Commit(oid, tuple(people), tuple(trailers))


def _parse_step(
    commit: Commit, columns: Sequence[str], parent_count: int, fields: Iterator[str]
) -> Step | None:
    """Parse a changed path's entry. Returns None if the file is unchanged from one of the commit's parents.

    `columns` are OLD_MODE, MODE, OLD_BLOB, BLOB and STATUS. A merge has multiple parents, and an OLD_MODE and
    an OLD_BLOB for each of them. The paths are taken from `fields`.
    """
    *old_modes, mode = columns[: parent_count + 1]
    *old_blobs, blob = columns[parent_count + 1 : -1]
    status = columns[-1]

    old_paths = [next(fields) for _ in range(parent_count)]
    # git prints the current path only for merges, and for renamed (R) or copied (C) files.
    has_new_path = parent_count > 1 or status.startswith(("R", "C"))
    path = next(fields) if has_new_path else old_paths[0]

    if mode == _MODE_OF_NOTHING:
        return Step(commit, path, "gone")
    if not mode.startswith(FILE):
        return Step(commit, path, "not regular")

    # If a parent has the same content at another path, this commit only moved the file.
    same_content_paths = []
    for old_mode, old_blob, old_path in zip(old_modes, old_blobs, old_paths, strict=True):
        if old_blob == blob and old_mode.startswith(FILE):
            same_content_paths.append(old_path)
    if path in same_content_paths:
        return None

    moved_from = same_content_paths[-1] if same_content_paths else None
    return Step(commit, path, "file", blob=blob, moved_from=moved_from)
