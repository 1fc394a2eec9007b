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

from judgekit.config import locks
from judgekit.engine import lifecycle, process
from judgekit.engine.admission import AdmissionMiddleware
from judgekit.engine.client import Connection, EngineAddress
from judgekit.engine.judges import Service
from judgekit.engine.lifecycle import Engine
from judgekit.engine.process import Log
from judgekit.providers import litellm
from judgekit.redaction import secret_search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from judgekit.engine.process import EngineLock

    Take = Callable[..., EngineLock]

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


class Clock:
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
    """Return a function that locks an engine's address; every lock is released at the end."""
    taken: list[EngineLock] = []

    def one(where: EngineAddress = place, *, unix: bool = True) -> EngineLock:
        engine_lock = process.become_engine(where, unix=unix)
        assert engine_lock is not None
        taken.append(engine_lock)
        return engine_lock

    yield one
    for engine_lock in taken:
        engine_lock.listener.close()
        engine_lock.end()
        os.close(engine_lock.lock_descriptor)


@pytest.fixture
def engine(
    take: Take, place: EngineAddress, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Engine:
    """Return an engine that sits in its place and does not run: it only looks around.

    It is small, however much the process has grown that runs the tests.
    """
    monkeypatch.setattr(lifecycle, "rss_bytes", lambda: 1)
    log, lock = Log(place.log_path), take()
    os.pwrite(lock.lock_descriptor, b"%d\n" % os.getpid(), 0)
    found = Engine(lock, log)
    found._admission = AdmissionMiddleware(_nothing, log)
    found._idle_limit_s = 60.0
    return found


def leaves(engine: Engine) -> str:
    engine.leave_if_unneeded()
    return engine._reason if engine.should_exit else ""


def test_it_leaves_when_it_has_been_idle_for_long_enough(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now += 59
    assert leaves(engine) == ""
    engine._admission.request_count += 1  # came and went between two looks
    clock.now += 59
    assert leaves(engine) == ""
    engine._admission.active_requests[""] = 1
    clock.now += 10_000
    assert leaves(engine) == ""
    engine._admission.active_requests.clear()
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
        patch.setattr(lifecycle, "rss_bytes", lambda: lifecycle.MAX_RSS + 1)
        engine._admission.active_requests[""] = 1
        assert leaves(engine) == ""
        engine._admission.active_requests.clear()
        assert leaves(engine).startswith("grown to ")
    engine.should_exit = False
    assert leaves(engine) == ""
    Path(place.socket_path).unlink()
    assert leaves(engine) == "its socket is gone"
    engine.should_exit = False
    engine.leave()
    assert (engine.should_exit, engine._reason) == (True, "asked to stop")


def test_what_a_judging_needs_is_there_before_anybody_asks_and_how_long_is_the_users_to_say(
    engine: Engine, place: EngineAddress, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []

    async def loaded() -> None:
        steps.append("models")

    async def fails() -> None:
        raise ImportError("no litellm")

    async def run() -> None:
        service = Service()
        monkeypatch.setattr(
            secret_search, "load_format_rules", lambda: steps.append(service.ready.is_set())
        )
        await engine._prepare(service)

    monkeypatch.setattr(litellm, "load_in_thread", loaded)
    config = isolated / "judgekit/config.yaml"
    config.parent.mkdir()
    for minutes, seconds in (("0.5", 30.0), ("-1", 900.0)):
        config.write_text(f"engine: {{idle_minutes: {minutes}}}\n")
        engine._idle_limit_s = 86_400
        asyncio.run(run())
        assert (steps, engine._idle_limit_s) == (["models", True], seconds)
        steps.clear()
    # Leaves soon, and is not started at every prompt
    monkeypatch.setattr(litellm, "load_in_thread", fails)
    asyncio.run(run())
    assert engine._idle_limit_s == 30
    assert Path(place.tried_path).exists()
    assert "not ready: ImportError: no litellm" in Path(place.log_path).read_text()


def test_only_one_can_be_the_engine_and_its_files_are_its_owners_alone(
    place: EngineAddress, take: Take
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(place.socket_path)  # a stale socket is replaced
    Path(place.lock_path).write_text("a number that is much longer")
    first = take()
    assert Path(place.lock_path).read_text() == ""  # nobody is taken for a former engine
    assert process.become_engine(place) is None
    Connection(place).close()
    assert Path(place.socket_path).stat().st_mode & 0o777 == 0o700
    first.release()
    first.release()
    assert not Path(place.socket_path).exists()
    second = take()
    for path in Path(
        place.folder
    ).iterdir():  # somebody empties the folder: nothing holds the next one up
        path.unlink()
    assert second.is_unreachable()
    take()
    assert Path(place.lock_path).stat().st_mode & 0o777 == 0o600
    second.end()  # and takes nothing of it
    assert Path(place.lock_path).exists()
    Connection(place).close()


def test_engines_of_all_versions_are_known_and_the_dead_leave_nothing(
    place: EngineAddress, take: Take
) -> None:
    leaving, dead, beginning = (
        EngineAddress(place.folder, place.compat_key, code)
        for code in ("leaving", "dead", "beginning")
    )

    lock = take(leaving)
    os.pwrite(lock.lock_descriptor, b"4712\n", 0)
    Path(leaving.socket_path).unlink()  # even where clients could not find it any more
    lock.release()
    gone, held = process.become_engine(dead), process.take_lock(beginning.lock_path)
    assert gone is not None
    assert held is not None
    os.close(gone.lock_descriptor)
    gone.listener.close()
    for path in (
        beginning.socket_path,
        Path(place.folder, "engine-other-old.lock"),
        f"{place.stem}.4711.leaving",
    ):
        Path(path).touch()
    own = take()
    os.pwrite(own.lock_descriptor, b"4713\n", 0)
    known = [
        (engine.address.code_fingerprint, engine.pid, engine.is_shutting_down)
        for engine in process.list_engines(place)
    ]
    assert known == [("code", 4713, False), ("leaving", 4712, True)]
    process.dismiss_others(place, 1)
    assert not list(Path(place.folder).glob("*dead*"))
    assert not list(Path(place.folder).glob("*4711*"))
    assert Path(beginning.lock_path).exists()
    assert not own.is_unreachable()
    assert process.list_engines(EngineAddress(place.folder, "somebody", "else")) == []
    lock.end()
    assert not list(Path(place.folder).glob("*.leaving"))
    os.close(held)


def test_a_folder_that_others_may_look_into_or_that_takes_no_files_is_refused(
    place: EngineAddress, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    Path(place.folder).chmod(0o755)
    with pytest.raises(PermissionError):
        process.become_engine(place)
    Path(place.folder).chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(locks, "take", full)
        with pytest.raises(OSError, match="No space"):
            process.become_engine(place)
    Path(place.socket_path).mkdir()  # where no socket can be made the lock is let go
    with pytest.raises(OSError, match=r"directory|permitted"):
        process.become_engine(place)
    Path(place.socket_path).rmdir()
    take()


def test_without_unix_sockets_a_port_and_a_token(place: EngineAddress, take: Take) -> None:
    engine_lock = take(unix=False)
    port, token = Path(place.address_file).read_text().split()
    assert Path(place.address_file).stat().st_mode & 0o777 == 0o600
    assert engine_lock.listener.getsockname() == ("127.0.0.1", int(port))
    assert (engine_lock.token, len(token) > 40) == (token, True)
    with Connection(place) as connection:
        assert connection._token == token
    engine_lock.release()
    assert not Path(place.address_file).exists()


def test_the_log_is_bounded_and_loses_the_values_of_what_it_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_LOG_BYTES", 1000)
    log = Log(str(tmp_path / "full"))
    for count in range(200):
        log.add(f"line {count}")
    files = sorted(tmp_path.iterdir(), reverse=True)  # the older one first
    assert sum(file.stat().st_size for file in files) < 2200
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    Log(str(tmp_path / "removed" / "log")).add("nobody reads it")
    assert not (tmp_path / "removed").exists()
    log = Log(str(tmp_path / "log"))
    logger = logging.getLogger("library")
    logger.propagate = False
    logger.addHandler(log)
    logger.warning("refused %s\nand more", "sk-secret")
    logger.info("chatter")
    try:
        raise RuntimeError("sk-secret and what was sent")  # noqa: TRY301 - as from anywhere
    except RuntimeError as error:
        log.add_error(error)
        logger.exception("it broke: sk-secret")
    text = (tmp_path / "log").read_text()
    assert "library: refused %s\n" in text
    assert text.count("fault: RuntimeError at test_lifecycle.py:") == 1  # the same is written once
    assert "secret" not in text
    assert "chatter" not in text
