"""Four eyes: the family that wrote a text never judges it alone. Pure: no model is asked here.

Models favour what models of their own kind wrote (Panickssery et al. 2024, "LLM Evaluators Recognize and
Favor Their Own Generations", arXiv:2404.13076).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit.config.names import TIERS
from judgekit.providers.registry import UNKNOWN_FAMILY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.config.names import TierName
    from judgekit.providers.base import Endpoint
    from judgekit.providers.resolve import Others


Independence: TypeAlias = Literal["prefer", "require"]
"""Whether what models of the author's own family accept, and nobody else, is accepted."""


def apart(
    panel: Mapping[TierName, tuple[Endpoint, ...]],
    wrote: Collection[str],
    others: Others = tuple,
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return who judges what the families in `wrote` wrote.

    Of a jury those of other families remain. Where none does, models of other families take the places: those
    of the nearest tier that has some, a deeper one first, else those of the first of the panels that `others`
    returns. A model of an unknown family takes a place where no other does. Where nobody can take it, a tier
    stays as it is: somebody has to judge.
    """
    strangers, known = _but(panel, _known_families(wrote)), _but(panel, {*wrote, UNKNOWN_FAMILY})
    apart = dict(panel)
    for tier, jury in panel.items():
        endpoints = strangers[tier] or _nearest(tier, known)
        if not endpoints:
            panels = (_but(each, {*wrote, UNKNOWN_FAMILY}) for each in others())
            endpoints = next((each for panel in panels if (each := _nearest(tier, panel))), ())
        apart[tier] = (endpoints or _nearest(tier, strangers))[: len(jury)] or jury
    return apart


def is_independent(wrote: Collection[str], judged: Collection[str]) -> bool | None:
    """Whether another family had a say: `judged` are the families behind the outcome.

    False when all of them wrote the text; None when it is not known who wrote it, when nobody judged it, or
    when those who may be others are of a family that is not known.
    """
    if not _known_families(wrote) or not judged:
        return None
    if set(judged) <= _known_families(wrote):
        return False
    strangers = set(judged) - _known_families(wrote) - {UNKNOWN_FAMILY}
    return True if strangers and UNKNOWN_FAMILY not in wrote else None


def lacking(independence: Independence, wrote: Sequence[str], judged: Collection[str]) -> str | None:
    """Say in one line why an acceptance by `judged` may not stand; None where it may."""
    if independence == "prefer" or not wrote or is_independent(wrote, judged):
        return None
    return (
        f"accepted, but by no model that is known to be of another family than the author's "
        f"({', '.join(wrote)}), as judge.independence: require wants; judgekit provider list says which "
        "models can be had, and families in a provider's profile of which family they are"
    )


def _but(
    panel: Mapping[TierName, tuple[Endpoint, ...]], families: Collection[str]
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return the models of each tier that are of none of `families`."""
    return {
        tier: tuple(endpoint for endpoint in jury if endpoint.family not in families)
        for tier, jury in panel.items()
    }


def _known_families(families: Collection[str]) -> set[str]:
    return set(families) - {UNKNOWN_FAMILY}


def _nearest(tier: TierName, others: Mapping[TierName, tuple[Endpoint, ...]]) -> tuple[Endpoint, ...]:
    place = TIERS.index(tier)
    near = (*TIERS[place:], *reversed(TIERS[:place]))
    return next((endpoints for each in near if (endpoints := others.get(each, ()))), ())
