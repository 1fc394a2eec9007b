"""Finds values that are secrets by where they stand: in a table's column, a manifest, a header, a list of words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[int, int, str]

_NAME: Final = r"(?:[\w .-]{0,30}[ _.-])?(?:password|passwd|passphrase|passwort|kennwort|mot de passe|mdp|contrasena|clave|senha|wachtwoord|parola|pin|pass|pwd|pw|secret|token|psk|api[ _-]?key|secret[ _-]?key|access[ _-]?key|credentials?)"
_HEAD_CELL: Final = re.compile(rf"(?:(?<=[|,;\t])|(?m:^))[ \t*`\"'_]*{_NAME}[ \t*`\"'_]*(?=[|,;\t\n]|\Z)")
_RULE: Final = re.compile(r"[ \t>#*/]*\|?[ \t:|-]*-(?:-|[ \t:]*\|)[ \t:|-]*")
_VALUE_CELL: Final = re.compile(r"[ \t*`\"'_]*(?=\S*[a-z])(?=\S*\d)\S{10,200}[ \t]*")
_FRAME: Final = re.compile(r"[ \t]*\+[-=+]{3,}\+[ \t]*")
_MOST_ROWS: Final = 500
_CELL_EDGE: Final = " \t*`\"'_"

_MANIFEST: Final = re.compile(
    r"(?m:^)[\"' \t{-]*kind[\"']?:[ \t]*[\"']?(?:secret|sealedsecret)[\"']?[ \t,]*$", re.MULTILINE
)
_DATA: Final = re.compile(r"(?m:^)([ \t]*)(?:string)?data:[ \t]*\n")
_ENTRY: Final = re.compile(
    r"([ \t]+)[\w.-]{1,100}:[ \t]*[\"']?([^\s\"'#|>{][^\s\"']{3,2000})[\"']?[ \t]*(?:\n|\Z)"
)
_MANIFEST_JSON: Final = re.compile(r"\"kind\"\s{0,4}:\s{0,4}\"secret\"")
_JSON_DATA: Final = re.compile(r"\"(?:string)?data\"\s{0,4}:\s{0,4}\{([^{}]{1,20000}+)\}")
_JSON_ENTRY: Final = re.compile(r"\"[^\"\n]{1,100}+\"\s{0,4}:\s{0,4}\"([^\"\n]{4,4000}+)\"")

_COOKIE: Final = re.compile(
    r"(?:\bcookie[\"']?[ \t]*[:=,]|[ \t]-b[ \t]|--cookie[ =])[ \t]*[\"']?(?P<all>[^\n\"']{8,2000}+)"
)
_CRUMB: Final = re.compile(r"[\w.%-]{1,60}=([\w%+/=.~:|-]{10,}+)")

_PHRASE: Final = re.compile(
    r"(?:seed(?:[ _-]?(?:phrase|words?))?|mnemonic(?:[ _-]?(?:phrase|words?))?|recovery[ _-]?(?:phrase|seed|words)|backup[ _-]?(?:phrase|words|seed)|secret[ _-]?phrase"
    r"|wallet[ _-]?(?:words|phrase|backup|seed)|bip-?39|pass[ _-]?phrase|secret[ _-]?recovery[ _-]?phrase|phrase|words)"
    r"[^a-z\n]{0,12}(?:(?:is|are|words?|of|the|my|our|wallet)[^a-z\n]{1,6}){0,4}[:=\s\"'`(\[*>-]{0,40}(?P<value>(?:\d{1,2}[.):][ \t]*)?[a-z]{3,8}(?:(?:[ \t,|\"']{1,6}|[\",]{0,2}[ \t]*\n[ \t>*|\"-]{0,8})(?:\d{1,2}[.):][ \t]*)?[a-z]{3,8}(?![a-z])){10,23}+)(?![a-z])"
)
_LONE_PHRASE: Final = re.compile(
    r"(?m:^)[ \t>\"'`*-]{0,8}(?P<value>[a-z]{3,8}(?: [a-z]{3,8}){11,23})[\"'`*]{0,3}[ \t]*$", re.MULTILINE
)
PROSE: Final = frozenset(
    [
        "the",
        "and",
        "for",
        "are",
        "was",
        "not",
        "with",
        "from",
        "have",
        "has",
        "had",
        "but",
        "his",
        "her",
        "its",
        "our",
        "out",
        "per",
        "were",
        "been",
        "will",
        "would",
        "could",
        "should",
        "than",
        "then",
        "them",
        "these",
        "those",
        "their",
        "there",
        "which",
        "while",
        "where",
        "who",
        "whom",
        "why",
        "how",
        "may",
        "might",
        "must",
        "shall",
        "does",
        "did",
        "done",
        "each",
        "for",
        "into",
        "onto",
        "upon",
        "also",
        "you",
        "your",
        "they",
        "him",
        "she",
        "what",
        "some",
        "such",
        "any",
        "more",
        "most",
        "less",
        "least",
        "using",
        "used",
        "use",
        "can",
        "get",
        "got",
        "set",
        "let",
        "see",
        "being",
        "here",
    ]
)
_PHRASE_WORDS: Final = frozenset({12, 15, 18, 21, 24, 11, 13, 25})
_LONE_WORDS: Final = frozenset({12, 15, 18, 21, 24})
_WORD: Final = re.compile(r"[a-z]{3,8}")
_ENDS: Final = (
    "ing",
    "ed",
    "tion",
    "ly",
    "ions",
    "ment",
    "ies",
    "ers",
    "ss",
    "es",
    "ts",
    "ns",
    "rs",
    "ds",
    "ks",
    "ms",
    "ls",
)

_CODES: Final = re.compile(
    r"(?:recovery|backup|scratch|emergency|one[ -]time|2fa|mfa)[ _-]?(?:codes?|keys?)\b[^\n]{0,80}\n(?:[ \t]*\n)?"
)
_CODE: Final = re.compile(
    r"[ \t>*#-]*(?:\d{1,2}[.)][ \t]+)?[`\"']?((?:[a-z0-9]{4,10}[- ][a-z0-9]{4,10}(?:[- ][a-z0-9]{4,10}){0,6}|(?=[a-z]*\d)[a-z0-9]{8,16}))[`\"']?,?[ \t]*(?:\n|\Z)"
)
_UNTIL_BLANK: Final = re.compile(r"[^\n]*")


def find(lower: str, lines: list[tuple[int, int]]) -> Iterator[Place]:
    """Yield where such values stand in a text in small letters and what they are; `lines` may name them."""
    for start, end in lines:
        yield from _tables(lower, start, end)
    if "kind" in lower and "secret" in lower:
        yield from _manifests(lower)
    for start, end in lines:
        yield from _cookies(lower, start, end)
    yield from _phrases(lower)
    for start, end in lines:
        for head in _CODES.finditer(lower, start, end):
            at = head.end()
            while code := _CODE.match(lower, at):
                if any(map(str.isdigit, code[1])):
                    yield (*code.span(1), "recovery code")
                at = code.end()


def _cookies(lower: str, start: int, end: int) -> Iterator[Place]:
    for header in _COOKIE.finditer(lower, start, end):
        for crumb in _CRUMB.finditer(lower, *header.span("all")):
            value = lower[slice(*crumb.span(1))]
            if any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
                yield (*crumb.span(1), "cookie")


def _tables(lower: str, start: int, end: int) -> Iterator[Place]:
    """Yield what stands in the columns, and in the rows of two cells, that have the name of a secret."""
    while start < end:
        stop = _line_end(lower, start)
        line = lower[start:stop] if stop - start <= _LONGEST_ROW else ""
        if any(mark in line for mark in "|,;\t") and _HEAD_CELL.search(lower, start, stop):
            yield from _table(lower, start, stop)
        start = stop + 1


def _table(lower: str, start: int, stop: int) -> Iterator[Place]:
    """Yield the secrets of the table whose first row, or of the row of two cells, that stands there."""
    line, following = lower[start:stop], lower[stop + 1 : _line_end(lower, stop + 1)][:_LONGEST_ROW]
    mark = next((each for each in "|,;\t" if each in line), "")
    cells = line.split(mark) if mark else []
    columns = [place for place, cell in enumerate(cells) if _HEAD_CELL.fullmatch(cell[:60])]
    inner = [place for place, cell in enumerate(cells) if cell.strip()]
    if not columns or len(inner) < 2:  # noqa: PLR2004 - a column beside it
        return
    rule = _RULE.fullmatch(following) or _FRAME.fullmatch(following)
    if rule and columns == inner[:1] and len(inner) == 2 and _VALUE_CELL.fullmatch(cells[inner[1]]):  # noqa: PLR2004 - name and value
        yield from _cells(line, start, "|", [inner[1]])
    if mark == "|" and not rule:
        if line.lstrip()[:1] == "|" and columns[0] in inner[:-1]:
            yield from _cells(line, start, "|", [inner[inner.index(columns[0]) + 1]])
        return
    if mark != "|" and not (
        line[:1].strip()
        and following[:1].strip()
        and all(_NAME_CELL.fullmatch(cell) for cell in cells)
        and following.strip()
        and following.count(mark) == len(cells) - 1
    ):
        return
    for _ in range(_MOST_ROWS):
        start, stop = stop + 1, _line_end(lower, stop + 1)
        row = lower[start : min(stop, start + _LONGEST_ROW)]
        if start >= len(lower) or not (mark in row or _FRAME.fullmatch(row)):
            return
        if _FRAME.fullmatch(row):
            continue
        if mark != "|" or not _RULE.fullmatch(row):
            yield from _cells(row, start, mark, columns)


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", min(at, len(text)))
    return len(text) if found < 0 else found


_LONGEST_ROW: Final = 2000
_NAME_CELL: Final = re.compile(r"[ \t\"']*[a-z][\w .-]{0,30}[ \t\"']*")


def _cells(line: str, start: int, mark: str, columns: list[int]) -> Iterator[Place]:
    place = start
    for number, cell in enumerate(line.split(mark)):
        value = cell.strip(_CELL_EDGE)
        if number in columns and len(value) >= 4 and " " not in value and any(map(str.isalnum, value)):  # noqa: PLR2004 - as names
            first = place + cell.index(value)
            yield first, first + len(value), "password"
        place += len(cell) + len(mark)


def _manifests(lower: str) -> Iterator[Place]:
    """Yield the values of the data of a Kubernetes secret, in YAML and in JSON."""
    place = 0
    for part in re.split(r"(?m:^)---", lower):
        if _MANIFEST.search(part):
            for data in _DATA.finditer(part):
                at = data.end()
                while (entry := _ENTRY.match(part, at)) and len(entry[1]) > len(data[1]):
                    yield place + entry.start(2), place + entry.end(2), "password"
                    at = entry.end()
        place += len(part) + 3
    if _MANIFEST_JSON.search(lower):
        for found in _JSON_DATA.finditer(lower):
            for entry in _JSON_ENTRY.finditer(lower, *found.span(1)):
                yield (*entry.span(1), "password")


def _phrases(lower: str) -> Iterator[Place]:
    """Yield the words that a wallet's key is made from: under their name, or as many alone on a line."""
    if any(word in lower for word in ("seed", "mnemonic", "phrase", "bip39", "bip-39", "wallet", "words")):
        for found in _PHRASE.finditer(lower):
            words = _WORD.findall(found["value"])
            if len(words) in _PHRASE_WORDS and not PROSE.intersection(words):
                yield (*found.span("value"), "seed phrase")
    for found in _LONE_PHRASE.finditer(lower):
        words = found["value"].split(" ")
        if (
            len(words) in _LONE_WORDS
            and not PROSE.intersection(words)
            and sum(map(_is_ended, words)) * 6 <= len(words)
        ):
            yield (*found.span("value"), "seed phrase")


def _is_ended(word: str) -> bool:
    return word.endswith(_ENDS)
