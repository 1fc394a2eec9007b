"""The settings of the hooks, read without pydantic or YAML if possible.

Without any configuration, the values compiled into the package apply. A configuration is validated once for
each change and kept as JSON in the cache folder. If it can't be validated, `enabled: false` in any of its
files still applies, and anything in doubt counts as off.
"""

from __future__ import annotations

import os
import time

from judgekit import environment
from judgekit.retrieval import compiled, quickjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENABLED_VARIABLE = "JUDGEKIT_RETRIEVAL_ENABLED"
DISABLED_FOLDERS_VARIABLE = "JUDGEKIT_RETRIEVAL_DISABLED_IN"
_DISABLED_FOLDERS_KEY = "disabled_in"  # the key in the user's file
WRONG_SECONDS = 600  # to keep a failed validation: something outside the key may fix it
_FORMAT_VERSION = 10  # of the kept file
# Variables of these sections are validated together.
_VALIDATED_VARIABLE_PREFIXES = tuple(
    f"JUDGEKIT_{of}_" for of in ("JUDGE", "RETRIEVAL", "GATE", "ESCALATE", "STOP", "ENGINE")
)
_TRUE_WORDS = ("true", "yes", "on", "1", "t", "y")  # pydantic's truth values
_MAX_FILE_CHARS = 1_000_000  # characters of a file; no configuration has as many
_ADDS_NOTHING = "the hook is switched off here and adds nothing"
# No section but `retrieval` has such a key, in a configuration of ours.
_ENABLED_KEY_PATTERN = r"""(?<![\w.\\/-])["']?enabled["']?\s*:\s*["']?(\w*)"""


class Settings:
    """The hooks' settings: `values` are the keys of the configuration's section `retrieval`.

    Its sections `stop` and `engine` are further keys, if a file or a variable sets anything in them.
    `trusted_roots` are the roots named by the user, not by a project; `profiles` say how each kind of store
    is read and ranked.
    """

    __slots__ = ("profiles", "project", "trusted_roots", "values")

    def __init__(self, data: dict[str, Any], project: str) -> None:
        self.values = data["values"]
        self.project = project
        self.trusted_roots = data["trusted"]
        self.profiles = compiled.Profiles(data["profiles"] or compiled.get_bundled_data())

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - a setting is a truth value, number, text or list
        return self.values[key]


def load(project: str) -> tuple[Settings, list[str]]:
    """Load the settings for `project`. Also returns messages about problems in the files.

    Validation is slow, so its result is stored and used until a file, a variable or this program changes.
    """
    stamps = _stamp_sources(project)
    variables = []
    for name, value in environment.environ().items():
        if name.startswith(_VALIDATED_VARIABLE_PREFIXES):
            variables.append((name, value))

    if not variables and not stamps:  # nothing is configured
        defaults = {
            "values": compiled.get_bundled_data()["settings"],
            "trusted": [],
            "profiles": None,
        }
        return Settings(defaults, project), []

    # The key contains everything that the settings depend on.
    key = repr([_FORMAT_VERSION, environment.__version__, project, sorted(variables), stamps])
    path = environment.HOOK_SETTINGS.path(environment.make_file_name(project) + ".json")
    data = _read_stored(path, key)
    if data is None:
        data, can_be_stored = _validate(project)
        if can_be_stored:
            _store(path, {"key": key, **data})

    return Settings(data, project), data["notes"]


def _stamp_sources(project: str) -> list[tuple[str, Any]]:
    """List the files and folders that configure the hooks, each with a stamp that differs after a change.

    Missing files are omitted.
    """
    sources = environment.configuration_files(project)
    for home in (os.path.join(project, ".judgekit"), environment.config_home()):
        folder = os.path.join(home, "retrieval")
        sources.append(folder)
        try:
            sources += sorted(os.path.join(folder, name) for name in os.listdir(folder))
        except OSError:
            continue

    stamps = []
    for source in sources:
        stamp = environment.get_file_stamp(source)
        if stamp:
            stamps.append((source, stamp))
    return stamps


def _read_stored(path: str, key: str) -> dict[str, Any] | None:
    """Return the stored settings if they were validated for the same `key`, otherwise None.

    Settings with problems expire after a while, since the problem's cause isn't always part of the key.
    """
    data = quickjson.load(path)
    try:
        age = abs(time.time() - os.stat(path).st_mtime)  # `abs`, in case the clock was set back
        is_outdated = bool(data["notes"]) and age > WRONG_SECONDS
        if data["key"] != key or is_outdated:
            return None
    except (OSError, TypeError, KeyError):
        return None
    return dict(data)


