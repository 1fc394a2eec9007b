"""A project's own rules for the gate, as they stand on the remote: a push must not approve itself."""

from __future__ import annotations

import shlex
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import config as configuration
from judgekit.errors import ConfigError
from judgekit.gate.rules_commit import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.git import Repository

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
    try:
        named = configuration.load(root).gate.rubric
    except ConfigError:
        return None  # whoever loads it next is told
    path = Path(named)
    if not named.endswith((".yaml", ".yml")) or not path.is_relative_to(root):
        return None
    return path.relative_to(root).as_posix()
