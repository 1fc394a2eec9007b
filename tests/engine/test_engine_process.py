"""Engines as processes: what they keep from each other, how they begin and end, and a storm over it all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_processes import GOOD, SECONDS, alive, body, end_all, health, is_gone, judged, started
from loopback import SILENT, Loopback, says

from judgekit.engine import client
from judgekit.engine import process as control
from judgekit.engine.client import Connection, EngineAddress, EngineBusy, EngineHung, EngineLost, NoEngine

if TYPE_CHECKING:
    from collections.abc import Callable

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


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lost(connection: Connection) -> None:
    """Have something judged by an engine that goes away."""
    with pytest.raises(EngineLost):
        judged(connection)


def answers(place: EngineAddress) -> bool:
    with suppress(NoEngine), Connection(place):
        return True
    return False


def begun(place: EngineAddress) -> int:
    """Start an engine and return its process, as soon as it listens."""
    os.waitpid(client.start(place) or 0, 0)
    (process,) = alive(Path(place.folder))
    return process


def client_code(place: EngineAddress, code: str) -> list[str]:
    """Return the command of a process that does something with a `place`."""
    head = "import os, sys; from judgekit.engine import client; place = client.EngineAddress(*sys.argv[1:]); "
    return [sys.executable, "-c", head + code, place.folder, place.compat_key, place.code]


JUDGE = f"sys.path.insert(0, {str(Path(__file__).parents[1] / 'support')!r}); "
JUDGE += "from engine_processes import judged; judged(client.Connection(place))"


# One engine for the tests of this part.


def test_it_judges_and_keeps_nothing_of_its_callers(
    ready_place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two callers has a provider, and a key, of its own."""
    bad = GOOD.replace("5", "1")
    with (
        Loopback(says(bad)) as loopback,
        Loopback(says(GOOD)) as other,
        Connection(ready_place) as connection,
    ):
        for server, key, word in ((loopback, "sk-one", "reject"), (other, "sk-other", "accept")) * 2:
            use(monkeypatch, server)
            monkeypatch.setenv("JUDGEKIT_API_KEY", key)
            verdict = judged(connection, f"# {key}, nobody's business\n", cache=False)
            found = (verdict["schema"], verdict["verdict"], verdict["task_id"])
            assert found == ("judgekit/verdict@1", word, "a.md")
            assert {asked.headers["authorization"] for asked in server.requests} == {f"Bearer {key}"}
        told = (
            Path(f"/proc/{health(ready_place)['pid']}/environ").read_bytes()
            + Path(ready_place.log).read_bytes()
        )
        for secret in (b"sk-o", b"JUDGEKIT_API_KEY", loopback.base.encode(), b"nobody's business"):
            assert secret not in told
    assert b"ready" in told


@pytest.mark.parametrize("killed", [False, True])
def test_a_client_that_hangs_up_or_is_killed_ends_its_work(
    ready_place: EngineAddress, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    with Loopback(SILENT) as server:
        use(monkeypatch, server)
        if killed:
            child = subprocess.Popen(client_code(ready_place, JUDGE))
        else:
            connection = Connection(ready_place)
            thread = threading.Thread(target=lost, args=[connection])
            thread.start()
        until(lambda: server.requests and health(ready_place)["waiting"] == 1)
        if killed:
            child.kill()
            child.wait(SECONDS)
        else:
            connection.abort()
            thread.join(SECONDS)
        until(lambda: health(ready_place)["waiting"] == 0)


# An engine each.


def test_one_of_fifty_wins(place: EngineAddress) -> None:
    starters = [client.start(place) for _ in range(50)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(starter, 0)[1]) for starter in starters if starter]
    assert sorted(codes) == [0] + [client.TAKEN] * 49
    (process,) = alive(Path(place.folder))
    assert health(place)["pid"] == process


