"""Judges the changed files when an agent stops, and may give it a reason to go on.

Only findings of models that rejected the work, or want it improved, ask the agent to go on.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment, outputs
from judgekit.config import settings
from judgekit.errors import JudgekitError
from judgekit.gate import tasks
from judgekit.judging import documents
from judgekit.judging.documents import TaskDescription
from judgekit.judging.request import JudgeRequest
from judgekit.retrieval import quickjson, transcript
from judgekit.text import format_rubric_name, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.gate.tasks import TaskFile
    from judgekit.judging.documents import Document
    from judgekit.judging.verdict import Finding, Verdict

MAX_FINDINGS = 10
MAX_TEXT_CHARS = 300  # characters of one text in a finding
_MAX_NAME_CHARS = 100  # characters of a path, a dimension, a place or a task
_MAX_SESSION_CHARS = 64  # characters of a session's id
MAX_REASON_CHARS = 6_000  # characters; the client takes 10,000
_MAX_SEEN_STATES = 1000  # contents of a session that are remembered
_MAX_AGE_SECONDS = 30 * 24 * 3600  # seconds to keep a session's file


def judge_stop(
    payload: Mapping[str, Any], project: str, configured: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Judge a session's changes when its agent stops. Returns output for the client, and notes for stderr.

    The output asks the agent to go on. It's empty if the agent may stop.
    """
    ends_at = time.monotonic() + configured["deadline"]  # also limits the time for reading files
    session = _name_session(payload)
    folder = Path(project)
    try:
        task = tasks.read_task_file(folder)
        document = _read_changes(payload, task, folder, session, configured["max_files"])
        if document is None:
            return "", []

        state_key = _digest_state(document, task)
        session_file = environment.STOP_SESSIONS.path(environment.make_file_name(session) + ".json")
        seen_keys, times_asked = _read_session(session_file)
        if state_key in seen_keys:  # this state was already judged
            return "", []

        verdict, notes = _judge_until(ends_at, document, folder)
    except JudgekitError as error:
        return "", [f"not judged, so the agent may stop: {error}"]

    if _is_decided(verdict):  # don't judge this state again
        seen_keys = [*seen_keys, state_key][-_MAX_SEEN_STATES:]
    # An agent is asked to go on at most `blocks` times in a session.
    must_go_on = _should_go_on(verdict) and times_asked < configured["blocks"]
    if must_go_on:
        times_asked += 1
    _write_session(session_file, seen_keys, times_asked)

    if verdict.verdict == "undetermined" and verdict.degraded:
        notes.append(f"undetermined, so the agent may stop: {verdict.degraded}")
    output = _format_request(verdict) if must_go_on else ""
    return output, notes


def _judge_until(ends_at: float, document: Document, folder: Path) -> tuple[Verdict, list[str]]:
    """Judge a document until a time of the monotonic clock. Returns the verdict and notes."""
    seconds_left = max(0.1, ends_at - time.monotonic())  # a deadline must be positive
    return tasks.judge_task(document, folder, JudgeRequest(deadline=seconds_left))


def _is_decided(verdict: Verdict) -> bool:
    """Whether models came to a decision."""
    return verdict.verdict in ("accept", "improve", "reject")


def _format_request(verdict: Verdict) -> str:
    """Ask the agent to go on because of a verdict, in the JSON that the client reads."""
    return quickjson.dumps({"decision": "block", "reason": explain_verdict(verdict)})


def _digest_state(document: Document, task: TaskFile) -> str:
    """Compute a digest of the work's state: its files and requirements."""
    parts = [document.sha256, document.task_id, task.description, task.acceptance]
    state = "\0".join(parts).encode("utf-8", "replace")
    return hashlib.sha256(state).hexdigest()


def _name_session(payload: Mapping[str, Any]) -> str:
    """Name a session by the letters, digits and hyphens in its id, or "unknown"."""
    session_id = str(payload.get("session_id") or "")
    chars = [char for char in session_id if char.isascii() and (char.isalnum() or char == "-")]
    name = "".join(chars[:_MAX_SESSION_CHARS])
    return name or "unknown"


