"""Figures over labelled items: agreement with labels, reliability of probabilities, and their intervals.

Intervals come from drawing the items again, with replacement: the percentile method of Efron and Tibshirani,
"An Introduction to the Bootstrap", 1993, chapter 13, as Sakai, "Evaluating evaluation metrics based on the
bootstrap", SIGIR 2006, uses it for retrieval. The seed is fixed, so an interval is reproducible, and figures
over equally many items rest on the same draws. What could not be read is neither right nor wrong: it is
counted apart.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations, product
from math import sqrt
from random import Random
from statistics import (
    NormalDist,
    StatisticsError,
    correlation,
    covariance,
    fmean,
    pvariance,
    variance,
)
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel

from judgekit.ledger.rates import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

RESAMPLES = 2_000
CONFIDENCE_LEVEL = 0.95
SEED = 20_020_401
BINS = 10
OUTCOMES = ("reject", "improve", "accept")  # from worst to best
# Nothing was decided: it neither agrees nor disagrees with a label.
UNDECIDED = (
    "undetermined",
    "escalate",
)

Key = TypeVar("Key", bound="Hashable")
Pair: TypeAlias = tuple[str, str]
"""The label and the answer."""


class ReportPart(BaseModel, frozen=True):
    """Base of the parts of reports."""


class Resampling(ReportPart):
    level: float = CONFIDENCE_LEVEL
    resamples: int = RESAMPLES
    seed: int = SEED


class Measure(NamedTuple):
    """A ratio of two sums, with each item's contribution to both."""

    numerators: Sequence[float]
    denominators: Sequence[float]


def mean(values: Sequence[float]) -> Measure:
    return Measure(values, [1.0] * len(values))


def bootstrap(
    size: int, compute_statistic: Callable[[Sequence[int]], float | None]
) -> Interval | None:
    """Compute a statistic of `size` items, with a bootstrap interval. Returns None if it's undefined.

    `compute_statistic` computes it for the items at the given positions, which can repeat.
    """
    value = compute_statistic(range(size))
    if value is None:
        return None

    generator = Random(SEED)  # noqa: S311 - for statistics, not for secrets
    resampled_values = []
    for _ in range(RESAMPLES):
        positions = generator.choices(range(size), k=size)
        resampled_value = compute_statistic(positions)
        if resampled_value is not None:
            resampled_values.append(resampled_value)

    # The interval's bounds cut off the same fraction of the values at both ends.
    resampled_values.sort()
    tail = (1 - CONFIDENCE_LEVEL) / 2
    last_position = len(resampled_values) - 1
    low_bound = resampled_values[round(tail * last_position)]
    high_bound = resampled_values[round((1 - tail) * last_position)]
    return Interval(value, low_bound, high_bound)


def interval(measure: Measure) -> Interval | None:
    """Divide a measure's summed numerators by its summed denominators, with a bootstrap interval.

    Returns None if the denominators are 0.
    """
    numerators, denominators = measure

    def compute_ratio(positions: Sequence[int]) -> float | None:
        """Compute the ratio for the items at these positions."""
        denominator = sum([denominators[position] for position in positions])
        if denominator == 0:
            return None
        numerator = sum([numerators[position] for position in positions])
        return numerator / denominator

    return bootstrap(len(numerators), compute_ratio)


def intervals(measures: Mapping[str, Measure]) -> dict[str, Interval | None]:
    """Compute the intervals of multiple measures from the same resamples.

    Raises `ValueError` if the measures have different sizes.
    """
    sizes = {len(column) for measure in measures.values() for column in measure}
    if len(sizes) > 1:
        raise ValueError(f"expected measures over the same queries, got {sorted(sizes)} of them")

    # The resamples only depend on the fixed seed and the size, so they're the same for each measure.
    return {name: interval(measure) for name, measure in measures.items()}


def difference(first: Sequence[float], second: Sequence[float]) -> Interval | None:
    """Compute the interval of a difference between two means. Raises `ValueError` for unequal sizes."""
    differences = [value - other for value, other in zip(first, second, strict=True)]
    return interval(mean(differences))


def measure_disagreement(groups: Sequence[Sequence[str]]) -> Measure:
    """Measure how often two answers in the same group differ.

    In each group, the numerator counts the pairs that differ, and the denominator counts all pairs.
    """
    differing_counts = []
    pair_counts = []
    for group in groups:
        pairs = list(combinations(group, 2))
        differing_pairs = [pair for pair in pairs if pair[0] != pair[1]]
        differing_counts.append(len(differing_pairs))
        pair_counts.append(len(pairs))
    return Measure(differing_counts, pair_counts)


