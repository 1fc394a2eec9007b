"""Reads the changes of new commits to paths, newest first, from one `git log`, and notes any gaps."""

from __future__ import annotations

import heapq
import os
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.git import PARTIAL_CLONE_MESSAGE, GitError
from judgekit.text import format_count, split_lines

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from judgekit.git import Repository

    What: TypeAlias = Literal["file", "gone", "not regular"]

MAX_COMMITS = 2_000  # in one push, the newest ones: the gate doesn't judge a whole history
REGULAR_FILE_MODE_PREFIX = (
    "100"  # prefix of a regular file's mode, unlike a link's or a submodule's
)
SHALLOW_CLONE_MESSAGE = "at the edge of a shallow clone; fetch with depth 0 (git fetch --unshallow)"
_LOG_FORMAT_OPTION = "--format=tformat:%H%x00%an <%ae>%x00%cn <%ce>%x00%(trailers:only,unfold)"
# Prints a commit as four fields, followed by an entry for each path it changed.
_LOG_COMMAND = (
    *("log", "--ignore-missing", "--stdin", "--topo-order", "--raw", "-r", "-z", "-c", "--root"),
    *("-M100%", "--combined-all-paths", "--no-abbrev", "--no-ext-diff", "--no-textconv"),
    *("--no-color", _LOG_FORMAT_OPTION),
)
_COMMIT_GRAPH_COMMAND = (
    "log",
    "--ignore-missing",
    "--stdin",
    "--topo-order",
    "--no-color",
    "--format=%H %P",
)
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

    The changes of commits at the `edges` are unknown. `gap_reason` says why steps are missing.
    """

    steps: list[Step]
    edges: list[Commit]
    gap_reason: str = ""
    is_long: bool = False


def read_histories(
    repository: Repository, tips: Sequence[str], remote_commits: Sequence[str]
) -> dict[str, History]:
    """Read the changes in each tip's new commits, which aren't reachable from a remote commit.

    Tips without new commits are omitted. Raises `GitError`.
    """
    if len(tips) == 1:
        return _read_history_of_tip(repository, tips[0], remote_commits)
    return _read_histories_of_tips(repository, tips, remote_commits)


def _read_history_of_tip(
    repository: Repository, tip: str, remote_commits: Sequence[str]
) -> dict[str, History]:
    """Read a single tip's history: git selects the new commits itself."""
    revisions = [tip, *_exclude(remote_commits)]
    limit = f"--max-count={MAX_COMMITS + 1}"  # one more shows that there are too many
    try:
        raw = _run_log(repository, (*_LOG_COMMAND, limit), revisions)
    except GitError:
        if is_partial(repository):
            return _make_partial_histories(repository, [tip])
        raise

    shallow_oids = _read_shallow_oids(repository)
    logged_commits = list(_parse_log(raw))
    if not logged_commits:
        return {}
    return {tip: _make_history(logged_commits, shallow_oids)}


def _read_histories_of_tips(
    repository: Repository, tips: Sequence[str], remote_commits: Sequence[str]
) -> dict[str, History]:
    """Read the histories of multiple tips, with a single `git log` of all their new commits."""
    # The tips that get a history without steps if git fails in a partial clone.
    fallback_tips = tips
    try:
        oids_by_tip = _list_new_commits(repository, tips, remote_commits)
        fallback_tips = list(oids_by_tip)  # only these have new commits
        distinct_oids = list(dict.fromkeys(chain.from_iterable(oids_by_tip.values())))
        if not distinct_oids:
            return {}
        # Without `--no-walk`, git would go on to the parents of these commits, and so through all history.
        raw = _run_log(repository, (*_LOG_COMMAND, "--no-walk=unsorted"), distinct_oids)
    except GitError:
        if is_partial(repository):
            return _make_partial_histories(repository, fallback_tips)
        raise

    shallow_oids = _read_shallow_oids(repository)
    return _split_log_by_tip(raw, oids_by_tip, shallow_oids)


