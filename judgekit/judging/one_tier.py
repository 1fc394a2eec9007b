"""Judges a document by one tier: the first, under a promise of agreement, or the one it's compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.errors import add_up_costs

if TYPE_CHECKING:
    from judgekit.config import TierName
    from judgekit.judging.documents import Document
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.state import JudgingState
    from judgekit.judging.verdict import AgreementPromise, Verdict


async def judge_first(
    tier: TierName, judge: DocumentJudge, state: JudgingState[Document]
) -> Verdict:
    """Judge a document with a single tier before a stronger judge, and note the opinion's margin.

    A promise limits how often the tier may disagree with the stronger judge. If that makes the tier's opinion
    final, the verdict's `because` is `PROMISED_ROW`.
    """
    first_judge = judge_of_tier(tier, judge).with_settings(is_promised=True)
    verdict = await first_judge.run(state)
    # The promise takes the margin for how sure the opinion is.
    evidence = first_judge.read_evidence(state).get(tier)
    margin = None if evidence is None else evidence.margin
    return verdict.model_copy(update={"margin": margin})


def judge_of_tier(tier: TierName, judge: DocumentJudge) -> DocumentJudge:
    """Build a judge with the models of only one tier.

    It has no calibration, because calibrations are made for multiple tiers.
    """
    models_by_tier = {}
    if tier in judge.models_by_tier:
        models_by_tier[tier] = judge.models_by_tier[tier]
    return judge.with_settings(
        models_by_tier=models_by_tier, finality=None, calibration_warning=None
    )


def join_verdicts(first: Verdict, strong: Verdict, promise: AgreementPromise) -> Verdict:
    """Return the strong judge's verdict, with the rounds, the time and the cost of both judges."""
    rounds = list(first.rounds)
    for strong_round in strong.rounds:
        next_number = len(rounds) + 1
        rounds.append(strong_round.model_copy(update={"round": next_number}))

    cost_usd, cost_source = add_up_costs([any_round.usage for any_round in rounds])
    if cost_usd is not None:
        cost_usd = round(cost_usd, 6)
    return strong.model_copy(
        update={
            "rounds": rounds,
            "duration_ms": first.duration_ms + strong.duration_ms,
            "cost_usd": cost_usd,
            "cost_source": cost_source,
            "cost_complete": bool(first.cost_complete and strong.cost_complete),
            "promise": promise,
        }
    )
