"""Results are written row by row; a run that is killed at any moment loses no row and doubles none."""

from __future__ import annotations

import io
import json
import os
import resource
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from judgekit.data import seals, tables
from judgekit.data.results import OUR_COLUMNS, Ids, Results, build_result, open_results
from judgekit.data.rows import open_rows
from judgekit.data.seals import Fingerprint
from judgekit.data.sources import DataRow
from judgekit.errors import InputError, UsageError
from judgekit.text import restore_cell

if TYPE_CHECKING:
    from pathlib import Path

KEY = "0123456789abcdef"
VERDICT = {
    "schema": "judgekit/verdict@1",
    "verdict": "accept",
    "average": 4.5,
    "scores": {"semantic": 4.5},
}


def opened(path: Path, *, fresh: bool = False) -> Results:
    return open_results(str(path), print, fresh=fresh)


def found(number: int, word: str = "accept", fingerprint: str = "f") -> dict[str, Any]:
    """Return a row of OUT."""
    return build_result(
        DataRow(number, {"text": f"é{number}"}),
        number,
        {**VERDICT, "verdict": word},
        None,
        fingerprint,
    )


def run(path: Path, count: int = 4, fingerprint: str = "f", *, finish: bool = True) -> list[int]:
    """Judge rows, the last one first, and return the numbers of those that were not kept."""
    with opened(path) as results:
        asked = [
            number
            for number in range(1, count + 1)
            if results.find_verdict(number, Fingerprint(fingerprint)) is None
        ]
        for number in reversed(asked):
            results.add(found(number, fingerprint=fingerprint))
        if finish:
            results.write_out()
    return asked


def lines(path: Path) -> list[dict[str, Any]]:
    return list(map(unsealed, path.read_text().splitlines()))


