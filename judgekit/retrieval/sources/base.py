"""What the readers of the stores have in common: the entry they return, and the safe way to open a file.

The YAML header of a Markdown file, as far as titles and tags need it: `key: value` lines and lists.
"""

from __future__ import annotations

import os
import stat

from judgekit.retrieval.scan import contained
from judgekit.text import lines_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_TITLE = 1_000  # characters that are kept
MAX_TAG = 100  # the same of each tag
MAX_TAGS = 100


class Unreadable(Exception):  # noqa: N818 - a state of the file, which its reader decides about
    """A file that holds no text to search; the message says in a few words why."""


class Entry:
    """One thing that can be found. `updated` is in seconds since the epoch, 0 when unknown.

    `problem` says what is wrong with a file whose entry could be saved in part; whether it is retired is then
    not known.
    """

    __slots__ = ("body", "category", "id", "problem", "tags", "title", "updated")

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
        self.id, self.category, self.body = id, category, body
        self.title, self.tags = title[:MAX_TITLE], tuple(tag[:MAX_TAG] for tag in tags)[:MAX_TAGS]
        self.updated, self.problem = updated, problem


def read_text(root: str, relative: str, limit: int) -> tuple[str, bool]:
    """Return the first `limit` bytes of a file as text, and whether there is more.

    Raises `Unreadable` when it is outside `root` (a real path), no regular file, binary or not UTF-8.
    """
    raw, more = read_bytes(root, relative, limit)
    return as_text(raw, whole=not more), more


def read_bytes(root: str, relative: str, limit: int) -> tuple[bytes, bool]:
    """Return the first `limit` bytes of a file, and whether there is more.

    Raises `Unreadable` when it is outside `root` (a real path) or no regular file.
    """
    path = contained(root, relative)
    if path is None:
        raise Unreadable("leads out of its store")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable("not a regular file")
        with open(path, "rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    return raw[:limit], len(raw) > limit


def stem(relative: str) -> str:
    """Return a file's name without folders and ending."""
    return relative.rpartition("/")[2].rpartition(".")[0]


def as_text(raw: bytes, *, whole: bool) -> str:
    """Return what UTF-8 says, without a character cut in two at the end; raises `Unreadable`."""
    if b"\0" in raw:
        raise Unreadable("a binary file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not whole and error.start > len(raw) - 4:  # cut inside a character
            return raw[: error.start].decode("utf-8-sig")
        raise Unreadable("not UTF-8") from None


_FENCE = "---"
_MAX_LINES = 200


def split(text: str) -> tuple[dict[str, list[str]], str]:
    """Return the header's values by key in small letters, and the text after it.

    Every value is a list; keys of nested mappings count as if they stood at the top.
    """
    found = lines_of(text)
    if not found or found[0].strip() != _FENCE:
        return {}, text
    for number, line in enumerate(found[1 : _MAX_LINES + 1], start=1):
        if line.strip() in (_FENCE, "..."):
            return _fields(found[1:number]), "\n".join(found[number + 1 :])
    return {}, text


def heading(text: str) -> str | None:
    """Return the text of the first heading outside fenced code, None when there is none."""
    fenced = False
    for line in lines_of(text):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and line.startswith("#") and line.lstrip("#")[:1] in (" ", "\t"):
            title = line.strip("# \t")
            if title:
                return title
    return None


def _fields(header: list[str]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    key = ""
    for line in header:
        text = line.strip()
        if text.startswith("- ") and key:
            fields[key].append(_scalar(text[2:]))
        elif ":" in text and not text.startswith("#"):
            key, _, value = text.partition(":")
            key = key.strip().lower()
            fields[key] = _values(value.strip())
    return fields


def _values(value: str) -> list[str]:
    if value.startswith("[") and value.endswith("]"):
        return [found for found in (_scalar(each) for each in value[1:-1].split(",")) if found]
    return [_scalar(value)] if value and value not in ("|", ">", "|-", ">-") else []


def _scalar(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]
    return value[1:-1] if quoted else value
