"""Judges rows in a random order until a condition on all of them is settled: `--until`."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from judgekit.data.draws import Draws, fingerprint_rows, keep_nonce, new_nonce, require_key
from judgekit.evaluation.labels import normalise_id
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
    judge_rows: Runner
    at_once: int
    limit: int | None = None
    """How many rows are drawn at most."""
    out: str | None = None
    is_fresh: bool = False


class UntilRun:
    """Judges rows in a random order, and ends when the answer is certain enough or no row is left."""

    def __init__(self, job: UntilJob, work: DatasetRun) -> None:
        """Draw the order of the rows.

        Raises `ConfigError` if there's no key to draw with, and `InputError` if the nonce can't be
        written, a random number that the order depends on.
        """
        self._job = job
        self._dataset_run = work
        drawn_rows = draw_order(job.rows, _open_draws(job))
        self._order = drawn_rows[: job.limit]
        self._position_by_id = {
            normalise_id(row.row_id): index for index, row in enumerate(self._order)
        }
        self._finished: set[int] = set()  # positions of rows that are in the results file already
        self.answer = Answer(job.condition, len(job.rows))

    def __call__(self) -> None:
        """Judge rows in waves until the answer is certain. Rows started by then are finished."""
        self._note_finished()
        pending = self._yield_pending()
        for first_row in pending:
            size = choose_wave(self.answer.counted_rows, self._job.at_once)
            # The runner takes the rows one by one, so that none is started once the answer is certain.
            other_rows = islice(pending, size - 1)
            wave = chain([first_row], other_rows)
            self._job.judge_rows(wave, self._on_record)

    def _note_finished(self) -> None:
        """Note the verdicts that are in the results file already."""
        # The results file gets the order of these calls to `keep`, so use the order of the input.
        for row in self._job.rows:
            verdict = self._dataset_run.keep(row)  # None if the row has none yet
            # None for rows beyond the limit.
            position = self._position_by_id.get(normalise_id(row.row_id))
            if verdict is not None and position is not None:
                self._finished.add(position)
                self.answer.note(position, verdict)

    def _yield_pending(self) -> Iterator[PendingRow]:
        """Yield the rows to judge, in random order, until the answer is certain.

        Also ends if the run is stopped or its budget is spent.
        """
        for position, row in enumerate(self._order):
            is_settled = self.answer.holds is not None
            if is_settled or self._dataset_run.stopped.is_set():
                return
            if position in self._finished:
                continue
            if not self._dataset_run.start():
                return
            yield row

    def _on_record(self, row: PendingRow, record: Record | None) -> None:
        written = self._dataset_run.write_result(row, record)
        self.answer.note(self._position_by_id[normalise_id(row.row_id)], written["verdict"])


def choose_wave(rows: int, at_once: int) -> int:
    """Choose the number of rows to judge next, in a wave, after `rows` rows were judged.

    A wave is finished before the next one starts. Otherwise, while a slow row delays the answer, later rows
    would be judged for nothing.
    """
    # In a test with 64 concurrent rows and slow rejections, 30 % of the rows were judged for nothing without
    # waves, and 6 % with them. Waves grow, because that hardly delays a long run.
    return max(at_once, rows // 2)


def draw_order(rows: Sequence[PendingRow], draws: Draws) -> list[PendingRow]:
    """Put rows into a random order, which is different if any row changes.

    If the order stayed the same, someone could see which rows are judged, and then change only the others.
    """
    purpose = f"order of {fingerprint_rows(rows)}"
    return sorted(rows, key=lambda row: draws.draw(row.row_id, purpose))


def _open_draws(job: UntilJob) -> Draws:
    """Return a source of random numbers.

    A run that continues the results file gets the same numbers again.
    """
    key = require_key("--until draws its rows")
    if job.out is None:
        return Draws(key, new_nonce())
    nonce_file = job.out + ENDING
    nonce = keep_nonce(nonce_file, key, is_fresh=job.is_fresh)
    return Draws(key, nonce)
