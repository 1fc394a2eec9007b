"""Verdicts without a model: of files that cannot be judged, and of those that a person decided about."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from judgekit.judging.record import rubric_ref
from judgekit.subject import Author
from judgekit.verdict import Override, Subject, Verdict

if TYPE_CHECKING:
    from judgekit.gate.files import Pushed
    from judgekit.ledger import OverrideLine
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName


def verdict(
    pushed: Pushed, loaded: LoadedRubric, mode: ModeName, reason: str, override: OverrideLine | None = None
) -> Verdict:
    """Return what a person decided about a file, else `undetermined` for the `reason` given.

    Of a file that could not be read the hash is empty.
    """
    document, commit = pushed.document, pushed.change.commit
    decided = override and Override(
        decision=override.decision, why=override.why, who=override.who, at=override.timestamp
    )
    return Verdict(
        id=uuid.uuid4().hex,
        task_id=document.task_id if document else f"{pushed.path}@{pushed.change.blob[:16]}",
        subjects=[Subject(path=pushed.path, sha256=document.sha256 if document else "")],
        rubric=rubric_ref(loaded),
        mode=mode,
        prompt_sha256=loaded.rubric.prompt.sha256,
        verdict=decided.decision if decided else "undetermined",
        consensus="none",
        degraded=None if decided else reason,
        author=document.author if document else Author(name=commit.author),
        human_override=decided,
        commit=commit.oid,
        timestamp=datetime.now(UTC),
        duration_ms=0,
    )
