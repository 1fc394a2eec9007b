"""Answers the client's `SessionStart` event: where prompts are judged, the engine is made ready.

Nothing is printed, and nothing waits for it.
"""

from __future__ import annotations


def begin(project: str) -> None:
    """Start the engine, unless it runs or prompts are not judged here."""
    from judgekit.hooks import settings  # noqa: PLC0415 - most events are prompts

    configured, _ = settings.load(project)  # what is wrong there the first prompt says
    if not configured["enabled"] or configured["judge"] != "on":
        return
    from judgekit.engine import client  # noqa: PLC0415 - only where judging is on
    from judgekit.hooks import warm  # noqa: PLC0415 - the same

    if client.wanted() and warm.allowed(configured):
        try:
            client.start_for_later()
        except client.NoEngine:  # in vain lately; the first prompt says so
            return
