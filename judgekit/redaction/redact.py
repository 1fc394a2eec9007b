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
    for _ in range(_PASSES):  # once a secret is replaced, another one next to it may be found
        # If several secrets begin at the same character, the longest comes first.
        matches = sorted(_find_nested(text, DEPTH), key=lambda match: (match.start, -match.end))
        text, count = _replace(text, matches)
        if not count:
            break
        secrets += count
    return Redacted(text, secrets)


def _replace(text: str, matches: Sequence[SecretMatch]) -> tuple[str, int]:
    """Replace the secrets in a text with marks. Returns the new text and the number of marks.

    `matches` are sorted by their start. Secrets that overlap get one mark.
    """
    parts: list[str] = []
    count = 0
    copied_end = 0  # everything before this position has been copied or replaced
    for start, end, kind in matches:
        overlaps_previous = start < copied_end
        if not overlaps_previous:  # otherwise the previous mark covers this one, too
            parts.append(text[copied_end:start])
            parts.append(f"{MARK}{kind}]")
            count += 1
        # Keep the line breaks inside the secret, so that later lines keep their numbers.
        parts.append("\n" * text.count("\n", max(copied_end, start), end))
        copied_end = max(copied_end, end)
    parts.append(text[copied_end:])
    return "".join(parts), count


def _find_nested(text: str, depth: int) -> Iterator[SecretMatch]:
    """Yield the secrets in a text, and in the parts of it that are encoded, up to `depth` layers deep.

    The position of a secret is always one in `text`. A secret in an encoded part has the position of that
    part.
    """
    from judgekit.redaction import secret_search  # noqa: PLC0415 - compiles its patterns

    if not text.isascii():
        text = folded(text)
    inner_views: Iterator[View] = iter(())
    if "\0" in text:
        # NUL stands for a mark over a letter or an invisible character, between any two letters. Search the
        # text without NULs instead. That isn't a layer of encoding, so the depth stays the same.
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
            _, end = view.place(match.end - 1)  # the last character's end, since `end` is behind it
            yield match._replace(start=start, end=end)


def words(text: str) -> str:
    """Return a text with its secrets replaced: `redact` for callers that don't need the number."""
    return redact(text).text


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Replace the secrets in all texts of a JSON value.

    Returns a copy, or `value` itself if its texts have no secrets. The keys of objects aren't searched.
    """
    texts = []
    unvisited_values = [value]
    # The list grows inside the loop, until all nested values have been visited.
    for item in unvisited_values:
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            unvisited_values += item.values()
        elif isinstance(item, list | tuple):
            unvisited_values += item
    # One search over all texts is faster than one for each.
    if redact("\n\n".join(texts)).secrets:
        return _redact_texts(value)
    return value


def _redact_texts(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Return a copy of a JSON value with the secrets in its texts replaced. The keys of objects stay."""
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, dict):
        return {key: _redact_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_texts(item) for item in value]
    return value


# Text that is encoded, escaped, joined or broken over lines

_LIST_REACH = 200  # characters around a list that are searched for the code joining it
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


class Piece(NamedTuple):
    """The start and the end in a text of a piece of its view, and whether both read the same."""

    start: int
    end: int
    is_unchanged: bool


class View(NamedTuple):
    """A decoded part of a text, in `pieces`; `starts` has the start of each piece in the view."""

    text: str
    starts: Sequence[int]
    pieces: Sequence[Piece]

    def place(self, at: int) -> tuple[int, int]:
        """Find the span in the original text that the view's character at position `at` comes from."""
        number = bisect.bisect_right(self.starts, at) - 1
        piece = self.pieces[number]
        if piece.is_unchanged:
            position = piece.start + at - self.starts[number]
            return (position, position + 1)
        # A character of a decoded piece has no position of its own in the text, so return the whole piece.
        return (piece.start, piece.end)


