"""Parses YAML texts, and changes values in them: the only module that knows the parser.

Whatever a text holds, parsing it takes time in proportion to its length. `python -m
judgekit.config.yaml_text` compiles the bundled YAML files, so that commands need no parser for them.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.scanner import RoundTripScanner
from ruamel.yaml.util import load_yaml_guess_indent

from judgekit import environment, outputs
from judgekit.config import files
from judgekit.errors import ConfigError
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

# Values in a document after expanding its aliases. A file without aliases always has fewer.
MAX_NODES = 1_000_000
MAX_LEVELS = 50  # nested lists and mappings; the parsing time grows with the square of the depth
# A top-level key, and the indent of the mapping below it
_NESTED_MAPPING_PATTERN = re.compile(r"(?m)^[^\s#-].*+\n(?: *+(?:#.*)?\n)*+( +)[^\s#-]")
# A quotation in a parser's message, with the blank before it
_QUOTATION_PATTERN = re.compile(r""" (["'])(?!<|[,\]}]')(?:(?!\1).)*(?:\1|$)""")


def parse_yaml(text: str, path: Path | None = None) -> Any:  # noqa: ANN401 - any YAML
    """Parse YAML 1.2; raises `ConfigError` if it isn't valid, with the line if `path` is given."""
    try:
        return _make_parser().load(text)
    except (YAMLError, ValueError) as error:
        # A ValueError means an invalid date, or a number with too many digits.
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", str(error))
        line = mark.line + 1 if path and mark else None
        raise ConfigError(f"{_rephrase(problem)}; correct the YAML", path=path, line=line) from None


class _Scanner(RoundTripScanner):
    """A scanner that refuses deep nesting early, because the parser would be slow."""

    def add_indent(self, column: int) -> bool:
        self._check_depth()
        return super().add_indent(column)

    def fetch_flow_collection_start(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as ruamel has it
        self._check_depth()
        super().fetch_flow_collection_start(*args, **named)

    def _check_depth(self) -> None:
        if len(self.indents) + len(self.flow_context) > MAX_LEVELS:
            problem = f"nested more than {MAX_LEVELS} levels deep"
            raise MarkedYAMLError(problem=problem, problem_mark=self.reader.get_mark())


class _Composer(Composer):
    """A composer that refuses keys other than scalars, and aliases with more than `MAX_NODES` values."""

    def __init__(self, loader: Any = None) -> None:  # noqa: ANN401 - the loader of ruamel
        super().__init__(loader)
        self.warn_double_anchors = False  # YAML allows them, so the user needs no warning
        # The number of values in each list and mapping, by node id. All nodes live as long as this composer,
        # so their ids stay unique.
        self._sizes: dict[int, int] = {}

    def compose_sequence_node(self, anchor: Any) -> Any:  # noqa: ANN401 - the nodes of ruamel
        node = super().compose_sequence_node(anchor)
        self._check_size(node, node.value)
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:  # noqa: ANN401 - the nodes of ruamel
        node = super().compose_mapping_node(anchor)
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise MarkedYAMLError(
                    problem="a list or mapping as a key", problem_mark=key.start_mark
                )
        self._check_size(node, [value for _, value in node.value])
        return node

    def _check_size(self, node: Any, values: Sequence[Any]) -> None:  # noqa: ANN401 - the nodes of ruamel
        """Record how many values a list or mapping has, with all nested ones.

        Raises `MarkedYAMLError` if there are too many.
        """
        size = 1  # the node itself
        for value in values:
            # Only lists and mappings have a recorded size. Any other value counts as 1. A node counts again
            # whenever an alias refers to it.
            size += self._sizes.get(id(value), 1)
        self._sizes[id(node)] = size
        if size > MAX_NODES:
            problem = f"aliases that expand to more than {MAX_NODES:,} values"
            raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _make_parser() -> YAML:
    """Make a parser that preserves comments and takes linear time."""
    yaml = YAML(pure=True)
    yaml.Scanner = _Scanner
    yaml.Composer = _Composer
    return yaml


def _rephrase(problem: str | None) -> str:
    """Rephrase the YAML parser's message in plain words, without the file's values."""
    message = (problem or "not valid YAML").partition("\n")[0]
    message = message.replace(
        "found character '\\t' that cannot start any token", "a tab; indent with spaces"
    )
    message = re.sub("but (?:got|found) '<stream end>'", "but the file ends here", message)
    message = message.replace("the node content", "a value")
    if message.startswith("expected <block end>"):
        return "this does not fit the block above it"
    if message.startswith("found duplicate key "):
        # Keep the key, but drop its value, which can be secret.
        return message.partition(" with value ")[0]
    # Remove quoted content, which can be secret, and quoted tokens such as '<block end>'.
    return _QUOTATION_PATTERN.sub("", message)


def put_value(path: Path, section: str, key: str, value: object) -> None:
    """Set `key` in a `section` of a YAML file, preserving comments and layout.

    Raises `ConfigError` if the layout makes that impossible, or if the file can't be written.
    """

    def set_key(data: dict[str, Any]) -> None:
        data[section] = data.get(section) or {}  # an empty section is None
        data[section][key] = value

    remedy = f"set it to {value} by hand"
    change(path, set_key, remedy=remedy, key=key)


def change(path: Path, edit: Callable[[Any], None], remedy: str, key: str) -> None:
    """Apply `edit` to the mapping in a YAML file, creating the file if necessary.

    Raises `ConfigError` if the file isn't valid YAML, or can't be edited or written. `key` and `remedy` are
    only for the error about a layout that can't be edited. A `remedy` is, for example, "set it to 3 by hand".
    """
    # `read_text` would convert the line ends, which must be preserved.
    text = path.read_bytes().decode() if path.exists() else ""
    parse_yaml(text, path)  # raises an error with the line for invalid YAML

    try:
        changed_text = edit_yaml(text, edit)
    except ConfigError:
        raise ConfigError(
            f"cannot edit a file with this layout; {remedy}", path=path, key=key
        ) from None

    try:
        path = _follow_user_link(path)
        outputs.make_folder(str(path.parent), mode=0o777)  # less the user's umask
        outputs.write_atomically(str(path), changed_text)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=path) from None


def _follow_user_link(path: Path) -> Path:
    """Return the file that a link in the user's own configuration folder points to.

    Writing to `path` itself would replace the link. Other paths, such as those in a project, are returned as
    they are.
    """
    is_users_own = path.absolute().is_relative_to(environment.config_home())
    return path.resolve() if is_users_own else path


def edit_yaml(text: str, edit: Callable[[Any], None]) -> str:
    """Apply `edit` to the data in a YAML document, and return the new document.

    Preserves comments, order, quotes and line ends. Raises `ConfigError` if it can't.
    """
    lines = split_lines(text)
    yaml = _make_preserving_parser(text, lines)
    is_empty = parse_yaml(text) is None  # no data, but there may be comments

    changed_lines = []  # stays empty if the edit fails
    # `edit` raises TypeError, AttributeError or LookupError for data that it can't handle, such as a list.
    with suppress(YAMLError, ValueError, TypeError, AttributeError, LookupError):
        changed_lines = _edit_lines(lines, edit, yaml, is_empty=is_empty)
    if not changed_lines:
        raise ConfigError("cannot edit a file with this layout; change it by hand")

    # If `edit` removed a key, the parser drops the comments after it. Append these at the end.
    changed_lines += _list_lost_comments(lines, changed_lines)
    line_end = "\r\n" if "\r\n" in text else "\n"
    return line_end.join(changed_lines) + line_end


def _list_lost_comments(lines: Sequence[str], changed_lines: Sequence[str]) -> list[str]:
    """List the comments in `lines` that are missing in `changed_lines`."""
    lost_counts = _count_comments(lines) - _count_comments(changed_lines)  # a `Counter`
    return list(lost_counts.elements())


def _make_preserving_parser(text: str, lines: Sequence[str]) -> YAML:
    """Make a parser that can also write the document again, in the same layout."""
    yaml = _make_parser()
    yaml.preserve_quotes = True
    yaml.brace_single_entry_mapping_in_flow_sequence = True  # otherwise `[{a: 1}]` becomes `[a: 1]`
    yaml.width = len(text) + 4096  # prevents line breaks
    yaml.explicit_start = "---" in lines  # write this marker only if the document has it
    return yaml


def _edit_lines(
    lines: Sequence[str], edit: Callable[[Any], None], yaml: YAML, *, is_empty: bool
) -> list[str]:
    """Apply `edit` to the document in `lines`. Returns [] if the parser can't write the result correctly."""
    last_line = "{}" if is_empty else ""  # a mapping to edit, or only the final line end
    document = "\n".join([*lines, last_line])
    data, sequence_indent, offset = load_yaml_guess_indent(document, yaml=yaml)
    if is_empty:
        data.fa.set_block_style()  # write keys on separate lines, not in braces

    mapping_indent = _find_mapping_indent(lines)
    # The guessed numbers are None if the document has no lists.
    yaml.indent(mapping=mapping_indent, sequence=sequence_indent or 2, offset=offset or 0)

    edit(data)
    output = io.StringIO()
    yaml.dump(data, output)
    changed_text = output.getvalue()

    # The parser may write an unusual layout incorrectly, so read the result again.
    is_correct = parse_yaml(changed_text) == data
    return split_lines(changed_text) if is_correct else []


def _find_mapping_indent(lines: Sequence[str]) -> int:
    """Return the number of spaces before the keys of the first nested mapping, by default 2."""
    nested = _NESTED_MAPPING_PATTERN.search("\n".join(lines))
    return len(nested[1]) if nested else 2


def _count_comments(lines: Iterable[str]) -> Counter[str]:
    """Count the occurrences of each comment line."""
    return Counter(line for line in map(str.strip, lines) if line.startswith("#"))


def compile_bundled() -> str:
    """Return the JSON for `files.COMPILED`: the data of all bundled YAML files, by their SHA-256."""
    data = {}
    for kind in ("providers", "rubrics", "retrieval"):
        for path in files.get_data_folder(kind).glob("*.yaml"):
            raw = path.read_bytes()
            data[hashlib.sha256(raw).hexdigest()] = parse_yaml(raw.decode())
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    files.COMPILED.write_text(compile_bundled(), encoding="utf-8")
