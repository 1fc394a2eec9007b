"""Takes lines out of a ledger: as CSV, to the team's server, or for good."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.config import files
from judgekit.errors import JudgekitError
from judgekit.ledger import kpi, store
from judgekit.ledger.records import Label, OverrideLine, VerdictLine, kind, newest_override
from judgekit.ledger.store import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from judgekit.config.settings import Config
    from judgekit.ledger.records import LabelWord, Record
    from judgekit.ledger.store import Ledger


COLUMNS = (
    *("timestamp", "project", "id", "task_id", "commit", "rubric", "version", "mode", "verdict", "gate"),
    *("average", "scores", "model", "judge_tier", "consensus", "seconds", "cost_usd", "degraded"),
    *("author", "imported", "label", "override"),
)


def rows(records: Iterable[Record]) -> Iterator[str]:
    """Yield a CSV table of the verdicts, its heading first, line by line."""
    found = list(records)
    labels = kpi.agreed(each for each in found if isinstance(each, Label))
    overrides = [each for each in found if isinstance(each, OverrideLine)]
    yield _row(COLUMNS)
    for each in found:
        if isinstance(each, VerdictLine):
            yield _row([_cell(value) for value in _values(each, labels, overrides)])


def _values(
    verdict: VerdictLine, labels: Mapping[str, LabelWord], overrides: Iterable[OverrideLine]
) -> Sequence[object]:
    scores = " ".join(f"{name}={value:g}" for name, value in (verdict.scores or {}).items())
    hashes = [subject.sha256 for subject in verdict.subjects]
    override = newest_override(overrides, verdict.task_id, hashes, without_terminal=True)
    return (
        *(verdict.timestamp.isoformat(), verdict.project, verdict.id, verdict.task_id, verdict.commit),
        *(verdict.rubric.id, verdict.rubric.version, verdict.mode, verdict.verdict, verdict.word),
        *(verdict.average, scores, verdict.model, verdict.judge_tier, verdict.consensus),
        *(verdict.duration_ms / 1000, verdict.cost_usd, verdict.degraded, verdict.author.name),
        *(verdict.imported is not None, labels.get(verdict.id), override and override.decision),
    )


def _cell(value: object) -> str:
    """Return a value as text that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return (
        f"'{text}" if isinstance(value, str) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    )


def _row(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def count(folder: Path, before: date) -> Counter[str]:
    """Return how many lines of each kind (and damaged ones) in a ledger `purge` would remove.

    A file that cannot be read counts as one damaged line; `purge` removes it where its day is over.
    """
    counter: Counter[str] = Counter()
    for path in _older(folder, before):
        counter += _kinds(path)
    gone = _verdicts(folder, before)
    for path in _younger(folder, before):
        counter["label"] += sum(_is_about(raw, gone) for raw in _readable(path))
    return +counter


def purge(folder: Path, before: date) -> None:
    """Remove the files of days before `before` (UTC), and later labels of the verdicts in them.

    Damaged lines of later days stay. Raises `LedgerError`.
    """
    try:
        with files.held(folder / store.LOCK, seconds=store.SECONDS):
            gone = _verdicts(folder, before)
            for path in _younger(folder, before):
                _drop_labels(path, gone)
            for path in _older(folder, before):
                path.unlink()
    except OSError as error:
        raise LedgerError(folder, error.strerror or str(error)) from None


def _older(folder: Path, before: date) -> Iterator[Path]:
    return (
        path for path in store.files([folder]) if (day := store.day_of(path)) is not None and day < before
    )


def _younger(folder: Path, before: date) -> Iterator[Path]:
    return (
        path for path in store.files([folder]) if (day := store.day_of(path)) is not None and day >= before
    )


def _verdicts(folder: Path, before: date) -> set[str]:
    wanted = store.LineFilter(kinds=[VerdictLine])
    return {record.id for record in store.records(_older(folder, before), wanted)}


def _kinds(path: Path) -> Counter[str]:
    counter: Counter[str] = Counter()
    for raw in _readable(path, instead=[b"unreadable"]):
        record = store.parse(raw)
        counter["damaged" if isinstance(record, str) else kind(type(record)).split("/")[1].split("@")[0]] += 1
    return counter


def _readable(path: Path, instead: Sequence[bytes] = ()) -> Iterable[bytes]:
    """Return a file's lines; those `instead` for one that cannot be read."""
    try:
        return list(_raw(path))
    except OSError:
        return instead


def _raw(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from (raw for raw in file if raw.strip())


def _is_about(raw: bytes, gone: set[str]) -> bool:
    if kind(Label).encode() not in raw:
        return False
    record = store.parse(raw)
    return isinstance(record, Label) and record.of in gone


def _drop_labels(path: Path, gone: set[str]) -> None:
    """Write a file anew without the labels of verdicts that are gone, at once: a reader sees old or new."""
    lines = list(_readable(path))
    kept = [raw for raw in lines if not _is_about(raw, gone)]
    if len(kept) == len(lines):
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(kept)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


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
    start = time.monotonic()
    count = 0
    remarks: list[str] = []
    try:
        with files.held(ledger.folder / LOCK, seconds=0):
            places = _places(ledger.folder)
            for path in store.files([ledger.folder]):
                for lines, place in _batches(path, places.get(path.name)):
                    remark = send(lines)
                    remarks += [remark] if remark else []
                    count += len(lines)
                    places[path.name] = place
                    _keep(ledger.folder, places)
                    if time.monotonic() - start > seconds:
                        return Forwarded(count, tuple(remarks))
    except TimeoutError:
        return Forwarded(count, tuple(remarks))
    except OSError as error:
        raise JudgekitError(f"{ledger.folder}: cannot be handed on ({error.strerror or error})") from None
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
        return [f"{error}; its ledger gets these lines the next time"]


def _batches(path: Path, start: Place | None) -> Iterator[tuple[list[bytes], Place]]:
    """Yield whole lines from a place on, some at a time, each time with the place behind them."""
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        inode = state.st_ino
        # Another file of the same name was written anew, as when old lines are removed.
        same = start is not None and start[0] == inode and start[1] <= state.st_size
        file.seek(start[1] if start is not None and same else 0)
        lines: list[bytes] = []
        size = 0
        while (line := file.readline()).endswith(b"\n"):
            size += len(line)
            if not isinstance(store.parse(line.strip()), str):  # a damaged one is of no use there either
                lines.append(line.strip())
            if len(lines) >= MOST_LINES or size >= MOST_BYTES:
                yield lines, (inode, file.tell())
                lines, size = [], 0
        if lines:
            yield lines, (inode, file.tell() - len(line))


def _places(folder: Path) -> dict[str, Place]:
    """Return how far each file was handed on; where that cannot be told, all is handed on again."""
    try:
        found = json.loads((folder / PLACES).read_bytes())
        return {name: (int(inode), int(offset)) for name, (inode, offset) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep(folder: Path, places: dict[str, Place]) -> None:
    fresh = folder / f"{PLACES}.new"
    fresh.touch(0o600)
    fresh.write_text(json.dumps(places), encoding="utf-8")
    fresh.replace(folder / PLACES)
