"""`compare --data A --data B`: two runs of one thing, joined by the ids of their rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import says

if TYPE_CHECKING:
    from loopback import Answer, Asked
    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project")
FIRST = """{"id": 1, "question": "Of Italy?", "answer": "good"}
{"id": 2, "question": "Of France?", "answer": "bad"}
{"id": 3, "question": "Of Spain?", "answer": "good"}
"""
SECOND = """id,question,answer
2,Of France?,good
1,Of Italy?,bad
9,Of Peru?,good
"""
COMPARE = ("compare", "--data", "a.jsonl", "--data", "b.csv", "--out", "out.jsonl", "--no-cache")


def prefer_good(asked: Asked) -> Answer:
    [name] = re.findall(r"The text (\w+):\s+<[^>]*>\s+good", asked.text)
    return says(json.dumps({"reasoning": "It is better.", "better": name}))


def write(first: str = FIRST, second: str = SECOND) -> None:
    Path("a.jsonl").write_text(first)
    Path("b.csv").write_text(second)


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().split("\n") if line]


def test_rows_with_the_same_id_are_compared(served: Served) -> None:
    write()
    done, _ = served(prefer_good, *COMPARE)
    assert done.code == 0, done.err
    verdicts = {row["id"]: row["verdict"] for row in results()}
    assert verdicts == {1: "A", 2: "B"}


def test_both_see_the_question(served: Served) -> None:
    write()
    _, asked = served(prefer_good, *COMPARE)
    assert all("Of Italy?" in each.text or "Of France?" in each.text for each in asked)


@pytest.mark.parametrize(
    "remark",
    [
        "a.jsonl: 1 row without a partner, not compared",
        "b.csv: 1 row without a partner, not compared",
    ],
)
def test_rows_of_one_file_alone_are_counted(served: Served, remark: str) -> None:
    write()
    done, _ = served(prefer_good, *COMPARE)
    assert done.err.count(remark) == 1


def test_different_questions_are_said(served: Served) -> None:
    write(second=SECOND.replace("Of Italy?", "Of Malta?"))
    done, asked = served(prefer_good, *COMPARE)
    assert "1 pair has different prompts: that of a.jsonl is shown" in done.err
    assert not any("Of Malta?" in each.text for each in asked)


def test_a_column_of_one_file_alone_can_be_named(served: Served) -> None:
    write(second=SECOND.replace("answer", "said by the new model"))
    done, _ = served(prefer_good, *COMPARE, "--map", "b=said by the new model")
    assert done.code == 0, done.err
    assert [row["b"] for row in results()] == ["bad", "good"]


def test_ids_may_have_another_name(served: Served) -> None:
    write(FIRST.replace('"id"', '"case"'), SECOND.replace("id,", "case,"))
    done, _ = served(prefer_good, *COMPARE, "--id", "case")
    assert [row["id"] for row in results()] == [1, 2], done.err


def test_a_second_run_asks_nothing(served: Served) -> None:
    write()
    served(prefer_good, *COMPARE)
    _, asked = served(prefer_good, *COMPARE)
    assert not asked


REFUSED = {
    "no ids": (FIRST.replace('"id"', '"n"'), SECOND, (), "a.jsonl has no column of ids", 64),
    "none in common": (
        FIRST,
        "id,question,answer\n8,Of Peru?,good\n",
        (),
        "no id of a.jsonl is in b.csv",
        65,
    ),
    "an id twice": (FIRST, f"{SECOND}2,Of France?,good\n", (), "row 1 has the same id '2'", 65),
    "no column": (FIRST, SECOND, ("--map", "a=gone"), "a.jsonl has no such column", 64),
    "three files": (FIRST, SECOND, ("--data", "a.jsonl"), "given more than twice", 64),
    "results in an input": (
        FIRST,
        SECOND,
        ("--out", "b.csv"),
        "the rows are read from this file",
        64,
    ),
}


@pytest.mark.parametrize(
    ("first", "second", "options", "message", "code"), REFUSED.values(), ids=REFUSED
)
def test_what_cannot_be_joined_is_refused(
    judgekit: Run, first: str, second: str, options: tuple[str, ...], message: str, code: int
) -> None:
    write(first, second)
    done = judgekit(*COMPARE, *options)
    assert message in done.err
    assert done.code == code
