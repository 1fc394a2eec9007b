"""Several subjects compared by scores: only while the best two are near each other do they go up a tier."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from judgekit.comparison import TIE, CompareRound
from judgekit.judging import outgoing, readings, standing
from judgekit.judging.calls import all_of
from judgekit.judging.contest import Ended, Terms, comparison
from judgekit.judging.documents import DocumentJudge
from judgekit.judging.gates import DIGITS
from judgekit.judging.judge import Judge
from judgekit.judging.jury import voter
from judgekit.judging.session import INEXACT, Session, Stopwatch
from judgekit.judging.subject import Document, is_cut
from judgekit.rubric import ScoreRubric
from judgekit.subject import Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.comparison import Comparison
    from judgekit.gateway.base import Endpoint, Message
    from judgekit.judging.contest import Contest
    from judgekit.judging.readings import How
    from judgekit.judging.standing import Margins
    from judgekit.rubric import Outcome, TierName
    from judgekit.verdict import Consensus, Verdict

NAME = "text"  # what models are told: a path may say who wrote it


@dataclass(frozen=True, slots=True)
class RankingJudge(Judge[ScoreRubric]):
    """Ranks subjects under a rubric that scores.

    The models of one family weigh as much as one model in a tier. A model that stands several times there is
    asked as often. Who goes up is said by the rubric's margins, else a tenth and a twentieth of the scale;
    with the `gates` of a calibration the best of the first tier is final where they let its lead through, and
    nowhere else. `margins` by tier, chosen for so many calls and not for a promise, decide alone.
    """

    margins: Margins | None = None
    calibration: str | None = None

    async def judge(self, contest: Contest) -> Comparison:
        """Return which is best; what failed on the way is in it, never raised."""
        contest = contest.written_by(self.written_by)
        return await RankingJudge._judge(self.facing(contest), contest)

    def facing(self, contest: Contest) -> RankingJudge:
        """Return the judge without models that may favour one of the texts, where others are there."""
        wrote = contest.written_by(self.written_by)
        own = self.apart_from(wrote.wrote, wrote.sided)
        if own is self or self.margins is None:
            return own
        told = f"calibration {self.calibration} not used: others judge than those it was learned for"
        return replace(own, margins=None, calibration=None, stale=told)

    async def _judge(self, contest: Contest) -> Comparison:
        watch = Stopwatch()
        contest, left_out = outgoing.contest(contest, self.manner)
        run = _Run(self, contest, self.session())
        step: list[str] | Ended = list(contest.letters) if self.seats else Ended("undetermined", "none")
        tier = next(iter(self.seats), None)
        while tier is not None and not isinstance(step, Ended):
            await run.ask(tier, step)
            step, tier = run.step(tier, step), run.following(tier)
        notes = "; ".join(filter(None, (run.note, self.stale))) or None
        calibration = self.gates.id if self.gates else self.calibration
        terms = Terms(self.loaded, self.mode, calibration, self.nobody, notes)
        ended = step if isinstance(step, Ended) else Ended("undetermined", "none")
        found = comparison(contest, terms, ended, run.rounds, watch.ms, run.scores)
        return found.model_copy(update={"redacted": left_out}) if found.rounds else found

    def prompts(
        self, tier: TierName, contest: Contest, seat: Endpoint | None = None
    ) -> list[tuple[Message, ...]]:
        """Return what would be sent to a model of `tier`, were it asked first: for each subject in turn.

        Of several models that sit there `seat` is the one that is meant, the first where none is given.
        """
        contest, _ = outgoing.contest(contest, self.manner)
        judge = self.one(tier, seat or next(iter(self.juries.get(tier, ())), None), self.deadline, None)
        return [each for letter in contest.letters for each in judge.prompts(tier, document(contest, letter))]

    def one(
        self, tier: TierName, seat: Endpoint | None, seconds: float, max_cost_usd: float | None
    ) -> DocumentJudge:
        """Return the judge that asks one model of one tier about one subject."""
        seats = {tier: seat} if seat else {}
        sent = self.manner._replace(redact=False)  # what is compared was searched as a whole
        own = replace(self, seats=seats, deadline=seconds, max_cost_usd=max_cost_usd, manner=sent)
        # Who judges was settled for all subjects together.
        return replace(own, gates=None, stale=None, written_by=None).turned(DocumentJudge)


def document(contest: Contest, letter: str) -> Document:
    """Return one subject as a document of its own, made for the prompt, under a name that tells nothing."""
    return Document((replace(contest.file(letter), shown=NAME),), letter, Task(contest.prompt))


class _Voice(NamedTuple):
    """A model, and how much each of its scores weighs in a tier: as one of its family's models there."""

    model: str
    family: str
    share: float