def _split_log_by_tip(
    raw: bytes, oids_by_tip: Mapping[str, Sequence[str]], shallow_oids: Container[str]
) -> dict[str, History]:
    """Build each tip's history from a log of the commits of all tips."""
    logged_by_oid = {commit.oid: (commit, steps) for commit, steps in _parse_log(raw)}
    histories = {}
    for tip, oids in oids_by_tip.items():
        # With `--ignore-missing`, git leaves out commits that it can't find.
        logged_of_tip = [logged_by_oid[oid] for oid in oids if oid in logged_by_oid]
        histories[tip] = _make_history(logged_of_tip, shallow_oids)
    return histories


def _exclude(oids: Iterable[str]) -> list[str]:
    """Write revisions in git's syntax that exclude these commits and their ancestors."""
    return [f"^{oid}" for oid in oids]


def _run_log(repository: Repository, command: Sequence[str], revisions: Iterable[str]) -> bytes:
    """Run a `git log` command with the revisions on stdin, and return its output."""
    lines = "".join(f"{revision}\n" for revision in revisions)
    return repository.ask(*command, stdin=lines.encode())


def _make_partial_histories(repository: Repository, tips: Iterable[str]) -> dict[str, History]:
    """Make histories without steps, for a partial clone in which git can't list changes."""
    histories = {}
    for tip in tips:
        # If no step has a file, its commit is looked up among the edges. The tip has every file, so with the
        # tip as the only edge, that's always the tip.
        tip_commit = read_commit(repository, tip)
        histories[tip] = History(steps=[], edges=[tip_commit], gap_reason=PARTIAL_CLONE_MESSAGE)
    return histories


def _list_new_commits(
    repository: Repository, tips: Sequence[str], remote_commits: Sequence[str]
) -> dict[str, list[str]]:
    """List each tip's commits that the remote doesn't have, newest first.

    Tips without new commits are omitted. A list stops after `MAX_COMMITS` + 1 commits, enough to see that
    there are too many.
    """
    parents_by_oid = _read_new_parents(repository, tips, remote_commits)
    # The walk below goes by rank, the position in git's order, so that a commit comes before its parents.
    rank_by_oid = {oid: rank for rank, oid in enumerate(parents_by_oid)}

    oids_by_tip: dict[str, list[str]] = {}
    for tip in tips:
        if tip in parents_by_oid:  # otherwise, the remote has the tip
            new_commits = _walk_new_commits(tip, parents_by_oid, rank_by_oid)
            oids_by_tip[tip] = list(islice(new_commits, MAX_COMMITS + 1))
    return oids_by_tip


def _read_new_parents(
    repository: Repository, tips: Sequence[str], remote_commits: Sequence[str]
) -> dict[str, list[str]]:
    """Read the parents of each new commit, in git's order: a commit comes before its parents."""
    raw = _run_log(repository, _COMMIT_GRAPH_COMMAND, [*tips, *_exclude(remote_commits)])
    parents_by_oid: dict[str, list[str]] = {}
    for line in raw.decode().split("\n")[:-1]:  # each line ends with a newline
        oid, *parents = line.split()
        parents_by_oid[oid] = parents
    return parents_by_oid


def _walk_new_commits(
    tip: str, parents_by_oid: Mapping[str, Sequence[str]], rank_by_oid: Mapping[str, int]
) -> Iterator[str]:
    """Yield a tip and its new ancestors, in the order of their ranks."""
    # The heap always gives the waiting commit with the lowest rank.
    waiting = [(rank_by_oid[tip], tip)]
    seen = {tip}
    while waiting:
        _, oid = heapq.heappop(waiting)
        yield oid
        for parent in parents_by_oid[oid]:
            is_new = parent in rank_by_oid  # otherwise, the remote has it
            if is_new and parent not in seen:
                seen.add(parent)
                heapq.heappush(waiting, (rank_by_oid[parent], parent))


