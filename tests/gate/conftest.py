"""Worlds for the gate's tests. A project on GitHub, and a gh that is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_gh import ADDRESS, FakeGh
from git_repo import GitRepo
from pushing import World

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bare_world(tmp_path: Path, isolated: Path) -> World:
    return World(tmp_path, isolated)


@pytest.fixture
def world(bare_world: World) -> World:
    """Return a repository with the hook, whose remote has one commit: rules for a gate that blocks."""
    bare_world.start()
    return bare_world


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGh:
    made = FakeGh.make(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    return made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    repository = GitRepo(tmp_path / "docs")
    repository("remote", "add", "origin", ADDRESS)
    monkeypatch.chdir(repository.folder)
    return repository.folder
