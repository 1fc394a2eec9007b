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
FOLDER_NAME = "CLAUDE_CODE_PROJECT_DIR_NAME"
_MOST_NAME = 200  # characters of a folder's name
_MOST_OWN_NAME = 64  # the same, of one that the variable gives
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SHORTEST_PATH = 3  # characters
_MOST_INDEX = 64_000_000  # bytes of git's list of files
_WHOLE_VERSIONS = (b"\0\0\0\2", b"\0\0\0\3")  # of that list
_INDEX_EXTENSIONS = (b"link\0", b"sdir\0")  # of a split index, and of a sparse one
_GIT_SECONDS = 2.0


def folder_of(project: str) -> str:
    """Return the folder in which Claude Code keeps its memory of `project`. It may not exist.

    It's an absolute path. The client's settings name it, or a variable, or else it's made from the project's
    path.
    """
    configured_folder = _find_configured_folder(project)
    if configured_folder is not None:
        return configured_folder
    root = worktree.git_root(project)
    base = project if root is None else worktree.main_worktree(root)
    usual_folder = _join_memory_path(folder_name(base))
    variables = environment.environ()
    own_name = variables.get(FOLDER_NAME, "")
    if not _is_name(own_name):
        return usual_folder
    # If the usual folder exists, the client ignores the variable, unless its home isn't the usual one.
    has_other_home = "CLAUDE_CONFIG_DIR" in variables
    if has_other_home or not os.path.isdir(usual_folder):
        return _join_memory_path(own_name)
    return usual_folder


def folder_name(path: str) -> str:
    """Return the name that Claude Code gives its folder for a project at `path`."""
    units = _split_utf16(path)
    name = "".join(_replace_unit(unit) for unit in units)
    if len(name) <= _MOST_NAME:
        return name
    # The client shortens a longer name, and adds a hash of the whole path.
    path_hash = abs(_hash_units(units))  # written without its sign
    return f"{name[:_MOST_NAME]}-{_write_base36(path_hash)}"


def _split_utf16(text: str) -> list[int]:
    """Return the 16-bit numbers that make up a text in JavaScript, in which the client is written."""
    raw = text.encode("utf-16-le", "surrogatepass")
    lower_bytes = raw[0::2]
    upper_bytes = raw[1::2]
    return [low | high << 8 for low, high in zip(lower_bytes, upper_bytes, strict=True)]


def _replace_unit(unit: int) -> str:
    """Return the letter or digit for a UTF-16 unit; "-" for anything beyond ASCII, and for signs."""
    char = chr(unit)
    return char if char.isascii() and char.isalnum() else "-"


def _hash_units(units: list[int]) -> int:
    """Return the 32-bit hash of a text that JavaScript programs use, from its UTF-16 units."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFF_FFFF
    is_negative = value >= 0x8000_0000  # noqa: PLR2004 - the sign bit
    return value - 0x1_0000_0000 if is_negative else value


def _write_base36(number: int) -> str:
    """Write a number with the 36 digits 0 to 9 and a to z."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


def _join_memory_path(name: str) -> str:
    """Return the path of the memory in the client's folder with this name."""
    return os.path.join(_find_client_home(), "projects", name, "memory")


def _find_client_home() -> str:
    """Return the folder of Claude Code's settings: the one a variable names, or `~/.claude`."""
    configured_home = environment.environ().get("CLAUDE_CONFIG_DIR")
    if configured_home:
        return configured_home
    return os.path.join(os.path.expanduser("~"), ".claude")


def _is_name(name: str) -> bool:
    """Whether the client accepts a name for a folder: ASCII letters, digits, `_` and `-`, 64 at most."""
    if not 0 < len(name) <= _MOST_OWN_NAME:
        return False
    return name.isascii() and all(char.isalnum() or char in "_-" for char in name)


def _find_configured_folder(project: str) -> str | None:
    """Find the folder that Claude Code's settings name, as the client does; None if they name none.

    The project's local settings come before the user's, but not if they may have come with a clone.
    """
    folder = _read_folder(os.path.join(project, *LOCAL_SETTINGS.split("/")))
    if folder is not None and is_users_own(project):
        return folder
    return _read_folder(os.path.join(_find_client_home(), "settings.json"))


def _read_folder(settings_path: str) -> str | None:
    """Read the memory folder that a settings file names; None unless it's an absolute path."""
    if not os.path.isfile(settings_path):
        return None
    settings = quickjson.load(settings_path)
    if not isinstance(settings, dict):
        return None
    folder = settings.get(SETTING)
    if not isinstance(folder, str) or "\0" in folder:
        return None
    if folder.startswith(("~/", "~\\")):
        folder = os.path.join(os.path.expanduser("~"), folder[2:])
    path = os.path.normpath(folder)
    if os.path.isabs(path) and len(path) >= _SHORTEST_PATH:
        return path
    return None


def is_users_own(project: str) -> bool:
    """Whether the user wrote a project's local settings, so that they didn't come with a clone.

    That's so unless git lists a file of this name. Outside of a repository the result is False, because an
    archive may have brought them.
    """
    root = worktree.git_root(project)
    is_in_submodule = os.path.lexists(os.path.join(project, ".claude", ".git"))
    if root is None or is_in_submodule:
        return False
    is_linked = os.path.isfile(os.path.join(root, ".git"))
    if is_linked and worktree.main_worktree(root) == root:
        return False  # the main repository doesn't know this worktree, so the link may be forged

    git_folder = worktree.git_folder_of(root)
    try:
        with open(os.path.join(git_folder, "index"), "rb") as file:
            raw = file.read(_MOST_INDEX + 1)
    except FileNotFoundError:  # nothing was ever added or checked out
        return True
    except OSError:
        return False

    is_too_large = len(raw) > _MOST_INDEX
    _, _, name = LOCAL_SETTINGS.rpartition("/")
    # Compare in lower case, because some file systems don't distinguish the case of names. A zero byte ends
    # each name in git's list.
    is_listed = name.encode() + b"\0" in raw.lower()
    if is_too_large or is_listed:
        return False
    return _has_all_names(raw) or not _is_in_git(root, name)


def _has_all_names(raw: bytes) -> bool:
    """Whether git's list of files (its index) has the whole name of each file in it, as it usually does.

    A newer version of the list leaves out the beginning that a name shares with the one before. A split index
    keeps some names in a second file, and a sparse index lists folders.
    """
    signature = raw[:4]
    version = raw[4:8]
    if signature != b"DIRC" or version not in _WHOLE_VERSIONS:
        return False
    return not any(mark in raw for mark in _INDEX_EXTENSIONS)


def _is_in_git(root: str, name: str) -> bool:
    """Whether git lists a file of that name in any folder. If git can't say, the answer is True."""
    from pathlib import Path  # noqa: PLC0415 - such a list is rare

    from judgekit.git import GitError, Repository  # noqa: PLC0415 - such a list is rare

    try:
        pattern = f":(top,icase,glob)**/{name}"
        output = Repository(Path(root)).ask("ls-files", "-z", "--", pattern, seconds=_GIT_SECONDS)
    except GitError:
        return True
    return output != b""
