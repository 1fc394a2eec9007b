from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.config import files
from judgekit.engine import process as lock
from judgekit.engine.address import EngineAddress
from judgekit.engine.client import Connection, NoEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.engine.process import EngineLock

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")


@pytest.fixture
def engine_locks(place: EngineAddress) -> Iterator[list[EngineLock]]:
    taken: list[EngineLock] = []
    yield taken
    for engine_lock in taken:
        engine_lock.leave()
        engine_lock.listener.close()


def take(place: EngineAddress, engine_locks: list[EngineLock], *, unix: bool = True) -> EngineLock:
    engine_lock = lock.take(place, unix=unix)
    assert engine_lock is not None
    engine_locks.append(engine_lock)
    return engine_lock


def test_only_one_can_be_the_engine(place: EngineAddress, engine_locks: list[EngineLock]) -> None:
    take(place, engine_locks)
    assert lock.take(place) is None
    with Connection(place) as connection:
        assert connection.place is place


def test_the_socket_is_its_owners_alone(place: EngineAddress, engine_locks: list[EngineLock]) -> None:
    take(place, engine_locks)
    assert Path(place.socket).stat().st_mode & 0o777 == 0o700
    assert Path(place.lock).stat().st_mode & 0o777 == 0o600


def test_a_stale_socket_is_replaced(place: EngineAddress, engine_locks: list[EngineLock]) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(place.socket)
    left.close()
    take(place, engine_locks)
    Connection(place).__enter__().close()


def test_who_leaves_makes_room(place: EngineAddress, engine_locks: list[EngineLock]) -> None:
    engine_lock = take(place, engine_locks)
    engine_lock.leave()
    assert not Path(place.socket).exists()
    engine_locks.clear()
    engine_lock.listener.close()
    take(place, engine_locks)


def test_who_leaves_takes_nothing_of_a_successors(
    place: EngineAddress, engine_locks: list[EngineLock]
) -> None:
    """Somebody has emptied the folder, and the next engine is there already."""
    engine_lock = take(place, engine_locks)
    for path in Path(place.folder).iterdir():
        path.unlink()
    assert engine_lock.taken_away()
    take(place, engine_locks)
    engine_lock.leave()
    assert Path(place.socket).exists()
    Connection(place).__enter__().close()


def test_a_lock_that_was_removed_holds_nobody_up(place: EngineAddress) -> None:
    first = lock.take_lock(place.lock)
    Path(place.lock).unlink()
    second = lock.take_lock(place.lock)
    assert first is not None
    assert second is not None
    assert lock.take_lock(place.lock) is None
    os.close(first)
    os.close(second)


def test_the_process_is_named_in_the_lock(place: EngineAddress) -> None:
    held = lock.take_lock(place.lock)
    assert held is not None
    Path(place.lock).write_text("a number that is much longer")
    lock.sign(held)
    os.close(held)
    assert Path(place.lock).read_text() == f"{os.getpid()}\n"


def test_nobody_is_taken_for_a_former_engine(place: EngineAddress, engine_locks: list[EngineLock]) -> None:
    Path(place.lock).write_text("4711\n")
    engine_lock = take(place, engine_locks)
    assert Path(place.lock).read_text() == ""
    lock.sign(engine_lock.lock)
    engine_lock.leave()
    assert Path(place.lock).read_text() == ""
    engine_locks.clear()
    engine_lock.listener.close()


def test_who_leaves_is_known_until_it_is_gone(place: EngineAddress) -> None:
    other = EngineAddress(place.folder, place.compat_key, "other")
    lock.say_leaving(other)
    assert [(engine_address.code, process) for engine_address, process in lock.leaving(place)] == [
        ("other", os.getpid())
    ]
    assert lock.leaving(EngineAddress(place.folder, "somebody", "else")) == []
    lock.say_gone(other)
    assert lock.leaving(place) == []


def test_who_died_while_leaving_is_forgotten(place: EngineAddress) -> None:
    Path(place.leaving(4711)).touch()
    assert lock.leaving(place) == []
    assert not Path(place.leaving(4711)).exists()


def test_a_folder_that_others_may_look_into_is_refused(place: EngineAddress) -> None:
    Path(place.folder).chmod(0o755)
    with pytest.raises(PermissionError):
        lock.take(place)


def test_a_folder_that_takes_no_files_is_refused(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "take", full)
    with pytest.raises(OSError, match="No space"):
        lock.take(place)


def test_where_no_socket_can_be_made_the_lock_is_let_go(
    place: EngineAddress, engine_locks: list[EngineLock]
) -> None:
    Path(place.socket).mkdir()
    with pytest.raises(OSError, match=r"directory|permitted"):
        lock.take(place)
    Path(place.socket).rmdir()
    take(place, engine_locks)


def test_without_unix_sockets_a_port_and_a_token(
    place: EngineAddress, engine_locks: list[EngineLock]
) -> None:
    engine_lock = take(place, engine_locks, unix=False)
    port, token = Path(place.door).read_text().split()
    assert Path(place.door).stat().st_mode & 0o777 == 0o600
    assert engine_lock.listener.getsockname() == ("127.0.0.1", int(port))
    assert (engine_lock.token, len(token) > 40) == (token, True)
    with Connection(place) as connection:
        assert connection._token == token
    engine_lock.leave()
    assert not Path(place.door).exists()


def test_dismissing_clears_up_after_the_dead(place: EngineAddress, engine_locks: list[EngineLock]) -> None:
    dead = EngineAddress(place.folder, place.compat_key, "dead")
    gone = lock.take(dead)
    assert gone is not None
    os.close(gone.lock)
    gone.listener.close()
    own = take(place, engine_locks)
    lock.dismiss(place, 1)
    assert not [name for name in os.listdir(place.folder) if "dead" in name]  # noqa: PTH208 - names
    assert not own.taken_away()
    with pytest.raises(NoEngine):
        Connection(dead).open()


def test_dismissing_leaves_alone_who_is_just_beginning(place: EngineAddress) -> None:
    other = EngineAddress(place.folder, place.compat_key, "other")
    held = lock.take_lock(other.lock)
    Path(other.socket).touch()
    lock.dismiss(place, 1)
    assert Path(other.lock).exists()
    assert held is not None
    os.close(held)
