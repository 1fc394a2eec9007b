"""Becoming the engine of a place, leaving it, and clearing up after those that died."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.config import files
from judgekit.engine import process
from judgekit.engine.address import EngineAddress
from judgekit.engine.client import Connection, NoEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from judgekit.engine.process import EngineLock

    Take = Callable[..., EngineLock]

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


@pytest.fixture
def take(place: EngineAddress) -> Iterator[Take]:
    """Return what takes the place; all that is taken is let go of."""
    taken: list[EngineLock] = []

    def one(*, unix: bool = True) -> EngineLock:
        engine_lock = process.take(place, unix=unix)
        assert engine_lock is not None
        taken.append(engine_lock)
        return engine_lock

    yield one
    for engine_lock in taken:
        engine_lock.listener.close()
        if not engine_lock.taken_away():
            engine_lock.leave()


def test_only_one_can_be_the_engine_and_its_files_are_its_owners_alone(
    place: EngineAddress, take: Take
) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(place.socket)  # a stale socket is replaced
    left.close()
    Path(place.lock).write_text("a number that is much longer")
    first = take()
    assert Path(place.lock).read_text() == ""  # nobody is taken for a former engine
    assert process.take(place) is None
    Connection(place).__enter__().close()
    assert Path(place.socket).stat().st_mode & 0o777 == 0o700
    process.sign(first.lock)
    assert Path(place.lock).read_text() == f"{os.getpid()}\n"
    first.leave()
    assert not Path(place.socket).exists()
    assert Path(place.lock).read_text() == ""
    take()


def test_who_leaves_takes_nothing_of_a_successors(place: EngineAddress, take: Take) -> None:
    """Somebody has emptied the folder, and the next engine is there already."""
    first = take()
    for path in Path(place.folder).iterdir():
        path.unlink()
    assert first.taken_away()
    take()
    first.leave()
    assert Path(place.socket).exists()
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


def test_who_leaves_is_known_until_it_is_gone(place: EngineAddress) -> None:
    other = EngineAddress(place.folder, place.compat_key, "other")
    process.say_leaving(other)
    Path(place.leaving(4711)).touch()  # who died while leaving is forgotten
    assert [(found.code, number) for found, number in process.leaving(place)] == [("other", os.getpid())]
    assert not Path(place.leaving(4711)).exists()
    assert process.leaving(EngineAddress(place.folder, "somebody", "else")) == []
    process.say_gone(other)
    assert process.leaving(place) == []


def test_a_folder_that_others_may_look_into_or_that_takes_no_files_is_refused(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    Path(place.folder).chmod(0o755)
    with pytest.raises(PermissionError):
        process.take(place)
    Path(place.folder).chmod(0o700)
    monkeypatch.setattr(files, "take", full)
    with pytest.raises(OSError, match="No space"):
        process.take(place)


def test_where_no_socket_can_be_made_the_lock_is_let_go(place: EngineAddress, take: Take) -> None:
    Path(place.socket).mkdir()
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
    dead = EngineAddress(place.folder, place.compat_key, "dead")
    beginning = EngineAddress(place.folder, place.compat_key, "beginning")
    gone, held = process.take(dead), process.take_lock(beginning.lock)
    assert gone is not None
    assert held is not None
    os.close(gone.lock)
    gone.listener.close()
    Path(beginning.socket).touch()
    own = take()
    process.dismiss(place, 1)
    assert not list(Path(place.folder).glob("*dead*"))
    assert Path(beginning.lock).exists()
    assert not own.taken_away()
    with pytest.raises(NoEngine):
        Connection(dead).open()
    os.close(held)
