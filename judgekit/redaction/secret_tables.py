"""Finds passwords in tables: of Markdown, CSV, reStructuredText, Org, Jira, AsciiDoc and MediaWiki.

A column headed by a name for passwords has passwords in its cells; in a table of two columns, so has the cell
behind such a name. Everything is searched in lower case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import RE, SecretMatch, line_end

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_ROW = 2000
_CELL_EDGE = " \t*`\"'_"
_LEAST_CELL = 4
_MOST_ROWS = 500
_MOST_CHARACTERS = 40_000  # of a table whose cells have lines of their own


def find_in_table(lower: str, start: int, stop: int) -> Iterator[SecretMatch]:
    """Yield the secrets of a table, given its first row, or of a single row with two cells."""
    line = lower[start:stop]
    following = lower[stop + 1 : line_end(lower, stop + 1)][:LONGEST_ROW]
    mark = next(mark for mark in "|,;\t" if mark in line)
    cells = line.split(mark)
    columns = []
    for column, cell in enumerate(cells):
        if RE["head_cell"].fullmatch(cell[:60]):
            columns.append(column)
    inner = [column for column, cell in enumerate(cells) if cell.strip()]
    if not columns or len(inner) < 2:  # noqa: PLR2004 - a column beside it
        return
    is_head = bool(RE["rule"].fullmatch(following) or RE["frame"].fullmatch(following))
    is_pair = len(inner) == 2 and columns == inner[:1]  # noqa: PLR2004 - a name and a value
    if is_head and is_pair and RE["value_cell"].fullmatch(cells[inner[1]]):
        yield from _cells(line, start, "|", [inner[1]])
    if mark == "|" and not is_head:
        if line.lstrip()[:1] == "|" and columns[0] in inner[:-1]:
            yield from _cells(line, start, "|", [inner[inner.index(columns[0]) + 1]])
        return
    if mark != "|":
        is_indented = not (line[:1].strip() and following[:1].strip())
        has_as_many_cells = following.count(mark) == len(cells) - 1
        if is_indented or not has_as_many_cells:
            return
        if not all(map(RE["name_cell"].fullmatch, cells)):
            return
    for _ in range(_MOST_ROWS):
        start = stop + 1
        stop = line_end(lower, stop + 1)
        row = lower[start : min(stop, start + LONGEST_ROW)]
        is_frame = bool(RE["frame"].fullmatch(row))
        if start >= len(lower) or not (mark in row or is_frame):
            return
        is_rule = mark == "|" and bool(RE["rule"].fullmatch(row))
        if not is_frame and not is_rule:
            yield from _cells(row, start, mark, columns)


def _cells(line: str, start: int, mark: str, columns: list[int]) -> Iterator[SecretMatch]:
    for column, cell in enumerate(line.split(mark)):
        value = cell.strip(_CELL_EDGE)
        long = column in columns and len(value) >= _LEAST_CELL
        if long and " " not in value and any(map(str.isalnum, value)):
            first = start + cell.index(value)
            yield SecretMatch(first, first + len(value), "password")
        start += len(cell) + len(mark)


# Tables of wikis


def find_in_wiki_table(lower: str, start: int, stop: int) -> Iterator[SecretMatch]:
    """Yield the secrets below a row of heads of Jira, DokuWiki or Textile: `||User||Password||`."""
    line = lower[start:stop]
    heads = _heads_of_wiki_row(line)
    columns = []
    for column, cell in enumerate(heads):
        if RE["head_cell"].fullmatch(cell[:60]):
            columns.append(column)
    if not columns:
        return
    for _ in range(_MOST_ROWS):
        start = stop + 1
        stop = line_end(lower, start)
        row = lower[start : min(stop, start + LONGEST_ROW)]
        stripped = row.lstrip()
        if start >= len(lower) or not stripped.startswith("|") or stripped.startswith(("||", "|_")):
            return
        indent = len(row) - len(stripped)
        yield from _cells(stripped, start + indent, "|", columns)


def _heads_of_wiki_row(line: str) -> list[str]:
    line = line.strip()
    if line.startswith("||"):
        return line.split("||")
    if line.startswith("^"):
        return line.replace("|", "^").split("^")
    return [cell.partition(".")[2] if cell.startswith("_") else cell for cell in line.split("|")]


def find_wiki_pairs(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the cells behind a row's head that names passwords: `||Password|…|`."""
    for pair in RE["wiki_pair"].finditer(lower, start, end):
        value = pair["value"].strip(_CELL_EDGE)
        if " " not in value and any(map(str.isalnum, value)):
            first = pair.start("value") + pair["value"].index(value)
            yield SecretMatch(first, first + len(value), "password")


