"""Which repository on GitHub a project is: found out from addresses, without asking anybody."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from judgekit.git import GitError
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.git import Repository

GITHUB = "github.com"
_ALIASES = {"ssh.github.com": GITHUB, "www.github.com": GITHUB}
_NAME = r"[A-Za-z0-9_.][\w.-]*"
_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/\s]*@)?(?P<host>[\w.-]+)(?::\d+)?/|(?:[^@/\s:]+@)?(?P<scp>[\w.-]+):/?)"
    rf"(?P<owner>{_NAME})/(?P<name>{_NAME}?)(?:\.git)?/?",
    re.ASCII,
)
_NAMED = re.compile(rf"(?:[\w.-]+/)?{_NAME}/{_NAME}", re.ASCII)


def of_address(address: str, environ: Mapping[str, str]) -> str | None:
    """Return `HOST/OWNER/NAME` for a git address on GitHub, None for any other.

    Another host counts only when the user names it in `GH_HOST`: gh sends it a token, and a clone's
    address must not choose who gets that.
    """
    found = _ADDRESS.fullmatch(address.strip())
    if found is None:
        return None
    host = (found["host"] or found["scp"]).lower()
    host = _ALIASES.get(host, host)
    known = {GITHUB, environ.get("GH_HOST", "").strip().lower() or GITHUB}
    return f"{host}/{found['owner']}/{found['name']}" if host in known else None


def of_project(repository: Repository, environ: Mapping[str, str], address: str = "") -> str | None:
    """Return the repository that `GH_REPO` names, else the one at `address`, else that of `origin`.

    Of a project with one remote that has another name, it is that remote.
    """
    named = environ.get("GH_REPO", "").strip()
    if named:
        return named if _NAMED.fullmatch(named) else None
    return of_address(address or _origin(repository), environ)


def _origin(repository: Repository) -> str:
    try:
        remotes = lines_of(os.fsdecode(repository.ask("remote")))
        chosen = "origin" if "origin" in remotes or len(remotes) != 1 else remotes[0]
        return repository.ask("remote", "get-url", "--", chosen).decode("utf-8", "replace").rstrip("\n")
    except GitError:
        return ""
