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

_ALARM_DELAY_SECONDS = 0.5  # seconds between the thread's deadline and the alarm
_pipes: list[int] = []  # the end of a pipe by which a child notes something for its parent
_limits: list[_Limit] = []


class _Limit:
    """When a thread ends this process."""

    def __init__(self, seconds: float, end: Callable[[], None]) -> None:
        import _thread  # noqa: PLC0415 - importing `threading` costs a hook more than this whole module

        self._end_process = end
        # `_thread` has no events, so the thread waits for this lock until `move` releases it.
        self._moved_lock = _thread.allocate_lock()
        self._moved_lock.acquire()
        self._until = time.monotonic() + seconds
        try:
            _thread.start_new_thread(self._watch, ())
        except RuntimeError:  # there are too many threads, so rely on the alarm
            return

    def move(self, seconds: float) -> None:
        """Set the end to `seconds` from now, and wake the thread to notice that."""
        self._until = time.monotonic() + seconds
        if self._moved_lock.locked():  # otherwise, the thread hasn't noticed the last move yet
            self._moved_lock.release()

    def _watch(self) -> None:
        """Wait until the time is up, and then end the process."""
        while True:
            seconds_left = max(self._until - time.monotonic(), 0.0)
            # The lock becomes free only if `move` sets another time. Otherwise, the time is up.
            was_moved = self._moved_lock.acquire(timeout=seconds_left)
            if not was_moved:
                break
        self._end_process()


def limit(seconds: float, end: Callable[[], None]) -> None:
    """Have another thread call `end` after `seconds`, to end this process.

    If the thread can't do that, the kernel's alarm ends the process slightly later.
    """
    _limits.append(_Limit(seconds, end))
    _set_alarm(seconds + _ALARM_DELAY_SECONDS)


def split(seconds: float) -> tuple[int | None, int | None] | None:
    """Fork a child, which does the caller's work in up to `seconds`, and wait for it.

    Returns None to the process that should do the work: the child, or this one if it can't fork.
    The parent gets the child's exit code (None if its time was up) and its last note (None if it sent none).
    """
    if not hasattr(os, "fork"):  # on Windows
        return None

    read_fd, write_fd = os.pipe()
    try:
        child = os.fork()
    except OSError:  # there are too many processes, so do the work here without a time limit
        os.close(read_fd)
        os.close(write_fd)
        return None

    if child == 0:  # this is the child
        os.close(read_fd)
        _pipes.append(write_fd)  # for notes to the parent
        _set_alarm(seconds)
        return None

    os.close(write_fd)
    return _wait(child, read_fd)


def _wait(child: int, read_fd: int) -> tuple[int | None, int | None]:
    """Wait for a child to end. Returns its exit code and the last byte that it wrote to the pipe.

    The code is None if the child's time was up. The byte is None if the child wrote nothing.
    """
    _forward_signals(child)
    _, status = os.waitpid(child, 0)
    return _get_exit_code(status), _read_last_byte(read_fd)


def _forward_signals(child: int) -> None:
    """Forward signals to a child, except SIGINT, which the terminal sends to both processes."""
    signals = _import_signals()

    def forward(number: int, _frame: object) -> None:
        os.kill(child, number)

    signals.signal(signals.SIGTERM, forward)
    signals.signal(signals.SIGHUP, forward)
    signals.signal(signals.SIGINT, signals.SIG_IGN)


def _get_exit_code(status: int) -> int | None:
    """Get the exit code from a wait status, as shells report it. None if the alarm ended the child."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code

    signal_that_ended_it = -code
    if signal_that_ended_it == _import_signals().SIGALRM:  # the child's time was up
        return None
    return 128 + signal_that_ended_it


def _read_last_byte(read_fd: int) -> int | None:
    """Return the last byte that was written to a pipe; None if there's none."""
    os.set_blocking(read_fd, False)
    try:
        noted_bytes = os.read(read_fd, 4096)
    except BlockingIOError:
        # Nothing was written, but a process started by the child keeps the pipe open.
        return None
    return noted_bytes[-1] if noted_bytes else None


def extend(seconds: float, note: int | None = None) -> None:
    """Let this process run for `seconds` from now. A forked child can also send its parent a `note`."""
    is_forked_child = len(_pipes) > 0
    if is_forked_child:
        if note is not None:
            pipe_to_parent = _pipes[0]
            os.write(pipe_to_parent, bytes([note]))
        _set_alarm(seconds)

    for time_limit in _limits:
        time_limit.move(seconds)
        # The thread should end the process first, because the alarm can't give a reason.
        _set_alarm(seconds + _ALARM_DELAY_SECONDS)


def _set_alarm(seconds: float) -> None:
    """Have the kernel end this process in `seconds`. Replaces an alarm that was set before.

    Does nothing on Windows, which has no alarms.
    """
    signals = _import_signals()
    if not hasattr(signals, "setitimer"):  # missing on Windows
        return

    # The process that started this one may have ignored or blocked the alarm, and this one inherits that.
    signals.signal(signals.SIGALRM, signals.SIG_DFL)
    signals.pthread_sigmask(signals.SIG_UNBLOCK, [signals.SIGALRM])
    signals.setitimer(signals.ITIMER_REAL, seconds)


def _import_signals() -> Any:  # noqa: ANN401 - no stub
    """Import the C module behind `signal`, which loads faster."""
    import _signal  # type: ignore[import-not-found]  # noqa: PLC0415 - `signal` imports `enum`, a tenth of starting Python

    return _signal
