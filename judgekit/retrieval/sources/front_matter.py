"""Reads the header of a text: the part of YAML that front matter uses, with the standard library alone.

Every value is text: no value becomes a number, a date or a boolean, and an alias or a tag is none. A nested
key is called by its path (`hero.title`), so it's never taken for the page's own. A value that isn't YAML
stays as it's written, other lines that aren't stay in the text, and `problem` says so. Headers in TOML are
read, too.
"""

from __future__ import annotations

from judgekit.retrieval.sources import force
from judgekit.retrieval.sources.yaml_flow import NULLS, FlowReader, find_quote_end, fold, unquote
from judgekit.text import split_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_KNOWN_KEYS = """
    title name description summary tags keywords aliases alias type category date record_status archived
    retired draft
"""
KNOWN_KEYS = force.KEYS.union(_KNOWN_KEYS.split())
_YAML_FENCE = "---"
_TOML_FENCE = "+++"
_END_FENCES_BY_FENCE = {_YAML_FENCE: (_YAML_FENCE, "..."), _TOML_FENCE: (_TOML_FENCE,)}
_MAX_LINES = 1_000  # of a header
_MAX_CHARS = 100_000  # the same
_MAX_DEPTH = 12  # of nested mappings and lists
# Characters that can't begin a plain value: tags, anchors, aliases, and signs reserved by YAML.
_NON_VALUE_START_CHARS = frozenset("&*!%@`,]}|>")
_NON_KEY_START_CHARS = _NON_VALUE_START_CHARS | frozenset("[{#?")
_BLOCK_INDENTS = ("", *"123456789")  # that the first line of a block may give


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

    A second header may follow, because some tools add theirs above an existing one. Its values win.
    """
    first_header = _read_header(text)
    if not first_header.fields:
        return first_header

    text_below = first_header.body.lstrip("\r\n \t")
    may_have_second = text_below.startswith(_YAML_FENCE)
    if not may_have_second:
        return first_header

    second_header = _read_header(text_below)
    if not _is_real_header(second_header):
        return first_header

    fields = {**first_header.fields, **second_header.fields}
    blank_lines = _count_blank_lines(first_header.body, text_below)
    lines_above = first_header.lines_above + blank_lines + second_header.lines_above
    # A second header with a problem isn't a real one, so only the first can have any.
    return FrontMatter(fields, second_header.body, first_header.problem, lines_above)


def _count_blank_lines(text: str, stripped_text: str) -> int:
    """Count the blank lines at the start of a text that `stripped_text` no longer has."""
    blank_chars = len(text) - len(stripped_text)
    return text.count("\n", 0, blank_chars)


def _is_real_header(header: FrontMatter) -> bool:
    """Whether a second header isn't just text below a horizontal rule (`---`), which looks the same."""
    has_sentences = any(" " in key for key in header.fields)
    is_readable = len(header.fields) > 0 and header.problem is None
    return is_readable and not has_sentences


def _read_header(text: str) -> FrontMatter:
    """Read the header at the start of a text, between two lines such as `---` (its fences).

    Without a header, the entire text is the body. That's also the case if the header contains prose.
    """
    fence = text[:3]
    if fence not in _END_FENCES_BY_FENCE:
        return FrontMatter({}, text)

    header = _cut_header(text, fence)
    if header is None:
        return FrontMatter({}, text, _describe_too_long(text, fence))

    lines, body = header
    if fence == _TOML_FENCE:
        return _read_toml(lines, body, text)
    return _read_yaml(lines, body, text)


def _cut_header(text: str, fence: str) -> tuple[list[str], str] | None:
    """Split a text into the lines of its header and the body below. The fences belong to neither.

    Returns None if there's no header, or if it's too long.
    """
    line_start = text.find("\n") + 1
    first_line = text[:line_start].rstrip()  # "" if the text has only one line
    if first_line != fence:
        return None

    end_fences = _END_FENCES_BY_FENCE[fence]
    chars_to_read = min(len(text), _MAX_CHARS)
    lines: list[str] = []
    while line_start < chars_to_read and len(lines) <= _MAX_LINES:
        line_end = text.find("\n", line_start)
        if line_end < 0:
            line_end = len(text)
        line = text[line_start:line_end].rstrip()
        if line in end_fences:
            body = text[line_end + 1 :]
            return lines, _convert_line_endings(body)

        lines.append(line)
        line_start = line_end + 1

    return None


