"""Finds passwords in tables: of Markdown, CSV, reStructuredText, Org, Jira, AsciiDoc and MediaWiki.

A column headed by a name for passwords has passwords in its cells; in a table of two columns, so has the cell
behind such a name. Everything is searched in lower case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from judgekit.redaction.secret_rules import PATTERNS, SecretMatch, find_line_end

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

MAX_ROW_CHARS = 2000
_CELL_EDGE = " \t*`\"'_"
_MIN_CELL_CHARS = 4
_MAX_HEADER_CHARS = 60
_MAX_ROWS = 500
_MAX_TABLE_CHARS = 40_000  # of a table that may have one cell per line


def find_in_table(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the passwords in a table whose first row has a cell such as "Password".

    `lower_text[start:end]` is the first row. It's either a header, or a name followed by its value.
    """
    line = lower_text[start:end]
    next_line = _read_next_line(lower_text, end)

    # Split the row into cells. Callers only pass a row with a separator.
    separator = next(mark for mark in "|,;\t" if mark in line)
    cells = line.split(separator)
    name_columns = _find_password_columns(cells)
    filled_columns = [column for column, cell in enumerate(cells) if cell.strip()]
    if not name_columns or len(filled_columns) < 2:  # noqa: PLR2004 - a table has more than one column
        return

    # Every Markdown table has a header row, so one without a real header has its first name and value there.
    has_dashes_below = _is_line_of_dashes(next_line)
    if has_dashes_below and _is_name_and_value(cells, name_columns, filled_columns):
        _name_column, value_column = filled_columns
        yield from _find_in_cells(line, start, separator, [value_column])

    if _is_header_row(line, next_line, separator):
        yield from _find_in_later_rows(lower_text, end, separator, name_columns)
    elif separator == "|":  # without a header, the password is on this line
        yield from _find_in_next_cell(line, start, name_columns[0], filled_columns)


def _read_next_line(lower_text: str, line_end: int) -> str:
    """Read the line after the one that ends at `line_end`, but at most the longest row's length."""
    next_start = line_end + 1
    next_end = find_line_end(lower_text, next_start)
    return lower_text[next_start:next_end][:MAX_ROW_CHARS]


def _find_password_columns(headers: list[str]) -> list[int]:
    """Return the indexes of the columns with a header such as "Password"."""
    return [column for column, header in enumerate(headers) if _is_password_header(header)]


def _is_password_header(header: str) -> bool:
    """Whether a column's header is a title such as "Password"."""
    # A cell can be a long text, so cut it to the length that a header may have.
    return bool(PATTERNS["password_header"].fullmatch(header[:_MAX_HEADER_CHARS]))


def _is_line_of_dashes(line: str) -> bool:
    """Whether a line is one of dashes, as below the header of a Markdown table."""
    return bool(PATTERNS["rule"].fullmatch(line) or PATTERNS["frame"].fullmatch(line))


def _is_name_and_value(
    cells: list[str], name_columns: list[int], filled_columns: list[int]
) -> bool:
    """Whether a row has only a password's name and its value, such as `| password | x |`.

    `name_columns` have a password's name, and `filled_columns` are all that aren't empty.
    """
    if len(filled_columns) != 2:  # noqa: PLR2004 - a name and a value
        return False
    name_column, value_column = filled_columns
    only_first_is_name = name_columns == [name_column]
    if not only_first_is_name:
        return False
    return bool(PATTERNS["value_cell"].fullmatch(cells[value_column]))


def _is_header_row(line: str, next_line: str, separator: str) -> bool:
    """Whether a table's first row is a header. With bars, a header has a line of dashes below it."""
    if separator == "|":
        return _is_line_of_dashes(next_line)
    return _is_csv_header(line, next_line, separator)


def _find_in_next_cell(
    line: str, start: int, name_column: int, filled_columns: list[int]
) -> Iterator[SecretMatch]:
    """Yield the password in the first filled cell after the name, as in `| password | x |`."""
    is_table_row = line.lstrip().startswith("|")
    later_columns = [column for column in filled_columns if column > name_column]
    if is_table_row and later_columns:
        next_column = later_columns[0]
        yield from _find_in_cells(line, start, "|", [next_column])


