"""The prompt hook in this process, a store and a repository to work in, and the real client, or a skip."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import claude_client
import claude_standin
import pytest
import sample_store
from git_repo import GitRepo
from memory_store import MemoryStore, jwt_store

from judgekit.hooks import claude_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return jwt_store(tmp_path / "project", 20)


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, list[str]]]:

    def call(
        stdin: bytes | dict[str, object] | io.TextIOBase | None, *arguments: str
    ) -> tuple[str, list[str]]:
        if isinstance(stdin, bytes | dict):
            raw = stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()
            stdin = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "argv", ["judgekit", "hook", *arguments])
        capfd.readouterr()
        assert claude_code.main() == 0
        out, err = capfd.readouterr()
        return out, err.splitlines()

    return call


@pytest.fixture
def repository(tmp_path: Path) -> GitRepo:
    return GitRepo(tmp_path / "work")


@pytest.fixture
def hooks(repository: GitRepo) -> Path:
    folder = repository.folder / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    for sample in folder.glob("*"):
        sample.unlink()
    return folder


@pytest.fixture
def api() -> Iterator[claude_standin.Standin]:
    """A stand-in for the client's API."""
    with claude_standin.Standin() as standin:
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
