"""Finds passwords in tables: of Markdown, CSV, reStructuredText, Org, Jira, AsciiDoc and MediaWiki.

A column headed by a name for passwords has passwords in its cells; in a table of two columns, so has the cell
behind such a name. Everything is searched in lower case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.redaction.secret_rules import PATTERNS, SecretMatch, line_end

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_ROW = 2000
_CELL_EDGE = " \t*`\"'_"
_LEAST_CELL = 4
_LONGEST_HEAD = 60
_MOST_ROWS = 500
_MOST_CHARACTERS = 40_000  # of a table whose cells have lines of their own


def find_in_table(lower_text: str, start: int, stop: int) -> Iterator[SecretMatch]:
    """Yield the passwords of a table whose first row is from `start` to `stop`.

    The row may be the table's head, with the passwords in a column below a cell such as "Password". Or it's a
    row of its own, with a name in one cell and the value in the next.
    """
    line = lower_text[start:stop]
    next_stop = line_end(lower_text, stop + 1)
    next_line = lower_text[stop + 1 : next_stop][:LONGEST_ROW]
    # Callers make sure that the line has one of these marks.
    separator = next(mark for mark in "|,;\t" if mark in line)
    cells = line.split(separator)
    columns = _find_password_columns(cells)
    filled_columns = [column for column, cell in enumerate(cells) if cell.strip()]
    if not columns or len(filled_columns) < 2:  # noqa: PLR2004 - a table has another column
        return

    # A row with a line of dashes below it is the head of a table.
    is_head = bool(PATTERNS["rule"].fullmatch(next_line) or PATTERNS["frame"].fullmatch(next_line))
    has_two_cells = len(filled_columns) == 2  # noqa: PLR2004 - a name and a value
    is_pair = has_two_cells and columns == filled_columns[:1]
    second_column = filled_columns[1]
    if is_head and is_pair and PATTERNS["value_cell"].fullmatch(cells[second_column]):
        yield from _find_in_cells(line, start, separator, [second_column])
    if separator == "|" and not is_head:
        yield from _find_in_next_cell(line, start, columns[0], filled_columns)
    elif separator == "|" or _is_csv_head(line, next_line, separator):
        yield from _find_in_later_rows(lower_text, stop, separator, columns)


def _find_in_next_cell(
    line: str, start: int, name_column: int, filled: list[int]
) -> Iterator[SecretMatch]:
    """Yield the password in the next cell that isn't empty behind a name, as in `| password | x |`."""
    has_cell_behind = name_column in filled[:-1]
    if has_cell_behind and line.lstrip().startswith("|"):
        column_behind = filled[filled.index(name_column) + 1]
        yield from _find_in_cells(line, start, "|", [column_behind])


def _is_csv_head(line: str, next_line: str, separator: str) -> bool:
    """Whether a line is the head of CSV, going by the line after it.

    Prose and code have commas, too. So neither line may be indented, both must have as many cells, and the
    cells of the first must look like names.
    """
    cells = line.split(separator)
    is_indented = not (line[:1].strip() and next_line[:1].strip())
    has_as_many_cells = next_line.count(separator) == len(cells) - 1
    if is_indented or not has_as_many_cells:
        return False
    return all(map(PATTERNS["name_cell"].fullmatch, cells))


def _find_password_columns(heads: list[str]) -> list[int]:
    """Return the indexes of the columns whose head is a name for passwords."""
    columns = []
    for column, head in enumerate(heads):
        if PATTERNS["head_cell"].fullmatch(head[:_LONGEST_HEAD]):
            columns.append(column)
    return columns


