"""A rubric's needs beside the text; its examples are none of its cases."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from making import document, document_judge, file
from scripted import ScriptedGateway, scripted_endpoint
from told import first_prompt

from judgekit.judging import prompt
from judgekit.judging.documents import Document, TaskDescription, VisibleFile
from judgekit.judging.fence import Fence
from judgekit.rubric import loader
from judgekit.rubric.schema import Given, RubricFile, ScoreRubric


def text_document(*texts: str, **task: str) -> Document:
    files = tuple(file(f"{n}.md", text, sha256="0" * 64) for n, text in enumerate(texts))
    return document(files, "it", task=TaskDescription(**task))


def test_a_source_that_is_cut_says_so() -> None:
    parts = (VisibleFile("answer", "It is blue.", 11), VisibleFile("two", "Or", 9))
    shown = prompt.write_document_context(
        Fence("0"), parts, TaskDescription(), Given(text="The answer", sources="The sources")
    )
    assert (
        'The next text is cut after 2 of its 9 characters.\n\n<judged-0 path="two" role="source">'
        in shown
    )


def test_only_a_rubric_with_a_heading_for_the_reference_shows_it() -> None:
    rubric = loader.find_rubric("answer-quality").rubric
    assert isinstance(rubric, ScoreRubric)
    about = TaskDescription("Which city?", reference="Paris.")
    example = rubric.prompt.examples[0].model_copy(update={"reference": "Rome."})
    prompts = rubric.prompt.model_copy(update={"examples": [example]})
    for heading, shown in ((None, 0), ("The expected answer", 1)):
        given = rubric.given.model_copy(update={"reference": heading})
        own = rubric.model_copy(update={"given": given, "prompt": prompts})
        subject = Document((file("text", "It is Paris"),), "it", about)
        (_, user) = first_prompt(own, subject)
        small = scripted_endpoint("small", pointwise=True)
        of_one_token = first_prompt(own, subject, endpoint=small)[0].content
        assert user.content.count("Paris.") == shown
        assert (
            len(re.findall(r'The expected answer:\n\n<judged-\w+ role="reference">', user.content))
            == shown
        )
        assert of_one_token.count("The expected answer: Rome.") == shown


def test_a_rubric_that_needs_something_has_a_heading_for_it() -> None:
    short = {"rubric": "a", "title": "b", "dimensions": {"c": "d"}}
    for need in ("reference", "sources"):
        with pytest.raises(
            ValueError, match=f"needs lists {need}; give the heading in given.{need}"
        ):
            RubricFile.model_validate({**short, "given": {"needs": [need]}})
        RubricFile.model_validate({**short, "given": {"needs": [need], need: "What there is"}})


@pytest.mark.parametrize(
    ("reference", "subject", "lacking"),
    [
        (
            "answer-quality",
            text_document("a"),
            "needs a description of the text's purpose; give it with",
        ),
        (
            "answer-quality",
            text_document("a", description=" "),
            "answer-quality@1.0.0 needs a description",
        ),
        ("answer-quality", text_document("a", description="Why?"), ""),
        (
            "answer-correctness",
            text_document("a", description="Why?"),
            "needs the answer that is expected; give",
        ),
        ("answer-correctness", text_document("a", reference="So."), ""),
        ("groundedness", text_document("a"), "needs sources; give their paths after the text"),
        ("groundedness", text_document("a", "b"), ""),
        ("agent-task", text_document("a", acceptance="Short."), "--description"),
        ("commit-message", text_document("a"), ""),
    ],
)
def test_what_a_rubric_cannot_do_without_is_not_judged(
    reference: str, subject: Document, lacking: str
) -> None:
    gateway = ScriptedGateway({})
    loaded = loader.find_rubric(reference)
    judge = document_judge(gateway, {"quick": scripted_endpoint("one")}, loaded=loaded, timeout=5)
    verdict = asyncio.run(judge.judge(subject))
    assert (verdict.verdict, bool(gateway.requests)) == ("undetermined", not lacking)
    assert lacking in (verdict.degraded or "")


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "rubrics").glob("*.yaml")), ids=lambda p: p.stem
)
def test_no_example_is_one_of_the_labelled_cases(path: Path) -> None:
    """A rubric that was shown its own cases would look better on them than it is."""
    loaded = loader.load_rubric(path)
    examples = getattr(loaded.rubric.prompt, "examples", [])
    cases = path.with_name(f"{path.stem}.cases.jsonl").read_text(encoding="utf-8")
    assert [example.text for example in examples if example.text and example.text in cases] == []
