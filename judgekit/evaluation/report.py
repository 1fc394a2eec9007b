"""`judgekit eval judge`: measures judges on labelled cases, and draws the page about them.

What could not be read is neither right nor wrong: it is counted apart.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from judgekit.errors import InputError
from judgekit.evaluation import charts, stats
from judgekit.evaluation.charts import Page
from judgekit.evaluation.samples import Reader
from judgekit.evaluation.stats import Bin, BootstrapInterval, Class, ReportPart, Resampling, interval, mean
from judgekit.judging.jury import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Variant
    from judgekit.evaluation.stats import Pair
    from judgekit.rubric.loader import LoadedRubric

    Figures = Mapping[str, Callable[["JudgeReport"], BootstrapInterval | None]]


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


class Item(NamedTuple):
    """One labelled thing and a judge's answer; None where that cannot be read.

    `of` is the id of the original that it is a variant of, its own for an original. `orders` are the answers
    about two texts in either order.
    """

    of: str
    variant: Variant
    label: str
    said: str | None
    calls: int
    cost_usd: float | None
    orders: tuple[str | None, ...] = ()
    unanswered: str | None = None


def report(
    cases: Sequence[Case], name: str, loaded: LoadedRubric | None, mode: ModeName, wanted: str | None = None
) -> JudgingReport:
    """Return how every judge in the cases does, each model of a jury as a judge of its own, too.

    Without a rubric answers must be recorded as a `choice`. `wanted` is the answer that injected texts are
    after (accept by default). Raises `InputError` for cases that do not fit the rubric.
    """
    cases = [
        case.model_copy(
            update={
                "judges": case.judges
                | {
                    f"{name}: {juror.model}": juror
                    for name, recorded in case.judges.items()
                    for juror in recorded.jury or ()
                }
            }
        )
        for case in cases
    ]
    judges = dict.fromkeys(judge for case in cases for judge in case.judges)
    if not judges:
        raise InputError(f"{name}: expected recorded answers under `judges`; name a --rubric to ask models")
    reader = Reader(loaded.rubric, mode) if loaded else None
    return JudgingReport(
        file=name,
        rubric=loaded.rubric.ref if loaded else None,
        mode=mode if loaded else None,
        items=sum(case.variant == "original" for case in cases),
        judges=[
            _judge(judge, [case for case in cases if judge in case.judges], reader, wanted or "accept")
            for judge in judges
        ],
    )


def _judge(judge: str, cases: Sequence[Case], reader: Reader | None, wanted: str) -> JudgeReport:
    items = [item for case in cases for item in _items(case, judge, reader)]
    originals = [item for item in items if item.variant == "original"]
    pairs: list[Pair] = [(item.label, item.said) for item in originals if item.said is not None]
    kappa, weighted = stats.kappas(pairs)
    both_orders = [item.orders for item in originals if len(item.orders) == len(ORDERS)]
    known = [item.cost_usd for item in originals if item.cost_usd is not None]
    calls = sum(item.calls for item in originals) / len(originals) if originals else 0.0
    return JudgeReport(
        judge=judge,
        model=cases[0].judges[judge].name,
        items=len(originals),
        unanswered=dict(Counter(item.unanswered for item in items if item.unanswered)),
        unreadable=interval(mean([item.said is None for item in items if not item.unanswered])),
        accuracy=stats.accuracy(pairs),
        kappa=kappa,
        weighted_kappa=weighted,
        classes=stats.classes(pairs),
        confusion=[
            Confusion(label=label, said=said, count=count)
            for (label, said), count in sorted(Counter(pairs).items())
        ],
        order_flips=_flips([*_matched(items, "swapped"), *_known(both_orders)]),
        rerun_flips=_flips(_matched(items, "rerun")),
        injection=_lift(_matched(items, "injected"), wanted),
        cost=MeanCost(calls=calls, known=len(known), usd=sum(known) / len(known) if known else None),
        probabilities=_probabilities(cases, judge, reader),
    )


def _items(case: Case, judge: str, reader: Reader | None) -> Iterator[Item]:
    """Yield a judge's answers about a case: one for each candidate, else one."""
    recorded = case.judges[judge]
    if reader is not None:
        answers, labels = reader.words(case, recorded), reader.labels(case)
    else:
        label = case.right("strict")
        if not isinstance(label, str) or (recorded.choice is None and recorded.failure is None):
            raise InputError(
                f"{case.where}: judges.{judge}: expected a choice; name the --rubric to read others by"
            )
        answers, labels = {"": recorded.choice}, {"": label}
    cost, calls = recorded.cost_usd, recorded.calls
    for part, label in labels.items():
        of = f"{case.pair or case.id}/{part}" if part else case.pair or case.id
        orders = tuple((recorded.orders or {}).values())
        yield Item(of, case.variant, label, answers[part], calls, cost, orders, recorded.unanswered)
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


def _lift(pairs: Sequence[Pair], wanted: str) -> Lift | None:
    if not pairs:
        return None
    before, after = ([float(pair[side] == wanted) for pair in pairs] for side in (0, 1))
    return Lift(
        wanted=wanted,
        pairs=len(pairs),
        before=interval(mean(before)),
        after=interval(mean(after)),
        lift=stats.difference(after, before),
    )


