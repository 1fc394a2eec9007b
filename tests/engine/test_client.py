"""Where to look for an engine, when to trust it, and its client's reading of answers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import private_folder, until

from judgekit import environment
from judgekit.engine import answers, client, process
from judgekit.engine.admission import build_error_body
from judgekit.engine.client import (
    MAX_SOCKET_PATH_BYTES,
    Connection,
    EngineAddress,
    EngineBusy,
    EngineLost,
    EngineOff,
    NoEngine,
    Response,
)
from judgekit.errors import ConfigError, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="needs Unix sockets and rights"
)

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
    monkeypatch.setattr(environment, "make_private_folder", lambda path: path)
    monkeypatch.setattr(client, "is_private_folder", lambda _: True)
    assert len(os.fsencode(found().socket_path)) <= MAX_SOCKET_PATH_BYTES


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
    assert not client.is_private_folder(mine)
    assert not found().folder.startswith(str(runtime))
    Path(mine).unlink()
    assert found().folder == mine
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 54321)
        assert not client.is_private_folder(mine)
        assert client.find() is None
    monkeypatch.setattr(
        environment, "make_private_folder", lambda _: Path("/no/such").rmdir()
    )  # a full disk
    Path(mine).rmdir()
    monkeypatch.setattr(client, "is_private_folder", lambda path: path == str(runtime))
    assert client.find(make=True) is None


def test_another_network_home_or_version_has_another_engine_and_what_travels_changes_nothing(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = found()
    for name in (
        "ANTHROPIC_API_KEY",
        "JUDGEKIT_MODEL",
        "HTTPS_PROXY",
        "no_proxy",
        "SSL_CERT_FILE",
        "HOME",
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(tmp_path / "other"))
            patch.setenv("USERPROFILE", str(tmp_path))
            assert (found().compat_key == before.compat_key) is (
                name in ("ANTHROPIC_API_KEY", "JUDGEKIT_MODEL")
            )
    (tmp_path / "part").mkdir()
    for number, name in enumerate(("a.py", "part/b.py")):  # an edit of a checkout
        (tmp_path / name).write_text("a = 1\n")
        monkeypatch.setattr(client, "_own_code", "")
        monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
        monkeypatch.setattr(
            environment, "__version__", "99.0.0" if number else environment.__version__
        )
        after = found()
        assert (after.compat_key, after.folder) == (before.compat_key, before.folder)
        assert after.code_fingerprint != before.code_fingerprint
        before = after


class Scripted:
    """Something at the place of an engine that sends a piece for each connection; None hangs up."""

    def __init__(self, place: EngineAddress, *pieces: bytes | None) -> None:
        self.requests: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(place.socket_path)
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


HEAD = b"HTTP/1.1 200 OK\r\n"
HALF: dict[str, bytes | None] = {
    "nothing": None,
    "in the head": HEAD + b"conte",
    "in the body": HEAD + b"content-length: 9\r\n\r\nok",
    "too long": HEAD + b"content-length: 999999999999\r\n\r\nok",
    "a negative length": HEAD + b"content-length: -1\r\n\r\nok",
    "a head without end": HEAD + b"x: y\r\n" * 30_000 + b"\r\n",
    "no status": b"HTTP/1.1 good day\r\n\r\n",
    "without end": HEAD + b"\r\n" + b" " * 130_000,
}


def test_half_an_answer_and_silence_are_a_lost_engine(
    place: EngineAddress, script: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_ANSWER_BYTES", 100_000)
    script.append(Scripted(place, *HALF.values(), b"HTTP/1.1 200"))
    for _ in HALF:
        with Connection(place) as connection, pytest.raises(EngineLost):
            connection.ask("POST", "/", b"{}", seconds=10).read()
    with Connection(place) as connection, pytest.raises(EngineLost, match="in time"):
        connection.ask("POST", "/", seconds=0.2)


@pytest.mark.parametrize("well", [True, False])
def test_who_is_slow_is_waited_for_while_it_is_well(
    place: EngineAddress, script: list[Scripted], monkeypatch: pytest.MonkeyPatch, *, well: bool
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

    script.append(Scripted(place, None))
    monkeypatch.setattr(client, "query_health", health)
    monkeypatch.setattr(client, "SILENCE_SECONDS", 0.01)
    with Connection(place) as connection, theirs:
        connection.close()
        connection._socket = ours
        if well:
            assert connection.ask("GET", "/", seconds=60).read() == b"ok"
        else:
            with pytest.raises(EngineLost, match="it did not respond in time"):
                connection.ask("GET", "/", seconds=3600)
    assert len(looks) == (3 if well else 1)
    assert max(looks) <= client.HEALTH_SECONDS


def test_one_that_is_busy_says_why_and_for_how_long(
    place: EngineAddress, script: list[Scripted]
) -> None:
    body = build_error_body("not_ready", "not ready: ImportError: no litellm")
    never = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    busy = (
        b"HTTP/1.1 503 x\r\nretry-after: 1.5\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy"
    )
    script.append(Scripted(place, never, busy))
    for why, seconds in (("not ready: ImportError", 0), ("it is too busy, or stopping", 1.5)):
        with Connection(place) as connection, pytest.raises(EngineBusy, match=why) as raised:
            connection.ask("POST", "/", b"{}", seconds=10)
        assert raised.value.retry_after == seconds


def test_where_nobody_of_ours_is_there_is_no_engine(
    place: EngineAddress, script: list[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(why: str) -> None:
        with pytest.raises(NoEngine, match=why):
            Connection(place)

    refused("FileNotFound")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(place.socket_path)
    refused("ConnectionRefused")
    Path(place.socket_path).unlink()
    script.append(Scripted(place, OK))
    Path(place.folder).chmod(0o755)
    refused("its folder is not private")
    Path(place.folder).chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(client, "is_own_process", lambda _: False)
        refused("another user's process")
    assert not any(script[0].requests)
    Connection(place).close()


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="credentials are known there")
def test_the_user_at_the_other_end_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert client.is_own_process(here)
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: own + 1)
        assert not client.is_own_process(here)


def test_a_request_brings_its_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with environment.OverrideEnviron({"A_KEY": "1", "GIT_DIR": "/x", "GIT_CONFIG_KEY_0": "y"}):
        place = {"cwd": str(tmp_path), "project": "/p", "client": str(os.getpid())}
        assert client.build_caller_fields("/p") == {"environ": {"A_KEY": "1"}, **place}
        assert client.build_caller_fields(git=True)["environ"] == {
            "A_KEY": "1",
            "GIT_DIR": "/x",
            "GIT_CONFIG_KEY_0": "y",
        }


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
    with monkeypatch.context() as patch:
        patch.setattr(client, "start", lambda _: 4711)
        for moment in (
            None,
            time.time() - client.RESTART_SECONDS - 1,
            time.time() + client.RESTART_SECONDS + 9,
        ):
            if moment is not None:  # long ago, or before the clock was set back
                os.utime(place.tried_path, (moment, moment))
            assert client.start_for_later() == 4711
            with pytest.raises(NoEngine, match=r"was started \d s ago and is not ready"):
                client.start_for_later()
        Path(place.tried_path).unlink()
        Path(place.tried_path).mkdir()
        os.utime(place.tried_path, (0, 0))
        assert client.start_for_later() is None  # nothing can be written there
        Path(place.tried_path).rmdir()
    for _ in range(2):  # one that listens: the second one finds the first
        assert client.start_for_later() is not None
        until(lambda: not Path(place.tried_path).exists())
    assert [engine.is_shutting_down for engine in process.list_engines(place)] == [False]


def answer(*lines: object, status: int = 200) -> Response:
    return Response(status, iter([f"{json.dumps(line)}\n".encode() for line in lines]))


def raises(error: Exception) -> Callable[..., Any]:
    def called(*_: object, **__: object) -> Any:  # noqa: ANN401 - never returns
        raise error

    return called


def test_an_error_is_raised_as_in_this_process() -> None:
    kinds = {"config": ConfigError, "usage": UsageError, "input": InputError}
    for kind in (*kinds, "size", "internal", "unheard of"):
        told = {"error": {"kind": kind, "message": "a.yaml:1: wrong", "exit_code": 78}}
        with pytest.raises(kinds.get(kind, NoEngine), match=r"^a\.yaml:1: wrong$"):
            answers.read_value(answer(told, status=422))
    with pytest.raises(ConfigError) as caught:
        answers.read_value(
            answer({"error": {"kind": "config", "message": "a:1: b\na:2: c"}}, status=422)
        )
    assert str(caught.value) == "a:1: b\na:2: c"
    nothing: tuple[object, ...] = ({}, [], {"error": "x"}, None)
    for said in nothing:
        with pytest.raises(NoEngine, match="without a message"):
            answers.read_value(answer(said, status=500))
    with pytest.raises(EngineLost, match="not JSON"):
        answers.read_value(Response(200, iter([b"<html>"])))


def test_events_come_as_they_are_sent_to_an_end_or_are_lost() -> None:
    begin, end = {"event": "begin", "count": 1}, {"event": "end"}
    text = b'{"event": "begin", "count": 1}\n{"event": "end"}'
    for size in (1, 7, 100):
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        assert list(answers.read_events(Response(200, iter(pieces)))) == [begin, end]
    with pytest.raises(EngineLost, match="ended too early"):
        list(answers.read_events(answer(begin)))
    error = {"event": "error", "error": {"kind": "usage", "message": "no rubric"}}
    for refused in (answer(begin, error), answer(error, status=422)):
        with pytest.raises(UsageError, match="no rubric"):
            list(answers.read_events(refused))


def test_for_each_reason_the_caller_goes_on_and_says_it_unless_the_user_wanted_that() -> None:
    reasons = [NoEngine("x"), EngineBusy("x", 1), EngineLost("x")]
    on = "JUDGEKIT_ENGINE=1"
    rows: list[tuple[str, bool, NoEngine | None]] = [(on, True, reason) for reason in reasons]
    rows += [(on, False, None)]  # the user's file says so
    for off in ("ENGINE=0", "ENGINE=Off", "REPLAY=a.jsonl", "RECORD=a.jsonl"):
        rows.append((f"JUDGEKIT_{off}", True, None))
    for variable, use, reason in rows:
        said: list[str] = []
        begin = raises(reason or AssertionError())
        with environment.OverrideEnviron(dict([variable.split("=")])):
            done = client.call(
                "task",
                bytes,
                raises(AssertionError()),
                lambda why: why,
                use=use,
                connect=begin,
                warn=said.append,
            )
        assert done == reason or (reason is None and isinstance(done, EngineOff)), variable
        assert said == ["x; continuing in this process"] * bool(reason)


@pytest.fixture
def alone(place: EngineAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine be gone as soon as it has been found."""
    found = SimpleNamespace(address=place)
    monkeypatch.setattr(client, "connect_or_start", lambda: nullcontext(found))


