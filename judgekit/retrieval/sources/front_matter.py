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
_MOST_LINES = 1_000  # of a header
_MOST_CHARACTERS = 100_000  # the same
_MOST_DEPTH = 12  # of nested mappings and lists
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
    """Read the header that a text begins with; without a header, there are no fields, and all is body.

    Some tools put a header of their own above the text's header. Then the values of the second one win.
    """
    first_header = _read_header(text)
    if not first_header.fields:
        return first_header
    text_below = first_header.body.lstrip("\r\n \t")
    if not text_below.startswith(_YAML):
        return first_header
    second_header = _read_header(text_below)
    # A horizontal rule (`---`) in a text looks like the beginning of a header.
    is_header = second_header.fields and second_header.problem is None
    has_sentences = any(" " in key for key in second_header.fields)
    if not is_header or has_sentences:
        return first_header

    blank_between = first_header.body[: len(first_header.body) - len(text_below)]
    lines_above = first_header.lines_above + blank_between.count("\n") + second_header.lines_above
    fields = {**first_header.fields, **second_header.fields}
    return FrontMatter(fields, second_header.body, first_header.problem, lines_above)


def _read_header(text: str) -> FrontMatter:
    """Read the header that a text begins with.

    If there's none, or if sentences are between its fences, the whole text is the body.
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

    lines_above = len(lines) + 2  # with the fences
    reader = _YamlReader(lines)
    reader.read()
    problem = None
    if reader.problem_line:
        line = reader.problem_line + 1  # the fence is the file's first line
        problem = f"line {line} of its front matter is not YAML; searched as it is written"
    if _is_prose(reader):
        is_meant_as_header = not KNOWN_KEYS.isdisjoint(reader.fields)
        return FrontMatter({}, text, problem if is_meant_as_header else None)
    if reader.unread:  # lines that aren't YAML become the beginning of the text
        body = "\n".join([*reader.unread, body])
        lines_above -= len(reader.unread)
    return FrontMatter(reader.fields, body, problem, lines_above)


def _cut_header(text: str, fence: str) -> tuple[list[str], str] | None:
    """Cut a header off a text. Returns the lines between the two fences, and the text below the second.

    None if there's no header, or if it's too long.
    """
    start = text.find("\n") + 1  # of the second line
    is_fence_alone = text[:start].rstrip() == fence
    if not start or not is_fence_alone:
        return None

    end_fences = _ENDS[fence]
    lines: list[str] = []
    while start < len(text) and start < _MOST_CHARACTERS and len(lines) <= _MOST_LINES:
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        line = text[start:end].rstrip()
        if line in end_fences:
            body = text[end + 1 :]
            if "\r" in body:
                return lines, "\n".join(lines_of(body))
            return lines, body.removesuffix("\n")
        lines.append(line)
        start = end + 1
    return None


def _describe_too_long(text: str, fence: str) -> str | None:
    """Say that a header is too long to be read; None if the text doesn't begin with a header at all."""
    has_many_lines = text.count("\n", 0, _MOST_CHARACTERS) > _MOST_LINES
    is_long = has_many_lines or len(text) > _MOST_CHARACTERS
    _, _, below_fence = text.partition("\n")
    first_line, _, _ = below_fence.partition("\n")
    key_end = ":" if fence == _YAML else "="
    key, _, _ = first_line.partition(key_end)
    begins_as_header = key.strip().lower() in KNOWN_KEYS
    has_end = f"\n{fence}" in text[len(fence) :]
    if not is_long or not begins_as_header or not has_end:
        return None
    limits = f"{_MOST_LINES:,} lines or {_MOST_CHARACTERS:,} characters"
    return f"its front matter has more than {limits}; searched as it is written"


def _read_toml(lines: list[str], body: str, text: str) -> FrontMatter:
    """Read the lines of a header in TOML; if they aren't TOML, the whole `text` is the body."""
    import tomllib  # noqa: PLC0415 - few notes have such a header

    try:
        table = tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        problem = f"its front matter is not TOML ({error}); searched as it is written"
        return FrontMatter({}, text, problem)
    fields: dict[str, list[str]] = {}
    _add_table(fields, "", table)
    return FrontMatter(fields, body, lines_above=len(lines) + 2)  # with the fences


