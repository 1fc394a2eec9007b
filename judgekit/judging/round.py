"""One round: ask a model, read its reply, and ask again if it's unreadable. A failure is a value."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from judgekit.errors import (
    CACHED_USAGE,
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
from judgekit.replies.reading import classify_failure, read_reply
from judgekit.text import shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from judgekit.judging.cache import ReplyCache
    from judgekit.judging.verdict import RoundFields
    from judgekit.providers.decisions import DecisionQuestion

Value = TypeVar("Value")
Recorded = TypeVar("Recorded")
Form = TypeVar("Form", bound=ReplyForm)
Call: TypeAlias = "Callable[[], Awaitable[Value]]"
Calls: TypeAlias = "list[Call[Answer[Value]]]"
Asked: TypeAlias = "tuple[str, tuple[Message, ...], tuple[DecisionQuestion, ...]]"
"""A model's name, the messages, and a decision model's questions."""

FAILURE_CHARS = 300
INEXACT = 1e-9  # relative error of sums of the same amounts in another order
_LONG_CHARS = 8_000  # above this, switching threads takes less time than the work
_ANSWER_AGAIN_INSTRUCTION = "Answer again with the one JSON object and nothing else."
_LOG = logging.getLogger("judgekit")  # shown by -v
_MIN_SECONDS = 0.05  # no provider can answer in less, so don't call it


@dataclass(slots=True)
class Session:
    """The limits that apply to one judging from now on, and the state its calls share."""

    gateway: Gateway
    timeout: float
    """Seconds for all calls together."""
    max_cost_usd: float | None = None
    call_timeout: float | None = None
    """Seconds for one call, on top of its tier's own timeout."""
    spent_usd: float = 0.0
    has_unpriced_calls: bool = False
    """Whether some call's cost is unknown."""
    started: float = field(default_factory=time.monotonic)
    fence: Fence = field(default_factory=Fence)
    """Shared by pointwise questions, so that a server can cache their common beginning."""
    remembered: dict[Asked, Reply] = field(default_factory=dict)
    """Replies by model and question, because a deeper tier can ask the same model the same."""
    cache: ReplyCache | None = None
    """Replies from earlier sessions."""

    @property
    def seconds_left(self) -> float:
        deadline = self.started + self.timeout
        return deadline - time.monotonic()

    def compute_call_timeout(self, tier_timeout: float) -> float:
        """Return the seconds that a tier's call may take now; raises `GatewayError` if no time is left."""
        # Without a timeout for calls, the tier's timeout stands in, which changes nothing.
        timeout = min(tier_timeout, self.seconds_left, self.call_timeout or tier_timeout)
        if timeout < _MIN_SECONDS:
            # "it" is the tier, which reports name before the message.
            raise GatewayError(FailureKind.TIMEOUT, "no time left to ask it", usage=Usage())
        return timeout

    async def get_reply(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return a stored reply to the request, or call the model. Log the reply or the failure.

        Raises `GatewayError` if the call fails. Its kind is `BUDGET` if the cost limit allows no further
        call.
        """
        started = time.monotonic()
        call_name = _name_call(endpoint, request)
        reply = await self._find_stored_reply(endpoint, request)
        if reply is None:
            self._check_limit()
            try:
                reply = await self._complete(endpoint, request)
            except GatewayError as error:
                seconds = time.monotonic() - started
                _LOG.info("%s: %s after %.1f s: %s", call_name, error.kind, seconds, error)
                raise

        seconds = time.monotonic() - started
        _log_reply(call_name, reply.usage, seconds)
        return reply

    async def _find_stored_reply(self, endpoint: Endpoint, request: Request) -> Reply | None:
        """Return the stored reply to a request, or None if there's none or no cache is used."""
        if self.cache is None:
            return None
        find_reply = partial(self.cache.find, endpoint, request)
        return await self._use_cache(find_reply, self.cache)

    async def _complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Call a model, and add the cost to this session, even if the call fails."""
        try:
            reply = await self.gateway.complete(endpoint, request)
        except GatewayError as error:
            # Ignore an unknown cost. Otherwise, each timeout would end the judging if there's a cost limit.
            self.spent_usd += usage_of_failed_call(error).cost_usd or 0.0
            raise
        self.spent_usd += reply.usage.cost_usd or 0.0
        self.has_unpriced_calls |= reply.usage.cost_usd is None
        return reply

    def _check_limit(self) -> None:
        """Raise `GatewayError` if the cost limit allows no further call."""
        limit = self.max_cost_usd
        if limit is None:
            return
        # Rounding can make the sum of costs slightly too small, so already stop just below the limit.
        is_spent = self.spent_usd >= limit * (1 - INEXACT)
        if is_spent:
            problem = f"{self.spent_usd:.4f} of {limit:g} US dollars are spent"
            raise GatewayError(FailureKind.BUDGET, problem, usage=Usage())
        if self.has_unpriced_calls:
            problem = (
                "the cost of a call is unknown, "
                f"so the limit of {limit:g} US dollars ends the judging"
            )
            raise GatewayError(FailureKind.BUDGET, problem, usage=Usage())

    async def keep(self, endpoint: Endpoint, request: Request, reply: Reply) -> None:
        """Store a readable reply for later sessions, unless it's from an earlier one."""
        if self.cache is not None and reply.usage != CACHED_USAGE:
            await self._use_cache(partial(self.cache.keep, endpoint, request, reply), self.cache)

    @staticmethod
    async def _use_cache(work: Callable[[], Value], cache: ReplyCache) -> Value:
        """Run `work`, which reads or writes the cache. If the cache may be slow, run it in a thread."""
        if cache.is_quick:
            return work()
        return await running.run_in_thread(work)

    async def prepare(self, work: Callable[[], Value], characters: int) -> Value:
        """Run `work` on a text with this number of characters. For a long text, use a thread.

        The thread can't be stopped. At the deadline, this raises `GatewayError`, and the thread finishes in
        the background.
        """
        if characters < _LONG_CHARS:
            return work()
        try:
            async with asyncio.timeout(max(0.0, self.seconds_left)):
                return await running.run_in_thread(work)
        except TimeoutError:
            problem = "the deadline passed while the text was being prepared"
            raise GatewayError(FailureKind.TIMEOUT, problem, usage=Usage()) from None


def _name_call(endpoint: Endpoint, request: Request) -> str:
    """Name a call for the log, by its tier, model, rubric and part."""
    key = request.call_key
    rubric_and_part = " ".join(filter(None, (key.rubric, key.part)))
    return f"{key.tier} {endpoint.model} ({rubric_and_part})"


def _log_reply(call_name: str, usage: Usage, seconds: float) -> None:
    """Log a reply's source, duration and tokens."""
    source = "kept reply" if usage == CACHED_USAGE else "replied"
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    _LOG.info("%s: %s in %.1f s, %s", call_name, source, seconds, tokens)


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

    def record_value(self, record: Callable[[Value], Recorded]) -> Recorded | None:
        """Apply `record` to the answer's value, or return None if it has none."""
        if self.value is None:
            return None
        return record(self.value)

    def build_round_fields(self) -> RoundFields:
        """Return a round's fields other than the opinion."""
        return {
            "model": self.model,
            "failure": self.failure,
            "latency_ms": self.latency_ms,
            "usage": self.usage,
        }


async def run_round(
    session: Session,
    endpoint: Endpoint,
    request: Request,
    make_messages: Callable[[], tuple[Message, ...]],
    characters: int,
    form: type[Form],
    make_value: Callable[[Form, Reply], Value],
) -> Answer[Value]:
    """Ask a model, and once more if its reply is unreadable. Return the value or failure.

    `make_messages` builds the prompt from `characters` of text. The reply is read as a `form`, from which
    `make_value` builds the value.
    """
    started = time.monotonic()
    usage = Usage()
    model = endpoint.model
    failure = None
    conversation: tuple[Message, ...] = ()
    first_key = request.call_key
    if request.sample:
        first_key = first_key.append_part(f"sample{request.sample}")

    for call_key in (first_key, first_key.append_part("reask")):
        try:
            if not conversation:
                conversation = await session.prepare(make_messages, characters)
            sent_request = replace(
                request,
                messages=conversation,
                call_key=call_key,
                timeout=session.compute_call_timeout(request.timeout),
                schema=form.sent,
            )
            reply = await session.get_reply(endpoint, sent_request)
            usage = usage.plus(reply.usage.count_as_call())
            model = reply.model
            read = partial(read_reply, reply, form)
            filled_form = await session.prepare(read, len(reply.text))

        except GatewayError as error:
            usage = usage.plus(usage_of_failed_call(error))
            # If the second request fails, report the first reply's problem.
            failure = failure or make_failure(error.kind, error.message)
            # Repeat the request if the gateway found the reply invalid. There's no text to complain about.
            if error.kind is not FailureKind.INVALID_REPLY:
                break

        except InvalidReply as error:
            kind = classify_failure(reply.text)
            if isinstance(error, AmbiguousReply):
                kind = FailureKind.INVALID_REPLY
            failure = make_failure(kind, str(error))
            # After an empty reply, repeat the request as it is, because providers refuse empty messages.
            if reply.text.strip():
                correction = Message(
                    "user", f"That could not be read: {error}. {_ANSWER_AGAIN_INSTRUCTION}"
                )
                conversation = (*conversation, Message("assistant", reply.text), correction)

        else:
            await session.keep(endpoint, sent_request, reply)
            value = make_value(filled_form, reply)
            return Answer(value, None, usage, ms_since(started), model)

    return Answer(None, failure, usage, ms_since(started), model)


def make_failure(kind: FailureKind, message: str) -> Failure:
    return Failure(kind=kind, message=shorten_to_line(message, FAILURE_CHARS))


def merge_answers(
    answers: Sequence[Answer[Any]],
    value: Value | None,
    started: float,
    *,
    keep_failure: bool = False,
) -> Answer[Value]:
    """Merge the answers to multiple calls into one, with the given `value`, total usage and last model.

    If `value` is None, the answer contains the first failure. With `keep_failure`, it always does. `started`
    is the monotonic time of the first call.
    """
    total_usage = Usage()
    for answer in answers:
        total_usage = total_usage.plus(answer.usage)
    failure = None
    if value is None or keep_failure:
        failure = _find_first_failure(answers)
    last_answer = answers[-1]
    return Answer(value, failure, total_usage, ms_since(started), last_answer.model)


def _find_first_failure(answers: Sequence[Answer[Any]]) -> Failure | None:
    """Return the first failure among the answers, or None."""
    for answer in answers:
        if answer.failure:
            return answer.failure
    return None


async def gather_limited(
    calls: Sequence[Call[Value]],
    session: Session,
    endpoint: Endpoint | None = None,
    calls_in_one: int = 1,
) -> list[Value]:
    """Run calls concurrently, as many at once as the provider allows, and return the results in order.

    `calls_in_one` is the number of requests that each of `calls` sends to the provider at once.
    """
    limit = endpoint.profile.limits.concurrency if endpoint else None
    # Run the calls one by one if the provider allows no more, or if there's a cost limit, because each has to
    # know the cost of the earlier ones.
    has_cost_limit = session.max_cost_usd is not None
    if has_cost_limit or limit == 1 or len(calls) == 1:
        return [await call() for call in calls]

    most_at_once = len(calls)  # the provider has no limit
    if limit:
        most_at_once = max(1, limit // calls_in_one)
    return await _gather_at_most(most_at_once, calls)


async def _gather_at_most(most_at_once: int, calls: Sequence[Call[Value]]) -> list[Value]:
    """Run calls concurrently, up to `most_at_once`, and return the results in order."""
    free_slots = asyncio.Semaphore(most_at_once)

    async def wait_and_call(call: Call[Value]) -> Value:
        async with free_slots:
            return await call()

    return list(await asyncio.gather(*map(wait_and_call, calls)))
