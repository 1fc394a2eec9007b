"""The formats for printing and writing verdicts and rows: a table of them, and the options that choose one.

Each format is a module in this package with the functions of `Renderer`. The formats of results files are in
`judgekit/data/tables/`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from typer import Option

from judgekit.cli import output, output_files
from judgekit.errors import UsageError
from judgekit.text import (
    escape_all_but_annotations,
    escape_ci_commands,
    escape_for_csv,
    escape_for_json,
    escape_for_xml,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.cli.formats.row_results import RowResults
    from judgekit.gate import Report
    from judgekit.judging.verdict import Comparison

    Record: TypeAlias = Mapping[str, Any]


class Renderer(Protocol):
    """The functions of a format's module."""

    def render_verdicts(self, verdicts: Sequence[Record]) -> str:
        """Render verdict records."""

    def render_gate(self, report: Report) -> str:
        """Render a run of the gate: judged, skipped and unexamined files."""

    def render_rows(self, results: RowResults) -> str:
        """Render judged rows."""

    def render_report(self, results: RowResults) -> str:
        """Render the summary of rows, as printed by `report`."""


class ComparisonRenderer(Renderer, Protocol):
    """The functions of a format's module if `compare` offers it, too."""

    def render_comparison(self, comparison: Comparison) -> str:
        """Render a comparison."""


class Format(NamedTuple):
    """A format's module, and how its text is printed.

    `escape` makes commands of CI servers in its text harmless, without changing values if the format has
    another form for them. `is_for_people`: coloured, and escaped for the terminal. `is_streamed`: `judge`
    prints each verdict as soon as it's there, else all at the end. `has_comparisons`: its module is a
    `ComparisonRenderer`.
    """

    module: str
    is_for_people: bool = False
    is_streamed: bool = False
    has_comparisons: bool = False
    escape: Callable[[str], str] = escape_for_json


FORMATS = {
    "table": Format("table", is_for_people=True, is_streamed=True, has_comparisons=True),
    "json": Format("json_array", has_comparisons=True),
    "jsonl": Format("json_lines", is_streamed=True, has_comparisons=True),
    "csv": Format("csv_table", escape=escape_for_csv),
    "markdown": Format("markdown_comment", escape=escape_ci_commands),
    "junit": Format("junit", escape=escape_for_xml),
    "sarif": Format("sarif"),
    "github": Format("github", escape=escape_all_but_annotations),
}
"""The formats by name, in the order of the help. A module is imported when it's first used."""

COMPARISON_FORMATS = tuple(name for name, format_ in FORMATS.items() if format_.has_comparisons)

if TYPE_CHECKING:
    FormatName: TypeAlias = str
else:  # typer reads an option's choices from its type
    FormatName = Literal[tuple(FORMATS)]

FormatOption = Annotated[FormatName, Option("--format", help="Output format.")]
RowsFormatOption = Annotated[
    FormatName | None,
    Option("--format", help="Output format. [default: table; of rows that are piped jsonl]"),
]
_ALSO_OPTION = Option(
    "--also", metavar="FORMAT=FILE", help="Also write this format to a file; repeatable."
)
AlsoOption = Annotated[list[str] | None, _ALSO_OPTION]
_WORST_OPTION = Option(
    "--worst", min=1, max=100, metavar="N", help="Show the N worst rows, with their reasons."
)
WorstOption = Annotated[int | None, _WORST_OPTION]


class AlsoFile(NamedTuple):
    """A file that a format is also written to."""

    format: str
    path: Path


def read_also(words: Sequence[str] | None) -> list[AlsoFile]:
    """Parse the values of --also, such as `FORMAT=FILE`.

    Raises `UsageError` for other values, and `InputError` if the file's folder doesn't exist.
    """
    files: list[AlsoFile] = []
    for word in words or ():
        name, _, path = word.partition("=")
        if name not in FORMATS or not path:
            choices = ", ".join(FORMATS)
            raise UsageError(f"--also {word}: expected FORMAT=FILE, FORMAT one of {choices}")

        file = Path(path)
        if any(file.resolve() == earlier_file.path.resolve() for earlier_file in files):
            raise UsageError(f"--also {word}: two formats go to this file; name another one")

        output_files.check_also(file, word)
        files.append(AlsoFile(name, file))

    return files


def load_renderer(name: str) -> Renderer:
    """Import a format's module."""
    return cast("Renderer", import_module(f"{__name__}.{FORMATS[name].module}"))


def print_verdicts(name: str, verdicts: Sequence[Record]) -> None:
    """Print verdict records in the named format."""
    _print(name, load_renderer(name).render_verdicts(verdicts))


def print_gate(name: str, report: Report) -> None:
    """Print a run of the gate in the named format."""
    _print(name, load_renderer(name).render_gate(report))


def print_rows(name: str, results: RowResults) -> None:
    """Print judged rows in the named format."""
    _print(name, load_renderer(name).render_rows(results))


def print_report(name: str, results: RowResults) -> None:
    """Print the summary of rows in the named format."""
    _print(name, load_renderer(name).render_report(results))


def print_comparison(name: str, comparison: Comparison) -> None:
    """Print a comparison in the named format."""
    module = cast("ComparisonRenderer", load_renderer(name))
    _print(name, module.render_comparison(comparison))


def write_also(files: Sequence[AlsoFile], render: Callable[[Renderer], str]) -> None:
    """Write the same results to several files, each in its own format.

    `render` is called with each format's renderer, and returns the text.
    """
    for name, path in files:
        with output.render_for_file():
            text = render(load_renderer(name))
        text = _make_harmless(text, FORMATS[name])
        output_files.write_file(path, f"{text}\n" if text else "")


def _make_harmless(text: str, format_: Format) -> str:
    """Escape what could do harm when someone prints or opens the file. Colours are removed."""
    if format_.is_for_people:
        # This leaves our colours in.
        printable_text = output.make_printable(text, "utf-8")
        return output.strip_colours(printable_text)
    return format_.escape(text)


def _print(name: str, text: str) -> None:
    """Print a text in the format called `name`."""
    if not text:  # don't even print a blank line
        return
    if FORMATS[name].is_for_people:
        output.say(text)
    else:
        output.emit(text, FORMATS[name].escape)
