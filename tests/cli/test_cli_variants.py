"""`judge --data` with several models or rubrics: a verdict by each, and one outcome; and names of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import fails, says
from scripted import by_content, scores

if TYPE_CHECKING:
    from loopback import Answer, Asked
    from outcome import Outcome, Run, Served

pytestmark = pytest.mark.usefixtures("project")
JUDGE = ("judge", "--data", "rows.jsonl", "--mode", "lenient", "--rubric", "kls", "--no-cache")
ROWS = [{"id": 1, "text": "good"}, {"id": 2, "text": "good\nTODO"}]
KIND, HARD, SILENT = (f"openai-compatible/{name}" for name in ("kind", "hard", "silent"))
BOTH = ("--model", KIND, "--model", HARD)


@pytest.fixture(autouse=True)
def rows(project: Path) -> None:
    (project / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))


def one_is_kind(asked: Asked) -> Answer:
    """Reject TODO, but let the model called `kind` accept all, and the one called `silent` fail."""
    if asked.body["model"] == "silent":
        return fails(400, "no")
    if asked.body["model"] == "kind":
        return says(scores(4, 4, 5))
    return by_content(asked)


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().split("\n") if line]


def verdicts(column: str = "verdict") -> list[str]:
    return [row[column] for row in results()]


def judged(served: Served, *options: str) -> Outcome:
    done, _ = served(one_is_kind, *JUDGE, "--out", "out.jsonl", *options)
    return done


@pytest.mark.parametrize(
    ("combine", "expected"), [("all", ["accept", "reject"]), ("any", ["accept", "accept"])]
)
def test_verdicts_of_several_models_make_one(
    served: Served, combine: str, expected: list[str]
) -> None:
    done = judged(served, *BOTH, "--combine", combine, "--exit-on", "never")
    assert verdicts() == expected, done.err


@pytest.mark.parametrize(
    ("model", "expected"), [(KIND, ["accept", "accept"]), (HARD, ["accept", "reject"])]
)
def test_each_model_has_a_column(served: Served, model: str, expected: list[str]) -> None:
    judged(served, *BOTH)
    assert verdicts(f"verdict.{model}") == expected


@pytest.mark.parametrize(
    ("combine", "other", "expected"),
    [
        ("all", KIND, ["undetermined", "undetermined"]),
        ("all", HARD, ["undetermined", "reject"]),
        ("any", KIND, ["accept", "accept"]),
        ("any", HARD, ["accept", "undetermined"]),
    ],
)
def test_a_model_without_an_answer_leaves_a_row_open_unless_the_other_settles_it(
    served: Served, combine: str, other: str, expected: list[str]
) -> None:
    judged(served, "--model", SILENT, "--model", other, "--combine", combine)
    assert verdicts() == expected


def test_a_record_has_the_calls_of_all(served: Served) -> None:
    judged(served, *BOTH)
    assert len(results()[0]["judged"]["rounds"]) == 2


def test_several_rubrics_have_a_column_each(served: Served) -> None:
    judged(served, "--rubric", "code-review")
    assert {"verdict.kls", "verdict.code-review"} <= set(results()[0])


def test_a_second_run_asks_nothing(served: Served) -> None:
    judged(served, *BOTH, "--combine", "any")
    _, asked = served(one_is_kind, *JUDGE, "--out", "out.jsonl", *BOTH, "--combine", "any")
    assert not asked


def test_another_combination_is_judged_anew(served: Served) -> None:
    judged(served, *BOTH)
    judged(served, *BOTH, "--combine", "any")
    assert verdicts() == ["accept", "accept"]


def test_an_own_column_keeps_its_value(served: Served) -> None:
    name = f"verdict.{KIND}"
    Path("rows.jsonl").write_text(json.dumps({"id": 1, "text": "good", name: "mine"}))
    judged(served, *BOTH)
    assert verdicts(f"row.{name}") == ["mine"]


REFUSED = {
    "documents": (("judge", "good.md", *BOTH), "--model is given twice: that is for rows"),
    "both": (
        (*JUDGE, *BOTH, "--rubric", "code-review"),
        "--rubric and --model are both given twice",
    ),
    "the same": ((*JUDGE, "--model", KIND, "--model", KIND), "the same value is given twice"),
    "a promise": ((*JUDGE, *BOTH, "--agree", "0.95"), "--agree goes with one --model"),
    "batches": ((*JUDGE, *BOTH, "--batch", "--out", "out.jsonl"), "--batch goes with one --model"),
    "an estimate": ((*JUDGE, *BOTH, "--estimate"), "estimate each by itself"),
    "prompts": ((*JUDGE, *BOTH, "--show-prompt"), "show each by itself"),
    "a run without a file": ((*JUDGE, "--run", "a"), "--run names the rows of an --out"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_options_that_do_not_go_together(
    judgekit: Run, words: tuple[str, ...], message: str
) -> None:
    done = judgekit(*words)
    assert message in done.err
    assert done.code == 64


# Names of runs


def test_each_row_has_the_name_of_its_run(served: Served) -> None:
    judged(served, "--run", "monday")
    assert verdicts("run") == ["monday", "monday"]


def test_without_a_name_there_is_no_column(served: Served) -> None:
    judged(served)
    assert "run" not in results()[0]


def test_a_run_of_another_name_is_refused(served: Served) -> None:
    judged(served, "--run", "monday")
    done = judged(served, "--run", "tuesday")
    assert "it has rows of the run 'monday'" in done.err
    assert done.code == 64


def test_without_a_name_any_run_goes_on(served: Served) -> None:
    judged(served, "--run", "monday", "--limit", "1")
    judged(served)
    assert [row.get("run") for row in results()] == ["monday", None]


def test_an_own_column_called_run_keeps_its_value(served: Served) -> None:
    Path("rows.jsonl").write_text('{"id": 1, "text": "good", "run": "mine"}')
    judged(served, "--run", "monday")
    assert verdicts("row.run") == ["mine"]
