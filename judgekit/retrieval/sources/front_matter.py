"""Reads the header of a text: the part of YAML that front matter uses, with the standard library alone.

Every value is text: no value becomes a number, a date or a boolean, and an alias or a tag is none. A nested
key is called by its path (`hero.title`), so it's never taken for the page's own. A value that isn't YAML
stays as it's written, other lines that aren't stay in the text, and `problem` says so. Headers in TOML are
read, too.
"""

from __future__ import annotations

from judgekit.retrieval.sources import force
from judgekit.retrieval.sources.yaml_flow import NULLS, FlowReader, find_quote_end, fold, unquote
from judgekit.text import lines_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_KNOWN_KEYS = """
    title name description summary tags keywords aliases alias type category date record_status archived
    retired draft
"""
KNOWN_KEYS = force.KEYS.union(_KNOWN_KEYS.split())
_YAML = "---"
_TOML = "+++"
_ENDS = {_YAML: (_YAML, "..."), _TOML: (_TOML,)}
_MAX_LINES = 1_000  # of a header
_MAX_CHARS = 100_000  # the same
_MAX_DEPTH = 12  # of nested mappings and lists
# Characters that can't begin a plain value: tags, anchors, aliases, and signs reserved by YAML.
_RESERVED = frozenset("&*!%@`,]}|>")
_NO_KEYS = _RESERVED | frozenset("[{#?")


class FrontMatter:
    """The `fields` of a header by lower-case key, the text below it, and the `problem` of unreadable parts.

    `lines_above` is the number of the file's lines above the text.
    """

    __slots__ = ("body", "fields", "lines_above", "problem")

    def __init__(
        self,
        fields: dict[str, list[str]],
        body: str,
        problem: str | None = None,
        lines_above: int = 0,
    ) -> None:
        self.fields = fields
        self.body = body
        self.problem = problem
        self.lines_above = lines_above


def read_front_matter(text: str) -> FrontMatter:
    """Read the header at the start of a text. Without a header, everything is body.

    Some tools put their own header above an existing header. Then the values of the second header win.
    """
    first_header = _read_header(text)
    if not first_header.fields:
        return first_header

    text_below = first_header.body.lstrip("\r\n \t")
    if not text_below.startswith(_YAML):
        return first_header

    second_header = _read_header(text_below)
    # A horizontal rule (`---`) in the text looks like the start of a second header.
    is_header = second_header.fields and second_header.problem is None
    has_sentences = any(" " in key for key in second_header.fields)
    if not is_header or has_sentences:
        return first_header

    # Count the lines above the body, so that its line numbers are those in the file.
    blank_between = first_header.body[: len(first_header.body) - len(text_below)]
    lines_above = first_header.lines_above + blank_between.count("\n") + second_header.lines_above
    fields = {**first_header.fields, **second_header.fields}
    return FrontMatter(fields, second_header.body, first_header.problem, lines_above)


def _read_header(text: str) -> FrontMatter:
    """Read the header at the start of a text, between two lines such as `---` (its fences).

    Without a header, the entire text is the body. That's also the case if the header contains prose.
    """
    fence = text[:3]
    if fence not in _ENDS:
        return FrontMatter({}, text)

    header = _cut_header(text, fence)
    if header is None:
        return FrontMatter({}, text, _describe_too_long(text, fence))

    lines, body = header
    if fence == _TOML:
        return _read_toml(lines, body, text)

    lines_above = len(lines) + 2  # including the fences
    reader = _YamlReader(lines)
    reader.read()
    problem = None
    if reader.problem_line:
        line = reader.problem_line + 1  # the fence is the file's first line
        problem = f"line {line} of its front matter is not YAML; searched as it is written"

    if _is_prose(reader):
        # Report the problem only if the lines were meant as a header.
        is_meant_as_header = not KNOWN_KEYS.isdisjoint(reader.fields)
        return FrontMatter({}, text, problem if is_meant_as_header else None)

    if reader.unread:  # lines that aren't YAML are moved to the start of the body
        body = "\n".join([*reader.unread, body])
        lines_above -= len(reader.unread)
    return FrontMatter(reader.fields, body, problem, lines_above)


