"""The report of `judgekit eval judge` on each judge: agreement, flips, lift, reliability and cost."""

from __future__ import annotations

from collections import Counter
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from judgekit.errors import InputError
from judgekit.evaluation import stats
from judgekit.evaluation.cases import ALL_TIERS
from judgekit.evaluation.document_task import DISTANCE_KEY
from judgekit.evaluation.labels import LeftOut, agrees, is_binary, prepare_pairs
from judgekit.evaluation.samples import WHOLE_CASE_KEY
from judgekit.evaluation.tasks import choose_task
from judgekit.judging.finality import MARGIN_DECIMALS
from judgekit.judging.jury import ORDERS
from judgekit.judging.noise import COVERAGE_DEVIATIONS
from judgekit.ledger.rates import Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from judgekit.config import ModeName
    from judgekit.evaluation.cases import Case, Recorded, Variant
    from judgekit.evaluation.tasks import AnyTask
    from judgekit.rubric.loader import LoadedRubric


class Flips(stats.ReportPart):
    """Of `pairs` of readable answers about the same subject, the share that differ."""

    pairs: int
    rate: Interval | None


class Spread(stats.ReportPart):
    """Pooled standard deviations of scores, and of the distance from acceptance, when asked again."""

    cases: int
    answers: int
    distance: Interval
    noise: float  # of the distance: 95 % of judgements are within it
    scores: dict[str, Interval]


class Lift(stats.ReportPart):
    """Shares of `pairs` with the answer an attacker wants: for original and for injected texts."""

    wanted: str
    pairs: int
    before: Interval | None
    after: Interval | None
    lift: Interval | None


class MeanCost(stats.ReportPart):
    """Means per item: calls, and US dollars over the `known` prices; the median of milliseconds."""

    calls: float
    known: int
    usd: float | None
    milliseconds: float | None = None


class Confusion(stats.ReportPart):
    label: str
    said: str
    count: int


class Probabilities(stats.ReportPart):
    """Statistics on the probabilities of `answers` that a candidate should be kept."""

    answers: int
    brier: float
    ece: float
    bins: list[stats.Bin]


class Scores(stats.ReportPart):
    """Scores compared with people's: on `items`, the mean absolute error and Spearman's correlation."""

    items: int
    mean_error: Interval | None
    spearman: Interval | None


class Outcome(stats.ReportPart):
    """Each judge's answer on an item, an outcome or a mean score. None if unreadable or missing."""

    id: str
    label: str | float
    said: dict[str, str | float | None]

    @property
    def is_disputed(self) -> bool:
        return len({*self.said.values()} - {None}) > 1


class JudgeReport(stats.ReportPart):
    """One judge on the originals; `unanswered` counts, by failure, all items without an answer."""

    judge: str
    model: str
    items: int
    unanswered: dict[str, int] = {}
    unreadable: Interval | None
    accuracy: Interval | None
    kappa: Interval | None
    weighted_kappa: Interval | None
    classes: list[stats.Class]
    confusion: list[Confusion]
    order_flips: Flips
    rerun_flips: Flips
    injection: Lift | None
    cost: MeanCost
    probabilities: Probabilities | None = None
    scores: Scores | None = None
    # The lead of the most accurate judge, on items that both answered.
    behind: Interval | None = None
    spread: Spread | None = None
    is_binary: bool = False  # no label says improve, so an improve counts as a reject

    @property
    def title(self) -> str:
        """The name that people see; JSON and case files say `course`."""
        return "after all tiers" if self.judge == ALL_TIERS else self.judge


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
    """One labelled thing, and a judge's answer about it, which is None if unreadable."""

    original_id: str
    """The id of the original case, and of the candidate if it has several, as in CASE/CANDIDATE."""
    variant: Variant
    label: str
    answer: str | None
    recorded: Recorded
    call_count: int
    cost_usd: float | None
    probability: float | None
    # Instead of words: a person's score and the judge's, which is None if it gave none.
    score_pair: tuple[float, float | None] | None = None
    rated_scores: Mapping[str, float] | None = None

    @property
    def is_original(self) -> bool:
        return self.variant == "original"

    @property
    def word(self) -> str | None:
        """The answer, or "escalate" if the tiers reached no result. None if the answer is unreadable."""
        if self.answer:
            return self.answer
        return "escalate" if self.recorded.failure == "escalate" else None


