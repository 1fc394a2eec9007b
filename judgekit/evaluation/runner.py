"""Asks models, or a recording of them, about labelled cases, for three questions.

`eval judge` and `calibrate` ask for the opinion of every tier (`ask`), whichever tier would have settled it.
`rubric check --run` asks for the verdicts that judging comes to (`trial`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import ModeName, TierName
from judgekit.config import settings as configuration
from judgekit.errors import UsageError
from judgekit.evaluation.calibrate import Opinions
from judgekit.evaluation.cases import Case, Recorded, Variant
from judgekit.evaluation.samples import Reader
from judgekit.evaluation.stats import UNDECIDED
from judgekit.judging import calibration, documents, fence, service
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
from judgekit.providers.gateway import open_gateway
from judgekit.rubric.schema import Case as RubricCase
from judgekit.rubric.schema import CompareRubric, ScoreRubric, WrongCase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.question import ModelTurn
    from judgekit.judging.settings import JudgeSettings
    from judgekit.ledger.rates import Interval
    from judgekit.rubric.loader import LoadedRubric

AnyJudge: TypeAlias = "Judge[Any, Any, Any]"
Progress: TypeAlias = "Callable[[int], None]"
Result: TypeAlias = "Verdict | Selection | Comparison"

MODES: tuple[ModeName, ...] = ("strict", "lenient")


def prepared(judge: AnyJudge, case: Case, folder: Path | None = None) -> tuple[AnyJudge, Any]:
    if isinstance(judge.rubric, CompareRubric):
        if not (case.a and case.b):
            raise case.wrong("expected the texts a and b, or what judges said")
        pair = (file_of("A", case.a), file_of("B", case.b))
        return judge.as_judge(PairJudge), ComparisonInput(case.prompt, pair)
    if not isinstance(judge.rubric, ScoreRubric):
        names = shown_ids(case)
        candidates = [
            PromptCandidate(names[each.id], each.title, each.category, tuple(each.tags), each.text)
            for each in case.candidates
        ]
        return judge.as_judge(CandidateJudge), Candidates(
            documents.Query(case.query), tuple(candidates)
        )
    if case.subjects:
        files = tuple(file_of(*each) for each in zip(case.letters, case.subjects, strict=True))
        return judge.as_judge(RankingJudge), ComparisonInput(case.prompt, files)
    text = case.text
    if text is None:
        if case.path is None or folder is None:
            raise case.wrong("expected text, a path, or what judges said")
        try:
            text = (folder / case.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise case.wrong(f"{case.path} cannot be read ({error})") from None
    files = tuple(file_of(*each) for each in {case.path or "text": text, **case.files}.items())
    task = TaskDescription(case.description, case.acceptance, case.reference)
    return judge, Document(files, case.path or case.id, task)


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
            found = list(cases)
            done = 0
            for model, judge in zip(models, judges, strict=True):
                models_by_tier = judge.models_by_tier
                if model:
                    models_by_tier = {"quick": models_by_tier["quick"]}
                # Every opinion goes up, and models are measured on texts whoever wrote them.
                asked = judge.with_settings(
                    models_by_tier=models_by_tier,
                    finality=FinalityRules(),
                    calibration_warning=None,
                    author_family=None,
                )
                opinions_of = partial(opinions, asked, folder=folder)
                answered = found
                found = []
                most = service.max_concurrency(asked, at_once)
                async with aclosing(service.results(answered, opinions_of, most)) as answers:
                    async for case, said in answers:
                        own = {model: said["quick"]} if model else said
                        found.append(case.model_copy(update={"judges": case.judges | own}))
                        done += 1
                        progress(done)
            known = calibration.fingerprint(judges[0].settings)
            return Opinions(found, known.models, known.asking, judges[0])

    return running.run(run())


def unanswered(cases: Sequence[Case]) -> str | None:
    """Say in one line how many cases some tier has no model's answer for, and why; None if it is none."""
    failures = [[judge.unanswered for judge in case.judges.values()] for case in cases]
    missing = sum(map(any, failures))
    if not missing:
        return None
    lacking = Counter(
        name for case in cases for name, judge in case.judges.items() if judge.unanswered
    )
    omitted = ", ".join(f"{count} of {name}" for name, count in lacking.items())
    found = "not every tier answered"
    rest = f"the figures omit {omitted}"
    if all(map(all, failures)):
        found = "no model answered"
        rest = "there are no figures"
    why = ", ".join(sorted({str(kind) for kinds in failures for kind in kinds if kind}))
    count = f"{missing} of {len(cases)} cases"
    return f"{found} {count} ({why}); {rest}; test the models with judgekit provider check"


