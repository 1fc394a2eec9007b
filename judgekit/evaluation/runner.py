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
from judgekit.errors import UsageError
from judgekit.evaluation.calibrate import Opinions
from judgekit.evaluation.cases import Case, Recorded, Variant
from judgekit.evaluation.samples import WHOLE, SampleReader
from judgekit.evaluation.stats import UNDECIDED
from judgekit.judging import documents, fence, service
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
from judgekit.judging.escalation import FinalityRules
from judgekit.judging.jury import ORDERS
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
    from judgekit.judging.score_source import ScoreSource
    from judgekit.judging.settings import JudgeSettings
    from judgekit.ledger.rates import Interval
    from judgekit.providers.base import Endpoint
    from judgekit.rubric.loader import LoadedRubric

AnyJudge: TypeAlias = "Judge[Any, Any, Any]"
Progress: TypeAlias = "Callable[[int], None]"
Result: TypeAlias = "Verdict | Selection | Comparison"


def prepared(judge: AnyJudge, case: Case, folder: Path | None = None) -> tuple[AnyJudge, Any]:
    """Return the judge of a case's task, and what it is asked about; raises `InputError`.

    A document's path is relative to the `folder`.
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
    texts = {case.path or "text": _text_of(case, folder), **case.files}
    files = tuple(map(file_of, texts, texts.values()))
    task = TaskDescription(case.description, case.acceptance, case.reference)
    return judge, Document(files, case.path or case.id, task)


def _candidates(case: Case) -> Candidates:
    names = shown_ids(case)
    candidates = []
    for candidate in case.candidates:
        candidates.append(PromptCandidate.of(candidate, names[candidate.id], candidate.text))
    return Candidates(documents.Query(case.query), tuple(candidates))


def _text_of(case: Case, folder: Path | None) -> str:
    if case.text is not None:
        return case.text
    if case.path is None or folder is None:
        raise case.wrong("expected text, a path, or what judges said")
    try:
        return (folder / case.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise case.wrong(f"{case.path} cannot be read ({error})") from None


# --- The opinion of every tier


def ask(
    cases: Sequence[Case],
    folder: Path,
    loaded: LoadedRubric,
    mode: ModeName,
    project: Path | None = None,
    progress: Progress = lambda _: None,
    *,
    models: Sequence[str | None] = (None,),
    at_once: int = service.AT_ONCE,
) -> Opinions:
    """Return the cases with the opinion of every tier; paths of cases are relative to `folder`.

    With the names of `models` each is asked alone, as the quick tier, and is a judge of this name.
    Raises `ConfigError`, `InputError` or, when no model is set up, `UsageError`.
    """
    config = configuration.load(project)

    async def run() -> Opinions:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            judges = []
            for model in models:
                request = JudgeRequest(mode=mode, model=model)
                settings = service.judge_settings(config, loaded, project, request)
                if not settings.models_by_tier:  # before any model is asked
                    raise UsageError(f"no model to ask: {settings.no_model_reason}")
                judges.append(DocumentJudge(gateway, settings, service.reply_cache(request)))
            answered = list(cases)
            done = 0
            for model, judge in zip(models, judges, strict=True):
                models_by_tier = judge.models_by_tier
                if model:
                    models_by_tier = {"quick": models_by_tier["quick"]}
                # Every opinion goes up, and models are measured on texts whoever wrote them.
                tier_judge = judge.with_settings(
                    models_by_tier=models_by_tier,
                    finality=FinalityRules(),
                    calibration_warning=None,
                    author_family=None,
                )
                ask_tiers = partial(opinions, tier_judge, folder=folder)
                limit = service.max_concurrency(tier_judge, at_once)
                unasked = answered
                answered = []
                async with aclosing(map_concurrently(ask_tiers, unasked, limit)) as answers:
                    async for case, by_tier in answers:
                        if model:
                            answered.append(case.with_judges({model: by_tier["quick"]}))
                        else:
                            answered.append(case.with_judges(by_tier))
                        done += 1
                        progress(done)
            panel = fingerprint(judges[0].settings)
            return Opinions(answered, panel.models, panel.asking, judge=judges[0])

    return running.run(run())


def unanswered(cases: Sequence[Case]) -> str | None:
    """Say in one line how many cases some tier has no model's answer for, and why; None if it is none."""
    lacking = Counter[str]()
    reasons = set[str]()
    missing = 0
    has_answer = False
    for case in cases:
        failures = {}
        for name, recorded in case.judges.items():
            if recorded.unanswered:
                failures[name] = str(recorded.unanswered)
        lacking.update(failures.keys())
        reasons.update(failures.values())
        missing += bool(failures)
        has_answer = has_answer or len(failures) < len(case.judges)
    if not missing:
        return None
    if has_answer:
        problem = "not every tier answered"
        omitted = [f"{count} of {name}" for name, count in lacking.items()]
        effect = f"the figures omit {', '.join(omitted)}"
    else:
        problem = "no model answered"
        effect = "there are no figures"
    count = f"{missing} of {len(cases)} cases"
    why = ", ".join(sorted(reasons))
    return f"{problem} {count} ({why}); {effect}; test the models with judgekit provider check"


