"""The settings of the prompt hook, read without pydantic or YAML where that is possible.

Where no configuration exists, what is compiled into the package holds. Where one does, it is validated once
and kept as JSON in the cache folder for as long as its sources stay as they were.
"""

from __future__ import annotations

import os

import judgekit
from judgekit import paths
from judgekit.retrieval import cachefile, compiled, sqljson
from judgekit.retrieval.compiled import Profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FOLDER = "settings"
_FORMAT = 2  # of what is kept
_VARIABLES = ("JUDGEKIT_JUDGE_", "JUDGEKIT_GATE_", "JUDGEKIT_RETRIEVAL_")  # all that are validated together
_MEMORY_CONFIG = os.path.join(paths.MEMORY, "memory-config.json")


class Settings:
    """What the hook goes by: the keys of the `retrieval` section of the configuration, and the profiles.

    `trusted` are the roots that the user named, and no project.
    """

    __slots__ = ("profiles", "project", "trusted", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        profiles: Mapping[str, Any],
        project: str,
        trusted: Sequence[str] = (),
    ) -> None:
        self.values, self.profiles, self.project = values, Profiles(profiles), project
        self.trusted = trusted

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - a setting is a truth value, number, text or list
        return self.values[key]


def load(project: str) -> tuple[Settings, list[str]]:
    """Return the settings that hold in `project`, and a line for stderr about each file that is wrong."""
    environment = _variables()
    sources = _stamps(_sources(project))
    if not environment and not any(sources.values()):
        defaults = compiled.bundled()
        return Settings(defaults["settings"], defaults, project), []
    key = repr([_FORMAT, judgekit.__version__, project, environment, sources])
    kept = _kept(project)
    if kept.get("key") == key:
        return Settings(kept["values"], kept["profiles"], project, kept["trusted"]), []
    return _compile(project, key)


def descriptions(root: str) -> dict[str, str]:
    """Return the descriptions of categories that a store's memory-config.json gives, by category."""
    path = os.path.join(root, "memory-config.json")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = sqljson.loads(file.read(1_000_000))
    except (OSError, ValueError):
        return {}
    categories = found.get("categories") if isinstance(found, dict) else None
    if not isinstance(categories, dict):
        return {}
    described = {name: each.get("description") for name, each in categories.items() if isinstance(each, dict)}
    return {name: text for name, text in described.items() if isinstance(text, str) and text.strip()}


def _sources(project: str) -> list[str]:
    """Return every file and folder that can change the settings, whether it exists or not."""
    user = paths.config_home()
    own = os.path.join(project, ".judgekit")
    folders = [os.path.join(own, "retrieval"), os.path.join(user, "retrieval")]
    files = [
        os.path.join(user, "config.yaml"),
        os.path.join(own, "config.yaml"),
        os.path.join(project, _MEMORY_CONFIG),
    ]
    return [*files, *folders, *(path for folder in folders for path in _files(folder))]


def _files(folder: str) -> list[str]:
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder))
    except OSError:
        return []


def _stamps(sources: list[str]) -> dict[str, list[int]]:
    stamps: dict[str, list[int]] = {}
    for path in sources:
        try:
            status = os.stat(path)
        except OSError:
            stamps[path] = []
        else:
            stamps[path] = [status.st_size, status.st_mtime_ns]
    return stamps


def _variables() -> dict[str, str]:
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)}


def _path(project: str) -> str:
    return os.path.join(cachefile.folder(FOLDER), cachefile.name_for(project) + ".json")


def _kept(project: str) -> dict[str, Any]:
    try:
        with open(_path(project), encoding="utf-8") as file:
            found = sqljson.loads(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _compile(project: str, key: str) -> tuple[Settings, list[str]]:
    """Validate the configuration and keep the result; what is wrong is left at the default, and not kept."""
    from pathlib import Path  # noqa: PLC0415 - once per change of the configuration

    from judgekit import config  # noqa: PLC0415 - the same
    from judgekit.errors import ConfigError  # noqa: PLC0415 - the same
    from judgekit.retrieval import profile  # noqa: PLC0415 - the same

    defaults, notes = compiled.bundled(), []
    trusted: list[str] = []
    values, profiles = defaults["settings"], defaults
    try:
        values = config.load(Path(project)).model_dump(mode="json")["retrieval"]
        trusted = config.user_roots() or []
    except ConfigError as error:
        # What the user said holds although a project's file is wrong: `enabled: false` above all.
        try:
            values = config.load(None).model_dump(mode="json")["retrieval"]
            trusted = config.user_roots() or []
            notes.append(f"{error}; going on without the project's settings")
        except ConfigError:
            notes.append(f"{error}; going on with the defaults")
    try:
        profiles = profile.compile_profiles(Path(project))
    except ConfigError as error:
        notes.append(f"{error}; going on with the bundled profiles")
    if not notes:  # what is wrong may be put right by something that is not in the key
        kept = {"key": key, "values": values, "profiles": profiles, "trusted": trusted}
        _keep(project, sqljson.dumps(kept))
    return Settings(values, profiles, project, trusted), notes


def _keep(project: str, text: str) -> None:
    try:
        cachefile.write(_path(project), text)
    except OSError:  # it will be validated again at the next prompt
        return
