"""A run over a dataset: chooses the rows to judge, counts their outcomes, and decides when the run ends."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.data.dataset import build_unreadable_error
from judgekit.data.results import Results, build_result
from judgekit.data.sources import DataRow, UnreadableRow
from judgekit.errors import ConfigError, FailureKind
from judgekit.judging.round import INEXACT
from judgekit.judging.wordless import Deciders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.data.dataset import Dataset, PendingRow
    from judgekit.errors import InputError

    Record: TypeAlias = Mapping[str, Any]
    Expected: TypeAlias = Callable[[DataRow], str | None]

_MAX_LABELS = 10_000
_OTHER_LABEL = "…"
MIN_HOPELESS_REFUSALS = 20  # if the first rows sent are all refused, the others would be, too
_REFUSAL_FAILURES = {
    FailureKind.AUTHENTICATION,
    FailureKind.PERMISSION,
    FailureKind.PAYMENT,
    FailureKind.NOT_FOUND,
    FailureKind.NOT_LOADED,
}
_REQUEST_FAILURES = {*_REFUSAL_FAILURES, FailureKind.BAD_REQUEST}
_NUMBER_PATTERN = re.compile(r"\d+")


@dataclass
class Tally:
    """The outcomes of rows: their verdicts, the numbers of rows judged and kept, and the cost.

    `first_failure` says why one of the `failure_count` rows has no verdict. `label_verdict_counts` counts
    pairs of a label, as it's written, and its row's verdict. `priced_count` rows have a known cost, and
    `unpriced_count` rows have calls of unknown cost.

    `thought_count` counts blocks of a model's thoughts that were left out of its outputs.

    `sent_count` rows were sent. Of these, `refused_count` were refused because of the key, a permission,
    money or an unknown model, or as wrong requests in the same `refused_words`; `refusal_error` says which.
    `doubled_models` are the models that gave opinions in several tiers, and `round_count` is the number of
    all rounds.
    """

    verdict_counts: Counter[str] = field(default_factory=Counter)
    judged_count: int = 0
    kept_count: int = 0
    spent_usd: float = 0.0
    priced_count: int = 0
    unpriced_count: int = 0
    is_local: bool = False
    redacted_count: int = 0
    thought_count: int = 0
    round_count: int = 0
    doubled_models: set[str] = field(default_factory=set)
    substitute_providers: set[str] = field(default_factory=set)
    deciders: Deciders = field(default_factory=Deciders)
    label_verdict_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_failure: str = ""
    failure_count: int = 0
    sent_count: int = 0
    refused_count: int = 0
    refusal_error: str = ""
    refused_words: str = ""

    @property
    def is_hopeless(self) -> bool:
        """Whether all rows so far were refused, so that the others would probably be, too."""
        return self.refused_count >= MIN_HOPELESS_REFUSALS and self.refused_count == self.sent_count

    def add(self, other: Tally) -> None:
        """Add another tally to this one. For strings and flags, the first value that is set counts."""
        for tally_field in fields(Tally):
            ours = getattr(self, tally_field.name)
            theirs = getattr(other, tally_field.name)
            if isinstance(ours, Counter | set):
                ours.update(theirs)
            elif isinstance(ours, str | bool):  # checked before numbers, because a bool is an int
                is_set = bool(ours)
                setattr(self, tally_field.name, ours if is_set else theirs)
            else:  # a number, or `Deciders`
                setattr(self, tally_field.name, ours + theirs)

    def take_counts(self) -> Tally:
        """Return the counts since the last call, and reset them."""
        taken = Tally()
        taken.add(self)
        empty = Tally()
        for tally_field in fields(Tally):
            setattr(self, tally_field.name, getattr(empty, tally_field.name))
        return taken


def _find_doubled(rounds: Sequence[Record]) -> set[str]:
    """Find the models that gave an opinion in more than one tier."""
    tiers_by_model: dict[str, set[str]] = {}
    for round_ in rounds:
        if round_["opinion"]:
            tiers_by_model.setdefault(round_["model"], set()).add(round_["tier"])
    return {model for model, tiers in tiers_by_model.items() if len(tiers) > 1}


@dataclass
class DatasetRun(Tally):
    """The outcomes of a dataset's rows so far, and the rows still to judge.

    Reading ends early when `stopped` is set, or when the rows judged and at work cost `max_cost_usd`; then
    `is_budget_spent` is set. `problem` is the error that ended a stream. `find_label` returns a row's label.
    `run_name` is the name that the user gave. `waits_for` describes what rows are waiting for. A run that
    can't succeed `gave_up`.
    """

    dataset: Dataset = field(kw_only=True)
    results: Results = field(kw_only=True)
    max_cost_usd: float | None = None
    run_name: str | None = None
    find_label: Expected = lambda _: None
    stopped: threading.Event = field(default_factory=threading.Event)
    is_budget_spent: bool = False
    problem: InputError | None = None
    waits_for: str = ""
    gave_up: bool = False
    _active_row_count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def yield_pending_rows(self) -> Iterator[PendingRow]:
        """Yield the rows that have no verdict in the results file yet, until the run is stopped.

        After an unreadable row, no more rows are yielded, and the error is in `problem`.
        """
        rows = iter(self.dataset)
        for row in rows:
            if self.stopped.is_set():
                return
            if isinstance(row, UnreadableRow):
                self._note_unreadable(row, rows)
                return
            if self._start_unless_kept(row):
                yield row

    def _note_unreadable(
        self, first: UnreadableRow, rest: Iterator[PendingRow | UnreadableRow]
    ) -> None:
        """Note the error for unreadable rows. The remaining rows are only read to count more of them."""
        more_unreadable = 0
        for row in rest:
            if self.stopped.is_set():
                return
            if isinstance(row, UnreadableRow):
                more_unreadable += 1
        self.problem = build_unreadable_error(self.dataset.name, first, more_unreadable)

    def _start_unless_kept(self, pending: PendingRow) -> bool:
        """Count a row as kept or as being judged. True if it's to be judged: not kept, and there's money."""
        is_kept = self.keep(pending) is not None
        return not is_kept and self.start()

    def keep(self, pending: PendingRow) -> str | None:
        """Reuse a row's verdict from the results file, and count the row as kept.

        Returns None if the results file has no verdict.
        """
        with self._lock:
            word = self.results.find_verdict(pending.row_id, pending.fingerprint)
            if word is not None:
                self.kept_count += 1
                self.thought_count += pending.thought_count
                self._count_verdict(pending.row, word)
            return word

    def start(self) -> bool:
        """Count a row as being judged. Returns False, without counting it, if the budget is spent."""
        with self._lock:
            if self._is_budget_spent():
                return False
            self._active_row_count += 1
            return True

    def _is_budget_spent(self) -> bool:
        """Whether the budget will be spent once the current rows are judged.

        If so, sets `is_budget_spent`, which other runners can set, too.
        """
        if self.max_cost_usd is None:
            return self.is_budget_spent
        # Sums of prices aren't exact, so tolerate a tiny difference.
        limit = self.max_cost_usd * (1 - INEXACT)
        if self._estimate_cost() >= limit:
            self.is_budget_spent = True
        return self.is_budget_spent

    def _estimate_cost(self) -> float:
        """Estimate the cost in USD once the current rows are judged, by the mean cost so far."""
        priced_rows = self.judged_count - self.unpriced_count
        mean = self.spent_usd / priced_rows if priced_rows else 0.0
        return self.spent_usd + self._active_row_count * mean

    def write_result(
        self, pending: PendingRow, record: Record | None, *, is_paid: bool = False
    ) -> dict[str, Any]:
        """Write a row's result and return it. `record` is None if the row couldn't be judged.

        If `is_paid`, `note_calls` has already counted the record's calls and their cost.
        """
        row = build_result(
            pending.row,
            pending.row_id,
            record,
            error=pending.error,
            fingerprint=pending.fingerprint.current,
            taken=self.dataset.taken_names,
            run=self.run_name,
        )
        with self._lock:
            written = self.results.add(row)
            self._active_row_count -= 1
            self.judged_count += 1
            self.thought_count += pending.thought_count
            self._count_verdict(pending.row, written["verdict"])
            if written["error"] is not None:
                self._note_failure(pending, record, written["error"])
            if record is not None and not is_paid:
                self._note_record(record, str(written["error"]))
                self.deciders.add(record)
            self.give_up_if_hopeless()
        return written

    def _note_failure(self, pending: PendingRow, record: Record | None, error: str) -> None:
        """Count a row without a verdict, and keep its error for a message."""
        self.failure_count += 1
        # A failed judgement says more than an unjudgeable row, so it replaces an earlier error.
        if record or not self.first_failure:
            self.first_failure = f"row {pending.row_id} has no verdict: {error}"

    def note_calls(self, record: Record) -> None:
        """Count the calls of a record that isn't written as a result, or not yet."""
        with self._lock:
            self._note_record(record, str(record.get("degraded")))
            self.give_up_if_hopeless()

    def _note_record(self, record: Record, error: str) -> None:
        """Count a record's cost, redactions and refused calls."""
        self._count_cost(record)
        self.redacted_count += record.get("redacted") or 0
        self.substitute_providers.update(record.get("substitutes") or ())
        self.round_count += len(record["rounds"])
        self.doubled_models |= _find_doubled(record["rounds"])

        failures = [round_["failure"] for round_ in record["rounds"]]  # None for a successful call
        if not failures:  # no calls were made
            return
        self.sent_count += 1
        if self._is_refused(failures):
            self.refused_count += 1
            if not self.refusal_error:
                self.refusal_error = error

    def _count_cost(self, record: Record) -> None:
        """Count a record's cost. It's both priced and unpriced if only some calls have a known cost."""
        cost = record["cost_usd"]
        has_cost = cost is not None
        is_complete = has_cost and record["cost_complete"]
        self.spent_usd += cost or 0.0
        if has_cost:
            self.priced_count += 1
        if not is_complete:
            self.unpriced_count += 1
        if record["cost_source"] == "local":
            self.is_local = True

    def _is_refused(self, failures: Sequence[Any]) -> bool:
        """Whether all of a row's calls were refused for a reason that will affect other rows, too.

        `failures` contains None for a successful call.
        """
        kinds = {failure["kind"] if failure else None for failure in failures}
        if kinds.issubset(_REFUSAL_FAILURES):
            return True
        # A bad request can be due to the row's text. The same message for each row is about something else.
        if kinds.issubset(_REQUEST_FAILURES):
            return self._is_same_refusal(failures[0]["message"])
        return False

    def _is_same_refusal(self, message: str) -> bool:
        """Whether a refused request has the same message as the first refused one, except for numbers.

        The first message is noted here. If messages differ, they may be about the row's text rather than the
        configuration.
        """
        text_without_numbers = _NUMBER_PATTERN.sub("N", message)
        is_first = not self.refused_words
        if is_first:
            self.refused_words = text_without_numbers
        return text_without_numbers == self.refused_words

    def describe_doubled_models(self) -> str | None:
        """Describe models that fill several tiers, and the calls per row. Returns None if there are none."""
        if not self.doubled_models:
            return None
        names = ", ".join(sorted(self.doubled_models))
        sent_rows = max(1, self.sent_count)
        calls_per_row = self.round_count / sent_rows
        return (
            f"{names} fills several tiers: {calls_per_row:.1f} calls a row; --depth quick asks once"
        )

    def give_up_if_hopeless(self) -> None:
        """Stop a run that can't succeed. Its results remain, so that a later run can continue."""
        if self.is_hopeless and not self.stopped.is_set():
            self.gave_up = True
            self.stopped.set()

    def build_given_up_error(self) -> ConfigError:
        """Build the error that explains why the run was given up."""
        why = f"the first {self.sent_count} rows that were sent failed alike: {self.refusal_error}"
        return ConfigError(f"stopped: {why}; mend that, and run the same again to go on")

    def _count_verdict(self, row: DataRow, word: str) -> None:
        """Count a verdict and, if the row has a label, the pair of label and verdict."""
        self.verdict_counts[word] += 1
        label = self.find_label(row)
        if label is not None:
            # A column with so many different values doesn't have labels, so count further ones as one.
            if len(self.label_verdict_counts) > _MAX_LABELS:
                label = _OTHER_LABEL
            self.label_verdict_counts[label, word] += 1
