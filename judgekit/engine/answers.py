"""Reads what the engine answers: one value, events as they come, or one value for each of many things.

Standard library only, but where the engine is busy. `many` asks on some connections at a time, in threads
that wait and do little else.
"""

from __future__ import annotations

import json
import queue
import threading
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

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

AHEAD = 4  # times as many things as are asked about at a time are held, so that a slow one holds up no others
_PATIENCE = 24 * 3600.0  # seconds for one answer while the engine is healthy
_BUSY_SECONDS = 60.0
_BUSY_PAUSE = 1.0  # seconds, at most
_OK = 200
_ERRORS: dict[str, type[Exception]] = {
    kind.kind: kind for kind in (ConfigError, InputError, UsageError)
}


def value(response: Response) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON of an answer; raises what this process would, or `NoEngine`."""
    answer = _json(response.read())
    if response.status != _OK:
        raise _error(answer)
    return answer


def events(response: Response) -> Iterator[dict[str, Any]]:
    """Yield the objects of an answer that comes a line at a time; raises as `value` does, or if cut."""
    if response.status != _OK:
        raise _error(_json(response.read()))
    rest = b""
    last = ""
    for piece in chain(response.pieces, [b"\n"]):
        *lines, rest = (rest + piece).split(b"\n")
        for line in filter(None, lines):
            event = _json(line)
            last = event.get("event", "")
            if last == "error":
                raise _error(event)
            yield event
    if last != "end":
        raise EngineLost("lost the engine: its response ended too early")


def _error(answer: Any) -> Exception:  # noqa: ANN401 - any JSON
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return NoEngine("the engine returned an error without a message")
    kind = _ERRORS.get(str(error.get("kind")), NoEngine)
    message = str(error.get("message"))
    if kind is ConfigError:
        return ConfigError.of([*map(ConfigError, message.split("\n"))])
    return kind(message)


def _json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
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
    """Have the engine do an operation for each of `things`, `in_order` or not; `locally` does the rest."""
    try:
        with client.connect_or_start() as connection:
            place = connection.place
    except NoEngine as reason:
        warn(f"{reason}; continuing in this process")
        locally(things, on_answer)
        return
    waiting: queue.SimpleQueue[tuple[int, Thing] | None] = queue.SimpleQueue()
    answered: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    connections: set[Connection] = set()
    over = threading.Event()

    def work() -> None:
        while (taken := waiting.get()) is not None:
            number, thing = taken
            answer = _answer(place, f"/v1/{operation}", partial(body, thing), connections, over)
            answered.put((number, answer))

    asked: dict[int, Thing] = {}
    answers: dict[int, Any] = {}
    most = AHEAD * at_once if in_order else at_once
    rest = iter(things)
    try:
        for number, thing in enumerate(chain(rest, [None])):
            if thing is not None:
                asked[number] = thing
                waiting.put((number, thing))
                if number < at_once:
                    threading.Thread(target=work, daemon=True).start()
            while asked and (thing is None or len(asked) >= most or not answered.empty()):
                answers.update([answered.get()])
                while (first := next(iter(asked if in_order else answers), None)) in answers:
                    answer = answers.pop(first)
                    if isinstance(answer, NoEngine):
                        warn(
                            "the engine refused the request or stopped; continuing in this process"
                        )
                        locally(chain(asked.values(), rest), on_answer)
                        return
                    if isinstance(answer, Exception):
                        raise answer
                    on_answer(asked.pop(first), answer)
    finally:
        over.set()
        for connection in list(connections):
            connection.abort()
        for _ in range(at_once):
            waiting.put(None)


def _answer(
    place: EngineAddress,
    path: str,
    body: Callable[[], bytes],
    connections: set[Connection],
    over: threading.Event,
) -> Any:  # noqa: ANN401 - any JSON
    """Return an answer, or the error to raise where it is taken; the first `NoEngine` is the end for all."""
    try:
        sent = body()

        def ask() -> Any:  # noqa: ANN401 - any JSON
            with Connection(place) as connection:
                connections.add(connection)
                try:
                    if over.is_set():
                        return NoEngine()
                    return value(connection.ask("POST", path, sent, seconds=_PATIENCE))
                finally:
                    connections.discard(connection)

        try:
            return ask()
        except EngineBusy as busy:
            if not busy.retry_after:
                raise
        return _when_it_is_less_busy(ask, over)
    except Exception as error:  # noqa: BLE001 - raised again where the answer is taken
        if isinstance(error, NoEngine):
            over.set()
        return error


def _when_it_is_less_busy(ask: Callable[[], Any], over: threading.Event) -> Any:  # noqa: ANN401 - any JSON
    """Return what `ask` returns, asked again while the engine asks for pauses, until all is `over`."""
    from judgekit.providers import retrying  # noqa: PLC0415 - seldom needed

    def passes(failure: Exception, _: int) -> bool:
        return isinstance(failure, EngineBusy) and bool(failure.retry_after)

    tries = retrying.Tries(inf, (_BUSY_PAUSE,), longest=_BUSY_PAUSE)
    over.wait(_BUSY_PAUSE)
    return retrying.call_in_thread(
        ask, tries, passes=passes, seconds=_BUSY_SECONDS, sleep=over.wait
    )
