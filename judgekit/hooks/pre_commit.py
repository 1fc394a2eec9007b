"""judgekit's gate as a hook of the pre-commit framework, in a project's `.pre-commit-config.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judgekit.config import yaml_text
from judgekit.config.files import get_data_folder
from judgekit.errors import ConfigError, UsageError
from judgekit.hooks import files
from judgekit.hooks.files import FileChange
from judgekit.programs import UNSET_PYTHON_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CONFIG_FILE = ".pre-commit-config.yaml"
OTHER_FILE = ".pre-commit-config.yml"
PREK_FILE = "prek.toml"  # prek reads it instead of these two
HOOK_ID = "judgekit-gate"
# No exit code of ours, of Python (1, 2, 120), of a shell (126 and more) or of sysexits (64 to 78).
BLOCKED_EXIT_CODE = 85

# pre-commit stops a push for any exit code but 0, and a Python that cannot start ends with 1: so the shell
# looks for the one code that is a NO-GO.
_PUSH_ARGUMENTS = '"$PRE_COMMIT_REMOTE_NAME" "$PRE_COMMIT_REMOTE_URL"'
_GATE_COMMAND = f"judgekit gate --pre-push {_PUSH_ARGUMENTS} --blocked-code {BLOCKED_EXIT_CODE}"
_IS_NOT_BLOCKED = f"[ $? -ne {BLOCKED_EXIT_CODE} ]"
_ECHO_MISSING_COMMAND = 'echo "judgekit is not installed here: this push is not judged"'
HOOK_ENTRY = f"sh -c '{UNSET_PYTHON_VARIABLES}; {_GATE_COMMAND}; {_IS_NOT_BLOCKED}'"
_STOP_IF_MISSING = (
    f"case $(command -v judgekit) in /*) ;; *) {_ECHO_MISSING_COMMAND}; exit 0;; esac"
)
_LOCAL_ENTRY = (
    f"sh -c '{UNSET_PYTHON_VARIABLES}; {_STOP_IF_MISSING}; {_GATE_COMMAND}; {_IS_NOT_BLOCKED}'"
)
_CONFIG_ITEM_TEMPLATE = (get_data_folder("hooks") / "pre-commit.yaml").read_text(encoding="utf-8")
CONFIG_ITEM = _CONFIG_ITEM_TEMPLATE.replace("@ENTRY@", _LOCAL_ENTRY)
PREK_ITEM = f"""[[repos]]
repo = "local"

[[repos.hooks]]
id = "{HOOK_ID}"
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
    if is_for_prek(project):
        return _plan_nothing_for_prek(project / PREK_FILE)

    # The plan to uninstall has the content without our hook, even if an older form of it is there now.
    removal = plan_uninstall(project, only_ours=False)
    current = removal.before
    without_ours = removal.after
    text = (current or b"").decode()
    changed = _apply_edit(removal.path, text, _add_ours)
    if changed is None:  # the hook is already there
        return removal._replace(after=current)

    # The recorded original is what uninstalling restores, so it mustn't contain our hook.
    return removal._replace(after=changed.encode(), original_content=without_ours)


def _plan_nothing_for_prek(toml: Path) -> FileChange:
    """Plan no change to prek's file; raises `UsageError` if our hook isn't in it yet."""
    content = files.read_content(toml)
    if files.mentions_in_code(content, HOOK_ID):
        return FileChange(toml, content, after=content)

    raise UsageError(
        f"{toml}: prek reads this file and no {CONFIG_FILE}, and judgekit doesn't edit it; "
        "judgekit install pre-commit --print shows the lines to add to it"
    )


def plan_uninstall(project: Path, *, only_ours: bool = True) -> FileChange:
    """Plan the removal of our hook from a project's configuration.

    If the file is unchanged since the installation, its earlier content is restored. Otherwise, only our
    entry is removed.

    Raises `ConfigError` if our entry also lists other hooks, and `UsageError` if only prek's file lists our
    hook. With `only_ours=False`, both plan no change instead. A file that isn't UTF-8 or YAML always raises
    `ConfigError`.
    """
    path = get_config_path(project)
    before = files.read_content(path)
    text = _decode(path, before)

    record = files.find_record(path)
    if record is not None and files.is_unchanged(path, before):
        return FileChange(path, before, after=record.before)

    no_change = FileChange(path, before, after=before)
    repos = _list_repos(_parse(path, text))
    index = _find_our_repo(repos)
    if index is None:
        if only_ours:
            _check_prek_file(project / PREK_FILE)  # raises if our hook is in it
        return no_change

    lists_other_hooks = not _is_alone(repos[index])
    if lists_other_hooks:
        if only_ours:
            problem = f"{HOOK_ID} is listed among other hooks; remove it by hand"
            raise ConfigError(problem, path=path, key="repos")
        return no_change

    return FileChange(path, before, after=_remove_our_entry(path, text))


def _decode(path: Path, content: bytes | None) -> str:
    """Decode a file's content, "" if there's no file. Raises `ConfigError` if it isn't UTF-8."""
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 (byte {error.start}); save it as UTF-8", path=path) from None


