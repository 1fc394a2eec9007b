"""What a text says to a reader: encoded, escaped, in pieces, or in letters that look like others.

A reader, and a model, sees the password in `pass&#119;ord=…`, in base64 and in `"sk-" + "ant…"`. Of the
lines that have such a thing a view is made, in which it is read; `judgekit.judging.redact` looks at views as
at texts. A view is never longer than what it is made of, and no step takes time that grows faster than the
text.

A word with a Cyrillic or Greek letter among Latin ones, or in mathematical, circled, full-width or small
capital letters, reads like the plain word to a person and to many a model, and passes any check of its
letters. Words of one script stay as they are, and so do symbols: a mathematical letter alone, a Greek one
behind Latin capitals.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import html
import re
import string
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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

    def place(self, at: int) -> tuple[int, int]:
        """Return from where to where in the text a character of the view is told."""
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
    for start, end, matches in _windows(text, _BROKEN):
        yield _view(text, start, end, [(*each.span("gap"), "") for each in matches])
    for pattern, decode in _ENCODED:
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
            end = text.find("\n", match.end())
            end = text.find("\n", end + 1) if end >= 0 else -1
            end = end if end >= 0 else len(text)
        found.append(match)
    if found:
        yield start, end, found


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


_ENCODED: Final[Sequence[tuple[re.Pattern[str], Callable[[str], str]]]] = (
    (_BASE64, _from_base64),
    (_HEX, _from_hex),
    (_DUMP, _from_hex),
    (_NUMBERS, _from_numbers),
)


# Letters that look like others: from Unicode's confusables.txt (UTS #39), as far as they are of scripts in use
# beside Latin.


def _pairs(letters: str, plain: str) -> dict[str, str]:
    return dict(zip(letters, plain, strict=True))


_CYRILLIC: Final = _pairs(
    "\u0430\u0410\u0412\u0441\u0421\u0501\u0435\u0415\u050c\u04bb\u041d\u0456\u0406\u04cf\u04c0\u0458\u0408\u043a"
    "\u041a\u041c\u043e\u041e\u0440\u0420\u051b\u051a\u0455\u0405\u0442\u0422\u0475\u0474\u051d\u051c\u0445\u0425"
    "\u0443\u0423\u0433\u043f\u0417\u042c",
    "aABcCdeEGhHiIlIjJkKMoOpPqQsStTvVwWxXyYrn3b",
)
_GREEK: Final = _pairs(
    "\u03b1\u0391\u0392\u0395\u0396\u0397\u03b9\u0399\u03ba\u039a\u039c\u039d\u03bd\u03bf\u039f\u03c1\u03a1\u03c4"
    "\u03a4\u03c5\u03a5\u03a7\u03f2\u03f3",
    "aABEZHiIkKMNvoOpPtTuYXcj",
)
_CAPITALS: Final = _pairs(
    "\u1d00\u0299\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u1d0a\u1d0b\u029f\u1d0d\u0274\u1d0f\u1d18\ua7af\u0280"
    "\ua731\u1d1b\u1d1c\u1d20\u1d21\u028f\u1d22",
    "ABCDEFGHIJKLMNOPQRSTUVWYZ",
)
_ARMENIAN: Final = _pairs("\u0570\u0578\u057d\u0585\u0581\u053c\u0555\u054d", "hnuogLOU")
_FOREIGN: Final = str.maketrans(_CYRILLIC | _ARMENIAN)
_SKELETON: Final = str.maketrans(_CYRILLIC | _ARMENIAN | _GREEK | _CAPITALS)
_PUNCTUATION: Final = str.maketrans("\u201a\u201e\u2032\u2033\u2236\ua789\u05c3\u2044\u2215", "'\"'\"::://")
_MARKS: Final = {"Mn": 0, "Me": 0, "Cf": 0, "Zs": ord(" "), "Pd": ord("-"), "Pi": ord('"'), "Pf": ord('"')}
_STYLED_LEAST: Final = 2  # letters in a word: a single one is a symbol
_CAPITALS_LEAST: Final = 3

_CIRCLED: Final = "\u24b6-\u24e9\U0001f130-\U0001f189"
# It begins where no letter stands before it: a long word of ASCII is read once, not once for each letter.
_WORD: Final = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]*+(?:[^\x00-\x7f\W]|[{_CIRCLED}])[\w{_CIRCLED}]*+")
_STRUCK: Final = re.compile(r"(?<=[A-Za-z])[\u0334-\u0338\u20d0-\u20f0]+")
_GREEK_WORD: Final = re.compile(r"[A-Za-z]?[a-z]+")


def _styled(code: int) -> int:
    """Return the letter or digit that a character is a style of, else the character."""
    plain = unicodedata.normalize("NFKC", chr(code))
    return ord(plain) if len(plain) == 1 and plain.isascii() and plain.isalnum() else code


def _read_as(code: int) -> int:
    """Return the character of ASCII that a character is read as, if there is one."""
    category = unicodedata.category(chr(code))
    if category in _MARKS:
        return _MARKS[category]
    parts = unicodedata.normalize("NFKD", chr(code))
    letter = parts[0].translate(_SKELETON).translate(_PUNCTUATION)
    return ord(letter) if letter.isascii() and all(map(unicodedata.combining, parts[1:])) else code


class _Table(dict[int, int]):
    """A table for `str.translate` that learns what each character becomes."""

    def __init__(self, becomes: Callable[[int], int]) -> None:
        super().__init__()
        self._becomes = becomes

    def __missing__(self, code: int) -> int:
        if len(self) >= 4096:  # noqa: PLR2004 - a text has fewer; a flood of others is not kept
            self.clear()
        self[code] = self._becomes(code) if code > 0x7F else code  # noqa: PLR2004 - ASCII's end
        return self[code]


_STYLED: Final = _Table(_styled)
_FOLDED: Final = _Table(_read_as)


def plain(text: str) -> str:
    """Return the text with the words that imitate plain ones in plain letters; strokes through letters go."""
    if text.isascii():
        return text
    return _STRUCK.sub("", _WORD.sub(lambda match: _plain_word(match[0]), text))


def skeleton(text: str) -> str:
    """Return what a text looks like in small letters of ASCII, each character in its place."""
    return text if text.isascii() else text.translate(_STYLED).translate(_SKELETON)


def folded(text: str) -> str:
    """Return what a text says to a reader of ASCII, as far as it can, each character in its place.

    Accents go; styled letters, quotes, dashes and blanks become the plain ones; a NUL stands for a mark that
    is written over the letter before it. Only for looking things up: other scripts give no words.
    """
    return text.translate(_FOLDED)


def _plain_word(word: str) -> str:
    unstyled = word.translate(_STYLED)
    if sum(a != b and b.isalpha() for a, b in zip(word, unstyled, strict=True)) >= _STYLED_LEAST:
        word = unstyled
    if sum(char in _CAPITALS for char in word) >= _CAPITALS_LEAST:
        word = "".join(_CAPITALS.get(char, char) for char in word)
    latin = word.translate(_FOREIGN)
    if latin.isascii():
        return latin if any(char.isascii() and char.isalpha() for char in word) else word
    # Greek letters stand in symbols of Latin ones: only a word in small letters is an imitation.
    rest = "".join(char for char in latin if char.isascii())
    letters = "".join(_GREEK.get(char, char) for char in latin)
    imitates = letters.isascii() and len(letters) > _CAPITALS_LEAST and _GREEK_WORD.fullmatch(rest)
    return letters if imitates else word
