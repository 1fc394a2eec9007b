"""Which files a push brings that are judged, which are not, and why; and what could not be examined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from judgekit.gate import Omission, history
from judgekit.gate.commits import ChangedFile, PushedChanges
from judgekit.gate.trees import Tree
from judgekit.git import PARTIAL, GitError
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from judgekit.gate.commits import ChangeFilter, RefUpdate, Updates
    from judgekit.gate.history import Commit, History, Step
    from judgekit.git import Repository

    _File: TypeAlias = tuple[str, str]  # a path, and the blob there

NOT_SELECTED = "not selected by gate.paths"
OTHER_AUTHORS = "not selected by gate.authors"
MOVED = "only moved"
GONE = "deleted"
NO_FILE = "a link or a submodule"
UNCHANGED = "the same as before"
REF_DELETED = "a deleted ref"
NO_COMMIT = "it points to no commit in this clone, so its files are not judged"
_MAX_EDGES = 20  # commits at the edge of a clone in which a file is looked for


def examine_push(
    repository: Repository, updates: Updates, remote_commits: Sequence[str], wanted: ChangeFilter
) -> PushedChanges:
    """Return the changes to judge, and what is not judged and why.

    A change is judged if it is `wanted`, stands in what is pushed, and not in what the other side has, which
    is all that `remote_commits` reach.
    """
    pushed = PushedChanges()
    made = [update for update in updates if not update.deletes]
    names = [update.local_oid for update in made]
    names += [update.remote_oid for update in made if not update.is_new]
    commit_by_name = repository.commits(names)
    tips = [
        commit_by_name[update.local_oid] for update in made if update.local_oid in commit_by_name
    ]
    distinct_tips = list(dict.fromkeys(tips))
    histories: dict[str, History] = {}
    if distinct_tips:
        histories = history.read_histories(repository, distinct_tips, remote_commits)
    for update in updates:
        tip = commit_by_name.get(update.local_oid)
        if update.deletes:
            pushed.skipped.add(REF_DELETED, update.remote_ref)
        elif tip is None:
            pushed.unexamined.append(Omission(name=update.remote_ref, reason=NO_COMMIT))
        elif tip in histories:  # else it brings no commit that the other side lacks
            old_tip = commit_by_name.get(update.remote_oid)
            examination = _Examination(
                repository, update, tip, old_tip, remote_commits, wanted, pushed
            )
            examination.run(histories[tip])
            pushed.bringing.append(update)
    # What one ref skips, another may bring to be judged.
    pushed.skipped.remove({change.path for change in pushed.changes})
    return pushed


@dataclass
class _Examination:
    """What one ref of a push brings; `run` adds it to `pushed`."""

    repository: Repository
    update: RefUpdate
    tip: str
    old_tip: str | None  # of the other side; None if the ref is new there, or its commit isn't here
    remote_commits: Sequence[str]
    wanted: ChangeFilter
    pushed: PushedChanges

    def run(self, pushed_history: History) -> None:
        """Sort all that is new in the ref: judged, skipped for a reason, or not examined."""
        if pushed_history.is_long:
            limit = f"more than {history.MAX_COMMITS:,} new commits"
            self._add_omission(f"{limit}; only files changed by the newest are judged")
        covered_paths = self._keep_covered_paths(pushed_history.steps)
        if not covered_paths and not pushed_history.gap:
            return
        # Where steps are missing, files that no step is about are compared, too.
        is_needed = self.wanted.covers if pushed_history.gap else covered_paths.__contains__
        tree = self._read_tree(self.tip, is_needed)
        if tree is None:
            self._add_omission(PARTIAL)
            return
        old_tree = None if self.old_tip is None else self._read_tree(self.old_tip, is_needed)
        origins = _Origins(tree)
        origins.follow(pushed_history.steps)
        changes = origins.take_changes(self.wanted)  # what is left there is read below
        if pushed_history.gap or tree.repeated():
            changes += self._find_unexplained_changes(pushed_history, tree, old_tree, origins)
        self._sort_out(changes, old_tree)
        self._skip_rest(covered_paths, tree, origins, {change.path for change in changes})

    def _add_omission(self, reason: str) -> None:
        name = self.update.remote_ref or self.update.local_ref
        self.pushed.unexamined.append(Omission(name=name, reason=reason))

    def _read_tree(self, commit: str, is_needed: Callable[[str], bool]) -> Tree | None:
        """Return what a commit holds at the paths that are needed; None where a partial clone lacks it."""
        try:
            return Tree.read(self.repository, commit, is_needed)
        except GitError:
            if not history.is_partial(self.repository):
                raise
            return None

    def _keep_covered_paths(self, steps: Iterable[Step]) -> set[str]:
        """Skip the paths of new commits that no rule covers; return the others."""
        covered_paths: set[str] = set()
        for path in dict.fromkeys(step.path for step in steps):
            if self.wanted.covers(path):
                covered_paths.add(path)
            else:
                self.pushed.skipped.add(NOT_SELECTED, path)
        return covered_paths

    def _sort_out(self, changes: Iterable[ChangedFile], old_tree: Tree | None) -> None:
        """Add the changes that are judged, and skip those that are not."""
        of_other_refs = {(change.path, change.blob) for change in self.pushed.changes}
        for change in changes:
            if old_tree is not None and old_tree.holds(change.path, change.blob):
                self.pushed.skipped.add(UNCHANGED, change.path)
            elif not self.wanted(change):
                self.pushed.skipped.add(OTHER_AUTHORS, change.path)
            elif (change.path, change.blob) not in of_other_refs:
                self.pushed.changes.append(change)

    def _skip_rest(
        self, paths: Iterable[str], tree: Tree, origins: _Origins, changed_paths: set[str]
    ) -> None:
        """Skip the paths that have no change, each for the reason that holds."""
        moved_paths = {path for path, _ in origins.moved_from}
        for path in paths:
            if path in changed_paths:
                continue
            if path in moved_paths:
                reason = MOVED
            elif path in tree.blobs:
                reason = UNCHANGED
            elif path in tree.no_files:
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
        """Return files of the tip that no step explains, and that no tree of the other side has.

        There are such files where a clone holds a part of the history only (the `gap` says why), and where a
        name stands twice in a tree. Skips files that were only moved, and notes in `pushed` what a part of
        the history means for the files, or that nothing could be compared.
        """
        base_trees = self._read_base_trees()
        old_trees = base_trees if old_tree is None else [old_tree, *base_trees]
        paths: Iterable[str]
        sources: Sequence[Tree] | None
        if pushed_history.gap:
            if not old_trees:
                self._add_omission(pushed_history.gap)
                return []
            if not base_trees:
                self._note_gap(pushed_history.gap)
            paths = tree.blobs
            sources = old_trees
        else:
            paths = tree.repeated()  # a step names a path, and not which of its blobs it means
            sources = None  # a whole history tells where a moved file comes from
        gone = _find_blobs_gone(old_trees, tree)
        holders = _Holders(self.repository, pushed_history.edges, self.tip, self.wanted)
        changes: list[ChangedFile] = []
        for path in paths:
            for blob in tree.blobs[path]:
                if origins.is_explained(path, blob, sources):
                    continue  # its step decides
                if any(old.holds(path, blob) for old in old_trees):
                    continue  # it is not new
                if blob in gone:
                    self.pushed.skipped.add(MOVED, path)
                    continue
                commit = holders.find_commit(path, blob)
                changes.append(ChangedFile(commit, path, blob, attributed=False))
        return changes

    def _note_gap(self, gap: str) -> None:
        """Note that files are compared with the other side's newest state only."""
        side = escaped(self.update.remote_ref) or "the base"  # only a push has a ref there
        effect = f"files that differ from {side} are judged, whoever changed them"
        self.pushed.notes.append(f"{gap}; {effect}")

    def _read_base_trees(self) -> list[Tree]:
        """Return what the commits hold that both sides have, as far as this clone has their files."""
        trees = []
        for base in self._find_merge_bases():
            tree = self._read_tree(base, self.wanted.covers)
            if tree is not None:
                trees.append(tree)
        return trees

    def _find_merge_bases(self) -> list[str]:
        """Return the commits that both sides have, as far as this clone knows."""
        other_side = self.remote_commits if self.old_tip is None else [self.old_tip]
        if not other_side:
            return []
        try:
            output = self.repository.ask("merge-base", "--all", self.tip, *other_side)
        except GitError:  # there is none
            return []
        return output.decode().split()


