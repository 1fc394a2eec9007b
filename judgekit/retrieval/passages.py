"""Finds the section of a long entry that answers a query best.

Sections have a table of their own, which is read for the leading entries. A section is scored as an entry is:
its headings, and the titles and tags of its entry, count as its titles.
"""

from __future__ import annotations

from judgekit.retrieval.confidence import FoundSection
from judgekit.retrieval.terms import find_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.terms import Pattern

JOINED = " > "  # between a heading and the one below it
_SECTIONS_IN = """SELECT file, line, start, end, words, heading, titles FROM section WHERE file IN (%s)
    ORDER BY file, place"""


class Passage:
    """A section of an entry: its position, its headings, and the frequency of each term."""

    __slots__ = (
        "end",
        "frequencies",
        "heading",
        "length",
        "line",
        "start",
        "title_terms",
        "titles",
    )

    def __init__(
        self, line: int, start: int, end: int, words: int, heading: str, titles: str
    ) -> None:
        self.line = line
        self.start = start
        self.end = end
        self.heading = heading
        self.titles = titles
        self.length = words + len(titles.split())
        self.frequencies: dict[int, float] = {}
        self.title_terms: set[int] = set()


def read_passages(opened: Index, numbers: Iterable[int]) -> dict[int, list[Passage]]:
    """Return the sections of entries in order, by entry number. Entries without sections are omitted."""
    passages: dict[int, list[Passage]] = {}
    query = _SECTIONS_IN % ",".join(map(str, numbers))
    heading = ""
    titles = ""
    rows = opened.connection.execute(query)
    for number, line, start, end, words, new_heading, new_titles in rows:
        if new_heading is not None:  # if a heading has multiple sections, only the first row has it
            heading = new_heading
            titles = new_titles
        if number not in passages:
            passages[number] = []
        passages[number].append(Passage(line, start, end, words, heading, titles))

    return passages


def count_in_passages(
    passages: Sequence[Passage],
    positions_by_term: Mapping[int, list[tuple[int, float]]],
    patterns: Sequence[Pattern],
    profile: Profile,
) -> None:
    """Count the terms in each section, in its part of the body and in its headings.

    `positions_by_term` are the weighted positions of terms in the entry's body. Sections are sorted, but may
    overlap.
    """
    body_weight = profile.weights["body"]
    for number, occurrences in positions_by_term.items():
        first_number = 0  # the first section that doesn't end before the position
        for position, weight in sorted(occurrences):
            while first_number < len(passages) and passages[first_number].end <= position:
                first_number += 1
            passage_number = first_number
            while passage_number < len(passages) and passages[passage_number].start <= position:
                frequencies = passages[passage_number].frequencies
                frequencies[number] = frequencies.get(number, 0.0) + body_weight * weight
                passage_number += 1

    titles = None  # the headings that `title_frequencies` belong to
    title_frequencies: dict[int, float] = {}
    for passage in passages:
        if passage.titles != titles:  # sections split from a long text share their headings
            titles = passage.titles
            title_frequencies = _count_in_titles(titles, patterns, profile)
        for number, title_frequency in title_frequencies.items():
            frequency_before = passage.frequencies.get(number, 0.0)
            passage.frequencies[number] = frequency_before + title_frequency
            passage.title_terms.add(number)


def _count_in_titles(
    titles: str, patterns: Sequence[Pattern], profile: Profile
) -> dict[int, float]:
    """Return the weights of the terms that occur in a section's headings, by term number."""
    frequencies: dict[int, float] = {}
    text = f" {titles} "  # patterns include the spaces around a term
    for pattern in patterns:
        number, needle, _ = pattern
        if needle in text:
            matches = find_pattern(text, pattern, profile.bm25["prefix"])
            weight = profile.weights["title"] * sum([match_weight for _, match_weight in matches])
            frequencies[number] = frequencies.get(number, 0.0) + weight
    return frequencies


def name_section(passage: Passage, number: int, title: str) -> FoundSection:
    """Build a section's number, headings and line for display. Omit a heading that equals the title."""
    title_prefix = f"{title}{JOINED}"
    return FoundSection(number, passage.heading.removeprefix(title_prefix), passage.line)
