"""Finds calibrations on disk, records those the user accepted, and picks one for a judge."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from judgekit import environment, outputs
from judgekit.config import locks, yamlfile
from judgekit.config.yamlfile import Strict
from judgekit.errors import ConfigError, InputError
from judgekit.judging.calibration import Calibration, flaws
from judgekit.judging.calibration_fit import fingerprint, misfits
from judgekit.rubric import search_path

if TYPE_CHECKING:
    from judgekit.config import ModeName
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.settings import JudgeSettings

AGAIN = "make a new one with judgekit calibrate"
MOST_TOLD = 3  # unreadable files named in a message
# From one folder, since a clone's files are read before the judge's time limit starts.
MOST_READ = 20
MOST_BYTES = 64_000  # of one file: several times the largest ever made
_WAIT = 2.0  # seconds for another process that's accepting one
_ID = re.compile(r"(.+-(?:strict|lenient))-[0-9a-f]{12}")


def find(
    settings: JudgeSettings,
    project: Path | None = None,
    subjects: int = 0,  # the number of texts that are scored for a comparison
) -> tuple[FinalityRules | None, str | None]:
    """Find the newest calibration that fits the judge. Returns its gates, or None if none fits.

    The project's calibrations come before the user's own. Also returns a line that says which calibrations
    aren't used and why, or None.
    """
    # A calibration says when a text needn't go up a tier; with one tier there's nowhere to go.
    if len(settings.models_by_tier) <= 1:
        return None, None
    calibrations, problems = _read_folders(settings, project)
    if not calibrations and not problems:
        return None, None

    warnings = [f"calibration not used: {problem}" for problem in problems[:MOST_TOLD]]
    misfit_warnings = []
    panel = fingerprint(settings)
    for calibration in calibrations:
        is_for_comparisons = calibration.subjects is not None
        if is_for_comparisons != (subjects > 0):
            continue
        misfit = next(misfits(calibration, settings.loaded, panel, subjects), None)
        if misfit is None:
            return calibration.rules(), "; ".join(warnings) or None
        misfit_warnings.append(f"calibration {calibration.id} not used: {misfit}; {AGAIN}")
    # Of the calibrations that don't fit, only the first is reported.
    return None, "; ".join([*warnings, *misfit_warnings[:1]]) or None


def _read_folders(
    settings: JudgeSettings, project: Path | None
) -> tuple[list[Calibration], list[str]]:
    """Read the calibrations for a judge's rubric and mode from all folders, and list the problems."""
    calibrations: list[Calibration] = []
    problems: list[str] = []
    for origin, folder in search_path.folders(environment.CALIBRATIONS.name, project):
        if origin == "bundled":
            continue
        folder_calibrations, folder_problems = _read_folder(
            folder, settings, of_project=origin == "project"
        )
        calibrations += folder_calibrations
        problems += folder_problems
    return calibrations, problems


def _read_folder(
    folder: Path, settings: JudgeSettings, *, of_project: bool
) -> tuple[list[Calibration], list[str]]:
    """Read a folder's calibrations for a judge's rubric and mode, newest first, and list the problems.

    A file is skipped if its name says that it's for another rubric or mode. An invalid file counts as a
    problem only if it mentions both this rubric and this mode.
    """
    rubric_id = settings.loaded.rubric.rubric
    mode = settings.mode
    calibrations = []
    problems = []

    paths = [path for path in folder.glob("*.json") if _has_fitting_name(path, rubric_id, mode)]
    paths.sort(key=lambda path: path.lstat().st_mtime, reverse=True)  # the last changed first
    if len(paths) > MOST_READ:
        count = f"{len(paths)} files that may be for {rubric_id}, {mode}"
        problems.append(f"{folder}: {count}; read {MOST_READ} of them")

    for path in paths[:MOST_READ]:
        try:
            calibration = read_calibration(path, of_project=of_project)
        except ConfigError as error:
            name_and_beginning = _name_and_beginning(path)
            is_for_judge = rubric_id in name_and_beginning and mode in name_and_beginning
            if is_for_judge:
                first_line, _, _ = str(error).partition("\n")
                problems.append(first_line)
            continue
        if (calibration.rubric.id, calibration.mode) == (rubric_id, mode):
            calibrations.append(calibration)
    calibrations.sort(key=lambda calibration: calibration.made, reverse=True)
    return calibrations, problems


def _has_fitting_name(path: Path, rubric: str, mode: ModeName) -> bool:
    """Whether a file's name allows that its calibration is for this rubric and mode.

    judgekit's own names (`RUBRIC-MODE-DIGITS.json`) say it. A name that the user chose allows anything.
    """
    own_name = _ID.fullmatch(path.stem)
    if own_name is None:
        return True
    rubric_and_mode = own_name[1]
    return rubric_and_mode == f"{rubric}-{mode}"


