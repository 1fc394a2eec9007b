"""What `judgekit eval retrieval` finds out, as it stands in the JSON form."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from judgekit.evaluation.bootstrap import LEVEL, RESAMPLES, SEED, Interval
from judgekit.evaluation.reliability import Bin, Group


class Part(BaseModel):
    """Base of the report's parts."""

    model_config = ConfigDict(frozen=True)


class Confidence(Part):
    """How far confidences were right: `hits` were shown, `bins` and `labels` say how many were relevant."""

    hits: int
    brier: float | None
    ece: float | None
    bins: list[Bin]
    labels: list[Group]


class Injection(Part):
    """What the prompt hook would have added, had every query been a prompt.

    `injected` and `nudged` are shares of the `prompts`; a prompt may get both. `precision` is the share of
    relevant ones among all that were injected, `coverage` the share of the `answerable` prompts that got
    something relevant.
    """

    prompts: int
    answerable: int
    injected: Interval | None
    nudged: Interval | None
    precision: Interval | None
    coverage: Interval | None


class Elsewhere(Part):
    """What the hook would have added from the documents of another scope, where nothing can be relevant."""

    prompts: int
    injected: Interval | None
    nudged: Interval | None


class ProfileUsed(Part):
    """The retrieval profile that ranked."""

    retrieval: str
    version: str


class Resampling(Part):
    """How the intervals came about."""

    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = SEED


class Report(Part):
    """The whole of it.

    `judged` queries have judgements; `metrics` are means over these, of rankings `depth` deep. `strays` are
    judgements of queries or documents that are not there. `scopes` counts those with documents; None when
    every query searched everything.
    """

    collection: str
    documents: int
    scopes: int | None
    queries: int
    judged: int
    strays: int
    profile: ProfileUsed
    depth: int
    metrics: dict[str, Interval | None]
    confidence: Confidence
    injection: Injection
    elsewhere: Elsewhere | None
    bootstrap: Resampling = Resampling()