async def opinions(judge: AnyJudge, case: Case, folder: Path) -> dict[TierName, Recorded]:
    if case.variant == "rerun":  # what was said before would be said again
        judge = replace(judge, cache=None)
    judge, subject = prepared(judge, case, folder)
    subject, secrets = judge.redacted(subject)
    state = JudgingState(subject, judge.session(), judge.settings.refusal(secrets), secrets)
    cut: set[TierName] = set()
    if isinstance(judge, RankingJudge):  # which of the subjects go up depends on what is learned
        for tier, jury in judge.models_by_tier.items():
            task = replace(judge.question(tier, state), letters=tuple(subject.letters))
            calls = [partial(task.ask, endpoint, state.session) for endpoint in jury]
            state.turns[tier] = await gather_limited(calls, state.session)
            cut |= {tier} if task.is_cut else set()
    else:
        await judge.run(state)
        cut |= set(state.cut)
    if isinstance(judge, DocumentJudge) and not state.turns:
        raise case.wrong(f"no model was asked (not judged: {state.refused})")
    return {
        tier: _joined(
            [_answer(judge, case, turn) for turn in turns], judge.settings, cut=tier in cut
        )
        for tier, turns in state.turns.items()
    }


def _answer(judge: AnyJudge, case: Case, turn: ModelTurn[Any]) -> dict[str, Any]:
    endpoint = turn.endpoint
    value = turn.answer.value
    questions = len(judge.rubric.questions)
    if endpoint.pointwise:
        calls = questions
    else:
        calls = judge.settings.calls_at_once(questions)
    answers = [turn.answer]
    failure = "not_recorded"
    read = score_source(endpoint, None)
    found: dict[str, Any] = {}
    if isinstance(judge, RankingJudge):
        answers = list(turn.calls)
        calls = calls * len(turn.calls)
        sources = {score_source(endpoint, one) for one in (value or {}).values()}
        if len(sources) == 1:
            read = sources.pop()
        else:
            read = "partly"
        found = {
            "points": {
                letter: [judge.rubric.mean(one.scores)] for letter, one in (value or {}).items()
            }
        }
    elif isinstance(judge, PairJudge):
        answers = list(turn.calls)
        calls = len(turn.calls)
        words = [vote.value.word if vote.value else None for vote in answers]
        failure = "invalid_reply" if any(words) else failure
        if len(words) == len(ORDERS) and any(words):
            value = words
            found = {"orders": dict(zip(ORDERS, words, strict=True))}
        elif value:
            found = {"probabilities": {"A": max(value.lean, 0.0), "B": max(-value.lean, 0.0)}}
    elif isinstance(judge, CandidateJudge) and value:
        back = {name: each for each, name in shown_ids(case).items()}
        marks = {}
        for name, mark in value.items():
            if mark:
                marks[back[name]] = mark
        known = {}
        for each, mark in marks.items():
            if mark.probability is not None:
                known[each] = mark.probability
        keep = {"keep": [each for each, mark in marks.items() if mark.outcome == "accept"]}
        found = {"probabilities": known} if known else keep
        found["unjudged"] = [back[name] for name, mark in value.items() if not mark]
    elif value:
        read = score_source(endpoint, value)
        found = {"scores": value.scores}
    if not value:
        found = {"failure": next((each.failure.kind for each in answers if each.failure), failure)}
    # What was kept cost nothing this time, which says nothing about the next.
    paid = []
    for answer in answers:
        if answer.usage.cost_source not in ("cache", "mixed"):
            paid.append(answer.usage.cost_usd)
    costs = [cost for cost in paid if cost is not None]
    return found | {
        "model": endpoint.model,
        "family": endpoint.family,
        "read": read if value else None,
        "calls": calls,
        "input_tokens": sum(each.usage.input_tokens for each in answers),
        "output_tokens": sum(each.usage.output_tokens for each in answers),
        "cost_usd": sum(costs) if len(costs) == len(answers) else None,
        "latency_ms": turn.answer.latency_ms if len(paid) == len(answers) else None,
    }


def _joined(answers: Sequence[dict[str, Any]], settings: JudgeSettings, *, cut: bool) -> Recorded:
    how: dict[str, Any] = {
        "samples": settings.samples,
        "criteria": settings.criteria,
        "rule": settings.jury,
        "redact": bool(settings.redact),
        "cut": cut,
    }
    if len(answers) == 1:
        return Recorded.model_validate(answers[0] | how)
    keys = ("calls", "input_tokens", "output_tokens", "cost_usd")
    sums = {}
    for key in keys:
        sums[key] = None if None in (values := [each[key] for each in answers]) else sum(values)
    waits = [each["latency_ms"] for each in answers]
    # They are asked at the same time.
    sums["latency_ms"] = None if None in waits else max(waits)
    return Recorded.model_validate({"jury": answers, **sums, **how})


