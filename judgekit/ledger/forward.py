"""Hands a ledger's lines on, from where the last time ended; what is not taken now is handed on later."""

from __future__ import annotations

import json
import os
import time
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit import lock
from judgekit.errors import JudgekitError
from judgekit.ledger import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from judgekit.config import Config
    from judgekit.ledger.book import Ledger

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
    if not read.exists(ledger.folder):
        return Forwarded(0)
    start = time.monotonic()
    count = 0
    remarks: list[str] = []
    try:
        with lock.held(ledger.folder / LOCK, seconds=0):
            places = _places(ledger.folder)
            for path in read.files([ledger.folder]):
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
    from judgekit import shared  # noqa: PLC0415 - an HTTP client, which few need

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
            if not isinstance(read.parse(line.strip()), str):  # a damaged one is of no use there either
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
