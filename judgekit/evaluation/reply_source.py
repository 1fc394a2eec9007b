"""How recorded answers were read, by tier and model: gates are learned from those that were read alike.

An endpoint may tell the probabilities of its tokens for some replies and not for others. Opinions that were
read otherwise than most of a model's have no margin: no gate is learned of them, and none lets them through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from judgekit.config.names import TIERS
from judgekit.judging import fingerprint
from judgekit.providers import registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.config.names import TierName
    from judgekit.evaluation.labelled import Case, Recorded
    from judgekit.evaluation.samples import Sample
    from judgekit.judging.fingerprint import Readings
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.providers.base import Endpoint


def readings(cases: Sequence[Case]) -> Readings:
    """Return how most opinions of each model were read."""
    found: dict[TierName, dict[str, Counter[ScoreSource]]] = defaultdict(lambda: defaultdict(Counter))
    fractions = _fractions(cases)
    for case in cases:
        for tier, model, how in _heard(case, fractions):
            found[tier][model][how] += 1
    return {
        tier: {model: counts.most_common(1)[0][0] for model, counts in sorted(models.items())}
        for tier, models in found.items()
    }


def otherwise(cases: Sequence[Case], learned: Readings) -> list[frozenset[TierName]]:
    """Return for each case the tiers of which an opinion was read otherwise."""
    fractions = _fractions(cases)
    return [
        frozenset(
            tier for tier, model, how in _heard(case, fractions) if learned.get(tier, {}).get(model) != how
        )
        for case in cases
    ]


def without_margins(sample: Sample, tiers: frozenset[TierName]) -> Sample:
    """Return a sample of which no gate lets the opinions of some tiers through."""
    if not tiers:
        return sample
    voices = {
        tier: voice._replace(margin=None) if tier in tiers else voice for tier, voice in sample.voices.items()
    }
    return replace(sample, voices=voices)


def endpoint(said: Recorded) -> Endpoint:
    """Return the model of a recorded answer as one that could be asked."""
    return fingerprint.recorded(said.model, said.family or registry.UNKNOWN_FAMILY)


def _heard(
    case: Case, fractions: frozenset[tuple[TierName, str]]
) -> Iterator[tuple[TierName, str, ScoreSource]]:
    """Yield how each model's opinion about a case was read, where there is one."""
    for tier, recorded, each in _said(case):
        if each.failure is None:
            yield tier, each.model, each.read or _inferred(recorded, each, (tier, each.model) in fractions)


def _inferred(said: Recorded, each: Recorded, fractional: bool) -> ScoreSource:  # noqa: FBT001 - internal
    """Return how an answer was read that does not say it: one reply gives no fractions by itself."""
    if said.samples > 1:
        return "whole"
    if each.probabilities is not None:
        return "points"
    return "expected" if fractional and each.scores is not None else "whole"


def _fractions(cases: Sequence[Case]) -> frozenset[tuple[TierName, str]]:
    """Return the models with scores of single replies that are no whole numbers."""
    return frozenset(
        (tier, each.model)
        for case in cases
        for tier, recorded, each in _said(case)
        if recorded.samples == 1 and any(value % 1 for value in (each.scores or {}).values())
    )


def _said(case: Case) -> Iterator[tuple[TierName, Recorded, Recorded]]:
    """Yield what each model said, with what its tier said."""
    for tier in TIERS:
        if tier in case.judges:
            recorded = case.judges[tier]
            for each in recorded.jury or [recorded]:
                yield tier, recorded, each
