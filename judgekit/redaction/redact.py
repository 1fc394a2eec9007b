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

from judgekit.redaction.lookalikes import fold_to_ascii
from judgekit.redaction.word_index import AnyWord
from judgekit.text import remove_invisible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic import BaseModel

    from judgekit.redaction.secret_rules import SecretMatch

    Record = TypeVar("Record", bound=BaseModel)

SEARCH_MARGIN_CHARS = (
    4_000  # characters after a cut that are also searched, so that no secret is split
)
REDACTION_PREFIX = "[redacted: "  # the beginning of a replacement
MAX_DECODING_DEPTH = 3  # how many layers of encoding are decoded
_MAX_PASSES = 4


class Redacted(NamedTuple):
    text: str
    secrets: int


def redact(text: str) -> Redacted:
    """Replace each secret in a text with a mark such as `[redacted: password]`, and count the marks.

    Invisible characters are removed. Line numbers don't change.
    """
    if not text:
        return Redacted("", 0)

    text = remove_invisible(text)
    secret_count = 0
    # Search again after each replacement, because it can expose another secret next to it.
    for _ in range(_MAX_PASSES):
        found = _find_at_any_depth(text, depth=MAX_DECODING_DEPTH)
        # Overlapping secrets share the first one's mark. If two have the same start, the longer one is first.
        matches = sorted(found, key=lambda match: (match.start, -match.end))
        text, mark_count = _replace(text, matches)
        if not mark_count:
            break
        secret_count += mark_count
    return Redacted(text, secret_count)


def _replace(text: str, matches: Sequence[SecretMatch]) -> tuple[str, int]:
    """Replace the secrets in a text with marks, and return the new text and the number of marks.

    `matches` must be sorted by start. Overlapping secrets share a mark.
    """
    parts: list[str] = []  # the new text's parts
    mark_count = 0
    done_end = 0  # everything before this position is already copied or replaced
    for start, end, kind in matches:
        overlaps_previous = start < done_end
        if not overlaps_previous:
            parts.append(text[done_end:start])
            parts.append(f"{REDACTION_PREFIX}{kind}]")
            mark_count += 1
            done_end = start

        # Preserve the secret's line breaks, so that later lines keep their numbers.
        line_break_count = text.count("\n", done_end, end)
        parts.append("\n" * line_break_count)
        done_end = max(done_end, end)
    parts.append(text[done_end:])
    return "".join(parts), mark_count


def _find_at_any_depth(text: str, depth: int) -> Iterator[SecretMatch]:
    """Yield the secrets in a text and in its encoded parts, up to `depth` layers of encoding.

    A secret in an encoded part has the position of the entire part.
    """
    from judgekit.redaction import secret_search  # noqa: PLC0415 - imported lazily because it compiles patterns

    if not text.isascii():
        text = fold_to_ascii(text)  # keeps all positions

    # Folding replaced combining and invisible characters with NUL. Search a view without them. Removing NUL
    # isn't a layer of encoding, so the depth stays the same.
    if "\0" in text:
        yield from _find_in_views([_remove_nul(text)], depth)
        return

    yield from secret_search.find(text)
    if depth > 0:
        yield from _find_in_views(decode_views(text), depth - 1)


def _remove_nul(text: str) -> View:
    """Make a view of a text without NUL."""
    removals = [(*match.span(), "") for match in re.finditer("\0+", text)]
    return _make_view(text, 0, len(text), removals)


def _find_in_views(text_views: Iterable[View], depth: int) -> Iterator[SecretMatch]:
    """Yield the secrets in views of a text, with their positions in that text.

    A view is a changed copy, such as a decoded part, that can map its positions back.
    """
    for view in text_views:
        for match in _find_at_any_depth(view.text, depth):
            # One character of a view can come from several in the text, such as "A" from `%41`. So each has a
            # start and an end in the text.
            last_position = match.end - 1
            start, _ = view.locate(match.start)
            _, end = view.locate(last_position)
            yield match._replace(start=start, end=end)


def words(text: str) -> str:
    """Replace the secrets in a text like `redact`, without counting them."""
    return redact(text).text


