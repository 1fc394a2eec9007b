"""The rows of the escalation table (`escalation.ESCALATION_TABLE`): when each applies, and its result.

Their docstrings, or their `words`, appear in the table in docs/escalation.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from judgekit.judging import independence
from judgekit.judging.steps import CALIBRATED_ROW, OWN_FAMILY_ROW, PROMISED_ROW, Ask, End

if TYPE_CHECKING:
    from judgekit.config import TierName
    from judgekit.judging.evidence import Evidence
    from judgekit.judging.situation import Situation
    from judgekit.judging.steps import EscalationRules
    from judgekit.judging.verdict import Consensus

# --- When rows apply


def is_nobody_asked(now: Situation) -> bool:
    """Whether nobody was asked yet."""
    return not now.evidence


def is_failed_but_not_last(now: Situation) -> bool:
    """Whether the tier failed, and there is another one."""
    return now.latest_evidence.outcome is None and now.next_tier is not None


def is_failed_and_last(now: Situation) -> bool:
    """Whether the tier failed, and there is no other."""
    return now.latest_evidence.outcome is None


def is_last_of_ranking(now: Situation) -> bool:
    """Whether no other tier can be asked, or this one is the reference of a calibration."""
    finality = now.rules.finality
    is_reference = finality is not None and finality.last_tier == now.latest_tier
    return is_reference or now.next_tier is None


def is_one_text_ahead(now: Situation) -> bool:
    """Whether a text is ahead of all others by more than the margin, and no text was cut.

    The first tier can only decide this in lenient mode without a calibration, and not if its models are of
    the best text's own family.
    """
    is_ahead = (
        now.latest_evidence.standing is not None
        and now.latest_evidence.standing.near_best_count == 1
    )
    if not is_ahead:
        return False
    is_first_tier = len(now.complete_evidence) == 1
    needs_second_tier = now.rules.finality is not None or now.rules.mode == "strict"
    # Models may prefer a text of their own family, so another tier has to confirm it.
    if is_first_tier and (needs_second_tier or now.latest_evidence.is_own_family):
        return False
    return now.latest_evidence.sees_whole_text


def is_undecided(_: Situation) -> bool:
    """Whether no row before this one applies: several are near the best, or it may not win by this alone."""
    return True


def is_divided_to_the_end(now: Situation) -> bool:
    """Whether a jury is divided without a majority, and no other tier can settle it."""
    for tier, evidence in now.evidence.items():
        if evidence.is_divided and not evidence.has_majority and now.is_last_word(tier):
            return True
    return False


def is_calibrated(now: Situation) -> bool:
    """Whether a calibration makes a tier's opinion final.

    It never does if a cut text is accepted, if an "improve" has no reasons, or if only models of the
    winner's own family support the win.
    """
    return now.calibrated_end is not None


def is_reference_unasked(now: Situation) -> bool:
    """Whether the tier that the calibration takes as its reference wasn't asked yet."""
    finality = now.rules.finality
    if finality is None or len(now.rules.tiers) == 1:  # a single tier has no other to wait for
        return False
    # Tiers are asked in order, so the first one without evidence and all after it are unasked.
    for position, tier in enumerate(now.rules.tiers):
        if tier not in now.evidence:
            return finality.last_tier in now.rules.tiers[position:]
    return False


def is_promised(now: Situation) -> bool:
    """Whether this is a first opinion under a promise of agreement, by an undivided jury on a complete text.

    It can't be an improve without reasons.
    """
    first_tier = now.rules.tiers[0]
    outcome = now.outcomes[first_tier]
    # The promise limits how often this tier disagrees with a stronger judge, which is asked otherwise.
    if not now.rules.is_promised or outcome is None:
        return False
    evidence = now.evidence[first_tier]
    if evidence.is_divided or not evidence.sees_whole_text:
        return False
    return not now.is_unexplained(first_tier, outcome)


def is_only_tier(now: Situation) -> bool:
    """Whether there is one tier, and it has an opinion."""
    return len(now.rules.tiers) == 1 and now.outcomes[now.rules.tiers[0]] is not None


