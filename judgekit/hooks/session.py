"""The client's other events: a session's start warms the engine, an edited memory is indexed.

An agent that stops may have what it leaves behind judged: off unless the user switches it on, and then a
nudge, never a lock. Whatever fails lets it stop.
"""

from __future__ import annotations

import os

from judgekit import environment

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from judgekit.hooks import settings


TOOLS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
GRACE = 8.0  # seconds beside its deadline in which a stop is judged, for imports, files and the ledger


def answer(event: str, payload: Mapping[str, Any], project: str) -> tuple[str, list[str]]:
    """Return what the hook prints for an event, and its lines for stderr."""
    if event == "Stop":
        return stop(payload, project)
    if event == "SessionStart":
        begin(project)
    else:
        refresh(payload, project)
    return "", []


def refresh(payload: Mapping[str, Any], project: str) -> None:
    """Read the file that a tool wrote into the indexes that hold it; nothing is printed."""
    path = payload.get("tool_input.file_path") or payload.get("tool_input.notebook_path")
    if payload.get("tool_name") not in TOOLS or not isinstance(path, str) or "\0" in path:
        return
    from judgekit.retrieval.compiled import ENDINGS  # noqa: PLC0415 - most tools write no file

    if not path.lower().endswith(ENDINGS):
        return
    from judgekit.hooks import settings  # noqa: PLC0415 - most edits end above
    from judgekit.retrieval import index  # noqa: PLC0415 - the same

    configured, _ = settings.load(project)
    if configured["enabled"]:
        index.refresh_file(os.path.join(str(payload.get("cwd") or project), path), configured.profiles)


def begin(project: str) -> None:
    """Start the engine, unless it runs or prompts are not judged here."""
    from judgekit.hooks import settings  # noqa: PLC0415 - most events are prompts

    configured, _ = settings.load(project)  # what is wrong there the first prompt says
    if not configured["enabled"] or configured["judge"] != "on":
        return
    from judgekit.engine import client  # noqa: PLC0415 - where prompts are not judged, no engine is needed

    if client.wanted() and allowed(configured):
        try:
            client.start_for_later()
        except client.NoEngine:  # in vain lately; the first prompt says so
            return


def stop(payload: Mapping[str, Any], project: str) -> tuple[str, list[str]]:
    """Return what the hook prints when an agent stops, and its lines for stderr."""
    if payload.get("stop_hook_active"):  # it goes on because of a hook already: never twice in a row
        return "", []
    from judgekit.hooks import settings  # noqa: PLC0415 - a second stop ends above

    configured, _ = settings.load(project)  # what is wrong there the next prompt says
    if configured.values.get("stop", {}).get("judge") != "on":
        return "", []
    from judgekit import programs  # noqa: PLC0415 - only where it is switched on
    from judgekit.hooks import watchdog  # noqa: PLC0415 - the same

    watchdog.extend(configured.values["stop"]["deadline"] + GRACE)
    programs.make_importable()
    from judgekit.hooks import stop  # noqa: PLC0415 - imported only after what it needs can be

    return stop.answer(payload, project, configured.values["stop"])


def wanted() -> bool:
    """Whether the user's configuration and the variables let the engine be asked; no project has a say."""
    from judgekit.engine import client  # noqa: PLC0415 - an edit needs no engine
    from judgekit.hooks import settings  # noqa: PLC0415 - a hook that has its settings reads none

    return client.wanted() and allowed(settings.load(environment.config_home())[0])


def allowed(configured: settings.Settings) -> bool:
    """Whether these settings let the engine be asked."""
    return configured.values.get("engine", {}).get("use", True) is not False
