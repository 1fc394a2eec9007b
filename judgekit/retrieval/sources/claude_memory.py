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
    auto_memory,
    decode_file,
    decode_leniently,
    force,
    read_bytes,
    read_time,
    resolve_inside,
    strip_ending,
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
_HEAD_BYTES = 4_000  # bytes at its start that show whether it's ours
_MAX_INDEX_BYTES = 4_000_000  # bytes of it
_MAX_LISTED_LINES = 20_000  # lines
_MAX_NAMES = 10_000  # names; searched if the list names a missing file
_MAX_DEPTH = 4  # nested folders that are searched for it
_MAX_SHOWN = 3  # entries to name if files are missing
# Checking whether a larger record is retired would take too long.
MAX_RECORD_BYTES = 10_000_000


def is_store(root: str, profile: Profile) -> bool:
    """Whether a folder is a claude-memory store: it has settings, a record, or an index of memories."""
    if os.path.isfile(os.path.join(root, MEMORY_CONFIG)):
        return True

    for category in profile.categories.values():
        folder = category["folder"]
        if folder and resolve_inside(root, folder) and _has_records(os.path.join(root, folder)):
            return True

    if auto_memory.is_store(root, profile):  # the other kind of store, with its own index
        return False
    if not os.path.isfile(os.path.join(root, INDEX)):  # reading from a device might never end
        return False

    try:
        head, _ = read_bytes(os.path.realpath(root), INDEX, _HEAD_BYTES)
    except Unreadable:
        return False

    for line in lines_of(decode_leniently(head)):
        is_of_memory = line.startswith("- [") and "] " in line and " -> " in line
        if is_of_memory:
            return True
    return False


def _has_records(folder: str) -> bool:
    """Whether a folder contains a JSON file. Returns False if the folder can't be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_hidden = entry.name.startswith(".")
            is_record = entry.name.lower().endswith(ENDINGS) and not is_hidden
            if is_record and entry.is_file():
                return True
    return False


def listed(root: str, profile: Profile) -> Listed:
    """Collect the folders that only index.md names, and the problems found in index.md.

    If index.md names missing files, records with the same names are looked for elsewhere in the store.
    """
    listing = Listed()
    if not os.path.isfile(os.path.join(root, INDEX)):
        return listing

    try:
        raw, is_longer = read_bytes(root, INDEX, _MAX_INDEX_BYTES)
    except Unreadable as error:
        listing.problems.append(f"{INDEX}: {error}; the records alone are searched")
        return listing

    lines = lines_of(decode_leniently(raw))
    if is_longer or len(lines) > _MAX_LISTED_LINES:
        listing.problems.append(f"{INDEX}: only its first {_MAX_LISTED_LINES:,} lines are read")

    # List the usual folders once, so that most links need no access to the disk.
    names_by_folder = {}
    for category in profile.categories.values():
        folder = category["folder"]
        if folder:
            names_by_folder[folder] = _list_names(os.path.join(root, folder))

    # Check each link in the list.
    missing_paths: list[str] = []
    for line in lines[:_MAX_LISTED_LINES]:
        path = _find_link(root, line)
        if path is None:
            continue

        folder, _, name = path.rpartition("/")
        if folder in names_by_folder:
            exists = name in names_by_folder[folder]
        else:
            is_inside = resolve_inside(root, path) is not None
            exists = is_inside and os.path.isfile(os.path.join(root, path))

        if not exists:
            missing_paths.append(path)
        elif folder and path.lower().endswith(ENDINGS):
            listing.folders.add(folder)
        else:
            problem = f"named in {INDEX}, and no record in a folder; not searched"
            listing.problems.append(f"{path}: {problem}")

    # A moved record is found by its name.
    if missing_paths:
        path_by_name = _find_elsewhere(root, set(map(_cut_file_name, missing_paths)))
        for path in path_by_name.values():
            folder, _, _ = path.rpartition("/")
            listing.folders.add(folder)
        listing.problems.append(_describe_missing(missing_paths, path_by_name))

    return listing


def _cut_file_name(path: str) -> str:
    """Return a file's name, including its ending."""
    _, _, name = path.rpartition("/")
    return name


def _find_elsewhere(root: str, names: set[str]) -> dict[str, str]:
    """Look for records with these names in any folder of the store. Returns the paths found, by name.

    A wrong path in index.md mustn't hide a memory. Only the first 10,000 names in the store are looked at.
    """
    paths: dict[str, str] = {}
    folders = [""]
    entries_left = _MAX_NAMES
    while folders and entries_left > 0:
        folder = folders.pop(0)
        for name in sorted(_list_names(os.path.join(root, folder))):
            entries_left -= 1
            path = f"{folder}/{name}" if folder else name
            if name.startswith(".") or os.path.islink(os.path.join(root, path)):
                continue

            is_wanted_record = name in names and name.lower().endswith(ENDINGS)
            may_be_folder = "." not in name
            if folder and is_wanted_record:
                if name not in paths:  # the first match counts
                    paths[name] = path
            elif may_be_folder and path.count("/") < _MAX_DEPTH:
                folders.append(path)

    return paths


def _describe_missing(missing_paths: list[str], path_by_name: Mapping[str, str]) -> str:
    """Describe some of the missing files that index.md names.

    If a file of the same name exists elsewhere, its path is added.
    """
    descriptions = []
    for path in missing_paths[:_MAX_SHOWN]:
        description = path
        other_path = path_by_name.get(_cut_file_name(path))
        if other_path is not None:
            description = f"{path} (found at {other_path})"
        descriptions.append(description)

    joined_descriptions = ", ".join(descriptions)
    more_count = len(missing_paths) - _MAX_SHOWN
    more = f" and {more_count} more" if more_count > 0 else ""
    return f"{INDEX} names files that do not exist: {joined_descriptions}{more}"


