"""Says what an address offers when the model that was asked for is gone."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from judgekit.errors import GatewayError

if TYPE_CHECKING:
    from judgekit.gateway.base import Endpoint
    from judgekit.provider import LitellmProfile

SHOWN = 5


async def offered(endpoint: Endpoint, profile: LitellmProfile, seconds: float) -> list[str]:
    """Return the models that the address lists, those with the nearest names first; empty when it does not.

    `seconds` bounds the whole question.
    """
    import asyncio  # noqa: PLC0415 - on the way of a failure only

    import httpx  # noqa: PLC0415 - comes with litellm, and is as heavy

    from judgekit.gateway import bounded  # noqa: PLC0415 - the same

    if profile.models_path is None or endpoint.api_base is None or seconds <= 0:
        return []
    url = endpoint.api_base.rstrip("/") + profile.models_path
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    try:
        with bounded.replies():
            async with asyncio.timeout(seconds), httpx.AsyncClient(timeout=seconds) as client:
                listed = (await client.get(url, headers=headers)).json()["data"]
                names = [str(each["id"]) for each in listed]
    except (GatewayError, httpx.HTTPError, TimeoutError, ValueError, KeyError, TypeError, RecursionError):
        return []
    bare = profile.bare_name(endpoint.model)
    near = difflib.get_close_matches(bare, names, n=SHOWN, cutoff=0.3)
    return [*near, *(name for name in names if name not in near)]


def gone(endpoint: Endpoint, names: list[str]) -> str:
    """Return the sentence for a model that is not there."""
    place = endpoint.api_base or endpoint.profile.title
    words = f"{place} has no model {endpoint.model}"
    if not names:
        return f"{words}; name another in the configuration"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{words}; it offers {', '.join(names[:SHOWN])}{more}"
