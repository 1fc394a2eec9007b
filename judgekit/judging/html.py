"""Renders records as HTML for a notebook, escaping text that others wrote."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from judgekit.text import remove_invisible, shorten_to_line, split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAX_CELL_CHARS = 300  # in a cell or a line


def record_html(text: str, findings: Iterable[tuple[str, str]] = ()) -> str:
    """Render a text as HTML with its first line in bold, followed by a list of findings (issue and quote)."""
    headline, *more_lines = map(_escape_line, split_lines(text))
    html = "<br>".join([f"<b>{headline}</b>", *more_lines])
    items = []
    for issue, quote in findings:
        item = _escape_line(issue)
        if quote:
            item += f" <q>{_escape_line(quote)}</q>"
        items.append(f"<li>{item}</li>")
    if items:
        html += f"<ul>{''.join(items)}</ul>"
    return f"<div>{html}</div>"


def table_html(rows: Iterable[Mapping[str, Any]]) -> str:
    """Render rows as an HTML table. All rows must have the same keys."""
    rows = list(rows)
    if not rows:
        return ""
    headers = "".join(f"<th>{_escape_line(name)}</th>" for name in rows[0])
    html_rows = []
    for row in rows:
        cells = "".join(f"<td>{_format_cell(value)}</td>" for value in row.values())
        html_rows.append(f"<tr>{cells}</tr>")
    return f"<table><tr>{headers}</tr>{''.join(html_rows)}</table>"


def _format_cell(value: object) -> str:
    """Format a value for a table cell. None becomes an empty cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return _escape_line(str(value))


def _escape_line(text: str) -> str:
    """Shorten a text to one line without invisible characters, and escape it for HTML."""
    return escape(shorten_to_line(remove_invisible(text), _MAX_CELL_CHARS))
