"""Engines as processes: their separation, start and end, and a storm over it all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from engine_processes import (
    GOOD,
    SECONDS,
    alive,
    body,
    end_all,
    health,
    is_gone,
    judged,
    private_folder,
    started,
    until,
    use,
)
from loopback import SILENT, Loopback, says

from judgekit.engine import client
from judgekit.engine.client import Connection, EngineAddress, EngineBusy, EngineLost, NoEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopback import Answer, Asked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


class Slow:
    def __init__(self, answer: Answer) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self._answer = answer

    def __call__(self, _: Asked) -> Answer:
        self.asked.set()
        assert self.go.wait(SECONDS)
        return self._answer


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    model = Slow(says(GOOD))
    with Loopback(model) as server:
        use(monkeypatch, server)
        yield model
        model.go.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def begun(place: EngineAddress) -> int:
    """Start an engine and return its process, as soon as it listens."""
    os.waitpid(client.start(place) or 0, 0)
    (process,) = alive(Path(place.folder))
    return process


def client_code(place: EngineAddress, code: str) -> list[str]:
    head = "import os, sys; from judgekit.engine import client; place = client.EngineAddress(*sys.argv[1:]); "
    return [
        sys.executable,
        "-c",
        head + code,
        place.folder,
        place.compat_key,
        place.code_fingerprint,
    ]


JUDGE = f"sys.path.insert(0, {str(Path(__file__).parents[1] / 'support')!r}); "
JUDGE += "from engine_processes import judged; judged(place)"


@pytest.fixture(scope="module")
def ready_place() -> Iterator[EngineAddress]:
    with private_folder() as path:
        engine_address = EngineAddress(str(path), "kin", "code")
        started(engine_address)
        yield engine_address


def test_it_judges_and_keeps_nothing_of_its_callers(
    ready_place: EngineAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two callers has a provider, and a key, of its own."""
    with Loopback(says(GOOD.replace("5", "1"))) as loopback, Loopback(says(GOOD)) as other:
        for server, key, word in (
            (loopback, "sk-one", "reject"),
            (other, "sk-other", "accept"),
        ) * 2:
            use(monkeypatch, server, key)
            verdict = judged(ready_place, f"# {key}, nobody's business\n", cache=False)
            found = (verdict["schema"], verdict["verdict"], verdict["task_id"])
            assert found == ("judgekit/verdict@1", word, "a.md")
            assert {asked.headers["authorization"] for asked in server.requests} == {
                f"Bearer {key}"
            }
    environ = Path(f"/proc/{health(ready_place)['pid']}/environ").read_bytes()
    told = environ + Path(ready_place.log_path).read_bytes()
    for secret in (b"sk-o", b"JUDGEKIT_API_KEY", loopback.base.encode(), b"nobody's business"):
        assert secret not in told
    assert b"ready" in told


