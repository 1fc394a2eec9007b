"""The frame around an engine's work: it waits until the engine is ready, and ends when its caller goes."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from fastapi import Response
from fastapi.exceptions import RequestValidationError

from judgekit.engine.door import error_body
from judgekit.engine.service import NotReady
from judgekit.environment import Brought
from judgekit.errors import ConfigError, Exit, InputError, JudgekitError, UsageError
from judgekit.gateway.pace import caller
from judgekit.problems import problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from fastapi import Request

    from judgekit.engine.asked import Carried
    from judgekit.engine.log import Log
    from judgekit.engine.service import Service

Value = TypeVar("Value")
_NO_BODY = "body, with Content-Type: application/json"
NOBODY_WAITS = 499  # what servers note down when the client has hung up; nobody sees it
_KINDS = ((ConfigError, "config", 422), (UsageError, "usage", 422), (InputError, "input", 422))


class Gone(Exception):  # noqa: N818 - no error: the caller has hung up
    """Nobody waits for the answer any more."""


async def done(
    request: Request, service: Service, asked: Carried, work: Callable[[], Awaitable[Value]]
) -> Value:
    """Return what `work` returns, done with the caller's environment once the engine is ready.

    Raises `Gone` when the caller hangs up first; the work is cancelled then.
    """
    working = asyncio.create_task(_with_environment(service, asked, work))
    watching = asyncio.create_task(_hung_up(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Gone
    finally:
        for task in (working, watching):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(working, watching, return_exceptions=True)


async def _with_environment(service: Service, asked: Carried, work: Callable[[], Awaitable[Value]]) -> Value:
    await service.usable()
    with on_behalf_of(asked):
        return await work()


@contextmanager
def on_behalf_of(asked: Carried) -> Iterator[None]:
    """Work with a caller's environment, and in its turns."""
    before = caller.set(asked.client)
    try:
        with Brought(asked.environ):
            yield
    finally:
        caller.reset(before)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Faults:
    """Answers for our own faults, and notes down where they are."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def __call__(self, _: Request, error: Exception) -> Response:
        """Note a fault down and answer for it."""
        self._log.fault(error)
        return said(error)


def said(error: Exception) -> Response:
    """Return the answer that an error becomes: its kind, its one line, and the exit code of a command."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        kind = "size" if first["type"] == "too_long" else "input"
        asked = {each["loc"][0]: dict.fromkeys(each["loc"][1:]) for each in error.errors()}
        asked["body"] = error.body
        told = problem(error.errors(), asked)
        where = ".".join(str(part) for part in told.location[1:]) or _NO_BODY
        return _response(422, kind, f"{where}: {told.text}", Exit.BAD_INPUT)
    if isinstance(error, Gone):
        return Response(status_code=NOBODY_WAITS)
    if isinstance(error, NotReady):
        return _response(503, "not_ready", str(error), Exit.INTERNAL)
    if not isinstance(error, JudgekitError):
        message = f"a fault of judgekit itself ({type(error).__name__}); the engine's log says where"
        return _response(500, "internal", message, 70)
    found = [(kind, status) for each, kind, status in _KINDS if isinstance(error, each)]
    kind, status = found[0] if found else ("internal", 500)
    return _response(status, kind, str(error), int(error.exit_code))


def _response(status: int, kind: str, message: str, exit_code: int) -> Response:
    return Response(error_body(kind, message, exit_code), status, media_type="application/json")
