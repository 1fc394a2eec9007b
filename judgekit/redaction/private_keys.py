"""Finds private keys between their header and their end, whatever prefix their lines have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.redaction.secret_rules import PATTERNS, Span
from judgekit.redaction.values import is_mixed

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

_MIN_KEY_CHARS = 16
_MIN_KEY_CHARS_IN_FIELD = 40
_MAX_LINES = 600
_MAX_OTHER_LINES = 12  # lines without a part of the key
_MAX_HEADER_PREFIX_CHARS = 24  # characters before a header
_LAST_LINE_REACH = 60  # characters before the footer
_MAX_LAST_LINE_CHARS = 80  # characters after the other lines, if there's no footer
_LINE_PREFIX_CHARS = " \t>#*|/\\+-\"';:.,0123456789"


def find_private_keys(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys. If prose interrupts a key, yield a span for each part."""
    # PuTTY's keys have the header `Private-Lines: …`, and all others a header such as `BEGIN PRIVATE KEY`.
    may_have_header = "begin" in lower_text or "private-lines" in lower_text
    if may_have_header:
        yield from _find_keys_with_header(text, lower_text)
    if "private" in lower_text:
        yield from _find_keys_before_footer(text, lower_text)


def _find_keys_with_header(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys after a header such as `-----BEGIN PRIVATE KEY-----`."""
    search_start = 0
    line_end = -1  # the end of the line with the previous header
    while header := PATTERNS["header"].search(lower_text, search_start):
        # A long line can have many headers, and finding its end for each of them would be slow.
        is_on_new_line = header.end() > line_end
        if is_on_new_line:
            line_end, _ = _find_line_break(text, header.end())

        # A key is in pieces, usually one per line. The next search starts after the last piece.
        pieces, search_start = _find_key_pieces(text, header.end(), line_end)
        has_key = any(_may_be_key(text[piece_start:piece_end]) for piece_start, piece_end in pieces)
        if has_key:
            start = _include_dashes(text, header.start())
            yield from _join_pieces(text, start, header.end(), pieces)


def _include_dashes(text: str, header_start: int) -> int:
    """Return the start of the dashes before a header. Without any, that's the header's start.

    A match for a header only starts at its word "begin".
    """
    search_start = max(0, header_start - _MAX_HEADER_PREFIX_CHARS)
    dashes = PATTERNS["dashes"].search(text, search_start, header_start)
    return dashes.start() if dashes else header_start


def _join_pieces(text: str, start: int, end: int, pieces: Iterable[Span]) -> Iterator[Span]:
    """Merge a private key's header, from `start` to `end`, with the pieces of the key after it.

    If other text interrupts the key, yield a span for each part.
    """
    for piece_start, piece_end in pieces:
        text_between = text[end:piece_start]
        has_only_prefixes = PATTERNS["between"].fullmatch(text_between)  # such as `> `
        is_next_piece = has_only_prefixes or PATTERNS["short_fields"].fullmatch(text_between)
        if not is_next_piece:
            yield start, end
            start = piece_start
        end = piece_end
    yield start, end


def _find_keys_before_footer(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys whose header is missing, by searching upwards from each footer."""
    last_footer_end = 0  # the search upwards stops here
    for footer in PATTERNS["tail"].finditer(lower_text):
        key_start = _find_key_start(text, footer.start(), last_footer_end)
        if _may_be_key(text[key_start : footer.start()]):
            yield key_start, footer.end()
        last_footer_end = footer.end()


def _find_key_start(text: str, footer_start: int, search_start: int) -> int:
    """Return the start of a key, searching upwards from its footer while the lines look like a key's.

    The search stops at `search_start`, or after `_MAX_LINES` lines.
    """
    line_break = text.rfind("\n", search_start, footer_start)
    has_line_above = line_break >= 0
    if not has_line_above:
        return footer_start

    key_start = line_break + 1  # the start of the footer's line

    for _ in range(_MAX_LINES):
        line_start = _find_line_above(text, key_start, search_start)
        is_at_top = line_start == key_start
        if is_at_top:
            break
        is_key_line = PATTERNS["line"].fullmatch(text, line_start, key_start)
        if not is_key_line:
            break
        key_start = line_start
    return key_start


def _find_line_above(text: str, line_start: int, search_start: int) -> int:
    """Return the start of the line above the one at `line_start`, but at least `search_start`."""
    end_of_line_above = max(line_start - len("\n"), search_start)
    line_break = text.rfind("\n", search_start, end_of_line_above)
    return line_break + 1 if line_break >= 0 else search_start


def _may_be_key(text: str) -> bool:
    """Whether a text is long enough for a key, and has both letters and digits."""
    return len(text) >= _MIN_KEY_CHARS and is_mixed(text)


def _find_line_break(text: str, start: int) -> Span:
    r"""Return the span of the next line break, which can also be an escaped `\n` or a `<br>`.

    On the last line, it's an empty span at the end of the text.
    """
    line_break = PATTERNS["break"].search(text, start)
    if line_break:
        return line_break.span()
    return len(text), len(text)


class _KeyLine(NamedTuple):
    """A line after a private key's header, up to the next header or the footer."""

    pieces: list[Span]
    footer: re.Match[str] | None
    next_header: re.Match[str] | None
    is_other: bool  # a line with words that doesn't look like a key


def _find_key_pieces(text: str, start: int, line_end: int) -> tuple[list[Span], int]:
    """Return the spans of a key's pieces, and the position from which to search for the next header.

    The key's header ends at `start`, and the header's line at `line_end`. The key ends at its footer, at the
    next header, or after too many lines that don't look like a key.
    """
    pieces: list[Span] = []
    other_line_count = 0  # lines that don't look like a key
    search_end = start
    for current_start, current_end, next_start in _list_lines(text, start, line_end):
        line = _read_key_line(text, current_start, current_end)
        pieces += line.pieces
        if line.footer:
            return _add_footer(text, pieces, line.footer), line.footer.end()
        if line.next_header:
            return pieces, line.next_header.start()

        search_end = next_start
        if line.is_other:
            other_line_count += 1
        if other_line_count > _MAX_OTHER_LINES:
            break

    pieces += _find_last_line_without_footer(text, pieces, search_end)
    return pieces, search_end


def _list_lines(text: str, start: int, line_end: int) -> Iterator[tuple[int, int, int]]:
    """Yield each line's start, its end, and the next line's start, for at most `_MAX_LINES` lines.

    The first is the rest of a line, from `start` to `line_end`.
    """
    _, next_line = _find_line_break(text, line_end)
    for _ in range(_MAX_LINES):
        if start >= len(text):
            return
        yield start, line_end, next_line
        start = next_line
        line_end, next_line = _find_line_break(text, start)


def _find_last_line_without_footer(text: str, pieces: list[Span], search_end: int) -> list[Span]:
    """Find a short last line after a key's pieces, before `search_end`. Return one span or none."""
    if not pieces:
        return []
    _, last_end = pieces[-1]
    end = min(search_end, last_end + _MAX_LAST_LINE_CHARS)
    return _find_last_line(text, last_end, end)


def _read_key_line(text: str, start: int, line_end: int) -> _KeyLine:
    """Find a key's pieces between `start` and whichever is first: the line's end, a header, or the footer."""
    next_header = PATTERNS["header"].search(text, start, line_end)
    end = next_header.start() if next_header else line_end
    footer = PATTERNS["end"].search(text, start, end)
    if footer:
        end = footer.start()

    # Search in a slice, to hide the text before the line. The "n" of an escaped line break, `\n`, would
    # otherwise look like the first letter of a word, so that no piece could start after it.
    line = text[start:end]
    is_field = bool(PATTERNS["field"].match(line))
    spans = _find_key_spans(line, is_field=is_field)
    pieces = [(start + span_start, start + span_end) for span_start, span_end in spans]

    is_empty = not line.strip(_LINE_PREFIX_CHARS)
    looks_like_key = bool(spans) or is_field
    is_other = not is_empty and not looks_like_key
    return _KeyLine(pieces, footer, next_header, is_other=is_other)


def _add_footer(text: str, pieces: list[Span], footer: re.Match[str]) -> list[Span]:
    """Add the short last line, if any, and the footer to a key's pieces. Without pieces, return []."""
    if not pieces:
        return []
    _, last_end = pieces[-1]
    last_line = _find_last_line(text, last_end, footer.start())
    return [*pieces, *last_line, footer.span()]


def _find_key_spans(line: str, *, is_field: bool) -> list[Span]:
    """Find the spans in a line that look like parts of a key.

    `is_field` marks a header field such as `Comment: …`.
    """
    # unbroken runs of characters that keys consist of
    spans = [match.span() for match in PATTERNS["material"].finditer(line)]
    if is_field:
        # A header field usually contains ordinary text. But with a very long word, it's part of the key.
        has_long_word = any(end - start >= _MIN_KEY_CHARS_IN_FIELD for start, end in spans)
        return spans if has_long_word else []
    if spans:
        return spans

    # The key may be written with blanks in between, such as `MIIE vQIB ADAN`.
    return [match.span() for match in PATTERNS["spaced"].finditer(line) if _is_spaced_key(match[0])]


def _is_spaced_key(words: str) -> bool:
    """Whether words separated by blanks are parts of a key, rather than a sentence."""
    characters = words.replace(" ", "")
    lower_count = sum(map(str.islower, characters))
    has_digit = any(map(str.isdigit, characters))
    if lower_count == 0 or not has_digit:
        return False
    # Unlike in a sentence, at least 40 % of a key's characters are digits, capitals or symbols.
    other_count = len(characters) - lower_count
    return other_count * 100 >= len(characters) * 40


def _find_last_line(text: str, start: int, end: int) -> list[Span]:
    """Find a key's last line, which can be too short to look like a key by itself.

    The key's other lines end at `start`, and its footer begins at `end`. Return one span or none.
    """
    search_start = max(start, end - _LAST_LINE_REACH)
    last_line = PATTERNS["last"].search(text, search_start, end)
    if last_line is None:
        return []
    # If other text stands between the key and this line, the line isn't the key's. Only line breaks and
    # prefixes such as `> ` may stand there.
    follows_key = PATTERNS["between"].fullmatch(text, start, last_line.start())
    return [last_line.span()] if follows_key else []
