"""Reads the claude-memory store: one JSON record a memory; lines of index.md tell that a folder is one."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from judgekit.environment import MEMORY, MEMORY_CONFIG
from judgekit.retrieval.sources import (
    REPLACED,
    Entry,
    Listed,
    Unreadable,
    as_text,
    auto_memory,
    contained,
    decode,
    force,
    read_bytes,
    read_time,
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
_HEAD = 4_000  # bytes at its start that show whether it's ours
_MOST_INDEX = 4_000_000  # bytes of it
_MOST_LISTED = 20_000  # lines
_MOST_LOOKED_AT = 10_000  # names; searched if the list names a missing file
_DEEPEST = 4  # nested folders that are searched for it
_SHOWN = 3  # entries to name if files are missing
MAX_RECORD = 10_000_000  # bytes; checking whether a larger record is retired would take too long


def is_at(root: str, profile: Profile) -> bool:
    """Whether a folder is such a store, judging by its settings, its records, or lines of its index."""
    if os.path.isfile(os.path.join(root, MEMORY_CONFIG)):
        return True
    for category in profile.categories.values():
        folder = category["folder"]
        if folder and contained(root, folder) and _has_records(os.path.join(root, folder)):
            return True
    is_other_kind = auto_memory.is_at(root, profile)
    # Reading a device may never end.
    if is_other_kind or not os.path.isfile(os.path.join(root, INDEX)):
        return False
    try:
        head, _ = read_bytes(os.path.realpath(root), INDEX, _HEAD)
    except Unreadable:
        return False
    lines = lines_of(decode(head))
    return any(line.startswith("- [") and "] " in line and " -> " in line for line in lines)


def _has_records(folder: str) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_record = entry.name.lower().endswith(ENDINGS) and entry.name[0] != "."
            if is_record and entry.is_file():
                return True
    return False


def listed(root: str, profile: Profile) -> Listed:
    """Return the folders beside the usual ones that index.md names, and the number of its missing files."""
    listing = Listed()
    if not os.path.isfile(os.path.join(root, INDEX)):
        return listing
    try:
        raw, is_longer = read_bytes(root, INDEX, _MOST_INDEX)
    except Unreadable as error:
        listing.problems.append(f"{INDEX}: {error}; the records alone are searched")
        return listing
    lines = lines_of(decode(raw))
    if is_longer or len(lines) > _MOST_LISTED:
        listing.problems.append(f"{INDEX}: only its first {_MOST_LISTED:,} lines are read")
    usual_folders = {
        category["folder"] for category in profile.categories.values() if category["folder"]
    }
    names = {folder: _list_names(os.path.join(root, folder)) for folder in usual_folders}
    missing: list[str] = []
    for line in lines[:_MOST_LISTED]:
        place = _find_link(root, line)
        if place is None:
            continue
        folder, _, name = place.rpartition("/")
        if folder in usual_folders:
            is_there = name in names[folder]
        else:
            is_inside = contained(root, place) is not None
            is_there = is_inside and os.path.isfile(os.path.join(root, place))
        if not is_there:
            missing.append(place)
        elif folder and place.lower().endswith(ENDINGS):
            listing.folders.add(folder)
        else:
            problem = f"named in {INDEX}, and no record in a folder; not searched"
            listing.problems.append(f"{place}: {problem}")
    if missing:
        elsewhere = _find_elsewhere(root, {place.rpartition("/")[2] for place in missing})
        listing.folders.update(path.rpartition("/")[0] for path in elsewhere.values())
        missing = [_describe_missing(place, elsewhere) for place in missing]
        shown = ", ".join(missing[:_SHOWN])
        rest = len(missing) - _SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        listing.problems.append(f"{INDEX} names files that do not exist: {shown}{more}")
    return listing


def _find_elsewhere(root: str, names: set[str]) -> dict[str, str]:
    """Map names of records in folders to their paths: a wrong path in the list mustn't hide a memory."""
    paths: dict[str, str] = {}
    folders = [""]
    entries_left = _MOST_LOOKED_AT
    while folders and entries_left > 0:
        folder = folders.pop(0)
        for name in sorted(_list_names(os.path.join(root, folder))):
            entries_left -= 1
            path = f"{folder}/{name}" if folder else name
            if name.startswith(".") or os.path.islink(os.path.join(root, path)):
                continue
            if folder and name in names and name.lower().endswith(ENDINGS):
                paths.setdefault(name, path)
            elif "." not in name and path.count("/") < _DEEPEST:
                folders.append(path)
    return paths


