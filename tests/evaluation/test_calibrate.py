"""Recorded answers are read as judging reads them, and gates are chosen as labels allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from making import finality_rule, promise

from judgekit.errors import InputError
from judgekit.evaluation.calibrate import choose_rules, measure_walks
from judgekit.evaluation.cases import Case, Recorded
from judgekit.evaluation.samples import Sample, replay_tiers, walk
from judgekit.evaluation.tasks import choose_task
from judgekit.judging.binomial import compute_upper_bound
from judgekit.judging.evidence import TierEvidence
from judgekit.judging.steps import EscalationRules
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.evaluation.calibrate import ChosenRules
    from judgekit.judging.calibration import Promise
    from judgekit.judging.finality import FinalityRule

TWO: tuple[TierName, ...] = ("quick", "deep")
THREE: tuple[TierName, ...] = ("quick", "deep", "tiebreaker")
OTHER: dict[Outcome, Outcome] = {"accept": "reject", "reject": "accept"}
FIVE_PERCENT, AGAINST_DEEP = promise(), promise(reference="deep")


def sample(
    label: Outcome, cut: frozenset[TierName] = frozenset(), **said: TierEvidence | Outcome
) -> Sample:
    voices = {
        tier: each
        if isinstance(each, TierEvidence)
        else TierEvidence(each, sees_whole_text=tier not in cut)
        for tier, each in said.items()
    }
    return Sample("x", label, voices)  # type: ignore[arg-type]  # names of tiers


def samples(*groups: tuple[int, int, Outcome, float]) -> list[Sample]:
    """Return `count` samples a group, the first `errors` of them wrong; the deep tier is always right."""
    return [
        sample(label, quick=TierEvidence(said, margin), deep=label)
        for count, errors, said, margin in groups
        for number in range(count)
        for label in [OTHER[said] if number < errors else said]
    ]


def chosen(
    found: list[Sample], tiers: tuple[TierName, ...] = TWO, wanted: Promise = FIVE_PERCENT
) -> ChosenRules:
    return choose_rules(found, tiers, wanted)


def gates(*groups: tuple[int, int, Outcome, float]) -> set[FinalityRule]:
    return rules(chosen(samples(*groups)))


def rules(choice: ChosenRules) -> set[FinalityRule]:
    """Return the rules of the chosen gates, without the counts that prove the promise."""
    return {
        finality_rule(
            gate.tier, gate.outcome, gate.least_margin, after=gate.after, stands=gate.stands
        )
        for gate in choice.finality.rules
    }


def test_which_gates_labels_allow() -> None:
    cases: list[tuple[list[tuple[int, int, Outcome, float]], list[tuple[Outcome, float]]]] = [
        ([], []),
        # The widest gate that holds is taken.
        (
            [(300, 1, "accept", 2.0), (200, 2, "accept", 1.0), (200, 90, "accept", 0.0)],
            [("accept", 1.0)],
        ),
        # Fixed-sequence testing stops: nothing after a failure was tested at all.
        ([(200, 60, "accept", 2.0), (5000, 0, "accept", 0.0)], []),
        # 59 labels do for a class alone, 72 for each of two.
        ([(59, 0, "accept", 0.0), (200, 0, "reject", 0.0)], [("reject", 0.0)]),
        ([(72, 0, "accept", 0.0), (72, 0, "reject", 0.0)], [("accept", 0.0), ("reject", 0.0)]),
        # A class too small to pass costs the others nothing.
        ([(60, 0, "accept", 0.0), (5, 0, "reject", 0.0)], [("accept", 0.0)]),
    ]
    for groups, quick in cases:
        assert gates(*groups) == {finality_rule("quick", *each) for each in quick}


def test_what_is_refused_says_why_and_how_many_labels_would_do() -> None:
    (gate,) = chosen(samples((100, 0, "reject", 1.0))).gates
    assert (gate.labels, gate.errors) == (100, 0)
    assert gate.bound == pytest.approx(compute_upper_bound(0, 100, 0.05), abs=1e-6)
    wide = samples((300, 1, "accept", 2.0), (200, 2, "accept", 1.0), (200, 90, "accept", 0.0))
    (refused,) = chosen(wide).refused_gates
    assert (refused.tier, refused.outcome, refused.after) == ("quick", "accept", None)
    assert (refused.least_margin, refused.why) == (0.0, "too many errors")
    for count, errors, why, more in (
        (58, 0, "too few labels", 1),
        (500, 50, "too many errors", None),
    ):
        choice = chosen(samples((count, errors, "reject", 0.0)))
        assert [(refused.why, refused.more) for refused in choice.refused_gates] == [(why, more)]
        assert choice.gates == []
    (refused,) = chosen(samples((100, 2, "accept", 0.0))).refused_gates
    enough = 100 + (refused.more or 0)
    assert gates((enough, round(0.02 * enough), "accept", 0.0))


def test_failures_cut_texts_and_divided_juries_are_in_no_class_and_go_up() -> None:
    divided = sample(
        "reject",
        quick=TierEvidence("reject", 1.0, agreement="majority", is_divided=True),
        deep="accept",
    )
    failed = sample("accept", quick=TierEvidence(None), deep="accept")
    cut = sample("accept", frozenset({"quick"}), quick="accept", deep="accept")
    for each in (failed, cut, divided):
        choice = chosen([each] * 500)
        assert (choice.gates, choice.refused_gates) == ([], []), each
    final, asked = replay_tiers(divided, EscalationRules("accept", TWO))
    assert (final.verdict, asked) == ("accept", ["quick", "deep"])


def test_a_deep_opinion_that_contradicts_may_be_final() -> None:
    contradicted = sample("reject", quick="accept", deep="reject", tiebreaker="reject")
    agreed = sample("accept", quick="accept", deep="accept")
    choice = chosen([contradicted] * 150 + [agreed] * 150, THREE)
    assert finality_rule("deep", "reject", 0.0, after="accept") in rules(choice)
    escalation = EscalationRules("accept", THREE, finality=choice.finality)
    for own, third in ((escalation, 0), (EscalationRules("accept", THREE), 10)):
        found = measure_walks([walk(contradicted, own)] * 10, THREE)
        assert found.calls == {"quick": 10, "deep": 10, "tiebreaker": third}


def test_the_deep_tier_counts_only_what_reaches_it() -> None:
    """An item that ends at a quick gate says nothing about the deep tier."""
    choice = chosen(samples((400, 0, "accept", 1.0), (60, 30, "accept", 0.0)), THREE)
    assert finality_rule("quick", "accept", 1.0) in rules(choice)
    deep = [rule.labels for rule in (*choice.gates, *choice.refused_gates) if rule.tier == "deep"]
    assert all(labels <= 60 for labels in deep)


def test_with_a_reference_only_what_is_lost_against_it_counts() -> None:
    found = [sample("reject", quick="accept", deep="accept")] * 50
    found += [sample("accept", quick="accept", deep="accept")] * 150
    assert chosen(found).gates == []
    choice = chosen(found, TWO, AGAINST_DEEP)
    assert rules(choice) == {finality_rule("quick", "accept", 0.0)}
    assert choice.finality.last_tier == "deep"
    assert (choice.gates[0].labels, choice.gates[0].errors) == (200, 0)
    # A reference that failed counts as right.
    assert chosen([sample("reject", quick="accept")] * 100, TWO, AGAINST_DEEP).gates == []


# --- A tie of two texts against a reference


def compared(
    count: int, label: str, quick: str, deep: str, mode: ModeName = "lenient"
) -> list[Sample]:
    judges = {"quick": {"choice": quick}, "deep": {"choice": deep}}
    case = {"id": "c", "label": label, "prompt": "p", "a": "1", "b": "2", "judges": judges}
    task = choose_task(loader.find_rubric("answer-preference").rubric, mode)
    return list(task.build_samples(Case.model_validate(case))) * count


def test_a_tie_over_a_win_is_no_measurement() -> None:
    cases: list[tuple[list[Sample], list[tuple[int, int, int]]]] = [
        # Wins that are always wrong are trusted nowhere because a deeper tier says nothing of them.
        (compared(300, "B", "A", "tie"), []),
        ([*compared(300, "B", "A", "tie"), *compared(40, "A", "A", "A")], [(40, 0, 0)]),
        # A tie that is right is a measurement.
        ([*compared(100, "A", "A", "A"), *compared(20, "tie", "A", "tie")], [(120, 20, 0)]),
        # In strict mode a tie is never held against the reference.
        (
            [*compared(100, "A", "A", "A", "strict"), *compared(20, "B", "A", "tie", "strict")],
            [(120, 20, 0)],
        ),
    ]
    for found, quick in cases:
        choice = chosen(found, TWO, AGAINST_DEEP)
        assert choice.finality.rules == ()
        refused = [each for each in choice.refused_gates if each.tier == "quick"]
        assert [(each.labels, each.errors, each.gains) for each in refused] == quick


@pytest.mark.parametrize(("wrong", "stands"), [(0, True), (40, True), (150, False), (300, False)])
def test_a_wrong_win_is_worse_than_a_tie_and_a_right_one_better(wrong: int, stands: bool) -> None:  # noqa: FBT001 - a table
    ties = [*compared(wrong, "B", "A", "tie"), *compared(300 - wrong, "A", "A", "tie")]
    rule = finality_rule("deep", "improve", 1.0, after="accept", stands="quick")
    assert (rule in rules(chosen(ties, TWO, AGAINST_DEEP))) == stands


GOOD = {"semantic": 5, "pragmatic": 5, "syntactic": 4}
BAD = {"semantic": 1, "pragmatic": 2, "syntactic": 2}
DOCUMENTS, CANDIDATES, PAIRS = (
    choose_task(loader.find_rubric(name).rubric, "strict")
    for name in ("kls", "memory-relevance", "answer-preference")
)
MEMORIES = {"query": "q", "candidates": [{"id": "m1", "title": "1"}, {"id": "m2", "title": "2"}]}


def case(label: object = "accept", **more: Any) -> Case:  # noqa: ANN401 - any JSON
    return Case.model_validate({"id": "c", "label": label, **more})


def jury(**by_family: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of models, each named by its family and a number."""
    return {"jury": [{"model": "m", "family": name[0], **said} for name, said in by_family.items()]}


