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
    @functions.signature({"types": []})  # type: ignore[untyped-decorator]  # the same
    def _func_parse_json(self, value: object) -> object:
        return parse_json(value) if isinstance(value, str) else value


# Nodes whose first child gives the value that the others look at.
_ONWARD = frozenset(
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
_OPTIONS = jmespath.Options(custom_functions=_Functions())


def read_cell(columns: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Read the cell of a column of exactly this name, or else of a path; None if there's nothing.

    The path's first column may hold JSON as text, as in CSV.
    """
    if name in columns:
        return columns[name]
    path = _compile(name)
    if path is None:
        return None
    data = columns
    for root in _opened_roots(name):
        if isinstance(columns.get(root), str):
            data = {**data, root: parse_json(columns[root])}
    try:
        return path.search(data, options=_OPTIONS)
    except JMESPathError:  # a function that doesn't apply to such a value
        return None


def column_of(name: str, columns: Collection[str]) -> str:
    """Name the column that a field comes from: `name` itself, or the first column of its path."""
    path = _compile(name)
    if name in columns or path is None:
        return name
    return _find_root(path)


def is_path_into(name: str, columns: Collection[str]) -> bool:
    """Whether a name is a path that begins with one of the columns."""
    path = _compile(name)
    if path is None or path.parsed["type"] == "field":
        return False
    return any(root in columns for root in _roots_of(path))


@lru_cache(maxsize=256)
def _compile(name: str) -> ParsedResult | None:
    try:
        return jmespath.compile(name)
    except JMESPathError:
        return None


def _find_root(path: ParsedResult) -> str:
    """Find the first column in a path; "" if there's none."""
    return next(iter(_roots_of(path)), "")


def find_roots(name: str) -> list[str]:
    """List the columns that a path may begin with, for each alternative and each part of a list."""
    path = _compile(name)
    return [] if path is None else _roots_of(path)


def _roots_of(path: ParsedResult) -> list[str]:
    roots: dict[str, None] = {}
    nodes = [path.parsed]
    while nodes:
        node = nodes.pop(0)
        if node["type"] == "field":
            roots[str(node["value"])] = None
        children = node["children"]
        if node["type"] in _ONWARD:
            children = children[:1]
        elif node["type"] == "and_expression":
            children = children[-1:]  # the other child is only a condition
        nodes = [*children, *nodes]
    return list(roots)


@lru_cache(maxsize=256)
def _opened_roots(name: str) -> Sequence[str]:
    """List the columns that a path looks inside: in `a.b || c` that's `a`, while `c` is used as it is."""
    path = _compile(name)
    roots: dict[str, None] = {}
    nodes = [] if path is None else [path.parsed]
    while nodes:
        node = nodes.pop(0)
        children = node["children"]
        is_call = node["type"] == "function_expression" and node["value"] != "to_string"
        if node["type"] in _ONWARD:
            children = children[:1]
        if node["type"] in _ONWARD or is_call:
            for child in children:
                if child["type"] == "field":
                    roots[str(child["value"])] = None
        nodes = [*children, *nodes]
    return list(roots)