def _cut_header(text: str, fence: str) -> tuple[list[str], str] | None:
    """Cut a text into the header lines, between the two fences, and the body below them.

    Returns None if there's no header, or if it's too long.
    """
    start = text.find("\n") + 1  # the second line's
    is_fence_alone = text[:start].rstrip() == fence
    if not start or not is_fence_alone:
        return None

    end_fences = _ENDS[fence]
    lines: list[str] = []
    while start < len(text) and start < _MAX_CHARS and len(lines) <= _MAX_LINES:
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        line = text[start:end].rstrip()
        if line in end_fences:
            body = text[end + 1 :]
            # Convert other line endings.
            if "\r" in body:
                return lines, "\n".join(lines_of(body))
            return lines, body.removesuffix("\n")

        lines.append(line)
        start = end + 1

    return None


def _describe_too_long(text: str, fence: str) -> str | None:
    """Describe a header that's too long to read; None without such a header."""
    has_many_lines = text.count("\n", 0, _MAX_CHARS) > _MAX_LINES
    is_long = has_many_lines or len(text) > _MAX_CHARS
    # It's a header only if its first line has a known key, and its end has a fence.
    _, _, below_fence = text.partition("\n")
    first_line, _, _ = below_fence.partition("\n")
    key_end = ":" if fence == _YAML else "="
    key, _, _ = first_line.partition(key_end)
    begins_as_header = key.strip().lower() in KNOWN_KEYS
    has_end = f"\n{fence}" in text[len(fence) :]
    if not is_long or not begins_as_header or not has_end:
        return None

    limits = f"{_MAX_LINES:,} lines or {_MAX_CHARS:,} characters"
    return f"its front matter has more than {limits}; searched as it is written"


def _read_toml(lines: list[str], body: str, text: str) -> FrontMatter:
    """Read a TOML header from `lines`. If they aren't TOML, the entire `text` is the body."""
    import tomllib  # noqa: PLC0415 - few notes have such a header

    try:
        table = tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        problem = f"its front matter is not TOML ({error}); searched as it is written"
        return FrontMatter({}, text, problem)
    fields: dict[str, list[str]] = {}
    _add_table(fields, "", table)
    return FrontMatter(fields, body, lines_above=len(lines) + 2)  # including the fences


def _add_table(fields: dict[str, list[str]], prefix: str, table: Mapping[str, object]) -> None:
    """Add a TOML table's values to `fields`. Tables in lists have no path and are skipped."""
    for key, value in table.items():
        path = f"{prefix}{key}".lower()
        if isinstance(value, dict):
            _add_table(fields, f"{path}.", value)
        elif isinstance(value, list):
            plain_items = [item for item in value if not isinstance(item, dict | list)]
            fields[path] = [_write_as_toml(item) for item in plain_items]
        else:
            fields[path] = [_write_as_toml(value)]


