"""Ranks without a full-text index: points for words of the query in titles and tags.

For an interpreter whose SQLite has no FTS5, and for who asks for it (`scorer: keyword`). The points are those
of the tool whose store this reads: a tag is worth 3, a word of the title 2, the beginning of either 1.
"""

from __future__ import annotations

import os

from judgekit.retrieval.confidence import Candidate, Hit, Statistics
from judgekit.retrieval.query import Term, excerpt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from judgekit.retrieval.compiled import Language, Profile
    from judgekit.retrieval.sources.base import Entry

MIN_PREFIX = 4
_TAG, _TITLE, _BEGINNING = 3, 2, 1


def words(text: str) -> set[str]:
    """Return the runs of ASCII letters and digits of at least two characters, in small letters."""
    spaced = "".join(char if char.isascii() and char.isalnum() else " " for char in text.lower())
    return {word for word in spaced.split() if len(word) > 1}


def parse(prompt: str, language: Language) -> list[str]:
    """Return the words of a prompt that count, without repetition."""
    return sorted(words(excerpt(prompt)) - language.stop)


def points(word: str, title: set[str], tags: set[str]) -> int:
    """Return what one word of the query is worth in an entry."""
    if word in tags:
        return _TAG
    if word in title:
        return _TITLE
    begins = len(word) >= MIN_PREFIX and any(other.startswith(word) for other in title | tags)
    return _BEGINNING if begins else 0


def match(
    entries: Collection[tuple[str, Entry]], root: str, profile: Profile, prompt: str
) -> tuple[list[Hit], Statistics]:
    """Return the entries of a store that any word occurs in, and how common each is."""
    query = parse(prompt, profile.language)
    hits, counts = [], [0] * len(query)
    for path, entry in entries:
        title, tags = words(entry.title), words(" ".join(entry.tags))
        worth = [points(word, title, tags) for word in query]
        matched = {number for number, point in enumerate(worth) if point}
        for number in matched:
            counts[number] += 1
        if matched:
            candidate = _candidate(root, path, entry, profile)
            candidate.bm25, candidate.damaged = float(sum(worth)), entry.problem is not None
            hit = Hit(candidate, candidate.bm25)
            hit.matched = hit.titled = matched
            hit.text = entry.title.lower()
            hits.append(hit)
    terms = [Term(word, [word], common=word in profile.language.common) for word in query]
    return hits, Statistics(terms, counts, len(entries), profile)


def named(
    entries: Iterable[tuple[str, Entry]], root: str, profile: Profile, pin: str, places: Collection[str]
) -> Candidate | None:
    """Return the first entry that a pin names, by its id or as one of the `places` it may stand for."""
    for path, entry in entries:
        if entry.problem is None and (path in places or entry.id == pin):
            candidate = _candidate(root, path, entry, profile)
            candidate.pin()
            return candidate
    return None


def _candidate(root: str, path: str, entry: Entry, profile: Profile) -> Candidate:
    return Candidate(
        entry.id,
        entry.title,
        entry.category,
        tags=entry.tags,
        updated=entry.updated or os.path.getmtime(os.path.join(root, path)),
        root=root,
        place=path,
        kind=profile.kind,
    )
