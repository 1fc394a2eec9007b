"""Finds the data folders: inside an installed wheel, or at the top level of a checkout."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("rubrics", "providers", "retrieval", "hooks", "examples")

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Return the bundled data folder `name`, one of `FOLDERS`."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
