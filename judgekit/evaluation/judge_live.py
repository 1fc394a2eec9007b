"""Asks models, or a recording of them, about labelled cases, as judging would without any early end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import assess, environment, running
from judgekit import config as configuration
from judgekit.assess import Wish
from judgekit.calibrate import bound
from judgekit.comparison import LETTERS
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import judge_rounds
from judgekit.evaluation.judge_variants import reordered
from judgekit.gateway.open import open_gateway
from judgekit.judging import outgoing
from judgekit.judging.calls import all_of
from judgekit.judging.candidates import CandidateJudge, Query
from judgekit.judging.contest import Contest
from judgekit.judging.documents import DocumentJudge
from judgekit.judging.gates import Gates
from judgekit.judging.pairs import PairJudge
from judgekit.judging.preferring import Preference
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.subject import Document, file_of, is_cut
from judgekit.prompt import Shown
from judgekit.rubric import CompareRubric, ScoreRubric
from judgekit.subject import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from judgekit.calibrate.labelled import Case, Recorded
    from judgekit.judging.judge import Judge
    from judgekit.library import LoadedRubric
    from judgekit.names import ModeName, TierName

AT_ONCE = 8


class Opinions(NamedTuple):
    """The cases with what the models said, the model of each tier, and a hash of how each model is asked."""

    cases: list[Case]
    models: Mapping[TierName, str]
    asking: bound.Asking


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
            own = assess.judge_of(gateway, settings, loaded, project, Wish(mode=mode))
            if not own.seats:
                raise UsageError(f"nobody to ask: {own.nobody}")
            seats = [seat for jury in own.juries.values() for seat in jury]
            limits = [seat.profile.limits.concurrency or AT_ONCE for seat in seats]
            # Every opinion goes up, and models are measured on texts whoever wrote them.
            asker = _Asker(replace(own, gates=Gates(), stale=None, written_by=None), folder)
            found = await _all(asker, cases, min(AT_ONCE, *limits), progress)
            who = bound.panel(own.seats, loaded.rubric, own.manner)
            return Opinions(found, who.models, who.asking)

    return running.run(run())


def unanswered(cases: Sequence[Case]) -> str | None:
    """Say in one line how many cases some tier has no model's answer for, and why; None if it is none."""
    failures = [{each.unanswered for each in case.judges.values()} - {None} for case in cases]
    missing = [each for each in failures if each]
    if not missing:
        return None
    nobody = all(each.unanswered for case in cases for each in case.judges.values())
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
            said = await self._ranked(judge.turned(RankingJudge), case)
        elif isinstance(judge.rubric, ScoreRubric):
            said = await self._scored(judge.turned(DocumentJudge), case)
        elif isinstance(judge.rubric, CompareRubric):
            said = await self._compared(judge.turned(PairJudge), case)
        else:
            said = await self._selected(judge.turned(CandidateJudge), case)
        return case.model_copy(update={"judges": said})

    async def _scored(self, judge: DocumentJudge, case: Case) -> dict[str, Recorded]:
        document = self._document(case)
        found = await judge.judge(document)
        if not found.rounds:
            raise InputError(f"{case.where}: no model was asked ({found.degraded or 'no reason is known'})")
        cut = {
            tier
            for tier, jury in judge.juries.items()
            if any(is_cut(document.seen_by(getattr(judge.rubric.tiers, tier), seat)) for seat in jury)
        }
        return judge_rounds.of_tiers(
            found.rounds, judge.seats, judge.manner, len(judge.rubric.dimensions), cut
        )

    async def _ranked(self, judge: RankingJudge, case: Case) -> dict[str, Recorded]:
        """Ask every model of every tier about every subject: which go up depends on what is learned."""
        files = tuple(file_of(letter, text) for letter, text in zip(LETTERS, case.subjects, strict=False))
        contest, _ = outgoing.contest(Contest(case.prompt, files), judge.manner)
        letters, session = list(contest.letters), judge.session()
        found: dict[str, Recorded] = {}
        for tier, jury in judge.juries.items():
            calls = [partial(judge.each, tier, seat, contest, letters, session) for seat in jury]
            given = [dict(zip(letters, each, strict=True)) for each in await all_of(calls, session)]
            said = list(zip(jury, given, strict=True))
            cut = any(judge.is_cut(tier, contest, letter) for letter in letters)
            found[tier] = judge_rounds.of_subjects(said, judge.manner, len(judge.rubric.dimensions), cut=cut)
        return found

    async def _selected(self, judge: CandidateJudge, case: Case) -> dict[str, Recorded]:
        ids = [each.id for each in case.candidates]
        own = reordered(case.query, ids) if case.variant == "swapped" else dict(zip(ids, ids, strict=True))
        shown = [
            Shown(own[each.id], each.title, each.category, tuple(each.tags), each.text)
            for each in case.candidates
        ]
        found = await judge.judge(Query(case.query), shown)
        back = {shown: each for each, shown in own.items()}
        rounds = [judge_rounds.renamed(each, back) for each in found.rounds]
        return judge_rounds.of_tiers(rounds, judge.seats, judge.manner, len(judge.rubric.criteria))

    async def _compared(self, judge: PairJudge, case: Case) -> dict[str, Recorded]:
        if not (case.a and case.b):
            raise InputError(f"{case.where}: expected the texts a and b, or what judges said")
        contest = Contest(case.prompt, (file_of("A", case.a), file_of("B", case.b)))
        found = await judge.judge(contest)
        sent, _ = outgoing.contest(contest, judge.manner)
        cut = {
            tier
            for tier, jury in judge.juries.items()
            if any(Preference(judge.rubric, sent, tier, judge.manner, tier).cut(seat) for seat in jury)
        }
        return judge_rounds.of_pairs(found.rounds, judge.seats, judge.manner, len(judge.rubric.criteria), cut)

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
