"""`--until`: the end of a run over rows, its exit code, and a second run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import private_folder
from hooking import own_profile
from loopback import Loopback, fails, says
from scripted import scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loopback import Answer, Asked
    from outcome import Run, Served, Use

pytestmark = pytest.mark.usefixtures("project")
ROWS = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient", "--no-cache")
QUICK = (*ROWS, "--depth", "quick", "-j", "4")
JUDGE = (*QUICK, "--out", "out.jsonl")
PAIRS = ("compare", "--data", "pairs.jsonl", "--prompt", "p", "--no-cache", "-j", "4")
COUNT = 120
AT_ONCE = 32
PRICES = "price: {stand-in: {input: 100, output: 100}}"
POINTS = {"good": 5.0, "bad": 1.0}
_MARK = re.compile(r"row (\d+) is (good|bad|refused)")


class Judge(Loopback):
    """A model that gives each row the outcome named in its text; `asked` has the numbers of the rows."""

    def __init__(self) -> None:
        super().__init__(self.judge)
        self.asked: list[int] = []
        self.good = 0
        self.is_bad_last = False
        """Whether bad rows wait for the results of all good ones that are asked about."""
        self.held_from: int | None = None
        """How many rows are answered before all others wait for `released`."""
        self.is_held = threading.Event()
        self.released = threading.Event()

    def judge(self, asked: Asked) -> Answer:
        found = _MARK.search(asked.text)
        assert found is not None, asked.text
        number, word = found.groups()
        self.asked.append(int(number))
        self.good += word == "good"
        while word == "bad" and self.is_bad_last and not self.are_good_written():
            self.closing.wait(0.01)
        if self.held_from is not None and len(self.asked) > self.held_from:
            self.is_held.set()
            self.released.wait(60)
        if word == "refused":
            return fails(400, f"row {number} is refused")
        return says(scores(*[POINTS[word]] * 3))

    def are_good_written(self) -> bool:
        written = Path("out.jsonl").read_bytes().count(b"\n")
        return len(self.asked) >= AT_ONCE and written >= self.good


@pytest.fixture
def model(use: Use) -> Iterator[Judge]:
    with Judge() as server:
        use(server)
        yield server


def write_rows(words: Iterable[str]) -> None:
    lines = []
    for number, word in enumerate(words):
        row = {"id": f"r{number}", "answer": f"This row {number} is {word}."}
        lines.append(json.dumps(row) + "\n")
    Path("rows.jsonl").write_text("".join(lines))


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]


def mixed(good: int, other: str = "bad", count: int = COUNT) -> list[str]:
    return ["good"] * good + [other] * (count - good)


ENDS = {
    "holds": (mixed(COUNT), "accept >= 0.8", 0, "holds with 95 % confidence after"),
    "doesn't hold": (mixed(30), "accept >= 0.8", 1, "doesn't hold with 95 % confidence after"),
    "at most holds": (mixed(COUNT), "reject <= 0.2", 0, "holds with 95 % confidence after"),
    "at most doesn't hold": (mixed(30), "reject < 0.2", 1, "doesn't hold with 95 % confidence"),
}


@pytest.mark.parametrize(("words", "condition", "code", "said"), ENDS.values(), ids=ENDS)
def test_a_run_ends_as_soon_as_the_answer_is_certain_enough(
    judgekit: Run, model: Judge, words: list[str], condition: str, code: int, said: str
) -> None:
    write_rows(words)
    done = judgekit(*JUDGE, "--until", condition)
    assert done.code == code
    assert f"{condition} {said}" in done.err
    assert len(model.asked) < COUNT / 2


def test_rows_that_were_not_needed_are_counted_and_not_written(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    done = judgekit(*JUDGE, "--until", "accept >= 0.8")
    assert len(read()) == len(model.asked)
    assert f"{COUNT - len(model.asked)} rows not needed" in done.err


def test_results_are_in_the_order_of_the_input(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    judgekit(*JUDGE, "--until", "accept >= 0.8")
    numbers = [int(row["id"].removeprefix("r")) for row in read()]
    assert numbers == sorted(numbers)
    assert numbers != list(range(len(numbers)))


def test_rows_without_a_verdict_count_against_the_claim(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(10, "refused", count=40))
    done = judgekit(*JUDGE, "--until", "accept >= 0.9", "-j", "1")
    assert done.code == 2
    assert "accept >= 0.9 isn't settled after all 40 rows (0.250 to 1.000)" in done.err
    assert "30 rows have no verdict" in done.err


def test_rows_without_a_verdict_are_what_undetermined_means(judgekit: Run, model: Judge) -> None:
    write_rows(["good", "refused"] * 30)
    done = judgekit(*JUDGE, "--until", "undetermined <= 0.1")
    assert done.code == 1
    assert len(model.asked) < 60


def test_when_all_rows_are_judged_the_answer_is_exact(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(9, count=10))
    done = judgekit(*JUDGE, "--until", "accept >= 0.9")
    assert done.code == 0
    assert "accept >= 0.9 holds after all 10 rows (0.900)" in done.err


def test_an_answer_that_no_other_row_can_change_says_so(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(5, count=5))
    done = judgekit(*JUDGE, "--until", "reject <= 0.5", "-j", "1")
    assert done.code == 0
    assert "holds after 3 of 5 rows, whatever the others are (0.000 to 0.400)" in done.err


def test_slow_rows_are_waited_for_before_later_ones_count(judgekit: Run, model: Judge) -> None:
    """The good rows are written before any bad one: counted as they finish, they'd be all there is."""
    write_rows(["good", "bad"] * 50)
    model.is_bad_last = True
    done = judgekit(*JUDGE, "--until", "accept >= 0.6", "-j", str(AT_ONCE))
    assert done.code == 1