def report(
    cases: Sequence[Case],
    name: str,
    loaded: LoadedRubric | None,
    mode: ModeName,
    wanted: str | None = None,
    left_out: LeftOut | None = None,
) -> JudgingReport:
    """Report on every judge, and on each model in a jury.

    Without a rubric in `loaded`, an answer is a word that the judge chose. `wanted` is the answer that
    injected instructions ask for, by default "accept". Raises `InputError` for unsuitable cases.
    """
    answers_by_judge = _group_answers_by_judge(cases)
    if not answers_by_judge:
        raise InputError(
            f"{name}: expected recorded answers under `judges`; name a --rubric to ask models"
        )

    wanted_answer = wanted or "accept"
    items_by_judge: dict[str, list[Item]] = {}
    judges = []
    for judge, answers in answers_by_judge.items():
        items = _read_judge_items(judge, answers, loaded, mode)
        items_by_judge[judge] = items
        # The first answer's model is shown as the judge's model.
        _, first_answer = answers[0]
        model = first_answer.name
        judges.append(_report_judge(judge, model, items, wanted_answer))

    outcomes = _collect_outcomes(items_by_judge)
    variants = [case.variant for case in cases]
    return JudgingReport(
        file=name,
        rubric=loaded.rubric.ref if loaded else None,
        mode=mode if loaded else None,
        items=variants.count("original"),
        judges=_add_gaps_to_best(judges, outcomes),
        outcomes=outcomes,
        left_out=left_out or LeftOut(),
    )


def _group_answers_by_judge(cases: Iterable[Case]) -> dict[str, list[tuple[Case, Recorded]]]:
    """Group recorded answers by judge. Each model in a jury also counts as a judge, named `JUDGE: MODEL`."""
    answers: dict[str, list[tuple[Case, Recorded]]] = {}
    for case in cases:
        recorded_by_judge = dict(case.judges)
        for judge, recorded in case.judges.items():
            for juror in recorded.jury or ():
                recorded_by_judge[f"{judge}: {juror.model}"] = juror
        for judge, recorded in recorded_by_judge.items():
            answers.setdefault(judge, []).append((case, recorded))
    return answers


def _read_judge_items(
    judge: str,
    answers: Iterable[tuple[Case, Recorded]],
    loaded: LoadedRubric | None,
    mode: ModeName,
) -> list[Item]:
    """Read a judge's answers about all cases. Without a rubric, they're choices of words."""
    items: list[Item] = []
    for case, recorded in answers:
        task = choose_task(loaded.rubric, mode, case) if loaded else None
        items.extend(_read_items(case, judge, recorded, task))
    return items


def _collect_outcomes(items_by_judge: Mapping[str, Sequence[Item]]) -> list[Outcome]:
    """Collect all judges' answers about each original item, disputed items first."""
    outcome_by_id: dict[str, Outcome] = {}
    for judge, items in items_by_judge.items():
        original_items = [item for item in items if item.is_original]
        for item in original_items:
            item_id = item.original_id
            label, answer = _read_label_and_answer(item)
            if item_id not in outcome_by_id:
                outcome_by_id[item_id] = Outcome(id=item_id, label=label, said={})
            outcome_by_id[item_id].said[judge] = answer

    outcomes = outcome_by_id.values()
    disputed = [outcome for outcome in outcomes if outcome.is_disputed]
    undisputed = [outcome for outcome in outcomes if not outcome.is_disputed]
    return disputed + undisputed


def _read_label_and_answer(item: Item) -> tuple[str | float, str | float | None]:
    """Read an item's label and the judge's answer: as scores if a person scored it, otherwise as words."""
    if item.score_pair is not None:
        return item.score_pair
    return item.label, item.answer


def _add_gaps_to_best(
    judges: Sequence[JudgeReport], outcomes: Sequence[Outcome]
) -> list[JudgeReport]:
    """Add to each report how far the judge is behind the most accurate one."""
    best_judge = max(judges, key=_rank_by_accuracy)
    compared_judges = []
    for judge in judges:
        gap = _compare_with_best(judge, best_judge, outcomes)
        compared_judges.append(judge.model_copy(update={"behind": gap}))
    return compared_judges


def _rank_by_accuracy(judge: JudgeReport) -> float:
    """Rank a judge by its accuracy. Judges without one come last."""
    return judge.accuracy.value if judge.accuracy else -1.0


