"""Labelled subjects of which one is the best, with the scores that each tier would give to all of them.

A lead of the best so far is an opinion with a margin: cheap scores that are far apart may be final, near ones
go up. The samples made of them are tested as all others are, see `judgekit.calibrate.choose`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from judgekit.calibrate import heard
from judgekit.calibrate.samples import Sample, Voice, Walked
from judgekit.comparison import LETTERS, TIE
from judgekit.errors import InputError
from judgekit.judging import jury, standing
from judgekit.judging.gates import DIGITS, Gates
from judgekit.rubric import TIERS, ScoreRubric, TierName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.calibrate.labelled import Case, Recorded
    from judgekit.judging.standing import Scored
    from judgekit.rubric import ModeName, Outcome, Rubric


class Key(NamedTuple):
    """A model of a tier, and how much each of its scores weighs there."""

    model: str
    share: float


Said = dict[Key, "Scored"]


class Stage(NamedTuple):
    """A tier's turn: its calls, and the means of all that was said so far, None where it failed.

    After the `last` one nobody can be asked; where it is `trusted` a gate ends it.
    """

    tier: TierName
    calls: int
    found: dict[str, float] | None
    last: bool = False
    trusted: bool = False

    @property
    def lead(self) -> float:
        """By how much the best is ahead."""
        return round(standing.lead(self.found), DIGITS) if self.found else 0.0

    @property
    def outcome(self) -> Outcome | None:
        """What the rules of escalation see: a leader, a tie, or a failure."""
        if self.found is None:
            return None
        return "accept" if self.lead else "improve"

    @property
    def best(self) -> str:
        """The leader, or a tie."""
        if self.found is None or not self.lead:
            return TIE
        return standing.contending(self.found, 0.0)[0]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A case with what each tier gave to each of its subjects; `apart` are tiers that were read otherwise."""

    case: Case
    rubric: ScoreRubric
    mode: ModeName
    said: Mapping[TierName, Said]
    best: str
    apart: frozenset[TierName] = frozenset()

    def stages(self, gates: Gates | None) -> Iterator[Stage]:
        """Yield the turns that judging takes."""
        alive = list(LETTERS[: len(self.case.subjects)])
        so_far: dict[TierName, Said] = {}
        seen: dict[TierName, Outcome | None] = {}
        for tier in self.said:
            if tier == "tiebreaker" and self._was_heard(tier, so_far):
                return
            stage = self._stage(tier, alive, so_far)
            alone = not any(seen.values()) and (gates is not None or self.mode == "strict")
            seen[tier] = stage.outcome
            stage = self._closed(stage, seen, so_far, gates)
            yield stage
            if stage.last:
                return
            if stage.found is not None:
                alone = alone or self.case.judges[tier].cut
                alive = standing.next_up(stage.found, self._usual(tier), trusted=stage.trusted, alone=alone)
            if len(alive) == 1:
                return

    def _closed(
        self,
        stage: Stage,
        seen: Mapping[TierName, Outcome | None],
        so_far: Mapping[TierName, Said],
        gates: Gates | None,
    ) -> Stage:
        """Return a turn with whether nobody can be asked after it, else whether a gate ends it."""
        rest = list(self.said)[list(self.said).index(stage.tier) + 1 :]
        nobody = not rest or (rest == ["tiebreaker"] and self._was_heard("tiebreaker", so_far))
        last = stage.found is not None and (nobody or (gates is not None and stage.tier == gates.last))
        trusted = not last and gates is not None and gates.final(stage.tier, seen, self._margins(stage))
        return stage._replace(last=last, trusted=trusted)

    def _was_heard(self, tier: TierName, so_far: Mapping[TierName, Said]) -> bool:
        """Whether a tier would only say the same again."""
        known = {key.model for said in so_far.values() for key in said}
        return "deep" in so_far and {key.model for key in self.said[tier]} <= known

    def word(self, stage: Stage) -> str | None:
        """Return the winner, or a tie, were nobody asked after a turn; None where it settles nothing."""
        if stage.found is None or self.case.judges[stage.tier].cut:
            return None
        if stage.trusted:
            return stage.best
        return standing.last_word(stage.found, self._usual(stage.tier), self.mode) or TIE

    def sample(self) -> Sample:
        """Return the case as gates are learned from it: each tier's turn, none before it having ended it."""
        voices: dict[TierName, Voice] = {}
        wrong, ties = set[TierName](), set[TierName]()
        for stage in self.stages(Gates()):
            # A deeper tier's lead that is wide enough ends the judging anyway.
            ends = any(each.outcome for each in voices.values()) and stage.lead > self._usual(stage.tier)
            margin = None if ends or stage.last else self._margins(stage).get(stage.tier)
            voices[stage.tier] = Voice(stage.outcome, margin)
            wrong |= {stage.tier} if stage.best != self.best else set()
            ties |= {stage.tier} if self.word(stage) == TIE else set()
        return Sample(self.case.id, "accept", voices, ties=frozenset(ties), wrong=frozenset(wrong))

    def _usual(self, tier: TierName) -> float:
        return standing.usual_margins(self.rubric).get(tier, 0.0)

    def _stage(self, tier: TierName, alive: Sequence[str], so_far: dict[TierName, Said]) -> Stage:
        """Return a tier's turn, and note in `so_far` what it said, unless it failed."""
        said = self.said[tier]
        calls = sum(max(1, len(scored.get(each, ()))) for scored in said.values() for each in alive)
        here = standing.values(said, alive, len({key.model for key in said}), _share)
        if here is None:
            return Stage(tier, calls, None)
        so_far[tier] = said
        return Stage(tier, calls, standing.values(_pooled(so_far), alive, weight=_share))

    def _margins(self, stage: Stage) -> dict[TierName, float]:
        """Return the lead of a turn, but for one that no gate may let through."""
        barred = self.case.judges[stage.tier].cut or stage.tier in self.apart
        return {} if barred or not stage.lead else {stage.tier: stage.lead}


