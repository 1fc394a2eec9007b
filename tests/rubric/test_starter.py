"""A rubric that was begun can be used at once, and nothing is overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.errors import ConfigError, UsageError
from judgekit.rubric import lint, loader
from judgekit.rubric.loader import begin, read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.rubric.loader import StarterTask


@pytest.mark.parametrize("task", ["score", "select", "compare"])
def test_a_starter_is_sound_and_commented(tmp_path: Path, task: StarterTask) -> None:
    begun = begin("ours", tmp_path, task=task)
    loaded_rubric = loader.load_rubric(begun.rubric, "project")
    cases = read_cases(loaded_rubric)
    assert (loaded_rubric.rubric.ref, loaded_rubric.rubric.task) == ("ours@1.0.0", task)
    assert len(cases) >= 2
    assert [
        remark.text
        for remark in lint.remarks(loaded_rubric, cases)
        if "cases: agreement is not meaningful below" not in remark.text
    ] == []
    comments = [line for line in begun.rubric.read_text(encoding="utf-8").splitlines() if "#" in line]
    assert len(comments) >= 10


def test_a_copy_differs_in_its_name_alone(tmp_path: Path) -> None:
    like = loader.find_rubric("kls")
    begun = begin("kls@1.1.0", tmp_path, like=like)
    before, after = (path.read_text(encoding="utf-8").splitlines() for path in (like.path, begun.rubric))
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [("version: 1.0.0", "version: 1.1.0")]
    assert read_cases(loader.load_rubric(begun.rubric)) == read_cases(like)


def test_a_copy_of_a_rubric_without_cases_has_an_empty_file_of_them(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_bytes(loader.find_rubric("kls").path.read_bytes().replace(b"rubric: kls", b"rubric: plain"))
    begun = begin("ours", tmp_path / "new", like=loader.load_rubric(path))
    assert begun.cases.read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("there", ["ours@1.0.0.yaml", "ours@1.0.0.cases.jsonl"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="already exists; choose another id or version, or edit that file"):
        begin("ours", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text(encoding="utf-8") == "mine"


def test_a_name_that_cannot_be_given_is_refused(tmp_path: Path) -> None:
    for name in ("", "Ours", "ours@1", "ours@1.0", "../ours", "ours@1.0.0.yaml", "a b"):
        with pytest.raises(UsageError, match="neither ID nor ID@VERSION"):
            begin(name, tmp_path)
    with pytest.raises(UsageError, match=r"kls@1\.0\.0 is published"):
        begin("kls", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    text = loader.find_rubric("kls").path.read_text(encoding="utf-8")
    path.write_text(text.replace("rubric: kls", '"rubric": odd'), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"odd\.yaml: cannot rename a rubric with this layout"):
        begin("ours", tmp_path / "new", like=loader.load_rubric(path))
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="cannot be written"):
        begin("ours", path)
