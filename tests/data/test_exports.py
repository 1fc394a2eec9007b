"""Exports of other tools are recognised and named, and their rows give all that a judge needs."""

from __future__ import annotations

import io
import json
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from judgekit.data import presets
from judgekit.data.dataset import RowOptions, open_dataset
from judgekit.data.rows import open_rows
from judgekit.data.sources import DataRow, UnreadableRow
from judgekit.errors import InputError
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
    for name in presets.list_preset_names():
        assert f"\n| {name} | " in page


def test_every_export_has_a_small_file_here() -> None:
    assert {export["name"] for export in EXPORTS} == set(presets.list_preset_names())


def opened(folder: Path, path: Path, task: Any = "judge") -> tuple[Dataset, Fields]:  # noqa: ANN401 - as the table has it
    rubric = folder / "everything.yaml"
    rubric.write_text(RUBRIC)
    request = JudgeRequest(rubric=str(rubric) if task == "judge" else None)
    rows = open_rows(str(path), io.BytesIO())
    dataset, fields, _ = open_dataset(rows, RowOptions(task), folder, request)
    return dataset, fields


def told(row: PendingRow, options: RowOptions, fields: Fields) -> dict[str, Any]:
    """Describe a row's fields in the words of the table."""
    found: dict[str, Any] = {
        "id": row.row_id,
        "label": options.read_expected_label(fields, row.row),
    }
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


def found_in(name: str, stdin: bytes = b"") -> list[Any]:
    rows = open_rows(name, io.BytesIO(stdin))
    return [row.columns if isinstance(row, DataRow) else row for row in rows]


def test_a_document_in_a_line_gives_its_rows(inspect_log: dict[str, Any], tmp_path: Path) -> None:
    document = json.loads(inspect_log["content"])
    path = tmp_path / "logs.jsonl"
    path.write_text(f"{json.dumps(document)}\n{json.dumps(document)}\n")
    assert [row["id"] for row in found_in(str(path))] == ["q1", 2, "q1", 2]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_on_standard_input_gives_its_rows(
    indent: int | None, inspect_log: dict[str, Any]
) -> None:
    text = json.dumps(json.loads(inspect_log["content"]), indent=indent)
    assert [row["id"] for row in found_in("-", text.encode())] == ["q1", 2]


@pytest.mark.parametrize(
    "document",
    [
        {"columns": ["text", "n"], "data": [["a", 1], ["b", 2]]},
        {"columns": ["text", "n"], "index": [0, 1], "data": [["a", 1], ["b", 2]]},
        {"text": {"0": "a", "1": "b"}, "n": {"0": 1, "1": 2}},
        {"0": {"text": "a", "n": 1}, "1": {"text": "b", "n": 2}},
        {"schema": {"fields": []}, "data": [{"text": "a", "n": 1}, {"text": "b", "n": 2}]},
    ],
)
def test_a_table_is_read_in_every_form_of_pandas(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(json.dumps(document))
    assert found_in(str(tmp_path / "table.json")) == [{"text": "a", "n": 1}, {"text": "b", "n": 2}]


def log_of(samples: list[Any], compression: int) -> bytes:
    """Write a log of inspect-ai as it does itself."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("_journal/start.json", "{}")
        for sample in samples:
            name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
            archive.writestr(name, json.dumps(sample))
        archive.writestr("summaries.json", "[]")
    return file.getvalue()


def log_in_zstandard(samples: list[Any]) -> bytes:
    """Write a log in a compression that this Python lacks: its members are marked as Zstandard."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number, sample in enumerate(samples):
            packed = pa.compress(json.dumps(sample).encode(), codec="zstd", asbytes=True)
            archive.writestr(f"samples/{number}.json", packed)
        entries = archive.infolist()
    raw = bytearray(file.getvalue())
    for entry in entries:
        raw[entry.header_offset + 8] = 93
    place = -1
    while (place := raw.find(b"PK\x01\x02", place + 1)) >= 0:
        raw[place + 10] = 93
    return bytes(raw)


@pytest.fixture
def inspect_log() -> dict[str, Any]:
    return next(export for export in EXPORTS if export["file"] == "inspect.json")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_of_inspect_gives_the_same(
    compression: int, inspect_log: dict[str, Any], tmp_path: Path
) -> None:
    samples = json.loads(inspect_log["content"])["samples"]
    (tmp_path / "log.eval").write_bytes(log_of(samples, compression))
    check(tmp_path, tmp_path / "log.eval", inspect_log)


def test_an_archive_in_zstandard_gives_the_same(
    inspect_log: dict[str, Any], tmp_path: Path
) -> None:
    samples = json.loads(inspect_log["content"])["samples"]
    (tmp_path / "log.eval").write_bytes(log_in_zstandard(samples))
    check(tmp_path, tmp_path / "log.eval", inspect_log)


def test_a_damaged_sample_is_a_row_that_cannot_be_read(tmp_path: Path) -> None:
    raw = log_in_zstandard([{"id": "a"}, {"id": "b"}])
    (tmp_path / "log.eval").write_bytes(raw.replace(b"\x28\xb5\x2f\xfd", b"\0\0\0\0", 1))
    first, second = open_rows(str(tmp_path / "log.eval"), io.BytesIO())
    assert isinstance(first, UnreadableRow)
    assert "got a damaged one" in first.problem
    assert isinstance(second, DataRow)


def test_an_archive_without_samples_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(log_of([], zipfile.ZIP_STORED))
    with pytest.raises(InputError, match="no samples in it; expected a log of inspect-ai"):
        open_rows(str(tmp_path / "log.eval"), io.BytesIO())


@pytest.mark.parametrize("content", [b"", b"{}", b"PK\x03\x04 cut off"])
def test_what_is_no_archive_is_no_log(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "log.eval").write_bytes(content)
    with pytest.raises(InputError, match="no whole log of inspect-ai"):
        open_rows(str(tmp_path / "log.eval"), io.BytesIO())


def test_who_names_the_text_reads_an_export_as_anybodys_rows(tmp_path: Path) -> None:
    row = {"custom_id": "q1", "response": {"body": {"choices": []}}, "note": "Hello."}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    rows = open_rows(str(path), io.BytesIO())
    options = RowOptions("judge", {"text": "note"})
    _, fields, _ = open_dataset(rows, options, tmp_path, JudgeRequest(rubric="kls"))
    assert fields.describe() == "text from note; not used: custom_id, response"


def test_what_else_is_named_comes_before_the_export(tmp_path: Path) -> None:
    row = {"custom_id": "q1", "response": {"body": {"output": []}}, "asked": "When?"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    rows = open_rows(str(path), io.BytesIO())
    options = RowOptions("judge", {"description": "asked"})
    dataset, fields, _ = open_dataset(rows, options, tmp_path, JudgeRequest(rubric="kls"))
    assert fields.column_by_field["description"] == "asked"
    assert dataset.id_column == "custom_id"
