"""Asks models, or a recording of them, about labelled cases, without ending at the first settled tier.

Cases may be asked again, and in another order.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment
from judgekit.config import settings as configuration
from judgekit.errors import InputError, UsageError
from judgekit.evaluation.labelled import Recorded
from judgekit.judging import fence, fingerprint, redact, service
from judgekit.judging.compare import CompareTask, PairJudge
from judgekit.judging.comparison import ComparisonInput
from judgekit.judging.escalation import FinalityRules
from judgekit.judging.jury import ORDERS, Vote, of_calls
from judgekit.judging.logprobs import score_source
from judgekit.judging.prompt import PromptCandidate
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.round import gather_limited
from judgekit.judging.score import DocumentJudge
from judgekit.judging.select import CandidateJudge, Query
from judgekit.judging.service import JudgeRequest
from judgekit.judging.subject import Document, Task, file_of, is_cut
from judgekit.judging.verdict import LETTERS
from judgekit.providers import running
from judgekit.providers.base import models_by_tier
from judgekit.providers.gateway import open_gateway
from judgekit.rubric.schema import CompareRubric, ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.config.names import ModeName, TierName
    from judgekit.evaluation.labelled import Case, Variant
    from judgekit.judging.judge import Judge
    from judgekit.judging.jury import PairWord
    from judgekit.judging.options import JudgeOptions
    from judgekit.judging.verdict import CompareRound, Round, Verdict
    from judgekit.providers.base import Endpoint, PanelModels
    from judgekit.rubric.loader import LoadedRubric


_BOTH = len(ORDERS)
_FREE = ("cache", "mixed")  # what was kept cost nothing this time, which says nothing about the next


def of_tiers(
    rounds: Sequence[Round],
    panel: PanelModels,
    options: JudgeOptions,
    questions: int,
    cut: Collection[str] = (),
) -> dict[str, Recorded]:
    """Return what each tier said about a document or candidates; `cut` are those that did not see it all."""
    found: dict[str, Recorded] = {}
    for tier, jury in models_by_tier(panel).items():
        own = [each for each in rounds if each.tier == tier]
        said = [
            {
                **_said(each, endpoint),
                **_usage([each], _calls(endpoint, options, questions)),
                **_who(endpoint),
            }
            for endpoint, each in zip(jury, own, strict=bool(own))
        ]
        if said:
            found[tier] = _joined(said, {**_how(options), "cut": tier in cut})
    return found


def of_pairs(
    rounds: Sequence[CompareRound],
    panel: PanelModels,
    options: JudgeOptions,
    criteria: int,
    cut: Collection[str] = (),
) -> dict[str, Recorded]:
    """Return what each tier said about two texts, in both orders, under a rubric with so many criteria.

    `cut` are the tiers that did not see both whole.
    """
    found: dict[str, Recorded] = {}
    asked = criteria if options.each else 1
    for tier, jury in models_by_tier(panel).items():
        own = iter([compare_round for compare_round in rounds if compare_round.tier == tier])
        calls = [list(islice(own, options.samples_of(endpoint) * asked * _BOTH)) for endpoint in jury]
        said = [
            {
                **_preferred(each, asked),
                **_usage(each, len(each)),
                **_who(endpoint),
                "read": score_source(endpoint, None),
            }
            for endpoint, each in zip(jury, calls, strict=True)
            if each
        ]
        if said:
            found[tier] = _joined(said, {**_how(options), "cut": tier in cut})
    return found


def of_subjects(
    said: Sequence[tuple[Endpoint, Mapping[str, Verdict]]],
    options: JudgeOptions,
    questions: int,
    *,
    cut: bool,
) -> Recorded:
    """Return what the models of one tier gave to several subjects, by letter."""
    return _joined([_given(*each, options, questions) for each in said], {**_how(options), "cut": cut})


def _given(
    endpoint: Endpoint, verdicts: Mapping[str, Verdict], options: JudgeOptions, questions: int
) -> dict[str, Any]:
    rounds = {letter: each for letter, verdict in verdicts.items() for each in verdict.rounds}
    told = {letter: each.opinion for letter, each in rounds.items() if each.opinion is not None}
    who = {
        **_usage(list(rounds.values()), _calls(endpoint, options, questions) * len(verdicts)),
        **_who(endpoint),
    }
    if not told:
        failed = next((each.failure.kind for each in rounds.values() if each.failure), "not_recorded")
        return {"failure": failed, **who}
    points = {letter: [fmean(opinion["scores"].values())] for letter, opinion in told.items()}
    read = {score_source(endpoint, each["scores"], each.get("expected", ())) for each in told.values()}
    return {"points": points, "read": read.pop() if len(read) == 1 else "partly", **who}


def _preferred(calls: Sequence[CompareRound], criteria: int) -> dict[str, Any]:
    """Return what one model said: in each order, or of more calls what they come to."""
    if not any(map(_better, calls)):
        return {"failure": next((call.failure.kind for call in calls if call.failure), "not_recorded")}
    if len(calls) == _BOTH:
        return {"orders": {"".join(call.order): _better(call) for call in calls}}
    words = [_better(call) for call in calls]
    vote = of_calls([Vote(word) if word else None for word in words], criteria)
    if vote is None:
        return {"failure": next((call.failure.kind for call in calls if call.failure), "invalid_reply")}
    return {"probabilities": {"A": max(vote.lean, 0.0), "B": max(-vote.lean, 0.0)}}


def _how(options: JudgeOptions) -> dict[str, Any]:
    criteria = "each" if options.each else "together"
    return {
        "samples": options.samples,
        "criteria": criteria,
        "rule": options.jury,
        "redact": bool(options.redact),
    }


def renamed(one: Round, names: Mapping[str, str]) -> Round:
    """Return a round about candidates with other names for them."""
    if one.opinion is None:
        return one
    told, lists = one.opinion, ("keep", "unjudged")
    opinion: dict[str, Any] = {key: [names[each] for each in told[key]] for key in lists}
    known = told.get("probabilities")
    if known is not None:
        opinion["probabilities"] = {names[each]: value for each, value in known.items()}
    return one.model_copy(update={"opinion": opinion})


def _said(one: Round, endpoint: Endpoint) -> dict[str, Any]:
    if one.opinion is None:
        return {"failure": one.failure.kind if one.failure else "not_recorded"}
    told = {key: one.opinion[key] for key in ("scores", "probabilities", "keep") if key in one.opinion}
    first = next(iter(told))
    read = score_source(endpoint, told.get("scores"), one.opinion.get("expected", ()))
    return {first: told[first], "unjudged": one.opinion.get("unjudged", []), "read": read}


def _better(compare_round: CompareRound) -> PairWord | None:
    return None if compare_round.opinion is None else compare_round.opinion["better"]


def _calls(endpoint: Endpoint, options: JudgeOptions, questions: int) -> int:
    return questions if endpoint.pointwise else options.calls(questions)


def _usage(rounds: Sequence[Round | CompareRound], calls: int) -> dict[str, Any]:
    known = [each.usage.cost_usd for each in rounds if each.usage.cost_source not in _FREE]
    costs = [each for each in known if each is not None]
    return {
        "calls": calls,
        "input_tokens": sum(each.usage.input_tokens for each in rounds),
        "output_tokens": sum(each.usage.output_tokens for each in rounds),
        "cost_usd": sum(costs) if len(costs) == len(rounds) else None,
    }


def _who(endpoint: Endpoint) -> dict[str, str]:
    return {"model": endpoint.model, "family": endpoint.family}


def _joined(said: Sequence[dict[str, Any]], how: dict[str, Any]) -> Recorded:
    """Return what a tier said: its model's answer, or those of its jury."""
    if len(said) == 1:
        return Recorded.model_validate({**said[0], **how})
    costs = [each["cost_usd"] for each in said]
    sums = {name: sum(each[name] for each in said) for name in ("calls", "input_tokens", "output_tokens")}
    cost = None if None in costs else sum(costs)
    return Recorded.model_validate({"jury": list(said), "cost_usd": cost, **sums, **how})


