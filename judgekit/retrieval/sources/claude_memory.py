"""Reads the claude-memory store: one JSON record a memory, and index.md with a line for each.

The records are the truth. A line of the index lends its title, tags and category to a record that cannot be
read; a line that names anything but a file of the store is reported and not followed.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

from judgekit.retrieval.sources.base import Entry, Unreadable, as_text, read_bytes, read_text, stem
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from judgekit.retrieval.compiled import Category, Profile

INDEX = "index.md"
_INDEX_LIMIT = 5_000_000  # bytes: some 40,000 lines
MAX_RECORD = 10_000_000  # bytes; whether a larger record is retired would cost too much to find out
_STATUS, _ACTIVE = b"record_status", b"active"


class IndexLine:
    """What a line of index.md says of one record. Its category is not read: the folder says it better."""

    __slots__ = ("path", "tags", "title")

    def __init__(self, title: str, path: str, tags: str) -> None:
        self.title, self.path, self.tags = title, path, tags

    @property
    def hint(self) -> str:
        """The title and the tags as the index keeps them."""
        return f"{self.title}|{self.tags}"


def read_hints(root: str, files: Mapping[str, object]) -> tuple[dict[str, str], list[str]]:
    """Return what the index says of each file it names, and a line about those that are not there."""
    if not os.path.lexists(os.path.join(root, INDEX)):
        return {}, []
    try:
        text, _ = read_text(root, INDEX, _INDEX_LIMIT)
    except Unreadable as error:
        return {}, [f"{INDEX}: {error}; going by the records alone"]
    found, strays = {}, []
    for line in parse_index(text):
        path = _in_store(line.path)
        if path in files:
            found[path] = line.hint
        else:
            strays.append(line.path)
    if not strays:
        return found, []
    more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
    return found, [f"{INDEX}: {strays[0][:120]!r}{more}: no record of this store; left out"]


def read(root: str, relative: str, profile: Profile, hint: str | None) -> Entry | None:
    """Return the memory in a record, None when it is retired or archived.

    Of a long one the beginning is searched. A record that is damaged still gives its title when the index has
    a line for it (`hint`) and nothing in it says that it is retired. Raises `Unreadable` otherwise.
    """
    category = _category_of(relative, profile)
    raw, more = read_bytes(root, relative, MAX_RECORD)
    if more:
        raise Unreadable(f"larger than {MAX_RECORD:,} bytes")
    try:
        record = _parse(as_text(raw, whole=True))
    except Unreadable as error:
        if hint is None or _seems_retired(raw):
            raise
        title, tags = _split_hint(hint)
        return Entry(stem(relative), title, category.name, tags=tags, problem=f"{error}; found by title only")
    return _entry(record, relative, category, hint, profile.max_bytes)


def parse_index(text: str) -> Iterator[IndexLine]:
    """Yield the lines of index.md that are of the form `- [CATEGORY] Title -> path #tags:a,b`."""
    for line in lines_of(text):
        parsed = _parse_line(line)
        if parsed is not None:
            yield parsed


def body_text(record: Mapping[str, object], fields: list[str], limit: int) -> str:
    """Return the first `limit` characters of a record's body fields: strings, lists or objects of them."""
    content = record.get("content")
    parts, room = [], limit
    for part in _strings([content.get(field) for field in fields] if isinstance(content, dict) else ()):
        if room < 0:
            break
        parts.append(part[:room])
        room -= len(part) + 1
    return "\n".join(parts)


def _seems_retired(raw: bytes) -> bool:
    """Whether a damaged record names a status other than active, in whatever encoding."""
    _, *values = raw.replace(b"\0", b"").split(_STATUS)
    return not all(value.lstrip(b" \t\r\n:'\"").startswith(_ACTIVE) for value in values)


def _entry(
    record: dict[str, object], relative: str, category: Category, hint: str | None, limit: int
) -> Entry | None:
    if record.get("record_status", "active") != "active":
        return None
    hinted, tags = _split_hint(hint or "|")
    own_tags = record.get("tags")
    if isinstance(own_tags, list):
        tags = [tag for tag in own_tags if isinstance(tag, str)] or tags
    title = record.get("title")
    return Entry(
        stem(relative),
        title if isinstance(title, str) and title.strip() else hinted or stem(relative),
        category.name,
        tags=tags,
        body=body_text(record, category.body, limit),
        updated=_seconds(record.get("updated_at")) or _seconds(record.get("created_at")),
    )


def _parse(text: str) -> dict[str, object]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("not valid JSON") from None
    if not isinstance(record, dict):
        raise Unreadable("not a JSON object")
    return record


def _parse_line(line: str) -> IndexLine | None:
    head, arrow, rest = line.strip().rpartition(" -> ")
    if not arrow or not head.startswith("- [") or "] " not in head:
        return None
    title = head.partition("] ")[2]
    path, _, tags = rest.partition(" #tags:")
    listed = [tag.strip() for tag in tags.split(",") if tag.strip()]
    return IndexLine(title.strip(), path.strip(), ",".join(listed))


def _in_store(path: str) -> str:
    """Return the `folder/name` that a path of the index ends in; empty when it climbs.

    The start is not looked at (paths are written from the project, wherever the store is linked to): what is
    opened is only ever a file that was found inside the store.
    """
    parts = path.replace("\\", "/").split("/")
    return "" if os.pardir in parts else "/".join(parts[-2:])


def _category_of(relative: str, profile: Profile) -> Category:
    folder = relative.rpartition("/")[0]
    found = [category for category in profile.categories.values() if category.folder == folder]
    if not found:  # asked for by whoever sees other profiles
        raise Unreadable("in no folder of the store")
    return found[0]


def _split_hint(hint: str) -> tuple[str, list[str]]:
    title, _, tags = hint.rpartition("|")
    return title, [tag for tag in tags.split(",") if tag]


def _strings(values: Iterable[object]) -> Iterator[str]:
    """Yield the strings in values, however deep: without recursion, whose cost is each string's depth."""
    waiting = [iter(values)]
    while waiting:
        for each in waiting[-1]:
            if isinstance(each, str):
                yield each
            elif isinstance(each, list | dict):
                waiting.append(iter(each if isinstance(each, list) else each.values()))
                break
        else:
            waiting.pop()


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        return 0.0
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