async def opinions(judge: AnyJudge, case: Case, folder: Path) -> dict[TierName, Recorded]:
    """Return what each tier records about a case; raises `InputError` where no model is asked."""
    if case.variant == "rerun":  # what was said before would be said again
        judge = replace(judge, cache=None)
    judge, subject = prepared(judge, case, folder)
    subject, secrets = judge.redacted(subject)
    state = JudgingState(subject, judge.session(), judge.settings.refusal(secrets), secrets)
    cut = set()
    if isinstance(judge, RankingJudge):  # which of the subjects go up depends on what is learned
        for tier, jury in judge.models_by_tier.items():
            task = replace(judge.question(tier, state), letters=tuple(subject.letters))
            calls = [partial(task.ask, endpoint, state.session) for endpoint in jury]
            state.turns[tier] = await gather_limited(calls, state.session)
            if task.is_cut:
                cut.add(tier)
    else:
        await judge.run(state)
        cut.update(state.cut)
    if isinstance(judge, DocumentJudge) and not state.turns:
        raise case.wrong(f"no model was asked (not judged: {state.refused})")
    by_tier = {}
    for tier, turns in state.turns.items():
        answers = [_answer(judge, case, turn) for turn in turns]
        by_tier[tier] = _joined(answers, judge.settings, cut=tier in cut)
    return by_tier


def _answer(judge: AnyJudge, case: Case, turn: ModelTurn[Any]) -> dict[str, Any]:
    """Return the fields of `Recorded` for one model: its answer or failure, and what it cost."""
    endpoint = turn.endpoint
    value = turn.answer.value
    questions = len(judge.rubric.questions)
    calls = judge.settings.calls_at_once(questions)
    if endpoint.pointwise:
        calls = questions
    elif endpoint.decides:
        calls = 1
    answers = [turn.answer]
    failure = "not_recorded"
    source = score_source(endpoint, None)
    answer: dict[str, Any] = {}
    if isinstance(judge, RankingJudge):
        answers = list(turn.calls)
        calls = calls * len(turn.calls)
        source, answer = _ranking_answer(judge, endpoint, value or {})
    elif isinstance(judge, PairJudge):
        answers = list(turn.calls)
        calls = len(turn.calls)
        words = [vote.value.word if vote.value else None for vote in answers]
        if any(words):
            failure = "invalid_reply"
        if len(words) == len(ORDERS) and any(words):
            value = words
            answer = {"orders": dict(zip(ORDERS, words, strict=True))}
        elif value:
            answer = {"probabilities": {"A": max(value.lean, 0.0), "B": max(-value.lean, 0.0)}}
    elif isinstance(judge, CandidateJudge) and value:
        answer = _selection_answer(case, value)
    elif value:
        source = score_source(endpoint, value)
        answer = {"scores": value.scores}
    if not value:
        kinds = [call.failure.kind for call in answers if call.failure]
        answer = {"failure": next(iter(kinds), failure)}
    usages = [call.usage for call in answers]
    for key in ("input_tokens", "output_tokens", "cost_usd"):
        answer[key] = _total([getattr(usage, key) for usage in usages])
    answer["model"] = endpoint.model
    answer["family"] = endpoint.family
    answer["read"] = source if value else None
    answer["calls"] = calls
    answer["latency_ms"] = turn.answer.latency_ms
    # What was kept cost nothing this time, which says nothing about the next.
    if any(usage.cost_source in ("cache", "mixed") for usage in usages):
        answer["cost_usd"] = None
        answer["latency_ms"] = None
    return answer


def _total(amounts: Sequence[Any]) -> Any:  # noqa: ANN401 - whole or not
    """Return the sum of amounts, None where one of them is not known."""
    return None if None in amounts else sum(amounts)


def _ranking_answer(
    judge: RankingJudge, endpoint: Endpoint, scored: Mapping[str, Any]
) -> tuple[ScoreSource, dict[str, Any]]:
    """Return how the scores of several texts were read, and the mean points of each."""
    sources = set()
    points = {}
    for letter, scores in scored.items():
        sources.add(score_source(endpoint, scores))
        points[letter] = [judge.rubric.mean(scores.scores)]
    source: ScoreSource = sources.pop() if len(sources) == 1 else "partly"
    return source, {"points": points}


def _selection_answer(case: Case, marks: Mapping[str, Mark | None]) -> dict[str, Any]:
    """Return the probabilities of candidates, or which of them are kept, under their ids in the case."""
    ids = {name: candidate_id for candidate_id, name in shown_ids(case).items()}
    probabilities = {}
    keep = []
    unjudged = []
    for name, mark in marks.items():
        candidate_id = ids[name]
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


