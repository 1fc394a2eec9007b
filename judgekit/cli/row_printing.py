"""Prints a run's rows, and writes them to files beside OUT: each as it's judged, or all at the end."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from judgekit.cli import formats, output, progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from judgekit.cli.formats import AlsoFile
    from judgekit.cli.formats.row_results import RowResults


class Printing(NamedTuple):
    """The formats in which rows are printed and written, and the number of worst rows wanted."""

    format: str | None = None
    also_files: Sequence[AlsoFile] = ()
    worst_row_count: int | None = None

    def make_printer(self, out: str | None) -> RowPrinter:
        """Build the printer for a run with the results file OUT, if any."""
        return RowPrinter(self, self._choose_format(out), out)

    def _choose_format(self, out: str | None) -> str | None:
        """Choose the format in which rows are printed; None if they only go into OUT."""
        if self.format is not None:
            return self.format
        if self.worst_row_count is not None:
            return "table"
        if out is not None:
            return None
        is_terminal = output.get_terminal_width() is not None
        return "table" if is_terminal else "jsonl"


class RowPrinter:
    """Prints rows in a format (None for none) while they're judged, or from OUT at the end."""

    def __init__(self, printing: Printing, format_: str | None, out: str | None) -> None:
        self._printing = printing
        self._format = format_
        self._out_path = out
        can_stream = format_ is not None and formats.FORMATS[format_].is_streamed
        wants_worst = printing.worst_row_count is not None  # known only at the end
        self._is_streamed = can_stream and out is None and not wants_worst
        self._row_file: IO[str] | None = None
        """The rows of a run without OUT, if they're needed at its end."""

    @contextmanager
    def store_rows(self) -> Iterator[None]:
        """In this context, store the rows in a temporary file if they're needed at the end.

        With an OUT file, nothing is stored, because the rows can be read from that.
        """
        needs_file = self._needs_all and self._out_path is None
        if not needs_file:
            yield
            return
        with tempfile.NamedTemporaryFile("w+", suffix=".jsonl", encoding="utf-8") as row_file:
            self._row_file = row_file
            yield

    @property
    def _needs_all(self) -> bool:
        """Whether all rows are needed at the end, to print them or write other files."""
        is_printed_at_end = self._format is not None and not self._is_streamed
        return is_printed_at_end or bool(self._printing.also_files)

    def add_line(self, line: str) -> None:
        """Store a judged row, given as a JSON line, and print it if rows are printed as they come."""
        if self._row_file is not None:
            self._row_file.write(f"{line}\n")
        if not self._is_streamed:
            return
        if self._format == "jsonl":
            output.emit(line)
            return
        from judgekit.cli.formats.table import render_row

        row = json.loads(line)
        progress.clear()
        output.say(render_row(row["verdict"], str(row["id"]), row))

    def print_all(self, name: str) -> None:
        """Print the rows that had to wait for the end, and write the files of `--also`.

        `name` is the input file.
        """
        if not self._needs_all:
            return
        results = self._read_results(name)
        if results is None:
            return

        formats.write_also(
            self._printing.also_files, lambda renderer: renderer.render_rows(results)
        )
        is_printed_already = self._is_streamed
        if self._format is not None and not is_printed_already:
            formats.print_rows(self._format, results)

    def _read_results(self, name: str) -> RowResults | None:
        """Read and summarise the results in OUT, or the stored rows; None if there are none."""
        from judgekit.cli.report import summarise_results
        from judgekit.data.labels import open_results
        from judgekit.data.results import find_complete_results
        from judgekit.data.rows import open_rows

        path = self._find_row_file()
        if path is None:
            return None

        no_stdin = io.BytesIO()  # results don't come from standard input
        rows = open_rows(find_complete_results(path), no_stdin)
        rows.name = name  # show the input's name, because `path` may be a temporary file
        return summarise_results(open_results(rows), worst=self._printing.worst_row_count)

    def _find_row_file(self) -> str | None:
        """Return the path of the stored rows, or else of OUT; None without any rows."""
        if self._row_file is None:
            return self._out_path
        self._row_file.flush()
        is_empty = self._row_file.tell() == 0
        return None if is_empty else self._row_file.name
