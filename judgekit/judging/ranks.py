"""Which of several scored subjects go up a tier, and when it ends: a pure function of what the tiers gave.

`judgekit.judging.ranking` asks the models, `judgekit.calibrate.ranked` walks through labelled cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from judgekit.judging import standing
from judgekit.judging.gates import DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from judgekit.judging.gates import Gates
    from judgekit.judging.standing import Margins, Scored
    from judgekit.names import ModeName, Outcome, TierName


class Voice(NamedTuple):
    """A model, and in whose name it votes: as `judgekit.judging.jury.voter` says."""

    model: str
    voter: str


Said: TypeAlias = "Mapping[Voice, Scored]"
"""What the models of one tier gave; a model that stands there twice has twice the scores."""


class Turn(NamedTuple):
    """What comes of a tier's turn.

    `found` are the means of all that was said so far, None where the tier failed. `near` are those that go up
    where somebody can be asked: nobody can after the `last` one. Where it is `trusted` a gate ends it. Where
    it is `cut` nobody wins by it.
    """

    tier: TierName
    found: Mapping[str, float] | None = None
    near: tuple[str, ...] = ()
    last: bool = False
    trusted: bool = False
    cut: bool = False

    @property
    def is_end(self) -> bool:
        """Whether nobody is asked after it."""
        return self.found is not None and (self.last or len(self.near) == 1)

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
    def best(self) -> str | None:
        """The leader; None where there is none."""
        return standing.contending(self.found, 0.0)[0] if self.found and self.lead else None


def _nobody(_: str) -> bool:
    return False


@dataclass(slots=True)
class Ranks:
    """One comparison on its way, of the subjects that are still `alive`.

    `panel` names the models of each tier, in order. Who goes up is said by the `margins` in points of the
    scale; with the `gates` of a calibration the best of a tier is final where they let its lead through, and
    of the first tier nobody else. `said` is what counts, tier by tier, `leaders` are the best of each tier
    alone, and `heard` are those who scored all that are compared.
    """

    alive: tuple[str, ...]
    panel: Mapping[TierName, Collection[str]]
    margins: Margins
    mode: ModeName
    gates: Gates | None = None
    said: dict[TierName, Said] = field(default_factory=dict)
    seen: dict[TierName, Outcome | None] = field(default_factory=dict)
    leaders: dict[TierName, str] = field(default_factory=dict)
    heard: set[Voice] = field(default_factory=set)

    def take(
        self,
        tier: TierName,
        said: Said,
        *,
        cut: bool = False,
        barred: bool = False,
        partial: Callable[[str], bool] = _nobody,
    ) -> Turn:
        """Return what comes of what a tier gave, and note who goes up.

        Of a tier that is `barred` no gate lets the lead through. `partial` tells of a subject whether nobody
        scored it but models that have a reason to prefer it: these are not final alone.
        """
        self.seen[tier] = None
        here = standing.values(said, self.alive, len(self.panel[tier]), _voter)
        if here is None:
            return Turn(tier)
        self.said[tier] = said
        self.leaders[tier] = max(here, key=here.__getitem__)
        pooled = {(each, voice): scored for each, by in self.said.items() for voice, scored in by.items()}
        found = standing.values(pooled, self.alive, kin=_voter_in_tier)
        self.heard = {key[1] for key, scored in pooled.items() if standing.is_whole(scored, self.alive)}
        turn = Turn(tier, found, last=self._is_last(tier), cut=cut)
        self.seen[tier] = turn.outcome
        own = partial(standing.contending(found or {}, 0.0)[0])
        trusted = not (turn.last or cut or barred or own) and self._is_let_through(turn)
        alone = cut or (len(self.said) == 1 and (self.gates is not None or self.mode == "strict" or own))
        near = standing.next_up(found or {}, self._margin(tier), trusted=trusted, alone=alone)
        self.alive = tuple(near)
        return turn._replace(near=self.alive, trusted=trusted)

    def following(self, tier: TierName) -> TierName | None:
        """Return the tier that can be asked after this one, if there is any.

        A tiebreaker of which every model was heard would only say the same again, unless it stands in for a
        deep tier that failed.
        """
        tiers = list(self.panel)
        after = next(iter(tiers[tiers.index(tier) + 1 :]), None)
        heard = {voice.model for voice in self.heard}
        again = after == "tiebreaker" and "deep" in self.said and set(self.panel[after]) <= heard
        return None if again else after

    def winner(self, turn: Turn) -> str | None:
        """Return who wins, were nobody asked after a turn; None for a tie."""
        if turn.trusted or turn.found is None:
            return turn.best
        return standing.last_word(turn.found, self._margin(turn.tier), self.mode)

    def _is_last(self, tier: TierName) -> bool:
        return self.following(tier) is None or (self.gates is not None and tier == self.gates.last)

    def _is_let_through(self, turn: Turn) -> bool:
        lead = {turn.tier: turn.lead}
        return self.gates is not None and bool(turn.lead) and self.gates.final(turn.tier, self.seen, lead)

    def _margin(self, tier: TierName) -> float:
        return self.margins.get(tier, 0.0)


def asked(said: Said, letters: Collection[str]) -> int:
    """Return how many calls a tier took; a score that is missing was asked for, too."""
    return sum(max(1, len(scored.get(each, ()))) for scored in said.values() for each in letters)


def _voter(voice: Voice) -> str:
    return voice.voter


def _voter_in_tier(key: tuple[TierName, Voice]) -> tuple[TierName, str]:
    return key[0], key[1].voter