def unsealed(line: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(line)
    return row | {"fingerprint": row["fingerprint"].partition(".")[0]}


@pytest.mark.slow
def test_a_run_resumes_from_every_prefix_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of them take seconds
    path = tmp_path / "out.jsonl"
    assert run(path, 3, finish=False) == [1, 2, 3]
    whole = path.read_bytes()
    ends = [at for at in range(len(whole)) if whole[at : at + 1] == b"\n"]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = sum(end <= size for end in ends)  # a line that lacks its end alone is whole
        assert run(path, 3) == list(range(1, 4 - kept))
        assert lines(path) == [found(number) for number in range(1, 4)]
    assert run(path, 3) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_rows_that_are_judged_again_wait_aside(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run(path)
    with opened(path) as results:
        assert [
            results.find_verdict(number, Fingerprint("g" if number < 3 else "f"))
            for number in (1, 2, 3)
        ] == [
            None,
            None,
            "accept",
        ]
        results.add(found(2, fingerprint="g"))
        assert [row["id"] for row in lines(path)] == [3, 4, 2]  # killed now, OUT has no row twice
    for fingerprint, word in (("f", "accept"), ("g", None)):
        with opened(path) as results:
            assert (
                results.find_verdict(1, Fingerprint(fingerprint)) == word
            )  # nor is a verdict lost
            assert results.find_verdict(2, Fingerprint("g")) == "accept"
            results.write_out()
        assert [(row["id"], row["fingerprint"]) for row in lines(path)] == [
            (1, "f"),
            (2, "g"),
            (3, "f"),
            (4, "f"),
        ]


def test_the_undetermined_and_the_failed_are_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with opened(path) as results:
        results.add(found(1, "undetermined"))
        results.add({**found(2), "error": "no text"})
        results.add(found(3))
    assert run(path) == [1, 2, 4]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"hello", "line 1 is no result"),
        (b'{"a": 1}', "line 1 is no result"),
        (b'{"a": 1}\n', "line 1 is no result"),
        (b'{\n  "id": 1', "line 1 is no result"),
        (json.dumps(found(1)).encode() + b"\n{}\n", "line 2 is no result"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=problem):
        opened(path)
    assert path.read_bytes() == content
    with opened(path, fresh=True) as results:
        assert path.read_bytes() == content  # until there is something to take its place
        results.add(found(1))
    assert lines(path) == [found(1)]


def test_a_second_run_on_the_same_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with opened(path), pytest.raises(UsageError, match="another run writes to it"):
        opened(path)
    assert not path.exists()
    with opened(path) as results:
        results.write_out()
    assert path.read_bytes() == b""


OWN = {"text": "x", "id": 7, "verdict": "mine", "row.verdict": None, "nested": {"score": [1e999]}}
JUDGED = {
    **VERDICT,
    "reasoning": "why",
    "model": "m",
    "cost_usd": float("nan"),
    "duration_ms": 5,
    "degraded": "a note",
}
COMPARED = {
    "schema": "judgekit/comparison@1",
    "verdict": "A",
    "subjects": [{"letter": "A", "score": 4.0}, {"letter": "B", "score": None}],
    "judge_tier": "deep",
    "rounds": [
        {"tier": tier, "model": model}
        for tier, model in zip(("quick", *["deep"] * 3), "abcb", strict=True)
    ],
    "reasoning": "closer",
    "cost_usd": 0.5,
    "duration_ms": 9,
    "degraded": None,
}
NONE = dict.fromkeys(
    ("average", "scores", "reasoning", "model", "cost_usd", "duration_ms", "error")
)


SAID = {
    "verdict": "accept",
    "average": 4.5,
    "scores": {"semantic": 4.5},
    "reasoning": "why",
    "model": "m",
}
TOLD = {
    "verdict": "A",
    "scores": {"A": 4.0},
    "reasoning": "closer",
    "model": "b, c",
    "cost_usd": 0.5,
}


@pytest.mark.parametrize(
    ("record", "error", "expected"),
    [
        (JUDGED, None, {**SAID, "duration_ms": 5}),
        (
            {**JUDGED, "verdict": "undetermined"},
            None,
            {**SAID, "verdict": "undetermined", "duration_ms": 5, "error": "a note"},
        ),
        (COMPARED, None, {**TOLD, "duration_ms": 9}),
        (
            {**COMPARED, "subjects": []},
            "stop",
            {**TOLD, "scores": None, "duration_ms": 9, "error": "stop"},
        ),
        (None, "no text", {"verdict": "undetermined", "error": "no text"}),
    ],
)
def test_what_a_row_of_out_holds(
    record: dict[str, Any] | None, error: str | None, expected: dict[str, Any]
) -> None:
    row = build_result(DataRow(1, OWN), 7, record, error, "f")
    own = {
        "text": "x",
        "row.id": 7,
        "row.row.verdict": "mine",
        "row.verdict": None,
        "nested": {"score": [None]},
    }
    judged = row.pop("judged")
    assert row == {**own, "id": 7, **NONE, **expected, "fingerprint": "f"}
    assert [*row] == [*own, *OUR_COLUMNS[:-1]]
    assert judged == (record and {**record, "cost_usd": expected.get("cost_usd")})


@pytest.mark.parametrize("others", [0, 30_000])
def test_ids_are_met_once(others: int) -> None:
    ids = Ids()
    met: list[str | int] = ["a", 1, "b", *(f"other {number}" for number in range(others)), "1", "a"]
    earlier = [ids.add(each, at) for at, each in enumerate(met, 1)]
    assert earlier[:-2] == [None] * (len(met) - 2)
    assert earlier[-2:] == [2, 1]
    ids.close()


def test_without_out_rows_are_printed() -> None:
    printed: list[str] = []
    with open_results(None, printed.append, fresh=False) as results:
        assert results.find_verdict(1, Fingerprint("f")) is None
        results.add(found(1))
        results.write_out()
    assert list(map(unsealed, printed)) == [found(1)]


def test_rows_that_the_input_lost_stay_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run(path)
    with opened(path) as results:
        assert [results.find_verdict(number, Fingerprint("f")) for number in (5, 3)] == [
            None,
            "accept",
        ]
        results.add(found(5))
        results.write_out()
    assert [row["id"] for row in lines(path)] == [5, 3, 1, 2, 4]


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as results:
        results.add(found(1))
        before = path.read_bytes()
        for room in (10, 0):
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + room, was[1]))
            try:
                with pytest.raises(
                    InputError, match=r"out.jsonl: cannot be written \(.*run the same command again"
                ):
                    results.add(found(2))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, was)
            assert path.read_bytes() == before
        results.add(found(3))
        results.write_out()
    assert lines(path) == [found(1), found(3)]


def test_an_interrupted_call_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with opened(path) as results:
        results.add(found(2))
        with monkeypatch.context() as patch:
            patch.setattr(results, "_note_row", interrupt)
            with pytest.raises(KeyboardInterrupt):
                results.add(found(3))
        results.find_verdict(1, Fingerprint("f"))
        results.add(found(1))
        results.write_out()
    assert [row["id"] for row in lines(path)] == [1, 2, 3]


