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
from engine_processes import GOOD, alive, body, end_all, is_gone
from loopback import Loopback, says

from judgekit.engine import client
from judgekit.engine.address import EngineAddress
from judgekit.engine.client import Connection, EngineHung, EngineLost, NoEngine

if TYPE_CHECKING:
    from loopback import Answer, Asked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

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


def kill_one(folder: Path, chance: random.Random) -> None:
    """Kill an engine, or one that is just beginning."""
    if processes := alive(folder):
        with suppress(ProcessLookupError):
            os.kill(chance.choice(processes), chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))


def kill_a_client(place: EngineAddress, chance: random.Random) -> None:
    """Start a client and kill it in the middle of whatever it does."""
    code = (
        "import sys; from engine_processes import judged; from judgekit.engine import address, client; "
        "judged(client.Connection(address.EngineAddress(*sys.argv[1:])))"
    )
    support = str(Path(__file__).parents[1] / "support")
    words = [sys.executable, "-c", code, place.folder, place.compat_key, place.code]
    paths = os.pathsep.join(filter(None, [support, os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.DEVNULL)
    time.sleep(chance.random() * 0.3)
    child.kill()
    child.wait()


def drop_the_socket(place: EngineAddress, _: random.Random) -> None:
    """Take the socket away, as a clean-up of temporary files does."""
    with suppress(FileNotFoundError):
        Path(place.socket).unlink()


def leave_a_stale_socket(place: EngineAddress, _: random.Random) -> None:
    """Put something that is no engine where the socket belongs."""
    with suppress(OSError):
        Path(place.socket).unlink()
        Path(place.socket).touch()


def spoil_the_log(place: EngineAddress, _: random.Random) -> None:
    """Make the log impossible to write, as a full disk does."""
    with suppress(OSError):
        Path(place.log).unlink(missing_ok=True)
        Path(place.log).mkdir()


def close_the_folder(place: EngineAddress, chance: random.Random) -> None:
    """Let nobody trust the folder for a while."""
    folder = Path(place.folder)
    folder.chmod(0o755)
    time.sleep(chance.random() * 0.2)
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
    with Loopback(answer) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        threads = [threading.Thread(target=storm.client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + STORM
        happenings = [kill_a_client, drop_the_socket, leave_a_stale_socket, spoil_the_log, close_the_folder]
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.5, 1.5))
            if chance.random() < 0.4:
                kill_one(folder, chance)
            else:
                chance.choice(happenings)(chance.choice(storm.places), chance)
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
