"""Decides whether a condition holds for all rows from those judged so far, in random order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from judgekit.evaluation.betting import Bets, bound_total
from judgekit.evaluation.conditions import Totals
from judgekit.text import format_count

if TYPE_CHECKING:
    from judgekit.evaluation.conditions import Condition

ERROR_PROBABILITY = 0.05
"""The highest probability of a wrong answer."""
CONFIDENCE = f"{1 - ERROR_PROBABILITY:.0%}".replace("%", " %")


@dataclass
class Answer:
    """Answers a condition on `row_count` rows from verdicts that may come in any order.

    A row counts once all those drawn before it have a verdict or have failed. If rows counted as they
    finish, slower ones, such as rejections, would be missing, and the answer would be wrong.
    """

    condition: Condition
    row_count: int
    counted_rows: int = 0
    """The number of rows that count so far: the first ones drawn."""
    _pending_words: dict[int, str] = field(default_factory=dict)
    _row_values: list[Totals] = field(default_factory=list)
    _min_total: int = 0
    _max_total: int = 0
    _settled_answer: bool | None = None

    def __post_init__(self) -> None:
        threshold = self.condition.threshold(self.row_count)
        whole = self.condition.largest_value * self.row_count
        self._bets_for = Bets(self.row_count, claimed_total=threshold - 1)
        self._bets_against = Bets(self.row_count, claimed_total=whole - threshold)

    def note(self, position: int, word: str) -> None:
        """Note the verdict of a row. Rows are drawn in random order, and `position` counts them from 0."""
        self._pending_words[position] = word
        # Verdicts can arrive out of order, but only count in the order in which the rows were drawn.
        while self.counted_rows in self._pending_words:
            self._count_row(self._pending_words.pop(self.counted_rows))

    def _count_row(self, word: str) -> None:
        """Count the next row, and check whether the condition is settled."""
        value = self.condition.count_row(word)
        self._row_values.append(value)
        self._min_total += value.minimum
        self._max_total += value.maximum
        self.counted_rows += 1

        is_settled = self._settled_answer is not None
        if not is_settled:
            self._bet_on_row(value)

    def _bet_on_row(self, value: Totals) -> None:
        """Bet a row's value on both sides: that the total reaches the threshold, and that it doesn't.

        A won bet settles the condition. A row without a verdict has a range of values, so each bet gets the
        end that's worse for it.
        """
        self._bets_for.add(value.minimum)
        # A low total means that the values are far below the largest one, so bet on this distance.
        self._bets_against.add(self.condition.largest_value - value.maximum)

        # Each bet is against a claim, and is won if the claim is refuted. `_bets_for` is against the claim
        # that the total is too low, `_bets_against` is against the claim that it's high enough.
        is_total_high_enough = self._bets_for.is_refuted
        is_total_too_low = self._bets_against.is_refuted
        if is_total_high_enough:
            self._settled_answer = self.condition.holds_from_threshold
        elif is_total_too_low:
            self._settled_answer = not self.condition.holds_from_threshold

    @property
    def is_complete(self) -> bool:
        """Whether all rows count."""
        return self.counted_rows == self.row_count

    @property
    def holds(self) -> bool | None:
        """Whether the condition holds. None means that it isn't settled yet."""
        if self.is_complete:
            return self._certain_answer
        return self._settled_answer

    @property
    def _certain_totals(self) -> Totals:
        """The lowest and highest possible total of all rows."""
        rows_left = self.row_count - self.counted_rows
        return Totals(self._min_total, self._max_total + self.condition.largest_value * rows_left)

    @property
    def _certain_answer(self) -> bool | None:
        """Whether the condition holds, whatever the remaining rows are. None if they could change that."""
        return self.condition.holds(self._certain_totals, self.row_count)

    def bounds(self) -> Totals:
        """Return bounds for the total of all rows: with 95 % confidence, or certain once all are counted."""
        if self.is_complete:
            return self._certain_totals

        largest = self.condition.largest_value
        minimums = [value.minimum for value in self._row_values]
        lower_bound = bound_total(minimums, self.row_count, largest)

        # `bound_total` only computes lower bounds. So find a lower bound for the distance between the total
        # and the largest possible total.
        shortfalls = [largest - value.maximum for value in self._row_values]
        least_shortfall = bound_total(shortfalls, self.row_count, largest)
        largest_total = largest * self.row_count
        upper_bound = largest_total - least_shortfall
        return Totals(lower_bound, upper_bound)

    def describe(self) -> str:
        """Describe whether the condition holds, how certain that is, and after how many rows it's known."""
        if self.holds is None:
            verb = "isn't settled"
        else:
            verb = "holds" if self.holds else "doesn't hold"

        totals = self.bounds()
        range_text = self.condition.describe_range(totals, self.row_count)
        answer = f"{self.condition} {verb} {self._describe_progress()} ({range_text})"

        # Once all rows are counted, the total is only a range if some rows have no verdict.
        lacks_verdicts = self.is_complete and totals.minimum != totals.maximum
        if lacks_verdicts:
            # Each of these rows widens the range by the largest value.
            rows_without_verdict = (totals.maximum - totals.minimum) // self.condition.largest_value
            answer += f"; {format_count(rows_without_verdict, 'row has', 'rows have')} no verdict"
        return answer

    def _describe_progress(self) -> str:
        """Describe how certain the answer is, and after how many rows, such as "after 20 of 100 rows"."""
        rows = format_count(self.row_count, "row", "rows")
        if self.is_complete:
            return f"after all {rows}"

        progress = f"after {self.counted_rows:,} of {rows}"
        if self.holds is None:
            return progress

        # While the other rows could still change the answer, `_certain_answer` is None.
        is_certain = self.holds == self._certain_answer
        if is_certain:
            return f"{progress}, whatever the others are"
        return f"with {CONFIDENCE} confidence {progress}"
