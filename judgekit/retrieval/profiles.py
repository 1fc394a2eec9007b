"""Retrieval profiles as users write them: YAML files that say how a store is read and ranked.

They're compiled to `bundled.json`, which the prompt hook reads without pydantic or YAML. After changing the
bundled files, run `python -m judgekit.retrieval.profiles` to write it again.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zlib
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from judgekit.config import yamlfile
from judgekit.config.settings import RetrievalConfig
from judgekit.config.yamlfile import Strict, Text, Version
from judgekit.errors import ConfigError
from judgekit.retrieval import compiled, scan
from judgekit.retrieval.terms import fold
from judgekit.rubric import search_path
from judgekit.text import split_lines

_HEAD_CHARS = 20_000  # characters of a file that contain its first keys

Word = Annotated[str, StringConstraints(pattern=r"^[^\W_]+$")]
Words = Annotated[str, StringConstraints(pattern=r"^[^\W_]+( [^\W_]+)*$")]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=100)]


class Prefix(Strict):
    min_length: int = Field(ge=2)
    short: list[Word] = []


class Step(Strict):
    """A step of a stemmer: of the endings the longest that leaves `least` letters is replaced."""

    least: int = Field(default=3, ge=1)
    drop: list[Word] = []
    replace: dict[Word, Word] = {}

    @model_validator(mode="after")
    def _check_endings(self) -> Step:
        if not self.drop and not self.replace:
            raise ValueError("expected endings in `drop` or `replace`")
        return self


class LanguageFile(Strict):
    """A language. Without `endings`, its words are stemmed as English ones."""

    language: Text
    version: Version
    stop: list[Word]
    common: list[Word] = []
    prefix: Prefix = Prefix(min_length=4)
    joiners: list[Word] = []
    irregular: dict[Word, Words] = {}
    abbreviations: dict[Word, Annotated[list[Words], Field(min_length=1)]] = {}
    endings: list[Step] | None = None


class CategoryData(Strict):
    folder: Text | None = None
    body: list[Text] = []


class Weights(Strict):
    """How much a match counts by column. `parts` are the words hidden in identifiers and abbreviations."""

    title: Weight
    tags: Weight
    body: Weight
    parts: Weight


class Bm25(Strict):
    k1: float = Field(ge=0, le=10)
    b: Share
    padding: float = Field(ge=0, le=1_000)
    prefix: Share


class Feedback(Strict):
    entries: int = Field(ge=0, le=20)
    words: int = Field(ge=0, le=200)
    share: Share


class Background(Strict):
    documents: int = Field(ge=1)
    plain: Share
    common: Share


class Confidence(Strict):
    """Coefficients of the regression in confidence.py; a term in the body alone counts `body_share`."""

    intercept: float
    odds: float
    titled: float
    near: float
    alone: float
    coverage: float = 0.0
    body_share: Share


class Request(Strict):
    """Coefficients of what tells a request from talk; by default, in a copy of old, all is a request."""

    intercept: float = 20.0
    parts: float = 0.0
    statements: float = 0.0
    matched: float = 0.0


class Labels(Strict):
    """The least confidence of each label; below `mention` a prompt is not told of a candidate."""

    high: Share
    medium: Share
    mention: Share

    @model_validator(mode="after")
    def _check_order(self) -> Labels:
        if not self.high >= self.medium >= self.mention:
            raise ValueError("expected high >= medium >= mention")
        return self


class RetrievalProfileFile(Strict):
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
    request: Request = Request()
    labels: Labels


def read_profile(kind: str, project: Path | None = None) -> RetrievalProfileFile:
    """Read a kind's profile: the project's, the user's, or else the bundled one.

    Raises `ConfigError` if the file is invalid, or for another kind.
    """
    path = find(kind, project)
    profile = yamlfile.read_model(
        path, RetrievalProfileFile, version_key="retrieval", max_bytes=yamlfile.CONFIG_BYTES
    )
    stated_kind = profile.retrieval
    if stated_kind != kind:
        raise ConfigError(f"expected {kind!r}, as the file is named", path=path, key="retrieval")
    return profile


def compile_profiles(project: Path | None = None) -> dict[str, Any]:
    """Compile profiles to plain data for `compiled.Profiles`; raises `ConfigError`."""
    profiles = {kind: read_profile(kind, project) for kind in scan.SOURCE_BY_KIND}

    language_names = _list_language_names(project)
    # If a profile names a language without a file, reading that language raises an error.
    language_names.update(profile.language for profile in profiles.values())
    languages = {}
    for name in sorted(language_names):
        languages[name] = _compile_language(read_language(name, project))

    plain_profiles = {}
    for kind, profile in profiles.items():
        plain_profiles[kind] = profile.model_dump(mode="json", exclude={"retrieval", "title"})
    return {"languages": languages, "profiles": plain_profiles}


def read_language(name: str, project: Path | None = None) -> LanguageFile:
    """Read a language: the project's, the user's, or else the bundled one. Raises `ConfigError`."""
    path = find(name, project)
    max_bytes = yamlfile.CONFIG_BYTES
    return yamlfile.read_model(path, LanguageFile, version_key="language", max_bytes=max_bytes)


def _list_language_names(project: Path | None) -> set[str]:
    """Return the names of all languages with a file in a retrieval folder."""
    names = set()
    for _, folder in search_path.list_folders("retrieval", project):
        for path in folder.glob("*.yaml"):
            if path.stem not in scan.SOURCE_BY_KIND and _is_language(path):
                names.add(path.stem)
    return names


def _is_language(path: Path) -> bool:
    """Whether a file starts with the keys of a language file. Links and devices aren't read."""
    if path.is_symlink() or not path.is_file():
        return False

    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            beginning = file.read(_HEAD_CHARS)
    except OSError:
        return False

    keys = set()
    for line in split_lines(beginning):
        key, _, _ = line.partition(":")
        keys.add(key)
    # A retrieval profile has both keys.
    return "language" in keys and "retrieval" not in keys


