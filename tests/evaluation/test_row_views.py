"""Texts and rows on a page: a cut is said, and a row that's left out takes no room from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.evaluation import row_views
from judgekit.evaluation.row_views import RowList, clean_text

if TYPE_CHECKING:
    import pytest

INVISIBLE = "\u200b"


def test_a_long_text_with_invisible_characters_says_that_it_is_cut() -> None:
    text = INVISIBLE * 100 + "a" * row_views.MAX_CHARS + "the end"
    assert clean_text(text).endswith("(cut here)")


def test_a_text_that_only_invisible_characters_make_long_is_whole() -> None:
    text = "a" * (row_views.MAX_CHARS - 100) + INVISIBLE * 100
    assert clean_text(text) == "a" * (row_views.MAX_CHARS - 100)


def test_a_huge_row_that_is_left_out_takes_no_room_from_the_rows_for_readers_without_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_views, "MAX_BYTES", 1_000)
    monkeypatch.setattr(row_views, "MAX_PAGE_BYTES", 1_100)
    rows = RowList()
    rows.add({"id": "small"}, 0)
    rows.add({"id": "x" * 1_400}, 1)
    assert [row["id"] for row in rows.finish().first] == ["small"]
