"""What the readers of the stores have in common: the entry they return, and the safe way to open a file.

A kind of store is a module, listed in `KINDS` of scan.py. It has `NAME`, also the name of its profile's file;
`ENDINGS` of its files; `IN_ROOT` and `BELOW`, whether these are entries in the root or in folders; `DEEP`,
whether every folder is looked into or only those that records of a kind have; `LINKED_FOLDERS`, whether these
may be links; `LISTS`, names of files whose entry depends on which other files there are; `is_at`, whether a
folder is such a store; `listed`, what the store's own list of its entries says; and `read`.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


_LONGEST_CHARACTER = 4  # bytes, in UTF-8


class Unreadable(Exception):  # noqa: N818 - a state of the file, which its reader decides about
    """A file that holds no text to search; the message says in a few words why."""


class Entry:
    """One thing to find, its title and tags cut; one with a `problem` may be retired. 0: no known time.

    `aliases` are other titles by which it is found. A `status` says why it is not in force any more. A `note`
    says what of it is not searched.
    """

    __slots__ = (
        "aliases",
        "body",
        "category",
        "id",
        "note",
        "problem",
        "status",
        "tags",
        "title",
        "updated",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - the published name of the attribute
        title: str,
        category: str,
        *,
        tags: Iterable[str] = (),
        body: str = "",
        updated: float = 0.0,
        problem: str | None = None,
    ) -> None:
        self.id = id
        self.category = category
        self.body = body
        self.title = title[:1_000]
        self.tags = tuple(tag[:100] for tag in tags)[:100]
        self.updated = updated
        self.problem = problem
        self.aliases: list[str] = []
        self.status = ""
        self.note: str | None = None


class Listed:
    """What a store's own list says: folders with entries beside the usual ones, and what is wrong with it."""

    __slots__ = ("folders", "problems")

    def __init__(self) -> None:
        self.folders: set[str] = set()
        self.problems: list[str] = []


def contained(root: str, relative: str) -> str | None:
    """Return the real path of `relative` under the real path `root`, None when it is outside."""
    real = os.path.realpath(os.path.join(root, relative))
    if real.startswith(root.rstrip(os.sep) + os.sep):
        return real
    return None


def read_text(root: str, relative: str, limit: int) -> tuple[str, str | None]:
    """Return the text of a file, and a note where it is longer than `limit` bytes; raises `Unreadable`.

    Of a longer one the beginning and the end are read: people append to logs, and the newest entry counts.
    Also raises it for what is binary or not UTF-8.
    """
    raw, more = read_bytes(root, relative, limit)
    if not more:
        return as_text(raw, whole=True), None
    end_bytes = limit // 4
    beginning = as_text(raw[: limit - end_bytes], whole=False)
    ending, size = _read_end(root, relative, end_bytes)
    note = f"only {limit:,} of its {size:,} bytes are searched, at its beginning and its end"
    return f"{beginning}\n{ending}", f"{note}; split it to search all"


def _read_end(root: str, relative: str, limit: int) -> tuple[str, int]:
    """Return the last whole lines of a file, at most `limit` bytes, and how many bytes it has."""
    try:
        with open(_path_in(root, relative), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - limit, 0))
            raw = file.read(limit)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    cut_line_end = raw.find(b"\n") + 1
    return raw[cut_line_end:].replace(b"\0", b"").decode("utf-8", "replace"), size


def read_bytes(root: str, relative: str, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes, and whether there is more; raises `Unreadable` outside `root`."""
    path = _path_in(root, relative)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable("not a regular file")
        with open(path, "rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    return raw[:limit], len(raw) > limit


def _path_in(root: str, relative: str) -> str:
    path = contained(root, relative)
    if path is None:
        raise Unreadable("outside its store")
    return path


def as_text(raw: bytes, *, whole: bool) -> str:
    """Return what UTF-8 says, without a character cut in two at the end; raises `Unreadable`."""
    if b"\0" in raw:
        raise Unreadable("a binary file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        is_cut_character = error.start > len(raw) - _LONGEST_CHARACTER
        if is_cut_character and not whole:
            return raw[: error.start].decode("utf-8-sig")
        raise Unreadable("not UTF-8") from None


def stem(relative: str) -> str:
    """Return the name of a file without its ending."""
    return relative.rpartition("/")[2].rpartition(".")[0]
