"""Finds private keys between their header and their end, whatever prefix their lines have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import RE, Span
from judgekit.redaction.values import is_mixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LEAST_OF_KEY = 16
_LEAST_IN_FIELD = 40
_MOST_LINES = 600
_MOST_OTHERS = 12


def private_keys(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of private keys; a key with prose inside yields the parts before and after it."""
    if "begin" in lower or "private-lines" in lower:
        yield from _keys_with_header(text, lower)
    if "private" in lower:
        yield from _keys_before_tail(text, lower)


def _keys_with_header(text: str, lower: str) -> Iterator[Span]:
    at = 0
    stop = -1
    while header := RE["header"].search(lower, at):
        if header.end() > stop:
            stop = _find_line_break(text, header.end())[0]
        dashes = RE["dashes"].search(text, max(0, header.start() - 24), header.start())
        pieces, at = _find_material(text, header.end(), stop)
        if any(_may_be_key(text[first:last]) for first, last in pieces):
            start = (dashes or header).start()
            yield from _join_pieces(text, start, header.end(), pieces)


def _join_pieces(text: str, start: int, end: int, pieces: Iterable[Span]) -> Iterator[Span]:
    """Yield a span and the pieces behind it, joined if only line prefixes are in between."""
    for first, last in pieces:
        between = text[end:first]
        if between and not (
            RE["between"].fullmatch(between) or RE["short_fields"].fullmatch(between)
        ):
            yield start, end
            start = first
            end = last
        end = max(last, end)
    yield start, end


def _keys_before_tail(text: str, lower: str) -> Iterator[Span]:
    """Yield the keys whose last line is there; their header may be missing."""
    since = 0
    for tail in RE["tail"].finditer(lower):
        start = text.rfind("\n", since, tail.start()) + 1 or tail.start()
        for _ in range(_MOST_LINES):
            line = text.rfind("\n", since, max(start - 1, since)) + 1 or since
            if line == start or not RE["line"].fullmatch(text, line, start):
                break
            start = line
        if _may_be_key(text[start : tail.start()]):
            yield start, tail.end()
        since = tail.end()


def _may_be_key(text: str) -> bool:
    return len(text) >= _LEAST_OF_KEY and is_mixed(text)


def _find_line_break(text: str, start: int) -> Span:
    """Return the end of a line, and the start of the next; the break may be escaped."""
    found = RE["break"].search(text, start)
    if found:
        return found.span()
    return (len(text), len(text))


def _find_material(text: str, start: int, stop: int) -> tuple[list[Span], int]:
    """Return the spans of a key behind its header, and the position to search on from."""
    pieces: list[Span] = []
    others = 0
    at = start
    next_line = _find_line_break(text, stop)[1]
    for _ in range(_MOST_LINES):
        if at >= len(text) or others > _MOST_OTHERS:
            break
        header = RE["header"].search(text, at, stop)
        end = RE["end"].search(text, at, header.start() if header else stop)
        if end:
            last = end.start()
        else:
            last = header.start() if header else stop
        line = text[at:last]  # the character before it may be the letter of an escaped line break
        spans = [match.span() for match in RE["material"].finditer(line)]
        field = RE["field"].match(line)
        if field and all(stop - start < _LEAST_IN_FIELD for start, stop in spans):
            spans = []
        elif not spans:
            for match in RE["spaced"].finditer(line):
                letters = match[0].replace(" ", "")
                small = sum(map(str.islower, letters))
                many = (len(letters) - small) * 10 >= 4 * len(letters)
                # Great and small letters and digits change as in key material and in no sentence.
                if small and many and any(map(str.isdigit, letters)):
                    spans.append(match.span())
        pieces += [(at + start, at + stop) for start, stop in spans]
        if end:
            tail = _find_last_line(text, pieces[-1][1] if pieces else start, end.start())
            return [*pieces, *tail, end.span()] if pieces else [], end.end()
        if header:
            return pieces, header.start()
        others += not (spans or field or not line.strip(" \t>#*|/\\+-\"';:.,0123456789"))
        at = next_line
        stop, next_line = _find_line_break(text, at)
    if pieces:
        pieces += _find_last_line(text, pieces[-1][1], min(at, pieces[-1][1] + 80))
    return pieces, max(at, start)


def _find_last_line(text: str, start: int, end: int) -> list[Span]:
    """Return the span of a key's short last line, which is right before its end marker."""
    found = RE["last"].search(text, max(start, end - 60), end)
    if found and RE["between"].fullmatch(text, start, found.start()):
        return [found.span()]
    return []
