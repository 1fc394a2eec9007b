"""Summarises results: counts, rates and their intervals, agreement with labels, and the rows that matter.

Results are read once, row by row. Only ids and verdicts stay in memory, and the texts of the worst rows.
`improve` counts as not accepted; undetermined rows are left out of rates, and counted.
"""

from __future__ import annotations

import heapq
import operator
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import ceil, log
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from judgekit.config import TIE
from judgekit.data.agreement_tally import Agreement, AgreementTally, PromisedRow
from judgekit.data.labels import ResultFile, ResultRow, parse_object
from judgekit.data.results import describe_judge
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import stats
from judgekit.evaluation.labels import LeftOut, agrees, is_binary, prepare_pairs
from judgekit.evaluation.labels import parse_number as number
from judgekit.evaluation.stats import OUTCOMES, UNDECIDED, ReportPart
from judgekit.ledger.rates import Interval
from judgekit.text import format_count, shorten_to_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.data.page_rows import PageRows

MIN_LABELS = 30  # with fewer, the bounds don't keep the confidence they claim
_MAX_LISTED_REASONS = 5  # most judges listed, and most errors
MAX_SHOWN = 100  # rows in a list, and values of a column
_SHOWN_CHARS = 400
NO_VALUE_GROUP = ""  # the group of rows whose cell in the column is empty
_SHOWN_IDS = 3  # ids shown from each of two files that have none in common
_EMPTY_TIER = dict.fromkeys(("decided", "answered", "failed", "seconds", "cost_usd", "unpriced"), 0)


def _build_interval(value: float | None, low: float | None, high: float | None) -> Interval | None:
    """Build an interval. Returns None if the value or one of its bounds is missing."""
    if value is None or low is None or high is None:
        return None
    return Interval(value, low, high)


class CorrectedRate(ReportPart):
    """A share of rows: as `judged`, and `corrected` for the judge's errors by `labels`, each with bounds."""

    judged: float
    corrected: float | None = None
    low: float | None = None
    high: float | None = None
    labels: int = 0
    judged_low: float | None = None
    judged_high: float | None = None

    @property
    def judged_interval(self) -> Interval | None:
        return _build_interval(self.judged, self.judged_low, self.judged_high)

    @property
    def interval(self) -> Interval | None:
        return _build_interval(self.corrected, self.low, self.high)


class Group(ReportPart):
    """The rows with one `value` of a column, "" for none; `needs` says how many labels are missing."""

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
        return _build_interval(self.value, self.low, self.high)


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
    labelled_second: Labelled | None = None
    difference: Difference | None = None
    column: str | None = None
    groups: list[Group] = []
    agreement: Agreement | None = Field(default=None, exclude_if=operator.not_)
    """What a promise of agreement bought; absent if no row was judged under one."""


def _score_verdicts(words: Iterable[str], best: str) -> list[float]:
    """Convert verdicts to numbers: 1 for `best`, 0.5 for a tie, otherwise 0. Omits undecided verdicts."""
    values = []
    for word in words:
        if word in UNDECIDED:
            continue
        if word == best:
            values.append(1.0)
        elif word == TIE:
            values.append(0.5)
        else:
            values.append(0.0)
    return values


