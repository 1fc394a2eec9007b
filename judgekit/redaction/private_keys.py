"""Finds private keys between their header and their end, whatever stands before each line of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from judgekit.redaction.secret_rules import RE, Span
from judgekit.redaction.values import is_mixed

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAST_OF_KEY: Final = 16
_LEAST_IN_FIELD: Final = 40
_MOST_LINES: Final = 600
_MOST_OTHERS: Final = 12


def private_keys(text: str, lower: str) -> Iterator[Span]:
    """Yield from where to where private keys stand; of one with prose within it, what is before and after."""
    at = 0
    stop = -1
    known = "begin" in lower or "private-lines" in lower
    while known and (header := RE["header"].search(lower, at)):
        if header.end() > stop:
            stop = _line_break(text, header.end())[0]
        dashes = RE["dashes"].search(text, max(0, header.start() - 24), header.start())
        pieces, at = _material(text, header.end(), stop)
        if any(
            last - first >= _LEAST_OF_KEY and is_mixed(text[first:last]) for first, last in pieces
        ):
            start = (dashes or header).start()
            end = header.end()
            for (
                first,
                last,
            ) in pieces:  # as one what is parted by no more than what lines begin with
                forms = (RE["between"], RE["short_fields"])
                between = text[end:first]
                if first > end and not any(form.fullmatch(between) for form in forms):
                    yield start, end
                    start = first
                    end = last
                end = max(last, end)
            yield start, end
    since = 0
    for tail in (
        RE["tail"].finditer(lower) if "private" in lower else ()
    ):  # the header may be missing
        start = text.rfind("\n", since, tail.start()) + 1 or tail.start()
        for _ in range(_MOST_LINES):
            line = text.rfind("\n", since, max(start - 1, since)) + 1 or since
            if line == start or not RE["line"].fullmatch(text, line, start):
                break
            start = line
        if tail.start() - start >= _LEAST_OF_KEY and is_mixed(text[start : tail.start()]):
            yield start, tail.end()
        since = tail.end()


def _line_break(text: str, start: int) -> Span:
    """Return where a line ends, and where the next one begins; the break may be escaped."""
    found = RE["break"].search(text, start)
    if found:
        return found.span()
    return (len(text), len(text))


def _material(text: str, start: int, stop: int) -> tuple[list[Span], int]:
    """Return where the parts of a key stand behind its header, and from where to look for the next."""
    pieces: list[Span] = []
    others = 0
    at = start
    next_line = _line_break(text, stop)[1]
    for _ in range(_MOST_LINES):
        if at >= len(text) or others > _MOST_OTHERS:
            break
        header = RE["header"].search(text, at, stop)
        end = RE["end"].search(text, at, header.start() if header else stop)
        if end:
            last = end.start()
        else:
            last = header.start() if header else stop
        line = text[at:last]  # what stands before it may be the letter of an escaped line break
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
            tail = _last(text, pieces[-1][1] if pieces else start, end.start())
            return [*pieces, *tail, end.span()] if pieces else [], end.end()
        if header:
            return pieces, header.start()
        others += not (spans or field or not line.strip(" \t>#*|/\\+-\"';:.,0123456789"))
        at = next_line
        stop, next_line = _line_break(text, at)
    if pieces:
        pieces += _last(text, pieces[-1][1], min(at, pieces[-1][1] + 80))
    return pieces, max(at, start)


def _last(text: str, start: int, end: int) -> list[Span]:
    """Return where the last, short line of a key stands, before its end."""
    found = RE["last"].search(text, max(start, end - 60), end)
    if found and RE["between"].fullmatch(text, start, found.start()):
        return [found.span()]
    return []
