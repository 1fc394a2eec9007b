"""Whose rules hold for a push, and where a project's rules stand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository

RULES = (".judgekit", ".claude/memory/memory-config.json")
_USUAL = ("main", "master")


def commit_of(repository: Repository, updates: Sequence[RefUpdate], remote: str) -> str | None:
    """Return the commit whose rules hold for a push: the remote's own, the pushed one where it has none.

    That is where the remote's default branch stands, whatever branch is pushed: else a branch could be given
    lax rules in one push, and be filled under them in the next. Where that branch is not known, it is where
    the first existing ref of the push stands.
    """
    below = f"refs/remotes/{remote}/"
    listed = repository.ask("for-each-ref", "--format=%(objectname) %(symref) %(refname)", below)
    entries = [line.split(" ", 2) for line in lines_of(os.fsdecode(listed))]
    fetched = {name.removeprefix(below): oid for oid, _, name in entries}
    head = next((leads_to for _, leads_to, name in entries if name == f"{below}HEAD"), "")
    told = {each.remote_ref: each.remote_oid for each in updates if not each.is_new}
    names = [name for name in (head.removeprefix(below), *_USUAL) if name in fetched]
    default = [oid for name in names for oid in (told.get(f"refs/heads/{name}"), fetched[name]) if oid]
    pushed = [each.local_oid for each in updates if not each.deletes]
    for oid in (*default, *told.values(), *fetched.values(), *pushed):
        commit = repository.commit(oid)
        if commit is not None:
            return commit
    return None