@dataclass
class _Tally:
    """Counts rows by verdict, and collects label and verdict of labelled ones."""

    count_by_verdict: Counter[str] = field(default_factory=Counter)
    pairs: list[stats.Pair] = field(default_factory=list)  # each a label and a verdict

    def add(self, word: str, label: str | None) -> None:
        self.count_by_verdict[word] += 1
        is_decided = word not in UNDECIDED
        if label is not None and is_decided:
            self.pairs.append((label, word))

    def rate(self, best: str) -> CorrectedRate | None:
        """Compute the rate of `best` among decided rows, and correct it if there are enough labels.

        Returns None if no row is decided.
        """
        decided = _score_verdicts(self.count_by_verdict.elements(), best)
        if not decided:
            return None

        # The extra values keep a small sample's interval away from 0 and 1.
        judged_low, judged_high = stats.adjusted_mean(decided, (0, 0, 1, 1)).bounds
        judged_rate = CorrectedRate(
            judged=sum(decided) / len(decided),
            labels=len(self.pairs),
            judged_low=judged_low,
            judged_high=judged_high,
        )
        needs_more_labels = self.needs(best) is not None
        return judged_rate if needs_more_labels else self._correct_rate(judged_rate, best)

    def _correct_rate(self, judged_rate: CorrectedRate, best: str) -> CorrectedRate:
        """Add the corrected rate of `best` and its interval to `judged_rate`."""
        labels = _score_verdicts([label for label, _ in self.pairs], best)
        verdicts = _score_verdicts([verdict for _, verdict in self.pairs], best)
        # `corrected_mean` takes the judge's value first.
        labelled = list(zip(verdicts, labels, strict=True))

        labelled_counts = Counter(verdict for _, verdict in self.pairs)
        unlabelled_counts = self.count_by_verdict - labelled_counts  # both count rows by verdict
        unlabelled = _score_verdicts(unlabelled_counts.elements(), best)

        corrected = stats.corrected_mean(labelled, others=unlabelled)
        low, high = corrected.bounds
        update = {"corrected": corrected.value, "low": low, "high": high}
        return judged_rate.model_copy(update=update)

    def group(self, value: str, best: str, *, is_labelled: bool) -> Group:
        """Build the report on the rows with this value in a column."""
        return Group(
            value=shorten_to_line(value, 80),
            rows=self.count_by_verdict.total(),
            verdicts=_sort_verdicts(self.count_by_verdict),
            rate=self.rate(best),
            needs=self.needs(best) if is_labelled else None,
        )

    def needs(self, best: str) -> str | None:
        """Describe how many more labels are needed to correct the rate of `best`.

        Returns None if there are enough: at least `MIN_LABELS`, with both `best` and another verdict among
        them.
        """
        label_count = len(self.pairs)
        decided = self.count_by_verdict.total() - _count_undecided(self.count_by_verdict)
        if decided < MIN_LABELS:
            return f"{format_count(decided, 'row with a verdict is', 'rows with a verdict are')} too few"

        best_label_count = sum(label == best for label, _ in self.pairs)
        missing_count = MIN_LABELS - label_count
        reason = f"{format_count(label_count, 'label is', 'labels are')} too few"
        is_one_sided = best_label_count in (0, label_count)  # also true if there are no labels
        if label_count and is_one_sided:
            if best_label_count:
                missing_side_rows = decided - self.count_by_verdict[best]
                reason = f"no label says anything but {best}"
            else:
                missing_side_rows = self.count_by_verdict[best]
                reason = f"no label says {best}"
            # To find out how many rows must be labelled, estimate how common the missing side is: by the
            # judge's verdicts, or by Laplace's rule of succession if that gives more.
            fraction = max(missing_side_rows / decided, 1 / (label_count + 2))
            missing_count = max(missing_count, _count_draws_until_seen(fraction))

        missing_count = min(missing_count, decided - label_count)
        if missing_count > 0:
            return f"{reason}; {missing_count} more would do"
        # Labels of only one side don't suffice, even if every row has one.
        return reason if is_one_sided else None


def _count_draws_until_seen(fraction: float) -> int:
    """Compute how many rows must be drawn to get one from a group that makes up this fraction of all rows.

    The confidence is `stats.CONFIDENCE_LEVEL`.
    """
    if fraction >= 1:
        return 1
    # The probability of missing the group in n draws is (1 - fraction) ** n.
    return ceil(log(1 - stats.CONFIDENCE_LEVEL) / log(1 - fraction))


def _count_undecided(words: Mapping[str, int]) -> int:
    return sum(words.get(word, 0) for word in UNDECIDED)


def _make_tier() -> dict[str, float]:
    return dict(_EMPTY_TIER)


