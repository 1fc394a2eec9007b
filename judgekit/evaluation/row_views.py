"""Rows for people to look at: the texts with quotes marked, each judge's answer, and the reasons.

A row is a JSON object that the page's template and its script both read. Empty values are left out and
numbers are strings, so that both show the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit.text import encodable, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RowView: TypeAlias = "dict[str, Any]"

MAX_CHARS = 20_000  # of a text on a page
STATIC_ROWS = 200  # written into the page for readers without scripts
MAX_BYTES = 24_000_000  # of all rows
MAX_PAGE = 24_500_000  # bytes of all rows, plus those included twice
_MAX_QUOTES = 20
_MAX_QUOTE_CHARS = 1000  # characters in a quote
_MIN_QUOTE_CHARS = 4  # characters a quote needs to be searched for
_ELLIPSIS = re.compile(r"\u2026|\.\.\.|\[\u2026\]|\[\.\.\.\]")
_DIGITS = 6  # of an amount in USD


def shown_text(text: str) -> str:
    """Remove invisible characters from a text, and truncate it if it's too long for a page."""
    text = visible(encodable(text[: MAX_CHARS + 1]))
    if len(text) > MAX_CHARS:
        return text[:MAX_CHARS] + " … (cut here)"
    return text


def mark_quotes(text: str, quotes: Iterable[str]) -> list[str]:
    """Split a text into alternating segments: unquoted, quoted, unquoted and so on."""
    segments: list[str] = []
    end = 0  # where the last quoted segment ended
    for quote_start, quote_end in sorted(_find_quotes(text, quotes)):
        if quote_end <= end:
            continue
        start = max(quote_start, end)  # quotes can overlap
        if start == end and segments:  # extend the previous quote
            segments[-1] += text[start:quote_end]
        else:
            segments += [text[end:start], text[start:quote_end]]
        end = quote_end
    return [*segments, text[end:]]


def _find_quotes(text: str, quotes: Iterable[str]) -> list[tuple[int, int]]:
    """Find quotes in a text, ignoring case and whitespace. Returns the start and end of each match.

    If a quote contains an ellipsis, the parts before and after it are searched for separately.
    """
    spans: list[tuple[int, int]] = []
    for quote in list(quotes)[:_MAX_QUOTES]:
        for quote_part in _ELLIPSIS.split(quote[:_MAX_QUOTE_CHARS]):
            words = quote_part.strip(" \n\t\"'\u201c\u201d").split()
            if len(" ".join(words)) < _MIN_QUOTE_CHARS:
                continue

            # Any whitespace can be between the words.
            pattern = r"\s+".join(map(re.escape, words))
            match = re.search(pattern, text, re.IGNORECASE)
            if match:
                spans.append(match.span())
    return spans


def amount(usd: float | None) -> str:
    """Format a cost in USD. Returns "" if it's unknown."""
    if usd is None:
        return ""
    text = f"{usd:.{_DIGITS}f}".rstrip("0").rstrip(".")
    return text if float(text) or not usd else f"{usd:.1e}"


def scores_text(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{shown_text(name)} {score:g}" for name, score in scores.items())


def filled(**values: object) -> RowView:
    """Keep the values that aren't empty."""
    return {name: value for name, value in values.items() if value not in ("", None, [], {})}


class Column(NamedTuple):
    """A column in the list of rows: its heading, and the key of its cells."""

    name: str
    key: str


@dataclass
class RowList:
    """A page's rows, the most important first, as many as there's room for."""

    columns: Sequence[Column] = ()
    note: str = ""
    total: int = 0
    _ranked: list[tuple[tuple[float, ...], str]] = field(default_factory=list)
    _bytes: int = 0
    _last_kept: tuple[float, ...] | None = None  # the last row's rank, if some were dropped

    def has_room(self, *rank: float) -> bool:
        """Whether the page has room for a row with this rank."""
        return self._last_kept is None or rank < self._last_kept[: len(rank)]

    def skip(self) -> None:
        """Count a row that there's no room for."""
        self.total += 1

    def add(self, view: RowView, *rank: float) -> None:
        """Add a row. Rows are sorted by `rank`, lowest first. Rows with the same rank keep their order."""
        self.total += 1
        row_json = json.dumps(view, ensure_ascii=False, separators=(",", ":")).replace(
            "<", "\\u003c"
        )
        self._ranked.append(((*rank, self.total), row_json))
        self._bytes += len(row_json.encode())
        if self._bytes > 2 * MAX_BYTES:
            self._drop_excess()

    def _drop_excess(self) -> None:
        """Drop the last-ranked rows if all rows together are too large for the page."""
        self._ranked.sort(key=itemgetter(0))
        size = 0
        for index, (_, row_json) in enumerate(self._ranked):
            size += len(row_json.encode()) + 1  # with the comma
            if size > MAX_BYTES:
                del self._ranked[index:]
                self._last_kept = self._ranked[-1][0] if self._ranked else ()
                break
        self._bytes = size

    def finish(self) -> ShownRows:
        """Drop rows that don't fit on the page, and return the others in the form that its template needs."""
        self._drop_excess()
        json_rows = [row_json for _, row_json in self._ranked]
        return ShownRows(
            columns=self.columns,
            data=f"[{','.join(json_rows)}]",
            first=[json.loads(row_json) for row_json in self._choose_static_rows(json_rows)],
            shown=len(json_rows),
            total=self.total,
            note=self.note,
        )

    def _choose_static_rows(self, lines: Sequence[str]) -> Sequence[str]:
        """Choose the first rows, which the page also contains as HTML, for readers without scripts."""
        room = MAX_PAGE - self._bytes  # in bytes
        for index, row_json in enumerate(lines[:STATIC_ROWS]):
            room -= 2 * len(row_json.encode())  # the markup takes about as much as the row
            if room < 0:
                return lines[:index]
        return lines[:STATIC_ROWS]


class ShownRows(NamedTuple):
    """A page's rows: all of them as JSON (`data`), and the `first` ones for readers without scripts too."""

    columns: Sequence[Column]
    data: str
    first: Sequence[RowView]
    shown: int
    total: int
    note: str = ""
