"""Verdicts and labels for tests of the ledger, from a few words each."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from judgekit.ledger.records import Label, OverrideLine, VerdictLine, find_newest_override

if TYPE_CHECKING:
    from judgekit.judging.verdict import VerdictWord
    from judgekit.ledger import Ledger
    from judgekit.ledger.records import LabelWord

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
SHA = "3f2c" + "0" * 60
SCORES = {"accept": 4.0, "improve": 2.5, "reject": 1.0}


def round_of(
    outcome: str | None, tier: str = "quick", model: str = "small", **extra: object
) -> dict[str, Any]:
    opinion: dict[str, Any] = {
        "outcome": outcome,
        "scores": {"semantic": 4},
        "reasoning": "said why",
        "findings": [],
    }
    failure = {"kind": "timeout", "message": "no reply in 45 s"}
    found: dict[str, object] = {"opinion": opinion} if outcome else {"failure": failure}
    return {"round": 1, "tier": tier, "model": model, "latency_ms": 800, **found, **extra}


def verdict(
    word: VerdictWord = "accept",
    *,
    days: float = 0,
    path: str = "a.md",
    name: str = "",
    **changes: object,
) -> VerdictLine:
    decided = word in SCORES
    fields: dict[str, Any] = {
        "id": name or f"{path}-{word}-{days}",
        "task_id": f"{path}@{SHA[:16]}",
        "subjects": [{"path": path, "sha256": SHA}],
        "rubric": {"id": "kls", "version": "1.0.0", "sha256": "f" * 64},
        "mode": "lenient",
        "prompt_sha256": "e" * 64,
        "verdict": word,
        "scores": {"semantic": SCORES[word]} if decided else None,
        "average": SCORES[word] if decided else None,
        "consensus": "single" if decided else "none",
        "judge_tier": "quick" if decided else None,
        "model": "small" if decided else None,
        "rounds": [round_of(word if decided else None)],
        "timestamp": NOW - timedelta(days=days),
        "duration_ms": 1200,
    }
    return VerdictLine.model_validate(fields | changes)


def content(text: str, path: str = "a.md") -> dict[str, Any]:
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return {"task_id": f"{path}@{sha256[:12]}", "subjects": [{"path": path, "sha256": sha256}]}


def label(of: VerdictLine, word: LabelWord, who: str = "ann", *, after: float = 1) -> Label:
    at = of.timestamp + timedelta(hours=after)
    return Label(of=of.id, label=word, who=who, timestamp=at)


def given(
    word: VerdictWord = "accept", *, days: float = 1, path: str = "a.md", **more: object
) -> VerdictLine:
    fields: dict[str, Any] = {"name": f"{word}-{path}-{days}", "path": path} | more
    return verdict(word, timestamp=datetime.now(UTC) - timedelta(days=days), **fields)


def several(word: VerdictWord, count: int, days: float) -> list[VerdictLine]:
    """Return verdicts on contents that differ, the newest `days` before the present."""
    return [
        given(word, days=days + n / 100, name=f"{word}{n}", **content(f"{word}{n}", f"{n}.md"))
        for n in range(count)
    ]


def override_for(
    ledger: Ledger, task: str, subjects: list[str] | None = None, *, without_terminal: bool = False
) -> OverrideLine | None:
    return find_newest_override(
        ledger.read_records(), task, subjects or [], without_terminal=without_terminal
    )