def here(things: Iterable[int], on_answer: Callable[[int, Any], object]) -> None:
    for thing in things:
        on_answer(thing, -thing)


class Done(list[Any]):
    def on_answer(self, _: int, value: Any) -> None:  # noqa: ANN401 - any JSON
        self.append(value)


def number(thing: int) -> bytes:
    return b"%d" % thing


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("started", [True, False])
def test_what_no_engine_does_is_done_here_in_order(
    monkeypatch: pytest.MonkeyPatch, *, started: bool
) -> None:
    if not started:
        monkeypatch.setattr(
            client, "connect_or_start", raises(NoEngine("the engine could not start (x)"))
        )
    said: list[str] = []
    done = Done()
    answers.run_many(
        "judge", range(1, 51), number, here, done.on_answer, max_threads=3, warn=said.append
    )
    assert done == [-thing for thing in range(1, 51)]
    why = (
        "the engine refused the request or stopped" if started else "the engine could not start (x)"
    )
    assert said == [f"{why}; continuing in this process"]


@pytest.mark.usefixtures("alone")
def test_answers_that_came_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = iter([EngineBusy("full", 0.01)])

    def ask(self: Connection, method: str, path: str, body: bytes, *, seconds: float) -> Response:
        for error in busy:  # asked again
            raise error
        if int(body) % 3:
            return answer(int(body))
        raise NoEngine("its own")

    monkeypatch.setattr(Connection, "ask", ask)
    monkeypatch.setattr(Connection, "__init__", lambda *_: None)
    monkeypatch.setattr(Connection, "close", lambda _: None)
    done = Done()
    answers.run_many("judge", range(1, 20), number, here, done.on_answer, max_threads=1, warn=print)
    assert done == [1, 2, *(-thing for thing in range(3, 20))]


@pytest.mark.usefixtures("alone")
def test_a_slow_answer_holds_up_no_others_unless_they_are_wanted_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = threading.Semaphore(0)

    def ask(self: Connection, method: str, path: str, body: bytes, *, seconds: float) -> Response:
        if int(body) == 1:  # until five others are answered
            assert all(others.acquire(timeout=20) for _ in range(5))
        else:
            others.release()
        return answer(int(body))

    monkeypatch.setattr(Connection, "ask", ask)
    monkeypatch.setattr(Connection, "__init__", lambda *_: None)
    monkeypatch.setattr(Connection, "close", lambda _: None)
    for in_order in (True, False):
        done, wanted = Done(), range(1, 9)
        answers.run_many(
            "judge",
            wanted,
            number,
            here,
            done.on_answer,
            max_threads=2,
            warn=print,
            in_order=in_order,
        )
        assert sorted(done) == [*wanted]
        assert (done == [*wanted]) == in_order
