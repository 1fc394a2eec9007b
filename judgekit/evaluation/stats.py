"""Figures over labelled items: agreement with labels, reliability of probabilities, and the report on judges.

Intervals come from drawing the items again, with replacement: the percentile method of Efron and Tibshirani,
"An Introduction to the Bootstrap", 1993, chapter 13, as Sakai, "Evaluating evaluation metrics based on the
bootstrap", SIGIR 2006, uses it for retrieval. The seed is fixed, so an interval is reproducible, and figures
over equally many items rest on the same draws. What could not be read is neither right nor wrong: it is
counted apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, Field

from judgekit.errors import InputError
from judgekit.evaluation.samples import Reader
from judgekit.judging.jury import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Recorded, Variant
    from judgekit.rubric.loader import LoadedRubric

RESAMPLES, LEVEL, SEED = 2_000, 0.95, 20_020_401
BINS = 10
OUTCOMES = ("reject", "improve", "accept")  # from the worst to the best

Key = TypeVar("Key", bound="Hashable")
Pair: TypeAlias = tuple[str, str]
"""The label, and the answer."""


class ReportPart(BaseModel, frozen=True):
    """Base of the parts of reports."""


class Resampling(ReportPart):
    level: float = LEVEL
    resamples: int = RESAMPLES
    seed: int = SEED


@dataclass(frozen=True, slots=True)
class BootstrapInterval:
    """A figure, and between which bounds it lies in `LEVEL` of the resamples."""

    value: float
    low: float
    high: float


class Measure(NamedTuple):
    """What each item adds to the two sums of which a figure is the ratio; 0 where it means nothing."""

    gained: Sequence[float]
    possible: Sequence[float]


def mean(values: Sequence[float]) -> Measure:
    """Return the measure whose figure is the mean of `values`."""
    return Measure(values, [1.0] * len(values))


def resampled(
    size: int,
    figure: Callable[[Sequence[int]], float | None],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> BootstrapInterval | None:
    """Return a `figure` of `size` items, given by their places, with its bounds; None where it has none."""
    value = figure(range(size))
    if value is None:
        return None
    generator = Random(seed)  # noqa: S311 - statistics, no secret
    draws = (generator.choices(range(size), k=size) for _ in range(resamples))
    values = sorted(drawn for draw in draws if (drawn := figure(draw)) is not None)
    outside, last = (1 - LEVEL) / 2, len(values) - 1
    return BootstrapInterval(value, values[round(outside * last)], values[round((1 - outside) * last)])


def interval(measure: Measure, *, resamples: int = RESAMPLES, seed: int = SEED) -> BootstrapInterval | None:
    """Return a measure's figure with its bounds; None where there is nothing to divide by."""
    gained, possible = measure

    def ratio(places: Sequence[int]) -> float | None:
        below = sum(map(possible.__getitem__, places))
        return sum(map(gained.__getitem__, places)) / below if below else None

    return resampled(len(gained), ratio, resamples=resamples, seed=seed)


def intervals(measures: Mapping[str, Measure]) -> dict[str, BootstrapInterval | None]:
    """Return the figure of each measure with its bounds, all from the same draws of the same items.

    Raises `ValueError` for measures over different items.
    """
    sizes = {len(column) for measure in measures.values() for column in measure}
    if len(sizes) > 1:
        raise ValueError(f"expected measures over the same queries, got {sorted(sizes)} of them")
    return {name: interval(measure) for name, measure in measures.items()}


def difference(first: Sequence[float], second: Sequence[float]) -> BootstrapInterval | None:
    """Return by how much the mean of `first` is above that of `second`, paired by item.

    Raises `ValueError` when they are not equally long.
    """
    return interval(mean([one - other for one, other in zip(first, second, strict=True)]))


# --- Agreement with labels: of pairs that could be read


class Class(NamedTuple):
    """One word: how many items are labelled so and called so, and how many of each rightly."""

    word: str
    labelled: int
    said: int
    precision: BootstrapInterval | None
    recall: BootstrapInterval | None


def accuracy(pairs: Sequence[Pair]) -> BootstrapInterval | None:
    return interval(mean([label == answer for label, answer in pairs]))


