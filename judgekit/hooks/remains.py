"""Lists and deletes the files that judgekit keeps for a user, beside those it installed."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

# People's answers, and files that other installations need, aren't deleted along with a hook.
_KEPT_BY_PURGE = (
    environment.LEDGER,
    environment.RELEVANCE,
    environment.NOTIFIED_VERDICTS,
    environment.SERVER,
    environment.ORIGINAL_FILES,
)
_ENDINGS = ("", "-wal", "-shm", ".1")  # of a database, and of a log
_UNITS = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))


class Remain(NamedTuple):
    """A file or folder that judgekit keeps, its content, its size in bytes, and if a purge deletes it."""

    path: Path
    about: str
    size: int
    is_purged: bool

    def describe(self) -> str:
        return f"{self.path}: {self.about}, {describe_size(self.size)}"


def find_remains() -> list[Remain]:
    """List the non-empty files and folders that judgekit has created: its cache, state and configuration."""
    remains = []
    for place in environment.PLACES:
        path = Path(place.path())
        size = sum(_measure_size(part) for part in _list_parts(path))
        if path.exists() and size > 0:
            is_configuration = place.home is environment.config_home
            is_kept = is_configuration or place in _KEPT_BY_PURGE
            remains.append(Remain(path, place.about, size, is_purged=not is_kept))
    return remains


def purge(remains: list[Remain]) -> None:
    """Delete the caches and logs in `remains`, and any of our folders that become empty.

    Raises `OSError` if a file can't be deleted.
    """
    for remain in remains:
        if not remain.is_purged:  # it's kept on purpose
            continue

        for path in _list_parts(remain.path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    # A purge deletes nothing in the configuration's folder, so that one can't have become empty.
    for home in (environment.cache_home(), environment.state_home()):
        with suppress(OSError):  # a folder that isn't empty stays
            Path(home, "logs").rmdir()
        with suppress(OSError):
            Path(home).rmdir()


def describe_size(size: int) -> str:
    """Format a number of bytes in the largest suitable unit: `1.5 MB`."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _list_parts(path: Path) -> list[Path]:
    """List a file's existing parts, such as a database's write-ahead log or a log's older half."""
    parts = [path.with_name(path.name + ending) for ending in _ENDINGS]
    return [part for part in parts if part.exists()]


def _measure_size(path: Path) -> int:
    """Add up the sizes in bytes of a file, or of all files in a folder."""
    return sum(file.lstat().st_size for file in _list_files(path))


def _list_files(path: Path) -> Iterator[Path]:
    """Yield `path` if it's a file or link, or all files in a folder. Links aren't followed."""
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for inner_path in path.rglob("*"):
        if inner_path.is_symlink() or inner_path.is_file():
            yield inner_path
