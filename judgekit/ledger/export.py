"""Takes lines out of a ledger: as CSV, or to the team's server."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from math import inf
from typing import TYPE_CHECKING, BinaryIO

from judgekit import outputs
from judgekit.config.locks import file_lock
from judgekit.errors import JudgekitError
from judgekit.ledger import kpi, store
from judgekit.ledger.records import Label, OverrideLine, Record, VerdictLine, find_newest_override
from judgekit.text import defuse_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from judgekit.config.settings import Config

COLUMNS = (
    *("timestamp", "project", "id", "task_id", "commit", "rubric", "version", "mode", "verdict"),
    *("gate", "average", "scores", "model", "judge_tier", "consensus", "seconds", "cost_usd"),
    *("degraded", "author", "imported", "label", "override"),
)
PROGRESS_FILE = "forwarded.json"
LOCK_FILE = ".forward.lock"
MAX_BATCH_LINES = 500  # at a time
MAX_BATCH_BYTES = 4_000_000
HAND_ON_SECONDS = 3.0


def make_csv(records: Iterable[Record]) -> str:
    """Build a CSV table of the verdicts, with a header row.

    Strings are escaped so that spreadsheets don't run them as formulas.
    """
    records = list(records)
    verdicts = [record for record in records if isinstance(record, VerdictLine)]
    overrides = [record for record in records if isinstance(record, OverrideLine)]
    labels = [record for record in records if isinstance(record, Label)]
    label_by_id = kpi.find_majority_labels(labels)

    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    for verdict in verdicts:
        cells = _make_cells(verdict, label_by_id.get(verdict.id), overrides)
        writer.writerow([_escape_formula(cell) for cell in cells])

    return table.getvalue().removesuffix("\n")


def _make_cells(
    verdict: VerdictLine, label: str | None, overrides: Sequence[OverrideLine]
) -> list[object]:
    """Return a verdict's cells in the order of `COLUMNS`.

    `label` is the label that most people gave the verdict. `overrides` can be about other verdicts too.
    """
    # Include decisions made without a terminal. A gate may ignore them, but the table shows them.
    override = find_newest_override(
        overrides, verdict.task_id, verdict.hashes, without_terminal=True
    )
    decision = override.decision if override else None
    scores = verdict.scores or {}
    score_texts = [f"{name}={value:g}" for name, value in scores.items()]

    return [
        verdict.timestamp.isoformat(),
        verdict.project,
        verdict.id,
        verdict.task_id,
        verdict.commit,
        verdict.rubric.id,
        verdict.rubric.version,
        verdict.mode,
        verdict.verdict,
        verdict.word,
        verdict.average,
        " ".join(score_texts),
        verdict.model,
        verdict.judge_tier,
        verdict.consensus,
        verdict.duration_ms / 1000,
        verdict.cost_usd,
        verdict.degraded,
        verdict.author.name,
        verdict.imported is not None,
        label,
        decision,
    ]


def _escape_formula(cell: object) -> object:
    """Escape a string so that a spreadsheet doesn't run it. Other cells are returned unchanged."""
    return defuse_cell(cell) if isinstance(cell, str) else cell


def send_unsent(
    ledger: store.Ledger, send: Callable[[Sequence[bytes]], str | None], seconds: float = inf
) -> tuple[int, list[str]]:
    """Pass a ledger's unsent lines to `send` in batches, until `seconds` have passed.

    Returns the number of lines sent, and the remarks that `send` returned, such as a warning. Raises
    `JudgekitError` if `send` raises it, or if a file can't be read or written.
    """
    deadline = time.monotonic() + seconds
    sent_count = 0
    remarks = []
    try:
        with file_lock(ledger.folder / LOCK_FILE, timeout=0):
            for lines, progress in _read_batches(ledger):
                remark = send(lines)
                sent_count += len(lines)
                if remark:
                    remarks.append(remark)
                # Save the progress only after sending: a power failure can repeat lines, but not lose any.
                outputs.write_atomically(str(ledger.folder / PROGRESS_FILE), progress, private=True)
                if time.monotonic() > deadline:
                    break
    except TimeoutError:
        pass  # Another process is already sending this ledger.
    except FileNotFoundError:
        pass  # There's no ledger yet.
    except OSError as error:
        raise JudgekitError(
            f"{ledger.folder}: cannot be sent ({error.strerror or error})"
        ) from None

    return sent_count, remarks


def send_to_team(settings: Config, ledger: store.Ledger) -> list[str]:
    """Send unsent ledger lines to the team's server, if there is one. Returns messages about problems.

    After `HAND_ON_SECONDS`, the remaining lines are left for the next time.
    """
    from judgekit.judging import shared  # noqa: PLC0415 - imported lazily: few users need an HTTP client

    try:
        shared_judge = shared.find_shared_judge(settings)
        if shared_judge is None:  # the settings don't name a server
            return []
        _, remarks = send_unsent(ledger, shared_judge.send, seconds=HAND_ON_SECONDS)
    except JudgekitError as error:
        return [f"{error}; these lines are sent next time"]
    return remarks


def _read_batches(ledger: store.Ledger) -> Iterator[tuple[list[bytes], str]]:
    """Yield batches of unsent lines, each with the progress (as JSON) to save once the batch is sent."""
    positions = _read_progress(ledger)
    for path in store.list_files([ledger.folder]):
        with path.open("rb") as file:
            sent_inode, sent_offset = positions.get(path.name, (0, 0))
            _skip_sent_lines(file, sent_inode, sent_offset)

            inode = os.fstat(file.fileno()).st_ino
            for lines, end_offset in _group_lines(file):
                positions[path.name] = (inode, end_offset)
                yield lines, json.dumps(positions)


def _skip_sent_lines(file: BinaryIO, sent_inode: int, sent_offset: int) -> None:
    """Move past the lines that were sent before. A replaced or truncated file is sent from the start."""
    status = os.fstat(file.fileno())
    is_replaced = status.st_ino != sent_inode
    is_truncated = status.st_size < sent_offset
    if is_replaced or is_truncated:
        return
    file.seek(sent_offset)


def _group_lines(file: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """Yield the remaining lines of a file in batches, each with the offset at which the batch ends.

    Damaged lines are skipped.
    """
    batch: list[bytes] = []
    size_bytes = 0
    for raw_line, end_offset in _read_complete_lines(file):
        size_bytes += len(raw_line)
        line = raw_line.strip()
        if not _is_damaged(line):
            batch.append(line)

        is_full = len(batch) >= MAX_BATCH_LINES or size_bytes >= MAX_BATCH_BYTES
        if batch and is_full:
            yield batch, end_offset
            batch = []
            size_bytes = 0

    if batch:
        yield batch, end_offset


def _read_complete_lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the remaining lines of a file, each with the offset at which it ends."""
    # A last line without a newline is still being written: leave it for the next run.
    while (line := file.readline()).endswith(b"\n"):
        yield line, file.tell()


def _is_damaged(raw: bytes) -> bool:
    """Whether a line can't be parsed."""
    record_or_problem = store.parse(raw)
    return isinstance(record_or_problem, str)


def _read_progress(ledger: store.Ledger) -> dict[str, tuple[int, int]]:
    """Return each file's inode and the offset up to which it was sent, by file name.

    Returns {} if the progress file is missing or damaged.
    """
    positions = {}
    try:
        saved_positions = json.loads((ledger.folder / PROGRESS_FILE).read_bytes())
        for name, (inode, offset) in saved_positions.items():
            positions[name] = (int(inode), int(offset))
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return positions