def is_only_tier_failed(now: Situation) -> bool:
    """Whether there is one tier, and it failed."""
    return len(now.rules.tiers) == 1


def is_quick_final(now: Situation) -> bool:
    """Whether the opinion of quick needs no confirmation in this mode, and no calibration is used.

    The opinion can't be improve, close, an acceptance of a cut text, or a win by the winner's own family.
    """
    # A calibration has rows of its own. `outcome_to_confirm` is the outcome that needs a second tier here.
    if now.rules.finality is not None or now.quick_outcome in (
        None,
        "improve",
        now.rules.outcome_to_confirm,
    ):
        return False
    if now.quick_outcome == "accept" and not now.evidence["quick"].sees_whole_text:
        return False
    return not now.is_weak("quick")


def is_deep_unasked(now: Situation) -> bool:
    """Whether deep was not asked yet."""
    return now.can_ask("deep")


def do_two_agree(now: Situation) -> bool:
    """Whether quick and deep agree."""
    return now.deep_outcome is not None and now.quick_outcome == now.deep_outcome


def is_deep_final(now: Situation) -> bool:
    """Whether deep has an opinion that does not contradict quick.

    If the opinion is close, lacks reasons, or is a win by the winner's own family, it's only final if the
    tiebreaker has no other model.
    """
    if now.deep_outcome is None or {now.quick_outcome, now.deep_outcome} == {"accept", "reject"}:
        return False
    # A weak opinion needs a third voice, but stands if there is none.
    return not (now.is_weak("deep") and now.has_third_voice)


def would_third_repeat(now: Situation) -> bool:
    """Whether quick and deep contradict each other, and the tiebreaker has only the same models."""
    if {now.quick_outcome, now.deep_outcome} != {"accept", "reject"}:
        return False
    quick_models, deep_models, third_models = now.models_by_tier
    # Such a tiebreaker would only vote for itself. If quick and deep share all models, it's on neither side.
    return (
        bool(third_models)
        and quick_models != deep_models
        and third_models <= quick_models | deep_models
    )


def is_third_unasked(now: Situation) -> bool:
    """Whether the tiebreaker was not asked yet."""
    return now.can_ask("tiebreaker")


def is_contradiction_open(now: Situation) -> bool:
    """Whether quick and deep contradict each other, and no tiebreaker answered."""
    return now.third_outcome is None and {"accept", "reject"} <= now.first_two_outcomes


def is_open(now: Situation) -> bool:
    """Whether a confirmation is missing: the tier that was to give it failed, or there is none."""
    return now.third_outcome is None


def is_third_with_all(now: Situation) -> bool:
    """Whether the tiebreaker agrees with the only other opinion, or with both."""
    return now.first_two_outcomes == {now.third_outcome}


def is_third_with_one(now: Situation) -> bool:
    """Whether the tiebreaker agrees with one of two."""
    return now.third_outcome in now.first_two_outcomes


def is_third_against(now: Situation) -> bool:
    """Whether no two agree, and one accepts what another rejects."""
    return {"accept", "reject"} <= {*now.first_two_outcomes, now.third_outcome}


def is_third_alone(now: Situation) -> bool:
    """Whether the tiebreaker has an opinion that contradicts none."""
    return now.third_outcome is not None


# --- The rows that overrule an end


def is_divided_and_open(now: Situation, end: End) -> bool:
    """Whether the end would be undetermined, and a jury was divided."""
    return end.verdict == "undetermined" and any(
        evidence.is_divided for evidence in now.evidence.values()
    )


def does_win_stand(now: Situation, end: End) -> bool:
    """Whether a calibration upholds a tier's win against the next tier's tie, in lenient mode.

    The win can't be based on cut texts, or on the winner's own family.
    """
    return now.rules.mode == "lenient" and _find_standing_win(now, end) is not None


def is_best_copied(now: Situation, end: End) -> bool:
    """Whether another text is a copy of the best one."""
    standing = now.latest_evidence.standing
    if end.verdict != "accept" or standing is None:  # no text has won
        return False
    winner, *_others = standing.ranked_letters
    return winner in now.rules.copied_letters


