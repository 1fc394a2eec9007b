"""An agent stops where judging is on: files that changed in, verdict and perhaps a reason to go on out.

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
from judgekit.text import rubric_name, short_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.judging.verdict import Finding, Verdict

MAX_FINDINGS = 10
MAX_TEXT = 300  # characters of one text in a finding
MAX_REASON = 6_000  # characters; the client takes 10,000
_MAX_SEEN = 1000  # contents of a session that are remembered
_MAX_AGE = 30 * 24 * 3600  # seconds, after which what is kept of a session goes


def answer(
    payload: Mapping[str, Any], project: str, configured: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Judge what the session changed; return the client's JSON that asks it to go on, or nothing."""
    until = time.monotonic() + configured["deadline"]
    named = str(payload.get("session_id") or "")
    session = "".join(char for char in named if char.isascii() and (char.isalnum() or char == "-"))[
        :64
    ]
    session = session or "unknown"
    folder = Path(project)
    try:
        task = tasks.read_task_file(folder)
        if task.paths is not None:
            patterns = task.paths
        else:
            patterns = settings.load(folder).gate.paths
        path = payload.get("transcript_path")
        if isinstance(path, str):
            since = transcript.started(path)
        else:
            since = None
        files = tasks.read_changed_files(
            folder, patterns, since=since, most=configured["max_files"]
        )
        if not files:
            return "", []
        about = TaskDescription(task.description, task.acceptance)
        document = documents.document(files, task.task or f"session:{session}", about)
        # The files, and what they must fulfil.
        parts = [document.sha256, document.task_id, task.description, task.acceptance]
        key = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
        kept = environment.STOP_SESSIONS.path(environment.file_name_for(session) + ".json")
        seen: list[str] = []
        told = 0  # what was judged in this session; how often it was asked to go on
        with suppress(ValueError, KeyError, TypeError):
            found = quickjson.load(kept)
            seen = [str(each) for each in found["seen"]]
            told = int(found["told"])
        if key in seen:
            return "", []
        request = JudgeRequest(deadline=max(0.1, until - time.monotonic()))
        verdict, notes = tasks.judge_task(document, folder, request)
    except JudgekitError as error:
        return "", [f"not judged, so the agent may stop: {error}"]
    if verdict.human_override is not None:
        asks = verdict.human_override.decision == "reject"
    else:
        asks = verdict.verdict in ("reject", "improve") and bool(_open(verdict))
    asks = asks and told < configured["blocks"]
    if verdict.verdict in ("accept", "improve", "reject"):
        judged = [*seen, key][-_MAX_SEEN:]
    else:
        judged = seen
    sessions = environment.STOP_SESSIONS.make()
    outputs.write_atomically(
        kept, quickjson.dumps({"seen": judged, "told": told + asks}), private=True
    )
    for dir_entry in os.scandir(sessions):
        if dir_entry.stat().st_mtime < time.time() - _MAX_AGE:
            os.unlink(dir_entry.path)
    if verdict.verdict == "undetermined" and verdict.degraded:
        notes.append(f"undetermined, so the agent may stop: {verdict.degraded}")
    return quickjson.dumps({"decision": "block", "reason": reason(verdict)}) if asks else "", notes


def reason(verdict: Verdict) -> str:
    """Return facts for the agent. What a model says of a file may have been steered by that file."""
    names = ", ".join(_harmless(subject.path, 100) for subject in verdict.subjects)
    ref = f"{verdict.rubric.id}@{verdict.rubric.version}"
    rubric = f"{rubric_name(ref, verdict.rubric.source)}, {verdict.mode}"
    head = (
        f"The files changed in this session ({names}) were judged under {rubric}: {verdict.verdict}"
    )
    decided = verdict.human_override
    if decided is not None:
        return f"{head}, decided by a person: {_harmless(decided.why)}"[:MAX_REASON]
    lines = []
    for finding in _open(verdict)[:MAX_FINDINGS]:
        parts = [_harmless(part, 100) for part in (finding.dimension, finding.location) if part]
        if parts:
            where = f"{', '.join(parts)}: "
        else:
            where = ""
        if finding.suggestion:
            suggestion = f" (suggested: {_harmless(finding.suggestion)})"
        else:
            suggestion = ""
        lines.append(f"- {where}{_harmless(finding.issue)}{suggestion}")
    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict.scores or {}).items())
    shown = "\n".join(lines)[:MAX_REASON]
    return (
        f"{head} ({scores}). The verdict is in the ledger under {_harmless(verdict.task_id, 100)}.\n"
        "What the judge found follows. It is a description of the files, written by another model.\n"
        f"<judge-findings>\n{shown}\n</judge-findings>"
    )


def _open(verdict: Verdict) -> list[Finding]:
    return [finding for finding in verdict.findings if not finding.dismissed]


def _harmless(text: str, limit: int = MAX_TEXT) -> str:
    return short_line(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
