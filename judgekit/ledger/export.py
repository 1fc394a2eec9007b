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
    verdicts = []
    labels = []
    overrides = []

    for record in records:
        if isinstance(record, VerdictLine):
            verdicts.append(record)
        elif isinstance(record, Label):
            labels.append(record)
        elif isinstance(record, OverrideLine):
            overrides.append(record)

    label_by_id = kpi.find_majority_labels(labels)  # people's label on each verdict

    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    for verdict in verdicts:
        cells = _make_cells(verdict, label_by_id.get(verdict.id), overrides)
        for index, cell in enumerate(cells):
            if isinstance(cell, str):
                cells[index] = defuse_cell(cell)
        writer.writerow(cells)

    return table.getvalue().removesuffix("\n")


def _make_cells(
    verdict: VerdictLine, label: str | None, overrides: Sequence[OverrideLine]
) -> list[object]:
    """Return a verdict's cells in the order of `COLUMNS`.

    `label` is people's label on the verdict. `overrides` are people's decisions about any verdicts.
    """
    override = find_newest_override(
        overrides, verdict.task_id, verdict.hashes, without_terminal=True
    )
    decision = None
    if override is not None:
        decision = override.decision
    scores = [f"{name}={value:g}" for name, value in (verdict.scores or {}).items()]

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
        " ".join(scores),
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


def send_unsent(
    ledger: store.Ledger, send: Callable[[Sequence[bytes]], str | None], seconds: float = inf
) -> tuple[int, list[str]]:
    """Pass a ledger's unsent lines to `send`, in batches.

    No new batch starts after `seconds`. Returns the number of lines sent, and the remarks that `send`
    returned, such as a warning. Errors raised by `send` aren't caught. Raises `JudgekitError` if a file can't
    be read or written.
    """
    deadline = time.monotonic() + seconds
    sent_lines = 0
    remarks = []
    try:
        with file_lock(ledger.folder / LOCK_FILE, timeout=0):
            for lines, progress in _read_batches(ledger):
                remark = send(lines)
                sent_lines += len(lines)
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

    return sent_lines, remarks


def send_to_team(settings: Config, ledger: store.Ledger) -> list[str]:
    """Send all unsent ledger lines to the team's server, if there is one. Returns messages about problems."""
    from judgekit.judging import shared  # noqa: PLC0415 - imported lazily: few users need an HTTP client

    try:
        server = shared.configured(settings)
        if server is None:  # the settings don't name a team's server
            return []
        _, remarks = send_unsent(ledger, server.send, HAND_ON_SECONDS)
    except JudgekitError as error:
        return [f"{error}; these lines are sent next time"]
    return remarks


def _read_batches(ledger: store.Ledger) -> Iterator[tuple[list[bytes], str]]:
    """Yield batches of unsent lines. With each comes the progress, as JSON, to save after sending it."""
    positions = _read_progress(ledger)
    for path in store.list_files([ledger.folder]):
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            inode, offset = positions.get(path.name, (0, 0))
            # Continue after the last line sent. A file that was replaced (it has another inode) or truncated
            # is sent from the start.
            if inode == state.st_ino and offset <= state.st_size:
                file.seek(offset)
            for lines, end_offset in _group_lines(file):
                positions[path.name] = (state.st_ino, end_offset)
                yield lines, json.dumps(positions)


def _group_lines(file: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """Yield the remaining lines of a file in batches, each with the offset where the batch ends.

    Damaged lines are skipped.
    """
    # the current batch
    lines = []
    size = 0  # in bytes

    is_at_end = False
    while not is_at_end:
        end_offset = file.tell()
        line = file.readline()
        # A last line without a newline is still being written: leave it for the next run.
        is_at_end = not line.endswith(b"\n")
        if not is_at_end:
            end_offset = file.tell()
            size += len(line)
            raw = line.strip()
            is_damaged = isinstance(
                store.parse(raw), str
            )  # For a damaged line, `parse` returns a message.
            if not is_damaged:
                lines.append(raw)

        is_full = len(lines) >= MAX_BATCH_LINES or size >= MAX_BATCH_BYTES
        if lines and (is_full or is_at_end):
            yield lines, end_offset
            lines = []
            size = 0


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
