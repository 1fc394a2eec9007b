from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_processes import GOOD, SECONDS, alive, body, health, is_gone, judged, started
from loopback import SILENT, Loopback, says

from judgekit.engine import address, client
from judgekit.engine import process as control
from judgekit.engine.address import EngineAddress
from judgekit.engine.client import Connection, EngineBusy, EngineLost, NoEngine

if TYPE_CHECKING:
    from loopback import Answer, Asked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


class Slow:
    """A model that answers when it is told to."""

    def __init__(self, answer: Answer) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self._answer = answer

    def __call__(self, _: Asked) -> Answer:
        self.asked.set()
        assert self.go.wait(SECONDS)
        return self._answer


def use(monkeypatch: pytest.MonkeyPatch, server: Loopback) -> None:
    monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")


# One engine for the tests of this part.


def test_it_judges_and_keeps_nothing_of_its_callers(ready_place: EngineAddress, model: Loopback) -> None:
    with Connection(ready_place) as connection:
        verdicts = [judged(connection, f"# Number {number}, nobody's business\n") for number in range(5)]
    assert {(each["schema"], each["verdict"], each["task_id"]) for each in verdicts} == {
        ("judgekit/verdict@1", "accept", "a.md")
    }
    assert {asked.headers["authorization"] for asked in model.requests} == {"Bearer sk-of-this-test"}
    assert len(model.requests) == 10
    variables = Path(f"/proc/{health(ready_place)['pid']}/environ").read_bytes()
    log = Path(ready_place.log).read_bytes()
    for told in (variables, log):
        for secret in (b"sk-of-this-test", b"JUDGEKIT_API_KEY", model.base.encode(), b"nobody's business"):
            assert secret not in told
    assert b"ready" in log


def test_two_callers_have_a_provider_each(
    ready_place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"reasoning": "poor", "scores": {"semantic": 1, "pragmatic": 1, "syntactic": 1}, "findings": []}
    words = {}
    with (
        Loopback(says(json.dumps(bad))) as loopback,
        Loopback(says(json.dumps(bad).replace("1", "5"))) as other,
    ):
        for server, key in ((loopback, "sk-one"), (other, "sk-other"), (loopback, "sk-one")):
            use(monkeypatch, server)
            monkeypatch.setenv("JUDGEKIT_API_KEY", key)
            with Connection(ready_place) as connection:
                words[key] = judged(connection, f"# {key}\n", cache=False)["verdict"]
        assert words == {"sk-one": "reject", "sk-other": "accept"}
        assert {asked.headers["authorization"] for asked in loopback.requests} == {"Bearer sk-one"}
        assert {asked.headers["authorization"] for asked in other.requests} == {"Bearer sk-other"}


def test_what_cannot_be_judged_is_said_to_whom_it_concerns(
    ready_place: EngineAddress, model: Loopback, isolated: Path
) -> None:
    config = isolated / "judgekit/config.yaml"
    config.parent.mkdir()
    with Connection(ready_place) as connection:

        def error(**judge_request: str) -> tuple[int, str, int, str]:
            answer = connection.ask("POST", "/v1/judge", body(**judge_request), seconds=SECONDS)
            told = json.loads(answer.read())["error"]
            assert "\n" not in told["message"]
            return answer.status, told["kind"], told["exit_code"], told["message"]

        assert error(rubric="nope")[:3] == (422, "usage", 64)
        assert error(mode="gentle")[:3] == (422, "input", 65)
        config.write_text("judge: {mode: gentle}\n")
        assert error()[:3] == (422, "config", 78)
        assert "config.yaml:1: judge.mode" in error()[3]
        config.write_text("judge: {mode: lenient}\n")
        assert judged(connection)["mode"] == "lenient"


