"""The data folders of judgekit, the files of provider profiles, and the commands that install extras."""

from __future__ import annotations

from pathlib import Path

from judgekit import environment

COMPILED = Path(__file__).with_name("bundled.json")
"""The data in bundled YAML files by the SHA-256 of their bytes; `make generate` writes it."""
FOLDERS = ("rubrics", "providers", "retrieval", "hooks", "examples", "skills")

_PACKAGE = Path(__file__).resolve().parents[1]


def profile_files() -> list[Path]:
    """List the provider profiles, both bundled and the user's.

    A user's profile replaces the bundled one of the same name.
    """
    bundled_folder = get_data_folder("providers")
    user_folder = Path(environment.PROVIDERS.path())
    paths_by_name = {}
    for profiles_folder in (bundled_folder, user_folder):  # the user's come last, so they win
        for path in sorted(profiles_folder.glob("*.yaml")):
            paths_by_name[path.name] = path
    return list(paths_by_name.values())


def get_data_folder(name: str) -> Path:
    """Return the path of a bundled data folder, whose name is one of `FOLDERS`."""
    installed = _PACKAGE / "_bundled" / name
    in_checkout = _PACKAGE.parent / name
    return installed if installed.is_dir() else in_checkout


def install_extra(extra: str) -> str:
    """Return the command that installs an extra, such as `server`, from a judgekit checkout."""
    # Not from a package index, where anybody could have registered the name `judgekit`.
    return f"pip install '.[{extra}]' in your checkout of judgekit"
