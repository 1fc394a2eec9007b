"""How both doors run uvicorn: one application, given later, that says nothing by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    import asyncio


def settings(protocol: type[asyncio.Protocol], drain_seconds: int, **more: Any) -> uvicorn.Config:  # noqa: ANN401 - uvicorn's own
    """Return the settings of a server that speaks HTTP by `protocol` and finishes what it has begun."""
    return uvicorn.Config(
        "",
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=drain_seconds,
        **more,
    )
