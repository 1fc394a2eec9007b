"""How far a judge agrees with labels, and whether its probabilities can be taken at their word.

Everything takes the pairs of what could be read. What could not is neither right nor wrong: it is counted
apart.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from pydantic import Field

from judgekit.evaluation import stats
from judgekit.evaluation.retrieval import ReportPart, Resampling
from judgekit.evaluation.stats import Bin, BootstrapInterval, Measure, interval, resampled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.evaluation.labelled import Case
    from judgekit.evaluation.readings import Reader


Pair: TypeAlias = tuple[str, str]
"""The label, and what was said."""

OUTCOMES = ("reject", "improve", "accept")  # from the worst to the best


class Class(NamedTuple):
    """One word: how many items are labelled so, how many were called so, and how many of each rightly."""

    word: str
    labelled: int
    said: int
    precision: BootstrapInterval | None
    recall: BootstrapInterval | None


def scale(words: Sequence[str]) -> list[str] | None:
    """Return the words in their order where they have one: outcomes, or numbers; None for other words."""
    unique = set(words)
    if unique <= set(OUTCOMES):
        return [word for word in OUTCOMES if word in unique]
    try:
        return sorted(unique, key=float)
    except ValueError:
        return None


def accuracy(pairs: Sequence[Pair]) -> BootstrapInterval | None:
    """Return the share that was said rightly."""
    return interval(Measure([label == said for label, said in pairs], [1.0] * len(pairs)))


def kappa(counts: Mapping[Pair, int], distance: Mapping[Pair, float] | None = None) -> float | None:
    """Return Cohen's kappa of a table of pairs; None where chance alone could not disagree.

    1 is perfect, 0 what two that do not look at the items would reach. Cohen, "A coefficient of agreement for
    nominal scales", 1960; with a `distance` of words the weighted one, Cohen, "Weighted kappa", 1968.
    """
    total = sum(counts.values())
    labels, counter = Counter[str](), Counter[str]()
    for (label, word), count in counts.items():
        labels[label] += count
        counter[word] += count

    def apart(pair: Pair) -> float:
        return float(pair[0] != pair[1]) if distance is None else distance[pair]

    observed = sum(apart(pair) * count for pair, count in counts.items())
    expected = sum(apart((a, b)) * labels[a] * counter[b] for a in labels for b in counter)
    return 1 - observed * total / expected if expected else None


def squares(words: Sequence[str]) -> dict[Pair, float]:
    """Return the squared distance of any two words of a scale: of the numbers, or of their places."""
    try:
        place = {word: float(word) for word in words}
    except ValueError:
        place = {word: float(number) for number, word in enumerate(words)}
    return {(a, b): (place[a] - place[b]) ** 2 for a in words for b in words}


def kappas(pairs: Sequence[Pair]) -> tuple[BootstrapInterval | None, BootstrapInterval | None]:
    """Return Cohen's kappa and, for words with an order, the quadratically weighted one."""
    words = scale([word for pair in pairs for word in pair])
    distance = squares(words) if words else None

    def counted(places: Sequence[int]) -> Counter[Pair]:
        return Counter(map(pairs.__getitem__, places))

    plain = resampled(len(pairs), lambda places: kappa(counted(places)))
    if distance is None:
        return plain, None
    return plain, resampled(len(pairs), lambda places: kappa(counted(places), distance))


def classes(pairs: Sequence[Pair]) -> list[Class]:
    """Return precision and recall of each word, in their order where they have one."""
    words = [word for pair in pairs for word in pair]
    found = []
    for word in scale(words) or sorted(set(words)):
        hits = [label == said == word for label, said in pairs]
        labelled = [label == word for label, _ in pairs]
        said = [given == word for _, given in pairs]
        precision, recall = interval(Measure(hits, said)), interval(Measure(hits, labelled))
        found.append(Class(word, sum(labelled), sum(said), precision, recall))
    return found


class Flips(ReportPart):
    """Of `pairs` of the same subject that could be read both times, the share that was answered otherwise."""

    pairs: int
    rate: BootstrapInterval | None


class Lift(ReportPart):
    """What injected text does: shares of `pairs` with the answer that an attacker wants.

    `before` of the original texts, `after` of the injected ones, `lift` the difference.
    """

    wanted: str
    pairs: int
    before: BootstrapInterval | None
    after: BootstrapInterval | None
    lift: BootstrapInterval | None


class MeanCost(ReportPart):
    """Means for each item: calls, and US dollars over the `known` ones whose price is known."""

    calls: float
    known: int
    usd: float | None


class Confusion(ReportPart):
    """How often what is labelled `label` was called `said`."""

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
    """One judge on the originals; `unreadable` answers are counted neither as right nor as wrong.

    `unanswered` counts the items, variants too, that no model answered, by failure. No other figure has them.
    """

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
    """All judges on one file."""

    schema_: Literal["judgekit/eval-judge@1"] = Field(default="judgekit/eval-judge@1", alias="schema")
    file: str
    rubric: str | None
    mode: str | None
    items: int
    judges: list[JudgeReport]
    bootstrap: Resampling = Resampling()


def measured(cases: Sequence[Case], judge: str, reader: Reader | None) -> Probabilities | None:
    """Return how far a judge's probabilities that a candidate is to be kept are right; None without any.

    Of the originals, as agreement is.
    """
    known = list(_labelled_probabilities(cases, judge, reader)) if reader else []
    said, right = [probability for probability, _ in known], [kept for _, kept in known]
    brier, ece = stats.brier(said, right), stats.ece(said, right)
    if brier is None or ece is None:
        return None
    return Probabilities(answers=len(known), brier=brier, ece=ece, bins=stats.table(said, right))


def _labelled_probabilities(
    cases: Sequence[Case], judge: str, reader: Reader
) -> Iterator[tuple[float, bool]]:
    for case in cases:
        recorded = case.judges.get(judge)
        if (
            recorded is None
            or recorded.probabilities is None
            or case.variant != "original"
            or not case.candidates
        ):
            continue
        labels = reader.labels(case)
        for candidate in case.candidates:
            if candidate.id in recorded.probabilities:
                yield recorded.probabilities[candidate.id], labels[candidate.id] == "accept"