@pytest.mark.parametrize("killed", [False, True])
def test_a_client_that_hangs_up_or_is_killed_ends_its_work(
    ready_place: EngineAddress, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    def until(waiting: int) -> None:
        deadline = time.monotonic() + SECONDS
        while health(ready_place)["waiting"] != waiting or not server.requests:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    with Loopback(SILENT) as server:
        use(monkeypatch, server)
        if killed:
            code = (
                "import sys; from engine_processes import judged; from judgekit.engine import address, client"
            )
            code += "; judged(client.Connection(address.EngineAddress(*sys.argv[1:])))"
            support = str(Path(__file__).parents[1] / "support")
            child = subprocess.Popen(
                [sys.executable, "-c", code, ready_place.folder, ready_place.compat_key, ready_place.code],
                env={**os.environ, "PYTHONPATH": support},
            )
            until(1)
            child.kill()
            child.wait(SECONDS)
        else:
            connection = Connection(ready_place)
            connection.open()
            assert connection._socket is not None
            connection._socket.sendall(_request(body("# Nobody waits\n")))
            until(1)
            connection.close()
        until(0)


# An engine each.


def test_one_of_fifty_wins(place: EngineAddress) -> None:
    starters = [client.start(place) for _ in range(50)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(starter, 0)[1]) for starter in starters if starter]
    assert sorted(codes) == [0] + [client.TAKEN] * 49
    (process,) = alive(Path(place.folder))
    assert health(place)["pid"] == process


def test_nothing_of_git_and_no_key_is_handed_to_it(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_CONFIG_COUNT", "ANTHROPIC_API_KEY", "JUDGEKIT_API_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "not-for-the-engine")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    os.waitpid(client.start(place) or 0, 0)
    (process,) = alive(Path(place.folder))
    variables = Path(f"/proc/{process}/environ").read_bytes()
    assert b"not-for-the-engine" not in variables
    assert b"GIT_" not in variables
    assert b"HTTPS_PROXY=http://127.0.0.1:9" in variables


def test_nothing_that_a_clone_brings_is_imported(
    place: EngineAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    for name in ("sitecustomize", "usercustomize", "json", "judgekit"):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}")
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    os.waitpid(client.start(place) or 0, 0)
    assert health(place)["pid"]
    assert not ran.exists()


def test_who_starts_it_is_not_held_up(place: EngineAddress, tmp_path: Path) -> None:
    """As in `git push 2>&1 | tee log`: the reader waits until everybody has closed the pipe."""
    code = (
        "import os, sys; from judgekit.engine import address, client; os.dup2(1, 9, inheritable=True); "
        "os.waitpid(client.start(address.EngineAddress(*sys.argv[1:])), 0); print('started')"
    )
    words = [sys.executable, "-c", code, place.folder, place.compat_key, place.code]
    # communicate() ends when stdout and stderr are closed at the other end, by everybody.
    told = subprocess.run(words, capture_output=True, timeout=SECONDS, cwd=tmp_path, check=True)
    assert told.stdout == b"started\n"
    (process,) = alive(Path(place.folder))
    opened = {str(Path(f"/proc/{process}/fd/{number}").readlink()) for number in range(3)}
    assert opened == {os.devnull}
    assert Path(f"/proc/{process}/cwd").readlink() == Path("/")
    assert os.getsid(process) != os.getsid(0)


def test_one_that_is_killed_leaves_nothing_in_the_way(place: EngineAddress, model: Loopback) -> None:
    with started(place) as connection:
        judged(connection)
        process = health(place)["pid"]
        os.kill(process, signal.SIGKILL)
        assert is_gone(process)
        with pytest.raises((EngineLost, NoEngine)):
            judged(connection)
    with pytest.raises(NoEngine):
        Connection(place).open()
    assert Path(place.socket).exists()
    with started(place) as connection:
        judged(connection, "# The next one\n")


