"""Judges rows in a random order until a condition on all of them is settled: `--until`."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from judgekit.data.draws import Draws, fingerprint_rows, keep_nonce, new_nonce, require_key
from judgekit.evaluation.labels import id_key
from judgekit.evaluation.until import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.data.dataset import PendingRow
    from judgekit.data.runners import Runner
    from judgekit.data.runs import DatasetRun, Record
    from judgekit.evaluation.conditions import Condition

ENDING = ".until.json"


class UntilJob(NamedTuple):
    """The condition to settle, the rows, and their judge."""

    condition: Condition
    rows: Sequence[PendingRow]
    """All rows, in the order of the input."""
    runner: Runner
    at_once: int
    limit: int | None = None
    """How many rows are drawn at most."""
    out: str | None = None
    is_fresh: bool = False


class UntilRun:
    """Judges rows in a random order, and ends when the answer is certain enough or no row is left."""

    def __init__(self, job: UntilJob, work: DatasetRun) -> None:
        """Raise `ConfigError` without a key, `InputError` if the nonce can't be kept beside OUT."""
        self._job = job
        self._work = work
        self._order = draw_order(job.rows, _open_draws(job))[: job.limit]
        self._places = {id_key(row.row_id): place for place, row in enumerate(self._order)}
        self._kept: set[int] = set()
        self.answer = Answer(job.condition, len(job.rows))

    def __call__(self) -> None:
        """Judge rows in waves. Rows at work when the answer is certain are finished: they're paid for."""
        self._note_kept()
        pending = self._pending()
        while True:
            size = choose_wave(self.answer.count, self._job.at_once)
            first = next(pending, None)
            if first is None:
                return
            wave = chain([first], islice(pending, size - 1))
            self._job.runner(wave, self._on_record)

    def _note_kept(self) -> None:
        """Note the verdicts that OUT already has. Rows are passed in the input's order, which OUT keeps."""
        for row in self._job.rows:
            word = self._work.keep(row)
            place = self._places.get(id_key(row.row_id))
            if word is not None and place is not None:
                self._kept.add(place)
                self.answer.note(place, word)

    def _pending(self) -> Iterator[PendingRow]:
        """Yield the rows that OUT doesn't have yet, in the random order, until the condition is settled.

        Also ends when the run is stopped, or the money is spent.
        """
        for place, row in enumerate(self._order):
            is_settled = self.answer.holds is not None
            if is_settled or self._work.stopped.is_set():
                return
            if place in self._kept:
                continue
            if not self._work.start():
                return
            yield row

    def _on_record(self, row: PendingRow, record: Record | None) -> None:
        written = self._work.on_record(row, record)
        self.answer.note(self._places[id_key(row.row_id)], written["verdict"])


def choose_wave(rows: int, at_once: int) -> int:
    """Choose the size of the next wave after `rows` rows; all of it is judged before another begins.

    A slow row holds up the count of those behind it. Without waves the others would run far ahead of it, and
    we'd pay for rows that may never be needed: with 64 at a time and slow rejections, 30 % of the rows of
    recorded judges instead of 6 %. Growing waves take little more time in a long run.
    """
    return max(at_once, rows // 2)


def draw_order(rows: Sequence[PendingRow], draws: Draws) -> list[PendingRow]:
    """Put rows into a random order that depends on all of them: if one changes, the order does.

    Otherwise somebody who saw which rows were judged could make the others worse, and the same rows would be
    drawn to stand for them again.
    """
    purpose = f"order of {fingerprint_rows(rows)}"
    return sorted(rows, key=lambda row: draws.draw(row.row_id, purpose))


def _open_draws(job: UntilJob) -> Draws:
    """Return the source of random numbers: with OUT, a second run draws the same order again."""
    key = require_key("--until draws its rows")
    if job.out is None:
        return Draws(key, new_nonce())
    return Draws(key, keep_nonce(job.out + ENDING, key, is_fresh=job.is_fresh))
