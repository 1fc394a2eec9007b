"""Fields of rows that stand inside a cell: `--map FIELD=PATH` and `--id PATH`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripted import by_content

if TYPE_CHECKING:
    from outcome import Run, Served

JUDGE = ("judge", "--rubric", "kls", "--mode", "lenient", "--data")
TEXT = "text=response.body.choices[0].message.content"


def row(number: int, text: str | None) -> dict[str, Any]:
    body = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    return {"custom_id": f"q{number}", "meta": {"key": f"k{number}"}, "response": {"body": body}}


@pytest.fixture(autouse=True)
def rows(project: Path) -> None:
    lines = [json.dumps(row(1, "In Rome.")), json.dumps(row(2, "In Milan."))]
    (project / "batch.jsonl").write_text("\n".join(lines))


def test_a_path_finds_the_text(served: Served) -> None:
    done, asked = served(by_content, *JUDGE, "batch.jsonl", "--map", TEXT)
    assert done.code == 0, done.err
    assert ["In Rome." in each.text for each in asked].count(True) == 1


def test_a_column_with_a_path_into_it_is_used(judgekit: Run) -> None:
    done = judgekit(*JUDGE, "batch.jsonl", "--map", TEXT, "--id", "meta.key", "--show-prompt")
    assert "not used: custom_id\n" in done.err


def test_a_row_keeps_the_columns_that_it_has(served: Served) -> None:
    served(by_content, *JUDGE, "batch.jsonl", "--map", TEXT, "--out", "out.jsonl")
    first = json.loads(Path("out.jsonl").read_text().splitlines()[0])
    assert first["response"] == row(1, "In Rome.")["response"]
    assert TEXT.partition("=")[2] not in first


def test_a_path_names_the_row(served: Served) -> None:
    words = ("--map", TEXT, "--id", "meta.key", "--out", "out.jsonl")
    served(by_content, *JUDGE, "batch.jsonl", *words)
    ids = [json.loads(line)["id"] for line in Path("out.jsonl").read_text().splitlines()]
    assert ids == ["k1", "k2"]


def test_a_column_of_that_name_comes_first(served: Served) -> None:
    Path("d.jsonl").write_text(json.dumps({"a.b": "In Rome.", "a": {"b": "In Milan."}}))
    _, asked = served(by_content, *JUDGE, "d.jsonl", "--map", "text=a.b")
    assert "In Rome." in asked[0].text


def test_a_cell_of_csv_holds_json(served: Served) -> None:
    cell = json.dumps({"text": "In Rome."}).replace('"', '""')
    Path("d.csv").write_text(f'id,reply\n1,"{cell}"\n')
    _, asked = served(by_content, *JUDGE, "d.csv", "--map", "text=reply.text")
    assert "In Rome." in asked[0].text


def test_functions_of_paths_work(served: Served) -> None:
    Path("d.jsonl").write_text(json.dumps({"parts": [{"t": "In Rome,"}, {"t": "in May."}]}))
    _, asked = served(by_content, *JUDGE, "d.jsonl", "--map", "text=join(' ', parts[].t)")
    assert "In Rome, in May." in asked[0].text


@pytest.mark.parametrize("path", ["respons.body", "response.body[", "gone.body", "respons"])
def test_a_path_that_begins_with_no_column_is_refused(judgekit: Run, path: str) -> None:
    done = judgekit(*JUDGE, "batch.jsonl", "--map", f"text={path}")
    assert done.code == 64
    assert "batch.jsonl has no such column" in done.err


def test_where_a_path_leads_to_nothing_a_row_has_no_text(judgekit: Run) -> None:
    Path("batch.jsonl").write_text(json.dumps(row(1, None)))
    done = judgekit(*JUDGE, "batch.jsonl", "--map", TEXT)
    assert "empty; nothing to judge" in done.out + done.err


def test_a_path_to_an_object_is_no_text(judgekit: Run) -> None:
    done = judgekit(*JUDGE, "batch.jsonl", "--map", "text=response.body")
    assert done.code == 65
    assert "response.body: expected a text, got an object" in done.err


def test_a_report_takes_the_paths_of_its_run(served: Served, judgekit: Run) -> None:
    Path("batch.jsonl").write_text(json.dumps(row(1, "TODO: where it is.")))
    served(by_content, *JUDGE, "batch.jsonl", "--map", TEXT, "--out", "out.jsonl")
    done = judgekit("report", "out.jsonl", "--map", TEXT, "--html", "page.html")
    assert done.code == 0, done.err
    assert "TODO: where it is." in Path("page.html").read_text()