def _compare_with_best(
    judge: JudgeReport, best: JudgeReport, outcomes: Iterable[Outcome]
) -> Interval | None:
    """Compute how much more accurate the best judge is than `judge`, on items that both answered.

    Returns None for the best judge itself, or if no accuracy is known.
    """
    if judge is best or best.accuracy is None:
        return None

    shared = _find_shared_answers(outcomes, judge.judge, best.judge)
    # If the labels are only accept and reject, the answer "improve" is a rejection.
    binary = is_binary(answers.label for answers in shared)

    best_agreements = []
    agreements = []
    for label, answer, best_answer in shared:
        best_agreements.append(float(agrees(label, best_answer, binary=binary)))
        agreements.append(float(agrees(label, answer, binary=binary)))
    return stats.difference(best_agreements, agreements)


class _SharedAnswers(NamedTuple):
    """An item's label, and the answers of two judges about it."""

    label: str
    answer: str
    other_answer: str


def _find_shared_answers(
    outcomes: Iterable[Outcome], judge: str, other_judge: str
) -> list[_SharedAnswers]:
    """Find the answers about items that both judges answered. Leaves out items that a person scored."""
    shared = []
    for outcome in outcomes:
        if not isinstance(outcome.label, str):  # a person's score
            continue

        # If the label is a word, the answers are words, too.
        answer = outcome.said.get(judge)
        other_answer = outcome.said.get(other_judge)
        if answer and other_answer:
            shared.append(_SharedAnswers(outcome.label, str(answer), str(other_answer)))
    return shared


def _report_judge(judge: str, model: str, items: Sequence[Item], wanted_answer: str) -> JudgeReport:
    """Build the report on a judge from its items.

    Items that a person scored have no label in words, so accuracy, kappa and confusion leave them out.
    """
    originals = [item for item in items if item.is_original]
    labelled_with_words = [item for item in originals if item.score_pair is None]
    answered = [
        (item.label, item.answer) for item in labelled_with_words if item.answer is not None
    ]

    has_binary_labels = is_binary(item.label for item in labelled_with_words)
    pairs = prepare_pairs(answered, binary=has_binary_labels)
    kappa, weighted_kappa = stats.kappas(pairs)

    # With binary labels, an improve counts as a reject. The report says so if there's an improve.
    has_improve = any(answer == "improve" for _, answer in answered)
    counts_improve_as_reject = has_binary_labels and has_improve

    swapped = _pair_with_originals(items, "swapped") + _pair_answers_by_order(originals)
    repeats = _group_repeats(items)
    repeated_words = [_list_words(group) for group in repeats]
    repeated_scores = [_list_ratings(group) for group in repeats]

    return JudgeReport(
        judge=judge,
        model=model,
        items=len(originals),
        unanswered=_count_failures(items),
        unreadable=_measure_unreadable(items),
        accuracy=stats.accuracy(pairs),
        kappa=kappa,
        weighted_kappa=weighted_kappa,
        classes=stats.measure_words(pairs),
        is_binary=counts_improve_as_reject,
        confusion=_count_confusions(answered),
        order_flips=_measure_flips(swapped),
        rerun_flips=_measure_flips(repeated_words),
        spread=_measure_spread(repeated_scores),
        injection=_measure_lift(items, wanted_answer),
        cost=_average_cost(items, originals),
        scores=_compare_scores(originals),
        probabilities=_rate_probabilities(originals),
    )


def _group_repeats(items: Iterable[Item]) -> list[list[Item]]:
    """Group the answers about each original item and its reruns, in the order of the items.

    A group is empty if there are only other variants of the item.
    """
    groups: dict[str, list[Item]] = {}
    for item in items:
        # Even a variant without repeats gets a group. Resampling draws groups by position, so a missing one
        # would change the results.
        group = groups.setdefault(item.original_id, [])
        is_repeat = item.variant in ("original", "rerun")
        if is_repeat:
            group.append(item)
    return list(groups.values())


def _list_words(items: Iterable[Item]) -> list[str]:
    """List the items' answers in words, without unreadable ones."""
    return [item.word for item in items if item.word]


def _list_ratings(items: Iterable[Item]) -> list[Mapping[str, float]]:
    """List the items' ratings, without items that have none."""
    return [item.rated_scores for item in items if item.rated_scores]


def _count_failures(items: Iterable[Item]) -> dict[str, int]:
    """Count the items that no model answered, by failure."""
    failures = Counter(item.recorded.unanswered for item in items)
    return {failure: count for failure, count in failures.items() if failure}


def _measure_unreadable(items: Iterable[Item]) -> Interval | None:
    """Compute the fraction of unreadable answers. Returns None if there are no answers."""
    unreadable = [item.answer is None for item in items if not item.recorded.unanswered]
    return stats.interval(stats.mean(unreadable))


