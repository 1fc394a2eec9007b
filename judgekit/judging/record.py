"""Puts opinions, rounds and the end of a judging together into a verdict."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Any

from judgekit.judging.verdict import Subject, Verdict, cost_of, failures, rubric_ref

if TYPE_CHECKING:
    from collections.abc import Collection

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.escalation import Final
    from judgekit.judging.state import JudgingState
    from judgekit.judging.subject import Document
    from judgekit.judging.verdict import Consensus
    from judgekit.rubric.loader import LoadedRubric


@dataclass(frozen=True, slots=True)
class Judgement:
    """All that a judging brought.

    `cut` are the tiers that did not see the whole text. `nobody` says why no model was there to be asked.
    `calibration` is the id of the one that was used, `calibration_warning` why one that is there was not.
    `independent` says whether another family than the author's had a say.
    """

    document: Document
    loaded: LoadedRubric
    mode: ModeName
    final: Final
    state: JudgingState
    cut: Collection[TierName]
    nobody: str
    calibration: str | None = None
    calibration_warning: str | None = None
    independent: bool | None = None


def verdict(judged: Judgement, duration_ms: int) -> Verdict:
    """Return the verdict: the deciding tier's scores, reasoning and findings, and every round."""
    document, final, state = judged.document, judged.final, judged.state
    deciding = state.opinions.get(final.tier) if final.tier else None
    scores = deciding.scores if deciding else None
    models = [each.model for each in state.rounds if each.tier == final.tier and each.opinion]
    return Verdict(
        id=uuid.uuid4().hex,
        task_id=document.task_id,
        subjects=[Subject(path=file.path, sha256=file.sha256) for file in document.files],
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
        model=", ".join(models) or None,
        rounds=state.rounds,
        degraded="; ".join(filter(None, (_degraded(judged), judged.calibration_warning))) or None,
        truncated=_truncated(judged),
        author=document.author,
        independent=judged.independent,
        commit=document.commit,
        timestamp=datetime.now(UTC),
        duration_ms=duration_ms,
        **cost_of(state.rounds),
    )


def unsettled(judged: Verdict, why: str) -> Verdict:
    """Return a verdict with its rounds that settles nothing, and says why in `degraded`."""
    nothing: dict[str, Any] = dict.fromkeys(("scores", "average", "judge_tier", "model"))
    nothing |= {"verdict": "undetermined", "consensus": "none", "reasoning": "", "findings": []}
    return judged.model_copy(update={**nothing, "degraded": "; ".join(filter(None, (why, judged.degraded)))})


def _consensus(judged: Judgement) -> Consensus:
    final, state = judged.final, judged.state
    # One model in two tiers is one voice, however often it agrees with itself.
    if final.tier is None or len(state.models()) == 1:
        return "single" if final.tier else final.consensus
    heard = [tier for tier, opinion in state.opinions.items() if opinion]
    agreed = final.consensus == "single" and heard == [final.tier]
    return "unanimous" if agreed else final.consensus


def _truncated(judged: Judgement) -> bool:
    if judged.final.tier is None:
        return bool(judged.cut)
    return judged.final.tier in judged.cut


def _degraded(judged: Judgement) -> str | None:
    state = judged.state
    if not state.rounds:
        return f"nothing was judged: {judged.nobody}"
    accepted = [tier for tier, opinion in state.opinions.items() if opinion and opinion.outcome == "accept"]
    if judged.final.verdict == "undetermined" and accepted and all(tier in judged.cut for tier in accepted):
        return failures(state.rounds) or "no model saw the whole text, so its acceptance is not final"
    return failures(state.rounds)