def _describe_missing(place: str, elsewhere: Mapping[str, str]) -> str:
    path = elsewhere.get(place.rpartition("/")[2])
    return place if path is None else f"{place} (found at {path})"


def _list_names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # it doesn't exist, or can't be read
        return frozenset()


def _find_link(root: str, line: str) -> str | None:
    """Return the path in the store that a line of index.md links to, or None for any other line."""
    _, arrow, target = line.rpartition(" -> ")
    if not arrow or not line.lstrip().startswith("- ["):
        return None
    path = target.partition(" #tags:")[0].strip().strip("`")
    # Relative to the project, as the store's own tool writes it, or to the store.
    below = f"{MEMORY}/".replace(os.sep, "/")
    if below in path:
        path = path.partition(below)[2]
    if os.path.isabs(path):
        path = os.path.relpath(path, root)
    return os.path.normpath(path).replace(os.sep, "/")


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Read the memory in a record; None if it's retired. Raises `Unreadable` if it may be retired."""
    name = stem(relative)
    category = _category_of_folder(relative.rpartition("/")[0], profile)
    raw, is_longer = read_bytes(root, relative, MAX_RECORD)
    if is_longer:
        raise Unreadable(f"larger than {MAX_RECORD:,} bytes")
    try:
        text, note = as_text(raw, whole=True)
        record = json.loads(text)
    except (Unreadable, ValueError, RecursionError) as error:
        if not _is_surely_active(raw):
            raise Unreadable("damaged, and it may be retired") from None
        category = category or next(iter(profile.categories))
        reason = error if isinstance(error, Unreadable) else "not valid JSON"
        return Entry(name, name, category, problem=f"{reason}; found by name only")
    if not isinstance(record, dict):
        raise Unreadable("not a JSON object")
    status = record.get("record_status", "active")
    if status != "active":
        is_damaged = isinstance(status, str) and REPLACED in status
        if is_damaged:
            raise Unreadable("damaged, and it may be retired")
        return None
    category = category or _category_in(record, profile)
    title = record.get("title")
    if not isinstance(title, str) or not title.strip():
        title = name
    tags = record.get("tags")
    if not isinstance(tags, list):
        tags = []
    entry = Entry(
        name,
        title,
        category,
        tags=[tag for tag in tags if isinstance(tag, str)],
        body=body_text(record, profile.categories[category]["body"], profile.max_bytes),
        updated=read_time(record.get("updated_at")) or read_time(record.get("created_at")),
    )
    entry.status = force.status_of(_stated(record), "")
    entry.note = note
    return entry


def _category_of_folder(folder: str, profile: Profile) -> str | None:
    for category, data in profile.categories.items():
        if data["folder"] == folder:
            return category
    return None


def _is_surely_active(raw: bytes) -> bool:
    """Whether a damaged record has no status except active, in whatever encoding."""
    _, *values = raw.replace(b"\0", b"").split(b"record_status")
    return all(value.lstrip(b" \t\r\n:'\"").startswith(b"active") for value in values)


def _category_in(record: Mapping[str, object], profile: Profile) -> str:
    """Return the category that a record gives itself, if it's in another folder than the usual ones."""
    category = str(record.get("category", "")).lower().replace("-", "_")
    if category in profile.categories:
        return category
    return next(iter(profile.categories))


def _stated(record: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the keys of a record and its content that tell a status, as fields of a front matter."""
    fields: dict[str, list[str]] = {}
    for part in (record, record.get("content")):
        for key, value in part.items() if isinstance(part, dict) else ():
            if key in force.KEYS and isinstance(value, str | bool):
                fields.setdefault(key, []).append(str(value))
    return fields


def body_text(record: Mapping[str, object], fields: list[str], limit: int) -> str:
    """Return the first `limit` characters of a record's body fields: strings, lists or objects of them."""
    content = record.get("content")
    if not isinstance(content, dict):
        return ""
    parts = []
    room = limit
    for part in _yield_strings([content.get(field) for field in fields]):
        if room < 0:
            break
        parts.append(part[:room])
        room -= len(part) + 1
    return "\n".join(parts)


def _yield_strings(values: Iterable[object]) -> Iterator[str]:
    """Yield the strings in nested values, without recursion, which would cost each string its depth."""
    waiting = [iter(values)]
    while waiting:
        for value in waiting[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, list | dict):
                # Its strings come first; then the loop continues behind it.
                inner = value if isinstance(value, list) else value.values()
                waiting.append(iter(inner))
                break
        else:
            waiting.pop()
