"""Whose rules hold for a push: the remote's, because a push must not approve itself.

What the rules choose is kept from the last full run while all that decides it stays the same: a push that
changes nothing of it ends before anything heavy is imported.
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
from judgekit.git import GitError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.gate.commits import PushedChanges, Updates
    from judgekit.git import Repository, TreeEntry

RULES = (".judgekit", ".claude/memory/memory-config.json")
MAX_BYTES = 100_000  # of one file of rules: what is read before the budget begins to count
MAX_TOTAL = 10_000_000  # bytes of all of them
MAX_FILES = 5_000
_MOST = 20  # different rules that are compared
_MOST_BRANCHES = 200  # in which they are looked for
_ASKED = ("^{commit}", *(f":{path}" for path in RULES))  # of a commit: which it is, and its rules
_RUBRICS = ".judgekit/rubrics/"
_VARIABLES = "JUDGEKIT_GATE_"


def commits_of(repository: Repository, updates: Updates, remote: str, url: str = "") -> list[str]:
    """Return the commits of which one has the rules that hold for a push; no two have the same rules.

    That is where the default branch of the remote stands, whatever branch is pushed: else a branch could be
    given lax rules in one push, and be filled under them in the next. A remote that is known by several names
    has a default branch under each. Where none is known, each ref that is known of the remote counts. Where
    nothing is known of it, the default branches of all other remotes count, the branches of this clone, and
    all rules that what is pushed ever had.
    """
    known = remotes.read(repository, remote, url)
    updated = {update.remote_ref: update.remote_oid for update in updates if not update.is_new}
    own_defaults = [known.default_branch(name, updated) for name in known.names]
    own = [*updated.values(), *(ref.oid for ref in known.own_refs)]
    for oids in (list(filter(None, own_defaults)), own):
        if commits := _with_different_rules(repository, oids):
            return commits
    other_defaults = []
    for name in known.refs:
        if name not in known.names:
            other_defaults.append(known.default_branch(name, {}))
    others = list(filter(None, other_defaults)) or [ref.oid for ref in known.other_refs]
    pushed = [update.local_oid for update in updates if not update.deletes]
    earlier = _earlier_rules(repository, pushed)
    return _with_different_rules(repository, [*others, *pushed, *earlier, *_branches(repository)])


def _with_different_rules(repository: Repository, oids: Sequence[str]) -> list[str]:
    """Return the commits that ids lead to, as far as they are here, one for each set of rules."""
    questions = []
    for oid in dict.fromkeys(oids):
        for what in _ASKED:
            questions.append(f"{oid}{what}")
    answers = [line.split(" ") for line in repository.described(questions)]
    # Of what is not here git says so, in place of a kind.
    ids = []
    for words in answers:
        ids.append(words[0] if words[1:2] in (["blob"], ["commit"], ["tree"]) else "")
    commits: dict[tuple[str, ...], str] = {}
    for commit, *rules in zip(*[iter(ids)] * (1 + len(RULES)), strict=True):
        if commit:
            commits.setdefault(tuple(rules), commit)
    return list(commits.values())[:_MOST]


def _branches(repository: Repository) -> list[str]:
    """Return where this clone's own branches stand, those that changed last."""
    words = (
        "for-each-ref",
        "--format=%(objectname)",
        "--sort=-committerdate",
        f"--count={_MOST_BRANCHES}",
    )
    return repository.ask(*words, "refs/heads/").decode().split()


def _earlier_rules(repository: Repository, pushed: Sequence[str]) -> list[str]:
    """Return the newest commits that changed the rules, as far back as this clone goes."""
    commits = [commit for oid in pushed if (commit := repository.commit(oid)) is not None]
    if not commits:
        return []
    words = ("log", "--format=%H", "--full-history", f"--max-count={_MOST}", *commits, "--", *RULES)
    try:
        return repository.ask(*words).decode().split()
    except GitError:  # this clone lacks a part of it
        return []


@contextmanager
def rules(repository: Repository, commit: str | None) -> Iterator[Path]:
    """Give a folder with a commit's rules; a `ConfigError` from inside names the file as `COMMIT:PATH`."""
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        root = Path(folder).resolve()
        if commit is not None:
            _write(repository, commit, RULES, root)
            from judgekit.config import settings  # noqa: PLC0415 - the short way ends before pydantic

            rubric = Path()
            with suppress(ConfigError):  # the caller loads the settings too, and reports it
                rubric = Path(settings.load(root).gate.rubric)
            if rubric.suffix in (".yaml", ".yml") and rubric.is_relative_to(root):
                _write(repository, commit, (rubric.relative_to(root).as_posix(),), root)
        try:
            yield root
        except ConfigError as error:
            if error.path:
                path = Path(str(error.path))
            else:
                path = None
            if commit is None or path is None or not path.is_relative_to(root):
                raise
            named = f"{commit[:12]}:{path.relative_to(root).as_posix()}"
            errors = (error, *error.others)
            renamed = []
            for each in errors:
                renamed.append(ConfigError(each.problem, path=named, line=each.line, key=each.key))
            raise ConfigError.of(renamed) from None


