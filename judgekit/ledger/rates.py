"""How often good content gets NO-GO and bad content GO: estimates from labels, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, hypot, inf, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.judging import binomial

if TYPE_CHECKING:
    from judgekit.ledger.records import GateWord

Quality: TypeAlias = Literal["good", "bad"]
Wanted: TypeAlias = Mapping["GateWord", int]

LEVEL = 0.95
LEAST = 20  # labels, verdicts: fewer show nothing, since a gate must not flip on a bad day
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
_STEP = 8  # of the labels that are there one for each so many is added at a time
# The share of good content that is expected of a stratum without a label: that of a gate that is right.
_GOOD_IF_RIGHT: Mapping[GateWord, float] = {"GO": 1.0, "NO-GO": 0.0, "UNDETERMINED": 0.5}


class Interval(NamedTuple):
    low: float
    high: float


class Estimate(NamedTuple):
    value: float
    low: float
    high: float


_NOTHING = Estimate(0.0, 0.0, 0.0)
_EVERYTHING = Estimate(1.0, 1.0, 1.0)


def share_interval(hits: int, total: int) -> Interval | None:
    """Return the Wilson score interval of `hits` out of `total` (Brown, Cai and DasGupta, 2001)."""
    if total == 0:
        return None
    mean = hits / total
    square = _Z**2
    middle = (mean + square / (2 * total)) / (1 + square / total)
    half = _Z / (1 + square / total) * sqrt(mean * (1 - mean) / total + square / (4 * total**2))
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def median_interval(ordered: Sequence[float]) -> Interval | None:
    """Return an interval of the median between two order statistics, None for fewer than six values.

    The ranks are those of the normal approximation to the binomial, rounded outwards (Conover, "Practical
    Nonparametric Statistics", 3.2). Of five values the extremes cover the median only 94 % of the time.
    """
    total = len(ordered)
    if total < 6:  # noqa: PLR2004 - explained above
        return None
    below = max(1, floor(total / 2 - _Z * sqrt(total) / 2))
    return Interval(ordered[below - 1], ordered[total - below])


@lru_cache(maxsize=4096)
def exact(hits: int, total: int) -> Estimate:
    """Return the share of `hits` in `total`, at least 1, with the exact interval of Clopper and Pearson."""
    tail = (1 - LEVEL) / 2
    return Estimate(
        hits / total, binomial.lower(hits, total, tail), binomial.upper(hits, total, tail)
    )


def weighted(parts: Iterable[tuple[float, Estimate]]) -> Estimate:
    """Return the weighted sum of independent estimates, none below 0 (Zou and Donner, 2008: MOVER)."""
    known = list(parts)
    return _around(sum(weight * estimate.value for weight, estimate in known), known)


def _around(value: float, parts: Sequence[tuple[float, Estimate]]) -> Estimate:
    below = hypot(*(weight * (estimate.value - estimate.low) for weight, estimate in parts))
    above = hypot(*(weight * (estimate.high - estimate.value) for weight, estimate in parts))
    return Estimate(value, max(0.0, value - below), value + above)


def ratio(estimate: Estimate, other: Estimate) -> Interval:
    """Return the interval of the ratio of two independent estimates, none below 0; `inf` has no end above.

    Donner and Zou, Statistical Methods in Medical Research 21 (2012), equation 9 (MOVER-R).
    """
    middle = estimate.value * other.value

    def parts(end: float, opposite: float) -> tuple[float, float, float]:
        above = end * (2 * estimate.value - end)
        below = opposite * (2 * other.value - opposite)
        return above, below, sqrt(max(0.0, middle**2 - above * below))

    above, _, root = parts(estimate.low, other.high)
    if middle + root > 0:
        low = above / (middle + root)
    else:
        low = 0.0
    _, below, root = parts(estimate.high, other.low)
    return Interval(low, (middle + root) / below if below > 0 else inf)


@dataclass(frozen=True, slots=True)
class Stratum:
    """Verdicts with one word, their labels, the good ones; `decided` ones are no sample of others."""

    word: GateWord
    verdicts: int
    labels: int
    good: int
    decided: bool = False

    def share(self, quality: Quality) -> Estimate | None:
        if not self.labels:
            return None
        if quality == "good":
            hits = self.good
        else:
            hits = self.labels - self.good
        if self.decided:
            return Estimate(*[hits / self.labels] * 3)
        return exact(hits, self.labels)


class Rate(NamedTuple):
    """Of all good (bad) content the share with one word, None where unknown, and its number of `labels`."""

    estimate: float | None
    interval: Interval | None
    labels: int


def rate(strata: Sequence[Stratum], word: GateWord, quality: Quality) -> Rate:
    """Estimate how much of all good (or bad) content got `word`, with a 95 % interval.

    Each stratum's labelled share is scaled to the stratum's size: a post-stratified ratio estimate (Cochran,
    "Sampling Techniques", 1977, chapters 5 and 6). The interval joins Clopper's and Pearson's for each share,
    and for the share that the word has of all verdicts, by MOVER. Of a stratum without labels nothing is
    known: the end below is that with all of it of this quality, the end above that with none.
    """
    strata = [stratum for stratum in strata if stratum.verdicts]
    labels = sum(stratum.labels for stratum in strata)
    own = [stratum for stratum in strata if stratum.word == word]
    others = [stratum for stratum in strata if stratum.word != word]
    count, rest = (sum(stratum.verdicts for stratum in group) for group in (own, others))
    shares = []
    for stratum in own:
        shares.append((stratum.verdicts / count, stratum.share(quality)))
    known = [(weight, share) for weight, share in shares if share is not None]
    if not known or len(known) < len(shares):
        return Rate(None, None, labels)
    mine = weighted(known)
    part = exact(count, count + rest)
    odds_against = Estimate(*((1 - share) / share for share in (part.value, part.high, part.low)))
    bounds = []
    for instead in (_NOTHING, _EVERYTHING):
        parts = []
        for stratum in others:
            parts.append((stratum.verdicts / rest, stratum.share(quality) or instead))
        share = weighted(parts) if others else instead
        # The interval of a product is formed as that of a sum.
        ends = [
            (share.value, odds_against),
            (odds_against.value, share),
        ]
        bounds.append(_around(odds_against.value * share.value, ends))
    fewest, most = bounds
    if mine.value + fewest.value == 0:
        return Rate(None, None, labels)
    odds = (ratio(mine, most).low, ratio(mine, fewest).high)
    span = Interval(*(1.0 if end == inf else end / (1 + end) for end in odds))
    known_all = all(stratum.labels or stratum.word == "UNDETERMINED" for stratum in others)
    return Rate(mine.value / (mine.value + fewest.value) if known_all else None, span, labels)


def wanted(
    strata: Sequence[Stratum], word: GateWord, quality: Quality, bar: float
) -> Wanted | None:
    """Return how many labels more, by word, settle whether a rate holds its bar; None where none would do."""
    tried = list(strata)
    while _gap(rate(tried, word, quality), bar) > 0:
        # Where none helps alone, as with no label at all, the stratum with the fewest is first.
        steps: list[tuple[float, bool, int, int, Stratum]] = []
        for place, (stratum, start) in enumerate(zip(tried, strata, strict=True)):
            if stratum.labels < stratum.verdicts and not stratum.decided:
                labels = min(stratum.verdicts, stratum.labels + max(1, stratum.labels // _STEP))
                if start.labels:
                    good = start.good / start.labels
                else:
                    good = _GOOD_IF_RIGHT[start.word]
                grown = replace(stratum, labels=labels, good=round(good * labels))
                gap = _gap(rate([*tried[:place], grown, *tried[place + 1 :]], word, quality), bar)
                steps.append((gap, stratum.word == "UNDETERMINED", stratum.labels, place, grown))
        if not steps:
            return None
        *_, place, grown = min(steps, key=lambda step: step[:4])
        tried[place] = grown
    added = (
        (after.word, after.labels - before.labels)
        for before, after in zip(strata, tried, strict=True)
    )
    return {word: count for word, count in added if count > 0}


def _gap(found: Rate, bar: float) -> float:
    if found.interval is None or found.labels < LEAST:
        return inf
    if found.estimate is None:
        return 0.0 if found.interval.low > bar else inf
    if found.estimate < bar:
        return found.interval.high - 2 * bar
    return bar - found.interval.low
