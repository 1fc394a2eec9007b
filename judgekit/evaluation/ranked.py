"""Labelled subjects of which one is the best, with the scores that each tier would give to all of them.

A lead of the best so far is an opinion with a margin: cheap scores that are far apart may be final, near ones
go up. The samples made of them are tested as all others are, see `judgekit.evaluation.calibrate`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from judgekit.config.names import TIERS, TierName
from judgekit.errors import InputError
from judgekit.evaluation import reply_source
from judgekit.evaluation.samples import Sample, TierOpinion, Walked
from judgekit.judging import jury, ranking
from judgekit.judging.escalation import FinalityRules
from judgekit.judging.ranking import Ranks
from judgekit.judging.verdict import LETTERS, TIE
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.config.names import ModeName
    from judgekit.evaluation.labelled import Case, Recorded
    from judgekit.judging.ranking import RankingStep, Said
    from judgekit.rubric.schema import Rubric


class Stage(NamedTuple):
    """A tier's turn: how many calls it took, and what came of it."""

    calls: int
    turn: RankingStep


@dataclass(frozen=True, slots=True)
class RankedCase:
    """A case with what each tier gave to each of its subjects; `apart` are tiers that were read otherwise."""

    case: Case
    rubric: ScoreRubric
    mode: ModeName
    said: Mapping[TierName, Said]
    best: str
    apart: frozenset[TierName] = frozenset()

    def stages(self, finality: FinalityRules | None) -> Iterator[Stage]:
        """Yield the turns that judging takes."""
        state = self._course(finality)
        tier: TierName | None = next(iter(self.said), None)
        while tier is not None:
            alive, said = state.alive, self.said[tier]
            turn = state.take(tier, said, cut=self.case.judges[tier].cut, barred=tier in self.apart)
            yield Stage(ranking.asked(said, alive), turn)
            tier = None if turn.is_end else state.following(tier)

    def word(self, turn: RankingStep) -> str | None:
        """Return the winner, or a tie, were nobody asked after a turn; None where it settles nothing."""
        if turn.found is None or turn.cut:
            return None
        return self._course(None).winner(turn) or TIE

    def _course(self, finality: FinalityRules | None) -> Ranks:
        panel = {tier: {voice.model for voice in said} for tier, said in self.said.items()}
        letters = tuple(LETTERS[: len(self.case.subjects)])
        return Ranks(letters, panel, ranking.usual_margins(self.rubric), self.mode, finality)

    def sample(self) -> Sample:
        """Return the case as gates are learned from it: each tier's turn, none before it having ended it."""
        voices: dict[TierName, TierOpinion] = {}
        wrong, ties = set[TierName](), set[TierName]()
        for _, turn in self.stages(FinalityRules()):
            margin = turn.lead or None
            if turn.is_end or turn.cut or turn.tier in self.apart:  # no gate may let it through, or need to
                margin = None
            voices[turn.tier] = TierOpinion(turn.outcome, margin)
            wrong |= {turn.tier} if turn.best != self._right else set()
            ties |= {turn.tier} if self.word(turn) == TIE else set()
        return Sample(self.case.id, "accept", voices, ties=frozenset(ties), wrong=frozenset(wrong))

    @property
    def _right(self) -> str | None:
        return None if self.best == TIE else self.best


def are_ranked(cases: Sequence[Case], rubric: Rubric) -> bool:
    """Whether cases are about which of several subjects is best; raises `InputError` where only some are."""
    ranked = [bool(case.subjects) for case in cases]
    if not any(ranked):
        return False
    if not all(ranked):
        raise InputError(f"{cases[ranked.index(False)].where}: subjects: expected in all cases, or in none")
    if not isinstance(rubric, ScoreRubric):
        raise InputError(f"subjects are scored; name a rubric of the task 'score', got {rubric.ref}")
    return True


def items(cases: Sequence[Case], rubric: ScoreRubric, mode: ModeName) -> list[RankedCase]:
    """Return cases with their labels and what the tiers gave; raises `InputError` for what does not fit."""
    apart = reply_source.otherwise(cases, reply_source.readings(cases))
    return [_ranked(case, rubric, mode, tiers) for case, tiers in zip(cases, apart, strict=True)]


def walk(ranked_cases: Sequence[RankedCase], finality: FinalityRules | None) -> Walked:
    """Return what judging would come to, and whom it would ask: calls are counted subject by subject."""
    calls: Counter[TierName] = Counter()
    decided = errors = by_gate = 0
    for item in ranked_cases:
        calls.update(dict.fromkeys(item.said, 0))
        stages = list(item.stages(finality))
        for stage in stages:
            calls[stage.turn.tier] += stage.calls
        word = item.word(stages[-1].turn)
        decided += word is not None
        errors += word is not None and word != item.best
        by_gate += stages[-1].turn.trusted
    return Walked(len(ranked_cases), decided, errors, by_gate, dict(calls))


def _ranked(case: Case, rubric: ScoreRubric, mode: ModeName, apart: frozenset[TierName]) -> RankedCase:
    letters = LETTERS[: len(case.subjects)]
    if len(letters) < 2:  # noqa: PLR2004 - one text is not compared
        raise InputError(f"{case.where}: subjects: expected at least two texts")
    said = {tier: _said(case, case.judges[tier], letters) for tier in TIERS if tier in case.judges}
    return RankedCase(case, rubric, mode, said, best(case, mode), apart)


def word(case: Case, said: Recorded, mode: ModeName) -> str | None:
    """Return the best, or a tie, by the scores of one judge alone; None where they are missing."""
    letters = LETTERS[: len(case.subjects)]
    found = ranking.values(_said(case, said, letters), letters, group=_voter)
    return None if found is None else ranking.last_word(found, 0.0, mode) or TIE


def best(case: Case, mode: ModeName) -> str:
    """Return the label of a case; raises `InputError` for one that is no letter of a subject and no tie."""
    words = (*LETTERS[: len(case.subjects)], TIE)
    label = case.right(mode)
    if label not in words:
        raise InputError(f"{case.where}: label: expected {', '.join(words)}, got {label!r}")
    return str(label)


def _said(case: Case, said: Recorded, letters: str) -> Said:
    found: dict[ranking.Voter, dict[str, list[float]]] = {}
    for recorded in said.jury or [said]:
        if recorded.failure is None and (recorded.points is None or set(recorded.points) - set(letters)):
            raise InputError(f"{case.where}: expected points for {', '.join(letters)}, what each was given")
        scored = found.setdefault(
            ranking.Voter(recorded.model, jury.voter(reply_source.endpoint(recorded))), {}
        )
        for letter, points in (recorded.points or {}).items():
            scored.setdefault(letter, []).extend(points)
    return dict(found)


def _voter(voice: ranking.Voter) -> str:
    return voice.voter
