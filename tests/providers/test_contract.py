"""The promises of every gateway, the content of a recording, and the pace of calls to a provider."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from asking import KEY, SLACK, ask, custom, failure, request
from hypothesis import given
from hypothesis import strategies as st
from loopback import SILENT, Answer, Asked, Loopback, fails, says
from looped import looped
from making import call_usage, reply
from scripted import NothingOpen

from judgekit.config.yamlfile import read_lines
from judgekit.errors import ConfigError, FailureKind, GatewayError
from judgekit.providers import replay
from judgekit.providers.base import CallKey, Endpoint, Message, Reply, Request, build_endpoint
from judgekit.providers.command import CommandGateway
from judgekit.providers.gateway import Router, open_gateway
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.pace import Pace, Paces, caller, parse_retry_after
from judgekit.providers.registry import CommandProfile, Limits
from judgekit.providers.replay import (
    RecordedLine,
    Recorder,
    ReplayGateway,
)

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.providers.base import Endpoint, Reply


TEXT = '{"score": 4}'


def test_each_gateway_takes_its_own_endpoints_alone_and_the_router_finds_the_right_one() -> None:
    keys = {"provider": "program", "title": "A program", "kind": "command", "output": "text"}
    argv = [sys.executable, "-c", f"import sys; sys.stdin.read(); print({TEXT!r})"]
    profile = CommandProfile.model_validate({**keys, "detect": {"command": "x"}, "argv": argv})
    program = build_endpoint(profile, "stand-in", os.environ)
    odd = replace(
        request(), messages=(Message("system", "You judge."), Message("user", "a\ud800b\x00c"))
    )
    with Loopback(says(TEXT)) as server:
        served = custom(server.base)
        for gateway, other in (
            (LitellmGateway(), program),
            (CommandGateway(), served),
            (ReplayGateway(), served),
        ):
            assert failure(gateway, other, request()).kind is FailureKind.BAD_REQUEST
        for there in (served, program):
            reply = ask(Router(), there, odd)  # lone surrogates are no crash
            assert (reply.text, reply.model, reply.logprobs) == (TEXT, "stand-in", ())


def test_a_call_can_be_called_off() -> None:
    async def run() -> None:
        with Loopback(SILENT) as server:
            gateway = LitellmGateway()
            task = asyncio.create_task(gateway.complete(custom(server.base), request(timeout=60)))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await gateway.aclose()

    start = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - start < 0.3 + SLACK


class Always(NothingOpen):
    def __init__(self, outcome: Reply | GatewayError) -> None:
        self.outcome = outcome

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        if isinstance(self.outcome, GatewayError):
            raise self.outcome
        return self.outcome


def line(**keys: Any) -> str:  # noqa: ANN401 - keys of a line
    call_key = {"subject": "a" * 64, "rubric": "kls@1.0.0", "tier": "quick"}
    reply = {"text": "x", "model": "m"}
    return json.dumps({"replay": 1, **call_key, "model": "m", "reply": reply, **keys}) + "\n"


def recording(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "recording.jsonl"
    file.write_text("".join(lines), encoding="utf-8")
    return file


def test_a_recording_that_cannot_be_written_is_said_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    for below in ("file/recording.jsonl", "folder", "nul\0.jsonl"):
        with pytest.raises(ConfigError, match="JUDGEKIT_RECORD: no recording can be written there"):
            open_gateway({"JUDGEKIT_RECORD": str(tmp_path / below)})


def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\x85four\x0cfive\nsix"  # on one line, whatever separators it has
    recorded = reply(
        text, "m-2026", call_usage(10, 2, 0.001), logprobs=({"yes": -0.1, "no": -2.0},)
    )
    lost = GatewayError(FailureKind.OVERLOADED, "busy")
    endpoint = replace(custom("http://127.0.0.1:1/v1"), family="meta", is_pointwise=True)
    file, failed = tmp_path / "new" / "recording.jsonl", tmp_path / "failed.jsonl"
    assert ask(Recorder(Always(recorded), file), endpoint, request()) == recorded
    there = replay.load_recorded_models(file)["quick"][0]
    assert (there.model, there.family, there.is_pointwise) == ("custom/stand-in", "meta", True)
    assert ask(ReplayGateway(), there, request()) == recorded
    failure(Recorder(Always(lost), failed), endpoint, request())
    there = replay.load_recorded_models(failed)["quick"][0]
    error = failure(ReplayGateway(), there, request())
    assert (error.kind, error.message) == (lost.kind, lost.message)
    failed.unlink()  # a recording that goes away is a failure of the call
    assert failure(ReplayGateway(), there, request()).kind is FailureKind.NOT_RECORDED
    unknown = replace(request(), call_key=CallKey("b" * 64, "kls@1.0.0", "quick", "pragmatic"))
    error = failure(ReplayGateway(), replay.load_recorded_models(file)["quick"][0], unknown)
    assert error.kind is FailureKind.NOT_RECORDED
    problem = "has no quick pragmatic reply of custom/stand-in under kls@1.0.0 for bbbbbbbbbbbb"
    assert problem in error.message


def test_neither_a_key_nor_the_prompt_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    with Loopback(fails(401, f"bad key {KEY}"), says("yes")) as server:
        gateway = open_gateway({"JUDGEKIT_RECORD": str(file)})
        failure(gateway, custom(server.base), request("a private text"))
        ask(gateway, custom(server.base), request("a private text"))
    written = file.read_text()
    assert [bool(json.loads(each).get("reply")) for each in written.splitlines()] == [False, True]
    assert KEY not in written
    assert "private" not in written
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_line_is_found_by_its_call_key_and_model_in_order_and_the_last_stays(
    tmp_path: Path,
) -> None:
    lines = [
        line(part="semantic", reply={"text": "part", "model": "m"}),
        line(tier="deep", model="n", reply={"text": "deep", "model": "n"}),
        line(reply={"text": "first", "model": "m"}),
        line(reply={"text": "second", "model": "m"}),
    ]
    found = {
        tier: jury[0]
        for tier, jury in replay.load_recorded_models(recording(tmp_path, *lines)).items()
    }
    part = replace(
        request("worded otherwise"), call_key=CallKey("a" * 64, "kls@1.0.0", "quick", "semantic")
    )
    deep = replace(request(), call_key=CallKey("a" * 64, "kls@1.0.0", "deep"))
    assert ask(ReplayGateway(), found["quick"], part).text == "part"
    assert ask(ReplayGateway(), found["deep"], deep).text == "deep"
    assert failure(ReplayGateway(), found["quick"], deep).kind is FailureKind.NOT_RECORDED
    gateway = ReplayGateway()

    async def three() -> list[str]:
        return [(await gateway.complete(found["quick"], request())).text for _ in range(3)]

    assert asyncio.run(three()) == ["first", "second", "second"]


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    for text, number, problem in (
        ("{not json\n", 1, "not valid JSON"),
        (line() + "\n" + line(replay=2), 3, "expected 1"),
        (line(failure={"kind": "timeout", "message": ""}), 1, "either reply or failure"),
        (line(tier="medium"), 1, "expected 'quick', 'deep' or 'tiebreaker'"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_lines(recording(tmp_path, text), RecordedLine)
        assert (caught.value.line, problem in str(caught.value)) == (number, True), str(
            caught.value
        )
    with pytest.raises(ConfigError, match="cannot be read"):
        read_lines(tmp_path / "none.jsonl", RecordedLine)
    with pytest.raises(ConfigError, match="JUDGEKIT_RECORD"):
        replay.load_recorded_models(recording(tmp_path))


def test_lines_of_many_writers_never_mix(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    long = reply("x" * 20_000, "m")

    with ThreadPoolExecutor(4) as pool:
        for _ in range(40):
            pool.submit(
                ask, Recorder(Always(long), file), custom("http://127.0.0.1:1/v1"), request()
            )
    assert [len(line.reply.text) for line in read_lines(file, RecordedLine) if line.reply] == [
        20_000
    ] * 40


class Flights:
    """Counts the calls at a time, with their callers in order."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[str] = []

    async def call(self, pace: Pace, name: str = "", seconds: float = 0.001) -> None:
        caller.set(name)
        async with pace.hold_turn():
            self.order.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.now -= 1