def is_ranking_cut(now: Situation, end: End) -> bool:
    """Whether the tier that settled it did not see all of the texts."""
    return end.tier is not None and not now.evidence[end.tier].sees_whole_text


def is_pair_cut(now: Situation, end: End) -> bool:
    """Whether no tier behind it saw all of both texts; if it's left open, no tier that saw a winner."""
    tiers_behind = now.tiers_for("accept" if end.verdict == "undetermined" else end.verdict)
    return bool(tiers_behind) and not now.has_seen_all(tiers_behind)


def is_acceptance_cut(now: Situation, end: End) -> bool:
    """Whether it would be accepted, and no tier that accepts saw all of the text."""
    return end.verdict == "accept" and not now.has_seen_all(_find_accepting_tiers(now, end))


def is_unproven(now: Situation, end: End) -> bool:
    """Whether only decision models accept in strict mode, without a calibration or promise to support it."""
    if end.verdict != "accept" or not now.rules.needs_proof:
        return False
    if end.because in (CALIBRATED_ROW, PROMISED_ROW):
        return False
    return _find_accepting_tiers(now, end) <= set(now.rules.deciding_tiers)


def are_reasons_unasked(now: Situation, end: End) -> bool:
    """Whether a decision model has decided without reasons, and a model that writes was not asked yet.

    Reasons are needed for improve, and with `--explain` for a rejection. Findings are reasons.
    """
    # The tier is None if no model that writes can be asked, and in the evidence if it was asked already.
    return _owes_reasons(now, end) and now.tier_for_reasons not in {None, *now.evidence}


def are_reasons_given(now: Situation, end: End) -> bool:
    """Whether a decision model has decided without reasons, and a model that writes agrees with it."""
    tier = now.tier_for_reasons
    if tier is None or not _owes_reasons(now, end):
        return False
    return now.evidence[tier].outcome == end.verdict


def are_reasons_against(now: Situation, end: End) -> bool:
    """Whether a decision model has decided without reasons, and a model that writes disagrees with it."""
    return _owes_reasons(now, end) and now.tier_for_reasons is not None


def is_own_family_alone(now: Situation, end: End) -> bool:
    """Whether only models of the author's own family, or of an unknown family, support the result.

    This matters for an acceptance or a win, if `judge.independence` is `require`.
    """
    return explain_independence_problem(now.evidence, now.rules, end) is not None


# --- What the rows come to


def ask_first(now: Situation) -> Ask:
    """Ask the first tier."""
    return Ask(now.rules.tiers[0], now.rules.letters)


def ask_about_contenders(now: Situation) -> Ask:
    """Ask the next tier about those near the best, at least about two."""
    tier = now.next_tier
    assert tier is not None, "a ranking without a next tier has ended"  # noqa: S101
    return Ask(tier, now.contenders)


def end_ranking(now: Situation) -> End:
    """Let the best win if it is ahead (strict: by more than the margin), else call it a tie."""
    standing = now.latest_evidence.standing
    is_won = standing is not None and standing.is_won(now.rules.mode)
    return End("accept" if is_won else "improve", tier=now.latest_tier)


def end_with_best(now: Situation) -> End:
    """Let the best win."""
    return End("accept", tier=now.latest_tier)


def end_as_calibrated(now: Situation) -> End:
    """Decide as this tier does."""
    assert now.calibrated_end is not None, "the row applies only then"  # noqa: S101
    return now.calibrated_end


def ask_next(now: Situation) -> Ask:
    """Ask the next tier."""
    return Ask(next(tier for tier in now.rules.tiers if tier not in now.evidence))


def ask_deep(_: Situation) -> Ask:
    """Ask deep."""
    return Ask("deep")


def ask_third(_: Situation) -> Ask:
    """Ask the tiebreaker."""
    return Ask("tiebreaker")


@dataclass(frozen=True)
class TierDecides:
    """An end with the outcome of `tier`, or of the only one there is; `words` are those of the table."""

    words: str
    tier: TierName | None
    consensus: Consensus

    def __call__(self, now: Situation) -> End:
        tier = self.tier or now.rules.tiers[0]
        outcome = now.outcomes[tier]
        assert outcome is not None, "a tier that failed settles nothing"  # noqa: S101
        return End(outcome, self.consensus, tier)


