"""Reads YAML's quoted and bracketed values, even over several lines, for front_matter.py."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NULLS = frozenset(("~", "null", "Null", "NULL"))
_MAX_DEPTH = 12
_INDICATORS = ",[]{}"
_PLAIN_TEXT_END_SIGNS = frozenset(f"{_INDICATORS}:#")
_SPECIAL_SIGNS = ("&", "*", "!", "%", "@", "`", "|", ">")
_BLANKS = (" ", "\t")
# The character after a backslash in double quotes, and its meaning.
_CHAR_BY_ESCAPE = dict(
    zip('0abtnvfreN_LP "/\\\t', '\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029 "/\\\t', strict=True)
)
_HEX_DIGIT_COUNT_BY_ESCAPE = {"x": 2, "u": 4, "U": 8}
_LAST_CHARACTER = 0x10FFFF


def find_quote_end(line: str, quote: str, start: int) -> int:
    """Find the closing quote on this line; -1 if the text continues on the next line."""
    if quote == "'":
        return _find_single_quote(line, start)
    return _find_double_quote(line, start)


def _find_single_quote(line: str, start: int) -> int:
    """Find the closing single quote. Two in a row are an escaped quote, and don't end the text."""
    end = line.find("'", start)
    while end >= 0 and line.startswith("'", end + 1):
        end = line.find("'", end + 2)
    return end


def _find_double_quote(line: str, start: int) -> int:
    """Find the closing double quote. A quote after a backslash is escaped, and doesn't end the text."""
    quote = line.find('"', start)
    while quote >= 0:
        backslash = line.find("\\", start, quote)
        if backslash < 0:
            return quote
        start = backslash + 2  # after the escaped character
        quote = line.find('"', start)
    return -1


def unquote(lines: Sequence[str], quote: str) -> str:
    """Join a quoted text's lines and replace its escapes. The outer quotes are already removed."""
    if quote == "'":
        return fold(lines).replace("''", "'")
    text = _replace_escapes(_fold_escaped(lines))
    # An escape can be half of a surrogate pair, which isn't a valid character.
    return text.encode("utf-8", "replace").decode()


def fold(lines: Sequence[str]) -> str:
    """Join lines with spaces. Blank lines become line breaks instead."""
    if len(lines) < 2:  # noqa: PLR2004 - nothing to join
        return "".join(lines)

    folded = lines[0].rstrip()
    blank_lines = 0
    for line in lines[1:]:
        text = line.strip()
        if not text:
            blank_lines += 1
            continue
        separator = "\n" * blank_lines if blank_lines else " "
        folded += separator + text
        blank_lines = 0

    return folded


def _fold_escaped(lines: Sequence[str]) -> str:
    """Join lines as `fold` does, but without a space after a line that ends with a backslash."""
    joined = [lines[0]]
    for line in lines[1:]:
        last_line = joined[-1].rstrip()
        if _ends_with_escape(last_line):
            without_backslash = last_line[:-1]
            joined[-1] = without_backslash + line.lstrip()
        else:
            joined.append(line)
    return fold(joined)


def _ends_with_escape(line: str) -> bool:
    """Whether a line ends with a backslash of its own: two of them are a literal backslash."""
    without_backslashes = line.rstrip("\\")
    backslashes = len(line) - len(without_backslashes)
    return backslashes % 2 == 1


def _replace_escapes(text: str) -> str:
    """Replace the escapes in a text. Unknown escapes stay unchanged."""
    pieces: list[str] = []
    start = 0
    backslash = text.find("\\")
    while backslash >= 0:
        pieces.append(text[start:backslash])
        char, start = _read_escape(text, backslash)
        pieces.append(char)
        backslash = text.find("\\", start)
    pieces.append(text[start:])
    return "".join(pieces)


