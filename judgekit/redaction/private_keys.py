"""Finds private keys between their header and their end, whatever prefix their lines have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import PATTERNS, Span
from judgekit.redaction.values import is_mixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MIN_KEY_CHARS = 16
_MIN_KEY_CHARS_IN_FIELD = 40
_MAX_LINES = 600
_MAX_OTHER_LINES = 12  # lines without a part of the key
_MAX_DASHES = 24  # characters before a header
_LAST_LINE_REACH = 60  # characters before the footer
_LAST_LINE_SPAN = 80  # characters after the other lines, if there's no footer
_LINE_PREFIX = " \t>#*|/\\+-\"';:.,0123456789"


def find_private_keys(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys. If prose interrupts a key, yield a span for each part."""
    if "begin" in lower_text or "private-lines" in lower_text:
        yield from _find_keys_with_header(text, lower_text)
    if "private" in lower_text:
        yield from _find_keys_before_footer(text, lower_text)


def _find_keys_with_header(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys after a header such as `-----BEGIN PRIVATE KEY-----`."""
    search_start = 0
    line_end = -1  # the end of the latest header's line. None was found yet.
    while header := PATTERNS["header"].search(lower_text, search_start):
        is_on_same_line = header.end() <= line_end
        if not is_on_same_line:
            line_end, _ = _find_line_break(text, header.end())

        # A key is in pieces, usually one per line. The next search starts after the last piece.
        pieces, search_start = _find_key_pieces(text, header.end(), line_end)
        if not any(_may_be_key(text[piece_start:piece_end]) for piece_start, piece_end in pieces):
            continue

        # The header's pattern starts at "begin", so include any dashes before that word.
        dashes_start = max(0, header.start() - _MAX_DASHES)
        dashes = PATTERNS["dashes"].search(text, dashes_start, header.start())
        start = dashes.start() if dashes else header.start()
        yield from _join_pieces(text, start, header.end(), pieces)


def _join_pieces(text: str, start: int, end: int, pieces: Iterable[Span]) -> Iterator[Span]:
    """Merge a private key's header, the span from `start` to `end`, with the pieces of the key that follow.

    Pieces are merged if only line prefixes such as `> ` or a few header fields separate them.
    """
    for piece_start, piece_end in pieces:
        text_between = text[end:piece_start]
        is_line_prefix = PATTERNS["between"].fullmatch(text_between)
        belongs_together = is_line_prefix or PATTERNS["short_fields"].fullmatch(text_between)
        if not belongs_together:
            yield start, end
            start = piece_start
            end = piece_end
        end = max(piece_end, end)
    yield start, end


def _find_keys_before_footer(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys whose header is missing, by searching upwards from each footer."""
    last_footer_end = 0  # the search upwards stops here
    for footer in PATTERNS["tail"].finditer(lower_text):
        # Start at the footer's line. If that's the first line, there's no key above.
        line_break = text.rfind("\n", last_footer_end, footer.start())
        key_start = line_break + 1 if line_break >= 0 else footer.start()

        # Move the key's start up, as long as the line above looks like part of a key.
        for _ in range(_MAX_LINES):
            line_end = max(key_start - 1, last_footer_end)
            line_break = text.rfind("\n", last_footer_end, line_end)
            line_start = line_break + 1 if line_break >= 0 else last_footer_end
            is_key_line = PATTERNS["line"].fullmatch(text, line_start, key_start)
            if line_start == key_start or not is_key_line:
                break
            key_start = line_start

        if _may_be_key(text[key_start : footer.start()]):
            yield key_start, footer.end()
        last_footer_end = footer.end()


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


def _find_key_pieces(text: str, start: int, line_end: int) -> tuple[list[Span], int]:
    """Return the spans of a key's pieces, and the position from which to search for the next header.

    The key's header ends at `start`, and the header's line at `line_end`. The key ends at its footer, at the
    next header, or after too many lines that don't look like a key.
    """
    pieces: list[Span] = []
    other_line_count = 0
    position = start
    _, next_line = _find_line_break(text, line_end)
    for _ in range(_MAX_LINES):
        if position >= len(text) or other_line_count > _MAX_OTHER_LINES:
            break

        # Find the key's characters on this line, up to the next header or the footer. Search in a slice,
        # because in `text` a lookbehind would see the `n` of an escaped line break before the line.
        next_header = PATTERNS["header"].search(text, position, line_end)
        search_end = next_header.start() if next_header else line_end
        footer = PATTERNS["end"].search(text, position, search_end)
        if footer:
            search_end = footer.start()
        line = text[position:search_end]
        is_field = bool(PATTERNS["field"].match(line))
        spans = _find_key_spans(line, is_field=is_field)
        pieces += [(position + span_start, position + span_end) for span_start, span_end in spans]

        # Return if this is the key's last line.
        if footer and not pieces:
            return [], footer.end()
        if footer:
            _, last_end = pieces[-1]
            last_line = _find_last_line(text, last_end, footer.start())
            return [*pieces, *last_line, footer.span()], footer.end()
        if next_header:
            return pieces, next_header.start()

        has_words = bool(line.strip(_LINE_PREFIX))
        if has_words and not spans and not is_field:
            other_line_count += 1
        position = next_line
        line_end, next_line = _find_line_break(text, position)

    # Without a footer, there can still be a short last line.
    if pieces:
        _, last_end = pieces[-1]
        pieces += _find_last_line(text, last_end, min(position, last_end + _LAST_LINE_SPAN))
    return pieces, max(position, start)


def _find_key_spans(line: str, *, is_field: bool) -> list[Span]:
    """Find the spans in a line that look like parts of a key.

    `is_field` marks a header field such as `Comment: …`.
    """
    # unbroken runs of characters that keys consist of
    spans = [match.span() for match in PATTERNS["material"].finditer(line)]
    if is_field:
        # A header field usually contains ordinary text. A very long word in it is part of a key.
        is_any_long = any(end - start >= _MIN_KEY_CHARS_IN_FIELD for start, end in spans)
        return spans if is_any_long else []
    if spans:
        return spans

    # The key may be written with blanks in between, such as `M I I E` or `MIIE vQIB`.
    for match in PATTERNS["spaced"].finditer(line):
        characters = match[0].replace(" ", "")
        lower_count = sum(map(str.islower, characters))
        other_count = len(characters) - lower_count
        has_digit = any(map(str.isdigit, characters))
        # Unlike in a sentence, at least 40 % of a key's characters are digits, capitals or symbols.
        if lower_count and has_digit and other_count * 10 >= len(characters) * 4:
            spans.append(match.span())
    return spans


def _find_last_line(text: str, start: int, end: int) -> list[Span]:
    """Find a key's last line, which can be too short to look like a key by itself.

    The key's other lines end at `start`, and its footer begins at `end`. Return one span or none.
    """
    search_start = max(start, end - _LAST_LINE_REACH)
    last_line = PATTERNS["last"].search(text, search_start, end)
    if last_line and PATTERNS["between"].fullmatch(text, start, last_line.start()):
        return [last_line.span()]
    return []
