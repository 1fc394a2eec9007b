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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from judgekit.engine import client
from judgekit.engine.client import Connection, EngineBusy, EngineFault, EngineLost, NoEngine
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
    """Return the JSON of an answer.

    Raises what the caller's own process would raise, `EngineFault` for a fault of the engine, and
    `EngineLost` where the answer is not JSON.
    """
    found = _json(response.read())
    if response.status != _OK:
        raise _error(found)
    return found


def events(response: Response) -> Iterator[dict[str, Any]]:
    """Yield the objects of an answer that comes a line at a time; raises as `value` does.

    The last one has the event "end", or the stream was cut.
    """
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
        return EngineFault("the engine returned an error without a message")
    return _ERRORS.get(str(error.get("kind")), EngineFault)(str(error.get("message")))


def _json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise EngineLost("lost the engine: its response was not JSON") from None


class _Slot(Generic[Thing]):
    """A thing and, when it is done, the answer, an error of the caller's, or neither as no engine did it."""

    def __init__(self, thing: Thing) -> None:
        self.thing = thing
        self.answer: Any = None
        self.error: Exception | None = None
        self.done = threading.Event()


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
    """Have the engine do an operation for each of `things`, and pass each answer to `on_answer`, in order.

    Things are taken as there is room for them. When the engine goes away in the middle, and wherever
    `client.call` would continue without it, `locally` does the rest in the same way.
    """
    try:
        connection = client.connect_or_start()
    except NoEngine as reason:
        reason.tell(warn)
        locally(things, on_answer)
        return
    connection.close()
    slots = _slots(connection.place, f"/v1/{operation}", things, body, at_once)
    for slot in slots:
        if slot.answer is None:
            warn("the engine refused the request or stopped; continuing in this process")
            locally((each.thing for each in chain([slot], slots)), on_answer)
            return
        on_answer(slot.answer)


def _slots(
    place: EngineAddress | None, path: str, things: Iterable[Thing], body: Callable[[Thing], bytes], most: int
) -> Iterator[_Slot[Thing]]:
    """Yield a slot that is done for each thing, in order; raises an error where its turn is.

    Closing the iterator, or an exception that goes through it, ends the engine's work on what is left.
    """
    waiting: queue.SimpleQueue[_Slot[Thing] | None] = queue.SimpleQueue()
    connections: list[Connection] = []
    over = threading.Event()

    def work(connection: Connection) -> None:
        while (slot := waiting.get()) is not None:
            try:
                slot.answer = _ask(connection, path, body(slot.thing), over)
            except NoEngine:
                over.set()
            except Exception as error:  # noqa: BLE001 - raised again where the slot is taken
                slot.error = error
            slot.done.set()

    held: deque[_Slot[Thing]] = deque()
    try:
        for thing in chain(things, [None]):
            if thing is not None:
                held.append(_Slot(thing))
                waiting.put(held[-1])
                if len(connections) < most:
                    connections.append(Connection(place))
                    connections[-1].look = client.LOOK_SECONDS
                    threading.Thread(target=work, args=(connections[-1],), daemon=True).start()
            while held and (thing is None or len(held) >= AHEAD * most or held[0].done.is_set()):
                slot = held.popleft()
                while not slot.done.wait(1):  # a bounded wait can be interrupted on every system
                    pass
                if slot.error is not None:
                    raise slot.error
                yield slot
    finally:
        over.set()
        for connection in connections:
            connection.abort()
            waiting.put(None)


def _ask(connection: Connection, path: str, body: bytes, over: threading.Event) -> Any:  # noqa: ANN401 - any JSON
    end = time.monotonic() + _BUSY_SECONDS
    while not over.is_set():
        try:
            return value(connection.ask("POST", path, body, seconds=_PATIENCE))
        except EngineBusy as busy:
            if not busy.retry_after or time.monotonic() > end:
                raise
            over.wait(min(busy.retry_after, 1.0))
    raise NoEngine("the engine is gone")
