"""The models that judge a text: the configured ones, but never the author's family alone.

Models favour text by models of their own kind (Panickssery et al. 2024, "LLM Evaluators Recognize and Favor
Their Own Generations", arXiv:2404.13076).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.config import TIERS, TierName, settings
from judgekit.judging import documents
from judgekit.providers.proxies import fill_in_family
from judgekit.providers.registry import UNKNOWN_FAMILY, family_by_name
from judgekit.providers.resolve import (
    Others,
    PanelRequest,
    Tiers,
    Variables,
    get_nearest_models,
    resolve,
)
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from judgekit.config.settings import Config
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint

_AGENTS: dict[str, list[str]] = environment.read_toml(__file__, "agents.toml")
# The keys of trailers that name writers, rather than reviewers or testers
_WRITER_KEY = re.compile(
    r"(?i:(?:co-)?(?:authored|written|created|generated|made|assisted)-(?:by|with)):\s*"
)


def families_of_writers(people: Iterable[str], trailers: Iterable[str] = ()) -> tuple[str, ...]:
    """List the model families of the agents that wrote a change.

    `people` are given as `Name <address>`. `trailers` are lines from the end of the commit message, of which
    those that name a writer count, such as `Co-authored-by: Name <address>`.
    """
    writers = list(people)
    for trailer in trailers:
        key = _WRITER_KEY.match(trailer)
        if key:
            writers.append(trailer[key.end() :])

    families: dict[str, None] = {}  # an ordered set
    for writer in writers:
        family = _find_agent_family(writer.strip().casefold())
        if family is not None:
            families[family] = None
    return tuple(families)


def _find_agent_family(writer: str) -> str | None:
    """Return the model family of a commit's author, given as `name <address>` in lower case.

    Return None for a person.
    """
    for family, patterns in _AGENTS.items():
        is_agent = any(re.match(pattern, writer) for pattern in patterns)
        if is_agent and family == UNKNOWN_FAMILY:
            # Some agents use models of different families, but may have the model in their name.
            name, _, _ = writer.partition(" <")
            return family_by_name(name)
        if is_agent:
            return family
    return None


def replace_families(
    panel: Tiers, author_families: Collection[str], others: Others = tuple, *, mixed: bool = False
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Replace each tier's models of the author's families, without increasing the number of models.

    Replacements come from the same tier, from the panel's other tiers, or from other providers' panels, which
    `others` returns. A `mixed` panel prefers other providers to other tiers. Without a replacement, a tier's
    models stay.
    """
    unfit_families = {*author_families, UNKNOWN_FAMILY}
    of_other_families = _drop_families(panel, set(author_families) - {UNKNOWN_FAMILY})
    of_known_families = _drop_families(panel, unfit_families)
    models_by_tier = dict(panel)
    for tier, models in panel.items():
        # First, try the tier's models of other families.
        replacements = of_other_families[tier]
        if mixed and not replacements:
            # Prefer families that aren't in the panel yet.
            families_on_panel = _list_families(models_by_tier)
            replacements = _pick_from_others(tier, others, {*unfit_families, *families_on_panel})
            replacements = replacements or _pick_from_others(tier, others, unfit_families)
        if not replacements:
            replacements = (
                get_nearest_models(tier, of_known_families)
                or _pick_from_others(tier, others, unfit_families)
                or get_nearest_models(tier, of_other_families)  # even of unknown families
                or models
            )
        models_by_tier[tier] = replacements[: len(models)]
    return models_by_tier


def fill_in_families(models_by_tier: Tiers) -> dict[TierName, tuple[Endpoint, ...]]:
    """Fill in the families of models behind a proxy, by asking the proxy."""
    filled_in = {}
    for tier, models in models_by_tier.items():
        filled_in[tier] = tuple(fill_in_family(model) for model in models)
    return filled_in


def drop_author_families(
    settings: JudgeSettings, author_families: Sequence[str], families_of_some_texts: Sequence[str]
) -> JudgeSettings:
    """Return settings without models of the subject's author families, as far as there are other models.

    `families_of_some_texts` are families that wrote only some of the compared texts, and could favour these.
    """
    if not author_families:
        return settings
    panel_before = fill_in_families(settings.models_by_tier)
    panel = _replace_with_settings(settings, panel_before, author_families)
    panel = _replace_with_settings(settings, panel, families_of_some_texts)

    # A calibration (`finality`) is only valid for the models that it was made with.
    finality = settings.finality
    warning = settings.calibration_warning
    if finality is not None and _list_names(panel) != _list_names(panel_before):
        families_gone = _list_families(panel_before).keys() - _list_families(panel).keys()
        authors = dict.fromkeys([*author_families, *families_of_some_texts])
        authors_gone = ", ".join(family for family in authors if family in families_gone)
        reason = f"{authors_gone} wrote this text, so other models judge it"
        misfit = f"calibration {finality.id} not used: {reason}"
        finality = None
        warning = "; ".join(filter(None, (misfit, warning)))
    return replace(
        settings,
        models_by_tier=panel,
        finality=finality,
        calibration_warning=warning,
        replacement_providers=_list_providers(panel) - _list_providers(panel_before),
    )


