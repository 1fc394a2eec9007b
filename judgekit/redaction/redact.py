"""Replaces secrets in texts before they're sent to a model: keys, tokens, passwords: `[redacted: …]`.

The text is read as a model would read it: lookalike letters count as the letters they resemble, and encoded,
escaped or split text is decoded, too. The lines around it become a view, which is searched like a text. A
view is never longer than its source, and no step takes more than linear time.
`judgekit.redaction.secret_search` defines secrets. Reasons and measurements are in
docs/decisions/redaction.md.
"""

from __future__ import annotations

import base64
import bisect
import html
import re
import string
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from judgekit.redaction.lookalikes import folded
from judgekit.redaction.word_index import AnyWord
from judgekit.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import BaseModel

    from judgekit.redaction.secret_rules import SecretMatch

    Record = TypeVar("Record", bound=BaseModel)

MARGIN = 4_000  # characters behind a cut that are looked at too: no secret is split
MARK = "[redacted: "  # the beginning of a replacement
DEPTH = 3  # how many layers of encoding are read
_PASSES = 4  # removing a secret may reveal another one behind it


class Redacted(NamedTuple):
    text: str
    secrets: int


def redact(text: str) -> Redacted:
    """Replace each secret in the visible text by its kind, and count them; line breaks stay."""
    if not text:
        return Redacted("", 0)
    text = visible(text)
    secrets = 0
    for _ in range(_PASSES):  # a replaced secret may have hidden another
        matches = sorted(_find_nested(text, DEPTH), key=lambda match: (match.start, -match.end))
        text, count = _replace(text, matches)
        if not count:
            break
        secrets += count
    return Redacted(text, secrets)


def _replace(text: str, matches: Sequence[SecretMatch]) -> tuple[str, int]:
    """Replace secrets, given in order, by marks; return the text and the number of marks."""
    parts: list[str] = []
    count = 0
    at = 0
    for start, end, kind in matches:
        if start >= at:  # if two overlap, the first one's kind is shown
            parts.append(text[at:start])
            parts.append(f"{MARK}{kind}]")
            count += 1
        # The lines keep their numbers.
        parts.append("\n" * text.count("\n", max(at, start), end))
        at = max(at, end)
    parts.append(text[at:])
    return "".join(parts), count


def _find_nested(text: str, depth: int) -> Iterator[SecretMatch]:
    """Yield the secrets in a text and in the text encoded in it, layer by layer."""
    from judgekit.redaction import secret_search  # noqa: PLC0415 - compiles its patterns

    if not text.isascii():
        text = folded(text)
    inner: Iterator[View] = iter(())
    if "\0" in text:
        # NUL may separate any two letters, so also search the text without it, at the same depth.
        marks = [(*match.span(), "") for match in re.finditer("\0+", text)]
        inner = iter([_make_view(text, 0, len(text), marks)])
    else:
        yield from secret_search.find(text)
        if depth:
            inner = views(text)
        depth -= 1
    for view in inner:
        for match in _find_nested(view.text, depth):
            start, _ = view.place(match.start)
            _, end = view.place(match.end - 1)
            yield match._replace(start=start, end=end)