@dataclass
class _Totals:
    """Sums over all rows of the results; `ranked_rows` are the rows of decided comparisons."""

    tally: _Tally = field(default_factory=_Tally)
    scores: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    tiers: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(_make_tier))
    ranked_rows: list[ResultRow] = field(default_factory=list)
    judges: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    agreement: AgreementTally = field(default_factory=AgreementTally)
    usd: float = 0.0
    priced: int = 0
    unpriced: int = 0

    def add(self, row: ResultRow, label: str | None) -> None:
        """Add a row's verdict, cost, scores and calls."""
        self.tally.add(row.verdict, label)

        cost = number(row.columns.get("cost_usd"))
        if cost is not None:
            self.priced += 1
            self.usd += cost
        judged = parse_object(row.columns.get("judged")) or {}
        is_partly_unpriced = judged.get("cost_complete") is False
        if cost is None or is_partly_unpriced:
            self.unpriced += 1

        promised = PromisedRow.of(judged)
        if promised is not None:
            self.agreement.add(promised)
        if row.verdict in OUTCOMES:
            for dimension, score in row.scores.items():
                self.scores[dimension][f"{score:g}"] += 1
        elif row.verdict not in UNDECIDED:  # a comparison's winner, or a tie
            self.ranked_rows.append(row._replace(columns={}))  # without the cells, to save memory
        _count_calls(self.tiers, self.judges, self.errors, row.columns)

    def count_dimension_scores(self) -> dict[str, dict[str, int]]:
        """Count each dimension's scores, in ascending order."""
        dimensions = {}
        for name, counts in self.scores.items():
            dimensions[name] = {score: counts[score] for score in sorted(counts, key=float)}
        return dimensions

    def cost_usd(self) -> float | None:
        """Return the known cost of all rows in US dollars, or None if no row's cost is known."""
        if self.unpriced and not self.priced:
            return None
        return self.usd


def summarise(
    results: ResultFile,
    name: str,
    labels: Mapping[str, str] | None = None,
    column: str | None = None,
    second: tuple[str, Mapping[str, str]] | None = None,
    left_out: LeftOut | None = None,
    page_rows: PageRows | None = None,
) -> ResultsReport:
    """Summarise results, optionally by `column`, and in comparison with `labels` and `second` results.

    `second` is the name of the other results and their verdicts by id. `left_out` describes labels that are
    missing from `labels`. Rows are also passed to `page_rows`. Raises `UsageError` if no row has the column,
    and `InputError` if there are no rows.
    """
    has_labels = labels is not None
    labels = labels or {}
    totals = _Totals()
    groups = defaultdict[str, _Tally](_Tally)
    has_column = False
    lists = _Lists(second, results, labels)

    for row in results:
        label = labels.get(row.row_id)
        totals.add(row, label)
        lists.add(row, label)
        if page_rows is not None:
            page_rows.add(row, label, is_binary=lists.is_binary)
        if column is not None:
            has_column = has_column or row.has(column)
            for value in row.values_of(column) or [NO_VALUE_GROUP]:
                groups[value].add(row.verdict, label)

    tally = totals.tally
    if not tally.count_by_verdict:
        raise InputError(f"{name}: no row; name a file that judge or compare --data wrote")
    if column is not None and not has_column:
        raise UsageError(f"--by {column}: {name} has no such column")

    task = "judge"
    best = "accept"  # the verdict whose rate is reported
    accept_rate = None
    needs = None
    if totals.ranked_rows:
        task = "compare"
        best = "A"
    else:
        accept_rate = tally.rate(best)
        needs = tally.needs(best) if labels else None

    labelled = None
    labelled_second = None
    if has_labels:
        labelled = _compare_with_labels(tally.pairs, labels, lists, left_out)
        if second:
            labelled_second = _compare_second_with_labels(second[1], labels)

    win_rates, matrix = _compute_win_rates(totals.ranked_rows)
    largest_groups = []
    for value, group_tally in _find_largest(groups):
        largest_groups.append(group_tally.group(value, best, is_labelled=bool(labels)))

    return ResultsReport(
        file=name,
        rows=tally.count_by_verdict.total(),
        undetermined=_count_undecided(tally.count_by_verdict),
        task=task,
        verdicts=_sort_verdicts(tally.count_by_verdict),
        accept_rate=accept_rate,
        needs=needs,
        win_rates=win_rates,
        matrix=matrix,
        dimensions=totals.count_dimension_scores(),
        worst=lists.list_worst_rows(),
        tiers={name: _hide_unknown_cost(tier) for name, tier in totals.tiers.items()},
        cost_usd=totals.cost_usd(),
        cost_complete=not totals.unpriced,
        judged_by=dict(totals.judges.most_common(_MAX_LISTED_REASONS)),
        errors=dict(totals.errors.most_common(_MAX_LISTED_REASONS)),
        not_accepted=sum(
            tally.count_by_verdict[word] for word in OUTCOMES[:2]
        ),  # reject and improve
        values=len(groups),
        labelled=labelled,
        labelled_second=labelled_second,
        difference=lists.compute_difference(best) if second else None,
        column=column,
        groups=largest_groups,
        agreement=totals.agreement.sum_up(),
    )


