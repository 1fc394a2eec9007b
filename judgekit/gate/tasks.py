"""The boundary of a task: its changed files are judged together, and the verdict goes to the ledger."""

from __future__ import annotations

import hashlib
import operator
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
from judgekit.judging.request import DEFAULT_REQUEST, JudgeRequest
from judgekit.judging.reservations import Reservation, ReservationKind, add_reservation
from judgekit.judging.verdict import JudgedFile, Override, Verdict, build_rubric_ref
from judgekit.judging.wordless import is_wordless
from judgekit.ledger import Ledger, LedgerError, OverrideLine
from judgekit.ledger.records import find_newest_override
from judgekit.ledger.store import DECISIONS_FILTER
from judgekit.providers import running
from judgekit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from judgekit.config.settings import Config
    from judgekit.judging.documents import Document, File
    from judgekit.judging.verdict import VerdictWord
    from judgekit.ledger import Record
    from judgekit.rubric.loader import LoadedRubric

TASK_FILE = ".judgekit/task.yaml"
MAX_FILE_BYTES = 1_000_000  # of one file; agents hardly write larger ones
GIT_SECONDS = 5.0  # for each call of git
_SHA1_DIGITS = 40  # hexadecimal digits
_ROUNDING_SECONDS = 2  # seconds; some file systems round a file's time


class TaskFile(Strict):
    """A project's current task: its name, purpose, acceptance criteria and files."""

    task: Text | None = None
    description: str = ""
    acceptance: str = ""
    paths: list[Text] | None = None


def read_task_file(project: Path) -> TaskFile:
    """Read a project's task file, empty if it doesn't exist; raises `ConfigError`."""
    path = project / TASK_FILE
    if yamlfile.check_project_file(path, project):
        return yamlfile.read_model(path, TaskFile)
    return TaskFile()


def judge_task(
    document: Document, project: Path, request: JudgeRequest = DEFAULT_REQUEST
) -> tuple[Verdict, list[str]]:
    """Judge a task's files. Returns the verdict, and notes to show to the user.

    If a person has decided about the same content (an override), that decision is the verdict. Otherwise
    models judge the files, and their verdict is added to the ledger.
    """
    settings = configuration.load(project)
    ledger = Ledger.of(project)
    past_decisions = list(ledger.read_records(DECISIONS_FILTER))

    override = _find_override(document, past_decisions, settings)
    if override is not None:
        loaded = service.load_rubric(settings, project, request)
        mode = request.mode or settings.judge.mode
        verdict = decide_without_models(loaded, mode, document, override)
        decided = f"{override.decision}ed"  # accepted or rejected
        return verdict, [f"{document.task_id}: {decided} by {override.who}: {override.why}"]

    (verdict,) = running.run(service.ajudge_documents([document], project, request))
    if not verdict.rounds:  # no model was called, so there's nothing to record
        return verdict, []

    try:
        verdict = ledger.add_verdict(verdict, past_decisions, text=settings.ledger.text)
    except LedgerError as error:
        return verdict, [str(error)]
    return verdict, []


def _find_override(
    document: Document, past_decisions: Sequence[Record], settings: Config
) -> OverrideLine | None:
    """Find the newest override that counts for a task and its content, or None."""
    return find_newest_override(
        past_decisions,
        redact.redact(document.task_id).text,  # the ledger stores names with secrets removed
        [file.sha256 for file in document.files],
        without_terminal=settings.gate.override_without_terminal,
    )


NO_FINDING = "no model gave a finding"


def require_findings(verdict: Verdict) -> Verdict:
    """Make a verdict undetermined if it would block a push because of mere probabilities.

    Decision models write nothing, so the author wouldn't know what to change.
    """
    would_block = verdict.verdict in ("reject", "improve")
    if not would_block:
        return verdict

    is_explained = verdict.findings or not is_wordless(verdict.record())
    if is_explained:
        return verdict

    why = "decided by probabilities, and no model gave a finding: name one that writes in judge.tiers.deep"
    undetermined = verdict.model_copy(update={"verdict": "undetermined", "because": NO_FINDING})
    reservation = Reservation(ReservationKind.NO_FINDING, why)
    return add_reservation(undetermined, reservation, first=True)


def decide_without_models(
    loaded: LoadedRubric,
    mode: ModeName,
    document: Document,
    override: OverrideLine | None,
    reason: str = "",
) -> Verdict:
    """Build a verdict without calling models.

    If a person overrode the judge, their decision is the verdict. Otherwise it's "undetermined", for the
    given `reason`.
    """
    human_override: Override | None
    decision: VerdictWord
    degraded: str | None  # why no model decided; None if a person did
    if override is None:
        human_override = None
        decision = "undetermined"
        degraded = reason
    else:
        human_override = _make_human_override(override)
        decision = human_override.decision
        degraded = None

    return Verdict(
        id=uuid.uuid4().hex,
        task_id=document.task_id,
        subjects=[JudgedFile(path=file.path, sha256=file.sha256) for file in document.files],
        rubric=build_rubric_ref(loaded),
        mode=mode,
        prompt_sha256=loaded.rubric.prompt.sha256,
        verdict=decision,
        consensus="none",
        degraded=degraded,
        author=document.author,
        human_override=human_override,
        commit=document.commit,
        timestamp=datetime.now(UTC),
        duration_ms=0,
    )


