"""Reads `.claude/memory/memory-config.json`, another tool's settings, as a layer of ours.

Keys that mean nothing here are left alone; a value of the wrong type is an error that names its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from judgekit import datafile, paths

if TYPE_CHECKING:
    from pathlib import Path


class _Foreign(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Mode(_Foreign):
    verification: Literal["strict", "lenient"] | None = None
    max_output: int | None = Field(default=None, ge=0, le=20)


class _Modes(_Foreign):
    auto: _Mode = _Mode()
    search: _Mode = _Mode()


class _Judge(_Foreign):
    enabled: bool | None = None
    model: str | None = None
    timeout_per_call: float | None = Field(default=None, gt=0, le=3600)
    fallback_top_k: int | None = Field(default=None, ge=0, le=20)
    candidate_pool_size: int | None = Field(default=None, ge=1, le=30)
    dual_verification: bool | None = None
    include_conversation_context: bool | None = None
    context_turns: int | None = Field(default=None, ge=0, le=20)
    modes: _Modes = _Modes()


class _Retrieval(_Foreign):
    enabled: bool | None = None
    max_inject: int | None = Field(default=None, ge=0, le=20)
    match_strategy: str | None = None
    judge: _Judge = _Judge()


class _MemoryConfig(_Foreign):
    retrieval: _Retrieval = _Retrieval()
    judge: _Judge | None = None


def file(project: Path) -> Path:
    """Return the path of the project's memory settings."""
    return project / paths.MEMORY / "memory-config.json"


def read(project: Path) -> dict[str, Any]:
    """Return the settings as a configuration layer: only what the file says, under our names."""
    path = file(project)
    # A clone's store may be a link; what lies elsewhere is not the project's to say.
    if not path.is_file() or not path.resolve().is_relative_to(project.resolve()):
        return {}
    theirs = datafile.read(path, _MemoryConfig)
    judge = theirs.judge or theirs.retrieval.judge
    layer: dict[str, Any] = {"retrieval": _retrieval(theirs.retrieval, judge)}
    if judge.model is not None and judge.model in listed_models():
        layer["judge"] = {"tiers": {"quick": judge.model}}
    return layer


def listed_models() -> set[str]:
    """Return every model that a provider profile lists: what a project may choose from."""
    from judgekit.providers import profiles  # noqa: PLC0415 - only needed where a project names a model

    return {name for each in profiles() for name in each.models.model_dump().values() if name}


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
