"""State that every process makes for itself, so that a forked child starts fresh."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Value = TypeVar("Value")
_IMPORTING_PROCESS_ID = os.getpid()


def was_forked() -> bool:
    """Whether this process was forked after judgekit was imported."""
    return os.getpid() != _IMPORTING_PROCESS_ID


class PerProcess(Generic[Value]):
    """A value that each process makes with `make` when it first asks for it.

    A forked child copies its parent's locks, threads and connections: a lock may be held by a thread that
    the child doesn't have, and a connection is still the parent's. A process knows its own state by its pid,
    which also holds for a fork in C that runs none of Python's handlers (uWSGI's).
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        # The ancestors' values stay referenced, because collecting one could close the parent's connections.
        self._by_pid: dict[int, Value] = {}

    def get(self) -> Value:
        """Return this process's value, which is made on first use."""
        pid = os.getpid()
        value = self._by_pid.get(pid)
        if value is None:
            # `setdefault` is atomic, so all threads get the same value. There's no lock, because a thread of
            # the parent could have held it during the fork.
            value = self._by_pid.setdefault(pid, self._make())
        return value
