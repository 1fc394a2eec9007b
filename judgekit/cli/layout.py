"""Renders parts of a page as text: tables and figures that stay readable on a narrow terminal.

Texts shrink. Names, counts and intervals stay whole, even if that makes a line longer than the terminal is
wide. Nothing is cut unless it's printed to a terminal.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from judgekit.cli.output import get_terminal_width
from judgekit.evaluation.page import Figure, Part, Table, format_cell
from judgekit.text import escape_name, split_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_ROWS = 10  # in a table
_MIN_WIDTH_BY_COLUMN = {"reasoning": 16, "text": 16, "corrected": 22}
"""The columns whose cells may shrink, with their least widths in characters: an interval stays whole."""
_MIN_TEXT_WIDTH = 8  # characters of a text after a name
_GAP = 2  # blanks between columns
_INDENT = 2


def render_parts(parts: Sequence[Part], limit: int = MAX_ROWS) -> str:
    """Render the parts of a page for a terminal, with at most `limit` rows of each table."""
    width = get_terminal_width()
    page_lines = []
    for part in parts:
        page_lines += _render_part(part, limit, width)
    return "\n".join(f"{' ' * _INDENT}{line.rstrip()}" for line in page_lines)


def _render_part(part: Part, limit: int, width: int | None) -> list[str]:
    """Render a text, a table or a list of figures. Charts are left out."""
    if isinstance(part, str):
        return split_lines(escape_name(part))
    if isinstance(part, Table):
        return _render_table(part, limit, width)
    figures = [item for item in part if isinstance(item, Figure)]
    return _render_figures(figures, width)


def _render_table(table: Table, limit: int, width: int | None) -> list[str]:
    """Render a table's header, its first rows, and a line that counts any others."""
    names = list(map(escape_name, table.columns))
    rows = [[escape_name(format_cell(cell)) for cell in row] for row in table.rows[:limit]]
    least_widths = _get_least_widths(table.columns)
    table_lines = render_grid([names, *rows], least_widths, width)

    # Either the table has only the first of `total` rows, or it has all rows and no `total`.
    total = max(table.total, len(table.rows))
    if total > limit:
        table_lines.append(_describe_other_rows(table, total=total, shown=limit))
    return table_lines


def _get_least_widths(names: Sequence[str]) -> dict[int, int]:
    """Get the least widths of the columns that may shrink, by the column's number."""
    least_widths = {}
    for number, name in enumerate(names):
        if name in _MIN_WIDTH_BY_COLUMN:
            least_widths[number] = _MIN_WIDTH_BY_COLUMN[name]
    return least_widths


def _describe_other_rows(table: Table, *, total: int, shown: int) -> str:
    """Count the rows that aren't shown, and say how many of them the HTML page shows."""
    page_has_all = table.is_in_list or total == len(table.rows)
    on_page = "them" if page_has_all else f"the first {len(table.rows)} of them"
    return f"and {total - shown} more; --html FILE shows {on_page}"


def _render_figures(figures: Sequence[Figure], width: int | None) -> list[str]:
    """Render each figure as a line. If one doesn't fit, all notes go on lines of their own."""
    rows = [[escape_name(figure.name), figure.text, escape_name(figure.note)] for figure in figures]
    figure_lines = render_grid(rows)
    if width is None:
        return figure_lines

    longest = max(map(len, figure_lines), default=0)
    room = width - _INDENT  # the page indents each line
    return figure_lines if longest <= room else _put_notes_below(rows)


def _put_notes_below(rows: Sequence[Sequence[str]]) -> list[str]:
    """Render rows of a name, a text and a note, with the note indented on the next line."""
    lines_without_notes = render_grid([[name, text] for name, text, _ in rows])
    figure_lines = []
    for line, (_, _, note) in zip(lines_without_notes, rows, strict=True):
        figure_lines.append(line)
        if note:
            figure_lines.append(f"{' ' * _INDENT}{note}")
    return figure_lines


