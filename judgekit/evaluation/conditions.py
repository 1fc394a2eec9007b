"""A condition on all rows, such as `accept >= 0.9` or `A > B`: what it means, and whether counts meet it.

A share is one of all rows. A row without a verdict may turn out to be anything, so it counts against whatever
is claimed: `accept >= 0.9` holds if it does with every such row rejected, and doesn't hold if it doesn't with
every one accepted.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast, get_args

from judgekit.config import TIE
from judgekit.errors import UsageError
from judgekit.evaluation.stats import OUTCOMES, UNDECIDED
from judgekit.judging.documents import LETTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

Operator: TypeAlias = Literal[">=", ">", "<=", "<"]

UNDETERMINED = "undetermined"
_JUDGED_VERDICTS = (*reversed(OUTCOMES), UNDETERMINED)
_COMPARED_VERDICTS = (*LETTERS, TIE, UNDETERMINED)
_CONDITION_PATTERN = re.compile(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*")
_MIN_SHOWN_DIGITS = 3


class Totals(NamedTuple):
    """The lowest possible total, with all rows that lack a verdict against it, and the highest."""

    minimum: int
    maximum: int


class Condition(NamedTuple):
    """A limit on a share of rows, or on how much more often one text wins than another."""

    word: str
    operator: Operator
    limit: Fraction
    other_word: str | None = None
    """The text whose wins are subtracted from those of `word`; the limit is then 0."""

    def __str__(self) -> str:
        return f"{self.word} {self.operator} {self.other_word or self.limit_text}"

    @property
    def limit_text(self) -> str:
        return f"{float(self.limit):g}"

    @property
    def largest_value(self) -> int:
        """The largest value of a single row."""
        return 2 if self.other_word else 1

    def count_row(self, word: str) -> Totals:
        """Return the lowest and highest possible value of a row with the verdict `word`."""
        is_undecided = word in UNDECIDED
        counts_undecided_rows = self.word == UNDETERMINED
        if counts_undecided_rows:
            value = int(is_undecided)
            return Totals(value, value)
        if is_undecided:
            # The verdict could have been anything.
            return Totals(0, self.largest_value)
        value = self._value_of(word)
        return Totals(value, value)

    def _value_of(self, word: str) -> int:
        """Return 1 for the counted verdict, else 0. If two texts are compared, a win is 2 and a tie 1."""
        if self.other_word is None:
            return int(word == self.word)
        if word == self.word:
            return 2
        if word == self.other_word:
            return 0
        return 1

    def count_rows(self, counts: Mapping[str, int]) -> Totals:
        """Add up the rows' lowest and highest values, given the number of rows with each verdict."""
        min_total = 0
        max_total = 0
        for word, count in counts.items():
            row_value = self.count_row(word)
            min_total += count * row_value.minimum
            max_total += count * row_value.maximum
        return Totals(min_total, max_total)

    def threshold(self, rows: int) -> int:
        """Compute the smallest sum of the rows' values at which `>` or `>=` holds. Below, `<` or `<=` does.

        For example, with a limit of 0.5 and 4 rows, it's 2 for `>=` and `<`, and 3 for `>` and `<=`.
        """
        total_at_limit = self.limit * rows
        if self.other_word is not None:
            # When comparing two texts, each row's value is offset by 1 to keep it non-negative.
            total_at_limit += rows

        # `>` starts to hold above the limit, and `<=` stops there. The others change at the limit itself.
        changes_above_limit = self.operator in (">", "<=")
        if changes_above_limit:
            return math.floor(total_at_limit) + 1
        return math.ceil(total_at_limit)

    @property
    def holds_from_threshold(self) -> bool:
        return self.operator in (">=", ">")

    def holds(self, totals: Totals, rows: int) -> bool | None:
        """Whether the condition holds for rows with these totals. None means that it's still open."""
        threshold = self.threshold(rows)
        is_reached = totals.minimum >= threshold
        is_out_of_reach = totals.maximum < threshold
        if is_reached:
            return self.holds_from_threshold
        if is_out_of_reach:
            return not self.holds_from_threshold
        return None

    def describe_range(self, totals: Totals, rows: int) -> str:
        """Format the range of fractions that the totals allow, with more digits than the limit has."""
        _, _, decimals = self.limit_text.partition(".")
        digits = max(_MIN_SHOWN_DIGITS, len(decimals) + 1)
        # When comparing two texts, each row's value is offset by 1 to keep it non-negative; undo that here.
        offset = rows if self.other_word else 0
        lowest = Fraction(totals.minimum - offset, rows)
        highest = Fraction(totals.maximum - offset, rows)
        if lowest == highest:
            return f"{float(lowest):.{digits}f}"

        # Round outward, so that the range doesn't exclude a possible value.
        scale = 10**digits
        low = math.floor(lowest * scale) / scale
        high = math.ceil(highest * scale) / scale
        return f"{low:.{digits}f} to {high:.{digits}f}"


def parse_condition(text: str, task: Literal["judge", "compare"], option: str) -> Condition:
    """Parse a condition such as `accept >= 0.9` or `A > B`, which was given for a command-line option.

    Raises `UsageError`, which names the option, if the condition is invalid.
    """
    match = _CONDITION_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"{option}: {_describe_form(task)}; got {text!r}")

    word = match[1]
    operator = cast("Operator", match[2])
    right_side = match[3]  # a share, or the letter of another text
    _check_word(word, task, option)

    compares_with_text = task == "compare" and right_side in LETTERS
    if not compares_with_text:
        return Condition(word, operator, read_share(right_side, option))

    names_two_texts = word in LETTERS and word != right_side
    if not names_two_texts:
        raise UsageError(f"{option}: expected two texts, such as A > B; got {text!r}")
    # `A > B` means that A's share minus B's share is above 0.
    return Condition(word, operator, Fraction(0), other_word=right_side)


def _describe_form(task: Literal["judge", "compare"]) -> str:
    """Describe the form of a condition, with an example."""
    example = "accept >= 0.9" if task == "judge" else "A > B"
    operators = ", ".join(get_args(Operator))
    return f"expected a word, one of {operators}, and a share, such as '{example}'"


def _check_word(word: str, task: Literal["judge", "compare"], option: str) -> None:
    """Raise `UsageError` if the word isn't a verdict of the task."""
    if task == "judge":
        words = _JUDGED_VERDICTS
        expected = "accept, improve, reject or undetermined"
    else:
        words = _COMPARED_VERDICTS
        expected = "A, B (or another letter), tie or undetermined"
    if word not in words:
        raise UsageError(f"{option}: unknown word {word!r}; expected {expected}")


def read_share(text: str, option: str) -> Fraction:
    """Parse a fraction from 0 to 1, such as 0.9 or 9/10. Raises `UsageError`, which names the option."""
    try:
        fraction = Fraction(text)
    except (ValueError, ZeroDivisionError):
        fraction = Fraction(-1)  # refused below
    if not 0 <= fraction <= 1:
        raise UsageError(f"{option}: expected a share from 0 to 1, such as 0.9; got {text!r}")
    return fraction
