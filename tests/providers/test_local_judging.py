"""What the model of the demo can do, and how its answers are meant to be read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import fmean

import pytest

from judgekit.judging import pointwise, prompt
from judgekit.judging.documents import Part, Task
from judgekit.judging.fence import Fence
from judgekit.judging.round import Session
from judgekit.providers import registry
from judgekit.providers.base import CallKey, Endpoint
from judgekit.providers.local import LocalGateway
from judgekit.rubric import loader

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
POINTS = ("1", "2", "3", "4", "5")
PROFILE = registry.find("local")


async def scores(model: Path, names: list[str]) -> list[dict[str, float]]:
    """Rate the sample documents on every dimension of the bundled rubric, all under one neutral name."""
    rubric = loader.score_rubric("kls").rubric
    assert rubric.task == "score"
    endpoint = Endpoint(PROFILE, f"local/{model}", "qwen", "json_schema", pointwise=True)
    gateway = LocalGateway()
    found = []
    try:
        for name in names:
            text, fence = (
                (EXAMPLES / "documents" / name).read_text(encoding="utf-8"),
                Fence("0123456789abcdef"),
            )
            points = pointwise.Points(
                f"{rubric.prompt.system} {fence.guard}",
                prompt.document_context(fence, [Part("guide.md", text, len(text))], Task()),
                {dimension: prompt.rating_question(rubric, dimension) for dimension in rubric.dimensions},
                POINTS,
                CallKey(name, rubric.ref, "quick"),
            )
            answer = await pointwise.ask_pointwise(Session(gateway, 240), endpoint, points, 240)
            rated = answer.value or {}
            found.append({each: pointwise.expectation(likely) for each, likely in rated.items()})
    finally:
        await gateway.aclose()
    return found


@pytest.mark.real_model
@pytest.mark.timeout(600)
def test_the_good_sample_scores_above_the_damaged_one(qwen: Path) -> None:
    good, damaged = asyncio.run(scores(qwen, ["good.md", "damaged.md"]))
    assert set(good) == {"semantic", "pragmatic", "syntactic"}
    assert fmean(good.values()) > fmean(damaged.values()) + 0.1
    assert all(each >= 3 for each in good.values())
