"""What results say: counts, rates and their intervals, agreement with labels, and the rows that matter.

Results are read once, row by row. Of a row only its id, its verdict and its text beside the worst ones stay
in memory. `improve` counts as not accepted; what is undetermined is left out and counted.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import ceil, log
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from judgekit.config import TIE
from judgekit.data.labels import ResultFile, ResultRow, nested
from judgekit.data.results import judge_named
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import stats
from judgekit.evaluation.labels import LeftOut, agrees, compared, is_binary
from judgekit.evaluation.labels import number_of as number
from judgekit.evaluation.stats import OUTCOMES, UNDECIDED, ReportPart
from judgekit.ledger.rates import Interval
from judgekit.text import counted, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LEAST_LABELS = 30  # of fewer the bounds are not those that they claim to be
_REASONS = 5  # of those that judged, and of errors
MOST_SHOWN = 100  # rows of a list, and values of a column
_SHOWN_CHARS = 400
_FIRST = 3  # ids of a file that has none of those of another
_TIER = dict.fromkeys(("decided", "answered", "failed", "seconds", "cost_usd", "unpriced"), 0)


def _interval(value: float | None, low: float | None, high: float | None) -> Interval | None:
    if value is None or low is None or high is None:
        return None
    return Interval(value, low, high)


class CorrectedRate(ReportPart):
    """A share of rows: as `judged`; and `corrected` for the judge's errors by `labels`, with its bounds."""

    judged: float
    corrected: float | None = None
    low: float | None = None
    high: float | None = None
    labels: int = 0

    @property
    def interval(self) -> Interval | None:
        return _interval(self.corrected, self.low, self.high)


class Group(ReportPart):
    """The rows with one `value` of a column; `needs` says how many labels are missing, and why."""

    value: str
    rows: int
    verdicts: dict[str, int]
    rate: CorrectedRate | None
    needs: str | None = None


class Shown(ReportPart):
    """A row that matters, with its verdict, what people said (`label`) or a `second` verdict."""

    id: str
    verdict: str
    label: str | None = None
    second: str | None = None
    average: float | None = None
    scores: dict[str, float] = {}
    reasoning: str = ""
    text: str = ""


class Unmatched(ReportPart):
    """The first ids of results and of another file, where none of them is in both."""

    results: list[str]
    others: list[str]


class Labelled(ReportPart):
    """How verdicts agree with labels; of those `left_out` the row is undetermined or not in the results.

    Labels that are `not_compared` are blank or not understood.
    """

    labels: int
    left_out: int
    accuracy: Interval | None
    kappa: Interval | None
    confusion: dict[str, dict[str, int]]
    differing: int
    wrong: list[Shown]
    is_binary: bool = False
    not_compared: LeftOut = LeftOut()
    unmatched: Unmatched | None = None


class Difference(ReportPart):
    """By how much the second rate is above the first, on the `rows` decided in both results."""

    file: str
    rows: int
    only_first: int
    only_second: int
    value: float | None
    low: float | None
    high: float | None
    differing: int
    rows_that_differ: list[Shown]
    unmatched: Unmatched | None = None

    @property
    def interval(self) -> Interval | None:
        return _interval(self.value, self.low, self.high)


class WinRate(ReportPart):
    """How often a text wins against the others, or against one other; ties count half."""

    wins: int
    ties: int
    losses: int
    rate: float
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        return Interval(self.rate, self.low, self.high)


class ResultsReport(ReportPart):
    schema_: Literal["judgekit/report@1"] = Field("judgekit/report@1", alias="schema")
    file: str
    rows: int
    undetermined: int
    task: Literal["judge", "compare"]
    verdicts: dict[str, int]
    accept_rate: CorrectedRate | None = None
    needs: str | None = None
    win_rates: dict[str, WinRate] = {}
    matrix: dict[str, dict[str, WinRate]] = {}
    dimensions: dict[str, dict[str, int]] = {}
    worst: list[Shown] = []
    tiers: dict[str, dict[str, float | None]] = {}
    cost_usd: float | None = None
    cost_complete: bool = True
    judged_by: dict[str, int] = {}
    errors: dict[str, int] = {}
    not_accepted: int = 0
    values: int = 0
    labelled: Labelled | None = None
    difference: Difference | None = None
    column: str | None = None
    groups: list[Group] = []


def _worths(words: Iterable[str], best: str) -> list[float]:
    """Return 1 for the best word, 0 for others and 0.5 for a tie, without what is undetermined."""
    return [0.5 if word == TIE else float(word == best) for word in words if word not in UNDECIDED]


