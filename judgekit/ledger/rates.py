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
# 1.96: the standard errors on either side of a 95 % interval, if errors are normally distributed.
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE_LEVEL / 2)
_LABELS_PER_ADDED_LABEL = 8  # a step adds one label for each so many that are there already
# The assumed share of good content in a stratum without labels: as if the gate were right.
_GOOD_SHARE_BY_WORD: Mapping[GateWord, float] = {"GO": 1.0, "NO-GO": 0.0, "UNDETERMINED": 0.5}


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


_ZERO_INTERVAL = Interval(0.0, 0.0, 0.0)
_ONE_INTERVAL = Interval(1.0, 1.0, 1.0)


def wilson_interval(hits: int, total: int) -> Interval | None:
    """Return `hits / total` with its 95 % Wilson score interval; None if `total` is 0.

    See Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion" (2001).
    """
    if total == 0:
        return None

    mean = hits / total
    z_squared = _Z**2
    shrinkage = 1 + z_squared / total
    centre = (mean + z_squared / (2 * total)) / shrinkage
    variance = mean * (1 - mean) / total + z_squared / (4 * total**2)
    half_width = _Z / shrinkage * sqrt(variance)

    low = max(0.0, centre - half_width)
    high = min(1.0, centre + half_width)
    return Interval(mean, low=low, high=high)


def median_interval(ordered: Sequence[float]) -> Interval | None:
    """Return the median of sorted values with its 95 % interval, or None for fewer than six values.

    The interval's bounds are two of the values. Their ranks come from the normal approximation to the
    binomial distribution (Conover, "Practical Nonparametric Statistics", 3.2).
    """
    total = len(ordered)
    # The range of five values covers the median only 94 % of the time.
    if total < 6:  # noqa: PLR2004 - explained above
        return None

    # Rounding down makes the interval wider, never narrower.
    approximate_rank = floor(total / 2 - _Z * sqrt(total) / 2)
    rank = max(1, approximate_rank)
    low = ordered[rank - 1]  # ranks count from 1
    high = ordered[-rank]  # the same rank, counted from the end
    return Interval(median(ordered), low=low, high=high)


@lru_cache(maxsize=4096)
def exact_interval(hits: int, total: int) -> Interval:
    """Return `hits / total` with its exact Clopper-Pearson interval. `total` can't be 0."""
    tail_probability = (1 - CONFIDENCE_LEVEL) / 2
    low = binomial.lower(hits, total, tail_probability)
    high = binomial.compute_upper_bound(hits, total, tail_probability)
    return Interval(hits / total, low, high)


