"""What becomes of token probabilities in a verdict: scores, outcomes, repeated samples, recordings."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, fails, says
from making import document, document_judge, file, judge_options
from scripted import ScriptedGateway, scores, scripted_endpoint
from telling import beside, telling_reply

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging.cache import ReplyCache
from judgekit.providers import base, registry
from judgekit.providers.litellm import LitellmGateway
from judgekit.providers.replay import Recorder, ReplayGateway
from judgekit.providers.replay import recorded_models as recorded_endpoints

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, Gateway, Reply

DOCUMENT = document((file("docs/a.md", "Some text.", sha256="ab" * 32),), "docs/a.md@abab")
GOOD = scores(4, 4, 4)
TELLING = dataclasses.replace(scripted_endpoint("m"), logprobs=True)


def judge(gateway: Gateway, endpoint: Endpoint, **options: Any) -> Verdict:  # noqa: ANN401 - passed on
    own = document_judge(gateway, {"deep": endpoint}, mode="strict", **options)

    async def run() -> Verdict:
        try:
            return await own.judge(DOCUMENT)
        finally:
            await gateway.aclose()

    return asyncio.run(run())


def semantic(verdict: Verdict) -> float:
    assert verdict.scores is not None
    return verdict.scores["semantic"]


def opinion(verdict: Verdict) -> dict[str, Any]:
    found = verdict.rounds[0].opinion
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("doubt", "score", "outcome"),
    [
        ({"4": 0.75, "5": 0.25}, 4.25, "accept"),
        ({"4": 0.6, "1": 0.4}, 2.8, "improve"),  # a 4 that was nearly a 1
        ({"4": 0.99, "1": 0.01}, 4.0, "accept"),
    ],
)
def test_scores_are_expectations_and_decide(doubt: dict[str, float], score: float, outcome: str) -> None:
    verdict = judge(ScriptedGateway({"deep": [lambda _: telling_reply(GOOD, doubt)]}), TELLING)
    assert (verdict.scores, verdict.verdict) == (
        dict.fromkeys(("semantic", "pragmatic", "syntactic"), score),
        outcome,
    )
    assert opinion(verdict)["expected"] == ["semantic", "pragmatic", "syntactic"]
    assert opinion(verdict)["reasoning"]


@pytest.mark.parametrize("doubt", [{"4": 0.5, "?": 0.5}, {"5": 0.9, "3": 0.1}])
def test_numbers_stay_where_probabilities_tell_nothing(doubt: dict[str, float]) -> None:
    own = telling_reply(GOOD, doubt)
    own = dataclasses.replace(own, tokens=tuple("4" if token == "5" else token for token in own.tokens))
    verdict = judge(ScriptedGateway({"deep": [lambda _: own]}), TELLING)
    assert verdict.scores == dict.fromkeys(("semantic", "pragmatic", "syntactic"), 4)
    assert "expected" not in opinion(verdict)


def test_a_call_for_each_dimension_tells_each() -> None:
    def answer(request: Any) -> Reply:  # noqa: ANN401 - a request
        name = request.call_key.part
        return telling_reply(
            json.dumps({"reasoning": "x", "scores": {name: 4}, "findings": []}), {"4": 0.5, "5": 0.5}
        )

    verdict = judge(ScriptedGateway({"deep": [answer] * 3}), TELLING, options=judge_options(each=True))
    assert verdict.scores == dict.fromkeys(("semantic", "pragmatic", "syntactic"), 4.5)
    assert opinion(verdict)["expected"] == ["semantic", "pragmatic", "syntactic"]


def test_samples_are_not_drawn_where_probabilities_tell() -> None:
    gateway = ScriptedGateway({"deep": [lambda _: telling_reply(GOOD, {"4": 0.5, "5": 0.5})]})
    verdict = judge(gateway, TELLING, options=judge_options(samples=5))
    assert (semantic(verdict), len(gateway.requests), gateway.requests[0].sample) == (4.5, 1, 0)
    assert "samples" not in opinion(verdict)


@pytest.mark.parametrize("first", [GOOD, GatewayError(FailureKind.SERVER_ERROR, "down")])
def test_samples_are_drawn_where_they_do_not(first: str | GatewayError) -> None:
    gateway = ScriptedGateway({"deep": [first, scores(3, 3, 3), scores(5, 5, 5)]})
    verdict = judge(gateway, TELLING, options=judge_options(samples=2))
    assert [request.sample for request in gateway.requests] == [0, 1, 2]
    assert semantic(verdict) == 4
    assert opinion(verdict)["samples"] == 2
    assert verdict.rounds[0].usage.output_tokens == (30 if first == GOOD else 20)


def test_a_recording_and_what_is_kept_bring_the_same_verdict(tmp_path: Path) -> None:
    file, cache = tmp_path / "recording.jsonl", ReplyCache(tmp_path / "replies.sqlite")
    told = says(GOOD, logprobs=beside(GOOD, {"4": 0.7, "3": 0.3}))
    with Loopback(told, fails(500)) as server:
        endpoint = base.endpoint(registry.find("llama-server"), "m", {}, base=server.base)
        first = judge(
            Recorder(LitellmGateway(), file), endpoint, cache=cache, options=judge_options(samples=3)
        )
        kept = judge(LitellmGateway(), endpoint, cache=cache, options=judge_options(samples=3))
        assert len(server.requests) == 1
    replayed = judge(ReplayGateway(), recorded_endpoints(file)["deep"][0], options=judge_options(samples=3))
    assert first.scores == kept.scores == replayed.scores
    assert semantic(first) == 3.7