def _count_confusions(answered: Iterable[stats.Pair]) -> list[Confusion]:
    counts = sorted(Counter(answered).items())
    return [Confusion(label=label, said=answer, count=count) for (label, answer), count in counts]


def _pair_answers_by_order(items: Iterable[Item]) -> list[stats.Pair]:
    """Pair the answers for both orders of the same two texts. Leaves out items without both."""
    pairs: list[stats.Pair] = []
    for item in items:
        answer_by_order = item.recorded.orders or {}
        has_both_orders = len(answer_by_order) == len(ORDERS)
        if not has_both_orders:
            continue

        first, second = answer_by_order.values()
        if first is not None and second is not None:
            pairs.append((first, second))
    return pairs


def _measure_lift(items: Sequence[Item], wanted_answer: str) -> Lift | None:
    """Measure how much more often a text gets `wanted_answer` after instructions were injected into it.

    Returns None if there are no readable answers about injected texts and their originals.
    """
    answer_pairs = _pair_with_originals(items, "injected")
    if not answer_pairs:
        return None

    before = []
    after = []
    for original, attacked in answer_pairs:
        before.append(float(original == wanted_answer))
        after.append(float(attacked == wanted_answer))

    return Lift(
        wanted=wanted_answer,
        pairs=len(answer_pairs),
        before=stats.interval(stats.mean(before)),
        after=stats.interval(stats.mean(after)),
        lift=stats.difference(after, before),
    )


def _average_cost(items: Iterable[Item], originals: Sequence[Item]) -> MeanCost:
    """Compute the mean calls and cost of the original items, and the median latency of all items.

    Figures are None if they're unknown, for example because all replies came from the cache.
    """
    waits = []  # in milliseconds
    for item in items:
        if item.recorded.latency_ms is not None:
            waits.append(item.recorded.latency_ms)

    calls = []
    costs = []
    for item in originals:
        calls.append(item.call_count)
        if item.cost_usd is not None:
            costs.append(item.cost_usd)

    return MeanCost(
        calls=fmean(calls) if calls else 0.0,
        known=len(costs),
        usd=sum(costs) / len(costs) if costs else None,
        milliseconds=median(waits) if waits else None,
    )


def _compare_scores(originals: Iterable[Item]) -> Scores | None:
    """Compare the judge's scores with people's scores. Returns None if people gave none."""
    score_pairs = [item.score_pair for item in originals if item.score_pair]
    if not score_pairs:
        return None
    pairs = []
    errors = []
    for human, judged in score_pairs:
        if judged is not None:
            pairs.append((human, judged))
            errors.append(abs(human - judged))
    mean_error = stats.interval(stats.mean(errors))
    return Scores(items=len(pairs), mean_error=mean_error, spearman=stats.spearman(pairs))


def _rate_probabilities(originals: Iterable[Item]) -> Probabilities | None:
    """Measure how well a judge's probabilities match the labels. Returns None if it gave none."""
    probabilities = []
    outcomes = []
    for item in originals:
        if item.probability is not None:
            probabilities.append(item.probability)
            outcomes.append(item.label == "accept")
    if not probabilities:
        return None
    brier = stats.brier(probabilities, outcomes)
    ece = stats.ece(probabilities, outcomes)
    bins = stats.bin_probabilities(probabilities, outcomes)
    return Probabilities(answers=len(probabilities), brier=brier, ece=ece, bins=bins)


def _read_items(case: Case, judge: str, recorded: Recorded, task: AnyTask | None) -> Iterator[Item]:
    """Yield a judge's answer about a case. If the case has candidates, yield the answer about each of them.

    Without a `task`, the answer is a word that the judge chose. Raises `InputError` if the answer is invalid.
    """
    if task is None:
        reading = _read_choice(case, judge, recorded)
    else:
        reading = _read_with_task(case, recorded, task)

    probabilities = recorded.probabilities or {}
    calls = recorded.calls
    cost = recorded.cost_usd
    for part_name, label in reading.labels.items():
        yield Item(
            original_id=_name_original(case, part_name),
            variant=case.variant,
            label=label,
            answer=reading.answers[part_name],
            recorded=recorded,
            call_count=calls,
            cost_usd=cost,
            probability=probabilities.get(part_name),
            score_pair=reading.score_pair,
            rated_scores=reading.rated_scores,
        )

        # One call answers for all candidates, so only count the calls and costs for the first candidate.
        calls = 0
        cost = None if cost is None else 0.0


