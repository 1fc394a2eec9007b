"""Whose rules hold for a push, and where a project's rules stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gate.updates import RefUpdate
    from judgekit.git import Repository

RULES = (".judgekit", ".claude/memory/memory-config.json")
_USUAL = ("HEAD", "main", "master")


def commit_of(repository: Repository, updates: Sequence[RefUpdate], remote: str) -> str | None:
    """Return the commit whose rules hold for a push: the remote's own, the pushed one where it has none.

    That is where the first existing ref of the push stands; for new refs alone the remote's default branch.
    """
    told = [each.remote_oid for each in updates if not each.is_new]
    usual = [f"refs/remotes/{remote}/{name}" for name in _USUAL]
    fetched = repository.ask("for-each-ref", "--format=%(objectname)", f"refs/remotes/{remote}/")
    pushed = [each.local_oid for each in updates if not each.deletes]
    for name in (*told, *usual, *fetched.decode().split(), *pushed):
        commit = repository.commit(name)
        if commit is not None:
            return commit
    return None
