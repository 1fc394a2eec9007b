"""Recordings: what is in them, how they are replayed, and what never gets into them."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from asking import KEY, ask, custom, failure, request
from loopback import Loopback, fails, says
from making import call_usage, reply

from judgekit.config import TIERS
from judgekit.errors import ConfigError, FailureKind, GatewayError
from judgekit.providers import replay
from judgekit.providers.base import CallKey, Endpoint, Reply, Request
from judgekit.providers.gateway import open_gateway
from judgekit.providers.replay import Recorder, ReplayGateway
from judgekit.providers.resolve import PanelRequest, resolve

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "http://127.0.0.1:1/v1"


class Scripted:
    """A gateway that gives the same again and again."""

    def __init__(self, outcome: Reply | GatewayError) -> None:
        self.outcome, self.closed = outcome, False

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        if isinstance(self.outcome, GatewayError):
            raise self.outcome
        return self.outcome

    async def aclose(self) -> None:
        self.closed = True


def line(**keys: Any) -> str:  # noqa: ANN401 - keys of a line
    call_key = {"subject": "a" * 64, "rubric": "kls@1.0.0", "tier": "quick"}
    reply = {"text": "x", "model": "m"}
    return json.dumps({"replay": 1, **call_key, "model": "m", "reply": reply, **keys}) + "\n"


def recording(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "recording.jsonl"
    file.write_text("".join(lines), encoding="utf-8")
    return file


def test_a_recording_that_cannot_be_written_is_said_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    for below in ("file/recording.jsonl", "folder", "nul\0.jsonl"):
        with pytest.raises(ConfigError, match="JUDGEKIT_RECORD: no recording can be written there"):
            open_gateway({"JUDGEKIT_RECORD": str(tmp_path / below)})


def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\x85four\x0cfive\nsix"  # on one line, whatever separators it has
    recorded = reply(text, "m-2026", call_usage(10, 2, 0.001), logprobs=({"yes": -0.1, "no": -2.0},))
    lost = GatewayError(FailureKind.OVERLOADED, "busy")
    endpoint = replace(custom(NOWHERE), family="meta", pointwise=True)
    for name, outcome in (("new/recording.jsonl", recorded), ("failed.jsonl", lost)):
        inner, file = Scripted(outcome), tmp_path / name
        if isinstance(outcome, GatewayError):
            failure(Recorder(inner, file), endpoint, request())
        else:
            assert ask(Recorder(inner, file), endpoint, request()) == recorded
        there = replay.recorded_models(file)["quick"][0]
        assert (there.model, there.family, there.pointwise) == ("custom/stand-in", "meta", True)
        assert inner.closed
        if isinstance(outcome, GatewayError):
            error = failure(ReplayGateway(), there, request())
            assert (error.kind, error.message) == (lost.kind, lost.message)
            file.unlink()  # a recording that goes away is a failure of the call
            assert failure(ReplayGateway(), there, request()).kind is FailureKind.NOT_RECORDED
        else:
            assert ask(ReplayGateway(), there, request()) == recorded


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


def test_a_line_is_found_by_its_call_key_and_model_in_order_and_the_last_stays(tmp_path: Path) -> None:
    lines = [
        line(part="semantic", reply={"text": "part", "model": "m"}),
        line(tier="deep", model="n", reply={"text": "deep", "model": "n"}),
        line(reply={"text": "first", "model": "m"}),
        line(reply={"text": "second", "model": "m"}),
    ]
    found = {tier: jury[0] for tier, jury in replay.recorded_models(recording(tmp_path, *lines)).items()}
    part = replace(request("worded otherwise"), call_key=CallKey("a" * 64, "kls@1.0.0", "quick", "semantic"))
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
        ("{not json\n", 1, "not JSON"),
        (line() + "\n" + line(replay=2), 3, "expected 1"),
        (line(extra=1), 1, "unknown key"),
        (line(failure={"kind": "timeout", "message": ""}), 1, "either reply or failure"),
        (line(tier="medium"), 1, "expected 'quick', 'deep' or 'tiebreaker'"),
        ("[]\n", 1, "expected"),
    ):
        with pytest.raises(ConfigError) as caught:
            replay.read(recording(tmp_path, text))
        assert (caught.value.line, problem in str(caught.value)) == (number, True), str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        replay.read(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="JUDGEKIT_RECORD"):
        replay.recorded_models(recording(tmp_path))


def test_the_environment_chooses_a_recording_before_all_else(tmp_path: Path) -> None:
    file = recording(tmp_path, line(tier="deep", model="anthropic/claude-x", family="anthropic"))
    environ = {"JUDGEKIT_REPLAY": str(file), "ANTHROPIC_API_KEY": KEY, "JUDGEKIT_MODEL": "openai/gpt-6-luna"}
    panel = resolve(PanelRequest(), environ)
    assert panel.provider == "replay"
    assert str(file) in panel.reason
    names = {tier: [endpoint.model for endpoint in jury] for tier, jury in panel.endpoints.items()}
    assert names == {tier: ["anthropic/claude-x"] for tier in TIERS}
    assert panel.endpoints["quick"][0].api_key is None


def test_lines_of_many_writers_never_mix(tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    long = reply("x" * 20_000, "m")

    def write() -> None:
        for _ in range(10):
            ask(Recorder(Scripted(long), file), custom(NOWHERE), request())

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(replay.read(file)) == 40
    assert os.path.getsize(file) > 40 * 20_000  # noqa: PTH202 - one call
