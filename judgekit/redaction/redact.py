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
    """Replace each secret in a text with a mark such as `[redacted: password]`, and count the marks.

    Invisible characters are dropped first. Line breaks stay, so line numbers do, too.
    """
    if not text:
        return Redacted("", 0)
    text = visible(text)
    secrets = 0
    for _ in range(_PASSES):  # a replaced secret may have hidden another
        # Longer ones first where several begin at the same character.
        matches = sorted(_find_nested(text, DEPTH), key=lambda match: (match.start, -match.end))
        text, count = _replace(text, matches)
        if not count:
            break
        secrets += count
    return Redacted(text, secrets)


def _replace(text: str, matches: Sequence[SecretMatch]) -> tuple[str, int]:
    """Replace secrets, sorted by their start, with marks. Returns the new text and the number of marks."""
    parts: list[str] = []
    count = 0
    done = 0  # everything before this position has been copied or replaced
    for start, end, kind in matches:
        overlaps_previous = start < done
        if not overlaps_previous:  # otherwise the previous mark covers this one, too
            parts.append(text[done:start])
            parts.append(f"{MARK}{kind}]")
            count += 1
        # Keep the line breaks inside the secret, so that later lines keep their numbers.
        parts.append("\n" * text.count("\n", max(done, start), end))
        done = max(done, end)
    parts.append(text[done:])
    return "".join(parts), count


def _find_nested(text: str, depth: int) -> Iterator[SecretMatch]:
    """Yield the secrets in a text and, up to `depth` layers down, in text that is encoded inside it.

    The positions of all of them refer to `text`.
    """
    from judgekit.redaction import secret_search  # noqa: PLC0415 - compiles its patterns

    if not text.isascii():
        text = folded(text)
    inner_views: Iterator[View] = iter(())
    if "\0" in text:
        # NUL may separate any two letters, so search the text without it instead, at the same depth.
        removals = [(*match.span(), "") for match in re.finditer("\0+", text)]
        inner_views = iter([_make_view(text, 0, len(text), removals)])
    else:
        yield from secret_search.find(text)
        if depth:
            inner_views = views(text)
        depth -= 1
    for view in inner_views:
        for match in _find_nested(view.text, depth):
            start, _ = view.place(match.start)
            _, end = view.place(match.end - 1)
            yield match._replace(start=start, end=end)