def _read_escape(text: str, backslash: int) -> tuple[str, int]:
    """Return the text that the escape at this backslash stands for, and the position after it."""
    letter_end = backslash + 2
    letter = text[backslash + 1 : letter_end]  # such as the `n` of `\n`
    digits_end = letter_end + _HEX_DIGIT_COUNT_BY_ESCAPE.get(letter, 0)
    digits = text[letter_end:digits_end]
    is_complete = digits_end <= len(text)
    if digits and is_complete:  # such as `\u00e9`
        char = _read_code_point(digits)
        if char is not None:
            return char, digits_end
    unchanged = f"\\{letter}"
    return _CHAR_BY_ESCAPE.get(letter, unchanged), letter_end


def _read_code_point(digits: str) -> str | None:
    """Return the character with this hexadecimal code point; None if it's invalid."""
    try:
        code = int(digits, 16)
    except ValueError:
        return None
    return chr(code) if 0 <= code <= _LAST_CHARACTER else None


class _Level:
    """An open bracket: a mapping or a list, its values' path (None if they're skipped), the current key."""

    __slots__ = ("is_mapping", "key", "path")

    def __init__(self, path: str | None, *, is_mapping: bool) -> None:
        self.is_mapping = is_mapping
        self.path = path
        self.key: str | None = None

    def find_value_path(self) -> str | None:
        """Return the next value's path, such as `metadata.tags`; None if the value is skipped."""
        if self.path is None:  # all that's in this bracket is skipped
            return None
        has_key = self.key is not None
        if not self.is_mapping:
            return None if has_key else self.path  # a pair in a list, as in `[a: 1]`, is skipped
        if not has_key:  # so is an item without a key in a mapping, as in `{a}`
            return None
        is_outermost = self.path == ""
        return self.key if is_outermost else f"{self.path}.{self.key}"


