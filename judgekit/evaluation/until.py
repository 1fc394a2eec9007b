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
    _words_by_place: dict[int, str] = field(default_factory=dict)
    _counted_totals: list[Totals] = field(default_factory=list)
    _least_total: int = 0
    _most_total: int = 0
    _settled_answer: bool | None = None

    def __post_init__(self) -> None:
        enough = self.condition.enough(self.rows)
        whole = self.condition.largest * self.rows
        self._bets_for = Bets(self.rows, most=enough - 1)
        self._bets_against = Bets(self.rows, most=whole - enough)

    def note(self, position: int, word: str) -> None:
        """Note the verdict of the row drawn at this place, from 0."""
        self._words_by_place[position] = word
        while self.count in self._words_by_place:
            self._count_row(self._words_by_place.pop(self.count))

    def _count_row(self, word: str) -> None:
        """Count one more row, and note if the condition is now certain to hold, or certain not to."""
        number = self.condition.count_row(word)
        self._counted_totals.append(number)
        self._least_total += number.least
        self._most_total += number.most
        self.count += 1
        if self._settled_answer is not None:
            return
        self._bets_for.add(number.least)
        self._bets_against.add(self.condition.largest - number.most)
        if self._bets_for.is_refuted:  # the claim that the total stays too low
            self._settled_answer = self.condition.wants_enough
        elif self._bets_against.is_refuted:
            self._settled_answer = not self.condition.wants_enough

    @property
    def is_complete(self) -> bool:
        """Whether all rows count."""
        return self.count == self.rows

    @property
    def holds(self) -> bool | None:
        """Whether the condition holds; None while that isn't settled."""
        if self.is_complete:
            return self._certainly_holds
        return self._settled_answer

    @property
    def _certain_totals(self) -> Totals:
        """The total of all rows, whatever happens to those that don't count yet."""
        rows_left = self.rows - self.count
        return Totals(self._least_total, self._most_total + self.condition.largest * rows_left)

    @property
    def _certainly_holds(self) -> bool | None:
        return self.condition.holds(self._certain_totals, self.rows)

    def bounds(self) -> Totals:
        """Bound the total of all rows with 95 % confidence. Once all rows are counted, the total is exact."""
        if self.is_complete:
            return self._certain_totals
        largest = self.condition.largest
        least_total = bound_total(
            [number.least for number in self._counted_totals], self.rows, largest
        )
        missing_to_largest = [largest - number.most for number in self._counted_totals]
        return Totals(
            least_total, largest * self.rows - bound_total(missing_to_largest, self.rows, largest)
        )

    def describe(self) -> str:
        """Report whether the condition holds, how sure that is, and after how many rows."""
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
        if self.is_complete and totals.least != totals.most:
            open_rows = (totals.most - totals.least) // self.condition.largest
            answer += f"; {counted(open_rows, 'row has', 'rows have')} no verdict"
        return answer
