"""Finds private keys between their header and their end, whatever stands before each line of them.

A key that is quoted, commented, numbered, indented, escaped or laid out in a table is the same key. Only what
looks like key material belongs to it: whoever opens a block cannot hide prose in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADERS: Final = (
    (
        "begin",
        re.compile(
            r"begin[ _]{0,4}(?:(?:[a-z0-9]{1,12}[ _]{1,4}){0,3}private[ _]{1,4}key(?:[ _]{1,4}block)?(?:[ \t]{0,4}-{2,10})?"
            r"|openvpn static key v1-{2,10})"
        ),
    ),
    ("private-lines", re.compile(r"private-lines:[ \t]{0,4}\d{1,4}")),
)
_NEXT: Final = re.compile("|".join(each.pattern for _, each in _HEADERS), re.IGNORECASE)
_DASHES: Final = re.compile(r"(?:[-\\=]{2,20}[ \t]{0,4}){1,3}\Z")
_END: Final = re.compile(
    r"(?:[-\\=]{2,20}[ \t]{0,4})?END[ _]{0,4}(?:[A-Z0-9]{1,12}[ _]{1,4}){0,3}(?:PRIVATE|STATIC)[ _]{1,4}KEY(?:[ _]{1,4}(?:BLOCK|V1))?"
    r"(?:[ \t]{0,4}[-\\=]{2,20})?|PRIVATE-MAC:[^\n]{0,80}",
    re.IGNORECASE,
)
_TAIL: Final = re.compile(
    r"end[ _]{0,4}(?:[a-z0-9]{1,12}[ _]{1,4}){0,3}private[ _]{1,4}key(?:[ _]block)?-{0,10}"
)
_MATERIAL: Final = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{16,}+={0,2}|[A-Za-z0-9+/]{1,15}={1,2}|={1}[A-Za-z0-9+/]{4})(?![A-Za-z0-9+/=])"
)
_LINE: Final = re.compile(r"[^A-Za-z\n]{0,16}[A-Za-z0-9+/]{8,100}={0,2}[^A-Za-z0-9\n]{0,12}\n")
_LAST: Final = re.compile(
    r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{1,15}(?=(?:[\s\"'+,.\\>#*|/;:-]|\\[nr]|<br[ \t]*/?>){0,40}\Z)"
)
_BREAK: Final = re.compile(r"\n|(?<!\\)\\++[nr](?![A-Za-z0-9+/]{0,8}:)|<br[ \t]*/?>", re.IGNORECASE)
_BETWEEN: Final = re.compile(
    r"(?:[^A-Za-z]|\\[nrt]|</?(?:br|p|td|tr|li|code|pre|div|span|b)[ \t]*/?>|&\w{2,6};|\b(?:rem|dnl|nr?|r)\b)*+",
    re.IGNORECASE,
)
_FIELD: Final = re.compile(r"[^A-Za-z]{0,20}[A-Za-z][A-Za-z-]{2,20}:[^\n\\]{0,160}")
_SHORT_FIELD: Final = re.compile(
    r"(?:\s|\\++[nr])*+(?:Proc-Type|DEK-Info|Comment|Version|Charset|Hash):[ \t]*(?:[^\s\\]{1,60}[ ]?){0,4}"
)
_MOST_LINES: Final = 600
_MOST_OTHERS: Final = 12
_SPACED: Final = re.compile(r"[A-Za-z0-9+/]{2,16}(?:[ \t][A-Za-z0-9+/]{2,16}){2,}+={0,2}")


def find(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """Yield from where to where private keys stand; where prose stands within one, what is before and after.

    `lower` is the text in small letters.
    """
    for word, pattern in _HEADERS:
        at, stop = 0, -1
        while word in lower and (header := pattern.search(lower, at)):
            if header.end() > stop:
                stop = _stop(text, header.end())[0]
            dashes = _DASHES.search(text, max(0, header.start() - 24), header.start())
            start = dashes.start() if dashes else header.start()
            pieces, at = _material(text, header.end(), stop)
            if any(_is_key(text[first:last]) for first, last in pieces):
                yield from _joined(text, [(start, header.end()), *pieces])
    if "private" in lower:
        yield from _headless(text, lower)


def _headless(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of key material before an end, whose header may be missing."""
    since = 0
    for end in _TAIL.finditer(lower):
        start = at = text.rfind("\n", since, end.start()) + 1 or end.start()
        for _ in range(_MOST_LINES):
            line = text.rfind("\n", since, max(at - 1, since)) + 1 or since
            if line == at or not _LINE.fullmatch(text, line, at):
                break
            start = at = line
        if _is_key(text[start : end.start()]):
            yield start, end.end()
        since = end.end()


