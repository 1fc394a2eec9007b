"""Where calibrations are kept, and which of them a judge may use."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgekit import datafile, paths, shelf
from judgekit.calibrate import bound
from judgekit.calibrate.file import SCHEMA, Calibration
from judgekit.errors import ConfigError, InputError
from judgekit.judging.manner import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.gateway.base import Seats
    from judgekit.judging.gates import Gates
    from judgekit.judging.manner import Manner
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName

FOLDER = "calibrations"
MOST_TOLD = 3  # files that cannot be read are named
MOST_READ = 20  # of a folder: what a clone may bring is read before a judge's time begins
MOST_BYTES = 64_000  # of one: several times those of the largest that were made
_KIND = SCHEMA.partition("@")[0] + "@"
_ID = re.compile(r"(.+-(?:strict|lenient))-[0-9a-f]{12}")


class Found(NamedTuple):
    """The gates to judge by, and in one line which calibrations that are there are not used; or neither."""

    gates: Gates | None = None
    stale: str | None = None


def find(
    loaded: LoadedRubric,
    mode: ModeName,
    seats: Seats,
    project: Path | None = None,
    manner: Manner = USUAL,
    subjects: int = 0,
) -> Found:
    """Return the newest calibration that fits rubric, mode, models and manner, the project's first.

    One that is stale is not used, and said where none fits; one that cannot be read is said in any case. What
    is no calibration of this rubric and mode is passed over. With one tier there is nothing to decide.
    `subjects` is how many are scored to be compared, if they are.
    """
    if len(seats) < 2:  # noqa: PLR2004 - one opinion cannot go up
        return Found()
    now = bound.panel(seats, loaded.rubric, manner)
    fitting, stale, broken = None, list[str](), list[str]()
    for known in _known(loaded.rubric.rubric, mode, project):
        if isinstance(known, str):
            broken.append(f"calibration not used: {known}")
        elif (known.subjects is None) != (subjects == 0):
            continue
        elif fitting is None and (misfit := known.misfit(loaded, now, subjects)) is None:
            fitting = known
        elif fitting is None:
            stale.append(f"calibration {known.id} not used: {misfit}; judgekit calibrate makes a new one")
    told = [*broken[:MOST_TOLD], *([] if fitting else stale[:1])]
    if len(broken) > MOST_TOLD:
        told.append(f"{len(broken) - MOST_TOLD} more calibrations cannot be read")
    return Found(fitting.rules() if fitting else None, "; ".join(told) or None)


def read(path: Path) -> Calibration:
    """Return a calibration; raises `ConfigError` naming the key that is wrong."""
    return datafile.read(path, Calibration, version_key="schema", most=MOST_BYTES)


def default_path(known: Calibration) -> Path:
    """Return where a user's calibration of this rubric and mode for these models is kept."""
    return Path(paths.config_home()) / FOLDER / f"{known.id}.json"


def check(out: Path | None = None) -> None:
    """Raise `InputError` where a calibration could not be written to `out`, or to a user's own folder."""
    path = out or Path(paths.config_home()) / FOLDER / "new.json"
    there = next((each for each in (path, *path.parents) if each.exists()), path.parent)
    if path.is_dir():
        why = "a folder"
    elif there != path and not there.is_dir():
        why = f"{there} is no folder"
    elif not os.access(there, os.W_OK):
        why = "no permission"
    else:
        return
    shown = out or path.parent
    raise InputError(f"{shown}: cannot be written ({why}); name another with --out")


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
        files = _files(folder, f"{rubric}-{mode}")
        if len(files) > MOST_READ:
            told = f"{len(files)} files that may be for {rubric}, {mode}; read {MOST_READ} of them"
            yield f"{folder}: {told}"
        for path in files[:MOST_READ]:
            try:
                if origin == "project":
                    datafile.check_own(path, path.parents[2])
                found.append(read(path))
            except ConfigError as error:
                if _is_meant(path, rubric, mode):
                    yield str(error)
        fitting = [each for each in found if (each.rubric.id, each.mode) == (rubric, mode)]
        yield from sorted(fitting, key=lambda each: each.made, reverse=True)


def _files(folder: Path, of: str) -> list[Path]:
    """Return the files that may hold a calibration of a rubric and mode, told by name where it is an id.

    Those whose name says so come first, each the newest before others.
    """
    named = [(_ID.fullmatch(each.stem), each) for each in folder.glob("*.json")]
    held = [(id_ is None, -_changed(path), path) for id_, path in named if id_ is None or id_[1] == of]
    return [path for _, _, path in sorted(held)]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # gone since, or a link to nowhere: reading it says so
        return 0.0


def _is_meant(path: Path, rubric: str, mode: ModeName) -> bool:
    """Whether what cannot be read is a calibration of this rubric and mode, by its name or its beginning."""
    id_ = _ID.fullmatch(path.stem)
    if id_ is not None:
        return id_[1] == f"{rubric}-{mode}"
    try:
        if not path.is_file():  # a pipe may have no end
            return False
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return False
    return all(each in text for each in (f'"{_KIND}', f'"{rubric}"', f'"{mode}"'))
