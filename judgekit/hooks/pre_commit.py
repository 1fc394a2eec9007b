"""judgekit's gate as a hook of the pre-commit framework, in a project's `.pre-commit-config.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit.config import yaml_text
from judgekit.config.files import folder
from judgekit.errors import ConfigError, UsageError
from judgekit.hooks import files
from judgekit.hooks.files import FileChange
from judgekit.programs import OWN_PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FILE = ".pre-commit-config.yaml"
OTHER_FILE = ".pre-commit-config.yml"
PREK_FILE = "prek.toml"  # prek reads it instead of these two
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
PREK_ITEM = f"""[[repos]]
repo = "local"

[[repos.hooks]]
id = "{ID}"
name = "judgekit gate"
language = "system"
entry = '''
{_LOCAL_ENTRY}'''
stages = ["pre-push"]
pass_filenames = false
always_run = true
verbose = true"""


def plan_install(project: Path) -> FileChange:
    """Plan the addition of our hook to a project's pre-commit configuration.

    Raises `ConfigError` or `InputError` if the file can't be read or edited. Raises `UsageError` if the
    project only has the TOML file of prek, another program that runs pre-commit's hooks.
    """
    toml = project / PREK_FILE
    if is_for_prek(project):
        content = files.read_content(toml)
        if files.mentions_in_code(content, ID):  # the hook is already there
            return FileChange(toml, content, after=content)

        raise UsageError(
            f"{toml}: prek reads this file and no {FILE}, and judgekit doesn't edit it; "
            "judgekit install pre-commit --print shows the lines to add to it"
        )

    # In `removal`, `before` is the current content, and `after` the content without our hook. Uninstalling
    # will restore the latter, so it's recorded as the original.
    removal = plan_uninstall(project, only_ours=False)
    path = removal.path
    text = (removal.before or b"").decode()
    changed = _apply_edit(path, text, _add_ours)
    if changed is None:  # the hook is already there
        return removal._replace(after=removal.before)
    return removal._replace(after=changed.encode(), original=removal.after)


def plan_uninstall(project: Path, *, only_ours: bool = True) -> FileChange:
    """Plan the removal of our hook from a project's configuration.

    If the file is unchanged since the installation, its earlier content is restored exactly. If our entry
    also lists other hooks, it isn't changed. With `only_ours`, that raises `ConfigError`, and a hook that
    only prek's file lists raises `UsageError`.
    """
    path = get_config_path(project)
    before = files.read_content(path)
    try:
        text = (before or b"").decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None

    record = files.find_record(path)
    if record is not None and files.is_unchanged(path, before):
        return FileChange(path, before, after=record.before)

    no_change = FileChange(path, before, after=before)
    repos = _list_repos(_parse(path, text))
    index = _find_our_repo(repos)
    if index is None:
        if only_ours and files.mentions_in_code(files.read_content(project / PREK_FILE), ID):
            raise UsageError(f"{project / PREK_FILE} lists {ID}; remove it by hand")
        return no_change

    if not _is_alone(repos[index]):
        if only_ours:
            problem = f"{ID} is listed among other hooks; remove it by hand"
            raise ConfigError(problem, path=path, key="repos")
        return no_change

    # If the text is what we write into a new file, delete the file.
    was_made_by_us = text == _apply_edit(path, "", _add_ours)

    # Prefer removing lines, which keeps the layout of all others. The parser might change it.
    text_without_ours = _remove_lines(text) or _apply_edit(path, text, _remove_ours)
    after = None if was_made_by_us else (text_without_ours or "").encode()
    return FileChange(path, before, after=after)


def is_for_prek(project: Path) -> bool:
    """Whether a project only lists its hooks in prek's own file."""
    return (project / PREK_FILE).exists() and not get_config_path(project).exists()


def get_config_path(project: Path) -> Path:
    """Return the file that lists a project's hooks, normally `.pre-commit-config.yaml`.

    If only the `.yml` file exists, that one is returned.
    """
    path = project / FILE
    other_path = project / OTHER_FILE
    if other_path.exists() and not path.exists():
        return other_path
    return path


def runs_gate(project: Path) -> bool:
    """Whether the configuration that's used in this project lists our hook."""
    return files.mentions_in_code(files.read_content(get_active_config_path(project)), ID)


def get_active_config_path(project: Path) -> Path:
    """Return the configuration that's used in a project: prek's file if it exists, otherwise pre-commit's."""
    toml = project / PREK_FILE
    return toml if toml.exists() else get_config_path(project)


