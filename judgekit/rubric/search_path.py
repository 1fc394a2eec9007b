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
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Origin: TypeAlias = Literal["path", "project", "user", "bundled"]

_HEAD = re.compile(r"^(rubric|version|task|title): +(\S(?:.*[^ \n])?) *$", re.MULTILINE)


class Head(NamedTuple):
    ref: str
    task: str
    title: str


def folders(kind: str, project: Path | None) -> Iterator[tuple[Origin, Path]]:
    """Yield the folders that may hold files of `kind` ("rubrics" or "retrieval"), first wins."""
    if project is not None:
        yield "project", project / ".judgekit" / kind
    yield "user", Path(environment.config_home()) / kind
    yield "bundled", files.folder(kind)


def rubric_files(project: Path | None = None) -> Iterator[tuple[Origin, Path]]:
    """Yield the file of every rubric, in look-up order, without reading it."""
    for origin, folder in folders("rubrics", project):
        for path in sorted(folder.glob("*.yaml")):
            yield origin, path


@lru_cache(maxsize=1)
def published() -> dict[str, str]:
    """Return the SHA-256 of every published version, by `id@version`."""
    locked = lines_of((files.folder("rubrics") / "versions.lock").read_bytes().decode())
    digests = {}
    for line in filter(None, locked):
        digest, _, reference = line.partition("  ")
        digests[reference] = digest
    return digests


def head(path: Path) -> Head | None:
    """Read the head of a published rubric as text; None for any other file, which must be parsed."""
    try:
        if not path.is_file():  # a pipe may have no end
            return None
        with path.open("rb") as file:
            data = file.read(1_000_000)  # no published rubric has as many
    except OSError:
        return None
    if published().get(path.stem) != hashlib.sha256(data).hexdigest():
        return None
    lines = dict(reversed(_HEAD.findall(data.decode("utf-8"))))  # of two alike the first counts
    if {"task", "title"} <= lines.keys():
        return Head(path.stem, lines["task"], lines["title"])
    return None
