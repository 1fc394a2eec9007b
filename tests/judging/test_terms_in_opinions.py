"""What judges say is tagged with the rubric's dimensions, in the record of each round."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from making import document, document_judge, file
from scripted import ScriptedGateway, scripted_endpoint

from judgekit.cli.output import verdict_text

if TYPE_CHECKING:
    from judgekit.judging.verdict import Verdict


def judged(reasoning: str, *findings: dict[str, str]) -> Verdict:
    reply = {
        "reasoning": reasoning,
        "scores": {"semantic": 4, "pragmatic": 2, "syntactic": 3},
        "findings": list(findings),
    }
    judge = document_judge(
        ScriptedGateway({"quick": [json.dumps(reply)], "deep": [json.dumps(reply)]}),
        {"quick": scripted_endpoint("one"), "deep": scripted_endpoint("two")},
        mode="lenient",
        deadline=5,
    )
    return asyncio.run(judge.judge(document((file("a.md", "Text.", sha256="0" * 64),), "a.md")))


def finding(issue: str, dimension: str = "") -> dict[str, str]:
    return {"dimension": dimension, "location": "", "issue": issue, "suggestion": "", "quote": ""}


def printed(verdict: Verdict) -> str:
    record: dict[str, Any] = verdict.model_dump(mode="json", by_alias=True)
    return verdict_text(record)


def test_an_opinion_lists_what_its_reasoning_speaks_of() -> None:
    verdict = judged("Accurate. A section is missing.")
    assert [each.opinion and each.opinion["dimensions"] for each in verdict.rounds] == [
        ["semantic", "pragmatic", "syntactic"]
    ] * len(verdict.rounds)
    assert "nothing is said about" not in printed(verdict)


def test_a_finding_without_a_dimension_gets_one() -> None:
    verdict = judged(
        "Fine.", finding("The link is broken."), finding("Too cheerful."), finding("A link.", "tone")
    )
    assert [remark.dimension for remark in verdict.findings] == ["syntactic", "", "syntactic"]


def test_a_person_sees_which_scores_nobody_explained() -> None:
    verdict = judged("Nothing is wrong.", finding("The link is broken."))
    assert "    nothing is said about pragmatic\n" in printed(verdict)


def test_words_that_tell_nothing_are_no_reproach() -> None:
    assert "nothing is said about" not in printed(judged("Fine."))
