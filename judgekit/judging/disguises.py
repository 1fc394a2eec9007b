"""What a text says where it is encoded, escaped or in pieces, with the way back to where that stands.

A reader, and a model, sees the password in `pass&#119;ord=…`, in base64 and in `"sk-" + "ant…"`. Of the
lines that have such a thing a view is made, in which it is read; `judgekit.judging.redact` looks at views as
at texts. A view is never longer than what it is made of, and no step takes time that grows faster than the
text.

Finds private keys between their header and their end, whatever stands before each line of them.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import html
import re
import string
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_GAP = r"[ \t]{0,20}"
_PLUS = r"(?:\+|\.\.?|\|\||&|<>|\\)"
_CALL = rf"\){{0,2}}{_GAP}(?:\n[ \t]{{1,60}})?\.(?:append|concat|add|push|join)\({_GAP}"
_AGAIN = rf"{_GAP};?\n[ \t]{{0,60}}(?:export |set |local )?\$?\w{{1,40}}{_GAP}(?:[+.&]|\.\.)={_GAP}"
_SHELL = r";?\n[ \t]{0,60}(?:export )?\w{1,40}=[\"']?\$\{?\w{1,40}\}?(?:[\"'](?=\w))?"
_JOINED = rf"(?:{_GAP}(?:{_PLUS}{_GAP}(?:[`_]?{_GAP}\n[ \t]{{0,60}})?|\n[ \t]{{1,60}}(?:{_PLUS}{_GAP})?|(?<=[\"'`][ \t]))[rbuf]?|{_CALL}|{_AGAIN})[\"'`]"
_LISTED = rf"{_GAP},{_GAP}(?:\n[ \t]{{0,60}})?[rbuf]?"
# Each begins with one letter: it is what Python looks for first.
_ESCAPED: Final = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|U[0-9A-Fa-f]{8}|[0-7]{3}|[!-/:-@\[-`{-~]"
    r"|\n[ \t]*+)"
    r"|%[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*+"
    r"|&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});"
    r"|=(?:3D|\n(?<=[^\n=]{70}=\n))"
    rf"|\"{_JOINED}|'{_JOINED}|`{_JOINED}|\"(?=')'|'(?=\")\"|(?<=[^\s'\"=(,:])(?:''(?=[^\s'),;])|\"\"(?=[^\s\"),;]))|[\"']{_SHELL}"
)
_LIST: Final = re.compile(rf"\"{_LISTED}\"|'{_LISTED}'")
# Encoded text of ASCII begins with one of these letters: what it says is a printable character or a break.
_BASE64: Final = re.compile(
    r"[CI-Za-f](?<![A-Za-z0-9+/_-].)[A-Za-z0-9+/_-]{15,}+"
    r"(?:[ \t]*+\n[ \t>#*|]*+[A-Za-z0-9+/]{16,}+)*+(?:[ \t]*+\n[ \t>#*|]*+[A-Za-z0-9+/]{2,15}={1,2})?+={0,2}"
)
_NO_HEX: Final = re.compile(r"[ :-]")
_NO_BASE64: Final = re.compile(r"[^A-Za-z0-9+/_-]+")
_HEX: Final = re.compile(
    r"[2-7](?<![0-9A-Za-wyzA-WYZ].)[0-9A-Fa-f](?:[2-7][0-9A-Fa-f]|0[9AaDd]){11,}+(?![0-9A-Za-z])"
)
_DUMP: Final = re.compile(
    r"[2-7](?<![0-9A-Za-z:].)[0-9A-Fa-f](?:[ :-](?:[2-7][0-9A-Fa-f]|0[9AaDd])){11,}+(?![0-9A-Za-z])"
)
_NUMBERS: Final = re.compile(
    r"[0-9](?<![\w.,].)(?:x[2-7][0-9A-Fa-f]|\d{1,2})"
    r"(?:,[ \t]{0,3}\n?[ \t]{0,60}(?:0x[2-7][0-9A-Fa-f]|(?:3[2-9]|[4-9]\d|1[012]\d))(?![\w.])){11,}+"
)
_JOINS: Final = re.compile(r"(?:join|concat|printf)[ \t]*\(|-join[ \t]*[(\"']")
_FAR: Final = 200
_NUMBER: Final = re.compile(r"0x[0-9A-Fa-f]{2}|\d+")
_BROKEN: Final = re.compile(
    r"(?:sk-|gh[pousr]_|github_pat_|A[KS]IA|xox[abprs]-|eyJ|glpat-|AIza|hf_|npm_|pypi-|SG\."
    r"|dop_v1_|hvs\.|shpat_|gsk_|xai-|[rs]k_live_|whsec_|dckr_pat_|ya29\.|GOCSPX-)"
    r"[\w.+/=-]{0,300}+(?P<gap>(?:\\|[ \t]{1,4})?\n[ \t>#*|]{0,20})(?=[A-Za-z_-]{0,60}\d)(?=[\d_-]{0,60}[A-Za-z])"
    r"(?=[\w.+/=-]{6,300}+[ \t\"'`,;)]{0,20}(?:\n|\Z))"
)
_PREFIXES: Final = (
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "AKIA",
    "ASIA",
    "xox",
    "eyJ",
    "glpat-",
    "AIza",
    "hf_",
    "npm_",
    "pypi-",
    "SG.",
    "dop_v1_",
    "hvs.",
    "shpat_",
    "gsk_",
    "xai-",
    "k_live_",
    "whsec_",
    "dckr_pat_",
    "ya29.",
    "GOCSPX-",
)
_PRINTED: Final = string.printable.encode()
_HEAD: Final = 24


class View(NamedTuple):
    """A part of a text as it is read.

    Of each piece of it `starts` says where it begins in the view and
    `pieces` from where to where it stands in the text, and whether it stands there as it is.
    """

    text: str
    starts: Sequence[int]
    pieces: Sequence[tuple[int, int, bool]]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return from where to where in the text a part of the view is told."""
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, at: int) -> tuple[int, int]:
        number = bisect.bisect_right(self.starts, at) - 1
        start, end, same = self.pieces[number]
        here = start + at - self.starts[number]
        return (here, here + 1) if same else (start, end)


