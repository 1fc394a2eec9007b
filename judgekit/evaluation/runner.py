"""Asks models, or a recording of them, about labelled cases, for three questions.

`eval judge` and `calibrate` ask for the opinion of every tier (`ask`), whichever tier would have settled it.
`rubric check --run` asks for the verdicts that judging comes to (`trial`).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.cases import Case, Recorded
from judgekit.judging import fence, fingerprint, service
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import ComparisonInput, Document, Task, file_of, is_cut
from judgekit.judging.escalation import FinalityRules
from judgekit.judging.jury import ORDERS, Vote, of_calls
from judgekit.judging.logprobs import score_source
from judgekit.judging.orchestrator import JudgingState
from judgekit.judging.panel import resolve_panel
from judgekit.judging.prompt import PromptCandidate
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.round import gather_limited
from judgekit.judging.score import DocumentJudge
from judgekit.judging.select import CandidateJudge, Query
from judgekit.judging.service import JudgeRequest
from judgekit.judging.verdict import Comparison, Selection
from judgekit.ledger import rates
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.rubric.schema import CompareRubric, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.config import ModeName, TierName
    from judgekit.evaluation.cases import Variant
    from judgekit.judging.jury import Opinion, PairWord
    from judgekit.judging.orchestrator import Judge, JudgeOptions
    from judgekit.judging.round import Answer
    from judgekit.judging.verdict import CompareRound, Round, Verdict
    from judgekit.ledger.rates import Interval
    from judgekit.providers.base import Endpoint
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Case as RubricCase

AnyJudge: TypeAlias = "Judge[Any, Any, Any]"
Result: TypeAlias = "Verdict | Selection | Comparison"

AT_ONCE = 8
MODES: tuple[ModeName, ...] = ("strict", "lenient")
UNREAD = ("undetermined", "escalate")
"""Words that say that nothing was decided: they agree with no label, and do not disagree either."""


# --- A case as the judge takes it


def _document(case: Case, folder: Path | None) -> Document:
    text = case.text
    if text is None and (case.path is None or folder is None):
        raise InputError(f"{case.where}: expected text, a path, or what judges said")
    if text is None and case.path is not None and folder is not None:
        try:
            text = (folder / case.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{case.where}: {case.path} cannot be read ({error})") from None
    files = {case.path or "text": text or "", **case.files}
    return Document(
        tuple(file_of(*each) for each in files.items()),
        case.path or case.id,
        Task(case.description, case.acceptance),
    )


def _candidates(case: Case, names: Mapping[str, str]) -> list[PromptCandidate]:
    return [
        PromptCandidate(names[each.id], each.title, each.category, tuple(each.tags), each.text)
        for each in case.candidates
    ]


def _pair(case: Case) -> ComparisonInput:
    if not (case.a and case.b):
        raise InputError(f"{case.where}: expected the texts a and b, or what judges said")
    return ComparisonInput(case.prompt, (file_of("A", case.a), file_of("B", case.b)))


async def _result(judge: AnyJudge, case: Case, folder: Path | None = None) -> Result:
    """Return what a judge says about a case."""
    if isinstance(judge.rubric, ScoreRubric):
        document_judge = judge if isinstance(judge, DocumentJudge) else judge.as_judge(DocumentJudge)
        return await document_judge.judge(_document(case, folder))
    if isinstance(judge.rubric, CompareRubric):
        return await judge.as_judge(PairJudge).judge(_pair(case))
    ids = [candidate.id for candidate in case.candidates]
    swapped = case.variant == "swapped"
    names = reordered(case.query, ids) if swapped else dict(zip(ids, ids, strict=True))
    found = await judge.as_judge(CandidateJudge).select(Query(case.query), _candidates(case, names))
    back = {name: each for each, name in names.items()}
    return found.model_copy(update={"rounds": [_renamed(each, back) for each in found.rounds]})


def _renamed(one: Round, names: Mapping[str, str]) -> Round:
    """Return a round about candidates with other names for them."""
    if one.opinion is None:
        return one
    opinion: dict[str, Any] = {
        key: [names[each] for each in one.opinion[key]] for key in ("keep", "unjudged")
    }
    if (known := one.opinion.get("probabilities")) is not None:
        opinion["probabilities"] = {names[each]: value for each, value in known.items()}
    return one.model_copy(update={"opinion": opinion})


async def _in_order(
    calls: Sequence[Callable[[], Any]], at_once: int, done: Callable[[int], None] = lambda _: None
) -> AsyncGenerator[Any, None]:
    """Yield what the calls return in their order, with so many of them at a time; `done` counts them."""
    free, count = asyncio.Semaphore(at_once), 0

    async def one(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever a call returns
        nonlocal count
        async with free:
            found = await call()
        count += 1
        done(count)
        return found

    tasks = [asyncio.create_task(one(call)) for call in calls]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- The opinion of every tier


class Opinions(NamedTuple):
    """The cases with the models' answers, the model of each tier, and a hash of how each model is asked."""

    cases: list[Case]
    models: Mapping[TierName, str]
    asking: fingerprint.Asking


