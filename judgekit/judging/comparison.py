"""Comparisons: which of several subjects is better, with every round that led to it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from judgekit.config.names import ModeName, TierName
from judgekit.errors import CostSource
from judgekit.judging.verdict import Consensus, Failure, RubricRef, Usage

TIE = "tie"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Letter = Annotated[str, StringConstraints(pattern="^[A-Z]$")]
Word = Annotated[str, StringConstraints(pattern="^([A-Z]|tie|escalate|undetermined)$")]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Contestant(_Record):
    """One of the subjects, and which `family` of models wrote it, where that is said.

    `score` is its mean where subjects are scored, over all that tiers gave it.
    """

    letter: Letter
    path: str
    sha256: str
    family: str | None = None
    score: float | None = None
    tier: TierName | None = None


class CompareRound(_Record):
    """One call: an opinion or a failure. `order` holds the letters as the model saw them, one when scored.

    `criterion` is the one that was asked about alone; of several replies `sample` is the number, from 1.
    """

    round: int
    tier: TierName
    model: str
    order: list[Letter]
    criterion: str | None = None
    sample: int | None = None
    opinion: dict[str, Any] | None = None
    failure: Failure | None = None
    latency_ms: int = 0
    usage: Usage = Usage()


class Comparison(_Record):
    """What was decided between subjects: the letter of the better one, `tie`, or that it is not known.

    `lead` is by how much: the share of the deciding tier's families, or points of the scale. `prompt_sha256`
    is the hash of the rubric's templates, `question_sha256` that of the prompt which the subjects answer.
    `families` are those of the models behind the verdict; `independent` says whether there is one among them
    that wrote none of the subjects. `redacted` secrets were left out of what was sent. `substitutes` are the
    providers that were asked in place of the authors' own families.
    """

    schema_: Literal["judgekit/comparison@1"] = Field(default="judgekit/comparison@1", alias="schema")
    id: str
    subjects: list[Contestant]
    question_sha256: str
    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    calibration: str | None = None
    verdict: Word
    lead: float | None = None
    reasoning: str = ""
    consensus: Consensus
    judge_tier: TierName | None = None
    rounds: list[CompareRound] = []
    degraded: str | None = None
    truncated: bool = False
    families: list[str] = []
    independent: bool | None = None
    redacted: int = 0
    substitutes: list[str] = []
    timestamp: AwareDatetime
    duration_ms: int
    cost_usd: float | None = None
    cost_source: CostSource | None = None
    cost_complete: bool = True

    @property
    def decided(self) -> bool:
        """Whether there is a winner or a tie."""
        return self.verdict == TIE or len(self.verdict) == 1
