"""Finds the rules for a push: the remote's, because a push mustn't approve itself.

The rules' selection is stored after a full run, and holds while everything it depends on stays the same. A
push that brings none of the selected changes then ends before anything heavy is imported.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import environment, outputs
from judgekit.errors import ConfigError
from judgekit.gate import examine, remotes
from judgekit.gate.commits import ChangeFilter
from judgekit.gate.history import REGULAR_FILE_MODE_PREFIX
from judgekit.git import GitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from judgekit.gate.commits import PushedChanges, Updates
    from judgekit.gate.remotes import Remotes
    from judgekit.git import Repository, TreeEntry

_MEMORY_CONFIG = ".claude/memory/memory-config.json"
RULES_PATHS = (".judgekit", _MEMORY_CONFIG)
MAX_FILE_BYTES = 100_000  # of one rules file, read before the budget starts to count
MAX_TOTAL_BYTES = 10_000_000  # bytes of all of them
MAX_FILES = 5_000
# Paths that decide besides the rubrics. Replacing another file in the folder by a link changes no rule.
_DECIDING_PATHS = (".judgekit", ".judgekit/config.yaml", ".judgekit/rubrics")
_RUBRICS_PREFIX = ".judgekit/rubrics/"
_MAX_RULE_SETS = 20  # different ones to compare
_MAX_BRANCHES = 200  # branches to search for them
_GATE_VARIABLE_PREFIX = "JUDGEKIT_GATE_"


def find_rule_commits(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> list[str]:
    """Find the commits whose rules apply to a push, one for each different set of rules.

    The commits come from the first of these sources that has any:

    1. The remote's default branch, whatever branch is pushed.
    2. Every known ref of the remote.
    3. Everything else that this clone knows, including the pushed commits.
    """
    clone_remotes = remotes.read_remotes(repository, remote, url)
    # The pushed refs as they are on the remote before the push.
    remote_oids = {update.remote_ref: update.remote_oid for update in updates if not update.is_new}

    # 1. If the pushed branch's rules were used instead, a push could relax the rules for the next push.
    # A remote can have multiple names in this clone, each with its default branch.
    defaults = [clone_remotes.find_default_tip(name, remote_oids) for name in clone_remotes.names]
    commits = _select_different_rules(repository, defaults)
    if commits:
        return commits

    # 2. The other refs are only known from the last fetch.
    fetched_oids = [ref.oid for ref in clone_remotes.pushed_refs]
    commits = _select_different_rules(repository, [*remote_oids.values(), *fetched_oids])
    if commits:
        return commits

    # 3. This clone knows no commit of the remote.
    candidates = _list_other_commits(repository, updates, clone_remotes)
    return _select_different_rules(repository, candidates)


def _list_other_commits(
    repository: Repository, updates: Updates, clone_remotes: Remotes
) -> list[str | None]:
    """List the commits that may have the rules for a push, if this clone knows no commit of the remote."""
    pushed_tips = [update.local_oid for update in updates if not update.is_deletion]
    return [
        *_list_commits_of_other_remotes(clone_remotes),
        *pushed_tips,
        *_list_rule_changes(repository, pushed_tips),  # in the pushed history
        *_list_own_branches(repository),
    ]


def _list_commits_of_other_remotes(clone_remotes: Remotes) -> list[str | None]:
    """List the default branches of the remotes not pushed to, or all their refs if no default is known."""
    pushed_names = clone_remotes.names  # of the remote pushed to, which can have multiple names
    other_names = [name for name in clone_remotes.refs if name not in pushed_names]
    # The push doesn't ask the other remotes for their refs, so `remote_oids` is empty.
    defaults = [clone_remotes.find_default_tip(name, remote_oids={}) for name in other_names]
    is_any_known = any(oid is not None for oid in defaults)
    if is_any_known:
        return defaults
    return [ref.oid for ref in clone_remotes.other_refs]


def _select_different_rules(repository: Repository, oids: Sequence[str | None]) -> list[str]:
    """Return the first commit for each different set of rules, for at most `_MAX_RULE_SETS` sets.

    Unknown commits (None) and ids missing from this clone are skipped.
    """
    distinct_oids = list(dict.fromkeys(oid for oid in oids if oid))
    oid_by_name = _find_commits_and_rule_files(repository, distinct_oids)

    commit_by_rules: dict[tuple[str, ...], str] = {}
    for oid in distinct_oids:
        commit = oid_by_name[_name_commit(oid)]  # if `oid` is a tag's id, this is the tagged commit
        if not commit:  # missing from this clone
            continue
        # Files with equal content have equal object ids, so the ids show which rules are different.
        rules = tuple(oid_by_name[name] for name in _name_rule_files(oid))
        commit_by_rules.setdefault(rules, commit)

    commits = list(commit_by_rules.values())
    return commits[:_MAX_RULE_SETS]


def _find_commits_and_rule_files(repository: Repository, oids: Iterable[str]) -> dict[str, str]:
    """Map the names of these commits and of their rule files to object ids.

    The names are in git's syntax, as `_name_commit` and `_name_rule_files` write them.
    """
    object_names = []
    for oid in oids:
        object_names.append(_name_commit(oid))
        object_names += _name_rule_files(oid)
    return _find_objects(repository, object_names)


def _name_commit(oid: str) -> str:
    """Name a commit in git's syntax. The id can also be that of a tag that points to the commit."""
    return f"{oid}^{{commit}}"


