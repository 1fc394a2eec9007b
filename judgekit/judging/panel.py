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
from judgekit.providers.proxies import with_family
from judgekit.providers.registry import UNKNOWN_FAMILY, family_by_name
from judgekit.providers.resolve import Others, PanelRequest, Tiers, Variables, nearest, resolve
from judgekit.text import encodable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from judgekit.config.settings import Config
    from judgekit.judging.settings import JudgeSettings
    from judgekit.providers.base import Endpoint

_AGENTS: dict[str, list[str]] = environment.table(__file__, "agents.toml")
# Trailers of people who helped to write; reviewers and testers didn't.
_WROTE = re.compile(
    r"(?i:(?:co-)?(?:authored|written|created|generated|made|assisted)-(?:by|with)):\s*"
)


def families_of_writers(people: Iterable[str], trailers: Iterable[str] = ()) -> tuple[str, ...]:
    """List the model families of the agents that wrote a change.

    Agents are looked for in `people` (`Name <address>`), and in those of the commit's `trailers` that name
    writers, such as `Co-authored-by`.
    """
    writers = list(people)
    for trailer in trailers:
        key = _WROTE.match(trailer)
        if key:
            writers.append(trailer[key.end() :])

    families: dict[str, None] = {}  # each once, in order
    for writer in writers:
        family = _find_family_of_agent(writer.strip().casefold())
        if family is not None:
            families[family] = None
    return tuple(families)


def _find_family_of_agent(writer: str) -> str | None:
    """Return the model family of an agent, by its `name <address>` in lower case; None for a person."""
    for family, patterns in _AGENTS.items():
        is_agent = any(re.match(pattern, writer) for pattern in patterns)
        if is_agent and family == UNKNOWN_FAMILY:
            # An agent that works with several families may have a model in its name.
            name, _, _ = writer.partition(" <")
            return family_by_name(name)
        if is_agent:
            return family
    return None


