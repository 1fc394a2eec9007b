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
from judgekit.providers.registry import UNKNOWN_FAMILY, guess_family
from judgekit.providers.resolve import (
    Others,
    PanelRequest,
    Tiers,
    Variables,
    get_nearest_models,
    resolve,
)
from judgekit.text import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from judgekit.config.settings import Config
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint

_AGENT_PATTERNS_BY_FAMILY: dict[str, list[str]] = environment.read_toml(__file__, "agents.toml")
# The keys of trailers that name writers, rather than reviewers or testers
_WRITER_KEY_PATTERN = re.compile(
    r"(?i:(?:co-)?(?:authored|written|created|generated|made|assisted)-(?:by|with)):\s*"
)


def list_writer_families(people: Iterable[str], trailers: Iterable[str] = ()) -> tuple[str, ...]:
    """List the model families of the agents that wrote a change.

    `people` are given as `Name <address>`. `trailers` are lines from the end of the commit message. Some of
    them name further writers, such as `Co-authored-by: Name <address>`.
    """
    writers = [*people, *_find_trailer_writers(trailers)]
    families: list[str] = []
    for writer in writers:
        family = _find_agent_family(writer.strip().casefold())
        if family is not None:
            families.append(family)
    return tuple(dict.fromkeys(families))  # without duplicates, in order


def _find_trailer_writers(trailers: Iterable[str]) -> list[str]:
    """Find the writers in a commit message's trailers, as `Name <address>`."""
    writers = []
    for trailer in trailers:
        key = _WRITER_KEY_PATTERN.match(trailer)
        if key:
            writers.append(trailer[key.end() :])
    return writers


def _find_agent_family(writer: str) -> str | None:
    """Return the model family of a commit's author, given as `name <address>` in lower case.

    Return None for a person.
    """
    for family, patterns in _AGENT_PATTERNS_BY_FAMILY.items():
        is_agent = any(re.match(pattern, writer) for pattern in patterns)
        if is_agent and family == UNKNOWN_FAMILY:
            # Some agents use models of different families, but may have the model in their name.
            name, _, _ = writer.partition(" <")
            return guess_family(name)
        if is_agent:
            return family
    return None


