"""Engines as processes: finding those of a folder, waiting for their end, leaving none behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sent import document

from judgekit.engine import client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.engine.client import Connection, EngineAddress

GOOD = json.dumps(
    {"reasoning": "sound", "scores": {"semantic": 5, "pragmatic": 5, "syntactic": 5}, "findings": []}
)
SECONDS = 60.0  # more than an engine needs to be ready on a machine that is busy


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Give a folder with a short name, as a socket needs it; what runs in it is ended."""
    path = Path(tempfile.mkdtemp(prefix="jk-", dir="/tmp"))
    try:
        yield path
    finally:
        end_all(path)
        shutil.rmtree(path)


def alive(folder: Path) -> list[int]:
    """Return the processes that are, or want to be, engines in a folder; none on systems without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if os.fsencode(folder) in words and any(b"judgekit.engine.server" in word for word in words):
                found.append(int(path.parent.name))
    return found


def end_all(folder: Path) -> None:
    """Kill every engine in a folder, those that are just beginning too."""
    deadline = time.monotonic() + 20
    while left := alive(folder):
        assert time.monotonic() < deadline, f"engines that cannot be killed: {left}"
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def is_gone(process: int, seconds: float = 20) -> bool:
    """Whether a process ends within a bounded time."""
    deadline, stat = time.monotonic() + seconds, Path(f"/proc/{process}/stat")
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.waitpid(process, os.WNOHANG)
        try:
            if stat.read_text().rpartition(")")[2].startswith(" Z"):
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def body(text: str = "# A document\n\nIt says something.\n", **judge_request: object) -> bytes:
    """Return the body of a request to judge a text."""
    asked = {"document": document(text) | {"task_id": "a.md"}, "wish": judge_request}
    return json.dumps(client.carried() | asked).encode()


def judged(connection: Connection, text: str = "# A document\n", **judge_request: object) -> dict[str, Any]:
    """Have a text judged and return the verdict; raises what `Connection.ask` raises."""
    answer = connection.ask("POST", "/v1/judge", body(text, **judge_request), seconds=SECONDS)
    told = json.loads(answer.read())
    assert answer.status == 200, told
    return dict(told)


def health(place: EngineAddress) -> dict[str, Any]:
    """Return what the engine of a place says of itself."""
    with client.Connection(place) as connection:
        return dict(json.loads(connection.ask("GET", "/v1/health", seconds=SECONDS).read()))


def started(place: EngineAddress) -> Connection:
    """Start an engine and return a connection to it, once it is ready."""
    starter = client.start(place)
    assert starter is not None
    _, status = os.waitpid(starter, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    deadline = time.monotonic() + SECONDS
    while not health(place)["ready"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return client.Connection(place)
