"""Sees to it that nobody waits for an engine that has stopped answering, however long the work may take."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from judgekit.engine.client import Connection, EngineLost, NoEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.engine.place import Place

LOOK_SECONDS = 2.0  # of silence after which an engine is asked whether it is well
HEALTH_SECONDS = 3.0  # that it may take to say so: it may be importing, and the machine busy


def is_well(place: Place | None) -> bool:
    """Whether the engine at a place answers at all."""
    try:
        with Connection(place) as connection:
            connection.ask("GET", "/v1/health", seconds=HEALTH_SECONDS).read()
    except (NoEngine, EngineLost):
        return False
    return True


@contextmanager
def watched(connection: Connection) -> Iterator[None]:
    """End what is asked on a connection, with `EngineLost`, when the engine does not answer any more."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            if not is_well(connection.place):
                connection.abort()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