def views(text: str) -> Iterator[View]:
    """Yield what parts of a text say that are encoded, escaped, joined or broken over lines."""
    for start, end, matches in _windows(text, _ESCAPED):
        yield _view(text, start, end, [(*each.span(), _read(each[0])) for each in matches])
    if "join" in text or "concat" in text or "printf" in text:
        for start, end, matches in _windows(text, _LIST):
            if _JOINS.search(text, max(0, start - _FAR), end + _FAR):
                yield _view(text, start, end, [(*each.span(), "") for each in matches])
    broken = any(each in text for each in _PREFIXES)
    for start, end, matches in _windows(text, _BROKEN) if broken else ():
        yield _view(text, start, end, [(*each.span("gap"), "") for each in matches])
    for pattern, decode in (
        (_BASE64, _from_base64),
        (_HEX, _from_hex),
        (_DUMP, _from_hex),
        (_NUMBERS, _from_numbers),
    ):
        for match in pattern.finditer(text):
            if said := decode(match[0]):
                yield View(said, (0,), ((*match.span(), False),))


def without(text: str, mark: str) -> View:
    """Return a text without each `mark`."""
    return _view(text, 0, len(text), [(*each.span(), "") for each in re.finditer(f"{mark}+", text)])


def _windows(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int, list[re.Match[str]]]]:
    """Yield the lines in which a pattern is found, with one before and one after, and what was found."""
    start, end, found = 0, 0, list[re.Match[str]]()
    for match in pattern.finditer(text):
        if match.end() > end or not found:
            line = text.rfind("\n", end, match.start())
            before = text.rfind("\n", end, line) if line >= 0 else -1
            if found and before >= 0:
                yield start, end, found
                found = []
            start = start if found else max(before + 1, end)
            end = _line_end(text, _line_end(text, match.end()) + 1)
        found.append(match)
    if found:
        yield start, end, found


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", min(start, len(text)))
    return len(text) if end < 0 else end


def _view(text: str, start: int, end: int, changes: list[tuple[int, int, str]]) -> View:
    """Return the part of a text from `start` to `end`, other words in the place of some."""
    said: list[str] = []
    starts: list[int] = []
    pieces: list[tuple[int, int, bool]] = []
    at, length = start, 0
    for first, last, other in [*changes, (end, end, "")]:
        for piece, words, same in (((at, first), text[at:first], True), ((first, last), other, False)):
            if words:
                starts.append(length)
                pieces.append((*piece, same))
                said.append(words)
                length += len(words)
        at = last
    return View("".join(said), starts, pieces)


def _read(written: str) -> str:
    """Return what an escape says; nothing for what joins two literals or lines."""
    kind, rest = written[0], written[1:]
    if kind == "%":
        return bytes.fromhex(written.replace("%", "")).decode("utf-8", "replace")
    if kind == "&":
        return html.unescape(written)
    if kind == "=":
        return "=" if rest == "3D" else ""
    if kind != "\\" or rest[0] == "\n":
        return ""
    if rest[0] in "xuU":
        code = int(rest[1:].strip("{}"), 16)
        return chr(code) if code <= 0x10FFFF else ""  # noqa: PLR2004 - Unicode's end
    return chr(int(rest, 8)) if rest.isdigit() else rest


def _from_base64(written: str) -> str:
    letters = _NO_BASE64.sub("", written).replace("-", "+").replace("_", "/")
    head = _bytes(letters[:_HEAD])
    if not _is_text(head) and not _is_text(head[::2]):
        return ""
    return _text(_bytes(letters))


def _bytes(letters: str) -> bytes:
    whole = len(letters) - (len(letters) % 4 == 1)
    try:
        return base64.b64decode(letters[:whole] + "=" * (-whole % 4))
    except binascii.Error:
        return b""


def _from_hex(written: str) -> str:
    digits = _NO_HEX.sub("", written.removeprefix("0x"))
    return _text(bytes.fromhex(digits[: len(digits) & ~1]))


def _from_numbers(written: str) -> str:
    codes = [int(each, 0 if "x" in each else 10) for each in _NUMBER.findall(written)]
    return _text(bytes(code for code in codes if code < len(_PRINTED) + 28))


def _text(data: bytes) -> str:
    """Return encoded text, in UTF-16 as PowerShell has it too; nothing where it is no text."""
    if not any(data[1::2]):
        data = data[::2]
    said = data.rstrip(b"\0")
    return said.decode("ascii") if _is_text(said) else ""


def _is_text(data: bytes) -> bool:
    return bool(data) and not data.translate(None, _PRINTED)


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
_NEXT: Final = re.compile("|".join(pattern.pattern for _, pattern in _HEADERS), re.IGNORECASE)
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
