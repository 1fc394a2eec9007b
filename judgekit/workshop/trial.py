"""Tries a rubric on its labelled cases: what the models set up here, and its thresholds, make of them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from judgekit import assess, environment, panel, running
from judgekit import config as configuration
from judgekit.assess import Wish
from judgekit.cases import CompareCase, ScoreCase, SelectCase
from judgekit.errors import UsageError
from judgekit.gateway.open import open_gateway
from judgekit.judging.candidates import CandidateJudge, Query
from judgekit.judging.contest import Contest
from judgekit.judging.pairs import PairJudge
from judgekit.judging.subject import Document, file_of
from judgekit.ledger import interval
from judgekit.prompt import Shown
from judgekit.subject import Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from pathlib import Path

    from judgekit.cases import Case
    from judgekit.gateway.base import Gateway
    from judgekit.ledger.interval import Interval
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName
    from judgekit.verdict import Selection, Verdict

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
    return Agreement(right, len(decided), len(everything) - len(decided), interval.share(right, len(decided)))


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
    seats, reason = panel.juries(configuration.load(project), project)
    if not seats:
        raise UsageError(f"nobody to ask: {reason}")

    async def everything() -> list[Tried]:
        found = []
        async with aclosing(open_gateway(environment.environ())) as gateway:
            for mode in modes:
                async for each in _TRIALS[loaded.rubric.task](gateway, loaded, cases, project, mode):
                    progress(each)
                    found.append(each)
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
    judge, _ = assess.document_judge(gateway, project, Wish(str(loaded.path), mode))
    scored = [each for each in cases if isinstance(each, ScoreCase)]
    async with aclosing(assess.verdicts(judge, map(document, scored))) as stream:
        at = iter(scored)
        async for verdict in stream:
            yield _of_document(next(at), verdict, mode)


def _of_document(case: ScoreCase, verdict: Verdict, mode: ModeName) -> Tried:
    said = verdict.degraded or verdict.reasoning
    return Tried(case.id, mode, getattr(case.label, mode), verdict.verdict, verdict.scores, said)


async def _selected(
    gateway: Gateway, loaded: LoadedRubric, cases: Sequence[Case], project: Path | None, mode: ModeName
) -> AsyncIterator[Tried]:
    common = assess.judge_of(gateway, configuration.load(project), loaded, project, Wish(mode=mode))
    judge = common.turned(CandidateJudge)
    for case in cases:
        if isinstance(case, SelectCase):
            shown = [
                Shown(each.id, each.title, each.category, tuple(each.tags), each.text)
                for each in case.candidates
            ]
            for each in _of_candidates(case, await judge.judge(Query(case.query), shown), mode):
                yield each


def _of_candidates(case: SelectCase, found: Selection, mode: ModeName) -> Iterable[Tried]:
    keep = getattr(case.label, mode)
    for each in found.decisions:
        expected = "kept" if each.id in keep else "dropped"
        yield Tried(f"{case.id}/{each.id}", mode, expected, each.decision, None, found.degraded or "")


async def _compared(
    gateway: Gateway, loaded: LoadedRubric, cases: Sequence[Case], project: Path | None, mode: ModeName
) -> AsyncIterator[Tried]:
    common = assess.judge_of(gateway, configuration.load(project), loaded, project, Wish(mode=mode))
    judge = common.turned(PairJudge)
    for case in cases:
        if isinstance(case, CompareCase):
            found = await judge.judge(Contest(case.prompt, (file_of("A", case.a), file_of("B", case.b))))
            why = found.degraded or found.reasoning
            yield Tried(case.id, mode, getattr(case.label, mode), found.verdict, None, why)


_TRIALS = {"score": _scored, "select": _selected, "compare": _compared}