def _convert_line_endings(body: str) -> str:
    r"""Convert all line endings to `\n`, and drop the last one."""
    if "\r" in body:
        return "\n".join(split_lines(body))
    return body.removesuffix("\n")


def _describe_too_long(text: str, fence: str) -> str | None:
    """Describe a header that's too long to read; None if there's no such header.

    The text must be one in which `_cut_header` found no header within the limits.
    """
    has_many_lines = text.count("\n", 0, _MAX_CHARS) > _MAX_LINES
    exceeds_limits = has_many_lines or len(text) > _MAX_CHARS
    if not exceeds_limits:  # all of it was searched, so there's no header
        return None

    has_end_fence = f"\n{fence}" in text[len(fence) :]
    is_header = has_end_fence and _begins_with_known_key(text, fence)
    if not is_header:
        return None

    limits = f"{_MAX_LINES:,} lines or {_MAX_CHARS:,} characters"
    return f"its front matter has more than {limits}; searched as it is written"


def _begins_with_known_key(text: str, fence: str) -> bool:
    """Whether the line below the first fence starts with a known key."""
    _, _, below_fence = text.partition("\n")
    first_line, _, _ = below_fence.partition("\n")
    key_end = ":" if fence == _YAML_FENCE else "="
    key, _, _ = first_line.partition(key_end)
    return key.strip().lower() in KNOWN_KEYS


def _read_yaml(lines: list[str], body: str, text: str) -> FrontMatter:
    """Read a YAML header from `lines`. If they're prose, the entire `text` is the body."""
    reader = _YamlReader(lines)
    reader.read()
    problem = _describe_problem_line(reader.problem_line)
    if _is_prose(reader):
        # With a known key it's rather a broken header than prose, so its writer should know.
        has_known_key = not KNOWN_KEYS.isdisjoint(reader.fields)
        return FrontMatter({}, text, problem if has_known_key else None)

    lines_above = len(lines) + 2  # including the fences
    if reader.unread:  # lines that aren't YAML are moved to the start of the body
        body = "\n".join([*reader.unread, body])
        lines_above -= len(reader.unread)  # they now count as lines of the body
    return FrontMatter(reader.fields, body, problem, lines_above)


