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
    from collections.abc import Callable

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
    """Return the share of `hits` in `total` with its Wilson score interval; None if `total` is 0.

    Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion" (2001).
    """
    if total == 0:
        return None
    mean = hits / total
    square = _Z**2
    shrinkage = 1 + square / total
    center = (mean + square / (2 * total)) / shrinkage
    variance = mean * (1 - mean) / total + square / (4 * total**2)
    half_width = _Z / shrinkage * sqrt(variance)
    return Interval(mean, low=max(0.0, center - half_width), high=min(1.0, center + half_width))


def median_interval(ordered: Sequence[float]) -> Interval | None:
    """Return the median of sorted values, with its interval; None for fewer than six values.

    The interval's ends are two of the values. Their ranks are those of the normal approximation to the
    binomial, rounded outwards (Conover, "Practical Nonparametric Statistics", 3.2). With five values, even
    the interval from the lowest to the highest covers the median only 94 % of the time.
    """
    total = len(ordered)
    if total < 6:  # noqa: PLR2004 - explained above
        return None
    # The lower end is the value with this rank, from 1, counted from the lowest value. The upper end is the
    # one with the same rank counted from the highest.
    rank = max(1, floor(total / 2 - _Z * sqrt(total) / 2))
    return Interval(median(ordered), low=ordered[rank - 1], high=ordered[-rank])


@lru_cache(maxsize=4096)
def exact(hits: int, total: int) -> Interval:
    """Return the share of `hits` in a non-zero `total`, with the exact interval of Clopper and Pearson."""
    tail_probability = (1 - LEVEL) / 2
    low = binomial.lower(hits, total, tail_probability)
    high = binomial.upper(hits, total, tail_probability)
    return Interval(hits / total, low, high)


