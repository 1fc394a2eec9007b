"""Takes lines out of a ledger: as CSV, or to the team's server."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from math import inf
from typing import TYPE_CHECKING

from judgekit import outputs
from judgekit.config.locks import file_lock
from judgekit.errors import JudgekitError
from judgekit.ledger import kpi, store
from judgekit.ledger.records import Label, OverrideLine, Record, VerdictLine, newest_override
from judgekit.text import defused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from judgekit.config.settings import Config

COLUMNS = (
    *("timestamp", "project", "id", "task_id", "commit", "rubric", "version", "mode", "verdict"),
    *("gate", "average", "scores", "model", "judge_tier", "consensus", "seconds", "cost_usd"),
    *("degraded", "author", "imported", "label", "override"),
)
PLACES = "forwarded.json"
LOCK = ".forward.lock"
MOST_LINES = 500  # at a time
MOST_BYTES = 4_000_000
HAND_ON_SECONDS = 3.0


def rows(records: Iterable[Record]) -> str:
    """Build a CSV table of the verdicts, with a heading. Texts in it can't act as formulas."""
    records = list(records)
    out = io.StringIO()
    labels = kpi.agreed(record for record in records if isinstance(record, Label))
    overrides = [record for record in records if isinstance(record, OverrideLine)]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        if isinstance(record, VerdictLine):
            cells = _cells(record, labels.get(record.id), overrides)
            writer.writerow([defused(cell) if isinstance(cell, str) else cell for cell in cells])
    return out.getvalue().removesuffix("\n")


def _cells(
    verdict: VerdictLine, label: str | None, overrides: Sequence[OverrideLine]
) -> list[object]:
    """Return a cell for each of `COLUMNS`."""
    override = newest_override(overrides, verdict.task_id, verdict.hashes, without_terminal=True)
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
        override and override.decision,
    ]


def forward(
    ledger: store.Ledger, send: Callable[[Sequence[bytes]], str | None], seconds: float = inf
) -> tuple[int, list[str]]:
    """Send the lines that `send` hasn't taken yet. Returns their number, and the remarks of `send`.

    After a power failure a line may be sent twice, but it's never lost. An exception from `send` ends the
    run.
    """
    end = time.monotonic() + seconds
    count = 0
    remarks = []
    try:
        with file_lock(ledger.folder / LOCK, timeout=0):
            for lines, note in _batches(ledger):
                remark = send(lines)
                count += len(lines)
                if remark:
                    remarks.append(remark)
                outputs.write_atomically(str(ledger.folder / PLACES), note, private=True)
                if time.monotonic() > end:
                    break
    except (TimeoutError, FileNotFoundError):  # locked by another process; no ledger yet
        pass
    except OSError as error:
        raise JudgekitError(
            f"{ledger.folder}: cannot be sent ({error.strerror or error})"
        ) from None
    return count, remarks


def hand_on(settings: Config, ledger: store.Ledger) -> list[str]:
    """Send the team's server the lines it lacks. Returns messages about lines that couldn't be sent."""
    from judgekit.judging import shared  # noqa: PLC0415 - an HTTP client, which few need

    try:
        server = shared.configured(settings)
        if server is None:
            return []
        return forward(ledger, server.send, HAND_ON_SECONDS)[1]
    except JudgekitError as error:
        return [f"{error}; these lines are sent next time"]


def _batches(ledger: store.Ledger) -> Iterator[tuple[list[bytes], str]]:
    """Yield batches of unsent lines, each with the note to save once it's sent: files' inodes and offsets.

    A last line without its end is still being written, so it's left to the next export.
    """
    places = {}
    try:
        noted = json.loads((ledger.folder / PLACES).read_bytes())
        for name, (inode, offset) in noted.items():
            places[name] = (int(inode), int(offset))
    except (OSError, ValueError, TypeError, AttributeError):
        places.clear()
    for path in store.files([ledger.folder]):
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            inode, offset = places.get(path.name, (0, 0))
            if inode == state.st_ino and offset <= state.st_size:
                file.seek(offset)
            lines = []
            size = 0
            is_whole_line = True
            while is_whole_line:
                offset_read = file.tell()
                line = file.readline()
                is_whole_line = line.endswith(b"\n")
                if is_whole_line:
                    offset_read = file.tell()
                    size = size + len(line)
                    # The receiver can't use a damaged line.
                    if not isinstance(store.parse(line.strip()), str):
                        lines.append(line.strip())
                if lines and (not is_whole_line or len(lines) >= MOST_LINES or size >= MOST_BYTES):
                    places[path.name] = (state.st_ino, offset_read)
                    yield lines, json.dumps(places)
                    lines = []
                    size = 0
