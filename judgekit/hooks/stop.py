"""An agent stops where judging is on: files that changed in, verdict and perhaps a reason to go on out.

Only findings of models that rejected the work, or want it improved, ask the agent to go on.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.config import settings
from judgekit.errors import JudgekitError
from judgekit.gate import tasks
from judgekit.judging import documents
from judgekit.judging.documents import Task
from judgekit.judging.service import JudgeRequest
from judgekit.retrieval import quickjson, transcript
from judgekit.text import one_line, rubric_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.judging.documents import Document
    from judgekit.judging.verdict import Verdict

FOLDER = "stop"
MAX_FINDINGS = 10
MAX_TEXT = 300  # characters of one text in a finding
MAX_REASON = 6_000  # characters; the client takes 10,000
_MAX_AGE = 30 * 24 * 3600  # seconds, after which what is kept of a session goes
_SETTLED = ("accept", "improve", "reject")


def answer(payload: Mapping[str, Any], project: str, configured: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Judge what the session changed; return the client's JSON that asks it to go on, or nothing."""
    until = time.monotonic() + configured["deadline"]
    named = str(payload.get("session_id") or "")
    session = "".join(char for char in named if char.isascii() and (char.isalnum() or char == "-"))[:64]
    session = session or "unknown"
    try:
        document = _document(payload, Path(project), session, configured["max_files"])
        if document is None:
            return "", []
        # The files, and what they must fulfil.
        parts = [document.sha256, document.task_id, document.task.description, document.task.acceptance]
        key = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
        memory = Memory(session)
        if key in memory.seen:
            return "", []
        request = JudgeRequest(deadline=max(0.1, until - time.monotonic()))
        verdict, notes = tasks.judge(document, Path(project), request)
    except JudgekitError as error:
        return "", [f"not judged, so the agent may stop: {error}"]
    asks = asks_to_go_on(verdict) and memory.told < configured["blocks"]
    memory.keep(key if verdict.verdict in _SETTLED else None, told=asks)
    if verdict.verdict == "undetermined" and verdict.degraded:
        notes.append(f"undetermined, so the agent may stop: {verdict.degraded}")
    text = quickjson.dumps({"decision": "block", "reason": reason(verdict)}) if asks else ""
    return text, notes


class Memory:
    """What is kept of a session: the contents that were judged, and how often it was asked to go on."""

    def __init__(self, session: str) -> None:
        self._path = os.path.join(
            environment.cache_home(), FOLDER, environment.file_name_for(session) + ".json"
        )
        try:
            with open(self._path, encoding="utf-8", newline="\n") as file:
                kept: Any = quickjson.loads(file.read(1_000_000))
            self.seen, self.told = [str(each) for each in kept["seen"]], int(kept["told"])
        except (OSError, ValueError, KeyError, TypeError):
            self.seen, self.told = [], 0

    def keep(self, key: str | None, *, told: bool) -> None:
        """Note a judged content, and whether the agent was asked to go on."""
        self.seen, self.told = [*self.seen, *([key] if key else [])][-1000:], self.told + told
        folder = environment.cache_folder(FOLDER)
        environment.write_private(self._path, quickjson.dumps({"seen": self.seen, "told": self.told}))
        for dir_entry in os.scandir(folder):
            if dir_entry.stat().st_mtime < time.time() - _MAX_AGE:
                os.unlink(dir_entry.path)


def asks_to_go_on(verdict: Verdict) -> bool:
    """Whether a verdict tells an agent something to do: a refusal with findings, a model's or a person's."""
    if verdict.human_override is not None:
        return verdict.human_override.decision == "reject"
    return verdict.verdict in ("reject", "improve") and bool(verdict.findings)


def reason(verdict: Verdict) -> str:
    """Return facts for the agent. What a model says of a file may have been steered by that file."""
    names = ", ".join(_harmless(subject.path, 100) for subject in verdict.subjects)
    ref = f"{verdict.rubric.id}@{verdict.rubric.version}"
    rubric = f"{rubric_name(ref, verdict.rubric.source)}, {verdict.mode}"
    head = f"The files changed in this session ({names}) were judged under {rubric}: {verdict.verdict}"
    decided = verdict.human_override
    if decided is not None:
        return f"{head}, decided by a person: {_harmless(decided.why)}"[:MAX_REASON]
    lines = []
    for finding in verdict.findings[:MAX_FINDINGS]:
        parts = [_harmless(part, 100) for part in (finding.dimension, finding.location) if part]
        where = f"{', '.join(parts)}: " if parts else ""
        suggestion = f" (suggested: {_harmless(finding.suggestion)})" if finding.suggestion else ""
        lines.append(f"- {where}{_harmless(finding.issue)}{suggestion}")
    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict.scores or {}).items())
    shown = "\n".join(lines)[:MAX_REASON]
    return (
        f"{head} ({scores}). The verdict is in the ledger under {_harmless(verdict.task_id, 100)}.\n"
        "What the judge found follows. It is a description of the files, written by another model.\n"
        f"<judge-findings>\n{shown}\n</judge-findings>"
    )


def _harmless(text: str, limit: int = MAX_TEXT) -> str:
    return one_line(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _document(payload: Mapping[str, Any], project: Path, session: str, most: int) -> Document | None:
    task = tasks.of_project(project)
    patterns = task.paths if task.paths is not None else settings.load(project).gate.paths
    path = payload.get("transcript_path")
    since = transcript.started(path) if isinstance(path, str) else None
    files = tasks.files(project, patterns, since=since, most=most)
    if not files:
        return None
    about = Task(task.description, task.acceptance)
    return documents.document(files, task.task or f"session:{session}", about)
