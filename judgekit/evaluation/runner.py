"""Asks models, or a recording of them, about labelled cases, for three questions.

`eval judge` and `calibrate` ask for the opinion of every tier (`ask`), whichever tier would have settled it.
`rubric check --run` asks for the verdicts that judging comes to (`trial`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import MODES, ModeName, TierName
from judgekit.config import settings as configuration
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.calibrate import Opinions
from judgekit.evaluation.cases import Case, Recorded, Variant
from judgekit.evaluation.samples import WHOLE, SampleReader
from judgekit.evaluation.stats import UNDECIDED
from judgekit.judging import documents, fence, service
from judgekit.judging.calibration import TOGETHER
from judgekit.judging.calibration_fit import fingerprint
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import (
    Candidates,
    ComparisonInput,
    Document,
    PromptCandidate,
    TaskDescription,
    file_of,
)
from judgekit.judging.finality import FinalityRules
from judgekit.judging.jury import ORDERS
from judgekit.judging.kinds import DECIDES, WRITES, kind_of
from judgekit.judging.named_inputs import NamedInputs
from judgekit.judging.panel import resolve_panel
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.request import JudgeRequest
from judgekit.judging.round import gather_limited
from judgekit.judging.score import DocumentJudge
from judgekit.judging.score_source import score_source
from judgekit.judging.select import CandidateJudge
from judgekit.judging.state import JudgingState
from judgekit.judging.verdict import Comparison, Selection, Verdict
from judgekit.ledger import rates
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import open_gateway
from judgekit.rubric.schema import Case as RubricCase
from judgekit.rubric.schema import CompareRubric, ScoreRubric, WrongCase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.judging.jury import Mark
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.round import Answer
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.settings import JudgeSettings
    from judgekit.ledger.rates import Interval
    from judgekit.providers.base import Endpoint
    from judgekit.rubric.loader import LoadedRubric

AnyJudge: TypeAlias = "Judge[Any, Any, Any]"
Progress: TypeAlias = "Callable[[int], None]"
Result: TypeAlias = "Verdict | Selection | Comparison"


def prepare(judge: AnyJudge, case: Case, inputs: NamedInputs | None = None) -> tuple[AnyJudge, Any]:
    """Return the judge of a case's task, and the subject it is asked about.

    A document's path is one of the `inputs`. Raises `InputError` where the case has no text.
    """
    if isinstance(judge.rubric, CompareRubric):
        if not (case.a and case.b):
            raise case.wrong("expected the texts a and b, or what judges said")
        pair = (file_of("A", case.a), file_of("B", case.b))
        return judge.as_judge(PairJudge), ComparisonInput(case.prompt, pair)
    if not isinstance(judge.rubric, ScoreRubric):
        return judge.as_judge(CandidateJudge), _candidates(case)
    if case.subjects:
        subjects = tuple(map(file_of, case.letters, case.subjects))
        return judge.as_judge(RankingJudge), ComparisonInput(case.prompt, subjects)
    texts = {case.path or "text": _text_of(case, inputs), **case.files}
    files = tuple(map(file_of, texts, texts.values()))
    task = TaskDescription(case.description, case.acceptance, case.reference)
    return judge, Document(files, case.path or case.id, task)


def _candidates(case: Case) -> Candidates:
    names = shown_ids(case)
    candidates = []
    for candidate in case.candidates:
        candidates.append(PromptCandidate.of(candidate, names[candidate.id], candidate.text))
    return Candidates(documents.Query(case.query), tuple(candidates))


def _text_of(case: Case, inputs: NamedInputs | None) -> str:
    """Return the text of a case, or of the file at its path; raises `InputError`."""
    if case.text is not None:
        return case.text
    if case.path is None or inputs is None:
        raise case.wrong("expected text, a path, or what judges said")
    try:
        return inputs.read(case.path)
    except InputError as error:
        raise case.wrong(f"path: {error}") from None


def _check_paths(cases: Iterable[Case], inputs: NamedInputs) -> None:
    """Raise `InputError` for the first case whose file cannot be read."""
    for case in cases:
        if case.text is None and case.path is not None:
            _text_of(case, inputs)


# --- The opinion of every tier


def ask(
    cases: Sequence[Case],
    inputs: NamedInputs,
    loaded: LoadedRubric,
    mode: ModeName,
    project: Path | None = None,
    progress: Progress = lambda _: None,
    *,
    models: Sequence[str | None] = (None,),
    at_once: int = service.AT_ONCE,
) -> Opinions:
    """Return the cases with the opinion of every tier; paths of cases are of `inputs`.

    Each of `models` is asked alone, as the quick tier, and is a judge of its name; for the value `None` all
    tiers are asked. Calls `progress` with the number of cases that were asked about.

    Cases about which no model is asked, because they lack what the rubric needs, are left out; if there are
    no others, that is an `UnaskedError`.

    Raises `ConfigError`, `InputError` or, when no model is set up, `UsageError`.
    """
    config = configuration.load(project)
    _check_paths(cases, inputs)  # before any model is asked

    async def ask_all() -> Opinions:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            judges = []
            for model in models:
                request = JudgeRequest(mode=mode, model=model)
                settings = service.judge_settings(config, loaded, project, request)
                if not settings.models_by_tier:  # before any model is asked
                    raise UsageError(f"no model to ask: {settings.no_model_reason}")
                judges.append(DocumentJudge(gateway, settings, service.reply_cache(request)))
            asked_cases = list(cases)
            unasked: dict[str, UnaskedError] = {}
            count = 0
            for model, judge in zip(models, judges, strict=True):
                tier_judge = _for_every_opinion(judge, model)
                ask_tiers = partial(_ask_unless_refused, tier_judge, inputs=inputs)
                limit = service.max_concurrency(tier_judge, at_once)
                answered_cases = []
                async with aclosing(map_concurrently(ask_tiers, asked_cases, limit)) as answers:
                    async for case, by_tier in answers:
                        count += 1
                        progress(count)
                        if isinstance(by_tier, UnaskedError):
                            unasked.setdefault(by_tier.case_id, by_tier)
                        elif model:  # it was asked as the quick tier
                            answered_cases.append(case.with_judges({model: by_tier["quick"]}))
                        else:
                            answered_cases.append(case.with_judges(by_tier))
                asked_cases = answered_cases  # the next model's answers stand beside these
            if unasked and not asked_cases:
                raise next(iter(unasked.values()))
            panel = fingerprint(judges[0].settings)
            reasons = [error.why for error in unasked.values()]
            return Opinions(
                asked_cases, panel.models, panel.asking, judge=judges[0], unasked=reasons
            )

    return running.run(ask_all())


async def _ask_unless_refused(
    judge: AnyJudge, case: Case, inputs: NamedInputs
) -> dict[TierName, Recorded] | UnaskedError:
    """Return what each tier says about a case, or why none is asked: one such case ends no run."""
    try:
        return await ask_about_case(judge, case, inputs)
    except UnaskedError as error:
        return error


def _for_every_opinion(judge: DocumentJudge, model: str | None) -> DocumentJudge:
    """Return a judge that asks every tier, or one model as the quick tier, whoever wrote a text."""
    models_by_tier = judge.models_by_tier
    if model:
        models_by_tier = {"quick": models_by_tier["quick"]}
    return judge.with_settings(
        models_by_tier=models_by_tier,
        finality=FinalityRules(),  # no opinion is final, so the next tier is asked
        calibration_warning=None,
        author_family=None,
    )


def unanswered(cases: Sequence[Case]) -> str | None:
    """Say in one line of how many cases some tier has no answer, and why; None where all have answers."""
    omitted_by_judge = Counter[str]()
    reasons = set[str]()
    incomplete_cases = 0
    has_answer = False
    for case in cases:
        failures = {}
        for name, recorded in case.judges.items():
            if recorded.unanswered:
                failures[name] = str(recorded.unanswered)
        omitted_by_judge.update(failures.keys())
        reasons.update(failures.values())
        if failures:
            incomplete_cases += 1
        if len(failures) < len(case.judges):
            has_answer = True
    if not incomplete_cases:
        return None
    if has_answer:
        problem = "not every tier answered"
        omitted = [f"{count} of {name}" for name, count in omitted_by_judge.items()]
        effect = f"the figures omit {', '.join(omitted)}"
    else:
        problem = "no model answered"
        effect = "there are no figures"
    share = f"{incomplete_cases} of {len(cases)} cases"
    why = ", ".join(sorted(reasons))
    return f"{problem} {share} ({why}); {effect}; test the models with judgekit provider check"


class UnaskedError(InputError):
    """No model was asked about a case, which lacks what its rubric needs, or may not be sent."""

    def __init__(self, case: Case, why: str) -> None:
        self.case_id = case.id
        self.why = why
        super().__init__(str(case.wrong(f"no model was asked (not judged: {why})")))


async def ask_about_case(
    judge: AnyJudge, case: Case, inputs: NamedInputs
) -> dict[TierName, Recorded]:
    """Return by tier what it says about a case; raises `UnaskedError` if no model is asked."""
    if case.variant == "rerun":  # else the cache would say again what it said before
        judge = replace(judge, cache=None)
    task_judge, whole_subject = prepare(judge, case, inputs)
    subject, secrets = task_judge.redacted(whole_subject)
    state = JudgingState(
        subject,
        task_judge.session(),
        refused=task_judge.settings.refusal(secrets),
        secrets=secrets,
    )
    cut_tiers = set()
    if isinstance(task_judge, RankingJudge):
        # Which texts go up to a tier depends on what is learned, so each tier is asked about all.
        for tier, jury in task_judge.models_by_tier.items():
            question = replace(task_judge.question(tier, state), letters=tuple(subject.letters))
            calls = [partial(question.ask, endpoint, state.session) for endpoint in jury]
            state.turns[tier] = await gather_limited(calls, state.session)
            if question.is_cut:
                cut_tiers.add(tier)
    else:
        await task_judge.run(state)
        cut_tiers.update(state.cut)
    if isinstance(task_judge, DocumentJudge) and not state.turns:
        raise UnaskedError(case, str(state.refused))
    by_tier = {}
    for tier, turns in state.turns.items():
        answers = [_record_answer(task_judge, case, turn) for turn in turns]
        by_tier[tier] = _join_answers(answers, task_judge.settings, is_cut=tier in cut_tiers)
    return by_tier


def _record_answer(judge: AnyJudge, case: Case, turn: ModelTurn[Any]) -> dict[str, Any]:
    """Return the fields of `Recorded` for one model: its answer or failure, and what it cost."""
    endpoint = turn.endpoint
    value = turn.answer.value
    source = score_source(endpoint, None)
    fields: dict[str, Any] = {}  # where nothing could be read
    if isinstance(judge, PairJudge):
        fields = _pair_fields(turn)
    elif value and isinstance(judge, RankingJudge):
        source, fields = _ranking_fields(judge, endpoint, value)
    elif value and isinstance(judge, CandidateJudge):
        fields = _selection_fields(case, value)
    elif value:
        source = score_source(endpoint, value)
        fields = {"scores": value.scores}
    answers = [turn.answer]
    if isinstance(judge, PairJudge | RankingJudge):
        answers = list(turn.calls)
    if fields:
        fields["read"] = source
    else:
        fields = {"failure": _failure_of(judge, answers), "read": None}
    usages = [answer.usage for answer in answers]
    for key in ("input_tokens", "output_tokens", "cost_usd"):
        fields[key] = _sum_known([getattr(usage, key) for usage in usages])
    fields["model"] = endpoint.model
    fields["answered"] = TOGETHER.join(sorted(turn.answering_names())) or None
    fields["family"] = endpoint.family
    fields["calls"] = _count_calls(judge, turn)
    fields["latency_ms"] = turn.answer.latency_ms
    # What was kept cost nothing this time, which says nothing about the next.
    if any(usage.cost_source in ("cache", "mixed") for usage in usages):
        fields["cost_usd"] = None
        fields["latency_ms"] = None
    return fields


def _failure_of(judge: AnyJudge, answers: Sequence[Answer[Any]]) -> str:
    """Return why no answer of a model could be read: the first failure of its calls, if one failed."""
    for answer in answers:
        if answer.failure:
            return answer.failure.kind
    if isinstance(judge, PairJudge) and any(answer.value for answer in answers):
        return "invalid_reply"  # calls were read, and come to nothing together
    return "not_recorded"


def _count_calls(judge: AnyJudge, turn: ModelTurn[Any]) -> int:
    """Return how many calls a model takes for the case, whether the cache knew the answers or not."""
    if isinstance(judge, PairJudge):
        return len(turn.calls)
    questions = len(judge.rubric.questions)
    kind = kind_of(turn.endpoint)
    if kind is WRITES:
        calls = judge.settings.calls_at_once(questions)
    elif kind is DECIDES:
        calls = 1
    else:
        calls = questions
    if isinstance(judge, RankingJudge):
        return calls * len(turn.calls)  # so many about each text
    return calls


def _sum_known(amounts: Sequence[Any]) -> Any:  # noqa: ANN401 - whole or not
    """Return the sum of amounts, None where one of them is not known."""
    return None if None in amounts else sum(amounts)


def _pair_fields(turn: ModelTurn[Any]) -> dict[str, Any]:
    """Return the word in each order; where there were more calls, how far they lean together.

    Returns {} where nothing could be read.
    """
    words = [call.value.word if call.value else None for call in turn.calls]
    if len(words) == len(ORDERS) and any(words):
        return {"orders": dict(zip(ORDERS, words, strict=True))}
    vote = turn.answer.value
    if not vote:
        return {}
    return {"probabilities": {"A": max(vote.lean, 0.0), "B": max(-vote.lean, 0.0)}}


def _ranking_fields(
    judge: RankingJudge, endpoint: Endpoint, opinions_by_letter: Mapping[str, Any]
) -> tuple[ScoreSource, dict[str, Any]]:
    """Return how the scores of several texts were read, and the mean points of each."""
    sources = set()
    points = {}
    for letter, opinion in opinions_by_letter.items():
        sources.add(score_source(endpoint, opinion))
        points[letter] = [judge.rubric.mean(opinion.scores)]
    source: ScoreSource = sources.pop() if len(sources) == 1 else "partly"
    return source, {"points": points}


def _selection_fields(case: Case, marks: Mapping[str, Mark | None]) -> dict[str, Any]:
    """Return the probabilities of candidates or, where no mark has one, the ids that are kept."""
    id_by_name = {name: candidate_id for candidate_id, name in shown_ids(case).items()}
    probabilities = {}
    keep = []
    unjudged = []
    for name, mark in marks.items():
        candidate_id = id_by_name[name]
        if not mark:
            unjudged.append(candidate_id)
            continue
        if mark.probability is not None:
            probabilities[candidate_id] = mark.probability
        if mark.outcome == "accept":
            keep.append(candidate_id)
    if probabilities:
        return {"probabilities": probabilities, "unjudged": unjudged}
    return {"keep": keep, "unjudged": unjudged}


def _join_answers(
    answers: Sequence[dict[str, Any]], settings: JudgeSettings, *, is_cut: bool
) -> Recorded:
    """Return what a tier says: the answer of its one model, or those of its jury with their sums."""
    conditions = {
        "samples": settings.samples,
        "criteria": settings.criteria,
        "rule": settings.jury,
        "redact": bool(settings.redact),
        "cut": is_cut,
    }
    if len(answers) == 1:
        return Recorded.model_validate(answers[0] | conditions)
    totals = {}
    for key in ("calls", "input_tokens", "output_tokens", "cost_usd"):
        totals[key] = _sum_known([answer[key] for answer in answers])
    waits = [answer["latency_ms"] for answer in answers]
    # They are asked at the same time.
    totals["latency_ms"] = None if None in waits else max(waits)
    return Recorded.model_validate({"jury": answers, **totals, **conditions})


def again(cases: Sequence[Case], times: int = 1, *, swapped: bool = True) -> list[Case]:
    """Return the cases, each original followed by its variants.

    These are so many reruns, which are asked anew, and with `swapped` one with its candidates reordered.
    """
    repeated = []
    for case in cases:
        repeated.append(case)
        if case.variant != "original":
            continue
        for number in range(times):
            repeated.append(_variant_of(case, "rerun", f"rerun {number}" if number else "rerun"))
        if swapped and len(case.candidates) > 1:
            repeated.append(_variant_of(case, "swapped", "swapped"))
    return repeated


def _variant_of(case: Case, variant: Variant, name: str) -> Case:
    changes = {"id": f"{case.id} ({name})", "variant": variant, "pair": case.id}
    return case.model_copy(update=changes)


def shown_ids(case: Case) -> dict[str, str]:
    """Return by id the name of each candidate; the names decide in which order candidates are shown.

    No model sees them. They are the ids, and in a swapped case others: of eight choices those that turn most
    pairs of candidates.
    """
    ids = [candidate.id for candidate in case.candidates]
    if case.variant != "swapped":
        return dict(zip(ids, ids, strict=True))
    usual_order = list(fence.labels(case.query, ids))

    def count_turned_pairs(names: Mapping[str, str]) -> int:
        order = fence.labels(case.query, list(names.values()))
        place_by_name = {name: place for place, name in enumerate(order)}
        places = [place_by_name[names[candidate_id]] for candidate_id in usual_order]
        return sum(first > second for first, second in combinations(places, 2))

    choices = []
    for marks in range(1, 9):
        choices.append({candidate_id: candidate_id + "'" * marks for candidate_id in ids})
    return max(choices, key=count_turned_pairs)


# --- The verdicts that judging comes to


class Tried(NamedTuple):
    """One question of a case, or about one of its candidates: the expected word and the judge's."""

    case: str
    mode: ModeName
    expected: str
    said: str
    scores: dict[str, float] | None = None
    why: str = ""

    @property
    def agrees(self) -> bool:
        return self.expected == self.said


