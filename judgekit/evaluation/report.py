"""What `judgekit eval judge` reports of each judge: agreement, flips, lift, reliability and cost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from judgekit.errors import InputError
from judgekit.evaluation.samples import Reader
from judgekit.evaluation.stats import (
    Bin,
    BootstrapInterval,
    Class,
    Pair,
    ReportPart,
    Resampling,
    accuracy,
    brier,
    classes,
    difference,
    ece,
    interval,
    kappas,
    mean,
    table,
)
from judgekit.judging.jury import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Recorded, Variant
    from judgekit.rubric.loader import LoadedRubric


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