class FlowReader:
    """Reads a list or a mapping in brackets, line after line.

    `fields` has the values of a mapping by path; those of a list, and of lists in it, have the path "".
    """

    def __init__(self) -> None:
        self.fields: dict[str, list[str]] = {}
        self.is_done = False  # whether the outermost bracket is closed
        self.is_yaml = True
        self._levels: list[_Level] = []  # the open brackets, outermost first
        # The key or value read since the last bracket, comma or colon.
        self._text: str | None = None
        self._is_quoted = False  # whether `_text` was in quotes
        self._quote = ""  # the quote that's still open at the end of a line
        self._quoted_lines: list[str] = []

    def add_line(self, line: str) -> None:
        """Read one more line. Stops at anything that isn't YAML."""
        position = 0
        if self._quote:  # a quoted text continues from the line before
            position = self._add_quoted(line, 0)
        while position < len(line) and self.is_yaml:
            char = line[position]
            if char == "#":  # the rest is a comment
                return
            if char in _BLANKS:
                position += 1
            elif self.is_done:  # the outermost bracket is closed, so no text may follow
                self.is_yaml = False
            else:
                position = self._read_part(line, position)

    def _read_part(self, line: str, position: int) -> int:
        """Read a bracket, a comma, the end of a key, or a text. Returns the position after it."""
        char = line[position]
        if char in _INDICATORS:
            self._add_indicator(char)
            return position + 1
        if char == ":" and self._ends_key(line, position):
            self._end_key()
            return position + 1
        is_at_start = self._text is None
        if is_at_start and char in "\"'":
            self._quote = char
            self._quoted_lines = []
            return self._add_quoted(line, position + 1)
        return self._add_plain(line, position)

    def _add_indicator(self, char: str) -> None:
        """Open or close a bracket, or end an item at a comma."""
        if char in "[{":
            self._open_bracket(is_mapping=char == "{")
            return

        level = self._levels[-1]
        self._end_item(level)
        if char == ",":
            return

        closes_mapping = char == "}"
        self.is_yaml = level.is_mapping == closes_mapping  # `[}` isn't YAML
        self._levels.pop()
        self.is_done = not self._levels

    def _open_bracket(self, *, is_mapping: bool) -> None:
        """Open a bracket.

        A bracket right after a text isn't YAML. One that's nested too deep is treated in the same way.
        """
        path = self._choose_path(is_mapping=is_mapping)
        follows_text = self._text is not None
        is_too_deep = len(self._levels) >= _MAX_DEPTH
        if follows_text or is_too_deep:
            self.is_yaml = False
        self._levels.append(_Level(path, is_mapping=is_mapping))

    def _choose_path(self, *, is_mapping: bool) -> str | None:
        """Return the path for the values of a new bracket; None if they're skipped."""
        if not self._levels:  # the outermost bracket
            return ""
        level = self._levels[-1]
        is_in_list = not level.is_mapping
        if is_mapping and is_in_list:  # the values of several mappings in a list would get mixed up
            return None
        return level.find_value_path()

    def _ends_key(self, line: str, position: int) -> bool:
        """Whether a colon ends a key: it's before a blank or bracket, or after a quoted key."""
        if self._is_quoted:
            return True
        next_char = line[position + 1 : position + 2]  # "" at the end of the line
        return next_char in ("", *_BLANKS, *_INDICATORS)

    def _end_key(self) -> None:
        """Turn the text read so far into a key. A second key in the same pair isn't YAML."""
        level = self._levels[-1]
        if level.key is not None:
            self.is_yaml = False
        level.key = "" if self._text is None else self._text
        self._text = None
        self._is_quoted = False

    def _end_item(self, level: _Level) -> None:
        """Add the text read so far to its path's values, unless it's empty, null or skipped."""
        path = level.find_value_path()
        text = self._get_value_text()
        if path is not None:
            values = self.fields.setdefault(path, [])  # without a value, the field's list is empty
            if text:
                values.append(text)
        level.key = None
        self._text = None
        self._is_quoted = False

    def _get_value_text(self) -> str:
        """Return the text read so far; "" for none and for null. In quotes, `"null"` is a text."""
        is_null = self._text in NULLS and not self._is_quoted
        return "" if is_null else self._text or ""

    def _add_quoted(self, line: str, start: int) -> int:
        """Add a line of a quoted text, up to the closing quote. Returns the position after the quote.

        If the text continues on the next line, returns the end of this line.
        """
        end = find_quote_end(line, self._quote, start)
        if end < 0:
            self._quoted_lines.append(line[start:])
            return len(line)
        self._quoted_lines.append(line[start:end])
        self._text = unquote(self._quoted_lines, self._quote)
        self._is_quoted = True
        self._quote = ""
        return end + 1

    def _add_plain(self, line: str, start: int) -> int:
        """Add an unquoted text up to its end on this line. Returns the end's position."""
        end = self._find_text_end(line, start)
        text = line[start:end].strip()
        is_first_line = self._text is None
        follows_quotes = self._is_quoted  # as in `"a" b`
        has_wrong_start = is_first_line and _starts_specially(text)  # as in `&a`
        if follows_quotes or has_wrong_start:
            self.is_yaml = False
        self._text = text if is_first_line else f"{self._text} {text}"
        return end

    def _find_text_end(self, line: str, start: int) -> int:
        """Find the end of an unquoted text: a bracket, comma, key's colon or comment, or the line's end."""
        for position in range(start + 1, len(line)):
            if line[position] in _PLAIN_TEXT_END_SIGNS and self._ends_text(line, position):
                return position
        return len(line)

    def _ends_text(self, line: str, position: int) -> bool:
        """Whether the sign at this position, one of the `_PLAIN_TEXT_END_SIGNS`, ends an unquoted text.

        A colon may be part of the text, as in `12:30`, and so may a `#`, as in `C#`.
        """
        sign = line[position]
        if sign == ":":
            return self._ends_key(line, position)
        if sign == "#":
            return line[position - 1] in _BLANKS
        return True  # a bracket or a comma


def _starts_specially(text: str) -> bool:
    """Whether a text starts with a sign that means something else in YAML, such as `&` or `- `."""
    is_indicator = text.startswith(_SPECIAL_SIGNS)
    # `?` and `-` are special only before a space or alone: `-1` is a text.
    is_marker = text[:2] in ("?", "? ", "-", "- ")
    return is_indicator or is_marker
