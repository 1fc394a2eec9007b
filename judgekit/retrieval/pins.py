"""Suggests the nearest path, id or title for a pin that names no memory.

That requires reading a store, so it's only done if somebody reads the answer.
"""

from __future__ import annotations

import difflib
from contextlib import closing

from judgekit.retrieval import index, scan
from judgekit.retrieval.index_file import NoFullTextError, sqlite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from judgekit.retrieval.compiled import Profiles

_MAX_MEMORIES = 2_000  # memories of a store that are compared with a pin, the newest ones
_MAX_COMPARED_CHARS = 120  # of a name that are compared
_MAX_COMPARED_NAMES = 20  # names to compare letter by letter, which takes quadratic time
_READ_SECONDS = 1.0  # seconds for reading changed files
_NEWEST_MEMORIES_QUERY = """SELECT path, id, title FROM file WHERE live = 1 AND problem IS NULL
    ORDER BY updated DESC LIMIT ?"""


def suggest(
    notes: Sequence[str], pin_by_note: dict[str, str], roots: Iterable[str], profiles: Profiles
) -> list[str]:
    """Add the nearest name, if any, to each note about a pin that matches no memory.

    `pin_by_note` maps these notes to their pins. Other notes are returned unchanged.
    """
    has_pin_notes = any(note in pin_by_note for note in notes)
    if not has_pin_notes:  # then don't read the stores
        return list(notes)

    path_by_name = _map_names_to_paths(roots, profiles)
    pairs_by_name = {name: _pair_letters(name) for name in path_by_name}
    lines = []
    for note in notes:
        nearest_name = None
        if note in pin_by_note:
            pin = _make_comparable(pin_by_note[note])
            nearest_name = _find_nearest(pin, pairs_by_name)

        if nearest_name is None:
            lines.append(note)
        else:
            lines.append(f"{note}; did you mean {path_by_name[nearest_name]!r}?")
    return lines


def _map_names_to_paths(roots: Iterable[str], profiles: Profiles) -> dict[str, str]:
    """Return the memories' paths by all names that a pin could have meant."""
    path_by_name: dict[str, str] = {}
    for root in roots:
        for path, entry_id, title in _list_memories(root, profiles):
            for name in [*_list_path_names(path), entry_id, title]:
                # If memories share a name, it's the first one's.
                path_by_name.setdefault(_make_comparable(name), path)
    return path_by_name


def _list_path_names(path: str) -> list[str]:
    """Return a path, the path without its ending, and the file's name without its ending."""
    path_without_ending, _, _ = path.rpartition(".")
    _, _, stem = path_without_ending.rpartition("/")
    return [path, path_without_ending, stem]


def _find_nearest(pin: str, pairs_by_name: dict[str, set[str]]) -> str | None:
    """Return the name nearest to a pin, or None if none is near."""
    # A full comparison takes long, so only compare the few names with the most letter pairs in common.
    pairs = _pair_letters(pin)
    likeliest_first = sorted(pairs_by_name, key=lambda name: -len(pairs & pairs_by_name[name]))
    matches = difflib.get_close_matches(pin, likeliest_first[:_MAX_COMPARED_NAMES], n=1)
    return matches[0] if matches else None


def _pair_letters(name: str) -> set[str]:
    """Return the distinct pairs of adjacent letters in a name."""
    return {name[start : start + 2] for start in range(len(name) - 1)}


def _make_comparable(name: str) -> str:
    """Return a name's beginning in lower case, with spaces for all punctuation except `/` and `.`."""
    spaced = [
        char if char.isalnum() or char in "/." else " " for char in name[:_MAX_COMPARED_CHARS]
    ]
    return "".join(spaced).casefold()


def _list_memories(root: str, profiles: Profiles) -> list[tuple[str, str, str]]:
    """List each memory's path, id and title; [] if the index is damaged."""
    try:
        with closing(index.open_index(root, profiles, patience=_READ_SECONDS)) as opened:
            return opened.connection.execute(_NEWEST_MEMORIES_QUERY, (_MAX_MEMORIES,)).fetchall()
    except NoFullTextError:  # there can't be an index
        return _read_memories(root, profiles)
    except sqlite.DatabaseError:  # the search will report it
        return []


def _read_memories(root: str, profiles: Profiles) -> list[tuple[str, str, str]]:
    """List each memory's path, id and title from the files, except files with a problem."""
    _, entries, _ = scan.read_entries(root, profiles)
    memories = []
    for path, entry in entries:
        if entry.problem is None:
            memories.append((path, entry.id, entry.title))
    return memories[:_MAX_MEMORIES]
