"""Edits JSON as text: what is not edited stays byte for byte.

Whitespace says who made a container, so that `without` undoes `appended` exactly and needs no memory of it: a
child put into an empty container stands right before the closing bracket, while a container that is written
with its child has the closing bracket on a line of its own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DEPTH = 200  # containers in containers
BYTE_ORDER_MARK = "\ufeff"

_DECODER = json.JSONDecoder()  # for strings alone: it lets more pass as a number than it should
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INDENTED = re.compile(r"\n([ \t]+)\Z")


class Value(NamedTuple):
    """A value and where it stands in the text; `children` are what an object or array holds."""

    start: int
    end: int
    kind: Literal["object", "array", "string", "other"]
    children: tuple[Child, ...] = ()


class Child(NamedTuple):
    """A member of an object, from its key on, or an item of an array (its key is None)."""

    start: int
    key: str | None
    value: Value

    @property
    def end(self) -> int:
        """Where the child's value ends."""
        return self.value.end


Trail = list[tuple[Value, Child]]  # containers from the root inwards, each with the child that leads on


def parse(text: str) -> Value:
    """Return the value that `text` is; a byte order mark may stand before it.

    Raises `json.JSONDecodeError` for anything that RFC 8259 does not allow, and for more than `MAX_DEPTH`
    containers in each other.
    """
    value = _value(text, _skip(text, 1 if text.startswith(BYTE_ORDER_MARK) else 0), MAX_DEPTH)
    end = _skip(text, value.end)
    if end != len(text):
        raise json.JSONDecodeError("expected the end of the file", text, end)
    return value


def is_blank(text: str) -> bool:
    """Whether `text` holds nothing but whitespace and perhaps a byte order mark."""
    return not text.removeprefix(BYTE_ORDER_MARK).strip(" \t\n\r")


def member(container: Value, key: str) -> Child | None:
    """Return an object's member; the last one where a key stands twice, as every reader takes it."""
    return next((each for each in reversed(container.children) if each.key == key), None)


def plain(text: str, value: Value) -> Any:  # noqa: ANN401 - any JSON value
    """Return what a value means."""
    return json.loads(text[value.start : value.end])


def appended(text: str, container: Value, content: object, key: str | None = None) -> str:
    """Return `text` with one more child at the end of a container, laid out like its surroundings."""
    if not container.children:
        place = container.end - 1
        return text[:place] + _rendered(text, place, content, key) + text[place:]
    last = container.children[-1]
    gap = text[len(text[: last.start].rstrip(" \t\n\r")) : last.start]
    gap = gap[gap.rindex("\n") :] if "\n" in gap else gap or " "
    if "\r\n" in text:
        gap = gap.replace("\n", "\r\n")
    indent = gap.lstrip("\r\n") if "\n" in gap else None
    return f"{text[: last.end]},{gap}{_rendered(text, last.start, content, key, indent)}{text[last.end :]}"


def document(content: object) -> str:
    """Return a text of its own."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def without(text: str, trail: Sequence[tuple[Value, Child]]) -> str:
    """Return `text` without the child that a trail leads to, and without containers that were made for it.

    Blank when nothing is left: what then remains is what stood before the outermost container.
    """
    container, child = trail[-1]
    others = container.children
    if len(others) > 1:
        position = others.index(child)
        start, end = (
            (others[position - 1].end, child.end) if position else (child.start, others[position + 1].start)
        )
        return text[:start] + text[end:]
    if text[child.end] in "}]":
        return text[: child.start] + text[child.end :]
    return without(text, trail[:-1]) if len(trail) > 1 else text[: container.start]


def _rendered(text: str, place: int, content: object, key: str | None, indent: str | None = None) -> str:
    """Return a child's text; its lines after the first are indented like the line it begins on."""
    if indent is None:
        line = text[text.rfind("\n", 0, place) + 1 : place]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
    name = "" if key is None else f"{json.dumps(key)}: "
    lines = json.dumps(content, indent=_unit(text), ensure_ascii=False).split("\n")
    return name + f"{_newline(text)}{indent}".join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return what the text indents its first child with; two spaces where it does not."""
    root = parse(text)
    found = _INDENTED.search(text[: root.children[0].start]) if root.children else None
    return found[1] if found else "  "


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> Value:
    first = text[at : at + 1]
    if first == '"':
        return Value(at, _DECODER.raw_decode(text, at)[1], "string")
    if first in ("{", "["):
        if not depth:
            raise json.JSONDecodeError("nested too deeply", text, at)
        return _container(text, at, depth - 1, "}" if first == "{" else "]")
    found = _SCALAR.match(text, at)
    if not found:
        raise json.JSONDecodeError("expected a value", text, at)
    return Value(at, found.end(), "other")


def _container(text: str, start: int, depth: int, closing: str) -> Value:
    kind: Literal["object", "array"] = "object" if closing == "}" else "array"
    children: list[Child] = []
    at = _skip(text, start + 1)
    if text[at : at + 1] == closing:
        return Value(start, at + 1, kind)
    while True:
        children.append(_child(text, at, depth, named=kind == "object"))
        at = _skip(text, children[-1].end)
        if text[at : at + 1] == closing:
            return Value(start, at + 1, kind, tuple(children))
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError(f"expected , or {closing}", text, at)
        at = _skip(text, at + 1)


def _child(text: str, at: int, depth: int, *, named: bool) -> Child:
    if not named:
        return Child(at, None, _value(text, at, depth))
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("expected a key in double quotes", text, at)
    key, end = _DECODER.raw_decode(text, at)
    colon = _skip(text, end)
    if text[colon : colon + 1] != ":":
        raise json.JSONDecodeError("expected : after a key", text, colon)
    return Child(at, key, _value(text, _skip(text, colon + 1), depth))
