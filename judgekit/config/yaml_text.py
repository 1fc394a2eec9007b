"""Parses YAML texts, and changes one value in them: the only module that knows the parser.

Whatever a text holds, parsing it takes time in proportion to its length. `python -m
judgekit.config.yaml_text` compiles the bundled YAML files, so that commands need no parser for them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.scanner import RoundTripScanner

from judgekit.config import files
from judgekit.errors import ConfigError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_NODES = 1_000_000  # of a document in which each alias is written out: no file without one has as many
MOST_LEVELS = 50  # of lists and mappings in each other: a parser's time grows with their square
_QUOTED = re.compile(r""" (["'])(?!<|[,\]}]')(?:(?!\1).)*(?:\1|$)""")


def parsed(text: str, path: Path | None = None) -> Any:  # noqa: ANN401 - any YAML
    """Return what a YAML 1.2 text says; raises `ConfigError` when it is none."""
    try:
        return _yaml().load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if path and error.problem_mark else None
        raise ConfigError(f"{_plainly(error.problem)}; correct the YAML", path=path, line=line) from None
    except (YAMLError, ValueError) as error:  # a number of too many digits, a day that there is not
        raise ConfigError(f"{_plainly(str(error))}; correct the YAML", path=path) from None


class _Scanner(RoundTripScanner):
    """Refuses deep nesting while a text is read, before it takes a parser's time."""

    def add_indent(self, column: int) -> bool:
        self._check_depth()
        return super().add_indent(column)

    def fetch_flow_collection_start(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as ruamel has it
        self._check_depth()
        super().fetch_flow_collection_start(*args, **named)

    def _check_depth(self) -> None:
        if len(self.indents) + len(self.flow_context) > MOST_LEVELS:
            problem = f"nested more than {MOST_LEVELS} levels deep"
            raise MarkedYAMLError(problem=problem, problem_mark=self.reader.get_mark())


class _Composer(Composer):
    """Takes single values as keys, and aliases that stand for up to `MOST_NODES` values: more takes long."""

    def __init__(self, loader: Any = None) -> None:  # noqa: ANN401 - the loader of ruamel
        super().__init__(loader)
        self.warn_double_anchors = False  # YAML allows them, and a warning each is for no user
        self._sizes: dict[int, int] = {}  # of lists and mappings, by the id of a node that is kept

    def compose_sequence_node(self, anchor: Any) -> Any:  # noqa: ANN401 - the nodes of ruamel
        node = super().compose_sequence_node(anchor)
        return self._measured(node, node.value)

    def compose_mapping_node(self, anchor: Any) -> Any:  # noqa: ANN401 - the nodes of ruamel
        node = super().compose_mapping_node(anchor)
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise MarkedYAMLError(problem="a list or mapping as a key", problem_mark=key.start_mark)
        return self._measured(node, [value for _, value in node.value])

    def _measured(self, node: Any, inside: Sequence[Any]) -> Any:  # noqa: ANN401 - the nodes of ruamel
        self._sizes[id(node)] = size = 1 + sum(self._sizes.get(id(each), 1) for each in inside)
        if size > MOST_NODES:
            problem = f"aliases that expand to more than {MOST_NODES:,} values"
            raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return node


def _yaml() -> YAML:
    yaml = YAML(pure=True)
    yaml.Scanner, yaml.Composer = _Scanner, _Composer
    return yaml


def _plainly(problem: str | None) -> str:
    """Return what a YAML parser found wrong, without the words of its trade."""
    words = (problem or "not valid YAML").partition("\n")[0]
    words = words.replace("found character '\\t' that cannot start any token", "a tab; indent with spaces")
    words = re.sub("but (?:got|found) '<stream end>'", "but the file ends here", words)
    words = words.replace("the node content", "a value")
    if words.startswith("expected <block end>"):
        return "this does not fit the block above it"
    if words.startswith("found duplicate key "):
        return words.partition(" with value ")[0]
    # What stands in the file is quoted, as are the names of a parser's tokens: '<block end>'.
    return _QUOTED.sub("", words)


def put(path: Path, section: str, key: str, value: str) -> None:
    """Set `key` in a `section` of a YAML file; all else stays; raises `ConfigError` if that is not safe."""
    text = path.read_bytes().decode() if path.exists() else ""  # with the file's own line ends
    data = parsed(text, path) or {}
    try:
        wanted = {**data, section: {**(data.get(section) or {}), key: parsed(value)}}
        changed = _checked(_with_member(text, section, key, value), wanted, key)
    except (ConfigError, TypeError, AttributeError):  # no mapping
        problem = f"cannot edit a file with this layout; set it to {value} by hand"
        raise ConfigError(problem, path=path, key=key) from None
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(changed, encoding="utf-8", newline="")
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConfigError(f"cannot be written ({error.strerror})", path=path) from None


def _with_member(text: str, section: str, key: str, value: str) -> str:
    """Return `text` with the key set, guided by where the YAML parser saw the nodes."""
    newline = "\r\n" if "\r\n" in text else "\n"
    root = _yaml().compose(text)
    node, member = _member(root, section), f"{key}: {value}"
    if node is None and (root is None or not root.flow_style):
        return f"{_ended(text, newline)}{section}:{newline}  {member}{newline}"
    if node is not None and not isinstance(node, MappingNode):  # nothing, or null
        return f"{text[: node.start_mark.index].rstrip(' ')} {{{member}}}{text[node.end_mark.index :]}"
    old = _member(node, key)
    if old is not None:
        return text[: old.start_mark.index] + value + text[old.end_mark.index :]
    mapping, first = (root, f"{section}: {{{member}}}") if node is None else (node, member)
    start = mapping.start_mark.index
    if not mapping.flow_style:  # on a line of its own before the others
        return f"{text[:start]}{first}{newline}{' ' * mapping.start_mark.column}{text[start:]}"
    rest = ", " if mapping.value else ""
    return f"{text[: start + 1]}{first}{rest}{text[start + 1 :]}"


def with_item(text: str, key: str, item: str) -> str:
    """Return YAML `text` with `item` (lines) put last into a list; all else stays; raises `ConfigError`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    data, node = _list(text, key)
    items, indent = list(data.get(key) or []), 2
    if node is None:
        head, rest = f"{_ended(text, newline)}{key}:{newline}", ""
    elif not node.flow_style:
        place, indent = _content_end(text, node), node.start_mark.column
        head, rest = _ended(text[:place], newline), text[place:]
    elif not items:
        head, rest = text[: node.start_mark.index].rstrip(" ") + newline, text[node.end_mark.index :]
    else:
        raise ConfigError("cannot edit a list with this layout; add the item by hand", key=key)
    lines = newline.join(f"{' ' * indent}{line}" for line in lines_of(item))
    end = "" if node is not None and node.flow_style else newline
    return _checked(head + lines + end + rest, {**data, key: [*items, *parsed(item)]}, key)


def without_item(text: str, key: str, position: int) -> str:
    """Return YAML `text` without one item of the list under `key`; raises as `with_item` does."""
    data, node = _list(text, key)
    if node is None or node.flow_style:
        raise ConfigError("cannot edit a list with this layout; remove the item by hand", key=key)
    items = list(data.get(key) or [])
    starts = [text.rindex("\n", 0, item.start_mark.index) + 1 for item in node.value]
    start, end = [*starts, _content_end(text, node)][position : position + 2]
    head = text[:start] if len(items) > 1 else f"{text[:start].rstrip()} []{text[start - 1 : start]}"
    return _checked(head + text[end:], {**data, key: items[:position] + items[position + 1 :]}, key)


def _list(text: str, key: str) -> tuple[dict[str, Any], SequenceNode | None]:
    """Return what a YAML text says and the node of the list under `key`, None where it has none."""
    data = parsed(text) or {}
    if not isinstance(data, dict) or not isinstance(data.get(key) or [], list):
        raise ConfigError(f"expected a mapping with a list {key!r}", key=key)
    node = _member(_yaml().compose(text), key)
    if node is not None and not isinstance(node, SequenceNode):
        raise ConfigError("expected a list, got nothing; remove the key, or add to it by hand", key=key)
    return data, node


def _checked(changed: str, wanted: dict[str, Any], key: str) -> str:
    if parsed(changed) != wanted:
        raise ConfigError("cannot edit a list with this layout; change it by hand", key=key)
    return changed


def _content_end(text: str, block: SequenceNode) -> int:
    """Return where a block list ends: empty lines, and comments further left, are after it."""
    end: int = block.end_mark.index
    while end:
        start = text.rfind("\n", 0, end - 1) + 1
        line = text[start:end]
        indent = len(line) - len(line.lstrip())
        if line.strip() and not (line.strip().startswith("#") and indent < block.start_mark.column):
            break
        end = start
    return end


def _ended(text: str, newline: str) -> str:
    return text if not text or text.endswith("\n") else text + newline


def _member(mapping: Any, key: str) -> Any:  # noqa: ANN401 - nodes of ruamel, which has no types for them
    members = mapping.value if isinstance(mapping, MappingNode) else ()
    return next((value for name, value in members if name.value == key), None)


def bundled() -> str:
    """Return what `files.COMPILED` is to hold."""
    paths = [
        path for kind in ("providers", "rubrics", "retrieval") for path in files.folder(kind).glob("*.yaml")
    ]
    texts = [path.read_bytes() for path in paths]
    data = {hashlib.sha256(raw).hexdigest(): parsed(raw.decode()) for raw in texts}
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    files.COMPILED.write_text(bundled(), encoding="utf-8")
