"""Serves the real decision model for tests, if its program is here at all."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "JUDGEKIT_TEST_DECIDER"  # the program sparrow-decider
MODEL = "vllm-decisions/sparrow"
SECONDS = 60.0  # more than it needs to start on a machine that is busy


def program() -> str:
    named = os.environ.get(VARIABLE)
    if not named or not Path(named).is_file():
        pytest.skip(f"{VARIABLE} names no sparrow-decider; .ci/run fetches it")
    return named


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve it at a free port of this machine, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [program(), "serve", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=SECONDS)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, "it ended"
        assert time.monotonic() < deadline, "it does not listen"
        time.sleep(0.1)
