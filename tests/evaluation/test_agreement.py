"""A promise of agreement: the one that a sample allows, whether it's kept, and the calls it saves."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest

from judgekit.evaluation import agreement
from judgekit.evaluation.agreement import FirstOpinion, Promise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import Outcome
    from judgekit.judging.verdict import VerdictWord

ROWS = 200
DRAWS = 300
MOST_MISSED = 24  # of 300 at 5 %: as many or more have a probability of 1 in 90
LENIENT = Promise(0.9, on="accepted")
STRICT = LENIENT._replace(strict=True)


def binomial_tail(most: int, trials: int, rate: float) -> float:
    return sum(
        math.comb(trials, hits) * rate**hits * (1 - rate) ** (trials - hits)
        for hits in range(most + 1)
    )


@pytest.mark.parametrize("rate", [0.1, 0.35, 0.7])
@pytest.mark.parametrize("budget", [0, 3, 20, 61])
def test_a_sample_may_show_the_most_that_is_improbable_with_too_many_left_out(
    budget: int, rate: float
) -> None:
    allowed = agreement.max_sampled_disagreements(budget, rate, 0.05)
    more = allowed + 1
    assert binomial_tail(more, more + budget + 1, rate) > 0.05
    assert allowed < 0 or binomial_tail(allowed, allowed + budget + 1, rate) <= 0.05


def test_without_a_budget_nothing_is_allowed() -> None:
    assert agreement.max_sampled_disagreements(-1, 0.5, 0.05) == -1


def test_what_a_sample_left_out_at_most_turns_round_what_it_may_show() -> None:
    for_nine = agreement.max_unsampled_disagreements(9, 0.3, 0.05)
    assert agreement.max_sampled_disagreements(for_nine, 0.3, 0.05) >= 9
    assert agreement.max_sampled_disagreements(for_nine - 1, 0.3, 0.05) < 9


class Rows:
    """Made rows, each with the first tier's outcome, its certainty, and the strong judge's outcome."""

    def __init__(self, rows: Sequence[tuple[Outcome, float, VerdictWord]], seed: int) -> None:
        rng = random.Random(seed)
        self.rows = rows
        self.opinions = [
            FirstOpinion(number, outcome, sureness, rng.random(), rng.random())
            for number, (outcome, sureness, _) in enumerate(rows)
        ]

    def final(self, promise: Promise) -> frozenset[int]:
        plan = agreement.plan(self.opinions, len(self.rows), promise)
        strong_verdicts = {number: self.rows[number][2] for number in plan.sampled}
        return agreement.settle(plan, strong_verdicts).final

    def wrong(self, numbers: frozenset[int], promise: Promise) -> int:
        return sum(
            not promise.holds_for(self.rows[number][0], self.rows[number][2]) for number in numbers
        )


def wrong_from_a_place_on(right: int) -> list[tuple[Outcome, float, VerdictWord]]:
    """Make rows on which the surest opinions are right, and all others wrong: there the test is tightest."""
    rows: list[tuple[Outcome, float, VerdictWord]] = []
    for number in range(ROWS):
        strong: VerdictWord = "accept" if number < right else "reject"
        rows.append(("accept", 1 - number / ROWS, strong))
    return rows


@pytest.mark.parametrize("right", [0, 60, 150])
def test_a_promise_is_missed_once_in_twenty_at_most(right: int) -> None:
    missed = 0
    for seed in range(DRAWS):
        rows = Rows(wrong_from_a_place_on(right), seed)
        final = rows.final(LENIENT)
        missed += rows.wrong(final, LENIENT) > LENIENT.budget(ROWS)
    assert missed <= MOST_MISSED


def accepting_everything() -> list[tuple[Outcome, float, VerdictWord]]:
    """Make rows, one in eight of them bad, that the first tier all accepts."""
    rows: list[tuple[Outcome, float, VerdictWord]] = []
    for number in range(ROWS):
        strong: VerdictWord = "reject" if number % 8 == 0 else "accept"
        rows.append(("accept", 1.0, strong))
    return rows


def test_strict_acceptances_keep_the_promise_by_themselves() -> None:
    missed = 0
    for seed in range(DRAWS):
        rows = Rows(accepting_everything(), seed)
        final = rows.final(STRICT)
        missed += rows.wrong(final, STRICT) > STRICT.budget(len(final))
    assert missed <= MOST_MISSED


def test_a_first_tier_that_is_always_right_decides_most_rows() -> None:
    rows = Rows([("accept", 1.0, "accept")] * ROWS, seed=1)
    assert len(rows.final(LENIENT)) > ROWS * 0.6


def test_below_fifty_rows_nothing_is_final() -> None:
    rows = Rows([("accept", 1.0, "accept")] * (agreement.MIN_ROWS - 1), seed=1)
    assert rows.final(LENIENT) == frozenset()


def test_the_outcome_with_the_better_record_goes_on() -> None:
    """Rejections are always wrong: they use up nothing that the acceptances could have."""
    rows: list[tuple[Outcome, float, VerdictWord]] = []
    for _ in range(ROWS // 2):
        rows += [("accept", 0.5, "accept"), ("reject", 0.9, "accept")]
    final = Rows(rows, seed=3).final(LENIENT)
    accepted = {number for number in final if rows[number][0] == "accept"}
    assert len(accepted) > 0.8 * len(final)


def test_a_sampled_row_without_a_verdict_disagrees() -> None:
    rows = Rows([("accept", 1.0, "accept")] * ROWS, seed=1)
    plan = agreement.plan(rows.opinions, ROWS, LENIENT)
    final = agreement.settle(plan, {}).final
    assert len(final) <= LENIENT.budget(ROWS)


def test_a_row_that_the_strong_judge_knows_is_not_final() -> None:
    rows = Rows([("accept", 1.0, "accept")] * ROWS, seed=1)
    plan = agreement.plan(rows.opinions, ROWS, LENIENT)
    everything: dict[int, VerdictWord] = dict.fromkeys(range(ROWS), "accept")
    assert agreement.settle(plan, everything).final == frozenset()


@pytest.mark.parametrize("word", ["undetermined", "escalate"])
def test_an_open_strong_verdict_agrees_with_nothing(word: VerdictWord) -> None:
    assert not LENIENT.holds_for("reject", word)


def test_improve_agrees_with_reject_if_only_acceptance_counts() -> None:
    assert LENIENT.holds_for("improve", "reject")


def test_improve_is_another_word_than_reject() -> None:
    assert not Promise(0.9).holds_for("improve", "reject")
