"""What every judge has, whatever it judges: the models, the rubric, and the limits it keeps to."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from judgekit.judging.authors import apart
from judgekit.judging.escalation import EscalationRules
from judgekit.judging.options import USUAL, AnyRubric, JudgeOptions
from judgekit.judging.round import Session
from judgekit.providers.base import models_by_tier
from judgekit.providers.served_models import with_family

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Self

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.authors import Independence
    from judgekit.judging.cache import Cache
    from judgekit.judging.escalation import FinalityRules
    from judgekit.providers.base import Endpoint, Gateway, PanelModels
    from judgekit.providers.resolve import Others
    from judgekit.rubric.loader import LoadedRubric

AnyJudge = TypeVar("AnyJudge", bound="Judge[Any]")


@dataclass(frozen=True, slots=True)
class Judge(Generic[AnyRubric]):
    """Judges under one rubric in one mode, with one model or several for each tier in `panel`.

    `deadline` is in seconds for one subject. `nobody` says why there is no model, where there is none.
    `cache` holds replies of earlier judgings. `finality` are those of a calibration, `calibration_warning`
    says in one line why one that is there is not used. `written_by` names families of models that wrote the
    subjects, beside what these say themselves. Of `max_cost_usd` so much as `spent_usd` was spent before.
    Where the family of the author judges, `others` may take its places, but not for the families in
    `claimed`, which only a project names; `substitutes` are the providers that did. `independence` says
    whether what nobody else accepts is accepted.
    """

    gateway: Gateway
    panel: PanelModels
    loaded: LoadedRubric
    mode: ModeName
    deadline: float
    max_cost_usd: float | None = None
    nobody: str = "no model was given"
    cache: Cache | None = None
    finality: FinalityRules | None = None
    calibration_warning: str | None = None
    options: JudgeOptions = USUAL
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
    def models_by_tier(self) -> dict[TierName, tuple[Endpoint, ...]]:
        """The models of each tier, where there is one as where there are several."""
        return models_by_tier(self.panel)

    def as_judge(self, kind: type[AnyJudge]) -> AnyJudge:
        """Return a judge of another kind with all that this one has."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(Judge)})

    def excluding_families(self, wrote: Collection[str], sided: Collection[str] = ()) -> Self:
        """Return the judge without the models of the families in `wrote`, where others are there.

        Where none are, models of the families in `sided` go first. A calibration holds for the models that it
        was learned for, and no others.
        """
        if not wrote:
            return self
        models_by_tier = {tier: tuple(map(with_family, jury)) for tier, jury in self.models_by_tier.items()}
        # For a family that only a project names, nobody else is sent anything.
        panel = apart(models_by_tier, set(wrote) - self.claimed, self.others)
        panel = apart(apart(panel, wrote), set(sided) - self.claimed, self.others)
        panel = apart(panel, sided)
        calibration_warning, finality = self.calibration_warning, self.finality
        if _models(panel) != _models(models_by_tier) and finality is not None:
            stay = {endpoint.family for jury in panel.values() for endpoint in jury}
            were = {endpoint.family for jury in models_by_tier.values() for endpoint in jury}
            left = [fromkey for fromkey in dict.fromkeys([*wrote, *sided]) if fromkey in were - stay]
            told = f"calibration {finality.id} not used: {', '.join(left)} wrote this, others judge it"
            finality, calibration_warning = None, "; ".join(filter(None, (told, self.calibration_warning)))
        return replace(
            self,
            panel=panel,
            finality=finality,
            calibration_warning=calibration_warning,
            substitutes=_providers(panel) - _providers(models_by_tier),
        )

    def session(self) -> Session:
        """Begin a judging: its deadline runs from now on."""
        return Session(
            self.gateway, self.deadline, self.max_cost_usd, spent_usd=self.spent_usd, cache=self.cache
        )

    def rules(self, cut: Collection[TierName] = (), margin: float = 0.0) -> EscalationRules:
        """Return what governs escalation; `cut` are the tiers that do not see the whole subject."""
        models = {
            tier: frozenset(endpoint.model for endpoint in jury) for tier, jury in self.models_by_tier.items()
        }
        confirm = getattr(self.rubric.modes, self.mode).confirm
        return EscalationRules(confirm, tuple(self.panel) or ("quick",), cut, models, self.finality, margin)

    def name(self, endpoint: Endpoint) -> str:
        """Return what a model is called where it is said who would be asked."""
        instead = endpoint.profile.provider in self.substitutes
        return f"{endpoint.model}, in place of the author's own family" if instead else endpoint.model

    def asked_instead(self, tiers: Collection[TierName]) -> list[str]:
        """Return the providers that were asked in `tiers` only because of who wrote the subjects."""
        asked = {tier: jury for tier, jury in self.models_by_tier.items() if tier in tiers}
        return sorted(_providers(asked) & self.substitutes)


def _models(panel: Mapping[TierName, tuple[Endpoint, ...]]) -> dict[TierName, list[str]]:
    return {tier: [endpoint.model for endpoint in jury] for tier, jury in panel.items()}


def _providers(panel: Mapping[TierName, tuple[Endpoint, ...]]) -> frozenset[str]:
    return frozenset(endpoint.profile.provider for jury in panel.values() for endpoint in jury)
