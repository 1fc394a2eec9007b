"""Each format renders the same few records, and the output is recorded in tests/golden/formats.

Recorded again with `JUDGEKIT_TEST_GOLDEN=record .venv/bin/pytest tests/cli/test_recorded_formats.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from git_repo import GitRepo
from pushing import bad, good
from recordings import GOLDEN, same
from scripted import by_content

from judgekit.cli import formats
from judgekit.cli.formats import table
from judgekit.cli.output import strip_colours
from judgekit.data import tables
from judgekit.data.results import OUR_COLUMNS, RECORD_COLUMNS
from judgekit.environment import __version__
from judgekit.gate import Report, Row
from judgekit.judging.verdict import Comparison
from judgekit.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Served

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3  # in the suggestion of a finding
KEEP_ALL = {"table", "json", "jsonl"}  # what they print is not made to be handed on


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the records, in a folder that has the files which they are about."""
    text = (GOLDEN / "formats" / "records.json").read_text(encoding="utf-8")
    records: dict[str, Any] = json.loads(text.replace("TOKEN", TOKEN))
    for path, content in records["files"].items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content.encode())
    monkeypatch.chdir(tmp_path)
    return records


def check(name: str, text: str) -> None:
    text = strip_colours(text).replace(f'"{__version__}"', '"VERSION"').replace(TOKEN, "TOKEN")
    same("formats", name, f"{text}\n")


@pytest.mark.parametrize("name", formats.FORMATS)
def test_verdicts_in_each_format(name: str, records: dict[str, Any]) -> None:
    text = formats.load_renderer(name).render_verdicts(records["verdicts"])
    assert (TOKEN in text) == (name in KEEP_ALL)
    check(f"verdicts.{name}", text)


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_run_of_the_gate_in_each_format(name: str, records: dict[str, Any]) -> None:
    for row in records["gate"]["rows"]:
        assert set(row) == set(Row.__annotations__), "add what a column needs to records.json, too"
    text = formats.load_renderer(name).render_gate(Report(**records["gate"]))
    assert (TOKEN in text) == (name in KEEP_ALL)
    check(f"gate.{name}", text)


@pytest.mark.parametrize("name", formats.COMPARISON_FORMATS)
def test_a_comparison_in_each_format_that_has_them(name: str, records: dict[str, Any]) -> None:
    module = cast("formats.ComparisonRenderer", formats.load_renderer(name))
    check(
        f"comparison.{name}",
        module.render_comparison(Comparison.model_validate(records["comparison"])),
    )


@pytest.mark.parametrize(
    "ending", [format_.endings[0] for format_ in tables.RESULT_FORMATS if format_.module]
)
def test_results_in_each_format(ending: str, records: dict[str, Any], tmp_path: Path) -> None:
    part = tmp_path / "part.jsonl"
    lines = [json.dumps(row, ensure_ascii=False) for row in records["results"]]
    part.write_text("\n".join([*lines, ""]), encoding="utf-8")
    out = tmp_path / f"out{ending}"
    writer = tables.load_writer(str(out))
    assert writer is not None
    writer.check(str(out))
    left_out = RECORD_COLUMNS if tables.is_lean(str(out)) else ()
    tables.write_table(writer, part, out, OUR_COLUMNS, None, left_out=left_out)
    if ending == ".parquet":  # its bytes are those of a version of pyarrow
        parquet = pytest.importorskip("pyarrow.parquet").read_table(out)
        lines = [str(parquet.schema), *map(str, parquet.to_pylist())]
        same("formats", "results.parquet.txt", "\n".join([*lines, ""]))
    else:
        same("formats", f"results{ending}", out.read_bytes().decode())


def test_a_new_column_of_the_gate_leaves_the_ledger_as_it_is(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", a_md=good("a"), b_md=bad("b"))
    monkeypatch.chdir(work.folder)
    arguments = ("gate", "--base", "base", "--no-engine")
    served(by_content, *arguments)
    before = [record.model_fields_set for record in Ledger.of(work.folder).read_records()]
    columns = (*table.GATE_COLUMNS, lambda row: f"by {row['verdict']['model']}")
    monkeypatch.setattr(table, "GATE_COLUMNS", columns)
    done, _ = served(by_content, *arguments)
    first = done.out.splitlines()[0]
    assert first.startswith("GO")
    assert first.endswith("  by stand-in")
    after = [record.model_fields_set for record in Ledger.of(work.folder).read_records()]
    assert after == before * 2