def words(text: str) -> str:
    return redact(text).text


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return a JSON value without the secrets in its texts; the same object if it has none."""
    texts = []
    waiting = [value]
    for item in waiting:  # it grows inside the loop
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict | list | tuple):
            waiting += item.values() if isinstance(item, dict) else item
    if redact("\n\n".join(texts)).secrets:
        return _clean(value)
    return value


def _clean(value: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


# Text that is encoded, escaped, joined or broken over lines

_FAR = 200  # characters around a list that are searched for the code joining it
_SHORTEST_ENCODED = 16  # characters of encoded text without blanks
_LEAST_DIGITS = 12  # of text encoded in numbers
# What the start of a secret looks like if a line break may split it, as the pattern `broken` knows it.
_BROKEN_BEGINNINGS = (
    *(
        "sk-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "AKIA",
        "ASIA",
        "xox",
        "eyJ",
        "glpat-",
    ),
    *(
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
    ),
    *("whsec_", "dckr_pat_", "ya29.", "GOCSPX-"),
)
_BROKEN = AnyWord(_BROKEN_BEGINNINGS)
_PRINTED = string.printable.encode()


class View(NamedTuple):
    """A part of a text in readable form: each piece's start, its place in the text, and if it's unchanged."""

    text: str
    starts: Sequence[int]
    pieces: Sequence[tuple[int, int, bool]]

    def place(self, at: int) -> tuple[int, int]:
        """Return the span in the text of one character of the view."""
        number = bisect.bisect_right(self.starts, at) - 1
        start, end, same = self.pieces[number]
        here = start + at - self.starts[number]
        if same:
            return (here, here + 1)
        return (start, end)


def views(text: str) -> Iterator[View]:
    """Yield views of the encoded, escaped, joined and line-broken parts of a text."""
    from judgekit.redaction.secret_rules import RE  # noqa: PLC0415 - compiles its patterns

    for start, end, matches in _find_windows(text, RE["escaped"]):
        yield _make_view(text, start, end, [(*each.span(), _unescape(each[0])) for each in matches])
    if "join" in text or "concat" in text or "printf" in text:
        for start, end, matches in _find_windows(text, RE["list"]):
            if RE["joins"].search(text, max(0, start - _FAR), end + _FAR):
                yield _make_view(text, start, end, [(*each.span(), "") for each in matches])
    if "\n" in text and _BROKEN.pattern_for(text).search(text):
        for start, end, matches in _find_windows(text, RE["broken"]):
            yield _make_view(text, start, end, [(*each.span("gap"), "") for each in matches])
    yield from _find_dumps(text)
    for kind in _list_encodings(text):
        for match in RE[kind].finditer(text):
            if decoded := _decoded(match[0], kind):
                yield View(decoded, (0,), ((*match.span(), False),))


def _list_encodings(text: str) -> Iterator[str]:
    """Yield the encodings that a text is long enough for, and has enough digits for."""
    longest = max(map(len, text.split()), default=0)
    if longest >= _SHORTEST_ENCODED:
        yield from ("base64", "base32")
    if sum(map(text.count, string.digits)) >= _LEAST_DIGITS:
        yield from ("hex", "hex_lines", "dump", "numbers", "pairs")


def _find_windows(
    text: str, pattern: re.Pattern[str]
) -> Iterator[tuple[int, int, list[re.Match[str]]]]:
    """Yield the lines with matches of a pattern, with one line before and after, and the matches."""
    start = 0
    end = 0
    matches: list[re.Match[str]] = []
    for match in pattern.finditer(text):
        if not matches or match.end() > end:
            line = text.rfind("\n", end, match.start())
            line_before = text.rfind("\n", end, line) if line >= 0 else -1
            if matches and line_before >= 0:  # there's a line between the last ones and this one
                yield start, end, matches
                matches = []
            if not matches:
                start = max(line_before + 1, end)
            end = _end_of_next_line(text, match.end())
        matches.append(match)
    if matches:
        yield start, end, matches


def _end_of_next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    if end >= 0:
        end = text.find("\n", end + 1)
    return end if end >= 0 else len(text)


def _make_view(text: str, start: int, end: int, changes: list[tuple[int, int, str]]) -> View:
    """View the part of a text from `start` to `end` with some words replaced."""
    texts: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    at = start
    for first, last, other in changes:
        texts += [text[at:first], other]
        pieces += [(at, first, True), (first, last, False)]
        at = last
    texts.append(text[at:end])
    pieces.append((at, end, True))
    starts: list[int] = []
    kept_pieces = []
    length = 0
    for words, piece in zip(texts, pieces, strict=True):
        if words:
            starts.append(length)
            kept_pieces.append(piece)
            length += len(words)
    return View("".join(texts), starts, kept_pieces)


def _unescape(written: str) -> str:
    """Decode an escape; "" if it only joins two literals or lines."""
    kind = written[0]
    rest = written[1:]
    if kind == "%":
        return bytes.fromhex(written.replace("%", "")).decode("utf-8", "replace")
    if kind == "&":
        return html.unescape(written)
    if kind == "=":
        if rest == "\n":
            return ""
        return _decode_text(bytes.fromhex(written.replace("=", "")))
    if kind != "\\" or rest[0] == "\n":
        return ""
    if rest[0] in "xuU":
        code = int(rest[1:].strip("{}"), 16)
        return chr(code) if code <= 0x10FFFF else ""  # noqa: PLR2004 - Unicode's end
    if rest.isdigit():
        return chr(int(rest, 8))
    return rest


def _decode_text(data: bytes) -> str:
    """Decode bytes as UTF-8; invalid ones become a mark that isn't a letter."""
    return data.decode("utf-8", "replace")


