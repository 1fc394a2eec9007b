"""Ends what a program left running in sessions of its own, which no signal to its group reaches.

Each call marks the environment of its program, and what that starts inherits the mark. Linux shows the
environment that a process was started with; elsewhere, and where a process was started with none, nothing is
found. Looking costs some milliseconds and is done only when a call was cut off.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROUNDS = 5  # what is found may start another while it is looked for
_PROCESSES = "/proc"


def end(variable: str, mark: str) -> int:
    """Kill every process that was started with `variable` set to `mark`; return how many were found.

    `mark` must be one that nobody else has chosen.
    """
    if sys.platform != "linux":
        return 0
    wanted = f"{variable}={mark}".encode()
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(_with(wanted)) - killed  # one that is dying can still be read for a while
        if not found:
            break
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed |= found
    return len(killed)


def _with(setting: bytes) -> Iterator[int]:
    """Yield the processes of this user whose environment has a setting."""
    with contextlib.suppress(OSError):
        for name in os.listdir(_PROCESSES):  # noqa: PTH208 - names are wanted, no paths
            if name.isdecimal() and setting in _environment(name):
                yield int(name)


def _environment(process: str) -> list[bytes]:
    """Return the settings of a process; none where it has ended or is another user's."""
    try:
        return Path(_PROCESSES, process, "environ").read_bytes().split(b"\0")
    except OSError:
        return []