_TRIES = 8
_MARK = "'"


def again(cases: Sequence[Case]) -> list[Case]:
    """Return the cases, and each original once more: to be asked again, and with candidates reordered.

    Two texts that are compared need no other order: judging asks in both.
    """
    return [variant for case in cases for variant in _variants(case)]


def _variants(case: Case) -> Iterator[Case]:
    yield case
    if case.variant == "original":
        yield _variant(case, "rerun")
        if len(case.candidates) > 1:
            yield _variant(case, "swapped")


def _variant(case: Case, kind: Variant) -> Case:
    return case.model_copy(update={"id": f"{case.id} ({kind})", "variant": kind, "pair": case.id})


def reordered(query: str, ids: Sequence[str]) -> dict[str, str]:
    """Return for each candidate an id under which they are shown in an order as different as some tries find.

    The order follows from the query and the ids, which no model sees: another id is another place.
    """
    usual = list(fence.labels(query, ids))
    tries = [{each: each + _MARK * marks for each in ids} for marks in range(1, _TRIES + 1)]
    return max(tries, key=lambda own: _turned(usual, own, query))


def _turned(usual: Sequence[str], own: dict[str, str], query: str) -> int:
    """Return how many pairs of candidates change their order."""
    place = {shown: at for at, shown in enumerate(fence.labels(query, list(own.values())))}
    return sum(place[own[first]] > place[own[second]] for first, second in combinations(usual, 2))