class _Reading(NamedTuple):
    """A case's labels and a judge's answers, by candidate id.

    If there are no candidates, `WHOLE_CASE_KEY` is the only key.
    """

    labels: Mapping[str, str]
    answers: Mapping[str, str | None]
    rated_scores: Mapping[str, float] | None = None
    score_pair: tuple[float, float | None] | None = None
    """A person's score and the judge's score."""


def _read_choice(case: Case, judge: str, recorded: Recorded) -> _Reading:
    """Read the word that a judge chose, without a rubric.

    Raises `InputError` if the label isn't a word, or if the judge's answer isn't a choice.
    """
    label = case.get_label("strict")
    # A judge that failed made no choice, but that's no mistake in the file.
    is_choice_or_failure = recorded.choice is not None or recorded.failure is not None
    if isinstance(label, str) and is_choice_or_failure:
        return _Reading(labels={WHOLE_CASE_KEY: label}, answers={WHOLE_CASE_KEY: recorded.choice})
    raise case.build_error(
        f"judges.{judge}: expected a choice; name the --rubric to read others by"
    )


def _read_with_task(case: Case, recorded: Recorded, task: AnyTask) -> _Reading:
    """Read an answer with the case's task. If a person scored the case, their score is the label."""
    ratings = task.read_ratings(case, recorded)
    if case.score is None:
        answers = task.read_answers(case, recorded)
        return _Reading(labels=task.read_labels(case), answers=answers, rated_scores=ratings)

    judge_score = task.read_score(case, recorded)
    answers = task.read_answers(case, recorded)
    return _Reading(
        labels={WHOLE_CASE_KEY: f"{case.score:g}"},
        answers=answers,
        rated_scores=ratings,
        score_pair=(case.score, judge_score),
    )


def _name_original(case: Case, part_name: str) -> str:
    """Return the id of the original item: "CASE", or "CASE/CANDIDATE" if the part is a candidate."""
    # `pair` is the original's id if the case is a variant, such as a rerun.
    case_id = case.pair or case.id
    if part_name == WHOLE_CASE_KEY:
        return case_id
    return f"{case_id}/{part_name}"


def _pair_with_originals(items: Sequence[Item], variant: Variant) -> list[stats.Pair]:
    """Pair the answer about each original with the answer about its variant.

    Leaves out pairs with an unreadable answer.
    """
    answer_by_original = {item.original_id: item.answer for item in items if item.is_original}
    variant_items = [item for item in items if item.variant == variant]
    pairs = []
    for item in variant_items:
        original_answer = answer_by_original.get(item.original_id)
        if original_answer is not None and item.answer is not None:
            pairs.append((original_answer, item.answer))
    return pairs


def _measure_flips(groups: Iterable[Sequence[str]]) -> Flips:
    """Measure how often two answers in the same group differ."""
    measure = stats.measure_disagreement([group for group in groups if len(group) > 1])
    return Flips(pairs=int(sum(measure.denominators)), rate=stats.interval(measure))


def _measure_spread(groups: Sequence[Sequence[Mapping[str, float]]]) -> Spread | None:
    """Measure how much scores vary when a case is judged again. A group contains all answers about a case.

    Returns None if no case was judged more than once.
    """
    repeated_groups = [group for group in groups if len(group) > 1]
    if not repeated_groups:
        return None

    spread_by_name = _measure_spread_by_name(repeated_groups)
    # The distance from acceptance is computed from the scores, so it's reported apart from them.
    distance_spread = spread_by_name.pop(DISTANCE_KEY)
    # If a case is judged again and again, 95 % of its distances are this close to their mean.
    noise = round(COVERAGE_DEVIATIONS * distance_spread.value, MARGIN_DECIMALS)
    return Spread(
        cases=len(repeated_groups),
        answers=sum(len(group) for group in repeated_groups),
        distance=distance_spread,
        noise=noise,
        scores=spread_by_name,
    )


def _measure_spread_by_name(
    groups: Sequence[Sequence[Mapping[str, float]]],
) -> dict[str, Interval]:
    """Measure how much each score varies within the groups. Leaves out scores without a spread."""
    first_answer = groups[0][0]  # all answers have the same names
    spread_by_name = {}
    for name in first_answer:
        values_by_group = [[scores[name] for scores in group] for group in groups]
        spread = stats.repeatability(values_by_group)
        if spread:
            spread_by_name[name] = spread
    return spread_by_name