def views(text: str) -> Iterator[View]:
    """Yield a readable view of each part of a text in which a secret could be hidden.

    Such parts are encoded or escaped, joined by code from a list of literals, or broken over lines.
    """
    from judgekit.redaction.secret_rules import PATTERNS  # noqa: PLC0415 - compiles its patterns

    for start, end, escapes in _find_windows(text, PATTERNS["escaped"]):
        decoded = [(*escape.span(), _unescape(escape[0])) for escape in escapes]
        yield _make_view(text, start, end, decoded)

    # A list of literals that code joins: "".join(["sk-", "ant-", …])
    if "join" in text or "concat" in text or "printf" in text:
        for start, end, separators in _find_windows(text, PATTERNS["list"]):
            if PATTERNS["joins"].search(text, max(0, start - _LIST_REACH), end + _LIST_REACH):
                removals = [(*separator.span(), "") for separator in separators]
                yield _make_view(text, start, end, removals)
    if "\n" in text and _BROKEN.pattern_for(text).search(text):
        for start, end, tokens in _find_windows(text, PATTERNS["broken"]):
            removals = [(*token.span("gap"), "") for token in tokens]
            yield _make_view(text, start, end, removals)
    yield from _find_dumps(text)
    for encoding in _list_encodings(text):
        for match in PATTERNS[encoding].finditer(text):
            decoded_text = _decode_part(match[0], encoding)
            if decoded_text:
                piece = Piece(*match.span(), is_unchanged=False)
                yield View(text=decoded_text, starts=(0,), pieces=(piece,))


def _list_encodings(text: str) -> Iterator[str]:
    """Yield the names of the encodings that parts of a text may have.

    Without a long word there's no Base64 or Base32, and without many digits no encoding in numbers.
    """
    longest_word = max(map(len, text.split()), default=0)
    if longest_word >= _SHORTEST_ENCODED:
        yield from ("base64", "base32")
    digit_count = sum(map(text.count, string.digits))  # faster than looking at each character
    if digit_count >= _LEAST_DIGITS:
        yield from ("hex", "hex_lines", "dump", "numbers", "pairs")


def _find_windows(
    text: str, pattern: re.Pattern[str]
) -> Iterator[tuple[int, int, list[re.Match[str]]]]:
    """Group the matches of a pattern that are near each other, and yield each group with its window.

    A window is the start and the end of the lines with the matches, and of one line before and after these.
    If more lines than that are between two matches, they're in different groups.
    """
    start = 0
    end = 0
    matches: list[re.Match[str]] = []
    for match in pattern.finditer(text):
        is_behind_window = match.end() > end
        if is_behind_window or not matches:
            # The line breaks before the match's line and before the line above it. They're -1 if they're not
            # behind the previous window, which ends at `end`.
            line_break = text.rfind("\n", end, match.start())
            break_above = text.rfind("\n", end, line_break) if line_break >= 0 else -1
            has_line_between = break_above >= 0
            if matches and has_line_between:
                yield start, end, matches
                matches = []
            if not matches:
                start = max(break_above + 1, end)  # the line above, unless the last window has it
            end = _end_of_next_line(text, match.end())
        matches.append(match)
    if matches:
        yield start, end, matches


def _end_of_next_line(text: str, at: int) -> int:
    """Return the end of the line after the one with position `at`, or the text's end if there's none."""
    end = text.find("\n", at)
    if end >= 0:
        end = text.find("\n", end + 1)
    return end if end >= 0 else len(text)


def _make_view(text: str, start: int, end: int, changes: list[tuple[int, int, str]]) -> View:
    """Make a view of a text from `start` to `end`, with some parts replaced.

    Each change is the start and the end of a part, and its new text.
    """
    piece_texts: list[str] = []
    pieces: list[Piece] = []
    copied_end = start
    for change_start, change_end, new_text in changes:
        piece_texts += [text[copied_end:change_start], new_text]
        pieces.append(Piece(copied_end, change_start, is_unchanged=True))
        pieces.append(Piece(change_start, change_end, is_unchanged=False))
        copied_end = change_end
    piece_texts.append(text[copied_end:end])
    pieces.append(Piece(copied_end, end, is_unchanged=True))

    starts: list[int] = []
    kept_pieces = []
    length = 0
    for piece_text, piece in zip(piece_texts, pieces, strict=True):
        if piece_text:  # no character of the view comes from an empty piece
            starts.append(length)
            kept_pieces.append(piece)
            length += len(piece_text)
    return View("".join(piece_texts), starts, kept_pieces)


def _unescape(escape: str) -> str:
    r"""Decode an escape such as `%41`, `&#65;`, `=41` or `\x41`.

    "" for the text between two joined literals, such as `" + "`, and for an escaped line break.
    """
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
    """Decode bytes as UTF-8. Invalid bytes become U+FFFD, which isn't a letter."""
    return data.decode("utf-8", "replace")