def _name_and_beginning(path: Path) -> str:
    """Return the name and the beginning of a file; only its name if the file can't be read."""
    text = path.name
    if path.is_file():  # a pipe may never end
        with suppress(OSError), path.open("rb") as file:
            text += file.read(MOST_BYTES).decode(errors="replace")
    return text


def read_calibration(path: Path, *, of_project: bool = False) -> Calibration:
    """Read a calibration; raises `ConfigError` if it's invalid, or if its numbers contradict each other.

    A file in the project (`of_project`) may be written by anyone who writes to the project. So it also
    raises `ConfigError` if the user hasn't accepted the file.
    """
    if of_project:
        yamlfile.is_project_file(path, _find_project(path))
    calibration = yamlfile.read_model(path, Calibration, version_key="schema", most=MOST_BYTES)
    if of_project:
        _check_accepted(path)
    first_flaw = next(flaws(calibration), None)
    if first_flaw is not None:
        key, expected = first_flaw
        raise ConfigError(f"{expected}; {AGAIN}", path=path, key=key)
    return calibration


def _find_project(path: Path) -> Path:
    return path.parents[2]  # PROJECT/.judgekit/calibrations/FILE


def _check_accepted(path: Path) -> None:
    """Raise `ConfigError` unless the user has accepted a project's file with exactly these bytes."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest in _read_accepted():
        return
    relative_path = path.relative_to(_find_project(path))
    problem = "it belongs to the project and you have not accepted it"
    remedy = f"see what it does with judgekit calibrate accept {relative_path}"
    raise ConfigError(f"{problem}; {remedy}", path=relative_path)


class Accepted(Strict):
    """Calibrations that the user accepted from projects: ids by the SHA-256 of their files."""

    schema_: Literal["judgekit/accepted@1"] = Field("judgekit/accepted@1", alias="schema")
    calibrations: dict[str, str] = {}


def accept(path: Path) -> None:
    """Record that the user accepts a calibration file. That holds for these bytes, in any project.

    Raises `ConfigError` if the file isn't a valid calibration, `InputError` if the record can't be written.
    """
    calibration = read_calibration(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    accepted_path = Path(environment.ACCEPTED.path())
    try:
        environment.private_folder(str(accepted_path.parent))
        with locks.file_lock(accepted_path.with_suffix(".lock"), timeout=_WAIT):
            accepted = Accepted(calibrations={**_read_accepted(), digest: calibration.id})
            text = accepted.model_dump_json(by_alias=True, indent=2) + "\n"
            outputs.write_atomically(str(accepted_path), text, private=True)
    except OSError as error:
        raise InputError(
            f"{accepted_path}: cannot be written ({error.strerror}); check the folder"
        ) from None


def _read_accepted() -> dict[str, str]:
    """Read which calibrations the user has accepted: their ids by the hashes of their files.

    Empty if the user has never accepted any.
    """
    path = Path(environment.ACCEPTED.path())
    if path.is_file():
        return yamlfile.read_model(path, Accepted, version_key="schema").calibrations
    return {}


def check_writable(out: Path | None = None) -> None:
    """Raise `InputError` if a calibration couldn't be written.

    It would be written to `out`, or without `out` to the user's folder.
    """
    is_private = out is None
    # Any name would do here, since only the user's folder matters.
    path = out or Path(environment.CALIBRATIONS.path("new.json"))
    problem = _write_problem(path)
    try:
        outputs.place_of(str(path), private=is_private)
    except OSError as error:
        problem = problem or str(error.strerror)
    if problem:
        named_path = out or path.parent
        remedy = "choose another file with --out"
        raise InputError(f"{named_path}: cannot be written ({problem}); {remedy}")


def _write_problem(path: Path) -> str:
    """Explain why a file can't be written, without trying; "" if nothing is in the way.

    Missing folders would be made, so the nearest one that exists decides.
    """
    existing_paths = (candidate for candidate in (path, *path.parents) if candidate.exists())
    nearest = next(existing_paths, path.parent)
    if nearest != path and not nearest.is_dir():
        return f"{nearest} is not a folder"
    if path.is_dir():
        return "a folder"
    if not os.access(nearest, os.W_OK):
        return "no permission"
    return ""


def write(calibration: Calibration, out: Path | None) -> Path:
    """Write a calibration to `out`, or without `out` to the user's folder. Returns its path.

    Raises `InputError` if it can't be written.
    """
    is_private = out is None
    path = out or Path(environment.CALIBRATIONS.path(f"{calibration.id}.json"))
    try:
        outputs.make_folder(str(path.parent), private=is_private)
        outputs.write_atomically(str(path), calibration.text(), private=is_private)
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror}); choose another file with --out"
        raise InputError(problem) from None
    return path
