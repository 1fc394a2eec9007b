"""Measures judges on labelled cases with their answers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import InputError
from judgekit.evaluation import agreement
from judgekit.evaluation.agreement import Confusion, Flips, JudgeReport, JudgingReport, Lift, MeanCost
from judgekit.evaluation.readings import Reader, name_of
from judgekit.evaluation.stats import difference, interval, mean
from judgekit.judging.votes import ORDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config.names import ModeName
    from judgekit.evaluation.agreement import Pair
    from judgekit.evaluation.labelled import Case, Variant
    from judgekit.rubric.loader import LoadedRubric

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
        unanswered=dict(Counter(each.unanswered for each in found if each.unanswered)),
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
    matched = [(originals.get(each.of), each.said) for each in found if each.variant == variant]
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
