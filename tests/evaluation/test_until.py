"""Conditions on all rows, answered from some: which rows count, and how often an answer is wrong."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Literal

import pytest

from judgekit.evaluation.conditions import Totals, parse_condition
from judgekit.evaluation.until import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.evaluation.conditions import Condition

DRAWS = 200
MOST_WRONG = 19  # of 200 at 5 %: more have a probability of less than 1 in 100
AT_ONCE = 64


def condition(text: str, task: Literal["judge", "compare"] = "judge") -> Condition:
    return parse_condition(text, task, "--until")


def answer_of(text: str, words: Sequence[str], rows: int) -> Answer:
    answer = Answer(condition(text), rows)
    for place, word in enumerate(words):
        answer.note(place, word)
    return answer


EXACT: dict[str, tuple[str, dict[str, int], bool | None]] = {
    "at least, just": ("accept >= 0.9", {"accept": 9, "reject": 1}, True),
    "more than, just not": ("accept > 0.9", {"accept": 9, "reject": 1}, False),
    "at most, just": ("reject <= 0.1", {"accept": 9, "reject": 1}, True),
    "less than, just not": ("reject < 0.1", {"accept": 9, "reject": 1}, False),
    "a tenth that no float is": ("accept >= 0.3", {"accept": 3, "reject": 7}, True),
    "an improve isn't accepted": ("accept >= 0.9", {"accept": 8, "improve": 2}, False),
    "open rows don't help": ("accept >= 0.9", {"accept": 10, "undetermined": 90}, None),
    "open rows don't hurt": ("accept >= 0.9", {"reject": 90, "undetermined": 10}, False),
    "few open rows change nothing": ("accept >= 0.9", {"accept": 95, "escalate": 5}, True),
    "an open row may be a reject": ("reject <= 0.1", {"accept": 85, "undetermined": 15}, None),
    "open rows by name": ("undetermined <= 0.1", {"accept": 85, "escalate": 15}, False),
}


@pytest.mark.parametrize(("text", "counts", "holds"), EXACT.values(), ids=EXACT)
def test_a_condition_on_rows_that_are_all_judged(
    text: str, counts: dict[str, int], *, holds: bool | None
) -> None:
    rows = sum(counts.values())
    asked = condition(text)
    assert asked.holds(asked.count_rows(counts), rows) is holds


COMPARED: dict[str, tuple[str, dict[str, int], bool | None]] = {
    "more wins": ("A > B", {"A": 3, "B": 2, "tie": 5}, True),
    "as many wins": ("A > B", {"A": 3, "B": 3, "tie": 5}, False),
    "as many are at least as many": ("A >= B", {"A": 3, "B": 3}, True),
    "fewer wins": ("A < B", {"A": 2, "B": 3}, True),
    "a third text is neither": ("A > B", {"A": 3, "B": 2, "C": 90}, True),
    "an open row may be a win of either": ("A > B", {"A": 3, "B": 2, "undetermined": 1}, None),
    "a share of wins": ("B >= 0.5", {"A": 5, "B": 5}, True),
    "a share of ties": ("tie < 0.5", {"A": 5, "tie": 5}, False),
}


@pytest.mark.parametrize(("text", "counts", "holds"), COMPARED.values(), ids=COMPARED)
def test_a_condition_on_pairs(text: str, counts: dict[str, int], *, holds: bool | None) -> None:
    rows = sum(counts.values())
    asked = condition(text, "compare")
    assert asked.holds(asked.count_rows(counts), rows) is holds


def test_a_row_counts_only_after_those_that_were_drawn_before_it() -> None:
    answer = Answer(condition("accept >= 0.5"), 1_000)
    for place in range(1, 200):
        answer.note(place, "accept")
    assert answer.counted_rows == 0
    answer.note(0, "reject")
    assert answer.counted_rows == 200


def test_rows_without_a_verdict_settle_nothing() -> None:
    answer = answer_of("accept >= 0.5", ["undetermined"] * 900, rows=1_000)
    assert answer.holds is None
    assert answer.bounds() == Totals(0, 1_000)


def test_once_settled_an_answer_stays_until_all_rows_say_otherwise() -> None:
    words = ["accept"] * 40 + ["reject"] * 60
    assert answer_of("accept >= 0.5", words[:40], rows=100).holds is True
    assert answer_of("accept >= 0.5", words[:95], rows=100).holds is True
    assert answer_of("accept >= 0.5", words, rows=100).holds is False


def test_bounds_hold_what_is_true() -> None:
    answer = answer_of("accept >= 0.5", ["accept", "accept", "reject"] * 100, rows=1_000)
    bounds = answer.bounds()
    assert bounds.minimum < 667 < bounds.maximum
    assert bounds.maximum - bounds.minimum < 250


def finished(words: Sequence[str], rng: random.Random) -> list[int]:
    """Return the places of rows in the order in which they finish; a reject takes five times as long."""
    order = []
    at_work: list[tuple[float, int]] = []
    now = 0.0
    for place, word in enumerate(words):
        if len(at_work) == AT_ONCE:
            now, done = heapq.heappop(at_work)
            order.append(done)
        mean = 5.0 if word == "reject" else 1.0
        heapq.heappush(at_work, (now + rng.expovariate(1 / mean), place))
    return order + [place for _, place in sorted(at_work)]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.89, 0.9, 0.85])
@pytest.mark.parametrize("rows", [100, 1_000])
def test_an_answer_is_seldom_wrong_though_rejections_take_longer(share: float, rows: int) -> None:
    wrong = 0
    accepted = round(share * rows)
    for seed in range(DRAWS):
        rng = random.Random(f"{share} {rows} {seed}")
        words = ["accept"] * accepted + ["reject"] * (rows - accepted)
        rng.shuffle(words)
        answer = Answer(condition("accept >= 0.9"), rows)
        for place in finished(words, rng):
            answer.note(place, words[place])
            if answer.holds is not None:
                break
        wrong += answer.holds is not (share >= 0.9)
    assert wrong <= MOST_WRONG
