"""Who is at work, and whether it can be a person."""

from __future__ import annotations

import getpass
import socket
import sys
from pathlib import Path

from judgekit.git import GitError, Repository


def who(folder: Path | None = None) -> str:
    """Return the person's address as git knows it in `folder`, else the login name at this machine."""
    try:
        found = (
            Repository(folder or Path.cwd()).ask("config", "user.email").decode("utf-8", "replace").strip()
        )
    except GitError:
        found = ""
    return found or f"{_login()}@{socket.gethostname()}"


def at_terminal() -> bool:
    """Whether a person can be typing: standard input and error are terminals.

    A program can pretend to be one; this tells carelessness from intent, it is no lock.
    """
    return all(each is not None and each.isatty() for each in (sys.stdin, sys.stderr))


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        return "unknown"
