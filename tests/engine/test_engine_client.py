from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit import environment
from judgekit.engine import address, client
from judgekit.engine.admission import error_body
from judgekit.engine.client import Connection, EngineBusy, EngineLost, NoEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.engine.address import EngineAddress

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets")

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Scripted:
    """Something at the place of an engine that sends what it is told, one piece a request; None hangs up."""

    def __init__(self, place: EngineAddress, *pieces: bytes | None) -> None:
        self.heard: list[bytes] = []
        self.connections = 0
        self._pieces = list(pieces)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(place.socket)
        self._listener.listen(8)
        self._listener.settimeout(10)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._pieces = []
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        with suppress(OSError):
            while self._pieces:
                accepted, _ = self._listener.accept()
                self.connections += 1
                with accepted:
                    accepted.settimeout(10)
                    self._talk(accepted)

    def _talk(self, accepted: socket.socket) -> None:
        while self._pieces:
            heard = accepted.recv(65536)
            if not heard:
                return
            self.heard.append(heard)
            piece = self._pieces.pop(0)
            if piece is None:
                return
            accepted.sendall(piece)
            if piece.endswith(b"..."):  # breaks off
                return


@pytest.fixture
def script(place: EngineAddress) -> Iterator[list[Scripted]]:
    made: list[Scripted] = []
    yield made
    for scripted in made:
        scripted.close()


def test_a_request_is_plain_http_and_a_connection_serves_many(
    place: EngineAddress, script: list[Scripted]
) -> None:
    script.append(Scripted(place, OK, OK, None, OK))
    with Connection(place) as connection:
        answer = connection.ask("POST", "/v1/judge", b"{}", seconds=10)
        assert (answer.status, answer.read()) == (200, b"ok")
        assert [connection.ask("GET", "/", seconds=10).read() for _ in range(2)] == [b"ok"] * 2
    assert script[0].connections == 2  # one that hung up while nobody asked is asked again
    heard = script[0].heard[0]
    assert heard.startswith(b"POST /v1/judge HTTP/1.1\r\nHost: judgekit\r\n")
    assert heard.endswith(b"Content-Length: 2\r\n\r\n{}")


def test_lines_come_as_they_are_sent(place: EngineAddress, script: list[Scripted]) -> None:
    stream = CHUNKED + b'4\r\n{"a"\r\n5;x=1\r\n:1}\n{\r\n3\r\n}\nz\r\n0\r\n\r\n'
    script.append(Scripted(place, stream, CHUNKED + b"2\r\nno\r\n", OK))
    with Connection(place) as connection:
        answer = connection.ask("POST", "/", seconds=10)
        assert list(answer.lines()) == [b'{"a":1}', b"{}", b"z"]
        connection.ask("GET", "/", seconds=10)  # an answer that nobody reads is not the next one's
        assert connection.ask("GET", "/", seconds=10).read() == b"ok"


@pytest.mark.parametrize(
    "piece",
    [
        None,
        b"HTTP/1.1 200 OK\r\nconte...",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok...",
        CHUNKED + b"5\r\nab...",
        CHUNKED + b"2\r\nab\r\n...",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"-5\r\nabcde",
        CHUNKED + b"2;" + b"x" * 100_000,
        CHUNKED + b"fffffffff\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: nine\r\n\r\n",
        b"good day\r\n\r\n",
    ],
)
def test_half_an_answer_is_a_lost_engine(
    place: EngineAddress, script: list[Scripted], piece: bytes | None
) -> None:
    script.append(Scripted(place, piece))
    with Connection(place) as connection, pytest.raises(EngineLost):
        connection.ask("POST", "/", b"{}", seconds=10).read()


def test_one_that_says_nothing_is_lost_when_time_is_over(
    place: EngineAddress, script: list[Scripted]
) -> None:
    script.append(Scripted(place, b"HTTP/1.1 200", OK))
    with Connection(place) as connection, pytest.raises(EngineLost, match="in time"):
        connection.ask("POST", "/", seconds=0.2)


