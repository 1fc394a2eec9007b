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

    from judgekit.engine.client import Response

Thing = TypeVar("Thing")

AHEAD = 4  # times as many things as are asked about at a time are held, so that a slow one holds up no others
_PATIENCE = 24 * 3600.0  # as long as the engine is well it is waited for
_BUSY_SECONDS = 60.0
_OK = 200
_ERRORS: dict[str, type[Exception]] = {"config": ConfigError, "usage": UsageError, "input": InputError}


def value(response: Response) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON of an answer.

    Raises what the caller's own process would raise, `EngineFault` for a fault of the engine, and
    `EngineLost` where the answer makes no sense.
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
    last = ""
    for line in response.lines():
        found = _json(line)
        last = found.get("event", "")
        if last == "error":
            raise _error(found)
        yield found
    if last != "end":
        raise EngineLost("lost the engine: its response ended too early")


def _error(found: Any) -> Exception:  # noqa: ANN401 - any JSON
    told = found.get("error") if isinstance(found, dict) else None
    if not isinstance(told, dict):
        return EngineFault("the engine returned an error without a message")
    kind = _ERRORS.get(str(told.get("kind")), EngineFault)
    return kind(str(told.get("message")))


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
    """Have the engine do an operation for each of `things`, and tell `on_answer` each answer in their order.

    Things are taken as there is room for them. When the engine goes away in the middle, another one is
    started and asked for what is left. Where that fails, too, and wherever `client.call` would go on
    without the engine, `locally` does the rest in the same way.
    """
    try:
        connection = client.connect_or_start()
    except NoEngine as reason:
        reason.tell(warn)
        locally(things, on_answer)
        return
    with connection:
        slots = _Crowd[Thing](connection, operation, body, at_once, warn).slots(things)
        for slot in slots:
            if slot.answer is None:
                warn("the engine refused the request or stopped; continuing in this process")
                _rest(chain([slot], slots), locally, on_answer)
                return
            on_answer(slot.answer)


def _rest(
    slots: Iterable[_Slot[Thing]],
    locally: Callable[[Iterable[Thing], Callable[[Any], None]], None],
    on_answer: Callable[[Any], None],
) -> None:
    """Do here what the engine has not done, and tell what it has done in its place."""
    order: deque[Any] = deque()

    def unanswered() -> Iterator[Thing]:
        for slot in slots:
            order.append(slot.answer)
            if slot.answer is None:
                yield slot.thing

    def tell_answered() -> None:
        while order and order[0] is not None:
            on_answer(order.popleft())

    def on_local(answer: Any) -> None:  # noqa: ANN401 - any JSON
        tell_answered()
        order.popleft()
        on_answer(answer)

    locally(unanswered(), on_local)
    tell_answered()


class _Slot(Generic[Thing]):
    """A thing and, when it is done, the answer, an error of the caller's, or neither as no engine did it."""

    def __init__(self, thing: Thing) -> None:
        self.thing = thing
        self.answer: Any = None
        self.error: Exception | None = None
        self.done = threading.Event()


class _Crowd(Generic[Thing]):
    """Threads with a connection each that ask for things until all are answered, or no engine is there."""

    def __init__(
        self,
        first: Connection,
        operation: str,
        body: Callable[[Thing], bytes],
        at_once: int,
        warn: Callable[[str], None],
    ) -> None:
        self._place, self._path = first.place, f"/v1/{operation}"
        self._body, self._most, self._warn = body, at_once, warn
        self._waiting: queue.SimpleQueue[_Slot[Thing] | None] = queue.SimpleQueue()
        self._connections: list[Connection] = []
        self._lock = threading.Lock()
        self._over = self._restarted = False

    def slots(self, things: Iterable[Thing]) -> Iterator[_Slot[Thing]]:
        """Yield a slot that is done for each thing, in order; raises an error where its turn is.

        Closing the iterator, or an exception that goes through it, ends the engine's work on what is left.
        """
        held: deque[_Slot[Thing]] = deque()
        try:
            for thing in things:
                held.append(self._begun(thing))
                while held and (len(held) >= AHEAD * self._most or held[0].done.is_set()):
                    yield _ended(held.popleft())
            while held:
                yield _ended(held.popleft())
        finally:
            self._over = True
            for connection in self._connections:
                connection.abort()
                self._waiting.put(None)

    def _begun(self, thing: Thing) -> _Slot[Thing]:
        slot = _Slot(thing)
        if self._over:
            slot.done.set()
            return slot
        self._waiting.put(slot)
        if len(self._connections) < self._most:
            connection = Connection(self._place)
            connection.look = client.LOOK_SECONDS
            self._connections.append(connection)
            threading.Thread(target=self._work, args=(connection,), daemon=True).start()
        return slot

    def _work(self, connection: Connection) -> None:
        while (slot := self._waiting.get()) is not None:
            try:
                slot.answer = self._answer(connection, self._body(slot.thing))
            except NoEngine:
                self._over = True
            except Exception as error:  # noqa: BLE001 - raised again where the slot is taken
                slot.error = error
            slot.done.set()
        connection.close()

    def _answer(self, connection: Connection, body: bytes) -> Any:  # noqa: ANN401 - any JSON
        try:
            return self._asked(connection, body)
        except NoEngine as reason:
            if not reason.another_may:
                raise
            self._lead_to_another(connection, reason)
        return self._asked(connection, body)

    def _asked(self, connection: Connection, body: bytes) -> Any:  # noqa: ANN401 - any JSON
        end = time.monotonic() + _BUSY_SECONDS
        while not self._over:
            try:
                return value(connection.ask("POST", self._path, body, seconds=_PATIENCE))
            except EngineBusy as busy:
                if not busy.retry_after or time.monotonic() > end:
                    raise
                time.sleep(min(busy.retry_after, 1.0))
        raise NoEngine("the engine is gone")

    def _lead_to_another(self, connection: Connection, why: NoEngine) -> None:
        """Start a new engine, unless another thread has done so, and have the connection go there."""
        connection.close()
        with self._lock:
            if self._over:
                raise NoEngine("the engine is gone")
            if not self._restarted:
                self._restarted = True
                self._warn(f"{why}; another engine takes over")
                with client.connect_or_start() as fresh:
                    self._place = fresh.place
            connection.place = self._place


def _ended(slot: _Slot[Thing]) -> _Slot[Thing]:
    while not slot.done.wait(1):  # a bounded wait can be interrupted on every system
        pass
    if slot.error is not None:
        raise slot.error
    return slot