def _add_table(fields: dict[str, list[str]], prefix: str, table: Mapping[str, object]) -> None:
    """Add the values of a TOML table to `fields`; tables in lists have no path and are left out."""
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
    """Return a plain value as text, as it's written in TOML: `true`, not Python's `True`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _is_prose(reader: _YamlReader) -> bool:
    """Whether the lines between two `---` are sentences and not a header; one may have a colon."""
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
        """Read all lines: a mapping in braces, or pairs, which begin at the indent of the first one."""
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
            if self._line_index == index_before:  # the line is less indented than the first key
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
        """Go to the next line that isn't blank or a comment, and return its indent; -1 at the end."""
        while self._line_index < len(self.lines):
            line = self.lines[self._line_index]
            text = line.lstrip()
            if text and text[0] != "#":
                return len(line) - len(text)
            self._line_index += 1
        return -1

    def _skip_line(self) -> None:
        """Go past a line that isn't YAML, and put it among the `unread`."""
        line = self.lines[self._line_index]
        self.unread.append(line.strip())
        self._line_index += 1
        self._note_problem(self._line_index)

    def _note_problem(self, line_number: int) -> None:
        """Note the line of the first problem; further ones don't count."""
        if not self.problem_line:
            self.problem_line = line_number

    def _read_mapping(self, indent: int, prefix: str | None, depth: int) -> None:
        """Read the pairs at one indent into `fields`; a pair's path is the `prefix` and its key.

        With None as the prefix, the pairs aren't stored: a mapping in a list has no path.
        """
        while True:
            next_indent = self._skip_to_indent()
            if next_indent < indent:
                return
            pair = None
            if next_indent == indent:
                pair = _split_pair(self.lines[self._line_index].strip())
            if pair is None:
                self._skip_line()
                continue
            key, value = pair
            self._line_index += 1
            if depth == 0:
                self.entries += 1
            if prefix == "":
                self.keys.append(key)
            path = None if prefix is None else (prefix + key).lower()
            values = self._read_value(value, indent, path, depth)
            if path is not None:
                self.fields[path] = values

    def _read_value(self, text: str, indent: int, path: str | None, depth: int) -> list[str]:
        """Read the texts of a value that begins with `text`, behind a key or a dash with this `indent`.

        A list has several texts, any other value has one, and null has none. The values of a mapping go to
        `fields` instead.
        """
        first_char = text[:1]
        if first_char in ("", "#"):
            return self._read_below(indent, path, depth)

        # The quick way for most values: a few words on one line.
        if (
            first_char.isalnum()
            and self._value_ends_here()
            and _is_plain(text)
            and " #" not in text
        ):
            return [] if text in NULLS else [text]

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
        """Whether the next line can't belong to the value: it's neither blank nor indented."""
        if self._line_index >= len(self.lines):
            return False
        first_char = self.lines[self._line_index][:1]
        return first_char != "" and not first_char.isspace()

    def _read_below(self, indent: int, path: str | None, depth: int) -> list[str]:
        """Read a value that begins on the next line: a list, a mapping or a text; [] if there's none."""
        indent_below = self._skip_to_indent()
        if indent_below < indent:
            return []
        text = self.lines[self._line_index].strip()
        is_item = text[:2] in ("- ", "-")
        is_deeper = indent_below > indent
        if not is_deeper and not is_item:  # the next key
            return []
        if depth >= _MOST_DEPTH:
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
        """Read the items at one indent; mappings among them are left out."""
        values: list[str] = []
        while self._skip_to_indent() == indent:
            line = self.lines[self._line_index].strip()
            if line[:2] not in ("- ", "-"):
                break
            text = line[1:].lstrip()
            text_indent = indent + len(line) - len(text)
            is_list = text[:2] in ("- ", "-")
            is_nested = is_list or _split_pair(text) is not None
            if is_nested and depth < _MOST_DEPTH:
                # Read the text behind the dash as if it were on a line of its own.
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
        """Read a text without quotes, including the lines below that are indented more than its key.

        Returns a list with this text, or an empty list for null. Text that isn't YAML is returned as it's
        written.
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
        """Add the lines that continue a plain text to `parts`; return whether all of them are YAML."""
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
                if ": " in text or text[-1] == ":":  # it would be a key, but a text has none
                    is_yaml = False
        return is_yaml

    def _read_block(self, text: str, indent: int) -> list[str] | None:
        """Read the literal (`|`) or folded (`>`) text on the lines below.

        None if the sign isn't one such as `|`, `|2` or `>-`. Returns a list of the one text; an empty list if
        it's blank.
        """
        signs = _strip_comment(text)[1:]
        digit = signs.strip("+-")  # of its indent, "" if it has none
        has_several = len(signs) - len(digit) > 1 or len(digit) > 1
        if has_several or digit not in "123456789":
            return None

        margin = indent + int(digit) if digit else None  # by default that of the first line
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
        """Read a text in quotes, which may go on over several lines.

        None if the text has no end quote, or if anything but a comment follows it. Returns a list of the one
        text; an empty list if there's nothing in the quotes.
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

        behind_quote = line[end + 1 :].lstrip()
        if behind_quote and behind_quote[0] != "#":
            return None
        parts.append(line[:end])
        self._line_index = next_line
        value = unquote(parts, quote)
        return [value] if value else []

    def _read_flow_value(self, text: str, path: str | None) -> list[str] | None:
        """Return the items of a list in brackets; None if it isn't YAML.

        A mapping in braces gives an empty list: its values become fields of their own.
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
        """Read until the first bracket is closed; None if it never is, or if something in it isn't YAML.

        Returns the values of a mapping by path; those of a list have the path "".
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
        """Whether the search for the end of a quote or a bracket may read this line; each call counts.

        There's a limit, because many quotes without an end would take quadratic time.
        """
        self._lines_ahead -= 1
        return line < len(self.lines) and self._lines_ahead > 0


def _split_pair(text: str) -> tuple[str, str] | None:
    """Split a line into its key and the text behind the colon; None if the line isn't such a pair."""
    first_char = text[:1]
    if first_char in ("'", '"'):
        return _split_quoted_pair(text)
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
    """Split a line that begins with a key in quotes; None if no colon follows the quotes."""
    quote = text[0]
    end = find_quote_end(text, quote, 1)
    behind_key = text[end + 1 :].lstrip()
    if end < 0 or behind_key[:2] not in (":", ": ", ":\t"):
        return None
    return unquote([text[1:end]], quote), behind_key[1:].strip()


def _strip_comment(text: str) -> str:
    start = text.find(" #")
    return text[:start].rstrip() if start >= 0 else text


def _is_plain(text: str) -> bool:
    """Whether YAML reads a text as one value without quotes: no pair, no item, no special sign in front."""
    if ": " in text or text[-1:] == ":":
        return False
    is_item_or_key = text[:2] in ("- ", "-", "? ")
    return not is_item_or_key and text[:1] not in _RESERVED
