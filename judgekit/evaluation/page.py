"""Pages for a browser: figures with intervals, charts and tables, in one file that loads nothing."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.text import short_line, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment

    from judgekit.ledger.rates import Interval

_NAME = 400  # characters of a name on a page


class Figure(NamedTuple):
    """A figure with its interval on a scale from `least` to 1."""

    name: str
    value: float
    interval: Interval | None = None
    note: str = ""
    least: float = 0.0

    @property
    def text(self) -> str:
        return self.interval.text if self.interval else f"{self.value:.3f}"

    def place(self, value: float) -> float:
        """Return where a value is, in percent of the scale."""
        share = (value - self.least) / (1 - self.least)
        return 100 * min(1.0, max(0.0, share))


class Cell(NamedTuple):
    """A cell of a table: what is shown, with a smaller line `below`; `share` shades it, from 0 to 1."""

    text: str
    below: str = ""
    share: float | None = None


Row: TypeAlias = "Sequence[str | float | Cell | None]"


class Table(NamedTuple):
    """Rows of texts, numbers and cells: all, or the first of `total`. Readers can filter a long table."""

    columns: Sequence[str]
    rows: Sequence[Row]
    title: str = ""
    total: int = 0

    @property
    def turned(self) -> Table:
        """The same with rows for columns."""
        names, *rows = zip(self.columns, *self.rows, strict=True)
        return Table(list(map(shown, names)), rows, self.title)


Point: TypeAlias = "tuple[float, Interval]"
"""Where a point is from left to right, and its height."""


class Chart(NamedTuple):
    """Points in a square from 0 to 1, each with its interval, joined by lines; None interrupts the line."""

    title: str
    points: Sequence[Point | None]
    ends: tuple[str, str]  # the names of the left and the right edge
    guides: Sequence[tuple[float, str]] = ()  # heights with their names
    diagonal: bool = False
    note: str = ""

    @property
    def runs(self) -> list[list[Point]]:
        """The points that belong to one line each."""
        runs: list[list[Point]] = [[]]
        for point in self.points:
            if point:
                runs[-1].append(point)
            else:
                runs.append([])
        return [run for run in runs if run]


Part: TypeAlias = "str | Table | Sequence[Figure] | Sequence[Chart]"


class Section(NamedTuple):
    title: str
    parts: Sequence[Part]


def shown(cell: str | float | Cell | None) -> str:
    if isinstance(cell, Cell):
        return cell.text
    if isinstance(cell, float):
        return f"{cell:.3f}".rstrip("0").rstrip(".")
    return "-" if cell is None else str(cell)


def shares(corner: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
    """Return a table of counts, shaded by their share of the row."""
    columns = list(dict.fromkeys(chain.from_iterable(counts.values())))
    numbers = all(word.lstrip("-").replace(".", "").isdigit() for word in columns)
    columns.sort(key=float if numbers else str)
    rows: list[Row] = []
    for name, row in counts.items():
        total = max(1, sum(row.values()))
        cells = []
        for word in columns:
            count = row.get(word, 0)
            cells.append(Cell(str(count), share=count / total))
        rows.append([name, *cells])
    return Table([corner, *columns], rows)


def page(title: str, about: str, sections: Sequence[Section]) -> str:
    template = _templates().get_template("page.html.jinja")
    html = template.render(title=short_line(title, _NAME), about=about, sections=sections)
    return visible(html) + "\n"


def plain(template: Path, **values: object) -> str:
    """Return a template of plain text, filled in with what needs no escaping any more."""
    templates = _templates().overlay(autoescape=False)
    return templates.from_string(template.read_text(encoding="utf-8")).render(**values)


def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - for pages alone

    loader = FileSystemLoader(Path(__file__).parent)
    templates = Environment(autoescape=True, loader=loader, undefined=StrictUndefined)
    templates.trim_blocks = True
    templates.lstrip_blocks = True
    templates.filters["shown"] = shown
    templates.filters["digest"] = _digest
    return templates


def _digest(script: str) -> str:
    """Return the hash by which a page's policy lets a script run, and nothing else."""
    return b64encode(sha256(script.encode()).digest()).decode()
