"""Puts opinions, rounds and the end of a judging together into a verdict."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypedDict

from judgekit.verdict import Finding, Round, RubricRef, Subject, Usage, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.comparison import CompareRound
    from judgekit.judging.asking import Answer
    from judgekit.judging.escalation import Final
    from judgekit.judging.subject import Document
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, Outcome, TierName
    from judgekit.usage import CostSource
    from judgekit.verdict import Consensus


@dataclass(frozen=True, slots=True)
class Opinion:
    """One tier's testimony and what the thresholds make of it; `said` is the model's own verdict word."""

    outcome: Outcome
    scores: dict[str, float]
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    said: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the opinion as it stands in a round."""
        findings = [each.model_dump() for each in self.findings]
        return {
            "outcome": self.outcome,
            "scores": self.scores,
            "reasoning": self.reasoning,
            "findings": findings,
            "said": self.said,
        }


@dataclass(frozen=True, slots=True)
class Judged:
    """All that a judging brought.

    `voices` is how many different models gave an opinion; `nobody` says why no model was there to be asked.
    `calibration` is the id of the one that was used, `stale` why one that is there was not.
    """

    document: Document
    loaded: LoadedRubric
    mode: ModeName
    final: Final
    opinions: Mapping[TierName, Opinion | None]
    rounds: Sequence[Round]
    cut: Collection[TierName]
    voices: int
    nobody: str
    calibration: str | None = None
    stale: str | None = None


def rubric_ref(loaded: LoadedRubric) -> RubricRef:
    """Return the reference that verdicts carry."""
    return RubricRef(id=loaded.rubric.rubric, version=loaded.rubric.version, sha256=loaded.sha256)


def round_record(
    number: int, tier: TierName, answer: Answer[Any], opinion: dict[str, Any] | None = None
) -> Round:
    """Return the record of one round; an `Opinion` records itself."""
    if opinion is None and answer.value is not None:
        opinion = answer.value.record()
    return Round(
        round=number,
        tier=tier,
        model=answer.model,
        opinion=opinion,
        failure=answer.failure,
        latency_ms=answer.latency_ms,
        usage=Usage(**answer.usage._asdict()),
    )


class Cost(TypedDict):
    """What a judging cost in US dollars, who says so, and whether that holds every call."""

    cost_usd: float | None
    cost_source: CostSource | None
    cost_complete: bool


def cost_of(rounds: Sequence[Round | CompareRound]) -> Cost:
    """Return what all rounds cost together."""
    known = {each.usage.cost_source for each in rounds if each.usage.cost_usd is not None}
    return Cost(
        cost_usd=total_cost(rounds),
        cost_source=next(iter(known)) if len(known) == 1 else "mixed" if known else None,
        cost_complete=not any(each.usage.unpriced_calls for each in rounds),
    )


def total_cost(rounds: Sequence[Round | CompareRound]) -> float | None:
    """Return the sum of the known costs in US dollars, None when none is known."""
    known = [each.usage.cost_usd for each in rounds if each.usage.cost_usd is not None]
    return round(sum(known), 6) if known else None


def failures(rounds: Sequence[Round | CompareRound]) -> str | None:
    """Say in one line which tiers failed and why; tiers that failed in the same way are named together."""
    tiers: dict[str, list[str]] = {}
    for each in rounds:
        if each.failure:
            named = tiers.setdefault(f"{each.failure.kind} ({each.failure.message})", [])
            named += [each.tier] if each.tier not in named else []
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in tiers.items()) or None


def verdict(judged: Judged, duration_ms: int) -> Verdict:
    """Return the verdict: the deciding tier's scores, reasoning and findings, and every round."""
    document, final = judged.document, judged.final
    deciding = judged.opinions.get(final.tier) if final.tier else None
    scores = deciding.scores if deciding else None
    by_tier = {each.tier: each.model for each in judged.rounds}
    return Verdict(
        id=uuid.uuid4().hex,
        task_id=document.task_id,
        subjects=[Subject(path=each.path, sha256=each.sha256) for each in document.files],
        rubric=rubric_ref(judged.loaded),
        mode=judged.mode,
        prompt_sha256=judged.loaded.rubric.prompt.sha256,
        calibration=judged.calibration,
        verdict=final.verdict,
        scores=scores,
        average=round(fmean(scores.values()), 2) if scores else None,
        reasoning=deciding.reasoning if deciding else "",
        findings=list(deciding.findings) if deciding else [],
        consensus=_consensus(judged),
        judge_tier=final.tier,
        model=by_tier[final.tier] if final.tier else None,
        rounds=list(judged.rounds),
        degraded="; ".join(filter(None, (_degraded(judged), judged.stale))) or None,
        truncated=_truncated(judged),
        author=document.author,
        commit=document.commit,
        timestamp=datetime.now(UTC),
        duration_ms=duration_ms,
        **cost_of(judged.rounds),
    )


def _consensus(judged: Judged) -> Consensus:
    # One model in two tiers is one voice, however often it agrees with itself.
    return "single" if judged.final.tier and judged.voices == 1 else judged.final.consensus


def _truncated(judged: Judged) -> bool:
    if judged.final.tier is None:
        return bool(judged.cut)
    return judged.final.tier in judged.cut


def _degraded(judged: Judged) -> str | None:
    if not judged.rounds:
        return f"nothing was judged: {judged.nobody}"
    accepted = [tier for tier, each in judged.opinions.items() if each and each.outcome == "accept"]
    if judged.final.verdict == "undetermined" and accepted and all(tier in judged.cut for tier in accepted):
        return failures(judged.rounds) or "no model saw the whole text, so its acceptance is not final"
    return failures(judged.rounds)