SCORED, POOR = {"scores": GOOD}, {"scores": BAD}


@pytest.mark.parametrize(
    ("said", "opinion"),
    [
        # The margin of the mean: 4.8333 against 3.5.
        (jury(a=SCORED, b={"scores": {**GOOD, "syntactic": 5}}), ("accept", 1.3333, False, None)),
        (
            jury(a=SCORED, b=POOR, c=SCORED) | {"rule": "majority"},
            ("accept", 1.0, True, "majority"),
        ),
        (jury(a=SCORED, b={"reply": "It is fine."}), (None, None, False, None)),  # half failed
        (
            jury(a=SCORED, a2=SCORED, b=POOR),
            ("improve", 0.3333, True, "none"),
        ),  # of one family, so one vote
    ],
)
def test_a_jury_has_one_opinion(
    said: dict[str, Any], opinion: tuple[Outcome | None, float | None, bool, str | None]
) -> None:
    (sample,) = DOCUMENTS.build_samples(case(judges={"quick": said}))
    read = sample.opinions["quick"]
    assert (read.outcome, read.margin, read.is_divided, read.agreement) == opinion


def test_a_pair_is_read_in_both_orders() -> None:
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"orders": {"AB": "A", "BA": "A"}}, "A"),
        ({"orders": {"AB": "A", "BA": "B"}}, "tie"),  # the order decided
        ({"orders": {"AB": "tie", "BA": "tie"}}, "tie"),
        ({"orders": {"AB": "B", "BA": None}}, None),
        ({"probabilities": {"A": 0, "B": 0}}, "tie"),
        ({"jury": [{"choice": "A"}, {"failure": "timeout"}]}, None),
        ({"jury": [{"choice": "A"}, {"choice": "A"}, {"failure": "timeout"}]}, "A"),
    ]
    for said, word in cases:
        assert PAIRS.read_answers(case("A"), Recorded.model_validate(said)) == {"": word}


def test_an_answer_that_does_not_fit_is_named() -> None:
    cases: list[tuple[object, dict[str, Any], str]] = [
        ("C", {"choice": "A"}, "label: expected A, B, tie"),
        ("A", {"scores": GOOD}, "expected orders or a choice"),
        (
            "A",
            {"probabilities": {"a": 0.9, "b": 0.1}},
            "case c: probabilities: expected A and B, got a, b",
        ),
        # An id that names nothing would pass for a candidate that was dropped.
        (
            ["m1"],
            {"probabilities": {"m1": 0.9, "M2": 0}},
            "c: probabilities: expected ids of its candidates, got",
        ),
        (
            ["m1"],
            {"keep": [], "unjudged": ["one"]},
            "c: unjudged: expected ids of its candidates, got one",
        ),
    ]
    for label, said, problem in cases:
        reader, more = (CANDIDATES, MEMORIES) if isinstance(label, list) else (PAIRS, {})
        with pytest.raises(InputError, match=problem):
            list(reader.build_samples(case(label, judges={"quick": said}, **more)))