def _find_dumps(text: str) -> Iterator[View]:
    """Yield views of each dump of bytes in a text.

    `xxd` and `hexdump` write such dumps: each line has an offset and pairs of hexadecimal digits.
    """
    from judgekit.redaction.secret_rules import PATTERNS  # noqa: PLC0415 - compiles its patterns

    if not PATTERNS["dump_hint"].search(text):
        return
    for dump in PATTERNS["dump_lines"].finditer(text):
        pieces: list[Piece] = []
        data: list[bytes] = []
        for line in PATTERNS["dump_line"].finditer(text, *dump.span()):
            line_end = line.start() + len(line[0].rstrip("\n"))
            pieces.append(Piece(line.start(), line_end, is_unchanged=False))
            data.append(bytes.fromhex(line["digits"].replace("\t", " ")))
        yield from _make_dump_views(pieces, data)


def _make_dump_views(pieces: list[Piece], data: list[bytes]) -> Iterator[View]:
    """Yield two views of a dump, or none if its bytes aren't mostly text.

    `pieces` are the positions of its lines, and `data` the bytes of each line. The second view has the bytes
    of each pair swapped, since `hexdump` and `od -x` write them in that order.
    """
    all_bytes = b"".join(data)
    printable = sum(byte in _PRINTED for byte in all_bytes)
    is_mostly_text = printable * 4 >= len(all_bytes) * 3  # at least three quarters
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
    """Return bytes as ASCII text, with a dot for each byte that can't be printed."""
    return "".join(chr(byte) if byte in _PRINTED else "." for byte in line)


def _swap_pairs(data: bytes) -> bytes:
    """Swap the two bytes of each pair. If the number of bytes is odd, the last one stays."""
    even = len(data) // 2 * 2
    swapped = bytearray(data)
    swapped[0:even:2] = data[1:even:2]
    swapped[1:even:2] = data[0:even:2]
    return bytes(swapped)


def _decode_part(encoded: str, encoding: str) -> str:
    """Decode an encoded part of a text to ASCII; "" if its bytes aren't ASCII text.

    The bytes may also be UTF-16, which PowerShell uses.
    """
    decoders = {"numbers": _decode_numbers, "base32": _decode_base32, "base64": _decode_base64}
    decode = decoders.get(encoding, _decode_hex)
    data = decode(encoded)
    is_utf_16 = not any(data[1::2])  # every second byte of ASCII letters is zero
    if is_utf_16:
        data = data[::2]
    data = data.rstrip(b"\0")
    is_text = not data.translate(None, _PRINTED)  # nothing remains once printable bytes are removed
    return data.decode("ascii") if is_text else ""


def _decode_numbers(numbers: str) -> bytes:
    """Decode a list of character codes, in decimal or as `0x41`. Codes beyond ASCII are left out."""
    codes = []
    for number in re.findall(r"0x[0-9A-Fa-f]{2}|\d+", numbers):
        base = 16 if "x" in number else 10
        code = int(number, base)
        if code < 0x80:  # noqa: PLR2004 - ASCII's end
            codes.append(code)
    return bytes(codes)


def _decode_base32(encoded: str) -> bytes:
    """Decode Base32. The padding may be missing. Other characters, such as `> ` in quotations, are skipped."""
    letters = re.sub("[^A-Z2-7]+", "", encoded)
    last_group = len(letters) % 8
    # No bytes give a last group of 1, 3 or 6 letters, so such a group can't be decoded: drop it.
    if last_group not in (2, 4, 5, 7):
        letters = letters[: len(letters) - last_group]
    padding = "=" * (-len(letters) % 8)
    return base64.b32decode(letters + padding)


def _decode_base64(encoded: str) -> bytes:
    """Decode Base64 in the usual alphabet or in that for addresses, with `-` and `_`.

    The padding may be missing. Other characters, such as `> ` in quoted lines, are skipped.
    """
    letters = re.sub("[^A-Za-z0-9+/_-]+", "", encoded).replace("-", "+").replace("_", "/")
    # No bytes give a last group of one letter, so it couldn't be decoded: drop it.
    if len(letters) % 4 == 1:
        letters = letters[:-1]
    padding = "=" * (-len(letters) % 4)
    return base64.b64decode(letters + padding)


def _decode_hex(encoded: str) -> bytes:
    """Decode pairs of hexadecimal digits. Other characters are skipped, and so is an odd last digit."""
    digits = re.sub("[^0-9A-Fa-f]", "", encoded)
    even = len(digits) // 2 * 2
    return bytes.fromhex(digits[:even])