def test_rows_may_still_be_read_in_another_thread_when_results_are_closed(tmp_path: Path) -> None:
    """A run that ends early does not wait for its reader, which a pipe may keep for long."""
    faults = []
    is_asking = threading.Event()
    is_over = threading.Event()

    def read(results: Results) -> None:
        number = 0
        try:
            while not is_over.is_set():
                number += 1
                results.find_verdict(number, Fingerprint("f"))
                is_asking.set()
                time.sleep(0.0001)  # let the other thread have the lock
        except sqlite3.Error as error:
            faults.append(error)

    with opened(tmp_path / "out.jsonl") as results:
        reader = threading.Thread(target=read, args=(results,))
        reader.start()
        assert is_asking.wait(10)
    is_over.set()
    reader.join(10)
    assert faults == []
    assert results.find_verdict(1, Fingerprint("f")) is None


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "link.jsonl"])
def test_the_input_is_never_written(tmp_path: Path, name: str) -> None:
    source = tmp_path / {"in.csv": "in.csv.part.jsonl"}.get(name, "in.jsonl")
    source.write_text("")
    (tmp_path / "link.jsonl").symlink_to(source)
    with pytest.raises(UsageError, match="the rows are read from this file"):
        open_results(
            str(tmp_path / name), print, fresh=True, source=open_rows(str(source), io.BytesIO())
        )


@pytest.mark.parametrize(
    ("name", "error", "problem"),
    [
        ("out.json", UsageError, "expected .jsonl, .ndjson, .csv, .tsv, .parquet"),
        ("none/out.jsonl", InputError, "cannot be written .No such file or directory"),
        ("folder.jsonl", InputError, "cannot be written .Is a directory"),
    ],
)
def test_a_place_that_takes_no_results(
    tmp_path: Path, name: str, error: type[Exception], problem: str
) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(error, match=problem):
        opened(tmp_path / name)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
CELLS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["a", "text", "score.semantic", "row.score.semantic", "id", "scores"]
) | TEXTS.filter(str.strip)
ROWS = st.lists(st.dictionaries(NAMES, CELLS, max_size=4), min_size=1, max_size=4)


def flat(row: dict[str, Any], own: set[str]) -> dict[str, Any]:
    """Return a row of OUT as a table has it, without its nulls."""
    scores = {f"score.{name}": value for name, value in (row["scores"] or {}).items()}
    cells = {}
    for name, value in row.items():
        new = name
        while (new != name and new in own) or new == "score.semantic":
            new = f"row.{new}"
        cells[new] = value
    del cells["scores"]
    return {name: value for name, value in {**cells, **scores}.items() if value is not None}


