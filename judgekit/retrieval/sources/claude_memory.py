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
    get_base_name,
    read_bytes,
    read_time,
    resolve_inside,
)
from judgekit.text import split_lines

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
_MAX_SHOWN_MISSING_PATHS = 3  # entries to name if files are missing
# Checking whether a larger record is retired would take too long.
MAX_RECORD_BYTES = 10_000_000
_END_OF_LIST = object()  # the end of a list that may contain None


def is_store(root: str, profile: Profile) -> bool:
    """Whether a folder is a claude-memory store: it has settings, a record, or an index of memories."""
    if os.path.isfile(os.path.join(root, MEMORY_CONFIG)):
        return True
    if _has_category_records(root, profile):
        return True
    if auto_memory.is_store(root, profile):  # the other kind of store, with its own index
        return False
    return _lists_memories(root)


def _has_category_records(root: str, profile: Profile) -> bool:
    """Whether any category's usual folder has a record. Folders outside the store don't count."""
    for category in profile.categories.values():
        folder = category["folder"]
        if folder and resolve_inside(root, folder) and _has_records(os.path.join(root, folder)):
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


def _lists_memories(root: str) -> bool:
    """Whether index.md begins with a list of memories. Only its first 4,000 bytes are read."""
    try:
        head, _ = read_bytes(os.path.realpath(root), INDEX, _HEAD_BYTES)
    except Unreadable:  # it's missing, or it isn't a regular file
        return False
    return any(_is_memory_link(line) for line in split_lines(decode_leniently(head)))


def _is_memory_link(line: str) -> bool:
    """Whether a line links to a memory, as in `- [type] Title -> folder/name.json`."""
    return line.startswith("- [") and "] " in line and " -> " in line


def read_listing(root: str, profile: Profile) -> Listed:
    """Collect the folders of the records that index.md links to, and the problems found in index.md.

    If index.md links to missing files, records with the same names are looked for elsewhere in the store.
    """
    listing = Listed()
    if not os.path.isfile(os.path.join(root, INDEX)):
        return listing

    lines = _read_index(root, listing)
    if not lines:
        return listing

    # Most links lead into these folders. Listing each once is faster than looking up each link on disk.
    file_names_by_folder = _list_usual_folders(root, profile)
    missing_paths: list[str] = []
    for line in lines:
        path = _find_linked_path(root, line)
        if path is None:
            continue
        if _has_file(root, path, file_names_by_folder):
            _add_linked_file(listing, path)
        else:
            missing_paths.append(path)

    if missing_paths:
        _add_moved_records(listing, root, missing_paths)
    return listing


def _read_index(root: str, listing: Listed) -> list[str]:
    """Read the first lines of index.md; none if it can't be read. Adds the problems to `listing`."""
    try:
        raw, is_longer = read_bytes(root, INDEX, _MAX_INDEX_BYTES)
    except Unreadable as error:
        listing.problems.append(f"{INDEX}: {error}; the records alone are searched")
        return []

    lines = split_lines(decode_leniently(raw))
    if is_longer or len(lines) > _MAX_LISTED_LINES:
        listing.problems.append(f"{INDEX}: only its first {_MAX_LISTED_LINES:,} lines are read")
    return lines[:_MAX_LISTED_LINES]


def _list_usual_folders(root: str, profile: Profile) -> dict[str, frozenset[str]]:
    """Map each category's usual folder to the names of its files."""
    file_names_by_folder = {}
    for category in profile.categories.values():
        folder = category["folder"]
        if folder:
            file_names_by_folder[folder] = _list_names(os.path.join(root, folder))
    return file_names_by_folder


def _has_file(root: str, path: str, file_names_by_folder: Mapping[str, frozenset[str]]) -> bool:
    """Whether a store has the file at `path`. A path that leads outside the store doesn't count."""
    folder, _, name = path.rpartition("/")
    if folder in file_names_by_folder:
        return name in file_names_by_folder[folder]
    is_inside = resolve_inside(root, path) is not None
    return is_inside and os.path.isfile(os.path.join(root, path))


def _add_linked_file(listing: Listed, path: str) -> None:
    """Add the folder of a linked record, or a problem if the file isn't a record in a folder."""
    folder, _, _ = path.rpartition("/")
    is_record = path.lower().endswith(ENDINGS)
    if folder and is_record:
        listing.folders.add(folder)
    else:
        problem = f"named in {INDEX}, and no record in a folder; not searched"
        listing.problems.append(f"{path}: {problem}")


def _add_moved_records(listing: Listed, root: str, missing_paths: list[str]) -> None:
    """Find moved records by their names. Adds their folders, and a problem about all missing files."""
    missing_names = {_cut_file_name(path) for path in missing_paths}
    path_by_name = _find_elsewhere(root, missing_names)
    for path in path_by_name.values():
        folder, _, _ = path.rpartition("/")
        listing.folders.add(folder)
    listing.problems.append(_describe_missing(missing_paths, path_by_name))


def _cut_file_name(path: str) -> str:
    """Return a file's name, including its ending."""
    _, _, name = path.rpartition("/")
    return name


