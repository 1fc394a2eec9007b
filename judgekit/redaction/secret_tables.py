"""Finds passwords in tables: of Markdown, CSV, reStructuredText, Org, Jira, AsciiDoc and MediaWiki.

A column headed by a name for passwords has passwords in its cells; in a table of two columns, so has the cell
behind such a name. Everything is searched in lower case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import PATTERNS, SecretMatch, find_line_end

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_ROW = 2000
_CELL_EDGE = " \t*`\"'_"
_MIN_CELL_CHARS = 4
_LONGEST_HEADER = 60
_MAX_ROWS = 500
_MAX_TABLE_CHARS = 40_000  # of a table that may have one cell per line


def find_in_table(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the passwords in a table whose first row has a cell such as "Password".

    `lower_text[start:end]` is the first row. It's either a header, or a name followed by its value.
    """
    line = lower_text[start:end]
    next_end = find_line_end(lower_text, end + 1)
    next_line = lower_text[end + 1 : next_end][:LONGEST_ROW]

    # Split the row into cells. Callers only pass a row with a separator.
    separator = next(mark for mark in "|,;\t" if mark in line)
    cells = line.split(separator)
    columns = _find_password_columns(cells)
    filled_columns = [column for column, cell in enumerate(cells) if cell.strip()]
    if not columns or len(filled_columns) < 2:  # noqa: PLR2004 - a table has more than one column
        return

    # A Markdown header has a line of dashes below it.
    is_header = bool(
        PATTERNS["rule"].fullmatch(next_line) or PATTERNS["frame"].fullmatch(next_line)
    )
    has_two_cells = len(filled_columns) == 2  # noqa: PLR2004 - a name and a value
    is_pair = has_two_cells and columns == filled_columns[:1]
    second_column = filled_columns[1]
    # A Markdown table without a real header has its first name and value in the header row.
    if is_header and is_pair and PATTERNS["value_cell"].fullmatch(cells[second_column]):
        yield from _find_in_cells(line, start, separator, [second_column])

    # Without a header, the password is on this line. Otherwise, passwords are in the rows below.
    if separator == "|" and not is_header:
        yield from _find_in_next_cell(line, start, columns[0], filled_columns)
    elif separator == "|" or _is_csv_header(line, next_line, separator):
        yield from _find_in_later_rows(lower_text, end, separator, columns)


def _find_in_next_cell(
    line: str, start: int, name_column: int, filled_columns: list[int]
) -> Iterator[SecretMatch]:
    """Yield the password in the first filled cell after the name, as in `| password | x |`."""
    is_table_row = line.lstrip().startswith("|")
    has_next_cell = name_column in filled_columns[:-1]
    if is_table_row and has_next_cell:
        next_column = filled_columns[filled_columns.index(name_column) + 1]
        yield from _find_in_cells(line, start, "|", [next_column])


def _is_csv_header(line: str, next_line: str, separator: str) -> bool:
    """Whether a line is a CSV header, rather than prose or code with commas."""
    cells = line.split(separator)
    # Indented or empty lines are more likely code.
    starts_with_blank = not (line[:1].strip() and next_line[:1].strip())
    has_same_cell_count = next_line.count(separator) == len(cells) - 1
    if starts_with_blank or not has_same_cell_count:
        return False
    return all(map(PATTERNS["name_cell"].fullmatch, cells))


def _find_password_columns(headers: list[str]) -> list[int]:
    """Return the indexes of the columns with a header such as "Password"."""
    columns = []
    for column, header in enumerate(headers):
        if PATTERNS["password_header"].fullmatch(header[:_LONGEST_HEADER]):
            columns.append(column)
    return columns