def _make_human_override(override: OverrideLine) -> Override:
    """Convert the ledger's line about an override to the form for a verdict."""
    return Override(
        at=override.timestamp,
        decision=override.decision,
        why=override.why,
        who=override.who,
    )


def read_changed_files(
    project: Path, paths: Sequence[str], *, since: float | None = None, limit: int = 10
) -> list[File]:
    """Read the uncommitted files that match `paths`, sorted by path.

    Only the `limit` most recently changed files are read. Files changed before `since` (in seconds since
    1970) are skipped.
    """
    repository = Repository(project)
    recent_files = _list_recent_files(repository, Patterns(paths), since)  # pairs of time and path
    newest_first = sorted(recent_files, reverse=True)
    committed_hashes = _read_committed_hashes(repository) if recent_files else {}
    files: list[File] = []

    for _, path in newest_first:
        if len(files) == limit:
            break
        # Skip files that aren't text or have been deleted in the meantime.
        with suppress(InputError, OSError):
            file = _read_uncommitted_file(project, path, committed_hashes)
            if file is not None:
                files.append(file)

    return sorted(files, key=operator.attrgetter("path"))


def _read_uncommitted_file(
    project: Path, path: str, committed_hashes: Mapping[str, str]
) -> File | None:
    """Read a file; None if its content is committed. Raises `InputError` if it isn't text.

    `committed_hashes` are the hashes of the committed contents, by path.
    """
    data = (project / path).read_bytes()
    committed_hash = committed_hashes.get(path, "")  # "" for a new file
    is_committed = _has_git_hash(data, committed_hash)
    return None if is_committed else documents.decode(path, data)


def _list_recent_files(
    repository: Repository, wanted: Patterns, since: float | None
) -> list[tuple[float, str]]:
    """List the wanted files in the working tree as pairs of (time of the last change, path).

    Skips links and files in linked folders, files that are too large, and files changed before `since`.
    """
    root = os.path.realpath(repository.folder)
    recent_files: list[tuple[float, str]] = []

    for name in _list_working_files(repository):
        if not wanted.match(name):
            continue

        path = os.path.join(root, name)  # noqa: PTH118 - `_is_reached_directly` compares strings
        with suppress(OSError):
            status = os.lstat(path)
            if _is_recent_file(status, since) and _is_reached_directly(path):
                recent_files.append((status.st_mtime, name))

    return recent_files


def _list_working_files(repository: Repository) -> list[str]:
    """List the paths of all files in the working tree, except ignored ones."""
    command = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    output = os.fsdecode(repository.ask(*command, seconds=GIT_SECONDS))
    # git lists a file with a merge conflict multiple times.
    return list(dict.fromkeys(name for name in output.split("\0") if name))


def _is_recent_file(status: os.stat_result, since: float | None) -> bool:
    """Whether a path is a regular file, not too large, and not changed before `since`."""
    if not stat.S_ISREG(status.st_mode):
        return False
    if status.st_size > MAX_FILE_BYTES:
        return False
    if since is None:
        return True
    # Some file systems round times, so a file changed after `since` can have a slightly earlier time.
    return status.st_mtime >= since - _ROUNDING_SECONDS


def _is_reached_directly(path: str) -> bool:
    """Whether a path leads through no linked folder. Such a folder could lead out of the project."""
    return os.path.realpath(path) == os.path.normpath(path)


def _read_committed_hashes(repository: Repository) -> dict[str, str]:
    """Return the blob ids of the files in the current commit; empty before the first commit."""
    if repository.resolve_commit("HEAD") is None:
        return {}
    blobs: dict[str, str] = {}
    output = os.fsdecode(repository.ask("ls-tree", "-r", "-z", "HEAD", seconds=GIT_SECONDS))
    for entry in output.split("\0")[:-1]:  # each is MODE blob OID TAB PATH NUL
        mode_kind_and_oid, _, path = entry.partition("\t")
        _, _, oid = mode_kind_and_oid.split(" ")
        blobs[path] = oid
    return blobs


def _has_git_hash(data: bytes, oid: str) -> bool:
    """Whether a file's content has the blob id `oid`, either unchanged or with LF line endings."""
    # Compute the hash here: git would run any filter program in the clone's configuration.
    make_digest = hashlib.sha1 if len(oid) == _SHA1_DIGITS else hashlib.sha256
    for content in (data, data.replace(b"\r\n", b"\n")):
        header = b"blob %d\0" % len(content)  # git includes this in the hash
        if make_digest(header + content).hexdigest() == oid:
            return True
    return False
