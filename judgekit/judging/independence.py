"""Four eyes: the family that wrote a text never judges it alone. Pure: no model is asked here.

Models favour what models of their own kind wrote (Panickssery et al. 2024, "LLM Evaluators Recognize and
Favor Their Own Generations", arXiv:2404.13076).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.providers import UNKNOWN_FAMILY
from judgekit.rubric import TIERS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from judgekit.gateway.base import Endpoint
    from judgekit.rubric import TierName


def apart(
    seats: Mapping[TierName, tuple[Endpoint, ...]], wrote: Collection[str]
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return who judges what the families in `wrote` wrote.

    Of a jury those of other families remain. Where none does, models of the nearest tier that has some take
    the places, a deeper one first. Where no tier has any, a tier stays as it is: somebody has to judge.
    """
    others = {
        tier: tuple(seat for seat in jury if seat.family not in _known(wrote)) for tier, jury in seats.items()
    }
    return {tier: _nearest(tier, others)[: len(jury)] or jury for tier, jury in seats.items()}


def is_independent(wrote: Collection[str], judged: Collection[str]) -> bool | None:
    """Whether another family had a say: `judged` are the families behind the outcome.

    False when all of them wrote the text; None when it is not known who wrote it, when nobody judged it, or
    when those who may be others are of a family that is not known.
    """
    if not _known(wrote) or not judged:
        return None
    if set(judged) <= _known(wrote):
        return False
    strangers = set(judged) - _known(wrote) - {UNKNOWN_FAMILY}
    return True if strangers and UNKNOWN_FAMILY not in wrote else None


def _known(families: Collection[str]) -> set[str]:
    return set(families) - {UNKNOWN_FAMILY}


def _nearest(tier: TierName, others: Mapping[TierName, tuple[Endpoint, ...]]) -> tuple[Endpoint, ...]:
    place = TIERS.index(tier)
    near = (*TIERS[place:], *reversed(TIERS[:place]))
    return next((found for each in near if (found := others.get(each, ()))), ())
