"""Reads the engine's answers: one value, events as they arrive, or one value for each of many things.

Standard library only, unless the engine is busy. `many` sends requests over several connections at a time, in
threads that mostly wait.
"""

from __future__ import annotations

import json
import queue
import threading
from functools import partial
from itertools import chain, count
from math import inf
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from judgekit.engine import client
from judgekit.engine.client import (
    Connection,
    EngineAddress,
    EngineBusy,
    EngineLost,
    NoEngine,
    Response,
)
from judgekit.errors import ConfigError, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Thing = TypeVar("Thing")

# Prepare this many times the concurrent requests, so that a slow one doesn't hold up the others
AHEAD = 4
_PATIENCE = 24 * 3600.0  # seconds for one answer, as long as the engine is healthy
_BUSY_SECONDS = 60.0
_BUSY_PAUSE = 1.0  # seconds, at most
_OK = 200
_CALLER_ERRORS: dict[str, type[Exception]] = {
    error.wire_name: error for error in (ConfigError, InputError, UsageError)
}


def value(response: Response) -> Any:  # noqa: ANN401 - any JSON
    """Return the response's JSON value.

    If the engine reported a caller's mistake (such as `InputError`), raises the same error. Any other problem
    raises `NoEngine`.
    """
    answer = _parse_json(response.read())
    if response.status != _OK:
        raise _make_error(answer)
    return answer


def events(response: Response) -> Iterator[dict[str, Any]]:
    """Yield the response's events, one JSON object per line, as they arrive.

    Raises the same errors as `value`, also for an "error" event. Raises `EngineLost` if the last event isn't
    "end".
    """
    if response.status != _OK:
        raise _make_error(_parse_json(response.read()))

    unfinished_line = b""
    last_name = ""
    for piece in chain(response.pieces, [b"\n"]):  # in case the last line has no line break
        *lines, unfinished_line = (unfinished_line + piece).split(b"\n")
        for line in lines:
            if not line:
                continue
            event = _parse_json(line)
            last_name = event.get("event", "")
            if last_name == "error":
                raise _make_error(event)
            yield event

    if last_name != "end":
        raise EngineLost("lost the engine: its response ended too early")


