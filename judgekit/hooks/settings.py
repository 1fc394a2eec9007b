"""The settings of the prompt hook, read without pydantic or YAML where that is possible.

Where no configuration exists, what is compiled into the package holds. Where one does, it is validated once
(see configure.py) and kept as JSON in the cache folder for as long as its sources stay as they were.
"""

from __future__ import annotations

import os

from judgekit import environment
from judgekit.retrieval import compiled, quickjson
from judgekit.retrieval.compiled import Profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FOLDER = "settings"
_FORMAT = 6  # of what is kept
WRONG_SECONDS = 600  # that what is wrong is kept: something that is not in the key may put it right
_SECTIONS = (
    "JUDGE",
    "RETRIEVAL",
    "GATE",
    "ESCALATE",
    "STOP",
    "ENGINE",
)  # that variables are validated of, together
_VARIABLES = tuple(f"JUDGEKIT_{section}_" for section in _SECTIONS)


class Settings:
    """What the hook goes by: the keys of the `retrieval` section of the configuration, and the profiles.

    The sections `stop` and `engine` are more of these keys, where a file or a variable says anything at all.

    `trusted` are the roots that the user named, and no project; `data` is what the profiles are made of.
    """

    __slots__ = ("_made", "data", "project", "trusted", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        profiles: Mapping[str, Any] | None,
        project: str,
        trusted: Sequence[str] = (),
    ) -> None:
        self.values, self.project, self.trusted = values, project, trusted
        self.data = profiles or compiled.bundled()
        self._made: Profiles | None = None

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - a setting is a truth value, number, text or list
        return self.values[key]

    @property
    def profiles(self) -> Profiles:
        """How each kind of store is read and ranked."""
        if self._made is None:
            self._made = Profiles(self.data)
        return self._made


def load(project: str) -> tuple[Settings, list[str]]:
    """Return the settings that hold in `project`, and a line for stderr about each file that is wrong."""
    variables = [item for item in environment.environ().items() if item[0].startswith(_VARIABLES)]
    stamps = _stamps(project)
    if not variables and not stamps:
        return Settings(compiled.bundled()["settings"], None, project), []
    key = repr([_FORMAT, environment.__version__, project, sorted(variables), stamps])
    kept = _kept(project, key)
    if kept is not None:
        return _made(kept, project), kept["notes"]
    from judgekit.hooks import configure  # noqa: PLC0415 - once per change of the configuration

    found, notes = configure.settings(project)
    configure.keep(path(project), key, found, notes)
    return _made(found, project), notes


def _made(found: Mapping[str, Any], project: str) -> Settings:
    return Settings(found["values"], found["profiles"], project, found["trusted"])


def path(project: str) -> str:
    """Return where the settings of a project are kept."""
    return os.path.join(environment.cache_home(), FOLDER, environment.file_name_for(project) + ".json")


def descriptions(root: str) -> dict[str, str]:
    """Return the descriptions of categories that a store's memory-config.json gives, by category."""
    source = os.path.join(root, environment.MEMORY_CONFIG)
    if not os.path.isfile(source):  # reading a device may never end
        return {}
    if not os.path.realpath(source).startswith(os.path.realpath(root).rstrip(os.sep) + os.sep):
        return {}
    try:
        with open(source, encoding="utf-8", errors="replace", newline="\n") as file:
            found = quickjson.loads(file.read(1_000_000))
    except (OSError, ValueError):
        return {}
    categories = found.get("categories") if isinstance(found, dict) else None
    if not isinstance(categories, dict):
        return {}
    described = {name: each.get("description") for name, each in categories.items() if isinstance(each, dict)}
    return {name: text for name, text in described.items() if isinstance(text, str) and text.strip()}


def _stamps(project: str) -> list[tuple[str, int, int, int, int]]:
    """Return what tells that a file which can change the settings changed; nothing of one that is missing.

    The size and the time of change alone would miss what was copied over it together with its time.
    """
    found = environment.configuration_files(project)
    for home in (os.path.join(project, ".judgekit"), environment.config_home()):
        folder = os.path.join(home, "retrieval")
        found += [folder, *_inside(folder)]
    stamps = []
    for each in found:
        try:
            status = os.stat(each)
        except OSError:
            continue
        stamps.append((each, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return stamps


def _inside(folder: str) -> list[str]:
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder))
    except OSError:
        return []


def _kept(project: str, key: str) -> dict[str, Any] | None:
    """Return the settings that were kept under `key`."""
    try:
        with open(path(project), encoding="utf-8", newline="\n") as file:
            found = quickjson.loads(file.read())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("key") != key:
        return None
    return None if found["notes"] and _age(path(project)) > WRONG_SECONDS else found


def _age(path: str) -> float:
    """Return the seconds since a file was written, however the clock was set meanwhile."""
    import time  # noqa: PLC0415 - built in, and only where something is wrong

    return abs(time.time() - os.stat(path).st_mtime)