def scale(words: Sequence[str]) -> list[str] | None:
    """Return the words in their order where they have one: outcomes, or numbers; None for other words."""
    unique = set(words)
    if unique <= set(OUTCOMES):
        return [word for word in OUTCOMES if word in unique]
    try:
        return sorted(unique, key=float)
    except ValueError:
        return None


def squares(words: Sequence[str]) -> dict[Pair, float]:
    """Return the squared distance of any two words of a scale: of the numbers, or of their places."""
    try:
        place = {word: float(word) for word in words}
    except ValueError:
        place = {word: float(number) for number, word in enumerate(words)}
    return {(a, b): (place[a] - place[b]) ** 2 for a in words for b in words}


def kappa(counts: Mapping[Pair, int], distance: Mapping[Pair, float] | None = None) -> float | None:
    """Return Cohen's kappa of a table of pairs; None where chance alone could not disagree.

    1 is perfect, 0 what two that do not look at the items would reach. Cohen, "A coefficient of agreement for
    nominal scales", 1960; with a `distance` of words the weighted one, Cohen, "Weighted kappa", 1968.
    """
    labels, answers = Counter[str](), Counter[str]()
    for (label, answer), count in counts.items():
        labels[label] += count
        answers[answer] += count
    words = {*labels, *answers}
    apart = distance or {(a, b): float(a != b) for a in words for b in words}
    observed = sum(apart[pair] * count for pair, count in counts.items())
    expected = sum(apart[a, b] * labels[a] * answers[b] for a in labels for b in answers)
    return 1 - observed * sum(counts.values()) / expected if expected else None


def kappas(pairs: Sequence[Pair]) -> tuple[BootstrapInterval | None, BootstrapInterval | None]:
    """Return Cohen's kappa and, for words with an order, the quadratically weighted one."""
    words = scale([word for pair in pairs for word in pair])

    def with_bounds(distance: Mapping[Pair, float] | None) -> BootstrapInterval | None:
        return resampled(len(pairs), lambda places: kappa(Counter(map(pairs.__getitem__, places)), distance))

    return with_bounds(None), with_bounds(squares(words)) if words else None


def classes(pairs: Sequence[Pair]) -> list[Class]:
    """Return precision and recall of each word, in their order where they have one."""
    words = [word for pair in pairs for word in pair]
    found = []
    for word in scale(words) or sorted(set(words)):
        hits = [label == answer == word for label, answer in pairs]
        labelled, said = [label == word for label, _ in pairs], [answer == word for _, answer in pairs]
        precision, recall = interval(Measure(hits, said)), interval(Measure(hits, labelled))
        found.append(Class(word, sum(labelled), sum(said), precision, recall))
    return found


# --- Reliability: of what is rated 0.7, seven in ten should turn out true


@dataclass(frozen=True, slots=True)
class Bin:
    """The hits with a probability from `low` to below `high` (or 1): its mean, and the share that is true."""

    low: float
    high: float
    count: int
    confidence: float
    relevant: float


@dataclass(frozen=True, slots=True)
class LabelGroup:
    """The hits of one label, as in `Bin`."""

    label: str
    count: int
    confidence: float
    relevant: float


def brier(probabilities: Sequence[float], outcomes: Sequence[bool]) -> float | None:
    """Return the mean squared difference of probability and outcome: 0 is perfect, None without any.

    Always saying the overall share s gives s(1 - s). Brier, "Verification of forecasts expressed in terms of
    probability", Monthly Weather Review 78(1), 1950, in the form for two outcomes.
    """
    errors = [(probability - true) ** 2 for probability, true in zip(probabilities, outcomes, strict=True)]
    return sum(errors) / len(errors) if errors else None


def ece(probabilities: Sequence[float], outcomes: Sequence[bool]) -> float | None:
    """Return the expected calibration error: 0 is perfect, None without any hit.

    The mean over the hits of how far the share that is true lies from the mean probability in their bin
    (see `table`). Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian
    binning", AAAI 2015.
    """
    bins = table(probabilities, outcomes)
    apart = sum(each.count * abs(each.relevant - each.confidence) for each in bins)
    return apart / len(probabilities) if bins else None


def table(probabilities: Sequence[float], outcomes: Sequence[bool]) -> list[Bin]:
    """Return the bins, of equal width, that hold any hit, lowest first: a reliability diagram in numbers."""
    numbers = [min(int(probability * BINS), BINS - 1) for probability in probabilities]
    groups = _grouped(numbers, probabilities, outcomes)
    return [Bin(number / BINS, (number + 1) / BINS, *groups[number]) for number in sorted(groups)]


