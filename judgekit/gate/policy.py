"""A project's own rules for the gate, as they stand on the remote: a push must not approve itself."""

from __future__ import annotations

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

MAX_BYTES = 1_000_000  # of one file of rules


@contextmanager
def rules(repository: Repository, commit: str | None) -> Iterator[Path]:
    """Give a temporary folder that holds a commit's rules where a project has them.

    A `ConfigError` from inside names the file as git does, `COMMIT:PATH`.
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
    files: list[tuple[str, Path]] = []
    for entry in filter(None, listed.split(b"\0")):
        told, _, name = entry.partition(b"\t")
        mode, _, blob = told.decode().split(" ")
        if mode.startswith("100") and _stays_below(name):
            files.append((blob, root / name.decode()))
    content = dict(repository.blobs(dict.fromkeys(blob for blob, _ in files), MAX_BYTES))
    for blob, path in files:
        data = content[blob]
        if data is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


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
