"""Tries a rubric on its labelled cases, and compares two rubrics and the verdicts they lead to."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment
from judgekit.config import settings
from judgekit.errors import UsageError
from judgekit.judging import service
from judgekit.judging.compare import PairJudge
from judgekit.judging.comparison import ComparisonInput
from judgekit.judging.panel import resolve_panel
from judgekit.judging.prompt import PromptCandidate
from judgekit.judging.select import CandidateJudge, Query
from judgekit.judging.service import JudgeRequest
from judgekit.judging.subject import Document, Task, file_of
from judgekit.ledger import rates
from judgekit.providers import running
from judgekit.providers.gateway import open_gateway
from judgekit.rubric.schema import CompareCase, ScoreCase, SelectCase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from judgekit.config.names import ModeName
    from judgekit.judging.verdict import Selection, Verdict
    from judgekit.ledger.rates import Interval
    from judgekit.providers.base import Gateway
    from judgekit.rubric.loader import LoadedRubric
    from judgekit.rubric.schema import Case, Rubric


MODES: tuple[ModeName, ...] = ("strict", "lenient")
UNREAD = ("undetermined", "escalate")
"""Words that say that nothing was decided: they agree with no label, and do not disagree either."""


class Tried(NamedTuple):
    """One question of a case in one mode: what should be said, what was, and the mean score if there is one.

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
        """Whether what was said is what should be."""
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


def agreement(tried: Iterable[Tried]) -> Agreement:
    """Return how far verdicts agree with labels; undecided ones are counted apart."""
    everything = list(tried)
    decided = [each for each in everything if each.said not in UNREAD]
    right = sum(each.agrees for each in decided)
    return Agreement(
        right, len(decided), len(everything) - len(decided), rates.share_interval(right, len(decided))
    )


def run(
    loaded: LoadedRubric,
    cases: Sequence[Case],
    project: Path | None = None,
    *,
    modes: Sequence[ModeName] = MODES,
    progress: Callable[[Tried], None] = lambda _: None,
) -> list[Tried]:
    """Return what is said about each case in each mode, judged as judge, search or compare would.

    Raises `UsageError` where no model is set up.
    """
    panel, reason = resolve_panel(settings.load(project), project)
    if not panel:
        raise UsageError(f"nobody to ask: {reason}")

    async def everything() -> list[Tried]:
        found = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            for mode in modes:
                async for tried in _TRIALS[loaded.rubric.task](gateway, loaded, cases, project, mode):
                    progress(tried)
                    found.append(tried)
        return found

    return running.run(everything())


def document(case: ScoreCase) -> Document:
    """Return a case as the subject that is judged."""
    texts = {case.path: case.text, **case.files}
    return Document(
        tuple(file_of(path, text) for path, text in texts.items()),
        case.id,
        Task(case.description, case.acceptance),
    )


async def _scored(
    gateway: Gateway, loaded: LoadedRubric, cases: Sequence[Case], project: Path | None, mode: ModeName
) -> AsyncIterator[Tried]:
    judge, _ = service.document_judge(gateway, project, JudgeRequest(str(loaded.path), mode))
    scored = [case for case in cases if isinstance(case, ScoreCase)]
    async with aclosing(service.verdicts(judge, map(document, scored))) as stream:
        at = iter(scored)
        async for verdict in stream:
            yield _of_document(next(at), verdict, mode)


def _of_document(case: ScoreCase, verdict: Verdict, mode: ModeName) -> Tried:
    said = verdict.degraded or verdict.reasoning
    return Tried(case.id, mode, getattr(case.label, mode), verdict.verdict, verdict.scores, said)


async def _selected(
    gateway: Gateway, loaded: LoadedRubric, cases: Sequence[Case], project: Path | None, mode: ModeName
) -> AsyncIterator[Tried]:
    common = service.judge_of(gateway, settings.load(project), loaded, project, JudgeRequest(mode=mode))
    judge = common.as_judge(CandidateJudge)
    for case in cases:
        if isinstance(case, SelectCase):
            shown = [
                PromptCandidate(
                    candidate.id, candidate.title, candidate.category, tuple(candidate.tags), candidate.text
                )
                for candidate in case.candidates
            ]
            for of_candidate in _of_candidates(case, await judge.judge(Query(case.query), shown), mode):
                yield of_candidate


def _of_candidates(case: SelectCase, selection: Selection, mode: ModeName) -> Iterable[Tried]:
    keep = getattr(case.label, mode)
    for decision in selection.decisions:
        expected = "kept" if decision.id in keep else "dropped"
        yield Tried(
            f"{case.id}/{decision.id}", mode, expected, decision.decision, None, selection.degraded or ""
        )


async def _compared(
    gateway: Gateway, loaded: LoadedRubric, cases: Sequence[Case], project: Path | None, mode: ModeName
) -> AsyncIterator[Tried]:
    common = service.judge_of(gateway, settings.load(project), loaded, project, JudgeRequest(mode=mode))
    judge = common.as_judge(PairJudge)
    for case in cases:
        if isinstance(case, CompareCase):
            comparison = await judge.judge(
                ComparisonInput(case.prompt, (file_of("A", case.a), file_of("B", case.b)))
            )
            why = comparison.degraded or comparison.reasoning
            yield Tried(case.id, mode, getattr(case.label, mode), comparison.verdict, None, why)


_TRIALS = {"score": _scored, "select": _selected, "compare": _compared}


class Difference(NamedTuple):
    """A key that differs: what stood there and what stands there now, None where nothing does."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        """Return it in one line."""
        if self.before is None:
            return f"{self.key}: new, {_short(self.after)}"
        if self.after is None:
            return f"{self.key}: gone, was {_short(self.before)}"
        if isinstance(self.before, list) and isinstance(self.after, list):
            return f"{self.key}: {_of_lists(self.before, self.after)}"
        return f"{self.key}: {_short(self.before)} -> {_short(self.after)}"


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


def changes(before: Rubric, after: Rubric) -> list[Difference]:
    """Return every key in which two rubrics differ, in the order of the file."""
    return list(_changes("", before.model_dump(), after.model_dump()))


def flips(before: Sequence[Tried], after: Sequence[Tried]) -> list[Flip]:
    """Return the answers that differ, of the questions that were put to both."""
    earlier = {(tried.case, tried.mode): tried for tried in before}
    pairs = [
        (earlier[tried.case, tried.mode], tried) for tried in after if (tried.case, tried.mode) in earlier
    ]
    return [
        Flip(new.case, new.mode, new.expected, old.said, new.said)
        for old, new in pairs
        if old.said != new.said
    ]


def _changes(key: str, before: Any, after: Any) -> Iterator[Difference]:  # noqa: ANN401 - any value of a data file
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            yield from _changes(f"{key}.{name}" if key else str(name), before.get(name), after.get(name))
    elif before != after:
        yield Difference(key, before, after)


def _of_lists(before: list[Any], after: list[Any]) -> str:
    gone = [each for each in before if each not in after]
    new = [each for each in after if each not in before]
    told = [f"without {_short(each)}" for each in gone] + [f"with {_short(each)}" for each in new]
    return "; ".join(told) or "in another order"


def _short(value: object) -> str:
    """Return a value in words, all of it: texts are what a rubric is made of."""
    if isinstance(value, dict):
        inner = ", ".join(
            f"{name} {_short(each)}" for name, each in value.items() if each not in (None, [], "")
        )
        return f"({inner})"
    if isinstance(value, list):
        return ", ".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else repr(value) if isinstance(value, str) else str(value)
