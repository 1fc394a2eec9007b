"""Keeps the judges that requests asked for: the second of 200 documents reads no configuration any more."""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import assess, environment, paths
from judgekit import config as configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.assess import Wish
    from judgekit.gateway.base import Gateway
    from judgekit.judging.documents import DocumentJudge

MOST = 64
# A local server may have come up or gone since; files and variables are looked at every time.
SECONDS = 10.0
_MOST_FILES = 500
# What changes from one command to the next in the same shell, and means nothing here.
_PASSING = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES"})
Stamp = frozenset[tuple[str, int, int, int]]


class _Kept(NamedTuple):
    judge: asyncio.Task[DocumentJudge]
    made: float


class Judges:
    """Makes judges through one gateway and keeps the latest."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._kept: OrderedDict[object, _Kept] = OrderedDict()

    async def get(self, project: Path | None, wish: Wish) -> DocumentJudge:
        """Return the judge for a wish in a project and the current caller's environment.

        Raises `ConfigError` or `UsageError`.
        """
        variables = environment.environ()
        key = (project, wish, _meaning(variables), stamp(project, wish))
        kept = self._kept.get(key)
        if kept is None or time.monotonic() - kept.made > SECONDS or _failed(kept.judge):
            kept = _Kept(asyncio.create_task(self._make(project, wish)), time.monotonic())
            self._forget_old()
            self._kept[key] = kept
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return await asyncio.shield(kept.judge)  # others may wait for it, too

    def _forget_old(self) -> None:
        """Let go of judges, and the keys in them, that will not be used again."""
        now = time.monotonic()
        for key in [key for key, kept in self._kept.items() if now - kept.made > SECONDS]:
            del self._kept[key]

    async def _make(self, project: Path | None, wish: Wish) -> DocumentJudge:
        # In a thread, with this caller's environment: it reads files and asks local servers for models.
        judge, _ = await asyncio.to_thread(assess.document_judge, self._gateway, project, wish)
        return judge


def stamp(project: Path | None, wish: Wish) -> Stamp:
    """Return what changes whenever a file changes that a judge is made of."""
    folders = [Path(paths.config_home())]
    if project is not None:
        folders.append(project / ".judgekit")
    files = [*configuration.sources(project)]
    if wish.rubric is not None and wish.rubric.endswith((".yaml", ".yml")):
        files.append(Path(wish.rubric))
    found: set[tuple[str, int, int, int]] = set()
    for folder in folders:
        found |= _states(folder)
    for file in files:
        found |= {_state(str(file))}
    return frozenset(found)


def _states(folder: Path) -> set[tuple[str, int, int, int]]:
    """Return the states of the YAML and JSON files in a folder and in the folders in it."""
    found: set[tuple[str, int, int, int]] = set()
    for base in (folder, *(folder / name for name in ("rubrics", "providers", "calibrations"))):
        try:
            names = sorted(os.listdir(base))[:_MOST_FILES]
        except OSError:
            continue
        found |= {_state(str(base / name)) for name in names if name.endswith((".yaml", ".yml", ".json"))}
    return found


def _state(path: str) -> tuple[str, int, int, int]:
    try:
        state = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, state.st_size, state.st_mtime_ns, state.st_ino


def _meaning(variables: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in variables.items() if name not in _PASSING)


def _failed(task: asyncio.Task[DocumentJudge]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