ONLY_TIER_DECIDES = TierDecides("Decide as it does", tier=None, consensus="single")
QUICK_DECIDES = TierDecides("Decide as quick does", "quick", "single")
DEEP_DECIDES = TierDecides("Decide as deep does", "deep", "single")
DEEP_AGREES = TierDecides("Decide as both do", "deep", "unanimous")
THIRD_DECIDES = TierDecides("Decide as the tiebreaker does", "tiebreaker", "single")
THIRD_AGREES = TierDecides("Decide as both do", "tiebreaker", "unanimous")
THIRD_AGREES_WITH_ONE = TierDecides("Decide as two of three do", "tiebreaker", "majority")


def escalate(now: Situation, end: End | None = None) -> End:
    """Escalate."""
    del now, end
    return End("escalate")


def leave_open(now: Situation, end: End | None = None) -> End:
    """Leave it undetermined."""
    del now, end
    return End("undetermined")


def let_win_stand(now: Situation, end: End) -> End:
    """Let the win stand."""
    return End("accept", "single", _find_standing_win(now, end))


def call_tie(_: Situation, end: End) -> End:
    """Call it a tie."""
    return replace(end, verdict="improve")


def ask_for_reasons(now: Situation, _: End) -> Ask:
    """Ask the first tier that writes."""
    assert now.tier_for_reasons is not None, "the row applies only then"  # noqa: S101
    return Ask(now.tier_for_reasons)


def end_with_reasons(now: Situation, end: End) -> End:
    """Decide as both do, with its reasons."""
    return replace(end, consensus="unanimous", tier=now.tier_for_reasons)


def _find_accepting_tiers(now: Situation, end: End) -> set[TierName]:
    """Return the tiers that support an acceptance."""
    accepting_tiers = now.tiers_for("accept")
    # A calibration can make a tier accept by its leaning, even if its scores have another outcome.
    if end.tier is not None:
        accepting_tiers.add(end.tier)
    return accepting_tiers


def _owes_reasons(now: Situation, end: End) -> bool:
    """Whether a decision model has decided, and a model that writes has to give the reasons."""
    return end.tier is not None and now.is_unexplained(end.tier, end.verdict)


def _find_standing_win(now: Situation, end: End) -> TierName | None:
    """Return the tier whose win a calibration upholds against the next tier's tie, or None."""
    finality = now.rules.finality
    if finality is None or end.tier is None:
        return None
    if end.verdict != "improve":  # not a tie
        return None

    # A win doesn't count if it's based on a cut text, or on the winner's own family.
    usable_margins = {}
    for tier, margin in now.margins.items():
        evidence = now.evidence[tier]
        if evidence.sees_whole_text and not evidence.is_own_family:
            usable_margins[tier] = margin
    return finality.stands(end.tier, now.outcomes, usable_margins)


def find_families(evidence: Evidence, rules: EscalationRules, end: End) -> frozenset[str]:
    """Return the families of the models that support a result."""
    # If a result was overruled because of the author's family, return the families that supported it.
    if end.because == OWN_FAMILY_ROW and end.overruled_end is not None:
        end = end.overruled_end

    families: set[str] = set()
    for tier, tier_evidence in evidence.items():
        if rules.task == "ranking":
            # A tier's scores include those of earlier tiers.
            supports_end = tier == end.tier
        else:
            # If no tier decided, all models count.
            agrees = tier_evidence.outcome == end.verdict
            supports_end = tier == end.tier or agrees or end.tier is None
        if supports_end:
            families |= tier_evidence.families
    return frozenset(families)


def explain_independence_problem(
    evidence: Evidence, rules: EscalationRules, end: End
) -> str | None:
    """Explain in one line why an acceptance or a win isn't independent of the author, or return None."""
    # Only the author whose text this verdict favours matters.
    author_families: list[str] = []
    for outcome, families_of_outcome in rules.authors.items():
        if outcome == end.verdict:
            author_families += families_of_outcome
    supporting_families = find_families(evidence, rules, end)
    return independence.explain_independence_problem(
        rules.independence, author_families, supporting_families
    )
