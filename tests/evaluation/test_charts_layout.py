"""Texts that fit: whole where there is room, else without their middle."""

from __future__ import annotations

import pytest
from drawn import NAMES

from judgekit.evaluation import charts
from judgekit.evaluation.diagrams import contrast

WHITE, NIGHT = (1.0, 1.0, 1.0), (0.07, 0.07, 0.07)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("width", [60, 250])
def test_a_name_is_made_to_fit(name: str, width: float) -> None:
    sizes: list[float] = []

    def paint(figure: object) -> None:
        text = charts.fitted(figure, name, width)  # type: ignore[arg-type]  # a figure, as it is painted
        sizes.append(charts.width_of(figure, text))  # type: ignore[arg-type]  # the same
        assert text or not charts.name(name)

    with charts.painted(paint):
        assert sizes[0] <= width


def test_names_that_differ_at_the_end_still_do() -> None:
    found: list[str] = []

    def paint(figure: object) -> None:
        names = [f"provider/a-family-of-models-with-a-name-2026-0{month}" for month in (1, 2)]
        found.extend(charts.fitted(figure, name, 120) for name in names)  # type: ignore[arg-type]  # a figure

    with charts.painted(paint):
        assert len(set(found)) == 2
        assert [each[-2:] for each in found] == ["01", "02"]
        assert all(each.startswith("provider") for each in found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\t and  spaces", "two lines and spaces"),
        ("a\x00b\x1b[0m\u202ec", "ab[0mc"),
        ("\u200b", "\\u200b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_a_name_is_one_line_that_can_be_seen(text: str, shown: str) -> None:
    assert charts.name(text) == shown


@pytest.mark.parametrize("paper", [WHITE, NIGHT])
@pytest.mark.parametrize("colour", [charts.BLUE, charts.RED])
def test_colours_can_be_told_from_light_and_from_dark_paper(
    colour: str, paper: tuple[float, float, float]
) -> None:
    """3 is enough for graphics (WCAG 2.2, 1.4.11)."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    assert contrast((red, green, blue), paper) >= 3