def _is_csv_header(line: str, next_line: str, separator: str) -> bool:
    """Whether a line is a CSV header, rather than prose or code with commas."""
    # Indented or empty lines are more likely code.
    if _starts_with_blank(line) or _starts_with_blank(next_line):
        return False
    has_same_cell_count = next_line.count(separator) == line.count(separator)
    if not has_same_cell_count:
        return False
    return all(map(PATTERNS["name_cell"].fullmatch, line.split(separator)))


def _starts_with_blank(line: str) -> bool:
    """Whether a line is indented or empty."""
    return not line[:1].strip()


def _find_in_later_rows(
    lower_text: str, header_end: int, separator: str, columns: list[int]
) -> Iterator[SecretMatch]:
    """Yield the passwords in the given columns of all rows below a table's header."""
    for start, row in _read_lines_below(lower_text, header_end):
        is_frame = PATTERNS["frame"].fullmatch(row)  # `+----+----+`
        if is_frame:
            continue
        if separator not in row:  # the table has ended
            return
        is_line_below_header = separator == "|" and PATTERNS["rule"].fullmatch(row)  # `|----|----|`
        if not is_line_below_header:
            yield from _find_in_cells(row, start, separator, columns)


def _read_lines_below(lower_text: str, header_end: int) -> Iterator[tuple[int, str]]:
    """Yield the position and text of the lines below a header, at most `_MAX_ROWS`.

    A very long line is cut.
    """
    start = header_end + 1
    for _ in range(_MAX_ROWS):
        if start >= len(lower_text):
            return
        end = find_line_end(lower_text, start)
        cut_end = min(end, start + MAX_ROW_CHARS)
        yield start, lower_text[start:cut_end]
        start = end + 1


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
    for row_start, row in _read_wiki_rows(lower_text, end):
        yield from _find_in_cells(row, row_start, "|", columns)


def _split_wiki_headers(line: str) -> list[str]:
    """Split a wiki's header row: `||a||b||` in Jira, `^a^b^` in DokuWiki, `|_. a|_. b|` in Textile."""
    line = line.strip()
    if line.startswith("||"):
        return line.split("||")
    if line.startswith("^"):
        # DokuWiki's header row can also have ordinary cells, which start with `|`, as in `^a|b^`.
        return line.replace("|", "^").split("^")
    return [_strip_textile_mark(cell) for cell in line.split("|")]


def _strip_textile_mark(cell: str) -> str:
    """Remove the mark of a Textile header cell, such as `_.`. Other cells stay as they are."""
    if not cell.startswith("_"):
        return cell
    _mark, _, header = cell.partition(".")
    return header


def _read_wiki_rows(lower_text: str, header_end: int) -> Iterator[tuple[int, str]]:
    """Yield each row's position and text, without an indent, from below the header to the table's end."""
    for start, line in _read_lines_below(lower_text, header_end):
        row = line.lstrip()
        is_next_header = row.startswith(("||", "|_"))  # of another table
        if is_next_header or not row.startswith("|"):
            return
        indent = len(line) - len(row)
        yield start + indent, row


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
        separator = fence[0]  # `|` in this example
        closing_mark = f"\n{fence}"
        end = _find_closing_mark(lower_text, opening, closing_mark)
        yield from _find_in_cell_sequence(lower_text, opening.end(), end, separator)
        search_start = end + len(closing_mark)


def _find_closing_mark(lower_text: str, opening: re.Match[str], closing_mark: str) -> int:
    r"""Return the position of a table's closing mark, such as `\n|}`. Without one, return the text's end."""
    # In an empty table, the closing mark starts with the line break that ends the opening. So search from
    # there.
    line_break = opening.end() - len("\n")
    position = lower_text.find(closing_mark, line_break)
    return position if position >= 0 else len(lower_text)