def _find_largest(groups: Mapping[str, _Tally]) -> list[tuple[str, _Tally]]:
    """Return the `MAX_SHOWN` groups with the most rows, largest first."""

    def count_rows(group: tuple[str, _Tally]) -> int:
        _, tally = group
        return tally.count_by_verdict.total()

    by_size = sorted(groups.items(), key=count_rows, reverse=True)
    return by_size[:MAX_SHOWN]


class _Lists:
    """Collects the rows to show: the worst ones, those that the judge got wrong, those that differ."""

    def __init__(
        self,
        second: tuple[str, Mapping[str, str]] | None,
        source: ResultFile,
        labels: Mapping[str, str],
    ) -> None:
        self.wrong_rows = list[Shown]()
        self.is_binary = is_binary(labels.values())
        self._second_results = second  # the file's name, and its verdicts by row id
        self._source = source
        self._first_ids = list[str]()  # of a few rows, to show if no other id matches
        self._has_label = False
        self._row_count = 0
        self._rows_in_both = 0
        # Both verdicts of each row that's decided in both results.
        self._both_words = list[tuple[str, str]]()
        self._differing = list[Shown]()
        # Each row with its sort key: outcome, mean, position. The lowest keys are the worst rows.
        self._worst: list[tuple[tuple[float, ...], Shown]] = []
        # Once there are enough worst rows, the highest key among them. Rows above it can be ignored.
        self._least_bad: tuple[float, ...] | None = None

    def add(self, row: ResultRow, label: str | None) -> None:
        """Add a row to the report's lists that it belongs to, such as the worst rows."""
        self._row_count += 1
        if len(self._first_ids) < _SHOWN_IDS:
            self._first_ids.append(shorten_to_line(row.row_id, 40))
        if label is not None:
            self._has_label = True
            self._compare_with_label(row, label)
        if row.verdict in OUTCOMES[:2]:  # reject or improve
            self._note_bad_row(row)
        if self._second_results:
            _, second_words = self._second_results
            if row.row_id in second_words:
                self._compare_with_second(row, second_words[row.row_id])

    def _note_bad_row(self, row: ResultRow) -> None:
        """Note a row if it's among the worst so far."""
        average = number(row.columns.get("average"))
        if average is None:
            average = -1.0  # sorts before all scores
        # Rejected rows have the lowest ranks, then rows with low scores, then early rows.
        rank = OUTCOMES.index(row.verdict), average, self._row_count
        if self._least_bad is not None and rank > self._least_bad:
            return

        # Keep a shortened row to save memory.
        self._worst.append((rank, self._shorten(row)))
        if len(self._worst) > 2 * MAX_SHOWN:  # only sort occasionally
            self._worst = heapq.nsmallest(MAX_SHOWN, self._worst, key=itemgetter(0))
            self._least_bad, _ = self._worst[-1]

    def _compare_with_label(self, row: ResultRow, label: str) -> None:
        """Add a row to `wrong_rows` if its verdict disagrees with its label and the list isn't full."""
        if row.verdict in UNDECIDED or agrees(label, row.verdict, binary=self.is_binary):
            return
        if len(self.wrong_rows) < MAX_SHOWN:
            self.wrong_rows.append(self._shorten(row, label=label))

    def _compare_with_second(self, row: ResultRow, second_word: str) -> None:
        """Count a row that both results contain, and list it if the two verdicts differ."""
        self._rows_in_both += 1
        if row.verdict in UNDECIDED or second_word in UNDECIDED:
            return
        self._both_words.append((row.verdict, second_word))
        if row.verdict != second_word and len(self._differing) < MAX_SHOWN:
            self._differing.append(self._shorten(row, second=second_word))

    def list_worst_rows(self) -> list[Shown]:
        """Return the worst rows that aren't accepted, up to `MAX_SHOWN`, worst first."""
        worst = heapq.nsmallest(MAX_SHOWN, self._worst, key=itemgetter(0))
        return [shown for _, shown in worst]

    def _shorten(
        self, row: ResultRow, label: str | None = None, second: str | None = None
    ) -> Shown:
        """Build a short form of a row for the report, with its label or its second verdict."""
        reasoning = str(row.columns.get("reasoning") or "")
        text = self._source.text_of(row)
        return Shown(
            id=shorten_to_line(row.row_id, 80),
            verdict=row.verdict,
            label=label,
            second=second,
            average=number(row.columns.get("average")),
            scores=dict(row.scores),
            reasoning=shorten_to_line(reasoning, _SHOWN_CHARS),
            text=shorten_to_line(text, _SHOWN_CHARS),
        )

    def find_unmatched_labels(self, labels: Mapping[str, str]) -> Unmatched | None:
        """Return a few ids of results and labels if none match, or None."""
        if self._has_label or not labels:
            return None
        return self._build_unmatched(labels)

    def _build_unmatched(self, others: Iterable[str]) -> Unmatched:
        first_others = [shorten_to_line(other, 40) for other in islice(others, _SHOWN_IDS)]
        return Unmatched(results=self._first_ids, others=first_others)

    def compute_difference(self, best: str) -> Difference:
        """Compute how much the rate of `best` differs between the two results, over rows decided in both.

        Without such rows, the difference's value is None.
        """
        row_differences = []
        for first_word, second_word in self._both_words:
            first_value, second_value = _score_verdicts((first_word, second_word), best)
            row_differences.append(second_value - first_value)

        value = None
        low = None
        high = None
        if row_differences:
            # The extra values keep a small sample's interval away from -1 and 1.
            mean_difference = stats.adjusted_mean(row_differences, (-1, 1))
            value = mean_difference.value
            low, high = mean_difference.bounds

        name, second_words = self._second_results or ("", {})
        unmatched = None
        if second_words and not self._rows_in_both:  # no row is in both results
            unmatched = self._build_unmatched(second_words)
        return Difference(
            file=name,
            rows=len(row_differences),
            only_first=self._row_count - self._rows_in_both,
            only_second=len(second_words) - self._rows_in_both,
            value=value,
            low=low,
            high=high,
            differing=sum(
                first_word != second_word for first_word, second_word in self._both_words
            ),
            rows_that_differ=self._differing,
            unmatched=unmatched,
        )


