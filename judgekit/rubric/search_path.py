"""The folders for rubrics and retrieval profiles: the project's, then the user's, then the bundled one.

Standard library only, so that rubrics can be listed without parsing them: a file with the bytes of a
published version is sound (a test checks that), and a list only needs values at the beginning of lines.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import files
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

Origin: TypeAlias = Literal["path", "project", "user", "bundled"]

_HEAD_LINE_PATTERN = re.compile(
    r"^(rubric|version|task|title): +(\S(?:.*[^ \n])?) *$", re.MULTILINE
)


_MAX_PUBLISHED_BYTES = 1_000_000  # published rubrics are far smaller


class Head(NamedTuple):
    """A rubric's `ID@VERSION`, task and title."""

    ref: str
    task: str
    title: str


def list_folders(kind: str, project: Path | None) -> Iterator[tuple[Origin, Path]]:
    """Yield the folders for `kind` ("rubrics" or "retrieval") and their origins, highest precedence first."""
    if project is not None:
        yield "project", project / ".judgekit" / kind
    yield "user", Path(environment.config_home()) / kind
    yield "bundled", files.get_data_folder(kind)


def rubric_files(project: Path | None = None) -> Iterator[tuple[Origin, Path]]:
    """Yield the origin and path of every rubric file, highest precedence first."""
    for origin, folder in list_folders("rubrics", project):
        for path in sorted(folder.glob("*.yaml")):
            yield origin, path


@lru_cache(maxsize=1)
def read_published() -> dict[str, str]:
    """Map every published `ID@VERSION` to the SHA-256 of its file."""
    lock_file = files.get_data_folder("rubrics") / "versions.lock"
    digests = {}
    for line in split_lines(lock_file.read_bytes().decode()):
        if not line:
            continue
        digest, _, reference = line.partition("  ")
        digests[reference] = digest
    return digests


def read_head(path: Path) -> Head | None:
    """Read the id, task and title of a published rubric's file quickly, without parsing its YAML.

    Returns None if the file isn't an unchanged published rubric. The caller then has to parse it.
    """
    data = _read_start(path)
    if data is None:
        return None

    # Only published files have the simple layout that the regex below needs.
    reference = path.stem  # a published file is named ID@VERSION.yaml
    is_published = read_published().get(reference) == hashlib.sha256(data).hexdigest()
    if not is_published:
        return None

    fields: dict[str, str] = {}
    for key, value in _HEAD_LINE_PATTERN.findall(data.decode("utf-8")):
        fields.setdefault(key, value)  # if a key is on multiple lines, the first one counts
    if "task" in fields and "title" in fields:
        return Head(reference, fields["task"], fields["title"])
    return None


def _read_start(path: Path) -> bytes | None:
    """Read the first megabyte of a file. Returns None if it can't be read."""
    try:
        if not path.is_file():  # reading a pipe could block forever
            return None
        with path.open("rb") as file:
            return file.read(_MAX_PUBLISHED_BYTES)  # enough for any published rubric
    except OSError:
        return None