def _write_as_toml(value: object) -> str:
    """Write a plain value as in TOML: `true`, not Python's `True`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _is_prose(reader: _YamlReader) -> bool:
    """Whether the lines between two `---` are sentences rather than a header. Sentences may have colons."""
    has_mostly_unread_lines = reader.entries <= len(reader.unread)
    if not reader.begins_with_key or has_mostly_unread_lines:
        return True
    has_known_key = not KNOWN_KEYS.isdisjoint(reader.fields)
    if has_known_key:
        return False
    has_problem = reader.problem_line > 0
    has_key_of_several_words = any(" " in key for key in reader.keys)
    return has_problem or has_key_of_several_words or _is_note(reader)


def _is_note(reader: _YamlReader) -> bool:
    """Whether the only key is the first word of a sentence, as in `Note: the boat is late`."""
    if len(reader.keys) != 1:
        return False
    (key,) = reader.keys
    return key[:1].isupper()


class _YamlReader:
    """Reads the lines of a header from top to bottom. `unread` are those that aren't YAML."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.fields: dict[str, list[str]] = {}
        self.keys: list[str] = []  # the page's own, as they're written
        self.unread: list[str] = []
        self.problem_line = 0  # the first that isn't YAML; the first of all is 1
        self.begins_with_key = False
        self.entries = 0
        self._line_index = 0  # of the next line to read
        self._lines_ahead = 4 * len(lines)  # read for values that may turn out to have no end

    def read(self) -> None:
        """Read all lines. They're either one mapping in braces, or pairs indented as the first one is."""
        indent = self._skip_to_indent()
        is_empty = indent < 0
        if is_empty:
            return
        text = self.lines[self._line_index].strip()
        if text[0] == "{":
            self._read_root_flow(text)
            return

        self.begins_with_key = _split_pair(text) is not None
        while self._skip_to_indent() >= 0:
            index_before = self._line_index
            self._read_mapping(indent, prefix="", depth=0)
            if self._line_index == index_before:  # the line is indented less than the first key
                self._skip_line()

    def _read_root_flow(self, text: str) -> None:
        """Read a header that's a single mapping in braces, as in JSON."""
        self._line_index += 1
        fields = self._read_closed_flow(text)
        if fields is None:
            self.problem_line = self._line_index
            return
        self.keys = list(fields)
        self.fields = {key.lower(): values for key, values in fields.items()}
        self.entries = len(fields)
        self.begins_with_key = True

    def _skip_to_indent(self) -> int:
        """Move to the next line that isn't blank or a comment. Returns its indent, or -1 at the end."""
        while self._line_index < len(self.lines):
            line = self.lines[self._line_index]
            text = line.lstrip()
            if text and text[0] != "#":
                return len(line) - len(text)
            self._line_index += 1
        return -1

    def _skip_line(self) -> None:
        """Skip a line that isn't YAML, and add it to `unread`."""
        line = self.lines[self._line_index]
        self.unread.append(line.strip())
        self._line_index += 1
        self._note_problem(self._line_index)

    def _note_problem(self, line_number: int) -> None:
        """Note the line of the first problem. Later problems are ignored."""
        if not self.problem_line:
            self.problem_line = line_number

    def _read_mapping(self, indent: int, prefix: str | None, depth: int) -> None:
        """Read the pairs at one indent into `fields`, under the path `prefix` + key.

        With `prefix` None, the pairs aren't stored, because a mapping in a list has no path.
        """
        while True:
            next_indent = self._skip_to_indent()
            if next_indent < indent:
                return

            # A line that's indented more than its siblings isn't a pair.
            pair = None
            if next_indent == indent:
                pair = _split_pair(self.lines[self._line_index].strip())
            if pair is None:
                self._skip_line()
                continue

            key, value = pair
            self._line_index += 1

            # Only top-level pairs count as the header's entries.
            if depth == 0:
                self.entries += 1
            if prefix == "":
                self.keys.append(key)
            path = None if prefix is None else (prefix + key).lower()
            values = self._read_value(value, indent, path, depth)
            if path is not None:
                self.fields[path] = values

    def _read_value(self, text: str, indent: int, path: str | None, depth: int) -> list[str]:
        """Read a value that starts with `text`, after a key or dash with this `indent`.

        Returns all items of a list, one string for a plain value, and nothing for null or a mapping. A
        mapping's values go to `fields`.
        """
        first_char = text[:1]
        if first_char in ("", "#"):
            return self._read_below(indent, path, depth)

        # Fast path for most values: a few words on one line.
        if (
            first_char.isalnum()
            and self._value_ends_here()
            and _is_plain(text)
            and " #" not in text
        ):
            return [] if text in NULLS else [text]

        # This stays None if the first character is misleading.
        values: list[str] | None = None
        if first_char in "|>":
            values = self._read_block(text, indent)
        elif first_char in "\"'":
            values = self._read_closed_quotes(text)
        elif first_char in "[{":
            values = self._read_flow_value(text, path)

        if values is None:
            values = self._read_plain(text, indent)
        return values

    def _value_ends_here(self) -> bool:
        """Whether the next line can't continue the current value, because it's neither blank nor indented."""
        if self._line_index >= len(self.lines):
            return False
        first_char = self.lines[self._line_index][:1]
        return first_char != "" and not first_char.isspace()

    def _read_below(self, indent: int, path: str | None, depth: int) -> list[str]:
        """Read a value that starts on the next line: a list, a mapping or text. Returns [] for none."""
        indent_below = self._skip_to_indent()
        if indent_below < indent:
            return []

        text = self.lines[self._line_index].strip()
        is_item = text[:2] in ("- ", "-")
        is_deeper = indent_below > indent
        if not is_deeper and not is_item:  # the next key
            return []
        if depth >= _MAX_DEPTH:
            return []

        if is_item:
            return self._read_list(indent_below, depth + 1)
        if _split_pair(text) is not None:
            prefix = None if path is None else f"{path}."
            self._read_mapping(indent_below, prefix, depth + 1)
            return []

        self._line_index += 1
        return self._read_value(text, indent, path, depth + 1)

    def _read_list(self, indent: int, depth: int) -> list[str]:
        """Read the list items at one indent. Mappings among them are skipped."""
        values: list[str] = []
        while self._skip_to_indent() == indent:
            line = self.lines[self._line_index].strip()
            if line[:2] not in ("- ", "-"):
                break

            text = line[1:].lstrip()
            text_indent = indent + len(line) - len(text)
            is_list = text[:2] in ("- ", "-")
            is_nested = is_list or _split_pair(text) is not None
            if is_nested and depth < _MAX_DEPTH:
                # Blank out the dash, so that the rest is read like a line on its own.
                self.lines[self._line_index] = " " * text_indent + text
                if is_list:
                    values += self._read_list(text_indent, depth + 1)
                else:
                    self._read_mapping(text_indent, prefix=None, depth=depth + 1)
                continue

            self._line_index += 1
            values += self._read_value(text, indent, None, depth)

        return values

    def _read_plain(self, text: str, indent: int) -> list[str]:
        """Read a value without quotes, including the lines below that are indented more than its key.

        Returns a list with one string, or an empty list for null. Text that isn't YAML is returned unchanged.
        """
        first_line = self._line_index
        value = _strip_comment(text)
        is_yaml = _is_plain(value) and text[0] not in "|>\"'[{"
        parts = [value if is_yaml else text]
        ends_with_comment = is_yaml and value != text
        if not ends_with_comment and not self._add_lines_below(parts, indent):
            is_yaml = False
        if not is_yaml:
            self._note_problem(first_line)
        whole_text = " ".join(parts)
        return [] if whole_text in NULLS else [whole_text]

    def _add_lines_below(self, parts: list[str], indent: int) -> bool:
        """Append the lines that continue a plain value to `parts`. Returns whether all of them are YAML."""
        is_yaml = True
        while self._line_index < len(self.lines):
            line = self.lines[self._line_index]
            text = line.lstrip()
            is_deeper = len(line) - len(text) > indent
            if text and (not is_deeper or text[0] == "#"):
                break

            self._line_index += 1
            if text:
                parts.append(text)
                # A key can't be inside a value.
                if ": " in text or text[-1] == ":":
                    is_yaml = False

        return is_yaml

    def _read_block(self, text: str, indent: int) -> list[str] | None:
        """Read the literal (`|`) or folded (`>`) text on the lines below.

        Returns a list with the text, or an empty list if it's blank. Returns None if `text` isn't a block
        indicator such as `|`, `|2` or `>-`.
        """
        signs = _strip_comment(text)[1:]
        digit = signs.strip("+-")  # the indent, or "" if it isn't given
        has_several = len(signs) - len(digit) > 1 or len(digit) > 1
        if has_several or digit not in "123456789":
            return None

        margin = indent + int(digit) if digit else None  # None: use the first line's indent
        lines: list[str] = []
        while self._line_index < len(self.lines):
            line = self.lines[self._line_index]
            line_indent = len(line) - len(line.lstrip())
            if line and line_indent <= indent:
                break

            if line and margin is None:
                margin = line_indent
            lines.append(line[margin:])
            self._line_index += 1

        if text[0] == ">":
            value = fold(lines).strip()
        else:
            value = "\n".join(lines).strip("\n")
        return [value] if value else []

    def _read_closed_quotes(self, text: str) -> list[str] | None:
        """Read a value in quotes, which may continue on the lines below.

        Returns a list with the text, or an empty list if the quotes are empty. Returns None without a closing
        quote, or if anything but a comment follows it.
        """
        quote = text[0]
        line = text[1:]
        parts: list[str] = []
        end = find_quote_end(line, quote, 0)
        next_line = self._line_index

        while end < 0:
            if not self._may_read_ahead(next_line):
                return None
            parts.append(line)
            line = self.lines[next_line]
            next_line += 1
            end = find_quote_end(line, quote, 0)

        after_quote = line[end + 1 :].lstrip()
        if after_quote and after_quote[0] != "#":
            return None

        parts.append(line[:end])
        self._line_index = next_line
        value = unquote(parts, quote)
        return [value] if value else []

    def _read_flow_value(self, text: str, path: str | None) -> list[str] | None:
        """Return the items of a list in brackets; None if it isn't YAML.

        For a mapping in braces, returns an empty list and stores the values in `fields`.
        """
        fields = self._read_closed_flow(text)
        if fields is None:
            return None
        if text[0] == "[":
            return fields.get("", [])
        if path is not None:
            for key, values in fields.items():
                self.fields[f"{path}.{key}".lower()] = values
        return []

    def _read_closed_flow(self, text: str) -> dict[str, list[str]] | None:
        """Read until the first bracket is closed. Returns None if that fails or the text isn't YAML.

        Otherwise returns a mapping's values by path. A list's values have the path "".
        """
        reader = FlowReader()
        reader.add_line(text)
        next_line = self._line_index
        while not reader.is_done and reader.is_yaml and self._may_read_ahead(next_line):
            reader.add_line(self.lines[next_line])
            next_line += 1
        if not reader.is_done or not reader.is_yaml:
            return None
        self._line_index = next_line
        return reader.fields

    def _may_read_ahead(self, line: int) -> bool:
        """Whether the search for a closing quote or bracket may read this line. Each call uses the budget.

        Without a budget, many unclosed quotes would take quadratic time.
        """
        self._lines_ahead -= 1
        return line < len(self.lines) and self._lines_ahead > 0


