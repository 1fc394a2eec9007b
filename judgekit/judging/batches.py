"""Many candidates in several calls at once: of a long list a model overlooks more, and takes longer."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from judgekit.judging.asking import Answer
from judgekit.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Item = TypeVar("Item")
Value = TypeVar("Value")

BATCH = 15  # candidates in one call


def split(items: Sequence[Item], most: int = BATCH) -> list[Sequence[Item]]:
    """Return `items` in as few runs of at most `most` as there must be, of nearly equal length."""
    count = -(-len(items) // most)
    cuts = [round(len(items) * number / count) for number in range(count + 1)]
    return [items[a:b] for a, b in pairwise(cuts)]


async def ask_all(
    batches: Sequence[Sequence[Item]],
    ask: Callable[[Sequence[Item]], Awaitable[Answer[dict[str, Value]]]],
    *,
    together: bool,
) -> Answer[dict[str, Value]]:
    """Return what `ask` answers for all batches as one answer, asked `together` or one after another.

    A batch that failed is missing from the value; its failure, the first of several, is the answer's.
    """
    if together:
        return _joined(await asyncio.gather(*map(ask, batches)))
    return _joined([await ask(each) for each in batches])


def _joined(answers: Sequence[Answer[dict[str, Value]]]) -> Answer[dict[str, Value]]:
    usage = Usage()
    value: dict[str, Value] = {}
    for each in answers:
        usage = usage.plus(each.usage)
        value |= each.value or {}
    failure = next((each.failure for each in answers if each.failure), None)
    latency = max(each.latency_ms for each in answers)
    return Answer(value or None, failure, usage, latency, answers[-1].model)
