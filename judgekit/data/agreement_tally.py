"""Sums up a promise of agreement: the tiers that decided, their agreement, and the savings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from judgekit.evaluation import agreement
from judgekit.evaluation.agreement import Promise
from judgekit.evaluation.stats import ReportPart
from judgekit.judging.verdict import AgreementPromise, Verdict
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.verdict import Round

STRONGEST_TIER: TierName = "deep"


class Agreement(ReportPart):
    """The effect of a promise of agreement on all rows that were judged under it."""

    promise: float
    """The share of rows that it's made for."""
    first_tier: str
    rows: int
    decided_by_first: int
    strong_calls: int
    """How many rows `deep` was asked about."""
    sampled: int
    """How many of these are the random sample."""
    estimate: float
    """The share of rows with the verdict that `deep` alone would have given, as the sample has it."""
    least: float
    """That share at least, with 95 % confidence."""
    saved_usd: float | None = None
    """How many US dollars less the calls cost than those of `deep` alone. None if not all costs are known."""
    saved_seconds: float | None = None
    """How many seconds less they took, one after the other."""
    judged_twice: int = 0
    same_twice: int = 0
    """How many rows `deep` judged twice, and how many of them got the same verdict."""

    def describe(self) -> list[str]:
        """Describe the promise's effect: calls, agreement, savings, and how often `deep` repeats its verdict.

        Returns a line about the calls, and further lines if their figures are known.
        """
        first_tier_text = (
            f"{self.first_tier} decided {self.decided_by_first:,} of {self.rows:,} rows"
        )
        strong_text = f"{STRONGEST_TIER} was asked about {self.strong_calls:,}"
        if self.sampled:
            strong_text += f" ({self.sampled:,} of them drawn as a sample)"
        lines = [f"promise {self.promise:g}: {first_tier_text}; {strong_text}"]

        if self.decided_by_first:
            least_text = f"at least {self.least:.1%} with 95 % confidence"
            lines.append(
                f"agreement with {STRONGEST_TIER} alone: about {self.estimate:.1%}, {least_text}"
            )
            savings = self._describe_savings()
            if savings:
                lines.append(savings)

        if self.judged_twice:
            judged_twice_text = format_count(self.judged_twice, "row", "rows")
            same_twice_text = f"{self.same_twice:,} of {judged_twice_text} that it judged twice"
            lines.append(f"{STRONGEST_TIER} agrees with itself on {same_twice_text}")
        return lines

    def _describe_savings(self) -> str:
        """Describe the saved money and time, or return "" if neither is known."""
        parts = []
        if self.saved_usd is not None:
            parts.append(f"{self.saved_usd:,.2f} USD saved")
        if self.saved_seconds is not None:
            minutes = abs(self.saved_seconds) / 60
            less_or_more = "less" if self.saved_seconds >= 0 else "more"
            parts.append(f"{minutes:,.1f} minutes of calls {less_or_more}")
        if not parts:
            return ""
        return f"against {STRONGEST_TIER} alone: {', '.join(parts)}"


class Call(NamedTuple):
    """The cost of a tier's opinion on a row in US dollars, and how long it took."""

    usd: float | None
    """None if not every cost is known."""
    seconds: float

    @classmethod
    def from_rounds(cls, rounds: Sequence[Round]) -> Call | None:
        """Sum up a tier's rounds: their total cost, and the slowest one's time. None without rounds."""
        if not rounds:
            return None

        # The rounds run at the same time, so the tier takes as long as its slowest round.
        slowest_ms = max(round_.latency_ms for round_ in rounds)
        costs = [round_.usage.cost_usd for round_ in rounds]
        return cls(_sum_known(costs), slowest_ms / 1000)


def _sum_known(costs: Iterable[float | None]) -> float | None:
    """Sum up costs in US dollars. None if one of them is unknown."""
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return total


class PromisedRow(NamedTuple):
    """A row that was judged under a promise."""

    promise: AgreementPromise
    mode: ModeName
    verdict: str
    first_call: Call | None
    """The call of the first tier. None if it wasn't asked."""
    strong_call: Call | None
    """The call of `deep`. None if it wasn't asked."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> PromisedRow | None:
        """Read a verdict record. Returns None if it isn't a valid verdict made under a promise."""
        if not isinstance(record.get("promise"), dict):
            return None
        try:
            verdict = Verdict.model_validate(record)
        except ValidationError:
            return None

        promise = verdict.promise
        assert promise is not None, "the record has one"  # noqa: S101
        first_rounds = [round_ for round_ in verdict.rounds if round_.tier == promise.first_tier]
        strong_rounds = [round_ for round_ in verdict.rounds if round_.tier == STRONGEST_TIER]
        return cls(
            promise=promise,
            mode=verdict.mode,
            verdict=verdict.verdict,
            first_call=Call.from_rounds(first_rounds),
            strong_call=Call.from_rounds(strong_rounds),
        )

    @property
    def is_decided_by_first(self) -> bool:
        """Whether the first tier's opinion is the verdict. It isn't if no tier was asked."""
        return self.first_call is not None and self.strong_call is None


