"""Begins a rubric: a copy of another one under a name of its own, or a commented one to be changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.config import files, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.rubric import loader, search_path
from judgekit.rubric.cases import cases_path

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.rubric.loader import LoadedRubric

StarterTask: TypeAlias = Literal["score", "select", "compare"]
FIRST = "1.0.0"


class Begun(NamedTuple):
    """The files of a rubric that was begun."""

    rubric: Path
    cases: Path


def begin(name: str, folder: Path, *, task: StarterTask = "score", like: LoadedRubric | None = None) -> Begun:
    """Write the rubric `name` (`ID` or `ID@VERSION`) and its cases into `folder`, and return both files.

    It is a copy of the rubric `like`, else a commented one for `task`. Nothing is ever overwritten.
    Raises `UsageError` for a name that is none or is taken, `ConfigError` where nothing can be written.
    """
    ref = _ref(name)
    source = like.path if like else files.folder("rubrics") / "starters" / f"{task}.yaml"
    text = _named(source, ref)
    path = folder / f"{ref}.yaml"
    begun = Begun(path, cases_path(path))
    for each in begun:
        if each.exists():
            raise UsageError(f"{each} is there already; give another id or version, or change that one")
    cases = cases_path(source)
    _write(begun.rubric, text)
    _write(begun.cases, cases.read_text(encoding="utf-8") if cases.is_file() else "")
    return begun


def _ref(name: str) -> str:
    ref = name if "@" in name else f"{name}@{FIRST}"
    if not loader.is_reference(ref):
        raise UsageError(
            f"{name!r} is neither ID nor ID@VERSION (small letters, digits and hyphens; three numbers)"
        )
    if ref in search_path.published():
        raise UsageError(f"{ref} is published and does not change; give an id or a version of its own")
    return ref


def _named(source: Path, ref: str) -> str:
    """Return the text of a rubric's file under another name; every other character stays as it is."""
    text = source.read_text(encoding="utf-8")
    wanted = dict(zip(("rubric", "version"), ref.split("@"), strict=True))
    for key, value in wanted.items():
        text = re.sub(rf"^{key}: .*$", f"{key}: {value}", text, count=1, flags=re.MULTILINE)
    found = yamlfile.parsed(text)
    if any(str(found.get(key)) != value for key, value in wanted.items()):
        raise ConfigError("its layout is too unusual to be renamed; copy it by hand", path=source)
    return text


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror})", path=path) from None
