"""Has many things done by the engine, some at a time, and gives what came of them in their order.

Threads, each with a connection of its own: they wait, and little else. Standard library only.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from judgekit.engine import asking, client
from judgekit.engine.client import Connection, EngineBusy, EngineLost, NoEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from judgekit.engine.address import EngineAddress

Thing = TypeVar("Thing")

AHEAD = 4  # times as many things as are asked about at a time are held, so that a slow one holds up no others
_PATIENCE = 24 * 3600.0  # as long as the engine is well it is waited for
_BUSY_SECONDS = 60.0


class Slot(Generic[Thing]):
    """A thing and, when it is done, what came of it: a record, an error, or neither as nobody answered."""

    __slots__ = ("_done", "error", "record", "thing")

    def __init__(self, thing: Thing) -> None:
        self.thing: Thing | None = thing
        self.record: Any = None
        self.error: Exception | None = None
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until it is done; False when it is not after so many seconds."""
        return self._done.wait(seconds)

    def settle(self, record: Any = None, error: Exception | None = None) -> None:  # noqa: ANN401 - any JSON
        """Say what came of it; of a thing that was answered nothing more is held."""
        self.record, self.error = record, error
        if record is not None or error is not None:
            self.thing = None
        self._done.set()


class Crowd(Generic[Thing]):
    """Connections to the engine at `place` that post the `body` of things to `path`.

    `lost` is called once, with the reason, when the engine goes away in the middle: another one is started,
    and what was not answered is asked again. Where that fails too, slots come back with their thing and
    without a record.
    """

    def __init__(
        self,
        place: EngineAddress | None,
        path: str,
        body: Callable[[Thing], bytes],
        *,
        at_once: int,
        lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._place, self._path, self._body, self._most, self._lost = place, path, body, at_once, lost
        self._waiting: queue.SimpleQueue[Slot[Thing] | None] = queue.SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._connections: list[Connection] = []
        self._lock = threading.Lock()
        self._given_up = False
        self._restarted = False

    def answers(self, things: Iterable[Thing]) -> Iterator[Slot[Thing]]:
        """Yield a settled slot for each thing, in order. Things are taken as there is room for them.

        Closing the iterator, or an exception that goes through it, ends the engine's work on what is left.
        """
        slots: deque[Slot[Thing]] = deque()
        try:
            for thing in things:
                slot = Slot(thing)
                slots.append(slot)
                self._give(slot)
                while slots and (len(slots) >= AHEAD * self._most or slots[0].done):
                    yield self._settled(slots.popleft())
            while slots:
                yield self._settled(slots.popleft())
        finally:
            self._end()

    def _settled(self, slot: Slot[Thing]) -> Slot[Thing]:
        while not slot.wait(client.LOOK_SECONDS):
            if not self._given_up and not client.is_well(self._place):
                self._give_up_if_hung()
        if slot.error is not None:
            raise slot.error
        return slot

    def _give_up_if_hung(self) -> None:
        """Ask nobody any more where the engine lives and does not answer: none can take its place."""
        try:
            with Connection(self._place):
                self._given_up = True
        except NoEngine:  # it is gone: those who wait for it start another one
            pass
        self._hang_up()

    def _give(self, slot: Slot[Thing]) -> None:
        if self._given_up:
            slot.settle()
            return
        self._waiting.put(slot)
        if len(self._workers) < self._most:
            worker = threading.Thread(target=self._work, daemon=True)
            self._workers.append(worker)
            worker.start()

    def _work(self) -> None:
        connection = Connection(self._place)
        with self._lock:
            self._connections.append(connection)
        while (slot := self._waiting.get()) is not None:
            try:
                self._answer(slot, connection)
            except asking.TooLargeError:
                slot.settle()
            except (NoEngine, EngineLost):
                self._given_up = True
                slot.settle()
            except Exception as error:  # noqa: BLE001 - raised again where the slot is taken
                slot.settle(error=error)
        connection.close()

    def _answer(self, slot: Slot[Thing], connection: Connection) -> None:
        assert slot.thing is not None  # noqa: S101 - nothing is taken from a slot before it is settled
        body = self._body(slot.thing)
        try:
            slot.settle(self._asked(connection, body))
        except (NoEngine, EngineLost) as gone:
            self._another(connection, gone)
            slot.settle(self._asked(connection, body))

    def _asked(self, connection: Connection, body: bytes) -> Any:  # noqa: ANN401 - any JSON
        end = time.monotonic() + _BUSY_SECONDS
        while True:
            if self._given_up:
                raise NoEngine("no engine any more")
            try:
                return asking.value(connection.ask("POST", self._path, body, seconds=_PATIENCE))
            except EngineBusy as busy:
                if not busy.retry_after or time.monotonic() > end:
                    raise
                time.sleep(min(busy.retry_after, 1.0))

    def _another(self, connection: Connection, why: Exception) -> None:
        """Lead a connection to a new engine, which the first to come here starts."""
        connection.close()
        with self._lock:
            if self._given_up:
                raise NoEngine("no engine any more")
            if not self._restarted:
                self._restarted = True
                self._lost(str(why))
                with client.connect_or_start() as fresh:
                    self._place = fresh.place
            connection.place = self._place

    def _end(self) -> None:
        self._given_up = True
        self._hang_up()
        for _ in self._workers:
            self._waiting.put(None)

    def _hang_up(self) -> None:
        with contextlib.suppress(RuntimeError):
            for connection in list(self._connections):
                connection.abort()
