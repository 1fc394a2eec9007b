"""What `judgekit eval judge` reports of each judge: agreement, flips, lift, reliability and cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from judgekit.errors import InputError
from judgekit.evaluation import stats
from judgekit.evaluation.cases import COURSE
from judgekit.evaluation.labels import LeftOut, agrees, compared, is_binary
from judgekit.evaluation.samples import Reader
from judgekit.judging.escalation import DIGITS
from judgekit.judging.jury import ORDERS
from judgekit.judging.noise import COVERAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Recorded, Variant
    from judgekit.rubric.loader import LoadedRubric


class Flips(stats.ReportPart):
    """Of `pairs` of answers about the same subject that could be read, the share that differ."""

    pairs: int
    rate: stats.BootstrapInterval | None


class Spread(stats.ReportPart):
    """How far scores, and the distance from acceptance, move when asked again: pooled standard deviations."""

    cases: int
    answers: int
    distance: stats.BootstrapInterval
    noise: float  # of the distance: 95 % of judgements are within it
    scores: dict[str, stats.BootstrapInterval]


class Lift(stats.ReportPart):
    """Shares of `pairs` with the answer that an attacker wants: of original and of injected texts."""

    wanted: str
    pairs: int
    before: stats.BootstrapInterval | None
    after: stats.BootstrapInterval | None
    lift: stats.BootstrapInterval | None


class MeanCost(stats.ReportPart):
    """Means by item: calls, US dollars over the `known` ones with a price; the median of milliseconds."""

    calls: float
    known: int
    usd: float | None
    milliseconds: float | None = None


class Confusion(stats.ReportPart):
    label: str
    said: str
    count: int


class Probabilities(stats.ReportPart):
    """How far the probabilities of `answers`, that a candidate is to be kept, were right."""

    answers: int
    brier: float
    ece: float
    bins: list[stats.Bin]


class Scores(stats.ReportPart):
    """Scores beside those of people: on `items`, the mean absolute error and Spearman's correlation."""

    items: int
    mean_error: stats.BootstrapInterval | None
    spearman: stats.BootstrapInterval | None


class Outcome(stats.ReportPart):
    """What each judge said of an item, an outcome or a mean score; None is unreadable or not answered."""

    id: str
    label: str | float
    said: dict[str, str | float | None]

    @property
    def is_disputed(self) -> bool:
        return len({said for said in self.said.values() if said is not None}) > 1


class JudgeReport(stats.ReportPart):
    """One judge on the originals; `unanswered` counts items, variants too, without an answer by failure."""

    judge: str
    model: str
    items: int
    unanswered: dict[str, int] = {}
    unreadable: stats.BootstrapInterval | None
    accuracy: stats.BootstrapInterval | None
    kappa: stats.BootstrapInterval | None
    weighted_kappa: stats.BootstrapInterval | None
    classes: list[stats.Class]
    confusion: list[Confusion]
    order_flips: Flips
    rerun_flips: Flips
    injection: Lift | None
    cost: MeanCost
    probabilities: Probabilities | None = None
    scores: Scores | None = None
    behind: stats.BootstrapInterval | None = (
        None  # the most accurate judge, on items that both answered
    )
    spread: Spread | None = None
    is_binary: bool = False  # no label says improve: an improve is compared as a reject

    @property
    def title(self) -> str:
        """The name that people see; in JSON and in files of cases it is `course`."""
        return "after all tiers" if self.judge == COURSE else self.judge


class JudgingReport(stats.ReportPart):
    schema_: Literal["judgekit/eval-judge@1"] = Field("judgekit/eval-judge@1", alias="schema")
    file: str
    rubric: str | None
    mode: str | None
    items: int
    judges: list[JudgeReport]
    outcomes: list[Outcome] = []
    left_out: LeftOut = LeftOut()
    bootstrap: stats.Resampling = stats.Resampling()


class Item(NamedTuple):
    """One labelled thing, `of` its original, and a judge's answer; None where that cannot be read."""

    of: str
    variant: Variant
    label: str
    said: str | None
    recorded: Recorded
    calls: int
    cost_usd: float | None
    probability: float | None
    scores: tuple[float, float | None] | None = (
        None  # a person's and the judge's, in place of the words
    )
    rated: Mapping[str, float] | None = None

    @property
    def word(self) -> str | None:
        """The answer; of a course that ends without one, that a person is needed."""
        return self.said or ("escalate" if self.recorded.failure == "escalate" else None)


