"""What one judging of a document has brought so far: every round, and what each tier came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.judging.logprobs import score_source
from judgekit.judging.verdict import Round, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.names import TierName
    from judgekit.judging.escalation import Final
    from judgekit.judging.jury import Opinion
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.judging.round import Answer
    from judgekit.providers.base import Endpoint


def round_record(number: int, tier: TierName, answer: Answer[Any], opinion: dict[str, Any] | None) -> Round:
    """Return the record of one round."""
    return Round(
        round=number,
        tier=tier,
        model=answer.model,
        opinion=opinion,
        failure=answer.failure,
        latency_ms=answer.latency_ms,
        usage=Usage(**answer.usage._asdict()),
    )


class ModelOpinion(NamedTuple):
    """One model's opinion, in a tier that counts."""

    tier: TierName
    endpoint: Endpoint
    opinion: Opinion


@dataclass(slots=True)
class JudgingState:
    """The tiers that were asked, in order; a tier of which too few models answered has no opinion."""

    opinions: dict[TierName, Opinion | None] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    voices: list[ModelOpinion] = field(default_factory=list)

    def note(
        self,
        tier: TierName,
        endpoints: Sequence[Endpoint],
        answers: Sequence[Answer[Opinion]],
        opinion: Opinion | None,
    ) -> None:
        """Add what the models of a tier answered and what it comes to."""
        for endpoint, answer in zip(endpoints, answers, strict=True):
            said = answer.value.record() if answer.value else None
            self.rounds.append(round_record(len(self.rounds) + 1, tier, answer, said))
            if opinion and answer.value:
                self.voices.append(ModelOpinion(tier, endpoint, answer.value))
        self.opinions[tier] = opinion

    def disagrees(self) -> bool:
        """Whether there is more than one opinion, or one that its jury is divided about."""
        found = [opinion for opinion in self.opinions.values() if opinion]
        return len(found) > 1 or any(opinion.divided is not None for opinion in found)

    def models(self, tier: TierName | None = None) -> list[str]:
        """Return the models that gave an opinion, in a tier or in all; each once, in order."""
        said = [voice.endpoint.model for voice in self.voices if tier in (None, voice.tier)]
        return list(dict.fromkeys(said))

    def read(self, tier: TierName) -> list[tuple[str, ScoreSource]]:
        """Return for each model of a tier that gave an opinion how it was read."""
        said = [voice for voice in self.voices if voice.tier == tier]
        return [
            (
                model_opinion.endpoint.model,
                score_source(
                    model_opinion.endpoint, model_opinion.opinion.scores, model_opinion.opinion.expected
                ),
            )
            for model_opinion in said
        ]

    def families(self, final: Final) -> set[str]:
        """Return the families behind the outcome, or of all who gave an opinion where nothing was settled."""
        behind = [
            tier for tier, opinion in self.opinions.items() if opinion and opinion.outcome == final.verdict
        ]
        return {voice.endpoint.family for voice in self.voices if voice.tier in behind or final.tier is None}
