"""Validates a configuration for the hook, once per change: the part that needs pydantic and YAML.

Where a file cannot be validated, whether it switches the hook off is read without them: whatever is in
doubt counts as off.
"""

from __future__ import annotations

import os
import re
import sys

from judgekit import environment, programs
from judgekit.retrieval import compiled, quickjson

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    Found = dict[str, Any]


VARIABLE = "JUDGEKIT_RETRIEVAL_ENABLED"
_TRUE = ("true", "yes", "on", "1", "t", "y")  # what pydantic takes for a truth value
_MOST = 1_000_000  # characters of a file; no configuration has as many
# No section but `retrieval` has such a key, in a configuration of ours.
_KEY = re.compile(r"""(?<![\w.\\/-])["']?enabled["']?\s*:\s*["']?(\w*)""")


def is_off(project: str) -> bool:
    """Whether the first source that says so, in the order of authority, switches the hook off."""
    variable = os.environ.get(VARIABLE, "")
    if variable:
        return variable.lower() not in _TRUE
    user, own, foreign = environment.configuration_files(project)
    for enabled in (_enabled(_text(own)), _enabled_by_another(foreign, project), _enabled(_text(user))):
        if enabled is not None:
            return not enabled
    return False


def _enabled(text: str | None) -> bool | None:
    """Return whether all that a text says of `enabled` is that it is; None where it says nothing."""
    if text is None:
        return False
    words = _KEY.findall(text)
    return all(word.lower() in _TRUE for word in words) if words else None


def _enabled_by_another(path: str, project: str) -> bool | None:
    """Return what another tool's settings say; of those that lie outside the project, nothing."""
    if not os.path.realpath(path).startswith(os.path.join(os.path.realpath(project), "")):
        return None
    text = _text(path)
    try:
        found = quickjson.loads(text or "")
    except ValueError:  # which `enabled` is meant cannot be told
        return _enabled(text)
    section = found.get("retrieval") if isinstance(found, dict) else None
    said = section.get("enabled") if isinstance(section, dict) else None
    return None if said is None else said is True or str(said).lower() in _TRUE


def _text(path: str) -> str | None:
    """Return the text of a file, "" where there is none, None where it cannot be read."""
    if not os.path.lexists(path):
        return ""
    try:
        if os.path.isfile(path):  # a device may have no end
            with open(path, encoding="utf-8-sig", errors="replace") as file:
                return file.read(_MOST).replace("\0", "")  # of UTF-16 the letters are left
    except OSError:
        return None
    return None


def settings(project: str) -> tuple[Found, list[str]]:
    """Return the settings that hold in `project`; a line tells what is wrong and left at the default.

    They are `values` of the configuration, `trusted` roots of the user, and `profiles`, None for the bundled.
    """
    try:
        programs.make_importable()
        from judgekit.config import settings as config  # noqa: F401, PLC0415 - only whether it can be imported
    except ImportError as error:
        values = _unless_off(compiled.bundled()["settings"], project)
        going_on = "switched off, as configured" if not values["enabled"] else "using the defaults"
        found: Found = {"values": values, "trusted": [], "profiles": None}
        return found, [f"the configuration cannot be read ({error}); {going_on}"]
    values, trusted, notes = _values(project)
    profiles, more = _profiles(project)
    return {"values": values, "trusted": trusted, "profiles": profiles}, notes + more


def keep(path: str, key: str, found: Found, notes: list[str]) -> None:
    """Keep settings and what is wrong with them under `key`; what cannot be kept is validated again.

    Where nothing could be validated nothing is kept: what is missing may be there at the next prompt.
    """
    if sys.modules.get("judgekit.config.settings") is None:
        return
    try:
        environment.cache_folder(os.path.basename(os.path.dirname(path)))
        environment.write_private(path, quickjson.dumps({"key": key, **found, "notes": notes}))
    except OSError:
        return


def _values(project: str) -> tuple[dict[str, Any], list[str], list[str]]:
    from pathlib import Path  # noqa: PLC0415 - imported only after what they need can be

    from judgekit.config import settings as config  # noqa: PLC0415 - the same
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
        return values, [], [f"{problem}; using the defaults"]
    return _unless_off(values, project), roots, [f"{problem}; ignoring the project's settings"]


def _unless_off(values: dict[str, Any], project: str) -> dict[str, Any]:
    """Return `values`, switched off where a file or a variable that was not read whole says so."""
    return values | {"enabled": False} if is_off(project) else values


def _dumped(loaded: Any) -> dict[str, Any]:  # noqa: ANN401 - judgekit.config.settings.Config, which is imported late
    dumped = loaded.model_dump(mode="json")
    values: dict[str, Any] = dumped["retrieval"] | {"stop": dumped["stop"], "engine": dumped["engine"]}
    return values


def _profiles(project: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the profiles that a project or the user wrote; None where the bundled ones hold."""
    from pathlib import Path  # noqa: PLC0415 - imported only after what they need can be

    from judgekit.errors import ConfigError  # noqa: PLC0415 - the same
    from judgekit.retrieval.profiles import compile_profiles  # noqa: PLC0415 - the same

    try:
        found = compile_profiles(Path(project))
    except ConfigError as error:
        return None, [f"{error}; using the bundled profiles"]
    bundled = compiled.bundled()
    same = all(found[part] == bundled[part] for part in ("languages", "profiles"))
    return None if same else found, []
