"""One round: ask a model, read its reply, ask once more if it cannot be read; a failure is a value.

A session holds what one judging may still take in seconds and US dollars. Several calls for one answer run
at once, within the limits of the judging and of the provider.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic import BaseModel

from judgekit.errors import AmbiguousReply, CallUsage, FailureKind, GatewayError, InvalidReply, of_failure
from judgekit.judging import logprobs
from judgekit.judging.extract import read
from judgekit.judging.fence import Fence
from judgekit.judging.replies import json_schema
from judgekit.judging.scan import QUOTES, scan
from judgekit.judging.verdict import Failure, Usage
from judgekit.providers import running
from judgekit.providers.base import Message, Request
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from judgekit.judging.cache import ReplyCache
    from judgekit.providers.base import CallKey, Endpoint, Gateway, Reply


Value = TypeVar("Value")
Other = TypeVar("Other")
ReplyModel = TypeVar("ReplyModel", bound=BaseModel)

FAILURE_CHARS = 300
INEXACT = 1e-9  # a share by less than which sums of the same amounts, added otherwise, differ
_LONG = 8_000  # characters, for which a change of threads takes less than the work
_LEAST_SECONDS = 0.05  # below this no provider answers: say so instead of asking


@dataclass(slots=True)
class Session:
    """The limits of one judging, from now on; `call_seconds` bounds each call beside its tier's timeout.

    Pointwise questions share one `fence`, so that a server caches what they have in common. Their replies are
    `remembered` by model and messages: a deeper tier of the same model may ask the same. `cache` holds
    replies of earlier sessions. After a call whose cost is unknown it is `unpriced`.
    """

    gateway: Gateway
    seconds: float
    max_cost_usd: float | None = None
    call_seconds: float | None = None
    spent_usd: float = 0.0
    unpriced: bool = False
    started: float = field(default_factory=time.monotonic)
    fence: Fence = field(default_factory=Fence)
    remembered: dict[tuple[str, tuple[Message, ...]], Reply] = field(default_factory=dict)
    cache: ReplyCache | None = None

    def call_timeout(self, tier_timeout: float) -> float:
        """Return the seconds that a call of a tier may take now; raises `GatewayError` if none."""
        left = self.started + self.seconds - time.monotonic()
        seconds = min(tier_timeout, left, self.call_seconds or tier_timeout)
        if seconds < _LEAST_SECONDS:
            raise GatewayError(FailureKind.TIMEOUT, "no time left to ask it", usage=CallUsage())
        if self.max_cost_usd is not None:
            self.afford(self.max_cost_usd)
        return seconds

    def afford(self, limit_usd: float) -> None:
        """Raise `GatewayError` of kind `BUDGET` when the limit of cost is reached: no call may begin then."""
        if self.spent_usd >= limit_usd * (1 - INEXACT):
            spent = f"{self.spent_usd:.4f} of {limit_usd:g} US dollars are spent"
            raise GatewayError(FailureKind.BUDGET, spent, usage=CallUsage())
        if self.unpriced:
            told = f"the cost of a call is unknown, so the limit of {limit_usd:g} US dollars ends the judging"
            raise GatewayError(FailureKind.BUDGET, told, usage=CallUsage())

    def pay(self, usage: CallUsage, *, failed: bool = False) -> None:
        """Count the cost of a call; after a reply of unknown cost no limit can be kept."""
        self.spent_usd += usage.cost_usd or 0.0
        self.unpriced |= usage.cost_usd is None and not failed

    async def aside(self, work: Callable[[], Value], size: int) -> Value:
        """Return what `work` makes of texts of `size` characters, of long ones in another thread.

        Raises `GatewayError` when the deadline comes first; the work may go on then.
        """
        if size < _LONG:
            return work()
        try:
            async with asyncio.timeout(max(0.0, self.started + self.seconds - time.monotonic())):
                return await running.aside(work)
        except TimeoutError:
            told = "the deadline passed while the text was being prepared"
            raise GatewayError(FailureKind.TIMEOUT, told, usage=CallUsage()) from None

    async def found(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Return the reply to the same request in an earlier session, None where none is kept."""
        if self.cache is None:
            return None
        return await running.aside(functools.partial(self.cache.find, endpoint, request))

    async def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        if self.cache is not None:
            await running.aside(functools.partial(self.cache.keep, endpoint, request, reply))


def ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


@dataclass(frozen=True, slots=True)
class Answer(Generic[Value]):
    """The value or failure of one round, with its usage; `model` is the one that replied."""

    value: Value | None
    failure: Failure | None
    usage: CallUsage
    latency_ms: int
    model: str

    def record(self) -> dict[str, Any]:
        usage = Usage(**self.usage._asdict())
        return {"model": self.model, "failure": self.failure, "latency_ms": self.latency_ms, "usage": usage}


@dataclass(frozen=True, slots=True)
class Question(Generic[ReplyModel, Value]):
    """A question to one model: `messages` makes the prompt, of texts of `size` characters.

    `read` makes a value of a reply. `tokens` bounds the reply, `labels` maps the prompt's labels to ids. Of
    several replies to one question `sample` is the number, from 1. `likely` requests the probabilities of
    the reply's tokens from models that give them.
    """

    messages: Callable[[], tuple[Message, ...]]
    size: int
    reply: type[ReplyModel]
    read: Callable[[ReplyModel, Reply], Value]
    call_key: CallKey
    tokens: int
    labels: Mapping[str, str] = field(default_factory=dict)
    sample: int = 0
    likely: bool = False


