"""A repository to install into. The real client, or a skip that says how to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import claude_client
import claude_standin
import pytest
import sample_store
from git_repo import GitRepo

if TYPE_CHECKING:
    from collections.abc import Iterator
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


@pytest.fixture
def api() -> Iterator[claude_standin.Standin]:
    """A stand-in for the client's API."""
    with claude_standin.serve() as standin:
        yield standin


@pytest.fixture
def client(api: claude_standin.Standin, tmp_path: Path) -> claude_client.Client:
    """The client in a project with a store of memories, and no hook yet."""
    program = claude_client.find()
    if program is None:
        pytest.skip(
            f"no Claude Code client: name one in {claude_client.VARIABLE}, or run .ci/run, which fetches it"
        )
    client = claude_client.Client(program, tmp_path, api)
    client.project.mkdir()
    sample_store.write(client.project)
    return client
