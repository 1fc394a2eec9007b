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
from judgekit.gate.history import FILE
from judgekit.git import GitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.gate.commits import PushedChanges, Updates
    from judgekit.git import Repository, TreeEntry

_MEMORY_CONFIG = ".claude/memory/memory-config.json"
RULES = (".judgekit", _MEMORY_CONFIG)
MAX_BYTES = 100_000  # of one rules file, read before the budget starts to count
MAX_TOTAL = 10_000_000  # bytes of all of them
MAX_FILES = 5_000
# Paths that decide besides the rubrics. Replacing another file in the folder by a link changes no rule.
_DECIDING = (".judgekit", ".judgekit/config.yaml", ".judgekit/rubrics")
_RUBRICS = ".judgekit/rubrics/"
_MAX_RULES = 20  # different ones to compare
_MAX_BRANCHES = 200  # branches to search for them
_VARIABLES = "JUDGEKIT_GATE_"


def find_rule_commits(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> list[str]:
    """Find the commits whose rules may apply to a push, one for each different set of rules.

    The first of these that's known counts:

    1. The remote's default branch, whatever branch is pushed. Otherwise a push could give a branch lax rules,
       and the next one could fill it under them. A remote known by several names has a default branch under
       each.
    2. Every known ref of the remote.
    3. The default branches of all other remotes (their refs, if none has one), this clone's branches, and all
       rules that the pushed commits ever had.
    """
    clone_remotes = remotes.read_remotes(repository, remote, url)
    remote_oids = {update.remote_ref: update.remote_oid for update in updates if not update.is_new}
    defaults = [clone_remotes.default_branch(name, remote_oids) for name in clone_remotes.names]
    commits = _select_different_rules(repository, defaults)
    if commits:
        return commits

    oids = [*remote_oids.values(), *(ref.oid for ref in clone_remotes.pushed_refs)]
    commits = _select_different_rules(repository, oids)
    if commits:
        return commits

    other_names = [name for name in clone_remotes.refs if name not in clone_remotes.names]
    other_oids = [clone_remotes.default_branch(name, remote_oids={}) for name in other_names]
    has_default_branch = any(oid is not None for oid in other_oids)
    if not has_default_branch:
        other_oids = [ref.oid for ref in clone_remotes.other_refs]
    pushed = [update.local_oid for update in updates if not update.deletes]
    rule_changes = _list_rule_changes(repository, pushed)
    branches = _list_own_branches(repository)
    return _select_different_rules(repository, [*other_oids, *pushed, *rule_changes, *branches])


def _select_different_rules(repository: Repository, oids: Sequence[str | None]) -> list[str]:
    """Find the commits that these ids lead to, one for each different set of rules: the first that has it.

    Ids whose commit this clone lacks are left out, and so is None, which stands for an unknown commit.
    """
    distinct_oids = list(dict.fromkeys(oid for oid in oids if oid))
    names = []
    for oid in distinct_oids:
        names.append(f"{oid}^{{commit}}")  # git's way to name the commit that a tag leads to
        names.extend(f"{oid}:{path}" for path in RULES)
    oid_by_name = _find_objects(repository, names)
    commit_by_rules: dict[tuple[str, ...], str] = {}
    for oid in distinct_oids:
        commit = oid_by_name[f"{oid}^{{commit}}"]
        rules = tuple(oid_by_name[f"{oid}:{path}"] for path in RULES)
        if commit and rules not in commit_by_rules:
            commit_by_rules[rules] = commit
    commits = list(commit_by_rules.values())
    return commits[:_MAX_RULES]


def _find_objects(repository: Repository, names: list[str]) -> dict[str, str]:
    """Map names such as `COMMIT:PATH` to the ids of their objects.

    The id is "" if there's no such object in this clone.
    """
    oid_by_name = {}
    for name, line in zip(names, repository.describe_objects(names), strict=True):
        oid, _, description = line.partition(" ")  # OID KIND SIZE, or NAME missing
        is_here = description.startswith(("blob ", "commit ", "tree "))
        oid_by_name[name] = oid if is_here else ""
    return oid_by_name


def _list_own_branches(repository: Repository) -> list[str]:
    """List the tips of this clone's branches, the last changed first."""
    command = ("for-each-ref", "--format=%(objectname)", "--sort=-committerdate")
    output = repository.ask(*command, f"--count={_MAX_BRANCHES}", "refs/heads/")
    return output.decode().split()


def _list_rule_changes(repository: Repository, pushed: Sequence[str]) -> list[str]:
    """List the newest commits that changed the rules, in the history of the `pushed` commits.

    The list is empty if this clone lacks a part of that history.
    """
    tips = repository.commits(pushed).values()
    if not tips:
        return []
    max_count = f"--max-count={_MAX_RULES}"
    log_command = ("log", "--format=%H", "--full-history", max_count, "--stdin", "--", *RULES)
    distinct_tips = dict.fromkeys(tips)
    revisions = "\n".join([*distinct_tips, ""])  # "" ends the last line with a line break, too
    try:
        output = repository.ask(*log_command, stdin=revisions.encode())
    except GitError:
        return []
    return output.decode().split()


@contextmanager
def check_out_rules(repository: Repository, commit: str | None) -> Iterator[Path]:
    """Yield a temporary folder with a commit's rules and the rubric they name; empty if there's no commit.

    A `ConfigError` raised while the folder is in use is raised again with the name `COMMIT:PATH` of the file.
    """
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        root = Path(folder).resolve()
        if commit is not None:
            _write_rules(repository, commit, RULES, root)
            rubric = _find_rubric_file(root)
            if rubric is not None:
                _write_rules(repository, commit, (rubric,), root)
        try:
            yield root
        except ConfigError as error:
            is_about_rules = error.path is not None and Path(str(error.path)).is_relative_to(root)
            if commit is None or not is_about_rules:
                raise
            raise _rename_file_in_error(error, commit, root) from None


def _rename_file_in_error(error: ConfigError, commit: str, root: Path) -> ConfigError:
    """Rebuild an error about a file in the folder `root`, with the file's name in the commit."""
    path = Path(str(error.path)).relative_to(root)
    name = _name_in_commit(commit, path.as_posix())
    renamed_errors = []
    for original in (error, *error.others):  # all about the same file
        renamed_errors.append(
            ConfigError(original.problem, path=name, line=original.line, key=original.key)
        )
    return ConfigError.of(renamed_errors)


def _find_rubric_file(root: Path) -> str | None:
    """Return the path in this folder of the rubric that the rules name.

    None if the rules name no file in the folder, or can't be read.
    """
    from judgekit.config import settings  # noqa: PLC0415 - a push without judged files needs no pydantic

    try:
        rubric = Path(settings.load(root).gate.rubric)
    except ConfigError:  # the caller loads the settings too, and reports it
        return None
    if rubric.suffix not in (".yaml", ".yml") or not rubric.is_relative_to(root):
        return None
    return rubric.relative_to(root).as_posix()


def _name_in_commit(commit: str, path: str) -> str:
    """Write `COMMIT:PATH`, as git names a file in a commit, with a short id."""
    return f"{commit[:12]}:{path}"


def _write_rules(repository: Repository, commit: str, paths: Sequence[str], root: Path) -> None:
    """Write a commit's files at some paths into the folder `root`.

    Raises `ConfigError` if these files are too many or too large together, or if one that decides can't be
    read. Another file that can't be read is left out.
    """
    files = _list_regular_files(repository, commit, paths)
    oids = (file.oid for file in files)
    # The data is None for a file that's too large, or that this clone doesn't have.
    blobs = repository.blobs(oids, MAX_BYTES)
    total_bytes = 0
    for file, (_, data) in zip(files, blobs, strict=True):
        name = _name_in_commit(commit, file.path)
        if data is not None:
            total_bytes += len(data)
            if total_bytes > MAX_TOTAL:
                raise _build_size_error(name, f"{MAX_TOTAL // 1_000_000} MB")
            _write_file(root / file.path, data, name)
        elif _is_deciding(file.path, paths):
            command = f"git show {_name_in_commit(commit, shlex.quote(file.path))}"
            absence = f"not in this clone (fetch it with: {command})"
            raise ConfigError(f"larger than {MAX_BYTES // 1000} kB, or {absence}", path=name)


def _list_regular_files(
    repository: Repository, commit: str, paths: Sequence[str]
) -> list[TreeEntry]:
    """List a commit's regular files at some paths; paths that would lead out of a folder are left out.

    Raises `ConfigError` if there's a link or a submodule in place of a file that decides.
    """
    files: list[TreeEntry] = []
    for entry in _list_entries(repository, commit, paths):
        path = entry.path
        if not _is_safe(path):
            continue
        if entry.mode.startswith(FILE):
            files.append(entry)
        elif _is_deciding(path, paths):
            problem = "not a regular file, and the gate follows no links; replace it with the file"
            raise ConfigError(problem, path=_name_in_commit(commit, path))
    return files


def _is_safe(path: str) -> bool:
    """Whether a path stays below the folder that it's written to: a hand-made tree may contain `..`."""
    if path.startswith("/") or ".." in path.split("/"):
        return False
    has_backslash = "\\" in path  # separates folders on Windows
    return path.isascii() and not has_backslash


def _is_deciding(path: str, paths: Sequence[str]) -> bool:
    """Whether other rules would apply if the file at `path` were missing.

    That's so for the rubrics, the configuration, and the paths that were asked for.
    """
    if path == _MEMORY_CONFIG:  # another tool's settings, unrelated to the gate
        return False
    return path in _DECIDING or path in paths or path.startswith(_RUBRICS)


def _list_entries(repository: Repository, commit: str, paths: Sequence[str]) -> list[TreeEntry]:
    """List a commit's entries at some paths; raises `ConfigError` if there's too much."""
    entries: list[TreeEntry] = []
    for entry in repository.entries(commit, *paths):
        entries.append(entry)
        if len(entries) > MAX_FILES:
            raise _build_size_error(_name_in_commit(commit, entry.path), f"{MAX_FILES:,} files")
    return entries


def _build_size_error(name: str, limit: str) -> ConfigError:
    """Build the error for the file that takes the rules over a limit."""
    problem = f"with it the rules are more than {limit}; remove what is no rule from {RULES[0]}"
    return ConfigError(problem, path=name)


def _write_file(file: Path, data: bytes, name: str) -> None:
    """Write one rules file; raises `ConfigError` about its `name` if the disk refuses it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:  # the name is too long, or stands for both a file and a folder
        raise ConfigError(f"cannot be written ({error.strerror}); rename it", path=name) from None


def changes_if_none_is_judged(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> PushedChanges | None:
    """List what a push skips, if it's certain that none of its changes is to be judged.

    None if some may have to be judged: only a full run can tell. It's also None if no selection is stored, or
    if something has to be reported. Raises `InputError` if git can't answer.
    """
    if all(update.deletes for update in updates):
        # Deleted refs bring no file, so neither the remote's commits nor the rules matter.
        return examine.examine_push(repository, updates, [], ChangeFilter())
    rule_commits = find_rule_commits(repository, updates, remote, url)
    change_filter = _read_stored_choice(repository, rule_commits)
    if change_filter is None:
        return None
    remote_commits = remotes.list_remote_commits(repository, updates, remote, url)
    pushed = examine.examine_push(repository, updates, remote_commits, change_filter)
    if pushed.changes or pushed.unexamined or pushed.notes:
        return None
    return pushed


def _read_stored_choice(repository: Repository, commits: Sequence[str]) -> ChangeFilter | None:
    """Read the stored selection of files to judge.

    None if nothing is stored, or if the rules of `commits` aren't those that it was made from.
    """
    key = _make_choice_key(repository, commits)
    try:
        stored_choice = json.loads(Path(_find_choice_file(repository)).read_bytes())
        if stored_choice["key"] != key:
            return None
        paths_and_authors = (stored_choice["paths"], stored_choice["authors"])
        return ChangeFilter(paths_and_authors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none yet, or damaged
        return None


def keep_choice(
    repository: Repository, commits: Sequence[str], patterns: list[str], authors: list[str]
) -> None:
    """Store which files a commit's rules select for judging, so that the next push needn't read the rules.

    Without a commit, it's the user's own selection. For several commits nothing is stored, and the next push
    reads their rules again.
    """
    if len(commits) > 1:
        return
    choice = {"key": _make_choice_key(repository, commits), "paths": patterns, "authors": authors}
    with suppress(OSError):
        environment.GATE_RULES.make()
        outputs.write_atomically(_find_choice_file(repository), json.dumps(choice), private=True)


def _find_choice_file(repository: Repository) -> str:
    """Return the path of the stored selection for this clone."""
    name = environment.file_name_for(str(repository.folder))
    return environment.GATE_RULES.path(f"{name}.json")


def _make_choice_key(repository: Repository, commits: Sequence[str]) -> str:
    """Build a text that changes with anything that affects the selection of changes."""
    rules = []
    for commit in commits:
        rules.append(repository.ask("ls-tree", "--full-tree", commit, "--", *RULES))
    user_settings = environment.stamp(environment.SETTINGS.path())
    variables = []
    for name, value in sorted(environment.environ().items()):
        if name.startswith(_VARIABLES):
            variables.append((name, value))
    return repr([environment.__version__, *rules, user_settings, variables])