def test_a_client_that_hangs_up_or_is_killed_ends_its_work(
    ready_place: EngineAddress, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    for killed in (True, False):
        with Loopback(SILENT) as server, Connection(ready_place) as connection:
            use(monkeypatch, server)
            if killed:
                child = subprocess.Popen(client_code(ready_place, JUDGE))
            else:
                lost = pool.submit(connection.ask, "POST", "/v1/judge", body(), seconds=SECONDS)
            until(lambda: server.requests and health(ready_place)["waiting"] == 1)
            if killed:
                child.kill()
                child.wait(SECONDS)
            else:
                connection.abort()
                assert isinstance(lost.exception(SECONDS), EngineLost)
            until(lambda: health(ready_place)["waiting"] == 0)


def test_one_of_fifty_wins(place: EngineAddress) -> None:
    starters = [client.start(place) for _ in range(50)]
    codes = [
        os.waitstatus_to_exitcode(os.waitpid(starter, 0)[1]) for starter in starters if starter
    ]
    assert sorted(codes) == [0] + [client.TAKEN_EXIT_CODE] * 49
    assert [health(place)["pid"]] == alive(Path(place.folder))


def test_nothing_of_git_no_key_and_nothing_that_a_clone_brings_gets_into_it(
    place: EngineAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "GIT_DIR",
        "GIT_CONFIG_COUNT",
        "ANTHROPIC_API_KEY",
        "JUDGEKIT_API_KEY",
        "AWS_SESSION_TOKEN",
    ):
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


def test_it_finishes_what_it_was_asked_before_it_leaves(
    place: EngineAddress,
    slow: Slow,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A client that hears nothing for two seconds asks whoever listens. On a busy machine, the next engine
    # may not listen by then.
    monkeypatch.setattr(client, "SILENCE_SECONDS", SECONDS)
    process = started(place)
    with Connection(place) as idle:
        finishes = pool.submit(judged, place)
        assert slow.asked.wait(SECONDS)
        os.kill(process, signal.SIGTERM)
        until(lambda: not Path(place.socket_path).exists())
        # Who is connected is sent away; who comes now finds no engine, and can start the next one at once.
        with pytest.raises((EngineBusy, EngineLost)):
            idle.ask("POST", "/v1/judge", body("# Too late\n"), seconds=SECONDS)
    with pytest.raises(NoEngine):
        judged(place)
    assert started(place) != process
    slow.go.set()
    assert finishes.result(SECONDS)["verdict"] == "accept"
    assert is_gone(process)


# An engine to which everything happens.

SEED = 20260222
CLIENTS = 6
STORM = 14.0  # seconds of it
PATIENCE = 25.0  # seconds for one request at most; what takes longer hangs


class Storm:
    def __init__(self, places: list[EngineAddress]) -> None:
        self.places = places
        self.over = threading.Event()
        self.answered: list[int] = []
        self.fell_back: list[NoEngine] = []
        self.wrong: list[str] = []

    def client(self, number: int) -> None:
        """Ask until the storm is over, as a command does: the engine, else oneself."""
        chance = random.Random(SEED + number)
        asked = 0
        while not self.over.is_set():
            begun, text = time.monotonic(), body(f"# {number} {asked}\n")
            try:
                with Connection(chance.choice(self.places)) as connection:
                    answer = connection.ask("POST", "/v1/judge", text, seconds=PATIENCE)
                    told = answer.read()
                self.answered.append(answer.status)
                if answer.status != 200:
                    self.wrong.append(told.decode())
            except NoEngine as reason:
                self.fell_back.append(reason)
                if "in time" in str(reason):
                    self.wrong.append(str(reason))
                elif not isinstance(reason, EngineLost):
                    starter = client.start(chance.choice(self.places))
                    assert starter is None or is_gone(starter, PATIENCE)
                    time.sleep(chance.random() * 0.2)
            if time.monotonic() - begun > PATIENCE + 1:
                self.wrong.append("hung")
            asked += 1


HAPPENINGS = ("an engine dies", "a client dies", "no socket", "no log", "no trust")


def happen(what: str, place: EngineAddress, chance: random.Random) -> None:
    """Cause the damage of a crash, a clean-up of temporary files, a full disk or a wrong mode."""
    folder, share = Path(place.folder), chance.random()
    with suppress(OSError, IndexError):
        if what == "an engine dies":  # or one that is just beginning
            signals = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]
            os.kill(chance.choice(alive(folder)), chance.choice(signals))
        elif what == "a client dies":
            child = subprocess.Popen(client_code(place, JUDGE), stderr=subprocess.DEVNULL)
            time.sleep(share * 0.3)
            child.kill()
            child.wait()
        elif what == "no socket":
            Path(place.socket_path).unlink()
            if share < 0.5:
                Path(place.socket_path).touch()
        elif what == "no log":
            Path(place.log_path).unlink(missing_ok=True)
            Path(place.log_path).mkdir()
        else:
            folder.chmod(0o755)
            time.sleep(share * 0.2)
            folder.chmod(0o700)


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
    monkeypatch.setattr(client, "SILENCE_SECONDS", PATIENCE)
    with Loopback(answer) as server:
        use(monkeypatch, server)
        threads = [
            threading.Thread(target=storm.client, args=(number,)) for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + STORM
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.5, 1.5))
            what = HAPPENINGS[0] if chance.random() < 0.4 else chance.choice(HAPPENINGS)
            happen(what, chance.choice(storm.places), chance)
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