def _find_dumps(text: str) -> Iterator[View]:
    """Yield the bytes in dumps, such as those of `xxd` and `hexdump`: hex pairs in lines with an offset."""
    from judgekit.redaction.secret_rules import RE  # noqa: PLC0415 - compiles its patterns

    if not RE["dump_hint"].search(text):
        return
    for dump in RE["dump_lines"].finditer(text):
        pieces: list[tuple[int, int, bool]] = []
        data: list[bytes] = []
        for line in RE["dump_line"].finditer(text, *dump.span()):
            pieces.append((line.start(), line.start() + len(line[0].rstrip("\n")), False))
            data.append(bytes.fromhex(line["digits"].replace("\t", " ")))
        yield from _dump_views(pieces, data)


def _dump_views(pieces: list[tuple[int, int, bool]], data: list[bytes]) -> Iterator[View]:
    """Yield a dump's text, and the same with the bytes of each pair changed, as `hexdump` and `od -x` write."""
    whole = b"".join(data)
    printed = sum(byte in _PRINTED for byte in whole)
    if printed * 4 < len(whole) * 3:
        return
    starts: list[int] = []
    length = 0
    for part in data:
        starts.append(length)
        length += len(part)
    for is_swapped in (False, True):
        texts: list[str] = []
        for part in data:
            line = _swap_pairs(part) if is_swapped else part
            texts.append("".join(chr(byte) if byte in _PRINTED else "." for byte in line))
        yield View("".join(texts), starts, pieces)


def _swap_pairs(data: bytes) -> bytes:
    even = len(data) & ~1
    swapped = bytearray(data)
    swapped[0:even:2] = data[1:even:2]
    swapped[1:even:2] = data[0:even:2]
    return bytes(swapped)


def _decoded(written: str, kind: str) -> str:
    """Decode text, including UTF-16 as PowerShell encodes it; "" if the result isn't text."""
    decode = {"numbers": _decode_numbers, "base32": _decode_base32, "base64": _decode_base64}
    data = decode.get(kind, _decode_hex)(written)
    is_utf_16 = not any(data[1::2])
    if is_utf_16:
        data = data[::2]
    data = data.rstrip(b"\0")
    is_text = not data.translate(None, _PRINTED)
    return data.decode("ascii") if is_text else ""


def _decode_numbers(written: str) -> bytes:
    codes = []
    for number in re.findall(r"0x[0-9A-Fa-f]{2}|\d+", written):
        code = int(number, 16 if "x" in number else 10)
        if code < 0x80:  # noqa: PLR2004 - ASCII's end
            codes.append(code)
    return bytes(codes)


def _decode_base32(written: str) -> bytes:
    letters = re.sub("[^A-Z2-7]+", "", written)
    whole = len(letters) - len(letters) % 8
    if len(letters) % 8 in (2, 4, 5, 7):  # valid lengths of the last group
        whole = len(letters)
    return base64.b32decode(letters[:whole] + "=" * (-whole % 8))


def _decode_base64(written: str) -> bytes:
    letters = re.sub("[^A-Za-z0-9+/_-]+", "", written).replace("-", "+").replace("_", "/")
    whole = len(letters)
    if whole % 4 == 1:  # not a valid length
        whole -= 1
    return base64.b64decode(letters[:whole] + "=" * (-whole % 4))


def _decode_hex(written: str) -> bytes:
    digits = re.sub("[^0-9A-Fa-f]", "", written)
    return bytes.fromhex(digits[: len(digits) // 2 * 2])