def add_weighted(parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Compute the weighted sum of independent non-negative estimates, given as (weight, estimate) pairs.

    The sum's interval is combined from theirs by MOVER, the method of variance estimates recovery (Zou and
    Donner, Statistics in Medicine 27, 2008).
    """
    total = sum(weight * estimate.value for weight, estimate in parts)
    return _combine_intervals(total, parts)


def _combine_intervals(value: float, parts: Sequence[tuple[float, Interval]]) -> Interval:
    """Combine the intervals of weighted estimates to an interval around `value`."""
    margins_below = []
    margins_above = []
    for weight, estimate in parts:
        margins_below.append(weight * (estimate.value - estimate.low))
        margins_above.append(weight * (estimate.high - estimate.value))
    # The errors are independent, so a combined margin is the root of the sum of the squared margins.
    low = value - hypot(*margins_below)
    high = value + hypot(*margins_above)
    # The estimates can't be negative.
    return Interval(value, low=max(0.0, low), high=high)


def bound_ratio(top: Interval, bottom: Interval) -> tuple[float, float]:
    """Return the lower and upper bound of the ratio of two independent non-negative estimates.

    If there's no upper bound, returns `inf` for it. The method is MOVER-R (Donner and Zou, Statistical
    Methods in Medical Research 21, 2012, equation 9).
    """
    # The bounds are (product ± root) / bottom_term. A bound's term is bound * (2 * value - bound), and the
    # root is sqrt(product**2 - top_term * bottom_term).
    product = top.value * bottom.value

    # The ratio is lowest for the lowest top and the highest bottom.
    top_term = _compute_term(top, top.low)
    bottom_term = _compute_term(bottom, bottom.high)
    divisor = product + _compute_root(product, top_term, bottom_term)
    # This equals (product - root) / bottom_term, and is defined even if bottom_term is 0.
    low = top_term / divisor if divisor > 0 else 0.0

    # The ratio is highest for the highest top and the lowest bottom.
    top_term = _compute_term(top, top.high)
    bottom_term = _compute_term(bottom, bottom.low)
    numerator = product + _compute_root(product, top_term, bottom_term)
    high = numerator / bottom_term if bottom_term > 0 else inf
    return low, high


def _compute_term(estimate: Interval, bound: float) -> float:
    """Compute the term of MOVER-R's equation for one of an estimate's bounds."""
    return bound * (2 * estimate.value - bound)


def _compute_root(product: float, top_term: float, bottom_term: float) -> float:
    """Compute the square root in MOVER-R's equation."""
    # Rounding can make the radicand negative if it's almost 0.
    radicand = max(0.0, product**2 - top_term * bottom_term)
    return sqrt(radicand)


@dataclass(frozen=True, slots=True)
class Stratum:
    """Verdicts with one word, their labels, and the good ones among these.

    `is_overridden` are verdicts that people have overridden, which makes them no sample of others.
    """

    word: GateWord
    verdict_count: int
    label_count: int
    good_count: int
    is_overridden: bool = False

    def share(self, quality: Quality) -> Interval | None:
        """Return the share of verdicts with this quality, estimated from labels; None without labels."""
        if not self.label_count:
            return None
        hits = self.good_count if quality == "good" else self.label_count - self.good_count

        # Overridden verdicts all have a label, so their share is exact. They aren't a sample of the others,
        # because people chose them.
        if self.is_overridden:
            share = hits / self.label_count
            return Interval(share, low=share, high=share)
        return exact_interval(hits, self.label_count)


class Rate(NamedTuple):
    """The share of all good (or bad) content that got one word, and the number of labels behind it.

    The `estimate` is None if a word without labels may hide more such content; the interval's value then
    assumes that it hides none.
    """

    estimate: float | None
    interval: Interval | None
    label_count: int


def estimate_rate(strata: Sequence[Stratum], word: GateWord, quality: Quality) -> Rate:
    """Estimate the share of all good (or bad) content that got `word`, with a 95 % interval.

    This is a post-stratified ratio estimate (Cochran, "Sampling Techniques", 1977, chapters 5 and 6) with
    intervals combined by MOVER.
    """
    strata = [stratum for stratum in strata if stratum.verdict_count]
    same_word = [stratum for stratum in strata if stratum.word == word]
    others = [stratum for stratum in strata if stratum.word != word]
    label_count = sum(stratum.label_count for stratum in strata)
    unknown_rate = Rate(None, None, label_count)

    # Compare the content with this quality under the word and under the other words. Both amounts are per
    # verdict with the word.
    under_word = _estimate_same_word(same_word, quality)
    if under_word is None:
        return unknown_rate

    share_of_word = exact_interval(_count_verdicts(same_word), _count_verdicts(strata))
    others_per_verdict = _convert_to_odds(share_of_word)  # other verdicts per verdict with the word
    # Without labels for another word, none or all of its content may have this quality.
    least_elsewhere = _estimate_others(
        others, quality, others_per_verdict, unlabelled=_ZERO_INTERVAL
    )
    most_elsewhere = _estimate_others(others, quality, others_per_verdict, unlabelled=_ONE_INTERVAL)

    total = under_word.value + least_elsewhere.value
    if total == 0:
        return unknown_rate
    low, high = _bound_rate(under_word, least_elsewhere, most_elsewhere)
    interval = Interval(under_word.value / total, low, high)
    # The value assumes the least content elsewhere. If that's doubtful, there's no estimate.
    estimate = interval.value if _can_estimate(others) else None
    return Rate(estimate, interval, label_count)