def _describe_problem_line(problem_line: int) -> str | None:
    """Describe the first line of a header that isn't YAML; None if all lines are YAML."""
    if problem_line == 0:
        return None
    line = problem_line + 1  # the header's lines start below the fence, which is line 1 of the file
    return f"line {line} of its front matter is not YAML; searched as it is written"


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
    """Whether the lines between two `---` are sentences rather than a header.

    A colon alone doesn't make a line part of a header, because sentences have colons too.
    """
    has_few_pairs = reader.pair_count <= len(reader.unread)  # no more than lines that aren't YAML
    if not reader.begins_with_key or has_few_pairs:
        return True
    has_known_key = not KNOWN_KEYS.isdisjoint(reader.fields)
    if has_known_key:
        return False

    # Without a known key, one sign of prose is enough.
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
        self.fields: dict[str, list[str]] = {}  # by path in lower case, such as `hero.title`
        self.keys: list[str] = []  # the top level's keys, as they're written
        self.pair_count = 0  # of the top level
        self.unread: list[str] = []  # the lines that aren't YAML
        self.problem_line = 0  # the number of the first line that isn't YAML, from 1; 0 for none
        self.begins_with_key = False
        self._line_index = 0  # of the next line to read
        # How many lines may still be searched for a closing quote or bracket. Without a limit, a header with
        # many unclosed ones would take quadratic time.
        self._lookahead_budget = 4 * len(lines)

    def read(self) -> None:
        """Read all lines: either one mapping in braces, or pairs with the indent of the first pair."""
        indent = self._skip_to_indent()
        is_empty = indent < 0
        if is_empty:
            return
        text = self.lines[self._line_index].strip()
        if text[0] == "{":
            self._read_root_flow(text)
            return

        self.begins_with_key = _split_pair(text) is not None
        while (next_indent := self._skip_to_indent()) >= 0:
            if next_indent < indent:  # left of the first pair, so it isn't YAML
                self._skip_line()
            else:
                self._read_mapping(indent, prefix="", depth=0)

    def _read_root_flow(self, text: str) -> None:
        """Read a header that's a single mapping in braces, as in JSON."""
        self._line_index += 1
        fields = self._read_closed_flow(text)
        if fields is None:
            self.problem_line = self._line_index
            return
        self.keys = list(fields)
        self.fields = {key.lower(): values for key, values in fields.items()}
        self.pair_count = len(fields)
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
        line_number = self._line_index  # of the skipped line, counted from 1
        self._note_problem(line_number)

    def _note_problem(self, line_number: int) -> None:
        """Note the line of the first problem. Later problems are ignored."""
        if not self.problem_line:
            self.problem_line = line_number

    def _read_mapping(self, indent: int, prefix: str | None, depth: int) -> None:
        """Read the pairs at one indent, and store each in `fields` under its path, `prefix` + key.

        `prefix` is None for a mapping in a list. It has no path, so its pairs are read but not stored.
        """
        while (next_indent := self._skip_to_indent()) >= indent:
            text = self.lines[self._line_index].strip()
            # A line that's indented more isn't a pair of this mapping.
            is_sibling = next_indent == indent
            pair = _split_pair(text) if is_sibling else None
            if pair is None:
                self._skip_line()
                continue

            key, value = pair
            self._line_index += 1
            is_at_top_level = depth == 0
            if is_at_top_level:
                self.pair_count += 1
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
        is_blank = text == "" or text[0] == "#"
        if is_blank:
            return self._read_below(indent, path, depth)

        # Fast path for most values: a few words on one line.
        if self._is_plain_line(text):
            return [] if text in NULLS else [text]

        values = self._read_marked_value(text, indent, path)
        if values is None:
            values = self._read_plain(text, indent)
        return values

    def _is_plain_line(self, text: str) -> bool:
        """Whether a value is certainly plain text that ends on its line. If in doubt, False."""
        has_line_below = self._line_index < len(self.lines)
        if not has_line_below or not text[0].isalnum():
            return False
        char_below = self.lines[self._line_index][:1]
        # A blank or indented line may continue the value.
        ends_here = char_below != "" and not char_below.isspace()
        has_comment = " #" in text
        return ends_here and not has_comment and _is_plain(text)

    def _read_marked_value(self, text: str, indent: int, path: str | None) -> list[str] | None:
        """Read a value that starts with a quote, a bracket, or the `|` or `>` of a block.

        Returns None if it starts with none of these, or if the rest doesn't fit, such as an unclosed quote.
        """
        sign = text[0]
        if sign in "|>":
            return self._read_block(text, indent)
        if sign in "\"'":
            return self._read_closed_quotes(text)
        if sign in "[{":
            return self._read_flow_value(text, path)
        return None

    def _read_below(self, indent: int, path: str | None, depth: int) -> list[str]:
        """Read the value on the lines below a key or dash that has this `indent`.

        Returns a list's items, a text as the only item, or [] if there's no value. A mapping also gives [],
        because its values are added to `fields`.
        """
        indent_below = self._skip_to_indent()
        if indent_below < indent:
            return []

        text = self.lines[self._line_index].strip()
        is_item = _is_item(text)
        # YAML allows a list at the same indent as its key. Anything else at that indent is the next key.
        is_next_key = indent_below == indent and not is_item
        is_too_deep = depth >= _MAX_DEPTH
        if is_next_key or is_too_deep:
            return []

        if is_item:
            return self._read_list(indent_below, depth + 1)

        is_mapping = _split_pair(text) is not None
        if is_mapping:
            prefix = None if path is None else f"{path}."
            self._read_mapping(indent_below, prefix, depth + 1)
            return []

        self._line_index += 1
        return self._read_value(text, indent, path, depth + 1)

    def _read_list(self, indent: int, depth: int) -> list[str]:
        """Read the items of a list at one indent, including the items of lists inside it.

        A mapping inside the list gives no values.
        """
        values: list[str] = []
        while self._skip_to_indent() == indent:
            line = self.lines[self._line_index].strip()
            if not _is_item(line):
                break

            text = line[1:].lstrip()  # without the dash
            is_nested = _is_item(text) or _split_pair(text) is not None  # `- - a` or `- key: a`
            if is_nested and depth < _MAX_DEPTH:
                dash_width = len(line) - len(text)
                values += self._read_nested_item(text, indent + dash_width, depth + 1)
            else:  # an item that's nested too deep is read as text
                self._line_index += 1
                values += self._read_value(text, indent, None, depth)

        return values

    def _read_nested_item(self, text: str, text_indent: int, depth: int) -> list[str]:
        """Read a list or a mapping that starts on the line of its dash. Returns the list's items."""
        # Blank out the dash, so that the rest is read like a line on its own.
        self.lines[self._line_index] = " " * text_indent + text
        if _is_item(text):
            return self._read_list(text_indent, depth)
        # Without a prefix, no values are stored: those of several mappings in a list would get mixed up.
        self._read_mapping(text_indent, prefix=None, depth=depth)
        return []

    def _read_plain(self, text: str, indent: int) -> list[str]:
        """Read a value without quotes, including the lines below that are indented more than its key.

        Returns a list with one string, or an empty list for null. Text that isn't YAML is returned unchanged.
        """
        line_number = self._line_index  # of the value's first line, counted from 1
        without_comment = _strip_comment(text)
        has_comment = without_comment != text
        # A text that starts with one of these signs couldn't be read as a block, quotes or brackets.
        is_yaml = _is_plain(without_comment) and text[0] not in "|>\"'[{"
        if is_yaml and has_comment:  # a comment ends the value, so no line below continues it
            return [] if without_comment in NULLS else [without_comment]

        parts = [text]
        is_yaml_below = self._add_lines_below(parts, indent)
        if not is_yaml or not is_yaml_below:
            self._note_problem(line_number)
        value = " ".join(parts)
        return [] if value in NULLS else [value]

    def _add_lines_below(self, parts: list[str], indent: int) -> bool:
        """Append the lines that continue a plain value to `parts`. Returns whether all of them are YAML."""
        is_yaml = True
        while self._line_index < len(self.lines):
            line = self.lines[self._line_index]
            text = line.lstrip()
            if not text:
                self._line_index += 1
                continue

            is_comment = text[0] == "#"
            is_deeper = len(line) - len(text) > indent
            if is_comment or not is_deeper:
                break

            self._line_index += 1
            parts.append(text)
            has_key = ": " in text or text[-1] == ":"
            if has_key:  # a key can't be inside a value
                is_yaml = False

        return is_yaml

    def _read_block(self, text: str, indent: int) -> list[str] | None:
        """Read the literal (`|`) or folded (`>`) text on the lines below.

        Returns a list with the text, or an empty list if it's blank. Returns None if `text` isn't a block
        indicator such as `|`, `|2` or `>-`.
        """
        options = _strip_comment(text)[1:]  # a digit for the indent, a `+` or `-`, or both
        digit = options.strip("+-")
        sign_count = len(options) - len(digit)
        # "", for no digit, is one of them.
        is_indicator = sign_count <= 1 and digit in _BLOCK_INDENTS
        if not is_indicator:
            return None

        margin = indent + int(digit) if digit else None
        lines = self._read_block_lines(indent, margin)
        is_folded = text[0] == ">"
        value = fold(lines).strip() if is_folded else "\n".join(lines).strip("\n")
        return [value] if value else []

    def _read_block_lines(self, indent: int, margin: int | None) -> list[str]:
        """Read the lines that are indented more than `indent`, and cut the margin off them.

        Without a margin, the first line's indent is used.
        """
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

        return lines

    def _read_closed_quotes(self, text: str) -> list[str] | None:
        """Read a value in quotes, which may continue on the lines below.

        Returns a list with the text, or an empty list if the quotes are empty. Returns None without a closing
        quote, or if anything but a comment follows it.
        """
        quote = text[0]
        lines = self._read_ahead_to_quote(quote, text[1:])
        if lines is None:
            return None

        *lines_above, last_line = lines
        end = find_quote_end(last_line, quote, 0)
        after_quote = last_line[end + 1 :].lstrip()
        if after_quote and after_quote[0] != "#":
            return None

        self._line_index += len(lines_above)  # the first line was counted with its key or dash
        value = unquote([*lines_above, last_line[:end]], quote)
        return [value] if value else []

    def _read_ahead_to_quote(self, quote: str, first_line: str) -> list[str] | None:
        """Return the lines up to the one with the closing quote; None if there's none.

        `_line_index` doesn't move yet, as the quotes may turn out to be plain text.
        """
        lines = [first_line]
        next_line = self._line_index
        while find_quote_end(lines[-1], quote, 0) < 0:
            if not self._spend_lookahead(next_line):
                return None
            lines.append(self.lines[next_line])
            next_line += 1
        return lines

    def _read_flow_value(self, text: str, path: str | None) -> list[str] | None:
        """Read a list in brackets or a mapping in braces; None if it isn't YAML.

        Returns a list's items. A mapping's values are stored in `fields` under `path`, or skipped if that's
        None.
        """
        values_by_inner_path = self._read_closed_flow(text)
        if values_by_inner_path is None:
            return None

        is_list = text[0] == "["
        if is_list:
            return values_by_inner_path.get("", [])  # a list's items have no key
        if path is not None:
            for inner_path, values in values_by_inner_path.items():
                full_path = f"{path}.{inner_path}".lower()
                self.fields[full_path] = values
        return []

    def _read_closed_flow(self, text: str) -> dict[str, list[str]] | None:
        """Read a list in brackets or a mapping in braces to its end. Returns a mapping's values by path.

        A list's values have the path "". Returns None if the end isn't found or the text isn't YAML.
        """
        reader = FlowReader()
        reader.add_line(text)
        next_line = self._line_index
        while reader.is_yaml and not reader.is_done:
            if not self._spend_lookahead(next_line):
                return None
            reader.add_line(self.lines[next_line])
            next_line += 1

        if not reader.is_yaml:
            return None
        self._line_index = next_line
        return reader.fields

    def _spend_lookahead(self, line_index: int) -> bool:
        """Spend one line of the budget for looking ahead. Returns whether the line exists and may be read."""
        self._lookahead_budget -= 1
        has_line = line_index < len(self.lines)
        return has_line and self._lookahead_budget > 0


