"""Sorts the files in a push: to be judged, skipped for a reason, or impossible to examine."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from judgekit.gate import Omission, history
from judgekit.gate.commits import ChangedFile, PushedChanges
from judgekit.gate.trees import Tree
from judgekit.git import PARTIAL_CLONE_MESSAGE, GitError
from judgekit.text import escape_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.gate.commits import ChangeFilter, RefUpdate, Updates
    from judgekit.gate.history import Commit, History, Step
    from judgekit.git import Repository

    _File: TypeAlias = tuple[str, str]  # a path and its blob

NOT_SELECTED = "not selected by gate.paths"
OTHER_AUTHORS = "not selected by gate.authors"
MOVED = "only moved"
GONE = "deleted"
NO_FILE = "a link or a submodule"
UNCHANGED = "the same as before"
REF_DELETED = "a deleted ref"
NO_COMMIT = "it points to no commit in this clone, so its files are not judged"
_MAX_EDGES = 20  # commits at a clone's edge that are searched for a file


def examine_push(
    repository: Repository, updates: Updates, remote_commits: Sequence[str], wanted: ChangeFilter
) -> PushedChanges:
    """Find the changes to judge in a push, and record everything else with the reason.

    Only `wanted` changes are judged. Commits reachable from `remote_commits` were pushed before, so they
    aren't examined.
    """
    pushed = PushedChanges()
    commit_by_oid = _resolve_tips(repository, updates)
    tips = _list_new_tips(updates, commit_by_oid)
    histories = history.read_histories(repository, tips, remote_commits) if tips else {}

    for update in updates:
        tip = commit_by_oid.get(update.local_oid)
        if update.is_deletion:
            pushed.skipped.add(REF_DELETED, update.remote_ref)
        elif tip is None:
            pushed.unexamined.append(Omission(name=update.remote_ref, reason=NO_COMMIT))
        elif tip in histories:  # a tip without new commits has no history
            examination = _Examination(
                repository=repository,
                update=update,
                tip=tip,
                old_tip=commit_by_oid.get(update.remote_oid),
                remote_commits=remote_commits,
                change_filter=wanted,
                pushed=pushed,
            )
            examination.sort_files(histories[tip])  # adds the ref's files to `pushed`
            pushed.updates_with_commits.append(update)

    # A file that's skipped for one ref may be judged for another. Don't report it as skipped then.
    pushed.skipped.remove({change.path for change in pushed.changes})
    return pushed


def _resolve_tips(repository: Repository, updates: Updates) -> dict[str, str]:
    """Map the updates' old and new object ids to commits.

    Deleted refs and commits missing from this clone are omitted. A tag's id maps to the tagged commit.
    """
    names = []
    for update in updates:
        if update.is_deletion:
            continue
        names.append(update.local_oid)
        if not update.is_new:
            names.append(update.remote_oid)
    return repository.resolve_commits(names)


def _list_new_tips(updates: Updates, commit_by_oid: Mapping[str, str]) -> list[str]:
    """List the commits that the refs point to after the push, each once."""
    tips = []
    for update in updates:
        tip = commit_by_oid.get(update.local_oid)
        if tip is not None:
            tips.append(tip)
    return list(dict.fromkeys(tips))


@dataclass
class _Examination:
    """Examines one ref of a push; `sort_files` adds the result to `pushed`."""

    repository: Repository
    update: RefUpdate
    tip: str
    old_tip: str | None  # the remote's; None if the ref is new there, or its commit isn't here
    remote_commits: Sequence[str]
    change_filter: ChangeFilter
    pushed: PushedChanges

    def sort_files(self, pushed_history: History) -> None:
        """Add the files changed by the ref's new commits to `pushed`.

        Each file is added as a change to judge, as skipped, or as not examined.
        """
        if pushed_history.is_long:
            self._add_omission(
                f"more than {history.MAX_COMMITS:,} new commits; "
                "only files changed by the newest are judged"
            )

        covered_paths = self._select_covered_paths(pushed_history.steps)
        has_gap = bool(pushed_history.gap_reason)  # this clone lacks a part of the history
        if not covered_paths and not has_gap:  # there's nothing to judge
            return

        path_filter = self._choose_path_filter(covered_paths, has_gap=has_gap)
        tree = self._read_tree(self.tip, path_filter)
        if tree is None:  # this partial clone lacks the tip's files
            self._add_omission(PARTIAL_CLONE_MESSAGE)
            return
        old_tree = None if self.old_tip is None else self._read_tree(self.old_tip, path_filter)

        origins = _Origins(tree)
        origins.follow(pushed_history.steps)
        changes = self._collect_changes(pushed_history, tree, old_tree, origins)
        self._add_changes(changes, old_tree)

        changed_paths = {change.path for change in changes}
        self._skip_unchanged_paths(covered_paths, tree, origins, changed_paths)

    def _add_omission(self, reason: str) -> None:
        """Record that the ref, or a part of it, wasn't examined."""
        name = self.update.remote_ref or self.update.local_ref
        self.pushed.unexamined.append(Omission(name=name, reason=reason))

    def _choose_path_filter(
        self, covered_paths: set[str], *, has_gap: bool
    ) -> Callable[[str], bool]:
        """Return a filter for the paths to read from trees: the changed paths that a rule covers."""
        # If a part of the history is missing, any file may have changed, so read all that a rule covers.
        if has_gap:
            return self.change_filter.covers
        return lambda path: path in covered_paths

    def _read_tree(self, commit: str, is_needed: Callable[[str], bool]) -> Tree | None:
        """Read a commit's files at the needed paths; None if this partial clone lacks them."""
        try:
            return Tree.read(self.repository, commit, is_needed)
        except GitError:
            if not history.is_partial(self.repository):
                raise
            return None

    def _select_covered_paths(self, steps: Iterable[Step]) -> set[str]:
        """Return the changed paths that a rule covers. Record all others as skipped."""
        covered_paths: set[str] = set()
        changed_paths = dict.fromkeys(step.path for step in steps)  # in order, without duplicates
        for path in changed_paths:
            if self.change_filter.covers(path):
                covered_paths.add(path)
            else:
                self.pushed.skipped.add(NOT_SELECTED, path)
        return covered_paths

    def _collect_changes(
        self, pushed_history: History, tree: Tree, old_tree: Tree | None, origins: _Origins
    ) -> list[ChangedFile]:
        """Return the changes found in the history's steps, and those that only the trees show."""
        changes = origins.take_changes(self.change_filter)
        # The steps don't show every change if some of them are missing, or if a malformed tree contains two
        # files with the same path.
        has_gap = bool(pushed_history.gap_reason)
        if has_gap or tree.list_repeated_paths():
            changes += self._find_unexplained_changes(pushed_history, tree, old_tree, origins)
        return changes

    def _add_changes(self, changes: Iterable[ChangedFile], old_tree: Tree | None) -> None:
        """Add the wanted new changes to `pushed`, and record the others as skipped."""
        # Multiple refs of a push can change the same file. Judge it once.
        files_of_other_refs = {(change.path, change.blob) for change in self.pushed.changes}
        for change in changes:
            if old_tree is not None and old_tree.has(change.path, change.blob):
                self.pushed.skipped.add(UNCHANGED, change.path)
            elif not self.change_filter(change):
                self.pushed.skipped.add(OTHER_AUTHORS, change.path)
            elif (change.path, change.blob) not in files_of_other_refs:
                self.pushed.changes.append(change)

    def _skip_unchanged_paths(
        self, paths: Iterable[str], tree: Tree, origins: _Origins, changed_paths: set[str]
    ) -> None:
        """Record the paths without a change to judge as skipped, each with the reason."""
        moved_paths = {path for path, _blob in origins.earlier_path_by_file}

        for path in paths:
            if path in changed_paths:
                continue

            if path in moved_paths:
                reason = MOVED
            elif path in tree.blobs:
                reason = UNCHANGED
            elif path in tree.non_file_paths:
                reason = NO_FILE
            else:
                reason = GONE

            self.pushed.skipped.add(reason, path)

    def _find_unexplained_changes(
        self,
        pushed_history: History,
        tree: Tree,
        old_tree: Tree | None,
        origins: _Origins,
    ) -> list[ChangedFile]:
        """Find changed files at the tip that no step explains, by comparing the tip with the remote's trees.

        There are such files if a part of the history is missing, or if a tree contains a path twice.
        """
        base_trees = self._read_base_trees()
        remote_trees = base_trees if old_tree is None else [old_tree, *base_trees]
        if pushed_history.gap_reason:
            if not remote_trees:  # nothing to compare with, so all files would seem new
                self._add_omission(pushed_history.gap_reason)
                return []
            if not base_trees:  # only the remote's old tip is left to compare with
                self._note_missing_history(pushed_history.gap_reason)

        files = _list_unexplained_files(pushed_history, tree, remote_trees, origins)
        commit_finder = _CommitFinder(
            self.repository, pushed_history.edges, self.tip, self.change_filter
        )
        changes: list[ChangedFile] = []
        for path, blob in self._select_new_files(files, tree, remote_trees):
            # This commit has the file, but another one may have changed it.
            commit = commit_finder.find_commit(path, blob)
            changes.append(ChangedFile(commit, path, blob, is_attributed=False))
        return changes

    def _select_new_files(
        self, files: Iterable[_File], tree: Tree, remote_trees: Sequence[Tree]
    ) -> Iterator[_File]:
        """Yield the files whose content is new to the remote. Files that were only moved are skipped.

        `remote_trees` are those of the remote's old tip and of the merge bases.
        """
        moved_blobs = _find_moved_blobs(remote_trees, tree)
        for path, blob in files:
            is_at_remote = any(remote_tree.has(path, blob) for remote_tree in remote_trees)
            if is_at_remote:
                continue
            if blob in moved_blobs:
                self.pushed.skipped.add(MOVED, path)
                continue
            yield path, blob

    def _note_missing_history(self, reason: str) -> None:
        """Add a note that history is missing, so all files that differ from the remote's are judged."""
        # The remote ref is empty if this judges the commits since a base, not a push.
        baseline = escape_name(self.update.remote_ref) or "the base"
        effect = f"files that differ from {baseline} are judged, whoever changed them"
        self.pushed.notes.append(f"{reason}; {effect}")

    def _read_base_trees(self) -> list[Tree]:
        """Read the trees of the merge bases, except any missing from this partial clone."""
        trees = []
        for base in self._find_merge_bases():
            tree = self._read_tree(base, self.change_filter.covers)
            if tree is not None:
                trees.append(tree)
        return trees

    def _find_merge_bases(self) -> list[str]:
        """List the newest commits that the pushed tip and the remote have in common."""
        # A new ref has no old tip, and this clone may lack the commit. Then use all of the remote's commits.
        remote_tips = self.remote_commits if self.old_tip is None else [self.old_tip]
        if not remote_tips:
            return []
        try:
            output = self.repository.ask("merge-base", "--all", self.tip, *remote_tips)
        except GitError:  # there's no common commit
            return []
        return output.decode().split()


