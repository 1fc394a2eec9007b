"""A caller's request to a judge: one model for the Python API, the command line and the engine.

Each option of judging is a field of `JudgeRequest` and a key of `JudgeArgs`. The command line declares it in
`cli/judge.py`; the Python API and the engine take it from here.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from judgekit.config import AnyDepth, ModeName


def _check_text(value: object) -> str:
    """Return a string unchanged; raises `ValueError` for any other value."""
    if not isinstance(value, str):
        raise ValueError("expected a text")  # noqa: TRY004 - what pydantic turns into a message
    return value


# Text from the caller's system: a path may hold bytes that aren't UTF-8, which pydantic would refuse.
Raw: TypeAlias = Annotated[Any, AfterValidator(_check_text)]
ModelName: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class JudgeRequest(BaseModel):
    """A request to a judge; None means that the configuration decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rubric: Raw | None = None
    """An id, `ID@VERSION`, or a file's path."""
    mode: ModeName | None = None
    deadline: float | None = Field(default=None, gt=0)
    """Seconds per document."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    """US dollars per document; for rows, in total."""
    cache: bool = True
    """Whether an earlier reply to the same question may be reused."""
    model: ModelName | None = None
    """The model to ask in every tier, by the user's own authority."""
    depth: AnyDepth | None = None
    """How many models are asked about a document; `auto` chooses by its path and size."""
    explain: bool = False
    """Whether a model that writes gives the reasons if a decision model alone wouldn't accept."""


class JudgeArgs(TypedDict, total=False):
    """The judging options of a call in the Python API, explained in `JudgeRequest`."""

    rubric: str | None
    mode: ModeName | None
    deadline: float | None
    max_cost_usd: float | None
    cache: bool
    model: str | None
    depth: AnyDepth | None
    explain: bool


DOCUMENT_ONLY_OPTIONS = ("depth", "explain")
"""The options that don't apply to comparing texts."""

DEFAULT_REQUEST = JudgeRequest()
