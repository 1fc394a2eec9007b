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
_ERRORS: dict[str, type[Exception]] = {
    error.wire_name: error for error in (ConfigError, InputError, UsageError)
}


def value(response: Response) -> Any:  # noqa: ANN401 - any JSON
    """Parse the JSON of a successful answer.

    If the answer is an error that the caller made (such as `InputError`), raises the same error here. Any
    other error raises `NoEngine`.
    """
    answer = _parse_json(response.read())
    if response.status != _OK:
        raise _make_error(answer)
    return answer


def events(response: Response) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line of a response as soon as the line has arrived.

    Raises the errors that `value` raises, also for an object that's an "error" event. Raises `EngineLost` if
    the last object isn't an "end" event.
    """
    if response.status != _OK:
        raise _make_error(_parse_json(response.read()))
    unfinished_line = b""
    last_name = ""
    for piece in chain(response.pieces, [b"\n"]):  # the last line may have no line break
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
    """Build the error that an answer describes, such as `InputError`.

    It's `NoEngine` if the error isn't the caller's mistake, or the answer doesn't describe one.
    """
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return NoEngine("the engine returned an error without a message")
    error_class = _ERRORS.get(str(error.get("kind")), NoEngine)
    message = str(error.get("message"))
    if error_class is ConfigError:  # its message has a line for each problem
        return ConfigError.of([ConfigError(line) for line in message.split("\n")])
    return error_class(message)


def _parse_json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse an answer of the engine; raises `EngineLost` if it isn't JSON."""
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
    """Run an operation on the engine for each of `things`, with `at_once` requests at a time.

    `body` builds the request for a thing. `on_answer` is called with each thing and its answer: in the order
    of the things if `in_order`, otherwise as the answers arrive. If there's no engine, or it stops, `locally`
    does the things that have no answer yet in this process.
    """
    try:
        with client.connect_or_start() as connection:
            engine_address = connection.place
    except NoEngine as reason:
        warn(f"{reason}; continuing in this process")
        locally(things, on_answer)
        return

    # In order, a slow answer holds back those after it. Some more requests keep the threads busy meanwhile.
    most_open = AHEAD * at_once if in_order else at_once
    remaining = iter(things)
    questions = _Questions(engine_address, f"/v1/{operation}", body, at_once)
    try:
        for thing in remaining:
            questions.ask(thing)
            while len(questions.open) >= most_open or questions.has_answers():
                questions.hand_on(on_answer, in_order=in_order)
        while questions.open:
            questions.hand_on(on_answer, in_order=in_order)
    except _EngineGone:
        warn("the engine refused the request or stopped; continuing in this process")
        unanswered = chain(questions.open.values(), remaining)
        locally(unanswered, on_answer)
    finally:
        questions.close()


class _EngineGone(Exception):  # noqa: N818 - a normal state, not an error
    """The engine answered a request with `NoEngine`."""


class _Questions(Generic[Thing]):
    """Requests to an engine, and their answers. They're sent by `at_once` threads, each on a connection."""

    def __init__(
        self, place: EngineAddress, path: str, body: Callable[[Thing], bytes], at_once: int
    ) -> None:
        self.open: dict[int, Thing] = {}
        """What is asked about and not yet handed on, by number."""
        self._place = place
        self._path = path
        self._body = body
        self._at_once = at_once
        self._numbers = count()
        self._waiting: queue.SimpleQueue[tuple[int, Thing] | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._answers: dict[int, Any] = {}
        self._connections: set[Connection] = set()
        self._over = threading.Event()

    def ask(self, thing: Thing) -> None:
        """Queue a request about a thing; the next free thread sends it."""
        number = next(self._numbers)
        self.open[number] = thing
        self._waiting.put((number, thing))
        if number < self._at_once:  # each of the first requests starts one of the threads
            threading.Thread(target=self._work, daemon=True).start()

    def has_answers(self) -> bool:
        return not self._answered.empty()

    def hand_on(self, on_answer: Callable[[Thing, Any], object], *, in_order: bool) -> None:
        """Wait for the next answer, and then call `on_answer` with each answer whose turn it is.

        With `in_order`, an answer's turn comes after the answers to all earlier things; otherwise at once. If
        an answer is an error, raises it, or `_EngineGone` for `NoEngine`.
        """
        number, answer = self._answered.get()
        self._answers[number] = answer
        while self._answers:
            candidates = self.open if in_order else self._answers
            number = min(candidates)  # numbers rise with the order of the things
            if number not in self._answers:
                return
            answer = self._answers.pop(number)
            if isinstance(answer, NoEngine):
                raise _EngineGone
            if isinstance(answer, Exception):
                raise answer
            on_answer(self.open.pop(number), answer)

    def close(self) -> None:
        """End all threads. A thread that's waiting for an answer ends, too: its connection is aborted."""
        self._over.set()
        for connection in list(self._connections):
            connection.abort()
        for _ in range(self._at_once):
            self._waiting.put(None)

    def _work(self) -> None:
        """Ask about one waiting thing after the other, until `close` puts None there."""
        while True:
            question = self._waiting.get()
            if question is None:
                return
            number, thing = question
            self._answered.put((number, self._answer(thing)))

    def _answer(self, thing: Thing) -> Any:  # noqa: ANN401 - any JSON
        """Return an answer, or the error to raise in the caller's thread; `NoEngine` ends all requests."""
        try:
            ask = partial(self._post, self._body(thing))
            return self._ask_patiently(ask)
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            if isinstance(error, NoEngine):
                self._over.set()
            return error

    def _ask_patiently(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - any JSON
        """Call `ask`, and call it again while the engine is busy, unless it's stopping."""
        try:
            return ask()
        except EngineBusy as busy:
            if not busy.retry_after:  # the engine is stopping, so trying again is no use
                raise
        return _retry_while_busy(ask, self._over)

    def _post(self, body: bytes) -> Any:  # noqa: ANN401 - any JSON
        """Send a request, and return its answer.

        Raises `NoEngine` if the engine is gone, or if `close` aborts the request.
        """
        with Connection(self._place) as connection:
            self._connections.add(connection)
            try:
                if self._over.is_set():
                    return NoEngine()
                return value(connection.ask("POST", self._path, body, seconds=_PATIENCE))
            finally:
                self._connections.discard(connection)


def _retry_while_busy(ask: Callable[[], Any], over: threading.Event) -> Any:  # noqa: ANN401 - any JSON
    """Call `ask` again while it raises an `EngineBusy` that suggests a pause, for at most a minute.

    Once `over` is set, it no longer waits between the calls.
    """
    from judgekit.providers import retrying  # noqa: PLC0415 - seldom needed

    def is_still_busy(failure: Exception, _: int) -> bool:
        return isinstance(failure, EngineBusy) and failure.retry_after > 0

    tries = retrying.Tries(inf, (_BUSY_PAUSE,), longest=_BUSY_PAUSE)
    over.wait(_BUSY_PAUSE)
    return retrying.call_in_thread(
        ask, tries, passes=is_still_busy, seconds=_BUSY_SECONDS, sleep=over.wait
    )