@dataclass
class _Tally:
    """Rows by verdict, and of the labelled ones both words."""

    words: Counter[str] = field(default_factory=Counter)
    pairs: list[stats.Pair] = field(default_factory=list)  # the label, and the verdict

    def add(self, word: str, label: str | None) -> None:
        self.words[word] += 1
        if label is not None and word not in UNDECIDED:
            self.pairs.append((label, word))

    def rate(self, best: str) -> CorrectedRate | None:
        decided = _worths(self.words.elements(), best)
        if not decided:
            return None
        rate = CorrectedRate(judged=sum(decided) / len(decided), labels=len(self.pairs))
        if self.needs(best):
            return rate
        others = self.words - Counter(said for _, said in self.pairs)
        right, said = (_worths(words, best) for words in zip(*self.pairs, strict=True))
        both = list(zip(said, right, strict=True))
        unlabelled = _worths(others.elements(), best)
        corrected = stats.corrected(both, unlabelled)
        return CorrectedRate(
            judged=rate.judged,
            corrected=corrected.value,
            low=corrected.low,
            high=corrected.high,
            labels=rate.labels,
        )

    def group(self, value: str, best: str, *, is_labelled: bool) -> Group:
        return Group(
            value=one_line(value, 80),
            rows=self.words.total(),
            verdicts=_ordered(self.words),
            rate=self.rate(best),
            needs=self.needs(best) if is_labelled else None,
        )

    def needs(self, best: str) -> str | None:
        """Say how many more labels a corrected rate needs; None where there are enough."""
        decided = sum(count for word, count in self.words.items() if word not in UNDECIDED)
        good = sum(label == best for label, _ in self.pairs)
        bad = len(self.pairs) - good
        more = LEAST_LABELS - len(self.pairs)
        why = f"{counted(len(self.pairs), 'label is', 'labels are')} too few"
        if self.pairs and not (good and bad):
            if bad:
                missing = self.words[best]
            else:
                missing = decided - self.words[best]
            rare = max(missing / decided, 1 / (len(self.pairs) + 2))
            if rare < 1:
                chance = ceil(log(1 - stats.LEVEL) / log(1 - rare))
            else:
                chance = 1
            more = max(more, chance)
            why = f"no label says {'' if bad else 'anything but '}{best}"
        if decided < LEAST_LABELS:
            return f"{counted(decided, 'row with a verdict is', 'rows with a verdict are')} too few"
        more = min(more, decided - len(self.pairs))
        if more > 0:
            return f"{why}; {more} more would do"
        return why if not (good and bad) else None


def _new_tier() -> dict[str, float]:
    return dict(_TIER)


@dataclass
class _Totals:
    """Sums over all rows of the results; `ranks` are the rows of comparisons that were decided."""

    tally: _Tally = field(default_factory=_Tally)
    scores: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    tiers: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(_new_tier))
    ranks: list[ResultRow] = field(default_factory=list)
    judges: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    usd: float = 0.0
    unpriced: int = 0

    def add(self, row: ResultRow, label: str | None) -> None:
        self.tally.add(row.word, label)
        cost = number(row.columns.get("cost_usd"))
        if cost is None:
            self.unpriced += 1
        else:
            self.usd += cost
        if row.word in OUTCOMES:
            for dimension, score in row.scores.items():
                self.scores[dimension][f"{score:g}"] += 1
        elif row.word not in UNDECIDED:
            self.ranks.append(row._replace(columns={}))
        _count(self.tiers, self.judges, self.errors, row.columns)

    def dimensions(self) -> dict[str, dict[str, int]]:
        """Return how often each dimension has each score, from the lowest to the highest."""
        dimensions = {}
        for name, counts in self.scores.items():
            by_score = sorted(counts, key=float)
            dimensions[name] = {score: counts[score] for score in by_score}
        return dimensions

    def cost_usd(self) -> float | None:
        """Return what all rows cost; None where nothing has a price."""
        if self.unpriced and not self.usd:
            return None
        return self.usd