def _hide_unknown_cost(tier: Mapping[str, float]) -> dict[str, float | None]:
    """Copy a tier's counts, with None as its cost if no call has a known price."""
    cost = float(tier["cost_usd"])
    is_unknown = tier["unpriced"] > 0 and not cost
    return {**tier, "cost_usd": None if is_unknown else cost}


def _count_calls(
    tiers: dict[str, dict[str, float]],
    judges: Counter[str],
    errors: Counter[str],
    columns: Mapping[str, Any],
) -> None:
    """Add a row's judge, error and calls to these counts."""
    error = columns.get("error")
    if error:
        errors[shorten_to_line(str(error), 200)] += 1
    judged = parse_object(columns.get("judged")) or {}
    # Another program may have written a column `judged`. Ignore it.
    if not str(judged.get("schema")).startswith("judgekit/"):
        return
    # `describe_judge` needs the parsed record, because the cell can be text.
    judges[describe_judge({**columns, "judged": judged})] += 1
    for round_ in judged.get("rounds", ()):
        _count_round(tiers[round_["tier"]], round_)
    tier_name = judged.get("judge_tier")
    if tier_name:
        tiers[tier_name]["decided"] += 1


def _count_round(tier: dict[str, float], round_: Mapping[str, Any]) -> None:
    """Add a round's time, cost and outcome to its tier's counts."""
    usage = round_.get("usage") or {}
    cost = usage.get("cost_usd")
    tier["seconds"] += round_.get("latency_ms", 0) / 1000
    tier["cost_usd"] += cost or 0.0
    if round_.get("failure"):
        tier["failed"] += 1
        return
    tier["answered"] += 1
    if cost is None:
        tier["unpriced"] += 1


def _compare_with_labels(
    pairs: Sequence[stats.Pair],
    labels: Mapping[str, str],
    rows: _Lists,
    left_out: LeftOut | None,
) -> Labelled:
    """Measure how well verdicts agree with labels. `pairs` contains (label, verdict)."""
    agreement = _measure_agreement(pairs, labels, binary=rows.is_binary)
    return agreement.model_copy(
        update={
            "wrong": rows.wrong_rows,
            "not_compared": left_out or LeftOut(),
            "unmatched": rows.find_unmatched_labels(labels),
        }
    )


