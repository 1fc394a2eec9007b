"""Variants of labelled cases that need no text of their own: asked again, and in another order."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from judgekit import fence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.calibrate.labelled import Case, Variant

_TRIES = 8
_MARK = "'"


def again(cases: Sequence[Case]) -> list[Case]:
    """Return the cases, and each original once more: to be asked again, and with candidates reordered.

    Two texts that are compared need no other order: judging asks in both.
    """
    return [variant for case in cases for variant in _variants(case)]


def _variants(case: Case) -> Iterator[Case]:
    yield case
    if case.variant == "original":
        yield _variant(case, "rerun")
        if len(case.candidates) > 1:
            yield _variant(case, "swapped")


def _variant(case: Case, kind: Variant) -> Case:
    return case.model_copy(update={"id": f"{case.id} ({kind})", "variant": kind, "pair": case.id})


def reordered(query: str, ids: Sequence[str]) -> dict[str, str]:
    """Return for each candidate an id under which they are shown in an order as different as some tries find.

    The order follows from the query and the ids, which no model sees: another id is another place.
    """
    usual = list(fence.labels(query, ids))
    tries = [{each: each + _MARK * marks for each in ids} for marks in range(1, _TRIES + 1)]
    return max(tries, key=lambda own: _turned(usual, own, query))


def _turned(usual: Sequence[str], own: dict[str, str], query: str) -> int:
    """Return how many pairs of candidates change their order."""
    place = {shown: at for at, shown in enumerate(fence.labels(query, list(own.values())))}
    return sum(place[own[first]] > place[own[second]] for first, second in combinations(usual, 2))