def _name_rule_files(oid: str) -> list[str]:
    """Name a commit's rules in git's syntax, each as `COMMIT:PATH`."""
    return [f"{oid}:{path}" for path in RULES_PATHS]


def _find_objects(repository: Repository, names: list[str]) -> dict[str, str]:
    """Map names such as `COMMIT:PATH` to object ids. An object missing from this clone gets ""."""
    oid_by_name = {}
    for name, line in zip(names, repository.describe_objects(names), strict=True):
        # The line is "OID KIND SIZE", or "NAME missing".
        oid, _, kind_and_size = line.partition(" ")
        is_here = kind_and_size.startswith(("blob ", "commit ", "tree "))
        oid_by_name[name] = oid if is_here else ""
    return oid_by_name


def _list_own_branches(repository: Repository) -> list[str]:
    """List the tips of this clone's branches, latest first."""
    command = ("for-each-ref", "--format=%(objectname)", "--sort=-committerdate")
    output = repository.ask(*command, f"--count={_MAX_BRANCHES}", "refs/heads/")
    return output.decode().split()


def _list_rule_changes(repository: Repository, pushed: Sequence[str]) -> list[str]:
    """List the commits in the pushed history that changed the rules: the newest, up to `_MAX_RULE_SETS`.

    The list is empty if this clone lacks a part of the history.
    """
    tips = repository.resolve_commits(pushed).values()
    if not tips:
        return []

    # Without `--full-history`, git would skip the changes on a side branch if its merge undid them.
    options = ("--format=%H", "--full-history", f"--max-count={_MAX_RULE_SETS}", "--stdin")
    revisions = "".join(f"{tip}\n" for tip in dict.fromkeys(tips))
    try:
        output = repository.ask("log", *options, "--", *RULES_PATHS, stdin=revisions.encode())
    except GitError:
        return []
    return output.decode().split()


@contextmanager
def check_out_rules(repository: Repository, commit: str | None) -> Iterator[Path]:
    """Yield a temporary folder with a commit's rules and rubric. Without a commit, the folder is empty.

    If the caller's code raises a `ConfigError` about one of these files, the error names it as `COMMIT:PATH`
    instead of the temporary path.
    """
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        root = Path(folder).resolve()
        if commit is None:
            yield root
            return

        _write_rules_and_rubric(repository, commit, root)
        try:
            yield root
        except ConfigError as error:
            if _is_about_file_in(root, error):
                raise _rename_file_in_error(error, commit, root) from None
            raise


def _write_rules_and_rubric(repository: Repository, commit: str, root: Path) -> None:
    """Write a commit's rules into the folder `root`, and the rubric file that they name."""
    _write_rules(repository, commit, RULES_PATHS, root)
    rubric_path = _find_rubric_file(root)
    if rubric_path is not None:
        _write_rules(repository, commit, (rubric_path,), root)


def _is_about_file_in(folder: Path, error: ConfigError) -> bool:
    """Whether an error is about a file in a folder."""
    if error.path is None:
        return False
    path = Path(str(error.path))
    return path.is_relative_to(folder)


