"""Files of rows, labels and results: those that are something else, and the ids and keys in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted import by_content

if TYPE_CHECKING:
    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project")
TABLE = "id,question,answer,label,verdict\n0,Q?,It is Rome.,pass,accept\n1,Q?,It is Milan.,fail,reject\n"
LINES = '{"id": 0, "answer": "It is Rome.", "label": "pass", "verdict": "accept"}\n' * 2
JUDGE = ("judge", "--rubric", "kls", "--mode", "lenient", "--data")

WRONG = (
    ("d.csv", TABLE.encode("utf-16"), "this is UTF-16; save it as UTF-8"),
    ("d.csv", TABLE.encode("utf-16-le"), "this is UTF-16; save it as UTF-8"),
    ("d.csv", TABLE.encode("utf-16-be"), "this is UTF-16; save it as UTF-8"),
    ("d.csv", TABLE.encode("utf-32"), "this is UTF-32; save it as UTF-8"),
    ("d.csv", TABLE.encode("utf-32-be"), "this is UTF-32; save it as UTF-8"),
    ("d.jsonl", LINES.encode("utf-16"), "this is UTF-16; save it as UTF-8"),
    (
        "d.csv",
        TABLE.replace("Rome", "R\u00f4me").encode("cp1252"),
        "save the file as UTF-8 (it may be Windows",
    ),
    (
        "d.jsonl",
        LINES.replace("Rome", "R\u00f4me").encode("cp1252"),
        "save the file as UTF-8",
    ),
    ("d.csv", TABLE.replace("\n", "\r").encode(), "its lines end in CR alone"),
    ("d.jsonl", LINES.replace("\n", "\r").encode(), "its lines end in CR alone"),
    ("d.csv", b"PK\x03\x04 a workbook", "this is a workbook or an archive"),
    (
        "d.csv",
        b"id;answer|label\n1;x|pass\n",
        "expected commas between cells, got semicolons and vertical bars",
    ),
)


@pytest.mark.parametrize(("name", "raw", "problem"), WRONG)
def test_what_is_no_file_of_rows_is_named_with_what_to_do(
    served: Served, judgekit: Run, name: str, raw: bytes, problem: str
) -> None:
    Path(name).write_bytes(raw)
    Path("good.csv").write_text(TABLE)
    done, asked = served(by_content, *JUDGE, name, "--out", "out.jsonl")
    assert (done.code, asked, problem in done.err, name in done.err) == (65, [], True, True)
    for command in (
        ("report", name),
        ("report", "good.csv", "--labels", name),
        ("eval", "judge", name, "--rubric", "kls"),
    ):
        done = judgekit(*command)
        assert (done.code, problem in done.err) == (65, True), command


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_read_where_only_one_is_possible(
    served: Served, judgekit: Run, delimiter: str
) -> None:
    Path("d.csv").write_text(TABLE.replace(",", delimiter))
    done, _ = served(by_content, *JUDGE, "d.csv", "--out", "out.csv")
    assert (done.code, "2 rows in out.csv: 2 accept" in done.err) == (0, True)
    done = judgekit("report", "d.csv", "--labels", "d.csv", "--json")
    assert done.json["labelled"]["labels"] == 2
    Path("one.csv").write_text("answer\nA text; with a sign\n")
    done, asked = served(by_content, *JUDGE, "one.csv")
    assert (done.code, "A text; with a sign" in asked[0].text) == (0, True)


def test_a_sample_goes_on_with_the_delimiter_of_its_sheet(judgekit: Run) -> None:
    rows = "".join(f"{n},text {n},accept\n" for n in range(40))
    Path("r.csv").write_text(f"id,answer,verdict\n{rows}")
    judgekit("report", "r.csv", "--sample", "2", "--labels", "l.csv")
    sheet = Path("l.csv").read_text()
    Path("l.csv").write_text(sheet.replace(",", ";"))
    assert judgekit("report", "r.csv", "--sample", "2", "--labels", "l.csv").code == 0
    lines = Path("l.csv").read_text().split("\n")
    assert (len(lines), {line.count(";") for line in lines if line}) == (6, {2})


def test_an_id_of_zero_is_an_id(served: Served, judgekit: Run) -> None:
    Path("d.jsonl").write_text(LINES.split("\n", maxsplit=1)[0] + "\n")
    done, _ = served(by_content, *JUDGE, "d.jsonl", "--out", "out.jsonl")
    assert json.loads(Path("out.jsonl").read_text())["id"] == 0
    assert (
        judgekit("report", "out.jsonl", "--labels", "d.jsonl", "--json").json["labelled"]["labels"]
        == 1
    )
    Path("c.csv").write_text("id,answer,label\n0,TODO,fail\n1,fine,pass\n")
    done, _ = served(
        by_content, "eval", "judge", "c.csv", "--rubric", "kls", "--models", "m", "--json"
    )
    assert {each["id"] for each in done.json["outcomes"]} == {"0", "1"}
    Path("c.jsonl").write_text('{"id": 0, "answer": "fine", "label": "pass"}\n')
    done, _ = served(
        by_content, "eval", "judge", "c.jsonl", "--rubric", "kls", "--models", "m", "--json"
    )
    assert {each["id"] for each in done.json["outcomes"]} == {"0"}


@pytest.mark.parametrize(
    "line",
    [
        '{"id": 1, "answer": "x", "answer": "y", "label": "pass", "verdict": "accept"}',
        '{"id": 1, "answer": "x", "label": "pass", "verdict": "accept", "more": {"a": [{"b": 1, "b": 2}]}}',
    ],
)
def test_a_key_that_stands_twice_is_an_error_not_the_last_of_both(
    served: Served, judgekit: Run, line: str
) -> None:
    Path("d.jsonl").write_text(f"{line}\n")
    done, asked = served(by_content, *JUDGE, "d.jsonl")
    assert (done.code, asked, "got this one twice" in done.err) == (65, [], True)
    for command in (("report", "d.jsonl"), ("eval", "judge", "d.jsonl", "--rubric", "kls")):
        done = judgekit(*command)
        assert (done.code, "twice" in done.err) == (65, True), command


@pytest.mark.parametrize("head", ["id,question,answer,,", "id,question,answer"])
def test_columns_that_were_cleared_beside_a_table_are_none(judgekit: Run, head: str) -> None:
    Path("d.csv").write_text(f"{head}\n0,Q?,It is Rome.,,\n", encoding="utf-8")
    done = judgekit("judge", "--data", "d.csv", "--rubric", "kls", "--show-prompt")
    assert done.code == 0
    assert "It is Rome." in done.out