def _probabilities(cases: Sequence[Case], judge: str, reader: Reader | None) -> Probabilities | None:
    """Return how far a judge's probabilities about candidates of originals are right; None without any."""
    hits = [
        (probability, label == "accept")
        for case in cases
        if reader and case.variant == "original" and case.candidates
        for candidate, label in reader.labels(case).items()
        if (probability := (case.judges[judge].probabilities or {}).get(candidate)) is not None
    ]
    probabilities, kept = [probability for probability, _ in hits], [label for _, label in hits]
    brier, ece = stats.brier(probabilities, kept), stats.ece(probabilities, kept)
    if brier is None or ece is None:
        return None
    bins = stats.table(probabilities, kept)
    return Probabilities(answers=len(hits), brier=brier, ece=ece, bins=bins)


# --- The page

MOST_WORDS = 30  # nobody reads a picture of a thousand cells
_AGREEMENT: Figures = {
    "Accuracy": lambda judge: judge.accuracy,
    "Cohen's kappa": lambda judge: judge.kappa,
    "Weighted kappa": lambda judge: judge.weighted_kappa,
}
_RELIABILITY: Figures = {
    "Unreadable": lambda judge: judge.unreadable,
    "Order flips": lambda judge: judge.order_flips.rate,
    "Rerun flips": lambda judge: judge.rerun_flips.rate,
    "Injection lift": lambda judge: judge.injection.lift if judge.injection else None,
}


def html(report: JudgingReport) -> str:
    """Return the page; raises `UsageError` where what draws its charts is not installed."""
    page = Page(f"Judges on {charts.name(report.file)}")
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    boot, judges = report.bootstrap, report.judges
    page.add(
        "p",
        f"{report.items} labelled items{rubric}. In brackets, and as lines, are {boot.level:.0%} intervals:"
        f" {boot.resamples} draws of the items, seed {boot.seed}. Unreadable answers count neither as right"
        " nor as wrong.",
    )
    _table(page, judges)
    names = [judge.judge for judge in judges]
    agreement = {name: [figure(judge) for judge in judges] for name, figure in _AGREEMENT.items()}
    reliability = {name: [figure(judge) for judge in judges] for name, figure in _RELIABILITY.items()}
    points = {
        judge.judge: (judge.cost.usd, judge.accuracy)
        for judge in judges
        if judge.cost.usd is not None and judge.accuracy is not None
    }
    chart = charts.intervals_chart(names, agreement)
    page.chart("Agreement with the labels: the further right, the better", chart)
    chart = charts.scatter_chart(points, "US dollars an item", "accuracy")
    page.chart("Cost against agreement, where the price is known", chart)
    chart = charts.intervals_chart(names, reliability, near=True)
    page.chart("Reliability: the further left, the better", chart)
    curves = {judge.judge: judge.probabilities.bins for judge in judges if judge.probabilities}
    title = "Probabilities (across) and the share that was to be kept (up): best on the dashed line"
    page.chart(title, charts.reliability_chart(curves))
    for judge in judges:
        _page_judge(page, judge)
    return page.text()


def _table(page: Page, judges: Sequence[JudgeReport]) -> None:
    figures = {
        name: figure for name, figure in {**_AGREEMENT, **_RELIABILITY}.items() if any(map(figure, judges))
    }
    rows = [
        [
            charts.name(judge.judge),
            *(_cell(figure(judge)) for figure in figures.values()),
            f"{judge.cost.calls:.2f}",
            "-" if judge.cost.usd is None else f"{judge.cost.usd:.6f}",
        ]
        for judge in judges
    ]
    page.table(["judge", *figures, "calls an item", "US dollars an item"], rows)
    page.add(
        "p",
        "The weighted kappa weighs by the square of the distance. Order flips are answers that change with"
        " the order, rerun flips those that change when asked again; the lift is how much more often"
        " injected text gets the answer that it is after.",
    )


def _page_judge(page: Page, judge: JudgeReport) -> None:
    """Add how well each word was said, and what the variants of the items changed."""
    name = charts.name(judge.judge)
    page.add("h2", f"{name}{f' ({charts.name(judge.model)})' if judge.model else ''}")
    rows = [
        [charts.name(one.word), str(one.labelled), str(one.said), _cell(one.precision), _cell(one.recall)]
        for one in judge.classes
    ]
    page.table(["word", "labelled so", "said", "precision", "recall"], rows)
    for how, flips in (("in another order", judge.order_flips), ("asked again", judge.rerun_flips)):
        if flips.pairs:
            page.add("p", f"Of {flips.pairs} items {how}, {_span(flips.rate)} were answered otherwise.")
    if lift := judge.injection:
        page.add(
            "p",
            f"Of {lift.pairs} items with injected text, {_span(lift.before)} were called"
            f" {charts.name(lift.wanted)} without it and {_span(lift.after)} with it:"
            f" a lift of {_span(lift.lift)}.",
        )
    if len(judge.classes) > MOST_WORDS:
        page.add(
            "p", f"{len(judge.classes)} different words are too many for a picture of what was said of what."
        )
    elif judge.classes:
        counts = {(confusion.label, confusion.said): confusion.count for confusion in judge.confusion}
        chart = charts.confusion_chart([one.word for one in judge.classes], counts, "label", "answer")
        page.chart(f"{name}: labels (down) and answers (across), darker for more of a label", chart)


def _span(figure: BootstrapInterval | None) -> str:
    return "-" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _cell(figure: BootstrapInterval | None) -> str:
    return _span(figure).replace(" ", "\n", 1)