def _compile_language(file: LanguageFile) -> dict[str, Any]:
    """Compile a language to data for `compiled.Language`. Its words lose their accents."""
    form_pairs = _list_irregular_forms(file)
    stop_words = list(dict.fromkeys(map(fold, file.stop)))  # without duplicates
    abbreviations = {short: "|".join(words) for short, words in file.abbreviations.items()}

    # A language without its own stemmer uses the one for English.
    stemmer_steps = None
    if file.endings is not None:
        stemmer_steps = [_compile_step(step) for step in file.endings]

    # The fingerprint covers only the rules that affect the index.
    indexing_rules = (sorted(stop_words), form_pairs, file.abbreviations, stemmer_steps)
    checksum = zlib.crc32(repr(indexing_rules).encode())
    return {
        "fingerprint": f"{checksum:08x}",
        "stop": " ".join(stop_words),
        "common": " ".join(map(fold, file.common)),
        "short": " ".join(file.prefix.short),
        "joiners": " ".join(map(fold, file.joiners)),
        "min_prefix": file.prefix.min_length,
        "irregular": " ".join(f"{form} {base}" for form, base in form_pairs),
        "abbreviations": abbreviations,
        "endings": stemmer_steps,
    }


def _list_irregular_forms(file: LanguageFile) -> list[tuple[str, str]]:
    """List each irregular form with its base, such as `("went", "go")`."""
    form_pairs = []
    for base, forms in file.irregular.items():
        for form in forms.split():
            form_pairs.append((fold(form), fold(base)))
    return form_pairs


def _compile_step(step: Step) -> str:
    """Compile a stemmer's step to text that's quick to parse, such as `3 ing: ies:y`.

    This drops `ing` and replaces `ies` by `y` if at least 3 letters are left of the word.
    """
    replacements = {fold(ending): "" for ending in step.drop}
    for ending, replacement in step.replace.items():
        replacements[fold(ending)] = fold(replacement)
    pairs = [f"{ending}:{replacement}" for ending, replacement in replacements.items()]
    return " ".join([str(step.least), *pairs])


def render() -> str:
    """Render the content of `bundled.json`: the bundled profiles and default settings."""
    endings: set[str] = set()
    for source in scan.SOURCE_BY_KIND.values():
        endings.update(source.ENDINGS)

    stemmer_path = Path(compiled.BUNDLED).with_name("stemmer.toml")
    data = {
        "settings": RetrievalConfig().model_dump(mode="json"),
        "endings": sorted(endings),
        "stemmer": tomllib.loads(stemmer_path.read_text("utf-8")),
    }
    data.update(compile_profiles())
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def find(name: str, project: Path | None) -> Path:
    """Find the first file for a kind or language in the retrieval folders; raises `ConfigError`."""
    for origin, folder in search_path.list_folders("retrieval", project):
        path = folder / f"{name}.yaml"
        if origin == "project":
            project_root = path.parents[2]  # above `.judgekit/retrieval/`
            exists = yamlfile.check_project_file(path, project_root)
        else:
            exists = path.is_file()

        if exists:
            return path

    raise ConfigError(
        f"no file {name}.yaml in any retrieval folder; name one that exists", key="language"
    )


if __name__ == "__main__":
    Path(compiled.BUNDLED).write_text(render(), encoding="utf-8")
    sys.stderr.write(f"wrote {compiled.BUNDLED}\n")
