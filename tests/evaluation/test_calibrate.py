"""Gates are chosen as labels allow, and keep their promise in simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from making import finality_rule

from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.samples import Sample, TierOpinion, walk
from judgekit.judging.binomial import needed, upper
from judgekit.judging.calibration import ErrorCounts, Promise, bound
from judgekit.judging.escalation import EscalationRules

if TYPE_CHECKING:
    from judgekit.config import Outcome, TierName
    from judgekit.evaluation.calibrate import ChosenRules
    from judgekit.judging.escalation import FinalityRule

TWO: tuple[TierName, ...] = ("quick", "deep")
THREE: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")
OTHER: dict[Outcome, Outcome] = {"accept": "reject", "reject": "accept"}


def samples(*groups: tuple[int, int, Outcome, float]) -> list[Sample]:
    """Return `count` samples a group, the first `errors` of them wrong; the deep tier is always right."""
    found = []
    for count, errors, said, margin in groups:
        for number in range(count):
            label = OTHER[said] if number < errors else said
            voices: dict[TierName, TierOpinion] = {
                "quick": TierOpinion(said, margin),
                "deep": TierOpinion(label),
            }
            found.append(Sample(f"{said}{margin}-{number}", label, voices))
    return found


def finality(choice: ChosenRules) -> set[FinalityRule]:
    return set(choice.finality.rules)


def test_a_class_without_errors_and_with_labels_enough_is_let_through() -> None:
    choice = choose_rules(samples((100, 0, "reject", 1.0)), TWO, Promise(0.05))
    assert finality(choice) == {finality_rule("quick", "reject", 1.0)}
    (gate,) = choice.gates
    assert (gate.labels, gate.errors, choice.refused) == (100, 0, [])
    assert gate.bound == pytest.approx(upper(0, 100, 0.05), abs=1e-6)
    assert choose_rules([], TWO, Promise()).finality.rules == ()


def test_what_is_refused_says_why_and_how_many_labels_would_do() -> None:
    least = needed(0.05, 0.05)
    assert least is not None
    assert finality(choose_rules(samples((least, 0, "reject", 0.0)), TWO, Promise(0.05)))
    table: list[tuple[tuple[int, int], str, int | None]] = [
        ((least - 1, 0), "too few labels", 1),
        ((500, 50), "too many errors", None),  # it needs another judge
    ]
    for (count, errors), why, more in table:
        choice = choose_rules(samples((count, errors, "reject", 0.0)), TWO, Promise(0.05))
        assert [(refused.why, refused.more) for refused in choice.refused] == [(why, more)]
        assert finality(choice) == set()
    (refused,) = choose_rules(samples((100, 2, "accept", 0.0)), TWO, Promise(0.05)).refused
    enough = 100 + (refused.more or 0)
    assert finality(choose_rules(samples((enough, round(0.02 * enough), "accept", 0.0)), TWO, Promise(0.05)))


def test_the_widest_gate_that_holds_is_taken_and_the_next_is_named() -> None:
    choice = choose_rules(
        samples((300, 1, "accept", 2.0), (200, 2, "accept", 1.0), (200, 90, "accept", 0.0)),
        TWO,
        Promise(0.05),
    )
    assert finality(choice) == {finality_rule("quick", "accept", 1.0)}
    (refused,) = choice.refused
    assert (refused.tier, refused.outcome, refused.after) == ("quick", "accept", None)
    assert (refused.least_margin, refused.why) == (0.0, "too many errors")


def test_a_narrow_class_that_fails_hides_wider_ones() -> None:
    """Fixed-sequence testing stops: what comes after a failure was not tested at all."""
    choice = choose_rules(samples((200, 60, "accept", 2.0), (5000, 0, "accept", 0.0)), TWO, Promise(0.05))
    assert finality(choice) == set()


def test_classes_share_the_confidence() -> None:
    both = choose_rules(samples((59, 0, "accept", 0.0), (200, 0, "reject", 0.0)), TWO, Promise(0.05))
    assert finality(both) == {
        finality_rule("quick", "reject", 0.0)
    }  # 59 labels do for a class alone, 72 for each of two
    assert finality(
        choose_rules(samples((72, 0, "accept", 0.0), (72, 0, "reject", 0.0)), TWO, Promise(0.05))
    ) == {finality_rule("quick", "accept", 0.0), finality_rule("quick", "reject", 0.0)}


def test_a_class_too_small_to_pass_costs_the_others_nothing() -> None:
    choice = choose_rules(samples((60, 0, "accept", 0.0), (5, 0, "reject", 0.0)), TWO, Promise(0.05))
    assert finality(choice) == {finality_rule("quick", "accept", 0.0)}
    assert [refused.outcome for refused in choice.refused] == ["reject"]


def test_failures_and_acceptances_of_cut_texts_are_in_no_class() -> None:
    failed: dict[TierName, TierOpinion] = {"quick": TierOpinion(None), "deep": TierOpinion("accept")}
    cut: dict[TierName, TierOpinion] = {"quick": TierOpinion("accept"), "deep": TierOpinion("accept")}
    found = [Sample(str(number), "accept", failed) for number in range(100)]
    found += [Sample(f"c{number}", "accept", cut, frozenset({"quick"})) for number in range(100)]
    choice = choose_rules(found, TWO, Promise(0.05))
    assert (choice.gates, choice.refused) == ([], [])


def contradicted(count: int, errors: int, others: int) -> list[Sample]:
    """Return samples where deep rejects what quick accepts, `errors` wrongly, and others where they agree."""
    found = []
    for number in range(count):
        label: Outcome = "accept" if number < errors else "reject"
        voices: dict[TierName, TierOpinion] = {
            "quick": TierOpinion("accept"),
            "deep": TierOpinion("reject"),
            "tiebreaker": TierOpinion(label),
        }
        found.append(Sample(f"d{number}", label, voices))
    same: dict[TierName, TierOpinion] = {"quick": TierOpinion("accept"), "deep": TierOpinion("accept")}
    return found + [Sample(f"s{number}", "accept", same) for number in range(others)]


def test_a_deep_opinion_that_contradicts_may_be_final() -> None:
    choice = choose_rules(contradicted(150, 0, 150), THREE, Promise(0.05))
    assert finality_rule("deep", "reject", 0.0, after="accept") in finality(choice)
    rules = EscalationRules("accept", THREE, finality=choice.finality)
    assert walk(contradicted(10, 0, 0), rules).calls == {"quick": 10, "deep": 10, "tiebreaker": 0}
    assert walk(contradicted(10, 0, 0), EscalationRules("accept", THREE)).calls["tiebreaker"] == 10


def test_the_deep_tier_counts_only_what_reaches_it() -> None:
    """What a quick gate ends is no evidence about the deep tier."""
    easy = samples((400, 0, "accept", 1.0))
    hard = samples((60, 30, "accept", 0.0))
    choice = choose_rules(easy + hard, THREE, Promise(0.05))
    assert finality_rule("quick", "accept", 1.0) in finality(choice)
    deep = [gate.labels for gate in choice.gates if gate.tier == "deep"]
    deep += [refused.labels for refused in choice.refused if refused.tier == "deep"]
    assert all(labels <= 60 for labels in deep)


def test_with_a_reference_only_what_is_lost_against_it_counts() -> None:
    both_wrong: dict[TierName, TierOpinion] = {"quick": TierOpinion("accept"), "deep": TierOpinion("accept")}
    found = [Sample(str(number), "reject", both_wrong) for number in range(50)]
    found += [Sample(f"r{number}", "accept", both_wrong) for number in range(150)]
    assert finality(choose_rules(found, TWO, Promise(0.05))) == set()
    choice = choose_rules(found, TWO, Promise(0.05, reference="deep"))
    assert finality(choice) == {finality_rule("quick", "accept", 0.0)}
    assert choice.finality.last == "deep"
    assert (choice.gates[0].labels, choice.gates[0].errors) == (200, 0)


def test_a_reference_that_failed_counts_as_right() -> None:
    voices: dict[TierName, TierOpinion] = {"quick": TierOpinion("accept")}
    found = [Sample(str(number), "reject", voices) for number in range(100)]
    assert finality(choose_rules(found, TWO, Promise(0.05, reference="deep"))) == set()


def test_gains_are_set_against_losses() -> None:
    promise = Promise(0.05, reference="deep")
    assert (
        bound(ErrorCounts(500, 20, 40), 0.05, promise) < 0.05 < bound(ErrorCounts(500, 20, 0), 0.05, promise)
    )
    assert ErrorCounts(500, 20, 40).rate == pytest.approx(-0.04)


def test_the_steps_reach_from_few_opinions_to_nearly_all() -> None:
    """Of a thousand margins the upper seven hundred are right: most of these pass, in a few steps."""
    found = []
    for number in range(1000):
        voices: dict[TierName, TierOpinion] = {
            "quick": TierOpinion("accept", float(number)),
            "deep": TierOpinion("accept"),
        }
        found.append(Sample(str(number), "accept" if number >= 300 else "reject", voices))
    (shown,) = choose_rules(found, ("quick", "deep"), Promise(0.1)).gates
    assert shown.labels > 500
    assert shown.errors == 0
