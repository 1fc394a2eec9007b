"""Decides whether a condition holds for all rows from those judged so far, in random order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from judgekit.evaluation.betting import Bets, bound_total
from judgekit.evaluation.conditions import Totals
from judgekit.text import counted

if TYPE_CHECKING:
    from judgekit.evaluation.conditions import Condition

WRONG = 0.05
"""The highest probability of a wrong answer."""
CONFIDENCE = f"{1 - WRONG:.0%}".replace("%", " %")


@dataclass
class Answer:
    """Answers a condition on `rows` rows from verdicts that may come in any order.

    A row counts once all those drawn before it have a verdict or have failed. If rows counted as they
    finish, slower ones, such as rejections, would be missing, and the answer would be wrong.
    """

    condition: Condition
    rows: int
    count: int = 0
    """The number of rows that count so far: the first ones drawn."""
    _pending_words: dict[int, str] = field(default_factory=dict)
    _row_values: list[Totals] = field(default_factory=list)
    _min_total: int = 0
    _max_total: int = 0
    _settled_answer: bool | None = None

    def __post_init__(self) -> None:
        enough = self.condition.enough(self.rows)
        whole = self.condition.largest * self.rows
        self._bets_for = Bets(self.rows, claimed_total=enough - 1)
        self._bets_against = Bets(self.rows, claimed_total=whole - enough)

    def note(self, position: int, word: str) -> None:
        """Note the verdict of a row. Rows are drawn in random order, and `position` counts them from 0."""
        self._pending_words[position] = word
        # Verdicts can arrive out of order, but only count in the order in which the rows were drawn.
        while self.count in self._pending_words:
            self._count_row(self._pending_words.pop(self.count))

    def _count_row(self, word: str) -> None:
        """Count the next row, and check whether the condition is settled.

        `_bets_for` bets against the claim that the total is too low. If the bets refute this claim, the total
        is high enough. `_bets_against` bets against the claim that the total is high enough.
        """
        value = self.condition.count_row(word)
        self._row_values.append(value)
        self._min_total += value.minimum
        self._max_total += value.maximum
        self.count += 1
        if self._settled_answer is not None:
            return

        # The value of a row without a verdict is only known to be in a range. Bet with the range's less
        # favourable end.
        self._bets_for.add(value.minimum)
        # To bet on a low total, add how far the value is below the largest one.
        self._bets_against.add(self.condition.largest - value.maximum)
        if self._bets_for.is_refuted:
            self._settled_answer = self.condition.wants_enough
        elif self._bets_against.is_refuted:
            self._settled_answer = not self.condition.wants_enough

    @property
    def is_complete(self) -> bool:
        """Whether all rows count."""
        return self.count == self.rows

    @property
    def holds(self) -> bool | None:
        """Whether the condition holds. None means that it isn't settled yet."""
        if self.is_complete:
            return self._certainly_holds
        return self._settled_answer

    @property
    def _certain_totals(self) -> Totals:
        """The lowest and highest possible total of all rows."""
        rows_left = self.rows - self.count
        return Totals(self._min_total, self._max_total + self.condition.largest * rows_left)

    @property
    def _certainly_holds(self) -> bool | None:
        return self.condition.holds(self._certain_totals, self.rows)

    def bounds(self) -> Totals:
        """Return bounds for the total of all rows. They have 95 % confidence, and are exact at the end."""
        if self.is_complete:
            return self._certain_totals
        largest = self.condition.largest
        least_values = [value.minimum for value in self._row_values]
        # For the upper bound, compute a lower bound for the distance to the largest possible total.
        distances = [largest - value.maximum for value in self._row_values]
        lower_bound = bound_total(least_values, self.rows, largest)
        upper_bound = largest * self.rows - bound_total(distances, self.rows, largest)
        return Totals(lower_bound, upper_bound)

    def describe(self) -> str:
        """Describe whether the condition holds, how certain that is, and after how many rows it's known."""
        verb = {True: "holds", False: "doesn't hold", None: "isn't settled"}[self.holds]
        totals = self.bounds()
        range_text = self.condition.describe_range(totals, self.rows)
        rows = counted(self.rows, "row", "rows")

        if self.is_complete:
            answer = f"{self.condition} {verb} after all {rows} ({range_text})"
        elif self.holds is None:
            answer = f"{self.condition} {verb} after {self.count:,} of {rows} ({range_text})"
        elif self.holds == self._certainly_holds:
            after = f"after {self.count:,} of {rows}, whatever the others are"
            answer = f"{self.condition} {verb} {after} ({range_text})"
        else:
            after = f"with {CONFIDENCE} confidence after {self.count:,} of {rows}"
            answer = f"{self.condition} {verb} {after} ({range_text})"

        # If rows without a verdict remain, add their number.
        if self.is_complete and totals.minimum != totals.maximum:
            open_rows = (totals.maximum - totals.minimum) // self.condition.largest
            answer += f"; {counted(open_rows, 'row has', 'rows have')} no verdict"
        return answer
