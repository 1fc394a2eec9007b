"""Where an engine is looked for, whom it is trusted by, and what its client makes of what comes back."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_processes import private_folder

from judgekit import environment
from judgekit.engine import client, process
from judgekit.engine.admission import error_body
from judgekit.engine.client import MAX_PATH, Connection, EngineAddress, EngineBusy, EngineLost, NoEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets and rights")

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with private_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield folder


def found() -> EngineAddress:
    place = client.find(make=True)
    assert place is not None
    return place


def test_the_runtime_folder_is_the_first_choice_and_a_long_path_gives_way_to_a_short_one(
    runtime: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.find()
    assert not (runtime / "judgekit").exists()  # looking makes none
    assert found().folder == str(runtime / "judgekit")
    assert (runtime / "judgekit").stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("JUDGEKIT_HOME", str(runtime / "j"))
    assert found().folder == str(runtime / "j/cache/run")
    monkeypatch.setenv("JUDGEKIT_HOME", str(isolated / ("long" * 40)))
    monkeypatch.setattr(environment, "private_folder", lambda path: path)
    monkeypatch.setattr(client, "private", lambda _: True)
    assert len(os.fsencode(found().socket)) <= MAX_PATH


def test_a_folder_of_somebody_else_is_not_used(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = found().folder
    for mode in (0o755, 0o770, 0o701):  # others may look into it
        Path(mine).chmod(mode)
        assert (place := client.find()) is None or not place.folder.startswith(str(runtime))
    Path(mine).rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    Path(mine).symlink_to(tmp_path / "elsewhere")  # nor is a link to one
    assert not client.private(mine)
    assert not found().folder.startswith(str(runtime))
    Path(mine).unlink()
    assert found().folder == mine
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 54321)
        assert not client.private(mine)
        assert client.find() is None
    monkeypatch.setattr(environment, "private_folder", lambda _: Path("/no/such").rmdir())  # a full disk
    Path(mine).rmdir()
    monkeypatch.setattr(client, "private", lambda path: path == str(runtime))
    assert client.find(make=True) is None


def test_another_network_home_or_version_has_another_engine_and_what_travels_changes_nothing(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = found()
    for name, same in (("ANTHROPIC_API_KEY", True), ("JUDGEKIT_MODEL", True), ("HTTPS_PROXY", False)):
        monkeypatch.setenv(name, str(tmp_path))
        assert (found().stem == before.stem) is same
    for name in ("HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "HOME"):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(tmp_path / "other"))
            patch.setenv("USERPROFILE", str(tmp_path))
            assert found().compat_key != before.compat_key
    before = found()
    monkeypatch.setattr(client, "_own_code", "")
    monkeypatch.setattr(environment, "__version__", "99.0.0")
    after = found()
    assert (after.compat_key, after.folder) == (before.compat_key, before.folder)
    assert after.code != before.code


def test_an_edit_in_a_checkout_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part/a.py").write_text("a = 1\n")
    before = client._stamp(str(tmp_path))
    assert client._stamp(str(tmp_path)) == before
    (tmp_path / "part/a.py").write_text("a = 12\n")
    assert client._stamp(str(tmp_path)) != before


class Scripted:
    """Something at the place of an engine that sends a piece for each connection; None hangs up."""

    def __init__(self, place: EngineAddress, *pieces: bytes | None) -> None:
        self.requests: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(place.socket)
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, args=pieces, daemon=True)
        self._thread.start()

    def _serve(self, *pieces: bytes | None) -> None:
        with suppress(OSError):
            for piece in pieces:
                accepted, _ = self._listener.accept()
                with accepted:
                    accepted.settimeout(10)
                    self.requests.append(accepted.recv(65536))
                    if piece == b"HTTP/1.1 200":  # says nothing more
                        accepted.sendall(piece)
                        accepted.recv(1)
                    elif piece is not None:
                        accepted.sendall(piece)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@pytest.fixture
def script(place: EngineAddress) -> Iterator[list[Scripted]]:
    made: list[Scripted] = []
    yield made
    for scripted in made:
        scripted.close()


def test_a_request_is_plain_http(place: EngineAddress, script: list[Scripted]) -> None:
    script.append(Scripted(place, OK, OK.replace(b"length: 2", b"length: 3"), OK))
    with Connection(place) as connection:
        answer = connection.ask("POST", "/v1/judge", b"{}", seconds=10)
        assert (answer.status, answer.read()) == (200, b"ok")
        connection.ask("GET", "/", seconds=10)  # an answer that is not read is not the next one's
        assert connection.ask("GET", "/", seconds=10).read() == b"ok"
    request = script[0].requests[0]
    assert request.startswith(b"POST /v1/judge HTTP/1.0\r\nHost: judgekit\r\n")
    assert request.endswith(b"Content-Length: 2\r\n\r\n{}")


HEAD = b"HTTP/1.1 200 OK\r\n"
HALF: dict[str, bytes | None] = {
    "nothing": None,
    "in the head": HEAD + b"conte",
    "in the body": HEAD + b"content-length: 9\r\n\r\nok",
    "longer than it says": HEAD + b"content-length: 1\r\n\r\nok",
    "too long": HEAD + b"content-length: 999999999999\r\n\r\nok",
    "a negative length": HEAD + b"content-length: -1\r\n\r\nok",
    "no number": HEAD + b"content-length: nine\r\n\r\n",
    "a head without end": HEAD + b"x: y\r\n" * 30_000 + b"\r\n",
    "no HTTP": b"good day\r\n\r\n",
    "no status": b"HTTP/1.1 good day\r\n\r\n",
    "without end": HEAD + b"\r\n" + b" " * 130_000,
}


@pytest.mark.parametrize("case", HALF)
def test_half_an_answer_is_a_lost_engine(
    place: EngineAddress, script: list[Scripted], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(client, "_MOST_ANSWER", 100_000)
    script.append(Scripted(place, HALF[case]))
    with Connection(place) as connection, pytest.raises(EngineLost):
        connection.ask("POST", "/", b"{}", seconds=10).read()


def test_one_that_says_nothing_is_lost_when_time_is_over(
    place: EngineAddress, script: list[Scripted]
) -> None:
    script.append(Scripted(place, b"HTTP/1.1 200"))
    with Connection(place) as connection, pytest.raises(EngineLost, match="in time"):
        connection.ask("POST", "/", seconds=0.2)


@pytest.mark.parametrize("well", [True, False])
def test_who_is_slow_is_waited_for_while_it_is_well(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch, *, well: bool
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    looks: list[float] = []

    def health(_: EngineAddress, seconds: float) -> bytes:
        looks.append(seconds)
        if not well:
            raise NoEngine
        if len(looks) == 3:
            theirs.sendall(OK)
        return b""

    monkeypatch.setattr(client, "health", health)
    connection = Connection(place)
    connection._socket, connection.look = ours, 0.01
    with connection, theirs:
        if well:
            assert connection.ask("GET", "/", seconds=60).read() == b"ok"
        else:
            with pytest.raises(EngineLost, match="it did not respond in time"):
                connection.ask("GET", "/", seconds=3600)
    assert len(looks) == (3 if well else 1)
    assert max(looks) <= client.HEALTH_SECONDS


def test_one_that_is_busy_says_why_and_for_how_long(place: EngineAddress, script: list[Scripted]) -> None:
    body = error_body("not_ready", "not ready: ImportError: no litellm")
    never = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    busy = b"HTTP/1.1 503 x\r\nretry-after: 1.5\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy"
    script.append(Scripted(place, never, busy, OK))
    with Connection(place) as connection:
        for why, seconds in (("not ready: ImportError", 0), ("it is too busy, or stopping", 1.5)):
            with pytest.raises(EngineBusy, match=why) as raised:
                connection.ask("POST", "/", b"{}", seconds=10)
            assert raised.value.retry_after == seconds
        assert connection.ask("GET", "/", seconds=10).read() == b"ok"


def test_where_nobody_of_ours_is_there_is_no_engine(
    place: EngineAddress, script: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        with pytest.raises(NoEngine):
            Connection(place).open()

    refused()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(place.socket)
    refused()  # a stale socket
    Path(place.socket).unlink()
    script.append(Scripted(place, OK))
    Path(place.folder).chmod(0o755)
    refused()  # others may look into the folder
    Path(place.folder).chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(client, "ours", lambda _: False)
        refused()
    assert not any(script[0].requests)
    Connection(place).__enter__().close()


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="credentials are known there")
def test_the_user_at_the_other_end_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert client.ours(here)
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        assert not client.ours(here)


def test_a_request_brings_its_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with environment.Brought({"A_KEY": "1", "GIT_DIR": "/x", "GIT_CONFIG_KEY_0": "y"}):
        place = {"cwd": str(tmp_path), "project": "/p", "client": str(os.getpid())}
        assert client.carried("/p") == {"environ": {"A_KEY": "1"}, **place}
        assert client.carried(git=True)["environ"] == {"A_KEY": "1", "GIT_DIR": "/x", "GIT_CONFIG_KEY_0": "y"}


def test_where_it_cannot_be_started_nobody_waits(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a plugin's folder, where the packages that an engine needs are not installed."""
    assert client.start(None) is None
    begun = time.monotonic()
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    for folder in (None, place):
        monkeypatch.setattr(client, "find", lambda folder=folder, **_: folder)
        with pytest.raises(NoEngine):
            client.connect_or_start(600)
    assert time.monotonic() - begun < 60


def test_what_does_not_come_up_is_not_started_at_every_prompt(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "find", lambda **_: place)
    begun: list[EngineAddress] = []

    def start(where: EngineAddress) -> int:
        begun.append(where)
        return len(begun)

    monkeypatch.setattr(client, "start", start)
    assert client.start_for_later() == 1
    for _ in range(3):
        with pytest.raises(NoEngine, match=r"was started \d s ago and is not ready"):
            client.start_for_later()
    assert begun == [place]
    for moment in (time.time() - client.VAIN_SECONDS - 1, time.time() + client.VAIN_SECONDS + 9):
        os.utime(place.tried, (moment, moment))  # long ago, or before the clock was set back
        assert client.start_for_later() == len(begun)
    assert begun == [place] * 3
    Path(place.tried).unlink()
    Path(place.tried).mkdir()
    os.utime(place.tried, (0, 0))
    assert client.start_for_later() is None  # nothing can be written there


def test_an_engine_that_listens_may_be_started_again_at_once(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "find", lambda **_: place)
    for _ in range(2):  # the second one finds the first, which listens
        assert client.start_for_later() is not None
        end = time.monotonic() + 60
        while Path(place.tried).exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert not Path(place.tried).exists()
    assert process.process_of(place)
