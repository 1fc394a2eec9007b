"""A run over a dataset: chooses the rows to judge, counts their outcomes, and decides when the run ends."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.data.dataset import unreadable_error
from judgekit.data.results import Results, result
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
HOPELESS = 20  # if the first rows sent are all refused, the others would be, too
_REFUSALS = {
    FailureKind.AUTHENTICATION,
    FailureKind.PERMISSION,
    FailureKind.PAYMENT,
    FailureKind.NOT_FOUND,
    FailureKind.NOT_LOADED,
}
_WRONG = {*_REFUSALS, FailureKind.BAD_REQUEST}
_NUMBERS = re.compile(r"\d+")


@dataclass
class Tally:
    """The outcomes of rows: their verdicts, the number `judged` or `kept`, and the cost.

    `first_failure` says why one of the `failure_count` rows has no verdict. `labels` counts pairs of a label,
    as it's written, and its row's verdict. The cost of `priced` rows is known; `unpriced` ones have calls of
    unknown cost.

    `thoughts` counts blocks of a model's thoughts that were left out of its outputs.

    Among the rows that were `sent`, `refused` counts those refused because of the key, a permission, money or
    an unknown model, or as wrong requests in the same `refused_words`; `refusal` says which. `doubled` are
    the models that gave opinions in several tiers, and `rounds` is the number of all rounds.
    """

    verdict_counts: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    kept: int = 0
    spent_usd: float = 0.0
    priced: int = 0
    unpriced: int = 0
    is_local: bool = False
    redacted: int = 0
    thoughts: int = 0
    rounds: int = 0
    doubled: set[str] = field(default_factory=set)
    substitutes: set[str] = field(default_factory=set)
    deciders: Deciders = field(default_factory=Deciders)
    labels: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_failure: str = ""
    failure_count: int = 0
    sent: int = 0
    refused: int = 0
    refusal: str = ""
    refused_words: str = ""

    @property
    def is_hopeless(self) -> bool:
        """Whether all rows so far were refused, so that the others would probably be, too."""
        return self.refused >= HOPELESS and self.refused == self.sent

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
    `is_spent` is set. `problem` is the error that ended a stream. `expected` returns a row's label. `run` is
    the name that the user gave. `waits_for` describes what rows are waiting for. A run that can't succeed
    `gave_up`.
    """

    dataset: Dataset = field(kw_only=True)
    results: Results = field(kw_only=True)
    max_cost_usd: float | None = None
    run: str | None = None
    expected: Expected = lambda _: None
    stopped: threading.Event = field(default_factory=threading.Event)
    is_spent: bool = False
    problem: InputError | None = None
    waits_for: str = ""
    gave_up: bool = False
    _at_work: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pending(self) -> Iterator[PendingRow]:
        """Yield the rows that have no verdict in the results file yet, until the run is stopped.

        After an unreadable row, no more rows are yielded. The remaining rows are only read to count
        unreadable ones, for the error in `problem`.
        """
        first_unreadable = None
        unreadable_count = 0
        for row in self.dataset:
            if self.stopped.is_set():
                return
            if isinstance(row, UnreadableRow):
                if first_unreadable is None:
                    first_unreadable = row
                unreadable_count += 1
            elif first_unreadable is None and self._start_unless_kept(row):
                yield row

        if first_unreadable is not None:
            self.problem = unreadable_error(
                self.dataset.name, first_unreadable, unreadable_count - 1
            )

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
                self.kept += 1
                self.thoughts += pending.thoughts
                self._count_verdict(pending.row, word)
            return word

    def start(self) -> bool:
        """Count a row as being judged. Returns False, without counting it, if the budget is spent."""
        with self._lock:
            if self._is_budget_spent():
                return False
            self._at_work += 1
            return True

    def _is_budget_spent(self) -> bool:
        """Whether the budget will be spent once the current rows are judged, at the mean cost so far.

        If so, this also sets `is_spent`.
        """
        if self.max_cost_usd is not None:
            priced_rows = self.judged - self.unpriced
            mean = self.spent_usd / priced_rows if priced_rows else 0.0
            expected = self.spent_usd + self._at_work * mean
            # Sums of prices aren't exact, so tolerate a tiny difference.
            if expected >= self.max_cost_usd * (1 - INEXACT):
                self.is_spent = True
        return self.is_spent

    def on_record(
        self, pending: PendingRow, record: Record | None, *, is_paid: bool = False
    ) -> dict[str, Any]:
        """Write a row's result and return it. `record` is None if the row couldn't be judged.

        If `is_paid`, `note_calls` has already counted the calls.
        """
        row = result(
            pending.row,
            pending.row_id,
            record,
            error=pending.error,
            fingerprint=pending.fingerprint.current,
            taken=self.dataset.taken,
            run=self.run,
        )
        with self._lock:
            written = self.results.add(row)
            self._at_work -= 1
            self.judged += 1
            self.thoughts += pending.thoughts
            self._count_verdict(pending.row, written["verdict"])
            if written["error"] is not None:
                self.failure_count += 1
                # `failed` is for a message. A failed judgement is more interesting than an unjudgeable row.
                if record or not self.first_failure:
                    self.first_failure = f"row {pending.row_id} has no verdict: {written['error']}"
            if record is not None and not is_paid:
                self._note_record(record, str(written["error"]))
                self.deciders.add(record)
            self.give_up()
        return written

    def note_calls(self, record: Record) -> None:
        """Count the calls of a record that isn't written as a result, or not yet."""
        with self._lock:
            self._note_record(record, str(record.get("degraded")))
            self.give_up()

    def _note_record(self, record: Record, error: str) -> None:
        """Count a record's cost, redactions and refused calls."""
        self.spent_usd += record["cost_usd"] or 0.0
        # A row counts as both priced and unpriced if only some of its calls have a known cost.
        self.priced += record["cost_usd"] is not None
        self.unpriced += record["cost_usd"] is None or not record["cost_complete"]
        self.is_local |= record["cost_source"] == "local"
        self.redacted += record.get("redacted") or 0
        self.substitutes.update(record.get("substitutes") or ())
        self.rounds += len(record["rounds"])
        self.doubled |= _find_doubled(record["rounds"])

        failures = [round_["failure"] for round_ in record["rounds"]]
        if not failures:  # no calls were made
            return
        self.sent += 1
        if self._is_refused(failures):
            self.refused += 1
            if not self.refusal:
                self.refusal = error

    def _is_refused(self, failures: Sequence[Any]) -> bool:
        """Whether all of a row's calls were refused for a reason that will affect other rows, too.

        `failures` contains None for a successful call.
        """
        kinds = {failure["kind"] if failure else None for failure in failures}
        if kinds <= _REFUSALS:
            return True
        if kinds <= _WRONG:
            return self._is_same_refusal(failures[0]["message"])
        return False

    def _is_same_refusal(self, message: str) -> bool:
        """Whether a refused request has the same message as the first refused one, except for numbers.

        If messages differ, they may be about the row's text rather than the configuration.
        """
        words = _NUMBERS.sub("N", message)
        if not self.refused_words:
            self.refused_words = words
        return words == self.refused_words

    def describe_doubled_models(self) -> str | None:
        """Describe models that fill several tiers, and the calls per row. Returns None if there are none."""
        if not self.doubled:
            return None
        names = ", ".join(sorted(self.doubled))
        calls = self.rounds / max(1, self.sent)
        return f"{names} fills several tiers: {calls:.1f} calls a row; --depth quick asks once"

    def give_up(self) -> None:
        """Stop a run that can't succeed. Its results remain, so that a later run can continue."""
        if self.is_hopeless and not self.stopped.is_set():
            self.gave_up = True
            self.stopped.set()

    def error_of_given_up(self) -> ConfigError:
        """Build the error that explains why the run was given up."""
        why = f"the first {self.sent} rows that were sent failed alike: {self.refusal}"
        return ConfigError(f"stopped: {why}; mend that, and run the same again to go on")

    def _count_verdict(self, row: DataRow, word: str) -> None:
        """Count a verdict and, if the row has a label, the pair of label and verdict."""
        self.verdict_counts[word] += 1
        label = self.expected(row)
        if label is not None:
            if len(self.labels) > _MAX_LABELS:  # so many different values can't be labels
                label = _OTHER_LABEL
            self.labels[label, word] += 1