def _estimate_same_word(same_word: Sequence[Stratum], quality: Quality) -> Interval | None:
    """Estimate the share of a word's content with a quality.

    Returns None if any of the word's strata has no labels, or if there are no strata.
    """
    count = _count_verdicts(same_word)
    weighted_shares = []
    for stratum in same_word:
        share = stratum.share(quality)
        if share is None:
            return None
        weighted_shares.append((stratum.verdict_count / count, share))
    return add_weighted(weighted_shares) if weighted_shares else None


def _count_verdicts(strata: Sequence[Stratum]) -> int:
    return sum(stratum.verdict_count for stratum in strata)


def _convert_to_odds(share: Interval) -> Interval:
    """Convert a share to the odds against it: a share of 0.25 has odds of 3.0 against it."""

    def convert(value: float) -> float:
        return (1 - value) / value

    # A larger share has smaller odds against it, so the bounds swap.
    return Interval(convert(share.value), low=convert(share.high), high=convert(share.low))


def _estimate_others(
    others: Sequence[Stratum],
    quality: Quality,
    others_per_verdict: Interval,
    unlabelled: Interval,
) -> Interval:
    """Estimate how much content with this quality other words have, per verdict with the measured word.

    `others` are the strata with other words, and `others_per_verdict` is the number of their verdicts per
    verdict with the measured word. `unlabelled` is the assumed share in strata without labels.
    """
    count = _count_verdicts(others)
    weighted_shares = []
    for stratum in others:
        share = stratum.share(quality)
        if share is None:
            share = unlabelled
        weight = stratum.verdict_count / count
        weighted_shares.append((weight, share))
    share_of_others = add_weighted(weighted_shares) if weighted_shares else unlabelled
    return _multiply(others_per_verdict, share_of_others)


def _multiply(first: Interval, second: Interval) -> Interval:
    """Multiply two independent estimates."""
    # The intervals combine as for a sum, with each factor weighted by the other.
    parts = [(second.value, first), (first.value, second)]
    return _combine_intervals(first.value * second.value, parts)


def _bound_rate(
    under_word: Interval, least_elsewhere: Interval, most_elsewhere: Interval
) -> tuple[float, float]:
    """Return the bounds of a word's rate, from the amounts of content under it and under other words."""
    # The more content is under other words, the lower the rate.
    lowest_ratio, _ = bound_ratio(under_word, most_elsewhere)
    _, highest_ratio = bound_ratio(under_word, least_elsewhere)
    return _convert_from_odds(lowest_ratio), _convert_from_odds(highest_ratio)


def _convert_from_odds(odds: float) -> float:
    """Convert odds to a share, such as 3.0 to 0.75, and `inf` to 1.0."""
    if odds == inf:
        return 1.0
    return odds / (1 + odds)


def _can_estimate(others: Sequence[Stratum]) -> bool:
    """Whether the strata of other words have the labels that an estimate needs."""
    # UNDETERMINED verdicts are rarely labelled, so the estimate does without labels for them.
    return all(stratum.label_count or stratum.word == "UNDETERMINED" for stratum in others)


