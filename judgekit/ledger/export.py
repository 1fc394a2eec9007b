"""Takes lines out of a ledger: as CSV, or to the team's server."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from judgekit import environment
from judgekit.config.files import held
from judgekit.errors import JudgekitError
from judgekit.ledger import kpi, store
from judgekit.ledger.records import Label, OverrideLine, VerdictLine, newest_override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from judgekit.config.settings import Config
    from judgekit.ledger.records import Record
    from judgekit.ledger.store import Ledger

COLUMNS = (
    *("timestamp", "project", "id", "task_id", "commit", "rubric", "version", "mode", "verdict", "gate"),
    *("average", "scores", "model", "judge_tier", "consensus", "seconds", "cost_usd", "degraded"),
    *("author", "imported", "label", "override"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
PLACES = "forwarded.json"
LOCK = ".forward.lock"
MOST_LINES = 500  # at a time
MOST_BYTES = 4_000_000
HAND_ON_SECONDS = 3.0


def rows(records: Iterable[Record]) -> Iterator[str]:
    """Yield a CSV table of the verdicts, its heading first, line by line. No text in it is a formula."""
    records = list(records)
    labels = kpi.agreed(record for record in records if isinstance(record, Label))
    overrides = [record for record in records if isinstance(record, OverrideLine)]
    table: list[tuple[object, ...]] = [COLUMNS]
    for verdict in records:
        if not isinstance(verdict, VerdictLine):
            continue
        hashes = [subject.sha256 for subject in verdict.subjects]
        override = newest_override(overrides, verdict.task_id, hashes, without_terminal=True)
        scores = " ".join(f"{name}={value:g}" for name, value in (verdict.scores or {}).items())
        table.append(
            (
                *(verdict.timestamp.isoformat(), verdict.project, verdict.id, verdict.task_id),
                *(verdict.commit, verdict.rubric.id, verdict.rubric.version, verdict.mode, verdict.verdict),
                *(verdict.word, verdict.average, scores, verdict.model, verdict.judge_tier),
                *(verdict.consensus, verdict.duration_ms / 1000, verdict.cost_usd, verdict.degraded),
                *(verdict.author.name, verdict.imported is not None),
                *(labels.get(verdict.id), override and override.decision),
            )
        )
    for row in table:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(
            f"'{cell}"
            if isinstance(cell, str) and cell.startswith(_FORMULA)
            else ""
            if cell is None
            else str(cell)
            for cell in row
        )
        yield text.getvalue()


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
    end, done = time.monotonic() + seconds, Forwarded(0)
    try:
        with held(ledger.folder / LOCK, seconds=0):
            for lines, note in _batches(ledger):
                remark = send(lines)
                done = Forwarded(done.lines + len(lines), (*done.remarks, *([remark] if remark else [])))
                environment.write_private(str(ledger.folder / PLACES), note)
                if time.monotonic() > end:
                    break
    except TimeoutError:
        pass
    except OSError as error:
        raise JudgekitError(f"{ledger.folder}: cannot be sent ({error.strerror or error})") from None
    return done


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


def _batches(ledger: Ledger) -> Iterator[tuple[list[bytes], str]]:
    """Yield whole lines that were not handed on, some at a time, each time with what to note afterwards.

    That is for each file its inode and how many bytes of it were handed on. Where the note is lost, all
    is handed on again; so is a file that was written anew under its name, as when old lines are removed.
    """
    try:
        found = json.loads((ledger.folder / PLACES).read_bytes())
        places = {name: (int(inode), int(offset)) for name, (inode, offset) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        places = {}
    for path in store.files([ledger.folder]):
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            inode, offset = places.get(path.name, (0, 0))
            file.seek(offset if inode == state.st_ino and offset <= state.st_size else 0)
            lines, size, more = list[bytes](), 0, True
            while more:
                place = file.tell()
                more = (line := file.readline()).endswith(b"\n")
                if more:
                    place, size = file.tell(), size + len(line)
                    if not isinstance(store.parse(line.strip()), str):  # damage is of no use there
                        lines.append(line.strip())
                if lines and (not more or len(lines) >= MOST_LINES or size >= MOST_BYTES):
                    places[path.name] = (state.st_ino, place)
                    yield lines, json.dumps(places)
                    lines, size = [], 0
