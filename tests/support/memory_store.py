"""Writes claude-memory stores for tests, whole ones and broken ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from judgekit.retrieval import compiled, scan

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDERS = {
    "decision": "decisions",
    "constraint": "constraints",
    "preference": "preferences",
    "runbook": "runbooks",
    "tech_debt": "tech-debt",
    "session_summary": "sessions",
}
FIELDS = {
    "decision": "context",
    "constraint": "rule",
    "preference": "value",
    "runbook": "trigger",
    "tech_debt": "description",
    "session_summary": "goal",
}


NOW = datetime.now(UTC).isoformat()


class MemoryStore:
    """A store in the making, at `<project>/.claude/memory`."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.root = project / ".claude" / "memory"
        self.lines: list[str] = []
        self.root.mkdir(parents=True)

    def add(
        self,
        name: str,
        title: str,
        body: str = "",
        *,
        listed: bool = True,
        **fields: Any,  # noqa: ANN401 - a record's
    ) -> Path:
        """Write a record, by default an active decision, and remember its line for the index."""
        category = fields.pop("category", "decision")
        tags = fields.pop("tags", [])
        path = self.root / FOLDERS[category] / f"{name}.json"
        record = {
            "schema_version": "1.0",
            "category": category,
            "id": name,
            "title": title,
            "record_status": "active",
            "updated_at": NOW,
            "tags": tags,
            "content": {FIELDS[category]: body},
        }
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record | fields), encoding="utf-8")
        if listed:
            self.list(title, f".claude/memory/{FOLDERS[category]}/{name}.json", category, tags)
        return path

    def list(
        self, title: str, path: str, category: str = "decision", tags: tuple[str, ...] = ()
    ) -> None:
        tail = f" #tags:{','.join(tags)}" if tags else ""
        self.lines.append(f"- [{category.upper()}] {title} -> {path}{tail}")

    def write_index(self) -> MemoryStore:
        (self.root / "index.md").write_text(
            "\n".join(["# Memory", "", *self.lines, ""]), encoding="utf-8"
        )
        return self

    def fill(self, count: int) -> MemoryStore:
        subjects = (
            "invoice",
            "avatar",
            "locale",
            "backup",
            "canary",
            "shard",
            "template",
            "webhook",
        )
        for number in range(count):
            one, two = subjects[number % 8], subjects[number // 8 % 8]
            category = list(FOLDERS)[number % 6]
            title = f"{one.title()} {two} rule {number}"
            self.add(f"filler-{number}", title, f"The {one} of {two} is kept.", category=category)
        return self


def jwt_store(project: Path, fillers: int = 0) -> MemoryStore:
    """Return a store with one memory about refreshing JWTs, and `fillers` about other things."""
    store = MemoryStore(project)
    body = "Access tokens live for fifteen minutes; a rotating cookie gets the next one."
    store.add("jwt", "JWT token refresh flow", body, tags=("auth", "jwt"))
    return store.fill(fillers).write_index()


def listed(root: Path, kind: str) -> scan.Listing:
    profiles = compiled.Profiles(compiled.get_bundled_data())
    store, found, folders = (
        scan.Store(str(root.resolve()), kind, profiles),
        scan.Listing(None, 0),
        [""],
    )
    while folders:
        listing = store.list(folders.pop())
        found.files |= listing.files
        found.problems += listing.problems
        folders += listing.folders
    return found


def write_topics(folder: Path, topics: Iterable[str]) -> None:
    """Write a store into a project with a memory for each topic."""
    store = MemoryStore(folder)
    for topic in topics:
        store.add(topic.replace(" ", "-"), f"Handling of the {topic}", f"Each {topic} is kept dry.")
    store.write_index()
