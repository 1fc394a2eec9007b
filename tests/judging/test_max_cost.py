"""No call begins once what was spent has reached the limit: in every task, for every kind of model."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import making
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import scripted_endpoint

from judgekit.config import TIERS
from judgekit.errors import CallUsage, FailureKind, GatewayError
from judgekit.judging.compare import PairJudge
from judgekit.judging.ranking import RankingJudge
from judgekit.providers.base import models_by_tier
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.config import ModeName
    from judgekit.judging.documents import File
    from judgekit.judging.orchestrator import JudgeOptions
    from judgekit.providers.base import Endpoint, PanelModels, Reply, Request


class Till:
    """Answers anything, at the prices and in the moods it is given, and notes each call beyond the limit."""

    def __init__(self, limit: float, prices: list[float], moods: list[int]) -> None:
        self.limit, self.prices, self.moods = limit, prices, moods
        self.spent, self.calls, self.beyond = 0.0, 0, 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.beyond += self.spent >= self.limit
        price = self.prices[self.calls % len(self.prices)]
        mood = self.moods[self.calls % len(self.moods)]
        self.calls += 1
        await asyncio.sleep(0)
        self.spent += price
        usage = making.call_usage(10, 1, price, "provider")
        if mood == 0:
            raise GatewayError(FailureKind.INVALID_REPLY, "the reply is empty", usage=usage)
        if mood == 1:
            return making.reply("no object", scripted_endpoint.model, usage)
        return answer(request, mood, usage)

    async def aclose(self) -> None:
        """Nothing is open."""


def answer(request: Request, mood: int, usage: CallUsage) -> Reply:
    """Return a reply of the shape that is asked for; `mood` says which way it leans."""
    if request.top_logprobs:
        likely: dict[str, float] = {str(mood): -0.2, "yes" if mood % 2 else "no": -0.2}
        return making.reply(str(mood), "m", usage, logprobs=(likely,))
    assert request.schema is not None
    wanted = request.schema["properties"]
    if "scores" in wanted:
        names = wanted["scores"]["properties"]
        said: dict[str, Any] = {"reasoning": "So.", "scores": dict.fromkeys(names, mood), "findings": []}
    elif "better" in wanted:
        said = {"reasoning": "So.", "better": [*request.labels, "tie"][mood % 3]}
    else:
        said = {key: list(request.labels)[:: mood - 1] for key in wanted}
    return making.reply(json.dumps(said), "m", usage)


def text_file(text: str) -> File:
    return making.file(f"{text}.md", text)


def judged(task: str, till: Till, panel: PanelModels, mode: ModeName, options: JudgeOptions) -> object:
    bounds: dict[str, Any] = {"mode": mode, "deadline": 60, "max_cost_usd": till.limit, "options": options}
    if task == "document":
        one = making.document((text_file("text"),), "text.md@1")
        return asyncio.run(making.document_judge(till, panel, **bounds).judge(one))
    if task == "candidates":
        rubric = loader.find_rubric("memory-two-criteria")
        shown = [making.prompt_candidate(f"id{number}", f"Title {number}") for number in range(40)]
        return asyncio.run(
            making.candidate_judge(till, panel, loaded=rubric, **bounds).select(making.query("query"), shown)
        )
    kind, name, letters = TWO_KINDS[task]
    judge = kind(till, models_by_tier(panel), loader.find_rubric(name), **bounds)
    return asyncio.run(judge.judge(making.comparison_input("Say who.", tuple(map(text_file, letters)))))


TWO_KINDS: dict[str, tuple[type[PairJudge | RankingJudge], str, str]] = {
    "pair": (PairJudge, "answer-preference", "AB"),
    "ranking": (RankingJudge, "kls", "ABCD"),
}
TASKS = ("document", "candidates", *TWO_KINDS)


@pytest.mark.parametrize("task", TASKS)
@given(
    limit=st.floats(0, 1),
    prices=st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3]), min_size=1, max_size=5),
    moods=st.lists(st.integers(0, 5), min_size=1, max_size=7),
    jury=st.integers(1, 3),
    pointwise=st.booleans(),
    mode=st.sampled_from(["strict", "lenient"]),
    options=st.builds(
        making.judge_options,
        jury=st.sampled_from(["mean", "majority"]),
        samples=st.integers(1, 3),
        each=st.booleans(),
    ),
)
@settings(max_examples=40, deadline=None)
def test_no_call_begins_once_the_limit_is_reached(
    task: str,
    limit: float,
    prices: list[float],
    moods: list[int],
    jury: int,
    mode: ModeName,
    options: JudgeOptions,
    *,
    pointwise: bool,
) -> None:
    till = Till(limit, prices, moods)
    small = pointwise and task != "pair"
    panel: PanelModels = {
        tier: tuple(
            dataclasses.replace(scripted_endpoint(f"{tier}-{number}", pointwise=small), family=f"f{number}")
            for number in range(jury)
        )
        for tier in TIERS
    }
    found = judged(task, till, panel, mode, options)
    assert till.beyond == 0
    assert till.calls > 0 or limit == 0
    told = getattr(found, "cost_usd", None)
    assert (told or 0) == pytest.approx(till.spent, abs=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_without_a_limit_more_is_spent(task: str) -> None:
    """The test above would notice nothing if a judging never cost more than its limits."""
    till = Till(10.0, [0.3], [4])
    judged(task, till, {tier: (scripted_endpoint(tier),) for tier in TIERS}, "strict", making.judge_options())
    assert till.spent > 0.5