def test_nothing_of_git_no_key_and_nothing_that_a_clone_brings_gets_into_it(
    place: EngineAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_CONFIG_COUNT", "ANTHROPIC_API_KEY", "JUDGEKIT_API_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "not-for-the-engine")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    ran = tmp_path / "ran"
    for name in ("sitecustomize", "usercustomize", "json", "judgekit"):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}")
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    process = begun(place)
    assert health(place)["pid"] == process
    assert not ran.exists()
    variables = Path(f"/proc/{process}/environ").read_bytes()
    assert b"not-for-the-engine" not in variables
    assert b"GIT_" not in variables
    assert b"HTTPS_PROXY=http://127.0.0.1:9" in variables


def test_who_starts_it_is_not_held_up(place: EngineAddress, tmp_path: Path) -> None:
    """As in `git push 2>&1 | tee log`: the reader waits until everybody has closed the pipe."""
    code = "os.dup2(1, 9, inheritable=True); os.waitpid(client.start(place), 0); print('started')"
    # communicate() ends when stdout and stderr are closed at the other end, by everybody.
    told = subprocess.run(
        client_code(place, code), capture_output=True, timeout=SECONDS, cwd=tmp_path, check=True
    )
    assert told.stdout == b"started\n"
    (process,) = alive(Path(place.folder))
    opened = {str(Path(f"/proc/{process}/fd/{number}").readlink()) for number in range(3)}
    assert opened == {os.devnull}
    assert Path(f"/proc/{process}/cwd").readlink() == Path("/")
    assert os.getsid(process) != os.getsid(0)


