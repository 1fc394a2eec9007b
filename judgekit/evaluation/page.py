"""Pages for a browser: figures with intervals, charts, tables and rows, in one file that loads nothing."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.text import remove_invisible, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from jinja2 import Environment

    from judgekit.evaluation.row_views import RowView, ShownRows
    from judgekit.ledger.rates import Interval

INTERVALS = "[ ] = 95 % confidence interval"
_MAX_NAME_CHARS = 400  # characters of a name on a page
_REACHES = (0.05, 0.1, 0.2, 0.5, 1.0)  # of the axis of a difference, to both sides of 0
_MAX_SNIPPET_CHARS = 160  # characters; the script draws as many
_DATA_PLACE = '<script type="application/json" id="rows-as-data"></script>'


class Figure(NamedTuple):
    """A figure with its interval on a scale from `minimum` to 1."""

    name: str
    value: float
    interval: Interval | None = None
    note: str = ""
    minimum: float = 0.0
    maximum: float = 1.0

    @property
    def text(self) -> str:
        return self.interval.text if self.interval else f"{self.value:.3f}"

    def place(self, value: float) -> float:
        """Convert a value to a position in percent of the scale."""
        fraction = (value - self.minimum) / (self.maximum - self.minimum)
        return 100 * min(1.0, max(0.0, fraction))

    @property
    def ends(self) -> Sequence[str]:
        """The labels below the scale, from left to right. The usual scale has none."""
        return ()


class Difference(Figure):
    """By how much one share is above another, in points, on an axis of its own around 0."""

    @classmethod
    def of(cls, name: str, interval: Interval, note: str = "") -> Difference:
        """Build a difference, drawn on an axis that is symmetric around 0 and contains the interval."""
        farthest = max(abs(interval.low), abs(interval.high))
        reach = _choose_reach(farthest)
        return cls(name, interval.value, interval, note, minimum=-reach, maximum=reach)

    @property
    def text(self) -> str:
        if self.interval is None:
            return f"{format_points(self.value)} points"
        low, high = map(format_points, self.interval.bounds)
        return f"{format_points(self.value)} points [{low}, {high}]"

    @property
    def ends(self) -> Sequence[str]:
        return (f"{100 * self.minimum:+g}", "0", f"{100 * self.maximum:+g} points")


def _choose_reach(farthest: float) -> float:
    """Choose how far an axis reaches to both sides of 0: as far as a bound, but no farther than 1."""
    longest = _REACHES[-1]
    return next((reach for reach in _REACHES if reach >= farthest), longest)


def format_points(share: float) -> str:
    """Format a difference in percentage points with its sign."""
    return f"{100 * share:+.1f}"


class Cell(NamedTuple):
    """A cell of a table: what is shown, with a smaller line `below`; `share` shades it, from 0 to 1."""

    text: str
    below: str = ""
    share: float | None = None


Row: TypeAlias = "Sequence[str | float | Cell | None]"


class Table(NamedTuple):
    """Rows of texts, numbers and cells: all, or the first of `total`. Readers can filter a long table.

    A page has them all in its list of rows if `is_in_list`.
    """

    columns: Sequence[str]
    rows: Sequence[Row]
    title: str = ""
    total: int = 0
    is_in_list: bool = False

    @property
    def turned(self) -> Table:
        """The table with rows and columns exchanged."""
        names, *rows = zip(self.columns, *self.rows, strict=True)
        return Table(list(map(format_cell, names)), rows, self.title)


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
        """The points of each unbroken line. A missing point ends a line."""
        runs: list[list[Point]] = [[]]
        for point in self.points:
            if point:
                runs[-1].append(point)
            else:
                runs.append([])  # start a new line
        return [run for run in runs if run]


Part: TypeAlias = "str | Table | Sequence[Figure] | Sequence[Chart]"


class Section(NamedTuple):
    title: str
    parts: Sequence[Part]


def format_cell(value: str | float | Cell | None) -> str:
    """Format a value for display in a table cell, with at most three decimals. None becomes "-"."""
    if isinstance(value, Cell):
        return value.text
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return "-" if value is None else str(value)


def build_share_table(corner: str, counts: Mapping[str, Mapping[str, int]]) -> Table:
    """Build a table of counts, shading each cell by its fraction of the row's total.

    `corner` is the heading above the row names. The columns are all words that are counted in any row.
    """
    words: dict[str, None] = {}  # each of them once, in order
    for row in counts.values():
        words.update(dict.fromkeys(row))
    columns = _sort_words(words)

    rows: list[Row] = []
    for name, row in counts.items():
        total = max(1, sum(row.values()))  # at least 1, because it's a divisor
        cells = []
        for word in columns:
            count = row.get(word, 0)
            cells.append(Cell(str(count), share=count / total))
        rows.append([name, *cells])
    return Table([corner, *columns], rows)


def _sort_words(words: Collection[str]) -> list[str]:
    """Sort words alphabetically. If all are numbers, sort them by value, so that 10 comes after 9."""
    are_numbers = all(_is_number(word) for word in words)
    return sorted(words, key=float if are_numbers else str)


def _is_number(word: str) -> bool:
    """Whether a word is a number, such as 3 or -0.5."""
    digits = word.lstrip("-").replace(".", "")
    return digits.isdigit()


class Foot(NamedTuple):
    """What stands at the end of a page: what to know about the data, and how the page was made."""

    notices: Sequence[str] = ()
    command: str = ""
    versions: Sequence[str] = ()


def render_page(
    title: str,
    about: str,
    sections: Sequence[Section],
    *,
    headline: str = "",
    rows: ShownRows | None = None,
    foot: Foot = Foot(),  # noqa: B008 - a value that never changes
) -> str:
    """Render an HTML page with a title, a description of the data, and sections.

    If there are `rows`, the page shows them in a searchable list.
    """
    template = _load_templates().get_template("page.html.jinja")
    html = template.render(
        title=shorten_to_line(title, _MAX_NAME_CHARS),
        headline=headline,
        about=about,
        sections=sections,
        rows=rows,
        foot=foot,
    )
    html = remove_invisible(html) + "\n"
    return html if rows is None else _insert_rows(html, rows)


def _insert_rows(html: str, rows: ShownRows) -> str:
    """Insert rows as JSON into the page's empty script element."""
    before, empty_element, after = html.partition(_DATA_PLACE)
    opening_tag = empty_element.removesuffix("</script>")
    # The rows contain no invisible characters and no `<` that could close the element, so don't escape them.
    return f"{before}{opening_tag}{rows.data}</script>{after}"


