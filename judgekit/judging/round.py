"""One round: ask a model, read its reply, ask once more if it cannot be read; a failure is a value."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from judgekit.errors import (
    KEPT,
    AmbiguousReply,
    FailureKind,
    GatewayError,
    InvalidReply,
    Usage,
    usage_of_failed_call,
)
from judgekit.judging.fence import Fence
from judgekit.judging.verdict import Failure
from judgekit.providers import running
from judgekit.providers.base import Endpoint, Gateway, Message, Reply, Request
from judgekit.replies.forms import ReplyForm
from judgekit.replies.reading import failure_kind, read_reply
from judgekit.text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from judgekit.judging.cache import Replies

Value = TypeVar("Value")
Form = TypeVar("Form", bound=ReplyForm)
Call: TypeAlias = "Callable[[], Awaitable[Value]]"
Calls: TypeAlias = "list[Call[Answer[Value]]]"

FAILURE_CHARS = 300
INEXACT = 1e-9  # a share by less than which sums of the same amounts, added otherwise, differ
_LONG = 8_000  # characters, for which a change of threads takes less than the work
_AGAIN = "Answer again with the one JSON object and nothing else."
_LOG = logging.getLogger("judgekit")  # shown by -v
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
    cache: Replies | None = None

    def call_timeout(self, tier_timeout: float) -> float:
        """Return the seconds that a call of a tier may take now; raises `GatewayError` if none."""
        left = self.started + self.seconds - time.monotonic()
        seconds = min(tier_timeout, left, self.call_seconds or tier_timeout)
        if seconds < _LEAST_SECONDS:
            raise GatewayError(FailureKind.TIMEOUT, "no time left to ask it", usage=Usage())
        return seconds

    async def reply(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return a kept reply, else the model's; raises `GatewayError`, `BUDGET` at the cost limit."""
        started = time.monotonic()
        key = request.call_key
        reply = None
        asked = f"{key.tier} {endpoint.model} ({' '.join(filter(None, (key.rubric, key.part)))})"
        if self.cache is not None:
            reply = await running.run_in_thread(partial(self.cache.find, endpoint, request))
        if reply is None:
            limit = self.max_cost_usd
            why = ""
            if limit is not None and self.spent_usd >= limit * (1 - INEXACT):
                why = f"{self.spent_usd:.4f} of {limit:g} US dollars are spent"
            elif limit is not None and self.unpriced:
                why = f"the cost of a call is unknown, so the limit of {limit:g} US dollars ends the judging"
            if why:
                raise GatewayError(FailureKind.BUDGET, why, usage=Usage())
            try:
                reply = await self.gateway.complete(endpoint, request)
            except GatewayError as error:
                _LOG.info(
                    "%s: %s after %.1f s: %s", asked, error.kind, time.monotonic() - started, error
                )
                self.spent_usd += usage_of_failed_call(error).cost_usd or 0.0
                raise
            self.spent_usd += reply.usage.cost_usd or 0.0
            self.unpriced |= reply.usage.cost_usd is None
        used = reply.usage
        how = "kept reply" if reply.usage == KEPT else "replied"
        tokens = f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"
        _LOG.info("%s: %s in %.1f s, %s", asked, how, time.monotonic() - started, tokens)
        return reply

    async def run_in_thread(self, work: Callable[[], Value], size: int) -> Value:
        """Return what `work` makes of `size` characters; raises `GatewayError` at the deadline."""
        if size < _LONG:
            return work()
        try:
            async with asyncio.timeout(max(0.0, self.started + self.seconds - time.monotonic())):
                return await running.run_in_thread(work)
        except TimeoutError:
            told = "the deadline passed while the text was being prepared"
            raise GatewayError(FailureKind.TIMEOUT, told, usage=Usage()) from None


def ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


@dataclass(frozen=True, slots=True)
class Answer(Generic[Value]):
    """The value or failure of one round, with its usage; `model` is the one that replied."""

    value: Value | None
    failure: Failure | None
    usage: Usage
    latency_ms: int
    model: str

    def record(self, write: Callable[[Value], dict[str, Any]]) -> dict[str, Any]:
        """Return it as a round has it, with the opinion that `write` makes of its value."""
        if self.value is None:
            opinion = None
        else:
            opinion = write(self.value)
        names = ("model", "failure", "latency_ms", "usage")
        return {"opinion": opinion, **{name: getattr(self, name) for name in names}}


async def run_round(
    session: Session,
    endpoint: Endpoint,
    request: Request,
    messages: Callable[[], tuple[Message, ...]],
    size: int,
    form: type[Form],
    value: Callable[[Form, Reply], Value],
) -> Answer[Value]:
    """Ask once, and once more if the reply cannot be read; `messages` are made of `size` characters."""
    started = time.monotonic()
    usage = Usage()
    model = endpoint.model
    sent = tuple[Message, ...]()
    failure = None
    key = request.call_key.within(f"sample{request.sample}" if request.sample else "")
    for call_key in (key, key.within("reask")):
        try:
            sent = sent or await session.run_in_thread(messages, size)
            timeout = session.call_timeout(request.timeout)
            asked = replace(
                request, messages=sent, call_key=call_key, timeout=timeout, schema=form.sent
            )
            reply = await session.reply(endpoint, asked)
            usage = usage.plus(reply.usage.of_call())
            model = reply.model
            found = await session.run_in_thread(partial(read_reply, reply, form), len(reply.text))
        except GatewayError as error:
            usage = usage.plus(usage_of_failed_call(error))
            # An unreadable first reply says more than the re-ask that the deadline cut.
            failure = failure or make_failure(error.kind, error.message)
            if (
                error.kind is not FailureKind.INVALID_REPLY
            ):  # of an empty one: there is nothing to answer to
                break
        except InvalidReply as error:
            ambiguous = isinstance(error, AmbiguousReply)
            failure = make_failure(
                FailureKind.INVALID_REPLY if ambiguous else failure_kind(reply.text), str(error)
            )
            if reply.text.strip():  # providers refuse an empty message
                again = f"That could not be read: {error}. {_AGAIN}"
                sent = (*sent, Message("assistant", reply.text), Message("user", again))
        else:
            if session.cache and reply.usage != KEPT:
                await running.run_in_thread(partial(session.cache.keep, endpoint, asked, reply))
            return Answer(value(found, reply), None, usage, ms_since(started), model)
    return Answer(None, failure, usage, ms_since(started), model)


def make_failure(kind: FailureKind, message: str) -> Failure:
    return Failure(kind=kind, message=one_line(message, FAILURE_CHARS))


def joined(
    answers: Sequence[Answer[Any]], value: Value | None, started: float, *, always: bool = False
) -> Answer[Value]:
    """Return several calls as one answer with the first failure, beside a value only `always`."""
    usage = reduce(Usage.plus, (answer.usage for answer in answers), Usage())
    failure = next((answer.failure for answer in answers if answer.failure), None)
    if value is not None and not always:
        failure = None
    return Answer(value, failure, usage, ms_since(started), answers[-1].model)


async def gather_limited(
    calls: Sequence[Call[Value]], session: Session, endpoint: Endpoint | None = None, each: int = 1
) -> list[Value]:
    """Return the results in order, within the provider's concurrency; one by one under a cost limit."""
    most = endpoint.profile.limits.concurrency if endpoint else None
    if session.max_cost_usd is not None or most == 1 or len(calls) == 1:
        return [await call() for call in calls]
    free = asyncio.Semaphore(max(1, most // each) if most else len(calls) or 1)

    async def one(call: Call[Value]) -> Value:
        async with free:
            return await call()

    return list(await asyncio.gather(*map(one, calls)))
