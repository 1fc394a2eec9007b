"""What every judge has, whatever it judges: the models, the rubric, and the limits it keeps to."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from judgekit.judging.escalation import Rules
from judgekit.judging.independence import apart
from judgekit.judging.options import USUAL, AnyRubric, Manner
from judgekit.judging.session import Session
from judgekit.providers.base import seated
from judgekit.providers.model_info import with_family

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Self

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.cache import Cache
    from judgekit.judging.finality import Gates
    from judgekit.judging.independence import Independence
    from judgekit.providers.base import Endpoint, Gateway, Seats
    from judgekit.providers.resolve import Others
    from judgekit.rubric.loader import LoadedRubric

AnyJudge = TypeVar("AnyJudge", bound="Judge[Any]")


@dataclass(frozen=True, slots=True)
class Judge(Generic[AnyRubric]):
    """Judges under one rubric in one mode, with one model or several for each tier in `seats`.

    `deadline` is in seconds for one subject. `nobody` says why there is no model, where there is none.
    `cache` holds replies of earlier judgings. `gates` are those of a calibration, `stale` says in one line
    why one that is there is not used. `written_by` names families of models that wrote the subjects, beside
    what these say themselves. Of `max_cost_usd` so much as `spent_usd` was spent before. Where the family of
    the author judges, `others` may take its places, but not for the families in `claimed`, which only a
    project names; `substitutes` are the providers that did. `independence` says whether what nobody else
    accepts is accepted.
    """

    gateway: Gateway
    seats: Seats
    loaded: LoadedRubric
    mode: ModeName
    deadline: float
    max_cost_usd: float | None = None
    nobody: str = "no model was given"
    cache: Cache | None = None
    gates: Gates | None = None
    stale: str | None = None
    manner: Manner = USUAL
    written_by: str | None = None
    spent_usd: float = 0.0
    others: Others = tuple
    claimed: frozenset[str] = frozenset()
    substitutes: frozenset[str] = frozenset()
    independence: Independence = "prefer"

    @property
    def rubric(self) -> AnyRubric:
        """The rubric, known to be one for the task of this judge."""
        return self.loaded.rubric  # type: ignore[return-value]  # the library saw to it

    @property
    def juries(self) -> dict[TierName, tuple[Endpoint, ...]]:
        """The models of each tier, where there is one as where there are several."""
        return seated(self.seats)

    def turned(self, kind: type[AnyJudge]) -> AnyJudge:
        """Return a judge of another kind with all that this one has."""
        return kind(**{each.name: getattr(self, each.name) for each in fields(Judge)})

    def apart_from(self, wrote: Collection[str], sided: Collection[str] = ()) -> Self:
        """Return the judge without the models of the families in `wrote`, where others are there.

        Where none are, models of the families in `sided` go first. A calibration holds for the models that it
        was learned for, and no others.
        """
        if not wrote:
            return self
        juries = {tier: tuple(map(with_family, jury)) for tier, jury in self.juries.items()}
        # For a family that only a project names, nobody else is sent anything.
        seats = apart(juries, set(wrote) - self.claimed, self.others)
        seats = apart(apart(seats, wrote), set(sided) - self.claimed, self.others)
        seats = apart(seats, sided)
        stale, gates = self.stale, self.gates
        if _models(seats) != _models(juries) and gates is not None:
            stay = {seat.family for jury in seats.values() for seat in jury}
            were = {seat.family for jury in juries.values() for seat in jury}
            left = [each for each in dict.fromkeys([*wrote, *sided]) if each in were - stay]
            told = f"calibration {gates.id} not used: {', '.join(left)} wrote this, others judge it"
            gates, stale = None, "; ".join(filter(None, (told, self.stale)))
        return replace(
            self, seats=seats, gates=gates, stale=stale, substitutes=_providers(seats) - _providers(juries)
        )

    def session(self) -> Session:
        """Begin a judging: its deadline runs from now on."""
        return Session(
            self.gateway, self.deadline, self.max_cost_usd, spent_usd=self.spent_usd, cache=self.cache
        )

    def rules(self, cut: Collection[TierName] = (), margin: float = 0.0) -> Rules:
        """Return what governs escalation; `cut` are the tiers that do not see the whole subject."""
        models = {tier: frozenset(seat.model for seat in jury) for tier, jury in self.juries.items()}
        confirm = getattr(self.rubric.modes, self.mode).confirm
        return Rules(confirm, tuple(self.seats) or ("quick",), cut, models, self.gates, margin)

    def name(self, seat: Endpoint) -> str:
        """Return what a model is called where it is said who would be asked."""
        instead = seat.profile.provider in self.substitutes
        return f"{seat.model}, in place of the author's own family" if instead else seat.model

    def asked_instead(self, tiers: Collection[TierName]) -> list[str]:
        """Return the providers that were asked in `tiers` only because of who wrote the subjects."""
        asked = {tier: jury for tier, jury in self.juries.items() if tier in tiers}
        return sorted(_providers(asked) & self.substitutes)


def _models(seats: Mapping[TierName, tuple[Endpoint, ...]]) -> dict[TierName, list[str]]:
    return {tier: [seat.model for seat in jury] for tier, jury in seats.items()}


def _providers(seats: Mapping[TierName, tuple[Endpoint, ...]]) -> frozenset[str]:
    return frozenset(seat.profile.provider for jury in seats.values() for seat in jury)