def get_snippet(row: RowView) -> str:
    """Return the beginning of a row's first text for the list of rows. Without texts, use the reasoning."""
    if row.get("texts"):
        _name, parts = row["texts"][0]
        text = "".join(parts)
    else:
        first_judged = row["judged"][0]
        text = first_judged.get("reasoning", "")
    return str(text)[:_MAX_SNIPPET_CHARS]


def cell_of(row: RowView, key: str) -> str:
    """Return the text of a row's cell in a column. The column `said 1` contains the second judge's answer."""
    kind, _, number = key.partition(" ")
    if kind == "said":
        return _find_answer(row, int(number))
    if kind == "text":
        return get_snippet(row)

    value = row.get(kind, "")
    if isinstance(value, list):
        return ", ".join(value)
    return str(value)


def _find_answer(row: RowView, judge_number: int) -> str:
    """Return a judge's answer about a row, or "" if there's none. Judges are counted from 0."""
    judged = row["judged"]
    if judge_number >= len(judged):
        return ""
    return str(judged[judge_number]["said"])


def render_plain_text(template: Path, **values: object) -> str:
    """Render a plain-text template with values that need no escaping."""
    templates = _load_templates().overlay(autoescape=False)
    return templates.from_string(template.read_text(encoding="utf-8")).render(**values)


def _load_templates() -> Environment:
    """Create the environment for page templates. It escapes text, and undefined names are errors."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only needed for pages

    loader = FileSystemLoader(Path(__file__).parent)
    templates = Environment(autoescape=True, loader=loader, undefined=StrictUndefined)
    templates.trim_blocks = True
    templates.lstrip_blocks = True
    templates.filters["shown"] = format_cell
    templates.filters["cell_of"] = cell_of
    script = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")
    templates.globals["script"] = script
    templates.globals["script_hash"] = _hash_script(script)
    return templates


def _hash_script(script: str) -> str:
    """Compute a script's hash for the page's Content Security Policy."""
    return b64encode(sha256(script.encode()).digest()).decode()
