"""What a rubric says it is given: headings, sources beside the text, rated examples, what it needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from making import document, document_judge, file
from scripted import ScriptedGateway, scripted_endpoint

from judgekit.judging import prompt
from judgekit.judging.documents import Document, Part, Task
from judgekit.judging.fence import Fence
from judgekit.rubric import loader
from judgekit.rubric.schema import Given, ScoreRubric

PARTS = (Part("answer", "It is blue.", 11), Part("one", "Blue.", 5), Part("two", "Or", 9))


def score_rubric(reference: str) -> ScoreRubric:
    rubric = loader.score_rubric(reference).rubric
    assert isinstance(rubric, ScoreRubric)
    return rubric


def text_document(*texts: str, **task: str) -> Document:
    files = tuple(file(f"{n}.md", text, sha256="0" * 64) for n, text in enumerate(texts))
    return document(files, "it", task=Task(**task))


def test_sources_stand_before_the_text_under_headings_of_their_own() -> None:
    given = Given(text="The answer", sources="The sources")
    assert prompt.document_context(Fence("0"), PARTS, Task(), given).splitlines() == [
        *("The sources:", "", '<judged-0 path="one" role="source">', "Blue.", "</judged-0>", ""),
        *("The next text is cut after 2 of its 9 characters.", ""),
        *('<judged-0 path="two" role="source">', "Or", "</judged-0>", ""),
        *("The answer:", "", '<judged-0 path="answer">', "It is blue.", "</judged-0>"),
    ]
    shown = prompt.document_context(Fence("0"), PARTS, Task())  # without sources all files are the text
    assert [line for line in shown.splitlines() if "path=" in line] == [
        f'<judged-0 path="{name}">' for name in ("answer", "one", "two")
    ]
    assert "role=" not in shown


def test_the_task_stands_under_the_headings_of_the_rubric() -> None:
    task, given = Task("Why?", "Short."), Given(description="The question", acceptance="What it must have")
    shown = prompt.document_context(Fence("0"), PARTS[:1], task, given)
    assert shown.startswith('The question:\n\n<judged-0 role="description">\nWhy?\n')
    assert 'What it must have:\n\n<judged-0 role="acceptance">\nShort.\n' in shown


DESCRIPTION = "needs a description of the text's purpose; give it with --description"


@pytest.mark.parametrize(
    ("reference", "subject", "lacking"),
    [
        ("kls", text_document("a"), None),
        ("answer-quality", text_document("a"), DESCRIPTION),
        ("answer-quality", text_document("a", description=" "), "answer-quality@1.0.0 needs a description"),
        ("answer-quality", text_document("a", description="Why?"), None),
        ("groundedness", text_document("a"), "needs sources; give their paths after the text"),
        ("groundedness", text_document("a", "b"), None),
        ("agent-task", text_document("a", acceptance="Short."), "--description"),
        ("commit-message", text_document("a"), None),
        ("code-review", text_document("a"), None),
    ],
)
def test_what_a_rubric_cannot_do_without(reference: str, subject: Document, lacking: str | None) -> None:
    said = subject.lacks(score_rubric(reference))
    assert said == lacking if lacking is None else lacking in (said or "")


def test_nobody_is_asked_about_what_cannot_be_judged() -> None:
    gateway = ScriptedGateway({})
    groundedness = loader.score_rubric("groundedness")
    judge = document_judge(gateway, {"quick": scripted_endpoint("one")}, loaded=groundedness, deadline=5)
    verdict = asyncio.run(judge.judge(text_document("It is blue.")))
    assert (verdict.verdict, verdict.rounds, gateway.requests) == ("undetermined", [], [])
    assert "groundedness@1.0.0 needs sources" in (verdict.degraded or "")


def test_rated_examples_stand_in_the_system_prompt_before_the_nonce() -> None:
    rubric = score_rubric("groundedness")
    system = prompt.rating_system(rubric, Fence("0"))
    assert system.startswith(rubric.prompt.system)
    assert system.endswith(Fence("0").guard)
    assert system.count("\nRated: supported ") == len(rubric.prompt.examples) > 2
    assert "<example>\nThe sources: Karla lent Otto the boat" in system
    assert system.index("</example>") < system.index("judged-0")
    system = prompt.rating_system(score_rubric("agent-task"), Fence("0"))  # an example with its task
    assert "<example>\nThe task: List the months that have 30 days.\nThe acceptance criteria: All" in system
    rubric, fence = score_rubric("kls"), Fence("0")
    assert prompt.rating_system(rubric, fence) == f"{rubric.prompt.system} {fence.guard}"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "rubrics").glob("*.yaml")), ids=lambda p: p.stem
)
def test_no_example_is_one_of_the_labelled_cases(path: Path) -> None:
    """A rubric that was shown its own cases would look better on them than it is."""
    loaded = loader.load_rubric(path)
    examples = getattr(loaded.rubric.prompt, "examples", [])
    cases = path.with_name(f"{path.stem}.cases.jsonl").read_text(encoding="utf-8")
    assert [example.text for example in examples if example.text and example.text in cases] == []