def _is_key(piece: str) -> bool:
    return len(piece) >= _LEAST_OF_KEY and any(map(str.isdigit, piece)) and any(map(str.isalpha, piece))


_LEAST_OF_KEY: Final = 16


def _stop(text: str, start: int) -> tuple[int, int]:
    """Return where a line ends, and where the next one begins."""
    found = _BREAK.search(text, start)
    return found.span() if found else (len(text), len(text))


def _material(text: str, start: int, stop: int) -> tuple[list[tuple[int, int]], int]:
    """Return where the parts of a key stand behind its header, and from where to look for the next.

    `stop` is where the header's line ends.
    """
    pieces: list[tuple[int, int]] = []
    others, at, next_line = 0, start, _stop(text, stop)[1]
    for _ in range(_MOST_LINES):
        if at >= len(text) or others > _MOST_OTHERS:
            break
        next_header = _NEXT.search(text, at, stop)
        end = _END.search(text, at, next_header.start() if next_header else stop)
        last = end.start() if end else next_header.start() if next_header else stop
        found = _in_line(text, at, last)
        pieces += found
        if end:
            tail = _last(text, pieces[-1][1] if pieces else start, end.start())
            return [*pieces, *tail, end.span()] if pieces else [], end.end()
        if next_header:
            return pieces, next_header.start()
        blank = not text[at:last].strip(" \t>#*|/\\+-\"';:.,0123456789")
        others += not (found or blank or _FIELD.match(text, at, last))
        at = next_line
        stop, next_line = _stop(text, at)
    return [*pieces, *_last(text, pieces[-1][1], min(at, pieces[-1][1] + 80))] if pieces else [], max(
        at, start
    )


def _in_line(text: str, start: int, end: int) -> list[tuple[int, int]]:
    line = text[start:end]  # what stands before it may be the letter of an escaped line break
    found = [each.span() for each in _MATERIAL.finditer(line)]
    if _FIELD.match(line) and not any(last - first >= _LEAST_IN_FIELD for first, last in found):
        return []
    found = found or [each.span() for each in _SPACED.finditer(line) if _is_mixture(each[0])]
    return [(start + first, start + last) for first, last in found]


_LEAST_IN_FIELD: Final = 40


def _is_mixture(value: str) -> bool:
    """Whether great and small letters and digits change as in key material and in no sentence."""
    letters = value.replace(" ", "")
    others = sum(not char.islower() for char in letters)
    return (
        any(map(str.isdigit, letters)) and any(map(str.islower, letters)) and others * 10 >= 4 * len(letters)
    )


def _last(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return where the last, short line of a key stands, before its end."""
    found = _LAST.search(text, max(start, end - 60), end)
    return [found.span()] if found and _BETWEEN.fullmatch(text, start, found.start()) else []


def _joined(text: str, pieces: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts, those as one between which nothing stands but what lines begin with."""
    start, end = pieces[0]
    for first, last in pieces[1:]:
        between = text[end:first]
        if first <= end or _BETWEEN.fullmatch(between) or _SHORT_FIELDS.fullmatch(between):
            end = max(last, end)
        else:
            yield start, end
            start, end = first, last
    yield start, end


_SHORT_FIELDS: Final = re.compile(rf"(?:{_SHORT_FIELD.pattern}|(?:\s|\\+[nr]|[^A-Za-z]){{1,80}}){{0,12}}+")