def _read_changes(
    payload: Mapping[str, Any], task: TaskFile, folder: Path, session: str, limit: int
) -> Document | None:
    """Build a document to judge from the files that changed during the conversation.

    It contains at most `limit` files. Returns None if no file changed.
    """
    patterns = task.paths
    if patterns is None:  # the task's file names no paths, so judge those that the gate judges
        patterns = settings.load(folder).gate.paths

    # The transcript shows when the conversation started.
    path = payload.get("transcript_path")
    since = transcript.read_start_time(path) if isinstance(path, str) else None

    files = tasks.read_changed_files(folder, patterns, since=since, limit=limit)
    if not files:
        return None

    task_id = task.task or f"session:{session}"
    description = TaskDescription(task.description, task.acceptance)
    return documents.build_document(files, task_id, description)


def _read_session(path: str) -> tuple[list[str], int]:
    """Read the keys of a session's judged states, and how often its agent was asked to go on.

    Without a readable file, returns [] and 0.
    """
    seen_keys: list[str] = []
    times_asked = 0
    # Without a readable file, `data` is None, so that `data["seen"]` raises a TypeError.
    with suppress(ValueError, KeyError, TypeError):
        data = quickjson.load(path)
        seen_keys = [str(key) for key in data["seen"]]
        times_asked = int(data["told"])  # how often the agent was told to go on
    return seen_keys, times_asked


def _write_session(path: str, seen_keys: list[str], times_asked: int) -> None:
    """Store which states of a session were judged, and how often its agent was asked to go on.

    Session files that are too old are deleted.
    """
    sessions_folder = environment.STOP_SESSIONS.make()
    data = {"seen": seen_keys, "told": times_asked}  # how often it was told to go on
    outputs.write_atomically(path, quickjson.dumps(data), private=True)
    with os.scandir(sessions_folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another process may have just deleted it
                if entry.stat().st_mtime < time.time() - _MAX_AGE_SECONDS:
                    os.unlink(entry.path)


def _should_go_on(verdict: Verdict) -> bool:
    """Whether the agent should continue, because a person rejected its work or models found problems."""
    if verdict.human_override is not None:
        return verdict.human_override.decision == "reject"
    has_findings = len(_list_open_findings(verdict)) > 0
    return has_findings and verdict.verdict in ("reject", "improve")


def explain_verdict(verdict: Verdict) -> str:
    """Describe a verdict and its findings to the agent, as facts instead of orders.

    The judged files may have influenced the model's words, so these are escaped.
    """
    head = _describe_judgement(verdict)
    override = verdict.human_override
    if override is not None:
        return f"{head}, decided by a person: {_escape_line(override.why)}"[:MAX_REASON_CHARS]

    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict.scores or {}).items())
    task = _escape_line(verdict.task_id, _MAX_NAME_CHARS)
    findings = _describe_findings(verdict)
    return (
        f"{head} ({scores}). The verdict is in the ledger under {task}.\n"
        "What the judge found follows. It is a description of the files, written by another model.\n"
        f"<judge-findings>\n{findings}\n</judge-findings>"
    )


def _describe_judgement(verdict: Verdict) -> str:
    """Say which files were judged, under which rubric, and the verdict."""
    names = ", ".join(_escape_line(subject.path, _MAX_NAME_CHARS) for subject in verdict.subjects)
    ref = f"{verdict.rubric.id}@{verdict.rubric.version}"
    rubric = f"{format_rubric_name(ref, verdict.rubric.source)}, {verdict.mode}"
    return (
        f"The files changed in this session ({names}) were judged under {rubric}: {verdict.verdict}"
    )


def _describe_findings(verdict: Verdict) -> str:
    """Describe a verdict's first open findings, one a line."""
    findings = _list_open_findings(verdict)[:MAX_FINDINGS]
    lines = [_describe_finding(finding) for finding in findings]
    return "\n".join(lines)[:MAX_REASON_CHARS]


def _describe_finding(finding: Finding) -> str:
    """Format a finding as `- DIMENSION, LOCATION: ISSUE (suggested: SUGGESTION)`, without empty parts."""
    line = _escape_line(finding.issue)
    heading_parts = [text for text in (finding.dimension, finding.location) if text]
    if heading_parts:
        heading = ", ".join(_escape_line(part, _MAX_NAME_CHARS) for part in heading_parts)
        line = f"{heading}: {line}"
    if finding.suggestion:
        line = f"{line} (suggested: {_escape_line(finding.suggestion)})"
    return f"- {line}"


def _list_open_findings(verdict: Verdict) -> list[Finding]:
    """List the findings that weren't dismissed."""
    return [finding for finding in verdict.findings if not finding.dismissed]


def _escape_line(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """Shorten text to a single line, and escape characters that could form a tag."""
    line = shorten_to_line(text, limit)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