def _store(path: str, data: dict[str, Any]) -> None:
    """Store validated settings for later processes. If that fails, they'll validate again."""
    from judgekit import outputs  # noqa: PLC0415 - only needed to write

    try:
        environment.HOOK_SETTINGS.make()
        outputs.write_atomically(path, quickjson.dumps(data), private=True)
    except OSError:
        return


def is_engine_wanted(configured: Settings | None = None) -> bool:
    """Whether the user's configuration and variables allow the engine.

    If `configured` isn't given, the user's settings are loaded. A project's file can't set `engine.use`.
    """
    from judgekit.engine import client  # noqa: PLC0415 - most prompts need no engine

    if not client.is_enabled():  # a variable switches the engine off
        return False

    if configured is None:
        # The user's own folder isn't a project, so this loads only the user's settings.
        configured, _ = load(environment.config_home())
    engine_settings = configured.values.get("engine", {})
    return engine_settings.get("use", True) is not False


def read_descriptions(root: str) -> dict[str, str]:
    """Read the descriptions of a store's categories from its memory-config.json, by category.

    Returns {} if the file is missing, unreadable or outside the store.
    """
    path = os.path.join(root, environment.MEMORY_CONFIG)
    real_root = os.path.realpath(root).rstrip(os.sep) + os.sep
    is_inside = os.path.realpath(path).startswith(real_root)
    if not is_inside or not os.path.isfile(path):  # reading a device might never end
        return {}

    text_by_category = {}
    try:
        for name, category in quickjson.load(path)["categories"].items():
            if not isinstance(category, dict):
                continue

            text = category.get("description")
            if isinstance(text, str) and text.strip():
                text_by_category[name] = text
    except (KeyError, TypeError, AttributeError):
        return {}

    return text_by_category


def _validate(project: str) -> tuple[dict[str, Any], bool]:
    """Validate the settings for `project`. Invalid values are replaced by defaults, with a note.

    Also returns whether the result can be stored. It can't if a package is missing.
    """
    from judgekit import programs  # noqa: PLC0415 - once per change of the configuration

    try:
        programs.make_packages_importable()
        return _read_files(project), True
    except ImportError as error:
        return _fall_back(project, error), False


def _read_files(project: str) -> dict[str, Any]:
    """Validate the user's and the project's files, and build the dictionary that `_store` writes.

    Its `notes` describe problems with the files. Raises `ImportError` if packages are missing.
    """
    from judgekit.errors import ConfigError  # noqa: PLC0415 - loaded only to validate

    values, trusted, problem = _load_values(project)
    notes = []
    if problem:
        notes.append(problem)
        # Even in an invalid file, respect a setting that switches the hook off.
        if is_hook_off(project):
            values = values | {"enabled": False}

    profiles = None  # stands for the bundled profiles
    try:
        profiles = _compile_changed_profiles(project)
    except ConfigError as error:
        notes.append(f"{error}; using the bundled profiles")

    return {"values": values, "trusted": trusted, "profiles": profiles, "notes": notes}


def _compile_changed_profiles(project: str) -> dict[str, Any] | None:
    """Compile a project's profiles, which describe the kinds of stores.

    Returns None if they're the same as the bundled ones. Raises `ConfigError` if a profile is invalid.
    """
    from pathlib import Path  # noqa: PLC0415 - loaded only to validate

    from judgekit.retrieval.profiles import compile_profiles  # noqa: PLC0415 - needs our packages

    profiles = compile_profiles(Path(project))
    bundled = compiled.get_bundled_data()
    has_same_languages = profiles["languages"] == bundled["languages"]
    has_same_profiles = profiles["profiles"] == bundled["profiles"]
    is_bundled = has_same_languages and has_same_profiles
    return None if is_bundled else profiles


def _fall_back(project: str, error: ImportError) -> dict[str, Any]:
    """Build default settings for when the packages that read the configuration are missing."""
    values = compiled.get_bundled_data()["settings"]
    if is_hook_off(project):
        values = values | {"enabled": False}
    effect = "using the defaults" if values["enabled"] else "switched off, as configured"
    notes = [f"the configuration cannot be read ({error}); {effect}"]
    return {"values": values, "trusted": [], "profiles": None, "notes": notes}


def _load_values(project: str) -> tuple[dict[str, Any], list[str], str]:
    """Load the current settings. If a file is invalid, fall back to the user's settings, or to the defaults.

    Also returns the folders of memories that the user's file lists, and a description of the problem, or "".
    """
    from judgekit.errors import ConfigError  # noqa: PLC0415 - loaded only to validate

    try:
        values, trusted = _load_valid_values(project, include_project=True)
    except ConfigError as error:
        problem = str(error).replace("\n", "; ")
    else:
        return values, trusted, ""

    # A file is invalid. See if it's the project's, so that the user's settings can still apply.
    try:
        values, trusted = _load_valid_values(project, include_project=False)
    except ConfigError:  # the user's file is invalid
        defaults = compiled.get_bundled_data()["settings"]
        return defaults, [], f"{problem}; using the defaults"
    return values, trusted, f"{problem}; ignoring the project's settings"


