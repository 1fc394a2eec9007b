"""Models are asked about several subjects of a case: within the limits that hold for the case as a whole."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from making import call_usage, finality_rules, reply
from scripted import PROFILE, scripted_endpoint

from judgekit.evaluation.cases import Case
from judgekit.evaluation.runner import opinions
from judgekit.judging.score import DocumentJudge
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.evaluation.cases import Recorded
    from judgekit.providers.base import Endpoint, PanelModels, Reply, Request

LOADED = loader.score_rubric("answer-quality")
SUBJECTS = ["One.", "Two.", "Three.", "Four."]
CASE = Case.model_validate({"id": "c", "prompt": "Why?", "subjects": SUBJECTS, "label": "A"})
QUICK, DEEP = scripted_endpoint("quick-model"), scripted_endpoint("deep-model")


class Costly:
    """Answers after a while, and says what each call cost and how many came at a time."""

    def __init__(self, usd: float = 0.9, seconds: float = 0.0) -> None:
        self.usd, self.seconds = usd, seconds
        self.requests: list[Request] = []
        self.busy = self.most = 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.seconds)
        self.busy -= 1
        scores = dict.fromkeys(LOADED.rubric.dimensions, 3)  # type: ignore[union-attr]  # a rubric that scores
        text = json.dumps({"reasoning": "r", "scores": scores, "findings": []})
        return reply(text, scripted_endpoint.model, call_usage(10, 1, self.usd))

    async def aclose(self) -> None:
        """Nothing is open."""


def bearing(endpoint: Endpoint, calls: int) -> Endpoint:
    """Return a model of a provider that bears so many calls at a time."""
    limits = PROFILE.limits.model_copy(update={"concurrency": calls})
    return dataclasses.replace(endpoint, profile=PROFILE.model_copy(update={"limits": limits}))


def asked(gateway: Costly, panel: PanelModels, deadline: float = 30.0, **limits: Any) -> dict[str, Recorded]:  # noqa: ANN401 - any limit
    judge = DocumentJudge(gateway, panel, LOADED, "lenient", deadline, finality=finality_rules(), **limits)
    return asyncio.run(opinions(judge, CASE, Path()))


def test_a_limit_of_cost_holds_for_the_case_and_not_for_each_call() -> None:
    gateway = Costly()
    found = asked(gateway, {"quick": QUICK, "deep": DEEP}, max_cost_usd=1.0)
    assert len(gateway.requests) == 2  # the first left something, the second took more than that
    assert found["quick"].points == {"A": [3.0], "B": [3.0]}
    assert found["deep"].failure == "budget"


def test_what_is_nearly_nothing_is_not_spent() -> None:
    gateway = Costly(usd=0.1)
    asked(gateway, {"quick": QUICK, "deep": DEEP}, max_cost_usd=0.1 + 0.1 + 0.1)  # a little more than three
    assert len(gateway.requests) == 3


def test_the_deadline_is_that_of_the_case() -> None:
    gateway = Costly(seconds=0.1)
    found = asked(gateway, {"quick": bearing(QUICK, 1), "deep": bearing(DEEP, 1)}, deadline=0.25)
    assert len(gateway.requests) < len(SUBJECTS)
    assert found["deep"].failure == "timeout"
    assert max(request.timeout for request in gateway.requests[1:]) < 0.25


def test_subjects_and_the_models_of_a_jury_are_asked_at_once() -> None:
    gateway = Costly(seconds=0.01)
    asked(gateway, {"quick": [QUICK, DEEP]})
    assert gateway.most == 2 * len(SUBJECTS)


def test_no_more_at_a_time_than_a_provider_bears() -> None:
    gateway = Costly(seconds=0.01)
    asked(gateway, {"quick": bearing(QUICK, 2)})
    assert (gateway.most, len(gateway.requests)) == (2, len(SUBJECTS))
