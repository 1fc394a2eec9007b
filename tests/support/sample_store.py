"""A handful of memories in the layout of a claude-memory store, for tests that need a real one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Memory(NamedTuple):
    """One entry of the sample store: where it lies below the store, and what it says."""

    folder: str
    id: str
    category: str
    title: str
    tags: tuple[str, ...]
    content: dict[str, object]

    @property
    def path(self) -> str:
        """The path as the index names it, relative to the project."""
        return f".claude/memory/{self.folder}/{self.id}.json"


JWT = Memory(
    "decisions",
    "jwt-refresh-flow",
    "decision",
    "JWT refresh flow for the web client",
    ("auth", "jwt", "refresh"),
    {
        "context": "Access tokens expire after fifteen minutes and people were logged out mid-form.",
        "decision": "Refresh the JWT through /auth/refresh with a rotating, http-only cookie.",
        "rationale": ["A stolen access token dies soon", "No token stands in local storage"],
        "consequences": ["Every client retries once after a 401"],
    },
)

MEMORIES = (
    JWT,
    Memory(
        "constraints",
        "payments-isolation",
        "constraint",
        "Payment tables are written only by the billing service",
        ("billing", "database"),
        {"rule": "Other services read a replica.", "impact": "Joins across are not possible."},
    ),
    Memory(
        "runbooks",
        "queue-backlog",
        "runbook",
        "Draining the email queue after an outage",
        ("queue", "email", "outage"),
        {"trigger": "More than 10,000 mails wait", "steps": ["Pause the producers", "Double the workers"]},
    ),
    Memory(
        "preferences",
        "commit-style",
        "preference",
        "Commit subjects are written in the imperative",
        ("git", "style"),
        {"topic": "git", "value": "Fifty characters at most", "reason": "Logs stay readable"},
    ),
    Memory(
        "tech-debt",
        "csv-export",
        "tech_debt",
        "CSV export loads the whole report into RAM",
        ("export", "performance"),
        {"description": "Reports above 2 GB fail.", "suggested_fix": "Write rows as they are read."},
    ),
)


def write(project: Path) -> Path:
    """Write the store below `project` and return its folder."""
    store = project / ".claude" / "memory"
    for memory in MEMORIES:
        path = project / memory.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_record(memory), indent=2), encoding="utf-8")
    lines = [_index_line(memory) for memory in MEMORIES]
    (store / "index.md").write_text("# Memory index\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return store


def _index_line(memory: Memory) -> str:
    return f"- [{memory.category.upper()}] {memory.title} -> {memory.path} #tags:{','.join(memory.tags)}"


def _record(memory: Memory) -> dict[str, object]:
    return {
        "schema_version": "1.0",
        "category": memory.category,
        "id": memory.id,
        "title": memory.title,
        "record_status": "active",
        "created_at": "2026-03-01T09:00:00Z",
        "updated_at": "2026-03-02T09:00:00Z",
        "tags": list(memory.tags),
        "related_files": [],
        "confidence": 0.9,
        "content": memory.content,
    }