def _find_in_later_rows(
    lower_text: str, head_stop: int, separator: str, columns: list[int]
) -> Iterator[SecretMatch]:
    """Yield the passwords in a table's rows below its head, in the columns with these indexes.

    `head_stop` is the end of the head's line. The first line that isn't a row ends the table. A line of
    dashes, or of a frame, has no cells and is skipped.
    """
    stop = head_stop
    for _ in range(_MOST_ROWS):
        start = stop + 1
        stop = line_end(lower_text, start)
        row = lower_text[start : min(stop, start + LONGEST_ROW)]
        is_frame = bool(PATTERNS["frame"].fullmatch(row))
        if start >= len(lower_text) or not (separator in row or is_frame):
            return
        is_rule = separator == "|" and bool(PATTERNS["rule"].fullmatch(row))
        if not is_frame and not is_rule:
            yield from _find_in_cells(row, start, separator, columns)


def _find_in_cells(
    line: str, start: int, separator: str, columns: list[int]
) -> Iterator[SecretMatch]:
    """Yield the passwords in the cells of a row, in the columns with these indexes.

    `line` is the row, and `start` its position in the text.
    """
    for column, cell in enumerate(line.split(separator)):
        value = cell.strip(_CELL_EDGE)
        if column in columns and _is_password_value(value):
            value_start = start + cell.index(value)
            yield SecretMatch(value_start, value_start + len(value), "password")
        start += len(cell) + len(separator)


def _is_password_value(value: str) -> bool:
    """Whether a cell's value can be a password: not too short, one word, with a letter or a digit."""
    has_letter_or_digit = any(map(str.isalnum, value))
    return len(value) >= _LEAST_CELL and " " not in value and has_letter_or_digit


# Tables of wikis


def find_in_wiki_table(lower_text: str, start: int, stop: int) -> Iterator[SecretMatch]:
    """Yield the passwords of a table in Jira, DokuWiki or Textile, as `||User||Password||` with rows below.

    The row with the heads is from `start` to `stop`.
    """
    columns = _find_password_columns(_split_wiki_heads(lower_text[start:stop]))
    if not columns:
        return
    for _ in range(_MOST_ROWS):
        start = stop + 1
        stop = line_end(lower_text, start)
        row = lower_text[start : min(stop, start + LONGEST_ROW)]
        stripped = row.lstrip()
        is_head = stripped.startswith(("||", "|_"))
        if start >= len(lower_text) or not stripped.startswith("|") or is_head:
            return
        indent = len(row) - len(stripped)
        yield from _find_in_cells(stripped, start + indent, "|", columns)


def _split_wiki_heads(line: str) -> list[str]:
    """Split a wiki's row of heads: `||a||b||` in Jira, `^a^b^` in DokuWiki, `|_. a|_. b|` in Textile."""
    line = line.strip()
    if line.startswith("||"):
        return line.split("||")
    if line.startswith("^"):
        return line.replace("|", "^").split("^")
    heads = []
    for cell in line.split("|"):
        _mark, _, head = cell.partition(".")
        heads.append(head if cell.startswith("_") else cell)
    return heads


