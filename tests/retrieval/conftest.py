from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, jwt_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A claude-memory store with one memory, about refreshing JWTs."""
    return jwt_store(tmp_path / "project")
