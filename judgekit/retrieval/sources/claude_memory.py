"""Reads the claude-memory store: one JSON record a memory; lines of index.md tell that a folder is one."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime

from judgekit.environment import MEMORY_CONFIG
from judgekit.retrieval.sources import Entry, Unreadable, as_text, auto_memory, contained, read_bytes, stem
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from judgekit.retrieval.compiled import Profile

NAME = "claude-memory"
ENDINGS = (".json",)
IN_ROOT, BELOW, DEEP, LINKED_FOLDERS = False, True, False, True
INDEX = "index.md"
MAX_RECORD = 10_000_000  # bytes; whether a larger record is retired would cost too much to find out


def is_at(root: str, profile: Profile) -> bool:
    """Whether a folder is such a store: by its settings, its records, or lines of its index."""
    if os.path.isfile(os.path.join(root, MEMORY_CONFIG)):
        return True
    for category in profile.categories.values():
        folder = category["folder"]
        if not folder or not contained(root, folder):
            continue
        with suppress(OSError), os.scandir(os.path.join(root, folder)) as entries:
            if any(one.name.endswith(ENDINGS) and one.name[0] != "." and one.is_file() for one in entries):
                return True
    path = os.path.join(root, INDEX)
    if auto_memory.is_at(root, profile) or not os.path.isfile(path):  # reading a device may never end
        return False
    try:
        head, _ = read_bytes(os.path.realpath(root), INDEX, 4000)
    except Unreadable:
        return False
    lines = lines_of(head.decode("utf-8", "replace"))
    return any(line.startswith("- [") and "] " in line and " -> " in line for line in lines)


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Return the memory in a record, None when it is retired; raises `Unreadable` where it may be."""
    folder, name = relative.rpartition("/")[0], stem(relative)
    category = next((each for each, data in profile.categories.items() if data["folder"] == folder), None)
    if category is None:  # asked for by whoever sees other profiles
        raise Unreadable("not in a folder of the store")
    raw, more = read_bytes(root, relative, MAX_RECORD)
    if more:
        raise Unreadable(f"larger than {MAX_RECORD:,} bytes")
    try:
        record = json.loads(as_text(raw, whole=True))
    except (Unreadable, ValueError, RecursionError) as error:
        # Whether it names a status other than active, in whatever encoding.
        _, *values = raw.replace(b"\0", b"").split(b"record_status")
        if not all(value.lstrip(b" \t\r\n:'\"").startswith(b"active") for value in values):
            raise Unreadable("damaged, and it may be retired") from None
        reason = error if isinstance(error, Unreadable) else "not valid JSON"
        return Entry(name, name, category, problem=f"{reason}; found by name only")
    if not isinstance(record, dict):
        raise Unreadable("not a JSON object")
    if record.get("record_status", "active") != "active":
        return None
    tags, title = record.get("tags"), record.get("title")
    return Entry(
        name,
        title if isinstance(title, str) and title.strip() else name,
        category,
        tags=[tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else (),
        body=body_text(record, profile.categories[category]["body"], profile.max_bytes),
        updated=_seconds(record.get("updated_at")) or _seconds(record.get("created_at")),
    )


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