def without_secrets(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Replace the secrets in all strings of a JSON value, but not in keys.

    Return a copy, or `value` itself if it has no secrets.
    """
    # Searching all strings at once is faster than one by one, and usually finds nothing.
    all_strings = "\n\n".join(_list_strings(value))
    if redact(all_strings).secrets:
        return _redact_strings(value)
    return value


def _list_strings(value: Any) -> list[str]:  # noqa: ANN401 - whatever JSON can hold
    """List the strings in a JSON value at any depth, except keys."""
    strings = []
    values = [value]
    for item in values:  # `values` grows in this loop, so that nested values are also visited
        if isinstance(item, str):
            strings.append(item)
        elif isinstance(item, dict):
            values += item.values()
        elif isinstance(item, list | tuple):
            values += item
    return strings


def _redact_strings(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Copy a JSON value with the secrets in its strings replaced."""
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, dict):
        return {key: _redact_strings(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_strings(item) for item in value]
    return value


# Text that is encoded, escaped, joined or broken over lines

_LIST_REACH = 200  # characters around a list that are searched for the code joining it
_MIN_ENCODED_CHARS = 16  # characters of encoded text without blanks
_MIN_ENCODED_DIGITS = 12  # of text encoded in numbers
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
_BROKEN_SECRET_WORDS = AnyWord(_BROKEN_BEGINNINGS)
_PRINTABLE = string.printable.encode()


class Piece(NamedTuple):
    """The original position of a view's piece. `is_unchanged` means that the piece wasn't decoded."""

    start: int
    end: int
    is_unchanged: bool


class View(NamedTuple):
    """A decoded part of a text, made of `pieces`; `starts` are the pieces' positions in the view."""

    text: str
    starts: Sequence[int]
    pieces: Sequence[Piece]

    def locate(self, position: int) -> tuple[int, int]:
        """Return the original text's span for the character at a position in the view."""
        index = bisect.bisect_right(self.starts, position) - 1
        piece = self.pieces[index]
        if piece.is_unchanged:
            original_position = piece.start + position - self.starts[index]
            return (original_position, original_position + 1)
        # Decoded characters don't correspond to single original characters, so return the entire piece.
        return (piece.start, piece.end)


def decode_views(text: str) -> Iterator[View]:
    """Yield a decoded copy, called a view, of each part of a text that could hide a secret.

    For example, a part is in Base64, contains escapes such as `%41`, or is a token split over two lines.
    """
    from judgekit.redaction.secret_rules import PATTERNS  # noqa: PLC0415 - imported lazily because it compiles patterns

    yield from _view_escapes(text, PATTERNS)
    yield from _view_joined_lists(text, PATTERNS)
    yield from _view_broken_tokens(text, PATTERNS)
    yield from _view_dumps(text, PATTERNS)
    yield from _view_encodings(text, PATTERNS)


def _view_escapes(text: str, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[View]:
    r"""Yield views with escapes replaced, such as `%41` or `\x41`."""
    for start, end, escapes in _find_windows(text, patterns["escaped"]):
        decoded = [(*escape.span(), _unescape(escape[0])) for escape in escapes]
        yield _make_view(text, start, end, decoded)


def _find_windows(
    text: str, pattern: re.Pattern[str]
) -> Iterator[tuple[int, int, list[re.Match[str]]]]:
    """Group matches on nearby lines into windows, and yield each window's start, end and matches.

    A window contains the lines of its matches, plus one line before and one after.
    """
    # The current window. At first, it's empty, at the text's start.
    start = 0
    end = 0
    matches: list[re.Match[str]] = []

    for match in pattern.finditer(text):
        is_within_window = bool(matches) and match.end() <= end
        if is_within_window:
            matches.append(match)
            continue

        # If the line above the match is after the current window, start a new window there. Otherwise, extend
        # the current window.
        new_start = _find_line_above(text, match.start(), search_start=end)
        if new_start is not None:
            if matches:
                yield start, end, matches
            start = new_start
            matches = []
        end = _find_next_line_end(text, match.end())
        matches.append(match)
    if matches:
        yield start, end, matches


def _find_line_above(text: str, position: int, search_start: int) -> int | None:
    """Return the start of the line above the one at `position`.

    Return None if there's no line break between `search_start` and that start.
    """
    line_break = text.rfind("\n", search_start, position)  # the end of the line above
    if line_break < 0:
        return None
    break_above = text.rfind("\n", search_start, line_break)
    return break_above + 1 if break_above >= 0 else None


def _find_next_line_end(text: str, position: int) -> int:
    """Return the end of the line after the one at `position`, or the end of the text."""
    end = text.find("\n", position)
    if end >= 0:
        end = text.find("\n", end + 1)
    return end if end >= 0 else len(text)


def _make_view(text: str, start: int, end: int, changes: list[tuple[int, int, str]]) -> View:
    """Make a view of `text[start:end]`: a changed copy that can map its positions back to `text`.

    Each change is a tuple: the replaced part's start and end in `text`, and the new text.
    """
    # Split the range into unchanged and changed pieces, and collect their new texts.
    piece_texts: list[str] = []
    pieces: list[Piece] = []
    done_end = start
    for change_start, change_end, new_text in changes:
        piece_texts += [text[done_end:change_start], new_text]
        pieces.append(Piece(done_end, change_start, is_unchanged=True))
        pieces.append(Piece(change_start, change_end, is_unchanged=False))
        done_end = change_end
    piece_texts.append(text[done_end:end])
    pieces.append(Piece(done_end, end, is_unchanged=True))

    # Record where each piece starts in the view. Empty pieces have no position there.
    starts: list[int] = []
    filled_pieces = []
    length = 0  # of the view so far
    for piece_text, piece in zip(piece_texts, pieces, strict=True):
        if not piece_text:
            continue
        starts.append(length)
        filled_pieces.append(piece)
        length += len(piece_text)
    return View("".join(piece_texts), starts, filled_pieces)


def _unescape(escape: str) -> str:
    r"""Decode an escape such as `%41`, `&#65;`, `=41` or `\x41`.

    An escaped line break, or the `" + "` between two joined literals, becomes "".
    """
    mark = escape[0]
    if mark == "%":
        return _decode_text(bytes.fromhex(escape.replace("%", "")))
    if mark == "&":
        return html.unescape(escape)
    if mark == "=":
        return _unescape_quoted_printable(escape)
    if mark == "\\":
        return _unescape_backslash(escape[1:])
    return ""  # the `" + "` between two literals


def _unescape_quoted_printable(escape: str) -> str:
    """Decode an escape as in mails, such as `=41` or `=C3=A9`."""
    if escape == "=\n":
        return ""
    return _decode_text(bytes.fromhex(escape.replace("=", "")))


def _unescape_backslash(code: str) -> str:
    """Decode the characters after a backslash."""
    if code[0] == "\n":
        return ""
    if code[0] in "xuU":  # a hexadecimal number, such as `\x41` or `\u{41}`
        number = int(code[1:].strip("{}"), 16)
        return chr(number) if number <= 0x10FFFF else ""  # noqa: PLR2004 - Unicode's end
    if code.isdigit():  # an octal number, such as `\101`
        return chr(int(code, 8))
    return code  # an escaped symbol, as in Markdown: `\_`


def _decode_text(data: bytes) -> str:
    """Decode bytes as UTF-8. Invalid bytes become U+FFFD, which isn't a letter."""
    return data.decode("utf-8", "replace")


def _view_joined_lists(text: str, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[View]:
    """Yield views in which the strings of a list are joined, as by `"".join(["sk-", "ant-", …])`."""
    may_join = "join" in text or "concat" in text or "printf" in text
    if not may_join:
        return
    # The pattern matches the separator between two strings, such as `", "`.
    for start, end, separators in _find_windows(text, patterns["list"]):
        search_start = max(0, start - _LIST_REACH)
        search_end = end + _LIST_REACH
        has_join_nearby = patterns["joins"].search(text, search_start, search_end)
        if has_join_nearby:
            removals = [(*separator.span(), "") for separator in separators]
            yield _make_view(text, start, end, removals)


def _view_broken_tokens(text: str, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[View]:
    """Yield views in which tokens that a line break splits are joined again."""
    # The search for tokens is slow, so first look for the beginning of one, such as `ghp_`.
    may_have_token = "\n" in text and _BROKEN_SECRET_WORDS.pattern_for(text).search(text)
    if not may_have_token:
        return
    for start, end, tokens in _find_windows(text, patterns["broken"]):
        # A gap is the line break inside a token, with an indent or a prefix such as `> `.
        removals = [(*token.span("gap"), "") for token in tokens]
        yield _make_view(text, start, end, removals)


def _view_dumps(text: str, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[View]:
    """Yield views of each hex dump in a text, as written by `xxd` or `hexdump`."""
    if not patterns["dump_hint"].search(text):
        return
    for dump in patterns["dump_lines"].finditer(text):
        pieces: list[Piece] = []
        data: list[bytes] = []
        for line in patterns["dump_line"].finditer(text, *dump.span()):
            pieces.append(_make_line_piece(line))
            digits = line["digits"].replace("\t", " ")
            data.append(bytes.fromhex(digits))
        yield from _make_dump_views(pieces, data)


def _make_line_piece(line: re.Match[str]) -> Piece:
    """Make the piece for a line of a dump, without its line break."""
    content = line[0].rstrip("\n")
    return Piece(line.start(), line.start() + len(content), is_unchanged=False)


def _make_dump_views(pieces: list[Piece], data: list[bytes]) -> Iterator[View]:
    """Yield two decoded views of a hex dump, one per byte order. For mostly binary data, yield nothing.

    `pieces` are the dump lines' positions in the original text. `data` contains the bytes of each line.
    """
    all_bytes = b"".join(data)
    printable_count = sum(byte in _PRINTABLE for byte in all_bytes)
    is_mostly_text = printable_count >= len(all_bytes) * 3 / 4
    if not is_mostly_text:
        return

    # where each line starts in the decoded data
    line_starts: list[int] = []
    length = 0
    for line in data:
        line_starts.append(length)
        length += len(line)

    # `hexdump` and `od -x` swap each pair of bytes, so also decode the data with the pairs swapped back.
    swapped = [_swap_pairs(line) for line in data]
    for lines in (data, swapped):
        yield View("".join(map(_show_bytes, lines)), line_starts, pieces)


def _show_bytes(line: bytes) -> str:
    """Decode bytes as ASCII, with a dot for each unprintable byte."""
    return "".join(chr(byte) if byte in _PRINTABLE else "." for byte in line)


def _swap_pairs(data: bytes) -> bytes:
    """Swap the bytes of each pair, ignoring an odd last byte."""
    even_length = len(data) // 2 * 2
    swapped = bytearray(data)
    swapped[0:even_length:2] = data[1:even_length:2]
    swapped[1:even_length:2] = data[0:even_length:2]
    return bytes(swapped)


def _view_encodings(text: str, patterns: Mapping[str, re.Pattern[str]]) -> Iterator[View]:
    """Yield views of the encoded parts, such as Base64.

    A secret anywhere in the decoded text has the position of the entire encoded part.
    """
    for encoding in _list_encodings(text):
        for match in patterns[encoding].finditer(text):
            decoded_text = _decode_part(match[0], encoding)
            if decoded_text:
                piece = Piece(*match.span(), is_unchanged=False)
                yield View(text=decoded_text, starts=(0,), pieces=(piece,))


def _list_encodings(text: str) -> Iterator[str]:
    """Yield the names of the encodings that a text could contain, judging by its words and digits."""
    longest_word = max(map(len, text.split()), default=0)
    if longest_word >= _MIN_ENCODED_CHARS:
        yield from ("base64", "base32")
    digit_count = sum(map(text.count, string.digits))  # faster than looking at each character
    if digit_count >= _MIN_ENCODED_DIGITS:
        yield from ("hex", "hex_lines", "dump", "numbers", "pairs")


def _decode_part(encoded: str, encoding: str) -> str:
    """Decode an encoded string, or return "" if the result isn't printable ASCII."""
    decoders = {"numbers": _decode_numbers, "base32": _decode_base32, "base64": _decode_base64}
    decode = decoders.get(encoding, _decode_hex)  # all other encodings are kinds of hex
    data = decode(encoded)

    # PowerShell encodes UTF-16, in which every second byte of ASCII text is zero.
    is_utf_16 = not any(data[1::2])
    if is_utf_16:
        data = data[::2]

    data = data.rstrip(b"\0")  # C strings end with a zero
    unprintable = data.translate(None, delete=_PRINTABLE)
    return "" if unprintable else data.decode("ascii")


def _decode_numbers(numbers: str) -> bytes:
    """Decode a list of ASCII codes, in decimal or hexadecimal (`0x41`). Skip larger codes."""
    codes = []
    for number in re.findall(r"0x[0-9A-Fa-f]{2}|\d+", numbers):
        base = 16 if "x" in number else 10
        code = int(number, base)
        if code < 0x80:  # noqa: PLR2004 - ASCII's end
            codes.append(code)
    return bytes(codes)


def _decode_base32(encoded: str) -> bytes:
    """Decode Base32 with or without padding, skipping other characters such as `> ` in quotations."""
    letters = re.sub("[^A-Z2-7]+", "", encoded)
    last_group = len(letters) % 8
    # An incomplete last group always has 2, 4, 5 or 7 letters. Drop any other, which can't be decoded.
    if last_group not in (2, 4, 5, 7):
        letters = letters[: len(letters) - last_group]
    padding = "=" * (-len(letters) % 8)
    return base64.b32decode(letters + padding)


def _decode_base64(encoded: str) -> bytes:
    """Decode Base64, standard or URL-safe, with or without padding.

    Skip other characters, such as `> ` in quoted lines.
    """
    letters = re.sub("[^A-Za-z0-9+/_-]+", "", encoded).replace("-", "+").replace("_", "/")
    # A last group of one letter can't be decoded, so drop it.
    if len(letters) % 4 == 1:
        letters = letters[:-1]
    padding = "=" * (-len(letters) % 4)
    return base64.b64decode(letters + padding)


def _decode_hex(encoded: str) -> bytes:
    """Decode pairs of hexadecimal digits, skipping other characters and an odd last digit."""
    digits = re.sub("[^0-9A-Fa-f]", "", encoded)
    even_length = len(digits) // 2 * 2
    return bytes.fromhex(digits[:even_length])
