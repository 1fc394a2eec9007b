"""Each kind of file with rows gives the rows that were put into its sample in tests/golden/rows."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from recordings import GOLDEN

from judgekit.data import sources
from judgekit.data.rows import open_rows
from judgekit.data.sources import DataRow

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run

ROWS = [{"id": "r1", "text": "One\nline, and more"}, {"id": "r2", "text": "\u00e4"}]


@pytest.mark.parametrize("source", sources.SOURCES, ids=lambda source: source.name)
def test_a_source_reads_its_sample(source: sources.Source) -> None:
    if source.has_types:
        pytest.importorskip("pyarrow")
    path = GOLDEN / "rows" / f"sample{source.endings[0]}"
    assert path.exists(), f"{path} is not there: put the two rows of this test into it"
    rows = open_rows(str(path), io.BytesIO())
    assert list(rows) == [DataRow(number, row) for number, row in enumerate(ROWS, 1)]
    assert (rows.schema is not None) == source.has_types
    assert sources.find_source(str(path)) is source


def test_the_help_lists_the_sources(judgekit: Run) -> None:
    text = " ".join(judgekit("judge", "--help").out.split())
    for source in sources.SOURCES:
        assert f"{source.endings[0]}, " in text


def test_ray_gets_no_rows_that_one_machine_must_read(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "rows.rowdb").write_text('{"text": "One"}\n')
    database = sources.Source("database", (".rowdb",), "json_lines", can_split=False)
    monkeypatch.setattr(sources, "SOURCES", (*sources.SOURCES, database))
    done = judgekit("judge", "--data", "rows.rowdb", "--on", "ray", "--out", "results")
    assert done.code == 64
    assert "rows.rowdb: --on ray cannot have several machines read such a file" in done.err
