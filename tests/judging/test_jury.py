"""What the opinions, marks and votes of several models, and of tiers one after another, come to: tables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from making import finality_rule, finality_rules
from scripted import of_family, scripted_endpoint

from judgekit.config import TIERS
from judgekit.judging import jury
from judgekit.judging.compare import ended
from judgekit.judging.escalation import EscalationRules, Final
from judgekit.judging.jury import Mark, Opinion, Vote, outcomes
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.judging.compare import Ended
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.jury import JuryRule, PairWord, TierVote
    from judgekit.judging.verdict import Finding
    from judgekit.providers.base import Endpoint

RULES: tuple[JuryRule, JuryRule] = ("mean", "majority")
NAMES = ("semantic", "pragmatic", "syntactic")
A, I, R = (4, 4, 4), (3, 3, 2), (1, 4, 4)  # noqa: E741 - the letters of the table
RUBRIC = loader.find_rubric("kls").rubric


def decide(scores: Mapping[str, float]) -> Outcome:
    return RUBRIC.decide(scores, "strict")  # type: ignore[union-attr]  # it scores


def endpoint(name: str) -> Endpoint:
    """Return a model; what follows `_` in its name tells models of one family apart."""
    return dataclasses.replace(scripted_endpoint(name), family=name.split("_", maxsplit=1)[0])


def said(*values: float, reasoning: str = "", findings: tuple[Finding, ...] = ()) -> Opinion:
    scores = dict(zip(NAMES, map(float, values), strict=True))
    return Opinion(decide(scores), scores, reasoning, findings)


def sat(rule: JuryRule, **models: tuple[float, ...]) -> Opinion:
    return jury.opinion([(endpoint(name), said(*values)) for name, values in models.items()], rule, decide)


def test_the_outcome_of_a_jury_and_whether_it_is_divided() -> None:
    cases: list[tuple[dict[str, tuple[float, ...]], tuple[str, bool | None], tuple[str, bool | None]]] = [
        ({"a": (4, 4, 4), "b": (4, 5, 4), "c": (5, 5, 4)}, ("accept", None), ("accept", None)),
        # What every family says stands against its mean: each misses another thing.
        ({"a": (2, 5, 5), "b": (5, 2, 5)}, ("improve", None), ("improve", None)),
        ({"a": (1, 5, 5), "b": (5, 1, 5)}, ("reject", None), ("reject", None)),
        ({"a": A, "b": A, "c": R}, ("accept", True), ("accept", True)),
        ({"a": A, "b": A, "c": (1, 3, 2)}, ("improve", False), ("accept", True)),
        ({"a": (5, 5, 5), "b": (4, 4, 5), "c": (2, 5, 5)}, ("accept", True), ("accept", True)),
        ({"a": R, "b": R, "c": A}, ("improve", False), ("reject", True)),
        ({"a": (1, 1, 1), "b": (1, 1, 1), "c": A}, ("improve", False), ("reject", True)),
        ({"a": (1, 1, 1), "b": (1, 1, 1), "c": I}, ("reject", True), ("reject", True)),
        ({"a": A, "b": R}, ("improve", False), ("improve", False)),
        ({"a": (5, 5, 5), "b": (1, 4, 4)}, ("accept", False), ("improve", False)),
        ({"a": A, "b": I, "c": R}, ("improve", False), ("improve", False)),
        # A family has one vote, however many of it sit there; by itself it is not divided.
        ({"a_1": A, "a_2": (5, 5, 5), "a_3": A, "b": (1, 1, 1)}, ("improve", False), ("improve", False)),
        ({"a_1": A, "a_2": R}, ("improve", None), ("improve", None)),
    ]
    for models, mean, majority in cases:
        for rule, expected in zip(RULES, (mean, majority), strict=True):
            opinion = sat(rule, **models)
            assert (rule, opinion.outcome, opinion.divided) == (rule, *expected), models


def test_the_scores_of_a_jury() -> None:
    for rule in RULES:
        agreed = sat(rule, a=(4, 4, 4), b=(4, 5, 4), c=(5, 5, 4)).scores
        assert agreed == {"semantic": 4.33, "pragmatic": 4.67, "syntactic": 4.0}
    # A majority shows the scores of those that make it; a family's models count as one.
    assert sat("majority", a=(4, 4, 4), b=(5, 5, 5), c=R).scores == dict.fromkeys(NAMES, 4.5)
    assert sat("mean", a=(4, 4, 4), b=(5, 5, 5), c=(3, 3, 3)).scores == dict.fromkeys(NAMES, 4.0)
    assert sat("mean", a_1=A, a_2=(5, 5, 5), b=(1, 1, 1)).scores["semantic"] == round((4.5 + 1) / 2, 2)


def test_candidates_are_marked_by_family() -> None:
    """A chance is a probability, or whether the model keeps the candidate."""
    cases: list[tuple[JuryRule, dict[str, float], Mark]] = [
        ("mean", {"a": True, "b": True, "c": True}, Mark("accept")),
        ("mean", {"a": True, "b": True, "c": False}, Mark("accept", None, divided=True)),
        ("mean", {"a": True, "b": False}, Mark("improve", None, divided=False)),
        ("mean", {"a": False, "b": False}, Mark("reject")),
        ("mean", {"a": 0.9, "b": 0.6}, Mark("accept", 0.75)),
        ("mean", {"a": 0.9, "b": 0.2}, Mark("accept", 0.55, divided=False)),
        ("mean", {"a": 0.9, "b": 0.45, "c": 0.4}, Mark("accept", 0.5833, divided=False)),
        ("majority", {"a": 0.9, "b": 0.45, "c": 0.4}, Mark("reject", 0.5833, divided=True)),
        ("mean", {"a": 0.9, "b": True}, Mark("accept")),
        ("mean", {"a_1": True, "a_2": True, "b": False}, Mark("improve", None, divided=False)),
        ("mean", {"a_1": True, "a_2": False}, Mark("improve")),
        ("majority", {"a_1": True, "a_2": True, "a_3": False, "b": True}, Mark("accept")),
    ]
    for rule, chances, mark in cases:
        voices: list[tuple[Endpoint, dict[str, Mark | None]]] = []
        for name, own in chances.items():
            likely = None if isinstance(own, bool) else own
            voices.append((endpoint(name), {"m": Mark("accept" if own >= 0.5 else "reject", likely)}))
        assert jury.marks(voices, len(voices), rule) == {"m": mark}, chances


def test_a_candidate_that_half_of_the_jury_left_out_has_no_mark() -> None:
    kept: dict[str, Mark | None] = {"m": Mark("accept"), "n": Mark("accept")}
    voices: list[tuple[Endpoint, dict[str, Mark | None]]] = [
        (endpoint("a"), kept),
        (endpoint("b"), {"m": Mark("accept"), "n": None}),
    ]
    assert jury.marks(voices, 3, "mean") == {"m": Mark("accept"), "n": None}
    assert jury.marks(voices, 4, "mean") == {"m": None, "n": None}


# --- pairs

WORDS: dict[str, PairWord] = {"A": "A", "B": "B", "T": "tie"}


def tier_vote(letters: str, rule: JuryRule = "mean") -> TierVote:
    """Return the votes that letters stand for: A, B, T for a tie; none for F, a tier that failed."""
    votes = [None if letter == "F" else Vote(WORDS[letter], f"why {letter}") for letter in letters]
    return jury.tier_vote([(of_family(f"{at}"), vote) for at, vote in enumerate(votes)], rule)


def walked(
    tiers: Sequence[str],
    mode: ModeName,
    *,
    cut: Sequence[TierName] = (),
    finality: FinalityRules | None = None,
) -> tuple[Ended, int]:
    """Return how a comparison ends when the tiers say this in turn, and how many of them were asked."""
    script = dict(zip(TIERS, tiers, strict=False))
    rules = EscalationRules("accept" if mode == "strict" else "reject", TIERS, cut, finality=finality)
    heard: dict[TierName, TierVote] = {}
    step = rules.next({})
    while not isinstance(step, Final):
        heard[step] = tier_vote(script[step])
        step = rules.next(outcomes(heard), {tier: vote.lead for tier, vote in heard.items()})
    return ended(step, heard, mode, rules), len(heard)


TRUSTED = finality_rules("c", (finality_rule("quick", "accept", 0.6),), last="deep")
DISTRUSTED = finality_rules("c", (), last="deep")
AGAINST_A_TIE = finality_rule("deep", "improve", 0.3, after="accept", stands="quick")
STANDING = finality_rules("c", (finality_rule("quick", "accept", 0.6), AGAINST_A_TIE), last="deep")


def test_a_calibration_says_which_wins_are_final() -> None:
    cases: list[tuple[list[str], FinalityRules, ModeName, list[TierName], str, int]] = [
        (["AAA", "F"], TRUSTED, "strict", [], "A", 1),
        (["AAB", "B"], TRUSTED, "strict", [], "B", 2),
        (["AAB", "T"], TRUSTED, "strict", [], "tie", 2),
        (["AAB", "T"], TRUSTED, "lenient", [], "tie", 2),  # labels trust its wins, but no narrow ones
        (["AAB", "T"], DISTRUSTED, "lenient", [], "tie", 2),
        (["AAA", "B"], DISTRUSTED, "lenient", [], "B", 2),
        (["ABT", "T"], TRUSTED, "lenient", [], "tie", 2),
        (["AAB", "T"], STANDING, "lenient", [], "A", 2),  # a third ahead: labels let it stand against a tie
        (["BBA", "T"], STANDING, "lenient", [], "B", 2),
        (["AABT", "T"], STANDING, "lenient", [], "tie", 2),  # only a quarter ahead
        (["AAB", "B"], STANDING, "lenient", [], "B", 2),
        (["ABT", "T"], STANDING, "lenient", [], "tie", 2),  # no win that could stand
        (["AAB", "T"], STANDING, "strict", [], "tie", 2),
        (["F", "T"], STANDING, "lenient", [], "tie", 2),
        (["AAB", "T"], STANDING, "lenient", ["quick"], "tie", 2),  # nor a win on a cut text
    ]
    for tiers, finality, mode, cut, verdict, asked in cases:
        found, count = walked(tiers, mode, cut=cut, finality=finality)
        assert (found.verdict, count) == (verdict, asked), (tiers, mode, cut)
        if verdict in "AB" and tiers[1] == "T":  # the tier whose win stands is named with its lead
            assert (found.tier, found.consensus, found.reasoning) == ("quick", "majority", f"why {verdict}")
            assert found.lead == pytest.approx(1 / 3)


def test_a_win_that_only_its_own_family_gave_is_final_in_no_tier_but_the_last() -> None:
    heard: dict[TierName, TierVote] = {"quick": tier_vote("AAA")}
    for finality in (None, TRUSTED, STANDING):
        rules = EscalationRules("reject", TIERS, finality=finality, partial={"quick"})
        assert rules.next(outcomes(heard), {"quick": 1.0}) == "deep"
    told: dict[TierName, TierVote] = {"quick": tier_vote("T"), "deep": tier_vote("AAA")}
    own = EscalationRules("reject", TIERS, finality=TRUSTED, partial={"deep"})
    assert own.next(outcomes(told), {"deep": 1.0}) == "tiebreaker"
    end = EscalationRules("reject", TIERS, finality=TRUSTED).next(outcomes(told), {"deep": 1.0})
    assert end == Final("accept", "single", "deep")
