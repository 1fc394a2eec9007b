"""Sees to it that nobody waits for an engine that has stopped answering, however long the work may take."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from judgekit.engine.client import LOOK_SECONDS, is_well

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.engine.client import Connection


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
