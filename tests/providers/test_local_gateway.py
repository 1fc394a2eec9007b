from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from making import reply
from pydantic import BaseModel

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import pointwise
from judgekit.providers import local
from judgekit.providers.base import CallKey, Endpoint, Message, Reply, Request
from judgekit.providers.local import LocalGateway, LocalServer
from judgekit.providers.registry import CommandProfile, LitellmProfile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")

PROFILE = LitellmProfile.model_validate(
    {
        "kind": "litellm",
        "provider": "local",
        "title": "Here",
        "family": "qwen",
        "prefix": "local/",
        "client": "hosted_vllm",
        "detect": {"module": "xllamacpp"},
        "output": "json_schema",
        "pointwise": True,
    }
)


def endpoint(model: str | Path) -> Endpoint:
    return Endpoint(PROFILE, f"local/{model}", "qwen", "json_schema", pointwise=True)


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


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("smollm2-135m", r"not here yet; fetch it \(98 MB\)"),
        ("unheard-of", "no local model 'unheard-of'"),
        ("missing.gguf", "cannot be read"),
    ],
)
def test_a_model_that_is_not_here_is_a_failure_that_says_what_to_do(model: str, message: str) -> None:
    with pytest.raises(GatewayError, match=message) as caught:
        using(lambda gateway: gateway.complete(endpoint(model), request()), Inner())
    assert caught.value.kind is FailureKind.NOT_FOUND


def test_a_wrong_number_of_threads_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="the extra local is not installed")
    monkeypatch.setenv("JUDGEKIT_LOCAL_THREADS", "many")
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(GatewayError, match="JUDGEKIT_LOCAL_THREADS: expected a whole number"):
        using(lambda gateway: gateway.complete(endpoint(tmp_path / "x.gguf"), request()), Inner())


def test_a_system_that_starts_nothing_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(LocalServer, "launch", refuse)
    with pytest.raises(GatewayError, match=r"could not be started: .*Permission denied") as caught:
        using(lambda gateway: gateway.complete(endpoint(tmp_path / "x.gguf"), request()), Inner())
    assert caught.value.kind is FailureKind.COMMAND_FAILED


def test_another_kind_of_provider_is_refused() -> None:
    profile = CommandProfile.model_validate(
        {
            "kind": "command",
            "provider": "claude-code",
            "title": "A program",
            "family": "anthropic",
            "detect": {"command": "claude"},
            "output": "text",
            "argv": ["claude", "-p"],
        }
    )
    other = Endpoint(profile, "x", "anthropic", "text")
    with pytest.raises(GatewayError, match="claude-code is not a model that runs here"):
        using(lambda gateway: gateway.complete(other, request()), Inner())


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
def test_one_server_serves_all_calls_and_ends_with_the_gateway(smollm2: Path) -> None:
    inner = Inner()
    servers: list[LocalServer] = []

    async def act(gateway: LocalGateway) -> None:
        calls = (gateway.complete(endpoint(smollm2), request()) for _ in range(3))
        await asyncio.gather(*calls)
        servers.extend(server for server, _ in local._servers.values())

    using(act, inner)
    assert len(servers) == 1
    assert not servers[0].alive
    assert inner.closed
    addresses = {asked.api_base for asked, _ in inner.asked}
    assert len(addresses) == 1
    assert all(asked.model == "local/smollm2-135m" for asked, _ in inner.asked)
    assert all(asked.api_key == servers[0].api_key for asked, _ in inner.asked)
    assert all(0 < sent.timeout < 120 for _, sent in inner.asked)


@pytest.mark.real_model
def test_a_server_that_died_is_started_again(smollm2: Path) -> None:
    async def act(gateway: LocalGateway) -> list[int | None]:
        pids = []
        for _ in range(2):
            await gateway.complete(endpoint(smollm2), request())
            ((running, _),) = local._servers.values()
            pids.append(running.pid)
            running.stop()
        return pids

    first, second = using(act, Inner())
    assert first != second


@pytest.mark.real_model
def test_a_short_deadline_is_kept_while_the_model_loads(smollm2: Path) -> None:
    async def act(gateway: LocalGateway) -> Reply:
        started = time.monotonic()
        with pytest.raises(GatewayError) as caught:
            await gateway.complete(endpoint(smollm2), request(seconds=0.01))
        assert caught.value.kind is FailureKind.TIMEOUT
        assert time.monotonic() - started < 60
        return await gateway.complete(endpoint(smollm2), request())

    assert using(act, Inner()).text == "yes"


class Answer(BaseModel):
    """A shape that a model of this size never hits by chance."""

    wet: bool
    score: int


@pytest.mark.real_model
def test_a_grammar_makes_even_the_smallest_model_answer_in_shape(smollm2: Path) -> None:
    schema = {**Answer.model_json_schema(), "additionalProperties": False}
    reply = using(lambda gateway: gateway.complete(endpoint(smollm2), request(schema)))
    Answer.model_validate_json(reply.text)
    assert reply.usage.input_tokens > 10


@pytest.mark.real_model
def test_token_probabilities_come_through(smollm2: Path) -> None:
    reply = using(lambda gateway: gateway.complete(endpoint(smollm2), request(top=20)))
    (alternatives,) = reply.logprobs
    assert 10 <= len(alternatives) <= 20
    assert 0.1 < sum(math.exp(alternative) for alternative in alternatives.values()) <= 1.001
    found = pointwise.probabilities(reply, ("yes", "no"))
    assert sum(found.values()) == pytest.approx(1)