def waiting_at(pace: Pace) -> int:
    return sum(not turn.done() for queue in pace._queues.values() for turn, _ in queue)


async def takes(pace: Pace, seconds: float) -> None:
    async with pace.hold_turn(time.monotonic() + seconds):
        pass


async def refused(pace: Pace, seconds: float) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await asyncio.wait_for(takes(pace, seconds), 5)
    return caught.value


@looped
async def test_no_more_at_a_time_than_the_limit_and_callers_take_turns() -> None:
    flights, pace = Flights(), Pace(3)
    await asyncio.gather(*(flights.call(pace) for _ in range(20)))
    assert (flights.most, len(flights.order)) == (3, 20)
    flights, pace = Flights(), Pace(1)
    many = [asyncio.create_task(flights.call(pace, "many")) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(*many, *(flights.call(pace, "few") for _ in range(3)))
    assert [place for place, name in enumerate(flights.order) if name == "few"][-1] < 8


def test_what_was_learned_is_forgotten_with_time() -> None:
    now = 1000.0
    pace = Pace(32, clock=lambda: now)
    for _ in range(40):
        pace.pause(0, FailureKind.OVERLOADED)
    assert int(pace._limit) == 32  # a provider that is away bears as much when it is back
    for _ in range(40):
        pace.note_refusal(0)
    assert int(pace._limit) == 1  # which is always allowed
    for seconds, least, most in ((1, 1, 3), (60, 32, 32)):
        now += seconds
        for _ in range(40 if seconds > 1 else 20):
            pace.note_success()
        assert least <= int(pace._limit) <= most


@looped
async def test_no_more_in_a_minute_than_the_provider_bears() -> None:
    now = 1000.0
    pace, flights = Pace(10, per_minute=3, clock=lambda: now), Flights()
    tasks = [asyncio.create_task(flights.call(pace)) for _ in range(5)]
    await asyncio.sleep(0.02)
    assert len(flights.order) == 3
    now += 61
    pace._schedule()
    await asyncio.gather(*tasks)
    assert len(flights.order) == 5
    pace = Pace(10, per_minute=2)
    await asyncio.gather(*(takes(pace, 20) for _ in range(2)))
    error = await refused(pace, 20)
    assert error.kind is FailureKind.RATE_LIMIT
    assert error.message.startswith("2 calls were made in a minute: no model was asked")


@looped
async def test_a_call_that_would_wait_in_vain_is_refused_at_once() -> None:
    for kind, waits_already in product(
        (FailureKind.RATE_LIMIT, FailureKind.OVERLOADED), (False, True)
    ):
        pace = Pace(1)
        async with pace.hold_turn():
            if not waits_already:
                pace.pause(100, kind)
            short = asyncio.create_task(refused(pace, 20))
            long = asyncio.create_task(takes(pace, 200))
            await asyncio.sleep(0)
            if waits_already:
                pace.pause(100, kind)
            error, waiting = await short, waiting_at(pace)
            long.cancel()
            await asyncio.gather(long, return_exceptions=True)
        assert (error.kind, waiting) == (kind, 1)
        assert error.retry_after == pytest.approx(100, abs=5)
        assert error.usage == call_usage()


@looped
async def test_one_that_is_refused_and_gives_up_at_the_same_moment_takes_no_turn_along() -> None:
    pace = Pace(1)
    async with pace.hold_turn():
        task = asyncio.create_task(takes(pace, 20))
        await asyncio.sleep(0)
        pace.pause(100, FailureKind.OVERLOADED)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (waiting_at(pace), pace._in_flight) == (0, 1)


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_a_turn_that_is_given_up_is_not_lost(cancelled: list[bool]) -> None:
    async def run() -> None:
        pace, flights = Pace(2), Flights()
        tasks = [
            asyncio.create_task(flights.call(pace, str(place % 3)))
            for place in range(len(cancelled))
        ]
        await asyncio.sleep(0)
        for task, gives_up in zip(tasks, cancelled, strict=True):
            if gives_up:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert waiting_at(pace) == 0
        async with (
            asyncio.timeout(5),
            pace.hold_turn(),
            pace.hold_turn(),
        ):  # both turns are free again
            pass

    asyncio.run(run())


def limited(whom: Endpoint, limits: dict[str, int]) -> Endpoint:
    return replace(whom, profile=whom.profile.model_copy(update={"limits": Limits(**limits)}))


def test_what_a_profile_bounds_is_bounded_for_its_models_together() -> None:
    for limits, same in (
        ({"concurrency": 2}, True),
        ({"requests_per_minute": 9}, True),
        ({}, False),
    ):
        whom, paces = limited(custom("http://127.0.0.1:1/v1"), limits), Paces()
        assert (
            paces.get_pace(whom) is paces.get_pace(replace(whom, model="openai/another"))
        ) is same
        assert paces.get_pace(whom) is not paces.get_pace(replace(whom, api_key="another"))
        assert paces.get_pace(whom) is not paces.get_pace(
            replace(whom, api_base="http://127.0.0.1:2/v1")
        )


def test_what_a_provider_asks_to_wait_is_read() -> None:
    texts = {
        "20": 20,
        "0.5": 0.5,
        "-1": 0,
        "": None,
        "soon": None,
        "Wed, 21 Oct 2015 07:28:00 GMT": 0,
    }
    assert {text: parse_retry_after(text) for text in texts} == texts
    later = datetime.now(UTC) + timedelta(seconds=30)
    assert parse_retry_after(format_datetime(later)) == pytest.approx(30, abs=5)


class Modest:
    def __init__(self, most: int) -> None:
        self.refused = 0
        self._free = threading.Semaphore(most)

    def __call__(self, asked: Asked) -> Answer:
        if not self._free.acquire(blocking=False):
            self.refused += 1
            return fails(429, retry_after=0.2)
        try:
            time.sleep(0.15)  # no model is faster, and a busy machine is slower than 0.05
            return says('{"reasoning": "fine", "score": 4}')
        finally:
            self._free.release()


def test_a_modest_provider_answers_everyone() -> None:
    modest = Modest(6)

    async def run(whom: Endpoint) -> list[Reply]:
        gateway = LitellmGateway()
        return await asyncio.gather(
            *(gateway.complete(whom, request(timeout=60)) for _ in range(40))
        )

    with Loopback(modest) as server:
        assert len(asyncio.run(run(custom(server.base)))) == 40
    assert modest.refused > 0
