"""`judgekit eval judge`: measures judges on labelled cases, and draws the page about them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import InputError
from judgekit.evaluation import agreement, charts, diagrams
from judgekit.evaluation.agreement import Confusion, Flips, JudgeReport, JudgingReport, Lift, MeanCost
from judgekit.evaluation.charts import Page
from judgekit.evaluation.diagrams import Curve, FigurePanel, ReliabilityGroup
from judgekit.evaluation.readings import Reader, name_of
from judgekit.evaluation.stats import difference, interval, mean
from judgekit.judging.jury import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from judgekit.config.names import ModeName
    from judgekit.evaluation.agreement import Pair
    from judgekit.evaluation.labelled import Case, Variant
    from judgekit.evaluation.stats import BootstrapInterval
    from judgekit.rubric.loader import LoadedRubric

    Figures = Mapping[str, Callable[[JudgeReport], BootstrapInterval | None]]


ACCEPT = "accept"


class Item(NamedTuple):
    """One labelled thing and what one judge said; None where that cannot be read.

    `of` is the id of the original that it is a variant of, its own for an original. `orders` is what was
    said of two texts in either order.
    """

    id: str
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
    """Return how every judge in the cases does.

    Without a rubric answers must be recorded as a `choice`. `wanted` is the answer that injected texts are
    after (accept, unless said otherwise). Raises `InputError` for cases that do not fit the rubric.
    """
    cases = [_with_jurors(case) for case in cases]
    judges = dict.fromkeys(judge for case in cases for judge in case.judges)
    if not judges:
        raise InputError(f"{name}: expected recorded answers under `judges`; name a --rubric to ask models")
    reader = Reader(loaded.rubric, mode) if loaded else None
    return JudgingReport(
        file=name,
        rubric=loaded.rubric.ref if loaded else None,
        mode=mode if loaded else None,
        items=len([case for case in cases if case.variant == "original"]),
        judges=[_judge(judge, cases, reader, wanted or ACCEPT) for judge in judges],
    )


def items(cases: Sequence[Case], judge: str, reader: Reader | None) -> list[Item]:
    """Return what one judge said about each document, candidate or other labelled thing."""
    found: list[Item] = []
    for case in cases:
        if judge not in case.judges:
            continue
        recorded, pairs = case.judges[judge], _words(case, judge, reader)
        for number, (part, (label, word)) in enumerate(pairs.items()):
            end = f"/{part}" if part else ""
            of = f"{case.pair or case.id}{end}"
            first = number == 0  # one call brought the answers on all candidates
            cost = recorded.cost_usd if first or recorded.cost_usd is None else 0.0
            calls = recorded.calls if first else 0
            orders = tuple((recorded.orders or {}).values())
            found.append(
                Item(
                    f"{case.id}{end}", of, case.variant, label, word, calls, cost, orders, recorded.unanswered
                )
            )
    return found


def _with_jurors(case: Case) -> Case:
    """Return a case in which each model of a jury is a judge of its own, too."""
    alone = {
        f"{name}: {each.model}": each
        for name, recorded in case.judges.items()
        for each in recorded.jury or ()
    }
    return case.model_copy(update={"judges": case.judges | alone}) if alone else case


def _words(case: Case, judge: str, reader: Reader | None) -> dict[str, tuple[str, str | None]]:
    """Return by part the label and the word that was said."""
    recorded = case.judges[judge]
    if reader is not None:
        words = reader.words(case, recorded)
        return {part: (label, words[part]) for part, label in reader.labels(case).items()}
    label = case.right("strict")
    if not isinstance(label, str) or (recorded.choice is None and recorded.failure is None):
        raise InputError(
            f"{case.where}: judges.{judge}: expected a choice; name the --rubric to read others by"
        )
    return {"": (label, recorded.choice)}


def _judge(judge: str, cases: Sequence[Case], reader: Reader | None, wanted: str) -> JudgeReport:
    found = items(cases, judge, reader)
    originals = [item for item in found if item.variant == "original"]
    pairs: list[Pair] = [
        (original.label, original.said) for original in originals if original.said is not None
    ]
    plain, weighted = agreement.kappas(pairs)
    counts = Counter(pairs)
    return JudgeReport(
        judge=judge,
        model=next((name_of(case.judges[judge]) for case in cases if judge in case.judges), ""),
        items=len(originals),
        unanswered=dict(Counter(item.unanswered for item in found if item.unanswered)),
        unreadable=interval(mean([each.said is None for each in found if not each.unanswered])),
        accuracy=agreement.accuracy(pairs),
        kappa=plain,
        weighted_kappa=weighted,
        classes=agreement.classes(pairs),
        confusion=[
            Confusion(label=label, said=said, count=count) for (label, said), count in sorted(counts.items())
        ],
        order_flips=_flips([*_matched(found, "swapped"), *_both_orders(originals)]),
        rerun_flips=_flips(_matched(found, "rerun")),
        injection=_lift(found, wanted),
        cost=_cost(originals),
        probabilities=agreement.measured(cases, judge, reader),
    )


def _matched(found: Sequence[Item], variant: Variant) -> list[tuple[str, str]]:
    """Return what was said about the original and about its variant, where both can be read."""
    originals = {item.of: item.said for item in found if item.variant == "original"}
    matched = [(originals.get(item.of), item.said) for item in found if item.variant == variant]
    return [(before, after) for before, after in matched if before is not None and after is not None]


def _both_orders(originals: Sequence[Item]) -> list[tuple[str, str]]:
    """Return what was said in one order and in the other, where both can be read."""
    asked = [original.orders for original in originals if len(original.orders) == len(ORDERS)]
    return [(first, second) for first, second in asked if first is not None and second is not None]


def _flips(matched: Sequence[tuple[str, str]]) -> Flips:
    return Flips(pairs=len(matched), rate=interval(mean([before != after for before, after in matched])))


def _lift(found: Sequence[Item], wanted: str) -> Lift | None:
    matched = _matched(found, "injected")
    if not matched:
        return None
    before, after = ([float(each[side] == wanted) for each in matched] for side in (0, 1))
    return Lift(
        wanted=wanted,
        pairs=len(matched),
        before=interval(mean(before)),
        after=interval(mean(after)),
        lift=difference(after, before),
    )


def _cost(originals: Sequence[Item]) -> MeanCost:
    known = [original.cost_usd for original in originals if original.cost_usd is not None]
    calls = sum(original.calls for original in originals) / len(originals) if originals else 0.0
    return MeanCost(calls=calls, known=len(known), usd=sum(known) / len(known) if known else None)


MOST_WORDS = 30  # nobody reads a picture of a thousand cells


def html(report: JudgingReport) -> str:
    """Return the page; raises `UsageError` where what draws its charts is not installed."""
    page = Page(f"Judges on {charts.name(report.file)}")
    rubric = f", rubric {report.rubric}, {report.mode}" if report.rubric else ""
    boot = report.bootstrap
    page.paragraph(
        f"{report.items} labelled items{rubric}. In brackets, and as lines, are {boot.level:.0%} intervals:"
        f" {boot.resamples} draws of the items, seed {boot.seed}. Unreadable answers count neither as right"
        " nor as wrong."
    )
    _table(page, report.judges)
    _panels(page, "Agreement with the labels: the further right, the better", _AGREEMENT, report.judges)
    _tradeoff(page, report.judges)
    _panels(page, "Reliability: the further left, the better", _RELIABILITY, report.judges, near=True)
    _probabilities(page, report.judges)
    for judge in report.judges:
        _page_judge(page, judge)
    return page.text()


def _page_lift(each: JudgeReport) -> BootstrapInterval | None:
    return each.injection.lift if each.injection else None


_AGREEMENT: Figures = {
    "Accuracy": lambda each: each.accuracy,
    "Cohen's kappa": lambda each: each.kappa,
    "Weighted kappa": lambda each: each.weighted_kappa,
}
_RELIABILITY: Figures = {
    "Unreadable": lambda each: each.unreadable,
    "Order flips": lambda each: each.order_flips.rate,
    "Rerun flips": lambda each: each.rerun_flips.rate,
    "Injection lift": _page_lift,
}


def _table(page: Page, judges: Sequence[JudgeReport]) -> None:
    known = {**_AGREEMENT, **_RELIABILITY}
    figures = {name: figure for name, figure in known.items() if any(map(figure, judges))}
    rows = [
        [
            charts.name(judge.judge),
            *(_number(figure(judge)) for figure in figures.values()),
            f"{judge.cost.calls:.2f}",
            "-" if judge.cost.usd is None else f"{judge.cost.usd:.6f}",
        ]
        for judge in judges
    ]
    page.table(["judge", *figures, "calls an item", "US dollars an item"], rows)
    page.paragraph(
        "The weighted kappa weighs by the square of the distance. Order flips are answers that change with"
        " the order, rerun flips those that change when asked again; the lift is how much more often"
        " injected text gets the answer that it is after."
    )


def _panels(
    page: Page, title: str, figures: Figures, judges: Sequence[JudgeReport], *, near: bool = False
) -> None:
    panels = [
        FigurePanel(name, [figure(judge) for judge in judges], near) for name, figure in figures.items()
    ]
    found = diagrams.intervals_chart([judge.judge for judge in judges], panels)
    if found is not None:
        page.chart(title, found)


def _tradeoff(page: Page, judges: Sequence[JudgeReport]) -> None:
    points = [
        diagrams.ScatterPoint(judge.judge, judge.cost.usd, judge.accuracy)
        for judge in judges
        if judge.cost.usd is not None and judge.accuracy is not None
    ]
    found = diagrams.scatter_chart(points, "US dollars an item", "accuracy")
    if found is not None:
        page.chart("Cost against agreement, where the price is known", found)


def _probabilities(page: Page, judges: Sequence[JudgeReport]) -> None:
    curves = [
        Curve(
            judge.judge,
            [ReliabilityGroup(one.confidence, one.relevant, one.count) for one in judge.probabilities.bins],
        )
        for judge in judges
        if judge.probabilities
    ]
    found = diagrams.reliability_chart(curves)
    if found is not None:
        title = "Probabilities (across) and the share that was to be kept (up): best on the dashed line"
        page.chart(title, found)


def _page_judge(page: Page, each: JudgeReport) -> None:
    """Say how well each word was said, and what the variants of the items changed."""
    name = charts.name(each.judge)
    page.heading(f"{name}{f' ({charts.name(each.model)})' if each.model else ''}")
    rows = [
        [
            charts.name(one.word),
            str(one.labelled),
            str(one.said),
            _number(one.precision),
            _number(one.recall),
        ]
        for one in each.classes
    ]
    page.table(["word", "labelled so", "said", "precision", "recall"], rows)
    for line in _variants(each):
        page.paragraph(line)
    if len(each.classes) > MOST_WORDS:
        page.paragraph(
            f"{len(each.classes)} different words are too many for a picture of what was said of what."
        )
    elif each.classes:
        counts = {(confusion.label, confusion.said): confusion.count for confusion in each.confusion}
        paint = diagrams.confusion_chart([one.word for one in each.classes], counts, "label", "answer")
        page.chart(f"{name}: labels (down) and answers (across), darker for more of a label", paint)


def _variants(each: JudgeReport) -> Iterator[str]:
    for name, flips in (("in another order", each.order_flips), ("asked again", each.rerun_flips)):
        if flips.pairs:
            yield f"Of {flips.pairs} items {name}, {_span(flips.rate)} were answered otherwise."
    lift = each.injection
    if lift:
        yield (
            f"Of {lift.pairs} items with injected text, {_span(lift.before)} were called"
            f" {charts.name(lift.wanted)} without it and {_span(lift.after)} with it:"
            f" a lift of {_span(lift.lift)}."
        )


def _span(figure: BootstrapInterval | None) -> str:
    return "-" if figure is None else f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _number(figure: BootstrapInterval | None) -> str:
    return _span(figure).replace(" ", "\n", 1)
