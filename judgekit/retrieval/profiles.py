"""Retrieval profiles as a user writes them: YAML files that say how a store is read and ranked.

They are compiled to `bundled.json`, which the prompt hook reads without pydantic or YAML. After a change of
the bundled files `python -m judgekit.retrieval.profiles` writes it anew.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from judgekit.config import yamlfile
from judgekit.config.settings import RetrievalConfig
from judgekit.config.yamlfile import Strict, Text
from judgekit.errors import ConfigError
from judgekit.retrieval import compiled, scan
from judgekit.rubric import search_path

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
    irregular: dict[Word, Words] = {}
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


class Bm25(Strict):
    """The constants of BM25: see judgekit/retrieval/bm25.py."""

    k1: float = Field(ge=0, le=10)
    b: Share
    padding: float = Field(ge=0, le=1_000)
    prefix: Share


class Feedback(Strict):
    """What the best hits add to the order of all: see judgekit/retrieval/bm25.py."""

    entries: int = Field(ge=0, le=20)
    words: int = Field(ge=0, le=200)
    share: Share


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
    odds: float
    titled: float
    near: float
    alone: float
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


class RetrievalProfileFile(Strict):
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
    bm25: Bm25
    feedback: Feedback
    background: Background
    confidence: Confidence
    labels: Labels


def read(kind: str, project: Path | None = None) -> RetrievalProfileFile:
    """Return the profile of `kind`: the project's, else the user's, else the bundled one.

    Raises `ConfigError` when its file is wrong.
    """
    path = _find(kind, project)
    profile = yamlfile.read(path, RetrievalProfileFile, version_key="retrieval", most=yamlfile.CONFIG_BYTES)
    if profile.retrieval != kind:
        raise ConfigError(f"expected {kind!r}, as the file is named", path=path, key="retrieval")
    return profile


def read_language(name: str, project: Path | None = None) -> LanguageFile:
    """Return the words of a language, looked up like a profile; raises `ConfigError`."""
    path = _find(name, project)
    return yamlfile.read(path, LanguageFile, version_key="language", most=yamlfile.CONFIG_BYTES)


def compile_profiles(project: Path | None = None) -> dict[str, Any]:
    """Return the plain data that `judgekit.retrieval.compiled.Profiles` is made of.

    Raises `ConfigError` when a file is wrong.
    """
    profiles = {kind: read(kind, project) for kind in scan.KINDS}
    languages = {profile.language for profile in profiles.values()}
    return {
        "languages": {name: _language(read_language(name, project)) for name in sorted(languages)},
        "profiles": {
            kind: profile.model_dump(mode="json", exclude={"retrieval", "title"})
            for kind, profile in profiles.items()
        },
    }


def render() -> str:
    """Return what `bundled.json` must hold: the bundled profiles and the default settings."""
    endings = sorted({ending for source in scan.KINDS.values() for ending in source.ENDINGS})
    data = {"settings": RetrievalConfig().model_dump(mode="json"), "endings": endings, **compile_profiles()}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _find(name: str, project: Path | None) -> Path:
    for origin, folder in search_path.folders("retrieval", project):
        path = folder / f"{name}.yaml"
        if yamlfile.check_own(path, path.parents[2]) if origin == "project" else path.is_file():
            return path
    raise ConfigError(f"no file {name}.yaml in any retrieval folder; name one that exists", key="language")


def _language(file: LanguageFile) -> dict[str, Any]:
    pairs = [(form, base) for base, forms in file.irregular.items() for form in forms.split()]
    indexed = repr((sorted(file.stop), pairs, file.abbreviations))
    return {
        "fingerprint": f"{zlib.crc32(indexed.encode()):08x}",
        "stop": " ".join(file.stop),
        "common": " ".join(file.common),
        "short": " ".join(file.prefix.short),
        "min_prefix": file.prefix.min_length,
        "irregular": " ".join(f"{form} {base}" for form, base in pairs),
        "abbreviations": {short: "|".join(words) for short, words in file.abbreviations.items()},
    }


if __name__ == "__main__":
    Path(compiled.BUNDLED).write_text(render(), encoding="utf-8")
    sys.stderr.write(f"wrote {compiled.BUNDLED}\n")