def _find_in_mediawiki(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the passwords in MediaWiki tables, which are enclosed in the lines `{|` and `|}`."""
    search_start = 0
    while opening := PATTERNS["mediawiki"].search(lower_text, search_start):
        end = _find_closing_mark(lower_text, opening, "\n|}")
        end = min(end, opening.end() + _MAX_TABLE_CHARS)
        yield from _find_in_mediawiki_rows(lower_text, opening.end(), end)
        search_start = end


class _Cell(NamedTuple):
    """A cell's text, and its position in the searched text."""

    start: int
    text: str


def _find_in_cell_sequence(
    lower_text: str, start: int, end: int, separator: str
) -> Iterator[SecretMatch]:
    """Yield the passwords in an AsciiDoc table from `start` to `end`.

    The first row is the header. A row's cells can be on one line, or each on a separate line.
    """
    end = min(end, start + _MAX_TABLE_CHARS)
    cells: list[_Cell] = []
    first_line_cell_count = 0  # in the first line that has cells
    line_start = start
    while line_start < end:
        line_end = min(find_line_end(lower_text, line_start), end)
        cells += _split_cells(lower_text[line_start:line_end], line_start, separator)
        if first_line_cell_count == 0:
            first_line_cell_count = len(cells)
        line_start = line_end + 1

    has_cell_per_line = first_line_cell_count == 1
    if has_cell_per_line:
        column_count = _count_header_cells(lower_text[start:end], separator)
    else:
        column_count = first_line_cell_count
    yield from _find_in_columns(cells, column_count)


def _count_header_cells(table: str, separator: str) -> int:
    """Count the header cells of a table with one cell per line. A blank line ends the header."""
    header_lines, _, _ = table.strip().partition("\n\n")
    return header_lines.count(separator)


def _split_cells(line: str, line_start: int, separator: str) -> list[_Cell]:
    """Split a line into its cells."""
    cells = []
    cell_start = line_start
    for cell in line.split(separator):
        cells.append(_Cell(cell_start, cell))
        cell_start += len(cell) + len(separator)

    # Commas and colons are between cells. But `|` and `!` are before each cell, so anything before a line's
    # first `|` isn't a cell.
    is_between_cells = separator in ",:"
    return cells if is_between_cells else cells[1:]


def _find_in_mediawiki_rows(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the passwords in a MediaWiki table from `start` to `end`.

    A line with headers starts with `!`, a line with cells with `|`, and `|-` starts a new row.
    """
    headers: list[str] = []
    row: list[_Cell] = []
    line_start = start
    while line_start < end:
        line_end = min(find_line_end(lower_text, line_start), end)
        line = lower_text[line_start:line_end]
        if line.startswith("|-"):  # the row's end
            yield from _find_in_columns(row, len(headers), headers)
            row = []
        elif line.startswith("!"):
            headers += _read_mediawiki_headers(line)
        elif line.startswith("|"):
            row += _read_mediawiki_cells(line, line_start)
        line_start = line_end + 1

    # the last row
    yield from _find_in_columns(row, len(headers), headers)


def _read_mediawiki_headers(line: str) -> list[str]:
    """Read the titles in a line such as `!a!!b`, without attributes such as `style="width: 50%"|`."""
    titles = []
    for header in line[1:].split("!!"):
        _attributes, _, title = header.rpartition("|")
        titles.append(title)
    return titles


def _read_mediawiki_cells(line: str, line_start: int) -> list[_Cell]:
    """Read the cells in a line such as `|a||b`."""
    cells = []
    cell_start = line_start + len("|")
    for cell in line[1:].split("||"):
        cells.append(_Cell(cell_start, cell))
        cell_start += len(cell) + len("||")
    return cells


def _find_in_columns(
    cells: list[_Cell],
    column_count: int,
    headers: list[str] | None = None,
) -> Iterator[SecretMatch]:
    """Yield the passwords in columns with a header such as "Password".

    The cells are in order, row by row. If `headers` is None, the first row is the header row.
    """
    if not column_count:
        return
    if headers is None:
        headers = [cell.text for cell in cells[:column_count]]
        cells = cells[column_count:]
    is_password_column = [_is_password_header(header.strip()) for header in headers]

    for index, cell in enumerate(cells):
        column = index % column_count
        value = cell.text.strip(_CELL_EDGE)
        if is_password_column[column] and _is_password_value(value):
            value_start = cell.start + cell.text.index(value)
            yield SecretMatch(value_start, value_start + len(value), "password")
