"""What an engine says of itself: a few lines, bounded in size, and nothing that a request brought."""

from __future__ import annotations

import logging
import os
import time
import traceback
from contextlib import suppress

from judgekit.text import one_line

MAX_BYTES = 200_000  # of the file; then it becomes the older one, `.1`, and the older one goes
AGAIN_SECONDS = 60.0  # after which the same text is written once more: strangers must not fill it
_MOST_TEXTS = 1000


class Log:
    """Appends lines to the file at `path`; where that cannot be, nothing is lost but the line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._written: dict[str, float] = {}

    def add(self, text: str) -> None:
        """Write one line down, with the time and the process; not again what was written just now."""
        now = time.monotonic()
        if now - self._written.get(text, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        if len(self._written) >= _MOST_TEXTS:
            self._written.clear()
        self._written[text] = now
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, f"{moment} {os.getpid()} {text}\n".encode("utf-8", "replace"))
                full = os.fstat(descriptor).st_size > MAX_BYTES
            finally:
                os.close(descriptor)
            if full:
                os.replace(self._path, f"{self._path}.1")

    def fault(self, error: BaseException) -> None:
        """Write down what went wrong and where. Never the error's words: they may hold what was sent."""
        frames = traceback.extract_tb(error.__traceback__)
        line = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
        self.add(f"fault: {type(error).__name__}{line}")


class Handler(logging.Handler):
    """Puts what libraries log into a `Log`: the fixed part of each message, and where an error came from."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record down, without the values that its message would be filled with."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._log.fault(error)
        else:
            first = str(record.msg).partition("\n")[0]
            self._log.add(f"{record.name}: {one_line(first, 200)}")
