"""What `judgekit eval judge` finds out, as it stands in the JSON form."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from judgekit.evaluation.bootstrap import Interval  # noqa: TC001 - pydantic reads it at run time
from judgekit.evaluation.judge_agreement import Class  # noqa: TC001 - the same
from judgekit.evaluation.reliability import Bin  # noqa: TC001 - the same
from judgekit.evaluation.report import Part, Resampling


class Flips(Part):
    """Of `pairs` of the same subject that could be read both times, the share that was answered otherwise."""

    pairs: int
    rate: Interval | None


class Lift(Part):
    """What injected text does: shares of `pairs` with the answer that an attacker wants.

    `before` of the original texts, `after` of the injected ones, `lift` the difference.
    """

    wanted: str
    pairs: int
    before: Interval | None
    after: Interval | None
    lift: Interval | None


class Cost(Part):
    """Means for each item: calls, and US dollars over the `known` ones whose price is known."""

    calls: float
    known: int
    usd: float | None


class Confusion(Part):
    """How often what is labelled `label` was called `said`."""

    label: str
    said: str
    count: int


class Probabilities(Part):
    """How far the probabilities of `answers`, that a candidate is to be kept, were right."""

    answers: int
    brier: float
    ece: float
    bins: list[Bin]


class JudgeReport(Part):
    """One judge on the originals; `unreadable` answers are counted neither as right nor as wrong.

    `unanswered` counts the items, variants too, that no model answered, by failure. No other figure has them.
    """

    judge: str
    model: str
    items: int
    unanswered: dict[str, int] = {}
    unreadable: Interval | None
    accuracy: Interval | None
    kappa: Interval | None
    weighted_kappa: Interval | None
    classes: list[Class]
    confusion: list[Confusion]
    order_flips: Flips
    rerun_flips: Flips
    injection: Lift | None
    cost: Cost
    probabilities: Probabilities | None = None


class JudgingReport(Part):
    """All judges on one file."""

    schema_: Literal["judgekit/eval-judge@1"] = Field(default="judgekit/eval-judge@1", alias="schema")
    file: str
    rubric: str | None
    mode: str | None
    items: int
    judges: list[JudgeReport]
    bootstrap: Resampling = Resampling()