@dataclass(slots=True)
class _Run:
    """One comparison on its way: what every model gave so far, in which tier."""

    judge: RankingJudge
    contest: Contest
    session: Session
    said: dict[TierName, dict[_Voice, dict[str, list[float]]]] = field(default_factory=dict)
    scores: dict[str, tuple[float, TierName]] = field(default_factory=dict)
    rounds: list[CompareRound] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    leaders: dict[TierName, str] = field(default_factory=dict)
    seen: dict[TierName, Outcome | None] = field(default_factory=dict)
    read: dict[TierName, set[tuple[str, How]]] = field(default_factory=dict)
    note: str | None = None

    async def ask(self, tier: TierName, alive: Sequence[str]) -> None:
        """Ask every model of a tier about every subject that is still in question."""
        seats = self.judge.juries[tier]
        asked = await all_of([partial(self._each, tier, seat, alive) for seat in seats], self.session)
        for place, letter in enumerate(alive):
            for seat, found in zip(seats, asked, strict=True):
                self._note(letter, seat, found[place])

    async def _each(self, tier: TierName, seat: Endpoint, alive: Sequence[str]) -> list[Verdict]:
        calls = [partial(self._once, tier, seat, letter) for letter in alive]
        each = 1 if seat.pointwise else self.judge.manner.calls(len(self.judge.rubric.dimensions))
        return await all_of(calls, self.session, seat, each)

    async def _once(self, tier: TierName, seat: Endpoint, letter: str) -> Verdict:
        limit = self.judge.max_cost_usd
        budget = None if limit is None else limit - self.session.spent_usd
        if limit is not None and budget is not None and budget <= limit * INEXACT:
            budget = 0.0
        one = self.judge.one(tier, seat, self.session.left(), budget)
        found = await one.judge(document(self.contest, letter))
        self.session.spent_usd += found.cost_usd or 0.0
        return found

    def _note(self, letter: str, seat: Endpoint, found: Verdict) -> None:
        if not found.rounds:
            self.note = found.degraded
        for each in found.rounds:
            kept = each.model_dump(include={"tier", "model", "opinion", "failure", "latency_ms", "usage"})
            self.rounds.append(CompareRound(round=len(self.rounds) + 1, order=[letter], **kept))
            if each.opinion is not None:
                voice = self._voice(each.tier, seat)
                scored = self.said.setdefault(each.tier, {}).setdefault(voice, defaultdict(list))
                scored[letter].append(fmean(each.opinion["scores"].values()))
                how = readings.how(seat, each.opinion["scores"], each.opinion.get("expected", ()))
                self.read.setdefault(each.tier, set()).add((seat.model, how))
                self.reasons[letter] = each.opinion.get("reasoning") or self.reasons.get(letter, "")

    def step(self, tier: TierName, alive: Sequence[str]) -> list[str] | Ended:
        """Return who goes up to the next tier, or the end."""
        margins = self.judge.margins or standing.usual_margins(self.judge.rubric)
        margin = margins.get(tier, 0.0)
        here = standing.values(self.said.get(tier, {}), alive, len(self._models(tier)), _share)
        if here is None:  # what a tier says that failed counts nowhere
            self.said.pop(tier, None)
        found = standing.values(self._pooled(), alive, weight=_share)
        self.seen[tier] = None
        if here is None or found is None:
            return list(alive)
        leader = self.leaders[tier] = max(here, key=lambda each: here[each])
        gates = self.judge.gates
        last = self.following(tier) is None or (gates is not None and tier == gates.last)
        self.scores |= {each: (value, tier) for each, value in found.items()}
        cut = any(self._is_cut(tier, each) for each in alive)
        alone, partial = self.judge.margins is None and len(self.leaders) == 1, self._is_partial(leader)
        confirm = alone and (gates is not None or self.judge.mode == "strict" or partial)
        trusted = not last and self._is_trusted(tier, found, barred=cut or partial)
        near = standing.next_up(found, margin, trusted=trusted, alone=confirm or cut)
        if len(near) > 1 and not last:
            return near
        if cut:
            why = "no model saw the best texts whole, so none is known to be better"
            return Ended("undetermined", "none", degraded=why, truncated=True)
        winner = near[0] if len(near) == 1 else standing.last_word(found, margin, self.judge.mode)
        return self._won(winner, tier, standing.lead({**self._latest(), **found}))

    def _is_trusted(self, tier: TierName, found: Mapping[str, float], *, barred: bool) -> bool:
        """Whether a calibration lets the best be final by its lead; never where it was read otherwise."""
        lead, gates = round(standing.lead(found), DIGITS), self.judge.gates
        self.seen[tier] = "accept" if lead else "improve"
        if gates is None or barred or not lead or not gates.knows(tier, self.read.get(tier, ())):
            return False
        return gates.final(tier, self.seen, {tier: lead})

    def following(self, tier: TierName) -> TierName | None:
        """Return the tier that can be asked after this one, if there is any.

        A tiebreaker of which every model was heard would only say the same again. A calibration has seen what
        it says.
        """
        tiers = list(self.judge.seats)
        after = next(iter(tiers[tiers.index(tier) + 1 :]), None)
        heard = {voice.model for by_voice in self.said.values() for voice in by_voice}
        told = self.judge.margins is None and "deep" in self.leaders
        return None if after == "tiebreaker" and told and self._models(after) <= heard else after

    def _models(self, tier: TierName) -> set[str]:
        return {seat.model for seat in self.judge.juries[tier]}

    def _voice(self, tier: TierName, seat: Endpoint) -> _Voice:
        kin = {each.model for each in self.judge.juries[tier] if voter(each) == voter(seat)}
        return _Voice(seat.model, seat.family, 1 / len(kin))

    def _heard(self) -> set[str]:
        """Return the families of the models that count."""
        return {voice.family for by_voice in self.said.values() for voice in by_voice}

    def _is_partial(self, leader: str) -> bool:
        """Whether nobody scored but models of families that wrote the best subject, and not the others."""
        return self._heard() <= set(self.contest.families(leader)) & set(self.contest.sided)

    def _won(self, winner: str | None, tier: TierName, lead: float) -> Ended:
        words = set(self.leaders.values())
        voices = {each.model for each in self.rounds if each.opinion}
        consensus: Consensus = "unanimous" if words == {winner} else "majority"
        if len(voices) == 1 or len(self.leaders) == 1:
            consensus = "single"
        reasoning = self.reasons.get(winner or "", "")
        return Ended(winner or TIE, consensus, tier, lead, reasoning, families=tuple(sorted(self._heard())))

    def _latest(self) -> dict[str, float]:
        return {letter: value for letter, (value, _) in self.scores.items()}

    def _pooled(self) -> dict[_Voice, dict[str, list[float]]]:
        """Return what each model gave in all tiers together, the same model in two tiers as one."""
        pooled: dict[_Voice, dict[str, list[float]]] = {}
        for by_voice in self.said.values():
            for voice, scored in by_voice.items():
                for letter, points in scored.items():
                    pooled.setdefault(voice, defaultdict(list))[letter].extend(points)
        return pooled

    def _is_cut(self, tier: TierName, letter: str) -> bool:
        limits = getattr(self.judge.rubric.tiers, tier)
        subject = document(self.contest, letter)
        return any(is_cut(subject.seen_by(limits, seat)) for seat in self.judge.juries[tier])


def _share(voice: _Voice) -> float:
    return voice.share
