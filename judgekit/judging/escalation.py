"""When judging ends, and why: `decide`, a pure function of all tiers' evidence so far, and its table.

`ESCALATION_TABLE` lists the rows in the order they apply; docs/escalation.md has them in words. The first row
that applies names the tier to ask now, or the end of judging. Rows that overrule look at such an end and may
replace it. Each end carries its row's name as `because`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from judgekit.judging import rows
from judgekit.judging.situation import Situation
from judgekit.judging.steps import (
    CALIBRATED_ROW,
    COPIED_ROW,
    CUT_TEXTS_ROW,
    LEAD_CALIBRATED_ROW,
    OWN_FAMILY_ROW,
    PROMISED_ROW,
    Ask,
    End,
    EscalationRules,
    Step,
    Task,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.judging.evidence import Evidence
    from judgekit.judging.verdict import Consensus


class Row(NamedTuple):
    """A row of the table. docs/escalation.md shows the docstrings of its parts, or their `words`."""

    name: str
    applies: Callable[..., bool]
    choose_step: Callable[..., Step]
    tasks: tuple[Task, ...]
    overrules: bool = False
    """Whether it looks at an end reached by a row above."""


DOCUMENT_TASKS: tuple[Task, ...] = ("document",)
PAIR_TASKS: tuple[Task, ...] = ("pair",)
RANKING_TASKS: tuple[Task, ...] = ("ranking",)
ONE_TEXT_TASKS: tuple[Task, ...] = ("document", "candidate")
VOTED_TASKS: tuple[Task, ...] = ("document", "candidate", "pair")
ALL_TASKS: tuple[Task, ...] = ("document", "candidate", "pair", "ranking")

ESCALATION_TABLE: list[Row] = [
    Row("the first tier is next", rows.is_nobody_asked, rows.ask_first, ALL_TASKS),
    # A ranking pools each tier's scores with earlier ones, so the latest tier speaks for all.
    Row("the tier failed", rows.is_failed_but_not_last, rows.ask_about_contenders, RANKING_TASKS),
    Row("the last tier failed", rows.is_failed_and_last, rows.leave_open, RANKING_TASKS),
    Row("the last tier has spoken", rows.is_last_of_ranking, rows.end_ranking, RANKING_TASKS),
    Row(LEAD_CALIBRATED_ROW, rows.is_calibrated, rows.end_with_best, RANKING_TASKS),
    Row("one is ahead", rows.is_one_text_ahead, rows.end_with_best, RANKING_TASKS),
    Row("several are near the best", rows.is_undecided, rows.ask_about_contenders, RANKING_TASKS),
    # In the other tasks, each tier has a vote.
    Row("the jury is divided", rows.is_divided_to_the_end, rows.escalate, VOTED_TASKS),
    Row(CALIBRATED_ROW, rows.is_calibrated, rows.end_as_calibrated, VOTED_TASKS),
    Row(
        "the calibration's last word is to come",
        rows.is_reference_unasked,
        rows.ask_next,
        VOTED_TASKS,
    ),
    Row(PROMISED_ROW, rows.is_promised, rows.ONLY_TIER_DECIDES, DOCUMENT_TASKS),
    Row("the only tier decides", rows.is_only_tier, rows.ONLY_TIER_DECIDES, VOTED_TASKS),
    Row("the only tier failed", rows.is_only_tier_failed, rows.leave_open, VOTED_TASKS),
    Row("quick needs no confirmation", rows.is_quick_final, rows.QUICK_DECIDES, VOTED_TASKS),
    Row("deep is next", rows.is_deep_unasked, rows.ask_deep, VOTED_TASKS),
    Row("quick and deep agree", rows.do_two_agree, rows.DEEP_AGREES, VOTED_TASKS),
    Row("deep decides", rows.is_deep_final, rows.DEEP_DECIDES, VOTED_TASKS),
    Row(
        "a third opinion would be one of the two",
        rows.would_third_repeat,
        rows.escalate,
        VOTED_TASKS,
    ),
    Row("the tiebreaker is next", rows.is_third_unasked, rows.ask_third, VOTED_TASKS),
    Row("the contradiction stays open", rows.is_contradiction_open, rows.escalate, VOTED_TASKS),
    Row("a confirmation is missing", rows.is_open, rows.leave_open, VOTED_TASKS),
    Row("the tiebreaker confirms", rows.is_third_with_all, rows.THIRD_AGREES, VOTED_TASKS),
    Row("two of three agree", rows.is_third_with_one, rows.THIRD_AGREES_WITH_ONE, VOTED_TASKS),
    Row("no two agree", rows.is_third_against, rows.escalate, VOTED_TASKS),
    Row("the tiebreaker decides", rows.is_third_alone, rows.THIRD_DECIDES, VOTED_TASKS),
    # Evidence that an end may not rest on
    Row(
        "a divided jury stays open",
        rows.is_divided_and_open,
        rows.escalate,
        VOTED_TASKS,
        overrules=True,
    ),
    Row(
        "a win stands against a tie",
        rows.does_win_stand,
        rows.let_win_stand,
        PAIR_TASKS,
        overrules=True,
    ),
    Row(COPIED_ROW, rows.is_best_copied, rows.call_tie, RANKING_TASKS, overrules=True),
    Row(CUT_TEXTS_ROW, rows.is_ranking_cut, rows.leave_open, RANKING_TASKS, overrules=True),
    Row(CUT_TEXTS_ROW, rows.is_pair_cut, rows.leave_open, PAIR_TASKS, overrules=True),
    Row(
        "nobody saw all of the text",
        rows.is_acceptance_cut,
        rows.leave_open,
        ONE_TEXT_TASKS,
        overrules=True,
    ),
    Row(
        "decision models are not proven",
        rows.is_unproven,
        rows.leave_open,
        VOTED_TASKS,
        overrules=True,
    ),
    Row(
        "reasons are owed",
        rows.are_reasons_unasked,
        rows.ask_for_reasons,
        DOCUMENT_TASKS,
        overrules=True,
    ),
    Row(
        "a model that writes agrees",
        rows.are_reasons_given,
        rows.end_with_reasons,
        DOCUMENT_TASKS,
        overrules=True,
    ),
    Row(
        "a model that writes disagrees",
        rows.are_reasons_against,
        rows.escalate,
        DOCUMENT_TASKS,
        overrules=True,
    ),
    Row(OWN_FAMILY_ROW, rows.is_own_family_alone, rows.leave_open, ALL_TASKS, overrules=True),
]


def decide(evidence_by_tier: Evidence, rules: EscalationRules) -> Step:
    """Decide the next step: which tier to ask, or to end the judging.

    The first row of `ESCALATION_TABLE` that applies decides. If it ends the judging, later rows can overrule
    that.
    """
    situation = Situation(evidence_by_tier, rules)
    rows_of_task = [row for row in ESCALATION_TABLE if rules.task in row.tasks]
    step: Step | None = None
    for row in rows_of_task:
        if row.overrules:
            step = _overrule(step, row, situation)
        elif step is None and row.applies(situation):
            step = _note_reason(row, row.choose_step(situation))

    assert step is not None, "each task has a row that applies if no other does"  # noqa: S101
    if isinstance(step, End):
        return replace(step, consensus=_rate_consensus(situation, step))
    return step


def _overrule(step: Step | None, row: Row, situation: Situation) -> Step | None:
    """Return the row's step if it overrules `step`, or otherwise `step`."""
    if not isinstance(step, End):  # only an end can be overruled
        return step
    if not row.applies(situation, step):
        return step
    new_step = row.choose_step(situation, step)
    return _note_reason(row, new_step, overruled=step)