def _joined(answers: Sequence[dict[str, Any]], settings: JudgeSettings, *, cut: bool) -> Recorded:
    conditions = {
        "samples": settings.samples,
        "criteria": settings.criteria,
        "rule": settings.jury,
        "redact": bool(settings.redact),
        "cut": cut,
    }
    if len(answers) == 1:
        return Recorded.model_validate(answers[0] | conditions)
    totals = {}
    for key in ("calls", "input_tokens", "output_tokens", "cost_usd"):
        totals[key] = _total([answer[key] for answer in answers])
    waits = [answer["latency_ms"] for answer in answers]
    # They are asked at the same time.
    totals["latency_ms"] = None if None in waits else max(waits)
    return Recorded.model_validate({"jury": answers, **totals, **conditions})


def again(cases: Sequence[Case], times: int = 1, *, swapped: bool = True) -> list[Case]:
    """Return the cases, and each original so often again: to be asked anew, and with candidates reordered."""
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
    """Return the ids to show candidates under; for another order, ids that no model sees turn most pairs."""
    ids = [candidate.id for candidate in case.candidates]
    if case.variant != "swapped":
        return dict(zip(ids, ids, strict=True))
    usual = list(fence.labels(case.query, ids))

    def count_turned(names: Mapping[str, str]) -> int:
        order = fence.labels(case.query, list(names.values()))
        place_of = {name: place for place, name in enumerate(order)}
        places = [place_of[names[candidate_id]] for candidate_id in usual]
        return sum(first > second for first, second in combinations(places, 2))

    choices = []
    for marks in range(1, 9):
        choices.append({candidate_id: candidate_id + "'" * marks for candidate_id in ids})
    return max(choices, key=count_turned)


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
    """Return the verdicts about each case in each mode; raises `UsageError` where no model is set up."""
    config = configuration.load(project)
    trials = []
    labelled = [Case.model_validate(case.model_dump()) for case in cases]

    async def run() -> None:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            for mode in modes:
                at_once = 1
                request = JudgeRequest(rubric=str(loaded.path), mode=mode)
                if isinstance(loaded.rubric, ScoreRubric):
                    judge, _ = service.document_judge(gateway, project, request)
                    at_once = service.max_concurrency(judge, service.AT_ONCE)
                else:
                    settings = service.judge_settings(config, loaded, project, request)
                    judge = DocumentJudge(gateway, settings, service.reply_cache(request))
                ready = [(case, *prepared(judge, case)) for case in labelled]
                judged = map_concurrently(_judge_case, ready, at_once)
                async with aclosing(judged):
                    async for (case, *_), result in judged:
                        for tried in _tried(case, result, mode):
                            progress(tried)
                            trials.append(tried)

    panel, reason = resolve_panel(config, project)
    if not panel:
        raise UsageError(f"no model to ask: {reason}")
    running.run(run())
    return trials


async def _judge_case(ready: tuple[Case, AnyJudge, Any]) -> Result:
    _, judge, subject = ready
    result: Result = await judge.judge(subject)
    return result


def _tried(case: Case, result: Result, mode: ModeName) -> Iterator[Tried]:
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
    right = 0
    decided = 0
    undecided = 0
    for answer in tried:
        if answer.said in UNDECIDED:
            undecided += 1
        else:
            decided += 1
            right += answer.agrees
    return Agreement(right, decided, undecided, share=rates.share_interval(right, decided))


def leniency(
    loaded: LoadedRubric,
    wrong: Sequence[WrongCase],
    mode: ModeName,
    project: Path,
    progress: Progress,
) -> dict[str, dict[str, Agreement]]:
    """Return by tier, with its model, how many wrong texts of each kind it accepts of those it was asked."""
    cases = [Case.model_validate(text.model_dump(exclude={"kind"})) for text in wrong]
    opinions = ask(cases, loaded.path.parent, loaded, mode, project, progress)
    reader = SampleReader(loaded.rubric, mode)
    kinds = {text.id: text.kind for text in wrong}
    accepted: dict[str, dict[str, Agreement]] = {}
    for tier, model in opinions.models.items():
        words = defaultdict[str, list[str | None]](list)
        for case in opinions.cases:
            if tier in case.judges:
                answers = reader.words(case, case.judges[tier])
                words[kinds[case.id]].append(answers[WHOLE])
        for kind in dict.fromkeys(kinds.values()):
            if kind in words:  # else the tier had nothing to settle
                accepted_by_kind = accepted.setdefault(f"{tier} ({model})", {})
                accepted_by_kind[kind] = _count_accepted(words[kind])
    return accepted


def _count_accepted(words: Sequence[str | None]) -> Agreement:
    accepted = words.count("accept")
    unread = words.count(None)
    read = len(words) - unread
    return Agreement(accepted, read, unread, share=rates.share_interval(accepted, read))


def flips(before: Sequence[Tried], after: Sequence[Tried]) -> list[tuple[str, Tried]]:
    """Return the earlier and the new answer where they differ, of the questions that were put to both."""
    earlier = {(tried.case, tried.mode): tried.said for tried in before}
    flipped = []
    for tried in after:
        said = earlier.get((tried.case, tried.mode), tried.said)
        if said != tried.said:
            flipped.append((said, tried))
    return flipped
