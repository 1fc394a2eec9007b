"""Where calibrations are kept, and which of them a judge may use."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from judgekit import datafile, lock, paths, shelf
from judgekit.calibrate import bound
from judgekit.calibrate.evidence import first_flaw
from judgekit.calibrate.file import SCHEMA, Calibration
from judgekit.errors import ConfigError, InputError
from judgekit.judging.manner import USUAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.gateway.base import Seats
    from judgekit.judging.gates import Gates
    from judgekit.judging.manner import Manner
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName

FOLDER = "calibrations"
MOST_TOLD = 3  # files that cannot be read are named
MOST_READ = 20  # of a folder: what a clone may bring is read before a judge's time begins
MOST_BYTES = 64_000  # of one: several times those of the largest that were made
_WAIT = 2.0  # seconds for another process that accepts one
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
    """Return a calibration.

    Raises `ConfigError` naming the first key that is wrong, or that the counts in the file do not bear out.
    """
    known = _parsed(path)
    _check(known, path)
    return known


def _parsed(path: Path) -> Calibration:
    return datafile.read(path, Calibration, version_key="schema", most=MOST_BYTES)


def _check(known: Calibration, path: Path) -> None:
    flaw = first_flaw(known)
    if flaw is not None:
        raise ConfigError(f"{flaw.told}; judgekit calibrate makes a new one", path=path, key=flaw.key)


class Accepted(datafile.Strict):
    """The calibrations that a user lets projects bring: ids by the SHA-256 of their files."""

    schema_: Literal["judgekit/accepted@1"] = Field("judgekit/accepted@1", alias="schema")
    calibrations: dict[str, str] = {}


def accept(path: Path) -> None:
    """Let projects bring the calibration that `path` holds: a file of the same bytes, whatever its name.

    Raises `ConfigError` for one that cannot be used, and `InputError` if the list cannot be written.
    """
    known, digest, kept = read(path), _digest(path), _accepted_path()
    try:
        paths.private_folder(str(kept.parent))
        with lock.held(kept.with_suffix(".lock"), seconds=_WAIT):
            now = Accepted(calibrations={**_accepted().calibrations, digest: known.id})
            fresh = kept.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            fresh.touch(0o600)
            fresh.write_text(now.model_dump_json(by_alias=True, indent=2) + "\n", encoding="utf-8")
            fresh.replace(kept)
    except OSError as error:
        raise InputError(f"{kept}: cannot be written ({error.strerror}); check the folder") from None


def is_accepted(path: Path) -> bool:
    """Whether the user accepted a file of these bytes."""
    return _digest(path) in _accepted().calibrations


def _accepted() -> Accepted:
    path = _accepted_path()
    return datafile.read(path, Accepted, version_key="schema") if path.is_file() else Accepted()


def _accepted_path() -> Path:
    return Path(paths.config_home()) / "accepted.json"


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MOST_BYTES + 1)).hexdigest()
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", path=path) from None


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
                known = _parsed(path)
                if (known.rubric.id, known.mode) != (rubric, mode):
                    continue
                if origin == "project":
                    _check_accepted(path, project)
                _check(known, path)
                found.append(known)
            except ConfigError as error:
                if _is_meant(path, rubric, mode):
                    yield str(error)
        yield from sorted(found, key=lambda each: each.made, reverse=True)


def _check_accepted(path: Path, project: Path | None) -> None:
    """Raise `ConfigError` for a project's file that the user has not accepted."""
    if not is_accepted(path):
        shown = path.relative_to(project) if project else path
        told = "the project brings it and you have not accepted it"
        raise ConfigError(f"{told}; judgekit calibrate accept {shown} shows what it does", path=shown)


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