def weighted(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Return the weighted sum of independent non-negative figures, given as (weight, figure).

    Zou and Donner, Statistics in Medicine 27 (2008): MOVER.
    """
    value = sum(weight * figure.value for weight, figure in parts)
    return _make_interval(value, parts)


def _make_interval(value: float, parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Return a value with an interval that's combined from the intervals of weighted `parts`.

    The distance of an end from the value is the root of the sum of the squares of the parts' distances, as
    for independent errors.
    """
    distances_below = []
    distances_above = []
    for weight, figure in parts:
        distances_below.append(weight * (figure.value - figure.low))
        distances_above.append(weight * (figure.high - figure.value))
    low = value - hypot(*distances_below)
    high = value + hypot(*distances_above)
    return Interval(value, low=max(0.0, low), high=high)


def ratio_bounds(top: Interval, bottom: Interval) -> tuple[float, float]:
    """Return the lower and the upper bound of the ratio of two independent non-negative figures.

    The upper bound is `inf` if there's none.

    Donner and Zou, Statistical Methods in Medical Research 21 (2012), equation 9 (MOVER-R).
    """
    product = top.value * bottom.value

    def solve(top_end: float, bottom_end: float) -> tuple[float, float, float]:
        """Return the equation's three terms for one end of each figure's interval."""
        top_term = top_end * (2 * top.value - top_end)
        bottom_term = bottom_end * (2 * bottom.value - bottom_end)
        root = sqrt(max(0.0, product**2 - top_term * bottom_term))
        return top_term, bottom_term, root

    low = 0.0
    top_term, _, root = solve(top.low, bottom.high)
    if product + root > 0:
        low = top_term / (product + root)  # the same as (product - root) / bottom_term
    high = inf
    _, bottom_term, root = solve(top.high, bottom.low)
    if bottom_term > 0:
        high = (product + root) / bottom_term
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
        """Return the share of verdicts with this quality, estimated from the labels; None without labels.

        If the stratum is `decided`, people chose these verdicts themselves, so they're no sample. Then the
        share is exact, without an interval around it.
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
    with that of the word's share of all verdicts. If another word has no labels, the lower end of the
    interval assumes that all of its content has this quality, and the upper end that none of it has.
    """
    strata = [stratum for stratum in strata if stratum.verdicts]
    same_word = [stratum for stratum in strata if stratum.word == word]
    others = [stratum for stratum in strata if stratum.word != word]
    labels = sum(stratum.labels for stratum in strata)
    nothing_known = Rate(None, None, labels)

    verdicts_with_word = _count_verdicts(same_word)
    shares = []
    for stratum in same_word:
        share = stratum.share(quality)
        if share is None:
            return nothing_known
        shares.append((stratum.verdicts / verdicts_with_word, share))
    if not shares:
        return nothing_known

    # Content of this quality, under the word and under the other words, both per verdict with the word. The
    # rate is the first amount divided by the sum of the two.
    under_word = weighted(shares)
    share_of_word = exact(verdicts_with_word, _count_verdicts(strata))
    others_per_verdict = _convert_to_odds(share_of_word)
    least_under_others = _estimate_others(others, quality, others_per_verdict, unlabelled=_NOTHING)
    most_under_others = _estimate_others(
        others, quality, others_per_verdict, unlabelled=_EVERYTHING
    )
    total = under_word.value + least_under_others.value
    if total == 0:
        return nothing_known

    lowest_ratio, _ = ratio_bounds(under_word, most_under_others)
    _, highest_ratio = ratio_bounds(under_word, least_under_others)
    low = _convert_from_odds(lowest_ratio)
    high = _convert_from_odds(highest_ratio)
    interval = Interval(under_word.value / total, low, high)
    # UNDETERMINED verdicts aren't labelled, so they don't count here.
    are_labelled = all(stratum.labels or stratum.word == "UNDETERMINED" for stratum in others)
    estimate = interval.value if are_labelled else None
    return Rate(estimate, interval, labels)


def _count_verdicts(strata: Sequence[Stratum]) -> int:
    return sum(stratum.verdicts for stratum in strata)


def _convert_to_odds(share: Interval) -> Interval:
    """Convert a share to the odds against it, such as a quarter to 3.0.

    The interval's bounds change places, since a larger share has smaller odds against it.
    """

    def convert(share: float) -> float:
        return (1 - share) / share

    return Interval(convert(share.value), low=convert(share.high), high=convert(share.low))


def _convert_from_odds(odds: float) -> float:
    """Convert odds to the share that has them, such as 3.0 to 0.75. Infinite odds give 1.0."""
    if odds == inf:
        return 1.0
    return odds / (1 + odds)


def _estimate_others(
    others: Sequence[Stratum], quality: Quality, odds: Interval, unlabelled: Interval
) -> Interval:
    """Estimate how much good (or bad) content has other words than the word in question.

    The amount is per verdict with the word in question. `odds` is the number of verdicts with other words for
    each of those. `unlabelled` is the share that's assumed for strata without labels.
    """
    count = _count_verdicts(others)
    shares = []
    for stratum in others:
        share = stratum.share(quality) or unlabelled
        shares.append((stratum.verdicts / count, share))
    total_share = weighted(shares) if shares else unlabelled
    # A product's interval is formed like a sum's, with each factor weighted by the other.
    parts = [(total_share.value, odds), (odds.value, total_share)]
    return _make_interval(odds.value * total_share.value, parts)


def wanted(
    strata: Sequence[Stratum], word: GateWord, quality: Quality, bar: float
) -> Wanted | None:
    """Estimate how many more labels of each word are needed to decide whether a rate is below its `bar`.

    To find out, labels are added step by step, each time to the stratum in which they help most. None if
    labelling all verdicts wouldn't decide it.
    """

    def measure_gap(with_labels: Sequence[Stratum]) -> float:
        return _measure_gap(rate(with_labels, word, quality), bar)

    enlarged = list(strata)
    while measure_gap(enlarged) > 0:
        best_index = _find_best_stratum(enlarged, strata, measure_gap)
        if best_index is None:
            return None
        enlarged[best_index] = _add_labels(enlarged[best_index], strata[best_index])

    needed_labels = {}
    for stratum_before, stratum_after in zip(strata, enlarged, strict=True):
        if stratum_after.labels > stratum_before.labels:
            needed_labels[stratum_after.word] = stratum_after.labels - stratum_before.labels
    return needed_labels


def _find_best_stratum(
    enlarged: Sequence[Stratum],
    real: Sequence[Stratum],
    measure_gap: Callable[[Sequence[Stratum]], float],
) -> int | None:
    """Find the index of the stratum in which some more labels make the gap smallest.

    `enlarged` are the `real` strata with the labels added so far. None if everything is labelled.
    """
    best_rank = None
    best_index = None
    for index, stratum in enumerate(enlarged):
        if stratum.decided or stratum.labels == stratum.verdicts:
            continue
        trial_strata = [*enlarged]
        trial_strata[index] = _add_labels(stratum, real[index])
        gap = measure_gap(trial_strata)
        # If the gap is the same for all strata, as it is without any labels, take the one with the fewest
        # labels. UNDETERMINED comes last.
        rank = (gap, stratum.word == "UNDETERMINED", stratum.labels)
        if best_rank is None or rank < best_rank:
            best_rank = rank
            best_index = index
    return best_index


def _add_labels(stratum: Stratum, start: Stratum) -> Stratum:
    """Return a stratum with some more labels, as if more people had labelled.

    The share of good ones is that of its real labels, which the stratum `start` has.
    """
    added_labels = max(1, stratum.labels // _STEP)
    labels = min(stratum.verdicts, stratum.labels + added_labels)
    if start.labels:
        good_share = start.good / start.labels
    else:
        good_share = _GOOD_IF_RIGHT[start.word]
    return replace(stratum, labels=labels, good=round(good_share * labels))


def _measure_gap(measured: Rate, bar: float) -> float:
    """Measure how far a rate's interval is from showing that the rate is below the bar, or that it isn't.

    0 or less means that it shows one of these. `inf` means that there are too few labels to tell.
    """
    interval = measured.interval
    if interval is None or measured.labels < LEAST:
        return inf
    if measured.estimate is None:
        is_missed = interval.low > bar
        return 0.0 if is_missed else inf
    if measured.estimate < bar:
        return interval.high - 2 * bar  # a rate that holds may have an interval up to twice the bar
    return bar - interval.low