def _list_names(folder: str) -> frozenset[str]:
    """Return the names in a folder; an empty set if it's missing or can't be read."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _find_link(root: str, line: str) -> str | None:
    """Return the path in the store that a line of index.md links to, or None.

    A link is a line such as `- [type] Title -> folder/name.json #tags:a,b`.
    """
    _, arrow, target = line.rpartition(" -> ")
    if not arrow or not line.lstrip().startswith("- ["):
        return None
    path, _, _ = target.partition(" #tags:")
    path = path.strip().strip("`")
    # The store's own tool writes paths relative to the project; other tools, relative to the store.
    store_prefix = f"{MEMORY}/".replace(os.sep, "/")
    if store_prefix in path:
        _, _, path = path.partition(store_prefix)
    if os.path.isabs(path):
        path = os.path.relpath(path, root)
    return os.path.normpath(path).replace(os.sep, "/")


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Read the memory in a record; None if it's retired.

    A damaged record's entry has a `problem`, and the file's name as its title. Raises `Unreadable` if the
    record is too large, isn't an object, or is damaged and may be retired.
    """
    name = strip_ending(relative)
    folder, _, _ = relative.rpartition("/")
    category = _find_category(folder, profile)
    raw, is_longer = read_bytes(root, relative, MAX_RECORD_BYTES)
    if is_longer:
        raise Unreadable(f"larger than {MAX_RECORD_BYTES:,} bytes")

    try:
        text, note = decode_file(raw, whole=True)
        record = json.loads(text)
    except (Unreadable, ValueError, RecursionError) as error:
        if not _is_surely_active(raw):
            raise Unreadable("damaged, and it may be retired") from None
        if category is None:
            category = next(iter(profile.categories))  # the first category
        reason = error if isinstance(error, Unreadable) else "not valid JSON"
        return Entry(name, name, category, problem=f"{reason}; found by name only")

    if not isinstance(record, dict):
        raise Unreadable("not a JSON object")

    status = record.get("record_status", "active")
    if status != "active":
        # Undecodable characters leave the status unknown.
        is_damaged = isinstance(status, str) and REPLACED in status
        if is_damaged:
            raise Unreadable("damaged, and it may be retired")
        return None

    # In an unusual folder, the record's own category counts.
    if category is None:
        category = _read_category(record, profile)
    entry = _make_entry(name, category, record, profile)
    entry.note = note
    return entry


def _make_entry(name: str, category: str, record: Mapping[str, object], profile: Profile) -> Entry:
    """Make an active record's entry. Fields of a wrong type are treated as missing."""
    title = record.get("title")
    if not isinstance(title, str) or not title.strip():
        title = name
    tags = record.get("tags")
    if not isinstance(tags, list):
        tags = []
    body_fields = profile.categories[category]["body"]
    entry = Entry(
        name,
        title,
        category,
        tags=[tag for tag in tags if isinstance(tag, str)],
        body=read_body_text(record, body_fields, profile.max_bytes),
        updated=read_time(record.get("updated_at")) or read_time(record.get("created_at")),
    )

    # Only the record's fields give its status, never its text.
    entry.status = force.find_status(_collect_status_fields(record), body="")
    return entry


def _find_category(folder: str, profile: Profile) -> str | None:
    """Return the category whose usual folder this is; None for any other folder."""
    for category, data in profile.categories.items():
        if data["folder"] == folder:
            return category
    return None


def _is_surely_active(raw: bytes) -> bool:
    """Whether it's certain that a damaged record is active, in whichever encoding.

    It is if the record has no `record_status`, or only "active" ones.
    """
    without_zeros = raw.replace(b"\0", b"")  # the upper halves of ASCII characters in UTF-16
    _, *texts_after = without_zeros.split(b"record_status")
    return all(text.lstrip(b" \t\r\n:'\"").startswith(b"active") for text in texts_after)


def _read_category(record: Mapping[str, object], profile: Profile) -> str:
    """Return a record's category, or the profile's first category if the profile doesn't know it."""
    category = str(record.get("category", "")).lower().replace("-", "_")
    if category in profile.categories:
        return category
    return next(iter(profile.categories))


def _collect_status_fields(record: Mapping[str, object]) -> dict[str, list[str]]:
    """Collect the status keys of a record and of its `content`, with their values as text."""
    fields: dict[str, list[str]] = {}
    for part in (record, record.get("content")):
        if not isinstance(part, dict):
            continue
        for key, value in part.items():
            if key in force.KEYS and isinstance(value, str | bool):
                fields.setdefault(key, []).append(str(value))
    return fields


def read_body_text(record: Mapping[str, object], fields: list[str], limit: int) -> str:
    """Return the text in some of a record's content fields, one string a line, cut to `limit`.

    A field can be a string, or a list or object that contains strings.
    """
    content = record.get("content")
    if not isinstance(content, dict):
        return ""

    lines = []
    chars_left = limit
    for text in _yield_strings([content.get(field) for field in fields]):
        if chars_left < 0:
            break
        lines.append(text[:chars_left])
        chars_left -= len(text) + 1  # including the line break

    return "\n".join(lines)


def _yield_strings(values: Iterable[object]) -> Iterator[str]:
    """Yield the strings in nested lists and dicts, in order.

    A loop is faster than recursion, which would pass each string up through all levels.
    """
    open_levels = [iter(values)]  # innermost last
    while open_levels:
        for value in open_levels[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, list | dict):
                # Read the inner values first. This level continues after them.
                inner_values = value if isinstance(value, list) else value.values()
                open_levels.append(iter(inner_values))
                break
        else:  # the innermost level has no more values
            open_levels.pop()
