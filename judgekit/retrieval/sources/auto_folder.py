"""Finds the folder of Claude Code's memory for a project, by the client's own rules.

They're taken from version 2.1.330 of the client. It names the folder after the main working tree of the
repository around the project: anything but an ASCII letter or digit becomes `-`, a character beyond the first
65,536 becomes two of them, and a name of more than 200 characters is cut, with a hash of the whole behind it.
`autoMemoryDirectory` in the user's settings, or in the project's local ones, names another folder.
"""

from __future__ import annotations

import os

from judgekit import environment
from judgekit.retrieval import quickjson, worktree

SETTING = "autoMemoryDirectory"
LOCAL_SETTINGS = ".claude/settings.local.json"
FOLDER_NAME_VARIABLE = "CLAUDE_CODE_PROJECT_DIR_NAME"
_MAX_NAME_CHARS = 200  # characters of a folder's name
_MAX_OWN_NAME_CHARS = 64  # the same, of one that the variable gives
_BASE36_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_MIN_PATH_CHARS = 3  # characters
_MAX_INDEX_BYTES = 64_000_000  # bytes of git's list of files
_UNCOMPRESSED_INDEX_VERSIONS = (b"\0\0\0\2", b"\0\0\0\3")  # of that list
_INDEX_EXTENSIONS = (b"link\0", b"sdir\0")  # of a split index, and of a sparse one
_GIT_SECONDS = 2.0


def find_memory_folder(project: str) -> str:
    """Return the absolute path where Claude Code keeps its memory of `project`. It may not exist.

    The client's settings come first. An environment variable usually counts only if the folder named after
    the project's path doesn't exist.
    """
    configured_folder = _find_configured_folder(project)
    if configured_folder is not None:
        return configured_folder

    usual_folder = _find_usual_folder(project)
    variables = environment.environ()
    name_from_variable = variables.get(FOLDER_NAME_VARIABLE, "")
    if not _is_name(name_from_variable):
        return usual_folder

    # The client ignores the variable if the usual folder exists, unless the client's home was changed.
    has_other_home = "CLAUDE_CONFIG_DIR" in variables
    if has_other_home or not os.path.isdir(usual_folder):
        return _join_memory_path(name_from_variable)
    return usual_folder


def _find_usual_folder(project: str) -> str:
    """Return the memory folder named after the main git worktree, or after a project outside git."""
    root = worktree.find_git_root(project)
    base = project if root is None else worktree.find_main_worktree(root)
    return _join_memory_path(make_folder_name(base))


def make_folder_name(path: str) -> str:
    """Return Claude Code's folder name for the project at `path`."""
    units = _split_utf16(path)
    name = "".join(_replace_unit(unit) for unit in units)
    if len(name) <= _MAX_NAME_CHARS:
        return name
    # The client cuts a longer name and adds a hash of the full path.
    path_hash = abs(_hash_units(units))  # the client drops the sign
    return f"{name[:_MAX_NAME_CHARS]}-{_write_base36(path_hash)}"


def _split_utf16(text: str) -> list[int]:
    """Return the text's UTF-16 units, since JavaScript, the client's language, works on these."""
    raw = text.encode("utf-16-le", "surrogatepass")
    lower_bytes = raw[0::2]
    upper_bytes = raw[1::2]
    return [low | high << 8 for low, high in zip(lower_bytes, upper_bytes, strict=True)]


def _replace_unit(unit: int) -> str:
    """Return an ASCII letter or digit unchanged, and "-" for any other UTF-16 unit."""
    char = chr(unit)
    return char if char.isascii() and char.isalnum() else "-"


def _hash_units(units: list[int]) -> int:
    """Compute the 32-bit string hash that's customary in JavaScript, from UTF-16 units."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFF_FFFF
    is_negative = value >= 0x8000_0000  # noqa: PLR2004 - the sign bit
    return value - 0x1_0000_0000 if is_negative else value


def _write_base36(number: int) -> str:
    """Write a number in base 36, with the digits 0 to 9 and a to z."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _BASE36_DIGITS[digit] + digits
        if not number:
            return digits


def _join_memory_path(name: str) -> str:
    """Return the path of the memory folder for a project's folder name."""
    return os.path.join(_find_client_home(), "projects", name, "memory")


def _find_client_home() -> str:
    """Return Claude Code's settings folder: the one set by a variable, or `~/.claude`."""
    configured_home = environment.environ().get("CLAUDE_CONFIG_DIR")
    if configured_home:
        return configured_home
    return os.path.join(os.path.expanduser("~"), ".claude")


