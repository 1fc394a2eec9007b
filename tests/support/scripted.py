"""A gateway that answers by a test's script, and remembers its requests."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from loopback import says
from making import call_usage, models_by_tier, reply

from judgekit.config import TIERS
from judgekit.errors import FailureKind, GatewayError
from judgekit.providers.base import Endpoint, Reply
from judgekit.providers.registry import LitellmProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loopback import Answer as ServerAnswer
    from loopback import Asked

    from judgekit.config import TierName
    from judgekit.judging.verdict import Comparison
    from judgekit.providers.base import Request

    Tiers = Mapping[str, str | Endpoint | Sequence[str]]

Answer: TypeAlias = "str | GatewayError | float | Callable[[Request], str | Reply]"
"""A reply's text, a failure, seconds of silence before nothing, or a function of the request."""

USAGE = call_usage(100, 10, 0.001)
_KEYS = {"provider": "scripted", "kind": "litellm", "title": "Scripted", "family": "none"}
_KEYS |= {"prefix": "scripted/", "output": "json_schema"}
PROFILE = LitellmProfile.model_validate(_KEYS | {"detect": {"port": 1}})


def scripted_endpoint(model: str, *, pointwise: bool = False) -> Endpoint:
    return Endpoint(PROFILE, model, "none", "json_schema", is_pointwise=pointwise)


def three_models() -> dict[TierName, Endpoint]:
    return {tier: scripted_endpoint(f"{tier}-model") for tier in TIERS}


class NothingOpen:
    async def aclose(self) -> None:
        """Close nothing, as a gateway without connections does."""


class ScriptedGateway(NothingOpen):
    """Gives each tier's answers in order; a tier with none left fails as not recorded."""

    def __init__(self, answers: Mapping[str, list[Answer]]) -> None:
        self.answers = {tier: list(queue) for tier, queue in answers.items()}
        self.requests: list[Request] = []

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        queue = self.answers.get(request.call_key.tier, [])
        if not queue:
            raise GatewayError(FailureKind.NOT_RECORDED, "the script has no answer")
        answer = queue.pop(0)
        if isinstance(answer, GatewayError):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(min(answer, request.timeout))
            raise GatewayError(FailureKind.TIMEOUT, f"no answer in {request.timeout:g} s")
        text = answer if isinstance(answer, str) else answer(request)
        return text if isinstance(text, Reply) else reply(text, scripted_endpoint.model, USAGE)

    @property
    def asked(self) -> list[str]:
        return [request.call_key.tier for request in self.requests]


class ByModel(NothingOpen):
    """Gives each model's answer, however often and in whatever order it is asked; counts calls at a time."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, Request]] = []
        self.busy = self.most = 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append((scripted_endpoint.model, request))
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0)
        self.busy -= 1
        answer = self.answers[scripted_endpoint.model]
        if isinstance(answer, GatewayError):
            raise GatewayError(answer.kind, answer.message)
        said = answer(request) if callable(answer) else str(answer)
        return said if isinstance(said, Reply) else reply(said, scripted_endpoint.model, USAGE)

    @property
    def asked(self) -> list[str]:
        return [model for model, _ in self.requests]


def of_family(model: str, **changes: Any) -> Endpoint:  # noqa: ANN401 - passed on
    return dataclasses.replace(scripted_endpoint(model), family=model[0], **changes)


def scores(*values: float, reasoning: str = "Because.", **more: Any) -> str:  # noqa: ANN401 - any JSON
    named = dict(zip(("semantic", "pragmatic", "syntactic"), values, strict=True))
    return json.dumps({"reasoning": reasoning, "scores": named, "findings": [], **more})


def finding(quote: str = "") -> dict[str, str]:
    found = {"dimension": "pragmatic", "location": "Deployment", "issue": "no way back is given"}
    return found | {"suggestion": "say how to roll back", "quote": quote}


def keep(*titles: str, key: str = "keep") -> Callable[[Request], str]:
    """Return an answer that keeps the candidates with these titles, whatever their labels are."""
    return lambda request: json.dumps({key: labels(request, titles)})


def labels(request: Request, titles: tuple[str, ...]) -> list[str]:
    shown = re.findall(
        r"^\[(\w+)\] (?:\w+: )?(.*?)(?: \(tags.*\))?$", request.messages[-1].content, re.MULTILINE
    )
    return [label for label, title in shown if title in titles]


def by_content(asked: Asked) -> ServerAnswer:
    """Answer over the wire: reject a document that says TODO, accept any other, keep no candidate."""
    if '"keep"' in asked.text:
        return says('{"keep": []}')
    return says(
        scores(1, 1, 2, reasoning="Unfinished.") if "\nTODO" in asked.text else scores(4, 4, 5)
    )


def beside(text: str, doubt: dict[str, float]) -> list[dict[str, float]]:
    """Return the alternatives of each token of a text, with every number equally uncertain."""
    tokens = re.findall(r" ?[^\W\d]+|\d| ?[^\w\s]+|\s", text)
    assert "".join(tokens) == text
    doubtful = {token: math.log(each) for token, each in doubt.items()}
    return [doubtful if token.isdigit() else {token: 0.0} for token in tokens]


def telling_reply(text: str, doubt: dict[str, float]) -> Reply:
    logprobs = beside(text, doubt)
    tokens = tuple(next(iter(logprob)) for logprob in logprobs)
    return reply(text, "m-1", call_usage(100, 10, 0.001), logprobs=tuple(logprobs), tokens=tokens)


# Panels of comparisons by the names of their models.

THREE = {"quick": "q", "deep": "d", "tiebreaker": "t"}
TWO = {"quick": "q", "deep": "d"}
OWN = {"quick": "anthropic/m", "deep": "openai/m"}


def endpoint(name: str, **changes: Any) -> Endpoint:  # noqa: ANN401 - passed on
    """Return a model whose family stands before the slash; without one the family is not known."""
    family, _, _ = name.rpartition("/")
    return dataclasses.replace(scripted_endpoint(name), family=family or "unknown", **changes)


def panel_of(by_tier: Tiers) -> dict[Any, tuple[Endpoint, ...]]:
    told: Any = {
        tier: endpoint(own)
        if isinstance(own, str)
        else list(map(endpoint, own))
        if isinstance(own, list)
        else own
        for tier, own in by_tier.items()
    }
    return dict(models_by_tier(told))


def ended(comparison: Comparison) -> tuple[str, str | None, str]:
    return comparison.verdict, comparison.judge_tier, comparison.consensus
