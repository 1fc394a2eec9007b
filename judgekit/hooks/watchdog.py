"""An end that comes whatever a process is doing, even inside one call of C that never returns.

The work is done by a child, which the kernel ends by an alarm; this process only waits for it. Neither a
thread nor a handler of Python would do: both wait for the interpreter. Where there is no `fork` (Windows)
nothing is limited here, and the limit of the program that started the process is left.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_notes: list[int] = []  # the pipe in which a child notes something; a process without one is not limited


def split(seconds: float) -> tuple[int | None, int | None] | None:
    """Return None in a child that goes on and has `seconds` for it, or where no process can be had.

    In the parent, return the child's exit code, None when its time was up, and the last byte that it noted.
    """
    if not hasattr(os, "fork"):
        return None
    signals = _signals()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        child = -1
    if child == 0:
        _notes.append(writing)
        signals.signal(signals.SIGALRM, signals.SIG_DFL)
        signals.pthread_sigmask(signals.SIG_UNBLOCK, [signals.SIGALRM])
        signals.setitimer(signals.ITIMER_REAL, seconds)
    os.close(reading if child <= 0 else writing)
    if child <= 0:
        return None
    for number in (signals.SIGTERM, signals.SIGHUP):
        signals.signal(number, lambda number, _: os.kill(child, number))
    signals.signal(signals.SIGINT, signals.SIG_IGN)  # a terminal tells the child, too
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os.set_blocking(reading, False)
    try:
        noted = os.read(reading, 4096)
    except BlockingIOError:  # something that the child has started holds the pipe
        noted = b""
    ended = None if code == -signals.SIGALRM else code if code >= 0 else 128 - code
    return ended, noted[-1] if noted else None


def extend(seconds: float, note: int | None = None) -> None:
    """Let the child end in `seconds` from now, with a byte for the parent; elsewhere this does nothing."""
    if _notes:
        if note is not None:
            os.write(_notes[0], bytes([note]))
        _signals().setitimer(_signals().ITIMER_REAL, seconds)


def _signals() -> Any:  # noqa: ANN401 - no stub
    import _signal  # type: ignore[import-not-found]  # noqa: PLC0415 - `signal` imports `enum`, a tenth of starting Python

    return _signal