def _make_history(
    logged_commits: Iterable[tuple[Commit, list[Step]]], shallow_oids: Container[str]
) -> History:
    """Build a history from commits and their steps (the changed paths), newest first.

    At most `MAX_COMMITS` commits are read; `is_long` marks a history with more. `shallow_oids` are the oldest
    commits of a shallow clone. If the history contains one of them, `gap_reason` says so.
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

    return History(steps=steps, edges=edges, gap_reason=_describe_gap(edges), is_long=is_long)


def _describe_gap(edges: Sequence[Commit]) -> str:
    """Say how many commits lack their parents in this clone; "" if none does."""
    if not edges:
        return ""
    subject = format_count(len(edges), "commit is", "commits are")
    return f"{subject} {SHALLOW_CLONE_MESSAGE}"  # "2 commits are at the edge of a shallow clone; …"


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
    return set(split_lines(text))


def read_commit(repository: Repository, oid: str) -> Commit:
    """Read a single commit, without its changes."""
    raw = repository.ask("log", "--max-count=1", "--no-patch", "-z", _LOG_FORMAT_OPTION, oid)
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
        # A changed path's entry has a colon for each parent of its commit. A commit's entry has none.
        colon_count, entry = _split_off_colons(field)
        if not entry:  # for example, after the NUL at the end
            continue

        is_commit = colon_count == 0
        if is_commit:
            if commit is not None:  # the previous commit is complete
                yield commit, steps
            commit = _parse_commit(entry, fields)
            steps = []
        elif commit is not None:
            columns = entry.split(" ")
            step = _parse_step(commit, columns, fields, parent_count=colon_count)
            if step is not None:
                steps.append(step)

    if commit is not None:
        yield commit, steps


def _split_off_colons(field: str) -> tuple[int, str]:
    r"""Split a field such as "\n::100644 100644 ..." into its number of colons (here 2) and the rest."""
    entry = field.lstrip("\n:")
    prefix = field.removesuffix(entry)
    return prefix.count(":"), entry


def _parse_commit(oid: str, fields: Iterator[str]) -> Commit:
    """Build a commit from its id and the next fields: author, committer and trailers."""
    author = next(fields)
    committer = next(fields)
    trailers = [trailer for trailer in split_lines(next(fields)) if trailer]
    people = [author, committer]
    for trailer in trailers:
        if trailer.casefold().startswith(_CO_AUTHOR):
            co_author = trailer[len(_CO_AUTHOR) :]
            people.append(co_author.strip())
    return Commit(oid, tuple(people), tuple(trailers))


def _parse_step(
    commit: Commit, columns: Sequence[str], fields: Iterator[str], *, parent_count: int
) -> Step | None:
    """Parse a changed path's entry. Returns None if the file is unchanged from one of the commit's parents.

    The entry's paths are taken from `fields`.
    """
    # The columns are an OLD_MODE for each parent, MODE, an OLD_BLOB for each parent, BLOB, and STATUS.
    *old_modes, mode = columns[: parent_count + 1]
    *old_blobs, blob = columns[parent_count + 1 : -1]
    status = columns[-1]
    # Take the paths in any case, because the next entry comes after them.
    old_paths, path = _take_paths(status, parent_count, fields)

    if mode == _MODE_OF_NOTHING:
        return Step(commit, path, "gone")
    if not mode.startswith(REGULAR_FILE_MODE_PREFIX):
        return Step(commit, path, "not regular")

    old_files = zip(old_modes, old_blobs, old_paths, strict=True)
    same_content_paths = _list_paths_with_blob(blob, old_files)
    if path in same_content_paths:
        return None

    # If a parent has the same content at another path, this commit only moved the file. A step has a single
    # earlier path, so if multiple parents have the content, the last one's path is used.
    moved_from = same_content_paths[-1] if same_content_paths else None
    return Step(commit, path, "file", blob=blob, moved_from=moved_from)


def _take_paths(status: str, parent_count: int, fields: Iterator[str]) -> tuple[list[str], str]:
    """Take an entry's paths from `fields`: the path in each parent, and the current one."""
    old_paths = [next(fields) for _ in range(parent_count)]
    # git prints the current path only for merges, and for renamed (R) or copied (C) files.
    is_merge = parent_count > 1
    has_current_path = is_merge or status.startswith(("R", "C"))
    path = next(fields) if has_current_path else old_paths[0]
    return old_paths, path


def _list_paths_with_blob(blob: str, old_files: Iterable[tuple[str, str, str]]) -> list[str]:
    """List the paths of the regular files with this content.

    `old_files` has a (mode, blob, path) for each of a commit's parents.
    """
    paths = []
    for old_mode, old_blob, old_path in old_files:
        was_file = old_mode.startswith(REGULAR_FILE_MODE_PREFIX)
        if was_file and old_blob == blob:
            paths.append(old_path)
    return paths
