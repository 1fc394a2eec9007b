"""Reports: counts, rates with honest bounds, agreement with labels, differences, win rates, and samples."""

from __future__ import annotations

import csv
import io
import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from judgekit.data.labels import add_sample, open_results, read_labels
from judgekit.data.report import ResultsReport, summarise
from judgekit.data.rows import open_rows
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def report(path: str, labels: Mapping[str, str] | None = None, **more: Any) -> ResultsReport:  # noqa: ANN401
    return summarise(open_results(open_rows(path, io.BytesIO())), path, labels, **more)


def verdicts(**words: int) -> list[dict[str, Any]]:
    """Return rows with this many of each verdict, numbered from 0."""
    flat = [word for word, count in words.items() for _ in range(count)]
    return [{"id": number, "verdict": word} for number, word in enumerate(flat)]


def test_rows_need_an_id_and_a_verdict_and_no_more(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.jsonl", verdicts(accept=6, improve=1, reject=1, undetermined=1, escalate=1)
    )
    found = report(path)
    assert found.verdicts == {
        "accept": 6,
        "improve": 1,
        "reject": 1,
        "undetermined": 1,
        "escalate": 1,
    }
    assert (found.rows, found.undetermined, found.task) == (10, 2, "judge")
    assert found.accept_rate is not None
    assert (found.accept_rate.judged, found.accept_rate.corrected) == (0.75, None)
    assert [each.verdict for each in found.worst] == ["reject", "improve"]
    theirs: list[dict[str, Any]] = [
        {"id": "a", "verdict": "PASS", "judged": {"rounds": 3}},
        {"id": "b", "verdict": False},
    ]
    other = write(tmp_path / "o.jsonl", theirs)
    assert report(other).verdicts == {"accept": 1, "reject": 1}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": "a"}, "row 2: expected the columns id and verdict"),
        ({"verdict": "accept"}, "row 2: expected the columns id and verdict"),
        ({"id": "a", "verdict": "great"}, "row 2: unknown verdict 'great'"),
        ({"id": "x", "verdict": "accept"}, "row 2: duplicate id 'x' (row 1); keep one"),
    ],
)
def test_a_row_that_is_no_result_is_named(
    tmp_path: Path, row: dict[str, Any], problem: str
) -> None:
    path = write(tmp_path / "r.jsonl", [{"id": "x", "verdict": "accept"}, row])
    with pytest.raises(InputError) as raised:
        report(path)
    assert problem in str(raised.value)
    with pytest.raises(InputError, match="no row; name a file"):
        report(write(tmp_path / "none.jsonl", []))


def full(number: int, word: str, score: float, tier: str) -> dict[str, Any]:
    rounds = [{"tier": "quick", "latency_ms": 500, "usage": {"cost_usd": 0.001}}]
    rounds += [
        {"tier": "deep", "latency_ms": 2000, "failure": {"kind": "timeout"}, "usage": None}
    ] * (tier == "deep")
    return {
        "id": number,
        "answer": f"Answer {number}",
        "verdict": word,
        "average": score,
        "scores": {"clear": score},
        "reasoning": "because",
        "cost_usd": 0.001,
        "judged": {"schema": "judgekit/verdict@1", "judge_tier": tier, "rounds": rounds},
    }


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_scores_tiers_costs_and_the_worst_rows(tmp_path: Path, form: str) -> None:
    rows = [
        full(1, "accept", 4, "quick"),
        full(2, "reject", 2, "deep"),
        full(3, "reject", 1, "quick"),
    ]
    path = write(tmp_path / "r.jsonl", rows)
    if form == "csv":
        flat = [
            {**row, "score.clear": row["average"], "judged": json.dumps(row["judged"])}
            for row in rows
        ]
        path = str(tmp_path / "r.csv")
        with (tmp_path / "r.csv").open("w", newline="") as file:
            writer = csv.DictWriter(
                file, [name for name in flat[0] if name != "scores"], extrasaction="ignore"
            )
            writer.writeheader()
            writer.writerows(flat)
    found = report(path)
    assert found.dimensions == {"clear": {"1": 1, "2": 1, "4": 1}}
    assert found.tiers == {
        "quick": {
            "decided": 2,
            "answered": 3,
            "failed": 0,
            "seconds": 1.5,
            "cost_usd": pytest.approx(0.003),
            "unpriced": 0,
        },
        "deep": {
            "decided": 1,
            "answered": 0,
            "failed": 1,
            "seconds": 2,
            "cost_usd": 0,
            "unpriced": 0,
        },
    }
    assert found.cost_usd == pytest.approx(0.003)
    assert [(each.id, each.text, each.reasoning) for each in found.worst] == [
        ("3", "Answer 3", "because"),
        ("2", "Answer 2", "because"),
    ]


