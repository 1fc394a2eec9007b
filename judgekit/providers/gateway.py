"""Opens the judge's gateway, a single object that reaches every kind of provider."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.errors import GatewayError, Usage, free
from judgekit.providers import replay
from judgekit.providers.base import Endpoint, Gateway, Reply, Request, is_local

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

borrowed: ContextVar[Gateway | None] = ContextVar("gateway", default=None)
"""Overrides the gateway that `open_gateway` returns in the current task."""


def unpriced(endpoints: Iterable[Endpoint]) -> list[str]:
    """List the models whose calls have no known price, each once; raises whatever importing litellm does."""
    found: dict[str, None] = {}
    for endpoint in endpoints:
        profile = endpoint.profile
        if profile.kind == "replay" or endpoint.price is not None or is_local(endpoint):
            continue
        if profile.kind == "command":
            is_priced = profile.usage is not None and profile.usage.cost is not None
        else:
            from judgekit.providers import litellm  # noqa: PLC0415 - seconds of CPU, only when used

            is_priced = profile.states_cost
            if not is_priced:
                cost_of_two_tokens = litellm.cost_of(endpoint, 1, 1)
                is_priced = cost_of_two_tokens is not None
        if not is_priced:
            found[endpoint.model] = None
    return list(found)


async def prepare(endpoint: Endpoint) -> None:
    """Load an endpoint's modules. A failed import is raised later, when the endpoint is used."""
    if endpoint.profile.kind in ("litellm", "decisions"):
        from judgekit.providers import litellm  # noqa: PLC0415 - seconds of CPU, only when used

        with suppress(Exception):
            await litellm.loaded()


@dataclass(eq=False)
class Router:
    _own: dict[str, Gateway] = field(default_factory=dict)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Ask the gateway for the endpoint's kind, opening it if need be."""
        # Connections and pacing are shared by the whole process.
        from judgekit.providers.running import shared_gateways  # noqa: PLC0415 - asyncio, when used

        lasting = shared_gateways()
        profile = endpoint.profile
        is_free = is_local(endpoint)
        if profile.kind == "litellm" and profile.embedded:
            kind = "embedded"
        elif profile.kind == "decisions":
            kind = "litellm"  # shares its pacing and connections
        else:
            kind = profile.kind
        gateway: Gateway | None = self._own.get(kind) or lasting.get(kind)
        if gateway is None and kind == "replay":
            gateway = self._own[kind] = replay.ReplayGateway()
        elif gateway is None and kind == "embedded":
            from judgekit.providers.local import LocalGateway  # noqa: PLC0415 - the optional extra

            gateway = self._own[kind] = LocalGateway(self)
        elif gateway is None and kind == "command":
            from judgekit.providers.command import CommandGateway  # noqa: PLC0415 - subprocesses

            gateway = lasting.setdefault(kind, CommandGateway())
        elif gateway is None:
            from judgekit.providers.litellm import LitellmGateway  # noqa: PLC0415 - seconds of CPU

            gateway = lasting.setdefault(kind, LitellmGateway())
        try:
            reply = await gateway.complete(endpoint, request)
        except GatewayError as error:
            if is_free:
                error.usage = free(error.usage or Usage())
            raise
        if is_free:
            return replace(reply, usage=free(reply.usage))
        return reply

    async def aclose(self) -> None:
        while self._own:
            await self._own.popitem()[1].aclose()


def is_recording(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(replay.RECORD_VARIABLE, "").strip())


def is_replaying(environ: Mapping[str, str]) -> bool:
    return bool(environ.get(replay.REPLAY_VARIABLE, "").strip())


def open_gateway(environ: Mapping[str, str]) -> Gateway:
    """Open a gateway for every kind of endpoint; with `JUDGEKIT_RECORD` set it records the answers."""
    recording = environ.get(replay.RECORD_VARIABLE, "").strip()
    router = borrowed.get() or Router()
    if recording:
        return replay.Recorder(router, Path(recording))
    return router