def _make_error(answer: Any) -> Exception:  # noqa: ANN401 - any JSON
    """Build the error that an answer describes: a mistake of the caller, or else `NoEngine`."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return NoEngine("the engine returned an error without a message")
    error_class = _CALLER_ERRORS.get(str(error.get("kind")), NoEngine)
    message = str(error.get("message"))
    if error_class is ConfigError:  # the message has a line for each problem
        return ConfigError.of([ConfigError(line) for line in message.split("\n")])
    return error_class(message)


def _parse_json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse the engine's answer. Raises `EngineLost` if it isn't JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise EngineLost("lost the engine: its response was not JSON") from None


def many(
    operation: str,
    things: Iterable[Thing],
    body: Callable[[Thing], bytes],
    locally: Callable[[Iterable[Thing], Callable[[Thing, Any], object]], None],
    on_answer: Callable[[Thing, Any], object],
    *,
    at_once: int,
    warn: Callable[[str], None],
    in_order: bool = True,
) -> None:
    """Run an operation on the engine for each of `things`, with `at_once` concurrent requests.

    `body` builds the request for a thing. `on_answer` is called with each thing and its answer, either
    `in_order` or as answers arrive. If there's no engine or it stops, `locally` processes the remaining
    things in this process.
    """
    try:
        with client.connect_or_start() as connection:
            engine_address = connection.place
    except NoEngine as reason:
        warn(f"{reason}; continuing in this process")
        locally(things, on_answer)
        return

    # In order, a slow answer delays all that follow. Queue more requests, to keep the threads busy meanwhile.
    max_pending = AHEAD * at_once if in_order else at_once
    remaining = iter(things)
    requests = _RequestPool(engine_address, f"/v1/{operation}", body, at_once)
    try:
        for thing in remaining:
            requests.add(thing)
            while len(requests.pending) >= max_pending or requests.has_answers():
                requests.deliver(on_answer, in_order=in_order)
        while requests.pending:
            requests.deliver(on_answer, in_order=in_order)
    except _EngineGone:
        warn("the engine refused the request or stopped; continuing in this process")
        unanswered = chain(requests.pending.values(), remaining)
        locally(unanswered, on_answer)
    finally:
        requests.close()


class _EngineGone(Exception):  # noqa: N818 - a normal state, not an error
    """The engine answered a request with `NoEngine`."""


class _RequestPool(Generic[Thing]):
    """Sends requests to an engine in `at_once` threads, each with its own connections."""

    def __init__(
        self, place: EngineAddress, path: str, body: Callable[[Thing], bytes], at_once: int
    ) -> None:
        self.pending: dict[int, Thing] = {}
        """Things whose answers haven't been delivered yet, by number."""
        self._place = place
        self._path = path
        self._body = body
        self._at_once = at_once
        self._numbers = count()
        self._queued: queue.SimpleQueue[tuple[int, Thing] | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._answers: dict[int, Any] = {}
        self._connections: set[Connection] = set()
        self._stopped = threading.Event()

    def add(self, thing: Thing) -> None:
        """Queue a request for a thing. The next free thread will send it."""
        number = next(self._numbers)
        self.pending[number] = thing
        self._queued.put((number, thing))
        if number < self._at_once:  # start a thread with each of the first requests
            threading.Thread(target=self._work, daemon=True).start()

    def has_answers(self) -> bool:
        return not self._answered.empty()

    def deliver(self, on_answer: Callable[[Thing, Any], object], *, in_order: bool) -> None:
        """Wait for an answer, then call `on_answer` for every answer that can be delivered.

        If `in_order`, an answer can only be delivered after those to all earlier things. An answer that is an
        error is raised, with `_EngineGone` for `NoEngine`.
        """
        number, answer = self._answered.get()
        self._answers[number] = answer
        while self._answers:
            next_number = min(self.pending if in_order else self._answers)
            if next_number not in self._answers:
                return
            answer = self._answers.pop(next_number)
            if isinstance(answer, NoEngine):
                raise _EngineGone
            if isinstance(answer, Exception):
                raise answer
            on_answer(self.pending.pop(next_number), answer)

    def close(self) -> None:
        """Abort all requests, and end the threads."""
        self._stopped.set()
        for connection in list(self._connections):
            connection.abort()
        for _ in range(self._at_once):
            self._queued.put(None)

    def _work(self) -> None:
        """Send queued requests one by one, until `close` queues None."""
        while True:
            item = self._queued.get()
            if item is None:
                return
            number, thing = item
            self._answered.put((number, self._answer(thing)))

    def _answer(self, thing: Thing) -> Any:  # noqa: ANN401 - any JSON
        """Return the answer for a thing, or the error to raise in the caller's thread."""
        try:
            send = partial(self._send, self._body(thing))
            return self._send_patiently(send)
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            if isinstance(error, NoEngine):
                self._stopped.set()  # the other requests would fail, too
            return error

    def _send_patiently(self, send: Callable[[], Any]) -> Any:  # noqa: ANN401 - any JSON
        """Call `send`, and retry while the engine is busy."""
        try:
            return send()
        except EngineBusy as busy:
            if not busy.retry_after:  # the engine is stopping, so don't retry
                raise
        return _retry_while_busy(send, self._stopped)

    def _send(self, body: bytes) -> Any:  # noqa: ANN401 - any JSON
        """Send a request, and return its answer, or raise `NoEngine` if the engine is gone.

        After `close`, the answer is `NoEngine`.
        """
        with Connection(self._place) as connection:
            self._connections.add(connection)
            try:
                if self._stopped.is_set():
                    return NoEngine()
                return value(connection.ask("POST", self._path, body, seconds=_PATIENCE))
            finally:
                self._connections.discard(connection)


def _retry_while_busy(send: Callable[[], Any], stopped: threading.Event) -> Any:  # noqa: ANN401 - any JSON
    """Call `send` until the engine is no longer busy, for at most a minute.

    Don't wait between the calls once `stopped` is set.
    """
    from judgekit.providers import retrying  # noqa: PLC0415 - seldom needed

    def is_still_busy(failure: Exception, _: int) -> bool:
        return isinstance(failure, EngineBusy) and failure.retry_after > 0

    tries = retrying.Tries(inf, (_BUSY_PAUSE,), longest=_BUSY_PAUSE)
    stopped.wait(_BUSY_PAUSE)
    return retrying.call_in_thread(
        send, tries, passes=is_still_busy, seconds=_BUSY_SECONDS, sleep=stopped.wait
    )
