"""Reads YAML's quoted and bracketed values, even over several lines, for front_matter.py."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NULLS = frozenset(("~", "null", "Null", "NULL"))
_MAX_DEPTH = 12
_INDICATORS = ",[]{}"
_STOPS = frozenset(f"{_INDICATORS}:#")
_BLANKS = (" ", "\t")
# The character after a backslash in double quotes, and its meaning.
_ESCAPES = dict(
    zip('0abtnvfreN_LP "/\\\t', '\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029 "/\\\t', strict=True)
)
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_LAST_CHARACTER = 0x10FFFF


def find_quote_end(line: str, quote: str, start: int) -> int:
    """Find the closing quote on this line; -1 if the text continues on the next line."""
    if quote == "'":
        end = line.find("'", start)
        # Two single quotes in a row are an escaped quote, and don't end the text.
        while end >= 0 and line.startswith("'", end + 1):
            end = line.find("'", end + 2)
        return end

    while True:
        end = line.find('"', start)
        search_end = end if end >= 0 else len(line)
        backslash = line.find("\\", start, search_end)
        if backslash < 0:
            return end
        start = backslash + 2  # skip the escaped character, which may be a quote


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
        backslashes = len(last_line) - len(last_line.rstrip("\\"))
        is_escaped = backslashes % 2 == 1  # two backslashes are a literal backslash
        if is_escaped:
            joined[-1] = last_line[:-1] + line.lstrip()
        else:
            joined.append(line)
    return fold(joined)


def _replace_escapes(text: str) -> str:
    """Replace the escapes in a text. Unknown escapes stay unchanged."""
    pieces: list[str] = []
    start = 0
    while True:
        backslash = text.find("\\", start)
        if backslash < 0:
            pieces.append(text[start:])
            return "".join(pieces)

        pieces.append(text[start:backslash])
        digits_start = backslash + 2
        sign = text[backslash + 1 : digits_start]
        digits_end = digits_start + _HEX_DIGITS.get(sign, 0)
        digits = text[digits_start:digits_end]
        char = None
        if digits and digits_end <= len(text):  # a complete escape such as `\u00e9`
            char = _read_code_point(digits)
        if char is None:
            pieces.append(_ESCAPES.get(sign, f"\\{sign}"))
            start = digits_start
        else:
            pieces.append(char)
            start = digits_end


def _read_code_point(digits: str) -> str | None:
    """Return the character with this hexadecimal code point; None if it's invalid."""
    try:
        code = int(digits, 16)
    except ValueError:
        return None
    return chr(code) if 0 <= code <= _LAST_CHARACTER else None


class _Level:
    """An open bracket: a mapping or a list, the path of its values (None: left out), and the current key."""

    __slots__ = ("is_mapping", "key", "path")

    def __init__(self, path: str | None, *, is_mapping: bool) -> None:
        self.is_mapping = is_mapping
        self.path = path
        self.key: str | None = None

    def value_path(self) -> str | None:
        """Return the next value's path; None for a skipped value, as in a list's pairs."""
        if not self.is_mapping:
            is_in_pair = self.key is not None
            return None if is_in_pair else self.path
        if self.path is None or self.key is None:
            return None
        is_outermost = self.path == ""
        return self.key if is_outermost else f"{self.path}.{self.key}"


class FlowReader:
    """Reads a list or a mapping in brackets, line after line.

    `fields` has the values of a mapping by path; those of a list, and of lists in it, have the path "".
    """

    def __init__(self) -> None:
        self.fields: dict[str, list[str]] = {}
        self.is_done = False
        self.is_yaml = True
        self._levels: list[_Level] = []
        self._item: str | None = None
        self._is_quoted = False
        self._quote = ""  # of a text in quotes that goes on below
        self._quoted_lines: list[str] = []

    def add_line(self, line: str) -> None:
        """Read one more line, until the first bracket is closed or something isn't YAML."""
        position = 0
        if self._quote:
            position = self._add_quoted(line, 0)
        while position < len(line) and self.is_yaml:
            char = line[position]
            if char in _BLANKS:
                position += 1
            elif char == "#":
                return
            elif self.is_done:  # there's more text after the last bracket
                self.is_yaml = False
            elif char in _INDICATORS:
                self._add_indicator(char)
                position += 1
            elif char == ":" and self._ends_key(line, position):
                self._end_key()
                position += 1
            elif char in "\"'" and self._item is None:
                self._quote = char
                self._quoted_lines = []
                position = self._add_quoted(line, position + 1)
            else:
                position = self._add_plain(line, position)

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

        It isn't YAML if the bracket directly follows a text. Too deep nesting isn't read either.
        """
        path: str | None = ""
        if self._levels:
            level = self._levels[-1]
            path = level.value_path()
            is_in_list = not level.is_mapping
            if is_mapping and is_in_list:
                path = None  # the values of several mappings in a list would get mixed up
        if self._item is not None or len(self._levels) >= _MAX_DEPTH:
            self.is_yaml = False
        self._levels.append(_Level(path, is_mapping=is_mapping))

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
        level.key = "" if self._item is None else self._item
        self._item = None
        self._is_quoted = False

    def _end_item(self, level: _Level) -> None:
        """Add the text read so far to its path's values, unless it's empty or null."""
        path = level.value_path()
        is_null = self._item in NULLS and not self._is_quoted
        if path is not None:
            values = self.fields.setdefault(path, [])
            if self._item and not is_null:
                values.append(self._item)
        level.key = None
        self._item = None
        self._is_quoted = False

    def _add_quoted(self, line: str, start: int) -> int:
        """Add a line of a quoted text, up to the closing quote. Returns the position after the quote.

        If the text continues on the next line, returns the end of this line.
        """
        end = find_quote_end(line, self._quote, start)
        if end < 0:
            self._quoted_lines.append(line[start:])
            return len(line)
        self._quoted_lines.append(line[start:end])
        self._item = unquote(self._quoted_lines, self._quote)
        self._is_quoted = True
        self._quote = ""
        return end + 1

    def _add_plain(self, line: str, start: int) -> int:
        """Add an unquoted text up to its end on this line. Returns the end's position."""
        end = start + 1
        while end < len(line):
            if line[end] in _STOPS and self._ends_text(line, end):
                break
            end += 1

        text = line[start:end].strip()
        is_first_line = self._item is None
        has_special_sign = text[0] in "&*!%@`|>" or text[:2] in ("?", "? ", "-", "- ")
        if self._is_quoted or (is_first_line and has_special_sign):
            self.is_yaml = False
        self._item = text if is_first_line else f"{self._item} {text}"
        return end

    def _ends_text(self, line: str, position: int) -> bool:
        """Whether one of the `_STOPS` ends an unquoted text at this position.

        A colon or a `#` may be part of the text.
        """
        char = line[position]
        if char == ":":
            return self._ends_key(line, position)
        if char == "#":
            return line[position - 1] in _BLANKS
        return True
