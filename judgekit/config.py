"""What a user or a project sets, merged in the order of authority.

`JUDGEKIT_*` variables, the project's `.judgekit/config.yaml`, its `.claude/memory/memory-config.json`, the
user's `config.yaml`, the defaults. A project's files choose rubrics, modes, listed models, paths and limits
inside what the user allows; they can neither say where text is sent nor raise a limit the user has set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError

from judgekit import datafile, memory_config, paths
from judgekit.datafile import Strict
from judgekit.errors import ConfigError
from judgekit.rubric import ModeName, Text, TierName

if TYPE_CHECKING:
    from collections.abc import Mapping

Layer: TypeAlias = dict[str, Any]

_SWITCH = {True: "on", False: "off"}
Consent: TypeAlias = Annotated[
    Literal["off", "on", "project"],
    BeforeValidator(lambda value: _SWITCH[value] if isinstance(value, bool) else value),
]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=3600)]


class TierModels(Strict):
    """The model of each tier as litellm names it; null leaves the choice to the detected provider."""

    quick: Text | None = None
    deep: Text | None = None
    tiebreaker: Text | None = None


class JudgeConfig(Strict):
    """How documents are judged."""

    rubric: Text = "kls"
    mode: ModeName = "strict"
    tiers: TierModels = TierModels()
    deadline: Seconds = 180
    max_cost_usd: float | None = Field(default=None, ge=0)


class RetrievalConfig(Strict):
    """How memories are found and injected. `judge` is the user's consent to ask a model on every prompt."""

    enabled: bool = True
    roots: list[Text] = [".claude/memory"]
    scorer: Literal["fts5", "keyword"] = "fts5"
    inject: Literal["tiered", "top_k"] = "tiered"
    max_inject: int = Field(default=3, ge=0, le=20)
    pin: list[Text] = Field(default=[], description="reserved: memories to inject always; no effect yet")
    judge: Consent = "off"
    rubric: Text = "memory-relevance"
    mode: ModeName = "strict"
    search_mode: ModeName = "lenient"
    tiers: list[TierName] = Field(default=["quick"], min_length=1)
    pool: int = Field(default=15, ge=1, le=30)
    deadline: Seconds = 8
    timeout: Seconds = 3
    fallback_top_k: int = Field(default=2, ge=0, le=20)
    context_turns: int = Field(default=5, ge=0, le=20)
    show: bool = False
    hint_on_zero: bool = False


class GateConfig(Strict):
    """What is judged before a push."""

    mode: Literal["advisory", "blocking"] = "advisory"
    paths: list[Text] = ["**/*.md"]
    authors: list[Text] = []
    rubric: Text = "kls"
    judge_mode: ModeName = "lenient"
    budget: Seconds = 60


class ProvidersConfig(Strict):
    """Which providers may be used, and in which order; the user's alone to say."""

    allow: list[Text] | None = None
    order: list[Text] | None = None


class Config(Strict):
    """Everything that can be set."""

    judge: JudgeConfig = JudgeConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    gate: GateConfig = GateConfig()
    providers: ProvidersConfig = ProvidersConfig()


# A project may lower these limits that a user has set, never raise them.
_LIMITS = (
    ("judge", "deadline"),
    ("judge", "max_cost_usd"),
    ("retrieval", "max_inject"),
    ("retrieval", "pool"),
    ("retrieval", "deadline"),
    ("retrieval", "timeout"),
    ("retrieval", "context_turns"),
    ("gate", "budget"),
)


def user_file() -> Path:
    """Return the path of the user's configuration."""
    return Path(paths.config_home()) / "config.yaml"


def project_file(project: Path) -> Path:
    """Return the path of a project's configuration."""
    return project / ".judgekit" / "config.yaml"


def sources(project: Path | None) -> list[Path]:
    """Return every file that can change the configuration, whether it exists or not."""
    own = [user_file()]
    return own if project is None else [*own, project_file(project), memory_config.file(project)]


def load(project: Path | None, environ: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration that holds in `project`.

    Raises `ConfigError` naming the file or variable, the line, the key and what was expected.
    """
    user = _read(user_file())
    merged = user
    if project is not None:
        theirs = _merge(memory_config.read(project), _project_layer(project))
        merged = _merge(user, _within_limits(theirs, user))
    return Config.model_validate(_merge(merged, _variables(environ)))


def _read(path: Path) -> Layer:
    if not path.is_file():
        return {}
    return datafile.read(path, Config).model_dump(exclude_unset=True)


def _project_layer(project: Path) -> Layer:
    path = project_file(project)
    layer = _read(path)
    if "providers" in layer:
        raise ConfigError(
            f"only the user's configuration may choose providers; move it to {user_file()}",
            path=path,
            key="providers",
        )
    for root in layer.get("retrieval", {}).get("roots", []):
        if not _inside(project, root):
            raise ConfigError(
                f"{root!r} leads out of the project; only the user's configuration may name such a root",
                path=path,
                key="retrieval.roots",
            )
    _refuse_unlisted_models(layer, path)
    return layer


def _refuse_unlisted_models(layer: Layer, path: Path) -> None:
    named = {tier: model for tier, model in layer.get("judge", {}).get("tiers", {}).items() if model}
    if not named:
        return
    listed = memory_config.listed_models()
    for tier, model in named.items():
        if model not in listed:
            raise ConfigError(
                f"no provider profile lists the model {model!r}; choose a listed one "
                "(judgekit provider list), or name it in the user's configuration",
                path=path,
                key=f"judge.tiers.{tier}",
            )


def _inside(project: Path, root: str) -> bool:
    if root.startswith("~") or ":" in root:
        return False
    return (project / root).resolve().is_relative_to(project.resolve())


def _within_limits(theirs: Layer, user: Layer) -> Layer:
    """Return a project's layer with the user's limits and consent put above it."""
    bounded = _merge({}, theirs)
    for section, key in _LIMITS:
        limit = user.get(section, {}).get(key)
        wanted = bounded.get(section, {}).get(key)
        if limit is not None and key in bounded.get(section, {}) and (wanted is None or wanted > limit):
            bounded[section][key] = limit
    consent = user.get("retrieval", {}).get("judge", "off")
    asked = bounded.get("retrieval", {}).pop("judge", "off")
    bounded.setdefault("retrieval", {})["judge"] = asked if consent == "project" else consent
    return bounded


def _merge(below: Layer, above: Layer) -> Layer:
    """Return `below` with the keys of `above` put over it, section by section."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = (
            _merge(under if isinstance(under, dict) else {}, value) if isinstance(value, dict) else value
        )
    return merged


def _variables(environ: Mapping[str, str]) -> Layer:
    """Read `JUDGEKIT_<SECTION>_<KEY>` variables; a list is separated by commas."""
    layer: Layer = {}
    names = {}
    for section, model in (("judge", JudgeConfig), ("retrieval", RetrievalConfig), ("gate", GateConfig)):
        for key, field in model.model_fields.items():
            name = f"JUDGEKIT_{section}_{key}".upper()
            value = environ.get(name, "")
            if value and key != "tiers":
                is_list = isinstance(field.get_default(), list)
                layer.setdefault(section, {})[key] = value.split(",") if is_list else value
                names[section, key] = name
    try:
        Config.model_validate(layer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        section, key = (str(part) for part in first["loc"][:2])
        raise ConfigError(datafile.describe(first), key=names[section, key]) from None
    return layer