def test_a_second_run_draws_the_same_order_and_pays_for_nothing_twice(
    judgekit: Run, model: Judge
) -> None:
    write_rows(mixed(COUNT))
    judgekit(*JUDGE, "--until", "accept >= 0.8", "--limit", "10")
    first = list(model.asked)
    done = judgekit(*JUDGE, "--until", "accept >= 0.8")
    assert len(first) == 10
    assert len(model.asked) == len(set(model.asked))
    assert done.code == 0
    assert "10 reused" in done.err


def test_a_second_run_asks_nobody(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    judgekit(*JUDGE, "--until", "accept >= 0.8")
    before = len(model.asked)
    done = judgekit(*JUDGE, "--until", "accept >= 0.8")
    assert done.code == 0
    assert len(model.asked) == before


def test_after_a_row_has_changed_another_order_is_drawn(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    judgekit(*JUDGE, "--until", "accept >= 0.8")
    judged = set(model.asked)
    words = ["good" if number in judged else "bad" for number in range(COUNT)]
    write_rows(words)
    done = judgekit(*JUDGE, "--until", "accept >= 0.8")
    assert done.code == 1


def test_old_verdicts_that_were_not_needed_again_are_named(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    judgekit(*JUDGE, "--mode", "strict")
    before = len(model.asked)
    done = judgekit(*JUDGE, "--until", "accept >= 0.8")
    old = COUNT - (len(model.asked) - before)
    assert f"rows that this run did not come to: {old} by kls@1.0.0, strict" in done.err
    assert len(read()) == COUNT


def test_fresh_draws_anew(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    judgekit(*JUDGE, "--until", "accept >= 0.8", "--limit", "10")
    judgekit(*JUDGE, "--until", "accept >= 0.8", "--limit", "10", "--fresh")
    assert set(model.asked[:10]) != set(model.asked[10:])


def test_a_nonce_that_this_user_did_not_write_is_not_used(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    Path("out.jsonl.until.json").write_text(json.dumps({"nonce": "0" * 32, "seal": "0" * 32}))
    judgekit(*JUDGE, "--until", "accept >= 0.8")
    assert json.loads(Path("out.jsonl.until.json").read_text())["nonce"] != "0" * 32


def test_the_limit_is_one_on_the_draw(judgekit: Run, model: Judge) -> None:
    write_rows(mixed(COUNT))
    done = judgekit(*JUDGE, "--until", "accept >= 0.8", "--limit", "8")
    assert done.code == 2
    assert f"accept >= 0.8 isn't settled after 8 of {COUNT} rows" in done.err
    assert len(model.asked) == 8
    assert sorted(model.asked) != list(range(8))


def test_when_the_money_is_spent_nothing_is_settled(
    judgekit: Run, model: Judge, isolated: Path
) -> None:
    own_profile(isolated, "openai-compatible", more=PRICES)
    write_rows(mixed(COUNT))
    done = judgekit(*JUDGE, "--until", "accept >= 0.8", "--max-cost", "0.01", "-j", "1")
    assert done.code == 2
    assert "isn't settled" in done.err
    assert "because --max-cost is reached" in done.err


def test_rows_on_standard_input_are_read_before_any_is_judged(
    judgekit: Run, model: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(mixed(COUNT))
    with Path("rows.jsonl").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        done = judgekit(
            *[word.replace("rows.jsonl", "-") for word in QUICK], "--until", "accept > 0.8"
        )
    assert done.code == 0
    assert f"of {COUNT} rows" in done.err


def test_without_a_key_nothing_is_asked(
    judgekit: Run, model: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judgekit.data.seals.get_state_key", lambda: None)
    write_rows(mixed(COUNT))
    done = judgekit(*QUICK, "--until", "accept >= 0.8")
    assert done.code == 78
    assert "JUDGEKIT_STATE_KEY" in done.err
    assert model.asked == []


WRONG = {
    "no share": ("accept >= 90", "expected a share from 0 to 1"),
    "no number": ("accept >= most", "expected a share from 0 to 1"),
    "another operator": ("accept == 0.9", "expected a word, one of >=, >, <=, <"),
    "another word": ("accepted >= 0.9", "unknown word 'accepted'"),
    "a text": ("A > B", "unknown word 'A'"),
}


@pytest.mark.parametrize(("condition", "said"), WRONG.values(), ids=WRONG)
def test_a_condition_that_says_nothing_is_refused(
    judgekit: Run, model: Judge, condition: str, said: str
) -> None:
    write_rows(mixed(COUNT))
    done = judgekit(*QUICK, "--until", condition)
    assert done.code == 64
    assert f"--until: {said}" in done.err
    assert model.asked == []


def test_a_condition_without_quotes_is_recognised(judgekit: Run, model: Judge) -> None:
    """A shell makes two words of it, and writes to a file named =."""
    write_rows(mixed(COUNT))
    done = judgekit(*QUICK, "--until", "accept", "0.9")
    assert done.code == 64
    assert "--until: put the condition in quotes" in done.err


BESIDE = {
    "a promise": ("--agree", "0.9"),
    "batches": ("--batch",),
    "Ray": ("--on", "ray"),
    "outcomes": ("--exit-on", "reject"),
}


@pytest.mark.parametrize("words", BESIDE.values(), ids=BESIDE)
def test_what_cannot_stop_early_is_refused_beside_it(
    judgekit: Run, model: Judge, words: tuple[str, ...]
) -> None:
    write_rows(mixed(COUNT))
    done = judgekit(*ROWS, "--out", "out.jsonl", "--until", "accept >= 0.8", *words)
    assert done.code == 64
    assert f"--until and {words[0]}" in done.err
    assert model.asked == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["0", "1"])
def test_an_interrupted_run_goes_on_in_the_same_order(
    use: Use, model: Judge, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    write_rows(mixed(COUNT))
    words = [sys.executable, "-m", "judgekit", *JUDGE, "--until", "accept >= 0.9"]
    model.held_from = 10
    with private_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.setenv("JUDGEKIT_ENGINE", engine)
        child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert model.is_held.wait(60)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        assert child.returncode == 130
        assert "accept >= 0.9 isn't settled after" in err
        model.released.set()
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(model.asked) <= len(set(model.asked)) + 4


# --- Pairs


def write_pairs(winners: Iterable[str]) -> None:
    """Write pairs in which the good text wins; two of them are ties."""
    lines = []
    for number, winner in enumerate(winners):
        row: dict[str, object] = {"id": number}
        for letter in ("a", "b"):
            is_good = winner in ("tie", letter.upper())
            row[letter] = f"{'good' if is_good else 'bad'} {number}{letter}"
        lines.append(json.dumps(row) + "\n")
    Path("pairs.jsonl").write_text("".join(lines))


def prefer_good(asked: Asked) -> Answer:
    names = re.findall(r"The text (\w+):\s+<[^>]*>\s+good", asked.text)
    better = names[0] if len(names) == 1 else "tie"
    return says(json.dumps({"reasoning": "It is better.", "better": better}))


BETTER = {
    "A wins more": (["A", "A", "A", "tie"], "A > B", 0),
    "B wins more": (["B", "B", "B", "tie"], "A > B", 1),
    "not one wins": (["tie"], "A > B", 1),
    "at least as often": (["tie"], "A >= B", 0),
    "a share": (["A", "A", "A", "tie"], "tie <= 0.6", 0),
}


@pytest.mark.parametrize(("winners", "condition", "code"), BETTER.values(), ids=BETTER)
def test_pairs_are_compared_until_it_is_clear_who_wins(
    served: Served, winners: list[str], condition: str, code: int
) -> None:
    write_pairs(winners * (COUNT // len(winners)))
    done, _ = served(prefer_good, *PAIRS, "--until", condition)
    assert done.code == code


def test_it_takes_few_pairs(served: Served) -> None:
    write_pairs(["A", "A", "A", "tie"] * (COUNT // 4))
    done, _ = served(prefer_good, *PAIRS, "--until", "A > B")
    assert len(done.out.splitlines()) < COUNT / 2
