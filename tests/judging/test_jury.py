"""What several models of one tier come to."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest
from scripted import scripted_endpoint

from judgekit.judging import jury
from judgekit.judging.jury import Mark, Opinion
from judgekit.judging.verdict import Finding
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config import Outcome
    from judgekit.judging.jury import JuryRule
    from judgekit.providers.base import Endpoint

NAMES = ("semantic", "pragmatic", "syntactic")
A, I, R = (4, 4, 4), (3, 3, 2), (1, 4, 4)  # noqa: E741 - the letters of the table
RUBRIC = loader.score_rubric("kls").rubric


def decide(scores: Mapping[str, float]) -> Outcome:
    return RUBRIC.decide(scores, "strict")  # type: ignore[union-attr]  # it scores


def endpoint(family: str, model: str = "") -> Endpoint:
    return dataclasses.replace(scripted_endpoint(model or f"{family}-model"), family=family)


def said(*values: float, reasoning: str = "", findings: tuple[Finding, ...] = ()) -> Opinion:
    scores = dict(zip(NAMES, map(float, values), strict=True))
    return Opinion(decide(scores), scores, reasoning, findings)


def sat(rule: JuryRule, **families: tuple[float, ...]) -> Opinion:
    """Return what models come to; what follows `_` in a name tells models of one family apart."""
    voices = [(endpoint(name.split("_")[0], name), said(*values)) for name, values in families.items()]
    return jury.opinion(voices, rule, decide)


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_where_all_agree_the_scores_are_the_mean(rule: JuryRule) -> None:
    opinion = sat(rule, a=(4, 4, 4), b=(4, 5, 4), c=(5, 5, 4))
    assert (opinion.outcome, opinion.divided) == ("accept", None)
    assert opinion.scores == {"semantic": 4.33, "pragmatic": 4.67, "syntactic": 4.0}


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_what_every_family_says_stands_against_its_mean(rule: JuryRule) -> None:
    """Two that each miss another thing do not make up for each other."""
    opinion = sat(rule, a=(2, 5, 5), b=(5, 2, 5))
    assert decide(opinion.scores) == "accept"
    assert (opinion.outcome, opinion.divided) == ("improve", None)
    assert sat(rule, a=(1, 5, 5), b=(5, 1, 5)).outcome == "reject"


@pytest.mark.parametrize(
    ("families", "mean", "majority"),
    [
        ({"a": A, "b": A, "c": R}, ("accept", True), ("accept", True)),
        ({"a": A, "b": A, "c": (1, 3, 2)}, ("improve", False), ("accept", True)),
        ({"a": (5, 5, 5), "b": (4, 4, 5), "c": (2, 5, 5)}, ("accept", True), ("accept", True)),
        ({"a": R, "b": R, "c": A}, ("improve", False), ("reject", True)),
        ({"a": (1, 1, 1), "b": (1, 1, 1), "c": A}, ("improve", False), ("reject", True)),
        ({"a": (1, 1, 1), "b": (1, 1, 1), "c": I}, ("reject", True), ("reject", True)),
        ({"a": A, "b": R}, ("improve", False), ("improve", False)),
        ({"a": (5, 5, 5), "b": (1, 4, 4)}, ("accept", False), ("improve", False)),
        ({"a": A, "b": I, "c": R}, ("improve", False), ("improve", False)),
    ],
)
def test_who_disagrees_is_divided(
    families: dict[str, tuple[float, ...]], mean: tuple[str, bool], majority: tuple[str, bool]
) -> None:
    for rule, expected in (("mean", mean), ("majority", majority)):
        opinion = sat(rule, **families)  # type: ignore[arg-type]  # the two rules there are
        assert (rule, opinion.outcome, opinion.divided) == (rule, *expected)


def test_a_majority_shows_the_scores_of_those_who_said_so() -> None:
    assert sat("majority", a=(4, 4, 4), b=(5, 5, 5), c=R).scores == dict.fromkeys(NAMES, 4.5)
    assert sat("mean", a=(4, 4, 4), b=(5, 5, 5), c=(3, 3, 3)).scores == dict.fromkeys(NAMES, 4.0)


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_a_family_has_one_vote_however_many_of_it_sit_there(rule: JuryRule) -> None:
    opinion = sat(rule, a_1=(4, 4, 4), a_2=(5, 5, 5), a_3=(4, 4, 4), b=(1, 1, 1))
    assert opinion.divided is False
    assert opinion.outcome != "accept"
    alone = sat("mean", a_1=(4, 4, 4), a_2=(5, 5, 5), b=(1, 1, 1))
    assert alone.scores["semantic"] == round((4.5 + 1) / 2, 2)


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_models_of_one_family_that_disagree_are_not_divided_but_no_pass_either(rule: JuryRule) -> None:
    opinion = sat(rule, a_1=A, a_2=R)
    assert (opinion.outcome, opinion.divided) == ("improve", None)


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_the_order_of_jurors_decides_nothing(rule: JuryRule) -> None:
    for given in itertools.product([A, I, R, (5, 5, 5)], repeat=3):
        found = [
            jury.opinion([(endpoint(name), said(*values)) for name, values in permutation], rule, decide)
            for permutation in itertools.permutations(zip("abc", given, strict=True))
        ]
        assert (
            len({(opinion.outcome, opinion.divided, tuple(opinion.scores.values())) for opinion in found})
            == 1
        )


@pytest.mark.parametrize("rule", ["mean", "majority"])
def test_a_divided_acceptance_always_has_most_families_behind_it_or_is_marked(rule: JuryRule) -> None:
    for given in itertools.product([A, I, R, (5, 5, 5), (5, 1, 5)], repeat=3):
        outcomes = [said(*each).outcome for each in given]
        opinion = sat(rule, **dict(zip("abc", given, strict=True)))
        assert (opinion.divided is None) == (len(set(outcomes)) == 1)
        if opinion.divided:
            assert 2 * outcomes.count(opinion.outcome) > len(outcomes)


def test_the_words_are_those_of_the_nearest_and_the_findings_of_all() -> None:
    gap, typo = Finding(issue="a gap"), Finding(issue="a typo")
    voices = [
        (endpoint("a"), said(5, 5, 5, reasoning="Splendid.", findings=(typo,))),
        (endpoint("b"), said(4, 4, 4, reasoning="Sound.", findings=(gap, typo))),
        (endpoint("c"), said(3, 4, 4, reasoning="Fair.")),
    ]
    opinion = jury.opinion(voices, "mean", decide)
    assert (opinion.reasoning, opinion.findings) == ("Sound.", (typo, gap))


@pytest.mark.parametrize(
    ("answered", "asked", "enough"),
    [(1, 1, True), (1, 2, False), (2, 2, True), (1, 3, False), (2, 3, True), (2, 4, False), (0, 1, False)],
)
def test_more_than_half_of_a_jury_must_answer(answered: int, asked: int, enough: bool) -> None:  # noqa: FBT001 - a column
    assert jury.has_quorum(answered, asked) is enough


def marked(rule: JuryRule, **chances: float | bool) -> Mark | None:
    """Return the mark of one candidate: by probabilities, or by whether each model keeps it."""
    voices: list[tuple[Endpoint, dict[str, Mark | None]]] = [
        (
            endpoint(name.split("_")[0], name),
            {"m": Mark("accept" if each >= 0.5 else "reject", None if isinstance(each, bool) else each)},
        )
        for name, each in chances.items()
    ]
    return jury.marks(voices, len(voices), rule)["m"]


@pytest.mark.parametrize(
    ("rule", "chances", "mark"),
    [
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
    ],
)
def test_candidates_are_marked_by_family(rule: JuryRule, chances: dict[str, float], mark: Mark) -> None:
    assert marked(rule, **chances) == mark


def test_a_candidate_that_half_of_the_jury_left_out_has_no_mark() -> None:
    kept: dict[str, Mark | None] = {"m": Mark("accept"), "n": Mark("accept")}
    voices: list[tuple[Endpoint, dict[str, Mark | None]]] = [
        (endpoint("a"), kept),
        (endpoint("b"), {"m": Mark("accept"), "n": None}),
    ]
    assert jury.marks(voices, 3, "mean") == {"m": Mark("accept"), "n": None}
    assert jury.marks(voices, 4, "mean") == {"m": None, "n": None}
    assert jury.marks(voices[:1], 1, "mean") is kept
    assert jury.marks([], 2, "mean") == {}