def _rename_file_in_error(error: ConfigError, commit: str, root: Path) -> ConfigError:
    """Rebuild an error about a file in the folder `root`, naming the file in the commit instead."""
    path = Path(str(error.path)).relative_to(root)
    name = _name_in_commit(commit, path.as_posix())
    renamed_errors = []
    for original in (error, *error.others):  # all about the same file
        renamed_errors.append(
            ConfigError(original.problem, path=name, line=original.line, key=original.key)
        )
    return ConfigError.of(renamed_errors)


def _find_rubric_file(root: Path) -> str | None:
    """Return the path of the configured rubric file, relative to `root`.

    None if the rubric isn't a YAML file below `root`, or if the settings can't be loaded.
    """
    from judgekit.config import settings  # noqa: PLC0415 - imported lazily, since pydantic is slow to load

    try:
        # Loading the settings makes the path of a rubric file absolute.
        rubric = Path(settings.load(root).gate.rubric)
    except ConfigError:  # reported by the caller, who loads the same settings
        return None
    if rubric.suffix not in (".yaml", ".yml") or not rubric.is_relative_to(root):
        return None
    return rubric.relative_to(root).as_posix()


def _name_in_commit(commit: str, path: str) -> str:
    """Format a file's name in a commit, such as `COMMIT:PATH`, with a short commit id."""
    return f"{commit[:12]}:{path}"


def _write_rules(repository: Repository, commit: str, paths: Sequence[str], root: Path) -> None:
    """Write a commit's files at the given paths into the folder `root`.

    Raises `ConfigError` if the files are too large in total, or if a file that decides which rules apply
    can't be read. Other unreadable files are skipped.
    """
    files = _list_regular_files(repository, commit, paths)
    oids = (file.oid for file in files)
    blobs = repository.read_blobs(oids, MAX_FILE_BYTES)
    total_bytes = 0

    for file, (_, data) in zip(files, blobs, strict=True):
        if data is None:  # too large, or missing from this clone
            if _is_deciding(file.path, paths):
                raise _build_unreadable_error(commit, file.path)
            continue

        name = _name_in_commit(commit, file.path)
        total_bytes += len(data)
        if total_bytes > MAX_TOTAL_BYTES:
            raise _build_limit_error(name, f"{MAX_TOTAL_BYTES // 1_000_000} MB")
        _write_file(root / file.path, data, name)


def _build_unreadable_error(commit: str, path: str) -> ConfigError:
    """Build the error about a rules file that's too large or missing from this clone."""
    command = f"git show {_name_in_commit(commit, shlex.quote(path))}"
    too_large = f"larger than {MAX_FILE_BYTES // 1000} kB"
    missing = f"not in this clone (fetch it with: {command})"
    return ConfigError(f"{too_large}, or {missing}", path=_name_in_commit(commit, path))


def _list_regular_files(
    repository: Repository, commit: str, paths: Sequence[str]
) -> list[TreeEntry]:
    """List a commit's regular files at the given paths. Unsafe paths are skipped.

    Raises `ConfigError` if a file that decides which rules apply is a link or a submodule.
    """
    files: list[TreeEntry] = []
    for entry in _list_entries(repository, commit, paths):
        path = entry.path
        if not _is_safe(path):
            continue

        if entry.mode.startswith(REGULAR_FILE_MODE_PREFIX):
            files.append(entry)
        elif _is_deciding(path, paths):
            problem = "not a regular file, and the gate follows no links; replace it with the file"
            raise ConfigError(problem, path=_name_in_commit(commit, path))

    return files


def _is_safe(path: str) -> bool:
    """Whether a path from a commit can be written without leaving the target folder."""
    # git itself never writes `..`, but a handcrafted tree can contain it.
    if path.startswith("/") or ".." in path.split("/"):
        return False
    has_backslash = "\\" in path  # a path separator on Windows
    # Some file systems change or ignore non-ASCII characters, so the file could get another name.
    return path.isascii() and not has_backslash


def _is_deciding(path: str, paths: Sequence[str]) -> bool:
    """Whether different rules would apply if the file at `path` were missing."""
    if path == _MEMORY_CONFIG:  # another tool's settings, unrelated to the gate
        return False
    return path in _DECIDING_PATHS or path in paths or path.startswith(_RUBRICS_PREFIX)