def words(text: str) -> str:
    """Return a text with its secrets replaced, without their number."""
    return redact(text).text


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return a copy of a JSON value with the secrets in its texts replaced, or the value itself if it has none."""
    texts = []
    waiting = [value]
    for item in waiting:  # grows inside the loop, until all nested values have been visited
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list | tuple):
            waiting += item
    # One search over all texts is faster than one for each.
    if redact("\n\n".join(texts)).secrets:
        return _redact_texts(value)
    return value


def _redact_texts(value: Any) -> Any:  # noqa: ANN401 - as above
    """Copy a JSON value and replace the secrets in its texts; the keys of objects stay."""
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, dict):
        return {key: _redact_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_texts(item) for item in value]
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
    """A decoded part of a text, in pieces.

    For each piece, `starts` has its start in the view, and `pieces` its start and end in the text, and whether
    both read the same.
    """

    text: str
    starts: Sequence[int]
    pieces: Sequence[tuple[int, int, bool]]

    def place(self, at: int) -> tuple[int, int]:
        """Return the span in the text that one character of the view comes from."""
        number = bisect.bisect_right(self.starts, at) - 1
        start, end, is_unchanged = self.pieces[number]
        if is_unchanged:
            position = start + at - self.starts[number]
            return (position, position + 1)
        # Characters of a decoded piece have no place of their own: the whole piece counts.
        return (start, end)


def views(text: str) -> Iterator[View]:
    """Yield a readable view of each part of a text that is encoded, escaped, joined or broken over lines."""
    from judgekit.redaction.secret_rules import PATTERNS  # noqa: PLC0415 - compiles its patterns

    for start, end, escapes in _find_windows(text, PATTERNS["escaped"]):
        decoded = [(*escape.span(), _unescape(escape[0])) for escape in escapes]
        yield _make_view(text, start, end, decoded)
    # A list of literals that code joins: "".join(["sk-", "ant-", …])
    if "join" in text or "concat" in text or "printf" in text:
        for start, end, separators in _find_windows(text, PATTERNS["list"]):
            if PATTERNS["joins"].search(text, max(0, start - _FAR), end + _FAR):
                removals = [(*separator.span(), "") for separator in separators]
                yield _make_view(text, start, end, removals)
    if "\n" in text and _BROKEN.pattern_for(text).search(text):
        for start, end, tokens in _find_windows(text, PATTERNS["broken"]):
            removals = [(*token.span("gap"), "") for token in tokens]
            yield _make_view(text, start, end, removals)
    yield from _find_dumps(text)
    for encoding in _list_encodings(text):
        for match in PATTERNS[encoding].finditer(text):
            plain = _decoded(match[0], encoding)
            if plain:
                yield View(text=plain, starts=(0,), pieces=((*match.span(), False),))


def _list_encodings(text: str) -> Iterator[str]:
    """Yield the encodings that a text may have parts in, judging by its longest word and its digits."""
    longest = max(map(len, text.split()), default=0)
    if longest >= _SHORTEST_ENCODED:
        yield from ("base64", "base32")
    digits = sum(map(text.count, string.digits))  # faster than looking at each character
    if digits >= _LEAST_DIGITS:
        yield from ("hex", "hex_lines", "dump", "numbers", "pairs")


def _find_windows(
    text: str, pattern: re.Pattern[str]
) -> Iterator[tuple[int, int, list[re.Match[str]]]]:
    """Yield each group of neighbouring matches, with the start and end of the lines around it.

    These are the lines with matches, one before and one after. Two groups have a line or more between them.
    """
    start = 0
    end = 0
    matches: list[re.Match[str]] = []
    for match in pattern.finditer(text):
        is_behind_window = match.end() > end
        if is_behind_window or not matches:
            line = text.rfind("\n", end, match.start())
            line_before = text.rfind("\n", end, line) if line >= 0 else -1
            has_line_between = line_before >= 0
            if matches and has_line_between:
                yield start, end, matches
                matches = []
            if not matches:
                start = max(line_before + 1, end)
            end = _end_of_next_line(text, match.end())
        matches.append(match)
    if matches:
        yield start, end, matches


def _end_of_next_line(text: str, at: int) -> int:
    """Return the end of the line after the one with a position, or of the text if there is none."""
    end = text.find("\n", at)
    if end >= 0:
        end = text.find("\n", end + 1)
    return end if end >= 0 else len(text)


def _make_view(text: str, start: int, end: int, changes: list[tuple[int, int, str]]) -> View:
    """View a text from `start` to `end` with changes made: each a start, an end and the new words."""
    texts: list[str] = []
    pieces: list[tuple[int, int, bool]] = []
    done = start
    for change_start, change_end, new_text in changes:
        texts += [text[done:change_start], new_text]
        pieces += [(done, change_start, True), (change_start, change_end, False)]
        done = change_end
    texts.append(text[done:end])
    pieces.append((done, end, True))
    starts: list[int] = []
    kept_pieces = []
    length = 0
    for piece_text, piece in zip(texts, pieces, strict=True):
        if piece_text:  # no character of the view comes from an empty piece
            starts.append(length)
            kept_pieces.append(piece)
            length += len(piece_text)
    return View("".join(texts), starts, kept_pieces)


def _unescape(escape: str) -> str:
    r"""Decode an escape such as `%41`, `&#65;`, `=41` or `\x41`; "" if it only joins two literals or lines."""
    mark = escape[0]
    code = escape[1:]
    if mark == "%":
        return bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
    if mark == "&":
        return html.unescape(escape)
    if mark == "=":  # quoted-printable, as in mails
        if code == "\n":
            return ""
        return _decode_text(bytes.fromhex(escape.replace("=", "")))
    # Anything else than a backslash is the quotes and the `+` between two literals.
    if mark != "\\" or code[0] == "\n":
        return ""
    if code[0] in "xuU":
        number = int(code[1:].strip("{}"), 16)
        return chr(number) if number <= 0x10FFFF else ""  # noqa: PLR2004 - Unicode's end
    if code.isdigit():
        return chr(int(code, 8))
    return code  # an escaped sign, as in Markdown: `\_`


def _decode_text(data: bytes) -> str:
    """Decode bytes as UTF-8; invalid ones become a mark that isn't a letter."""
    return data.decode("utf-8", "replace")