def _find_elsewhere(root: str, names: set[str]) -> dict[str, str]:
    """Find records by name in all folders of the store, since index.md may give a wrong path for them.

    Returns the paths by name. Once `_MAX_NAMES` names have been read, no more folders are opened.
    """
    path_by_name: dict[str, str] = {}
    folders = [""]  # still to be read; "" is the store itself
    names_left = _MAX_NAMES
    while folders and names_left > 0:
        folder = folders.pop(0)
        names_in_folder = sorted(_list_names(os.path.join(root, folder)))
        names_left -= len(names_in_folder)
        for name in names_in_folder:
            path = f"{folder}/{name}" if folder else name
            if name.startswith(".") or os.path.islink(os.path.join(root, path)):
                continue

            is_in_folder = folder != ""  # a file directly in the store isn't a record
            has_wanted_name = name in names and name.lower().endswith(ENDINGS)
            may_be_folder = "." not in name and path.count("/") < _MAX_DEPTH
            if is_in_folder and has_wanted_name:
                path_by_name.setdefault(name, path)  # the first match counts
            elif may_be_folder:
                folders.append(path)

    return path_by_name


def _describe_missing(missing_paths: list[str], path_by_name: Mapping[str, str]) -> str:
    """Describe some of the missing files that index.md names.

    If a file of the same name exists elsewhere, its path is added.
    """
    descriptions = []
    for path in missing_paths[:_MAX_SHOWN_MISSING_PATHS]:
        description = path
        other_path = path_by_name.get(_cut_file_name(path))
        if other_path is not None:
            description = f"{path} (found at {other_path})"
        descriptions.append(description)

    joined_descriptions = ", ".join(descriptions)
    more_count = len(missing_paths) - _MAX_SHOWN_MISSING_PATHS
    more = f" and {more_count} more" if more_count > 0 else ""
    return f"{INDEX} names files that do not exist: {joined_descriptions}{more}"


def _list_names(folder: str) -> frozenset[str]:
    """Return the names in a folder; an empty set if it's missing or can't be read."""
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _find_linked_path(root: str, line: str) -> str | None:
    """Return the path in the store that a line of index.md links to; None if it's no link.

    A link is a line such as `- [type] Title -> folder/name.json #tags:a,b`.
    """
    is_item = line.lstrip().startswith("- [")
    _, arrow, target = line.rpartition(" -> ")
    if not arrow or not is_item:
        return None
    path, _, _ = target.partition(" #tags:")
    return _make_store_path(root, path.strip().strip("`"))


def _make_store_path(root: str, path: str) -> str:
    """Convert a path in index.md to one relative to the store."""
    # The store's own tool writes paths relative to the project; other tools write absolute paths, or
    # paths relative to the store.
    store_prefix = f"{MEMORY}/".replace(os.sep, "/")
    if store_prefix in path:
        _, _, path = path.partition(store_prefix)
    if os.path.isabs(path):
        path = os.path.relpath(path, root)
    normal_path = os.path.normpath(path)
    return normal_path.replace(os.sep, "/")


def read(root: str, relative: str, profile: Profile) -> Entry | None:
    """Read the memory in a record; None if it's retired.

    Raises `Unreadable` if the record is too large, isn't an object, or is damaged and may be retired.
    """
    name = get_base_name(relative)
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
        return _make_damaged_entry(name, category or _get_first_category(profile), error)

    if not isinstance(record, dict):
        raise Unreadable("not a JSON object")
    if _is_retired(record):
        return None

    # In an unusual folder, the record's own category counts.
    if category is None:
        category = _read_category(record, profile)
    entry = _make_entry(name, category, record, profile)
    entry.note = note
    return entry


def _make_damaged_entry(name: str, category: str, error: Exception) -> Entry:
    """Make the entry of a damaged record, which can be found by its name only."""
    reason = error if isinstance(error, Unreadable) else "not valid JSON"
    return Entry(name, name, category, problem=f"{reason}; found by name only")


def _is_retired(record: Mapping[str, object]) -> bool:
    """Whether a record isn't active. Raises `Unreadable` if its status is damaged."""
    status = record.get("record_status", "active")
    # Decoding leaves this character in place of bytes it can't read, so the real status is unknown.
    is_damaged = isinstance(status, str) and REPLACED in status
    if is_damaged:
        raise Unreadable("damaged, and it may be retired")
    return status != "active"


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
    """Whether a damaged record, in any encoding, is certainly active.

    Each `record_status` in it must be "active", or it must have none.
    """
    without_zeros = raw.replace(b"\0", b"")  # the upper halves of ASCII characters in UTF-16
    _, *texts_after = without_zeros.split(b"record_status")
    return all(_starts_with_active(text) for text in texts_after)


def _starts_with_active(text_after_key: bytes) -> bool:
    """Whether the value after a JSON key is "active", as in `": "active"`."""
    value = text_after_key.lstrip(b" \t\r\n:'\"")
    return value.startswith(b"active")


def _read_category(record: Mapping[str, object], profile: Profile) -> str:
    """Return a record's category, or the profile's first category if the profile doesn't know it."""
    category = str(record.get("category", "")).lower().replace("-", "_")
    return category if category in profile.categories else _get_first_category(profile)


def _get_first_category(profile: Profile) -> str:
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
        value = next(open_levels[-1], _END_OF_LIST)
        if value is _END_OF_LIST:
            open_levels.pop()
        elif isinstance(value, str):
            yield value
        elif isinstance(value, list):
            open_levels.append(iter(value))
        elif isinstance(value, dict):
            open_levels.append(iter(value.values()))
