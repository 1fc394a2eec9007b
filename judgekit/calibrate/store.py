"""Where calibrations are kept, and which of them a judge may use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import datafile, paths, shelf
from judgekit.calibrate.file import Calibration
from judgekit.errors import ConfigError, InputError
from judgekit.judging.manner import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from judgekit.judging.gates import Gates
    from judgekit.judging.manner import Manner
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, TierName

FOLDER = "calibrations"


class Found(NamedTuple):
    """The gates to judge by, and why a calibration that is there is not used, in one line; often neither."""

    gates: Gates | None = None
    stale: str | None = None


def find(
    loaded: LoadedRubric,
    mode: ModeName,
    models: Mapping[TierName, str],
    project: Path | None = None,
    manner: Manner = USUAL,
) -> Found:
    """Return the newest calibration that fits rubric, mode, models and manner, the project's first.

    One that is stale or damaged is not used, and said. With one tier there is nothing to decide.
    """
    if len(models) < 2:  # noqa: PLR2004 - one opinion cannot go up
        return Found()
    stale = None
    for known in _known(loaded.rubric.rubric, mode, project):
        if isinstance(known, str):
            stale = stale or f"calibration not used: {known}"
            continue
        misfit = known.misfit(loaded, models, manner)
        if misfit is None:
            return Found(known.rules())
        stale = stale or f"calibration {known.id} not used: {misfit}; judgekit calibrate makes a new one"
    return Found(stale=stale)


def read(path: Path) -> Calibration:
    """Return a calibration; raises `ConfigError` naming the key that is wrong."""
    return datafile.read(path, Calibration, version_key="schema")


def default_path(known: Calibration) -> Path:
    """Return where a user's calibration of this rubric and mode for these models is kept."""
    return Path(paths.config_home()) / FOLDER / f"{known.id}.json"


def write(known: Calibration, path: Path) -> None:
    """Write a calibration; raises `InputError` when it cannot be written."""
    try:
        if not path.parent.is_dir():
            paths.private_folder(str(path.parent))
        path.write_text(known.text(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); name another with --out") from None


def _known(rubric: str, mode: ModeName, project: Path | None) -> Iterator[Calibration | str]:
    """Yield the calibrations of a rubric and mode, a folder's newest first, and what is wrong with others."""
    for origin, folder in shelf.folders(FOLDER, project):
        if origin == "bundled":
            continue
        found: list[Calibration] = []
        for path in sorted(folder.glob(f"{rubric}-{mode}-*.json")):
            try:
                found.append(read(path))
            except ConfigError as error:
                yield str(error)
        fitting = [each for each in found if (each.rubric.id, each.mode) == (rubric, mode)]
        yield from sorted(fitting, key=lambda each: each.made, reverse=True)
