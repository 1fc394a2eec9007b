"""Reads cells by a path into a column, in JMESPath: `response.body.choices[0].message.content`.

Besides JMESPath's own functions there's `parse_json`, since tools like to keep JSON inside JSON.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jmespath
from jmespath import functions
from jmespath.exceptions import JMESPathError

from judgekit.data.values import parse_json

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jmespath.parser import ParsedResult


class _Functions(functions.Functions):  # type: ignore[misc]  # jmespath has no types
    @functions.signature({"types": []})  # type: ignore[untyped-decorator]  # jmespath has no types
    def _func_parse_json(self, value: object) -> object:
        return parse_json(value) if isinstance(value, str) else value


# Nodes whose first child gives the value that the others look at.
_ONWARD_NODE_TYPES = frozenset(
    (
        "filter_projection",
        "flatten",
        "index_expression",
        "pipe",
        "projection",
        "subexpression",
        "value_projection",
    )
)
_JMESPATH_OPTIONS = jmespath.Options(custom_functions=_Functions())


def read_cell(columns: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Read the cell in the column `name`. If there's no such column, `name` is a path, such as `a.b[0]`.

    Returns None if there's no value.
    """
    if name in columns:
        return columns[name]
    path = _compile(name)
    if path is None:
        return None

    # A path can lead into a column with JSON text, as in CSV. Parse such columns first.
    data = columns
    for root in _list_opened_roots(name):
        cell = columns.get(root)
        if isinstance(cell, str):
            data = {**data, root: parse_json(cell)}
    try:
        return path.search(data, options=_JMESPATH_OPTIONS)
    except JMESPathError:  # for example, a function in the path doesn't accept the value
        return None


def find_column(name: str, columns: Collection[str]) -> str:
    """Return the column that `name` refers to: the column `name`, or the first column in the path `name`."""
    path = _compile(name)
    if name in columns or path is None:
        return name
    return _find_root(path)


def is_path_into(name: str, columns: Collection[str]) -> bool:
    """Whether `name` is a path that leads into one of `columns`, such as `a.b` for the column `a`."""
    path = _compile(name)
    if path is None:
        return False
    is_only_column = path.parsed["type"] == "field"
    if is_only_column:
        return False
    return any(root in columns for root in _list_roots(path))


@lru_cache(maxsize=256)
def _compile(name: str) -> ParsedResult | None:
    """Parse a JMESPath expression. Returns None if it isn't one."""
    try:
        return jmespath.compile(name)
    except JMESPathError:
        return None


def _find_root(path: ParsedResult) -> str:
    """Find the first column in a path. Returns "" if there's none."""
    return next(iter(_list_roots(path)), "")


def find_roots(name: str) -> list[str]:
    """List the columns in which a path can start, such as `a` and `c` for `a.b || c`.

    Returns [] if it's invalid.
    """
    path = _compile(name)
    return [] if path is None else _list_roots(path)


def _list_roots(path: ParsedResult) -> list[str]:
    """List the columns in which a path can start, by walking its syntax tree."""
    roots: dict[str, None] = {}  # an ordered set
    nodes = [path.parsed]
    while nodes:
        node = nodes.pop(0)
        if node["type"] == "field":
            roots[str(node["value"])] = None
        children = node["children"]
        if node["type"] in _ONWARD_NODE_TYPES:
            # In `a.b`, only `a` is looked up in the row. Then `b` is looked up in the value of `a`.
            children = children[:1]
        elif node["type"] == "and_expression":
            condition_and_value = children
            children = condition_and_value[1:]  # the condition isn't part of the result
        nodes = [*children, *nodes]
    return list(roots)


@lru_cache(maxsize=256)
def _list_opened_roots(name: str) -> Sequence[str]:
    """List the columns whose content a path looks into. For `a.b || c`, that's `a`, but not `c`."""
    path = _compile(name)
    roots: dict[str, None] = {}  # an ordered set
    nodes = [] if path is None else [path.parsed]
    while nodes:
        node = nodes.pop(0)
        children = node["children"]
        is_step = node["type"] in _ONWARD_NODE_TYPES
        # Functions look into their arguments, except `to_string`, which returns text unchanged.
        is_call = node["type"] == "function_expression" and node["value"] != "to_string"
        if is_step:  # in `a.b`, only `a` is looked up in the row
            children = children[:1]
        if is_step or is_call:
            for child in children:
                if child["type"] == "field":
                    roots[str(child["value"])] = None
        nodes = [*children, *nodes]
    return list(roots)