def repeatability(groups: Sequence[Sequence[float]]) -> Interval | None:
    """Compute the standard deviation within groups of repeated values (ISO 5725-2: s_r)."""
    # The pooled variance is the sum of squares, divided by the degrees of freedom.
    sums_of_squares = []
    degrees_of_freedom = []
    for group in groups:
        sums_of_squares.append(pvariance(group) * len(group))
        degrees_of_freedom.append(len(group) - 1)
    measure = Measure(numerators=sums_of_squares, denominators=degrees_of_freedom)
    pooled_variance = interval(measure)
    if pooled_variance is None:
        return None
    return Interval(
        sqrt(pooled_variance.value), sqrt(pooled_variance.low), sqrt(pooled_variance.high)
    )


# --- Means of thousands of rows: in closed form, since resampling would take minutes


def adjusted_mean(values: Sequence[float], extra: Sequence[float]) -> Interval:
    """Compute the mean of values between -1 and 1, with an adjusted Wald interval.

    The interval is computed as if there were also the `extra` values, which include the smallest possible
    value. With 0, 0, 1, 1 it's Agresti and Coull's interval for a proportion (1998). With -1, 1 it's Bonett
    and Price's interval for a paired difference (2012).
    """
    mean_value = fmean(values)
    smallest_possible = min(extra)

    extended = [*values, *extra]
    middle = fmean(extended)
    mean_variance = pvariance(extended) / len(extended)
    return _limit_interval(mean_value, middle, mean_variance, minimum=smallest_possible)


def corrected_mean(labelled: Sequence[tuple[float, float]], others: Sequence[float]) -> Interval:
    """Estimate the mean value that people would give to all rows, with an interval.

    `labelled` is a random sample of at least two rows, as pairs of the judge's and a person's value. `others`
    are the judge's values of all other rows. Values are between 0 and 1.

    The method is prediction-powered inference with power tuning: Angelopoulos, Duchi and Zrnic, "PPI++:
    Efficient prediction-powered inference", 2023.
    """
    mean_value, _ = _estimate_mean(labelled, others)

    # For the interval, add each pair of 0 and 1 once, similar to Agresti and Coull. Otherwise an interval
    # from 30 labels contains the truth in only 84 to 94 % of cases, instead of 95 %.
    extended = [*labelled, (0, 0), (0, 1), (1, 0), (1, 1)]
    middle, mean_variance = _estimate_mean(extended, others)
    return _limit_interval(mean_value, middle, mean_variance, minimum=0.0)


def _estimate_mean(
    labelled: Sequence[tuple[float, float]], others: Sequence[float]
) -> tuple[float, float]:
    """Estimate the mean that people would give, and its variance, as `corrected_mean` describes.

    `labelled` has pairs of the judge's value and a person's. `others` are the judge's values without a label.
    """
    weight = _choose_judge_weight(labelled, others)

    # A correction is how far a person's label is above the judge's weighted value.
    corrections = [label - weight * judged for judged, label in labelled]
    mean_correction = fmean(corrections)
    correction_variance = variance(corrections) / len(labelled)
    if weight == 0:
        # The judge's values don't count, so the corrections are the labels themselves.
        return mean_correction, correction_variance

    mean_value = mean_correction + weight * fmean(others)
    mean_variance = correction_variance + weight**2 * pvariance(others) / len(others)
    return mean_value, mean_variance


def _choose_judge_weight(labelled: Sequence[tuple[float, float]], others: Sequence[float]) -> float:
    """Choose the weight of the judge's values, from 0 to 1. It's called lambda in PPI++.

    The weight is larger if the judge predicts the labels well, and if many rows have no label.
    """
    if not others:
        return 0.0

    judged_values = [judged for judged, _ in labelled]
    labels = [label for _, label in labelled]
    judged_variance = pvariance([*judged_values, *others])
    if judged_variance == 0:
        return 0.0

    slope = covariance(judged_values, labels) / judged_variance
    weight = slope / (1 + len(labelled) / len(others))
    return min(1.0, max(0.0, weight))


def _limit_interval(
    mean_value: float, middle: float, mean_variance: float, minimum: float
) -> Interval:
    """Build a confidence interval around `middle`, and cut it off at `minimum` and 1.

    The mean may differ from the middle. If necessary, the interval is extended to contain it.
    """
    # Half of the level is on each side of the middle. For 95 %, the bounds are 1.96 standard errors away.
    standard_errors = NormalDist().inv_cdf(0.5 + CONFIDENCE_LEVEL / 2)
    half_width = standard_errors * sqrt(mean_variance)
    # An estimated mean can be out of range.
    bounded_mean = min(1.0, max(minimum, mean_value))

    low_bound = min(bounded_mean, middle - half_width)
    high_bound = max(bounded_mean, middle + half_width)
    return Interval(bounded_mean, max(minimum, low_bound), min(1.0, high_bound))