def test_who_waits_for_one_that_is_killed_hears_of_it(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(SILENT) as server:
        use(monkeypatch, server)

        def kill() -> None:
            deadline = time.monotonic() + SECONDS
            while not server.requests and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(int(Path(place.lock).read_text()), signal.SIGKILL)

        thread = threading.Thread(target=kill)
        with started(place) as connection:
            thread.start()
            with pytest.raises((EngineLost, NoEngine)):
                judged(connection)
        thread.join()


def test_it_finishes_what_it_was_asked_before_it_leaves(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, verdicts = Slow(says(GOOD)), []
    with Loopback(slow) as server, started(place) as connection, Connection(place) as idle:
        use(monkeypatch, server)
        idle.ask("GET", "/v1/health", seconds=SECONDS).read()
        process = health(place)["pid"]
        thread = threading.Thread(target=lambda: verdicts.append(judged(connection)["verdict"]))
        thread.start()
        assert slow.asked.wait(SECONDS)
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + SECONDS
        while Path(place.socket).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # Who comes now finds no engine, or is sent away, and can start the next one at once.
        with pytest.raises((EngineBusy, NoEngine)):
            judged(idle, "# Too late\n")
        started(place).close()
        slow.go.set()
        thread.join(SECONDS)
        assert verdicts == ["accept"]
        assert is_gone(process)
        assert health(place)["pid"] != process


@pytest.mark.parametrize("idle", [True, False])
def test_it_leaves_when_nobody_asks_or_can_find_it(
    place: EngineAddress, isolated: Path, *, idle: bool
) -> None:
    (isolated / "judgekit").mkdir()
    minutes = 0.001 if idle else 15
    (isolated / "judgekit/config.yaml").write_text(f"engine: {{idle_minutes: {minutes}}}\n")
    os.waitpid(client.start(place) or 0, 0)
    (process,) = alive(Path(place.folder))
    if not idle:
        Path(place.socket).unlink()
    assert is_gone(process, SECONDS)
    assert not Path(place.socket).exists()
    assert f"stopping: {'idle' if idle else 'its socket is gone'}" in Path(place.log).read_text()


def test_two_versions_at_once_and_stopping_is_heard(place: EngineAddress, model: Loopback) -> None:
    newer = EngineAddress(place.folder, place.compat_key, "newer")
    old = started(place)
    with started(newer) as new, old:
        assert judged(old, "# Old\n")["verdict"] == "accept"
        assert judged(new, "# New\n")["verdict"] == "accept"
        assert health(place)["pid"] != health(newer)["pid"]
    for each in (place, newer):
        assert control.stop(each)
        assert not Path(each.socket).exists()
    assert alive(Path(place.folder)) == []
    assert not list(Path(place.folder).glob("*.leaving"))


def test_one_that_leaves_can_be_ended(place: EngineAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, lost = Slow(says(GOOD)), []
    monkeypatch.setattr(control, "END_SECONDS", 0.2)
    monkeypatch.setattr(address, "find", lambda: place)

    def ask(connection: Connection) -> None:
        try:
            judged(connection)
        except EngineLost as error:
            lost.append(error)

    with Loopback(slow) as server, started(place) as connection:
        use(monkeypatch, server)
        process = health(place)["pid"]
        thread = threading.Thread(target=ask, args=[connection])
        thread.start()
        assert slow.asked.wait(SECONDS)
        assert not control.stop(place)
        deadline = time.monotonic() + SECONDS
        while Path(place.socket).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (known,) = control.running()
        assert known.leaving == process
        assert not control.stop(place, leaving=process)
        monkeypatch.setattr(control, "END_SECONDS", SECONDS)
        assert control.stop(place, at_once=True, leaving=process)
        slow.go.set()
        thread.join(SECONDS)
    assert len(lost) == 1
    assert is_gone(process)
    assert control.running() == []


def test_one_that_hangs_is_killed(place: EngineAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "ANSWER_SECONDS", 0.2)
    os.waitpid(client.start(place) or 0, 0)
    (process,) = alive(Path(place.folder))
    deadline = time.monotonic() + SECONDS
    while control.process_of(place) != process:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process, signal.SIGSTOP)
    assert control.stop(place)
    assert is_gone(process)


def _request(data: bytes) -> bytes:
    head = b"POST /v1/judge HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(data), data)
