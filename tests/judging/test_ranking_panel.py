"""Several subjects before a panel: families, voices that were heard, several replies, who wrote them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from making import call_usage, comparison_input, file, finality_rule, finality_rules, judge_options, reply
from scripted import PROFILE, scripted_endpoint

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging.ranking import RankingJudge
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config.names import ModeName
    from judgekit.judging.comparison import Comparison
    from judgekit.judging.orchestrator import JudgeOptions
    from judgekit.judging.subject import File
    from judgekit.providers.base import Endpoint, Reply, Request

DIMENSIONS = ("semantic", "pragmatic", "syntactic")


def text_file(letter: str) -> File:
    text = f"I am text {letter}."
    return file(f"{letter}.md", text)


def endpoint(name: str, **changes: Any) -> Endpoint:  # noqa: ANN401 - passed on
    """Return a model whose family stands before the slash; without one the family is not known."""
    family, _, _ = name.rpartition("/")
    return dataclasses.replace(scripted_endpoint(name), family=family or "unknown", **changes)


class Panel:
    """Each model gives A, B, C, … its digits in turn, by tier where it has several; 0 fails."""

    def __init__(self, said: Mapping[str, str | Mapping[str, str]]) -> None:
        self.said = said
        self.asked: list[str] = []
        self.requests: list[Request] = []
        self.busy = self.most = 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0.001)
        self.busy -= 1
        (letter,) = set(re.findall(r"I am text (\w)\.", request.messages[1].content))
        self.asked.append(f"{scripted_endpoint.model} {letter}")
        said = self.said[scripted_endpoint.model]
        digits = said if isinstance(said, str) else said[request.call_key.tier]
        score = int(digits["ABCDEF".index(letter)])
        if not score:
            raise GatewayError(FailureKind.TIMEOUT, "no answer")
        part = request.call_key.part.partition("/")[0]
        names = [part] if part in DIMENSIONS else DIMENSIONS
        found = {"reasoning": f"About {letter}.", "scores": dict.fromkeys(names, score), "findings": []}
        return reply(json.dumps(found), scripted_endpoint.model, call_usage(10, 1, 0.001))

    async def aclose(self) -> None:
        """Nothing is open."""


def rank(
    panel: Panel,
    by_tier: Mapping[str, str | Endpoint | Sequence[str]],
    letters: str = "AB",
    *,
    mode: ModeName = "lenient",
    wrote: Sequence[str | None] = (),
    **options: Any,  # noqa: ANN401 - passed on
) -> Comparison:
    told: Any = {
        tier: [endpoint(name) for name in each]
        if isinstance(each, list)
        else endpoint(each)
        if isinstance(each, str)
        else each
        for tier, each in by_tier.items()
    }
    subject = comparison_input("Say who you are.", tuple(map(text_file, letters)), tuple(wrote))
    judge = RankingJudge(panel, told, loader.comparing_rubric("kls"), mode, 60, **options)
    return asyncio.run(judge.judge(subject))


def test_the_models_of_one_family_weigh_as_much_as_one() -> None:
    panel = Panel({"x/1": "52", "x/2": "52", "y/1": "24"})
    comparison = rank(panel, {"quick": ["x/1", "x/2", "y/1"]})
    assert [subject.score for subject in comparison.subjects] == [3.5, 3.0]
    strangers = rank(Panel({"1": "52", "2": "52", "3": "24"}), {"quick": ["1", "2", "3"]})
    assert [subject.score for subject in strangers.subjects] == [4.0, pytest.approx(8 / 3, abs=1e-4)]
    assert comparison.families == ["x", "y"]


def test_a_model_weighs_in_each_tier_as_one_of_its_family_there() -> None:
    panel = Panel({"x/1": "54", "x/2": {"quick": "54", "deep": "25"}, "y/1": "45"})
    comparison = rank(panel, {"quick": ["x/1", "x/2", "y/1"], "deep": "x/2"})
    # Quick: x 5 and 4, y 4 and 5. Deep: x 2 and 5.
    assert [subject.score for subject in comparison.subjects] == [
        pytest.approx(11 / 3, abs=1e-4),
        pytest.approx(14 / 3, abs=1e-4),
    ]


# --- voices that were heard


# --- how they are asked


@pytest.mark.parametrize(
    ("options", "calls"),
    [(judge_options(samples=3), 6), (judge_options(each=True), 6), (judge_options(samples=2, each=True), 12)],
)
def test_several_replies_and_dimensions_one_by_one(options: JudgeOptions, calls: int) -> None:
    panel = Panel({"m": "42"})
    comparison = rank(panel, {"quick": "m"}, options=options)
    assert (comparison.verdict, len(panel.asked), len(comparison.rounds)) == ("A", calls, 2)
    assert [subject.score for subject in comparison.subjects] == [4, 2]


@pytest.mark.parametrize(("bears", "most"), [(1, 1), (3, 3), (6, 6), (None, 12)])
def test_no_more_calls_at_a_time_than_the_provider_bears(bears: int | None, most: int) -> None:
    limits = PROFILE.limits.model_copy(update={"concurrency": bears})
    modest = endpoint("m", profile=PROFILE.model_copy(update={"limits": limits}))
    panel = Panel({"m": "4321"})
    rank(panel, {"quick": modest}, "ABCD", options=judge_options(samples=3))
    assert (panel.most, len(panel.asked)) == (most, 12)


# --- who wrote them


def test_a_lead_that_a_family_gives_its_own_text_is_confirmed_by_another() -> None:
    own = {"quick": "anthropic/m", "deep": "openai/m"}
    wrote = ["anthropic", "openai", "openai"]
    panel = Panel({"anthropic/m": "521", "openai/m": "255"})
    comparison = rank(panel, own, "ABC", wrote=wrote)
    assert panel.asked[3:] == ["openai/m A", "openai/m B"]
    assert (comparison.verdict, comparison.judge_tier, comparison.independent) == ("tie", "deep", False)
    against = Panel({"anthropic/m": "251", "openai/m": "555"})
    comparison = rank(against, own, "ABC", wrote=wrote)
    assert (comparison.verdict, comparison.judge_tier, len(against.asked)) == ("B", "quick", 3)


def test_nor_does_a_calibration_make_a_lead_final_that_a_family_gives_its_own_text() -> None:
    panel = Panel({"x/a": "52", "x/b": "52"})
    finality = finality_rules("c", (finality_rule("quick", "accept", 1.0),))
    comparison = rank(panel, {"quick": "x/a", "deep": "x/b"}, wrote=["x", "none"], finality=finality)
    assert (comparison.verdict, comparison.judge_tier, len(panel.asked)) == ("A", "deep", 4)


def test_a_family_that_failed_is_not_behind_the_outcome() -> None:
    panel = Panel({"x/m": "04", "y/m": "25"})
    comparison = rank(panel, {"quick": "x/m", "deep": "y/m"})
    assert (comparison.verdict, comparison.families, comparison.independent) == ("B", ["y"], None)


def test_no_model_is_told_a_name_that_may_say_who_wrote_it() -> None:
    panel = Panel({"m": "42"})
    rank(panel, {"quick": "m"})
    sent = " ".join(message.content for request in panel.requests for message in request.messages)
    assert 'path="text"' in sent
    assert not re.search(r"[AB]\.md", sent)
