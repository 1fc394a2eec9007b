"""What a judge is made of: built once, from the configuration and a request, and passed down by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from judgekit.judging.kinds import DECIDES, kind_of
from judgekit.judging.request import AS_CONFIGURED, JudgeRequest
from judgekit.judging.steps import EscalationRules
from judgekit.text import counted

if TYPE_CHECKING:
    from judgekit.config import ModeName, TierName
    from judgekit.config.settings import JudgeConfig
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.independence import Independence
    from judgekit.judging.jury import JuryRule
    from judgekit.judging.steps import Task
    from judgekit.providers.resolve import Others, Tiers
    from judgekit.rubric.loader import LoadedRubric


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """All that decides how a judge judges.

    A `JudgeRequest` is what one caller asks; here every question that it leaves open has its answer. `of`
    takes it from the configuration. `service.judge_settings` adds the models, and a calibration that fits.
    """

    request: JudgeRequest = AS_CONFIGURED
    """What the caller asks: an option that no configuration has is read here."""
    loaded: LoadedRubric
    """The rubric, and the file it was read from."""
    mode: ModeName

    models_by_tier: Tiers = field(default_factory=dict)
    """The models that are asked, tier by tier; empty where there is none."""
    no_model_reason: str = "no model is configured"
    """Why there is no model; with models, why these."""
    is_mixed: bool = False
    """Whether each tier is to have a model of another family."""
    others: Others = tuple
    """Returns the panels of other providers, which may take the places of the author's family."""
    replacement_providers: frozenset[str] = frozenset()
    """The providers that took its places."""

    jury: JuryRule = "mean"
    """How the models of a tier come to one opinion."""
    samples: int = 1
    """How often a model is asked the same."""
    criteria: Literal["together", "each"] = "together"
    """Whether a call asks about all criteria, or about one."""
    redact: bool | Literal["refuse"] = True
    """Whether secrets are left out, or a text that has one is not sent."""

    margin: float = 0.0
    """In points: an opinion that is nearer to another outcome goes up a tier."""
    finality: FinalityRules | None = None
    """Which opinions are final by a calibration."""
    calibration_warning: str | None = None
    """Why a calibration that is there is not used."""
    is_promised: bool = False
    """Whether the only tier gives a first opinion, which a promise of agreement may make final."""

    author_family: str | None = None
    """The families that wrote the texts, beside what these say themselves."""
    project_named_families: frozenset[str] = frozenset()
    """Families that only a project names: in their places no other provider is asked."""
    independence: Independence = "prefer"

    timeout: float = 180.0
    """Seconds for one subject."""
    call_timeout: float | None = None
    """Seconds for one call, beside its tier's own timeout."""
    max_cost_usd: float | None = None
    """For one subject."""

    @classmethod
    def of(cls, config: JudgeConfig, request: JudgeRequest, loaded: LoadedRubric) -> Self:
        """Return what a request and the configuration say: as yet without models."""
        max_cost_usd = config.max_cost_usd
        if request.max_cost_usd is not None:
            max_cost_usd = request.max_cost_usd
        return cls(
            request=request,
            loaded=loaded,
            mode=request.mode or config.mode,
            is_mixed=config.panel == "mixed",
            jury=config.jury,
            samples=config.samples,
            criteria=config.criteria,
            redact=config.redact,
            margin=config.margin,
            author_family=config.author_family,
            independence=config.independence,
            timeout=request.deadline or config.deadline,
            max_cost_usd=max_cost_usd,
        )

    def calls_at_once(self, questions: int) -> int:
        """Return how many calls a model of a tier may get at a time for one subject."""
        if self.criteria == "each":
            return self.samples * questions
        return self.samples

    def refusal(self, secrets: int) -> str:
        """Say why a text with this many secrets is not sent; "" where it is sent without them."""
        if self.redact != "refuse" or not secrets:
            return ""
        count = counted(secrets, "secret was", "secrets were")
        return f"{count} found, and judge.redact is refuse"

    def escalation_rules(self, task: Task) -> EscalationRules:
        """Return the rules of a task, to which its subject adds."""
        return EscalationRules(
            confirm=getattr(self.loaded.rubric.modes, self.mode).confirm,
            tiers=tuple(self.models_by_tier) or ("quick",),
            task=task,
            mode=self.mode,
            models=self.model_names,
            deciding=self.deciding_tiers,
            finality=self.finality,
            margin=self.margin if task == "document" else 0.0,
            needs_proof=self.mode == "strict" and task != "ranking",
            is_promised=self.is_promised,
            explains=self.request.explain,
            independence=self.independence,
        )

    @property
    def model_names(self) -> dict[TierName, set[str]]:
        """The names of the models that are asked, by tier."""
        names = {}
        for tier, models in self.models_by_tier.items():
            names[tier] = {model.model for model in models}
        return names

    @property
    def deciding_tiers(self) -> tuple[TierName, ...]:
        """The tiers whose models only decide: they give probabilities, and no reasons."""
        deciding = []
        for tier, models in self.models_by_tier.items():
            if models and all(kind_of(model) is DECIDES for model in models):
                deciding.append(tier)
        return tuple(deciding)
