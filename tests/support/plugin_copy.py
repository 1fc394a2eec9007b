"""The plugin as a user gets it: the repository's files that it consists of, in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (".claude-plugin", "bin", "hooks", "skills", "judgekit", "retrieval", "rubrics")
PARTS = (*FOLDERS, "README.md", "LICENSE")


def write(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    return folder