def replace_families(
    panel: Tiers, author_families: Collection[str], others: Others = tuple, *, mixed: bool = False
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Choose each tier's models to judge a text, at most as many as before.

    These come into question, and the first that exist are chosen: the tier's own models that aren't of the
    author's families, then the nearest tier's models of other known families, models of `others`, the
    nearest tier's models even of unknown families, and last the original models. In a `mixed` panel,
    `others` come second, and a family that the panel lacks comes first among them.
    """
    unfit_families = {*author_families, UNKNOWN_FAMILY}
    of_other_families = _drop_families(panel, set(author_families) - {UNKNOWN_FAMILY})
    of_known_families = _drop_families(panel, unfit_families)
    models_by_tier = dict(panel)
    for tier, models in panel.items():
        replacements = of_other_families[tier]
        if mixed and not replacements:
            # Families that tiers before this one were given count as there, too.
            families_on_panel = _list_families(models_by_tier)
            replacements = _pick_from_others(tier, others, {*unfit_families, *families_on_panel})
            replacements = replacements or _pick_from_others(tier, others, unfit_families)
        if not replacements:
            replacements = (
                nearest(tier, of_known_families)
                or _pick_from_others(tier, others, unfit_families)
                or nearest(tier, of_other_families)
                or models
            )
        models_by_tier[tier] = replacements[: len(models)]
    return models_by_tier


def with_families(models_by_tier: Tiers) -> dict[TierName, tuple[Endpoint, ...]]:
    """Fill in the families of models behind a proxy. Only the proxy knows these families."""
    panel = {}
    for tier, models in models_by_tier.items():
        panel[tier] = tuple(with_family(model) for model in models)
    return panel


def without_authors(
    settings: JudgeSettings, author_families: Sequence[str], families_of_some_texts: Sequence[str]
) -> JudgeSettings:
    """Drop the models of a subject's `author_families` from the settings, if others are available.

    `families_of_some_texts` wrote only some of several texts, and would favour those.
    """
    if not author_families:
        return settings
    panel_before = with_families(settings.models_by_tier)
    panel = _replace_families_of(settings, panel_before, author_families)
    panel = _replace_families_of(settings, panel, families_of_some_texts)

    finality = settings.finality
    warning = settings.calibration_warning
    if finality is not None and _list_names(panel) != _list_names(panel_before):
        families_gone = _list_families(panel_before).keys() - _list_families(panel).keys()
        authors = dict.fromkeys([*author_families, *families_of_some_texts])  # each once
        authors_gone = ", ".join(family for family in authors if family in families_gone)
        reason = f"{authors_gone} wrote this text, so other models judge it"
        misfit = f"calibration {finality.id} not used: {reason}"
        # A calibration only holds for the models it was learned from.
        finality = None
        warning = "; ".join(filter(None, (misfit, warning)))
    return replace(
        settings,
        models_by_tier=panel,
        finality=finality,
        calibration_warning=warning,
        replacement_providers=_list_providers(panel) - _list_providers(panel_before),
    )


def _replace_families_of(
    settings: JudgeSettings, models_by_tier: Tiers, families: Sequence[str]
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Replace each tier's models that are of these families, if others can take their places."""
    # No other provider gets a text because of a family that only a project names.
    may_go_elsewhere = set(families) - settings.project_named_families
    others = settings.others
    panel = replace_families(models_by_tier, may_go_elsewhere, others, mixed=settings.is_mixed)
    # All of the families, now without other providers: only other tiers' models take their places.
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
    """Return the models nearest to a tier, from the first of the other panels that has fit families.

    Empty if there's no such panel.
    """
    for panel in others():
        models = nearest(tier, _drop_families(panel, unfit))
        if models:
            return models
    return ()


def _list_families(panel: Tiers) -> dict[str, None]:
    return dict.fromkeys(endpoint.family for models in panel.values() for endpoint in models)


def model_of_each_family(
    panel: Tiers, others: Others = tuple, author_families: Collection[str] = ()
) -> tuple[Endpoint, ...]:
    """Pick one model of each known family that isn't the author's, at most as many as there are tiers.

    The panel's own models come first, and those of `others` last. Among a panel's models, those of the deep
    tier come first.
    """
    tier_order: tuple[TierName, ...] = ("deep", "tiebreaker", "quick")
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
    """Keep each tier's models that aren't of these families."""
    models_by_tier = {}
    for tier, models in panel.items():
        models_by_tier[tier] = tuple(model for model in models if model.family not in families)
    return models_by_tier


_ADDRESS = "JUDGEKIT_API_BASE"
ONLY_MODEL = "JUDGEKIT_ONLY_MODEL"  # set by --model, so that the engine gets it too
_VARIABLES = (ONLY_MODEL, "JUDGEKIT_MODEL", *(f"JUDGEKIT_{tier.upper()}_MODEL" for tier in TIERS))


def requested_panel(
    config: Config,
    project: Path | None = None,
    environ: Variables | None = None,
    model: str | None = None,
) -> PanelRequest:
    """Collect the names of the models that the user wants to judge, for `resolve` to find them.

    The `model` of a call comes before variables, and variables come before files.
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

    # `resolve` reads these variables itself.
    if any(environ.get(name, "").strip() for name in _VARIABLES):
        return PanelRequest({}, allow, order)

    projects_tiers = settings.list_tiers_of_project(project)
    if projects_tiers and environ.get(_ADDRESS, "").strip():
        # Only the user may name the models at an address the user set.
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
    """Find each tier's models. Also returns a line about them, or about why there are none."""
    if environ is None:
        environ = environment.environ()
    panel = resolve(requested_panel(config, project, environ), environ)
    return panel.endpoints, panel.reason


def by_author(config: Config, project: Path | None = None) -> Iterator[tuple[str, Tiers]]:
    """Yield the models that judge, by the family of the author.

    The first are those for an unknown family (""). Each family on the panel follows.
    """
    resolved = resolve(requested_panel(config, project), environment.environ())
    yield "", resolved.endpoints
    panel = with_families(resolved.endpoints)
    is_mixed = config.judge.panel == "mixed"
    for family in _list_families(panel):
        if family != UNKNOWN_FAMILY:
            yield family, replace_families(panel, [family], resolved.others, mixed=is_mixed)


def project_named_families(
    config: Config, project: Path | None = None, model: str | None = None
) -> frozenset[str]:
    """List the families that only a project names. They don't let texts go to other providers."""
    environ = environment.environ()
    is_asked = model is not None
    if any(environ.get(name, "").strip() for name in (_ADDRESS, *_VARIABLES)):
        is_asked = True
    users_config = settings.load(None)
    if project is None or not (is_asked or settings.names_models(users_config)):
        return frozenset()
    families = documents.named(config.judge.author_family)
    users_families = documents.named(users_config.judge.author_family)
    return frozenset(families) - frozenset(users_families)
