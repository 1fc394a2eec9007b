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
from judgekit.judging.calibration import Calibration, find_flaws
from judgekit.judging.calibration_fit import explain_misfits, fingerprint_panel
from judgekit.rubric import search_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.settings import JudgeSettings

AGAIN = "make a new one with judgekit calibrate"
MAX_TOLD = 3  # unreadable files named in a message
# Files per folder, because a clone's files are read before the judge's time limit starts
MAX_READ = 20
MAX_BYTES = 64_000  # of a file; several times the largest one ever made
_WAIT_SECONDS = 2.0  # for another process that's accepting a file
_CALIBRATION_ID_PATTERN = re.compile(r"(.+-(?:strict|lenient))-[0-9a-f]{12}")


def find(
    settings: JudgeSettings,
    project: Path | None = None,
    subjects: int = 0,  # the number of texts that are scored for a comparison
) -> tuple[FinalityRules | None, str | None]:
    """Find the newest calibration that fits the judge, first among the project's, then among the user's.

    Returns its rules, or None if no calibration fits. Also returns a warning about calibrations that can't be
    used, or None if all is well.
    """
    # A calibration decides which later tiers can be skipped, so a single tier doesn't need any.
    if len(settings.models_by_tier) <= 1:
        return None, None
    calibrations, problems = _read_folders(settings, project)
    if not calibrations and not problems:
        return None, None

    warnings = [f"calibration not used: {problem}" for problem in problems[:MAX_TOLD]]
    misfit_warnings = []
    panel = fingerprint_panel(settings)
    for calibration in calibrations:
        if not _is_for_task(calibration, subjects):
            continue
        first_misfit = next(
            explain_misfits(calibration, settings.loaded_rubric, panel, subjects), None
        )
        if first_misfit is None:
            return calibration.build_finality_rules(), _join_warnings(warnings)
        misfit_warnings.append(f"calibration {calibration.id} not used: {first_misfit}; {AGAIN}")

    # No calibration fits. Only report the one that takes precedence.
    warnings += misfit_warnings[:1]
    return None, _join_warnings(warnings)


def _is_for_task(calibration: Calibration, subjects: int) -> bool:
    """Whether a calibration is for the same task: to compare several texts, or to judge a single one."""
    is_for_comparisons = calibration.subjects is not None
    is_comparison = subjects > 0
    return is_for_comparisons == is_comparison


def _join_warnings(warnings: Sequence[str]) -> str | None:
    """Join warnings into one line, or return None if there are none."""
    return "; ".join(warnings) or None


def _read_folders(
    settings: JudgeSettings, project: Path | None
) -> tuple[list[Calibration], list[str]]:
    """Read the project's and the user's calibrations for a judge's rubric and mode, and list the problems."""
    calibrations: list[Calibration] = []
    problems: list[str] = []
    for origin, folder in search_path.list_folders(environment.CALIBRATIONS.name, project):
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
    """Read a folder's calibrations for a judge's rubric and mode.

    Returns the calibrations, newest first, and the problems. An invalid file is only a problem if it mentions
    the rubric and the mode.
    """
    rubric_id = settings.loaded_rubric.rubric.rubric
    mode = settings.mode
    calibrations = []
    problems = []

    paths = _list_newest_first(folder, rubric_id, mode)
    if len(paths) > MAX_READ:
        found = f"{len(paths)} files that may be for {rubric_id}, {mode}"
        problems.append(f"{folder}: {found}; read {MAX_READ} of them")

    for path in paths[:MAX_READ]:  # the newest
        try:
            calibration = read_calibration(path, of_project=of_project)
        except ConfigError as error:
            if _mentions(path, rubric_id, mode):
                first_line, _, _ = str(error).partition("\n")
                problems.append(first_line)
            continue
        is_for_judge = calibration.rubric.id == rubric_id and calibration.mode == mode
        if is_for_judge:
            calibrations.append(calibration)

    # A file can be newer than its calibration, for example in a clone.
    calibrations.sort(key=lambda calibration: calibration.made, reverse=True)
    return calibrations, problems


def _list_newest_first(folder: Path, rubric: str, mode: ModeName) -> list[Path]:
    """List the files that could be calibrations for a rubric and mode, the last changed first."""
    paths = [path for path in folder.glob("*.json") if _has_fitting_name(path, rubric, mode)]
    paths.sort(key=lambda path: path.lstat().st_mtime, reverse=True)
    return paths


def _has_fitting_name(path: Path, rubric: str, mode: ModeName) -> bool:
    """Whether a calibration file could be for this rubric and mode, judging by its name."""
    # judgekit names files `RUBRIC-MODE-DIGITS.json`. A file with any other name can be for any rubric.
    id_match = _CALIBRATION_ID_PATTERN.fullmatch(path.stem)
    if id_match is None:
        return True
    rubric_and_mode = id_match[1]
    return rubric_and_mode == f"{rubric}-{mode}"


