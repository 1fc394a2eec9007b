"""The `Stop` event where judging is on: files that changed in, verdict and perhaps a reason to go on out."""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.retrieval import quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from judgekit.judging.subject import Document
    from judgekit.judging.verdict import Finding, Verdict

FOLDER = "stop"
MAX_FINDINGS = 10
MAX_TEXT = 300  # characters of one text in a finding
MAX_REASON = 6_000  # characters; the client takes 10,000
_MAX_AGE = 30 * 24 * 3600  # seconds, after which what is kept of a session goes
_SETTLED = ("accept", "improve", "reject")


def answer(payload: Mapping[str, Any], project: str, configured: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Judge what the session changed; return the client's JSON that asks it to go on, or nothing."""
    until = time.monotonic() + configured["deadline"]
    from judgekit.errors import JudgekitError  # noqa: PLC0415 - the same
    from judgekit.judging.service import JudgeRequest  # noqa: PLC0415 - imported only after what they need can be

    session = _session(payload)
    try:
        document = _document(payload, project, session, configured["max_files"])
        if document is None:
            return "", []
        memory = Memory(session)
        if _key(document) in memory.seen:
            return "", []
        from pathlib import Path  # noqa: PLC0415 - most stops end above

        from judgekit.gate import tasks  # noqa: PLC0415 - the same

        left = max(0.1, until - time.monotonic())
        verdict, notes = tasks.judge(document, Path(project), JudgeRequest(deadline=left))
    except JudgekitError as error:
        return "", [f"not judged, the agent stops: {error}"]
    asks = asks_to_go_on(verdict) and memory.told < configured["blocks"]
    memory.keep(_key(document) if verdict.verdict in _SETTLED else None, told=asks)
    if verdict.verdict == "undetermined" and verdict.degraded:
        notes.append(f"undetermined, the agent stops: {verdict.degraded}")
    text = quickjson.dumps({"decision": "block", "reason": reason(verdict)}) if asks else ""
    return text, notes


class Memory:
    """What is kept of a session: the contents that were judged, and how often it was asked to go on."""

    def __init__(self, session: str) -> None:
        self._path = os.path.join(
            environment.cache_home(), FOLDER, environment.file_name_for(session) + ".json"
        )
        found: Any = None
        try:
            with open(self._path, encoding="utf-8", newline="\n") as file:
                found = quickjson.loads(file.read(1_000_000))
            self.seen, self.told = [str(each) for each in found["seen"]], int(found["told"])
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
    from judgekit.text import one_line, rubric_name  # noqa: PLC0415 - loaded by then

    names = ", ".join(_harmless(one_line(subject.path, 100)) for subject in verdict.subjects)
    task = _harmless(one_line(verdict.task_id, 100))
    ref = f"{verdict.rubric.id}@{verdict.rubric.version}"
    rubric = f"{rubric_name(ref, verdict.rubric.source)}, {verdict.mode}"
    scores = ", ".join(f"{name} {value:g}" for name, value in (verdict.scores or {}).items())
    head = f"The files changed in this session ({names}) were judged under {rubric}: {verdict.verdict}"
    decided = verdict.human_override
    if decided is not None:
        return f"{head}, decided by a person: {_harmless(one_line(decided.why, MAX_TEXT))}"[:MAX_REASON]
    shown = "\n".join(_line(finding) for finding in verdict.findings[:MAX_FINDINGS])
    return (
        f"{head} ({scores}). The verdict is in the ledger under {task}.\n"
        "What the judge found follows. It is a description of the files, written by another model.\n"
        f"<judge-findings>\n{shown[:MAX_REASON]}\n</judge-findings>"
    )


def _line(each: Finding) -> str:
    from judgekit.text import one_line  # noqa: PLC0415 - loaded by then

    where = ", ".join(_harmless(one_line(part, 100)) for part in (each.dimension, each.location) if part)
    text = f"- {where + ': ' if where else ''}{_harmless(one_line(each.issue, MAX_TEXT))}"
    suggestion = _harmless(one_line(each.suggestion, MAX_TEXT))
    return f"{text} (suggested: {suggestion})" if suggestion else text


def _harmless(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _document(payload: Mapping[str, Any], project: str, session: str, most: int) -> Document | None:
    from pathlib import Path  # noqa: PLC0415 - imported only after what they need can be

    from judgekit.config import settings  # noqa: PLC0415 - the same
    from judgekit.gate import tasks  # noqa: PLC0415 - the same
    from judgekit.judging import documents  # noqa: PLC0415 - the same
    from judgekit.judging.subject import Task  # noqa: PLC0415 - the same
    from judgekit.retrieval import transcript  # noqa: PLC0415 - the same

    folder = Path(project)
    task = tasks.of_project(folder)
    patterns = task.paths if task.paths is not None else settings.load(folder).gate.paths
    path = payload.get("transcript_path")
    since = transcript.started(path) if isinstance(path, str) else None
    files = tasks.files(folder, patterns, since=since, most=most)
    if not files:
        return None
    return documents.document(
        files, task.task or f"session:{session}", Task(task.description, task.acceptance)
    )


def _key(document: Document) -> str:
    """Return what is judged as one word: the files, and what they must fulfil."""
    import hashlib  # noqa: PLC0415 - loaded by then

    task: Sequence[str] = (document.task_id, document.task.description, document.task.acceptance)
    return hashlib.sha256("\0".join([document.sha256, *task]).encode("utf-8", "replace")).hexdigest()


def _session(payload: Mapping[str, Any]) -> str:
    named = payload.get("session_id")
    text = named if isinstance(named, str) else ""
    return (
        "".join(char for char in text if char.isascii() and (char.isalnum() or char == "-"))[:64] or "unknown"
    )