def _note_reason(row: Row, step: Step, overruled: End | None = None) -> Step:
    """Add the row's name, and the end that it overruled, to an end. An `Ask` stays as it is."""
    if isinstance(step, Ask):
        return step
    return replace(step, because=row.name, overruled_end=overruled)


def _rate_consensus(now: Situation, end: End) -> Consensus:
    """Rate how far the models agree with a result."""
    if end.tier is None:
        return end.consensus
    models = _collect_models(now)
    # A single model can't agree with others, even if it's used in multiple tiers.
    if len(models) == 1:
        return "single"
    if now.rules.task == "ranking":
        return _rate_ranking_consensus(now, end)

    last_evidence = now.evidence[end.tier]
    # Without a majority, a divided jury only gives the reasons. Another tier has decided.
    only_gives_reasons = last_evidence.is_divided and last_evidence.agreement == "none"
    if only_gives_reasons:
        return "single"
    # If the last tier's jury is divided in another way, its own agreement counts.
    if last_evidence.agreement is not None:
        return last_evidence.agreement
    return _correct_for_juries(now, end)


def _correct_for_juries(now: Situation, end: End) -> Consensus:
    """Correct the consensus by the agreement within juries. That of `end` only compares whole tiers."""
    if end.consensus == "unanimous" and _is_pair_with_divided_jury(now, end):
        return "majority"
    if end.consensus == "single" and _is_answer_of_only_jury(now, end):
        return "unanimous"
    return end.consensus


def _collect_models(now: Situation) -> set[str]:
    """Collect the models of all tiers."""
    models: set[str] = set()
    for evidence in now.evidence.values():
        models |= evidence.models
    return models


def _is_pair_with_divided_jury(now: Situation, end: End) -> bool:
    """Whether two texts were compared, and the jury of a tier that supports the verdict is divided."""
    if now.rules.task != "pair":
        return False
    # Only a divided jury has an agreement, such as "majority".
    supporting_tiers = now.tiers_for(end.verdict)
    return any(now.evidence[tier].agreement for tier in supporting_tiers)


def _is_answer_of_only_jury(now: Situation, end: End) -> bool:
    """Whether several models judged a document, and the tier that decided is the only one with an outcome."""
    has_several_models = len(_collect_models(now)) > 1
    if now.rules.task != "document" or not has_several_models:
        return False
    answered = [tier for tier, evidence in now.evidence.items() if evidence.outcome is not None]
    return answered == [end.tier]


def _rate_ranking_consensus(now: Situation, end: End) -> Consensus:
    """Rate how far a ranking's tiers agree on the best subject."""
    standings = [evidence.standing for evidence in now.complete_evidence if evidence.standing]
    if len(standings) == 1:
        return "single"
    # In a tie, there's no best subject to be unanimous about. Two copies of the best text are an exception.
    has_best = end.verdict == "accept" or end.because == COPIED_ROW
    if not has_best:
        return "majority"

    last_standing = standings[-1]  # its order takes the scores of all tiers into account
    best = last_standing.ranked_letters[0]
    is_unanimous = all(standing.leader == best for standing in standings)
    return "unanimous" if is_unanimous else "majority"
