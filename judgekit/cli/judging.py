"""Judging many documents for the command line: through the engine where one can be had, else here."""

from __future__ import annotations

import json
import sys
from collections import deque
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from judgekit.cli.output import complain
from judgekit.engine import asking, client
from judgekit.engine.watching import watched
from judgekit.errors import InputError
from judgekit.hooks import warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from judgekit.engine.many import Slot
    from judgekit.judging.subject import Document, File
    from judgekit.subject import Task

    Record: TypeAlias = Mapping[str, Any]
    Hears: TypeAlias = Callable[[Record], None]


_SENT = (
    "path",
    "text",
    "sha256",
    "total",
)  # of a file: what models are shown of its path is the judge's matter
_TASK_SECONDS = 3600.0  # the longest deadline that can be configured


class Documents:
    """The files that can be judged, read as they are asked for.

    What cannot be is said on stderr, and `bad` is then the exit code that it counts as. `family` names the
    models that wrote them.
    """

    def __init__(self, paths: Sequence[str], family: str | None = None) -> None:
        self._paths, self._family = paths, family
        self.bad = 0

    def files(self) -> Iterator[File]:
        """Yield each file."""
        from judgekit import documents

        for path in documents.expand(self._paths):
            try:
                file = documents.read_file(path, sys.stdin.buffer)
            except InputError as error:
                complain(str(error))
                self.bad = int(error.exit_code)
            else:
                _say_if_cut(file)
                yield file

    def each(self, task: Task) -> Iterator[Document]:
        """Yield each file as a document of its own."""
        from judgekit import documents

        return (documents.document([file], task=task, family=self._family) for file in self.files())

    def whole(self, task_id: str, task: Task) -> Document:
        """Return all files as one document; raises `InputError` when one of them cannot be read."""
        from judgekit import documents

        files = list(self.files())
        if self.bad:
            raise InputError(f"task {task_id}: not judged, since a part of it cannot be read")
        return documents.document(files, task_id, task, self._family)


def judge(
    documents: Iterable[Document], project: str, wish: Record, hears: Hears, *, at_once: int, engine: bool
) -> None:
    """Judge documents as they come; `hears` is told the record of each verdict, in their order.

    Raises `ConfigError` or `UsageError`; a model that fails is in the verdict.
    """
    connection = warm.connection(complain) if engine else None
    if connection is None:
        _here(documents, project, wish, hears, at_once)
        return
    from judgekit.engine.many import Crowd

    with connection:
        body = _body(project, wish)
        crowd: Crowd[Document] = Crowd(
            connection.place, "/v1/judge", body, at_once=at_once, lost=_say_once_lost
        )
        slots = crowd.answers(documents)
        for slot in slots:
            if slot.record is None:
                complain("the engine does not take it, or answers no more: going on in this process")
                _rest(chain([slot], slots), project, wish, hears, at_once)
                return
            hears(slot.record)


def task(document: Document, project: str, wish: Record, *, engine: bool) -> tuple[Record, list[str]]:
    """Judge a task, note it in the ledger, and return the verdict's record and lines for a person.

    Raises as `judge` does.
    """
    connection = warm.connection(complain) if engine else None
    if connection is not None:
        try:
            with connection, watched(connection):
                body = _body(project, wish)(document)
                found = asking.value(connection.ask("POST", "/v1/task", body, seconds=_TASK_SECONDS))
                return found["verdict"], found["notes"]
        except (client.NoEngine, client.EngineLost, asking.EngineError) as error:
            complain(f"{error}: going on in this process")
    from judgekit import tasks
    from judgekit.assess import Wish
    from judgekit.escalate import flow

    folder = Path(project)
    verdict, notes = tasks.judge(document, folder, Wish(**wish))
    return verdict.record(), [*notes, *flow.by_itself([verdict], flow.Place(folder))]


def _say_once_lost(why: str) -> None:
    complain(f"{why}; another one is asked for what it left")


def _body(project: str, wish: Record) -> Callable[[Document], bytes]:
    """Return what writes the request for a document: what is the same for all of them is written once."""
    same = json.dumps({**client.carried(project), "wish": wish})[:-1]

    def body(document: Document) -> bytes:
        given = {
            "files": [{name: getattr(file, name) for name in _SENT} for file in document.files],
            "task_id": document.task_id,
            "description": document.task.description,
            "acceptance": document.task.acceptance,
            "author": asdict(document.author),
        }
        return f'{same}, "document": {json.dumps(given)}}}'.encode()

    return body


def _here(documents: Iterable[Document], project: str, wish: Record, hears: Hears, at_once: int) -> None:
    from judgekit.assess import Wish, judge_each

    judge_each(
        documents, lambda verdict: hears(verdict.record()), Path(project), Wish(**wish), at_once=at_once
    )


def _rest(slots: Iterable[Slot[Document]], project: str, wish: Record, hears: Hears, at_once: int) -> None:
    """Judge here what nobody answered, and tell the answered ones among it in their place."""
    order: deque[Record | None] = deque()

    def unanswered() -> Iterator[Document]:
        for slot in slots:
            order.append(slot.record)
            if slot.thing is not None:
                yield slot.thing

    def tell(record: Record) -> None:
        answered()
        order.popleft()
        hears(record)

    def answered() -> None:
        while order and (known := order[0]) is not None:
            order.popleft()
            hears(known)

    _here(unanswered(), project, wish, tell, at_once)
    answered()


def _say_if_cut(file: File) -> None:
    if len(file.text) < file.total:
        complain(
            f"{file.path}: models see {len(file.text):,} of its {file.total:,} characters, "
            "so it can be rejected but not accepted; judge it in parts"
        )