def _is_name(name: str) -> bool:
    """Whether the client accepts a folder name: 1 to 64 ASCII letters, digits, `_` and `-`."""
    if not 0 < len(name) <= _MAX_OWN_NAME_CHARS:
        return False
    return name.isascii() and all(char.isalnum() or char in "_-" for char in name)


def _find_configured_folder(project: str) -> str | None:
    """Find the memory folder that Claude Code's settings name; None if they don't name any.

    The project's local settings come before the user's, unless they may have come with a clone.
    """
    folder = _read_configured_folder(os.path.join(project, *LOCAL_SETTINGS.split("/")))
    if folder is not None and is_users_own(project):
        return folder
    return _read_configured_folder(os.path.join(_find_client_home(), "settings.json"))


def _read_configured_folder(settings_path: str) -> str | None:
    """Read the memory folder from a settings file; None unless the file has an absolute path."""
    if not os.path.isfile(settings_path):
        return None

    settings = quickjson.load(settings_path)
    folder = settings.get(SETTING) if isinstance(settings, dict) else None
    if not isinstance(folder, str):
        return None
    if "\0" in folder:  # no path can have a zero character
        return None

    path = os.path.normpath(_expand_own_home(folder))
    # The client refuses paths as short as `/` or `C:`.
    is_long_enough = len(path) >= _MIN_PATH_CHARS
    if os.path.isabs(path) and is_long_enough:
        return path
    return None


def _expand_own_home(folder: str) -> str:
    """Expand `~/` at the start of a path, but not `~name/`."""
    if folder.startswith(("~/", "~\\")):
        return os.path.join(os.path.expanduser("~"), folder[2:])
    return folder


def is_users_own(project: str) -> bool:
    """Whether the user wrote a project's local settings.

    Settings that git lists may have come with a clone. Outside a repository, they may have come with an
    archive, so the result is False.
    """
    root = worktree.find_git_root(project)
    is_in_submodule = os.path.lexists(os.path.join(project, ".claude", ".git"))
    if root is None or is_in_submodule:
        return False
    if _may_be_forged_worktree(root):
        return False

    index_path = os.path.join(worktree.find_git_folder(root), "index")  # git's list of files
    try:
        with open(index_path, "rb") as file:
            raw = file.read(_MAX_INDEX_BYTES + 1)
    except FileNotFoundError:  # nothing was ever added or checked out
        return True
    except OSError:
        return False

    is_complete = len(raw) <= _MAX_INDEX_BYTES
    return is_complete and not _lists_settings(raw, root)


def _may_be_forged_worktree(root: str) -> bool:
    """Whether a folder claims to be a linked worktree, but the main repository doesn't confirm it."""
    is_linked = os.path.isfile(os.path.join(root, ".git"))
    return is_linked and worktree.find_main_worktree(root) == root


def _lists_settings(raw: bytes, root: str) -> bool:
    """Whether git's list of files, `raw`, has a file named as the local settings, in any folder.

    If the list may omit parts of the names, git itself is asked.
    """
    _, _, name = LOCAL_SETTINGS.rpartition("/")
    # Compare in lower case, because some file systems ignore case. In git's list, a zero byte ends each name.
    is_listed = name.encode() + b"\0" in raw.lower()
    if is_listed:
        return True
    if _has_all_names(raw):
        return False
    return _is_in_git(root, name)


def _has_all_names(raw: bytes) -> bool:
    """Whether git's list of files (its index) contains all names in full, as it usually does.

    Newer versions of the list omit the beginning that a name shares with the previous name. A split index
    keeps some names in a second file, and a sparse index lists folders.
    """
    signature = raw[:4]
    version = raw[4:8]
    if signature != b"DIRC" or version not in _UNCOMPRESSED_INDEX_VERSIONS:
        return False
    return not any(mark in raw for mark in _INDEX_EXTENSIONS)


def _is_in_git(root: str, name: str) -> bool:
    """Whether git lists a file of that name, in any folder and any case. Returns True if git fails."""
    from pathlib import Path  # noqa: PLC0415 - git is rarely asked

    from judgekit.git import GitError, Repository  # noqa: PLC0415 - git is rarely asked

    try:
        pattern = f":(top,icase,glob)**/{name}"
        repository = Repository(Path(root))
        output = repository.ask("ls-files", "-z", "--", pattern, seconds=_GIT_SECONDS)
    except GitError:
        return True
    return output != b""
