"""Exports of other tools are recognised and said, and their rows give what a judge needs of them."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.data import presets
from judgekit.data.dataset import RowOptions, open_dataset
from judgekit.data.rows import open_rows
from judgekit.judging.documents import Document
from judgekit.judging.request import JudgeRequest

if TYPE_CHECKING:
    from judgekit.data.dataset import Dataset, PendingRow
    from judgekit.data.fields import Fields

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parents[1] / "support"
EXPORTS = tomllib.loads((SUPPORT / "exports.toml").read_text("utf-8"))["export"]
RUBRIC = """\
rubric: everything
version: 1.0.0
task: score
title: Is it good?
given: {description: The question, acceptance: The criteria, reference: The answer, sources: The sources}
scale: {min: 1, max: 2, labels: {1: bad, 2: good}}
dimensions: {good: {question: Is it good?}}
modes: {strict: {accept: {each: 2}, reject: {any_below: 2}, confirm: accept}}
prompt: {system: Judge., instructions: {quick: Judge., deep: Judge., tiebreaker: Judge.}}
"""


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_API_BASE", "http://127.0.0.1:9")
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")


def test_the_page_lists_every_export() -> None:
    page = (ROOT / "docs" / "rows.md").read_text("utf-8")
    for name in presets.names():
        assert f"\n| {name} | " in page


def test_every_export_has_a_small_file_here() -> None:
    assert {export["name"] for export in EXPORTS} == set(presets.names())


def opened(folder: Path, path: Path, task: Any = "judge") -> tuple[Dataset, Fields]:  # noqa: ANN401 - as the table has it
    rubric = folder / "everything.yaml"
    rubric.write_text(RUBRIC)
    request = JudgeRequest(rubric=str(rubric) if task == "judge" else None)
    rows = open_rows(str(path), io.BytesIO())
    dataset, fields, _ = open_dataset(rows, RowOptions(task), folder, request)
    return dataset, fields


def told(row: PendingRow, options: RowOptions, fields: Fields) -> dict[str, Any]:
    """Say what a row gives, in the words of the table."""
    found: dict[str, Any] = {"id": row.row_id, "label": options.expected(fields, row.row)}
    if row.error is not None:
        return found | {"problem": row.error.partition(": ")[2]}
    if isinstance(row.subject, Document):
        task = row.subject.task
        text, *sources = row.subject.files
        found |= {"text": text.text, "sources": [source.text for source in sources]}
        found |= {"description": task.description, "acceptance": task.acceptance}
        return found | {"reference": task.reference, "author": row.subject.author.family}
    assert row.subject is not None
    found |= {"description": row.subject.prompt, "authors": list(row.subject.authors)}
    return found | {"texts": [file.text for file in row.subject.files]}


def check(folder: Path, path: Path, export: dict[str, Any]) -> None:
    task = export.get("task", "judge")
    dataset, fields = opened(folder, path, task)
    assert fields.describe().startswith(f"{export['name']}: ")
    rows: list[Any] = list(dataset)
    assert len(rows) == len(export["rows"])
    for row, expected in zip(rows, export["rows"], strict=True):
        found = told(row, RowOptions(task), fields)
        left_out = expected.pop("lacks", None)
        assert left_out not in row.row.columns
        assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export["file"])
def test_an_export_gives_what_a_judge_needs(export: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / export["file"]
    path.write_text(export["content"].removeprefix("\n"), "utf-8")
    check(tmp_path, path, export)
