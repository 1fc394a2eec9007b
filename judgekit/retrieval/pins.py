"""Finds the memories that a user wants with every prompt, by what they call them in `pin:`.

A pin is an id, or a path: from the store (`decisions/jwt.json`), from the project, or from the root of the
file system. What is retired or damaged is not found.
"""

from __future__ import annotations

import os

from judgekit.retrieval.confidence import Candidate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.scan import Scan

_ENTRY = "SELECT id, title, category, tags, path, updated FROM file WHERE live = 1 AND problem IS NULL AND"


def among_indexed(
    connection: Connection, root: str, kind: str, pins: Sequence[str], project: str
) -> dict[str, Candidate]:
    """Return the entries of an index of the store at `root` that `pins` name, by pin."""
    found = {}
    for pin in pins:
        row = None
        for place in _places(pin, root, project):
            row = row or connection.execute(f"{_ENTRY} path = ?", (place,)).fetchone()
        if row is None and "/" not in pin:
            row = connection.execute(f"{_ENTRY} id = ? ORDER BY path LIMIT 1", (pin,)).fetchone()
        if row is not None:
            name, title, category, tags, place, updated = row
            listed = tuple(tag for tag in tags.split(",") if tag)
            found[pin] = _pinned(
                Candidate(
                    name, title, category, tags=listed, updated=updated, root=root, place=place, kind=kind
                )
            )
    return found


def among_files(store: Scan, profile: Profile, pins: Sequence[str], project: str) -> dict[str, Candidate]:
    """Return the entries that `pins` name of a store without an index, by pin."""
    from judgekit.retrieval import update  # noqa: PLC0415 - the exception, not the rule

    entries = [(place, entry) for place, entry in update.entries(store, profile)[0] if entry.problem is None]
    found = {}
    for pin in pins:
        places = set(_places(pin, store.root, project))
        for place, entry in entries:
            if pin not in found and (place in places or entry.id == pin):
                found[pin] = _pinned(
                    Candidate(
                        entry.id,
                        entry.title,
                        entry.category,
                        tags=entry.tags,
                        updated=entry.updated,
                        root=store.root,
                        place=place,
                        kind=profile.kind,
                    )
                )
    return found


def missing(pins: Iterable[str]) -> list[str]:
    """Return a line for stderr about each pin that names nothing."""
    told = "no active memory has this id or path, so nothing is injected for it"
    return [f"retrieval.pin: {pin!r}: {told}" for pin in pins]


def _places(pin: str, root: str, project: str) -> list[str]:
    """Return the paths inside the store at `root` that a pin may stand for."""
    places = []
    for base in (root, os.path.realpath(project)):
        path = os.path.normpath(os.path.join(base, os.path.expanduser(pin)))
        if path.startswith(root.rstrip(os.sep) + os.sep):
            places.append(os.path.relpath(path, root).replace(os.sep, "/"))
    return places


def _pinned(candidate: Candidate) -> Candidate:
    """Give a candidate that no query found what every candidate has."""
    candidate.bm25, candidate.confidence, candidate.confidence_label = 0.0, 1.0, "high"
    candidate.worth_mentioning = True
    return candidate
