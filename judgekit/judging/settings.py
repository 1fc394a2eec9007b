"""A judge's settings: built once, from the configuration and a request, and passed down by name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from judgekit.judging.kinds import DECIDES, get_model_kind
from judgekit.judging.request import DEFAULT_REQUEST, JudgeRequest
from judgekit.judging.steps import EscalationRules
from judgekit.text import format_count

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
    """Everything that decides how a judge judges.

    A `JudgeRequest` is one caller's request; here, each question it leaves open has an answer. `of` takes it
    from the configuration. `service.judge_settings` adds the models, and a calibration that fits.
    """

    request: JudgeRequest = DEFAULT_REQUEST
    """The caller's request, for options that the configuration doesn't have."""
    loaded_rubric: LoadedRubric
    """The rubric and its file."""
    mode: ModeName

    models_by_tier: Tiers = field(default_factory=dict)
    """The models to ask, tier by tier; empty if there are none."""
    no_model_reason: str = "no model is configured"
    """Why there are no models; otherwise why these."""
    needs_mixed_families: bool = False
    """Whether each tier should have a model of another family."""
    find_other_panels: Others = tuple
    """Finds other providers' panels, whose models may replace the author's family."""
    replacement_providers: frozenset[str] = frozenset()
    """The providers that replaced the author's family."""

    jury: JuryRule = "mean"
    """The rule for combining a tier's opinions."""
    samples: int = 1
    """How often a model is asked the same."""
    criteria: Literal["together", "each"] = "together"
    """Whether a call asks about all criteria, or just one."""
    redact: bool | Literal["refuse"] = True
    """Whether secrets are removed, or a text with one isn't sent."""

    margin: float = 0.0
    """In points: an opinion this near to another outcome goes up a tier."""
    finality: FinalityRules | None = None
    """The opinions that a calibration makes final."""
    calibration_warning: str | None = None
    """Why an existing calibration isn't used."""
    is_promised: bool = False
    """Whether the only tier gives a first opinion, which a promise of agreement may make final."""

    author_family: str | None = None
    """The families that wrote the texts, besides those that the texts name themselves."""
    project_named_families: frozenset[str] = frozenset()
    """Families that only a project names; no other provider is asked in their place."""
    independence: Independence = "prefer"

    timeout: float = 180.0
    """Seconds for one subject."""
    call_timeout: float | None = None
    """Seconds for one call, on top of its tier's own timeout."""
    max_cost_usd: float | None = None
    """US dollars for one subject."""

    @classmethod
    def of(cls, config: JudgeConfig, request: JudgeRequest, loaded: LoadedRubric) -> Self:
        """Build settings without models from the configuration and a request, which takes precedence."""
        max_cost_usd = config.max_cost_usd
        if request.max_cost_usd is not None:
            max_cost_usd = request.max_cost_usd
        return cls(
            request=request,
            loaded_rubric=loaded,
            mode=request.mode or config.mode,
            needs_mixed_families=config.panel == "mixed",
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

    def count_calls_at_once(self, questions: int) -> int:
        """Return the most calls that a tier's model gets at once for one subject."""
        if self.criteria == "each":
            return self.samples * questions
        return self.samples

    def explain_refusal(self, secrets: int) -> str:
        """Explain why a text with `secrets` secrets isn't sent. Return "" if it's sent without them."""
        if self.redact != "refuse" or not secrets:
            return ""
        count = format_count(secrets, "secret was", "secrets were")
        return f"{count} found, and judge.redact is refuse"

    def without_calibration(self, problem: str) -> Self:
        """Drop the calibration (`finality`) because of a problem, and add that to the warning."""
        if self.finality is None:
            return self
        warning = f"calibration {self.finality.id} not used: {problem}"
        if self.calibration_warning:
            warning = f"{warning}; {self.calibration_warning}"
        return replace(self, finality=None, calibration_warning=warning)

    def build_escalation_rules(self, task: Task) -> EscalationRules:
        """Build a task's escalation rules. The caller adds those that depend on the subject."""
        mode_rules = getattr(self.loaded_rubric.rubric.modes, self.mode)
        # Escalation starts at a first tier, even if there are no models.
        tiers = tuple(self.models_by_tier) or ("quick",)
        # The configured margin is a distance from a rubric's thresholds, and only documents have thresholds.
        margin = self.margin if task == "document" else 0.0
        # In the table of escalation, the row about proof doesn't apply to rankings.
        needs_proof = self.mode == "strict" and task != "ranking"
        return EscalationRules(
            outcome_to_confirm=mode_rules.confirm,
            tiers=tiers,
            task=task,
            mode=self.mode,
            models=self.model_names,
            deciding_tiers=self.deciding_tiers,
            finality=self.finality,
            margin=margin,
            needs_proof=needs_proof,
            is_promised=self.is_promised,
            needs_reasons=self.request.explain,
            independence=self.independence,
        )

    @property
    def model_names(self) -> dict[TierName, set[str]]:
        """The names of the models asked, by tier."""
        names = {}
        for tier, models in self.models_by_tier.items():
            names[tier] = {model.model for model in models}
        return names

    @property
    def deciding_tiers(self) -> tuple[TierName, ...]:
        """The tiers with only decision models, which give probabilities without reasons."""
        deciding = []
        for tier, models in self.models_by_tier.items():
            if models and all(get_model_kind(model) is DECIDES for model in models):
                deciding.append(tier)
        return tuple(deciding)
