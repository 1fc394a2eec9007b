"""Who is at work, and whether it can be a person."""

from __future__ import annotations

import getpass
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit.git import GitError, Repository
from judgekit.ledger.records import VerdictLine

if TYPE_CHECKING:
    from judgekit.ledger.records import Record


def who(folder: Path | None = None) -> str:
    """Return the person's address as git knows it in `folder`, else the login name at this machine."""
    try:
        found = (
            Repository(folder or Path.cwd()).ask("config", "user.email").decode("utf-8", "replace").strip()
        )
    except GitError:
        found = ""
    return found or f"{_login()}@{socket.gethostname()}"


def signed(record: Record, name: str) -> Record:
    """Return a record that came over the network as said by `name`, whoever it names itself."""
    if isinstance(record, VerdictLine):
        given = record.human_override
        return record.model_copy(update={"human_override": given and given.model_copy(update={"who": name})})
    return record.model_copy(update={"who": name} if "who" in type(record).model_fields else {})


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
