"""Takes lines out of a ledger: as CSV, or to the team's server."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config.files import held
from judgekit.errors import JudgekitError
from judgekit.ledger import kpi, store
from judgekit.ledger.records import Label, OverrideLine, VerdictLine, newest_override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from judgekit.config.settings import Config
    from judgekit.ledger.records import Record
    from judgekit.ledger.store import Ledger

COLUMNS = (
    *("timestamp", "project", "id", "task_id", "commit", "rubric", "version", "mode", "verdict", "gate"),
    *("average", "scores", "model", "judge_tier", "consensus", "seconds", "cost_usd", "degraded"),
    *("author", "imported", "label", "override"),
)


def rows(records: Iterable[Record]) -> Iterator[str]:
    """Yield a CSV table of the verdicts, its heading first, line by line."""
    records = list(records)
    labels = kpi.agreed(record for record in records if isinstance(record, Label))
    overrides = [record for record in records if isinstance(record, OverrideLine)]
    yield _row(COLUMNS)
    for verdict in records:
        if not isinstance(verdict, VerdictLine):
            continue
        hashes = [subject.sha256 for subject in verdict.subjects]
        override = newest_override(overrides, verdict.task_id, hashes, without_terminal=True)
        scores = " ".join(f"{name}={value:g}" for name, value in (verdict.scores or {}).items())
        values = (
            *(verdict.timestamp.isoformat(), verdict.project, verdict.id, verdict.task_id, verdict.commit),
            *(verdict.rubric.id, verdict.rubric.version, verdict.mode, verdict.verdict, verdict.word),
            *(verdict.average, scores, verdict.model, verdict.judge_tier, verdict.consensus),
            *(verdict.duration_ms / 1000, verdict.cost_usd, verdict.degraded, verdict.author.name),
            *(verdict.imported is not None, labels.get(verdict.id), override and override.decision),
        )
        yield _row(values)


def _row(values: Iterable[object]) -> str:
    """Return one line of CSV, in which no spreadsheet takes a text for a formula."""
    formula = ("=", "+", "-", "@", "\t", "\r")
    cells = [
        f"'{value}" if isinstance(value, str) and value.startswith(formula) else value for value in values
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(["" if cell is None else str(cell) for cell in cells])
    return text.getvalue()


Place: TypeAlias = tuple[int, int]
"""A file's inode, and the bytes of it that were handed on."""

PLACES = "forwarded.json"
LOCK = ".forward.lock"
MOST_LINES = 500  # at a time
MOST_BYTES = 4_000_000
HAND_ON_SECONDS = 3.0


class Forwarded(NamedTuple):
    """How many lines were handed on, and what was said about them."""

    lines: int
    remarks: tuple[str, ...] = ()


def forward(ledger: Ledger, send: Callable[[Sequence[bytes]], str | None], seconds: float = inf) -> Forwarded:
    """Hand on what `send` has not taken yet; it may return a remark. After so many seconds no more is begun.

    A line may be handed on twice, when the power fails at the wrong moment; never none. Nothing happens
    while another process does the same. What `send` raises ends it, and is raised again.
    """
    if not store.exists(ledger.folder):
        return Forwarded(0)
    end = time.monotonic() + seconds
    count, remarks = 0, list[str]()
    try:
        with held(ledger.folder / LOCK, seconds=0):
            places = _places(ledger.folder)
            for path in store.files([ledger.folder]):
                for lines, place in _batches(path, places.get(path.name)):
                    remark = send(lines)
                    remarks += [remark] if remark else []
                    count += len(lines)
                    places[path.name] = place
                    environment.write_private(str(ledger.folder / PLACES), json.dumps(places))
                    if time.monotonic() > end:
                        return Forwarded(count, tuple(remarks))
    except TimeoutError:
        pass
    except OSError as error:
        raise JudgekitError(f"{ledger.folder}: cannot be sent ({error.strerror or error})") from None
    return Forwarded(count, tuple(remarks))


def hand_on(settings: Config, ledger: Ledger, seconds: float = HAND_ON_SECONDS) -> list[str]:
    """Send the team's server what it does not have of a ledger; return a line that says why not, if so.

    What is not sent within so many seconds is sent the next time.
    """
    if settings.server.url is None:
        return []
    from judgekit.judging import shared  # noqa: PLC0415 - an HTTP client, which few need

    try:
        server = shared.configured(settings)
        return list(forward(ledger, server.send, seconds).remarks) if server is not None else []
    except JudgekitError as error:
        return [f"{error}; these lines are sent next time"]


def _batches(path: Path, start: Place | None) -> Iterator[tuple[list[bytes], Place]]:
    """Yield whole lines from a place on, some at a time, each time with the place behind them."""
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        # Another file of the same name was written anew, as when old lines are removed.
        same = start is not None and start[0] == state.st_ino and start[1] <= state.st_size
        file.seek(start[1] if start is not None and same else 0)
        lines, size = list[bytes](), 0
        while (line := file.readline()).endswith(b"\n"):
            size += len(line)
            if not isinstance(store.parse(line.strip()), str):  # a damaged one is of no use there either
                lines.append(line.strip())
            if len(lines) >= MOST_LINES or size >= MOST_BYTES:
                yield lines, (state.st_ino, file.tell())
                lines, size = [], 0
        if lines:
            yield lines, (state.st_ino, file.tell() - len(line))


def _places(folder: Path) -> dict[str, Place]:
    """Return how far each file was handed on; where that cannot be told, all is handed on again."""
    try:
        found = json.loads((folder / PLACES).read_bytes())
        return {name: (int(inode), int(offset)) for name, (inode, offset) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
