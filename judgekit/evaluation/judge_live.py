"""Asks models, or a recording of them, about labelled cases, as judging would without any early end."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import config as configuration
from judgekit import environment, panel, running
from judgekit.calibrate.labelled import Recorded
from judgekit.errors import InputError, UsageError
from judgekit.gateway.open import is_recording, open_gateway
from judgekit.judging.candidates import CandidateJudge, Query
from judgekit.judging.documents import DocumentJudge
from judgekit.judging.gates import Gates
from judgekit.judging.reply_cache import user_cache
from judgekit.judging.subject import CONTEXT_CHARS, Document, File, is_cut
from judgekit.prompt import Shown
from judgekit.rubric import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from judgekit.calibrate.labelled import Case
    from judgekit.gateway.base import Endpoint, Gateway
    from judgekit.judging.reply_cache import Cache
    from judgekit.library import LoadedRubric
    from judgekit.rubric import ModeName, TierName
    from judgekit.verdict import Round

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
    seats, reason = panel.seats(settings, project)
    if not seats:
        raise UsageError(f"nobody to ask: {reason}")

    async def run() -> list[Case]:
        async with aclosing(open_gateway(environment.environ())) as gateway:
            cache = None if is_recording(environment.environ()) else user_cache()
            asker = _Asker(gateway, seats, loaded, mode, settings.judge.deadline, folder, cache)
            limits = [seat.profile.limits.concurrency or AT_ONCE for seat in seats.values()]
            return await _all(asker, cases, min(AT_ONCE, *limits), progress)

    return Asked(running.run(run()), panel.models(seats))


@dataclass(frozen=True, slots=True)
class _Asker:
    """Asks all tiers about one case after the other."""

    gateway: Gateway
    seats: Mapping[TierName, Endpoint]
    loaded: LoadedRubric
    mode: ModeName
    deadline: float
    folder: Path
    cache: Cache | None

    async def one(self, case: Case) -> Case:
        """Return the case with what each tier said."""
        if isinstance(self.loaded.rubric, ScoreRubric):
            return case.model_copy(update={"judges": await self._scored(self.loaded.rubric, case)})
        return case.model_copy(update={"judges": await self._selected(case)})

    async def _scored(self, rubric: ScoreRubric, case: Case) -> dict[str, Recorded]:
        document = self._document(case)
        judge = DocumentJudge(
            self.gateway, self.seats, self.loaded, self.mode, self.deadline, cache=self.cache, gates=Gates()
        )
        found = await judge.judge(document)
        cut = {
            tier: is_cut(document.seen_by(getattr(rubric.tiers, tier), self.seats[tier]))
            for tier in self.seats
        }
        return {each.tier: _recorded(each, cut=cut[each.tier]) for each in found.rounds}

    async def _selected(self, case: Case) -> dict[str, Recorded]:
        judge = CandidateJudge(
            self.gateway, self.seats, self.loaded, self.mode, self.deadline, cache=self.cache, gates=Gates()
        )
        shown = [
            Shown(each.id, each.title, each.category, tuple(each.tags), each.text) for each in case.candidates
        ]
        found = await judge.judge(Query(case.query), shown)
        return {each.tier: _recorded(each) for each in found.rounds}

    def _document(self, case: Case) -> Document:
        text = self._read(case) if case.text is None else case.text
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        name = case.path or case.id
        return Document((File(name, text[:CONTEXT_CHARS], digest, len(text)),), name)

    def _read(self, case: Case) -> str:
        if case.path is None:
            raise InputError(f"case {case.id}: expected text, a path, or what judges said")
        try:
            return (self.folder / case.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"case {case.id}: {case.path} cannot be read ({error})") from None


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


def _recorded(one: Round, *, cut: bool = False) -> Recorded:
    """Return a round as it would stand in a file of cases."""
    said: dict[str, Any] = {"failure": one.failure.kind} if one.failure else {}
    if one.opinion is not None:
        told = {key: one.opinion[key] for key in ("scores", "probabilities", "keep") if key in one.opinion}
        first = next(iter(told))
        said = {first: told[first], "unjudged": one.opinion.get("unjudged", [])}
    usage = one.usage.model_dump(include={"input_tokens", "output_tokens", "cost_usd"})
    return Recorded(model=one.model, cut=cut, **said, **usage)
