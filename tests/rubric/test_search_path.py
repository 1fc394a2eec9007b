"""A published rubric is known by its bytes, so that a list need not read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.rubric import loader, search_path

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("loaded_rubric", list(loader.rubrics()), ids=lambda each: each.rubric.ref)
def test_the_head_is_what_reading_all_of_it_says(loaded_rubric: loader.LoadedRubric) -> None:
    rubric = loaded_rubric.rubric
    assert search_path.head(loaded_rubric.path) == (rubric.ref, rubric.task, rubric.title)


def test_any_other_file_is_to_be_read_whole(tmp_path: Path) -> None:
    data = loader.find_rubric("kls").path.read_bytes()
    for name, content in (("kls@1.0.0.yaml", data + b"\n"), ("kls@1.0.1.yaml", data)):
        (tmp_path / name).write_bytes(content)
        assert search_path.head(tmp_path / name) is None
    (tmp_path / "memory-relevance@1.0.0.yaml").mkdir()
    assert search_path.head(tmp_path / "memory-relevance@1.0.0.yaml") is None


def test_files_come_in_the_order_in_which_they_win(tmp_path: Path, isolated: Path) -> None:
    for folder in (tmp_path / ".judgekit" / "rubrics", isolated / "judgekit" / "rubrics"):
        folder.mkdir(parents=True)
        for name in ("b@1.0.0.yaml", "a@1.0.0.yaml", "a@1.0.0.cases.jsonl"):
            (folder / name).write_text("")
    found = [(origin, path.stem) for origin, path in search_path.rubric_files(tmp_path)]
    assert found[:4] == [(origin, f"{name}@1.0.0") for origin in ("project", "user") for name in "ab"]
    assert {origin for origin, _ in found[4:]} == {"bundled"}
    assert not any("starters" in path.parts for _, path in search_path.rubric_files())
