"""The boundary of a task: its changed files are judged together, and the verdict is in the ledger."""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from judgekit.config import ModeName, yamlfile
from judgekit.config import settings as configuration
from judgekit.config.patterns import Patterns
from judgekit.config.yamlfile import Strict, Text
from judgekit.errors import InputError
from judgekit.git import Repository
from judgekit.judging import documents, service
from judgekit.judging.request import AS_CONFIGURED, JudgeRequest
from judgekit.judging.verdict import JudgedFile, Override, Verdict, rubric_ref
from judgekit.judging.wordless import is_wordless
from judgekit.ledger import Ledger, LedgerError, OverrideLine
from judgekit.ledger.records import newest_override
from judgekit.ledger.store import DECISIONS
from judgekit.providers import running
from judgekit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from judgekit.judging.documents import Document, File
    from judgekit.rubric.loader import LoadedRubric

FILE = ".judgekit/task.yaml"
MAX_BYTES = 1_000_000  # of one file; a larger one is hardly what an agent wrote
SECONDS = 5.0  # for each question to git
_SHA1 = 40  # digits


class TaskFile(Strict):
    """What a project is working on: a name, what it is for, what it must fulfil, and which files it is."""

    task: Text | None = None
    description: str = ""
    acceptance: str = ""
    paths: list[Text] | None = None


def of_project(project: Path) -> TaskFile:
    path = project / FILE
    if yamlfile.check_own(path, project):
        return yamlfile.read(path, TaskFile)
    return TaskFile()


def judge(
    document: Document, project: Path, request: JudgeRequest = AS_CONFIGURED
) -> tuple[Verdict, list[str]]:
    """Return the verdict on a task, noted in the ledger, and notes; an override goes before any model."""
    settings = configuration.load(project)
    ledger = Ledger.of(project)
    task = document.task_id
    hashes = [file.sha256 for file in document.files]
    said = list(ledger.records(DECISIONS))
    any_override = settings.gate.override_without_terminal
    # The ledger has names without secrets.
    override = newest_override(
        said, redact.redact(task).text, hashes, without_terminal=any_override
    )
    if override is not None:
        loaded = service.rubric(settings, project, request)
        verdict = without_models(loaded, request.mode or settings.judge.mode, document, override)
        return verdict, [f"{task}: {override.decision}ed by {override.who}: {override.why}"]
    (verdict,) = running.run(service.ajudge_documents([document], project, request))
    if verdict.rounds:
        try:
            verdict = ledger.note(verdict, said, text=settings.ledger.text)
        except LedgerError as error:
            return verdict, [str(error)]
    return verdict, []


def held_by_findings(verdict: Verdict) -> Verdict:
    """Return a verdict; undetermined, where decision models alone would hold a push, and nobody says why."""
    is_held = verdict.verdict in ("reject", "improve")
    if not is_held or verdict.findings or not is_wordless(verdict.record()):
        return verdict
    why = "decided by probabilities, and no model gave a finding: name one that writes in judge.tiers.deep"
    degraded = "; ".join(filter(None, (why, verdict.degraded)))
    return verdict.model_copy(update={"verdict": "undetermined", "degraded": degraded})


def without_models(
    loaded: LoadedRubric,
    mode: ModeName,
    document: Document,
    override: OverrideLine | None,
    reason: str = "",
) -> Verdict:
    said = {"decision", "why", "who"}
    decided = override and Override(at=override.timestamp, **override.model_dump(include=said))
    subjects = [JudgedFile(path=file.path, sha256=file.sha256) for file in document.files]
    return Verdict(
        id=uuid.uuid4().hex,
        task_id=document.task_id,
        subjects=subjects,
        rubric=rubric_ref(loaded),
        mode=mode,
        prompt_sha256=loaded.rubric.prompt.sha256,
        verdict=decided.decision if decided else "undetermined",
        consensus="none",
        degraded=None if decided else reason,
        author=document.author,
        human_override=decided,
        commit=document.commit,
        timestamp=datetime.now(UTC),
        duration_ms=0,
    )


def files(
    project: Path, paths: Sequence[str], *, since: float | None = None, most: int = 10
) -> list[File]:
    """Return the `most` uncommitted files changed last, after `since` (s) if given, that can be judged."""
    wanted = Patterns(paths)
    repository = Repository(project)
    root = os.path.realpath(project)
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    changed: list[tuple[float, str]] = []
    for name in dict.fromkeys(
        map(os.fsdecode, repository.ask(*listing, seconds=SECONDS).split(b"\0"))
    ):
        if name and wanted.match(name):
            path = os.path.join(root, name)  # noqa: PTH118 - a string is compared below
            with suppress(OSError):
                status = os.lstat(path)
                own = os.path.realpath(path) == os.path.normpath(path)  # no link leads to it
                recent = since is None or status.st_mtime >= since - 2  # some file systems round it
                if own and recent and stat.S_ISREG(status.st_mode) and status.st_size <= MAX_BYTES:
                    changed.append((status.st_mtime, name))
    committed: dict[str, str] = {}  # the blob of each file
    if changed and repository.commit("HEAD") is not None:
        tree = repository.ask("ls-tree", "-r", "-z", "HEAD", seconds=SECONDS).split(b"\0")
        for about, _, raw in (entry.partition(b"\t") for entry in tree):
            committed[os.fsdecode(raw)] = about.decode().rpartition(" ")[2]
    read: list[File] = []
    for _, path in sorted(changed, reverse=True):
        if len(read) == most:
            break
        with suppress(InputError, OSError):
            data = (project / path).read_bytes()
            oid = committed.get(path, "")
            # As git stores it, also with its own line ends. Git would run the filter that a clone names.
            if len(oid) == _SHA1:
                digest = hashlib.sha1
            else:
                digest = hashlib.sha256
            stored = (
                b"blob %d\0" % len(each) + each for each in (data, data.replace(b"\r\n", b"\n"))
            )
            if oid not in (digest(each).hexdigest() for each in stored):
                read.append(documents.decode(path, data))
    return sorted(read, key=lambda file: file.path)
