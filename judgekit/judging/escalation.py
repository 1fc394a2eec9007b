"""Which tier is asked next, and when the judging ends: a pure function of what the tiers have said.

The same rules serve documents and single candidates (kept counts as accept, dropped as reject). The whole
table stands in docs/escalation.md and is the test of this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from judgekit.rubric import TIERS, Outcome, TierName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from judgekit.judging.gates import Gates
    from judgekit.verdict import Consensus, VerdictWord

Seen: TypeAlias = "Mapping[TierName, Outcome | None]"
"""What each asked tier said, in order; None for a round that failed."""


class Final(NamedTuple):
    """The end of the judging: the verdict, how much agreement it has, and the tier that settled it."""

    verdict: VerdictWord
    consensus: Consensus
    tier: TierName | None


_NO_MARGINS: Mapping[TierName, float] = {}
UNDETERMINED = Final("undetermined", "none", None)
ESCALATE = Final("escalate", "none", None)


@dataclass(frozen=True, slots=True)
class Rules:
    """What governs escalation in one judging.

    `confirm` is the quick outcome that a second tier must confirm. `tiers` are those that may be asked.
    `truncated` are the tiers that see a cut text: an acceptance of theirs is never final. `models` names the
    model of each tier: one model is one voice. With `gates` a calibration says which opinions are final:
    those it lets through, and of a first tier no others.
    """

    confirm: Literal["accept", "reject"]
    tiers: tuple[TierName, ...] = TIERS
    truncated: Collection[TierName] = ()
    models: Mapping[TierName, str] = field(default_factory=dict)
    gates: Gates | None = None

    def next(self, seen: Seen, margins: Mapping[TierName, float] = _NO_MARGINS) -> TierName | Final:
        """Return the tier to ask now, or the end of the judging.

        `margins` says how far each opinion is from another outcome; only gates look at it.
        """
        step = self._gated(seen, margins) or self._step(seen)
        if isinstance(step, str):
            return step
        blind = [tier for tier in seen if seen[tier] == "accept" and tier not in self.truncated]
        return UNDETERMINED if step.verdict == "accept" and not blind else step

    def _gated(self, seen: Seen, margins: Mapping[TierName, float]) -> TierName | Final | None:
        """Return what a calibration decides, None where the rules below do."""
        gates = self.gates
        if gates is None or len(self.tiers) == 1:
            return None
        for tier in self.tiers:
            if tier not in seen:
                return tier if gates.last in self.tiers[self.tiers.index(tier) :] else None
            outcome = seen[tier]
            unseen = outcome == "accept" and tier in self.truncated
            if outcome is not None and not unseen and gates.final(tier, seen, margins):
                agreed = len(seen) > 1 and set(seen.values()) == {outcome}
                return Final(outcome, "unanimous" if agreed else "single", tier)
        return None

    def _step(self, seen: Seen) -> TierName | Final:
        tiers = self.tiers
        if tiers[0] not in seen:
            return tiers[0]
        first = seen[tiers[0]]
        if len(tiers) == 1:
            return Final(first, "single", tiers[0]) if first else UNDETERMINED
        if tiers[0] != "quick":
            return self._from_deep(None, seen)
        if first is not None and self._is_final(first):
            return Final(first, "single", "quick")
        return self._from_deep(first, seen)

    def _is_final(self, quick: Outcome) -> bool:
        if self.gates is not None:
            return False
        unseen = quick == "accept" and "quick" in self.truncated
        return quick not in ("improve", self.confirm) and not unseen

    def _from_deep(self, quick: Outcome | None, seen: Seen) -> TierName | Final:
        if "deep" not in seen:
            return "deep" if "deep" in self.tiers else self._substitute(quick, seen)
        deep = seen["deep"]
        if deep is None:
            return self._substitute(quick, seen)
        if quick == deep:
            return Final(deep, "unanimous", "deep")
        if quick is None or "improve" in (quick, deep):
            return Final(deep, "single", "deep")
        return self._tiebreak(seen)

    def _tiebreak(self, seen: Seen) -> TierName | Final:
        """Settle accept against reject by a third opinion, or not at all."""
        if "tiebreaker" not in self.tiers or self._is_told_twice():
            return ESCALATE
        if "tiebreaker" not in seen:
            return "tiebreaker"
        third = seen["tiebreaker"]
        return Final(third, "majority", "tiebreaker") if third in ("accept", "reject") else ESCALATE

    def _is_told_twice(self) -> bool:
        """Whether the tiebreaker is one of two models that disagree: it would only vote for itself."""
        quick, deep = self.models.get("quick"), self.models.get("deep")
        return quick != deep and self.models.get("tiebreaker") in (quick, deep)

    def _substitute(self, quick: Outcome | None, seen: Seen) -> TierName | Final:
        """Let the tiebreaker speak in place of a deep tier that failed."""
        if "tiebreaker" not in seen:
            return "tiebreaker" if "tiebreaker" in self.tiers else UNDETERMINED
        third = seen["tiebreaker"]
        if third is None:
            return UNDETERMINED
        if quick == third:
            return Final(third, "unanimous", "tiebreaker")
        if quick is None or "improve" in (quick, third):
            return Final(third, "single", "tiebreaker")
        return ESCALATE