def _split_pair(text: str) -> tuple[str, str] | None:
    """Split a line into its key and the text after the colon; None if it isn't a pair."""
    first_char = text[:1]
    if first_char in ("'", '"'):
        return _split_quoted_pair(text)

    # The key ends at a colon followed by a blank or the end of the line.
    colon = text.find(": ")
    if colon < 0:
        colon = text.find(":\t")
    if colon < 0 and text.endswith(":"):
        colon = len(text) - 1
    if colon <= 0 or first_char in _NO_KEYS:
        return None

    is_item = text.startswith("- ")
    is_in_comment = " #" in text[:colon]
    if is_item or is_in_comment:
        return None
    return text[:colon].rstrip(), text[colon + 1 :].strip()


def _split_quoted_pair(text: str) -> tuple[str, str] | None:
    """Split a line that starts with a quoted key; None if no colon follows the quotes."""
    quote = text[0]
    end = find_quote_end(text, quote, 1)
    after_key = text[end + 1 :].lstrip()
    if end < 0 or after_key[:2] not in (":", ": ", ":\t"):
        return None
    return unquote([text[1:end]], quote), after_key[1:].strip()


def _strip_comment(text: str) -> str:
    start = text.find(" #")
    return text[:start].rstrip() if start >= 0 else text


def _is_plain(text: str) -> bool:
    """Whether a text is an unquoted YAML value: no pair, no list item, no special first sign."""
    if ": " in text or text[-1:] == ":":
        return False
    is_item_or_key = text[:2] in ("- ", "-", "? ")
    return not is_item_or_key and text[:1] not in _RESERVED