# --- Agreement with labels, for readable pairs


class Class(NamedTuple):
    """One word: the number of items labelled with it, and of those called so."""

    word: str
    labelled: int
    said: int
    precision: Interval | None
    recall: Interval | None


def accuracy(pairs: Sequence[Pair]) -> Interval | None:
    return interval(mean([label == answer for label, answer in pairs]))


def sort_on_scale(words: Sequence[str]) -> list[str] | None:
    """Sort distinct words that are outcomes or numbers. Returns None for other words, which have no order."""
    distinct = set(words)
    are_outcomes = all(word in OUTCOMES for word in distinct)
    if are_outcomes:
        return sorted(distinct, key=OUTCOMES.index)

    try:
        return sorted(distinct, key=float)
    except ValueError:
        return None


def squared_distances(words: Sequence[str]) -> dict[Pair, float]:
    """Compute the squared distance of each pair of words on a scale.

    If all words are numbers, such as "1" and "5", they're the positions. Otherwise neighbouring words are 1
    apart.
    """
    positions = _place_on_scale(words)
    distances = {}
    for word, position in zip(words, positions, strict=True):
        for other_word, other_position in zip(words, positions, strict=True):
            distances[word, other_word] = (position - other_position) ** 2
    return distances


def _place_on_scale(words: Sequence[str]) -> list[float]:
    """Convert words to numbers. If any word isn't a number, number them in their order."""
    try:
        return [float(word) for word in words]
    except ValueError:
        return [float(index) for index in range(len(words))]


def kappa(counts: Mapping[Pair, int], distance: Mapping[Pair, float] | None = None) -> float | None:
    """Compute Cohen's kappa (1960), or with a `distance`, weighted kappa (1968).

    `counts` contains the pairs of label and answer, and `distance` how far apart each pair is. Returns None
    if no disagreement is expected by chance.
    """
    label_counts = Counter[str]()
    answer_counts = Counter[str]()
    for (label, answer), count in counts.items():
        label_counts[label] += count
        answer_counts[answer] += count

    if distance is None:
        distance = _set_equal_distances({*label_counts, *answer_counts})

    observed_sum = sum(distance[pair] * count for pair, count in counts.items())
    chance_sum = _sum_chance_distances(label_counts, answer_counts, distance)
    if chance_sum == 0:
        return None

    # The mean distances are `observed_sum / total` and `chance_sum / total**2`, so one `total` cancels out.
    total = sum(counts.values())
    return 1 - observed_sum * total / chance_sum


def _set_equal_distances(words: Collection[str]) -> dict[Pair, float]:
    """Set the distance of all different words to 1, so that all disagreements count equally."""
    distance = {}
    for word, other_word in product(words, repeat=2):
        distance[word, other_word] = float(word != other_word)
    return distance


def _sum_chance_distances(
    label_counts: Mapping[str, int],
    answer_counts: Mapping[str, int],
    distance: Mapping[Pair, float],
) -> float:
    """Add up the distances if every label met every answer, as it does by chance."""
    expected = 0.0
    for label, answer in product(label_counts, answer_counts):
        expected += distance[label, answer] * label_counts[label] * answer_counts[answer]
    return expected


