"""Reads the claude-memory store: one JSON record a memory, and index.md with a line for each.

The records are the truth. A line of the index lends its title, tags and category to a record that cannot be
read; a line that names anything but a file of the store is reported and not followed.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

from judgekit.environment import MEMORY_CONFIG
from judgekit.retrieval.sources import (
    Entry,
    Unreadable,
    as_text,
    auto_memory,
    contained,
    read_bytes,
    read_text,
    stem,
)
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from judgekit.retrieval.compiled import Profile

NAME = "claude-memory"
ENDINGS = (".json",)
IN_ROOT, BELOW, DEEP, LINKED_FOLDERS = False, True, False, True
INDEX = "index.md"
_INDEX_LIMIT = 5_000_000  # bytes: some 40,000 lines
MAX_RECORD = 10_000_000  # bytes; whether a larger record is retired would cost too much to find out
_STATUS, _ACTIVE = b"record_status", b"active"


def is_at(root: str, profile: Profile) -> bool:
    """Whether a folder is such a store: by its settings, its records, or lines of its index."""
    if os.path.isfile(os.path.join(root, MEMORY_CONFIG)) or _has_records(root, profile):
        return True
    return not auto_memory.is_at(root, profile) and _has_index_lines(root)


def _has_records(root: str, profile: Profile) -> bool:
    for category in profile.categories.values():
        folder = category["folder"]
        if not folder or not contained(root, folder):
            continue
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                for entry in entries:
                    if entry.name.endswith(ENDINGS) and entry.name[0] != "." and entry.is_file():
                        return True
        except OSError:
            continue
    return False


def _has_index_lines(root: str) -> bool:
    path = os.path.join(root, INDEX)
    if not os.path.isfile(path) or not contained(os.path.realpath(root), INDEX):
        return False  # reading a device may never end
    try:
        with open(path, "rb") as file:
            head = file.read(4000).decode("utf-8", "replace")
    except OSError:
        return False
    return any(line.startswith("- [") and "] " in line and " -> " in line for line in lines_of(head))


def read_hints(
    root: str, files: Mapping[str, object], leaves_out: Callable[[str], bool]
) -> tuple[dict[str, str], list[str]]:
    """Return what the index says of each file it names, and a line about those that are not there or ignored.

    What it says are the title and the tags, `title|tag,tag`. The folder says the category better.
    """
    if not os.path.lexists(os.path.join(root, INDEX)):
        return {}, []
    try:
        text = read_text(root, INDEX, _INDEX_LIMIT)
    except Unreadable as error:
        return {}, [f"{INDEX}: {error}; using only the records"]
    hints, strays = {}, []
    for line in lines_of(text):
        head, arrow, rest = line.strip().rpartition(" -> ")
        if not arrow or not head.startswith("- [") or "] " not in head:
            continue
        path, _, tags = rest.partition(" #tags:")
        place = _in_store(path.strip())
        if place in files:
            listed = ",".join(tag.strip() for tag in tags.split(",") if tag.strip())
            hints[place] = f"{head.partition('] ')[2].strip()}|{listed}"
        elif not leaves_out(place):
            strays.append(path.strip())
    if not strays:
        return hints, []
    more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
    return hints, [f"{INDEX}: {strays[0][:120]!r}{more}: not a record of this store; ignored"]


def _in_store(path: str) -> str:
    """Return the `folder/name` that a path of the index ends in; empty when it climbs.

    The start is not looked at (paths are written from the project, wherever the store is linked to): what is
    opened is only ever a file that was found inside the store.
    """
    parts = path.replace("\\", "/").split("/")
    return "" if os.pardir in parts else "/".join(parts[-2:])


def read(root: str, relative: str, profile: Profile, hint: str | None) -> Entry | None:
    """Return the memory in a record, None when it is retired or archived.

    Of a long one the beginning is searched. A record that is damaged still gives its title when the index has
    a line for it (`hint`) and nothing in it says that it is retired. Raises `Unreadable` otherwise.
    """
    folder, name = relative.rpartition("/")[0], stem(relative)
    category = next((each for each, data in profile.categories.items() if data["folder"] == folder), None)
    if category is None:  # asked for by whoever sees other profiles
        raise Unreadable("not in a folder of the store")
    hinted, _, listed = (hint or "|").rpartition("|")
    tags = [tag for tag in listed.split(",") if tag]
    raw, more = read_bytes(root, relative, MAX_RECORD)
    if more:
        raise Unreadable(f"larger than {MAX_RECORD:,} bytes")
    try:
        record = _parse(as_text(raw, whole=True))
    except Unreadable as error:
        if hint is None or _seems_retired(raw):
            raise
        return Entry(name, hinted, category, tags=tags, problem=f"{error}; found by title only")
    if record.get("record_status", "active") != "active":
        return None
    own_tags, title = record.get("tags"), record.get("title")
    if isinstance(own_tags, list):
        tags = [tag for tag in own_tags if isinstance(tag, str)] or tags
    return Entry(
        name,
        title if isinstance(title, str) and title.strip() else hinted or name,
        category,
        tags=tags,
        body=body_text(record, profile.categories[category]["body"], profile.max_bytes),
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


def _seems_retired(raw: bytes) -> bool:
    """Whether a damaged record names a status other than active, in whatever encoding."""
    _, *values = raw.replace(b"\0", b"").split(_STATUS)
    return not all(value.lstrip(b" \t\r\n:'\"").startswith(_ACTIVE) for value in values)


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


def _strings(values: Iterable[object]) -> Iterator[str]:
    """Yield the strings in values, however deep: without recursion, whose cost is each string's depth."""
    waiting = [iter(values)]
    while waiting:
        for value in waiting[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, list | dict):
                waiting.append(iter(value if isinstance(value, list) else value.values()))
                break
        else:
            waiting.pop()


def _seconds(value: object) -> float:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() if moment else 0.0