def text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_any_row_comes_back_as_it_was(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given_rows = [row for row in open_rows(str(source), io.BytesIO()) if isinstance(row, DataRow)]
    wanted = [build_result(row, row.number, VERDICT, None, "f") for row in given_rows]
    own = {name for row in wanted for name in row}
    for ending in ("jsonl", "csv", "tsv", "parquet"):
        out = tmp_path / f"out.{ending}"
        with open_results(str(out), print, fresh=True, full=True) as results:
            for row in wanted:
                results.add(row)
            results.write_out()
        read = [
            dict(row.columns)
            for row in open_rows(str(out), io.BytesIO())
            if isinstance(row, DataRow)
        ]
        if ending == "jsonl":
            assert all(seals.is_row_valid(row, seals.get_state_key()) for row in read)
        if ending in ("csv", "tsv"):
            read = [
                {restore_cell(name): restore_cell(cell) for name, cell in row.items()}
                for row in read
            ]
        for row in read:
            row["fingerprint"] = row["fingerprint"].partition(".")[0]
        if ending == "jsonl":
            assert read == wanted
            continue
        for got, row in zip(read, wanted, strict=True):
            cells = flat(row, own)
            # In a table of text nothing and an empty text are the same.
            assert {name for name, cell in got.items() if cell not in (None, "")} == {
                name for name, cell in cells.items() if cell != ""
            }
            assert all(got[name] in (cell, text(cell)) for name, cell in cells.items())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_any_row_of_a_folder_verifies_when_it_is_read_again(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    pytest.importorskip("numpy", reason="the extra ray is not installed")
    from judgekit.data import parts  # noqa: PLC0415 - it needs NumPy

    kinds = tables.ColumnKinds(OUR_COLUMNS)
    results = []
    for number, columns in enumerate(rows, 1):
        row = build_result(DataRow(number, columns), number, VERDICT, None, "f")
        kinds.add(row)
        results.append(row)
    shape = parts.choose_shape(kinds, {}, [])
    cells = [
        seals.seal_cells(tables.build_cells(row, shape.new_name_by_column), KEY) for row in results
    ]
    folder = parts.Folder.at(str(tmp_path / "out"))
    folder.make()
    parts.write_part(folder, "part-0001-1.parquet", cells, shape)
    read = list(folder.rows("part-0001-1.parquet"))
    assert all(seals.are_cells_valid(row, KEY) for row in read)
    assert not any(seals.are_cells_valid(row | {"verdict": "tie"}, KEY) for row in read)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_is_resumed_from_the_lines_beside_it(tmp_path: Path, ending: str) -> None:
    out, part = tmp_path / f"out.{ending}", tmp_path / f"out.{ending}.part.jsonl"
    assert run(out, finish=False) == [1, 2, 3, 4]
    assert not out.exists()
    part.write_bytes(part.read_bytes()[:-1])
    assert run(out) == []
    first = out.read_bytes()
    assert run(out, 5) == [5]
    assert out.read_bytes() != first
    assert [stat.S_IMODE(path.stat().st_mode) for path in (out, part)] == [0o600, 0o600]
    assert len(list(open_rows(str(out), io.BytesIO()))) == 5
    os.utime(out)  # as a copy has it
    assert run(out, 5) == []
    out.write_bytes(first)
    os.utime(part, ns=(1, 1))
    with pytest.raises(UsageError, match="changed since judgekit wrote it"):
        opened(out)
    part.unlink()
    with pytest.raises(UsageError, match="no row of it can be kept; move it away"):
        opened(out)
    with opened(out, fresh=True) as results:
        results.write_out()
    assert list(open_rows(str(out), io.BytesIO())) == []


def test_columns_of_parquet_keep_their_types(tmp_path: Path) -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    kept: dict[str, pa.Array] = {
        "when": pa.array([noon, None], pa.timestamp("us", "UTC")),
        "day": pa.array([noon.date(), None]),
        "exact": pa.array([Decimal("1.10"), None]),
        "small": pa.array([1, None], pa.int8()),
        "turns": pa.array([[{"role": "user"}], None]),
        "kind": pa.array(["a", "b"]).dictionary_encode(),
        "none": pa.nulls(2),
    }
    changed = {"raw": pa.array([b"\xff", b"a"]), "took": pa.array([timedelta(seconds=1), None])}
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({**kept, **changed}), source)
    rows = open_rows(str(source), io.BytesIO())
    with open_results(str(out), print, fresh=False, source=rows) as results:
        for row in rows:
            assert isinstance(row, DataRow)
            results.add(build_result(row, row.number, VERDICT, None, "f"))
        results.write_out()
    table = pq.read_table(out)
    assert table.select([*kept]).equals(pa.table(kept))
    types = {field.name: str(field.type) for field in table.schema if field.name not in kept}
    assert types == {
        "raw": "string",
        "took": "double",
        "id": "int64",
        "verdict": "string",
        "average": "double",
        "score.semantic": "double",
        **dict.fromkeys(("reasoning", "model", "error", "fingerprint", "judged"), "string"),
        "cost_usd": "double",
        "duration_ms": "int64",
    }


MANY = """
import io, resource, sys
from judgekit.data.results import Ids, build_result, open_results
from judgekit.data.rows import open_rows

def run(count):
    with open("in.csv", "w") as file:
        file.write("text\\n")
        file.writelines(f"{'word ' * 100}{number}\\n" for number in range(count))
    rows, ids = open_rows("in.csv", io.BytesIO()), Ids()
    with open_results(f"out.{count}.csv", print, fresh=False, source=rows) as results:
        for row in rows:
            assert ids.add(row.columns["text"], row.number) is None
            assert results.find_verdict(row.number, "f") is None
            results.add(build_result(row, row.number, {"verdict": "accept"}, None, "f"))
        results.write_out()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

print(run(1_000), run(100_000))
"""


@pytest.mark.slow
def test_many_rows_need_no_more_memory_than_few(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    few, many = map(int, done.stdout.split())
    assert many - few < 16_000  # KB; the rows themselves have 50 MB