def _compare_second_with_labels(words: Mapping[str, str], labels: Mapping[str, str]) -> Labelled:
    """Measure how well the second results' verdicts agree with the labels."""
    pairs = []
    for row_id, label in labels.items():
        word = words.get(row_id)
        if word is not None and word not in UNDECIDED:
            pairs.append((label, word))
    return _measure_agreement(pairs, labels, binary=is_binary(labels.values()))


def _measure_agreement(
    pairs: Sequence[stats.Pair], labels: Mapping[str, str], *, binary: bool
) -> Labelled:
    """Compare each label with its row's verdict, and count the labels that have no verdict.

    `binary` means that each label is accept or reject. Then the verdict "improve" counts as a rejection.
    """
    confusion = defaultdict[str, dict[str, int]](dict)
    for (label, verdict), count in sorted(Counter(pairs).items()):
        confusion[label][verdict] = count

    comparable_pairs = prepare_pairs(pairs, binary=binary)
    kappa, _ = stats.kappas(comparable_pairs)
    has_improve = any(verdict == "improve" for _, verdict in pairs)

    return Labelled(
        labels=len(pairs),
        left_out=len(labels) - len(pairs),
        accuracy=stats.accuracy(comparable_pairs),
        kappa=kappa,
        confusion=confusion,
        differing=sum(label != verdict for label, verdict in comparable_pairs),
        wrong=[],
        is_binary=binary and has_improve,  # reported only if it makes a difference
    )


def _compute_win_rates(
    ranks: Sequence[ResultRow],
) -> tuple[dict[str, WinRate], dict[str, dict[str, WinRate]]]:
    """Compute each text's win rate. With more than two texts, also compute it against each other text.

    `ranks` are the rows of decided comparisons. Both results are empty if there are no comparisons.
    """
    if not ranks:
        return {}, {}
    verdicts = [row.verdict for row in ranks]
    seen_letters = {"A", "B"}  # in every comparison, even if one of them never wins
    for row in ranks:
        seen_letters |= {row.verdict, *row.scores}
    letters = sorted(seen_letters - {TIE})
    rates = {letter: _build_win_rate(_score_verdicts(verdicts, letter)) for letter in letters}
    if len(letters) == 2:  # noqa: PLR2004 - for two texts, the rates against each other are the same
        return rates, {}

    matrix = defaultdict[str, dict[str, WinRate]](dict)
    for first_letter, second_letter in combinations(letters, 2):
        values = _compare_scores(ranks, first_letter, second_letter)
        if values:
            matrix[first_letter][second_letter] = _build_win_rate(values)
            matrix[second_letter][first_letter] = _build_win_rate([1 - value for value in values])
    return rates, dict(matrix)


def _compare_scores(ranks: Iterable[ResultRow], one: str, other: str) -> list[float]:
    """Compare two texts' scores in each row that has both.

    The result is 1 if `one` has the higher score, 0 if it has the lower score, and 0.5 for a tie.
    """
    values = []
    for row in ranks:
        score = row.scores.get(one)
        other_score = row.scores.get(other)
        if score is None or other_score is None:
            continue
        if score > other_score:
            values.append(1.0)
        elif score < other_score:
            values.append(0.0)
        else:
            values.append(0.5)
    return values


def _build_win_rate(values: Sequence[float]) -> WinRate:
    """Compute the win rate from values that are 1 for a win, 0.5 for a tie and 0 for a loss."""
    # The extra values keep a small sample's interval away from 0 and 1.
    rate = stats.adjusted_mean(values, (0, 0, 1, 1))
    low, high = rate.bounds
    wins = values.count(1.0)
    losses = values.count(0.0)
    ties = len(values) - wins - losses
    return WinRate(wins=wins, ties=ties, losses=losses, rate=rate.value, low=low, high=high)


def _sort_verdicts(words: Mapping[str, int]) -> dict[str, int]:
    """Sort verdict counts for display: winners first, then outcomes from best to worst, then undecided."""
    order = (*reversed(OUTCOMES), *UNDECIDED)

    def rank(word: str) -> tuple[int, str]:
        index = order.index(word) if word in order else -1  # a winner
        return index, word

    return {word: words[word] for word in sorted(words, key=rank)}