def test_labels_are_compared_and_correct_the_rate(tmp_path: Path) -> None:
    """The judge accepts all that people accept, and half of the rest: 60 % are good, 80 % judged so."""
    rows = verdicts(accept=800, reject=200)
    labels = {str(n): "accept" if n < 600 else "improve" for n in range(0, 1000, 10)} | {
        "gone": "reject"
    }
    found = report(
        write(tmp_path / "r.jsonl", [*rows, {"id": "u", "verdict": "undetermined"}]), labels
    )
    rate, known = found.accept_rate, found.labelled
    assert rate is not None
    assert known is not None
    assert (rate.judged, rate.labels, known.labels, known.left_out) == (0.8, 100, 100, 1)
    assert rate.corrected == pytest.approx(0.6, abs=0.01)
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < 0.6 < rate.high < 0.8
    assert known.confusion == {"accept": {"accept": 60}, "improve": {"accept": 20, "reject": 20}}
    assert {(each.label, each.verdict) for each in known.wrong} == {
        ("improve", "accept"),
        ("improve", "reject"),
    }


@pytest.mark.parametrize(
    ("labels", "needs"),
    [
        (["accept"] * 10 + ["reject"] * 2, "12 labels are too few; 18 more would do"),
        (["accept"] * 40, "no label says anything but accept; 14 more would do"),
        (["reject"] * 40, "no label says accept; 2 more would do"),
    ],
)
def test_too_few_labels_bring_no_corrected_rate_but_how_many_more_would_do(
    tmp_path: Path, labels: list[str], needs: str
) -> None:
    path = write(tmp_path / "r.jsonl", verdicts(accept=160, reject=40))
    found = report(path, {str(number): word for number, word in enumerate(labels)})
    assert (found.needs, found.accept_rate and found.accept_rate.corrected) == (needs, None)


@pytest.mark.slow
def test_the_bounds_hold_the_truth_also_for_a_bad_judge_and_a_rare_kind() -> None:
    """At least 93 of 100 times; and for a good judge they are narrower than those of the labels alone."""
    for truth, sensitivity, specificity in ((0.5, 0.9, 0.9), (0.9, 0.6, 0.4), (0.05, 0.7, 0.99)):
        generator, held, widths = Random(3), 0, []
        people = [float(generator.random() < truth) for _ in range(2000)]
        said = [
            float(generator.random() < (sensitivity if good else 1 - specificity))
            for good in people
        ]
        for _ in range(100):
            drawn = set(generator.sample(range(2000), 60))
            pairs = [(said[each], people[each]) for each in drawn]
            others = [said[n] for n in range(2000) if n not in drawn]
            corrected = stats.corrected_mean(pairs, others)
            low, high = corrected.bounds
            least, most = stats.adjusted_mean([right for _, right in pairs], (0, 0, 1, 1)).bounds
            held += low <= sum(people) / 2000 <= high
            widths.append((high - low) / (most - least))
        assert held >= 93, truth
        assert sum(widths) / 100 < (0.75 if sensitivity == 0.9 else 1.1)


def test_all_rows_labelled_is_the_rate_of_the_labels() -> None:
    corrected = stats.corrected_mean([(1, 1), (1, 0), (0, 0), (1, 1)] * 20, [])
    assert (corrected.value, corrected.low < 0.5 < corrected.high) == (0.5, True)
    assert stats.corrected_mean([(1, 1)] * 40, [1.0] * 100).high == 1


def test_two_results_are_compared_row_by_row(tmp_path: Path) -> None:
    first = write(tmp_path / "1.jsonl", verdicts(accept=50, reject=50, undetermined=1))
    second = {str(n): "accept" if n < 60 else "reject" for n in range(99)} | {
        "new": "accept",
        "100": "accept",
    }
    found = report(first, second=("2.jsonl", second)).difference
    assert found is not None
    assert (found.rows, found.only_first, found.only_second, found.differing) == (99, 1, 1, 10)
    assert found.value == pytest.approx(10 / 99)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < 10 / 99 < found.high < 0.2
    assert {(each.verdict, each.second) for each in found.rows_that_differ} == {
        ("reject", "accept")
    }


