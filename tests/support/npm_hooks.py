"""The real husky and lefthook, if npm has them: `npm install --ignore-scripts husky@9 lefthook`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

VARIABLE = "JUDGEKIT_TEST_HOOK_MANAGERS"  # the folder that npm installed both into
_FETCHED = Path(__file__).parents[2] / ".cache" / "hook-managers"
_FOLDER = Path(os.environ.get(VARIABLE) or _FETCHED)  # a test itself has no such variables


def hook_manager(name: str) -> str:
    """Return a program of npm's; skips the test if it or node is missing."""
    folder = _FOLDER / "node_modules" / ".bin"
    path = shutil.which(name, path=f"{folder}{os.pathsep}{os.environ['PATH']}")
    if path is None or shutil.which("node") is None:
        pytest.skip(f"{name} is not installed; {VARIABLE} may name a folder with its node_modules")
    return path
