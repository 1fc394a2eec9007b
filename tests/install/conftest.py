"""A repository to install into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> GitRepo:
    """Return an empty repository."""
    return GitRepo(tmp_path / "work")


@pytest.fixture
def hooks(repository: GitRepo) -> Path:
    """Return its folder of hooks, with nothing in it."""
    folder = repository.folder / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    for sample in folder.glob("*"):
        sample.unlink()
    return folder
