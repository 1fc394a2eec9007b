"""What a command does when it is told to end: what it started ends too, and it dies of the signal as ever."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Termination:
    """While it is entered, SIGTERM is an interruption, so that programs of command providers are ended.

    A second one ends the process at once. Nothing changes where somebody handles the signal already.
    """

    def __init__(self) -> None:
        self._came = self._mine = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._mine = True
            signal.signal(signal.SIGTERM, self._interrupt)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._came:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never there
                    stream.flush()
            signal.raise_signal(signal.SIGTERM)  # whoever waits for this process sees what ended it

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt
