from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, jwt_store

from judgekit.retrieval import index_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return jwt_store(tmp_path / "project")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass between the last change of the store and every look at it."""
    monkeypatch.setattr(index_file, "get_time_ns", lambda: time.time_ns() + 3600 * 10**9)