def _list_entries(repository: Repository, commit: str, paths: Sequence[str]) -> list[TreeEntry]:
    """List a commit's entries at the given paths; raises `ConfigError` if there are too many."""
    entries: list[TreeEntry] = []
    for entry in repository.list_tree(commit, *paths):
        entries.append(entry)
        if len(entries) > MAX_FILES:
            raise _build_limit_error(_name_in_commit(commit, entry.path), f"{MAX_FILES:,} files")
    return entries


def _build_limit_error(name: str, limit: str) -> ConfigError:
    """Build the error for the file that brings the rules over a limit."""
    problem = (
        f"with it the rules are more than {limit}; remove what is no rule from {RULES_PATHS[0]}"
    )
    return ConfigError(problem, path=name)


def _write_file(file: Path, data: bytes, name: str) -> None:
    """Write a rules file. Raises a `ConfigError` with `name` as its path if that fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:  # e.g. the name is too long, or a folder with this name exists
        raise ConfigError(f"cannot be written ({error.strerror}); rename it", path=name) from None


def find_skips_if_none_judged(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> PushedChanges | None:
    """Return the files that a push skips if it contains nothing to judge.

    Returns None if a file needs judging, or if that's uncertain. This is quick because it doesn't read the
    rules: an earlier push has stored which files they select. Raises `InputError` if git can't answer.
    """
    if all(update.is_deletion for update in updates):
        # Deleted refs bring no files, so neither the remote's commits nor the rules matter.
        return examine.examine_push(repository, updates, [], ChangeFilter())

    rule_commits = find_rule_commits(repository, updates, remote, url)
    change_filter = _read_stored_selection(repository, rule_commits)
    if change_filter is None:  # no selection is stored for these rules
        return None

    remote_commits = remotes.list_remote_commits(repository, updates, remote, url)
    pushed = examine.examine_push(repository, updates, remote_commits, change_filter)
    # Unexamined files and notes need the full run as well, because only that reports them.
    needs_full_run = pushed.changes or pushed.unexamined or pushed.notes
    return None if needs_full_run else pushed


def _read_stored_selection(repository: Repository, commits: Sequence[str]) -> ChangeFilter | None:
    """Read the cached file selection; None if it's missing, damaged, or made from different rules."""
    key = _make_selection_key(repository, commits)
    try:
        stored = json.loads(Path(_get_selection_path(repository)).read_bytes())
        if stored["key"] != key:
            return None
        paths_and_authors = (stored["paths"], stored["authors"])
        return ChangeFilter(paths_and_authors)
    # A damaged file can contain any JSON value.
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def store_selection(
    repository: Repository, commits: Sequence[str], patterns: list[str], authors: list[str]
) -> None:
    """Store which files the rules in `commits` select, so that the next push needn't read the rules.

    `patterns` are for paths. If `commits` is empty, the user's own rules apply. Errors are ignored.
    """
    # The selections of multiple commits can't be stored as one.
    if len(commits) > 1:
        return

    selection = {
        "key": _make_selection_key(repository, commits),
        "paths": patterns,
        "authors": authors,
    }
    with suppress(OSError):  # without a stored selection, the next push is only slower
        environment.GATE_RULES.make()
        outputs.write_atomically(
            _get_selection_path(repository), json.dumps(selection), private=True
        )


def _get_selection_path(repository: Repository) -> str:
    """Return the path of this clone's stored selection."""
    name = environment.make_file_name(str(repository.folder))
    return environment.GATE_RULES.path(f"{name}.json")


def _make_selection_key(repository: Repository, commits: Sequence[str]) -> str:
    """Build a cache key from everything that affects which files are selected."""
    rule_listings = []  # with the hash of each rules file
    for commit in commits:
        listing = repository.ask("ls-tree", "--full-tree", commit, "--", *RULES_PATHS)
        rule_listings.append(listing)
    user_settings = environment.get_file_stamp(environment.SETTINGS.path())
    gate_variables = []
    for name, value in sorted(environment.environ().items()):
        if name.startswith(_GATE_VARIABLE_PREFIX):
            gate_variables.append((name, value))
    return repr([environment.__version__, *rule_listings, user_settings, gate_variables])
