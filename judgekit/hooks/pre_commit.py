"""judgekit's gate as a hook of the pre-commit framework, in a project's `.pre-commit-config.yaml`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from judgekit.config import yaml_text
from judgekit.errors import ConfigError
from judgekit.hooks import files
from judgekit.hooks.files import FileChange
from judgekit.hooks.git_hook import BLOCKED
from judgekit.programs import OWN_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = ".pre-commit-config.yaml"
ID = "judgekit-gate"

# pre-commit stops a push for any exit code but 0, and a Python that cannot start ends with 1: so the shell
# looks for the one code that is a NO-GO.
_RUN = f'judgekit gate --pre-push "$PRE_COMMIT_REMOTE_NAME" "$PRE_COMMIT_REMOTE_URL" --blocked-code {BLOCKED}'
_ONLY = f"[ $? -ne {BLOCKED} ]"
_MISSING = 'echo "judgekit is not installed here: this push is not judged"'
ENTRY = f"sh -c '{OWN_PYTHON}; {_RUN}; {_ONLY}'"
_FOUND = f"case $(command -v judgekit) in /*) ;; *) {_MISSING}; exit 0;; esac"
_LOCAL = f"sh -c '{OWN_PYTHON}; {_FOUND}; {_RUN}; {_ONLY}'"
ITEM = f"""\
- repo: local
  hooks:
    - id: {ID}
      name: judgekit gate
      language: system
      entry: >-
        {_LOCAL}
      stages: [pre-push]
      pass_filenames: false
      always_run: true
      verbose: true
"""


def planned_install(project: Path) -> FileChange:
    """Return what adding the hook to a project's configuration would change.

    Raises `ConfigError` when that file is not what pre-commit reads, `InputError` when it cannot be read.
    """
    path, before, text = _read(project)
    with _named(path):
        repos, position = _found(text)
        if position is not None:
            if not _is_plain(repos[position]) or repos[position] == yaml_text.parsed(ITEM)[0]:
                return FileChange(path, before, before)
            text = yaml_text.without_item(text, "repos", position)
        return FileChange(path, before, yaml_text.with_item(text, "repos", ITEM).encode())


def planned_uninstall(project: Path) -> FileChange:
    """Return what taking the hook out would change; a file that holds nothing else goes. Raises as above."""
    path, before, text = _read(project)
    with _named(path):
        repos, position = _found(text)
        if position is None:
            return FileChange(path, before, before)
        if not _is_plain(repos[position]):
            raise ConfigError(f"{ID} is listed among other hooks; remove it by hand", key="repos")
        rest = yaml_text.without_item(text, "repos", position)
    return FileChange(path, before, None if yaml_text.parsed(rest) == {"repos": []} else rest.encode())


def write(change: FileChange) -> None:
    """Carry out a planned change; raises `InputError` when that cannot be done, then nothing has changed."""
    if change.changes:
        files.replace(*change)


def _read(project: Path) -> tuple[Path, bytes | None, str]:
    path = project / FILE
    before = files.read(path)
    try:
        return path, before, (before or b"").decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None


def _found(text: str) -> tuple[list[Any], int | None]:
    """Return the entries of a configuration, and the place of the one with our hook."""
    data = yaml_text.parsed(text) or {}
    repos = list(data.get("repos") or []) if isinstance(data, dict) else []
    return repos, next((place for place, repo in enumerate(repos) if ID in _ids(repo)), None)


def _is_plain(repo: dict[str, Any]) -> bool:
    """Whether the entry with our hook is as we write it: local, alone."""
    return repo.get("repo") == "local" and _ids(repo) == [ID]


def _ids(repo: Any) -> list[Any]:  # noqa: ANN401 - whatever YAML a project has
    hooks = repo.get("hooks") if isinstance(repo, dict) else None
    return [hook.get("id") for hook in hooks or () if isinstance(hook, dict)]


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Say which file an error is about."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.problem, path=path, key=error.key) from None