def find_in_marked_tables(lower: str) -> Iterator[SecretMatch]:
    """Yield the secrets of AsciiDoc's and MediaWiki's tables, whose cells may be on separate lines."""
    if "===" in lower:
        at = 0
        while opening := RE["asciidoc"].search(lower, at):
            fence = opening[0].strip()
            end = lower.find(f"\n{fence}", opening.end() - 1)
            if end < 0:
                end = len(lower)
            mark = fence[0] if fence[0] in ",:!" else "|"
            yield from _cells_in_order(lower, opening.end(), end, mark)
            at = end + len(fence) + 1
    if "{|" in lower:
        at = 0
        while opening := RE["mediawiki"].search(lower, at):
            end = lower.find("\n|}", opening.end() - 1)
            if end < 0:
                end = len(lower)
            at = min(end, opening.end() + _MOST_CHARACTERS)
            yield from _mediawiki_cells(lower, opening.end(), at)


def _cells_in_order(lower: str, start: int, end: int, mark: str) -> Iterator[SecretMatch]:
    """Yield the secrets among consecutive cells; the first line tells the number of columns."""
    end = min(end, start + _MOST_CHARACTERS)
    cells: list[tuple[int, str]] = []
    columns = 0
    at = start
    while at < end:
        stop = min(line_end(lower, at), end)
        line = lower[at:stop]
        first = 0
        parts = line.split(mark)
        # Otherwise it precedes each cell, with nothing before the first
        is_between_cells = mark in ",:"
        for number, part in enumerate(parts):
            if is_between_cells or number > 0:
                cells.append((at + first, part))
            first += len(part) + 1
        if not columns and cells:
            columns = len(cells)
        at = stop + 1
    if columns == 1:  # one cell a line: blank lines separate rows
        heads = lower[start:end].strip().partition("\n\n")[0]
        columns = heads.count(mark)
    yield from _below_heads(cells, columns)


def _mediawiki_cells(lower: str, start: int, end: int) -> Iterator[SecretMatch]:
    heads: list[str] = []
    row: list[tuple[int, str]] = []
    at = start
    while at < end:
        stop = min(line_end(lower, at), end)
        line = lower[at:stop]
        if line.startswith("|-"):
            yield from _below_heads(row, len(heads), heads)
            row = []
        elif line.startswith("!"):
            heads += [head.rpartition("|")[2] for head in line[1:].split("!!")]
        elif line.startswith("|"):
            first = 1
            for cell in line[1:].split("||"):
                row.append((at + first, cell))
                first += len(cell) + 2
        at = stop + 1
    yield from _below_heads(row, len(heads), heads)


def _below_heads(
    cells: list[tuple[int, str]],
    columns: int,
    heads: list[str] | None = None,
) -> Iterator[SecretMatch]:
    """Yield the cells in columns headed by a password's name; by default the first cells are the heads."""
    if not columns:
        return
    if heads is None:
        heads = [cell for _, cell in cells[:columns]]
        cells = cells[columns:]
    is_secret = []
    for head in heads:
        is_secret.append(bool(RE["head_cell"].fullmatch(head.strip()[:60])))
    for number, (start, cell) in enumerate(cells):
        value = cell.strip(_CELL_EDGE)
        is_value = len(value) >= _LEAST_CELL and " " not in value and any(map(str.isalnum, value))
        if is_value and is_secret[number % columns]:
            first = start + cell.index(value)
            yield SecretMatch(first, first + len(value), "password")
