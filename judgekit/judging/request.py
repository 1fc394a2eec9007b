"""What a caller asks of a judge: one model for the Python API, the command line and the engine.

An option of judging is a field of `JudgeRequest` and a key of `JudgeArgs`. The command line declares it in
`cli/judge.py`; the Python API and the engine take it from here.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from judgekit.config import AnyDepth, ModeName


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")  # noqa: TRY004 - what pydantic turns into a message
    return value


# Texts of the caller's system: a path may hold bytes that are not UTF-8, which pydantic's own check refuses.
Raw: TypeAlias = Annotated[Any, AfterValidator(_text)]
ModelName: TypeAlias = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class JudgeRequest(BaseModel):
    """What is asked of a judge; what is None comes from the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rubric: Raw | None = None
    """An id, `ID@VERSION`, or the path of a file."""
    mode: ModeName | None = None
    deadline: float | None = Field(default=None, gt=0)
    """Seconds for a document."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    """US dollars for a document; of rows for all of them."""
    cache: bool = True
    """Whether an earlier reply to the same question may be used."""
    model: ModelName | None = None
    """The model that is asked in every tier, by the user's own authority."""
    depth: AnyDepth | None = None
    """How many models are asked about a document; `auto` chooses by path and size."""
    explain: bool = False
    """Whether a model that writes gives the reasons, where a decision model alone would not accept."""


class JudgeArgs(TypedDict, total=False):
    """The options of judging in a call of the Python API; `JudgeRequest` says what they mean."""

    rubric: str | None
    mode: ModeName | None
    deadline: float | None
    max_cost_usd: float | None
    cache: bool
    model: str | None
    depth: AnyDepth | None
    explain: bool


OF_DOCUMENTS = ("depth", "explain")
"""The options that texts which are compared do not have."""

AS_CONFIGURED = JudgeRequest()
