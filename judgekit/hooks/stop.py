"""Answers the client's `Stop` event: what an agent leaves behind is judged before it stops.

Off unless the user switches it on, and then a nudge, never a lock: only findings of models that rejected the
work, or want it improved, ask the agent to go on. Whatever fails lets it stop.
"""

from __future__ import annotations

GRACE = 8.0  # seconds beside its deadline for imports, files and the ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def answer(payload: Mapping[str, Any], project: str) -> tuple[str, list[str]]:
    """Return what the hook prints, and its lines for stderr."""
    if payload.get("stop_hook_active"):  # it goes on because of a hook already: never twice in a row
        return "", []
    from judgekit.hooks import settings  # noqa: PLC0415 - a second stop ends above

    configured, _ = settings.load(project)  # what is wrong there the next prompt says
    if configured.values.get("stop", {}).get("judge") != "on":
        return "", []
    from judgekit import programs  # noqa: PLC0415 - only where it is switched on
    from judgekit.hooks import stop_judged, watchdog  # noqa: PLC0415 - the same

    watchdog.extend(configured.values["stop"]["deadline"] + GRACE)
    programs.make_importable()
    return stop_judged.answer(payload, project, configured.values["stop"])
