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

CONFIDENCE_LEVEL = 0.95
MIN_COUNT = 20  # labels, verdicts: fewer show nothing, since a gate must not flip on a bad day
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE_LEVEL / 2)
_LABELS_PER_STEP = 8  # labels are added in steps of one for each so many that are there already
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


def wilson_interval(hits: int, total: int) -> Interval | None:
    """Return `hits / total` with its Wilson score interval; None if `total` is 0.

    See Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion" (2001).
    """
    if total == 0:
        return None

    mean = hits / total
    square = _Z**2
    shrinkage = 1 + square / total
    centre = (mean + square / (2 * total)) / shrinkage
    variance = mean * (1 - mean) / total + square / (4 * total**2)
    half_width = _Z / shrinkage * sqrt(variance)
    return Interval(mean, low=max(0.0, centre - half_width), high=min(1.0, centre + half_width))


def median_interval(ordered: Sequence[float]) -> Interval | None:
    """Return the median of sorted values with its 95 % interval, or None for fewer than six values.

    The interval's bounds are two of the values, at the ranks that the normal approximation to the binomial
    gives, rounded outwards (Conover, "Practical Nonparametric Statistics", 3.2).
    """
    total = len(ordered)
    # The range of five values covers the median only 94 % of the time.
    if total < 6:  # noqa: PLR2004 - explained above
        return None
    # The lower bound is the value with this rank, counting from 1, and the upper bound mirrors it.
    rank = max(1, floor(total / 2 - _Z * sqrt(total) / 2))
    return Interval(median(ordered), low=ordered[rank - 1], high=ordered[-rank])


@lru_cache(maxsize=4096)
def exact_interval(hits: int, total: int) -> Interval:
    """Return `hits / total` with its exact Clopper-Pearson interval. `total` can't be 0."""
    tail_probability = (1 - CONFIDENCE_LEVEL) / 2
    low = binomial.lower(hits, total, tail_probability)
    high = binomial.upper(hits, total, tail_probability)
    return Interval(hits / total, low, high)


