"""Ends a process on time whatever it's doing, by the kernel's alarm if nothing else can.

A hook is ended by a thread (`limit`), which can give the reason and the exit code, but has to wait while a
call into C holds the interpreter; then the alarm ends it. A push wouldn't survive an alarm, so a child does
its work (`split`) while the first process waits. For a hook, this would cost a seventh more time. Without
alarms (Windows) there's only the thread.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LATER = 0.5  # seconds between the thread's deadline and the alarm
_pipes: list[int] = []  # the end of a pipe by which a child notes something for its parent
_limits: list[_Limit] = []


class _Limit:
    """When a thread ends this process."""

    def __init__(self, seconds: float, end: Callable[[], None]) -> None:
        import _thread  # noqa: PLC0415 - `threading` costs a hook more than all of this

        self._end = end
        # A lock is all that `_thread` has to wake a thread by: it's held until `move` releases it.
        self._moved = _thread.allocate_lock()
        self._moved.acquire()
        self._until = time.monotonic() + seconds
        try:
            _thread.start_new_thread(self._watch, ())
        except RuntimeError:  # there are too many; the alarm is left
            return

    def move(self, seconds: float) -> None:
        """Let the time end `seconds` from now instead, and wake the thread so that it notices."""
        self._until = time.monotonic() + seconds
        if self._moved.locked():  # otherwise the thread hasn't noticed the last move yet
            self._moved.release()

    def _watch(self) -> None:
        """Wait until the time is up, then end the process."""
        while True:
            seconds_left = max(self._until - time.monotonic(), 0.0)
            was_moved = self._moved.acquire(timeout=seconds_left)  # by `move`, which releases it
            if not was_moved:
                break
        self._end()


def limit(seconds: float, end: Callable[[], None]) -> None:
    """Let another thread call `end`, which ends this process, after `seconds`.

    An alarm of the kernel ends the process a little later, in case the thread can't.
    """
    _limits.append(_Limit(seconds, end))
    _set_alarm(seconds + _LATER)


def split(seconds: float) -> tuple[int | None, int | None] | None:
    """Fork a child that does the work within `seconds`, and wait for it in the parent.

    In the parent, returns the child's exit code (None if its time was up) and the last byte that the child
    noted. Returns None in the child, and also if forking fails: then this process does the work.
    """
    if not hasattr(os, "fork"):
        return None
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:  # too many processes: this one does the work, without a time limit
        os.close(reading)
        os.close(writing)
        return None
    if child == 0:
        os.close(reading)
        _pipes.append(writing)
        _set_alarm(seconds)
        return None
    os.close(writing)
    return _wait(child, reading)


def _wait(child: int, reading: int) -> tuple[int | None, int | None]:
    """Wait for a child to end. Returns its exit code and the last byte that it wrote to the pipe.

    The code is None if the child's time was up. The byte is None if there's none.
    """
    signals = _signals()
    for number in (signals.SIGTERM, signals.SIGHUP):  # pass these on to the child
        signals.signal(number, lambda number, _: os.kill(child, number))
    signals.signal(signals.SIGINT, signals.SIG_IGN)  # a terminal sends it to the child, too
    _, status = os.waitpid(child, 0)
    # A negative code is the number of the signal that ended the child.
    code: int | None = os.waitstatus_to_exitcode(status)
    if code == -signals.SIGALRM:  # its time was up
        code = None
    elif code is not None and code < 0:
        code = 128 - code  # 128 and the signal's number, as in a shell
    return code, _read_last_byte(reading)


def _read_last_byte(pipe: int) -> int | None:
    """Read the last byte that was written to a pipe; None if there's none."""
    os.set_blocking(pipe, False)
    try:
        noted_bytes = os.read(pipe, 4096)
    except BlockingIOError:  # something that the child has started holds the pipe
        return None
    return noted_bytes[-1] if noted_bytes else None


def extend(seconds: float, note: int | None = None) -> None:
    """Move the end of this process to `seconds` from now; a child can also note a byte for its parent."""
    if _pipes:
        if note is not None:
            os.write(_pipes[0], bytes([note]))
        _set_alarm(seconds)
    for watched in _limits:
        watched.move(seconds)
        _set_alarm(seconds + _LATER)


def _set_alarm(seconds: float) -> None:
    """Let the kernel end this process in this many seconds. An earlier alarm is replaced."""
    signals = _signals()
    if hasattr(signals, "setitimer"):  # Windows has none
        signals.signal(signals.SIGALRM, signals.SIG_DFL)
        signals.pthread_sigmask(signals.SIG_UNBLOCK, [signals.SIGALRM])
        signals.setitimer(signals.ITIMER_REAL, seconds)


def _signals() -> Any:  # noqa: ANN401 - no stub
    """Return the C module behind `signal`, which is quicker to import."""
    import _signal  # type: ignore[import-not-found]  # noqa: PLC0415 - `signal` imports `enum`, a tenth of starting Python

    return _signal
