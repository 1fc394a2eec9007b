"""The ledger of one project: what the gate and the commands write to and read from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from judgekit.ledger import append, overrides, project, read
from judgekit.ledger.records import Label, OverrideLine, line
from judgekit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from judgekit.ledger.read import Damage, Wanted
    from judgekit.ledger.records import Record

_BY_HAND = (Label, OverrideLine)  # what a person typed cannot be had again: it waits for the disk


@dataclass(frozen=True, slots=True)
class Ledger:
    """The lines of one project, in `folder`; `name` stands in each of them."""

    folder: Path
    name: str

    @classmethod
    def of(cls, start: Path) -> Ledger:
        """Return the ledger of the project around the folder `start`; touches nothing."""
        name = project.name(start)
        return cls(project.home() / name, name)

    def add(self, *records: Record) -> None:
        """Append records, each as one line to the file of its own day (UTC).

        Raises `LedgerError`: say it and go on, nothing else is lost.
        """
        lines = [
            (each.timestamp.astimezone(UTC).date(), line(each.model_copy(update={"project": self.name})))
            for each in records
        ]
        if lines:
            durable = any(isinstance(each, _BY_HAND) for each in records)
            append.append(self.folder, lines, durable=durable)

    def records(
        self, wanted: Wanted = read.EVERYTHING, damaged: Callable[[Damage], None] = lambda _: None
    ) -> Iterator[Record]:
        """Yield the project's records; `damaged` hears of all that cannot be read."""
        places = [self.folder] if read.exists(self.folder) else []
        return read.records(places, wanted, damaged)

    def override_for(
        self, task_id: str, subjects: Collection[str] = (), *, without_terminal: bool = False
    ) -> OverrideLine | None:
        """Return the newest override of a task, None when there is none to honour.

        A task is a blob, `path@sha256…`, or the name of a task whose files have the SHA-256 in `subjects`. An
        override given without a terminal counts only `without_terminal`.
        """
        lines = self.records(read.Wanted(kinds=[OverrideLine]))
        task_id = redact(task_id).text  # as the ledger has it
        return overrides.newest(lines, task_id, subjects, without_terminal=without_terminal)
