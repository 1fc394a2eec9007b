"""Runs a coroutine to its end, also where an event loop runs already (a notebook, an application)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Value = TypeVar("Value")


def run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Return what the coroutine returns; inside a running loop it gets a thread and a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, asyncio.run, coroutine).result()
