"""The kinds of charts: everything is where its value is, and no text is cut off or on another."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from drawn import NAMES, SVG, faults, measured, texts
from hypothesis import given
from hypothesis import strategies as st

from judgekit.evaluation import charts, diagrams
from judgekit.evaluation.diagrams import (
    Curve,
    FigurePanel,
    Moment,
    ReliabilityGroup,
    ScatterPoint,
    Series,
    apart,
    contrast,
    readable_on,
    shade,
)
from judgekit.evaluation.stats import BootstrapInterval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.evaluation.charts import Paint

MIDDLE = BootstrapInterval(0.5, 0.25, 0.75)
LISTS = {
    "one": ["a"],
    "twelve": [f"provider/model-{number}, the best of its family" for number in range(12)],
    "names": list(NAMES.values()),
    "long": [NAMES["wide"], NAMES["long"], NAMES["chinese"]],
}


def root(paint: Paint | None) -> ET.Element:
    assert paint is not None
    return ET.fromstring(charts.document(paint, "A chart"))


def marks(chart: ET.Element) -> list[tuple[float, float]]:
    """Where the dots are, from the upper left corner."""
    return [(float(element.attrib["x"]), float(element.attrib["y"])) for element in chart.iter(f"{SVG}use")]


def lines(chart: ET.Element) -> list[str]:
    """The ways of the lines through data."""
    found = [
        element for element in chart.iter(f"{SVG}path") if "fill: none" in element.attrib.get("style", "")
    ]
    return [element.attrib["d"] for element in found if f"stroke: {charts.BLUE}" in element.attrib["style"]]


def place(chart: ET.Element, text: str) -> tuple[float, float]:
    (element,) = [each for each in chart.iter(f"{SVG}text") if each.text == text]
    return float(element.attrib["x"]), float(element.attrib["y"])


# Figures with intervals


def panels(
    names: Sequence[str], spread: BootstrapInterval | None = MIDDLE, count: int = 4
) -> list[FigurePanel]:
    titles = ["Accuracy", "Cohen's kappa", "Weighted kappa", "Injection lift"]
    return [FigurePanel(title, [spread] * len(names)) for title in titles[:count]]


@pytest.mark.parametrize("names", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("count", [1, 4])
def test_names_and_figures_have_room(names: list[str], count: int) -> None:
    spread = BootstrapInterval(-0.6666, -1, 1)
    paint = diagrams.intervals_chart(names, panels(names, spread, count))
    assert paint is not None
    assert faults(paint) == []


def test_a_dot_stands_where_its_value_is() -> None:
    chart = root(
        diagrams.intervals_chart(
            ["a", "b"], [FigurePanel("Accuracy", [BootstrapInterval(0.25, 0, 1), BootstrapInterval(1, 1, 1)])]
        )
    )
    left, right = place(chart, "0")[0], place(chart, "1")[0]
    (one, upper), (two, lower) = marks(chart)
    assert one == pytest.approx(left + (right - left) / 4, abs=0.01)
    assert two == pytest.approx(right, abs=0.01)
    assert lower - upper == pytest.approx(24)


def test_what_is_not_known_has_no_dot_and_what_nobody_knows_no_panel() -> None:
    chart = root(
        diagrams.intervals_chart(
            ["a", "b"], [FigurePanel("Accuracy", [None, MIDDLE]), FigurePanel("Lift", [None, None])]
        )
    )
    assert len(marks(chart)) == 1
    assert "Lift" not in texts(chart)
    assert diagrams.intervals_chart(["a"], [FigurePanel("Accuracy", [None])]) is None
    assert diagrams.intervals_chart([], []) is None


def test_zero_is_a_figure() -> None:
    chart = root(
        diagrams.intervals_chart(["a"], [FigurePanel("Unreadable", [BootstrapInterval(0, 0, 0)], near=True)])
    )
    assert "0.00" in texts(chart)
    assert len(marks(chart)) == 1


@pytest.mark.parametrize(
    ("low", "high", "near", "axis"),
    [
        (0.1, 0.9, False, (0, 1)),
        (0.01, 0.04, False, (0, 1)),
        (0.01, 0.04, True, (0, 0.1)),
        (0, 0, True, (0, 0.1)),
        (0.1, 0.2, True, (0, 0.2)),
        (0.1, 0.51, True, (0, 1)),
        (-0.05, 0.3, True, (-0.1, 0.5)),
        (-0.3, -0.2, False, (-0.5, 1)),
        (-0.7, 1, False, (-1, 1)),
    ],
)
def test_an_axis_holds_what_is_shown_and_zero(
    *, low: float, high: float, near: bool, axis: tuple[float, float]
) -> None:
    panel = FigurePanel("Lift", [None, BootstrapInterval((low + high) / 2, low, high)], near)
    assert diagrams.bounds(panel) == axis


# Heat maps


WORDS = {
    "two": ["reject", "accept"],
    "numbers": [str(number) for number in range(11)],
    "one": ["accept"],
    "names": list(NAMES.values()),
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_words_and_counts_have_room(words: list[str]) -> None:
    counts = {(label, said): 12345 for label in words for said in words}
    assert faults(diagrams.confusion_chart(words, counts, "label", "answer")) == []


def test_counts_stand_in_the_row_of_their_label() -> None:
    chart = root(
        diagrams.confusion_chart(["no", "yes"], {("no", "yes"): 3, ("yes", "yes"): 41}, "label", "answer")
    )
    assert texts(chart)[4:8] == ["0", "3", "0", "41"]
    assert place(chart, "3")[1] < place(chart, "41")[1]
    assert place(chart, "3")[0] == place(chart, "41")[0]
    fills = [
        element.attrib["style"]
        for element in chart.iter(f"{SVG}path")
        if "fill: #" in element.attrib["style"]
    ]
    assert len(fills) == 4
    assert fills[0] == fills[2]  # nothing of either row
    assert fills[1] == fills[3]  # all of either row


@given(st.floats(0, 1))
def test_a_count_can_be_read_on_its_cell(share: float) -> None:
    assert contrast(shade(share), readable_on(shade(share))) >= 4.5


def test_more_is_darker() -> None:
    shades = [contrast(shade(number / 10), (1.0, 1.0, 1.0)) for number in range(11)]
    assert shades == sorted(shades)
    assert shades[-1] / shades[0] > 5


# What costs what


@pytest.mark.parametrize("names", [names for names in LISTS.values() if len(names) > 1])
@pytest.mark.parametrize("factor", [0.0, 1.0, 3.0])
def test_points_and_names_have_room(names: list[str], factor: float) -> None:
    points = [ScatterPoint(name, 0.0001 * factor**number, MIDDLE) for number, name in enumerate(names)]
    paint = diagrams.scatter_chart(points, "US dollars an item", "accuracy")
    assert paint is not None
    assert faults(paint) == []


def test_a_point_stands_at_its_cost_and_its_height() -> None:
    points = [
        ScatterPoint("cheap", 0.001, BootstrapInterval(0.8, 0.65, 0.9)),
        ScatterPoint("dear", 0.002, BootstrapInterval(1, 0.9, 1)),
    ]
    chart = root(diagrams.scatter_chart(points, "US dollars an item", "accuracy"))
    (one, low), (two, high) = marks(chart)
    zero = place(chart, "0")[0]
    assert (two - zero) / (one - zero) == pytest.approx(2, abs=0.01)
    assert high < low
    middle = (place(chart, "0.6")[1] + place(chart, "1.0")[1]) / 2
    assert place(chart, "0.8")[1] == pytest.approx(middle, abs=0.01)
    assert low - high == pytest.approx(place(chart, "0.8")[1] - place(chart, "1.0")[1], abs=0.01)


def test_one_point_is_nothing_to_compare() -> None:
    assert diagrams.scatter_chart([ScatterPoint("a", 1, MIDDLE)], "cost", "accuracy") is None


@pytest.mark.parametrize(
    ("costs", "ticks"),
    [
        ((0.0002, 0.004), {"0.0002", "0.0005", "0.001", "0.005"}),
        ((0.0001, 1), {"0.0001", "0.1", "1"}),
        ((0.0, 0.0), {"0", "1"}),
        ((0.0, 0.000002), {"0", "0.000002"}),
    ],
)
def test_costs_are_written_out(costs: tuple[float, float], ticks: set[str]) -> None:
    points = [ScatterPoint(str(number), cost, MIDDLE) for number, cost in enumerate(costs)]
    paint = diagrams.scatter_chart(points, "US dollars", "accuracy")
    assert paint is not None
    assert ticks <= {box.text for box in measured(paint).boxes}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from([0.02, 0.05, 1 / 12]))
def test_places_are_moved_apart(places: list[float], least: float) -> None:
    found = apart(sorted(places), least)
    assert all(later - earlier >= least - 1e-9 for earlier, later in pairwise(found))
    assert found[-1] <= 1
    assert found[0] >= -1e-9


def test_places_with_room_stay() -> None:
    assert apart([0.1, 0.5, 0.9], 0.2) == [0.1, 0.5, 0.9]
    assert apart([0.5, 0.5], 0.2) == pytest.approx([0.5, 0.7])
    assert apart([0.9, 0.95], 0.2) == pytest.approx([0.8, 1.0])


# Reliability diagrams


@pytest.mark.parametrize("names", LISTS.values(), ids=LISTS)
def test_diagrams_and_their_names_have_room(names: list[str]) -> None:
    paint = diagrams.reliability_chart(
        [Curve(name, [ReliabilityGroup(0.0, 1.0, 3), ReliabilityGroup(1.0, 0.0, 1)]) for name in names]
    )
    assert paint is not None
    assert faults(paint) == []


def test_a_group_stands_at_its_probability_and_its_share() -> None:
    chart = root(
        diagrams.reliability_chart(
            [Curve("a", [ReliabilityGroup(0.25, 0.75, 9), ReliabilityGroup(1.0, 0.5, 1)])]
        )
    )
    (line,) = lines(chart)
    _, first, high, _, last, low = line.split()
    left, _ = place(chart, "a")
    assert float(first) == pytest.approx(left + 0.25 * 150, abs=0.01)
    assert float(last) == pytest.approx(left + 150, abs=0.01)
    assert float(low) - float(high) == pytest.approx(0.25 * 150, abs=0.01)


def test_without_probabilities_there_is_no_diagram() -> None:
    assert diagrams.reliability_chart([]) is None
    assert diagrams.reliability_chart([Curve("a", [])]) is None


# Figures over time


def percent(value: float) -> str:
    return f"{value:.0%}"


@pytest.mark.parametrize("days", [0, 1, 2, 30, 400])
def test_dates_and_limits_have_room(days: int) -> None:
    times = [f"2026-03-{number:03}" for number in range(days)]
    moments = [Moment(number % 7 / 6, 0.1, 0.9) for number in range(days)]
    many = [
        Series("wrong NO-GO", "last 40.0 %", moments, limits, 1.0, percent) for limits in ([0.7, 0.9], [0.05])
    ]
    assert faults(diagrams.series_chart(times, many)) == []


def test_a_gap_is_no_line() -> None:
    moments = [Moment(0.2), Moment(None), Moment(0.4), Moment(0.6)]
    chart = root(
        diagrams.series_chart(["a", "b", "c", "d"], [Series("GO", "", moments, [0.7], 1.0, percent)])
    )
    assert len(marks(chart)) == 3
    (line,) = lines(chart)
    assert (line.count("M"), line.count("L")) == (2, 1)  # the lone point begins no line


def test_nothing_measured_is_said() -> None:
    chart = root(diagrams.series_chart(["a"], [Series("GO", "", [Moment(None)], [0.7], 1.0, percent)]))
    assert "nothing measured" in texts(chart)
    assert marks(chart) == []


def test_a_value_above_its_axis_is_no_interval_above_it() -> None:
    chart = root(
        diagrams.series_chart(["a", "b"], [Series("t", "", [Moment(50, 1, 900)] * 2, [30], 60, str)])
    )
    assert all(y >= 0 for _, y in marks(chart))
    assert not any(math.isnan(x) for x, _ in marks(chart))
