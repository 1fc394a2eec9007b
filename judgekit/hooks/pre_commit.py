"""judgekit's gate as a hook of the pre-commit framework, in a project's `.pre-commit-config.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit.config import yaml_text
from judgekit.config.files import folder
from judgekit.errors import ConfigError
from judgekit.hooks import files
from judgekit.hooks.files import FileChange
from judgekit.programs import OWN_PYTHON

if TYPE_CHECKING:
    from pathlib import Path

FILE = ".pre-commit-config.yaml"
ID = "judgekit-gate"
# No exit code of ours, of Python (1, 2, 120), of a shell (126 and more) or of sysexits (64 to 78).
BLOCKED = 85

# pre-commit stops a push for any exit code but 0, and a Python that cannot start ends with 1: so the shell
# looks for the one code that is a NO-GO.
_RUN = f'judgekit gate --pre-push "$PRE_COMMIT_REMOTE_NAME" "$PRE_COMMIT_REMOTE_URL" --blocked-code {BLOCKED}'
_ONLY = f"[ $? -ne {BLOCKED} ]"
_MISSING = 'echo "judgekit is not installed here: this push is not judged"'
ENTRY = f"sh -c '{OWN_PYTHON}; {_RUN}; {_ONLY}'"
_FOUND = f"case $(command -v judgekit) in /*) ;; *) {_MISSING}; exit 0;; esac"
_LOCAL = f"sh -c '{OWN_PYTHON}; {_FOUND}; {_RUN}; {_ONLY}'"
ITEM = (folder("hooks") / "pre-commit.yaml").read_text(encoding="utf-8").replace("@ENTRY@", _LOCAL)


def plan_install(project: Path) -> FileChange:
    """Return how a project's configuration gets our hook; raises `ConfigError` or `InputError`."""
    return _planned(project, installs=True)


def plan_uninstall(project: Path) -> FileChange:
    """Return how a project's configuration loses our hook; raises as `plan_install` does."""
    return _planned(project, installs=False)


def _planned(project: Path, *, installs: bool) -> FileChange:
    path = project / FILE
    before = files.read(path)
    try:
        after = _changed((before or b"").decode(), installs=installs)
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None
    except ConfigError as error:
        raise ConfigError(error.problem, path=path, key=error.key) from None
    return FileChange(path, before, before if after is None else after.encode() or None)


def _changed(text: str, *, installs: bool) -> str | None:
    """Return the text with or without our hook, "" where nothing is left of it; None for no change."""
    (own,) = yaml_text.parsed(ITEM)
    place = None
    data = yaml_text.parsed(text)
    if isinstance(data, dict):
        repos = data.get("repos")
    else:
        repos = None
    for position, repo in enumerate(repos if isinstance(repos, list) else ()):
        if isinstance(repo, dict):
            hooks = repo.get("hooks")
        else:
            hooks = None
        ids = []
        for hook in hooks or ():
            if isinstance(hook, dict):
                ids.append(hook.get("id"))
        if ID not in ids:
            continue
        is_as_written = repo.get("repo") == "local" and ids == [ID]
        if installs and (not is_as_written or repo == own):
            return None
        if not is_as_written:
            raise ConfigError(f"{ID} is listed among other hooks; remove it by hand", key="repos")
        place = position
        break
    if place is None and not installs:
        return None

    def change(data: dict[str, Any]) -> None:
        data["repos"] = items = data.get("repos") or []
        if place is not None:
            del items[place]
        if installs:
            items.append(own)

    changed = yaml_text.edited(text, change)
    if yaml_text.parsed(changed) == {"repos": []}:
        return ""
    return changed
