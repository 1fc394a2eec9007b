"""Worlds for the gate's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pushing import World

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bare_world(tmp_path: Path, isolated: Path) -> World:
    """Return a repository and an empty remote, without a hook."""
    return World(tmp_path, isolated)


@pytest.fixture
def world(bare_world: World) -> World:
    """Return a repository with the hook, whose remote has one commit: rules for a gate that blocks."""
    bare_world.start()
    return bare_world
