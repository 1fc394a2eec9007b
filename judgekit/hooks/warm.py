"""Whether the engine is asked here, and how a client that may wait comes by one."""

from __future__ import annotations

from judgekit import paths
from judgekit.engine import client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.hooks import settings


def wanted() -> bool:
    """Whether the user's configuration and the variables let the engine be asked; no project has a say."""
    from judgekit.hooks import settings  # noqa: PLC0415 - a hook that has its settings reads none

    return client.wanted() and allowed(settings.load(paths.config_home())[0])


def allowed(configured: settings.Settings) -> bool:
    """Whether these settings let the engine be asked."""
    return configured.values.get("engine", {}).get("use", True) is not False


def connection(says: Callable[[str], None]) -> client.Connection | None:
    """Return a connection to the engine, started where none runs; None where none is wanted or can be.

    In the latter case `says` is told so in a line.
    """
    if not wanted():
        return None
    try:
        return client.connect_or_start()
    except client.NoEngine as error:
        says(f"no engine could be started ({error}): going on in this process")
        return None
