"""What every gateway promises, whatever it reaches: a reply in time or a `GatewayError`, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from asking import SLACK, ask, custom, failure, request
from loopback import SILENT, Loopback, fails, says

from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.base import CallKey, Message, endpoint
from judgekit.providers.command import CommandGateway
from judgekit.providers.gateway import Kind, Router, opened
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.registry import CommandProfile
from judgekit.providers.replay import (
    RecordedFailure,
    RecordedLine,
    RecordedReply,
    ReplayGateway,
    recorded_models,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from judgekit.providers.base import Endpoint, Gateway, Reply

TEXT = '{"score": 4}'


class World(NamedTuple):
    """A gateway and what it reaches: a model that answers, one that fails, one that is never done."""

    gateway: Callable[[], Gateway]
    good: Endpoint
    bad: Endpoint
    endless: Endpoint | None


@contextlib.contextmanager
def litellm_world(_: Path) -> Iterator[World]:
    with Loopback(says(TEXT)) as good, Loopback(fails(403)) as bad, Loopback(SILENT) as endless:
        yield World(LitellmGateway, custom(good.base), custom(bad.base), custom(endless.base))


@contextlib.contextmanager
def command_world(_: Path) -> Iterator[World]:
    def program(code: str) -> Endpoint:
        keys = {"provider": "program", "title": "A program", "kind": "command", "output": "text"}
        argv = [sys.executable, "-c", code]
        profile = CommandProfile.model_validate({**keys, "detect": {"command": "x"}, "argv": argv})
        return endpoint(profile, "stand-in", os.environ)

    good = program(f"import sys; sys.stdin.read(); print({TEXT!r})")
    yield World(
        CommandGateway, good, program("raise SystemExit('no')"), program("import time; time.sleep(60)")
    )


@contextlib.contextmanager
def replay_world(folder: Path) -> Iterator[World]:
    file = folder / "recording.jsonl"
    keys = {"replay": 1, **request().call_key._asdict()}
    good = RecordedLine(**keys, model="stand-in", reply=RecordedReply(text=TEXT, model="stand-in"))
    denied = RecordedFailure(kind=FailureKind.PERMISSION, message="no")
    bad = RecordedLine(**keys, model="bad", failure=denied)
    file.write_text("".join(line.model_dump_json(exclude_none=True) + "\n" for line in (good, bad)))
    there = recorded_models(file)["quick"][0]
    yield World(ReplayGateway, there, replace(there, model="bad"), None)


@pytest.fixture(params=[litellm_world, command_world, replay_world], ids=["litellm", "command", "replay"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with request.param(tmp_path) as made:
        yield made


def test_it_replies_to_many_at_once_also_beside_a_failure_and_after_it_was_closed(world: World) -> None:
    async def run() -> list[Reply | BaseException]:
        gateway = world.gateway()
        await gateway.complete(world.good, request())
        await gateway.aclose()
        await gateway.aclose()
        places = [world.bad, *[world.good] * 5]
        calls = (gateway.complete(place, request()) for place in places)
        found = await asyncio.gather(*calls, return_exceptions=True)
        await gateway.aclose()
        return found

    failed, *replies = asyncio.run(run())
    assert isinstance(failed, GatewayError)
    assert failed.kind in (FailureKind.PERMISSION, FailureKind.COMMAND_FAILED)
    assert [getattr(reply, "text", None) for reply in replies] == [TEXT] * 5
    assert failure(world.gateway(), world.bad, request()).message
    odd = replace(request(), messages=(Message("system", "You judge."), Message("user", "a\ud800b\x00c")))
    reply = ask(Router(), world.good, odd)  # which finds the right one; lone surrogates are no crash
    assert (reply.text, reply.model, reply.logprobs) == (TEXT, "stand-in", ())


def test_it_is_never_late_and_can_be_called_off(world: World) -> None:
    if (never := world.endless) is None:
        pytest.skip("a recording has nothing to wait for")
    assert failure(world.gateway(), never, request(timeout=0.5)).kind is FailureKind.TIMEOUT

    async def run() -> None:
        gateway = world.gateway()
        task = asyncio.create_task(gateway.complete(never, request(timeout=60)))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gateway.aclose()

    start = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - start < 0.3 + SLACK


def test_it_does_not_take_the_endpoints_of_others(world: World) -> None:
    others: dict[str, Kind] = {"litellm": "command", "command": "replay", "replay": "litellm"}
    other = opened(others[world.good.profile.kind])
    assert failure(other, world.good, request()).kind is FailureKind.BAD_REQUEST


def test_a_call_that_was_not_recorded_has_its_own_kind(tmp_path: Path) -> None:
    with replay_world(tmp_path) as world:
        unknown = replace(request(), call_key=CallKey("b" * 64, "kls@1.0.0", "quick", "pragmatic"))
        error = failure(world.gateway(), world.good, unknown)
    assert error.kind is FailureKind.NOT_RECORDED
    assert "has no quick pragmatic reply of stand-in under kls@1.0.0 for bbbbbbbbbbbb" in error.message
