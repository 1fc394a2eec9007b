"""Reads `.claude/memory/memory-config.json`, another tool's settings, as a layer of ours.

Keys that mean nothing here are left alone; a value of the wrong type is an error that names its key. A number
that the other tool allows and we do not becomes the nearest that we do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from judgekit import environment
from judgekit.config import files, yamlfile

if TYPE_CHECKING:
    from pathlib import Path


class _Foreign(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


def _within(least: float, most: float) -> AfterValidator:
    return AfterValidator(lambda number: max(least, min(number, most)))


_UpTo20: TypeAlias = Annotated[int, _within(0, 20)]
_Pool: TypeAlias = Annotated[int, _within(1, 30)]
_Seconds: TypeAlias = Annotated[float, Field(allow_inf_nan=False), _within(0.1, 3600)]


class _Mode(_Foreign):
    verification: Literal["strict", "lenient"] | None = None
    max_output: _UpTo20 | None = None


class _Modes(_Foreign):
    auto: _Mode = _Mode()
    search: _Mode = _Mode()


class _Judge(_Foreign):
    enabled: bool | None = None
    model: str | None = None
    timeout_per_call: _Seconds | None = None
    fallback_top_k: _UpTo20 | None = None
    candidate_pool_size: _Pool | None = None
    dual_verification: bool | None = None
    include_conversation_context: bool | None = None
    context_turns: _UpTo20 | None = None
    modes: _Modes = _Modes()


class _Retrieval(_Foreign):
    enabled: bool | None = None
    max_inject: _UpTo20 | None = None
    match_strategy: str | None = None
    judge: _Judge = _Judge()


class _MemoryConfig(_Foreign):
    retrieval: _Retrieval = _Retrieval()
    judge: _Judge | None = None


class _Listing(_Foreign):
    """What a provider profile says of its models."""

    models: dict[str, str | None] = {}


def file(project: Path) -> Path:
    """Return the path of the project's memory settings."""
    return project / environment.MEMORY / environment.MEMORY_CONFIG


def read(project: Path) -> dict[str, Any]:
    """Return the settings as a configuration layer: only what the file says, under our names."""
    path = file(project)
    # A clone's store may be a link; what lies elsewhere is not the project's to say.
    if not path.parent.resolve().is_relative_to(project.resolve()):
        return {}
    if not yamlfile.check_own(path, path.parent):
        return {}
    theirs = yamlfile.read(path, _MemoryConfig, most=yamlfile.CONFIG_BYTES)
    judge = theirs.judge or theirs.retrieval.judge
    layer: dict[str, Any] = {"retrieval": _retrieval(theirs.retrieval, judge)}
    if judge.model is not None and judge.model in listed_models():
        layer["judge"] = {"tiers": {"quick": judge.model}}
    return layer


def listed_models() -> set[str]:
    """Return every model that a provider profile lists: what a project may choose from."""
    listings = (yamlfile.read(path, _Listing, version_key="provider") for path in files.profile_files())
    return {name for listing in listings for name in listing.models.values() if name}


def _retrieval(theirs: _Retrieval, judge: _Judge) -> dict[str, Any]:
    found = {
        "enabled": theirs.enabled,
        "max_inject": judge.modes.auto.max_output if theirs.max_inject is None else theirs.max_inject,
        "scorer": {"title_tags": "keyword", "fts5_bm25": "fts5"}.get(theirs.match_strategy or ""),
        "judge": None if judge.enabled is None else ("on" if judge.enabled else "off"),
        "timeout": judge.timeout_per_call,
        "fallback_top_k": judge.fallback_top_k,
        "pool": judge.candidate_pool_size,
        "context_turns": 0 if judge.include_conversation_context is False else judge.context_turns,
        "mode": judge.modes.auto.verification,
        "search_mode": judge.modes.search.verification,
        "rubric": "memory-two-criteria" if judge.dual_verification else None,
    }
    return {key: value for key, value in found.items() if value is not None}
