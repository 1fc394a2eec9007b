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
    """Read a text's header; one without a header is all body.

    A second header below the first, as tools that add one of their own leave it, counts more than the first.
    """
    first = _read_header(text)
    if not first.fields:
        return first
    rest = first.body.lstrip("\r\n \t")
    if not rest.startswith(_YAML):
        return first
    second = _read_header(rest)
    # A rule above a section of the text looks like a header.
    is_header = second.fields and second.problem is None
    if not is_header or any(" " in key for key in second.fields):
        return first
    blank = first.body[: len(first.body) - len(rest)]
    lines_above = first.lines_above + blank.count("\n") + second.lines_above
    fields = {**first.fields, **second.fields}
    return FrontMatter(fields, second.body, first.problem, lines_above)


def _read_header(text: str) -> FrontMatter:
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
        line = reader.problem_line + 1
        problem = f"line {line} of its front matter is not YAML; searched as it is written"
    if _is_prose(reader):
        is_meant_as_header = not KNOWN_KEYS.isdisjoint(reader.fields)
        return FrontMatter({}, text, problem if is_meant_as_header else None)
    if reader.unread:
        body = "\n".join([*reader.unread, body])
        lines_above -= len(reader.unread)
    return FrontMatter(reader.fields, body, problem, lines_above)


def _cut_header(text: str, fence: str) -> tuple[list[str], str] | None:
    """Return the lines between the fences and the text below; None if there's no header."""
    start = text.find("\n") + 1
    if not start or text[:start].rstrip() != fence:
        return None
    ends = _ENDS[fence]
    lines: list[str] = []
    while start < len(text) and start < _MOST_CHARACTERS and len(lines) <= _MOST_LINES:
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        line = text[start:end].rstrip()
        if line in ends:
            body = text[end + 1 :]
            return lines, "\n".join(lines_of(body)) if "\r" in body else body.removesuffix("\n")
        lines.append(line)
        start = end + 1
    return None


def _describe_too_long(text: str, fence: str) -> str | None:
    """Say that a header is too long to be read; None if it has no end, since then it isn't one."""
    is_long = len(text) > _MOST_CHARACTERS or text.count("\n", 0, _MOST_CHARACTERS) > _MOST_LINES
    second_line = text.partition("\n")[2].partition("\n")[0]
    key = second_line.partition(":" if fence == _YAML else "=")[0].strip().lower()
    if not is_long or key not in KNOWN_KEYS or f"\n{fence}" not in text[len(fence) :]:
        return None
    limits = f"{_MOST_LINES:,} lines or {_MOST_CHARACTERS:,} characters"
    return f"its front matter has more than {limits}; searched as it is written"


def _read_toml(lines: list[str], body: str, text: str) -> FrontMatter:
    import tomllib  # noqa: PLC0415 - few notes have such a header

    try:
        table = tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        problem = f"its front matter is not TOML ({error}); searched as it is written"
        return FrontMatter({}, text, problem)
    fields: dict[str, list[str]] = {}
    _add_table(fields, "", table)
    return FrontMatter(fields, body, lines_above=len(lines) + 2)


def _add_table(fields: dict[str, list[str]], prefix: str, table: Mapping[str, object]) -> None:
    """Add the values of a TOML table to `fields`; tables in lists have no path and are left out."""
    for key, value in table.items():
        path = f"{prefix}{key}".lower()
        if isinstance(value, dict):
            _add_table(fields, f"{path}.", value)
        elif isinstance(value, list):
            fields[path] = [_toml_text(item) for item in value if not isinstance(item, dict | list)]
        else:
            fields[path] = [_toml_text(value)]


def _toml_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _is_prose(reader: _YamlReader) -> bool:
    """Whether the text between two rules isn't a header but sentences, of which one may have a colon."""
    if not reader.begins_with_key or reader.entries <= len(reader.unread):
        return True
    if not KNOWN_KEYS.isdisjoint(reader.fields):
        return False
    return reader.problem_line > 0 or any(" " in key for key in reader.keys) or _is_note(reader)


