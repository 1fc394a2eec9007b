"""Whose rules hold for a push: the remote's, because a push must not approve itself.

What the rules choose is kept from the last full run while all that decides it stays the same: a push that
changes nothing of it ends before anything heavy is imported.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import environment, outputs
from judgekit.errors import ConfigError
from judgekit.gate.commits import change_filter, known_to, of_push, remotes_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.gate.commits import Updates
    from judgekit.git import Repository

RULES = (".judgekit", ".claude/memory/memory-config.json")
FOLDER = "gate"
MAX_BYTES = 100_000  # of one file of rules: what is read before the budget begins to count
_MOST = 20  # different rules that are compared
_ASKED = ("^{commit}", *(f":{path}" for path in RULES))  # of a commit: which it is, and its rules
_REMOTES = "refs/remotes/"
_RUBRICS = ".judgekit/rubrics/"
_VARIABLES = "JUDGEKIT_GATE_"


def commits_of(repository: Repository, updates: Updates, remote: str, url: str = "") -> list[str]:
    """Return the commits of which one has the rules that hold for a push; no two have the same rules.

    That is where the default branch of the remote stands, whatever branch is pushed: else a branch could be
    given lax rules in one push, and be filled under them in the next. A remote that is known by several names
    has a default branch under each. Where none is known, each ref that is known of the remote counts, then
    the default branches of all other remotes, and only for a first push what is pushed.
    """
    words = ("for-each-ref", "--format=%(refname) %(objectname) %(symref)", _REMOTES)
    listed = (line.split(" ") for line in os.fsdecode(repository.ask(*words)).split("\n")[:-1])
    refs = {name: (oid, target) for name, oid, target in listed}
    updated = {update.remote_ref: update.remote_oid for update in updates if not update.is_new}

    def default(name: str, updated: dict[str, str]) -> list[str]:
        below = f"{_REMOTES}{name}/"
        _, head = refs.get(f"{below}HEAD", ("", ""))
        branches = (head.removeprefix(below), "main", "master")
        branch = next((branch for branch in branches if f"{below}{branch}" in refs), None)
        return [] if branch is None else [updated.get(f"refs/heads/{branch}") or refs[f"{below}{branch}"][0]]

    names, all_names = remotes_at(repository, remote, url)
    below = tuple(f"{_REMOTES}{name}/" for name in names)
    known = [*updated.values(), *(oid for name, (oid, _) in refs.items() if name.startswith(below))]
    others = [oid for name in all_names for oid in default(name, {})] or [oid for oid, _ in refs.values()]
    pushed = [update.local_oid for update in updates if not update.deletes]
    for oids in ([oid for name in names for oid in default(name, updated)], known, others, pushed):
        questions = [f"{oid}{what}" for oid in dict.fromkeys(oids) for what in _ASKED]
        answers = [line.split(" ") for line in repository.described(questions)]
        # Of what is not here git says so, in place of a kind.
        ids = [words[0] if words[1:2] in (["blob"], ["commit"], ["tree"]) else "" for words in answers]
        commits: dict[tuple[str, ...], str] = {}
        for commit, *rules in zip(*[iter(ids)] * (1 + len(RULES)), strict=True):
            if commit:
                commits.setdefault(tuple(rules), commit)
        if commits:
            return list(commits.values())[: 1 if oids is pushed else _MOST]
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
            path = Path(str(error.path)) if error.path else None
            if commit is None or path is None or not path.is_relative_to(root):
                raise
            named = f"{commit[:12]}:{path.relative_to(root).as_posix()}"
            errors = (error, *error.others)
            renamed = [ConfigError(each.problem, path=named, line=each.line, key=each.key) for each in errors]
            raise ConfigError.of(renamed) from None


def _write(repository: Repository, commit: str, paths: Sequence[str], root: Path) -> None:
    listed = repository.ask("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
    files: list[tuple[str, str]] = []
    # Other rules would hold without these.
    deciding = {".judgekit", ".judgekit/config.yaml", ".judgekit/rubrics", *paths} - {*RULES[1:]}
    for entry in filter(None, listed.split(b"\0")):
        about, _, name = entry.partition(b"\t")
        mode, _, blob = about.decode().split(" ")
        # A tree that was made by hand may hold `..`.
        if not name.isascii() or b"\\" in name or b".." in name.split(b"/") or name.startswith(b"/"):
            continue
        path = name.decode()
        if mode.startswith("100"):
            files.append((blob, path))
        elif path in deciding or path.startswith(_RUBRICS):
            problem = "not a regular file, and the gate follows no links; replace it with the file"
            raise ConfigError(problem, path=f"{commit[:12]}:{path}")
    blobs = repository.blobs((blob for blob, _ in files), MAX_BYTES)
    for (_, path), (_, data) in zip(files, blobs, strict=True):
        if data is not None:
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        elif path in deciding or path.startswith(_RUBRICS):
            missing = f"not in this clone (fetch it with: git show {commit[:12]}:{shlex.quote(path)})"
            problem = f"larger than {MAX_BYTES // 1000} kB, or {missing}"
            raise ConfigError(problem, path=f"{commit[:12]}:{path}")


def nothing_to_judge(repository: Repository, updates: Updates, remote: str, url: str = "") -> bool:
    """Whether a push is sure to bring nothing that is judged; raises `InputError` when git cannot answer."""
    if all(update.deletes for update in updates):
        return True
    path, key = _place(repository, commits_of(repository, updates, remote, url))
    try:
        kept = json.loads(Path(path).read_bytes())
        if kept["key"] != key:
            return False
        wanted = change_filter((kept["paths"], kept["authors"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    pushed = of_push(repository, updates, known_to(repository, updates, remote, url), wanted)
    return not (pushed.changes or pushed.unjudged)


def keep(repository: Repository, rules: Sequence[str], paths: list[str], authors: list[str]) -> None:
    """Keep what the one commit of `rules` chooses, for the next push; else that is read again."""
    if len(rules) > 1:  # which of them hold is not known here
        return
    path, key = _place(repository, rules)
    with suppress(OSError):
        environment.cache_folder(FOLDER)
        outputs.write_atomically(
            path, json.dumps({"key": key, "paths": paths, "authors": authors}), private=True
        )


def _place(repository: Repository, commits: Sequence[str]) -> tuple[str, str]:
    rules = [repository.ask("ls-tree", "--full-tree", commit, "--", *RULES) for commit in commits]
    user = environment.stamp(str(Path(environment.config_home(), "config.yaml")))
    variables = sorted(item for item in environment.environ().items() if item[0].startswith(_VARIABLES))
    key = repr([environment.__version__, *rules, user, variables])
    name = environment.file_name_for(str(repository.folder))
    return str(Path(environment.cache_home(), FOLDER, f"{name}.json")), key