def report(
    cases: Sequence[Case],
    name: str,
    loaded: LoadedRubric | None,
    mode: ModeName,
    wanted: str | None = None,
    left_out: LeftOut | None = None,
) -> JudgingReport:
    """Return how every judge, and each model of a jury, does; raises `InputError` for unfit cases."""
    answers: dict[str, list[tuple[Case, Recorded]]] = {}
    for case in cases:
        juries = (
            (judge, juror)
            for judge, recorded in case.judges.items()
            for juror in recorded.jury or ()
        )
        jurors = {f"{judge}: {juror.model}": juror for judge, juror in juries}
        for judge, recorded in (case.judges | jurors).items():
            answers.setdefault(judge, []).append((case, recorded))
    if not answers:
        raise InputError(
            f"{name}: expected recorded answers under `judges`; name a --rubric to ask models"
        )
    if loaded:
        reader = Reader(loaded.rubric, mode)
    else:
        reader = None
    items = {
        judge: [item for case, recorded in own for item in _items(case, judge, recorded, reader)]
        for judge, own in answers.items()
    }
    judges = [
        _judge(name, answers[name][0][1].name, own, wanted or "accept")
        for name, own in items.items()
    ]
    outcomes = _outcomes(items)
    best = max(judges, key=lambda each: each.accuracy.value if each.accuracy else -1.0)
    return JudgingReport(
        file=name,
        rubric=loaded.rubric.ref if loaded else None,
        mode=mode if loaded else None,
        items=sum(case.variant == "original" for case in cases),
        judges=[
            judge.model_copy(update={"behind": _behind(judge, best, outcomes)}) for judge in judges
        ],
        outcomes=outcomes,
        left_out=left_out or LeftOut(),
    )


def _outcomes(items: Mapping[str, Sequence[Item]]) -> list[Outcome]:
    """Return what each judge said of each original, those that they disagree about first."""
    found: dict[str, Outcome] = {}
    for judge, own in items.items():
        for item in own:
            if item.variant == "original":
                label, said = item.scores or (item.label, item.said)
                found.setdefault(item.of, Outcome(id=item.of, label=label, said={})).said[judge] = (
                    said
                )
    return sorted(found.values(), key=lambda each: not each.is_disputed)


def _behind(
    judge: JudgeReport, best: JudgeReport, outcomes: list[Outcome]
) -> stats.BootstrapInterval | None:
    names = best.judge, judge.judge
    both = []
    for each in outcomes:
        if isinstance(each.label, str) and all(map(each.said.get, names)):
            both.append(each)
    binary = is_binary(str(each.label) for each in both)
    right = ([float(_is_right(each, name, binary=binary)) for each in both] for name in names)
    if judge is not best and best.accuracy:
        return stats.difference(*right)
    return None


def _is_right(outcome: Outcome, judge: str, *, binary: bool) -> bool:
    return agrees(str(outcome.label), str(outcome.said[judge]), binary=binary)


