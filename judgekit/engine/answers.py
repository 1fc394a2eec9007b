"""Reads what the engine answers: one value, events as they come, or one value for each of many things.

Standard library only. `many` asks on some connections at a time, in threads that wait and do little else.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from judgekit.engine import client
from judgekit.engine.client import Connection, EngineBusy, EngineLost, NoEngine
from judgekit.errors import ConfigError, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from judgekit.engine.client import EngineAddress, Response

Thing = TypeVar("Thing")

AHEAD = 4  # times as many things as are asked about at a time are held, so that a slow one holds up no others
_PATIENCE = 24 * 3600.0  # seconds for one answer while the engine is healthy
_BUSY_SECONDS = 60.0
_OK = 200
_ERRORS: dict[str, type[Exception]] = {"config": ConfigError, "usage": UsageError, "input": InputError}


def value(response: Response) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON of an answer; raises what this process would, or `NoEngine`."""
    found = _json(response.read())
    if response.status != _OK:
        raise _error(found)
    return found


def events(response: Response) -> Iterator[dict[str, Any]]:
    """Yield the objects of an answer that comes a line at a time; raises as `value` does, or if cut."""
    if response.status != _OK:
        raise _error(_json(response.read()))
    rest, last = b"", ""
    for piece in chain(response.pieces, [b"\n"]):
        *lines, rest = (rest + piece).split(b"\n")
        for line in filter(None, lines):
            found = _json(line)
            last = found.get("event", "")
            if last == "error":
                raise _error(found)
            yield found
    if last != "end":
        raise EngineLost("lost the engine: its response ended too early")


def _error(found: Any) -> Exception:  # noqa: ANN401 - any JSON
    error = found.get("error") if isinstance(found, dict) else None
    if not isinstance(error, dict):
        return NoEngine("the engine returned an error without a message")
    return _ERRORS.get(str(error.get("kind")), NoEngine)(str(error.get("message")))


def _json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise EngineLost("lost the engine: its response was not JSON") from None


def many(
    operation: str,
    things: Iterable[Thing],
    body: Callable[[Thing], bytes],
    locally: Callable[[Iterable[Thing], Callable[[Any], None]], None],
    on_answer: Callable[[Any], None],
    *,
    at_once: int,
    warn: Callable[[str], None],
) -> None:
    """Have the engine do an operation for each of `things`, in order; `locally` does what is left."""
    try:
        with client.connect_or_start() as connection:
            place = connection.place
    except NoEngine as reason:
        warn(f"{reason}; continuing in this process")
        locally(things, on_answer)
        return
    waiting: queue.SimpleQueue[tuple[Thing, queue.SimpleQueue[Any]] | None] = queue.SimpleQueue()
    connections: set[Connection] = set()
    over = threading.Event()

    def work() -> None:
        while (asked := waiting.get()) is not None:
            thing, answer = asked
            try:
                answer.put(_ask(place, f"/v1/{operation}", body(thing), connections, over))
            except Exception as error:  # noqa: BLE001 - raised again where the answer is taken
                answer.put(error)
                if isinstance(error, NoEngine):
                    over.set()

    held: deque[tuple[Thing, queue.SimpleQueue[Any]]] = deque()
    rest, threads = iter(things), 0
    try:
        for thing in chain(rest, [None]):
            if thing is not None:
                held.append((thing, queue.SimpleQueue()))
                waiting.put(held[-1])
                if threads < at_once:
                    threads += 1
                    threading.Thread(target=work, daemon=True).start()
            while held and (thing is None or len(held) >= AHEAD * at_once or not held[0][1].empty()):
                answer = held[0][1].get()
                if isinstance(answer, NoEngine):
                    warn("the engine refused the request or stopped; continuing in this process")
                    locally(chain((left for left, _ in held), rest), on_answer)
                    return
                if isinstance(answer, Exception):
                    raise answer
                held.popleft()
                on_answer(answer)
    finally:
        over.set()
        for connection in list(connections):
            connection.abort()
        for _ in range(threads):
            waiting.put(None)


def _ask(
    place: EngineAddress, path: str, body: bytes, connections: set[Connection], over: threading.Event
) -> Any:  # noqa: ANN401 - any JSON
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        with Connection(place) as connection:
            connections.add(connection)
            try:
                if over.is_set():
                    raise NoEngine
                return value(connection.ask("POST", path, body, seconds=_PATIENCE))
            except EngineBusy as busy:
                if not busy.retry_after or time.monotonic() > end:
                    raise
                over.wait(min(busy.retry_after, 1.0))
            finally:
                connections.discard(connection)
