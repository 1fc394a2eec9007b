"""A handful of memories in the layout of a claude-memory store, for tests that need a real one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """One entry of the sample store: its folder below the store, and its content."""

    folder: str
    id: str
    category: str
    title: str
    tags: tuple[str, ...]
    content: dict[str, object]

    @property
    def path(self) -> str:
        return f".claude/memory/{self.folder}/{self.id}.json"


_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
MEMORIES = tuple(Memory(**{**each, "tags": tuple(each["tags"])}) for each in _READ["memories"])
JWT = MEMORIES[0]


def write(project: Path) -> Path:
    store = project / ".claude" / "memory"
    for memory in MEMORIES:
        path = project / memory.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_record(memory), indent=2), encoding="utf-8")
    lines = [
        f"- [{memory.category.upper()}] {memory.title} -> {memory.path} #tags:{','.join(memory.tags)}"
        for memory in MEMORIES
    ]
    (store / "index.md").write_text(
        "# Memory index\n\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
    return store


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
