"""Who judges here: the models that a configuration and an environment come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit import environment
from judgekit.config import TIERS, settings
from judgekit.judging import authors
from judgekit.providers.resolve import PanelRequest, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.config import TierName
    from judgekit.config.settings import Config
    from judgekit.providers.base import Endpoint
    from judgekit.providers.resolve import Panel


_ADDRESS = "JUDGEKIT_API_BASE"
_VARIABLES = (
    "JUDGEKIT_MODEL",
    "JUDGEKIT_QUICK_MODEL",
    "JUDGEKIT_DEEP_MODEL",
    "JUDGEKIT_TIEBREAKER_MODEL",
)


def wanted(
    config: Config, project: Path | None = None, environ: Mapping[str, str] | None = None
) -> PanelRequest:
    """Return what a configuration asks of the choice of models.

    What `project` names is no wish of the user's; models in `JUDGEKIT_*` variables go before all files, an
    address there before a project's.
    """
    environ = environment.environ() if environ is None else environ
    allow, order = config.providers.allow, config.providers.order
    if any(environ.get(name, "").strip() for name in _VARIABLES):
        return PanelRequest({}, allow, order)
    theirs = settings.tiers_of_project(project)
    if theirs and environ.get(_ADDRESS, "").strip():
        config, theirs = settings.load(None, environ), frozenset()
    named: dict[TierName, list[str] | None] = {tier: getattr(config.judge.tiers, tier) for tier in TIERS}
    return PanelRequest(named, allow, order, listed_only=theirs)


def chosen(config: Config, project: Path | None = None, environ: Mapping[str, str] | None = None) -> Panel:
    """Return the models of each tier, why these, and who else may be asked."""
    environ = environment.environ() if environ is None else environ
    return resolve(wanted(config, project, environ), environ)


def resolve_panel(
    config: Config, project: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[dict[TierName, tuple[Endpoint, ...]], str]:
    """Return the models of each tier (none when no provider is configured) and why, in one line."""
    panel = chosen(config, project, environ)
    return panel.endpoints, panel.reason


def claimed(config: Config, project: Path | None = None) -> frozenset[str]:
    """Return the families of authors that only a project names, where the user says which models to ask.

    A project may not send texts elsewhere than the user does, by saying that the user's models wrote them.
    """
    environ = environment.environ()
    variables = any(environ.get(name, "").strip() for name in (_ADDRESS, *_VARIABLES))
    own = settings.load(None)
    if project is None or not (variables or settings.names_models(own)):
        return frozenset()
    said = authors.named(config.judge.author_family)
    return frozenset(said) - frozenset(authors.named(own.judge.author_family))