def summarise(
    found: ResultFile,
    name: str,
    labels: Mapping[str, str] | None = None,
    column: str | None = None,
    second: tuple[str, Mapping[str, str]] | None = None,
    left_out: LeftOut | None = None,
) -> ResultsReport:
    """Return what the results say; `second` is the name of other results, with their verdicts by id.

    `left_out` says which labels are not among `labels`. Raises `UsageError` for a `column` that no row has,
    `InputError` where there is no row.
    """
    has_labels = labels is not None
    labels = labels or {}
    totals = _Totals()
    groups = defaultdict[str, _Tally](_Tally)
    lists = _Lists(second, found, labels)
    for row in found:
        label = labels.get(row.row_id)
        totals.add(row, label)
        lists.add(row, label)
        if column is not None and column in row.columns:
            groups[str(row.columns[column])].add(row.word, label)
    tally = totals.tally
    _refuse_nothing(name, tally, column, groups)
    if totals.ranks:
        task: Literal["judge", "compare"] = "compare"
        best = "A"
        accept_rate = None
    else:
        task = "judge"
        best = "accept"
        accept_rate = tally.rate(best)
    needs = None
    if labels and task == "judge":
        needs = tally.needs(best)
    labelled = None
    if has_labels:
        labelled = _labelled(tally.pairs, labels, lists, left_out)
    difference = None
    if second:
        difference = lists.difference(best)
    win_rates, matrix = _wins(totals.ranks)
    shown_groups = []
    for value, group in _largest(groups):
        shown_groups.append(group.group(value, best, is_labelled=bool(labels)))
    return ResultsReport(
        file=name,
        rows=tally.words.total(),
        undetermined=sum(tally.words[word] for word in UNDECIDED),
        task=task,
        verdicts=_ordered(tally.words),
        accept_rate=accept_rate,
        needs=needs,
        win_rates=win_rates,
        matrix=matrix,
        dimensions=totals.dimensions(),
        worst=lists.worst(),
        tiers={name: _priced(tier) for name, tier in totals.tiers.items()},
        cost_usd=totals.cost_usd(),
        cost_complete=not totals.unpriced,
        judged_by=dict(totals.judges.most_common(_REASONS)),
        errors=dict(totals.errors.most_common(_REASONS)),
        not_accepted=sum(tally.words[word] for word in OUTCOMES[:2]),
        values=len(groups),
        labelled=labelled,
        difference=difference,
        column=column,
        groups=shown_groups,
    )


def _largest(groups: Mapping[str, _Tally]) -> list[tuple[str, _Tally]]:
    return sorted(groups.items(), key=lambda item: -item[1].words.total())[:MOST_SHOWN]


def _refuse_nothing(
    name: str, whole: _Tally, column: str | None, groups: Mapping[str, _Tally]
) -> None:
    if not whole.words:
        raise InputError(f"{name}: no row; name a file that judge or compare --data wrote")
    if column is not None and not groups:
        raise UsageError(f"--by {column}: {name} has no such column")


class _Lists:
    """The rows to show: the worst ones, those that the judge got wrong, those that differ."""

    def __init__(
        self,
        second: tuple[str, Mapping[str, str]] | None,
        source: ResultFile,
        labels: Mapping[str, str],
    ) -> None:
        self.wrong = list[Shown]()
        self.is_binary = is_binary(labels.values())
        self._second = second
        self._source = source
        self._first_ids = list[str]()
        self._has_label = False
        self._seen = self._met = 0
        self._matched = list[tuple[str, str]]()
        self._differing = list[Shown]()
        self._worst: list[tuple[tuple[float, ...], ResultRow]] = []

    def add(self, each: ResultRow, label: str | None) -> None:
        self._seen += 1
        if len(self._first_ids) < _FIRST:
            self._first_ids.append(one_line(each.row_id, 40))
        self._has_label = self._has_label or label is not None
        if label is not None and each.word not in UNDECIDED:
            is_right = agrees(label, each.word, binary=self.is_binary)
            if not is_right and len(self.wrong) < MOST_SHOWN:
                self.wrong.append(self._shown(each, label=label))
        if each.word in OUTCOMES[:2]:
            average = number(each.columns.get("average"))
            rank = OUTCOMES.index(each.word), -1.0 if average is None else average, self._seen
            self._worst.append((rank, each))
            if len(self._worst) > 2 * MOST_SHOWN:
                self._worst = heapq.nsmallest(MOST_SHOWN, self._worst)
        if self._second:
            other = self._second[1].get(each.row_id)
        else:
            other = None
        if other is None:
            return
        self._met += 1
        if each.word not in UNDECIDED and other not in UNDECIDED:
            self._matched.append((each.word, other))
            if each.word != other and len(self._differing) < MOST_SHOWN:
                self._differing.append(self._shown(each, second=other))

    def worst(self) -> list[Shown]:
        return [self._shown(each) for _, each in heapq.nsmallest(MOST_SHOWN, self._worst)]

    def _shown(self, each: ResultRow, label: str | None = None, second: str | None = None) -> Shown:
        reasoning = one_line(str(each.columns.get("reasoning") or ""), _SHOWN_CHARS)
        text = one_line(self._source.text_of(each), _SHOWN_CHARS)
        return Shown(
            id=one_line(each.row_id, 80),
            verdict=each.word,
            label=label,
            second=second,
            average=number(each.columns.get("average")),
            scores=dict(each.scores),
            reasoning=reasoning,
            text=text,
        )

    def unlabelled(self, labels: Mapping[str, str]) -> Unmatched | None:
        """Return the first ids of both sides where labels are for no row of the results."""
        if self._has_label or not labels:
            return None
        return self._unmatched(labels)

    def _unmatched(self, others: Iterable[str]) -> Unmatched:
        theirs = [one_line(other, 40) for other in islice(others, _FIRST)]
        return Unmatched(results=self._first_ids, others=theirs)

    def difference(self, best: str) -> Difference:
        name, others = self._second or ("", {})
        first, second = (_worths([pair[side] for pair in self._matched], best) for side in (0, 1))
        apart = []
        for one, other in zip(first, second, strict=True):
            apart.append(other - one)
        gap = stats.adjusted(apart, (-1, 1)) if apart else None
        differing = sum(one != other for one, other in self._matched)
        if others and not self._met:
            unmatched = self._unmatched(others)
        else:
            unmatched = None
        return Difference(
            file=name,
            rows=len(apart),
            only_first=self._seen - self._met,
            only_second=len(others) - self._met,
            value=gap.value if gap else None,
            low=gap.low if gap else None,
            high=gap.high if gap else None,
            differing=differing,
            rows_that_differ=self._differing,
            unmatched=unmatched,
        )


