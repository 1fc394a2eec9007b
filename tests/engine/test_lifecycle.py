from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.engine import lifecycle, process
from judgekit.engine.admission import AdmissionMiddleware
from judgekit.engine.lifecycle import Engine
from judgekit.engine.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from judgekit.engine.address import EngineAddress


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _nothing(_: Scope, __: Receive, ___: Send) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


@pytest.fixture
def engine(place: EngineAddress, clock: Clock) -> Iterator[Engine]:
    """Return an engine that sits in its place and does not run: it only looks around."""
    engine_lock = process.take(place)
    assert engine_lock is not None
    found = Engine(engine_lock, Log(place.log))
    found._door = AdmissionMiddleware(_nothing)
    found._idle = 60.0
    yield found
    engine_lock.leave()
    engine_lock.listener.close()


def leaves(engine: Engine) -> str:
    """Have it look around and return why it leaves, nothing when it stays."""
    engine._look_around()
    return engine._why if engine.should_exit else ""


def test_it_leaves_when_it_has_been_idle_for_long_enough(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now += 59
    assert leaves(engine) == ""
    engine._door.requests += 1  # came and went between two looks
    clock.now += 59
    assert leaves(engine) == ""
    engine._door.inside = 1
    clock.now += 10_000
    assert leaves(engine) == ""
    engine._door.inside = 0
    clock.now += 30
    monkeypatch.setattr(time, "time", lambda: 1e9)  # that clock may jump
    assert leaves(engine) == ""
    clock.now += 31
    assert leaves(engine) == "idle"


def test_it_leaves_when_it_has_grown_too_large_and_has_nothing_to_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "rss_bytes", lambda: lifecycle.MOST_RSS + 1)
    engine._door.inside = 1
    assert leaves(engine) == ""
    engine._door.inside = 0
    assert leaves(engine).startswith("grown to ")


def test_it_leaves_when_its_socket_was_taken_away(engine: Engine, place: EngineAddress) -> None:
    assert leaves(engine) == ""
    Path(place.socket).unlink()
    assert leaves(engine) == "its socket is gone"


def test_one_that_was_succeeded_leaves_sooner_never_later(engine: Engine, clock: Clock) -> None:
    engine._stop(30.0)
    engine._stop(500.0)
    assert not engine.should_exit
    clock.now += 31
    assert leaves(engine) == "idle"


def test_told_to_it_leaves_at_once(engine: Engine) -> None:
    engine._stop(0)
    assert leaves(engine) == "asked to stop"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 900.0), ("engine: {idle_minutes: 0.5}\n", 30.0), ("engine: {idle_minutes: -1}\n", 900.0)],
)
def test_how_long_is_the_users_to_say(isolated: Path, text: str, seconds: float) -> None:
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit/config.yaml").write_text(text)
    assert lifecycle._idle_seconds() == seconds
