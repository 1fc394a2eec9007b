"""Whose rules hold for a push: the remote's, because a push must not approve itself."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository


RULES = (".judgekit", ".claude/memory/memory-config.json")
_USUAL = ("main", "master")
_MOST = 20  # different rules that are compared
_REMOTES = "refs/remotes/"
_ADDRESSES = r"^(remote\..*\.(push)?url|url\..*\.(push)?insteadof)$"
_URL = re.compile(r"(?:\w[\w+.-]*)://(?:[^@/]*@)?(?P<host>[^/:]*)(?::\d+)?/+(?P<path>.*)", re.DOTALL)
_SCP = re.compile(r"(?:[^@/:]*@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)", re.DOTALL)


def commits_of(repository: Repository, updates: Sequence[RefUpdate], remote: str, url: str = "") -> list[str]:
    """Return the commits of which one has the rules that hold for a push; no two have the same rules.

    That is where the default branch of the remote stands, whatever branch is pushed: else a branch could be
    given lax rules in one push, and be filled under them in the next. A remote that is known by several names
    has a default branch under each. Where none is known, each ref that is known of the remote counts, then
    the default branches of all other remotes, and only for a first push what is pushed.
    """
    entries, told = (
        _fetched(repository),
        {update.remote_ref: update.remote_oid for update in updates if not update.is_new},
    )
    names = names_of(repository, remote, url)
    default = [oid for name in names for oid in _default(entries, name, told)]
    known = [*told.values(), *(oid for name in names for oid in _below(entries, name).values())]
    others = [oid for name in _remotes(repository) for oid in _default(entries, name, {})]
    pushed = [update.local_oid for update in updates if not update.deletes]
    for oids in (default, known, others or [oid for oid, _, _ in entries], pushed):
        found = list(_different(repository, dict.fromkeys(oids)))
        if found:
            return found[:1] if oids is pushed else found[:_MOST]
    return []


def names_of(repository: Repository, remote: str, url: str) -> list[str]:
    """Return the names of the remotes at the place that is pushed to; `remote` is one of them, or a URL."""
    addresses, instead = _configured(repository)
    folder = os.path.realpath(repository.folder)
    mine = {url, remote if remote not in addresses else "", *addresses.get(remote, ())} - {""}
    places = {_place(address, instead, folder) for address in mine}
    same = [
        name
        for name, theirs in addresses.items()
        if any(_place(address, instead, folder) in places for address in theirs)
    ]
    return list(dict.fromkeys([remote, *same]))


def _configured(repository: Repository) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Return the addresses of each remote, and what git puts in the place of which beginning of one."""
    if not repository.holds("config", "--get-regexp", _ADDRESSES):
        return {}, []
    listed = os.fsdecode(repository.ask("config", "-z", "--get-regexp", _ADDRESSES)).split("\0")
    addresses: dict[str, list[str]] = {}
    instead: list[tuple[str, str]] = []
    for entry in filter(None, listed):
        key, _, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        name = rest.rpartition(".")[0]
        if section == "remote":
            addresses.setdefault(name, []).append(value)
        else:
            instead.append((value, name))
    return addresses, sorted(instead, key=lambda each: -len(each[0]))


def _place(address: str, instead: Iterable[tuple[str, str]], folder: str) -> str:
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


def _remotes(repository: Repository) -> list[str]:
    return list(_configured(repository)[0])


def _fetched(repository: Repository) -> list[tuple[str, str, str]]:
    """Return each ref of a remote that is known: where it stands, what it leads to, and its name."""
    listed = repository.ask("for-each-ref", "--format=%(objectname) %(symref) %(refname)", _REMOTES)
    split = (line.split(" ", 2) for line in os.fsdecode(listed).split("\n") if line)
    return [(oid, leads_to, name) for oid, leads_to, name in split]


def _below(entries: Iterable[tuple[str, str, str]], remote: str) -> dict[str, str]:
    below = f"{_REMOTES}{remote}/"
    return {name.removeprefix(below): oid for oid, _, name in entries if name.startswith(below)}


def _default(entries: Sequence[tuple[str, str, str]], remote: str, told: dict[str, str]) -> list[str]:
    """Return where the default branch of a remote stands, the newest that is known first; [] if it is not."""
    below = f"{_REMOTES}{remote}/"
    fetched = _below(entries, remote)
    head = next((leads_to for _, leads_to, name in entries if name == f"{below}HEAD"), "")
    name = next((each for each in (head.removeprefix(below), *_USUAL) if each in fetched), None)
    return [] if name is None else [told.get(f"refs/heads/{name}") or fetched[name]]