def _replace_with_settings(
    settings: JudgeSettings, models_by_tier: Tiers, families: Sequence[str]
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Replace the models of the given families, but only use other providers if the settings allow it."""
    # Families named by the user can be replaced with models of other providers. If only the project names a
    # family, that must not cause texts to be sent to another provider.
    families_named_by_user = set(families) - settings.project_named_families
    panel = replace_families(
        models_by_tier, families_named_by_user, settings.others, mixed=settings.is_mixed
    )
    # The project's families can only be replaced with models of other tiers.
    return replace_families(panel, families)


def _list_names(models_by_tier: Tiers) -> list[list[str]]:
    return [[model.model for model in models] for models in models_by_tier.values()]


def _list_providers(models_by_tier: Tiers) -> frozenset[str]:
    return frozenset(
        model.profile.provider for models in models_by_tier.values() for model in models
    )


def _pick_from_others(
    tier: TierName, others: Others, unfit: Collection[str]
) -> tuple[Endpoint, ...]:
    """Return the models nearest to a tier from the first other panel with models of other families, or ()."""
    for panel in others():
        models = get_nearest_models(tier, _drop_families(panel, unfit))
        if models:
            return models
    return ()


def _list_families(panel: Tiers) -> dict[str, None]:
    return dict.fromkeys(endpoint.family for models in panel.values() for endpoint in models)


def pick_model_per_family(
    panel: Tiers, others: Others = tuple, author_families: Collection[str] = ()
) -> tuple[Endpoint, ...]:
    """Pick a model from each known family except for the author's, at most as many as there are tiers.

    Models of `panel` take precedence over models of other providers' panels, which `others` returns.
    """
    tier_order: tuple[TierName, ...] = ("deep", "tiebreaker", "quick")  # by preference
    unfit_families = {*author_families, UNKNOWN_FAMILY}
    model_by_family: dict[str, Endpoint] = {}
    for models_by_tier in (panel, *others()):
        for tier in tier_order:
            for model in models_by_tier.get(tier, ()):
                has_room = len(model_by_family) < len(TIERS)
                if has_room and model.family not in unfit_families:
                    model_by_family.setdefault(model.family, model)
    return tuple(model_by_family.values())


def _drop_families(panel: Tiers, families: Collection[str]) -> Tiers:
    """Drop the models of these families."""
    models_by_tier = {}
    for tier, models in panel.items():
        models_by_tier[tier] = tuple(model for model in models if model.family not in families)
    return models_by_tier


_ADDRESS = "JUDGEKIT_API_BASE"
ONLY_MODEL = "JUDGEKIT_ONLY_MODEL"  # set by --model, to pass it on to the engine
_VARIABLES = (ONLY_MODEL, "JUDGEKIT_MODEL", *(f"JUDGEKIT_{tier.upper()}_MODEL" for tier in TIERS))


def requested_panel(
    config: Config,
    project: Path | None = None,
    environ: Variables | None = None,
    model: str | None = None,
) -> PanelRequest:
    """Collect the user's choice of models, for `resolve`.

    The choice comes from `model`, from environment variables, or from the configuration, in this order.
    """
    if environ is None:
        environ = environment.environ()
    allow = config.providers.allow
    order = config.providers.order
    names_by_tier: dict[TierName, list[str] | None] = {}

    only_model = model or environ.get(ONLY_MODEL, "").strip()
    if only_model:
        for tier in TIERS:
            names_by_tier[tier] = [encodable(only_model)]
        return PanelRequest(names_by_tier, allow, order, by="named by --model")

    # If variables name the models, leave the choice empty, because `resolve` reads these variables.
    if any(environ.get(name, "").strip() for name in _VARIABLES):
        return PanelRequest({}, allow, order)

    projects_tiers = settings.list_project_chosen_tiers(project)
    if projects_tiers and environ.get(_ADDRESS, "").strip():
        # If the user has set the server's address, only the user may choose the models.
        config = settings.load(None, environ)
        projects_tiers = frozenset()
    for tier in TIERS:
        names_by_tier[tier] = getattr(config.judge.tiers, tier)
    return PanelRequest(
        names_by_tier, allow, order, listed_only=projects_tiers, mixed=config.judge.panel == "mixed"
    )


def resolve_panel(
    config: Config, project: Path | None = None, environ: Variables | None = None
) -> tuple[dict[TierName, tuple[Endpoint, ...]], str]:
    """Return each tier's models, and a line that describes them or explains why there are none."""
    if environ is None:
        environ = environment.environ()
    panel = resolve(requested_panel(config, project, environ), environ)
    return panel.endpoints, panel.reason


def by_author(config: Config, project: Path | None = None) -> Iterator[tuple[str, Tiers]]:
    """Yield each possible author family and the models that would judge. The first is unknown ("")."""
    resolved = resolve(requested_panel(config, project), environment.environ())
    yield "", resolved.endpoints
    panel = fill_in_families(resolved.endpoints)
    is_mixed = config.judge.panel == "mixed"
    for family in _list_families(panel):
        if family != UNKNOWN_FAMILY:
            yield family, replace_families(panel, [family], resolved.others, mixed=is_mixed)


def project_named_families(
    config: Config, project: Path | None = None, model: str | None = None
) -> frozenset[str]:
    """List the author families that only the project names. Empty unless the user has chosen the models.

    Models of an author family don't judge, so other models replace them. A project must not use that to send
    texts to providers that the user hasn't chosen.
    """
    environ = environment.environ()
    has_chosen_models = model is not None
    if any(environ.get(name, "").strip() for name in (_ADDRESS, *_VARIABLES)):
        has_chosen_models = True
    users_config = settings.load(None)
    if project is None or not (has_chosen_models or settings.names_models(users_config)):
        return frozenset()
    families = documents.named(config.judge.author_family)
    users_families = documents.named(users_config.judge.author_family)
    return frozenset(families) - frozenset(users_families)
