"""Reasonings are told to be about dimensions by whole words, not by letters that happen to be in them."""

from __future__ import annotations

import pytest

from judgekit.judging import score
from judgekit.judging.verdict import Finding
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric


def kls() -> ScoreRubric:
    rubric = loader.score_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    return rubric


def with_terms(**wanted: list[str]) -> ScoreRubric:
    rubric = kls()
    (dimension, *_) = rubric.dimensions.values()
    named = {name: dimension.model_copy(update={"terms": each}) for name, each in wanted.items()}
    return rubric.model_copy(update={"dimensions": named})


@pytest.mark.parametrize(
    ("text", "dimensions"),
    [
        ("The status code is factually WRONG.", ("semantic",)),
        ("Sections stand in no order, and two links are broken.", ("syntactic",)),
        ("It contradicts itself; a reader cannot act on it.", ("semantic", "pragmatic")),
        ("Syntactic: fine.", ("syntactic",)),
        (
            "The wrongdoer ordered a subdomain.",
            ("syntactic",),
        ),  # `ordered` is a form of order, the others of nothing
        ("Nothing to say.", ()),
        ("", ()),
    ],
)
def test_a_text_is_about_the_dimensions_whose_terms_it_has(text: str, dimensions: tuple[str, ...]) -> None:
    assert score.dimensions_in(text, kls()) == dimensions


def test_a_term_of_several_words_is_these_words_in_a_row() -> None:
    rubric = with_terms(when=["time zone"], other=["clock"])
    assert score.dimensions_in("Which time zones?", rubric) == ("when",)
    assert score.dimensions_in("There is time in this zone.", rubric) == ()


def test_accents_make_no_difference() -> None:
    assert score.dimensions_in("Un résumé?", with_terms(short=["resume"])) == ("short",)


@pytest.mark.parametrize(
    ("finding", "dimension"),
    [
        (Finding(issue="This link leads nowhere."), "syntactic"),
        (Finding(issue="Rollback is left as a TODO.", suggestion="Say what a reader must do."), "pragmatic"),
        (Finding(dimension="Semantic", issue="A missing section."), "semantic"),  # named by the judge
        (Finding(dimension="PRAGMATIC", issue="The link is broken."), "pragmatic"),
        (Finding(dimension="accuracy and facts", issue="The name is wrong."), "semantic"),
        (Finding(issue="Wrong order."), ""),  # one term of each of two dimensions
        (Finding(dimension="tone", issue="Too cheerful."), "tone"),
        (Finding(issue="Too cheerful.", quote="the wrong, outdated domain"), ""),
    ],
)
def test_a_finding_gets_the_dimension_it_is_about(finding: Finding, dimension: str) -> None:
    (placed,) = score.placed([finding], kls())
    assert placed.dimension == dimension
    assert placed.model_copy(update={"dimension": finding.dimension}) == finding


def test_a_name_of_several_words_is_recognised_in_any_spelling() -> None:
    rubric = with_terms(next_steps=["owner"], decided=["decision"])
    (placed,) = score.placed([Finding(dimension="Next Steps", issue="No decision.")], rubric)
    assert placed.dimension == "next_steps"


@pytest.mark.parametrize("name", ["kls", "code-review", "commit-message", "answer-quality", "agent-task"])
def test_every_bundled_rubric_knows_what_is_said_in_its_own_words(name: str) -> None:
    rubric = loader.score_rubric(name).rubric
    assert isinstance(rubric, ScoreRubric)
    for dimension, each in rubric.dimensions.items():
        assert each.terms
        for term in each.terms:
            assert dimension in score.dimensions_in(f"So: {term}.", rubric)
