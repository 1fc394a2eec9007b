"""Becoming the engine of a place, how long it stays, leaving it, clearing up after the dead, and its log."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.config import files
from judgekit.config import settings as configuration
from judgekit.engine import lifecycle, process
from judgekit.engine.admission import AdmissionMiddleware
from judgekit.engine.client import Connection, EngineAddress, NoEngine
from judgekit.engine.judges import Service
from judgekit.engine.lifecycle import Engine
from judgekit.engine.process import Log
from judgekit.judging import secret_search
from judgekit.providers import litellm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from judgekit.engine.process import EngineLock

    Take = Callable[..., EngineLock]

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


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
def take(place: EngineAddress) -> Iterator[Take]:
    """Return what takes a place; all that is taken is let go of."""
    taken: list[EngineLock] = []

    def one(where: EngineAddress = place, *, unix: bool = True) -> EngineLock:
        engine_lock = process.take(where, unix=unix)
        assert engine_lock is not None
        taken.append(engine_lock)
        return engine_lock

    yield one
    for engine_lock in taken:
        engine_lock.listener.close()
        engine_lock.end()
        os.close(engine_lock.lock)


@pytest.fixture
def engine(take: Take, place: EngineAddress, clock: Clock) -> Engine:
    """Return an engine that sits in its place and does not run: it only looks around."""
    log = Log(place.log)
    found = Engine(take(), log)
    found._door = AdmissionMiddleware(_nothing, log)
    found._idle = 60.0
    return found


def leaves(engine: Engine) -> str:
    """Have it look around and return why it leaves, nothing when it stays."""
    engine.look_around()
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
    engine.leave(50)  # has a successor: sooner, never later
    engine.leave(500)
    clock.now += 19
    assert leaves(engine) == ""
    clock.now += 2
    assert leaves(engine) == "idle"


def test_it_leaves_when_it_has_grown_or_cannot_be_found_or_is_told_to(
    engine: Engine, place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "rss_bytes", lambda: lifecycle.MOST_RSS + 1)
        engine._door.inside = 1
        assert leaves(engine) == ""
        engine._door.inside = 0
        assert leaves(engine).startswith("grown to ")
    engine.should_exit = False
    assert leaves(engine) == ""
    Path(place.socket).unlink()
    assert leaves(engine) == "its socket is gone"
    engine.should_exit = False
    engine.leave()
    assert (engine.should_exit, engine._why) == (True, "asked to stop")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 900.0), ("engine: {idle_minutes: 0.5}\n", 30.0), ("engine: {idle_minutes: -1}\n", 900.0)],
)
def test_what_a_judging_needs_is_there_before_anybody_asks_and_how_long_is_the_users_to_say(
    engine: Engine, isolated: Path, monkeypatch: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    steps: list[object] = []

    async def loaded() -> None:
        steps.append("models")

    async def run() -> None:
        service = Service()
        monkeypatch.setattr(secret_search, "load", lambda: steps.append(service.ready.is_set()))
        await engine._prepare(service)

    monkeypatch.setattr(litellm, "loaded", loaded)
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit/config.yaml").write_text(text)
    engine._idle = 86_400
    asyncio.run(run())
    assert (steps, engine._idle) == (["models", True], seconds)
    assert configuration.EngineConfig().idle_minutes == 15


def test_one_that_cannot_load_what_judging_needs_leaves_soon_and_is_not_started_at_every_prompt(
    engine: Engine, place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def loaded() -> None:
        raise ImportError("no litellm")

    async def run() -> None:
        await engine._prepare(Service())

    monkeypatch.setattr(litellm, "loaded", loaded)
    asyncio.run(run())
    assert engine._idle == 30
    assert Path(place.tried).exists()
    assert "not ready: ImportError: no litellm" in Path(place.log).read_text()


def test_only_one_can_be_the_engine_and_its_files_are_its_owners_alone(
    place: EngineAddress, take: Take
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(place.socket)  # a stale socket is replaced
    Path(place.lock).write_text("a number that is much longer")
    first = take()
    assert Path(place.lock).read_text() == ""  # nobody is taken for a former engine
    assert process.take(place) is None
    Connection(place).__enter__().close()
    assert Path(place.socket).stat().st_mode & 0o777 == 0o700
    first.leave()
    first.leave()
    assert not Path(place.socket).exists()
    take()


def test_who_leaves_takes_nothing_of_a_successors(place: EngineAddress, take: Take) -> None:
    """Somebody has emptied the folder, and the next engine is there already."""
    first = take()
    for path in Path(place.folder).iterdir():
        path.unlink()
    assert first.taken_away()
    take()
    first.end()
    assert Path(place.lock).exists()
    Connection(place).__enter__().close()


def test_a_lock_that_was_removed_holds_nobody_up(place: EngineAddress) -> None:
    first = process.take_lock(place.lock)
    Path(place.lock).unlink()
    second = process.take_lock(place.lock)
    assert Path(place.lock).stat().st_mode & 0o777 == 0o600
    assert process.take_lock(place.lock) is None
    for held in (first, second):
        assert held is not None
        os.close(held)


def test_who_leaves_is_known_until_it_is_gone(place: EngineAddress, take: Take) -> None:
    other = EngineAddress(place.folder, place.compat_key, "other")
    lock = take(other)
    Path(other.socket).unlink()  # even where clients could not find it any more
    lock.leave()
    take(other)  # the next one does not wait for its end
    dead = Path(f"{place.stem}.4711.leaving")
    dead.touch()  # who died while leaving is forgotten
    leaving = process.leaving_engines(place)
    assert [(found.code, number) for found, number in leaving] == [("other", os.getpid())]
    assert not dead.exists()
    assert process.leaving_engines(EngineAddress(place.folder, "somebody", "else")) == []
    lock.end()
    assert process.leaving_engines(place) == []


def test_a_folder_that_others_may_look_into_or_that_takes_no_files_is_refused(
    place: EngineAddress, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    Path(place.folder).chmod(0o755)
    with pytest.raises(PermissionError):
        process.take(place)
    Path(place.folder).chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(files, "take", full)
        with pytest.raises(OSError, match="No space"):
            process.take(place)
    Path(place.socket).mkdir()  # where no socket can be made the lock is let go
    with pytest.raises(OSError, match=r"directory|permitted"):
        process.take(place)
    Path(place.socket).rmdir()
    take()


def test_without_unix_sockets_a_port_and_a_token(place: EngineAddress, take: Take) -> None:
    engine_lock = take(unix=False)
    port, token = Path(place.door).read_text().split()
    assert Path(place.door).stat().st_mode & 0o777 == 0o600
    assert engine_lock.listener.getsockname() == ("127.0.0.1", int(port))
    assert (engine_lock.token, len(token) > 40) == (token, True)
    with Connection(place) as connection:
        assert connection._token == token
    engine_lock.leave()
    assert not Path(place.door).exists()


def test_dismissing_clears_up_after_the_dead_and_leaves_alone_who_is_just_beginning(
    place: EngineAddress, take: Take
) -> None:
    dead, beginning = (EngineAddress(place.folder, place.compat_key, code) for code in ("dead", "beginning"))
    gone, held = process.take(dead), process.take_lock(beginning.lock)
    assert gone is not None
    assert held is not None
    os.close(gone.lock)
    gone.listener.close()
    Path(beginning.socket).touch()
    Path(place.folder, "engine-other-old.sock").touch()
    own = take()
    assert [relative.code for relative in process.relatives(place)] == ["beginning", "dead"]
    process.dismiss(place, 1)
    assert not list(Path(place.folder).glob("*dead*"))
    assert Path(beginning.lock).exists()
    assert not own.taken_away()
    with pytest.raises(NoEngine):
        Connection(dead).open()
    os.close(held)


def test_a_line_of_the_log_has_a_time_and_a_process_and_the_log_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("missing/log", "."):  # where it cannot be written nothing else is lost
        Log(str(tmp_path / name)).add("ready")
    assert list(tmp_path.iterdir()) == []
    Log(str(tmp_path / "log")).add("ready")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    moment, number, text = (tmp_path / "log").read_text().split()
    assert (moment[-1], number.isdigit(), text) == ("Z", True, "ready")
    (tmp_path / "log").unlink()
    monkeypatch.setattr(process, "MAX_BYTES", 1000)
    log = Log(str(tmp_path / "log"))
    for count in range(200):
        log.add(f"line {count}")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2200
    assert "line 199" in "".join(file.read_text() for file in tmp_path.iterdir())


def test_a_fault_is_a_kind_and_a_place_and_what_libraries_log_loses_its_values(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    logger = logging.getLogger("library")
    logger.propagate = False
    logger.addHandler(log)
    logger.warning("refused %s\nand more", "sk-secret")
    logger.info("chatter")
    try:
        raise RuntimeError("sk-secret and what was sent")  # noqa: TRY301 - as from anywhere
    except RuntimeError as error:
        log.fault(error)
        logger.exception("it broke: sk-secret")
    text = (tmp_path / "log").read_text()
    assert "library: refused %s\n" in text
    assert text.count("fault: RuntimeError at test_lifecycle.py:") == 1  # the same is written once
    assert "secret" not in text
    assert "chatter" not in text
