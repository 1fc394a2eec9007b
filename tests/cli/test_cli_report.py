"""`judgekit report`: its output, its files and its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outcome import Run

pytestmark = pytest.mark.usefixtures("project")


def write(path: str, rows: list[dict[str, Any]]) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verdicts(*words: str) -> list[dict[str, Any]]:
    return [{"id": f"r{number}", "verdict": word} for number, word in enumerate(words)]


@pytest.fixture
def results() -> str:
    return write(
        "results.jsonl",
        verdicts(*["accept"] * 60, *["reject"] * 30, *["improve"] * 10, "undetermined"),
    )


def test_a_sample_is_labelled_and_corrects_the_rate(judgekit: Run, results: str) -> None:
    done = judgekit("report", results, "--sample", "40")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("results.labels.csv: 40 rows added, 40 in all\n")
    done = judgekit("report", results, "--labels", "results.labels.csv")
    assert (done.code, "no row has a label" in done.err) == (65, True)
    sheet = Path("results.labels.csv")
    filled = [
        f"{line.split(',')[0]},{'accept' if int(line[1:3].strip(',')) < 50 else 'reject'}"
        for line in sheet.read_text().split()[1:]
    ]
    sheet.write_text("\n".join(["id,label", *filled, "r100,accept"]))
    done = judgekit("report", results, "--labels", "results.labels.csv")
    assert "101 rows: 60 accept, 10 improve, 30 reject, 1 undetermined" in done.out
    assert "1 without a verdict is left out of all rates" in done.out
    assert "1 label left out: no row with this id has a verdict." in done.out
    found = judgekit("report", results, "--labels", "results.labels.csv", "--json").json
    assert found["schema"] == "judgekit/report@1"
    rate = found["accept_rate"]
    assert list(rate)[:5] == ["judged", "corrected", "low", "high", "labels"]
    assert (rate["judged"], rate["labels"], rate["low"] < 0.5 < rate["high"]) == (0.6, 40, True)


def test_a_page_has_what_is_printed(judgekit: Run, results: str) -> None:
    other = write("other.jsonl", verdicts(*["accept"] * 70, *["reject"] * 30))
    done = judgekit("report", results, other, "--html", "page.html")
    assert (done.code, done.err) == (0, "judgekit: Wrote page.html\n")
    assert "other minus results     +10.0 points [" in done.out
    assert "Left out of the difference: 1 row that only the first results have" in done.out
    page = Path("page.html").read_text()
    for part in (
        "Results of results.jsonl",
        "accepted 60.0 % (50 to 69); other minus results: +10.0 points",
        "r65",
        "Rows",
    ):
        assert part in page, part


def test_a_text_of_a_row_is_never_obeyed_by_a_terminal_or_a_page(judgekit: Run) -> None:
    hostile = "\x1b[2J<script>alert(1)</script>[red]"
    rows = [
        {
            "id": f"{hostile}{n}",
            "verdict": "reject",
            "answer": hostile,
            "reasoning": hostile,
            "topic": hostile,
        }
        for n in range(3)
    ]
    done = judgekit("report", write("r.jsonl", rows), "--by", "topic", "--html", "page.html")
    assert (done.code, "\x1b" in done.out, "[red]" in done.out) == (0, False, True)
    page = Path("page.html").read_text()
    assert page.count("<script>") == 1
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("results.jsonl",) * 3, 64, "expected one or two files of results, got 3"),
        (("results.jsonl", "--by", "topic"), 64, "--by topic: results.jsonl has no such column"),
        (("nothing.jsonl",), 65, "nothing.jsonl: cannot be read"),
        (("results.jsonl", "--labels", "nothing.csv"), 65, "nothing.csv: cannot be read"),
        (("results.jsonl", "--html", "gone/page.html"), 65, "gone/page.html: cannot be written"),
        (
            ("results.jsonl", "--sample", "3", "--labels", "gone/l.csv"),
            65,
            "gone/l.csv: cannot be written",
        ),
        (
            ("results.jsonl", "--sample", "3", "--labels", "l.txt"),
            64,
            "unknown ending of a file of labels",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    judgekit: Run, results: str, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    done = judgekit("report", *arguments)
    assert (done.code, done.err.count("\n"), Path(results).exists()) == (code, 1, True)
    assert problem in done.err


def test_a_result_never_replaces_what_the_command_reads(judgekit: Run, results: str) -> None:
    Path("labels.csv").write_text("id,label\nr0,accept\n")
    Path("cases.csv").write_text("id,answer,label\na,x,accept\n")
    before = {
        path: path.read_bytes()
        for path in map(Path, (results, "labels.csv", "cases.csv", "good.md"))
    }
    for command in (
        ("report", results, "--html", results),
        ("report", results, "--out", f"./{results}"),
        ("report", results, "--labels", "labels.csv", f"--out={Path('labels.csv').resolve()}"),
        ("eval", "judge", "cases.csv", "--rubric", "kls", "--html", "cases.csv"),
        ("eval", "judge", "cases.csv", "--rubric", "kls", "--out", "cases.csv"),
        ("calibrate", "cases.csv", "--rubric", "kls", "--mode", "strict", "--out", "cases.csv"),
        ("judge", "good.md", "--out", "good.md"),
        ("report", results, "--sample", "3", "--labels", results),
    ):
        done = judgekit(*command)
        assert (done.code, done.out, done.err.count("\n")) == (64, "", 1), command
    assert {path: path.read_bytes() for path in before} == before
    assert judgekit("report", results, "--out", "new.txt").code == 0
    assert (
        judgekit("report", results, "--out", "new.txt").code == 0
    )  # an old result may be replaced


def test_what_was_not_counted_is_said(judgekit: Run) -> None:
    rounds = [{"tier": "quick", "latency_ms": 5, "usage": {"cost_usd": None}}]
    rubric = {
        "rubric": {"id": "kls", "version": "1.0.0"},
        "mode": "strict",
        "schema": "judgekit/verdict@1",
    }
    judged = {**rubric, "judge_tier": "quick", "rounds": rounds}
    own = {"model": "m", "judged": judged, "cost_usd": None}
    rows = [{"id": n, "verdict": "reject", "topic": n, **own} for n in range(150)]
    rows += [{"id": "u", "verdict": "undetermined", "topic": 0, "error": "timeout: too late"}]
    done = judgekit("report", write("r.jsonl", rows), "--by", "topic")
    for part in (
        "cost unknown",
        "Judged by kls@1.0.0, strict, m: 150 rows.",
        "No verdict for 1 row: timeout: too late.",
        "and 140 more; --html FILE shows the first 100 of them",
    ):
        assert part in done.out, part
    assert done.out.count("and 140 more") == 2  # of the worst rows and of the topics
    assert judgekit("report", "r.jsonl", "--json").json["tiers"]["quick"]["cost_usd"] is None


def test_the_rate_as_judged_has_an_interval(judgekit: Run) -> None:
    write("results.jsonl", verdicts(*["accept"] * 8, *["reject"] * 2))
    rate = judgekit("report", "results.jsonl", "--json").json["accept_rate"]
    assert rate["judged_low"] < rate["judged"] == 0.8 < rate["judged_high"]


@pytest.mark.parametrize("field", ["label", "winner"])
def test_labels_may_stand_in_the_results(judgekit: Run, field: str) -> None:
    words = {"label": ("accept", "reject"), "winner": ("A", "B")}[field]
    rows = [{**row, "people": row["verdict"]} for row in verdicts(*words, *words)]
    write("results.jsonl", rows)
    done = judgekit("report", "results.jsonl", "--map", f"{field}=people", "--json")
    assert done.json["labelled"]["labels"] == 4
    assert done.json["labelled"]["accuracy"]["value"] == 1


def test_labels_in_the_results_need_a_column(judgekit: Run, results: str) -> None:
    done = judgekit("report", results, "--map", "label=people")
    assert done.code == 65
    assert "--map label=COLUMN" in done.err


def test_the_agreement_of_both_results_is_told(judgekit: Run) -> None:
    first = write("first.jsonl", verdicts(*["accept"] * 10, *["reject"] * 10))
    second = write("second.jsonl", verdicts(*["accept"] * 15, *["reject"] * 5))
    labels = [{"id": f"r{n}", "label": "accept" if n < 10 else "reject"} for n in range(20)]
    words = ("report", first, second, "--labels", write("labels.jsonl", labels))
    found = judgekit(*words, "--json").json
    assert found["labelled"]["accuracy"]["value"] == 1
    assert found["labelled_second"]["accuracy"]["value"] == 0.75
    assert "second: agreement with labels  0.750 [" in judgekit(*words).out
