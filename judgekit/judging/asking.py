"""One round: ask a model, read its reply, ask once more if it cannot be read; a failure is a value."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel

from judgekit.errors import FailureKind, GatewayError, InvalidReply
from judgekit.gateway.base import Message, Request, Usage
from judgekit.judging import pointwise
from judgekit.judging.replies import json_schema
from judgekit.parse import extract
from judgekit.text import one_line
from judgekit.verdict import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from judgekit.gateway.base import Endpoint, Gateway, Matter

Value = TypeVar("Value")
Other = TypeVar("Other")
ReplyModel = TypeVar("ReplyModel", bound=BaseModel)

FAILURE_CHARS = 300
_LEAST_SECONDS = 0.05  # below this no provider answers: say so instead of asking


@dataclass(slots=True)
class Budget:
    """What one judging may still take: seconds on the clock, US dollars, and a bound for each call."""

    seconds: float
    max_cost_usd: float | None = None
    call_seconds: float | None = None
    spent_usd: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def call_timeout(self, tier_timeout: float) -> float:
        """Return the seconds that a call of a tier may take now; raises `GatewayError` if none."""
        seconds = min(tier_timeout, self.left(), self.call_seconds or tier_timeout)
        if seconds < _LEAST_SECONDS:
            raise GatewayError(FailureKind.TIMEOUT, "no time was left to ask it")
        if self.max_cost_usd is not None and self.spent_usd >= self.max_cost_usd:
            spent = f"{self.spent_usd:.4f} of {self.max_cost_usd:g} US dollars are spent"
            raise GatewayError(FailureKind.BUDGET, spent)
        return seconds

    def left(self) -> float:
        """Return the seconds that are left, negative when the deadline is over."""
        return self.started + self.seconds - time.monotonic()

    def spend(self, usage: Usage) -> None:
        """Count the cost of a call."""
        self.spent_usd += usage.cost_usd or 0.0


@dataclass(frozen=True, slots=True)
class Answer(Generic[Value]):
    """What one round brought: a value or a failure, and what it took. `model` is the one that replied."""

    value: Value | None
    failure: Failure | None
    usage: Usage
    latency_ms: int
    model: str

    def map(self, read: Callable[[Value], Other]) -> Answer[Other]:
        """Return the same round with its value, where there is one, read as something else."""
        value = None if self.value is None else read(self.value)
        return Answer(value, self.failure, self.usage, self.latency_ms, self.model)


class Stopwatch:
    """Milliseconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def ms(self) -> int:
        """Whole milliseconds so far."""
        return round((time.perf_counter() - self._start) * 1000)


@dataclass(frozen=True, slots=True)
class Question(Generic[ReplyModel]):
    """What is asked of one tier; `tokens` bounds the reply, `labels` maps the prompt's labels to ids."""

    messages: tuple[Message, ...]
    reply: type[ReplyModel]
    matter: Matter
    tokens: int
    labels: Mapping[str, str] = field(default_factory=dict)


async def ask(
    gateway: Gateway, endpoint: Endpoint, question: Question[ReplyModel], *, timeout: float, budget: Budget
) -> Answer[ReplyModel]:
    """Ask once, and once more when the reply cannot be read and the deadline allows."""
    watch, usage, model = Stopwatch(), Usage(), endpoint.model
    messages, matter = question.messages, question.matter
    failure: Failure | None = None
    for part in (matter.part, "reask"):
        try:
            seconds = budget.call_timeout(timeout)
            request = Request(
                messages,
                matter._replace(part=part),
                seconds,
                question.tokens,
                json_schema(question.reply),
                labels=question.labels,
            )
            reply = await gateway.complete(endpoint, request)
        except GatewayError as error:
            # An unreadable first reply says more than the re-ask that the deadline cut.
            failure = failure or _failure(error.kind, error.message)
            break
        budget.spend(reply.usage)
        usage, model = usage.plus(reply.usage), reply.model
        try:
            return Answer(extract(reply.text, question.reply), None, usage, watch.ms, model)
        except InvalidReply as error:
            failure = _failure(FailureKind.INVALID_REPLY, str(error))
            messages = (*messages, Message("assistant", reply.text), Message("user", _again(error)))
    return Answer(None, failure, usage, watch.ms, model)


@dataclass(frozen=True, slots=True)
class Points:
    """What is asked of a pointwise model: one question at a time after a context they share.

    `questions` by name, `tokens` the answers that are offered.
    """

    system: str
    context: str
    questions: Mapping[str, str]
    tokens: Sequence[str]
    matter: Matter


async def ask_pointwise(
    gateway: Gateway, endpoint: Endpoint, points: Points, *, timeout: float, budget: Budget
) -> Answer[dict[str, dict[str, float]]]:
    """Return for each question the probability of each token."""
    watch = Stopwatch()
    try:
        found, usage, model = await pointwise.ask(
            gateway,
            endpoint,
            system=points.system,
            context=points.context,
            questions=points.questions,
            tokens=points.tokens,
            matter=points.matter,
            timeout=budget.call_timeout(timeout),
        )
    except GatewayError as error:
        return Answer(None, _failure(error.kind, error.message), Usage(), watch.ms, endpoint.model)
    budget.spend(usage)
    return Answer(found, None, usage, watch.ms, model)


def _failure(kind: FailureKind, message: str) -> Failure:
    return Failure(kind=kind, message=one_line(message, FAILURE_CHARS))


def _again(error: InvalidReply) -> str:
    return f"That could not be read: {error}. Answer again with the one JSON object and nothing else."
