"""What a person does with engines: start one, see them, end them."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.engine import address, client, lock

if TYPE_CHECKING:
    from judgekit.engine.address import EngineAddress

ANSWER_SECONDS = 2.0
END_SECONDS = 5.0
_SIGN_SECONDS = 1.0  # from taking the lock to writing into it, which is milliseconds
_POLL = 0.02


class Known(NamedTuple):
    """An engine that runs: where, and what it says of itself; None when it does not answer.

    `leaving` is the process of one that nobody can ask any more, as it only finishes what it was asked.
    """

    place: EngineAddress
    health: dict[str, Any] | None
    leaving: int | None = None


def running() -> list[Known]:
    """Return the engines of this user and network, that of this version first, those that leave last."""
    own = address.find()
    if own is None:
        return []
    found = [
        Known(engine_address, health(engine_address)) for engine_address in (own, *address.relatives(own))
    ]
    runs = [known for known in found if known.health is not None or process_of(known.place) is not None]
    return runs + [Known(place, None, process) for place, process in lock.leaving(own)]


def health(place: EngineAddress) -> dict[str, Any] | None:
    """Return what an engine says of itself, None when it does not answer."""
    try:
        with client.Connection(place) as connection:
            told = json.loads(connection.ask("GET", "/v1/health", seconds=ANSWER_SECONDS).read())
    except (client.NoEngine, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def process_of(place: EngineAddress) -> int | None:
    """Return the id of the process that is the engine of `place`, None when there is none."""
    if not Path(place.lock).exists():
        return None
    held = lock.the_only_one(place)
    if held is not None:  # nobody had it
        os.close(held)
        return None
    end = time.monotonic() + _SIGN_SECONDS
    while time.monotonic() < end:
        with suppress(OSError, ValueError):
            return int(Path(place.lock).read_bytes())
        time.sleep(_POLL)  # it is just beginning
    return None


def start(seconds: float) -> Known | None:
    """Start an engine unless there is one, and return it when it is ready; None when it is not in time."""
    try:
        client.connect_or_start(seconds).close()
    except client.NoEngine:
        return None
    if not client.wait_until_ready(seconds):
        return None
    return next(iter(running()), None)


def stop(place: EngineAddress, *, at_once: bool = False, leaving: int | None = None) -> bool:
    """End the engine of `place`, or the one that is `leaving` it; False when it goes on with its work.

    One that does not answer is killed, and so is every one that is to end `at_once`.
    """
    process = leaving or process_of(place)
    if process is None:
        return True
    if at_once or not (leaving or _asked_to_leave(place)):
        with suppress(OSError):
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    end = time.monotonic() + END_SECONDS
    while _runs(process):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True


def _asked_to_leave(place: EngineAddress) -> bool:
    try:
        with client.Connection(place) as connection:
            connection.ask("POST", "/v1/stop", seconds=ANSWER_SECONDS).read()
    except client.NoEngine:
        return False
    return True


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_bytes()
        threads = len(os.listdir(f"/proc/{process}/task"))  # the others may end later, and hold the lock
    except FileNotFoundError:  # no such file: not Linux, or it has just ended
        return not Path("/proc/self/stat").exists()
    except OSError:
        return False
    return threads > 1 or not state.rpartition(b")")[2].startswith(b" Z")  # ended, and nobody has asked how
