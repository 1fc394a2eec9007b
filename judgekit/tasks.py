"""The boundary of a task: its artefacts are judged together, and what came of it is in the ledger."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from judgekit import assess, datafile
from judgekit import config as configuration
from judgekit.assess import AS_CONFIGURED
from judgekit.datafile import Strict
from judgekit.judging.record import rubric_ref
from judgekit.ledger import Ledger, LedgerError, verdict_line
from judgekit.names import Text
from judgekit.verdict import Override, Subject, Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.assess import Wish
    from judgekit.judging.subject import Document
    from judgekit.ledger import OverrideLine
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName

FILE = ".judgekit/task.yaml"


class TaskFile(Strict):
    """What a project is working on: a name, what it is for, what it must fulfil, and which files it is."""

    task: Text | None = None
    description: str = ""
    acceptance: str = ""
    paths: list[Text] | None = None


class Judged(NamedTuple):
    """A task's verdict, and lines for a person."""

    verdict: Verdict
    notes: list[str]


def of_project(project: Path) -> TaskFile:
    """Return what stands in a project's task file; raises `ConfigError`."""
    path = project / FILE
    return datafile.read(path, TaskFile) if datafile.check_own(path, project) else TaskFile()


def judge(document: Document, project: Path, wish: Wish = AS_CONFIGURED) -> Judged:
    """Judge the files of one task together, and note the verdict in the ledger of `project`.

    A person's override of this very content goes before any model, and is no verdict to note. Neither is
    what comes of no model being set up. Raises `ConfigError` or `UsageError`; a model that fails is in
    the verdict.
    """
    settings = configuration.load(project)
    ledger = Ledger.of(project)
    hashes = [each.sha256 for each in document.files]
    given = ledger.override_for(
        document.task_id, hashes, without_terminal=settings.gate.override_without_terminal
    )
    if given is not None:
        loaded = assess.rubric(settings, project, wish)
        decided = _decided(document, given, loaded, wish.mode or settings.judge.mode)
        return Judged(decided, [f"{document.task_id}: {given.decision}ed by {given.who}: {given.why}"])
    (verdict,) = assess.judge_documents([document], project, wish)
    return Judged(verdict, _noted(ledger, verdict, text=settings.ledger.text) if verdict.rounds else [])


def _noted(ledger: Ledger, verdict: Verdict, *, text: bool) -> list[str]:
    try:
        ledger.add(verdict_line(verdict, text=text, of_task=True))
    except LedgerError as error:
        return [str(error)]
    return []


def _decided(document: Document, given: OverrideLine, loaded: LoadedRubric, mode: ModeName) -> Verdict:
    return Verdict(
        id=uuid.uuid4().hex,
        task_id=document.task_id,
        subjects=[Subject(path=each.path, sha256=each.sha256) for each in document.files],
        rubric=rubric_ref(loaded),
        mode=mode,
        prompt_sha256=loaded.rubric.prompt.sha256,
        verdict=given.decision,
        consensus="none",
        author=document.author,
        human_override=Override(decision=given.decision, why=given.why, who=given.who, at=given.timestamp),
        commit=document.commit,
        timestamp=datetime.now(UTC),
        duration_ms=0,
    )
