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
    """Return the folder of the client's memory of `project`, an absolute path; it may not exist."""
    configured = _configured_folder(project)
    if configured is not None:
        return configured
    root = worktree.git_root(project)
    base = project if root is None else worktree.main_worktree(root)
    variables = environment.environ()
    own_name = variables.get(FOLDER_NAME, "")
    by_path = _memory_of(folder_name(base))
    if not _is_name(own_name):
        return by_path
    # The client only takes this name if its whole folder differs from the usual one.
    by_name = _memory_of(own_name)
    is_taken = "CLAUDE_CONFIG_DIR" in variables or not os.path.isdir(by_path)
    return by_name if is_taken else by_path


def folder_name(path: str) -> str:
    """Return the name that the client gives the folder of a project at `path`."""
    units = _utf16_units(path)
    name = "".join(_letter(unit) for unit in units)
    if len(name) <= _MOST_NAME:
        return name
    return f"{name[:_MOST_NAME]}-{_base36(abs(_hash(units)))}"


def _utf16_units(text: str) -> list[int]:
    raw = text.encode("utf-16-le", "surrogatepass")
    return [raw[place] | raw[place + 1] << 8 for place in range(0, len(raw), 2)]


def _letter(unit: int) -> str:
    char = chr(unit)
    return char if char.isascii() and char.isalnum() else "-"


def _hash(units: list[int]) -> int:
    """Return the 32-bit hash of a text that JavaScript programs use, from its UTF-16 units."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value  # noqa: PLR2004 - the sign bit


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


def _memory_of(name: str) -> str:
    return os.path.join(_client_home(), "projects", name, "memory")


def _client_home() -> str:
    return environment.environ().get("CLAUDE_CONFIG_DIR") or os.path.join(
        os.path.expanduser("~"), ".claude"
    )


def _is_name(name: str) -> bool:
    is_plain = all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    return 0 < len(name) <= _MOST_OWN_NAME and is_plain


def _configured_folder(project: str) -> str | None:
    """Find the folder that the settings name: the project's local ones first, as in the client."""
    folder = _read_folder(os.path.join(project, *LOCAL_SETTINGS.split("/")))
    if folder is not None and is_users_own(project):
        return folder
    return _read_folder(os.path.join(_client_home(), "settings.json"))


def _read_folder(settings_path: str) -> str | None:
    """Return the folder that a settings file names; None unless it's an absolute path."""
    settings = quickjson.load(settings_path) if os.path.isfile(settings_path) else None
    folder = settings.get(SETTING) if isinstance(settings, dict) else None
    if not isinstance(folder, str) or "\0" in folder:
        return None
    if folder.startswith(("~/", "~\\")):
        folder = os.path.join(os.path.expanduser("~"), folder[2:])
    path = os.path.normpath(folder)
    if os.path.isabs(path) and len(path) >= _SHORTEST_PATH:
        return path
    return None


def is_users_own(project: str) -> bool:
    """Whether a project's local settings are the user's own, not brought along by a clone.

    Git's list of files is searched for the name. Without git, an archive may have brought them.
    """
    root = worktree.git_root(project)
    is_in_submodule = os.path.lexists(os.path.join(project, ".claude", ".git"))
    if root is None or is_in_submodule:
        return False
    is_linked = os.path.isfile(os.path.join(root, ".git"))
    if is_linked and worktree.main_worktree(root) == root:
        return False  # only one side says that they belong together
    git_folder = worktree.git_folder_of(root)
    try:
        with open(os.path.join(git_folder, "index"), "rb") as file:
            raw = file.read(_MOST_INDEX + 1)
    except FileNotFoundError:  # nothing was ever added or checked out
        return True
    except OSError:
        return False
    name = LOCAL_SETTINGS.rpartition("/")[2]
    # Some file systems don't distinguish upper and lower case.
    if len(raw) > _MOST_INDEX or name.encode() + b"\0" in raw.lower():
        return False
    return _has_all_names(raw) or not _is_in_git(root, name)


def _has_all_names(raw: bytes) -> bool:
    """Whether git's list holds the whole name of each file, as it usually does.

    A newer version leaves out what a name shares with the one before it; a split index keeps some names in a
    second file, and a sparse one lists folders.
    """
    is_whole = not any(mark in raw for mark in _INDEX_EXTENSIONS)
    return raw[:4] == b"DIRC" and raw[4:8] in _WHOLE_VERSIONS and is_whole


def _is_in_git(root: str, name: str) -> bool:
    """Whether git lists a file of that name in any folder; True as well if git can't say."""
    from pathlib import Path  # noqa: PLC0415 - such a list is rare

    from judgekit.git import GitError, Repository  # noqa: PLC0415 - the same

    try:
        pattern = f":(top,icase,glob)**/{name}"
        listed = Repository(Path(root)).ask("ls-files", "-z", "--", pattern, seconds=_GIT_SECONDS)
    except GitError:
        return True
    return listed != b""
