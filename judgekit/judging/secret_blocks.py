"""Finds the secrets that take more than a word and its name: private keys, tables, manifests, lists of codes.

A private key is found between its header and its end, whatever stands before each line of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

Place = tuple[int, int, str]

PRIVATE_KEY: Final = "private key"
PHRASE: Final = "seed phrase"
PROSE: Final = re.compile(
    r"(?<!\S)(?:the|and|for|are|was|not|with|from|have|has|had|but|his|her|its|our|out|per|were|been|will|would|could"
    r"|should|than|then|them|these|those|their|there|which|while|where|who|whom|why|how|may|might|must|shall|does|did"
    r"|done|each|into|onto|upon|also|you|your|they|him|she|what|some|such|any|more|most|less|least|using|used|use|can"
    r"|get|got|set|let|see|being|here)(?!\S)"
)
"""Words that prose has, and no passphrase."""

_NAME: Final = (
    r"(?:[\w .-]{0,30}[ _.-])?(?:password|passwd|passphrase|passwort|kennwort|mot de passe|mdp|contrasena"
    r"|clave|senha|wachtwoord|parola|pin|pass|pwd|pw|secret|token|psk|api[ _-]?key|secret[ _-]?key"
    r"|access[ _-]?key|credentials?)"
)
_HEAD_CELL: Final = re.compile(rf"(?:(?<=[|,;\t])|(?m:^))[ \t*`\"'_]*{_NAME}[ \t*`\"'_]*(?=[|,;\t\n]|\Z)")
_NAME_CELL: Final = re.compile(r"[ \t\"']*[a-z][\w .-]{0,30}[ \t\"']*")
_VALUE_CELL: Final = re.compile(r"[ \t*`\"'_]*(?=\S*[a-z])(?=\S*\d)\S{10,200}[ \t]*")
_RULE: Final = re.compile(r"[ \t>#*/]*\|?[ \t:|-]*-(?:-|[ \t:]*\|)[ \t:|-]*")
_FRAME: Final = re.compile(r"[ \t]*\+[-=+]{3,}\+[ \t]*")
_CELL_EDGE: Final = " \t*`\"'_"
_LEAST_CELL: Final = 4
_MOST_ROWS: Final = 500
_LONGEST_ROW: Final = 2000

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

_PHRASE_NAMES: Final = ("seed", "mnemonic", "phrase", "bip39", "bip-39", "wallet", "words")
_NAMED_PHRASE: Final = re.compile(
    r"(?:seed(?:[ _-]?(?:phrase|words?))?|mnemonic(?:[ _-]?(?:phrase|words?))?"
    r"|recovery[ _-]?(?:phrase|seed|words)|backup[ _-]?(?:phrase|words|seed)|secret[ _-]?phrase"
    r"|wallet[ _-]?(?:words|phrase|backup|seed)|bip-?39|pass[ _-]?phrase"
    r"|secret[ _-]?recovery[ _-]?phrase|phrase|words)"
    r"[^a-z\n]{0,12}(?:(?:is|are|words?|of|the|my|our|wallet)[^a-z\n]{1,6}){0,4}[:=\s\"'`(\[*>-]{0,40}"
    r"(?P<value>(?:\d{1,2}[.):][ \t]*)?[a-z]{3,8}(?:(?:[ \t,|\"']{1,6}|[\",]{0,2}[ \t]*\n[ \t>*|\"-]{0,8})"
    r"(?:\d{1,2}[.):][ \t]*)?[a-z]{3,8}(?![a-z])){10,23}+)(?![a-z])"
)
_LONE_PHRASE: Final = re.compile(
    r"(?m:^)[ \t>\"'`*-]{0,8}(?P<value>[a-z]{3,8}(?: [a-z]{3,8}){11,23})[\"'`*]{0,3}[ \t]*$", re.MULTILINE
)
_PHRASE_WORDS: Final = frozenset({12, 15, 18, 21, 24, 11, 13, 25})
_LONE_WORDS: Final = frozenset({12, 15, 18, 21, 24})
_WORD: Final = re.compile(r"[a-z]{3,8}")
_INFLECTED: Final = re.compile("(?:ing|ed|tion|ly|ions|ment|ies|ers|ss|es|ts|ns|rs|ds|ks|ms|ls)$")

_CODES: Final = re.compile(
    r"(?:recovery|backup|scratch|emergency|one[ -]time|2fa|mfa)[ _-]?(?:codes?|keys?)\b"
    r"[^\n]{0,80}\n(?:[ \t]*\n)?"
)
_CODE: Final = re.compile(
    r"[ \t>*#-]*(?:\d{1,2}[.)][ \t]+)?[`\"']?((?:[a-z0-9]{4,10}[- ][a-z0-9]{4,10}(?:[- ][a-z0-9]{4,10}){0,6}"
    r"|(?=[a-z]*\d)[a-z0-9]{8,16}))[`\"']?,?[ \t]*(?:\n|\Z)"
)


def line_end(text: str, at: int) -> int:
    """Return where the line ends that a place is in."""
    end = text.find("\n", min(at, len(text)))
    return len(text) if end < 0 else end


def find(lower: str, lines: list[tuple[int, int]]) -> Iterator[Place]:
    """Yield where such values stand in a text in small letters and what they are; `lines` may name them.

    Private keys are not among them.
    """
    for start, end in lines:
        at = start
        while at < end:
            stop = line_end(lower, at)
            line = lower[at:stop] if stop - at <= _LONGEST_ROW else ""
            if any(mark in line for mark in "|,;\t") and _HEAD_CELL.search(lower, at, stop):
                yield from _table(lower, at, stop)
            at = stop + 1
    if "kind" in lower and "secret" in lower:
        yield from _manifests(lower)
    for start, end in lines:
        for header in _COOKIE.finditer(lower, start, end):
            for crumb in _CRUMB.finditer(lower, *header.span("all")):
                if any(map(str.isdigit, crumb[1])) and any(map(str.isalpha, crumb[1])):
                    yield (*crumb.span(1), "cookie")
    yield from _phrases(lower)
    for start, end in lines:
        for head in _CODES.finditer(lower, start, end):
            at = head.end()
            while code := _CODE.match(lower, at):
                if any(map(str.isdigit, code[1])):
                    yield (*code.span(1), "recovery code")
                at = code.end()


def _table(lower: str, start: int, stop: int) -> Iterator[Place]:
    """Yield the secrets of the table whose first row, or of the row of two cells, that stands there."""
    line, following = lower[start:stop], lower[stop + 1 : line_end(lower, stop + 1)][:_LONGEST_ROW]
    mark = next(mark for mark in "|,;\t" if mark in line)
    cells = line.split(mark)
    columns = [column for column, cell in enumerate(cells) if _HEAD_CELL.fullmatch(cell[:60])]
    inner = [column for column, cell in enumerate(cells) if cell.strip()]
    if not columns or len(inner) < 2:  # noqa: PLR2004 - a column beside it
        return
    rule = _RULE.fullmatch(following) or _FRAME.fullmatch(following)
    pair = len(inner) == 2 and columns == inner[:1]  # noqa: PLR2004 - a name and a value
    if rule and pair and _VALUE_CELL.fullmatch(cells[inner[1]]):
        yield from _cells(line, start, "|", [inner[1]])
    if mark == "|" and not rule:
        if line.lstrip()[:1] == "|" and columns[0] in inner[:-1]:
            yield from _cells(line, start, "|", [inner[inner.index(columns[0]) + 1]])
        return
    if mark != "|" and not (
        line[:1].strip()
        and following[:1].strip()
        and all(_NAME_CELL.fullmatch(cell) for cell in cells)
        and following.count(mark) == len(cells) - 1
    ):
        return
    for _ in range(_MOST_ROWS):
        start, stop = stop + 1, line_end(lower, stop + 1)
        row = lower[start : min(stop, start + _LONGEST_ROW)]
        framed = _FRAME.fullmatch(row)
        if start >= len(lower) or not (mark in row or framed):
            return
        if not framed and (mark != "|" or not _RULE.fullmatch(row)):
            yield from _cells(row, start, mark, columns)


def _cells(line: str, start: int, mark: str, columns: list[int]) -> Iterator[Place]:
    for column, cell in enumerate(line.split(mark)):
        value = cell.strip(_CELL_EDGE)
        if (
            column in columns
            and len(value) >= _LEAST_CELL
            and " " not in value
            and any(map(str.isalnum, value))
        ):
            first = start + cell.index(value)
            yield first, first + len(value), "password"
        start += len(cell) + len(mark)


def _manifests(lower: str) -> Iterator[Place]:
    """Yield the values of the data of a Kubernetes secret, in YAML and in JSON."""
    start = 0
    for part in re.split(r"(?m:^)---", lower):
        for data in _DATA.finditer(part) if _MANIFEST.search(part) else ():
            at = data.end()
            while (entry := _ENTRY.match(part, at)) and len(entry[1]) > len(data[1]):
                yield start + entry.start(2), start + entry.end(2), "password"
                at = entry.end()
        start += len(part) + 3
    for data in _JSON_DATA.finditer(lower) if _MANIFEST_JSON.search(lower) else ():
        for entry in _JSON_ENTRY.finditer(lower, *data.span(1)):
            yield (*entry.span(1), "password")


def _phrases(lower: str) -> Iterator[Place]:
    """Yield the words that a wallet's key is made from: under their name, or as many alone on a line."""
    if any(name in lower for name in _PHRASE_NAMES):
        for match in _NAMED_PHRASE.finditer(lower):
            words = _WORD.findall(match["value"])
            if len(words) in _PHRASE_WORDS and not PROSE.search(" ".join(words)):
                yield (*match.span("value"), PHRASE)
    for match in _LONE_PHRASE.finditer(lower):
        words = match["value"].split(" ")
        inflected = sum(map(bool, map(_INFLECTED.search, words)))
        if len(words) in _LONE_WORDS and not PROSE.search(match["value"]) and inflected * 6 <= len(words):
            yield (*match.span("value"), PHRASE)


