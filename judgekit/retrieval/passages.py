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

HEADING_SEPARATOR = " > "  # between a heading and the one below it
_SECTIONS_QUERY = """SELECT file, line, start, end, words, heading, titles FROM section WHERE file IN (%s)
    ORDER BY file, place"""


class Passage:
    """A section of an entry: its position, its headings, and the frequency of each term."""

    __slots__ = (
        "end",
        "frequencies",
        "heading",
        "heading_stems",
        "line_number",
        "start",
        "title_terms",
        "word_count",
    )

    def __init__(
        self, line: int, start: int, end: int, words: int, heading: str, titles: str
    ) -> None:
        # The section's line in the file; 0 if the text's lines aren't the file's.
        self.line_number = line
        # The section's place in the entry's stemmed body, in characters. `end` is exclusive.
        self.start = start
        self.end = end
        self.heading = heading  # the section's heading after those above it, as written
        self.heading_stems = titles  # the stems of `heading`
        heading_words = len(titles.split())
        self.word_count = words + heading_words  # the words of the section's text and headings
        self.frequencies: dict[int, float] = {}  # by term number
        self.title_terms: set[int] = set()  # the numbers of the terms in `heading_stems`


def read_passages(opened: Index, numbers: Iterable[int]) -> dict[int, list[Passage]]:
    """Return the sections of entries in order, by entry number. Entries without sections are omitted."""
    passages: dict[int, list[Passage]] = {}
    query = _SECTIONS_QUERY % ",".join(map(str, numbers))
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
    for number, occurrences in positions_by_term.items():
        _count_in_bodies(passages, number, sorted(occurrences), profile.weights["body"])
    _count_in_headings(passages, patterns, profile)


def _count_in_bodies(
    passages: Sequence[Passage],
    number: int,
    occurrences: Iterable[tuple[int, float]],
    body_weight: float,
) -> None:
    """Count term `number` in each section's part of the body.

    `occurrences` are the term's positions and weights. They and the sections are sorted.
    """
    first_index = 0  # the first section that doesn't end before the current position
    for position, weight in occurrences:
        while first_index < len(passages) and passages[first_index].end <= position:
            first_index += 1

        # All later sections end after the position, too.
        for index in range(first_index, len(passages)):
            passage = passages[index]
            if passage.start > position:
                break
            frequency_before = passage.frequencies.get(number, 0.0)
            passage.frequencies[number] = frequency_before + body_weight * weight


def _count_in_headings(
    passages: Sequence[Passage], patterns: Sequence[Pattern], profile: Profile
) -> None:
    """Count the terms in each section's headings."""
    counted_titles = None
    frequencies: dict[int, float] = {}
    for passage in passages:
        # Sections split from a long text share their headings, so don't count in them again.
        if passage.heading_stems != counted_titles:
            counted_titles = passage.heading_stems
            frequencies = _count_in_titles(passage.heading_stems, patterns, profile)

        for number, frequency in frequencies.items():
            frequency_before = passage.frequencies.get(number, 0.0)
            passage.frequencies[number] = frequency_before + frequency
            passage.title_terms.add(number)


def _count_in_titles(
    titles: str, patterns: Sequence[Pattern], profile: Profile
) -> dict[int, float]:
    """Return the weighted frequencies of the terms in a section's headings, by term number."""
    frequencies: dict[int, float] = {}
    text = f" {titles} "  # patterns include the spaces around a term
    for pattern in patterns:
        number, needle, _ = pattern
        if needle not in text:  # true of most patterns, and quicker than the call
            continue

        matches = find_pattern(text, pattern, profile.bm25["prefix"])
        match_weights = [match_weight for _, match_weight in matches]
        frequency = profile.weights["title"] * sum(match_weights)
        # A term can have multiple patterns.
        frequencies[number] = frequencies.get(number, 0.0) + frequency
    return frequencies


def name_section(passage: Passage, number: int, title: str) -> FoundSection:
    """Build a section's number, headings and line for display. Omit a heading that equals the title."""
    title_prefix = f"{title}{HEADING_SEPARATOR}"
    return FoundSection(number, passage.heading.removeprefix(title_prefix), passage.line_number)
