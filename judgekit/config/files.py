"""The data folders of judgekit, the files of provider profiles, and the commands that install extras."""

from __future__ import annotations

from pathlib import Path

from judgekit import environment

COMPILED = Path(__file__).with_name("bundled.json")
"""The data in bundled YAML files by the SHA-256 of their bytes; `make generate` writes it."""
FOLDERS = ("rubrics", "providers", "retrieval", "hooks", "examples", "skills")

_PACKAGE = Path(__file__).resolve().parents[1]


def profile_files() -> list[Path]:
    """List the provider profiles: the user's, and bundled ones that the user hasn't replaced."""
    # Later wins, so the bundled folder comes first.
    folders = (folder("providers"), Path(environment.PROVIDERS.path()))
    paths = {}
    for profiles in folders:
        for path in sorted(profiles.glob("*.yaml")):
            paths[path.name] = path
    return list(paths.values())


def folder(name: str) -> Path:
    """Return the bundled data folder `name`, one of `FOLDERS`."""
    installed = _PACKAGE / "_bundled" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def install_extra(extra: str) -> str:
    """Return the command that installs an extra, without a package's name, which a stranger could own."""
    return f"pip install '.[{extra}]' in your checkout of judgekit"