def _priced(tier: Mapping[str, float]) -> dict[str, float | None]:
    """Return what a tier did; its cost is None where calls have none and the others cost nothing."""
    return {**tier, "cost_usd": tier["cost_usd"] or (None if tier["unpriced"] else 0.0)}


def _count(
    tiers: dict[str, dict[str, float]],
    judges: Counter[str],
    errors: Counter[str],
    columns: Mapping[str, Any],
) -> None:
    """Add what the tiers did about one row, who judged it, and its error, by the record of its verdict."""
    if error := columns.get("error"):
        errors[one_line(str(error), 200)] += 1
    judged = nested(columns.get("judged")) or {}
    if not str(judged.get("schema")).startswith(
        "judgekit/"
    ):  # another program may have such a column
        return
    judges[judge_named({**columns, "judged": judged})] += 1
    for each in judged.get("rounds", ()):
        tier = tiers[each["tier"]]
        usage = each.get("usage") or {}
        tier["failed" if each.get("failure") else "answered"] += 1
        tier["seconds"] += each.get("latency_ms", 0) / 1000
        tier["cost_usd"] += usage.get("cost_usd") or 0.0
        tier["unpriced"] += usage.get("cost_usd") is None and not each.get("failure")
    if tier_name := judged.get("judge_tier"):
        tiers[tier_name]["decided"] += 1


def _labelled(
    pairs: Sequence[stats.Pair],
    labels: Mapping[str, str],
    rows: _Lists,
    left_out: LeftOut | None,
) -> Labelled:
    confusion = defaultdict[str, dict[str, int]](dict)
    for (label, said), count in sorted(Counter(pairs).items()):
        confusion[label][said] = count
    same = compared(pairs, binary=rows.is_binary)
    kappa, _ = stats.kappas(same)
    differing = sum(label != said for label, said in same)
    return Labelled(
        labels=len(pairs),
        left_out=len(labels) - len(pairs),
        accuracy=stats.accuracy(same),
        kappa=kappa,
        confusion=confusion,
        differing=differing,
        wrong=rows.wrong,
        is_binary=rows.is_binary and any(said == "improve" for _, said in pairs),
        not_compared=left_out or LeftOut(),
        unmatched=rows.unlabelled(labels),
    )


def _wins(ranks: Sequence[ResultRow]) -> tuple[dict[str, WinRate], dict[str, dict[str, WinRate]]]:
    """Return how often each text wins, and above two texts how often each is above each other by score."""
    words = [each.word for each in ranks]
    letters = sorted(
        {"A", "B", *words, *(letter for each in ranks for letter in each.scores)} - {TIE}
    )
    if ranks:
        rates = {letter: _win_rate(_worths(words, letter)) for letter in letters}
    else:
        rates = {}
    matrix = defaultdict[str, dict[str, WinRate]](dict)
    for one, other in combinations(letters, 2) if letters[2:] else ():
        both = []
        for row in ranks:
            if row.scores.keys() >= {one, other}:
                both.append(row.scores)
        if both:
            values = []
            for each in both:
                values.append((1 + (each[one] > each[other]) - (each[one] < each[other])) / 2)
            matrix[one][other] = _win_rate(values)
            matrix[other][one] = _win_rate([1 - value for value in values])
    return rates, dict(matrix)


def _win_rate(values: Sequence[float]) -> WinRate:
    rate = stats.adjusted(values, (0, 0, 1, 1))
    wins = values.count(1.0)
    losses = values.count(0.0)
    ties = len(values) - wins - losses
    return WinRate(
        wins=wins, ties=ties, losses=losses, rate=rate.value, low=rate.low, high=rate.high
    )


def _ordered(words: Mapping[str, int]) -> dict[str, int]:
    order = (*reversed(OUTCOMES), *UNDECIDED)
    names = sorted(words, key=lambda word: (order.index(word) if word in order else -1, word))
    return {word: words[word] for word in names}
