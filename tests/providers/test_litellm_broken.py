"""An import of litellm that fails in whatever way: it is said, and nobody waits for it."""

from __future__ import annotations

import asyncio

import pytest

from judgekit.providers import litellm


@pytest.mark.parametrize("error", [ImportError, AttributeError, OSError, MemoryError])
def test_it_is_raised_where_it_is_needed(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> object:
        raise error("broken")

    class Nothing:
        currsize = 0

    broken.cache_info = lambda: Nothing  # type: ignore[attr-defined]
    monkeypatch.setattr(litellm, "_load", broken)

    async def run() -> None:
        async with asyncio.timeout(20):
            await litellm.loaded()

    with pytest.raises(error, match="broken"):
        asyncio.run(run())