def again(cases: Sequence[Case], times: int = 1, *, swapped: bool = True) -> list[Case]:
    """Return the cases, and each original so often again: to be asked anew, and with candidates reordered."""
    found = []
    for case in cases:
        kinds: list[tuple[Variant, str]] = []
        for n in range(times):
            kinds.append(("rerun", f"rerun{f' {n}' if n else ''}"))
        kinds += [("swapped", "swapped")] if swapped and len(case.candidates) > 1 else []
        found.append(case)
        for kind, name in kinds if case.variant == "original" else ():
            changed = {"id": f"{case.id} ({name})", "variant": kind, "pair": case.id}
            found.append(case.model_copy(update=changed))
    return found


def shown_ids(case: Case) -> dict[str, str]:
    """Return the ids to show candidates under; for another order, ids that no model sees turn most pairs."""
    ids = [candidate.id for candidate in case.candidates]
    if case.variant != "swapped":
        return dict(zip(ids, ids, strict=True))
    usual = list(fence.labels(case.query, ids))

    def turned(names: Mapping[str, str]) -> int:
        place = {}
        for at, name in enumerate(fence.labels(case.query, list(names.values()))):
            place[name] = at
        return sum(
            place[names[first]] > place[names[second]] for first, second in combinations(usual, 2)
        )

    return max(({each: each + "'" * marks for each in ids} for marks in range(1, 9)), key=turned)


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
    found: list[Tried] = []
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
                judged = service.results(ready, lambda each: each[1].judge(each[2]), at_once)
                async with aclosing(judged):
                    async for (case, *_), result in judged:
                        for tried in _tried(case, result, mode):
                            progress(tried)
                            found.append(tried)

    panel, reason = resolve_panel(config, project)
    if not panel:
        raise UsageError(f"no model to ask: {reason}")
    running.run(run())
    return found


def _tried(case: Case, result: Result, mode: ModeName) -> Iterator[Tried]:
    label = case.right(mode)
    assert isinstance(label, str | list)  # noqa: S101 - no case of a rubric has a number
    if isinstance(result, Selection):
        for decision in result.decisions:
            expected = "kept" if decision.id in label else "dropped"
            name = f"{case.id}/{decision.id}"
            why = result.degraded or ""
            yield Tried(name, mode, expected, decision.decision, None, why)
    else:
        if isinstance(result, Comparison):
            scores = None
        else:
            scores = result.scores
        yield Tried(
            case.id, mode, str(label), result.verdict, scores, result.degraded or result.reasoning
        )


def agreement(tried: Iterable[Tried]) -> Agreement:
    everything = list(tried)
    decided = [each for each in everything if each.said not in UNDECIDED]
    right = sum(each.agrees for each in decided)
    undecided = len(everything) - len(decided)
    return Agreement(right, len(decided), undecided, rates.share_interval(right, len(decided)))


def leniency(
    loaded: LoadedRubric,
    wrong: Sequence[WrongCase],
    mode: ModeName,
    project: Path,
    progress: Progress,
) -> dict[str, dict[str, Agreement]]:
    """Return by tier, with its model, how many wrong texts of each kind it accepts of those it was asked."""
    cases = [Case.model_validate(each.model_dump(exclude={"kind"})) for each in wrong]
    asked = ask(cases, loaded.path.parent, loaded, mode, project, progress)
    reader = Reader(loaded.rubric, mode)
    kinds = {each.id: each.kind for each in wrong}
    found: dict[str, dict[str, Agreement]] = {}
    for tier, model in asked.models.items():
        for kind in dict.fromkeys(kinds.values()):
            own = []
            for case in asked.cases:
                if kinds[case.id] == kind and tier in case.judges:
                    own.append(case)
            if not own:  # the tier had nothing to settle
                continue
            words = [word for case in own if (word := reader.words(case, case.judges[tier])[""])]
            accepted = words.count("accept")
            read = len(words)
            share = Agreement(accepted, read, len(own) - read, rates.share_interval(accepted, read))
            found.setdefault(f"{tier} ({model})", {})[kind] = share
    return found


def flips(before: Sequence[Tried], after: Sequence[Tried]) -> list[tuple[str, Tried]]:
    """Return the earlier and the new answer where they differ, of the questions that were put to both."""
    earlier = {(tried.case, tried.mode): tried.said for tried in before}
    pairs = ((earlier.get((new.case, new.mode), new.said), new) for new in after)
    return [(said, new) for said, new in pairs if said != new.said]