def _find_moved_blobs(old_trees: Iterable[Tree], tree: Tree) -> set[str]:
    """Find blobs that may have been moved: the old trees have them at paths that no longer exist."""
    moved_blobs: set[str] = set()
    for old_tree in old_trees:
        for path, blobs in old_tree.blobs.items():
            if path not in tree.blobs:
                moved_blobs.update(blobs)
    return moved_blobs


def _list_unexplained_files(
    pushed_history: History, tree: Tree, remote_trees: Sequence[Tree], origins: _Origins
) -> Iterator[_File]:
    """Yield the path and blob of each file at the tip that no step explains."""
    paths: Iterable[str]
    move_sources: Sequence[Tree] | None
    if pushed_history.gap_reason:
        paths = tree.blobs
        move_sources = remote_trees
    else:
        # The steps are complete. So they explain every file, except at paths that the tree contains twice.
        paths = tree.list_repeated_paths()
        move_sources = None

    for path in paths:
        for blob in tree.blobs[path]:
            if not origins.is_explained(path, blob, move_sources):
                yield path, blob


@dataclass
class _Origins:
    """Traces each blob of a tree to the commit that put it at its path.

    A file that was only moved counts from its creation, if that's among the steps. Otherwise its earlier
    path is in `earlier_path_by_file`: if the gate covers that path, there's nothing new to judge.
    """

    tree: Tree
    change_by_file: dict[_File, ChangedFile] = field(default_factory=dict)
    earlier_path_by_file: dict[_File, str] = field(default_factory=dict)
    # By path: the commits that changed the file now there, including under earlier paths.
    commits_by_path: dict[str, list[Commit]] = field(default_factory=dict)
    # By old file: the tip's files that were moved from it, and whose origin isn't found yet.
    _files_moved_from: defaultdict[_File, list[_File]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )
    # By path: the lists that get the commits of older steps at this path. After a move from `a.py` to `b.py`,
    # the list of `b.py` is also under `a.py`.
    _lists_by_path: defaultdict[str, list[list[Commit]]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )

    def follow(self, steps: Iterable[Step]) -> None:
        """Find the commit that wrote each file's content, by following the steps from newest to oldest.

        If `a.py` was moved to `b.py`, the search for the origin of `b.py` continues at `a.py`. Fills
        `change_by_file`, `commits_by_path` and, for files that were only moved, `earlier_path_by_file`.
        """
        for step in steps:
            if step.what == "file":  # not a deletion, a link or a submodule
                self._follow_step(step)

        # No step wrote the files that are left: they existed before, and were only moved.
        for (earlier_path, _blob), files in self._files_moved_from.items():
            for file in files:
                self.earlier_path_by_file[file] = earlier_path

    def _follow_step(self, step: Step) -> None:
        """Credit a step's commit with the files that it wrote.

        If the step only moved a file, the search for the commit that wrote it continues at the earlier path.
        """
        self._open_commit_list(step.path)
        current_files = self._take_current_files(step)

        if step.moved_from is None:  # the step created or edited the file
            self._credit_commit(step, current_files)
            return

        # Older steps at the earlier path belong to this path's history too. One may have written the files.
        self._lists_by_path[step.moved_from] += self._lists_by_path[step.path]
        self._files_moved_from[step.moved_from, step.blob] += current_files

    def _open_commit_list(self, path: str) -> None:
        """Start the list of a path's commits, if this is its newest step."""
        if path not in self.commits_by_path:
            commits: list[Commit] = []
            self.commits_by_path[path] = commits
            # Older steps at this path add their commits to the same list. If the file was moved here,
            # `_follow_step` registers the list at the earlier path as well.
            self._lists_by_path[path].append(commits)

    def _take_current_files(self, step: Step) -> list[_File]:
        """Return the files at the tip that got their content from this step, and list them as changed.

        These are the step's own file, if the tip has it, and files that later steps moved away from its path.
        """
        file = (step.path, step.blob)
        current_files = self._files_moved_from.pop(file, [])

        # Steps come newest first, so the first one with this path and content put the file there.
        is_newest_step = file not in self.change_by_file
        if is_newest_step and self.tree.has(step.path, step.blob):
            # If the step only moved the file, `_credit_commit` replaces the commit by the one that wrote it.
            self.change_by_file[file] = ChangedFile(step.commit, step.path, step.blob)
            current_files.append(file)
        return current_files

    def _credit_commit(self, step: Step, current_files: Iterable[_File]) -> None:
        """Record that a step's commit wrote these files."""
        # Besides the path's own list, these are the lists of the paths that files were moved to from here.
        for commits in self._lists_by_path[step.path]:
            commits.append(step.commit)
        for file in current_files:
            change = self.change_by_file[file]
            self.change_by_file[file] = change._replace(commit=step.commit)

    def take_changes(self, wanted: ChangeFilter) -> list[ChangedFile]:
        """Return the changes to judge, without moved files that were judged at their earlier path.

        The returned files are removed from `earlier_path_by_file`, so that they aren't reported as only
        moved.
        """
        changes: list[ChangedFile] = []
        for file, change in self.change_by_file.items():
            if self._was_judged_before_move(change, wanted):
                continue

            self.earlier_path_by_file.pop(file, None)
            changes.append(change._replace(earlier_commits=self._list_earlier_commits(change)))

        return changes

    def _was_judged_before_move(self, change: ChangedFile, wanted: ChangeFilter) -> bool:
        """Whether a file was only moved, from a path that the gate judges as well."""
        earlier_path = self.earlier_path_by_file.get((change.path, change.blob))
        if earlier_path is None:
            return False
        change_before_move = change._replace(path=earlier_path)
        return wanted(change_before_move)

    def _list_earlier_commits(self, change: ChangedFile) -> tuple[Commit, ...]:
        """List the other new commits that changed the file."""
        distinct_commits = dict.fromkeys(self.commits_by_path[change.path])
        return tuple(commit for commit in distinct_commits if commit != change.commit)

    def is_explained(self, path: str, blob: str, move_sources: Sequence[Tree] | None) -> bool:
        """Whether the known steps explain how a blob got to its path.

        `move_sources` are the trees that a file may have been moved from, or None if the history is complete.
        """
        file = (path, blob)
        earlier_path = self.earlier_path_by_file.get(file)
        if move_sources is None or earlier_path is None:
            return file in self.change_by_file

        # The steps only moved the file. Unless a source has it at its earlier path, a missing step may have
        # written its content.
        return any(tree.has(earlier_path, blob) for tree in move_sources)


class _CommitFinder:
    """Finds a commit that has a file, if the one that changed it is unknown."""

    def __init__(
        self, repository: Repository, edges: Sequence[Commit], tip: str, wanted: ChangeFilter
    ) -> None:
        """`edges` are the commits at which this clone's history ends."""
        self._repository = repository
        self._edges = edges[:_MAX_EDGES]  # each one's tree has to be read
        self._tip = tip
        self._change_filter = wanted
        self._trees: dict[str, Tree] = {}  # by commit id

    def find_commit(self, path: str, blob: str) -> Commit:
        """Find a commit that has the file: the first edge with it, or else the tip."""
        for edge in self._edges:
            if self._read_tree(edge).has(path, blob):
                return edge
        # The file was found in the tip's tree, so the tip has it in any case.
        return history.read_commit(self._repository, self._tip)

    def _read_tree(self, edge: Commit) -> Tree:
        """Read a commit's files, and cache them. Returns an empty tree if this clone lacks them."""
        if edge.oid not in self._trees:
            try:
                tree = Tree.read(self._repository, edge.oid, self._change_filter.covers)
            except GitError:
                tree = Tree()
            self._trees[edge.oid] = tree
        return self._trees[edge.oid]