def find_wiki_pairs(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the cell behind each head that is a name for passwords, in rows such as `||Password|…|`."""
    for pair in PATTERNS["wiki_pair"].finditer(lower_text, start, end):
        cell = pair["value"]
        value = cell.strip(_CELL_EDGE)
        if " " not in value and any(map(str.isalnum, value)):
            value_start = pair.start("value") + cell.index(value)
            yield SecretMatch(value_start, value_start + len(value), "password")


def find_in_marked_tables(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the passwords in tables of AsciiDoc and MediaWiki, whose cells may each be on its own line."""
    if "===" in lower_text:
        yield from _find_in_asciidoc(lower_text)
    if "{|" in lower_text:
        yield from _find_in_mediawiki(lower_text)


def _find_in_asciidoc(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the passwords in tables of AsciiDoc, which stand between two lines such as `|===`.

    The first character of these lines, here `|`, is also the one that separates cells.
    """
    search_start = 0
    while opening := PATTERNS["asciidoc"].search(lower_text, search_start):
        fence = opening[0].strip()
        end = lower_text.find(f"\n{fence}", opening.end() - 1)
        if end < 0:
            end = len(lower_text)
        separator = fence[0]
        yield from _find_in_cell_sequence(lower_text, opening.end(), end, separator)
        search_start = end + len(fence) + 1


def _find_in_mediawiki(lower_text: str) -> Iterator[SecretMatch]:
    """Yield the passwords in tables of MediaWiki, which stand between the lines `{|` and `|}`."""
    position = 0
    while opening := PATTERNS["mediawiki"].search(lower_text, position):
        end = lower_text.find("\n|}", opening.end() - 1)
        if end < 0:
            end = len(lower_text)
        position = min(end, opening.end() + _MOST_CHARACTERS)
        yield from _find_in_mediawiki_rows(lower_text, opening.end(), position)


def _find_in_cell_sequence(
    lower_text: str, start: int, end: int, separator: str
) -> Iterator[SecretMatch]:
    """Yield the passwords in a table of AsciiDoc from `start` to `end`, whose first cells are the heads.

    The number of columns is the number of cells in the first line that has any. If that's one, each cell has
    a line of its own, and the first row goes on to the first blank line.
    """
    end = min(end, start + _MOST_CHARACTERS)
    cells: list[tuple[int, str]] = []  # the position in the text, and the content
    columns = 0
    line_start = start
    # A comma or colon stands between two cells. Any other mark stands before each cell, so that there's no
    # cell before the first mark.
    is_between_cells = separator in ",:"
    while line_start < end:
        line_stop = min(line_end(lower_text, line_start), end)
        part_start = line_start
        for number, part in enumerate(lower_text[line_start:line_stop].split(separator)):
            if is_between_cells or number > 0:
                cells.append((part_start, part))
            part_start += len(part) + 1  # behind the separator
        if not columns and cells:
            columns = len(cells)
        line_start = line_stop + 1
    if columns == 1:  # one cell a line: blank lines separate rows
        heads, _, _ = lower_text[start:end].strip().partition("\n\n")
        columns = heads.count(separator)
    yield from _find_in_positioned_cells(cells, columns)


def _find_in_mediawiki_rows(lower_text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """Yield the passwords in a table of MediaWiki from `start` to `end`.

    A line that begins with `!` has heads, one with `|` has cells, and one with `|-` begins a new row.
    """
    heads: list[str] = []
    row: list[tuple[int, str]] = []
    line_start = start
    while line_start < end:
        line_stop = min(line_end(lower_text, line_start), end)
        line = lower_text[line_start:line_stop]
        if line.startswith("|-"):
            yield from _find_in_positioned_cells(row, len(heads), heads)
            row = []
        elif line.startswith("!"):
            for head in line[1:].split("!!"):
                _attributes, _, title = head.rpartition("|")
                heads.append(title)
        elif line.startswith("|"):
            cell_start = line_start + 1
            for cell in line[1:].split("||"):
                row.append((cell_start, cell))
                cell_start += len(cell) + 2  # behind the `||`
        line_start = line_stop + 1
    yield from _find_in_positioned_cells(row, len(heads), heads)


def _find_in_positioned_cells(
    cells: list[tuple[int, str]],
    columns: int,
    heads: list[str] | None = None,
) -> Iterator[SecretMatch]:
    """Yield the passwords in the columns whose head is a name for passwords.

    `cells` are the cells of all rows, one row after the other, each with its position in the text. If `heads`
    is None, the first row has the heads.
    """
    if not columns:
        return
    if heads is None:
        heads = [cell for _, cell in cells[:columns]]
        cells = cells[columns:]

    is_secret = []  # for each column
    for head in heads:
        title = head.strip()[:_LONGEST_HEAD]
        is_secret.append(bool(PATTERNS["head_cell"].fullmatch(title)))

    for number, (start, cell) in enumerate(cells):
        value = cell.strip(_CELL_EDGE)
        if is_secret[number % columns] and _is_password_value(value):
            value_start = start + cell.index(value)
            yield SecretMatch(value_start, value_start + len(value), "password")