def replace_families(
    panel: Tiers, author_families: Collection[str], others: Others = tuple, *, mixed: bool = False
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Replace each tier's models of the author's families, without increasing the number of models.

    `others` returns the panels of other providers, by default none. Without a replacement, a tier's models
    stay.
    """
    # A model of an unknown family could be the author's, so another tier's is only taken as a last resort.
    unfit_families = {*author_families, UNKNOWN_FAMILY}
    panel_of_fit_families = _drop_families(panel, unfit_families)
    known_author_families = [family for family in author_families if family != UNKNOWN_FAMILY]
    panel_without_authors = _drop_families(panel, known_author_families)

    new_panel = dict(panel)
    for tier, models in panel.items():
        replacements = panel_without_authors[tier]
        if mixed and not replacements:
            # A mixed panel prefers other providers to its own other tiers.
            replacements = _pick_for_mixed_panel(tier, new_panel, others, unfit_families)
        replacements = (
            replacements
            or get_nearest_models(tier, panel_of_fit_families)
            or _pick_from_others(tier, others, unfit_families)
            or get_nearest_models(tier, panel_without_authors)
            or models
        )
        new_panel[tier] = replacements[: len(models)]
    return new_panel


def _pick_for_mixed_panel(
    tier: TierName, panel: Tiers, others: Others, unfit_families: Collection[str]
) -> tuple[Endpoint, ...]:
    """Pick other providers' models for a tier, preferably of families that aren't in the panel yet."""
    families_on_panel = _list_families(panel)
    new_models = _pick_from_others(tier, others, {*unfit_families, *families_on_panel})
    return new_models or _pick_from_others(tier, others, unfit_families)


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

    `families_of_some_texts` are those of the author families that wrote only some of the compared texts.
    """
    if not author_families:
        return settings
    old_panel = fill_in_families(settings.models_by_tier)
    new_panel = _replace_with_settings(settings, old_panel, author_families)
    # If the models of all authors can't be replaced, at least replace those that could favour a text.
    new_panel = _replace_with_settings(settings, new_panel, families_of_some_texts)
    new_settings = replace(
        settings,
        models_by_tier=new_panel,
        replacement_providers=_list_providers(new_panel) - _list_providers(old_panel),
    )

    has_same_models = _list_names(new_panel) == _list_names(old_panel)
    if has_same_models:
        return new_settings
    # A calibration is only valid for the models that it was made with.
    all_authors = [*author_families, *families_of_some_texts]
    replaced_authors = _list_replaced_authors(all_authors, old_panel, new_panel)
    problem = f"{', '.join(replaced_authors)} wrote this text, so other models judge it"
    return new_settings.without_calibration(problem)


def _list_replaced_authors(
    author_families: Sequence[str], old_panel: Tiers, new_panel: Tiers
) -> list[str]:
    """List the author families that were in the old panel, but aren't in the new one."""
    old_families = _list_families(old_panel)
    new_families = _list_families(new_panel)
    replaced = []
    for author_family in dict.fromkeys(author_families):  # without duplicates
        if author_family in old_families and author_family not in new_families:
            replaced.append(author_family)
    return replaced


def _replace_with_settings(
    settings: JudgeSettings, models_by_tier: Tiers, families: Sequence[str]
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Replace the models of the given families, which wrote the text, by models of other families.

    If only the project names a family, its models aren't replaced with those of other providers.
    """
    families_named_by_user = set(families) - settings.project_named_families
    panel = replace_families(
        models_by_tier,
        families_named_by_user,
        settings.find_other_panels,
        mixed=settings.needs_mixed_families,
    )
    # A project must not send texts to another provider by naming a family. So the models of its families are
    # replaced without `others`, from other tiers of the same panel.
    return replace_families(panel, families)


def _list_names(models_by_tier: Tiers) -> list[list[str]]:
    return [[model.model for model in models] for models in models_by_tier.values()]


def _list_providers(models_by_tier: Tiers) -> frozenset[str]:
    return frozenset(
        model.profile.provider for models in models_by_tier.values() for model in models
    )


def _pick_from_others(
    tier: TierName, others: Others, unfit_families: Collection[str]
) -> tuple[Endpoint, ...]:
    """Pick the models nearest to a tier from another provider's panel, except for unfit families.

    The first panel with such models is used. Returns () if there's none.
    """
    for panel in others():
        fit_panel = _drop_families(panel, unfit_families)
        models = get_nearest_models(tier, fit_panel)
        if models:
            return models
    return ()


def _list_families(panel: Tiers) -> list[str]:
    """List the families of a panel's models, without duplicates."""
    families = [endpoint.family for models in panel.values() for endpoint in models]
    return list(dict.fromkeys(families))


def pick_model_per_family(
    panel: Tiers, others: Others = tuple, author_families: Collection[str] = ()
) -> tuple[Endpoint, ...]:
    """Pick a model from each known family except for the author's, at most as many as there are tiers.

    Models of `panel` take precedence over models of other providers' panels, which `others` returns.
    """
    models: list[Endpoint] = []
    for models_by_tier in (panel, *others()):
        models += _list_by_preference(models_by_tier)

    unfit_families = {*author_families, UNKNOWN_FAMILY}
    model_by_family: dict[str, Endpoint] = {}
    for model in models:
        if model.family not in unfit_families:
            model_by_family.setdefault(model.family, model)  # keeps the family's first model
    picked_models = tuple(model_by_family.values())
    return picked_models[: len(TIERS)]


def _list_by_preference(models_by_tier: Tiers) -> list[Endpoint]:
    """List a panel's models: those of the deep tier, then of the tiebreaker, then of the quick tier."""
    tier_order: tuple[TierName, ...] = ("deep", "tiebreaker", "quick")
    models: list[Endpoint] = []
    for tier in tier_order:
        models += models_by_tier.get(tier, ())
    return models


def _drop_families(panel: Tiers, families: Collection[str]) -> Tiers:
    """Drop the models of these families."""
    models_by_tier = {}
    for tier, models in panel.items():
        models_by_tier[tier] = tuple(model for model in models if model.family not in families)
    return models_by_tier


_ADDRESS_VARIABLE = "JUDGEKIT_API_BASE"
ONLY_MODEL = "JUDGEKIT_ONLY_MODEL"  # set by --model, to pass it on to the engine
_MODEL_VARIABLES = (
    ONLY_MODEL,
    "JUDGEKIT_MODEL",
    *(f"JUDGEKIT_{tier.upper()}_MODEL" for tier in TIERS),
)


def collect_panel_request(
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

    # The engine gets the model of `--model` in this variable.
    only_model = model or environ.get(ONLY_MODEL, "").strip()
    if only_model:
        name = replace_surrogates(only_model)  # it can have bytes that aren't valid text
        names_by_tier: dict[TierName, list[str] | None] = {tier: [name] for tier in TIERS}
        return PanelRequest(names_by_tier, allow, order, models_named_by="named by --model")

    has_model_variables = any(environ.get(name, "").strip() for name in _MODEL_VARIABLES)
    if has_model_variables:
        return PanelRequest({}, allow, order)  # `resolve` reads these variables itself
    return _request_configured_panel(config, project, environ)


def _request_configured_panel(
    config: Config, project: Path | None, environ: Variables
) -> PanelRequest:
    """Request the models that the configuration names.

    On the user's own server, only the user may choose the models, so the project's choice is ignored.
    """
    project_tiers = settings.list_project_chosen_tiers(project)
    has_own_server = bool(environ.get(_ADDRESS_VARIABLE, "").strip())
    if project_tiers and has_own_server:
        model_config = settings.load(None, environ)  # without the project's configuration
        project_tiers = frozenset()
    else:
        model_config = config

    tiers = model_config.judge.tiers
    return PanelRequest(
        {tier: getattr(tiers, tier) for tier in TIERS},
        # A project can't set these two, so they're always the user's.
        config.providers.allow,
        config.providers.order,
        project_named_tiers=project_tiers,
        needs_mixed_families=model_config.judge.panel == "mixed",
    )


def resolve_panel(
    config: Config, project: Path | None = None, environ: Variables | None = None
) -> tuple[dict[TierName, tuple[Endpoint, ...]], str]:
    """Return each tier's models, and a line that describes them or explains why there are none."""
    if environ is None:
        environ = environment.environ()
    panel = resolve(collect_panel_request(config, project, environ), environ)
    return panel.endpoints, panel.reason


def list_tiers_by_author(
    config: Config, project: Path | None = None
) -> Iterator[tuple[str, Tiers]]:
    """Yield pairs of an author family and the models that would judge its texts.

    The first pair is for texts of unknown authors, with "" as the family.
    """
    resolved = resolve(collect_panel_request(config, project), environment.environ())
    yield "", resolved.endpoints

    # This asks proxies for their models' families, and the first pair doesn't need to wait for it.
    panel = fill_in_families(resolved.endpoints)
    is_mixed = config.judge.panel == "mixed"
    for family in _list_families(panel):
        if family != UNKNOWN_FAMILY:
            yield (
                family,
                replace_families(panel, [family], resolved.find_other_panels, mixed=is_mixed),
            )


def project_named_families(
    config: Config, project: Path | None = None, model: str | None = None
) -> frozenset[str]:
    """List the author families that the project names and the user doesn't.

    The result is empty if the user hasn't chosen the models.
    """
    users_config = settings.load(None)
    if project is None:
        return frozenset()
    # Models of an author family are replaced. If the user has chosen them, a project must not have texts sent
    # to other providers by naming the family. Otherwise, any provider will do.
    if not _has_user_chosen_models(users_config, model):
        return frozenset()
    families = documents.parse_families(config.judge.author_family)
    users_families = documents.parse_families(users_config.judge.author_family)
    return frozenset(families) - frozenset(users_families)


def _has_user_chosen_models(users_config: Config, model: str | None) -> bool:
    """Whether the user names models by argument, environment variable or configuration."""
    if model is not None:
        return True
    environ = environment.environ()
    if any(environ.get(name, "").strip() for name in (_ADDRESS_VARIABLE, *_MODEL_VARIABLES)):
        return True
    return settings.has_named_models(users_config)