def _apply_edit(path: Path, text: str, edit: Callable[[str], str | None]) -> str | None:
    """Apply an edit to text, and return the new text, or None if nothing changes.

    A `ConfigError` about the text names the file at `path`.
    """
    try:
        return edit(text)
    except ConfigError as error:
        raise ConfigError(error.problem, path=path, key=error.key) from None


def _parse(path: Path, text: str) -> Any:  # noqa: ANN401 - any YAML
    """Parse a file's YAML text; a `ConfigError` names the file."""
    try:
        return yaml_text.parse_yaml(text)
    except ConfigError as error:
        raise ConfigError(error.problem, path=path, key=error.key) from None


def _list_repos(data: object) -> list[Any]:
    """List the repositories in a configuration; [] if it has a different form."""
    if not isinstance(data, dict):
        return []
    repos = data.get("repos")
    return repos if isinstance(repos, list) else []


def _is_alone(repo: Any) -> bool:  # noqa: ANN401 - any YAML
    """Whether a repository's entry lists only our hook, as `plan_install` writes it."""
    return bool(repo.get("repo") == "local" and _list_hook_ids(repo) == [ID])


def _add_ours(text: str) -> str | None:
    """Add our hook to the text of a pre-commit configuration. Returns None if it's already there."""
    (our_repo,) = yaml_text.parse_yaml(ITEM)
    repos = _list_repos(yaml_text.parse_yaml(text))
    index = _find_our_repo(repos)
    if index is not None:
        is_up_to_date = repos[index] == our_repo
        # Also leave an entry alone in which someone added other hooks.
        if is_up_to_date or not _is_alone(repos[index]):
            return None

    def put_ours(data: dict[str, Any]) -> None:
        repos = data.get("repos") or []  # the key can be there without a value
        data["repos"] = repos
        if index is not None:  # replace an older form of our hook
            del repos[index]
        repos.append(our_repo)

    return yaml_text.edit_yaml(text, put_ours)


def _remove_ours(text: str) -> str:
    """Remove the entry that lists our hook; the text must have one."""

    def delete_ours(data: dict[str, Any]) -> None:
        repos = data["repos"]
        index = _find_our_repo(repos)
        del repos[index]

    return yaml_text.edit_yaml(text, delete_ours)


def _remove_lines(text: str) -> str | None:
    """Remove our hook's lines from the text of a configuration, and leave all other lines unchanged.

    Returns None if the layout doesn't allow that.
    """
    # Find our item in the list of repositories.
    data = yaml_text.parse_yaml(text)
    repos = data["repos"]
    index = (
        _find_our_repo(repos) or 0
    )  # never None, because the caller made sure that the item exists
    start, _ = repos.lc.item(index)  # the item's line and column
    lines = text.split("\n")
    if not lines[start].lstrip().startswith("- "):
        return None

    end = _find_end(lines, start)
    other_lines = [*lines[:start], *lines[end:]]

    # Remove the item from the parsed data as well, to compare both results.
    del repos[index]
    if not repos:
        key_line, _ = data.lc.key("repos")
        other_lines[key_line] = other_lines[key_line].replace("repos:", "repos: []", 1)

    changed = "\n".join(other_lines)
    # In an unusual layout, removing lines can change other data, so compare it with the expected data.
    try:
        is_as_planned = yaml_text.parse_yaml(changed) == data
    except ConfigError:
        return None
    return changed if is_as_planned else None


def _find_end(lines: Sequence[str], start: int) -> int:
    """Return the index after the last line of the list item at `start`, without trailing blank lines."""
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines):
        line = lines[end].strip("\r")
        is_indented_more = len(line) - len(line.lstrip()) > indent
        if line.strip() and not is_indented_more:
            break
        end += 1

    while not lines[end - 1].strip():
        end -= 1
    return end


def _find_our_repo(repos: list[Any]) -> int | None:
    """Return the index of the first repository that lists our hook, or None."""
    for index, repo in enumerate(repos):
        if ID in _list_hook_ids(repo):
            return index
    return None


def _list_hook_ids(repo: object) -> list[object]:
    """List the ids of a repository's hooks; [] for anything else."""
    if not isinstance(repo, dict):
        return []
    hooks = repo.get("hooks") or []
    return [hook.get("id") for hook in hooks if isinstance(hook, dict)]
