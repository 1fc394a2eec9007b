"""How often good content gets NO-GO and bad content GO: estimates from labels, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor, hypot, inf, sqrt
from statistics import NormalDist, median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.judging import binomial

if TYPE_CHECKING:
    from judgekit.ledger.records import GateWord

Quality: TypeAlias = Literal["good", "bad"]
Wanted: TypeAlias = Mapping["GateWord", int]

LEVEL = 0.95
LEAST = 20  # labels, verdicts: fewer show nothing, since a gate must not flip on a bad day
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
_STEP = 8  # labels are added in steps of one for each so many that are there already
# The assumed share of good content in a stratum without labels: as if the gate were right.
_GOOD_IF_RIGHT: Mapping[GateWord, float] = {"GO": 1.0, "NO-GO": 0.0, "UNDETERMINED": 0.5}


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its lower and upper bound."""

    value: float
    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def text(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


_NOTHING = Interval(0.0, 0.0, 0.0)
_EVERYTHING = Interval(1.0, 1.0, 1.0)


def share_interval(hits: int, total: int) -> Interval | None:
    """Return the Wilson score interval of `hits` out of `total` (Brown, Cai and DasGupta, 2001)."""
    if total == 0:
        return None
    mean = hits / total
    square = _Z**2
    shrinkage = 1 + square / total
    middle = (mean + square / (2 * total)) / shrinkage
    variance = mean * (1 - mean) / total + square / (4 * total**2)
    half = _Z / shrinkage * sqrt(variance)
    return Interval(mean, low=max(0.0, middle - half), high=min(1.0, middle + half))


def median_interval(ordered: Sequence[float]) -> Interval | None:
    """Return an interval of the median between two order statistics, or None for fewer than six values.

    The ranks are those of the normal approximation to the binomial, rounded outwards (Conover, "Practical
    Nonparametric Statistics", 3.2). With five values even the extremes cover the median only 94 % of the
    time.
    """
    total = len(ordered)
    if total < 6:  # noqa: PLR2004 - explained above
        return None
    below = max(1, floor(total / 2 - _Z * sqrt(total) / 2))
    return Interval(median(ordered), low=ordered[below - 1], high=ordered[total - below])


@lru_cache(maxsize=4096)
def exact(hits: int, total: int) -> Interval:
    """Return the share of `hits` in `total`, at least 1, with the exact interval of Clopper and Pearson."""
    tail = (1 - LEVEL) / 2
    low = binomial.lower(hits, total, tail)
    high = binomial.upper(hits, total, tail)
    return Interval(hits / total, low, high)


def weighted(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Return the weighted sum of independent non-negative figures (Zou and Donner, 2008: MOVER)."""
    return _make_interval(sum(weight * part.value for weight, part in parts), parts)


def _make_interval(value: float, parts: Sequence[tuple[float, Interval]]) -> Interval:
    below = []
    above = []
    for weight, part in parts:
        below.append(weight * (part.value - part.low))
        above.append(weight * (part.high - part.value))
    low = max(0.0, value - hypot(*below))
    return Interval(value, low, high=value + hypot(*above))


def ratio_bounds(top: Interval, bottom: Interval) -> tuple[float, float]:
    """Return the bounds of the ratio of two independent non-negative figures; `inf` means unbounded.

    Donner and Zou, Statistical Methods in Medical Research 21 (2012), equation 9 (MOVER-R).
    """
    middle = top.value * bottom.value

    def parts(top_end: float, bottom_end: float) -> tuple[float, float, float]:
        above = top_end * (2 * top.value - top_end)
        below = bottom_end * (2 * bottom.value - bottom_end)
        return above, below, sqrt(max(0.0, middle**2 - above * below))

    low = 0.0
    above, _, root = parts(top.low, bottom.high)
    if middle + root > 0:
        low = above / (middle + root)
    high = inf
    _, below, root = parts(top.high, bottom.low)
    if below > 0:
        high = (middle + root) / below
    return low, high


@dataclass(frozen=True, slots=True)
class Stratum:
    """Verdicts with one word, their labels, and the good ones. If `decided`, they're no sample of others."""

    word: GateWord
    verdicts: int
    labels: int
    good: int
    decided: bool = False

    def share(self, quality: Quality) -> Interval | None:
        """Return the share of this quality among the labels, or None without labels.

        People choose which verdicts they decide about, so `decided` ones are counted, not extrapolated.
        """
        if not self.labels:
            return None
        if quality == "good":
            hits = self.good
        else:
            hits = self.labels - self.good
        if self.decided:
            share = hits / self.labels
            return Interval(share, low=share, high=share)
        return exact(hits, self.labels)


class Rate(NamedTuple):
    """The share of all good (or bad) content that got one word, and the number of `labels` behind it.

    The `estimate` is None if a word without labels may hide more such content; the interval's value then
    assumes that it hides none.
    """

    estimate: float | None
    interval: Interval | None
    labels: int


def rate(strata: Sequence[Stratum], word: GateWord, quality: Quality) -> Rate:
    """Estimate how much of all good (or bad) content got `word`, with a 95 % interval.

    Each stratum's labelled share is scaled to the stratum's size: a post-stratified ratio estimate (Cochran,
    "Sampling Techniques", 1977, chapters 5 and 6). MOVER combines the Clopper-Pearson interval of each share
    with that of the word's share of all verdicts. Nothing is known about a stratum without labels: the lower
    end assumes that all of it has this quality, the upper end that none of it has.
    """
    labels = 0
    same_word = []
    others = []
    for stratum in strata:
        if not stratum.verdicts:
            continue
        labels += stratum.labels
        if stratum.word == word:
            same_word.append(stratum)
        else:
            others.append(stratum)
    count = _count_verdicts(same_word)
    rest = _count_verdicts(others)
    shares = []
    for stratum in same_word:
        share = stratum.share(quality)
        if share is None:
            return Rate(None, None, labels)
        shares.append((stratum.verdicts / count, share))
    if not shares:
        return Rate(None, None, labels)
    with_word = weighted(shares)
    odds = _odds_against(exact(count, count + rest))
    fewest = _odds_of_others(others, quality, odds, unlabelled=_NOTHING)
    most = _odds_of_others(others, quality, odds, unlabelled=_EVERYTHING)
    total = with_word.value + fewest.value
    if total == 0:
        return Rate(None, None, labels)
    lowest_odds, _ = ratio_bounds(with_word, most)
    _, highest_odds = ratio_bounds(with_word, fewest)
    low = _share_of_odds(lowest_odds)
    high = _share_of_odds(highest_odds)
    span = Interval(with_word.value / total, low, high)
    are_labelled = all(stratum.labels or stratum.word == "UNDETERMINED" for stratum in others)
    return Rate(span.value if are_labelled else None, span, labels)


def _count_verdicts(strata: Sequence[Stratum]) -> int:
    return sum(stratum.verdicts for stratum in strata)


def _odds_against(share: Interval) -> Interval:
    def odds(share: float) -> float:
        return (1 - share) / share

    return Interval(odds(share.value), low=odds(share.high), high=odds(share.low))


def _share_of_odds(odds: float) -> float:
    if odds == inf:
        return 1.0
    return odds / (1 + odds)


def _odds_of_others(
    others: Sequence[Stratum], quality: Quality, odds: Interval, unlabelled: Interval
) -> Interval:
    """Estimate the content of a quality under other words, per verdict with the word in question.

    `odds` are those of other words; strata without labels count as `unlabelled`.
    """
    rest = _count_verdicts(others)
    parts = []
    for stratum in others:
        parts.append((stratum.verdicts / rest, stratum.share(quality) or unlabelled))
    share = weighted(parts) if parts else unlabelled
    # A product's interval is formed like a sum's.
    return _make_interval(odds.value * share.value, [(share.value, odds), (odds.value, share)])


def wanted(
    strata: Sequence[Stratum], word: GateWord, quality: Quality, bar: float
) -> Wanted | None:
    """Estimate the labels still needed, by word, to settle a rate against its bar; None if none would do."""
    tried = list(strata)
    while _measure_gap(rate(tried, word, quality), bar) > 0:
        # If no stratum helps by itself (there may be no label at all), the one with the fewest comes first.
        steps = []
        for index, (stratum, start) in enumerate(zip(tried, strata, strict=True)):
            if stratum.labels < stratum.verdicts and not stratum.decided:
                grown = _add_labels(stratum, start)
                strata_then = [*tried]
                strata_then[index] = grown
                gap = _measure_gap(rate(strata_then, word, quality), bar)
                steps.append((gap, stratum.word == "UNDETERMINED", stratum.labels, index, grown))
        if not steps:
            return None
        *_, index, grown = min(steps, key=lambda step: step[:4])
        tried[index] = grown
    more = {}
    for before, after in zip(strata, tried, strict=True):
        if after.labels > before.labels:
            more[after.word] = after.labels - before.labels
    return more


def _add_labels(stratum: Stratum, start: Stratum) -> Stratum:
    """Add some labels to a stratum, with the same share of good ones as at the `start`."""
    labels = min(stratum.verdicts, stratum.labels + max(1, stratum.labels // _STEP))
    if start.labels:
        good_share = start.good / start.labels
    else:
        good_share = _GOOD_IF_RIGHT[start.word]
    return replace(stratum, labels=labels, good=round(good_share * labels))


def _measure_gap(measured: Rate, bar: float) -> float:
    """Measure a rate's distance from being settled; 0 or less if it holds its bar or misses it."""
    if measured.interval is None or measured.labels < LEAST:
        return inf
    if measured.estimate is None:
        return 0.0 if measured.interval.low > bar else inf
    if measured.estimate < bar:
        return measured.interval.high - 2 * bar
    return bar - measured.interval.low