def ask(
    cases: Sequence[Case],
    folder: Path,
    loaded: LoadedRubric,
    mode: ModeName,
    project: Path | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Opinions:
    """Return the cases with the opinion of every tier; paths of cases are relative to `folder`.

    Every quick opinion goes up, and the tiebreaker is asked where quick and deep contradict each other or
    one of them failed. Raises `ConfigError`, `InputError` or, when no model is set up, `UsageError`.
    """
    settings = configuration.load(project)

    async def run() -> Opinions:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            judge = service.judge_of(
                DocumentJudge, gateway, settings, loaded, project, JudgeRequest(mode=mode)
            )
            if not judge.panel:
                raise UsageError(f"no model to ask: {judge.nobody}")
            endpoints = [endpoint for jury in judge.panel.values() for endpoint in jury]
            limits = [endpoint.profile.limits.concurrency or AT_ONCE for endpoint in endpoints]
            # Every opinion goes up, and models are measured on texts whoever wrote them.
            judge = replace(judge, finality=FinalityRules(), calibration_warning=None, written_by=None)
            calls = [partial(opinions, judge, case, folder) for case in cases]
            answers = [each async for each in _in_order(calls, min(AT_ONCE, *limits), progress)]
            found = [
                case.model_copy(update={"judges": judges})
                for case, judges in zip(cases, answers, strict=True)
            ]
            panel = fingerprint.panel(judge.panel, loaded.rubric, judge.options)
            return Opinions(found, panel.models, panel.asking)

    return running.run(run())


def unanswered(cases: Sequence[Case]) -> str | None:
    """Say in one line how many cases some tier has no model's answer for, and why; None if it is none."""
    failures = [{judge.unanswered for judge in case.judges.values()} - {None} for case in cases]
    missing = [failure for failure in failures if failure]
    if not missing:
        return None
    nobody = all(judge.unanswered for case in cases for judge in case.judges.values())
    why = ", ".join(sorted({str(kind) for kinds in missing for kind in kinds}))
    told = "no model answered" if nobody else "not every tier answered"
    rest = "there are no figures" if nobody else "the figures omit these answers"
    count = f"{len(missing)} of {len(cases)} cases"
    return f"{told} {count} ({why}); {rest}; test the models with judgekit provider check"


async def opinions(judge: AnyJudge, case: Case, folder: Path) -> dict[str, Recorded]:
    """Return the answer of each tier to a case."""
    if case.variant == "rerun":  # what was said before would be said again
        judge = replace(judge, cache=None)
    if isinstance(judge.rubric, ScoreRubric) and case.subjects:
        return await _ranked(judge.as_judge(RankingJudge), case)
    result = await _result(judge, case, folder)
    cut: set[TierName] = set()
    if isinstance(judge.rubric, ScoreRubric):
        if not result.rounds:
            why = result.degraded or "no reason is known"
            raise InputError(f"{case.where}: no model was asked ({why})")
        document, tiers = _document(case, folder), judge.rubric.tiers
        for tier, jury in judge.panel.items():
            if any(is_cut(document.seen_by(getattr(tiers, tier), endpoint)) for endpoint in jury):
                cut.add(tier)
    elif isinstance(judge.rubric, CompareRubric):
        pair_judge = judge.as_judge(PairJudge)
        state = JudgingState(pair_judge.redacted(_pair(case))[0], judge.session())
        cut = {tier for tier in judge.panel if pair_judge.cut(tier, state)}
    return recorded(judge, result.rounds, cut)


async def _ranked(judge: RankingJudge, case: Case) -> dict[str, Recorded]:
    """Ask every model of every tier about every subject: which go up depends on what is learned."""
    files = tuple(file_of(*each) for each in zip(case.letters, case.subjects, strict=True))
    sent, _ = judge.redacted(ComparisonInput(case.prompt, files))
    state = JudgingState(sent, judge.session())
    found: dict[str, Recorded] = {}
    for tier, jury in judge.panel.items():
        task = replace(judge.task(tier, state), letters=tuple(sent.letters))
        calls = [partial(task.ask, endpoint, state.session) for endpoint in jury]
        answers = [
            _scored_subjects(judge, turn.endpoint, dict(zip(task.letters, turn.calls, strict=True)))
            for turn in await gather_limited(calls, state.session)
        ]
        found[tier] = _joined(answers, judge.options, cut=task.is_cut)
    return found


# --- From rounds to recorded answers


def recorded(
    judge: AnyJudge, rounds: Sequence[Round] | Sequence[CompareRound], cut: Collection[TierName] = ()
) -> dict[str, Recorded]:
    """Return each tier's answer; `cut` are those that did not see the whole subject."""
    found: dict[str, Recorded] = {}
    asked = len(judge.rubric.questions) if judge.options.each else 1
    for tier, jury in judge.panel.items():
        own = iter([each for each in rounds if each.tier == tier])
        answers = []
        for endpoint in jury:
            if not isinstance(judge.rubric, CompareRubric):
                answers += [_answer(judge, endpoint, each) for each in islice(own, 1)]
            elif calls := list(islice(own, judge.options.samples_of(endpoint) * asked * len(ORDERS))):
                answers.append(_preferred(judge, endpoint, calls, asked))
        if answers:
            found[tier] = _joined(answers, judge.options, cut=tier in cut)
    return found


def _answer(judge: AnyJudge, endpoint: Endpoint, one: Round | CompareRound) -> dict[str, Any]:
    """Return one model's answer about a document or candidates."""
    usage = _usage(judge, endpoint, [one])
    if one.opinion is None:
        return {"failure": one.failure.kind if one.failure else "not_recorded"} | usage
    key = next(key for key in ("scores", "probabilities", "keep") if key in one.opinion)
    read = score_source(endpoint, one.opinion.get("scores"), one.opinion.get("expected", ()))
    return {key: one.opinion[key], "unjudged": one.opinion.get("unjudged", []), "read": read} | usage


def _preferred(judge: AnyJudge, endpoint: Endpoint, calls: Sequence[Any], criteria: int) -> dict[str, Any]:
    """Return one model's answer about two texts: in each order, or of more calls what they come to."""
    usage = _usage(judge, endpoint, calls) | {"calls": len(calls), "read": score_source(endpoint, None)}
    words: list[PairWord | None] = [call.opinion["better"] if call.opinion else None for call in calls]
    if any(words) and len(calls) == len(ORDERS):
        orders = ["".join(call.order) for call in calls]
        return {"orders": dict(zip(orders, words, strict=True))} | usage
    vote = of_calls([Vote(word) if word else None for word in words], criteria) if any(words) else None
    if vote is None:
        otherwise = "invalid_reply" if any(words) else "not_recorded"
        return {"failure": next((call.failure.kind for call in calls if call.failure), otherwise)} | usage
    return {"probabilities": {"A": max(vote.lean, 0.0), "B": max(-vote.lean, 0.0)}} | usage


def _scored_subjects(
    judge: RankingJudge, endpoint: Endpoint, calls: Mapping[str, Answer[Opinion]]
) -> dict[str, Any]:
    """Return what one model gave to several subjects, by letter."""
    known = {letter: answer.value for letter, answer in calls.items() if answer.value}
    usage = _usage(judge, endpoint, list(calls.values()))
    usage["calls"] *= len(calls)
    if not known:
        failed = next((answer.failure.kind for answer in calls.values() if answer.failure), "not_recorded")
        return {"failure": failed} | usage
    points = {letter: [fmean(opinion.scores.values())] for letter, opinion in known.items()}
    read = {score_source(endpoint, opinion.scores, opinion.expected) for opinion in known.values()}
    return {"points": points, "read": read.pop() if len(read) == 1 else "partly"} | usage


def _usage(
    judge: AnyJudge, endpoint: Endpoint, rounds: Sequence[Round | CompareRound | Answer[Opinion]]
) -> dict[str, Any]:
    """Return which model it was, what it used, and how many calls one round of it takes."""
    questions = len(judge.rubric.questions)
    # What was kept cost nothing this time, which says nothing about the next.
    paid = [each.usage.cost_usd for each in rounds if each.usage.cost_source not in ("cache", "mixed")]
    costs = [cost for cost in paid if cost is not None]
    return {
        "model": endpoint.model,
        "family": endpoint.family,
        "calls": questions if endpoint.pointwise else judge.options.calls(questions),
        "input_tokens": sum(each.usage.input_tokens for each in rounds),
        "output_tokens": sum(each.usage.output_tokens for each in rounds),
        "cost_usd": sum(costs) if len(costs) == len(rounds) else None,
    }


def _joined(answers: Sequence[dict[str, Any]], options: JudgeOptions, *, cut: bool) -> Recorded:
    """Return a tier's answer: its model's, or those of its jury."""
    how = {
        "samples": options.samples,
        "criteria": "each" if options.each else "together",
        "rule": options.jury,
        "redact": bool(options.redact),
        "cut": cut,
    }
    if len(answers) == 1:
        return Recorded.model_validate(answers[0] | how)
    costs = [each["cost_usd"] for each in answers]
    sums = {name: sum(each[name] for each in answers) for name in ("calls", "input_tokens", "output_tokens")}
    cost = None if None in costs else sum(costs)
    return Recorded.model_validate({"jury": answers, "cost_usd": cost, **sums, **how})


# --- Variants


def again(cases: Sequence[Case]) -> list[Case]:
    """Return the cases, and each original once more: to be asked again, and with candidates reordered.

    Two texts that are compared need no other order: judging asks in both.
    """
    found = []
    for case in cases:
        kinds: list[Variant] = ["rerun", "swapped"] if len(case.candidates) > 1 else ["rerun"]
        found.append(case)
        found += [
            case.model_copy(update={"id": f"{case.id} ({kind})", "variant": kind, "pair": case.id})
            for kind in kinds
            if case.variant == "original"
        ]
    return found


def reordered(query: str, ids: Sequence[str]) -> dict[str, str]:
    """Return for each candidate an id under which they are shown in an order as different as some tries find.

    The order follows from the query and the ids, which no model sees: another id is another place.
    """
    usual = list(fence.labels(query, ids))

    def turned(names: Mapping[str, str]) -> int:
        """Return how many pairs of candidates change their order."""
        place = {name: at for at, name in enumerate(fence.labels(query, list(names.values())))}
        return sum(place[names[first]] > place[names[second]] for first, second in combinations(usual, 2))

    return max(({each: each + "'" * marks for each in ids} for marks in range(1, 9)), key=turned)


# --- The verdicts that judging comes to


class Tried(NamedTuple):
    """One question of a case in one mode: the expected word, the judge's, and mean scores if there are any.

    A case about a document or a pair is one question; one about candidates has one for each of them.
    """

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
    """How many questions were decided, how many of them as the labels say, and the bounds of that share."""

    right: int
    decided: int
    undecided: int
    bounds: Interval | None

    @property
    def share(self) -> float | None:
        """The share of what was decided that agrees with the labels; None when nothing was."""
        return self.right / self.decided if self.decided else None


class Flip(NamedTuple):
    """A question of a case that two rubrics answer differently in one mode."""

    case: str
    mode: ModeName
    expected: str
    before: str
    after: str

    @property
    def better(self) -> bool | None:
        """Whether the new answer is the expected one; None where neither answer is."""
        return None if self.expected not in (self.before, self.after) else self.after == self.expected


def trial(
    loaded: LoadedRubric,
    cases: Sequence[RubricCase],
    project: Path | None = None,
    *,
    modes: Sequence[ModeName] = MODES,
    progress: Callable[[Tried], None] = lambda _: None,
) -> list[Tried]:
    """Return the verdicts about each case in each mode, judged as judge, search or compare would.

    Raises `UsageError` where no model is set up.
    """
    settings = configuration.load(project)
    labelled = [Case.model_validate(case.model_dump()) for case in cases]

    async def everything() -> list[Tried]:
        found = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            for mode in modes:
                judge: AnyJudge
                if isinstance(loaded.rubric, ScoreRubric):
                    request = JudgeRequest(str(loaded.path), mode)
                    judge, _ = service.document_judge(gateway, project, request)
                    at_once = service.max_concurrency(judge, service.AT_ONCE)
                else:
                    judge = service.judge_of(
                        DocumentJudge, gateway, settings, loaded, project, JudgeRequest(mode=mode)
                    )
                    at_once = 1
                calls = [partial(_result, judge, case) for case in labelled]
                async with aclosing(_in_order(calls, at_once)) as results:
                    at = iter(labelled)
                    async for result in results:
                        for tried in _tried(next(at), result, mode):
                            progress(tried)
                            found.append(tried)
        return found

    panel, reason = resolve_panel(settings, project)
    if not panel:
        raise UsageError(f"no model to ask: {reason}")
    return running.run(everything())


def _tried(case: Case, result: Result, mode: ModeName) -> Iterator[Tried]:
    label = case.right(mode)
    if isinstance(result, Selection):
        for decision in result.decisions:
            expected = "kept" if decision.id in label else "dropped"
            name, why = f"{case.id}/{decision.id}", result.degraded or ""
            yield Tried(name, mode, expected, decision.decision, None, why)
    else:
        scores = None if isinstance(result, Comparison) else result.scores
        yield Tried(case.id, mode, str(label), result.verdict, scores, result.degraded or result.reasoning)


def agreement(tried: Iterable[Tried]) -> Agreement:
    """Return how far verdicts agree with labels; undecided ones are counted apart."""
    everything = list(tried)
    decided = [each for each in everything if each.said not in UNREAD]
    right, undecided = sum(each.agrees for each in decided), len(everything) - len(decided)
    return Agreement(right, len(decided), undecided, rates.share_interval(right, len(decided)))


def flips(before: Sequence[Tried], after: Sequence[Tried]) -> list[Flip]:
    """Return the answers that differ, of the questions that were put to both."""
    earlier = {(tried.case, tried.mode): tried.said for tried in before}
    return [
        Flip(new.case, new.mode, new.expected, earlier[new.case, new.mode], new.said)
        for new in after
        if earlier.get((new.case, new.mode), new.said) != new.said
    ]