AT_ONCE = 8


class Opinions(NamedTuple):
    """The cases with what the models said, the model of each tier, and a hash of how each model is asked."""

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
            own = service.judge_of(gateway, settings, loaded, project, JudgeRequest(mode=mode))
            if not own.panel:
                raise UsageError(f"nobody to ask: {own.nobody}")
            endpoints = [endpoint for jury in own.models_by_tier.values() for endpoint in jury]
            limits = [endpoint.profile.limits.concurrency or AT_ONCE for endpoint in endpoints]
            # Every opinion goes up, and models are measured on texts whoever wrote them.
            asker = _Asker(
                replace(own, finality=FinalityRules(), calibration_warning=None, written_by=None), folder
            )
            found = await _all(asker, cases, min(AT_ONCE, *limits), progress)
            who = fingerprint.panel(own.panel, loaded.rubric, own.options)
            return Opinions(found, who.models, who.asking)

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
    rest = "the figures rest on nothing" if nobody else "the figures leave these answers out"
    count = f"{len(missing)} of {len(cases)} cases"
    return f"{told} {count} ({why}); {rest}; judgekit provider check asks each model"


@dataclass(frozen=True, slots=True)
class _Asker:
    """Asks all tiers about one case after the other."""

    judge: Judge[Any]
    folder: Path

    async def one(self, case: Case) -> Case:
        """Return the case with what each tier said."""
        # What was said before would be said again.
        judge = replace(self.judge, cache=None) if case.variant == "rerun" else self.judge
        if isinstance(judge.rubric, ScoreRubric) and case.subjects:
            said = await self._ranked(judge.as_judge(RankingJudge), case)
        elif isinstance(judge.rubric, ScoreRubric):
            said = await self._scored(judge.as_judge(DocumentJudge), case)
        elif isinstance(judge.rubric, CompareRubric):
            said = await self._compared(judge.as_judge(PairJudge), case)
        else:
            said = await self._selected(judge.as_judge(CandidateJudge), case)
        return case.model_copy(update={"judges": said})

    async def _scored(self, judge: DocumentJudge, case: Case) -> dict[str, Recorded]:
        document = self._document(case)
        verdict = await judge.judge(document)
        if not verdict.rounds:
            raise InputError(f"{case.where}: no model was asked ({verdict.degraded or 'no reason is known'})")
        cut = {
            tier
            for tier, jury in judge.models_by_tier.items()
            if any(is_cut(document.seen_by(getattr(judge.rubric.tiers, tier), endpoint)) for endpoint in jury)
        }
        return of_tiers(verdict.rounds, judge.panel, judge.options, len(judge.rubric.dimensions), cut)

    async def _ranked(self, judge: RankingJudge, case: Case) -> dict[str, Recorded]:
        """Ask every model of every tier about every subject: which go up depends on what is learned."""
        files = tuple(file_of(letter, text) for letter, text in zip(LETTERS, case.subjects, strict=False))
        comparison_input, _ = redact.comparison_input(ComparisonInput(case.prompt, files), judge.options)
        letters, session = list(comparison_input.letters), judge.session()
        found: dict[str, Recorded] = {}
        for tier, jury in judge.models_by_tier.items():
            calls = [
                partial(judge.each, tier, endpoint, comparison_input, letters, session) for endpoint in jury
            ]
            given = [dict(zip(letters, each, strict=True)) for each in await gather_limited(calls, session)]
            said = list(zip(jury, given, strict=True))
            cut = any(judge.is_cut(tier, comparison_input, letter) for letter in letters)
            found[tier] = of_subjects(said, judge.options, len(judge.rubric.dimensions), cut=cut)
        return found

    async def _selected(self, judge: CandidateJudge, case: Case) -> dict[str, Recorded]:
        ids = [candidate.id for candidate in case.candidates]
        own = reordered(case.query, ids) if case.variant == "swapped" else dict(zip(ids, ids, strict=True))
        shown = [
            PromptCandidate(
                own[candidate.id], candidate.title, candidate.category, tuple(candidate.tags), candidate.text
            )
            for candidate in case.candidates
        ]
        selection = await judge.judge(Query(case.query), shown)
        back = {shown: each for each, shown in own.items()}
        rounds = [renamed(each, back) for each in selection.rounds]
        return of_tiers(rounds, judge.panel, judge.options, len(judge.rubric.criteria))

    async def _compared(self, judge: PairJudge, case: Case) -> dict[str, Recorded]:
        if not (case.a and case.b):
            raise InputError(f"{case.where}: expected the texts a and b, or what judges said")
        comparison_input = ComparisonInput(case.prompt, (file_of("A", case.a), file_of("B", case.b)))
        comparison = await judge.judge(comparison_input)
        sent, _ = redact.comparison_input(comparison_input, judge.options)
        cut = {
            tier
            for tier, jury in judge.models_by_tier.items()
            if any(
                CompareTask(judge.rubric, sent, tier, judge.options, tier).cut(endpoint) for endpoint in jury
            )
        }
        return of_pairs(comparison.rounds, judge.panel, judge.options, len(judge.rubric.criteria), cut)

    def _document(self, case: Case) -> Document:
        text = self._read(case) if case.text is None else case.text
        files = [file_of(case.path or "text", text), *(file_of(*each) for each in case.files.items())]
        return Document(tuple(files), case.path or case.id, Task(case.description, case.acceptance))

    def _read(self, case: Case) -> str:
        if case.path is None:
            raise InputError(f"{case.where}: expected text, a path, or what judges said")
        try:
            return (self.folder / case.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{case.where}: {case.path} cannot be read ({error})") from None


async def _all(
    asker: _Asker, cases: Sequence[Case], at_once: int, progress: Callable[[int], None]
) -> list[Case]:
    free = asyncio.Semaphore(at_once)
    done = 0

    async def one(case: Case) -> Case:
        nonlocal done
        async with free:
            found = await asker.one(case)
        done += 1
        progress(done)
        return found

    return list(await asyncio.gather(*map(one, cases)))