# Private keys

_HEADERS: Final = (
    (
        "begin",
        re.compile(
            r"begin[ _]{0,4}(?:(?:[a-z0-9]{1,12}[ _]{1,4}){0,3}private[ _]{1,4}key(?:[ _]{1,4}block)?"
            r"(?:[ \t]{0,4}-{2,10})?|openvpn static key v1-{2,10})"
        ),
    ),
    ("private-lines", re.compile(r"private-lines:[ \t]{0,4}\d{1,4}")),
)
_NEXT: Final = re.compile("|".join(pattern.pattern for _, pattern in _HEADERS), re.IGNORECASE)
_DASHES: Final = re.compile(r"(?:[-\\=]{2,20}[ \t]{0,4}){1,3}\Z")
_END: Final = re.compile(
    r"(?:[-\\=]{2,20}[ \t]{0,4})?END[ _]{0,4}(?:[A-Z0-9]{1,12}[ _]{1,4}){0,3}(?:PRIVATE|STATIC)[ _]{1,4}KEY"
    r"(?:[ _]{1,4}(?:BLOCK|V1))?(?:[ \t]{0,4}[-\\=]{2,20})?|PRIVATE-MAC:[^\n]{0,80}",
    re.IGNORECASE,
)
_TAIL: Final = re.compile(
    r"end[ _]{0,4}(?:[a-z0-9]{1,12}[ _]{1,4}){0,3}private[ _]{1,4}key(?:[ _]block)?-{0,10}"
)
_MATERIAL: Final = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{16,}+={0,2}|[A-Za-z0-9+/]{1,15}={1,2}|={1}[A-Za-z0-9+/]{4})"
    r"(?![A-Za-z0-9+/=])"
)
_SPACED: Final = re.compile(r"[A-Za-z0-9+/]{2,16}(?:[ \t][A-Za-z0-9+/]{2,16}){2,}+={0,2}")
_LINE: Final = re.compile(r"[^A-Za-z\n]{0,16}[A-Za-z0-9+/]{8,100}={0,2}[^A-Za-z0-9\n]{0,12}\n")
_LAST: Final = re.compile(
    r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{1,15}(?=(?:[\s\"'+,.\\>#*|/;:-]|\\[nr]|<br[ \t]*/?>){0,40}\Z)"
)
_BREAK: Final = re.compile(r"\n|(?<!\\)\\++[nr](?![A-Za-z0-9+/]{0,8}:)|<br[ \t]*/?>", re.IGNORECASE)
_BETWEEN: Final = re.compile(
    r"(?:[^A-Za-z]|\\[nrt]|</?(?:br|p|td|tr|li|code|pre|div|span|b)[ \t]*/?>|&\w{2,6};"
    r"|\b(?:rem|dnl|nr?|r)\b)*+",
    re.IGNORECASE,
)
_FIELD: Final = re.compile(r"[^A-Za-z]{0,20}[A-Za-z][A-Za-z-]{2,20}:[^\n\\]{0,160}")
_SHORT_FIELDS: Final = re.compile(
    r"(?:(?:\s|\\++[nr])*+(?:Proc-Type|DEK-Info|Comment|Version|Charset|Hash):[ \t]*"
    r"(?:[^\s\\]{1,60}[ ]?){0,4}|(?:\s|\\+[nr]|[^A-Za-z]){1,80}){0,12}+"
)
_LEAST_OF_KEY: Final = 16
_LEAST_IN_FIELD: Final = 40
_MOST_LINES: Final = 600
_MOST_OTHERS: Final = 12


def private_keys(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """Yield from where to where private keys stand; of one with prose within it, what is before and after.

    `lower` is the text in small letters.
    """
    for word, pattern in _HEADERS:
        at, stop = 0, -1
        while word in lower and (header := pattern.search(lower, at)):
            if header.end() > stop:
                stop = _line_break(text, header.end())[0]
            dashes = _DASHES.search(text, max(0, header.start() - 24), header.start())
            pieces, at = _material(text, header.end(), stop)
            if any(_is_key(text[first:last]) for first, last in pieces):
                yield from _joined(text, [((dashes or header).start(), header.end()), *pieces])
    since = 0
    for end in _TAIL.finditer(lower) if "private" in lower else ():  # the header may be missing
        start = text.rfind("\n", since, end.start()) + 1 or end.start()
        for _ in range(_MOST_LINES):
            line = text.rfind("\n", since, max(start - 1, since)) + 1 or since
            if line == start or not _LINE.fullmatch(text, line, start):
                break
            start = line
        if _is_key(text[start : end.start()]):
            yield start, end.end()
        since = end.end()


def _is_key(piece: str) -> bool:
    return len(piece) >= _LEAST_OF_KEY and any(map(str.isdigit, piece)) and any(map(str.isalpha, piece))


def _line_break(text: str, start: int) -> tuple[int, int]:
    """Return where a line ends, and where the next one begins; the break may be escaped."""
    found = _BREAK.search(text, start)
    return found.span() if found else (len(text), len(text))


def _material(text: str, start: int, stop: int) -> tuple[list[tuple[int, int]], int]:
    """Return where the parts of a key stand behind its header, and from where to look for the next.

    `stop` is where the header's line ends.
    """
    pieces: list[tuple[int, int]] = []
    others, at, next_line = 0, start, _line_break(text, stop)[1]
    for _ in range(_MOST_LINES):
        if at >= len(text) or others > _MOST_OTHERS:
            break
        header = _NEXT.search(text, at, stop)
        end = _END.search(text, at, header.start() if header else stop)
        last = end.start() if end else header.start() if header else stop
        in_line = _in_line(text, at, last)
        pieces += in_line
        if end:
            tail = _last(text, pieces[-1][1] if pieces else start, end.start())
            return [*pieces, *tail, end.span()] if pieces else [], end.end()
        if header:
            return pieces, header.start()
        blank = not text[at:last].strip(" \t>#*|/\\+-\"';:.,0123456789")
        others += not (in_line or blank or _FIELD.match(text, at, last))
        at = next_line
        stop, next_line = _line_break(text, at)
    if pieces:
        pieces += _last(text, pieces[-1][1], min(at, pieces[-1][1] + 80))
    return pieces, max(at, start)


def _in_line(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return where key material stands in a line."""
    line = text[start:end]  # what stands before it may be the letter of an escaped line break
    spans = [match.span() for match in _MATERIAL.finditer(line)]
    if _FIELD.match(line) and not any(last - first >= _LEAST_IN_FIELD for first, last in spans):
        return []
    for match in () if spans else _SPACED.finditer(line):
        letters = match[0].replace(" ", "")
        others = sum(not char.islower() for char in letters)
        # Great and small letters and digits change as in key material and in no sentence.
        if (
            any(map(str.isdigit, letters))
            and any(map(str.islower, letters))
            and others * 10 >= 4 * len(letters)
        ):
            spans.append(match.span())
    return [(start + first, start + last) for first, last in spans]


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
