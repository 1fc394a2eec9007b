"""Retrieval profiles as a user writes them: YAML files that say how a store is read and ranked.

They are compiled to `profiles.json`, which the prompt hook reads without pydantic or YAML. After a change
of the bundled files: `python -m judgekit.retrieval.profile` writes it anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from judgekit import datafile, library
from judgekit.config import RetrievalConfig
from judgekit.datafile import Strict
from judgekit.errors import ConfigError
from judgekit.retrieval import compiled
from judgekit.rubric import Text

Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
Word = Annotated[str, StringConstraints(pattern=r"^[^\W_]+$")]
Words = Annotated[str, StringConstraints(pattern=r"^[^\W_]+( [^\W_]+)*$")]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=100)]


class Prefix(Strict):
    """Which words also match as the beginning of a longer one."""

    min_length: int = Field(ge=2)
    short: list[Word] = []


class LanguageFile(Strict):
    """How prompts of one language are cut into search terms."""

    language: Text
    version: Version
    stop: list[Word]
    common: list[Word]
    prefix: Prefix
    abbreviations: dict[Word, Annotated[list[Words], Field(min_length=1)]] = {}


class CategoryData(Strict):
    """The folder of a category's records, and the fields of theirs that are text to search."""

    folder: Text | None = None
    body: list[Text] = []


class Weights(Strict):
    """How much a match counts by column. `parts` are the words hidden in identifiers and abbreviations."""

    title: Weight
    tags: Weight
    body: Weight
    parts: Weight


class Background(Strict):
    """The imagined collection that smooths the rarity of words in small stores."""

    documents: int = Field(ge=1)
    plain: Share
    common: Share


class Confidence(Strict):
    """Coefficients of the logistic regression in judgekit/retrieval/confidence.py.

    `body_share` is what a term counts that stands in the body alone; one in title or tags counts 1.
    """

    intercept: float
    coverage: float
    alone: float
    standing: float
    single: float
    body_share: Share


class Labels(Strict):
    """The least confidence of each label; below `mention` a prompt is not told of a candidate."""

    high: Share
    medium: Share
    mention: Share

    @model_validator(mode="after")
    def _ordered(self) -> Labels:
        if not self.high >= self.medium >= self.mention:
            raise ValueError("expected high >= medium >= mention")
        return self


class ProfileFile(Strict):
    """One kind of store."""

    retrieval: Text
    version: Version
    title: Text
    language: Text
    categories: Annotated[dict[str, CategoryData], Field(min_length=1)]
    max_bytes: int = Field(ge=1_000, le=10_000_000)
    recent_days: float = Field(ge=0)
    weights: Weights
    noise_floor: Share
    tiny_store: int = Field(ge=0)
    background: Background
    confidence: Confidence
    labels: Labels


KINDS = (compiled.CLAUDE_MEMORY, compiled.AUTO_MEMORY, compiled.MARKDOWN)


def read(kind: str, project: Path | None = None) -> ProfileFile:
    """Return the profile of `kind`: the project's, else the user's, else the bundled one.

    Raises `ConfigError` when its file is wrong.
    """
    path = _find(kind, project)
    profile = datafile.read(path, ProfileFile, version_key="retrieval")
    if profile.retrieval != kind:
        raise ConfigError(f"expected {kind!r}, as the file is named", path=path, key="retrieval")
    return profile


def read_language(name: str, project: Path | None = None) -> LanguageFile:
    """Return the words of a language, looked up like a profile; raises `ConfigError`."""
    return datafile.read(_find(name, project), LanguageFile, version_key="language")


def compile_profiles(project: Path | None = None) -> dict[str, Any]:
    """Return the plain data that `judgekit.retrieval.compiled.Profiles` is made of.

    Raises `ConfigError` when a file is wrong.
    """
    profiles = {kind: read(kind, project) for kind in KINDS}
    languages = {each.language for each in profiles.values()}
    return {
        "languages": {name: _language(read_language(name, project)) for name in sorted(languages)},
        "profiles": {
            kind: each.model_dump(mode="json", exclude={"retrieval", "title"})
            for kind, each in profiles.items()
        },
    }


def render() -> str:
    """Return what `profiles.json` must hold: the bundled profiles and the default settings."""
    settings = {"settings": RetrievalConfig().model_dump(mode="json")}
    return json.dumps(settings | compile_profiles(), ensure_ascii=False, indent=1) + "\n"


def _find(name: str, project: Path | None) -> Path:
    for _, folder in library.folders("retrieval", project):
        path = folder / f"{name}.yaml"
        if path.is_file():
            return path
    raise ConfigError(f"no file {name}.yaml in any retrieval folder; name one that exists", key="language")


def _language(file: LanguageFile) -> dict[str, Any]:
    return {
        "stop": " ".join(file.stop),
        "common": " ".join(file.common),
        "short": " ".join(file.prefix.short),
        "min_prefix": file.prefix.min_length,
        "abbreviations": {short: "|".join(words) for short, words in file.abbreviations.items()},
    }


if __name__ == "__main__":
    Path(compiled.BUNDLED).write_text(render(), encoding="utf-8")
    sys.stderr.write(f"wrote {compiled.BUNDLED}\n")
