from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from judgekit.errors import ConfigError, FailureKind, GatewayError
from judgekit.providers import local
from judgekit.providers.local import LocalServer

PARENT = """
import os, sys, time
from pathlib import Path
from judgekit.providers.local import LocalServer
server = LocalServer(Path(sys.argv[1]))
server.launch()
server.wait()
holder = os.fork() if sys.argv[2] == "forked" else None
if holder == 0:
    time.sleep(60)  # keeps the pipes open
    os._exit(0)
print(server.base_url, holder or 0, flush=True)
time.sleep(60)
"""
LOUD = """
import sys
from judgekit.providers import local
local._bound_the_log()
try:
    while True:
        sys.stderr.write("x" * 9999)
except OSError:
    print("bounded", flush=True)
"""


@pytest.fixture
def runtime() -> None:
    """Skip where llama.cpp has no wheel."""
    pytest.importorskip("xllamacpp", reason="the extra local is not installed")


def listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def gone(url: str, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not listens(url):
            return True
        time.sleep(0.1)
    return False


def post(running: LocalServer, key: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{running.base_url}/chat/completions",
        json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 2), (64, 8)])
def test_threads_follow_the_cores(cores: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_cores", lambda: cores)
    assert local.threads() == expected


def test_threads_follow_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", "3")
    assert local.threads() == 3


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_threads_must_be_a_whole_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", text)
    with pytest.raises(ConfigError, match="JUDGEKIT_LOCAL_THREADS: expected a whole number above zero"):
        local.threads()


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(GatewayError, match=r"pip install.*\[local\]"):
        LocalServer(tmp_path / "x.gguf").launch()


def test_every_server_has_a_key_of_its_own(tmp_path: Path) -> None:
    local_server, two = LocalServer(tmp_path / "x.gguf"), LocalServer(tmp_path / "x.gguf")
    assert local_server.api_key != two.api_key
    assert len(local_server.api_key) >= 32
    assert local_server.model == "x"
    assert not local_server.alive


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("content", [b"GGUF and then nothing that makes sense", b""])
def test_a_file_that_is_no_model_gives_the_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(GatewayError, match=r"^bad: llama\.cpp ended \(.*gguf") as caught, LocalServer(path):
        pytest.fail("it started")
    assert caught.value.kind is FailureKind.COMMAND_FAILED


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")
def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        result = subprocess.run(
            [sys.executable, "-c", LOUD],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            timeout=60,
            check=False,
        )
    assert "bounded" in result.stdout
    assert log.stat().st_size == local.LOG_BYTES


@pytest.mark.real_model
def test_it_answers_who_knows_the_key_and_ends_with_the_block(smollm2: Path) -> None:
    with LocalServer(smollm2) as running:
        assert urlsplit(running.base_url).hostname == "127.0.0.1"
        assert running.alive
        answer = post(running, running.api_key)
        assert answer["model"] == running.model == smollm2.stem
        assert answer["usage"]["completion_tokens"] == 2
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(running, "guessed")
        url, log = running.base_url, local._log_path()
    assert not running.alive
    assert not listens(url)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.real_model
def test_the_key_is_not_among_the_arguments(smollm2: Path) -> None:
    with LocalServer(smollm2) as running:
        table = Path(f"/proc/{running.pid}/cmdline")
        if not table.exists():
            pytest.skip("no /proc here")
        assert running.api_key not in table.read_text()
        assert "judgekit.providers.local" in table.read_text()


@pytest.mark.real_model
def test_it_can_be_entered_in_an_event_loop(smollm2: Path) -> None:
    async def visit() -> str:
        async with LocalServer(smollm2) as running:
            assert listens(running.base_url)
            return running.base_url

    assert not listens(asyncio.run(visit()))


@pytest.mark.real_model
def test_waiting_is_bounded_and_loading_goes_on(smollm2: Path) -> None:
    running = LocalServer(smollm2)
    running.launch()
    try:
        with pytest.raises(GatewayError, match="not loaded within 0 s") as caught:
            running.wait(0)
        assert caught.value.kind is FailureKind.TIMEOUT
        running.wait()
        assert listens(running.base_url)
    finally:
        running.stop()
    assert not running.alive


@pytest.mark.real_model
def test_a_forgotten_server_is_ended(smollm2: Path) -> None:
    running = LocalServer(smollm2)
    running.launch()
    running.wait()
    url = running.base_url
    del running
    assert gone(url)


@pytest.mark.real_model
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("parent", ["alone", "forked"])
def test_it_dies_with_its_parent(smollm2: Path, parent: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(smollm2), parent], stdout=subprocess.PIPE, text=True
    )
    holder = 0
    try:
        assert process.stdout is not None
        url, _, fork = process.stdout.readline().strip().partition(" ")
        holder = int(fork)
        assert listens(url)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert gone(url)
    finally:
        process.kill()
        if holder:
            os.kill(holder, signal.SIGKILL)
        process.communicate(timeout=10)