class Agreement(NamedTuple):
    """How many questions were decided, how many of these as labelled, and that share."""

    right: int
    decided: int
    undecided: int
    share: Interval | None


def trial(
    loaded: LoadedRubric,
    cases: Sequence[RubricCase],
    project: Path | None = None,
    *,
    modes: Sequence[ModeName] = MODES,
    progress: Callable[[Tried], None] = lambda _: None,
) -> list[Tried]:
    """Return the verdicts about each case in each mode; raises `UsageError` where no model is set up.

    Calls `progress` with each as it comes.
    """
    config = configuration.load(project)
    labelled = [Case.model_validate(case.model_dump()) for case in cases]
    panel, reason = resolve_panel(config, project)
    if not panel:
        raise UsageError(f"no model to ask: {reason}")

    async def judge_all() -> list[Tried]:
        trials = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            for mode in modes:
                request = JudgeRequest(rubric=str(loaded.path), mode=mode)
                if isinstance(loaded.rubric, ScoreRubric):
                    judge, _ = service.document_judge(gateway, project, request)
                    limit = service.max_concurrency(judge, service.AT_ONCE)
                else:
                    settings = service.judge_settings(config, loaded, project, request)
                    judge = DocumentJudge(gateway, settings, service.reply_cache(request))
                    limit = 1
                tasks = [(case, *prepare(judge, case)) for case in labelled]
                results = map_concurrently(_judge_case, tasks, limit)
                async with aclosing(results):
                    async for (case, *_), result in results:
                        for tried in _compare_with_label(case, result, mode):
                            progress(tried)
                            trials.append(tried)
        return trials

    return running.run(judge_all())


