"""A process that appends numbered lines, for tests that kill it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.ledger import Fault, Ledger

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event


def text(number: int) -> str:
    """Return the text of a writer's line: up to five pages of memory, so that a kill can tear it."""
    return "z" * (number * 997 % 20_000)


def write(folder: str, name: str, times: int, start: Event) -> None:
    """Append `times` lines once `start` is set, counting the finished ones in a file of the writer's name."""
    with Path(folder, name).open("w", encoding="utf-8", buffering=1) as finished:
        start.wait(60)
        for number in range(times):
            Ledger(Path(folder), "").add(Fault(id=str(number), problem=text(number), paths=[name]))
            finished.write(f"{number}\n")
