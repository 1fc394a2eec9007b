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

from judgekit.text import remove_invisible, replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

RowView: TypeAlias = "dict[str, Any]"

MAX_CHARS = 20_000  # of a text on a page
STATIC_ROWS = 200  # written into the page for readers without scripts
MAX_BYTES = 24_000_000  # of all rows
MAX_PAGE_BYTES = 24_500_000  # bytes of all rows, plus those included twice
_MAX_QUOTES = 20
_MAX_QUOTE_CHARS = 1000  # characters in a quote
_MIN_QUOTE_CHARS = 4  # characters a quote needs to be searched for
_ELLIPSIS_PATTERN = re.compile(r"\u2026|\.\.\.|\[\u2026\]|\[\.\.\.\]")
_USD_DECIMALS = 6  # of an amount in USD


def clean_text(text: str) -> str:
    """Remove invisible characters from a text, and truncate it if it's too long for a page."""
    start = text[: MAX_CHARS + 1]
    shown = remove_invisible(replace_surrogates(start))
    # Say that the text is cut if only its start was read, even if the visible part of that start fits.
    has_unread_rest = len(text) > len(start)
    is_too_long = len(shown) > MAX_CHARS
    if has_unread_rest or is_too_long:
        return shown[:MAX_CHARS] + " … (cut here)"
    return shown


def mark_quotes(text: str, quotes: Iterable[str]) -> list[str]:
    """Split a text into alternating segments: unquoted, quoted, unquoted and so on."""
    segments = []
    last_end = 0
    for start, end in _merge_spans(_find_quotes(text, quotes)):
        unquoted = text[last_end:start]
        quoted = text[start:end]
        segments += [unquoted, quoted]
        last_end = end
    return [*segments, text[last_end:]]


def _merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort spans by their start, and merge those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        is_connected = bool(merged) and start <= merged[-1][1]
        if is_connected:
            last_start, last_end = merged.pop()
            merged.append((last_start, max(last_end, end)))
        else:
            merged.append((start, end))
    return merged


def _find_quotes(text: str, quotes: Iterable[str]) -> list[tuple[int, int]]:
    """Find quotes in a text, ignoring case and whitespace. Returns the start and end of each match.

    If a quote contains an ellipsis, the parts before and after it are searched for separately.
    """
    spans = []
    for quote in list(quotes)[:_MAX_QUOTES]:
        shortened_quote = quote[:_MAX_QUOTE_CHARS]
        for quote_part in _ELLIPSIS_PATTERN.split(shortened_quote):
            match = _find_quote_part(text, quote_part)
            if match:
                spans.append(match.span())
    return spans


def _find_quote_part(text: str, quote_part: str) -> re.Match[str] | None:
    """Find a part of a quote in a text, with any whitespace between its words.

    Returns None if the text doesn't contain the part, or if it's too short to be searched for.
    """
    without_marks = quote_part.strip(" \n\t\"'\u201c\u201d")
    words = without_marks.split()
    is_too_short = len(" ".join(words)) < _MIN_QUOTE_CHARS
    if is_too_short:
        return None

    pattern = r"\s+".join(map(re.escape, words))
    return re.search(pattern, text, re.IGNORECASE)


def format_amount(usd: float | None) -> str:
    """Format a cost in USD without trailing zeros, such as "0.25". Returns "" if it's unknown."""
    if usd is None:
        return ""

    rounded = f"{usd:.{_USD_DECIMALS}f}"
    looks_free = usd != 0 and float(rounded) == 0
    if looks_free:
        return f"{usd:.1e}"
    return rounded.rstrip("0").rstrip(".")


def format_scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{clean_text(name)} {score:g}" for name, score in scores.items())


def drop_empty(**values: object) -> RowView:
    """Return the values that aren't empty, by name."""
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
        row_json = _format_row(view)
        full_rank = (*rank, self.total)  # the row's number keeps the order within a rank
        self._ranked.append((full_rank, row_json))

        # Dropping rows means sorting them all, so wait until there's twice as much as fits on the page.
        self._bytes += len(row_json.encode())
        if self._bytes > 2 * MAX_BYTES:
            self._drop_excess()

    def _drop_excess(self) -> None:
        """Drop the last-ranked rows if all rows together are too large for the page."""
        self._ranked.sort(key=itemgetter(0))
        self._bytes = 0
        for index, (_, row_json) in enumerate(self._ranked):
            row_bytes = len(row_json.encode()) + 1  # with the comma
            if self._bytes + row_bytes > MAX_BYTES:
                self._drop_rows_from(index)
                break
            self._bytes += row_bytes

    def _drop_rows_from(self, index: int) -> None:
        """Drop the rows from this index on, and note the rank of the last row that's kept."""
        del self._ranked[index:]
        if self._ranked:
            last_rank, _ = self._ranked[-1]
            self._last_kept = last_rank
        else:
            # No rank is below (), so there's no room for any row from now on.
            self._last_kept = ()

    def finish(self) -> ShownRows:
        """Drop rows that don't fit on the page, and return the others in the form that its template needs."""
        self._drop_excess()
        json_rows = [row_json for _, row_json in self._ranked]
        json_list = f"[{','.join(json_rows)}]"
        # The template writes these rows as HTML, so it needs their values.
        static_rows = [json.loads(row_json) for row_json in self._choose_static_rows(json_rows)]
        return ShownRows(
            columns=self.columns,
            data=json_list,
            first=static_rows,
            shown=len(json_rows),
            total=self.total,
            note=self.note,
        )

    def _choose_static_rows(self, lines: Sequence[str]) -> Sequence[str]:
        """Choose the first rows, which the page also contains as HTML, for readers without scripts."""
        room = MAX_PAGE_BYTES - self._bytes  # in bytes
        for index, row_json in enumerate(lines[:STATIC_ROWS]):
            room -= 2 * len(row_json.encode())  # the markup takes about as much as the row
            if room < 0:
                return lines[:index]
        return lines[:STATIC_ROWS]


def _format_row(view: RowView) -> str:
    """Format a row as compact JSON for the page's script element."""
    row_json = json.dumps(view, ensure_ascii=False, separators=(",", ":"))
    # A text with "</script>" would end the element.
    return row_json.replace("<", "\\u003c")


class ShownRows(NamedTuple):
    """A page's rows: all of them as JSON (`data`), and the `first` ones for readers without scripts too."""

    columns: Sequence[Column]
    data: str
    first: Sequence[RowView]
    shown: int
    total: int
    note: str = ""
