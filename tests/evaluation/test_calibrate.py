"""Gates are chosen as labels allow: exact tests of classes, in steps, against the labels or the deep tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from making import finality_rule, promise

from judgekit.evaluation.calibrate import choose_rules, ended, measured, walk
from judgekit.evaluation.cases import Case
from judgekit.evaluation.samples import Reader, Sample, TierOpinion
from judgekit.judging.binomial import needed, upper
from judgekit.judging.calibration import ErrorCounts, bound
from judgekit.judging.escalation import EscalationRules
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.evaluation.calibrate import ChosenRules
    from judgekit.judging.calibration import Promise
    from judgekit.judging.escalation import FinalityRule

TWO: tuple[TierName, ...] = ("quick", "deep")
THREE: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")
OTHER: dict[Outcome, Outcome] = {"accept": "reject", "reject": "accept"}
FIVE_PERCENT, AGAINST_DEEP = promise(), promise(reference="deep")


def sample(label: Outcome, cut: frozenset[TierName] = frozenset(), **said: TierOpinion | Outcome) -> Sample:
    voices = {
        tier: each if isinstance(each, TierOpinion) else TierOpinion(each) for tier, each in said.items()
    }
    return Sample("x", label, voices, cut)  # type: ignore[arg-type]  # names of tiers


def samples(*groups: tuple[int, int, Outcome, float]) -> list[Sample]:
    """Return `count` samples a group, the first `errors` of them wrong; the deep tier is always right."""
    return [
        sample(label, quick=TierOpinion(said, margin), deep=label)
        for count, errors, said, margin in groups
        for number in range(count)
        for label in [OTHER[said] if number < errors else said]
    ]


def chosen(
    found: list[Sample], tiers: tuple[TierName, ...] = TWO, wanted: Promise = FIVE_PERCENT
) -> ChosenRules:
    return choose_rules(found, tiers, wanted)


def gates(*groups: tuple[int, int, Outcome, float]) -> set[FinalityRule]:
    return set(chosen(samples(*groups)).finality.rules)


@pytest.mark.parametrize(
    ("groups", "quick"),
    [
        ([], []),
        ([(100, 0, "reject", 1.0)], [("reject", 1.0)]),
        # The widest gate that holds is taken.
        ([(300, 1, "accept", 2.0), (200, 2, "accept", 1.0), (200, 90, "accept", 0.0)], [("accept", 1.0)]),
        # Fixed-sequence testing stops: what comes after a failure was not tested at all.
        ([(200, 60, "accept", 2.0), (5000, 0, "accept", 0.0)], []),
        # 59 labels do for a class alone, 72 for each of two.
        ([(59, 0, "accept", 0.0), (200, 0, "reject", 0.0)], [("reject", 0.0)]),
        ([(72, 0, "accept", 0.0), (72, 0, "reject", 0.0)], [("accept", 0.0), ("reject", 0.0)]),
        # A class too small to pass costs the others nothing.
        ([(60, 0, "accept", 0.0), (5, 0, "reject", 0.0)], [("accept", 0.0)]),
    ],
)
def test_which_gates_labels_allow(
    groups: list[tuple[int, int, Outcome, float]], quick: list[tuple[Outcome, float]]
) -> None:
    assert gates(*groups) == {finality_rule("quick", *each) for each in quick}


def test_a_gate_and_a_refusal_say_what_they_rest_on() -> None:
    (gate,) = chosen(samples((100, 0, "reject", 1.0))).gates
    assert (gate.labels, gate.errors) == (100, 0)
    assert gate.bound == pytest.approx(upper(0, 100, 0.05), abs=1e-6)
    wide = samples((300, 1, "accept", 2.0), (200, 2, "accept", 1.0), (200, 90, "accept", 0.0))
    (refused,) = chosen(wide).refused
    assert (refused.tier, refused.outcome, refused.after) == ("quick", "accept", None)
    assert (refused.least_margin, refused.why) == (0.0, "too many errors")
    (refused,) = chosen(samples((60, 0, "accept", 0.0), (5, 0, "reject", 0.0))).refused
    assert refused.outcome == "reject"


def test_what_is_refused_says_why_and_how_many_labels_would_do() -> None:
    least = needed(0.05, 0.05)
    assert least is not None
    assert gates((least, 0, "reject", 0.0))
    table: list[tuple[tuple[int, int], str, int | None]] = [
        ((least - 1, 0), "too few labels", 1),
        ((500, 50), "too many errors", None),  # it needs another judge
    ]
    for (count, errors), why, more in table:
        choice = chosen(samples((count, errors, "reject", 0.0)))
        assert [(refused.why, refused.more) for refused in choice.refused] == [(why, more)]
        assert choice.gates == []
    (refused,) = chosen(samples((100, 2, "accept", 0.0))).refused
    enough = 100 + (refused.more or 0)
    assert gates((enough, round(0.02 * enough), "accept", 0.0))


DIVIDED = sample("reject", quick=TierOpinion("reject", 1.0, divided=True), deep="accept")


@pytest.mark.parametrize(
    "group",
    [
        [sample("accept", quick=TierOpinion(None), deep="accept")],  # a failure
        [sample("accept", frozenset({"quick"}), quick="accept", deep="accept")],  # of a cut text
        [DIVIDED],
    ],
)
def test_opinions_that_are_in_no_class(group: list[Sample]) -> None:
    choice = chosen(group * 500)
    assert (choice.gates, choice.refused) == ([], [])


def test_a_divided_jury_goes_up() -> None:
    final, asked = ended(DIVIDED, EscalationRules("accept", TWO))
    assert (final.verdict, asked) == ("accept", ["quick", "deep"])


def test_a_deep_opinion_that_contradicts_may_be_final() -> None:
    contradicted = sample("reject", quick="accept", deep="reject", tiebreaker="reject")
    agreed = sample("accept", quick="accept", deep="accept")
    choice = chosen([contradicted] * 150 + [agreed] * 150, THREE)
    assert finality_rule("deep", "reject", 0.0, after="accept") in choice.finality.rules
    rules = EscalationRules("accept", THREE, finality=choice.finality)
    for own, third in ((rules, 0), (EscalationRules("accept", THREE), 10)):
        found = measured([walk(contradicted, own)] * 10, THREE)
        assert found.calls == {"quick": 10, "deep": 10, "tiebreaker": third}


def test_the_deep_tier_counts_only_what_reaches_it() -> None:
    """What a quick gate ends is no evidence about the deep tier."""
    choice = chosen(samples((400, 0, "accept", 1.0), (60, 30, "accept", 0.0)), THREE)
    assert finality_rule("quick", "accept", 1.0) in choice.finality.rules
    deep = [rule.labels for rule in (*choice.gates, *choice.refused) if rule.tier == "deep"]
    assert all(labels <= 60 for labels in deep)


def test_with_a_reference_only_what_is_lost_against_it_counts() -> None:
    found = [sample("reject", quick="accept", deep="accept")] * 50
    found += [sample("accept", quick="accept", deep="accept")] * 150
    assert chosen(found).gates == []
    choice = chosen(found, TWO, AGAINST_DEEP)
    assert set(choice.finality.rules) == {finality_rule("quick", "accept", 0.0)}
    assert choice.finality.last == "deep"
    assert (choice.gates[0].labels, choice.gates[0].errors) == (200, 0)
    # A reference that failed counts as right.
    assert chosen([sample("reject", quick="accept")] * 100, TWO, AGAINST_DEEP).gates == []


def test_gains_are_set_against_losses() -> None:
    with_gains, without = (bound(ErrorCounts(500, 20, gains), 0.05, AGAINST_DEEP) for gains in (40, 0))
    assert with_gains < 0.05 < without
    assert ErrorCounts(500, 20, 40).rate == pytest.approx(-0.04)


def test_the_steps_reach_from_few_opinions_to_nearly_all() -> None:
    """Of a thousand margins the upper seven hundred are right: most of these pass, in a few steps."""
    found = [
        sample(
            "accept" if number >= 300 else "reject", quick=TierOpinion("accept", float(number)), deep="accept"
        )
        for number in range(1000)
    ]
    (shown,) = chosen(found, TWO, promise(0.1)).gates
    assert shown.labels > 500
    assert shown.errors == 0


# --- A tie of two texts against a reference


def compared(count: int, label: str, quick: str, deep: str, mode: ModeName = "lenient") -> list[Sample]:
    judges = {"quick": {"choice": quick}, "deep": {"choice": deep}}
    case = {"id": "c", "label": label, "prompt": "p", "a": "1", "b": "2", "judges": judges}
    reader = Reader(loader.find_rubric("answer-preference").rubric, mode)
    return list(reader.samples(Case.model_validate(case))) * count


@pytest.mark.parametrize(
    ("found", "quick"),
    [
        # Wins that are always wrong are trusted nowhere because a deeper tier says nothing of them.
        (compared(300, "B", "A", "tie"), []),
        ([*compared(300, "B", "A", "tie"), *compared(40, "A", "A", "A")], [(40, 0, 0)]),
        # A tie that is right is a measurement.
        ([*compared(100, "A", "A", "A"), *compared(20, "tie", "A", "tie")], [(120, 20, 0)]),
        # In strict mode a tie is never held against the reference.
        ([*compared(100, "A", "A", "A", "strict"), *compared(20, "B", "A", "tie", "strict")], [(120, 20, 0)]),
    ],
)
def test_a_tie_of_the_reference_over_a_win_is_no_measurement(
    found: list[Sample], quick: list[tuple[int, int, int]]
) -> None:
    choice = chosen(found, TWO, AGAINST_DEEP)
    assert choice.finality.rules == ()
    refused = [each for each in choice.refused if each.tier == "quick"]
    assert [(each.labels, each.errors, each.gains) for each in refused] == quick


@pytest.mark.parametrize(("wrong", "stands"), [(0, True), (40, True), (150, False), (300, False)])
def test_a_wrong_win_is_worse_than_a_tie_and_a_right_one_better(wrong: int, stands: bool) -> None:  # noqa: FBT001 - a table
    ties = [*compared(wrong, "B", "A", "tie"), *compared(300 - wrong, "A", "A", "tie")]
    rule = finality_rule("deep", "improve", 1.0, after="accept", stands="quick")
    assert (rule in chosen(ties, TWO, AGAINST_DEEP).finality.rules) == stands
