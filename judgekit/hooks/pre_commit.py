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
_PUSH = '"$PRE_COMMIT_REMOTE_NAME" "$PRE_COMMIT_REMOTE_URL"'
_GATE = f"judgekit gate --pre-push {_PUSH} --blocked-code {BLOCKED}"
_IS_NOT_BLOCKED = f"[ $? -ne {BLOCKED} ]"
_MISSING = 'echo "judgekit is not installed here: this push is not judged"'
ENTRY = f"sh -c '{OWN_PYTHON}; {_GATE}; {_IS_NOT_BLOCKED}'"
_STOP_IF_MISSING = f"case $(command -v judgekit) in /*) ;; *) {_MISSING}; exit 0;; esac"
_LOCAL_ENTRY = f"sh -c '{OWN_PYTHON}; {_STOP_IF_MISSING}; {_GATE}; {_IS_NOT_BLOCKED}'"
_TEMPLATE = (folder("hooks") / "pre-commit.yaml").read_text(encoding="utf-8")
ITEM = _TEMPLATE.replace("@ENTRY@", _LOCAL_ENTRY)


def plan_install(project: Path) -> FileChange:
    """Return how a project's configuration gets our hook; raises `ConfigError` or `InputError`."""
    return _plan(project, installs=True)


def plan_uninstall(project: Path) -> FileChange:
    """Return how a project's configuration loses our hook; raises as `plan_install` does."""
    return _plan(project, installs=False)


def _plan(project: Path, *, installs: bool) -> FileChange:
    path = project / FILE
    before = files.read(path)
    try:
        text = _edit((before or b"").decode(), installs=installs)
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None
    except ConfigError as error:
        raise ConfigError(error.problem, path=path, key=error.key) from None
    if text is None:
        return FileChange(path, before, after=before)
    return FileChange(path, before, after=text.encode() or None)


def _edit(text: str, *, installs: bool) -> str | None:
    """Return the text with or without our hook, "" where nothing is left of it; None for no change."""
    (our_repo,) = yaml_text.parsed(ITEM)
    data = yaml_text.parsed(text)
    repos = data.get("repos") if isinstance(data, dict) else None
    if not isinstance(repos, list):
        repos = []
    place = _find_ours(repos)
    if place is None:
        if not installs:
            return None
    else:
        repo = repos[place]
        is_alone = repo.get("repo") == "local" and _hook_ids(repo) == [ID]
        is_up_to_date = not is_alone or repo == our_repo  # what somebody else lists is theirs
        if installs and is_up_to_date:
            return None
        if not is_alone:
            raise ConfigError(f"{ID} is listed among other hooks; remove it by hand", key="repos")

    def change(data: dict[str, Any]) -> None:
        items = data.get("repos") or []
        data["repos"] = items
        if place is not None:
            del items[place]
        if installs:
            items.append(our_repo)

    changed = yaml_text.edited(text, change)
    if yaml_text.parsed(changed) == {"repos": []}:
        return ""
    return changed


def _find_ours(repos: list[Any]) -> int | None:
    """Return the place of the first repository that lists our hook; None where none does."""
    for place, repo in enumerate(repos):
        if ID in _hook_ids(repo):
            return place
    return None


def _hook_ids(repo: object) -> list[object]:
    hooks = repo.get("hooks") if isinstance(repo, dict) else None
    return [hook.get("id") for hook in hooks or () if isinstance(hook, dict)]
