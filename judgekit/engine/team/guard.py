"""Lets in who holds a token, before anything of a request's body is read, and counts what was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.engine.door import HOLDER, refuse
from judgekit.errors import JudgekitError

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from judgekit.engine.log import Log
    from judgekit.engine.team.metrics import Metrics
    from judgekit.engine.team.tokens import Tokens

_SCHEME = b"bearer "
_DAMAGED_SECONDS = 30  # until somebody may have mended the file of tokens


class Guard:
    """An ASGI application before another one: 401 without a token, but for the paths in `free`."""

    def __init__(
        self, app: ASGIApp, tokens: Tokens, metrics: Metrics, free: Collection[str], log: Log
    ) -> None:
        self._app, self._tokens, self._metrics, self._free, self._log = app, tokens, metrics, free, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say that its token is nobody's."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.inside.track_inprogress():
            try:
                free = scope["path"] in self._free
                scope[HOLDER] = None if free else self._holder(dict(scope["headers"]))
            except JudgekitError as error:
                self._log.fault(error)
                await refuse(noting, 503, "config", "the server cannot read its tokens", _DAMAGED_SECONDS)
            else:
                if free or scope[HOLDER] is not None:
                    await self._app(scope, receive, noting)
                else:
                    told = "send a token of this server: Authorization: Bearer jk_…"
                    await refuse(noting, 401, "token", told, 0)
        # Named by what is there: a stranger's paths are no labels.
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, str(status)).inc()

    def _holder(self, headers: dict[bytes, bytes]) -> str | None:
        given = headers.get(b"authorization", b"")
        if given[: len(_SCHEME)].lower() != _SCHEME:
            return None
        return self._tokens.holder(given[len(_SCHEME) :].decode("latin-1").strip())