def test_an_answer_does_not_go_on_for_ever(
    place: EngineAddress, script: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MOST_ANSWER", 100_000)
    script.append(Scripted(place, CHUNKED + (b"1000\r\n" + b" " * 0x1000 + b"\r\n") * 30))
    with Connection(place) as connection, pytest.raises(EngineLost, match="its response is too long"):
        connection.ask("POST", "/", b"{}", seconds=10).read()


def test_one_that_is_busy_says_why_and_for_how_long(place: EngineAddress, script: list[Scripted]) -> None:
    told = error_body("not_ready", "not ready: ImportError: no litellm")
    never = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n%s" % (len(told), told)
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
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(place.socket)
    left.close()
    refused()  # a stale socket
    Path(place.socket).unlink()
    script.append(Scripted(place, OK))
    Path(place.folder).chmod(0o755)
    refused()  # others may look into the folder
    Path(place.folder).chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(client, "ours", lambda _: False)
        refused()
    assert script[0].heard == []
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


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, True),
        ({"JUDGEKIT_ENGINE": "1"}, True),
        ({"JUDGEKIT_ENGINE": "0"}, False),
        ({"JUDGEKIT_ENGINE": "Off"}, False),
        ({"JUDGEKIT_REPLAY": "a.jsonl"}, False),
        ({"JUDGEKIT_RECORD": "a.jsonl"}, False),
    ],
)
def test_when_the_engine_may_be_asked(variables: dict[str, str], *, expected: bool) -> None:
    with environment.Brought(variables):
        assert client.wanted() is expected


def test_without_a_folder_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "find", lambda **_: None)
    assert client.start() is None
    begun = time.monotonic()
    with pytest.raises(NoEngine):
        client.connect_or_start(30)
    assert time.monotonic() - begun < 30


def test_one_that_cannot_begin_is_not_waited_for(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a plugin's folder, where the packages that an engine needs are not installed."""
    monkeypatch.setattr(address, "find", lambda **_: place)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(NoEngine):
        client.connect_or_start(600)


def test_what_does_not_come_up_is_not_started_at_every_prompt(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "find", lambda **_: place)
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


def test_an_engine_that_listens_may_be_started_again_at_once(place: EngineAddress) -> None:
    for _ in range(2):  # the second one finds the first, which listens
        assert client.start_for_later(place) is not None
        end = time.monotonic() + 60
        while Path(place.tried).exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert not Path(place.tried).exists()
    with client.Connection(place):
        pass


HEAVY = ("asyncio", "http", "ssl", "urllib", "socket", "subprocess", "pathlib", "json", "typing", "re")


def test_importing_the_client_costs_little() -> None:
    code = (
        "import sys; before = set(sys.modules); import judgekit.engine.client; "
        "print(*sorted(set(sys.modules) - before))"
    )
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {_root()!r}); {code}"]
    loaded = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert "judgekit.engine.client" in loaded
    assert [name for name in loaded if name in HEAVY] == []


def _root() -> str:
    return str(Path(client.__file__).parents[2])


def test_who_is_slow_but_well_is_waited_for(place: EngineAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    looks: list[float] = []

    def well(_: EngineAddress, seconds: float) -> bool:
        looks.append(seconds)
        if len(looks) == 3:
            theirs.sendall(OK)
        return True

    monkeypatch.setattr(client, "is_well", well)
    connection = Connection(place)
    connection._socket, connection.look = ours, 0.01
    with connection, theirs:
        assert connection.ask("GET", "/", seconds=60).read() == b"ok"
    assert len(looks) == 3
    assert max(looks) <= client.HEALTH_SECONDS


def test_who_is_not_well_is_not_waited_for(place: EngineAddress) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    connection = Connection(place)  # where nobody listens any more
    connection._socket, connection.look = ours, 0.01
    with connection, theirs, pytest.raises(EngineLost, match="it did not respond in time"):
        connection.ask("GET", "/", seconds=3600)
