"""One judging in progress: the calls made and their results so far."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypedDict

from judgekit import errors
from judgekit.judging.question import ModelTurn, Subject
from judgekit.judging.round import Session, ms_since
from judgekit.judging.verdict import build_rubric_ref

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.errors import CostSource
    from judgekit.judging.settings import JudgeSettings
    from judgekit.judging.verdict import RubricRef
    from judgekit.providers.base import Endpoint


class CommonFields(TypedDict):
    """The fields of every record: the rules, the rounds, the time, and the cost in US dollars."""

    rubric: RubricRef
    mode: ModeName
    prompt_sha256: str
    calibration: str | None
    rounds: list[Any]
    duration_ms: int
    cost_usd: float | None
    cost_source: CostSource | None
    cost_complete: bool


class VerdictFields(CommonFields):
    """Further fields of verdicts and comparisons: an id, the time, secrets, substitutes."""

    id: str
    timestamp: datetime
    redacted: int
    substitutes: list[str]


@dataclass(slots=True)
class JudgingState(Generic[Subject]):
    """Each tier's result so far, in order, and every round."""

    subject: Subject
    session: Session
    refusal_reason: str = ""
    """Why no model is asked about the subject; "" if models are."""
    secret_count: int = 0
    """The number of secrets removed from the subject."""
    cut_tiers: Collection[TierName] = ()
    """The tiers that don't see all of it."""
    turns: dict[TierName, Sequence[ModelTurn[Any]]] = field(default_factory=dict)
    """Every call, by tier and model."""
    opinions: dict[TierName, Any] = field(default_factory=dict)
    """Each tier's opinion; the task defines its value if the tier failed."""
    rounds: list[Any] = field(default_factory=list)
    voices: list[tuple[TierName, Endpoint, Any]] = field(default_factory=list)
    """The models' opinions, in tiers that have one."""

    def build_common_fields(self, settings: JudgeSettings) -> CommonFields:
        """Return the fields of every record, from the settings and the rounds so far."""
        usages = [row.usage for row in self.rounds]
        cost_usd, cost_source = errors.add_up_costs(usages)
        if cost_usd is not None:
            cost_usd = round(cost_usd, 6)
        # `finality` contains a calibration's rules.
        return {
            "rubric": build_rubric_ref(settings.loaded_rubric),
            "mode": settings.mode,
            "prompt_sha256": settings.loaded_rubric.rubric.prompt.sha256,
            "calibration": settings.finality.id if settings.finality else None,
            "rounds": self.rounds,
            "duration_ms": ms_since(self.session.started),
            "cost_usd": cost_usd,
            "cost_source": cost_source,
            "cost_complete": not any(usage.unpriced_calls for usage in usages),
        }

    def build_verdict_fields(self, settings: JudgeSettings) -> VerdictFields:
        """Return the fields that verdicts and comparisons share."""
        used_providers = set()
        for tier in self.opinions:
            used_providers |= {model.profile.provider for model in settings.models_by_tier[tier]}
        substitutes = used_providers & settings.replacement_providers

        # Only secrets in a text that was sent count. Without a round, none was.
        was_sent = bool(self.rounds)
        return {
            **self.build_common_fields(settings),
            "id": uuid.uuid4().hex,
            "timestamp": datetime.now(UTC),
            "redacted": self.secret_count if was_sent else 0,
            "substitutes": sorted(substitutes),
        }
