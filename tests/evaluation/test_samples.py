"""Recorded answers are read as judging reads them: juries, candidates, pairs in both orders."""

from __future__ import annotations

from typing import Any

import pytest

from judgekit.errors import InputError
from judgekit.evaluation.cases import Case, Recorded
from judgekit.evaluation.samples import Reader, TierOpinion
from judgekit.rubric import loader

GOOD = {"semantic": 5, "pragmatic": 5, "syntactic": 4}
BAD = {"semantic": 1, "pragmatic": 2, "syntactic": 2}
DOCUMENTS, CANDIDATES, PAIRS = (
    Reader(loader.find_rubric(name).rubric, "strict")
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
        (jury(a=SCORED, b={"scores": {**GOOD, "syntactic": 5}}), TierOpinion("accept", 1.3333)),
        (jury(a=SCORED, b=POOR) | {"rule": "majority"}, (None, False)),
        (jury(a=SCORED, b=POOR, c=SCORED) | {"rule": "majority"}, ("accept", True)),
        (jury(a=SCORED, b={"reply": "It is fine."}), TierOpinion(None)),  # half failed
        (jury(a=SCORED, a2=SCORED, b=POOR), (None, False)),  # of one family, so one vote
    ],
)
def test_a_jury_comes_to_one_opinion(
    said: dict[str, Any], opinion: TierOpinion | tuple[str | None, bool]
) -> None:
    (sample,) = DOCUMENTS.samples(case(judges={"quick": said}))
    found = sample.voices["quick"]
    if isinstance(opinion, TierOpinion):
        assert found == opinion
    else:
        outcome, divided = opinion
        assert found.divided is divided
        assert outcome is None or found.outcome == outcome


def test_jurors_mark_candidates_together() -> None:
    marks = {"probabilities": {"m1": 0.9, "m2": 0.2}}, {"probabilities": {"m1": 0.8, "m2": 0.9}}
    recorded = Recorded.model_validate(jury(a=marks[0], b=marks[1]))
    assert CANDIDATES.words(case(["m1"], **MEMORIES), recorded) == {"m1": "accept", "m2": "accept"}


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
def test_a_pair_is_read_in_both_orders(said: dict[str, Any], word: str | None) -> None:
    assert PAIRS.words(case("A"), Recorded.model_validate(said)) == {"": word}


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
    label: str, quick: str, deep: str, right: str, said: tuple[str, str]
) -> None:
    judges = {"quick": {"choice": quick}, "deep": {"choice": deep}}
    (sample,) = PAIRS.samples(case(label, prompt="p", a="1", b="2", judges=judges))
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
        # An id that names nothing would pass for a candidate that was dropped.
        (
            ["m1"],
            {"probabilities": {"m1": 0.9, "M2": 0}},
            "c: probabilities: expected ids of its candidates, got",
        ),
        (["m1"], {"keep": ["m3"]}, "case c: keep: expected ids of its candidates, got m3"),
        (["m1"], {"keep": [], "unjudged": ["one"]}, "c: unjudged: expected ids of its candidates, got one"),
        (
            ["m1"],
            {"jury": [{"keep": ["m1"]}, {"keep": ["A"]}]},
            "keep: expected ids of its candidates, got A",
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_named(label: object, said: dict[str, Any], problem: str) -> None:
    reader, more = (CANDIDATES, MEMORIES) if isinstance(label, list) else (PAIRS, {})
    with pytest.raises(InputError, match=problem):
        list(reader.samples(case(label, judges={"quick": said}, **more)))