def _find_blobs_gone(old_trees: Iterable[Tree], tree: Tree) -> set[str]:
    """Return the blobs of files that stand in an old tree and not in a new one: what may have been moved."""
    gone: set[str] = set()
    for old in old_trees:
        for path, blobs in old.blobs.items():
            if path not in tree.blobs:
                gone.update(blobs)
    return gone


@dataclass
class _Origins:
    """Which commit put each blob of a tree at its path.

    A file that was only moved counts as made where it was made, if that is among the steps too. If it is not,
    its earlier path is in `moved_from`, since there is nothing new to judge if the gate covers that.
    """

    tree: Tree
    change_by_file: dict[_File, ChangedFile] = field(default_factory=dict)
    moved_from: dict[_File, str] = field(default_factory=dict)
    # By path: who changed the file that is there now, also under its earlier paths.
    commits_by_path: dict[str, list[Commit]] = field(default_factory=dict)

    def follow(self, steps: Iterable[Step]) -> None:
        """Fill in the fields from steps, newest first: a file is followed back to where it was made."""
        # By an older path and its blob: the files of the tree that were moved from there.
        files_moved_from: dict[_File, list[_File]] = {}
        # By path: the lists of `commits_by_path` of all files that come from there.
        lists_of_path: dict[str, list[list[Commit]]] = {}
        for step in steps:
            if step.what != "file":
                continue
            if step.path not in self.commits_by_path:
                self.commits_by_path[step.path] = []
                own_list = self.commits_by_path[step.path]
                lists_of_path.setdefault(step.path, []).append(own_list)
            file = (step.path, step.blob)
            files_from_here = files_moved_from.pop(file, [])
            if self.tree.holds(step.path, step.blob) and file not in self.change_by_file:
                self.change_by_file[file] = ChangedFile(step.commit, step.path, step.blob)
                files_from_here.append(file)
            if step.moved_from is None:  # the step made the file
                for commits in lists_of_path[step.path]:
                    commits.append(step.commit)
                for made in files_from_here:
                    self.change_by_file[made] = self.change_by_file[made]._replace(
                        commit=step.commit
                    )
            else:  # an older step made it, at the earlier path
                lists_of_path.setdefault(step.moved_from, []).extend(lists_of_path[step.path])
                old_file = (step.moved_from, step.blob)
                files_moved_from.setdefault(old_file, []).extend(files_from_here)
        for (earlier_path, _), files in files_moved_from.items():
            self.moved_from.update(dict.fromkeys(files, earlier_path))

    def take_changes(self, wanted: ChangeFilter) -> list[ChangedFile]:
        """Return what is new to judge, and leave in `moved_from` only files that are not.

        Those were moved from a path where the gate judges them.
        """
        changes: list[ChangedFile] = []
        for file, change in self.change_by_file.items():
            earlier_path = self.moved_from.get(file)
            if earlier_path is not None and wanted(change._replace(path=earlier_path)):
                continue
            self.moved_from.pop(file, None)
            commits = dict.fromkeys(self.commits_by_path[change.path])
            earlier = tuple(commit for commit in commits if commit != change.commit)
            changes.append(change._replace(earlier=earlier))
        return changes

    def is_explained(self, path: str, blob: str, sources: Sequence[Tree] | None) -> bool:
        """Whether steps say how a blob came to its path.

        A moved one must stand in one of `sources`; None where the steps are all, and need no such check.
        """
        earlier_path = self.moved_from.get((path, blob))
        if earlier_path is None or sources is None:
            return (path, blob) in self.change_by_file
        return any(tree.holds(earlier_path, blob) for tree in sources)


class _Holders:
    """Finds a commit that has a file, where it is not known which one changed it."""

    def __init__(
        self, repository: Repository, edges: Sequence[Commit], tip: str, wanted: ChangeFilter
    ) -> None:
        self._repository = repository
        self._edges = edges[:_MAX_EDGES]
        self._tip = tip
        self._wanted = wanted
        self._trees: dict[str, Tree] = {}

    def find_commit(self, path: str, blob: str) -> Commit:
        """Return a commit at an edge of the history that has a file, else the tip."""
        for edge in self._edges:
            if self._read_tree(edge).holds(path, blob):
                return edge
        return history.read_commit(self._repository, self._tip)

    def _read_tree(self, edge: Commit) -> Tree:
        """Return the files of a commit, none where a partial clone lacks them; read once."""
        if edge.oid not in self._trees:
            try:
                self._trees[edge.oid] = Tree.read(self._repository, edge.oid, self._wanted.covers)
            except GitError:
                self._trees[edge.oid] = Tree()
        return self._trees[edge.oid]