def _load_valid_values(project: str, *, include_project: bool) -> tuple[dict[str, Any], list[str]]:
    """Load the user's settings and, on request, the project's.

    Also returns the folders of memories that the user's file lists, which are trusted.
    Raises `ConfigError` if a file is invalid.
    """
    from pathlib import Path  # noqa: PLC0415 - loaded only to validate

    from judgekit.config import settings as config  # noqa: PLC0415 - needs our packages

    folder = Path(project)
    loaded = config.load(folder if include_project else None)
    dumped = loaded.model_dump(mode="json")
    if config.find_disabling_folder(loaded, folder):
        dumped["retrieval"]["enabled"] = False

    values = dumped["retrieval"] | {"stop": dumped["stop"], "engine": dumped["engine"]}
    trusted = config.read_user_roots() or []
    return values, trusted


def describe_off(project: str) -> str:
    """Tell the user which file or variable switches the hook off in a project."""
    from pathlib import Path  # noqa: PLC0415 - the hook itself never needs it

    from judgekit import programs  # noqa: PLC0415 - the hook itself never needs it

    programs.make_packages_importable()
    try:
        from judgekit.config.settings import describe_disabling_setting  # noqa: PLC0415 - needs our packages
        from judgekit.errors import ConfigError  # noqa: PLC0415 - the hook itself never needs it
    except ImportError:
        # Only the plugin is installed. Without our packages, the file or variable can't be told.
        return f"{_ADDS_NOTHING}: retrieval.enabled is false"

    try:
        reason = describe_disabling_setting(Path(project))
    except ConfigError:
        reason = ""  # the caller reports the error itself
    if not reason:
        # A file that can't be read also switches the hook off if it only might say so.
        reason = "a configuration that cannot be read switches it off"
    return f"{_ADDS_NOTHING}: {reason}"


def is_hook_off(project: str) -> bool:
    """Whether the hook should stay off when its configuration can't be read.

    It stays off if a variable or a file switches it off, or might do so.
    """
    variable = os.environ.get(ENABLED_VARIABLE, "")
    if variable:
        is_switched_on = variable.lower() in _TRUE_WORDS
        return not is_switched_on

    disabled_folders = environment.environ().get(DISABLED_FOLDERS_VARIABLE)
    if disabled_folders:
        return True  # the list isn't parsed here, and this project may be in it

    # `lexists`, because a broken link also leaves in doubt whether its file switches the hook off.
    sources = environment.configuration_files(project)
    return any(os.path.lexists(source) and _may_switch_off(source) for source in sources)


def _may_switch_off(source: str) -> bool:
    """Whether a configuration file switches the hook off, or might do so.

    The file can be invalid, so its text is only searched for keys. In case of doubt, the answer is True.
    """
    if not os.path.isfile(source):  # reading a device might never end
        return True

    try:
        text = _read_start(source)
    except OSError:
        return True

    is_users_file = source == environment.SETTINGS.path()
    if is_users_file and _DISABLED_FOLDERS_KEY in text:
        return True  # the list isn't parsed here, and this project may be in it

    switches = _find_switches(source, text)
    are_all_on = all(switch.lower() in _TRUE_WORDS for switch in switches)
    return not are_all_on


def _read_start(source: str) -> str:
    """Read the start of a text file, without NULs; raises `OSError` if it can't be read."""
    with open(source, encoding="utf-8-sig", errors="replace") as file:
        # UTF-16 has a NUL next to each ASCII letter. Without the NULs, the keys are readable.
        return file.read(_MAX_FILE_CHARS).replace("\0", "")


def _find_switches(source: str, text: str) -> list[str]:
    """Find the values of the hook's `enabled` key, and of any that might be the hook's."""
    import re  # noqa: PLC0415 - only for a wrong configuration

    all_values: list[str] = re.findall(_ENABLED_KEY_PATTERN, text)
    if not source.endswith(".json"):
        return all_values

    # The JSON file has another tool's settings, and other sections of it also have a key `enabled`.
    try:
        return [str(quickjson.loads(text)["retrieval"]["enabled"])]
    except (KeyError, TypeError):  # the file has no `retrieval.enabled`
        return []
    except ValueError:  # in malformed JSON, any `enabled` could be the hook's
        return all_values
