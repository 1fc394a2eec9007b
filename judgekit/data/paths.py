"""Cells that a path names inside a column, in JMESPath: `response.body.choices[0].message.content`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jmespath
from jmespath.exceptions import JMESPathError

from judgekit.data.values import parse_json

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from jmespath.parser import ParsedResult


def read_cell(columns: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Read the cell of a column of exactly this name, or else of a path; None if there's nothing.

    The column that a path begins with may hold JSON as text, as in CSV.
    """
    if name in columns:
        return columns[name]
    path = _compile(name)
    if path is None:
        return None
    root = _find_root(path)
    data = columns
    if isinstance(columns.get(root), str):
        data = {**columns, root: parse_json(columns[root])}
    try:
        return path.search(data)
    except JMESPathError:  # a function that such a value hasn't
        return None


def column_of(name: str, columns: Collection[str]) -> str:
    """Name the column that a field comes from: `name` itself, or the one that it's a path into."""
    path = _compile(name)
    if name in columns or path is None:
        return name
    return _find_root(path)


def is_path_into(name: str, columns: Collection[str]) -> bool:
    """Whether a name is a path that begins with one of the columns."""
    path = _compile(name)
    return path is not None and path.parsed["type"] != "field" and _find_root(path) in columns


@lru_cache(maxsize=64)
def _compile(name: str) -> ParsedResult | None:
    try:
        return jmespath.compile(name)
    except JMESPathError:
        return None


def _find_root(path: ParsedResult) -> str:
    """Find the first column that a path looks at; "" if there's none."""
    nodes = [path.parsed]
    while nodes:
        node = nodes.pop(0)
        if node["type"] == "field":
            return str(node["value"])
        nodes = [*node["children"], *nodes]
    return ""
