"""Opens the judge's gateway, a single object that reaches every kind of provider."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.errors import GatewayError, Usage, set_local_cost
from judgekit.providers import replay
from judgekit.providers.base import Endpoint, Gateway, Reply, Request, is_local

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

borrowed_gateway: ContextVar[Gateway | None] = ContextVar("gateway", default=None)
"""A gateway that other code has already opened, for `open_gateway` to return in the current task."""


def list_unpriced_models(endpoints: Iterable[Endpoint]) -> list[str]:
    """Return the names of the models without a known price. Raises if litellm can't be imported."""
    models = []
    for endpoint in endpoints:
        if endpoint.model not in models and not _has_price(endpoint):
            models.append(endpoint.model)
    return models


def _has_price(endpoint: Endpoint) -> bool:
    """Whether the cost of a model's calls is known, or its replies include it."""
    profile = endpoint.profile
    if profile.kind == "replay":  # replayed calls are free
        return True
    if endpoint.price is not None or is_local(endpoint):
        return True
    if profile.kind == "command":
        return profile.usage is not None and profile.usage.cost is not None
    if profile.states_cost:
        return True
    from judgekit.providers import litellm  # noqa: PLC0415 - imported lazily because it's slow

    # Any numbers of tokens would do, because only an unknown price gives None.
    return litellm.compute_cost(endpoint, 1, 1) is not None


async def prepare(endpoint: Endpoint) -> None:
    """Import the modules that an endpoint needs, before its first call.

    Errors are ignored, because the first call raises them again.
    """
    if endpoint.profile.kind in ("litellm", "decisions"):
        from judgekit.providers import litellm  # noqa: PLC0415 - imported lazily because it's slow

        with suppress(Exception):
            await litellm.load_in_thread()


@dataclass(eq=False)
class Router:
    _own_gateways: dict[str, Gateway] = field(default_factory=dict)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Call a model through the gateway for its kind of endpoint."""
        gateway = self._find_gateway(endpoint)
        if not is_local(endpoint):
            return await gateway.complete(endpoint, request)
        # A local model costs nothing, even if its reply includes a cost.
        try:
            reply = await gateway.complete(endpoint, request)
        except GatewayError as error:
            error.usage = set_local_cost(error.usage or Usage())
            raise
        return replace(reply, usage=set_local_cost(reply.usage))

    def _find_gateway(self, endpoint: Endpoint) -> Gateway:
        """Return the gateway for an endpoint's kind of provider. Open one if there isn't one yet."""
        from judgekit.providers.running import shared_gateways  # noqa: PLC0415 - imported lazily because it's slow

        shared = shared_gateways()
        kind = _name_gateway_kind(endpoint)
        gateway: Gateway | None = self._own_gateways.get(kind) or shared.get(kind)
        if gateway is not None:
            return gateway

        # Gateways for recordings and embedded models aren't shared with other routers.
        if kind in ("replay", "embedded"):
            own_gateway = self._make_own(kind)
            self._own_gateways[kind] = own_gateway
            return own_gateway
        # All others are shared by the process, because they have connections and limit the rate of calls.
        # `setdefault` is atomic, so all threads get the same gateway.
        shared_gateway: Gateway = shared.setdefault(kind, _make_shared(kind))
        return shared_gateway

    def _make_own(self, kind: str) -> Gateway:
        """Make a gateway that only this router uses."""
        if kind == "replay":
            return replay.ReplayGateway()
        from judgekit.providers.local import LocalGateway  # noqa: PLC0415 - imported lazily because it's optional

        return LocalGateway(self)

    async def aclose(self) -> None:
        """Close this router's own gateways; the shared ones stay open until the process ends."""
        while self._own_gateways:
            _, gateway = self._own_gateways.popitem()
            await gateway.aclose()


def _name_gateway_kind(endpoint: Endpoint) -> str:
    """Name the kind of gateway that reaches an endpoint: replay, embedded, command or litellm."""
    profile = endpoint.profile
    if profile.kind == "litellm" and profile.embedded:
        return "embedded"
    if profile.kind == "decisions":
        return "litellm"  # to share its pacing and connections
    return profile.kind


def _make_shared(kind: str) -> Gateway:
    """Make a gateway that all routers of the process share."""
    if kind == "command":
        from judgekit.providers.command import CommandGateway  # noqa: PLC0415 - imported lazily because it's rarely needed

        return CommandGateway()
    from judgekit.providers.litellm import LitellmGateway  # noqa: PLC0415 - imported lazily because it's slow

    return LitellmGateway()


def is_recording(environ: Mapping[str, str]) -> bool:
    """Whether replies are to be recorded in a file."""
    return bool(environ.get(replay.RECORD_VARIABLE, "").strip())


def is_replaying(environ: Mapping[str, str]) -> bool:
    """Whether replies come from a recording."""
    return bool(environ.get(replay.REPLAY_VARIABLE, "").strip())


def open_gateway(environ: Mapping[str, str]) -> Gateway:
    """Return one gateway for all kinds of endpoints: `borrowed_gateway` if it's set, or else a new router.

    If `JUDGEKIT_RECORD` names a file, all replies are recorded there.
    """
    gateway = borrowed_gateway.get() or Router()
    recording_path = environ.get(replay.RECORD_VARIABLE, "").strip()
    if recording_path:
        return replay.Recorder(gateway, Path(recording_path))
    return gateway