def _different(repository: Repository, oids: Iterable[str]) -> Iterator[str]:
    """Yield the commits that objects lead to, of those with the same rules the first."""
    seen = set()
    asked = list(oids)
    questions = [f"{oid}{what}" for oid in asked for what in ("^{commit}", *(f":{path}" for path in RULES))]
    answers = [_oid(line) for line in repository.described(questions)]
    width = 1 + len(RULES)
    for place in range(0, len(answers), width):
        commit, *rules = answers[place : place + width]
        if commit and tuple(rules) not in seen:
            seen.add(tuple(rules))
            yield commit


def _oid(line: str) -> str:
    """Return the id of an object that git describes, "" for one that is not here."""
    oid, _, rest = line.partition(" ")
    return oid if rest.partition(" ")[0] in ("blob", "commit", "tree") else ""


MAX_BYTES = 100_000  # of one file of rules: what is read before the budget begins to count
_DECIDING = (".judgekit", ".judgekit/config.yaml", ".judgekit/rubrics")


@contextmanager
def rules(repository: Repository, commit: str | None) -> Iterator[Path]:
    """Give a temporary folder that holds a commit's rules where a project has them.

    Raises `ConfigError` for rules that are there and cannot be read. That error, and one that comes from
    inside, name the file as git does, `COMMIT:PATH`.
    """
    with tempfile.TemporaryDirectory(prefix="judgekit-") as folder:
        root = Path(folder).resolve()
        if commit is not None:
            _write(repository, commit, RULES, root)
            rubric = _rubric_path(root)
            if rubric is not None:
                _write(repository, commit, (rubric,), root)
        try:
            yield root
        except ConfigError as error:
            path = Path(str(error.path)) if error.path else None
            if commit is None or path is None or not path.is_relative_to(root):
                raise
            named = f"{commit[:12]}:{path.relative_to(root).as_posix()}"
            raise ConfigError(error.problem, path=named, line=error.line, key=error.key) from None


def _write(repository: Repository, commit: str, paths: Sequence[str], root: Path) -> None:
    listed = repository.ask("ls-tree", "-r", "-z", "--full-tree", commit, "--", *paths)
    files: list[tuple[str, str]] = []
    for entry in filter(None, listed.split(b"\0")):
        told, _, name = entry.partition(b"\t")
        mode, _, blob = told.decode().split(" ")
        if not _stays_below(name):
            continue
        if mode.startswith("100"):
            files.append((blob, name.decode()))
        elif _decides(name.decode(), paths):
            raise _unread(
                commit, name.decode(), "no regular file; the gate follows no links, put it there itself"
            )
    blobs = repository.blobs((blob for blob, _ in files), MAX_BYTES)
    for (_, path), (_, data) in zip(files, blobs, strict=True):
        if data is not None:
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        elif _decides(path, paths):
            missing = f"not in this clone (git show {commit[:12]}:{shlex.quote(path)} fetches it)"
            raise _unread(commit, path, f"larger than {MAX_BYTES // 1000} kB, or {missing}")


def _decides(name: str, asked: Sequence[str]) -> bool:
    """Whether other rules would hold without this file."""
    named = [each for each in asked if each not in RULES]
    return name in (*_DECIDING, *named) or name.startswith(".judgekit/rubrics/")


def _unread(commit: str, name: str, problem: str) -> ConfigError:
    return ConfigError(problem, path=f"{commit[:12]}:{name}")


def _stays_below(name: bytes) -> bool:
    """Whether a name stays below the folder it is written to: a tree that was made by hand may hold `..`."""
    return (
        name.isascii() and b"\\" not in name and b".." not in name.split(b"/") and not name.startswith(b"/")
    )


def _rubric_path(root: Path) -> str | None:
    """Return the path in the repository of a rubric file that the rules name outside their own folder."""
    from judgekit.config import settings  # noqa: PLC0415 - a push that changes nothing ends before pydantic

    try:
        named = settings.load(root).gate.rubric
    except ConfigError:
        return None  # whoever loads it next is told
    path = Path(named)
    if not named.endswith((".yaml", ".yml")) or not path.is_relative_to(root):
        return None
    return path.relative_to(root).as_posix()