def by_label(
    labels: Sequence[str], probabilities: Sequence[float], outcomes: Sequence[bool]
) -> list[LabelGroup]:
    """Return the hits of each label, the most confident label first."""
    groups = _grouped(labels, probabilities, outcomes)
    return sorted((LabelGroup(each, *groups[each]) for each in groups), key=lambda group: -group.confidence)


def _grouped(
    keys: Sequence[Key], probabilities: Sequence[float], outcomes: Sequence[bool]
) -> dict[Key, tuple[int, float, float]]:
    """Return by key how many hits there are, their mean probability, and the share that is true."""
    members: dict[Key, list[tuple[float, bool]]] = {}
    for key, probability, true in zip(keys, probabilities, outcomes, strict=True):
        members.setdefault(key, []).append((probability, true))
    return {
        key: (len(hits), sum(one for one, _ in hits) / len(hits), sum(true for _, true in hits) / len(hits))
        for key, hits in members.items()
    }


# --- The report on judges


class Flips(ReportPart):
    """Of `pairs` of the same subject that could be read both times, the share with another answer."""

    pairs: int
    rate: BootstrapInterval | None


class Lift(ReportPart):
    """Shares of `pairs` with the answer that an attacker wants: of original and of injected texts."""

    wanted: str
    pairs: int
    before: BootstrapInterval | None
    after: BootstrapInterval | None
    lift: BootstrapInterval | None


class MeanCost(ReportPart):
    """Means by item: calls, and US dollars over the `known` ones whose price is known."""

    calls: float
    known: int
    usd: float | None


class Confusion(ReportPart):
    label: str
    said: str
    count: int


class Probabilities(ReportPart):
    """How far the probabilities of `answers`, that a candidate is to be kept, were right."""

    answers: int
    brier: float
    ece: float
    bins: list[Bin]


class JudgeReport(ReportPart):
    """One judge on the originals; `unanswered` counts items, variants too, without an answer by failure."""

    judge: str
    model: str
    items: int
    unanswered: dict[str, int] = {}
    unreadable: BootstrapInterval | None
    accuracy: BootstrapInterval | None
    kappa: BootstrapInterval | None
    weighted_kappa: BootstrapInterval | None
    classes: list[Class]
    confusion: list[Confusion]
    order_flips: Flips
    rerun_flips: Flips
    injection: Lift | None
    cost: MeanCost
    probabilities: Probabilities | None = None


class JudgingReport(ReportPart):
    schema_: Literal["judgekit/eval-judge@1"] = Field("judgekit/eval-judge@1", alias="schema")
    file: str
    rubric: str | None
    mode: str | None
    items: int
    judges: list[JudgeReport]
    bootstrap: Resampling = Resampling()


class Item(NamedTuple):
    """One labelled thing and a judge's answer; None where that cannot be read.

    `of` is the id of its original. `orders` are the answers about two texts in either order, `probability` is
    that of a candidate to be kept.
    """

    of: str
    variant: Variant
    label: str
    said: str | None
    calls: int
    cost_usd: float | None
    orders: tuple[str | None, ...]
    unanswered: str | None
    probability: float | None


def report(
    cases: Sequence[Case], name: str, loaded: LoadedRubric | None, mode: ModeName, wanted: str | None = None
) -> JudgingReport:
    """Return how every judge in the cases does, each model of a jury as a judge of its own, too.

    `wanted` is the answer that injected texts are after (accept by default). Raises `InputError` for cases
    that do not fit the rubric, and for answers other than a `choice` without one.
    """
    answers: dict[str, list[tuple[Case, Recorded]]] = {}
    for case in cases:
        jurors = {
            f"{judge}: {juror.model}": juror
            for judge, recorded in case.judges.items()
            for juror in recorded.jury or ()
        }
        for judge, recorded in (case.judges | jurors).items():
            answers.setdefault(judge, []).append((case, recorded))
    if not answers:
        raise InputError(f"{name}: expected recorded answers under `judges`; name a --rubric to ask models")
    reader = Reader(loaded.rubric, mode) if loaded else None
    return JudgingReport(
        file=name,
        rubric=loaded.rubric.ref if loaded else None,
        mode=mode if loaded else None,
        items=sum(case.variant == "original" for case in cases),
        judges=[_judge(judge, reader, own, wanted or "accept") for judge, own in answers.items()],
    )


