"""Reasonings are told to be about dimensions by whole words, not by letters that happen to be in them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from making import document, document_judge, file
from scripted import ScriptedGateway, scripted_endpoint

from judgekit.cli.output import verdict_text
from judgekit.judging import score
from judgekit.judging.verdict import Finding
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from judgekit.judging.verdict import Verdict


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
        ("The wrongdoer ordered a subdomain.", ("syntactic",)),  # a form of order, the others of nothing
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
    assert score.dimensions_in("Un résumé?", with_terms(short=["resume"])) == ("short",)  # accents or not
    rubric = with_terms(next_steps=["owner"], decided=["decision"])
    (placed,) = score.placed([Finding(dimension="Next Steps", issue="No decision.")], rubric)
    assert placed.dimension == "next_steps"


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


def test_every_bundled_rubric_knows_what_is_said_in_its_own_words() -> None:
    for name in ("kls", "code-review", "commit-message", "answer-quality", "agent-task"):
        rubric = loader.score_rubric(name).rubric
        assert isinstance(rubric, ScoreRubric)
        for dimension, each in rubric.dimensions.items():
            assert each.terms
            for term in each.terms:
                assert dimension in score.dimensions_in(f"So: {term}.", rubric)


def judged(reasoning: str, *findings: dict[str, str]) -> Verdict:
    scores = {"semantic": 4, "pragmatic": 2, "syntactic": 3}
    reply = json.dumps({"reasoning": reasoning, "scores": scores, "findings": list(findings)})
    gateway = ScriptedGateway({"quick": [reply], "deep": [reply]})
    models = scripted_endpoint("one"), scripted_endpoint("two")
    judge = document_judge(gateway, {"quick": models[0], "deep": models[1]}, mode="lenient")
    return asyncio.run(judge.judge(document((file("a.md", "Text.", sha256="0" * 64),), "a.md")))


def finding(issue: str, dimension: str = "") -> dict[str, str]:
    return {"dimension": dimension, "location": "", "issue": issue, "suggestion": "", "quote": ""}


def test_opinions_and_findings_are_tagged_and_a_person_sees_which_scores_nobody_explained() -> None:
    verdict = judged("Accurate. A section is missing.")
    dimensions = [each.opinion and each.opinion["dimensions"] for each in verdict.rounds]
    assert dimensions == [["semantic", "pragmatic", "syntactic"]] * len(verdict.rounds)
    told = [finding("The link is broken."), finding("Too cheerful."), finding("A link.", "tone")]
    assert [each.dimension for each in judged("Fine.", *told).findings] == ["syntactic", "", "syntactic"]
    unexplained = judged("Nothing is wrong.", finding("The link is broken."))
    assert "    no reason given for pragmatic\n" in verdict_text(unexplained.record())
    for said in (verdict, judged("Fine.")):  # words that tell nothing are no reproach
        assert "nothing is said about" not in verdict_text(said.record())