def _find_in_later_rows(
    lower_text: str, header_end: int, separator: str, columns: list[int]
) -> Iterator[SecretMatch]:
    """Yield the passwords in the given columns of all rows below a table's header."""
    end = header_end  # the previous row's end
    for _ in range(_MAX_ROWS):
        start = end + 1
        end = find_line_end(lower_text, start)
        row = lower_text[start : min(end, start + LONGEST_ROW)]
        is_frame = bool(PATTERNS["frame"].fullmatch(row))  # `+----+----+`
        is_table_line = separator in row or is_frame
        if start >= len(lower_text) or not is_table_line:
            return

        is_dash_line = separator == "|" and bool(PATTERNS["rule"].fullmatch(row))  # `|----|----|`
        if not is_frame and not is_dash_line:
            yield from _find_in_cells(row, start, separator, columns)


def _find_in_cells(
    row: str, start: int, separator: str, columns: list[int]
) -> Iterator[SecretMatch]:
    """Yield the passwords in the given columns of a row. The row starts at `start` in the text."""
    cell_start = start
    for column, cell in enumerate(row.split(separator)):
        value = cell.strip(_CELL_EDGE)
        if column in columns and _is_password_value(value):
            value_start = cell_start + cell.index(value)
            yield SecretMatch(value_start, value_start + len(value), "password")
        cell_start += len(cell) + len(separator)


def _is_password_value(value: str) -> bool:
    """Whether a cell's value can be a password: not too short, one word, with a letter or a digit."""
    has_letter_or_digit = any(map(str.isalnum, value))
    return len(value) >= _MIN_CELL_CHARS and " " not in value and has_letter_or_digit


# Tables of wikis


