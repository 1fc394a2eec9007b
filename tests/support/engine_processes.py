"""Engines as processes: finding those of a folder, waiting for their end, leaving none behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit.engine import client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest
    from loopback import Loopback

    from judgekit.engine.client import EngineAddress

GOOD = json.dumps(
    {
        "reasoning": "sound",
        "scores": {"semantic": 5, "pragmatic": 5, "syntactic": 5},
        "findings": [],
    }
)
SECONDS = 60.0  # more than an engine needs to be ready on a machine that is busy


def document(
    text: str = "# Rotating keys\n\nDo it every 90 days.\n", path: str = "a.md"
) -> dict[str, Any]:
    """Return a document as clients of an engine or a shared judge send it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    file = {"path": path, "text": text, "sha256": digest, "total": len(text)}
    return {"files": [file], "task_id": f"{path}@{digest[:16]}"}


def is_running(process: int) -> bool:
    try:
        if Path("/proc/self").exists():
            return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
        os.kill(process, 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder with a short name, as a socket needs it; engines in it are stopped at the end."""
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
            if os.fsencode(folder) in words and any(
                b"judgekit.engine.server" in word for word in words
            ):
                found.append(int(path.parent.name))
    return found


def end_all(folder: Path) -> None:
    deadline = time.monotonic() + 20
    while left := alive(folder):
        assert time.monotonic() < deadline, f"engines that cannot be killed: {left}"
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def is_gone(process: int, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.waitpid(process, os.WNOHANG)
        if not is_running(process):
            return True
        time.sleep(0.02)
    return False


def body(text: str = "# A document\n\nIt says something.\n", **judge_request: object) -> bytes:
    asked = {"document": document(text) | {"task_id": "a.md"}, "wish": judge_request}
    return json.dumps(client.build_caller_fields() | asked).encode()


def judged(
    place: EngineAddress, text: str = "# A document\n", **judge_request: object
) -> dict[str, Any]:
    """Judge a text and return the verdict; raises the errors of `Connection` and `Connection.ask`."""
    with client.Connection(place) as connection:
        answer = connection.ask("POST", "/v1/judge", body(text, **judge_request), seconds=SECONDS)
        told = json.loads(answer.read())
    assert answer.status == 200, told
    return dict(told)


def health(place: EngineAddress) -> dict[str, Any]:
    """Return the health report of the engine at an address."""
    return dict(json.loads(client.query_health(place, SECONDS)))


def started(place: EngineAddress) -> int:
    """Start an engine and return its process, once it is ready."""
    starter = client.start(place)
    assert starter is not None
    _, status = os.waitpid(starter, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    until(lambda: health(place)["ready"])
    return int(health(place)["pid"])


def until(true: Callable[[], object]) -> None:
    """Wait until something is true, which must be soon."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def use(monkeypatch: pytest.MonkeyPatch, server: Loopback, key: str = "sk-of-this-test") -> None:
    """Let this process, and those it starts, judge with a model of the tests."""
    monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
    monkeypatch.setenv("JUDGEKIT_API_KEY", key)
