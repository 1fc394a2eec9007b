"""Recorded answers are read as judging reads them: juries, pairs in both orders, divided opinions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from making import finality_rule

from judgekit.errors import InputError
from judgekit.evaluation.calibrate import choose_rules
from judgekit.evaluation.cases import Case, Recorded
from judgekit.evaluation.samples import Reader, Sample, TierOpinion, ended
from judgekit.judging.calibration import Promise
from judgekit.judging.escalation import EscalationRules
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.config import TierName

GOOD = {"semantic": 5, "pragmatic": 5, "syntactic": 4}
BAD = {"semantic": 1, "pragmatic": 2, "syntactic": 2}


def case(label: object = "accept", **more: Any) -> Case:  # noqa: ANN401 - any JSON
    return Case.model_validate({"id": "c", "label": label, **more})


def jury(*jurors: dict[str, Any], rule: str = "mean") -> Recorded:
    return Recorded.model_validate({"jury": [{"model": "m", **juror} for juror in jurors], "rule": rule})


@pytest.fixture
def documents() -> Reader:
    return Reader(loader.find_rubric("kls").rubric, "strict")


@pytest.fixture
def pairs() -> Reader:
    return Reader(loader.find_rubric("answer-preference").rubric, "strict")


def voice(reader: Reader, said: Recorded) -> TierOpinion:
    (sample,) = reader.samples(case(judges={"quick": said.model_dump()}))
    return sample.voices["quick"]


def test_a_jury_that_agrees_has_the_margin_of_its_mean(documents: Reader) -> None:
    recorded = jury({"family": "a", "scores": GOOD}, {"family": "b", "scores": {**GOOD, "syntactic": 5}})
    assert voice(documents, recorded) == TierOpinion("accept", 1.3333)  # a mean of 4.8333 against 3.5


def test_a_jury_whose_families_differ_is_divided(documents: Reader) -> None:
    recorded = jury({"family": "a", "scores": GOOD}, {"family": "b", "scores": BAD}, rule="majority")
    assert voice(documents, recorded).divided is False
    third = jury(
        {"family": "a", "scores": GOOD},
        {"family": "b", "scores": BAD},
        {"family": "c", "scores": GOOD},
        rule="majority",
    )
    assert (voice(documents, third).outcome, voice(documents, third).divided) == ("accept", True)


def test_a_jury_of_which_half_failed_has_failed(documents: Reader) -> None:
    recorded = jury({"family": "a", "scores": GOOD}, {"family": "b", "reply": "It is fine."})
    assert voice(documents, recorded) == TierOpinion(None)


def test_models_of_one_family_have_one_vote(documents: Reader) -> None:
    recorded = jury(
        {"family": "a", "scores": GOOD}, {"family": "a", "scores": GOOD}, {"family": "b", "scores": BAD}
    )
    assert voice(documents, recorded).divided is False


def test_jurors_mark_candidates_together() -> None:
    reader = Reader(loader.find_rubric("memory-relevance").rubric, "strict")
    recorded = jury(
        {"family": "a", "probabilities": {"m1": 0.9, "m2": 0.2}},
        {"family": "b", "probabilities": {"m1": 0.8, "m2": 0.9}},
    )
    found = case(["m1"], query="q", candidates=[{"id": "m1", "title": "1"}, {"id": "m2", "title": "2"}])
    assert reader.words(found, recorded) == {"m1": "accept", "m2": "accept"}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"orders": {"AB": "A", "BA": "A"}}, "A"),
        ({"orders": {"AB": "A", "BA": "B"}}, "tie"),  # the order decided
        ({"orders": {"AB": "tie", "BA": "tie"}}, "tie"),
        ({"orders": {"AB": "B", "BA": None}}, None),
        ({"choice": "B"}, "B"),
        ({"probabilities": {"A": 0.25, "B": 0.5}}, "B"),
        ({"probabilities": {"A": 0, "B": 0}}, "tie"),
        ({"failure": "timeout"}, None),
        ({"jury": [{"choice": "A"}, {"choice": "B"}, {"choice": "B"}]}, "B"),
        ({"jury": [{"choice": "A"}, {"failure": "timeout"}]}, None),
        ({"jury": [{"choice": "A"}, {"choice": "A"}, {"failure": "timeout"}]}, "A"),
    ],
)
def test_a_pair_is_read_in_both_orders(pairs: Reader, said: dict[str, Any], word: str | None) -> None:
    assert pairs.words(case("A"), Recorded.model_validate(said)) == {"": word}


@pytest.mark.parametrize(
    ("label", "quick", "deep", "right", "said"),
    [
        ("A", "A", "A", "accept", ("accept", "accept")),
        ("B", "B", "B", "accept", ("accept", "accept")),
        ("A", "B", "A", "reject", ("accept", "reject")),
        ("tie", "A", "tie", "improve", ("accept", "improve")),
        ("B", "tie", "B", "accept", ("improve", "accept")),
        ("A", "tie", "tie", "reject", ("improve", "improve")),
    ],
)
def test_a_pair_is_told_from_the_side_of_the_first_winner(
    pairs: Reader, label: str, quick: str, deep: str, right: str, said: tuple[str, str]
) -> None:
    judges = {"quick": {"choice": quick}, "deep": {"choice": deep}}
    (sample,) = pairs.samples(case(label, prompt="p", a="1", b="2", judges=judges))
    assert sample.label == right
    assert (sample.outcome("quick"), sample.outcome("deep")) == said


@pytest.mark.parametrize(
    ("label", "said", "problem"),
    [
        ("C", {"choice": "A"}, "label: expected A, B, tie"),
        ("A", {"scores": GOOD}, "expected orders or a choice"),
        ("A", {"probabilities": {"a": 0.9, "b": 0.1}}, "case c: probabilities: expected A and B, got a, b"),
        ("A", {"probabilities": {"A": 0.9}}, "expected A and B, got A"),
        ("A", {"probabilities": {"A": 0.9, "B": 0, "tie": 0.1}}, "expected A and B, got A, B, tie"),
        ("A", {"probabilities": {}}, "expected A and B, got nothing"),
        ("A", {"jury": [{"probabilities": {"m1": 0.9}}]}, "expected A and B, got m1"),
    ],
)
def test_what_is_no_pair_is_named(pairs: Reader, label: str, said: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(pairs.samples(case(label, judges={"quick": said})))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            {"probabilities": {"m1": 0.9, "M2": 0.1}},
            "case c: probabilities: expected ids of its candidates, got",
        ),
        ({"keep": ["m3"]}, "case c: keep: expected ids of its candidates, got m3"),
        ({"keep": [], "unjudged": ["one"]}, "case c: unjudged: expected ids of its candidates, got one"),
        ({"jury": [{"keep": ["m1"]}, {"keep": ["A"]}]}, "keep: expected ids of its candidates, got A"),
    ],
)
def test_what_is_no_candidate_is_named(said: dict[str, Any], problem: str) -> None:
    """An id that names nothing would pass for a candidate that was dropped."""
    reader = Reader(loader.find_rubric("memory-relevance").rubric, "strict")
    candidates = [{"id": "m1", "title": "One"}, {"id": "m2", "title": "Two"}]
    with pytest.raises(InputError, match=problem):
        list(reader.samples(case(["m1"], query="q", candidates=candidates, judges={"quick": said})))


# --- a tie against a reference ----------------------------------------------------------------------------

LENIENT = Reader(loader.find_rubric("answer-preference").rubric, "lenient")
AGAINST_DEEP = Promise(0.05, reference="deep")
STANDS = finality_rule("deep", "improve", 1.0, after="accept", stands="quick")


def compared(count: int, label: str, quick: str, deep: str, reader: Reader = LENIENT) -> list[Sample]:
    judges = {"quick": {"choice": quick}, "deep": {"choice": deep}}
    pair = {"prompt": "p", "a": "1", "b": "2", "judges": judges}
    return [sample for _ in range(count) for sample in reader.samples(case(label, **pair))]


def test_a_tie_of_the_reference_is_no_measurement_of_a_win() -> None:
    """Wins that are always wrong are trusted nowhere because a deeper tier says nothing of them."""
    wrong = compared(300, "B", "A", "tie")
    assert choose_rules(wrong, ("quick", "deep"), AGAINST_DEEP).finality.rules == ()
    chosen_rules = choose_rules([*wrong, *compared(40, "A", "A", "A")], ("quick", "deep"), AGAINST_DEEP)
    assert chosen_rules.finality.rules == ()
    (refused,) = [each for each in chosen_rules.refused if each.tier == "quick"]
    assert (refused.labels, refused.errors, refused.why) == (40, 0, "too few labels")


def test_a_tie_that_is_right_is_one() -> None:
    chosen_rules = choose_rules(
        [*compared(100, "A", "A", "A"), *compared(20, "tie", "A", "tie")], ("quick", "deep"), AGAINST_DEEP
    )
    (refused,) = [each for each in chosen_rules.refused if each.tier == "quick"]
    assert (refused.labels, refused.errors, refused.gains) == (120, 20, 0)


@pytest.mark.parametrize(("wrong", "stands"), [(0, True), (40, True), (150, False), (300, False)])
def test_a_wrong_win_is_worse_than_a_tie_and_a_right_one_better(wrong: int, stands: bool) -> None:  # noqa: FBT001 - a table
    ties = [*compared(wrong, "B", "A", "tie"), *compared(300 - wrong, "A", "A", "tie")]
    choice = choose_rules(ties, ("quick", "deep"), AGAINST_DEEP)
    assert (STANDS in choice.finality.rules) == stands


def test_in_strict_mode_a_tie_is_never_held_against_the_reference(pairs: Reader) -> None:
    choice = choose_rules(
        [*compared(100, "A", "A", "A", pairs), *compared(20, "B", "A", "tie", pairs)],
        ("quick", "deep"),
        AGAINST_DEEP,
    )
    (refused,) = choice.refused
    assert (refused.labels, refused.errors) == (120, 20)


# --- divided juries in calibrations -----------------------------------------------------------------------

TIERS: tuple[TierName, ...] = ("quick", "deep")


def divided(count: int) -> list[Sample]:
    voices: dict[TierName, TierOpinion] = {
        "quick": TierOpinion("reject", 1.0, divided=True),
        "deep": TierOpinion("accept"),
    }
    return [Sample(str(number), "reject", voices) for number in range(count)]


def test_a_divided_jury_goes_up_and_can_win_no_gate() -> None:
    choice = choose_rules(divided(500), TIERS, Promise(0.05))
    assert (choice.gates, choice.refused) == ([], [])
    final, asked = ended(divided(1)[0], EscalationRules("accept", TIERS))
    assert (final.verdict, asked) == ("accept", ["quick", "deep"])


def test_a_united_jury_can() -> None:
    voices: dict[TierName, TierOpinion] = {"quick": TierOpinion("reject", 1.0), "deep": TierOpinion("accept")}
    choice = choose_rules(
        [Sample(str(number), "reject", voices) for number in range(500)], TIERS, Promise(0.05)
    )
    assert [gate.outcome for gate in choice.gates] == ["reject"]