async def _judge_case(task: tuple[Case, AnyJudge, Any]) -> Result:
    _, judge, subject = task
    result: Result = await judge.judge(subject)
    return result


def _compare_with_label(case: Case, result: Result, mode: ModeName) -> Iterator[Tried]:
    """Yield what was expected and said: of each candidate of a selection, else of the case."""
    label = case.right(mode)
    assert isinstance(label, str | list)  # noqa: S101 - no case of a rubric has a number
    if isinstance(result, Selection):
        why = result.degraded or ""
        for decision in result.decisions:
            name = f"{case.id}/{decision.id}"
            expected = "kept" if decision.id in label else "dropped"
            yield Tried(name, mode, expected, said=decision.decision, why=why)
        return
    scores = None if isinstance(result, Comparison) else result.scores
    why = result.degraded or result.reasoning
    yield Tried(case.id, mode, str(label), said=result.verdict, scores=scores, why=why)


def agreement(tried: Iterable[Tried]) -> Agreement:
    """Return how often the judge agrees with the labels."""
    right = 0
    decided = 0
    undecided = 0
    for answer in tried:
        if answer.said in UNDECIDED:
            undecided += 1
            continue
        decided += 1
        if answer.agrees:
            right += 1
    return Agreement(right, decided, undecided, share=rates.share_interval(right, decided))