def add_weighted(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Compute the weighted sum of independent non-negative estimates, given as (weight, estimate) pairs.

    Its interval is computed by MOVER (Zou and Donner, Statistics in Medicine 27, 2008).
    """
    value = sum(weight * figure.value for weight, figure in parts)
    return _make_interval(value, parts)


def _make_interval(value: float, parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Combine the intervals of weighted parts to an interval around `value`.

    The parts' errors are independent, so the squares of their distances to their bounds are added.
    """
    distances_below = []
    distances_above = []
    for weight, figure in parts:
        distances_below.append(weight * (figure.value - figure.low))
        distances_above.append(weight * (figure.high - figure.value))
    low = value - hypot(*distances_below)
    high = value + hypot(*distances_above)
    return Interval(value, low=max(0.0, low), high=high)


def bound_ratio(top: Interval, bottom: Interval) -> tuple[float, float]:
    """Return the lower and upper bound of the ratio of two independent non-negative figures.

    If there's no upper bound, returns `inf` for it. The method is MOVER-R (Donner and Zou, Statistical
    Methods in Medical Research 21, 2012, equation 9).
    """
    product = top.value * bottom.value

    def solve(top_end: float, bottom_end: float) -> tuple[float, float, float]:
        """Return the equation's three terms for one bound of each figure."""
        top_term = top_end * (2 * top.value - top_end)
        bottom_term = bottom_end * (2 * bottom.value - bottom_end)
        root = sqrt(max(0.0, product**2 - top_term * bottom_term))
        return top_term, bottom_term, root

    # The ratio is lowest for the lowest top and the highest bottom.
    low = 0.0
    top_term, _, root = solve(top.low, bottom.high)
    if product + root > 0:
        low = top_term / (product + root)  # equal to (product - root) / bottom_term

    # The ratio is highest for the highest top and the lowest bottom.
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
        """Return the share of verdicts with this quality, estimated from labels; None without labels."""
        if not self.labels:
            return None
        if quality == "good":
            hits = self.good
        else:
            hits = self.labels - self.good
        # People chose the decided verdicts, so these are no random sample: the share has no interval.
        if self.decided:
            share = hits / self.labels
            return Interval(share, low=share, high=share)
        return exact_interval(hits, self.labels)


class Rate(NamedTuple):
    """The share of all good (or bad) content that got one word, and the number of `labels` behind it.

    The `estimate` is None if a word without labels may hide more such content; the interval's value then
    assumes that it hides none.
    """

    estimate: float | None
    interval: Interval | None
    labels: int


def estimate_rate(strata: Sequence[Stratum], word: GateWord, quality: Quality) -> Rate:
    """Estimate the share of all good (or bad) content that got `word`, with a 95 % interval.

    This is a post-stratified ratio estimate (Cochran, "Sampling Techniques", 1977, chapters 5 and 6) with
    intervals combined by MOVER. If another word has no labels, the lower bound assumes that all of its
    content has this quality, and the upper bound that none has.
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

    # Compute the amount of content with this quality under the word, and under other words, both per verdict
    # with the word. The rate is the first amount divided by their sum.
    under_word = add_weighted(shares)
    share_of_word = exact_interval(verdicts_with_word, _count_verdicts(strata))
    others_per_verdict = _convert_to_odds(share_of_word)
    # The bounds for labelled strata are the same in both. Only unlabelled strata make the difference.
    least_under_others = _estimate_others(others, quality, others_per_verdict, unlabelled=_NOTHING)
    most_under_others = _estimate_others(
        others, quality, others_per_verdict, unlabelled=_EVERYTHING
    )
    total = under_word.value + least_under_others.value
    if total == 0:
        return nothing_known

    lowest_ratio, _ = bound_ratio(under_word, most_under_others)
    _, highest_ratio = bound_ratio(under_word, least_under_others)
    low = _convert_from_odds(lowest_ratio)
    high = _convert_from_odds(highest_ratio)
    interval = Interval(under_word.value / total, low, high)
    # UNDETERMINED verdicts are rarely labelled, so the estimate doesn't need labels for them.
    are_labelled = all(stratum.labels or stratum.word == "UNDETERMINED" for stratum in others)
    estimate = interval.value if are_labelled else None
    return Rate(estimate, interval, labels)


def _count_verdicts(strata: Sequence[Stratum]) -> int:
    return sum(stratum.verdicts for stratum in strata)


def _convert_to_odds(share: Interval) -> Interval:
    """Convert a share to the odds against it, such as 0.25 to 3.0."""

    def convert(value: float) -> float:
        return (1 - value) / value

    # A larger share has smaller odds against it, so the bounds swap.
    return Interval(convert(share.value), low=convert(share.high), high=convert(share.low))


def _convert_from_odds(odds: float) -> float:
    """Convert odds to a share, such as 3.0 to 0.75, and `inf` to 1.0."""
    if odds == inf:
        return 1.0
    return odds / (1 + odds)


def _estimate_others(
    others: Sequence[Stratum], quality: Quality, odds: Interval, unlabelled: Interval
) -> Interval:
    """Estimate how much good (or bad) content has other words, per verdict with the measured word.

    `others` are the strata with other words, and `odds` is the number of their verdicts per verdict with the
    measured word. Strata without labels are assumed to have the share `unlabelled`.
    """
    count = _count_verdicts(others)
    shares = []
    for stratum in others:
        share = stratum.share(quality) or unlabelled
        shares.append((stratum.verdicts / count, share))
    total_share = add_weighted(shares) if shares else unlabelled

    # Combine the intervals of the two factors as for a sum, with each factor weighted by the other.
    parts = [(total_share.value, odds), (odds.value, total_share)]
    return _make_interval(odds.value * total_share.value, parts)


def count_wanted_labels(
    strata: Sequence[Stratum], word: GateWord, quality: Quality, bar: float
) -> Wanted | None:
    """Estimate how many more labels each verdict word needs to decide whether a rate is below `bar`.

    The rate is for verdicts with `word` on content of this quality. Returns None if even labels for all
    verdicts wouldn't decide it.
    """

    def measure_gap(with_labels: Sequence[Stratum]) -> float:
        return _measure_gap(estimate_rate(with_labels, word, quality), bar)

    # Add hypothetical labels step by step, each time to the stratum where they help most. The gap is how much
    # narrower the rate's interval must get to decide.
    enlarged = list(strata)
    while measure_gap(enlarged) > 0:
        best_index = _find_best_stratum(enlarged, strata, measure_gap)
        if best_index is None:
            return None
        enlarged[best_index] = _add_labels(enlarged[best_index], strata[best_index])

    # by verdict word: the number of labels added
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
    """Find the index of the stratum where more labels reduce the gap most, or None if all are labelled.

    `real` are the actual strata. `enlarged` are the same strata with the hypothetical labels added so far.
    `measure_gap` returns the gap, which is what's missing until the labels are sufficient.
    """
    best_rank = None
    best_index = None
    for index, stratum in enumerate(enlarged):
        if stratum.decided or stratum.labels == stratum.verdicts:
            continue

        # Try what labels in this stratum would achieve.
        trial_strata = [*enlarged]
        trial_strata[index] = _add_labels(stratum, real[index])
        gap = measure_gap(trial_strata)

        # Ties are common before the first labels. Then prefer GO and NO-GO to UNDETERMINED, and after that
        # the stratum with the fewest labels.
        rank = (gap, stratum.word == "UNDETERMINED", stratum.labels)
        if best_rank is None or rank < best_rank:
            best_rank = rank
            best_index = index
    return best_index


def _add_labels(stratum: Stratum, start: Stratum) -> Stratum:
    """Simulate more labels for a stratum, in the proportion found among its real labels.

    `start` is the stratum with its real labels only.
    """
    added_labels = max(1, stratum.labels // _LABELS_PER_STEP)
    labels = min(stratum.verdicts, stratum.labels + added_labels)
    if start.labels:
        good_share = start.good / start.labels
    else:  # assume that the verdicts are right
        good_share = _GOOD_IF_RIGHT[start.word]
    return replace(stratum, labels=labels, good=round(good_share * labels))


def _measure_gap(measured: Rate, bar: float) -> float:
    """Measure how much narrower a rate's interval must get to show whether the rate is below the bar.

    0 or less means that the interval already shows it, and `inf` that there are too few labels.
    """
    interval = measured.interval
    if interval is None or measured.labels < MIN_COUNT:
        return inf
    if measured.estimate is None:
        is_missed = interval.low > bar
        return 0.0 if is_missed else inf
    if measured.estimate < bar:
        return interval.high - 2 * bar  # the interval may extend to twice the bar
    return bar - interval.low