async def run_round(
    session: Session, endpoint: Endpoint, question: Question[ReplyModel, Value], timeout: float
) -> Answer[Value]:
    """Ask once, and once more when the reply cannot be read and the deadline allows."""
    started, usage, model = time.monotonic(), CallUsage(), endpoint.model
    messages, failure = tuple[Message, ...](), None
    call_key = question.call_key.within(f"sample{question.sample}") if question.sample else question.call_key
    for about in (call_key, call_key.within("reask")):
        try:
            messages = messages or await session.aside(question.messages, question.size)
            request = Request(
                messages,
                about,
                session.call_timeout(timeout),
                question.tokens,
                json_schema(question.reply),
                logprobs.ALTERNATIVES if question.likely and endpoint.logprobs else 0,
                labels=question.labels,
                sample=question.sample,
            )
            kept = await session.found(endpoint, request) if session.cache else None
            reply = kept or await session.gateway.complete(endpoint, request)
        except GatewayError as error:
            spent = of_failure(error)
            session.pay(spent, failed=True)
            usage = usage.plus(spent)
            # An unreadable first reply says more than the re-ask that the deadline cut.
            failure = failure or failure_of(error.kind, error.message)
            if error.kind is not FailureKind.INVALID_REPLY:
                break
            continue  # an empty one: there is nothing to answer to
        session.pay(reply.usage)
        usage, model = usage.plus(reply.usage.of_call()), reply.model
        try:
            work = partial(read, reply.text, question.reply, held=reply.held)
            found = await session.aside(work, len(reply.text))
        except GatewayError as error:
            failure = failure or failure_of(error.kind, error.message)
            break
        except InvalidReply as error:
            ambiguous = isinstance(error, AmbiguousReply)
            failure = failure_of(FailureKind.INVALID_REPLY if ambiguous else cause(reply.text), str(error))
            if reply.text.strip():  # providers refuse an empty message
                again = "Answer again with the one JSON object and nothing else."
                messages = (
                    *messages,
                    Message("assistant", reply.text),
                    Message("user", f"That could not be read: {error}. {again}"),
                )
        else:
            if session.cache and not kept:
                await session.keep(endpoint, request, reply)
            return Answer(question.read(found, reply), None, usage, ms_since(started), model)
    return Answer(None, failure, usage, ms_since(started), model)


def failure_of(kind: FailureKind, message: str) -> Failure:
    return Failure(kind=kind, message=one_line(message, FAILURE_CHARS))


def joined(
    answers: Sequence[Answer[Any]], value: Value | None, started: float, *, always: bool = False
) -> Answer[Value]:
    """Return several calls, of which the first was `started` then, as one answer.

    Its failure is the first one; beside a value there is one only `always`.
    """
    usage = reduce(CallUsage.plus, (answer.usage for answer in answers), CallUsage())
    failure = next((answer.failure for answer in answers if answer.failure), None)
    if value is not None and not always:
        failure = None
    return Answer(value, failure, usage, ms_since(started), answers[-1].model)


async def gather_limited(
    calls: Sequence[Callable[[], Awaitable[Value]]],
    session: Session,
    endpoint: Endpoint | None = None,
    each: int = 1,
) -> list[Value]:
    """Return the results of all calls in order, at most as many at a time as the endpoint's provider allows.

    Each of them may make `each` calls at a time itself. With a limit on the cost, which is known when a call
    ends, they run one after another.
    """
    most = endpoint.profile.limits.concurrency if endpoint else None
    if session.max_cost_usd is not None or most == 1 or len(calls) == 1:
        return [await call() for call in calls]
    free = asyncio.Semaphore(max(1, most // each) if most else len(calls) or 1)

    async def one(call: Callable[[], Awaitable[Value]]) -> Value:
        async with free:
            return await call()

    return list(await asyncio.gather(*map(one, calls)))


_NOT: Final = r"(?:can(?:no|')?t|can not|won't|will not|must not|(?:am|are|'m|'re) (?:not able|unable))"
_DOING: Final = (
    r"(?:to )?(?:help|assist|comply|fulfil|complete|provide|evaluate|judge|rate|score|review|answer|do)"
)
_REFUSING: Final = re.compile(
    rf"\s*(?:(?:i'm|i am|we're|we are) (?:very |so )?sorry|sorry|i apologi[sz]e|my apologies|unfortunately)\b"
    rf"[^.\n{{]{{0,40}}?\b(?:i|we)\s?{_NOT}\b"
    rf"|\s*(?:as an ai\b[^.\n{{]{{0,80}}?)?(?:\bi|\bwe)\s?{_NOT}\s{_DOING}\b"
)
_READ: Final = 400  # characters of a beginning in which a refusal is said


def cause(raw: str) -> FailureKind:
    """Return why nothing could be read in a reply: it refuses, was cut off in its last object, or is invalid.

    A refusal begins with it and holds no object.
    """
    try:
        objects = scan(raw)
    except InvalidReply:  # a flood
        return FailureKind.INVALID_REPLY
    if not objects:
        beginning = raw.rpartition("</think>")[2][:_READ].replace("\u2019", "'").lower()
        return FailureKind.REFUSAL if _REFUSING.match(beginning) else FailureKind.INVALID_REPLY
    last, tail = objects[-1], objects[-1].tail.strip()
    # What follows an object that broke off is a string without an end, if the text ended there.
    in_string = tail[:1] in QUOTES and not any(end in tail for end in ("}", "```"))
    return FailureKind.TRUNCATED if not last.closed and (not tail or in_string) else FailureKind.INVALID_REPLY