def test_each_value_of_a_column_is_reported(tmp_path: Path) -> None:
    rows = [{**row, "topic": "ab"[row["id"] % 2]} for row in verdicts(accept=120, reject=80)]
    labels = {str(n): "accept" if n < 100 else "reject" for n in range(0, 200, 2)}
    found = report(write(tmp_path / "r.jsonl", rows), labels, column="topic")
    a, b = found.groups
    assert (a.value, a.rows, a.rate and a.rate.corrected, a.needs) == ("a", 100, 0.5, None)
    assert (b.value, b.rate and b.rate.corrected) == ("b", None)
    assert b.needs == "0 labels are too few; 30 more would do"
    with pytest.raises(UsageError, match=r"--by theme: .* has no such column"):
        report(str(tmp_path / "r.jsonl"), column="theme")


def test_comparisons_have_win_rates_and_above_two_texts_a_matrix(tmp_path: Path) -> None:
    pairs = [
        {"id": n, "verdict": word}
        for n, word in enumerate(["A"] * 6 + ["B"] * 2 + ["tie"] * 2 + ["escalate"])
    ]
    found = report(write(tmp_path / "p.jsonl", pairs))
    wins = {
        letter: (each.wins, each.ties, each.losses, each.rate)
        for letter, each in found.win_rates.items()
    }
    assert wins == {"A": (6, 2, 2, 0.7), "B": (2, 2, 6, pytest.approx(0.3))}
    assert (found.task, found.accept_rate, found.matrix, found.worst) == ("compare", None, {}, [])
    three = [
        {"id": n, "verdict": "C", "scores": {"A": 1, "B": 1 + n % 2, "C": 5}} for n in range(10)
    ]
    matrix = report(write(tmp_path / "t.jsonl", three)).matrix
    assert (matrix["B"]["A"].wins, matrix["B"]["A"].ties, matrix["A"]["C"].losses) == (5, 5, 10)
    assert matrix["B"]["A"].rate == pytest.approx(1 - matrix["A"]["B"].rate)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_sample_is_random_grows_and_keeps_what_people_wrote(tmp_path: Path, ending: str) -> None:
    rows = [
        {**row, "text": f"é, {row['id']}", "label": "mine", "scores": {"x": 1}}
        for row in verdicts(accept=500, reject=500, escalate=5)
    ]
    path, sheet = write(tmp_path / "r.jsonl", rows), str(tmp_path / f"labels.{ending}")

    def source() -> Any:  # noqa: ANN401
        return open_results(open_rows(path, io.BytesIO()))

    def rows_of() -> list[Mapping[str, Any]]:
        return [row.columns for row in open_rows(sheet, io.BytesIO())]  # type: ignore[union-attr]

    assert add_sample(source(), sheet, 40) == (40, 40)
    first = rows_of()
    assert [list(row) for row in first] == [["id", "label", "text"]] * 40
    assert {row["label"] for row in first} == {""}
    assert 10 < sum(int(row["id"]) < 500 for row in first) < 30
    kept = (tmp_path / f"labels.{ending}").read_text().rstrip("\n")
    (tmp_path / f"labels.{ending}").write_text(kept)  # an editor took the last line end away
    assert add_sample(source(), sheet, 10) == (10, 50)
    assert rows_of()[:40] == first
    assert len({row["id"] for row in rows_of()}) == 50
    assert add_sample(source(), sheet, 5000) == (950, 1000)
    assert add_sample(source(), sheet, 1) == (0, 1000)
    assert read_labels(open_rows(sheet, io.BytesIO())).label_by_id == {}
    with pytest.raises(UsageError, match=r"expected \.csv, \.tsv or \.jsonl"):
        add_sample(source(), str(tmp_path / "labels.parquet"), 1)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [{"id": "a", "label": "accept"}, {"id": "a", "label": "reject"}],
            "row 2: two labels for the id 'a'",
        ),
        ([{"id": "a"}], "row 1: expected the columns id and label"),
    ],
)
def test_a_wrong_label_is_named(tmp_path: Path, rows: list[dict[str, Any]], problem: str) -> None:
    path = write(tmp_path / "l.jsonl", rows)
    with pytest.raises(InputError) as raised:
        read_labels(open_rows(path, io.BytesIO()))
    assert problem in str(raised.value)
