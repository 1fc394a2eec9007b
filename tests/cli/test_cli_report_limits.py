"""Limits of `judgekit report`: a missed one fails the build, and a line says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from outcome import Run

pytestmark = pytest.mark.usefixtures("project")


def write(path: str, *words: str, first: int = 0) -> str:
    lines = []
    for number, word in enumerate(words, first):
        lines.append(json.dumps({"id": f"r{number}", "verdict": word}) + "\n")
    Path(path).write_text("".join(lines))
    return path


def words(accept: int = 0, reject: int = 0, improve: int = 0, undetermined: int = 0) -> list[str]:
    counts = {"accept": accept, "reject": reject, "improve": improve}
    listed = [word for word, count in counts.items() for _ in range(count)]
    return listed + ["undetermined"] * undetermined


MET = {
    "accepted, just": (words(9, 1), "--min-accept", "0.9"),
    "rejected, just": (words(9, 1), "--max-reject", "0.1"),
    "undetermined, just": (words(9, undetermined=1), "--max-undetermined", "0.1"),
    "undetermined, but enough anyway": (words(9, undetermined=1), "--min-accept", "0.9"),
    "nothing asked": (words(1, 9), "--max-undetermined", "0"),
}


@pytest.mark.parametrize(("verdicts", "option", "limit"), MET.values(), ids=MET)
def test_results_within_a_limit_are_a_success(
    judgekit: Run, verdicts: list[str], option: str, limit: str
) -> None:
    done = judgekit("report", write("out.jsonl", *verdicts), option, limit)
    assert done.code == 0
    assert done.err == ""


MISSED = {
    "too few accepted": (
        words(8, 1, 1),
        "--min-accept",
        "out.jsonl: accept >= 0.9 isn't met: 0.800 of 10 rows",
    ),
    "accepted are shares of all rows": (
        words(10, undetermined=90),
        "--min-accept",
        "accept >= 0.9 isn't met: 0.100 to 1.000 of 100 rows; 90 rows without a verdict count",
    ),
    "too many rejected": (
        words(0, 10),
        "--max-reject",
        "reject <= 0.9 isn't met: 1.000 of 10 rows",
    ),
    "undetermined ones may be rejected": (
        words(undetermined=1),
        "--max-reject",
        "1 row without a verdict counts against it",
    ),
    "too many undetermined": (
        words(undetermined=2),
        "--max-undetermined",
        "undetermined <= 0.9 isn't met: 1.000 of 2 rows",
    ),
}


@pytest.mark.parametrize(("verdicts", "option", "said"), MISSED.values(), ids=MISSED)
def test_a_missed_limit_is_exit_code_1_and_a_line_says_why(
    judgekit: Run, verdicts: list[str], option: str, said: str
) -> None:
    done = judgekit("report", write("out.jsonl", *verdicts), option, "0.9")
    assert done.code == 1
    assert said in done.err


def test_all_missed_limits_are_said(judgekit: Run) -> None:
    out = write("out.jsonl", *words(5, 5))
    done = judgekit("report", out, "--min-accept", "0.9", "--max-reject", "0.1")
    assert len(done.err.splitlines()) == 2


def test_the_report_is_printed_all_the_same(judgekit: Run) -> None:
    done = judgekit("report", write("out.jsonl", *words(5, 5)), "--min-accept", "0.9", "--json")
    assert done.code == 1
    assert done.json["rows"] == 10


WORSE = {
    "fewer are accepted": (words(7, 3), "base.jsonl", 1),
    "as many are accepted": (words(8, 2), "base.jsonl", 0),
    "more are accepted": (words(9, 1), "base.jsonl", 0),
    "fewer, within the points": (words(7, 3), "base.jsonl:10", 0),
    "fewer, beyond the points": (words(7, 3), "base.jsonl:9.9", 1),
    "one without a verdict isn't accepted": (words(7, 2, undetermined=1), "base.jsonl", 1),
}


@pytest.mark.parametrize(("verdicts", "base", "code"), WORSE.values(), ids=WORSE)
def test_results_that_are_worse_than_others_fail(
    judgekit: Run, verdicts: list[str], base: str, code: int
) -> None:
    write("base.jsonl", *words(8, 2))
    done = judgekit("report", write("out.jsonl", *verdicts), "--fail-if-worse", base)
    assert done.code == code


def test_a_worse_result_says_by_how_much(judgekit: Run) -> None:
    write("base.jsonl", *words(10))
    done = judgekit("report", write("out.jsonl", *words(7, 3)), "--fail-if-worse", "base.jsonl:5")
    said = "out.jsonl is worse than base.jsonl: 0.700 accepted, 1.000 there, of 10 rows in both"
    assert f"{said} (30.0 points less, 5 allowed)" in done.err


def test_only_rows_of_both_are_compared(judgekit: Run) -> None:
    write("base.jsonl", *words(5))
    done = judgekit("report", write("out.jsonl", *words(5, 5)), "--fail-if-worse", "base.jsonl")
    assert done.code == 0


def test_results_without_a_common_row_cannot_be_compared(judgekit: Run) -> None:
    write("base.jsonl", *words(5), first=100)
    done = judgekit("report", write("out.jsonl", *words(5)), "--fail-if-worse", "base.jsonl")
    assert done.code == 65
    assert "no row is in both; name the column of ids with --id" in done.err


def test_a_base_that_is_not_there_is_named(judgekit: Run) -> None:
    done = judgekit("report", write("out.jsonl", *words(5)), "--fail-if-worse", "gone.jsonl:2")
    assert done.code == 65
    assert "gone.jsonl" in done.err


def test_texts_that_were_compared_are_not_accepted(judgekit: Run) -> None:
    done = judgekit("report", write("out.jsonl", "A", "B", "tie"), "--min-accept", "0.9")
    assert done.code == 64
    assert "--min-accept: in these results texts were compared" in done.err


def test_comparisons_may_have_a_limit_on_those_without_a_verdict(judgekit: Run) -> None:
    out = write("out.jsonl", "A", "B", "tie", "undetermined")
    done = judgekit("report", out, "--max-undetermined", "0.2")
    assert done.code == 1


def test_a_limit_is_not_left_out_in_silence(judgekit: Run) -> None:
    out = write("out.jsonl", *words(5))
    done = judgekit("report", out, "--sample", "3", "--min-accept", "0.9")
    assert done.code == 64


@pytest.mark.parametrize("limit", ["1.5", "-1", "many"])
def test_a_limit_is_a_share(judgekit: Run, limit: str) -> None:
    done = judgekit("report", write("out.jsonl", *words(5)), "--min-accept", limit)
    assert done.code == 64
