"""Validates a configuration for the hook: the part that needs pydantic and YAML, once per change."""

from __future__ import annotations

import os
import sys

from judgekit import programs
from judgekit.retrieval import cachefile, compiled, sqljson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Found = dict[str, Any]


def settings(project: str) -> tuple[Found, list[str]]:
    """Return the settings that hold in `project`; a line tells what is wrong and left at the default.

    They are `values` of the configuration, `trusted` roots of the user, and `profiles`, None for the bundled.
    """
    try:
        programs.make_importable()
        from judgekit import config  # noqa: F401, PLC0415 - only whether it can be imported
    except ImportError as error:
        values = _unless_off(compiled.bundled()["settings"], project)
        going_on = "switched off, as it says" if not values["enabled"] else "going on with the defaults"
        found: Found = {"values": values, "trusted": [], "profiles": None}
        return found, [f"the configuration is not read ({error}); {going_on}"]
    values, trusted, notes = _values(project)
    profiles, more = _profiles(project)
    return {"values": values, "trusted": trusted, "profiles": profiles}, notes + more


def keep(path: str, key: str, found: Found, notes: list[str]) -> None:
    """Keep settings and what is wrong with them under `key`; what cannot be kept is validated again.

    Where nothing could be validated nothing is kept: what is missing may be there at the next prompt.
    """
    if sys.modules.get("judgekit.config") is None:
        return
    try:
        cachefile.folder(os.path.basename(os.path.dirname(path)))
        cachefile.write(path, sqljson.dumps({"key": key, **found, "notes": notes}))
    except OSError:
        return


def _values(project: str) -> tuple[dict[str, Any], list[str], list[str]]:
    from pathlib import Path  # noqa: PLC0415 - imported only after what they need can be

    from judgekit import config  # noqa: PLC0415 - the same
    from judgekit.errors import ConfigError  # noqa: PLC0415 - the same

    try:
        return _dumped(config.load(Path(project))), config.user_roots() or [], []
    except ConfigError as error:
        problem = str(error)
    # What the user said holds although a project's file is wrong, and `enabled: false` wherever it stands.
    try:
        values, roots = _dumped(config.load(None)), config.user_roots() or []
    except ConfigError:
        values = _unless_off(compiled.bundled()["settings"], project)
        return values, [], [f"{problem}; going on with the defaults"]
    return _unless_off(values, project), roots, [f"{problem}; going on without the project's settings"]


def _unless_off(values: dict[str, Any], project: str) -> dict[str, Any]:
    """Return `values`, switched off where a file or a variable that was not read whole says so."""
    from judgekit.hooks import switch  # noqa: PLC0415 - only where something is wrong

    return values | {"enabled": False} if switch.is_off(project) else values


def _dumped(loaded: Any) -> dict[str, Any]:  # noqa: ANN401 - judgekit.config.Config, which is imported late
    dumped = loaded.model_dump(mode="json")
    values: dict[str, Any] = dumped["retrieval"] | {"stop": dumped["stop"], "engine": dumped["engine"]}
    return values


def _profiles(project: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the profiles that a project or the user wrote; None where the bundled ones hold."""
    from pathlib import Path  # noqa: PLC0415 - imported only after what they need can be

    from judgekit.errors import ConfigError  # noqa: PLC0415 - the same
    from judgekit.retrieval import profile  # noqa: PLC0415 - the same

    try:
        found = profile.compile_profiles(Path(project))
    except ConfigError as error:
        return None, [f"{error}; going on with the bundled profiles"]
    bundled = compiled.bundled()
    same = all(found[part] == bundled[part] for part in ("languages", "profiles"))
    return None if same else found, []
