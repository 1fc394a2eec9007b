"""Columns of the rows beside ours, and ids as tables write them: none is lost, or taken for ours."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback
from scripted import by_content

from judgekit import judge_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcome import Run, Served, Use

pytestmark = pytest.mark.usefixtures("project", "no_servers")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient", "--out")
NFC = "caf\u00e9"
NFD = "cafe\u0301"


def write(path: str, *rows: Mapping[str, Any]) -> None:
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def read(path: str) -> list[dict[str, Any]]:
    if path.endswith(".jsonl"):
        return [json.loads(line) for line in Path(path).read_text().splitlines()]
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


# Their columns and ours

OWN = {
    "verdict": "accept",
    "model": "gpt",
    "average": "5",
    "error": "none",
    "score.semantic": "4",
    "reasoning": "why",
}


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv", "out.parquet"])
@pytest.mark.parametrize("column", OWN)
def test_a_column_with_a_name_of_ours_keeps_every_value(
    served: Served, judgekit: Run, column: str, out: str
) -> None:
    value = OWN[column]
    write("rows.jsonl", {"id": 1, "answer": "x", column: value})
    served(by_content, *JUDGE, out)
    groups = judgekit("report", out, "--by", f"row.{column}", "--json").json["groups"]
    assert [group["value"] for group in groups] == [value]


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv"])
def test_a_name_of_another_rubrics_score_stays(served: Served, out: str) -> None:
    write("rows.jsonl", {"id": 1, "answer": "x", "score.other": "4"})
    served(by_content, *JUDGE, out)
    assert read(out)[0]["score.other"] == "4"


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv"])
def test_a_column_that_looks_like_a_score_is_no_dimension_of_ours(
    served: Served, judgekit: Run, out: str
) -> None:
    write("rows.jsonl", {"id": 1, "answer": "x", "score.other": "4"})
    served(by_content, *JUDGE, out)
    dimensions = judgekit("report", out, "--json").json["dimensions"]
    assert list(dimensions) == ["semantic", "pragmatic", "syntactic"]


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv"])
def test_an_id_that_was_not_chosen_is_the_rows_own(served: Served, out: str) -> None:
    write("rows.jsonl", {"id": "k1", "key": "k1", "answer": "x"})
    served(by_content, *JUDGE, out, "--id", "key")
    assert read(out)[0]["row.id"] == "k1"


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv"])
def test_an_old_verdict_that_equals_ours_is_a_label(
    served: Served, judgekit: Run, out: str
) -> None:
    write("rows.jsonl", *({"id": n, "answer": "x", "verdict": "accept"} for n in range(4)))
    served(by_content, *JUDGE, out)
    done = judgekit("report", out, "--labels", out, "--map", "label=row.verdict", "--json")
    assert done.json["labelled"]["labels"] == 4


def test_a_report_by_a_name_of_ours_says_where_theirs_is(served: Served, judgekit: Run) -> None:
    write("rows.jsonl", {"id": 1, "answer": "x", "model": "gpt"})
    served(by_content, *JUDGE, "out.jsonl")
    assert "the rows' is row.model" in judgekit("report", "out.jsonl", "--by", "model").err


@pytest.mark.parametrize("out", ["out.jsonl", "out.csv", "out.parquet"])
def test_a_score_is_a_column_in_every_format(served: Served, judgekit: Run, out: str) -> None:
    write("rows.jsonl", {"id": 1, "answer": "x"}, {"id": 2, "answer": "y"})
    served(by_content, *JUDGE, out)
    groups = judgekit("report", out, "--by", "score.semantic", "--json").json["groups"]
    assert [group["value"] for group in groups] == ["4"]


# Groups

FORMS = {
    "missing.jsonl": '{"id":1,"verdict":"accept","by":"a"}\n{"id":2,"verdict":"accept"}\n',
    "null.jsonl": '{"id":1,"verdict":"accept","by":"a"}\n{"id":2,"verdict":"accept","by":null}\n',
    "nan.jsonl": '{"id":1,"verdict":"accept","by":"a"}\n{"id":2,"verdict":"accept","by":NaN}\n',
    "blank.jsonl": '{"id":1,"verdict":"accept","by":"a"}\n{"id":2,"verdict":"accept","by":" "}\n',
    "list.jsonl": '{"id":1,"verdict":"accept","by":["a"]}\n{"id":2,"verdict":"accept","by":[]}\n',
    "empty.csv": "id,verdict,by\n1,accept,a\n2,accept,\n",
    "list.csv": 'id,verdict,by\n1,accept,"[""a""]"\n2,accept,[]\n',
}


@pytest.mark.parametrize("path", FORMS)
def test_a_missing_value_is_one_in_every_format(judgekit: Run, path: str) -> None:
    Path(path).write_text(FORMS[path])
    groups = judgekit("report", path, "--by", "by", "--json").json["groups"]
    assert [(group["value"], group["rows"]) for group in groups] == [("a", 1), ("", 1)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("r.jsonl", '{"id": 1, "verdict": "accept", "by": ["a", "b"]}\n'),
        ("r.csv", 'id,verdict,by\n1,accept,"[""a"", ""b""]"\n'),
    ],
)
def test_a_row_belongs_to_each_element_of_a_list(judgekit: Run, path: str, text: str) -> None:
    Path(path).write_text(text)
    groups = judgekit("report", path, "--by", "by", "--json").json["groups"]
    assert [group["value"] for group in groups] == ["a", "b"]


def test_rows_without_a_value_are_named_in_a_terminal(judgekit: Run) -> None:
    Path("r.csv").write_text(FORMS["empty.csv"])
    assert "(no value)" in judgekit("report", "r.csv", "--by", "by").out


# Ids


@pytest.mark.parametrize(
    ("row_id", "label_id"),
    [(17.0, 17), (17, "17.0"), ("a", " a "), ("a b", "a  b"), (NFC, NFD), (NFD, NFC)],
)
def test_an_id_is_joined_however_a_table_writes_it(
    served: Served, judgekit: Run, row_id: object, label_id: object
) -> None:
    write("rows.jsonl", {"id": row_id, "answer": "x"})
    served(by_content, *JUDGE, "out.jsonl")
    write("labels.jsonl", {"id": label_id, "label": "accept"})
    done = judgekit("report", "out.jsonl", "--labels", "labels.jsonl", "--json")
    assert done.json["labelled"]["labels"] == 1


@pytest.mark.parametrize(("first", "second"), [("a", "a "), (NFC, NFD), (17, 17.0), (1, "1.0")])
def test_ids_that_are_joined_cannot_be_two_rows(
    served: Served, first: object, second: object
) -> None:
    write("rows.jsonl", {"id": first, "answer": "x"}, {"id": second, "answer": "y"})
    done, _ = served(by_content, *JUDGE, "out.jsonl")
    assert done.code == 65
    assert "row 1 has the same id" in done.err


@pytest.mark.parametrize("column", ["ID", "Id", "_id"])
def test_a_column_of_ids_is_found_whatever_its_case(served: Served, column: str) -> None:
    write("rows.jsonl", {column: "a7", "answer": "x"})
    served(by_content, *JUDGE, "out.jsonl")
    assert read("out.jsonl")[0]["id"] == "a7"


def test_two_columns_of_ids_are_a_question(served: Served) -> None:
    write("rows.jsonl", {"ID": "a", "Id": "b", "answer": "x"})
    done, _ = served(by_content, *JUDGE, "out.jsonl")
    assert done.code == 64
    assert "choose with --id ID or --id Id" in done.err


@pytest.mark.parametrize("missing", [None, "", " ", float("nan"), "NaN"])
def test_a_row_without_an_id_is_named(served: Served, missing: object) -> None:
    write("rows.jsonl", {"id": 1, "answer": "x"}, {"id": missing, "answer": "y"})
    done, _ = served(by_content, *JUDGE, "out.jsonl")
    assert done.code == 65
    assert "row 2, column id:" in done.err
    assert "got a blank; give each row an id" in done.err


def test_a_program_of_pandas_gets_its_ids(use: Use) -> None:
    with Loopback(by_content) as server:
        use(server)
        rows = judge_rows([{"id": 17.0, "answer": "x"}], rubric="kls", mode="lenient")
        assert [row["id"] for row in rows] == [17]