def _judge(
    judge: str, reader: Reader | None, answers: Sequence[tuple[Case, Recorded]], wanted: str
) -> JudgeReport:
    items = [item for case, recorded in answers for item in _items(case, judge, recorded, reader)]
    originals = [item for item in items if item.variant == "original"]
    pairs: list[Pair] = [(item.label, item.said) for item in originals if item.said is not None]
    kappa, weighted = kappas(pairs)
    both_orders = [item.orders for item in originals if len(item.orders) == len(ORDERS)]
    known = [item.cost_usd for item in originals if item.cost_usd is not None]
    calls = sum(item.calls for item in originals) / len(originals) if originals else 0.0
    confusion = sorted(Counter(pairs).items())
    return JudgeReport(
        judge=judge,
        model=answers[0][1].name,
        items=len(originals),
        unanswered=dict(Counter(item.unanswered for item in items if item.unanswered)),
        unreadable=interval(mean([item.said is None for item in items if not item.unanswered])),
        accuracy=accuracy(pairs),
        kappa=kappa,
        weighted_kappa=weighted,
        classes=classes(pairs),
        confusion=[Confusion(label=label, said=said, count=count) for (label, said), count in confusion],
        order_flips=_flips([*_matched(items, "swapped"), *_known(both_orders)]),
        rerun_flips=_flips(_matched(items, "rerun")),
        injection=_lift(_matched(items, "injected"), wanted),
        cost=MeanCost(calls=calls, known=len(known), usd=sum(known) / len(known) if known else None),
        probabilities=_probabilities(originals),
    )


def _lift(pairs: Sequence[Pair], wanted: str) -> Lift | None:
    before, after = ([float(pair[side] == wanted) for pair in pairs] for side in (0, 1))
    shares = {"before": interval(mean(before)), "after": interval(mean(after))}
    return Lift(wanted=wanted, pairs=len(pairs), lift=difference(after, before), **shares) if pairs else None


def _probabilities(originals: Sequence[Item]) -> Probabilities | None:
    rated = [(item.probability, item.label == "accept") for item in originals if item.probability is not None]
    hits = [probability for probability, _ in rated], [kept for _, kept in rated]
    error, gap = brier(*hits), ece(*hits)
    if error is None or gap is None:
        return None
    return Probabilities(answers=len(rated), brier=error, ece=gap, bins=table(*hits))


def _items(case: Case, judge: str, recorded: Recorded, reader: Reader | None) -> Iterator[Item]:
    """Yield a judge's answers about a case: one for each candidate, else one."""
    if reader is not None:
        answers, labels = reader.words(case, recorded), reader.labels(case)
    else:
        label = case.right("strict")
        if not isinstance(label, str) or (recorded.choice is None and recorded.failure is None):
            wanted = "expected a choice; name the --rubric to read others by"
            raise InputError(f"{case.where}: judges.{judge}: {wanted}")
        answers, labels = {"": recorded.choice}, {"": label}
    cost, calls, orders = recorded.cost_usd, recorded.calls, tuple((recorded.orders or {}).values())
    for part, label in labels.items():
        of = f"{case.pair or case.id}/{part}" if part else case.pair or case.id
        said, likely = answers[part], (recorded.probabilities or {}).get(part)
        yield Item(of, case.variant, label, said, calls, cost, orders, recorded.unanswered, likely)
        # One call brought the answers on all candidates.
        cost, calls = None if cost is None else 0.0, 0


def _known(pairs: Sequence[tuple[str | None, ...]]) -> list[Pair]:
    """Return the pairs of which both answers could be read."""
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _matched(items: Sequence[Item], variant: Variant) -> list[Pair]:
    """Return the answers about the original and about its variant, where both could be read."""
    originals = {item.of: item.said for item in items if item.variant == "original"}
    return _known([(originals.get(item.of), item.said) for item in items if item.variant == variant])


def _flips(pairs: Sequence[Pair]) -> Flips:
    return Flips(pairs=len(pairs), rate=interval(mean([before != after for before, after in pairs])))