def _mentions(path: Path, rubric: str, mode: ModeName) -> bool:
    """Whether a file's name or content mentions both the rubric and the mode."""
    name_and_content = _read_name_and_content(path)
    return rubric in name_and_content and mode in name_and_content


def _read_name_and_content(path: Path) -> str:
    """Return a file's name, followed by its content if that can be read."""
    text = path.name
    if path.is_file():  # reading a pipe could block forever
        with suppress(OSError), path.open("rb") as file:
            text += file.read(MAX_BYTES).decode(errors="replace")
    return text


def read_calibration(path: Path, *, of_project: bool = False) -> Calibration:
    """Read a calibration; raises `ConfigError` if it's invalid or its numbers contradict each other.

    With `of_project`, also raises `ConfigError` if the user hasn't accepted it.
    """
    if of_project:
        yamlfile.check_project_file(path, _find_project(path))  # raises for a link
    calibration = yamlfile.read_model(path, Calibration, version_key="schema", max_bytes=MAX_BYTES)
    if of_project:
        _check_accepted(path)
    first_flaw = next(find_flaws(calibration), None)
    if first_flaw is not None:
        key, problem = first_flaw
        raise ConfigError(f"{problem}; {AGAIN}", path=path, key=key)
    return calibration


def _find_project(path: Path) -> Path:
    return path.parents[2]  # PROJECT/.judgekit/calibrations/FILE


def _check_accepted(path: Path) -> None:
    """Raise `ConfigError` unless the user has accepted a file with exactly this content."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest in _read_accepted():
        return
    relative_path = path.relative_to(_find_project(path))
    problem = "it belongs to the project and you have not accepted it"
    remedy = f"see what it does with judgekit calibrate accept {relative_path}"
    raise ConfigError(f"{problem}; {remedy}", path=relative_path)


class Accepted(Strict):
    """Calibrations from projects that the user accepted: their ids by file hash (SHA-256)."""

    schema_: Literal["judgekit/accepted@1"] = Field("judgekit/accepted@1", alias="schema")
    calibrations: dict[str, str] = {}


def accept(path: Path) -> None:
    """Record that the user accepts a calibration file. The record only applies to its current content.

    Raises `ConfigError` if the file isn't a valid calibration, and `InputError` if the record can't be
    written.
    """
    calibration = read_calibration(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    accepted_path = Path(environment.ACCEPTED_CALIBRATIONS.path())
    try:
        environment.make_private_folder(str(accepted_path.parent))
        with locks.file_lock(accepted_path.with_suffix(".lock"), timeout=_WAIT_SECONDS):
            accepted = Accepted(calibrations={**_read_accepted(), digest: calibration.id})
            text = accepted.model_dump_json(by_alias=True, indent=2) + "\n"
            outputs.write_atomically(str(accepted_path), text, private=True)
    except OSError as error:
        raise InputError(
            f"{accepted_path}: cannot be written ({error.strerror}); check the folder"
        ) from None


def _read_accepted() -> dict[str, str]:
    """Return the ids of accepted calibrations, by file hash."""
    path = Path(environment.ACCEPTED_CALIBRATIONS.path())
    if path.is_file():
        return yamlfile.read_model(path, Accepted, version_key="schema").calibrations
    return {}


def check_writable(out: Path | None = None) -> None:
    """Raise `InputError` if a calibration couldn't be written to `out`, by default the user's folder."""
    is_private = out is None
    path = out or Path(environment.CALIBRATIONS.path("new.json"))  # any name will do
    problem = _explain_unwritable(path) or _explain_refused(path, private=is_private)
    if problem:
        named_path = out or path.parent
        remedy = "choose another file with --out"
        raise InputError(f"{named_path}: cannot be written ({problem}); {remedy}")


def _explain_unwritable(path: Path) -> str:
    """Explain why a file couldn't be written, without trying. Return "" if it could."""
    # Missing folders would be created, so check the nearest existing one.
    existing_paths = (candidate for candidate in (path, *path.parents) if candidate.exists())
    nearest = next(existing_paths, path.parent)
    if nearest != path and not nearest.is_dir():
        return f"{nearest} is not a folder"
    if path.is_dir():
        return "a folder"
    if not os.access(nearest, os.W_OK):
        return "no permission"
    return ""


def _explain_refused(path: Path, *, private: bool) -> str:
    """Explain why judgekit wouldn't write to a path, such as a link, or return "" if it would."""
    try:
        outputs.resolve_output_path(str(path), private=private)
    except OSError as error:
        return str(error.strerror)
    return ""


def write(calibration: Calibration, out: Path | None) -> Path:
    """Write a calibration to `out`, or by default to the user's folder, and return its path.

    Raises `InputError` if it can't be written.
    """
    is_private = out is None
    path = out or Path(environment.CALIBRATIONS.path(f"{calibration.id}.json"))
    try:
        outputs.make_folder(str(path.parent), private=is_private)
        outputs.write_atomically(str(path), calibration.format_json(), private=is_private)
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror}); choose another file with --out"
        raise InputError(problem) from None
    return path