def _find_dumps(text: str) -> Iterator[View]:
    """Yield a view of each dump, such as `xxd` and `hexdump` write: lines with an offset and hex pairs."""
    from judgekit.redaction.secret_rules import PATTERNS  # noqa: PLC0415 - compiles its patterns

    if not PATTERNS["dump_hint"].search(text):
        return
    for dump in PATTERNS["dump_lines"].finditer(text):
        pieces: list[tuple[int, int, bool]] = []
        data: list[bytes] = []
        for line in PATTERNS["dump_line"].finditer(text, *dump.span()):
            line_end = line.start() + len(line[0].rstrip("\n"))
            pieces.append((line.start(), line_end, False))
            data.append(bytes.fromhex(line["digits"].replace("\t", " ")))
        yield from _dump_views(pieces, data)


def _dump_views(pieces: list[tuple[int, int, bool]], data: list[bytes]) -> Iterator[View]:
    """Yield two views of a dump, given each line's place and bytes, or none if it isn't mostly text.

    The second has the bytes of each pair swapped: `hexdump` and `od -x` write them so.
    """
    all_bytes = b"".join(data)
    printable = sum(byte in _PRINTED for byte in all_bytes)
    is_mostly_text = printable * 4 >= len(all_bytes) * 3
    if not is_mostly_text:
        return
    starts: list[int] = []
    length = 0
    for line in data:
        starts.append(length)
        length += len(line)
    swapped = [_swap_pairs(line) for line in data]
    for lines in (data, swapped):
        yield View("".join(map(_show_bytes, lines)), starts, pieces)


def _show_bytes(line: bytes) -> str:
    """Return bytes as text, with a dot for each that can't be printed."""
    return "".join(chr(byte) if byte in _PRINTED else "." for byte in line)


def _swap_pairs(data: bytes) -> bytes:
    """Swap the two bytes of each pair; an odd last byte stays."""
    even = len(data) // 2 * 2
    swapped = bytearray(data)
    swapped[0:even:2] = data[1:even:2]
    swapped[1:even:2] = data[0:even:2]
    return bytes(swapped)


def _decoded(encoded: str, encoding: str) -> str:
    """Decode a part of a text, in UTF-16 too, as PowerShell encodes it; "" if that doesn't give ASCII text."""
    decoders = {"numbers": _decode_numbers, "base32": _decode_base32, "base64": _decode_base64}
    decode = decoders.get(encoding, _decode_hex)
    data = decode(encoded)
    is_utf_16 = not any(data[1::2])  # every second byte of ASCII letters is zero
    if is_utf_16:
        data = data[::2]
    data = data.rstrip(b"\0")
    is_text = not data.translate(None, _PRINTED)  # nothing remains without the printable ones
    return data.decode("ascii") if is_text else ""


def _decode_numbers(numbers: str) -> bytes:
    """Return the bytes of a list of decimal or `0x` character codes, without those beyond ASCII."""
    codes = []
    for number in re.findall(r"0x[0-9A-Fa-f]{2}|\d+", numbers):
        base = 16 if "x" in number else 10
        code = int(number, base)
        if code < 0x80:  # noqa: PLR2004 - ASCII's end
            codes.append(code)
    return bytes(codes)


def _decode_base32(encoded: str) -> bytes:
    """Decode Base32, whose padding may be missing, and whose lines may begin with marks of a quotation."""
    letters = re.sub("[^A-Z2-7]+", "", encoded)
    last_group = len(letters) % 8
    if last_group not in (2, 4, 5, 7):  # no bytes give a last group of 1, 3 or 6 letters
        letters = letters[: len(letters) - last_group]
    padding = "=" * (-len(letters) % 8)
    return base64.b32decode(letters + padding)


def _decode_base64(encoded: str) -> bytes:
    """Decode Base64 in either alphabet; padding may be missing, and lines may begin with marks of a quotation."""
    letters = re.sub("[^A-Za-z0-9+/_-]+", "", encoded).replace("-", "+").replace("_", "/")
    if len(letters) % 4 == 1:  # no bytes give a last group of one letter
        letters = letters[:-1]
    padding = "=" * (-len(letters) % 4)
    return base64.b64decode(letters + padding)


def _decode_hex(encoded: str) -> bytes:
    """Decode the pairs of hex digits in a text, whatever is between them; an odd last digit is dropped."""
    digits = re.sub("[^0-9A-Fa-f]", "", encoded)
    even = len(digits) // 2 * 2
    return bytes.fromhex(digits[:even])
