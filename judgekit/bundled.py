"""Finds the data folders: inside an installed wheel, or at the top level of a checkout."""

from __future__ import annotations

from pathlib import Path

from judgekit import paths

FOLDERS = ("rubrics", "providers", "retrieval", "hooks", "examples")

_PACKAGE = Path(__file__).resolve().parent


def profile_files() -> list[Path]:
    """Return the files of provider profiles: the user's, and the bundled ones that they do not replace."""
    # Later wins, so the bundled folder comes first.
    folders = (folder("providers"), Path(paths.config_home()) / "providers")
    return list({path.name: path for each in folders for path in sorted(each.glob("*.yaml"))}.values())


def folder(name: str) -> Path:
    """Return the bundled data folder `name`, one of `FOLDERS`."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
