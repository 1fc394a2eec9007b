"""Places for engines, and a model that judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from engine_processes import GOOD, private_folder, started
from loopback import Loopback, says

from judgekit.engine.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.engine.client import Connection


@pytest.fixture
def place() -> Iterator[Place]:
    """Return a place of its own for one test; what runs there ends with it."""
    with private_folder() as path:
        yield Place(str(path), "kin", "code")


@pytest.fixture(scope="module")
def ready_place() -> Iterator[Place]:
    """Return the place of an engine that runs for all tests of a module."""
    with private_folder() as path:
        found = Place(str(path), "kin", "code")
        started(found).close()
        yield found


@pytest.fixture
def engine(place: Place) -> Iterator[Connection]:
    """Return a connection to an engine of its own for one test."""
    with started(place) as connection:
        yield connection


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Return the model that judges for this test; it accepts everything."""
    with Loopback(says(GOOD)) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        monkeypatch.setenv("JUDGEKIT_API_KEY", "sk-of-this-test")
        yield server
