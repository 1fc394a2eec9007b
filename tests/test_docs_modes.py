"""The page on the two modes shows what the recorded example really prints."""

from __future__ import annotations

import re
import shutil
from math import ceil
from typing import TYPE_CHECKING

import pytest

from judgekit.cli.app import run
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric
from tests import docs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("mode", "code"), [("strict", 2), ("lenient", 0)])
def test_the_worked_example_is_what_is_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    code: int,
) -> None:
    page = (docs.ROOT / "docs/strict-and-lenient.md").read_text(encoding="utf-8")
    (shown,) = [fence.text for fence in docs.fences(page) if f"--mode {mode}" in fence.text]
    shutil.copytree(docs.ROOT / "examples/modes", tmp_path / "modes")
    monkeypatch.chdir(tmp_path / "modes")
    monkeypatch.setenv("JUDGEKIT_REPLAY", "replies.jsonl")
    command, *lines = shown.strip().splitlines()
    assert run(command.removeprefix("$ judgekit ").split()) == code
    printed = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert len(printed) == len(lines)
    for said, wanted in zip(printed, lines, strict=True):
        assert said.startswith(wanted.removesuffix("..."))


def test_the_table_of_thresholds_is_what_the_rubrics_say() -> None:
    page = (docs.ROOT / "docs/strict-and-lenient.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == 6
    for name, *told in rows:
        rubric = loader.score_rubric(name.strip("| `")).rubric
        assert isinstance(rubric, ScoreRubric)
        for mode, said in zip((rubric.modes.strict, rubric.modes.lenient), told, strict=False):
            assert f"each {ceil(mode.accept.each)}" in said
            assert ("mean" in said) == (mode.accept.mean is not None)
            assert mode.accept.mean is None or f"mean {mode.accept.mean:g}" in said