@dataclass
class _Group:
    """The opinions that share a budget, and the sample's results on those that are final."""

    level: float
    sampling_rate: float = 0.0
    final_count: int = 0
    disagreements: int = 0
    """Among the rows of the sample that count."""

    @property
    def estimated_disagreements(self) -> float:
        """The estimated number of first opinions outside the sample that `deep` would disagree with."""
        # Without a sample, no first opinion of this group can be final, so `deep` judges all its rows.
        if not self.sampling_rate:
            return 0.0
        # Rows are drawn into the sample at `sampling_rate`, so each represents (1 - rate) / rate rows
        # outside.
        return self.disagreements * (1 - self.sampling_rate) / self.sampling_rate

    @property
    def max_disagreements(self) -> int:
        """An upper bound for the number that `estimated_disagreements` guesses.

        The true number is higher with a probability of at most `level`.
        """
        # Without a sample, no first opinion of this group can be final, so `deep` judges all its rows.
        if not self.sampling_rate:
            return 0
        bound = agreement.max_unsampled_disagreements(
            self.disagreements, self.sampling_rate, self.level
        )
        # All other rows have `deep`'s verdict, so only final first opinions can disagree with it.
        return min(bound, self.final_count)


@dataclass
class AgreementTally:
    """Counts rows that were judged under a promise."""

    share: float = 0.0
    first_tier: str = ""
    row_count: int = 0
    decided_by_first: int = 0
    strong_call_count: int = 0
    sampled: int = 0
    judged_twice: int = 0
    same_twice: int = 0
    _groups: dict[bool, _Group] = field(default_factory=dict)
    _first_calls: list[Call] = field(default_factory=list)
    _strong_calls: list[Call] = field(default_factory=list)

    def add(self, row: PromisedRow) -> None:
        """Count a row that was judged under the promise."""
        promise = row.promise
        self.share = promise.share
        self.first_tier = promise.first_tier
        self.row_count += 1
        if promise.sampled:
            self.sampled += 1
        if row.is_decided_by_first:
            self.decided_by_first += 1
        if row.first_call is not None:
            self._first_calls.append(row.first_call)
        if row.strong_call is not None:
            self.strong_call_count += 1
            self._strong_calls.append(row.strong_call)
        self._note_repetition(row)
        self._note_agreement(row)

    def _note_repetition(self, row: PromisedRow) -> None:
        """Count a row that `deep` judged twice, and whether it gave the same verdict."""
        second_verdict = row.promise.again
        if second_verdict is None:
            return
        self.judged_twice += 1
        if second_verdict == row.verdict:
            self.same_twice += 1

    def _note_agreement(self, row: PromisedRow) -> None:
        """Count a row's first opinion in its group, and whether `deep` disagreed with it.

        In strict mode, the rows that the first tier accepts are a separate group.
        """
        promise = row.promise
        if promise.first is None or promise.rate is None:
            return  # there's no first opinion or no sample, so there's nothing to compare

        is_strict = row.mode == "strict"
        is_strict_accept = is_strict and promise.first == "accept"
        level = agreement.compute_level(is_strict=is_strict, is_separate=is_strict_accept)
        group = self._groups.setdefault(is_strict_accept, _Group(level))
        group.sampling_rate = promise.rate
        if row.is_decided_by_first:
            group.final_count += 1

        # Only the counted rows of the sample show how often `deep` disagrees: their verdict is `deep`'s.
        is_counted = promise.counted
        # The record only has the promise's values, so rebuild the promise, which knows when verdicts agree.
        given_promise = Promise(promise.share, promise.on)
        if is_counted and not given_promise.holds_for(promise.first, row.verdict):
            group.disagreements += 1

    @property
    def _estimate(self) -> float:
        return (
            1
            - sum(group.estimated_disagreements for group in self._groups.values()) / self.row_count
        )

    @property
    def _least(self) -> float:
        return 1 - sum(group.max_disagreements for group in self._groups.values()) / self.row_count

    @property
    def _saved_usd(self) -> float | None:
        """The US dollars saved, compared with letting `deep` judge every row. None if any cost is unknown."""
        if not self._strong_calls:
            return None  # `deep` was never called, so its price is unknown
        first_usd = _sum_known(call.usd for call in self._first_calls)
        strong_usd = _sum_known(call.usd for call in self._strong_calls)
        if first_usd is None or strong_usd is None:
            return None
        mean_strong_usd = strong_usd / len(self._strong_calls)
        usd_of_strong_alone = mean_strong_usd * self.row_count
        return usd_of_strong_alone - first_usd - strong_usd

    @property
    def _saved_seconds(self) -> float | None:
        """The seconds of calls saved, compared with letting `deep` judge every row. None if unknown."""
        if not self._strong_calls:
            return None  # `deep` was never called, so its speed is unknown
        first_seconds = sum(call.seconds for call in self._first_calls)
        strong_seconds = sum(call.seconds for call in self._strong_calls)
        mean_strong_seconds = strong_seconds / len(self._strong_calls)
        seconds_of_strong_alone = mean_strong_seconds * self.row_count
        return seconds_of_strong_alone - first_seconds - strong_seconds

    def sum_up(self) -> Agreement | None:
        """Build the report's figures. Returns None if no row was judged under a promise."""
        if not self.row_count:
            return None
        return Agreement(
            promise=self.share,
            first_tier=self.first_tier,
            rows=self.row_count,
            decided_by_first=self.decided_by_first,
            strong_calls=self.strong_call_count,
            sampled=self.sampled,
            estimate=self._estimate,
            least=self._least,
            saved_usd=self._saved_usd,
            saved_seconds=self._saved_seconds,
            judged_twice=self.judged_twice,
            same_twice=self.same_twice,
        )
