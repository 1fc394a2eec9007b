"""Reads the rules of `secret_rules.toml`, and finds the secrets that take more than a word and its name.

These are tables, manifests, phrases, codes and private keys. A private key is found between its header and
its end, whatever stands before each line of it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


Span: TypeAlias = tuple[int, int]
PRIVATE_KEY, PHRASE = "private key", "seed phrase"


class SecretMatch(NamedTuple):
    """A secret in a text, from `start` up to `end`."""

    start: int
    end: int
    kind: str


RULES: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("secret_rules.toml").read_text("utf-8"))


def whole(text: str) -> str:
    """Return a pattern, or words, with the parts put in that it names."""
    for name, part in RULES["parts"].items():
        text = text.replace(f"(?&{name})", part)
    return text


RE: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile(whole(pattern))
    for section in ("names", "values", "settings", "blocks", "private_keys")
    for name, pattern in RULES[section].items()
}


def line_end(text: str, at: int) -> int:
    """Return where the line ends that a place is in."""
    end = text.find("\n", min(at, len(text)))
    return len(text) if end < 0 else end


def is_mixed(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


_CELL_EDGE: Final = " \t*`\"'_"
_LEAST_CELL: Final = 4
_MOST_ROWS: Final = 500
_LONGEST_ROW: Final = 2000
_PHRASE_NAMES: Final = ("seed", "mnemonic", "phrase", "bip39", "bip-39", "wallet", "words")
_PHRASE_WORDS: Final[tuple[int, ...]] = (12, 15, 18, 21, 24)


def blocks(lower: str, lines: list[Span]) -> Iterator[SecretMatch]:
    """Yield the secrets that take more than a word and its name; `lines` of the text may name them."""
    for start, end in lines:
        at = start
        while at < end:
            stop = line_end(lower, at)
            line = lower[at:stop] if stop - at <= _LONGEST_ROW else ""
            if any(mark in line for mark in "|,;\t") and RE["head_cell"].search(lower, at, stop):
                yield from _table(lower, at, stop)
            at = stop + 1
        for header in RE["cookies"].finditer(lower, start, end):
            for crumb in RE["cookie"].finditer(lower, *header.span("all")):
                if is_mixed(crumb[1]):
                    yield SecretMatch(*crumb.span(1), "cookie")
        for head in RE["codes"].finditer(lower, start, end):
            at = head.end()
            while code := RE["code_line"].match(lower, at):
                if any(map(str.isdigit, code[1])):
                    yield SecretMatch(*code.span(1), "recovery code")
                at = code.end()
    if "kind" in lower and "secret" in lower:
        yield from _manifests(lower)
    # The words that a wallet's key is made from: under their name, or as many alone on a line.
    ways = [("lone_phrase", _PHRASE_WORDS, 1 / 6)]  # how many words, and the share of them with an ending
    if any(map(lower.__contains__, _PHRASE_NAMES)):
        ways.append(("named_phrase", (*_PHRASE_WORDS, 11, 13, 25), 1))
    for name, counts, most in ways:
        for match in RE[name].finditer(lower):
            words = re.findall(r"[a-z]{3,8}", match["value"])
            inflected = sum(map(bool, map(RE["inflected"].search, words)))
            usual = len(words) in counts and inflected <= most * len(words)
            if usual and not RE["prose"].search(" ".join(words)):
                yield SecretMatch(*match.span("value"), PHRASE)


def _manifests(lower: str) -> Iterator[SecretMatch]:
    """Yield the values of the data of a Kubernetes secret, in YAML and in JSON."""
    start = 0
    for part in re.split(r"(?m:^)---", lower):
        for data in RE["data"].finditer(part) if RE["manifest"].search(part) else ():
            at = data.end()
            while (entry := RE["entry"].match(part, at)) and len(entry[1]) > len(data[1]):
                yield SecretMatch(start + entry.start(2), start + entry.end(2), "password")
                at = entry.end()
        start += len(part) + 3
    for data in RE["json_data"].finditer(lower) if RE["manifest_json"].search(lower) else ():
        for entry in RE["json_entry"].finditer(lower, *data.span(1)):
            yield SecretMatch(*entry.span(1), "password")


def _table(lower: str, start: int, stop: int) -> Iterator[SecretMatch]:
    """Yield the secrets of the table whose first row, or of the row of two cells, that stands there."""
    line, following = lower[start:stop], lower[stop + 1 : line_end(lower, stop + 1)][:_LONGEST_ROW]
    mark = next(mark for mark in "|,;\t" if mark in line)
    cells = line.split(mark)
    columns = [column for column, cell in enumerate(cells) if RE["head_cell"].fullmatch(cell[:60])]
    inner = [column for column, cell in enumerate(cells) if cell.strip()]
    if not columns or len(inner) < 2:  # noqa: PLR2004 - a column beside it
        return
    rule = RE["rule"].fullmatch(following) or RE["frame"].fullmatch(following)
    pair = len(inner) == 2 and columns == inner[:1]  # noqa: PLR2004 - a name and a value
    if rule and pair and RE["value_cell"].fullmatch(cells[inner[1]]):
        yield from _cells(line, start, "|", [inner[1]])
    if mark == "|" and not rule:
        if line.lstrip()[:1] == "|" and columns[0] in inner[:-1]:
            yield from _cells(line, start, "|", [inner[inner.index(columns[0]) + 1]])
        return
    if mark != "|" and not (
        line[:1].strip()
        and following[:1].strip()
        and all(RE["name_cell"].fullmatch(cell) for cell in cells)
        and following.count(mark) == len(cells) - 1
    ):
        return
    for _ in range(_MOST_ROWS):
        start, stop = stop + 1, line_end(lower, stop + 1)
        row = lower[start : min(stop, start + _LONGEST_ROW)]
        framed = RE["frame"].fullmatch(row)
        if start >= len(lower) or not (mark in row or framed):
            return
        if not framed and (mark != "|" or not RE["rule"].fullmatch(row)):
            yield from _cells(row, start, mark, columns)


def _cells(line: str, start: int, mark: str, columns: list[int]) -> Iterator[SecretMatch]:
    for column, cell in enumerate(line.split(mark)):
        value = cell.strip(_CELL_EDGE)
        long = column in columns and len(value) >= _LEAST_CELL
        if long and " " not in value and any(map(str.isalnum, value)):
            first = start + cell.index(value)
            yield SecretMatch(first, first + len(value), "password")
        start += len(cell) + len(mark)


# Private keys

_LEAST_OF_KEY: Final = 16
_LEAST_IN_FIELD: Final = 40
_MOST_LINES: Final = 600
_MOST_OTHERS: Final = 12


def private_keys(text: str, lower: str) -> Iterator[Span]:
    """Yield from where to where private keys stand; of one with prose within it, what is before and after."""
    at, stop = 0, -1
    known = "begin" in lower or "private-lines" in lower
    while known and (header := RE["header"].search(lower, at)):
        if header.end() > stop:
            stop = _line_break(text, header.end())[0]
        dashes = RE["dashes"].search(text, max(0, header.start() - 24), header.start())
        pieces, at = _material(text, header.end(), stop)
        if any(last - first >= _LEAST_OF_KEY and is_mixed(text[first:last]) for first, last in pieces):
            start, end = (dashes or header).start(), header.end()
            for first, last in pieces:  # as one what is parted by no more than what lines begin with
                between = text[end:first]
                if first > end and not (
                    RE["between"].fullmatch(between) or RE["short_fields"].fullmatch(between)
                ):
                    yield start, end
                    start, end = first, last
                end = max(last, end)
            yield start, end
    since = 0
    for tail in RE["tail"].finditer(lower) if "private" in lower else ():  # the header may be missing
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
    return found.span() if found else (len(text), len(text))


def _material(text: str, start: int, stop: int) -> tuple[list[Span], int]:
    """Return where the parts of a key stand behind its header, and from where to look for the next."""
    pieces: list[Span] = []
    others, at, next_line = 0, start, _line_break(text, stop)[1]
    for _ in range(_MOST_LINES):
        if at >= len(text) or others > _MOST_OTHERS:
            break
        header = RE["header"].search(text, at, stop)
        end = RE["end"].search(text, at, header.start() if header else stop)
        last = end.start() if end else header.start() if header else stop
        line = text[at:last]  # what stands before it may be the letter of an escaped line break
        spans = [match.span() for match in RE["material"].finditer(line)]
        field = RE["field"].match(line)
        if field and all(stop - start < _LEAST_IN_FIELD for start, stop in spans):
            spans = []
        elif not spans:
            for match in RE["spaced"].finditer(line):
                letters = match[0].replace(" ", "")
                small = sum(map(str.islower, letters))
                # Great and small letters and digits change as in key material and in no sentence.
                if (
                    small
                    and any(map(str.isdigit, letters))
                    and (len(letters) - small) * 10 >= 4 * len(letters)
                ):
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
    return [found.span()] if found and RE["between"].fullmatch(text, start, found.start()) else []