def render_grid(
    rows: Sequence[Sequence[str]],
    least_widths: Mapping[int, int] = MappingProxyType({}),
    width: int | None = None,
) -> list[str]:
    """Render rows as lines with aligned columns, to fit a page of `width` characters if possible.

    The first row is the header. The columns in `least_widths` may shrink. If the lines are still too long,
    the cells of these columns are printed below their row.
    """
    from rich.cells import cell_len

    columns = zip(*rows, strict=True)
    full_widths = [max(map(cell_len, column)) for column in columns]
    if width is None:
        return _align_columns(rows, full_widths)

    room = width - _INDENT  # the page indents each line
    widths = _shrink_columns(full_widths, least_widths, room)
    total_width = sum(widths) + _GAP * (len(widths) - 1)
    if total_width <= room:
        return _align_columns(rows, widths)
    return _put_cells_below(rows, full_widths, list(least_widths), room)


def _put_cells_below(
    rows: Sequence[Sequence[str]], lengths: Sequence[int], moved_columns: Sequence[int], room: int
) -> list[str]:
    """Render rows without `moved_columns`, whose cells follow each row as lines "name: text".

    The first row is the header. `lengths` are the full widths of all columns, and `room` is the most
    characters in a line.
    """
    kept_columns = [column for column in range(len(lengths)) if column not in moved_columns]
    kept_cells = [[row[column] for column in kept_columns] for row in rows]
    kept_lengths = [lengths[column] for column in kept_columns]
    header_line, *row_lines = _align_columns(kept_cells, kept_lengths)
    header, *rows_without_header = rows

    result = [header_line]
    for line, row in zip(row_lines, rows_without_header, strict=True):
        result.append(line)
        for column in moved_columns:
            if row[column]:
                result.append(_render_moved_cell(header[column], row[column], room))
    return result


def _render_moved_cell(name: str, text: str, room: int) -> str:
    """Render a cell as an indented line "name: text", cut if it's longer than `room`."""
    from rich.cells import cell_len

    whole_line = f"{' ' * _INDENT}{name}: {text}"
    return _cut_text(whole_line, min(cell_len(whole_line), room))


def _cut_text(text: str, width: int) -> str:
    """Cut a text to a width, like the only cell of a table."""
    (line,) = _align_columns([[text]], [width])
    return line


def fit_text(head: str, text: str) -> str:
    """Join `head` and `text`, cutting the text if the terminal is too narrow.

    If there's hardly any room for the text, only the head is returned.
    """
    from rich.cells import cell_len

    line = head + text
    width = get_terminal_width()
    if width is None or cell_len(line) <= width:
        return line

    room = width - cell_len(head)
    if room <= _MIN_TEXT_WIDTH:
        return head
    return head + _cut_text(text, room)


def _shrink_columns(
    lengths: Sequence[int], least_widths: Mapping[int, int], width: int
) -> list[int]:
    """Compute column widths by shrinking the widest columns until all fit or can't shrink further.

    Only the columns in `least_widths` may shrink.
    """
    widths = list(lengths)
    gaps = _GAP * (len(widths) - 1)
    while sum(widths) + gaps > width:
        shrinkable = [number for number in least_widths if widths[number] > least_widths[number]]
        if not shrinkable:
            break
        widest = max(shrinkable, key=lambda number: widths[number])
        widths[widest] -= 1
    return widths


def _align_columns(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Render rows as lines, padding or cutting each cell to its column's width."""
    from rich.cells import cell_len, set_cell_size

    aligned_lines = []
    for row in rows:
        cells = []
        for cell, width in zip(row, widths, strict=True):
            if cell_len(cell) > width:
                cells.append(set_cell_size(cell, width - 1) + "…")
            else:
                cells.append(set_cell_size(cell, width))
        aligned_lines.append((" " * _GAP).join(cells).rstrip())

    return aligned_lines