def _is_item(text: str) -> bool:
    """Whether a line, without blanks around it, starts with the dash of a list item."""
    return text[:2] in ("- ", "-")


def _split_pair(text: str) -> tuple[str, str] | None:
    """Split a line into its key and the text after the colon; None if it isn't a pair."""
    if text[:1] in ("'", '"'):
        return _split_quoted_pair(text)

    # The key ends at a colon followed by a blank or the end of the line.
    colon = text.find(": ")
    if colon < 0:
        colon = text.find(":\t")
    if colon < 0 and text.endswith(":"):
        colon = len(text) - 1
    has_key = colon > 0
    if not has_key:
        return None

    is_item = text.startswith("- ")
    cannot_start_key = text[0] in _NON_KEY_START_CHARS
    is_in_comment = " #" in text[:colon]
    if is_item or cannot_start_key or is_in_comment:
        return None
    key = text[:colon].rstrip()
    value = text[colon + 1 :].strip()
    return key, value


def _split_quoted_pair(text: str) -> tuple[str, str] | None:
    """Split a line that starts with a quoted key; None if no colon follows the quotes."""
    quote = text[0]
    end = find_quote_end(text, quote, 1)
    if end < 0:
        return None

    after_key = text[end + 1 :].lstrip()
    has_colon = after_key[:2] in (":", ": ", ":\t")
    if not has_colon:
        return None
    key = unquote([text[1:end]], quote)
    value = after_key[1:].strip()
    return key, value


def _strip_comment(text: str) -> str:
    start = text.find(" #")
    return text[:start].rstrip() if start >= 0 else text


def _is_plain(text: str) -> bool:
    """Whether a text is an unquoted YAML value, not a pair or a list item."""
    is_pair = ": " in text or text[-1:] == ":"
    is_marked_key = text[:2] == "? "
    if is_pair or is_marked_key or _is_item(text):
        return False
    has_reserved_start = text[:1] in _NON_VALUE_START_CHARS  # such as `&` or `*`
    return not has_reserved_start
