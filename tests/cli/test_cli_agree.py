"""Runs under a promise of agreement: rows that the first tier decides, rows for deep, and resuming."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agreeing import LARGE, SMALL, TwoModels, write_rows
from batching import BatchServer
from hooking import own_profile
from judged_by_decisions import deciding_before
from loopback import says
from scripted import scores

from judgekit.data import batches
from judgekit.judging.steps import PROMISED_ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcome import Run, Use

pytestmark = pytest.mark.usefixtures("project")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--out", "out.jsonl", "-j", "8")
LENIENT = (*JUDGE, "--mode", "lenient", "--agree", "0.8")
DEAR = (*JUDGE, "--mode", "lenient", "--agree", "0.9")
COUNT = 120
PILOT = 50
PRICES = "price: {small: {input: 1, output: 1}, large: {input: 100, output: 100}}"


@pytest.fixture
def server(use: Use, isolated: Path) -> Iterator[TwoModels]:
    own_profile(isolated, "openai-compatible", more=PRICES)
    with TwoModels() as running:
        use(running, quick=SMALL, deep=LARGE)
        yield running


def sure_and_unsure(count: int = COUNT) -> list[tuple[int, int | str]]:
    """Make rows: the small model is right about two thirds, and guesses the rest."""
    opinions: list[tuple[int, int | str]] = []
    for number in range(count):
        large = 5 if number % 2 else 1
        small = 3 if number % 3 == 0 else large
        opinions.append((small, large))
    return opinions


def half_unsure() -> list[tuple[int, int | str]]:
    """Make rows of which `deep` judges 50 to 90, depending on the draw, for 0.09 to 0.16 USD."""
    opinions: list[tuple[int, int | str]] = []
    for number in range(COUNT):
        large = 5 if number % 2 else 1
        opinions.append((3 if number % 4 < 2 else large, large))
    return opinions


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


def deciding_tiers() -> Counter[str | None]:
    return Counter(row["judged"]["judge_tier"] for row in read())


def test_the_first_tier_decides_rows_and_deep_is_asked_about_the_others(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    done = judgekit(*LENIENT)
    assert done.code == 0
    decided = deciding_tiers()
    assert decided.total() == COUNT
    assert decided["quick"] > COUNT * 0.3
    assert server.calls == {SMALL: COUNT, LARGE: COUNT - decided["quick"]}
    assert f"quick decided {decided['quick']} of {COUNT} rows" in done.err


def test_a_row_says_who_decided_it_under_which_promise(judgekit: Run, server: TwoModels) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    by_quick = next(row for row in read() if row["judged"]["judge_tier"] == "quick")
    promise = by_quick["judged"]["promise"]
    assert promise["share"] == 0.8
    assert promise["first"] == by_quick["verdict"]
    assert 0 < promise["rate"] < 1
    assert promise["sampled"] is False


def test_a_row_of_the_sample_has_the_verdict_of_deep_and_the_opinions_of_both(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    in_sample = next(row for row in read() if row["judged"]["promise"]["sampled"])
    assert in_sample["judged"]["judge_tier"] == "deep"
    assert [round_["tier"] for round_ in in_sample["judged"]["rounds"]] == ["quick", "deep"]


def test_after_a_pilot_a_model_that_cannot_pay_for_itself_is_asked_no_more(
    judgekit: Run, server: TwoModels, isolated: Path
) -> None:
    own_profile(isolated, "openai-compatible", more=PRICES.replace("input: 1,", "input: 60,"))
    opinions = [(5 if number % 2 else 1, 1 if number % 2 else 5) for number in range(COUNT)]
    write_rows(Path("rows.jsonl"), opinions)
    done = judgekit(*LENIENT)
    assert server.calls[SMALL] <= PILOT
    assert deciding_tiers() == {"deep": COUNT}
    assert "which doesn't pay for it; deep judges all" in done.err


def test_a_second_run_asks_nobody(judgekit: Run, server: TwoModels) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    calls = server.calls
    done = judgekit(*LENIENT, "--no-cache")
    assert server.calls == calls
    assert f"{COUNT} reused" in done.err


@pytest.mark.slow
def test_another_promise_is_decided_from_the_opinions_that_are_there(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    judgekit(*JUDGE, "--mode", "lenient", "--agree", "0.75", "--no-cache")
    assert {row["judged"]["promise"]["share"] for row in read()} == {0.75}
    assert max(server.asked[SMALL].values()) == 1
    assert max(server.asked[LARGE].values()) == 1


@pytest.mark.slow
def test_rows_without_a_promise_are_decided_anew(judgekit: Run, server: TwoModels) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*JUDGE, "--mode", "lenient")
    judgekit(*LENIENT)
    assert all("promise" in row["judged"] for row in read())


@pytest.mark.slow
def test_a_file_that_grew_is_promised_again_and_pays_for_its_new_rows(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    write_rows(Path("rows.jsonl"), sure_and_unsure(COUNT + 30))
    judgekit(*LENIENT, "--no-cache")
    assert len(read()) == COUNT + 30
    assert server.calls[SMALL] == COUNT + 30
    assert max(server.asked[LARGE].values()) == 1


@pytest.mark.slow
def test_opinions_that_this_user_did_not_write_count_for_nothing(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    Path("out.jsonl").unlink()
    opinions = Path("out.jsonl.agree.jsonl")
    opinions.write_text(opinions.read_text().replace('"margin": 1.0', '"margin": 9.0'))
    done = judgekit(*LENIENT)
    assert "not written by this user, and not used" in done.err


def test_below_fifty_rows_deep_judges_all(judgekit: Run, server: TwoModels) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure(49))
    done = judgekit(*LENIENT)
    assert server.calls == {SMALL: 0, LARGE: 49}
    assert "49 rows, fewer than 50, so deep is asked about all" in done.err


@pytest.mark.slow
def test_a_row_that_the_first_tier_fails_on_goes_up(judgekit: Run, server: TwoModels) -> None:
    opinions = sure_and_unsure()
    opinions[1] = (0, 5)  # no point of the scale
    write_rows(Path("rows.jsonl"), opinions)
    judgekit(*LENIENT)
    assert read()[1]["judged"]["judge_tier"] == "deep"
    assert read()[1]["judged"]["promise"]["first"] is None


@pytest.mark.slow
def test_a_strong_verdict_that_fails_is_no_agreement(judgekit: Run, server: TwoModels) -> None:
    opinions: list[tuple[int, int | str]] = []
    for number in range(COUNT):
        opinions.append((5, 5 if number % 5 == 0 else "x"))
    write_rows(Path("rows.jsonl"), opinions)
    judgekit(*LENIENT)
    undecided = [row for row in read() if row["verdict"] == "undetermined"]
    assert server.calls[LARGE] > COUNT * 0.4
    assert all("large=x" in row["answer"] for row in undecided)
    assert len(undecided) > COUNT * 0.3


@pytest.mark.slow
def test_a_row_that_changes_is_drawn_anew(judgekit: Run, server: TwoModels) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    before = [row["judged"]["promise"]["sampled"] for row in read()]
    text = Path("rows.jsonl").read_text()
    Path("rows.jsonl").write_text(text.replace("This is row", "This is now row"))
    judgekit(*LENIENT)
    after = [row["judged"]["promise"]["sampled"] for row in read()]
    assert before != after


@pytest.mark.slow
def test_a_report_of_results_with_a_damaged_promise_says_nothing_of_it(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    text = Path("out.jsonl").read_text()
    Path("out.jsonl").write_text(text.replace('"share": 0.8', '"share": "much"'))
    done = judgekit("report", "out.jsonl", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out).get("agreement") is None


@pytest.mark.slow
def test_in_strict_mode_acceptances_keep_the_promise_by_themselves(
    judgekit: Run, server: TwoModels
) -> None:
    """A tier that accepts everything is right about most rows, and may accept none of the bad ones."""
    opinions = [(5, 1 if number % 6 == 0 else 5) for number in range(COUNT)]
    write_rows(Path("rows.jsonl"), opinions)
    judgekit(*JUDGE, "--mode", "strict", "--agree", "0.8", "--agree-on", "accepted")
    final = [row for row in read() if row["judged"]["judge_tier"] == "quick"]
    wrong = [row for row in final if "large=1" in row["answer"]]
    assert len(wrong) <= 0.2 * len(final)


@pytest.mark.slow
def test_every_acceptance_is_confirmed_if_asked(judgekit: Run, server: TwoModels) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT, "--always-confirm", "accept")
    by_quick = [row for row in read() if row["judged"]["judge_tier"] == "quick"]
    assert {row["verdict"] for row in by_quick} == {"reject"}


def test_a_run_whose_money_ends_leaves_first_opinions_open(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), half_unsure())
    done = judgekit(*DEAR, "--max-cost", "0.05")
    open_rows = [row for row in read() if row["verdict"] == "undetermined"]
    assert done.code == 2
    assert deciding_tiers()["quick"] == 0
    assert open_rows
    assert "without a promise: --max-cost ended the run" in open_rows[0]["error"]


@pytest.mark.slow
def test_a_run_whose_money_ended_goes_on_without_paying_twice(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), half_unsure())
    judgekit(*DEAR, "--max-cost", "0.05", "--no-cache")
    judgekit(*DEAR, "--no-cache")
    assert max(server.asked[SMALL].values()) == 1
    assert max(server.asked[LARGE].values()) == 1
    assert deciding_tiers()["quick"] > 0


@pytest.mark.slow
def test_deep_answers_in_three_batches_at_most(
    judgekit: Run, server: TwoModels, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "POLL_SECONDS", (0.02, 0.05))
    monkeypatch.setattr(batches, "SETTLING_SECONDS", 0.05)
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    with BatchServer(server.judge) as in_batches:
        use(in_batches, quick=SMALL, deep=LARGE)
        judgekit(*LENIENT, "--batch")
    in_each = [
        {line["body"]["model"] for line in batch.lines} for batch in in_batches.batches.values()
    ]
    assert in_each == [{LARGE}] * len(in_each)
    assert 0 < len(in_each) <= 3
    assert deciding_tiers()["quick"] > 0
    assert server.calls[LARGE] == deciding_tiers()["deep"]


@pytest.mark.slow
def test_deep_is_asked_twice_to_see_whether_it_agrees_with_itself(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    done = judgekit(*LENIENT, "--noise", "20")
    assert sum(count == 2 for count in server.asked[LARGE].values()) == 20
    said = "deep agrees with itself on 20 of 20 rows that it judged twice"
    assert said in done.err
    assert said in judgekit("report", "out.jsonl").out


BESIDE = {
    "a model": ("--model", "openai-compatible/other"),
    "a depth": ("--depth", "quick"),
    "a review": ("--review", "peers"),
    "reasons": ("--explain",),
    "Ray": ("--on", "ray"),
}


@pytest.mark.parametrize("words", BESIDE.values(), ids=BESIDE)
def test_who_judges_cannot_be_said_beside_a_promise(
    judgekit: Run, server: TwoModels, words: tuple[str, ...]
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    done = judgekit(*LENIENT, *words)
    assert done.code == 64
    assert "--agree and" in done.err
    assert server.calls == {SMALL: 0, LARGE: 0}


def test_one_model_in_both_tiers_can_promise_nothing(judgekit: Run, use: Use) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    with TwoModels() as running:
        use(running, quick=LARGE, deep=LARGE)
        done = judgekit(*LENIENT)
    assert done.code == 64
    assert "name a cheaper one in judge.tiers.quick" in done.err


def test_without_a_key_nothing_is_asked(
    judgekit: Run, server: TwoModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgekit.data.seals.get_state_key", lambda: None)
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    done = judgekit(*LENIENT)
    assert done.code == 78
    assert "JUDGEKIT_STATE_KEY" in done.err
    assert server.calls == {SMALL: 0, LARGE: 0}


def test_a_report_says_the_same_of_the_promise_as_the_run(judgekit: Run, server: TwoModels) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    done = judgekit(*LENIENT)
    said = [line for line in done.err.splitlines() if line.startswith(("promise", "agreement"))]
    report = judgekit("report", "out.jsonl")
    assert said
    assert [line for line in said if line not in report.out] == []


@pytest.mark.slow
def test_the_report_in_json_has_the_figures_of_the_promise(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), sure_and_unsure())
    judgekit(*LENIENT)
    agreement = judgekit("report", "out.jsonl", "--json").json["agreement"]
    assert agreement["decided_by_first"] == deciding_tiers()["quick"]
    assert agreement["least"] >= 0.8


@pytest.mark.slow
@pytest.mark.parametrize("calls", [20, 60, 100, 150, 180])
def test_a_run_that_was_killed_goes_on_and_pays_for_nothing_twice(
    judgekit: Run, server: TwoModels, calls: int
) -> None:
    """It is killed while the pilot is judged, the first opinions, the sample, or the rest."""
    write_rows(Path("rows.jsonl"), half_unsure())
    words = [*DEAR, "--no-cache", "--no-engine"]
    with subprocess.Popen(
        [sys.executable, "-m", "judgekit", *words], stderr=subprocess.DEVNULL
    ) as run:
        while sum(server.calls.values()) < calls and run.poll() is None:
            time.sleep(0.01)
        run.kill()
    judgekit(*words)
    twice = sum(count - 1 for counter in server.asked.values() for count in counter.values())
    assert len(read()) == COUNT
    assert deciding_tiers()["quick"] > 0
    assert twice <= 8  # those that were being judged


@pytest.mark.slow
def test_the_same_promise_comes_out_after_a_run_was_killed(
    judgekit: Run, server: TwoModels
) -> None:
    write_rows(Path("rows.jsonl"), half_unsure())
    judgekit(*DEAR)
    before = [(row["id"], row["judged"]["judge_tier"]) for row in read()]
    Path("out.jsonl").unlink()
    judgekit(*DEAR)
    assert [(row["id"], row["judged"]["judge_tier"]) for row in read()] == before


def test_a_decision_model_may_accept_in_strict_mode_under_a_promise(
    judgekit: Run, isolated: Path
) -> None:
    """It has no calibration, and no reason to be told so: the sample says how far it's believed."""
    answers = [{"id": f"r{number}", "answer": f"Answer {number}: 5 days."} for number in range(80)]
    Path("rows.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    own_profile(isolated, "vllm-decisions", more="price: {small: {input: 1, output: 1}}")
    own_profile(isolated, "openai-compatible", more="price: {writer: {input: 100, output: 100}}")
    with deciding_before(says(scores(5, 5, 5))) as (decider, _):
        decider.level = 4
        done = judgekit(*JUDGE, "--mode", "strict", "--agree", "0.75")
    by_quick = [row for row in read() if row["judged"]["judge_tier"] == "quick"]
    assert by_quick, done.err
    assert {row["verdict"] for row in by_quick} == {"accept"}
    assert {row["judged"]["because"] for row in by_quick} == {PROMISED_ROW}
    assert {row["judged"]["degraded"] for row in by_quick} == {None}
