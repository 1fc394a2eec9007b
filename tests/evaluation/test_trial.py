"""A rubric is tried as judging would be: within the user's limit of cost, in the manner they set."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from loopback import Answer, Asked, Loopback, says
from scripted import scores

from judgekit.config import settings
from judgekit.evaluation import runner
from judgekit.providers import litellm
from judgekit.rubric import loader
from judgekit.rubric.schema import (
    CaseCandidate,
    CompareCase,
    CompareLabels,
    ScoreCase,
    ScoreLabels,
    SelectCase,
    SelectLabels,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.rubric.schema import Case

SECRET = "-".join(("sk", "ant", "api03", "q7Xw" * 20))
SELECT = SelectCase(
    id="s",
    query="How do we deploy?",
    candidates=[CaseCandidate(id="m1", title="Deploying", text=f"export ANTHROPIC_API_KEY={SECRET}")],
    why="It is what was asked for.",
    label=SelectLabels(strict=["m1"], lenient=["m1"]),
)
SCORE = ScoreCase(
    id="d", text="# Guide\n", why="It is.", label=ScoreLabels(strict="accept", lenient="accept")
)


COMPARE = CompareCase(
    id="p",
    prompt="What is 17 x 24?",
    a="404",
    b="408",
    why="17 x 4 is 68.",
    label=CompareLabels(strict="B", lenient="B"),
)


@pytest.fixture(scope="module", autouse=True)
def _litellm_is_loaded() -> None:
    litellm.load()


def kept(asked: Asked) -> Answer:
    label = re.findall(r"^\[(\w+)\] ", asked.text, re.MULTILINE)
    return says(json.dumps({"reasoning": "r", "keep": label}))


def larger(asked: Asked) -> Answer:
    """Prefer the larger of two numbers."""
    found = re.findall(r"The text (\w+):\s+<[^>]*>\s+(\d+)\s", asked.text)
    return says(json.dumps({"reasoning": "It is right.", "better": max(found, key=lambda each: each[1])[0]}))


def tried(
    monkeypatch: pytest.MonkeyPatch, rubric: str, cases: Sequence[Case]
) -> tuple[list[runner.Tried], list[str]]:
    answers = {"kls": lambda _: says(scores(5, 5, 5)), "answer-preference": larger}
    answer = answers.get(rubric, kept)

    with Loopback(answer) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "small")
        found = runner.trial(loader.find_rubric(rubric), cases, modes=["strict"])
        return found, [request.text for request in server.requests]


@pytest.mark.parametrize(
    ("rubric", "case"), [("kls", SCORE), ("memory-relevance", SELECT), ("answer-preference", COMPARE)]
)
def test_the_users_limit_of_cost_holds(monkeypatch: pytest.MonkeyPatch, rubric: str, case: Case) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_MAX_COST_USD", "0")
    found, sent = tried(monkeypatch, rubric, [case])
    assert sent == []
    assert [each.said for each in found] == ["undetermined"]


def test_a_candidates_secrets_are_sent_only_where_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found, sent = tried(monkeypatch, "memory-relevance", [SELECT])
    assert [each.said for each in found] == ["kept"]
    assert SECRET not in "".join(sent)
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text("judge: {redact: false}\n")
    _, sent = tried(monkeypatch, "memory-relevance", [SELECT])
    assert SECRET in "".join(sent)


def test_candidates_are_asked_about_as_often_as_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_SAMPLES", "3")
    _, sent = tried(monkeypatch, "memory-relevance", [SELECT])
    assert len(sent) % 3 == 0
    assert sent


def test_two_texts_are_compared_in_both_orders_and_held_against_the_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = COMPARE.model_copy(update={"id": "q", "label": CompareLabels(strict="A", lenient="A")})
    found, sent = tried(monkeypatch, "answer-preference", [COMPARE, wrong])
    assert [(each.case, each.expected, each.said, each.agrees) for each in found] == [
        ("p", "B", "B", True),
        ("q", "A", "B", False),
    ]
    assert found[0].why == "It is right."
    assert len(sent) == 4  # two tiers in two orders; the same texts again cost no call
    assert runner.agreement(found)[:3] == (1, 2, 0)


def test_a_comparison_that_decides_nothing_agrees_with_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_MAX_COST_USD", "0")
    found, _ = tried(monkeypatch, "answer-preference", [COMPARE])
    assert (found[0].agrees, runner.agreement(found).undecided) == (False, 1)
