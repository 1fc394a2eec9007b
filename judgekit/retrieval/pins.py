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

_MOST_MEMORIES = 2_000  # memories of a store that are compared with a pin, the newest ones
_MOST_LETTERS = 120  # of a name that are compared
_MOST_COMPARED = 20  # names to compare letter by letter, which takes quadratic time
_PATIENCE = 1.0  # seconds for reading changed files
_MEMORIES = """SELECT path, id, title FROM file WHERE live = 1 AND problem IS NULL
    ORDER BY updated DESC LIMIT ?"""


def suggest(
    notes: Sequence[str], pin_by_note: dict[str, str], roots: Iterable[str], profiles: Profiles
) -> list[str]:
    """Return the notes; each about a pin that names nothing suggests the nearest name, if one is near."""
    if pin_by_note.keys().isdisjoint(notes):
        return list(notes)
    path_by_name: dict[str, str] = {}
    for root in roots:
        for path, *names in _list_memories(root, profiles):
            stem = path.rpartition("/")[2].rpartition(".")[0]
            for name in (path, path.rpartition(".")[0], stem, *names):
                path_by_name.setdefault(_comparable(name), path)
    pairs_by_name = {name: _pair_letters(name) for name in path_by_name}
    suggested = []
    for note in notes:
        near = []
        if note in pin_by_note:
            near = _find_nearest(_comparable(pin_by_note[note]), pairs_by_name)
        suggested.append(f"{note}; did you mean {path_by_name[near[0]]!r}?" if near else note)
    return suggested


def _find_nearest(pin: str, pairs_by_name: dict[str, set[str]]) -> list[str]:
    """Find the name nearest to a pin; an empty list if none is near."""
    pairs = _pair_letters(pin)
    likely = sorted(pairs_by_name, key=lambda name: -len(pairs & pairs_by_name[name]))
    return difflib.get_close_matches(pin, likely[:_MOST_COMPARED], n=1)


def _pair_letters(name: str) -> set[str]:
    return {name[place : place + 2] for place in range(len(name) - 1)}


def _comparable(name: str) -> str:
    """Return a name in lower case, with spaces for the signs between its words."""
    spaced = [char if char.isalnum() or char in "/." else " " for char in name[:_MOST_LETTERS]]
    return "".join(spaced).casefold()


def _list_memories(root: str, profiles: Profiles) -> list[tuple[str, str, str]]:
    """Return the path, the id and the title of each memory that can be pinned."""
    try:
        with closing(index.open_index(root, profiles, patience=_PATIENCE)) as opened:
            return opened.connection.execute(_MEMORIES, (_MOST_MEMORIES,)).fetchall()
    except NoFullTextError:
        _, entries, _ = scan.entries(root, profiles)
    except sqlite.DatabaseError:  # the search reports it
        return []
    sound = [(path, entry) for path, entry in entries if entry.problem is None]
    return [(path, entry.id, entry.title) for path, entry in sound[:_MOST_MEMORIES]]
