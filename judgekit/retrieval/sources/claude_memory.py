"""Reads the claude-memory store: one JSON record a memory; lines of index.md tell that a folder is one."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime

from judgekit.environment import MEMORY, MEMORY_CONFIG
from judgekit.retrieval.sources import (
    Entry,
    Listed,
    Unreadable,
    as_text,
    auto_memory,
    contained,
    force,
    read_bytes,
    stem,
)
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from judgekit.retrieval.compiled import Profile

NAME = "claude-memory"
ENDINGS = (".json",)
IN_ROOT = False
BELOW = True
DEEP = False
LINKED_FOLDERS = True
INDEX = "index.md"
LISTS: tuple[str, ...] = ()
_MOST_INDEX = 4_000_000  # bytes of it
_MOST_LISTED = 20_000  # lines
_SHOWN = 3  # entries that are named where files are missing
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
            if any(
                one.name.endswith(ENDINGS) and one.name[0] != "." and one.is_file()
                for one in entries
            ):
                return True
    path = os.path.join(root, INDEX)
    if auto_memory.is_at(root, profile) or not os.path.isfile(
        path
    ):  # reading a device may never end
        return False
    try:
        head, _ = read_bytes(os.path.realpath(root), INDEX, 4000)
    except Unreadable:
        return False
    lines = lines_of(head.decode("utf-8", "replace"))
    return any(line.startswith("- [") and "] " in line and " -> " in line for line in lines)


def listed(root: str, profile: Profile) -> Listed:
    """Return the folders beside the usual ones that index.md names, and how many of its files are missing."""
    found = Listed()
    path = os.path.join(root, INDEX)
    if not os.path.isfile(path):
        return found
    try:
        raw, more = read_bytes(root, INDEX, _MOST_INDEX)
    except Unreadable as error:
        found.problems.append(f"{INDEX}: {error}; the records alone are searched")
        return found
    lines = lines_of(raw.decode("utf-8", "replace"))
    if more or len(lines) > _MOST_LISTED:
        found.problems.append(f"{INDEX}: only its first {_MOST_LISTED:,} lines are read")
    usual = {category["folder"] for category in profile.categories.values() if category["folder"]}
    names = {folder: _names_in(os.path.join(root, folder)) for folder in usual}
    missing: list[str] = []
    for line in lines[:_MOST_LISTED]:
        place = _place_of(root, line)
        if place is None:
            continue
        folder, _, name = place.rpartition("/")
        if folder in usual:
            is_there = name in names[folder]
        else:
            is_there = contained(root, place) is not None and os.path.isfile(
                os.path.join(root, place)
            )
        if not is_there:
            missing.append(place)
        elif folder and place.endswith(ENDINGS):
            found.folders.add(folder)
        else:
            found.problems.append(
                f"{place}: named in {INDEX}, and no record in a folder; not searched"
            )
    if missing:
        shown = ", ".join(missing[:_SHOWN])
        if len(missing) > _SHOWN:
            more_missing = f" and {len(missing) - _SHOWN} more"
        else:
            more_missing = ""
        found.problems.append(f"{INDEX} names files that do not exist: {shown}{more_missing}")
    return found


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # there is none, or it may not be read
        return frozenset()


def _place_of(root: str, line: str) -> str | None:
    """Return the path in the store that a line of index.md leads to, or None for any other line."""
    _, arrow, target = line.rpartition(" -> ")
    if not arrow or not line.lstrip().startswith("- ["):
        return None
    path = target.partition(" #tags:")[0].strip().strip("`")
    # Relative to the project, as the store's own tool writes it, or to the store.
    below = f"{MEMORY}/".replace(os.sep, "/")
    if below in path:
        inside = path.partition(below)[2]
    else:
        inside = path
    place = os.path.normpath(os.path.relpath(inside, root) if os.path.isabs(inside) else inside)
    return place.replace(os.sep, "/")


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Return the memory in a record, None when it is retired; raises `Unreadable` where it may be."""
    folder = relative.rpartition("/")[0]
    name = stem(relative)
    category = next(
        (each for each, data in profile.categories.items() if data["folder"] == folder), None
    )
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
        category = category or next(iter(profile.categories))
        reason = error if isinstance(error, Unreadable) else "not valid JSON"
        return Entry(name, name, category, problem=f"{reason}; found by name only")
    if not isinstance(record, dict):
        raise Unreadable("not a JSON object")
    if record.get("record_status", "active") != "active":
        return None
    category = category or _category_in(record, profile)
    tags = record.get("tags")
    if not isinstance(tags, list):
        tags = []
    title = record.get("title")
    if not isinstance(title, str) or not title.strip():
        title = name
    body = body_text(record, profile.categories[category]["body"], profile.max_bytes)
    updated = _seconds(record.get("updated_at")) or _seconds(record.get("created_at"))
    entry = Entry(
        name,
        title,
        category,
        tags=[tag for tag in tags if isinstance(tag, str)],
        body=body,
        updated=updated,
    )
    entry.status = force.status_of(_stated(record), "")
    return entry


def _category_in(record: Mapping[str, object], profile: Profile) -> str:
    """Return the category that a record in another folder than the usual ones gives itself."""
    category = str(record.get("category", "")).lower().replace("-", "_")
    if category in profile.categories:
        return category
    return next(iter(profile.categories))


def _stated(record: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the status that a record or its content gives, as fields of a front matter."""
    content = record.get("content")
    values = [record.get("status"), content.get("status") if isinstance(content, dict) else None]
    return {"status": [value for value in values if isinstance(value, str)]}


def body_text(record: Mapping[str, object], fields: list[str], limit: int) -> str:
    """Return the first `limit` characters of a record's body fields: strings, lists or objects of them."""
    content = record.get("content")
    parts = []
    room = limit
    for part in _strings(
        [content.get(field) for field in fields] if isinstance(content, dict) else ()
    ):
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
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
        else:
            moment = None
    except ValueError:
        return 0.0
    if moment:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return 0.0