def _judge(judge: str, model: str, items: Sequence[Item], wanted: str) -> JudgeReport:
    originals = [item for item in items if item.variant == "original"]
    worded = [item for item in originals if item.scores is None]
    raw_pairs = [(item.label, item.said) for item in worded if item.said is not None]
    binary = is_binary(item.label for item in worded)
    pairs = compared(raw_pairs, binary=binary)
    scored = [item.scores for item in originals if item.scores]
    numbers = [(human, said) for human, said in scored if said is not None]
    error = stats.interval(stats.mean([abs(one - other) for one, other in numbers]))
    scores = Scores(items=len(numbers), mean_error=error, spearman=stats.spearman(numbers))
    waits = [wait for item in items if (wait := item.recorded.latency_ms) is not None]
    kappa, weighted = stats.kappas(pairs)
    counts = sorted(Counter(raw_pairs).items())
    by_order = [tuple((item.recorded.orders or {}).values()) for item in originals]
    both_orders = [words for words in by_order if len(words) == len(ORDERS)]
    again = defaultdict[str, list[Item]](list)
    for item in items:
        again[item.of] += [item] if item.variant in ("original", "rerun") else []
    unread = [item.said is None for item in items if not item.recorded.unanswered]
    known = [item.cost_usd for item in originals if item.cost_usd is not None]
    if known:
        usd = sum(known) / len(known)
    else:
        usd = None
    if originals:
        calls = sum(item.calls for item in originals) / len(originals)
    else:
        calls = 0.0
    injected = _matched(items, "injected")
    before, after = ([float(pair[side] == wanted) for pair in injected] for side in (0, 1))
    shares = {
        "before": stats.interval(stats.mean(before)),
        "after": stats.interval(stats.mean(after)),
    }
    lift = Lift(wanted=wanted, pairs=len(injected), lift=stats.difference(after, before), **shares)
    rated = [
        (item.probability, item.label == "accept")
        for item in originals
        if item.probability is not None
    ]
    hits = [probability for probability, _ in rated], [kept for _, kept in rated]
    errors = {"answers": len(rated), "brier": stats.brier(*hits), "ece": stats.ece(*hits)}
    unanswered = dict(Counter(filter(None, (item.recorded.unanswered for item in items))))
    confusion = []
    for (label, said), count in counts:
        confusion.append(Confusion(label=label, said=said, count=count))
    order_flips = _flips([*_matched(items, "swapped"), *_known(both_orders)])
    rerun_flips = _flips([[item.word for item in own if item.word] for own in again.values()])
    spread = _spread([[item.rated for item in own if item.rated] for own in again.values()])
    cost = MeanCost(
        calls=calls, known=len(known), usd=usd, milliseconds=median(waits) if waits else None
    )
    if rated:
        probabilities = Probabilities.model_validate({**errors, "bins": stats.table(*hits)})
    else:
        probabilities = None
    return JudgeReport(
        judge=judge,
        model=model,
        items=len(originals),
        unanswered=unanswered,
        unreadable=stats.interval(stats.mean(unread)),
        accuracy=stats.accuracy(pairs),
        kappa=kappa,
        weighted_kappa=weighted,
        classes=stats.classes(pairs),
        is_binary=binary and any(said == "improve" for _, said in raw_pairs),
        confusion=confusion,
        order_flips=order_flips,
        rerun_flips=rerun_flips,
        spread=spread,
        injection=lift if injected else None,
        cost=cost,
        scores=scores if scored else None,
        probabilities=probabilities,
    )


def _items(case: Case, judge: str, recorded: Recorded, reader: Reader | None) -> Iterator[Item]:
    scores = None
    if reader:
        rated = reader.rated(case, recorded)
    else:
        rated = None
    if reader is not None and case.score is not None:
        scores = case.score, reader.score(case, recorded)
        answers = reader.words(case, recorded)
        labels = {"": f"{case.score:g}"}
    elif reader is not None:
        answers = reader.words(case, recorded)
        labels = reader.labels(case)
    else:
        label = case.right("strict")
        if not isinstance(label, str) or (recorded.choice is None and recorded.failure is None):
            raise case.wrong(
                f"judges.{judge}: expected a choice; name the --rubric to read others by"
            )
        answers = {"": recorded.choice}
        labels = {"": label}
    cost = recorded.cost_usd
    calls = recorded.calls
    for part, label in labels.items():
        if part:
            of = f"{case.pair or case.id}/{part}"
        else:
            of = case.pair or case.id
        said = answers[part]
        likely = (recorded.probabilities or {}).get(part)
        yield Item(of, case.variant, label, said, recorded, calls, cost, likely, scores, rated)
        # One call brought the answers on all candidates.
        cost = None if cost is None else 0.0
        calls = 0


def _known(pairs: Sequence[tuple[str | None, ...]]) -> list[stats.Pair]:
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _matched(items: Sequence[Item], variant: Variant) -> list[stats.Pair]:
    originals = {item.of: item.said for item in items if item.variant == "original"}
    return _known(
        [(originals.get(item.of), item.said) for item in items if item.variant == variant]
    )


def _flips(groups: Iterable[Sequence[str]]) -> Flips:
    measure = stats.disagreement([group for group in groups if len(group) > 1])
    return Flips(pairs=int(sum(measure.possible)), rate=stats.interval(measure))


def _spread(groups: Sequence[Sequence[Mapping[str, float]]]) -> Spread | None:
    known = [group for group in groups if len(group) > 1]
    if not known:
        return None
    moves = {}
    for name in known[0][0]:
        moves[name] = stats.repeatability([[one[name] for one in own] for own in known])
    scores = {name: move for name, move in moves.items() if move}
    distance = scores.pop("")
    answers = sum(map(len, known))
    noise = round(COVERAGE * distance.value, DIGITS)
    return Spread(cases=len(known), answers=answers, distance=distance, noise=noise, scores=scores)