def find_in_wiki_table(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the passwords in a Jira, DokuWiki or Textile table.

    Its header row, such as `||User||Password||`, is `lower_text[start:end]`.
    """
    headers = _split_wiki_headers(lower_text[start:end])
    columns = _find_password_columns(headers)
    if not columns:
        return

    row_end = end  # the previous row's end
    for _ in range(_MAX_ROWS):
        row_start = row_end + 1
        row_end = find_line_end(lower_text, row_start)
        row = lower_text[row_start : min(row_end, row_start + LONGEST_ROW)]
        stripped = row.lstrip()
        starts_next_table = stripped.startswith(("||", "|_"))
        if row_start >= len(lower_text) or not stripped.startswith("|") or starts_next_table:
            return

        indent = len(row) - len(stripped)
        yield from _find_in_cells(stripped, row_start + indent, "|", columns)


def _split_wiki_headers(line: str) -> list[str]:
    """Split a wiki's header row: `||a||b||` in Jira, `^a^b^` in DokuWiki, `|_. a|_. b|` in Textile."""
    line = line.strip()
    if line.startswith("||"):
        return line.split("||")
    if line.startswith("^"):
        return line.replace("|", "^").split("^")
    headers = []
    for cell in line.split("|"):
        _mark, _, header = cell.partition(".")
        headers.append(header if cell.startswith("_") else cell)
    return headers


def find_wiki_pairs(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the value after each header such as "Password", in rows such as `||Password|…|`."""
    for pair in PATTERNS["wiki_pair"].finditer(lower_text, start, end):
        cell = pair["value"]
        value = cell.strip(_CELL_EDGE)
        is_single_word = " " not in value and any(map(str.isalnum, value))
        if is_single_word:
            value_start = pair.start("value") + cell.index(value)
            yield SecretMatch(value_start, value_start + len(value), "password")


def find_in_marked_tables(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the passwords in AsciiDoc and MediaWiki tables, which can have one cell per line."""
    if "===" in lower_text:
        yield from _find_in_asciidoc(lower_text)
    if "{|" in lower_text:
        yield from _find_in_mediawiki(lower_text)


def _find_in_asciidoc(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the passwords in AsciiDoc tables, which are enclosed in two lines such as `|===`."""
    search_start = 0
    while opening := PATTERNS["asciidoc"].search(lower_text, search_start):
        fence = opening[0].strip()
        end = lower_text.find(f"\n{fence}", opening.end() - 1)
        if end < 0:
            end = len(lower_text)
        separator = fence[0]  # `|` in this example
        yield from _find_in_cell_sequence(lower_text, opening.end(), end, separator)
        search_start = end + len(fence) + 1


def _find_in_mediawiki(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the passwords in MediaWiki tables, which are enclosed in the lines `{|` and `|}`."""
    position = 0
    while opening := PATTERNS["mediawiki"].search(lower_text, position):
        end = lower_text.find("\n|}", opening.end() - 1)
        if end < 0:
            end = len(lower_text)
        position = min(end, opening.end() + _MAX_TABLE_CHARS)
        yield from _find_in_mediawiki_rows(lower_text, opening.end(), position)


def _find_in_cell_sequence(
    lower_text: str, start: int, end: int, separator: str
) -> Iterator[SecretMatch]:
    """Yield the passwords in an AsciiDoc table from `start` to `end`.

    The first row is the header. A row's cells can be on one line, or each on a separate line.
    """
    end = min(end, start + _MAX_TABLE_CHARS)
    cells: list[tuple[int, str]] = []  # each cell's position and content
    column_count = 0
    # Commas and colons are between cells. But `|` and `!` are before each cell, so anything before a line's
    # first `|` isn't a cell.
    is_between_cells = separator in ",:"

    # Collect the cells of all lines.
    line_start = start
    while line_start < end:
        line_end = min(find_line_end(lower_text, line_start), end)
        part_start = line_start
        for index, part in enumerate(lower_text[line_start:line_end].split(separator)):
            if is_between_cells or index > 0:
                cells.append((part_start, part))
            part_start += len(part) + 1  # after the separator
        if not column_count and cells:  # The first line with cells is the header row.
            column_count = len(cells)
        line_start = line_end + 1

    # If each cell is on its own line, a blank line ends the header row.
    if column_count == 1:
        header_lines, _, _ = lower_text[start:end].strip().partition("\n\n")
        column_count = header_lines.count(separator)
    yield from _find_in_positioned_cells(cells, column_count)


def _find_in_mediawiki_rows(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the passwords in a MediaWiki table from `start` to `end`.

    A line with headers starts with `!`, a line with cells with `|`, and `|-` starts a new row.
    """
    headers: list[str] = []
    row: list[tuple[int, str]] = []  # position and content of each cell
    line_start = start
    while line_start < end:
        line_end = min(find_line_end(lower_text, line_start), end)
        line = lower_text[line_start:line_end]
        if line.startswith("|-"):  # the row's end
            yield from _find_in_positioned_cells(row, len(headers), headers)
            row = []
        elif line.startswith("!"):  # headers
            for header in line[1:].split("!!"):
                _attributes, _, title = header.rpartition("|")
                headers.append(title)  # without attributes such as `style="width: 50%"`
        elif line.startswith("|"):  # cells
            cell_start = line_start + 1
            for cell in line[1:].split("||"):
                row.append((cell_start, cell))
                cell_start += len(cell) + 2  # after the `||`
        line_start = line_end + 1

    # the last row
    yield from _find_in_positioned_cells(row, len(headers), headers)


def _find_in_positioned_cells(
    cells: list[tuple[int, str]],
    column_count: int,
    headers: list[str] | None = None,
) -> Iterator[SecretMatch]:
    """Yield the passwords in columns with a header such as "Password".

    `cells` contains the position and content of each cell, row by row. If `headers` is None, the first row
    is the header row.
    """
    if not column_count:
        return
    if headers is None:
        headers = [cell for _, cell in cells[:column_count]]
        cells = cells[column_count:]

    is_password_column = []  # a flag for each column
    for header in headers:
        title = header.strip()[:_LONGEST_HEADER]
        is_password_column.append(bool(PATTERNS["password_header"].fullmatch(title)))

    for index, (start, cell) in enumerate(cells):
        value = cell.strip(_CELL_EDGE)
        if is_password_column[index % column_count] and _is_password_value(value):
            value_start = start + cell.index(value)
            yield SecretMatch(value_start, value_start + len(value), "password")
