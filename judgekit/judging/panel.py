"""Which models judge a text: those that are configured, and never the author's family alone.

Models favour what models of their own kind wrote (Panickssery et al. 2024, "LLM Evaluators Recognize and
Favor Their Own Generations", arXiv:2404.13076).
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
    from judgekit.judging.settings import Independence, JudgeSettings
    from judgekit.providers.base import Endpoint

_AGENTS: dict[str, list[str]] = environment.table(__file__, "agents.toml")
# Who helped to write; a reviewer or a tester did not.
_WROTE = re.compile(
    r"(?i:(?:co-)?(?:authored|written|created|generated|made|assisted)-(?:by|with)):\s*"
)


def signed(people: Iterable[str], trailers: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the families of the agents among `people` (`Name <address>`) and the writers in `trailers`."""
    helped = []
    for line in trailers:
        if key := _WROTE.match(line):
            helped.append(line[key.end() :])
    found = {}
    for person in (*people, *helped):
        text = person.strip().casefold()
        for family, patterns in _AGENTS.items():
            if any(re.match(pattern, text) for pattern in patterns):
                if family == UNKNOWN_FAMILY:
                    known = family_by_name(text.partition(" <")[0])
                else:
                    known = family
                found[known] = known
                break
    return tuple(found)


def apart(
    panel: Tiers, wrote: Collection[str], others: Others = tuple, *, mixed: bool = False
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return the models that judge what `wrote` wrote: other families, the nearest tier, then `others`.

    Where the panel is `mixed`, `others` go first, and of these a family that it lacks.
    """
    unfit = {*wrote, UNKNOWN_FAMILY}
    strangers = _but(panel, set(wrote) - {UNKNOWN_FAMILY})
    known = _but(panel, unfit)
    apart = dict(panel)
    for tier, jury in panel.items():
        endpoints = strangers[tier]
        if mixed and not endpoints:
            fresh = {*unfit, *_families(apart)}
            endpoints = _of_others(tier, others, fresh) or _of_others(tier, others, unfit)
        endpoints = endpoints or nearest(tier, known) or _of_others(tier, others, unfit)
        apart[tier] = (endpoints or nearest(tier, strangers))[: len(jury)] or jury
    return apart


def without_authors(
    settings: JudgeSettings, wrote: Sequence[str], wrote_some: Sequence[str]
) -> JudgeSettings:
    """Return the settings without models of the families that `wrote` a subject, where others are there.

    Of several texts some families `wrote_some`, and would favour these.
    """
    if not wrote:
        return settings
    before = {}
    for tier, models in settings.models_by_tier.items():
        before[tier] = tuple(map(with_family, models))
    models_by_tier = _replaced(settings, before, wrote)
    models_by_tier = _replaced(settings, models_by_tier, wrote_some)
    finality = settings.finality
    warning = settings.calibration_warning
    if finality is not None and _names(models_by_tier) != _names(before):
        gone = _families(before).keys() - _families(models_by_tier).keys()
        authors = dict.fromkeys([*wrote, *wrote_some])
        left = ", ".join(family for family in authors if family in gone)
        why = (
            f"calibration {finality.id} not used: {left} wrote this text, so other models judge it"
        )
        # A calibration holds only for the models that it was learned for.
        finality = None
        warning = "; ".join(filter(None, (why, warning)))
    return replace(
        settings,
        models_by_tier=models_by_tier,
        finality=finality,
        calibration_warning=warning,
        replacement_providers=_providers(models_by_tier) - _providers(before),
    )


def _replaced(
    settings: JudgeSettings, models_by_tier: Tiers, families: Sequence[str]
) -> dict[TierName, tuple[Endpoint, ...]]:
    """Return the models of each tier without those of some families, where others can take their places."""
    # For a family that only a project names, no other provider is sent anything.
    replaceable = set(families) - settings.project_named_families
    others = settings.others
    models_by_tier = apart(models_by_tier, replaceable, others, mixed=settings.is_mixed)
    return apart(models_by_tier, families)


def _names(models_by_tier: Tiers) -> list[list[str]]:
    return [[model.model for model in models] for models in models_by_tier.values()]


def _providers(models_by_tier: Tiers) -> frozenset[str]:
    return frozenset(
        model.profile.provider for models in models_by_tier.values() for model in models
    )


def _of_others(tier: TierName, others: Others, unfit: Collection[str]) -> tuple[Endpoint, ...]:
    panels = (_but(other, unfit) for other in others())
    return next((found for panel in panels if (found := nearest(tier, panel))), ())


def _families(panel: Tiers) -> dict[str, None]:
    return dict.fromkeys(endpoint.family for jury in panel.values() for endpoint in jury)


def voices(
    panel: Tiers, others: Others = tuple, wrote: Collection[str] = ()
) -> tuple[Endpoint, ...]:
    """Return a model of each known family, up to one a tier: of the deep tier if it can be, then `others`."""
    found: dict[str, Endpoint] = {}
    for tiers in (panel, *others()):
        for endpoint in (
            own for tier in ("deep", "tiebreaker", "quick") for own in tiers.get(tier, ())
        ):
            if len(found) < len(TIERS) and endpoint.family not in (*wrote, UNKNOWN_FAMILY):
                found.setdefault(endpoint.family, endpoint)
    return tuple(found.values())


def _but(panel: Tiers, families: Collection[str]) -> Tiers:
    return {
        tier: tuple(own for own in jury if own.family not in families)
        for tier, jury in panel.items()
    }


def is_independent(wrote: Collection[str], judged: Collection[str]) -> bool | None:
    """Whether another family than the author's is among those behind the outcome; None if it is not known."""
    known = set(wrote) - {UNKNOWN_FAMILY}
    if not known or not judged:
        return None
    if set(judged) <= known:
        return False
    strangers = set(judged) - known - {UNKNOWN_FAMILY}
    return True if strangers and UNKNOWN_FAMILY not in wrote else None


def lacking(
    independence: Independence, wrote: Sequence[str], judged: Collection[str]
) -> str | None:
    """Say in one line why an acceptance by `judged` may not stand; None where it may."""
    if independence == "prefer" or not wrote or is_independent(wrote, judged):
        return None
    return (
        f"accepted only by models of the author's family ({', '.join(wrote)}) or of an unknown one, but "
        "judge.independence is require; judgekit provider list shows the usable models, and families in "
        "a provider's profile names their families"
    )


_ADDRESS = "JUDGEKIT_API_BASE"
ONLY_MODEL = "JUDGEKIT_ONLY_MODEL"  # what --model sets: the engine is told of it, too
_VARIABLES = (ONLY_MODEL, "JUDGEKIT_MODEL", *(f"JUDGEKIT_{tier.upper()}_MODEL" for tier in TIERS))


def wanted(
    config: Config,
    project: Path | None = None,
    environ: Variables | None = None,
    model: str | None = None,
) -> PanelRequest:
    """Return which models are asked for: a request's `model` goes before variables, these before files."""
    if environ is None:
        environ = environment.environ()
    model = model or environ.get(ONLY_MODEL, "").strip() or None
    allow = config.providers.allow
    order = config.providers.order
    if model is not None:
        return PanelRequest(
            {tier: [encodable(model)] for tier in TIERS}, allow, order, by="named by --model"
        )
    if any(environ.get(name, "").strip() for name in _VARIABLES):
        return PanelRequest({}, allow, order)
    theirs = settings.tiers_of_project(project)
    if theirs and environ.get(_ADDRESS, "").strip():
        config = settings.load(None, environ)
        theirs = frozenset()
    named: dict[TierName, list[str] | None] = {}
    for tier in TIERS:
        named[tier] = getattr(config.judge.tiers, tier)
    return PanelRequest(
        named, allow, order, listed_only=theirs, mixed=config.judge.panel == "mixed"
    )


def resolve_panel(
    config: Config, project: Path | None = None, environ: Variables | None = None
) -> tuple[dict[TierName, tuple[Endpoint, ...]], str]:
    """Return the models of each tier, and why these or none, in one line."""
    panel = resolve(
        wanted(config, project, environ), environment.environ() if environ is None else environ
    )
    return panel.endpoints, panel.reason


def by_author(config: Config, project: Path | None = None) -> Iterator[tuple[str, Tiers]]:
    """Yield who judges a text: of no known author (""), and of each family of models on the panel."""
    found = resolve(wanted(config, project), environment.environ())
    yield "", found.endpoints
    panel = {}
    for tier, jury in found.endpoints.items():
        panel[tier] = tuple(map(with_family, jury))
    for family in [each for each in _families(panel) if each != UNKNOWN_FAMILY]:
        yield family, apart(panel, [family], found.others, mixed=config.judge.panel == "mixed")


def project_named_families(
    config: Config, project: Path | None = None, model: str | None = None
) -> frozenset[str]:
    """Return the families that only a project names: it may not send texts elsewhere than the user does."""
    environ = environment.environ()
    asked = model is not None or any(
        environ.get(name, "").strip() for name in (_ADDRESS, *_VARIABLES)
    )
    own = settings.load(None)
    if project is None or not (asked or settings.names_models(own)):
        return frozenset()
    families = documents.named(config.judge.author_family)
    return frozenset(families) - frozenset(documents.named(own.judge.author_family))
