"""Reads the engine's answers: one value, events as they arrive, or one value for each of many things.

Standard library only, unless the engine is busy. `run_many` sends requests over several connections at a
time, in threads that mostly wait.
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

Item = TypeVar("Item")

# Prepare this many times the concurrent requests, so that a slow one doesn't hold up the others
PENDING_PER_THREAD = 4
_REQUEST_TIMEOUT_S = 24 * 3600.0  # seconds for one answer, as long as the engine is healthy
_BUSY_SECONDS = 60.0
_BUSY_PAUSE = 1.0  # seconds, at most
_OK_STATUS = 200
_CALLER_ERRORS: dict[str, type[Exception]] = {
    error.wire_name: error for error in (ConfigError, InputError, UsageError)
}


def read_value(response: Response) -> Any:  # noqa: ANN401 - any JSON
    """Return the response's JSON value.

    If the engine reported a caller's mistake (such as `InputError`), raises the same error. Any other problem
    raises `NoEngine`.
    """
    answer = _parse_json(response.read())
    if response.status != _OK_STATUS:
        raise _make_error(answer)
    return answer


def read_events(response: Response) -> Iterator[dict[str, Any]]:
    """Yield the response's events, which are lines of JSON, as they arrive.

    Raises the engine's error if the response has an error status, or if an "error" event arrives. Raises
    `EngineLost` if the last event isn't "end".
    """
    if response.status != _OK_STATUS:
        raise _make_error(_parse_json(response.read()))

    last_name = ""
    for line in _split_lines(response.pieces):
        event = _parse_json(line)
        last_name = event.get("event", "")
        if last_name == "error":
            raise _make_error(event)
        yield event
    if last_name != "end":
        raise EngineLost("lost the engine: its response ended too early")


def _split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a text that arrives in pieces. Skips empty lines."""
    unfinished_line = b""  # continues in the next piece
    # The last line may have no line break, so add one.
    for piece in chain(pieces, [b"\n"]):
        text = unfinished_line + piece
        *lines, unfinished_line = text.split(b"\n")
        for line in lines:
            if line:
                yield line


def _make_error(answer: Any) -> Exception:  # noqa: ANN401 - any JSON
    """Build the error that an answer describes.

    A caller's mistake becomes the same error here, such as `InputError`. Any other error becomes `NoEngine`.
    """
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return NoEngine("the engine returned an error without a message")
    error_class = _CALLER_ERRORS.get(str(error.get("kind")), NoEngine)
    message = str(error.get("message"))
    if error_class is ConfigError:
        # A `ConfigError` can combine several problems. Its message has a line for each.
        problems = [ConfigError(line) for line in message.split("\n")]
        return ConfigError.of(problems)
    return error_class(message)


def _parse_json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse the engine's answer. Raises `EngineLost` if it isn't JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise EngineLost("lost the engine: its response was not JSON") from None


def run_many(
    operation: str,
    items: Iterable[Item],
    body: Callable[[Item], bytes],
    run_locally: Callable[[Iterable[Item], Callable[[Item, Any], object]], None],
    on_answer: Callable[[Item, Any], object],
    *,
    max_threads: int,
    warn: Callable[[str], None],
    in_order: bool = True,
) -> None:
    """Run an operation on the engine for each item, with up to `max_threads` concurrent requests.

    `body` builds an item's request. `on_answer` is called with each item and its answer, either
    `in_order` or as answers arrive. If there's no engine or it stops, `run_locally` processes the remaining
    items in this process.
    """
    try:
        address = _find_running_engine()
    except NoEngine as reason:
        warn(f"{reason}; continuing in this process")
        run_locally(items, on_answer)
        return

    unsent = iter(items)
    requests = _RequestPool(address, f"/v1/{operation}", body, max_threads)
    try:
        _request_all(requests, unsent, on_answer, max_threads=max_threads, in_order=in_order)
    except _EngineGone:
        warn("the engine refused the request or stopped; continuing in this process")
        # The pending items have left the iterator, but their answers haven't been delivered.
        unanswered = chain(requests.pending.values(), unsent)
        run_locally(unanswered, on_answer)
    finally:
        requests.close()


def _find_running_engine() -> EngineAddress:
    """Return the running engine's address, after starting one if necessary. Raises `NoEngine`."""
    with client.connect_or_start() as connection:
        return connection.address


def _request_all(
    requests: _RequestPool[Item],
    items: Iterator[Item],
    on_answer: Callable[[Item, Any], object],
    *,
    max_threads: int,
    in_order: bool,
) -> None:
    """Request an answer for each item, and deliver the answers as they become available.

    Raises `_EngineGone` if the engine stops. If an answer is an error, raises that error.
    """
    # If `in_order`, a slow answer delays all later ones. Queue more requests to keep the threads busy.
    max_pending = PENDING_PER_THREAD * max_threads if in_order else max_threads
    for item in items:
        requests.add(item)
        # `deliver_answers` waits for an answer, so call it only if one has arrived or the pool is full.
        while requests.has_answers() or len(requests.pending) >= max_pending:
            requests.deliver_answers(on_answer, in_order=in_order)
    while requests.pending:
        requests.deliver_answers(on_answer, in_order=in_order)


