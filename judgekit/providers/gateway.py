"""Opens the gateway that the judge uses: one object that reaches every kind of provider; tries one, too."""

from __future__ import annotations

import time
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.errors import CallUsage, GatewayError, free
from judgekit.providers import replay
from judgekit.providers.base import CallKey, Message, Request, is_local

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from judgekit.providers.base import Endpoint, Gateway, Reply

Kind: TypeAlias = Literal["litellm", "command", "replay", "embedded"]
borrowed: ContextVar[Gateway | None] = ContextVar("gateway", default=None)
"""What `open_gateway` returns in the current task, in place of a gateway of its own."""


def opened(kind: Kind) -> Gateway:
    """Return a gateway of one kind; connections, and turns to ask, are those of the whole process."""
    if kind == "replay":
        return replay.ReplayGateway()
    if kind == "embedded":
        from judgekit.providers.local import LocalGateway  # noqa: PLC0415 - the optional extra, when used

        return LocalGateway()
    from judgekit.providers import running  # noqa: PLC0415 - asyncio, when used

    if kind == "command":
        from judgekit.providers.command import CommandGateway  # noqa: PLC0415 - subprocesses, when used

        return running.lasting(CommandGateway)
    from judgekit.providers.litellm import LitellmGateway  # noqa: PLC0415 - seconds of CPU, only when used

    return running.lasting(LitellmGateway)


def unpriced(endpoints: Iterable[Endpoint]) -> list[str]:
    """Return the models of whose calls nobody will say what they cost, each once.

    Raises what importing litellm does, whose table has most prices.
    """
    found: dict[str, None] = {}
    for endpoint in endpoints:
        profile = endpoint.profile
        if profile.kind == "replay" or endpoint.price is not None or is_local(endpoint):
            continue
        if profile.kind == "command":
            is_priced = profile.usage is not None and profile.usage.cost is not None
        else:
            from judgekit.providers import litellm  # noqa: PLC0415 - seconds of CPU, only when used

            is_priced = profile.states_cost or litellm.has_price(endpoint.model)
        if not is_priced:
            found[endpoint.model] = None
    return list(found)


async def prepare(endpoint: Endpoint) -> None:
    """Load what asking an endpoint needs; what cannot be loaded fails again, and is said, when it is used."""
    if endpoint.profile.kind == "litellm":
        from judgekit.providers import litellm  # noqa: PLC0415 - seconds of CPU, only when used

        with suppress(Exception):
            await litellm.loaded()


@dataclass(eq=False)
class Router:
    """A gateway that hands each request to the implementation of its endpoint's kind, opened when needed."""

    _opened: dict[Kind, Gateway] = field(default_factory=dict)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        profile = endpoint.profile
        kind: Kind = "embedded" if profile.kind == "litellm" and profile.embedded else profile.kind
        if kind not in self._opened:
            self._opened[kind] = opened(kind)
        is_free = is_local(endpoint)
        try:
            reply = await self._opened[kind].complete(endpoint, request)
        except GatewayError as error:
            if is_free:
                error.usage = free(error.usage or CallUsage())
            raise
        return replace(reply, usage=free(reply.usage)) if is_free else reply

    async def aclose(self) -> None:
        gateways, self._opened = self._opened, {}
        for gateway in gateways.values():
            await gateway.aclose()


def is_recording(environ: Mapping[str, str]) -> bool:
    """Whether what models answer is recorded, so that each of them has to be asked."""
    return bool(environ.get(replay.RECORD_VARIABLE, "").strip())


def open_gateway(environ: Mapping[str, str]) -> Gateway:
    """Return a gateway for every kind of endpoint; with `JUDGEKIT_RECORD` set it records what is answered."""
    recording = environ.get(replay.RECORD_VARIABLE, "").strip()
    router = borrowed.get() or Router()
    return replay.Recorder(router, Path(recording)) if recording else router


async def check(
    gateway: Gateway, endpoint: Endpoint, timeout: float = 30
) -> tuple[Reply | GatewayError, int]:
    """Make one tiny call, at the cost of a dozen tokens; return its outcome and the milliseconds it took.

    What the call needs is loaded before: that takes seconds, which are not the provider's.
    """
    await prepare(endpoint)
    messages = (Message("system", "You answer in one word."), Message("user", "Say yes."))
    request = Request(messages, CallKey("check", "check", "quick"), timeout, 16)
    start = time.monotonic()
    outcome: Reply | GatewayError
    try:
        outcome = await gateway.complete(endpoint, request)
    except GatewayError as error:
        outcome = error
    return outcome, round((time.monotonic() - start) * 1000)
