"""What a fork waits for: a lock that another thread holds would stay locked in the child for ever.

Such locks are ours, the import system's, and the one under which pydantic builds models.
"""

from __future__ import annotations

import _imp
import importlib._bootstrap
import os
import sys
import threading
import time
from typing import Any, TypeVar

Lock = TypeVar("Lock")

# Seconds for other threads; to import litellm takes three of CPU, on a busy machine more than ten.
MOST_SECONDS = 30.0

_locks: list[Any] = []
_held: list[Any] = []


def waits_for(lock: Lock) -> Lock:
    """Have every fork wait until no other thread has a lock of ours; return it."""
    _locks.append(lock)
    return lock


def _before() -> None:
    """Wait until no other thread has a lock, imports or builds a model of pydantic's, and let none begin."""
    deadline = time.monotonic() + MOST_SECONDS
    for lock in _locks:
        if lock.acquire(timeout=MOST_SECONDS):
            _held.append(lock)
    _imp.acquire_lock()
    while time.monotonic() < deadline:
        if not _is_importing_elsewhere() and _take_pydantic_lock():
            return
        _imp.release_lock()
        time.sleep(0.005)
        _imp.acquire_lock()


def _is_importing_elsewhere() -> bool:
    locks = list(getattr(importlib._bootstrap, "_module_locks", {}).values())  # noqa: SLF001 - told nowhere else
    owners = {getattr(lock(), "owner", None) for lock in locks}
    return not owners <= {None, threading.get_ident()}


def _take_pydantic_lock() -> bool:
    """Return whether no other thread has the lock, or pydantic has none."""
    lock = getattr(sys.modules.get("pydantic.main"), "_rebuild_lock", None)
    if lock is None:
        return True
    if not lock.acquire(blocking=False):
        return False
    _held.append(lock)
    return True


def _after() -> None:
    while _held:
        _held.pop().release()
    _imp.release_lock()  # last: until then no other thread forks


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
