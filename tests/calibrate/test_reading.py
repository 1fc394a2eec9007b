"""Recorded answers are read as judging reads them: juries, pairs in both orders, divided opinions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from judgekit import library
from judgekit.calibrate.choose import Promise, choose
from judgekit.calibrate.labelled import Case, Recorded
from judgekit.calibrate.reading import Reader
from judgekit.calibrate.samples import Sample, Voice, ended
from judgekit.errors import InputError
from judgekit.judging.escalation import Rules

if TYPE_CHECKING:
    from judgekit.rubric import TierName

GOOD = {"semantic": 5, "pragmatic": 5, "syntactic": 4}
BAD = {"semantic": 1, "pragmatic": 2, "syntactic": 2}


def case(label: object = "accept", **more: Any) -> Case:  # noqa: ANN401 - any JSON
    return Case.model_validate({"id": "c", "label": label, **more})


def jury(*jurors: dict[str, Any], rule: str = "mean") -> Recorded:
    return Recorded.model_validate({"jury": [{"model": "m", **each} for each in jurors], "rule": rule})


@pytest.fixture
def documents() -> Reader:
    return Reader(library.find_rubric("kls").rubric, "strict")


@pytest.fixture
def pairs() -> Reader:
    return Reader(library.find_rubric("answer-preference").rubric, "strict")


def voice(reader: Reader, said: Recorded) -> Voice:
    (sample,) = reader.samples(case(judges={"quick": said.model_dump()}))
    return sample.voices["quick"]


def test_a_jury_that_agrees_has_the_margin_of_its_mean(documents: Reader) -> None:
    said = jury({"family": "a", "scores": GOOD}, {"family": "b", "scores": {**GOOD, "syntactic": 5}})
    assert voice(documents, said) == Voice("accept", 1.3333)  # a mean of 4.8333 against 3.5


def test_a_jury_whose_families_differ_is_divided(documents: Reader) -> None:
    said = jury({"family": "a", "scores": GOOD}, {"family": "b", "scores": BAD}, rule="majority")
    assert voice(documents, said).divided is False
    third = jury(
        {"family": "a", "scores": GOOD},
        {"family": "b", "scores": BAD},
        {"family": "c", "scores": GOOD},
        rule="majority",
    )
    assert (voice(documents, third).outcome, voice(documents, third).divided) == ("accept", True)


def test_a_jury_of_which_half_failed_has_failed(documents: Reader) -> None:
    said = jury({"family": "a", "scores": GOOD}, {"family": "b", "reply": "It is fine."})
    assert voice(documents, said) == Voice(None)


def test_models_of_one_family_have_one_vote(documents: Reader) -> None:
    said = jury(
        {"family": "a", "scores": GOOD}, {"family": "a", "scores": GOOD}, {"family": "b", "scores": BAD}
    )
    assert voice(documents, said).divided is False


def test_jurors_mark_candidates_together() -> None:
    reader = Reader(library.find_rubric("memory-relevance").rubric, "strict")
    said = jury(
        {"family": "a", "probabilities": {"m1": 0.9, "m2": 0.2}},
        {"family": "b", "probabilities": {"m1": 0.8, "m2": 0.9}},
    )
    found = case(["m1"], query="q", candidates=[{"id": "m1", "title": "1"}, {"id": "m2", "title": "2"}])
    assert reader.words(found, said) == {"m1": "accept", "m2": "accept"}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"orders": {"AB": "A", "BA": "A"}}, "A"),
        ({"orders": {"AB": "A", "BA": "B"}}, "tie"),  # the order decided
        ({"orders": {"AB": "tie", "BA": "tie"}}, "tie"),
        ({"orders": {"AB": "B", "BA": None}}, None),
        ({"choice": "B"}, "B"),
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
    ],
)
def test_what_is_no_pair_is_named(pairs: Reader, label: str, said: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(pairs.samples(case(label, judges={"quick": said})))


# --- divided juries in calibrations -----------------------------------------------------------------------

TIERS: tuple[TierName, ...] = ("quick", "deep")


def divided(count: int) -> list[Sample]:
    voices: dict[TierName, Voice] = {"quick": Voice("reject", 1.0, divided=True), "deep": Voice("accept")}
    return [Sample(str(number), "reject", voices) for number in range(count)]


def test_a_divided_jury_goes_up_and_can_win_no_gate() -> None:
    choice = choose(divided(500), TIERS, Promise(0.05))
    assert (choice.shown, choice.refused) == ([], [])
    final, asked = ended(divided(1)[0], Rules("accept", TIERS))
    assert (final.verdict, asked) == ("accept", ["quick", "deep"])


def test_a_united_jury_can() -> None:
    voices: dict[TierName, Voice] = {"quick": Voice("reject", 1.0), "deep": Voice("accept")}
    choice = choose([Sample(str(number), "reject", voices) for number in range(500)], TIERS, Promise(0.05))
    assert [each.gate.outcome for each in choice.shown] == ["reject"]
