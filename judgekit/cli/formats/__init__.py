"""The formats in which verdicts are printed: a table of them, and the options that choose one.

A format is a module of this package with the functions of `Renderer`. Which formats files of rows have says
`judgekit/data/tables/`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from typer import Option

from judgekit.cli import output
from judgekit.text import disarmed_json, disarmed_xml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.gate import Report
    from judgekit.judging.verdict import Comparison

    Record: TypeAlias = Mapping[str, Any]


class Renderer(Protocol):
    """What the module of a format has."""

    def render_verdicts(self, verdicts: Sequence[Record]) -> str:
        """Return the records of verdicts as text."""

    def render_gate(self, report: Report) -> str:
        """Return a run of the gate: a row for each file, what was skipped, what was not examined."""


class ComparisonRenderer(Renderer, Protocol):
    """What the module of a format has that `compare` takes, too."""

    def render_comparison(self, comparison: Comparison) -> str:
        """Return a comparison as text."""


class Format(NamedTuple):
    """The module of a format, and how its text is printed.

    `disarm` takes the commands of CI servers out of its text, and leaves its values as they are.
    `is_for_people`: coloured, and escaped for the terminal. `is_streamed`: `judge` prints each verdict as
    soon as it is there, else all at the end. `has_comparisons`: its module is a `ComparisonRenderer`.
    """

    module: str
    is_for_people: bool = False
    is_streamed: bool = False
    has_comparisons: bool = False
    disarm: Callable[[str], str] = disarmed_json


FORMATS = {
    "table": Format("table", is_for_people=True, is_streamed=True, has_comparisons=True),
    "json": Format("json_array", has_comparisons=True),
    "jsonl": Format("json_lines", is_streamed=True, has_comparisons=True),
    "sarif": Format("sarif"),
    "junit": Format("junit", disarm=disarmed_xml),
}
"""The formats by name, in the order in which the help lists them. A module is imported when it renders."""

OF_COMPARISONS = tuple(name for name, format_ in FORMATS.items() if format_.has_comparisons)

if TYPE_CHECKING:
    FormatName: TypeAlias = str
    ComparisonFormatName: TypeAlias = str
else:  # typer reads an option's choices from its type
    FormatName = Literal[tuple(FORMATS)]
    ComparisonFormatName = Literal[OF_COMPARISONS]

FormatOption = Annotated[FormatName, Option("--format", help="Output format.")]
ComparisonFormatOption = Annotated[ComparisonFormatName, Option("--format", help="Format.")]


def load_renderer(name: str) -> Renderer:
    """Return the module of a format."""
    return cast("Renderer", import_module(f"{__name__}.{FORMATS[name].module}"))


def print_verdicts(name: str, verdicts: Sequence[Record]) -> None:
    """Print the records of verdicts in the format of this name."""
    _print(name, load_renderer(name).render_verdicts(verdicts))


def print_gate(name: str, report: Report) -> None:
    """Print a run of the gate in the format of this name."""
    _print(name, load_renderer(name).render_gate(report))


def print_comparison(name: str, comparison: Comparison) -> None:
    """Print a comparison in the format of this name."""
    module = cast("ComparisonRenderer", load_renderer(name))
    _print(name, module.render_comparison(comparison))


def _print(name: str, text: str) -> None:
    if not text:  # there is nothing to say, and no blank line is printed for it
        return
    if FORMATS[name].is_for_people:
        output.say(text)
    else:
        output.emit(text, FORMATS[name].disarm)