def _check_prek_file(path: Path) -> None:
    """Raise `UsageError` if prek's file lists our hook, because judgekit doesn't edit that file."""
    if files.mentions_in_code(files.read_content(path), HOOK_ID):
        raise UsageError(f"{path} lists {HOOK_ID}; remove it by hand")


def _remove_our_entry(path: Path, text: str) -> bytes | None:
    """Return a configuration's content without our entry; None if the file should be deleted."""
    # Delete a file that contains only what we write into a new one.
    text_of_our_new_file = _apply_edit(path, "", _add_ours)
    if text == text_of_our_new_file:
        return None

    # Removing lines keeps the layout of the others. Writing the parsed YAML again might change it.
    text_without_ours = _remove_lines(text)
    if not text_without_ours:
        text_without_ours = _apply_edit(path, text, _remove_ours)
    if not text_without_ours:  # keep the empty file, because the user may have made it
        return b""
    return text_without_ours.encode()


def is_for_prek(project: Path) -> bool:
    """Whether a project only lists its hooks in prek's own file."""
    return (project / PREK_FILE).exists() and not get_config_path(project).exists()


def get_config_path(project: Path) -> Path:
    """Return the file that lists a project's hooks, normally `.pre-commit-config.yaml`.

    If only the `.yml` file exists, that one is returned.
    """
    path = project / CONFIG_FILE
    other_path = project / OTHER_FILE
    if other_path.exists() and not path.exists():
        return other_path
    return path


def runs_gate(project: Path) -> bool:
    """Whether the configuration that's used in this project lists our hook."""
    return files.mentions_in_code(files.read_content(get_active_config_path(project)), HOOK_ID)


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
    return bool(repo.get("repo") == "local" and _list_hook_ids(repo) == [HOOK_ID])


def _add_ours(text: str) -> str | None:
    """Add our hook to the text of a pre-commit configuration. Returns None if it's already there.

    An older form of our hook is replaced, unless someone added other hooks to its entry.
    """
    (our_repo,) = yaml_text.parse_yaml(CONFIG_ITEM)  # a list with one item
    repos = _list_repos(yaml_text.parse_yaml(text))
    old_index = _find_our_repo(repos)
    if old_index is not None:
        old_repo = repos[old_index]
        may_be_replaced = old_repo != our_repo and _is_alone(old_repo)
        if not may_be_replaced:
            return None

    def put_ours(data: dict[str, Any]) -> None:
        """Put our entry at the end of a configuration's list, and delete an older one."""
        repos = data.get("repos") or []  # the key can be there without a value
        data["repos"] = repos
        if old_index is not None:
            del repos[old_index]
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

    Returns None if those lines also hold anything else.
    """
    expected = yaml_text.parse_yaml(text)
    repos = expected["repos"]
    index = _find_our_repo(repos)
    assert index is not None  # noqa: S101 - the caller made sure that the item exists
    start, _ = repos.lc.item(index)  # the item's line and column
    lines = text.split("\n")
    # In a list such as `[{…}, {…}]`, the item doesn't start a line of its own.
    if not lines[start].lstrip().startswith("- "):
        return None

    end = _find_end(lines, start)
    other_lines = [*lines[:start], *lines[end:]]

    del repos[index]  # so `expected` is what the other lines should contain
    if not repos:
        _write_empty_list(other_lines, expected)

    other_text = "\n".join(other_lines)
    return other_text if _contains_data(other_text, expected) else None


def _write_empty_list(lines: list[str], data: Any) -> None:  # noqa: ANN401 - any YAML
    """Change the line `repos:` to `repos: []`, since a key without items would be null."""
    line_number, _ = data.lc.key("repos")
    lines[line_number] = lines[line_number].replace("repos:", "repos: []", 1)


def _contains_data(text: str, data: Any) -> bool:  # noqa: ANN401 - any YAML
    """Whether YAML text is valid and contains exactly `data`.

    This finds out whether removing lines has removed too much.
    """
    try:
        return bool(yaml_text.parse_yaml(text) == data)
    except ConfigError:
        return False


def _find_end(lines: Sequence[str], start: int) -> int:
    """Return the index after the last line of the list item at `start`, without trailing blank lines."""
    item_indent = _measure_indent(lines[start])
    end = start + 1
    while end < len(lines) and _belongs_to_item(lines[end], item_indent):
        end += 1

    while not lines[end - 1].strip():
        end -= 1
    return end


def _belongs_to_item(line: str, item_indent: int) -> bool:
    """Whether a line after the start of a list item is blank or indented more than the item."""
    text = line.strip("\r")  # a carriage return, as in files from Windows, is no indentation
    is_blank = not text.strip()
    return is_blank or _measure_indent(text) > item_indent


def _measure_indent(line: str) -> int:
    """Count the blank characters at the start of a line."""
    return len(line) - len(line.lstrip())


def _find_our_repo(repos: list[Any]) -> int | None:
    """Return the index of the first repository that lists our hook, or None."""
    for index, repo in enumerate(repos):
        if HOOK_ID in _list_hook_ids(repo):
            return index
    return None


def _list_hook_ids(repo: object) -> list[object]:
    """List the ids of a repository's hooks; [] for anything else."""
    if not isinstance(repo, dict):
        return []
    hooks = repo.get("hooks") or []
    return [hook.get("id") for hook in hooks if isinstance(hook, dict)]
