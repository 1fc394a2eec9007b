"""How models are asked and their answers put together: what a user sets beside rubric, mode and models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from judgekit.config.settings import JudgeConfig
    from judgekit.providers.base import Endpoint
    from judgekit.rubric.schema import CompareRubric, ScoreRubric, SelectRubric

AnyRubric = TypeVar("AnyRubric", "ScoreRubric", "SelectRubric", "CompareRubric")
JuryRule: TypeAlias = Literal["mean", "majority"]
"""How the models of a tier come to one opinion."""


class JudgeOptions(NamedTuple):
    """How judging is done.

    `jury` says how the models of a tier come to one opinion. `samples` is how many replies of a model are
    averaged. `each` asks about one dimension or criterion in a call instead of all together. An opinion
    whose scores are less than `margin` points from another outcome is not final in its tier. Without `redact`
    secrets are sent with the texts they stand in.
    """

    jury: JuryRule = "mean"
    samples: int = 1
    each: bool = False
    margin: float = 0.0
    redact: bool | Literal["refuse"] = True

    def samples_of(self, endpoint: Endpoint) -> int:
        """Return how many replies of a model there must be: token probabilities leave nothing to repeat."""
        return 1 if endpoint.pointwise else self.samples

    def calls(self, questions: int) -> int:
        """Return how many calls a model of a tier may get at a time for one subject."""
        return self.samples * (questions if self.each else 1)

    def asked(self, rubric: AnyRubric) -> dict[str, AnyRubric]:
        """Return what each call asks about, by its part of the key: the whole rubric, or one question."""
        if not self.each or len(rubric.questions) == 1:
            return {"": rubric}
        return {name: rubric.about(name) for name in rubric.questions}

    def refusal(self, secrets: int) -> str:
        """Say why nothing is sent of what so many secrets were found in; "" where it is, without them."""
        if self.redact != "refuse" or not secrets:
            return ""
        were = "1 secret was" if secrets == 1 else f"{secrets} secrets were"
        return f"{were} found, and judge.redact is refuse"


USUAL = JudgeOptions()


def configured(judge: JudgeConfig) -> JudgeOptions:
    """Return the options that a configuration asks for."""
    return JudgeOptions(judge.jury, judge.samples, judge.criteria == "each", judge.margin, judge.redact)
