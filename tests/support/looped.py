"""Asynchronous tests, each in an event loop of its own and with a bound on its time."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import ParamSpec

    Given = ParamSpec("Given")

SECONDS = 60.0  # after which a test is broken


def looped(test: Callable[Given, Awaitable[None]]) -> Callable[Given, None]:

    @wraps(test)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(SECONDS):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run