def spearman(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """Compute Spearman's rank correlation (1904) of pairs of scores.

    Returns None if either side is constant.
    """

    def correlate(positions: Sequence[int]) -> float | None:
        first_ranks = _rank_values([pairs[position][0] for position in positions])
        second_ranks = _rank_values([pairs[position][1] for position in positions])
        try:
            return correlation(first_ranks, second_ranks)
        except StatisticsError:  # all scores on one side are the same
            return None

    return bootstrap(len(pairs), correlate)


def _rank_values(values: Sequence[float]) -> list[float]:
    """Rank each value. Equal values get the mean of their ranks."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in values]


def kappas(pairs: Sequence[Pair]) -> tuple[Interval | None, Interval | None]:
    """Compute Cohen's kappa, and also quadratically weighted kappa if the words have an order."""
    unweighted = _estimate_kappa(pairs, distance=None)

    scale = sort_on_scale(_list_words(pairs))
    if not scale:
        return unweighted, None

    weighted = _estimate_kappa(pairs, distance=squared_distances(scale))
    return unweighted, weighted


def _estimate_kappa(
    pairs: Sequence[Pair], distance: Mapping[Pair, float] | None
) -> Interval | None:
    """Compute kappa for pairs of label and answer, with a bootstrap interval.

    `distance` has the weight of each pair that may differ; None weighs all disagreements the same. Returns
    None if kappa is undefined.
    """

    def compute_kappa(positions: Sequence[int]) -> float | None:
        """Compute kappa for the pairs at these positions."""
        pair_counts = Counter(pairs[position] for position in positions)
        return kappa(pair_counts, distance)

    return bootstrap(len(pairs), compute_kappa)


def _list_words(pairs: Sequence[Pair]) -> list[str]:
    return [word for pair in pairs for word in pair]


def measure_words(pairs: Sequence[Pair]) -> list[Class]:
    """Measure how often each word is a label and an answer, with precision and recall.

    The words are in the order of their scale. Words without a scale are in alphabetical order.
    """
    words = _list_words(pairs)
    ordered_words = sort_on_scale(words)
    if ordered_words is None:
        ordered_words = sorted(set(words))
    return [_measure_word(word, pairs) for word in ordered_words]


def _measure_word(word: str, pairs: Sequence[Pair]) -> Class:
    """Measure how often a word is a label and an answer, with precision and recall."""
    is_label = [label == word for label, _ in pairs]
    is_answer = [answer == word for _, answer in pairs]
    is_both = [label == word and answer == word for label, answer in pairs]
    return Class(
        word=word,
        labelled=sum(is_label),
        said=sum(is_answer),
        precision=interval(Measure(numerators=is_both, denominators=is_answer)),
        recall=interval(Measure(numerators=is_both, denominators=is_label)),
    )


# --- Reliability: of things rated 0.7, seven in ten should turn out true


@dataclass(frozen=True, slots=True)
class Bin:
    """The hits with a probability from `low` to below `high` (or 1): its mean, and the true share."""

    low: float
    high: float
    count: int
    confidence: float
    relevant: float


@dataclass(frozen=True, slots=True)
class LabelGroup:
    label: str
    count: int
    confidence: float
    relevant: float


def brier(probabilities: Sequence[float], outcomes: Sequence[bool]) -> float | None:
    """Compute the mean squared difference between probability and outcome (Brier, 1950).

    0 is perfect. Returns None if there are no probabilities.
    """
    errors = []
    for probability, is_true in zip(probabilities, outcomes, strict=True):
        errors.append((probability - is_true) ** 2)
    return sum(errors) / len(errors) if errors else None


def ece(probabilities: Sequence[float], outcomes: Sequence[bool]) -> float | None:
    """Compute the expected calibration error (Naeini, Cooper and Hauskrecht, AAAI 2015).

    0 is perfect. Returns None if there are no probabilities.
    """
    bins = bin_probabilities(probabilities, outcomes)
    if not bins:
        return None
    error = sum(group.count * abs(group.relevant - group.confidence) for group in bins)
    return error / len(probabilities)


def bin_probabilities(probabilities: Sequence[float], outcomes: Sequence[bool]) -> list[Bin]:
    """Group probabilities into bins of equal width, as in a reliability diagram. Empty bins are omitted."""
    # `min` puts the probability 1 into the last bin.
    bin_numbers = [min(int(probability * BINS), BINS - 1) for probability in probabilities]
    groups = _group_hits(bin_numbers, probabilities, outcomes)
    bins = []
    for number in sorted(groups):
        low_edge = number / BINS
        high_edge = (number + 1) / BINS
        count, confidence, relevant = groups[number]
        bins.append(Bin(low_edge, high_edge, count=count, confidence=confidence, relevant=relevant))
    return bins


def group_by_label(
    labels: Sequence[str], probabilities: Sequence[float], outcomes: Sequence[bool]
) -> list[LabelGroup]:
    """Group hits by confidence label, in descending order of mean confidence."""
    groups = []
    for label, hits in _group_hits(labels, probabilities, outcomes).items():
        count, confidence, relevant = hits
        groups.append(LabelGroup(label, count=count, confidence=confidence, relevant=relevant))
    return sorted(groups, key=lambda group: -group.confidence)


def _group_hits(
    keys: Sequence[Key], probabilities: Sequence[float], outcomes: Sequence[bool]
) -> dict[Key, tuple[int, float, float]]:
    """Group hits by key.

    Returns each group's size, its mean probability, and the fraction that is relevant.
    """
    probabilities_by_key = defaultdict[Key, list[float]](list)
    outcomes_by_key = defaultdict[Key, list[bool]](list)
    for key, probability, is_relevant in zip(keys, probabilities, outcomes, strict=True):
        probabilities_by_key[key].append(probability)
        outcomes_by_key[key].append(is_relevant)

    groups = {}
    for key, group_probabilities in probabilities_by_key.items():
        size = len(group_probabilities)
        mean_probability = sum(group_probabilities) / size
        relevant_fraction = sum(outcomes_by_key[key]) / size
        groups[key] = (size, mean_probability, relevant_fraction)
    return groups
