"""What one model, or the jury of one tier, makes of a document (an opinion) or of a candidate (a mark)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from judgekit.config.names import Outcome
    from judgekit.judging.verdict import Finding


@dataclass(frozen=True, slots=True)
class Opinion:
    """Scores of a document and what the thresholds make of them; `said` is the model's own verdict word.

    `samples` is how many replies of the model the scores are the mean of. Of a jury whose families came to
    different outcomes, `divided` says whether most of them came to this one; else it is None. `dimensions`
    are those that the reasoning speaks of, `expected` those whose score is the mean over the scale's points,
    each weighted with its probability.
    """

    outcome: Outcome
    scores: dict[str, float]
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    said: str | None = None
    samples: int = 1
    divided: bool | None = None
    dimensions: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the opinion as it stands in a round."""
        findings = [finding.model_dump() for finding in self.findings]
        how = {"samples": self.samples} if self.samples > 1 else {}
        told = {"expected": list(self.expected)} if self.expected else {}
        return {
            "outcome": self.outcome,
            "scores": self.scores,
            "reasoning": self.reasoning,
            "dimensions": list(self.dimensions),
            "findings": findings,
            "said": self.said,
            **how,
            **told,
        }


@dataclass(frozen=True, slots=True)
class Mark:
    """Whether one candidate is kept (`accept`) or dropped (`reject`); exactly between is `improve`.

    The probability is known where models give token probabilities or several samples. `divided` is as in
    an opinion.
    """

    outcome: Outcome
    probability: float | None = None
    divided: bool | None = None


Marks: TypeAlias = dict[str, Mark | None]
"""The marks of one round by candidate id; None where the round brought none."""
