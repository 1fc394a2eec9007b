"""Finds private keys between their header and their end, whatever prefix their lines have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import PATTERNS, Span
from judgekit.redaction.values import is_mixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LEAST_OF_KEY = 16
_LEAST_IN_FIELD = 40
_MOST_LINES = 600
_MOST_OTHER_LINES = 12  # lines without a part of the key
_MOST_DASHES = 24  # characters before a header
_LINE_PREFIX = " \t>#*|/\\+-\"';:.,0123456789"


def private_keys(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys. If there's prose inside a key, the parts around it are yielded."""
    if "begin" in lower_text or "private-lines" in lower_text:
        yield from _find_keys_with_header(text, lower_text)
    if "private" in lower_text:
        yield from _find_keys_before_tail(text, lower_text)


def _find_keys_with_header(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of private keys that begin with a header such as `-----BEGIN PRIVATE KEY-----`."""
    search_start = 0
    line_end = -1
    while header := PATTERNS["header"].search(lower_text, search_start):
        if header.end() > line_end:
            line_end, _ = _find_line_break(text, header.end())
        dashes_start = max(0, header.start() - _MOST_DASHES)
        dashes = PATTERNS["dashes"].search(text, dashes_start, header.start())
        pieces, search_start = _find_material(text, header.end(), line_end)
        if any(_may_be_key(text[piece_start:piece_end]) for piece_start, piece_end in pieces):
            start = dashes.start() if dashes else header.start()
            yield from _join_pieces(text, start, header.end(), pieces)


def _join_pieces(text: str, start: int, end: int, pieces: Iterable[Span]) -> Iterator[Span]:
    """Yield the span from `start` to `end`, and the spans of the `pieces` that follow it.

    If there's only the beginning of a line between two spans, such as `> ` or `# `, or a few header fields,
    they're joined to one.
    """
    for piece_start, piece_end in pieces:
        text_between = text[end:piece_start]
        is_prefix = PATTERNS["between"].fullmatch(text_between)
        belongs_together = is_prefix or PATTERNS["short_fields"].fullmatch(text_between)
        if not belongs_together:
            yield start, end
            start = piece_start
            end = piece_end
        end = max(piece_end, end)
    yield start, end


def _find_keys_before_tail(text: str, lower_text: str) -> Iterator[Span]:
    """Yield the spans of keys found upwards from their end marker, since their header may be missing."""
    searched_until = 0
    for end_marker in PATTERNS["tail"].finditer(lower_text):
        line_break = text.rfind("\n", searched_until, end_marker.start())
        # The key's lines are above the marker's; without a line break there are none.
        start = line_break + 1 if line_break >= 0 else end_marker.start()
        for _ in range(_MOST_LINES):
            # The line above, without its line break, not before `searched_until`
            end_of_line = max(start - 1, searched_until)
            line_break = text.rfind("\n", searched_until, end_of_line)
            line_start = line_break + 1 if line_break >= 0 else searched_until
            is_line_of_key = PATTERNS["line"].fullmatch(text, line_start, start)
            if line_start == start or not is_line_of_key:
                break
            start = line_start

        if _may_be_key(text[start : end_marker.start()]):
            yield start, end_marker.end()
        searched_until = end_marker.end()


def _may_be_key(text: str) -> bool:
    """Whether a text is long enough for a key, and has both letters and digits."""
    return len(text) >= _LEAST_OF_KEY and is_mixed(text)


def _find_line_break(text: str, start: int) -> Span:
    r"""Return the end of a line and the start of the next one: the span of the line break.

    The break may also be an escape such as `\n`, or `<br>`. On the last line, both are the text's end.
    """
    line_break = PATTERNS["break"].search(text, start)
    if line_break:
        return line_break.span()
    return len(text), len(text)


def _find_material(text: str, start: int, line_end: int) -> tuple[list[Span], int]:
    """Find the parts of a key behind its header, which ends at `start`; its line ends at `line_end`.

    Returns the spans of the parts, and the position from which to search for the next header. The key ends
    with its end marker, with the next header, or when too many lines don't look like a key's.
    """
    pieces: list[Span] = []
    other_lines = 0
    position = start
    _, next_line = _find_line_break(text, line_end)
    for _ in range(_MOST_LINES):
        if position >= len(text) or other_lines > _MOST_OTHER_LINES:
            break

        next_header = PATTERNS["header"].search(text, position, line_end)
        search_end = next_header.start() if next_header else line_end
        end_marker = PATTERNS["end"].search(text, position, search_end)
        if end_marker:
            search_end = end_marker.start()
        # The line is cut out of the text. Otherwise a pattern could see the character before it, which may be
        # the `n` of an escaped line break.
        line = text[position:search_end]
        is_field = bool(PATTERNS["field"].match(line))
        spans = _find_key_spans(line, is_field=is_field)
        pieces += [(position + span_start, position + span_end) for span_start, span_end in spans]

        if end_marker and not pieces:
            return [], end_marker.end()
        if end_marker:
            _, piece_end = pieces[-1]
            last_line = _find_last_line(text, piece_end, end_marker.start())
            return [*pieces, *last_line, end_marker.span()], end_marker.end()
        if next_header:
            return pieces, next_header.start()

        has_words = bool(line.strip(_LINE_PREFIX))
        if has_words and not spans and not is_field:
            other_lines += 1
        position = next_line
        line_end, next_line = _find_line_break(text, position)

    if pieces:
        _, piece_end = pieces[-1]
        pieces += _find_last_line(text, piece_end, min(position, piece_end + 80))
    return pieces, max(position, start)


def _find_key_spans(line: str, *, is_field: bool) -> list[Span]:
    """Find the spans in a line that look like parts of a key.

    A header field, such as `Comment: …`, has none, unless at least one of its spans is long.
    """
    spans = [match.span() for match in PATTERNS["material"].finditer(line)]
    if is_field:
        is_any_long = any(
            span_end - span_start >= _LEAST_IN_FIELD for span_start, span_end in spans
        )
        return spans if is_any_long else []
    if spans:
        return spans
    # The key may have been written with blanks between its characters or groups of them.
    for match in PATTERNS["spaced"].finditer(line):
        letters = match[0].replace(" ", "")
        small_letters = sum(map(str.islower, letters))
        other_characters = len(letters) - small_letters
        has_digit = any(map(str.isdigit, letters))
        # In a key, unlike in a sentence, many characters are digits or capitals.
        if small_letters and has_digit and other_characters * 10 >= len(letters) * 4:
            spans.append(match.span())
    return spans


def _find_last_line(text: str, start: int, end: int) -> list[Span]:
    """Find the short last line of a key, between the rest of the key and its end marker.

    `start` is the end of the rest of the key, and `end` the start of the marker. Returns a list with the
    line's span, or an empty list if there's no such line.
    """
    last_line = PATTERNS["last"].search(text, max(start, end - 60), end)
    if last_line and PATTERNS["between"].fullmatch(text, start, last_line.start()):
        return [last_line.span()]
    return []