class _EngineGone(Exception):  # noqa: N818 - a normal state, not an error
    """The engine answered a request with `NoEngine`."""


class _RequestPool(Generic[Item]):
    """Sends requests to an engine in up to `max_threads` threads, with a new connection for each request."""

    def __init__(
        self, address: EngineAddress, path: str, body: Callable[[Item], bytes], max_threads: int
    ) -> None:
        """Create a pool for a URL path, without any threads yet. `body` builds an item's request."""
        self.pending: dict[int, Item] = {}
        """Items whose answers haven't been delivered yet, by number."""
        self._address = address
        self._path = path
        self._build_body = body
        self._max_threads = max_threads
        # Numbers the items in the order in which they're added.
        self._item_counter = count()
        # The threads take numbered items from this queue. None ends a thread.
        self._item_queue: queue.SimpleQueue[tuple[int, Item] | None] = queue.SimpleQueue()
        # The threads put the answers here, with their items' numbers.
        self._answer_queue: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        # Answers that can't be delivered yet, because earlier ones are missing.
        self._waiting_answers: dict[int, Any] = {}
        self._connections: set[Connection] = set()
        self._stopped = threading.Event()

    def add(self, item: Item) -> None:
        """Queue a request for an item. The next free thread will send it."""
        number = next(self._item_counter)
        self.pending[number] = item
        self._item_queue.put((number, item))
        # Start the threads lazily, one for each of the first requests.
        if number < self._max_threads:
            threading.Thread(target=self._work, daemon=True).start()

    def has_answers(self) -> bool:
        return not self._answer_queue.empty()

    def deliver_answers(self, on_answer: Callable[[Item, Any], object], *, in_order: bool) -> None:
        """Wait for one more answer, then call `on_answer` for every answer that can be delivered by now.

        If `in_order`, an answer has to wait until all earlier items are answered. Delivered items are removed
        from `pending`. If an answer is an error, raises it. Raises `_EngineGone` if the engine has stopped.
        """
        number, answer = self._answer_queue.get()
        self._waiting_answers[number] = answer
        while True:
            next_number = self._find_deliverable(in_order=in_order)
            if next_number is None:
                return
            answer = self._waiting_answers.pop(next_number)
            if isinstance(answer, NoEngine):
                raise _EngineGone
            if isinstance(answer, Exception):
                raise answer
            item = self.pending.pop(next_number)
            on_answer(item, answer)

    def _find_deliverable(self, *, in_order: bool) -> int | None:
        """Return the number of the next item whose answer can be delivered, or None if there's none yet."""
        if not self._waiting_answers:
            return None
        first_answered = min(self._waiting_answers)
        if in_order and first_answered > min(self.pending):  # an earlier item isn't answered yet
            return None
        return first_answered

    def close(self) -> None:
        """Abort all requests, and end the threads."""
        self._stopped.set()
        for connection in list(self._connections):
            connection.abort()
        for _ in range(self._max_threads):
            self._item_queue.put(None)  # ends a thread

    def _work(self) -> None:
        """Send queued requests one by one, until `close` queues None."""
        while True:
            numbered_item = self._item_queue.get()
            if numbered_item is None:
                return
            number, item = numbered_item
            self._answer_queue.put((number, self._answer(item)))

    def _answer(self, item: Item) -> Any:  # noqa: ANN401 - any JSON
        """Return an item's answer, or the error to raise in the caller's thread."""
        try:
            send = partial(self._send, self._build_body(item))
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
        """Send a request, and return its answer. Raises `NoEngine` if the engine is gone.

        Also raises `NoEngine`, without sending anything, if the pool has stopped.
        """
        with Connection(self._address) as connection:
            # `close` sets `_stopped`, then aborts the connections. Do the opposite here: add the connection,
            # then check `_stopped`. Otherwise `close` could miss a connection that's about to send.
            self._connections.add(connection)
            try:
                if self._stopped.is_set():
                    raise NoEngine
                response = connection.ask("POST", self._path, body, seconds=_REQUEST_TIMEOUT_S)
                return read_value(response)
            finally:
                self._connections.discard(connection)


def _retry_while_busy(send: Callable[[], Any], stopped: threading.Event) -> Any:  # noqa: ANN401 - any JSON
    """Call `send` until the engine is no longer busy, for at most a minute, and return its result.

    There's a pause before each call. Setting `stopped` ends the pause, so that `send` can fail at once.
    """
    from judgekit.providers import retrying  # noqa: PLC0415 - imported lazily, because it's rarely needed

    def should_retry(failure: Exception, _: int) -> bool:
        if not isinstance(failure, EngineBusy):  # for example, the pool has stopped
            return False
        # An engine that is stopping suggests no retry, so its `retry_after` is 0.
        return failure.retry_after > 0

    # The engine was busy a moment ago, so don't call it again immediately.
    stopped.wait(_BUSY_PAUSE)
    # The time limit ends the tries, so their number is unlimited.
    tries = retrying.Tries(inf, pauses=(_BUSY_PAUSE,), longest_pause=_BUSY_PAUSE)
    return retrying.call_in_thread(
        send, tries, should_retry=should_retry, seconds=_BUSY_SECONDS, sleep=stopped.wait
    )