def _write(repository: Repository, commit: str, paths: Sequence[str], root: Path) -> None:
    """Write the files at some paths of a commit; raises `ConfigError` for rules that cannot be had."""
    # Other rules would hold without these.
    deciding = {".judgekit", ".judgekit/config.yaml", ".judgekit/rubrics", *paths} - {*RULES[1:]}
    files: list[tuple[str, str]] = []
    for entry in _entries(repository, commit, paths):
        path = entry.path
        # A tree that was made by hand may hold `..`.
        if not path.isascii() or "\\" in path or ".." in path.split("/") or path.startswith("/"):
            continue
        if entry.mode.startswith("100"):
            files.append((entry.oid, path))
        elif path in deciding or path.startswith(_RUBRICS):
            problem = "not a regular file, and the gate follows no links; replace it with the file"
            raise ConfigError(problem, path=f"{commit[:12]}:{path}")
    blobs = repository.blobs((blob for blob, _ in files), MAX_BYTES)
    size = 0
    for (_, path), (_, data) in zip(files, blobs, strict=True):
        if data is not None:
            size += len(data)
            if size > MAX_TOTAL:
                raise _too_much(commit, path, f"{MAX_TOTAL // 1_000_000} MB")
            _write_file(root / path, data, f"{commit[:12]}:{path}")
        elif path in deciding or path.startswith(_RUBRICS):
            missing = (
                f"not in this clone (fetch it with: git show {commit[:12]}:{shlex.quote(path)})"
            )
            problem = f"larger than {MAX_BYTES // 1000} kB, or {missing}"
            raise ConfigError(problem, path=f"{commit[:12]}:{path}")


def _entries(repository: Repository, commit: str, paths: Sequence[str]) -> list[TreeEntry]:
    """Return the files at some paths of a commit; raises `ConfigError` where they are too many."""
    entries: list[TreeEntry] = []
    for entry in repository.entries(commit, *paths):
        entries.append(entry)
        if len(entries) > MAX_FILES:
            raise _too_much(commit, entry.path, f"{MAX_FILES:,} files")
    return entries


def _too_much(commit: str, path: str, limit: str) -> ConfigError:
    problem = f"with it the rules are more than {limit}; remove what is no rule from {RULES[0]}"
    return ConfigError(problem, path=f"{commit[:12]}:{path}")


def _write_file(file: Path, data: bytes, name: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    except OSError as error:  # a name that is too long, or that stands for a file and a folder
        raise ConfigError(f"cannot be written ({error.strerror}); rename it", path=name) from None


def nothing_to_judge(
    repository: Repository, updates: Updates, remote: str, url: str = ""
) -> PushedChanges | None:
    """Return what a push brings where that is surely nothing that is judged, else None.

    Raises `InputError` when git cannot answer.
    """
    if all(update.deletes for update in updates):
        return examine.of_push(repository, updates, [], ChangeFilter())
    path, key = _place(repository, commits_of(repository, updates, remote, url))
    try:
        kept = json.loads(Path(path).read_bytes())
        if kept["key"] != key:
            return None
        wanted = ChangeFilter((kept["paths"], kept["authors"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    known = remotes.known_to(repository, updates, remote, url)
    pushed = examine.of_push(repository, updates, known, wanted)
    if pushed.changes or pushed.unexamined or pushed.notes:
        return None
    return pushed


def keep(
    repository: Repository, rules: Sequence[str], patterns: list[str], authors: list[str]
) -> None:
    """Keep what the one commit of `rules` chooses, for the next push; else that is read again."""
    if len(rules) > 1:  # which of them hold is not known here
        return
    path, key = _place(repository, rules)
    with suppress(OSError):
        environment.GATE_RULES.make()
        outputs.write_atomically(
            path, json.dumps({"key": key, "paths": patterns, "authors": authors}), private=True
        )


def _place(repository: Repository, commits: Sequence[str]) -> tuple[str, str]:
    rules = [repository.ask("ls-tree", "--full-tree", commit, "--", *RULES) for commit in commits]
    user = environment.stamp(environment.SETTINGS.path())
    variables = sorted(
        item for item in environment.environ().items() if item[0].startswith(_VARIABLES)
    )
    key = repr([environment.__version__, *rules, user, variables])
    name = environment.file_name_for(str(repository.folder))
    return environment.GATE_RULES.path(f"{name}.json"), key