def count_wanted_labels(
    strata: Sequence[Stratum], word: GateWord, quality: Quality, bar: float
) -> Wanted | None:
    """Estimate how many more labels each verdict word needs to show whether a rate is below `bar`.

    The rate is the share of content with this quality that got `word`. Returns None if even labels for all
    verdicts wouldn't be enough.
    """

    def measure_gap(trial_strata: Sequence[Stratum]) -> float:
        """Measure how far the labels are from being enough; 0 or less if they are."""
        return _measure_gap_to(bar, estimate_rate(trial_strata, word, quality))

    # Add hypothetical labels step by step, each time to the stratum in which they help most.
    enlarged = list(strata)
    while measure_gap(enlarged) > 0:
        best_index = _find_best_stratum(enlarged, strata, measure_gap)
        if best_index is None:
            return None
        enlarged[best_index] = _add_labels(enlarged[best_index], strata[best_index])

    return _count_added_labels(strata, enlarged)


def _measure_gap_to(bar: float, measured: Rate) -> float:
    """Measure how far an interval is from showing that the rate is below (or above) the bar.

    Returns 0 or less if the interval shows that, and `inf` if there are too few labels.
    """
    interval = measured.interval
    if interval is None or measured.label_count < MIN_COUNT:
        return inf

    # Without an estimate, the rate can't be shown to be below the bar, but it can be shown to be above it.
    if measured.estimate is None:
        is_above_bar = interval.low > bar
        return 0.0 if is_above_bar else inf

    seems_below_bar = measured.estimate < bar
    if seems_below_bar:
        # An estimate below the bar is good enough if its interval ends within twice the bar.
        highest_allowed = 2 * bar
        return interval.high - highest_allowed
    # To be above the bar, the whole interval must be.
    return bar - interval.low


def _find_best_stratum(
    enlarged: Sequence[Stratum],
    real: Sequence[Stratum],
    measure_gap: Callable[[Sequence[Stratum]], float],
) -> int | None:
    """Find the index of the stratum in which more labels reduce the gap most, or None if all are labelled.

    `real` are the actual strata. `enlarged` are the same strata with the hypothetical labels added so far.
    `measure_gap` says how far the labels are from being enough.
    """
    best_rank = None
    best_index = None
    for index, stratum in enumerate(enlarged):
        if not _can_get_labels(stratum):
            continue

        # Try the effect of labels in this stratum.
        trial_strata = [*enlarged]
        trial_strata[index] = _add_labels(stratum, real[index])
        gap = measure_gap(trial_strata)

        # Ties are common before the first labels. Then prefer GO and NO-GO to UNDETERMINED, and after that
        # the stratum with the fewest labels.
        rank = (gap, stratum.word == "UNDETERMINED", stratum.label_count)
        if best_rank is None or rank < best_rank:
            best_rank = rank
            best_index = index
    return best_index


def _can_get_labels(stratum: Stratum) -> bool:
    """Whether a stratum has verdicts that people can still label."""
    # An override counts as a label, so all overridden verdicts have one.
    if stratum.is_overridden:
        return False
    return stratum.label_count != stratum.verdict_count


def _add_labels(stratum: Stratum, real: Stratum) -> Stratum:
    """Simulate more labels for a stratum. The same share of them is "good" as in `real`.

    `real` is the stratum without simulated labels.
    """
    # Steps grow with the number of labels, so that large strata need fewer.
    added_count = max(1, stratum.label_count // _LABELS_PER_ADDED_LABEL)
    label_count = min(stratum.verdict_count, stratum.label_count + added_count)
    if real.label_count:
        good_share = real.good_count / real.label_count
    else:  # assume that the verdicts are right
        good_share = _GOOD_SHARE_BY_WORD[real.word]
    good_count = round(good_share * label_count)
    return replace(stratum, label_count=label_count, good_count=good_count)


def _count_added_labels(strata: Sequence[Stratum], enlarged: Sequence[Stratum]) -> Wanted:
    """Count the labels added for each verdict word. Words without added labels are left out."""
    added_by_word = {}
    for before, after in zip(strata, enlarged, strict=True):
        # A word has only one stratum that gets labels, since overridden verdicts have theirs already.
        if after.label_count > before.label_count:
            added_by_word[after.word] = after.label_count - before.label_count
    return added_by_word
