"""The gateway to a model that runs here: its server is started for the first call and ends with us."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from judgekit.errors import FailureKind, GatewayError, JudgekitError
from judgekit.local import models
from judgekit.local.server import LocalServer
from judgekit.provider import LitellmProfile

if TYPE_CHECKING:
    from judgekit.gateway.base import Endpoint, Gateway, Reply, Request


class LocalGateway:
    """Reaches models by catalogue name or GGUF path through `inner`, which speaks OpenAI's wire format.

    One server a model, shared by all gateways of the process: it ends with the last that used it. Waiting
    for it to load counts against the call's deadline; a server that was not up in time goes on loading for
    the next call.
    """

    def __init__(self, inner: Gateway | None = None) -> None:
        self._inner = inner

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return the model's reply, as `Gateway.complete` says."""
        started, profile = time.monotonic(), endpoint.profile
        if not isinstance(profile, LitellmProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a model that runs here")
        server = self._launched(profile.bare_name(endpoint.model))
        await server.ready(request.timeout)
        left = request.timeout - (time.monotonic() - started)
        if left <= 0:
            raise GatewayError(FailureKind.TIMEOUT, f"{server.model}: loading took all of the deadline")
        here = replace(
            endpoint,
            model=profile.full_name(server.model),
            api_base=server.base_url,
            api_key=server.api_key,
        )
        return await self._delegate().complete(here, replace(request, timeout=left))

    async def aclose(self) -> None:
        """End the servers that nobody else uses."""
        unused: list[LocalServer] = []
        with _lock:
            for name, (server, users) in list(_servers.items()):
                users.discard(self)
                if not users:
                    unused.append(server)
                    del _servers[name]
        for server in unused:
            server.stop()
        if self._inner is not None:
            await self._inner.aclose()

    def _launched(self, name: str) -> LocalServer:
        with _lock:
            server, users = _servers.get(name, (None, set[LocalGateway]()))
            if server is None or not server.alive:
                server = _launch(name)
            users.add(self)
            _servers[name] = server, users
        return server

    def _delegate(self) -> Gateway:
        if self._inner is None:
            from judgekit.gateway import one_loop  # noqa: PLC0415 - asyncio
            from judgekit.gateway.litellm_ import LitellmGateway  # noqa: PLC0415 - seconds of CPU

            self._inner = one_loop.lasting(LitellmGateway)
        return self._inner


_lock = threading.Lock()
_servers: dict[str, tuple[LocalServer, set[LocalGateway]]] = {}


def _launch(name: str) -> LocalServer:
    try:
        server = LocalServer(models.resolve(name))
        server.launch()
    except GatewayError:
        raise
    except JudgekitError as error:
        raise GatewayError(FailureKind.NOT_FOUND, str(error)) from None
    except OSError as error:
        raise GatewayError(FailureKind.COMMAND_FAILED, f"llama.cpp could not be started: {error}") from None
    return server
