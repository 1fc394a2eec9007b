"""What a client makes of the engine's answers, and its watch on an engine that answers no more.

Standard library only.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from judgekit.engine.client import LOOK_SECONDS, EngineLost, is_well
from judgekit.errors import ConfigError, InputError, JudgekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.engine.client import Connection, Response


_OK = 200


class EngineError(JudgekitError):
    """The engine met a fault of its own."""


class TooLargeError(EngineError):
    """More than an engine takes; judging in one's own process has no such limit."""


_ERRORS: dict[str, type[JudgekitError]] = {
    "config": ConfigError,
    "usage": UsageError,
    "input": InputError,
    "size": TooLargeError,
}


def value(answer: Response) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON of an answer; raises the error it tells of, `EngineLost` where it makes no sense."""
    found = _json(answer.read())
    if answer.status != _OK:
        raise error(found)
    return found


def events(answer: Response) -> Iterator[dict[str, Any]]:
    """Yield the objects of an answer that comes a line at a time; raises as `value` does.

    The last one has the event "end", or the stream was cut.
    """
    if answer.status != _OK:
        raise error(_json(answer.read()))
    last = ""
    for line in answer.lines():
        found = _json(line)
        last = found.get("event", "")
        if last == "error":
            raise error(found)
        yield found
    if last != "end":
        raise EngineLost("the engine was lost: it broke off in the middle of an answer")


def error(found: Any) -> JudgekitError:  # noqa: ANN401 - any JSON
    """Return the error that an answer tells of."""
    told = found.get("error") if isinstance(found, dict) else None
    if not isinstance(told, dict):
        return EngineError("the engine answered with an error that says nothing")
    return _ERRORS.get(str(told.get("kind")), EngineError)(str(told.get("message")))


def post(connection: Connection, path: str, body: dict[str, Any], seconds: float) -> Any:  # noqa: ANN401 - any JSON
    """Ask for one JSON value; raises `NoEngine`, `EngineLost` or the error that the answer tells of."""
    return value(connection.ask("POST", path, json.dumps(body).encode(), seconds=seconds))


def _json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise EngineLost("the engine was lost: it answered with what is no JSON") from None


@contextmanager
def watched(connection: Connection) -> Iterator[None]:
    """End what is asked on a connection, with `EngineLost`, when the engine does not answer any more."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            if not is_well(connection.place):
                connection.abort()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
