"""Opens the gateway that the judge uses: one object that reaches every kind of provider."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.errors import CallUsage, GatewayError, free
from judgekit.providers import replay
from judgekit.providers.base import is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

Kind: TypeAlias = Literal["litellm", "command", "replay", "embedded"]


def kind_of(endpoint: Endpoint) -> Kind:
    """Return which implementation reaches an endpoint."""
    profile = endpoint.profile
    embedded = profile.kind == "litellm" and profile.embedded
    return "embedded" if embedded else profile.kind


def opened(kind: Kind) -> Gateway:
    """Return a gateway of one kind; connections, and turns to ask, are those of the whole process."""
    if kind == "replay":
        return replay.ReplayGateway()
    from judgekit.providers import running  # noqa: PLC0415 - asyncio, when used

    if kind == "command":
        from judgekit.providers.command import CommandGateway  # noqa: PLC0415 - subprocesses, when used

        return running.lasting(CommandGateway)
    if kind == "embedded":
        from judgekit.providers.local import LocalGateway  # noqa: PLC0415 - the optional extra, when used

        return LocalGateway()
    from judgekit.providers.litellm import LitellmGateway  # noqa: PLC0415 - seconds of CPU, only when used

    return running.lasting(LitellmGateway)


before_asking: ContextVar[Callable[[], None] | None] = ContextVar("before_asking", default=None)
"""What is called whenever the current task is about to wait for a provider."""


def unpriced(endpoints: Iterable[Endpoint]) -> list[str]:
    """Return the models of whose calls nobody will say what they cost, each once.

    Raises what importing litellm does, whose table has most prices.
    """
    return list(dict.fromkeys(endpoint.model for endpoint in endpoints if not _has_price(endpoint)))


def _has_price(endpoint: Endpoint) -> bool:
    profile = endpoint.profile
    if profile.kind == "replay" or endpoint.price is not None or is_local(endpoint):
        return True
    if profile.kind == "command":
        return profile.usage is not None and profile.usage.cost is not None
    if profile.states_cost:
        return True
    from judgekit.providers import litellm  # noqa: PLC0415 - seconds of CPU, only when used

    return litellm.has_price(endpoint.model)


async def prepare(endpoint: Endpoint) -> None:
    """Load what asking an endpoint needs; what cannot be loaded fails again, and is said, when it is used."""
    if kind_of(endpoint) in ("litellm", "embedded"):
        from judgekit.providers import litellm  # noqa: PLC0415 - seconds of CPU, only when used

        with suppress(Exception):
            await litellm.loaded()


class Router:
    """A gateway that hands each request to the implementation of its endpoint's kind, opened when needed."""

    def __init__(self) -> None:
        self._opened: dict[Kind, Gateway] = {}

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply, as `Gateway.complete` says."""
        kind = kind_of(endpoint)
        if kind not in self._opened:
            self._opened[kind] = opened(kind)
        if asking := before_asking.get():
            asking()
        if not is_local(endpoint):
            return await self._opened[kind].complete(endpoint, request)
        try:
            reply = await self._opened[kind].complete(endpoint, request)
        except GatewayError as error:
            error.usage = free(error.usage or CallUsage())
            raise
        return replace(reply, usage=free(reply.usage))

    async def aclose(self) -> None:
        """Close what was opened."""
        gateways, self._opened = self._opened, {}
        for gateway in gateways.values():
            await gateway.aclose()


def is_recording(environ: Mapping[str, str]) -> bool:
    """Whether what models answer is recorded, so that each of them has to be asked."""
    return bool(environ.get(replay.RECORD_VARIABLE, "").strip())


_lent: ContextVar[Gateway | None] = ContextVar("gateway", default=None)


@contextmanager
def lending(gateway: Gateway) -> Iterator[None]:
    """While it is entered, `open_gateway` returns this one: in this thread or task, and those it starts."""
    before = _lent.set(gateway)
    try:
        yield
    finally:
        _lent.reset(before)


def open_gateway(environ: Mapping[str, str]) -> Gateway:
    """Return a gateway for every kind of endpoint; with `JUDGEKIT_RECORD` set it records what is answered."""
    recording = environ.get(replay.RECORD_VARIABLE, "").strip()
    router = _lent.get() or Router()
    return replay.Recorder(router, Path(recording)) if recording else router
