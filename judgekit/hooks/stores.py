"""Describes the folders that the prompt hook reads in a project, their memories, and how to add others."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.hooks import settings
from judgekit.retrieval import index, scan, search
from judgekit.retrieval.index_file import NoFullTextError
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.retrieval.compiled import Profiles

_COUNT_SECONDS = 2.0  # seconds to count the memories of a folder, or most of them


def describe_stores(project: str) -> Iterator[str]:
    """Yield a line about each folder that the hook is configured to read, with its number of memories.

    If there are no memories at all, a last line proposes a setting that adds a folder. If the hook is off or
    uses a search program, there's only a line about that.
    """
    configured, _ = settings.load(project)
    if not configured["enabled"]:
        yield settings.describe_off(project)
        return

    if configured["command"]:
        yield f"it asks {configured['command'][0]} for memories (retrieval.command)"
        return

    total = 0
    for root in configured["roots"]:
        description, count = _describe_store(root, configured)
        yield description
        total += count

    if total == 0:
        yield from _propose_roots(configured.project, configured["roots"])


def _describe_store(root: str, configured: settings.Settings) -> tuple[str, int]:
    """Describe a configured root in a line. Also returns its number of memories."""
    path = search.resolve_root(root, configured.project)
    folder = os.path.realpath(path)  # a symbolic link can lead out of the project
    if not os.path.isdir(folder):
        return f"it reads {path} ({root}): no such folder yet", 0

    project_folder = os.path.realpath(configured.project)
    # If the project is `/`, it already ends with a separator, so don't double it.
    project_prefix = project_folder.rstrip(os.sep) + os.sep
    if not search.may_be_searched(root, folder, project_prefix, configured.trusted_roots):
        return f"it does not read {path} ({root}): outside the project", 0

    count, is_complete = _count_memories(folder, configured.profiles)
    at_least = "" if is_complete else "at least "
    memories = format_count(count, "memory", "memories")
    return f"it reads {path} ({root}): {at_least}{memories}", count


def _count_memories(folder: str, profiles: Profiles) -> tuple[int, bool]:
    """Count the memories in a folder. Also returns whether all files were read in time."""
    try:
        # Opening the index also builds it, so that the next prompt needn't.
        with closing(index.open_index(folder, profiles, patience=_COUNT_SECONDS)) as opened:
            is_whole = not opened.pending_count
            return opened.entry_count, is_whole
    except NoFullTextError:
        _, entries, _ = scan.read_entries(folder, profiles)
        return len(entries), True


def _propose_roots(project: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield a line with a setting that adds `~/notes`. If Claude Code has memories, add these as well."""
    proposed_roots = list(roots)
    client_memory = search.resolve_root(search.AUTO_ROOT, project)
    if os.path.isdir(client_memory) and search.AUTO_ROOT not in roots:
        proposed_roots.append(search.AUTO_ROOT)
    proposed_roots.append("~/notes")
    line = f"retrieval: {{roots: [{', '.join(proposed_roots)}]}}"
    yield f"no memories yet; if your notes lie in ~/notes, add to {environment.SETTINGS.path()}: {line}"
