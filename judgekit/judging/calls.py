"""Several calls for one answer: at once where the limits of a judging and of a provider let them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from judgekit.judging.asking import Answer
from judgekit.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from judgekit.gateway.base import Endpoint
    from judgekit.judging.session import Session

Value = TypeVar("Value")


async def all_of(
    calls: Sequence[Callable[[], Awaitable[Value]]],
    session: Session,
    seat: Endpoint | None = None,
    each: int = 1,
) -> list[Value]:
    """Return what all calls bring, in order: no more of one `seat` at a time than its provider bears.

    Each may make so many calls at a time itself.
    What calls cost is known when they end: a limit on it holds only for one after another.
    """
    most = seat.profile.limits.concurrency if seat else None
    if session.max_cost_usd is not None or most == 1:
        return [await call() for call in calls]
    free = asyncio.Semaphore(max(1, most // each) if most else len(calls) or 1)

    async def one(call: Callable[[], Awaitable[Value]]) -> Value:
        async with free:
            return await call()

    return list(await asyncio.gather(*map(one, calls)))


def joined(answers: Sequence[Answer[Any]], value: Value | None, latency_ms: int) -> Answer[Value]:
    """Return several calls as one answer; without a value, the first failure among them is its failure."""
    usage = Usage()
    for each in answers:
        usage = usage.plus(each.usage)
    failure = next((each.failure for each in answers if each.failure), None) if value is None else None
    return Answer(value, failure, usage, latency_ms, answers[-1].model)