def test_one_that_is_killed_leaves_nothing_in_the_way_and_who_waits_for_it_hears_of_it(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(says(GOOD))
    with Loopback(slow) as server, started(place) as connection:
        use(monkeypatch, server)
        process = health(place)["pid"]
        thread = threading.Thread(target=lost, args=[connection])
        thread.start()
        assert slow.asked.wait(SECONDS)
        os.kill(process, signal.SIGKILL)
        thread.join(SECONDS)
        assert is_gone(process)
        until(lambda: not answers(place))  # its threads may end later than the process
        assert Path(place.socket).exists()
        slow.go.set()
        with started(place) as fresh:
            judged(fresh, "# The next one\n")


def test_it_finishes_what_it_was_asked_before_it_leaves(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, verdicts = Slow(says(GOOD)), []
    with Loopback(slow) as server, started(place) as connection, Connection(place) as idle:
        use(monkeypatch, server)
        process = health(place)["pid"]
        thread = threading.Thread(target=lambda: verdicts.append(judged(connection)["verdict"]))
        thread.start()
        assert slow.asked.wait(SECONDS)
        os.kill(process, signal.SIGTERM)
        until(lambda: not Path(place.socket).exists())
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
    process = begun(place)
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
    slow = Slow(says(GOOD))
    monkeypatch.setattr(control, "END_SECONDS", 0.2)
    monkeypatch.setattr(client, "find", lambda: place)

    with Loopback(slow) as server, started(place) as connection:
        use(monkeypatch, server)
        process = health(place)["pid"]
        thread = threading.Thread(target=lost, args=[connection])
        thread.start()
        assert slow.asked.wait(SECONDS)
        assert not control.stop(place)
        until(lambda: not Path(place.socket).exists())
        (known,) = control.running()
        assert known.leaving == process
        assert not control.stop(place, leaving=process)
        monkeypatch.setattr(control, "END_SECONDS", SECONDS)
        assert control.stop(place, at_once=True, leaving=process)
        slow.go.set()
        thread.join(SECONDS)
    assert not thread.is_alive()
    assert is_gone(process)
    assert control.running() == []


def test_one_that_hangs_is_killed(place: EngineAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "ANSWER_SECONDS", 0.2)
    process = begun(place)
    until(lambda: control.process_of(place) == process)
    os.kill(process, signal.SIGSTOP)
    assert control.stop(place)
    assert is_gone(process)


# An engine to which everything happens.

SEED = 20260222
CLIENTS = 6
STORM = 14.0  # seconds of it
PATIENCE = 25.0  # seconds for one request at most; what takes longer hangs


class Storm:
    """Clients that ask and fall back, while things happen to the engine."""

    def __init__(self, places: list[EngineAddress]) -> None:
        self.places = places
        self.over = threading.Event()
        self.answered: list[int] = []
        self.fell_back: list[NoEngine] = []
        self.wrong: list[str] = []

    def client(self, number: int) -> None:
        """Ask until the storm is over, as a command does: the engine, else oneself."""
        chance = random.Random(SEED + number)
        connection = Connection(chance.choice(self.places))
        asked = 0
        while not self.over.is_set():
            begun = time.monotonic()
            try:
                answer = connection.ask("POST", "/v1/judge", body(f"# {number} {asked}\n"), seconds=PATIENCE)
                told = answer.read()
                self.answered.append(answer.status)
                if answer.status != 200:
                    self.wrong.append(told.decode())
            except NoEngine as reason:
                self.fell_back.append(reason)
                connection.close()
                if isinstance(reason, EngineHung):
                    self.wrong.append(str(reason))
                elif not isinstance(reason, EngineLost):
                    starter = client.start(chance.choice(self.places))
                    assert starter is None or is_gone(starter, PATIENCE)
                    time.sleep(chance.random() * 0.2)
            if time.monotonic() - begun > PATIENCE + 1:
                self.wrong.append("hung")
            if chance.random() < 0.1:
                connection.close()
                connection = Connection(chance.choice(self.places))
            asked += 1
        connection.close()


def kill_one(place: EngineAddress, chance: random.Random) -> None:
    """Kill an engine, or one that is just beginning."""
    if processes := alive(Path(place.folder)):
        with suppress(ProcessLookupError):
            os.kill(chance.choice(processes), chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))


def kill_a_client(place: EngineAddress, chance: random.Random) -> None:
    """Start a client and kill it in the middle of whatever it does."""
    child = subprocess.Popen(client_code(place, JUDGE), stderr=subprocess.DEVNULL)
    time.sleep(chance.random() * 0.3)
    child.kill()
    child.wait()


def drop_the_socket(place: EngineAddress, chance: random.Random) -> None:
    """Take the socket away, as a clean-up of temporary files does, and perhaps put something else there."""
    with suppress(OSError):
        Path(place.socket).unlink()
        if chance.random() < 0.5:
            Path(place.socket).touch()


def spoil_the_log(place: EngineAddress, _: random.Random) -> None:
    """Make the log impossible to write, as a full disk does."""
    with suppress(OSError):
        Path(place.log).unlink(missing_ok=True)
        Path(place.log).mkdir()


def close_the_folder(place: EngineAddress, chance: random.Random) -> None:
    """Let nobody trust the folder for a while."""
    Path(place.folder).chmod(0o755)
    time.sleep(chance.random() * 0.2)
    Path(place.folder).chmod(0o700)


def test_every_client_is_answered_and_nothing_is_left(
    place: EngineAddress, monkeypatch: pytest.MonkeyPatch, isolated: Path
) -> None:
    folder, chance = Path(place.folder), random.Random(SEED)
    newer = EngineAddress(place.folder, place.compat_key, "newer")
    storm = Storm([place, newer])

    def answer(_: Asked) -> Answer:
        time.sleep(0.02)
        return says(GOOD)

    (isolated / "judgekit").mkdir()
    (isolated / "judgekit/config.yaml").write_text("engine: {idle_minutes: 0.02}\n")
    with Loopback(answer) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        threads = [threading.Thread(target=storm.client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + STORM
        happenings = [kill_one, kill_a_client, drop_the_socket, spoil_the_log, close_the_folder]
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.5, 1.5))
            happening = kill_one if chance.random() < 0.4 else chance.choice(happenings)
            happening(chance.choice(storm.places), chance)
        storm.over.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads)
    assert storm.wrong == []
    assert storm.answered.count(200) + len(storm.fell_back) > CLIENTS
    assert 200 in storm.answered
    # Nobody asks any more: they leave by themselves.
    deadline = time.monotonic() + 15
    while alive(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = alive(folder)
    end_all(folder)
    assert left == []
