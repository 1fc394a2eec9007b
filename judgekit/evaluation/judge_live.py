"""Asks models, or a recording of them, about labelled cases, as judging would without any early end."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from judgekit import config as configuration
from judgekit import environment, panel, running
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import judge_rounds
from judgekit.evaluation.judge_variants import reordered
from judgekit.gateway.base import seated
from judgekit.gateway.open import is_recording, open_gateway
from judgekit.judging import manner as manners
from judgekit.judging.candidates import CandidateJudge, Query
from judgekit.judging.contest import Contest
from judgekit.judging.documents import DocumentJudge
from judgekit.judging.gates import Gates
from judgekit.judging.pairs import PairJudge
from judgekit.judging.reply_cache import user_cache
from judgekit.judging.subject import CONTEXT_CHARS, Document, File, is_cut
from judgekit.prompt import Shown
from judgekit.rubric import CompareRubric, ScoreRubric
from judgekit.subject import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from judgekit.calibrate.labelled import Case, Recorded
    from judgekit.gateway.base import Gateway, Seats
    from judgekit.judging.manner import Manner
    from judgekit.judging.reply_cache import Cache
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, TierName

AT_ONCE = 8


class Asked(NamedTuple):
    """The cases with what the models said, and the model of each tier."""

    cases: list[Case]
    models: dict[TierName, str]


def ask(
    cases: Sequence[Case],
    folder: Path,
    loaded: LoadedRubric,
    mode: ModeName,
    project: Path | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Asked:
    """Return the cases with the opinion of every tier; paths of cases are relative to `folder`.

    Every quick opinion goes up, and the tiebreaker is asked where quick and deep contradict each other or
    one of them failed. Raises `ConfigError`, `InputError` or, when no model is set up, `UsageError`.
    """
    settings = configuration.load(project)
    seats, reason = panel.juries(settings, project)
    if not seats:
        raise UsageError(f"nobody to ask: {reason}")

    async def run() -> list[Case]:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            cache = None if is_recording(environment.environ()) else user_cache()
            manner = manners.configured(settings.judge)
            own = settings.judge
            asker = _Asker(
                gateway, seats, loaded, mode, own.deadline, own.max_cost_usd, folder, cache, manner
            )
            limits = [seat.profile.limits.concurrency or AT_ONCE for jury in seats.values() for seat in jury]
            return await _all(asker, cases, min(AT_ONCE, *limits), progress)

    return Asked(running.run(run()), panel.models(seats))


@dataclass(frozen=True, slots=True)
class _Asker:
    """Asks all tiers about one case after the other."""

    gateway: Gateway
    seats: Seats
    loaded: LoadedRubric
    mode: ModeName
    deadline: float
    max_cost_usd: float | None
    folder: Path
    cache: Cache | None
    manner: Manner

    async def one(self, case: Case) -> Case:
        """Return the case with what each tier said."""
        # What was said before would be said again.
        cache = None if case.variant == "rerun" else self.cache
        if isinstance(self.loaded.rubric, ScoreRubric):
            said = await self._scored(self.loaded.rubric, case, cache)
        elif isinstance(self.loaded.rubric, CompareRubric):
            said = await self._compared(case, cache)
        else:
            said = await self._selected(case, cache)
        return case.model_copy(update={"judges": said})

    async def _scored(self, rubric: ScoreRubric, case: Case, cache: Cache | None) -> dict[str, Recorded]:
        document = self._document(case)
        judge = DocumentJudge(
            self.gateway,
            self.seats,
            self.loaded,
            self.mode,
            self.deadline,
            max_cost_usd=self.max_cost_usd,
            cache=cache,
            gates=Gates(),
            manner=self.manner,
        )
        found = await judge.judge(document)
        cut = {
            tier
            for tier, jury in seated(self.seats).items()
            if any(is_cut(document.seen_by(getattr(rubric.tiers, tier), seat)) for seat in jury)
        }
        return judge_rounds.of_tiers(found.rounds, self.seats, self.manner, len(rubric.dimensions), cut)

    async def _selected(self, case: Case, cache: Cache | None) -> dict[str, Recorded]:
        judge = CandidateJudge(
            self.gateway,
            self.seats,
            self.loaded,
            self.mode,
            self.deadline,
            max_cost_usd=self.max_cost_usd,
            cache=cache,
            gates=Gates(),
            manner=self.manner,
        )
        ids = [each.id for each in case.candidates]
        own = reordered(case.query, ids) if case.variant == "swapped" else dict(zip(ids, ids, strict=True))
        shown = [
            Shown(own[each.id], each.title, each.category, tuple(each.tags), each.text)
            for each in case.candidates
        ]
        found = await judge.judge(Query(case.query), shown)
        back = {shown: each for each, shown in own.items()}
        rounds = [judge_rounds.renamed(each, back) for each in found.rounds]
        return judge_rounds.of_tiers(rounds, self.seats, self.manner, len(judge.rubric.criteria))

    async def _compared(self, case: Case, cache: Cache | None) -> dict[str, Recorded]:
        if not (case.a and case.b):
            raise InputError(f"case {case.id}: expected the texts a and b, or what judges said")
        judge = PairJudge(
            self.gateway,
            self.seats,
            self.loaded,
            self.mode,
            self.deadline,
            max_cost_usd=self.max_cost_usd,
            cache=cache,
            gates=Gates(),
            manner=self.manner,
        )
        found = await judge.judge(Contest(case.prompt, (_file("A", case.a), _file("B", case.b))))
        return judge_rounds.of_pairs(found.rounds, self.seats)

    def _document(self, case: Case) -> Document:
        text = self._read(case) if case.text is None else case.text
        files = [_file(case.path or "text", text), *(_file(*each) for each in case.files.items())]
        return Document(tuple(files), case.path or case.id, Task(case.description, case.acceptance))

    def _read(self, case: Case) -> str:
        if case.path is None:
            raise InputError(f"case {case.id}: expected text, a path, or what judges said")
        try:
            return (self.folder / case.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"case {case.id}: {case.path} cannot be read ({error})") from None


def _file(path: str, text: str) -> File:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return File(path, text[:CONTEXT_CHARS], digest, len(text))


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