def _is_note(reader: _YamlReader) -> bool:
    """Whether the only key is a word at the beginning of a sentence, as in `Note: the boat is late`."""
    return len(reader.keys) == 1 and reader.keys[0][:1].isupper()


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
        self._place = 0
        self._lines_ahead = 4 * len(lines)  # read for values that may turn out to have no end

    def read(self) -> None:
        indent = self._next_indent()
        if indent < 0:
            return
        text = self.lines[self._place].strip()
        if text[0] == "{":
            self._read_root_flow(text)
            return
        self.begins_with_key = _split_pair(text) is not None
        while self._next_indent() >= 0:
            before = self._place
            self._read_mapping(indent, "", 0)
            if self._place == before:  # less indented than the first key
                self._leave_line()

    def _read_root_flow(self, text: str) -> None:
        self._place += 1
        fields = self._read_closed_flow(text)
        if fields is None:
            self.problem_line = self._place
            return
        self.keys = list(fields)
        self.fields = {key.lower(): values for key, values in fields.items()}
        self.entries = len(fields)
        self.begins_with_key = True

    def _next_indent(self) -> int:
        """Go to the next line that isn't blank or a comment; return its indent, -1 at the end."""
        while self._place < len(self.lines):
            line = self.lines[self._place]
            text = line.lstrip()
            if text and text[0] != "#":
                return len(line) - len(text)
            self._place += 1
        return -1

    def _leave_line(self) -> None:
        """Leave a line that isn't YAML to the text."""
        self._place += 1
        self._note_problem(self._place)
        self.unread.append(self.lines[self._place - 1].strip())

    def _note_problem(self, line: int) -> None:
        if not self.problem_line:
            self.problem_line = line

    def _read_mapping(self, indent: int, prefix: str | None, depth: int) -> None:
        """Read the pairs at one indent; with the prefix None, their values are left out."""
        while True:
            next_indent = self._next_indent()
            if next_indent < indent:
                return
            pair = None
            if next_indent == indent:
                pair = _split_pair(self.lines[self._place].strip())
            if pair is None:
                self._leave_line()
                continue
            key, value = pair
            self._place += 1
            self.entries += depth == 0
            if prefix == "":
                self.keys.append(key)
            path = None if prefix is None else (prefix + key).lower()
            values = self._read_value(value, indent, path, depth)
            if path is not None:
                self.fields[path] = values

    def _read_value(self, text: str, indent: int, path: str | None, depth: int) -> list[str]:
        """Read the value behind a key or a dash that's indented by `indent`."""
        if not text or text[0] == "#":
            return self._read_below(indent, path, depth)
        if text[0].isalnum() and self._ends_here() and _is_plain(text) and " #" not in text:
            return [] if text in NULLS else [text]  # as most values are
        values: list[str] | None
        if text[0] in "|>":
            values = self._read_block(text, indent)
        elif text[0] in "\"'":
            values = self._read_closed_quotes(text)
        elif text[0] in "[{":
            values = self._read_flow_value(text, path)
        else:
            values = None
        if values is None:
            values = self._read_plain(text, indent)
        return values

    def _ends_here(self) -> bool:
        """Whether the next line can't belong to the value: it's neither blank nor indented."""
        return self._place < len(self.lines) and self.lines[self._place][:1].strip() != ""

    def _read_below(self, indent: int, path: str | None, depth: int) -> list[str]:
        """Read a value that begins on the next line: a list, a mapping or a text."""
        below = self._next_indent()
        if below < indent:
            return []
        text = self.lines[self._place].strip()
        is_item = text[:2] in ("- ", "-")
        is_deeper = below > indent
        if not is_deeper and not is_item:
            return []
        if depth >= _MOST_DEPTH:
            return []
        if is_item:
            return self._read_list(below, depth + 1)
        if _split_pair(text) is not None:
            self._read_mapping(below, None if path is None else f"{path}.", depth + 1)
            return []
        self._place += 1
        return self._read_value(text, indent, path, depth + 1)

    def _read_list(self, indent: int, depth: int) -> list[str]:
        """Read the items at one indent; mappings among them are left out."""
        values: list[str] = []
        while self._next_indent() == indent:
            line = self.lines[self._place].strip()
            if line[:2] not in ("- ", "-"):
                break
            text = line[1:].lstrip()
            inner = indent + len(line) - len(text)
            is_item = text[:2] in ("- ", "-")
            is_nested = is_item or _split_pair(text) is not None
            if is_nested and depth < _MOST_DEPTH:
                # Read the text behind the dash as if it were on a line of its own.
                self.lines[self._place] = " " * inner + text
                if is_item:
                    values += self._read_list(inner, depth + 1)
                else:
                    self._read_mapping(inner, None, depth + 1)
                continue
            self._place += 1
            values += self._read_value(text, indent, None, depth)
        return values

    def _read_plain(self, text: str, indent: int) -> list[str]:
        """Read a text without quotes, which goes on below while it's indented more than its key."""
        line = self._place
        value = _strip_comment(text)
        is_yaml = _is_plain(value) and text[0] not in "|>\"'[{"
        parts = [value if is_yaml else text]
        if value == text or not is_yaml:
            is_yaml = self._add_lines_below(parts, indent) and is_yaml
        if not is_yaml:
            self._note_problem(line)
        whole = " ".join(parts)
        return [] if whole in NULLS else [whole]

    def _add_lines_below(self, parts: list[str], indent: int) -> bool:
        """Add the continuation lines of a plain text; return whether they're all YAML."""
        is_yaml = True
        while self._place < len(self.lines):
            line = self.lines[self._place]
            text = line.lstrip()
            is_deeper = len(line) - len(text) > indent
            if text and (not is_deeper or text[0] == "#"):
                break
            self._place += 1
            if text:
                parts.append(text)
                is_yaml = is_yaml and ": " not in text and text[-1] != ":"
        return is_yaml

    def _read_block(self, text: str, indent: int) -> list[str] | None:
        """Read a literal (`|`) or folded (`>`) text; None if what follows its sign isn't YAML."""
        signs = _strip_comment(text)[1:]
        digits = signs.strip("+-")
        is_sign = len(signs) - len(digits) <= 1 and (not digits or digits in "123456789")
        if not is_sign or len(digits) > 1:
            return None
        margin = indent + int(digits) if digits else -1
        lines: list[str] = []
        while self._place < len(self.lines):
            line = self.lines[self._place]
            depth = len(line) - len(line.lstrip())
            if line and depth <= indent:
                break
            if line and margin < 0:
                margin = depth
            lines.append(line[max(margin, 0) :])
            self._place += 1
        if text[0] == ">":
            value = fold(lines).strip()
        else:
            value = "\n".join(lines).strip("\n")
        return [value] if value else []

    def _read_closed_quotes(self, text: str) -> list[str] | None:
        """Read a text in quotes, over several lines if need be; None if it doesn't end as one."""
        quote = text[0]
        parts: list[str] = []
        end = find_quote_end(text, quote, 1)
        ahead = self._place
        while end < 0:
            if not self._may_look_at(ahead):
                return None
            parts.append(text)
            text = self.lines[ahead]
            ahead += 1
            end = find_quote_end(text, quote, 0)
        rest = text[end + 1 :].lstrip()
        if rest and rest[0] != "#":
            return None
        parts.append(text[:end])
        parts[0] = parts[0][1:]
        self._place = ahead
        value = unquote(parts, quote)
        return [value] if value else []

    def _read_flow_value(self, text: str, path: str | None) -> list[str] | None:
        """Read a list in brackets; the values of a mapping become fields of their own."""
        fields = self._read_closed_flow(text)
        if fields is None:
            return None
        values = fields.pop("", []) if text[0] == "[" else []
        if path is not None and text[0] == "{":
            for key, nested in fields.items():
                self.fields[f"{path}.{key}".lower()] = nested
        return values

    def _read_closed_flow(self, text: str) -> dict[str, list[str]] | None:
        """Read on until a bracket is closed; None if it never is, or if something in it isn't YAML."""
        reader = FlowReader()
        reader.add_line(text)
        ahead = self._place
        while not reader.is_done and reader.is_yaml and self._may_look_at(ahead):
            reader.add_line(self.lines[ahead])
            ahead += 1
        if not reader.is_done or not reader.is_yaml:
            return None
        self._place = ahead
        return reader.fields

    def _may_look_at(self, line: int) -> bool:
        """Whether another line may be tried: only some quotes and brackets without an end are followed."""
        self._lines_ahead -= 1
        return line < len(self.lines) and self._lines_ahead > 0


def _split_pair(text: str) -> tuple[str, str] | None:
    """Split a line into the key and the text behind its colon; None if it isn't a pair."""
    first = text[:1]
    if first in ("'", '"'):
        return _split_quoted_pair(text)
    place = text.find(": ")
    if place < 0:
        place = text.find(":\t")
    if place < 0 and text.endswith(":"):
        place = len(text) - 1
    is_pair = place > 0 and first not in _NO_KEYS
    if not is_pair or text.startswith("- ") or " #" in text[:place]:
        return None
    return text[:place].rstrip(), text[place + 1 :].strip()


def _split_quoted_pair(text: str) -> tuple[str, str] | None:
    end = find_quote_end(text, text[0], 1)
    rest = text[end + 1 :].lstrip()
    if end < 0 or rest[:2] not in (":", ": ", ":\t"):
        return None
    return unquote([text[1:end]], text[0]), rest[1:].strip()


def _strip_comment(text: str) -> str:
    place = text.find(" #")
    return text[:place].rstrip() if place >= 0 else text


def _is_plain(text: str) -> bool:
    """Whether YAML takes a text for one value."""
    if ": " in text or text[-1:] == ":":
        return False
    return text[:1] not in _RESERVED and text[:2] not in ("- ", "-", "? ")