def leniency(
    loaded: LoadedRubric,
    wrong: Sequence[WrongCase],
    mode: ModeName,
    project: Path,
    progress: Progress,
) -> dict[str, dict[str, Agreement]]:
    """Return by tier, with its model, and by kind of wrong texts how many of them it accepts.

    Only texts count that the tier was asked about.
    """
    cases = [Case.model_validate(text.model_dump(exclude={"kind"})) for text in wrong]
    opinions = ask(cases, NamedInputs.of(loaded.path), loaded, mode, project, progress)
    if opinions.unasked:
        raise InputError(f"{loaded.path}: a wrong text is not judged: {opinions.unasked[0]}")
    reader = SampleReader(loaded.rubric, mode)
    kind_by_id = {text.id: text.kind for text in wrong}
    accepted: dict[str, dict[str, Agreement]] = {}
    for tier, model in opinions.models.items():
        words_by_kind = defaultdict[str, list[str | None]](list)
        for case in opinions.cases:
            if tier in case.judges:
                words = reader.words(case, case.judges[tier])
                words_by_kind[kind_by_id[case.id]].append(words[WHOLE])
        for kind in dict.fromkeys(kind_by_id.values()):  # in the order of the texts
            if kind in words_by_kind:  # else the tier had nothing to settle
                accepted_by_kind = accepted.setdefault(f"{tier} ({model})", {})
                accepted_by_kind[kind] = _count_accepted(words_by_kind[kind])
    return accepted


def _count_accepted(words: Sequence[str | None]) -> Agreement:
    """Return how many words accept of those that could be read."""
    accepted = words.count("accept")
    unread = words.count(None)
    read = len(words) - unread
    return Agreement(accepted, read, unread, share=rates.share_interval(accepted, read))


def flips(before: Sequence[Tried], after: Sequence[Tried]) -> list[tuple[str, Tried]]:
    """Return the earlier and the new answer where they differ, of the questions that were put to both."""
    said_before = {(tried.case, tried.mode): tried.said for tried in before}
    flipped = []
    for tried in after:
        old_word = said_before.get((tried.case, tried.mode))
        if old_word is not None and old_word != tried.said:
            flipped.append((old_word, tried))
    return flipped