def are_ranked(cases: Sequence[Case], rubric: Rubric) -> bool:
    """Whether cases are about which of several subjects is best; raises `InputError` where only some are."""
    ranked = [bool(case.subjects) for case in cases]
    if not any(ranked):
        return False
    if not all(ranked):
        raise InputError(f"case {cases[ranked.index(False)].id}: subjects: expected in all cases, or in none")
    if not isinstance(rubric, ScoreRubric):
        raise InputError(f"subjects are scored; name a rubric of the task 'score', got {rubric.ref}")
    return True


def items(cases: Sequence[Case], rubric: ScoreRubric, mode: ModeName) -> list[Ranked]:
    """Return cases with their labels and what the tiers gave; raises `InputError` for what does not fit."""
    apart = heard.otherwise(cases, heard.readings(cases))
    return [_ranked(case, rubric, mode, tiers) for case, tiers in zip(cases, apart, strict=True)]


def walk(found: Sequence[Ranked], gates: Gates | None) -> Walked:
    """Return what judging would come to, and whom it would ask: calls are counted subject by subject."""
    calls: Counter[TierName] = Counter()
    decided = errors = by_gate = 0
    for item in found:
        calls.update(dict.fromkeys(item.said, 0))
        stages = list(item.stages(gates))
        for stage in stages:
            calls[stage.tier] += stage.calls
        word = item.word(stages[-1])
        decided += word is not None
        errors += word is not None and word != item.best
        by_gate += stages[-1].trusted
    return Walked(len(found), decided, errors, by_gate, dict(calls))


def _ranked(case: Case, rubric: ScoreRubric, mode: ModeName, apart: frozenset[TierName]) -> Ranked:
    letters = LETTERS[: len(case.subjects)]
    if len(letters) < 2:  # noqa: PLR2004 - one text is not compared
        raise InputError(f"case {case.id}: subjects: expected at least two texts")
    said = {tier: _said(case, case.judges[tier], letters) for tier in TIERS if tier in case.judges}
    return Ranked(case, rubric, mode, said, best(case, mode), apart)


def word(case: Case, said: Recorded, mode: ModeName) -> str | None:
    """Return the best, or a tie, by the scores of one judge alone; None where they are missing."""
    letters = LETTERS[: len(case.subjects)]
    found = standing.values(_said(case, said, letters), letters, weight=_share)
    return None if found is None else standing.last_word(found, 0.0, mode) or TIE


def best(case: Case, mode: ModeName) -> str:
    """Return the label of a case; raises `InputError` for one that is no letter of a subject and no tie."""
    words = (*LETTERS[: len(case.subjects)], TIE)
    label = case.right(mode)
    if label not in words:
        raise InputError(f"case {case.id}: label: expected {', '.join(words)}, got {label!r}")
    return str(label)


def _said(case: Case, said: Recorded, letters: str) -> Said:
    jurors = said.jury or [said]
    voters = [jury.voter(heard.seat(each)) for each in jurors]
    found: dict[Key, dict[str, list[float]]] = {}
    for each, voter in zip(jurors, voters, strict=True):
        kin = {other.model for other, own in zip(jurors, voters, strict=True) if own == voter}
        if each.failure is None and (each.points is None or set(each.points) - set(letters)):
            raise InputError(f"case {case.id}: expected points for {', '.join(letters)}, what each was given")
        scored = found.setdefault(Key(each.model, 1 / len(kin)), {})
        for letter, points in (each.points or {}).items():
            scored.setdefault(letter, []).extend(points)
    return dict(found)


def _pooled(so_far: Mapping[TierName, Said]) -> Said:
    pooled: dict[Key, dict[str, list[float]]] = {}
    for said in so_far.values():
        for key, scored in said.items():
            for letter, points in scored.items():
                pooled.setdefault(key, {}).setdefault(letter, []).extend(points)
    return {key: dict(scored) for key, scored in pooled.items()}


def _share(key: Key) -> float:
    return key.share
