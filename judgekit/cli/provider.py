"""`judgekit provider`: which models can be reached, and whether they answer."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit import environment
from judgekit.cli.output import say, source_text, warn
from judgekit.errors import Exit, UsageError

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint
    from judgekit.providers.gateway import Checked
    from judgekit.providers.resolve import PanelRequest

app = typer.Typer(no_args_is_help=True, help="Providers of models.")


@app.command("list")
def list_() -> int:
    """List providers in the order of use, and why each can or cannot be used here."""
    from judgekit.providers.resolve import provider_report

    for provider_state in provider_report(os.environ, _wanted()):
        mark = "usable" if provider_state.usable else "-"
        models = ", ".join(dict.fromkeys(provider_state.models.values()))
        say(f"{provider_state.name:<18} {mark:<7} {provider_state.why}{f'; {models}' if models else ''}")
    return 0


@app.command()
def check(
    name: Annotated[
        str | None, typer.Argument(help="Provider to check; by default the one that would be used.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Download the local model first if it is missing.")
    ] = False,
) -> int:
    """Send one short request to each model of a provider; exit code 2 when one does not answer."""
    if fetch:
        _fetch(os.environ.get("JUDGEKIT_LOCAL_MODEL", ""))
    endpoints, reason = _endpoints(name)
    if not endpoints:
        warn(reason)
        return Exit.HUMAN_NEEDED
    import asyncio

    results = asyncio.run(_check(endpoints))
    for result in results:
        say(f"{result.provider:<18} {result.model}: {_outcome(result)}")
    return Exit.ACCEPTED if all(result.failure is None for result in results) else Exit.HUMAN_NEEDED


def _outcome(checked: Checked) -> str:
    if checked.failure is not None:
        return f"{checked.failure}: {checked.message}"
    usage = checked.usage
    cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.6f}{source_text(usage.cost_source)}"
    named = f" as {checked.answered}" if checked.model == "default" else ""
    return f"answered in {checked.latency_ms} ms{named}{cost}"


async def _check(endpoints: list[Endpoint]) -> list[Checked]:
    from contextlib import aclosing

    from judgekit.providers.gateway import check as check_one
    from judgekit.providers.gateway import open_gateway

    async with aclosing(open_gateway(os.environ)) as gateway:
        return [await check_one(gateway, endpoint) for endpoint in endpoints]


def _endpoints(name: str | None) -> tuple[list[Endpoint], str]:
    """Return a provider's different endpoints, or why there is none."""
    from dataclasses import replace

    from judgekit.config import settings
    from judgekit.providers import registry
    from judgekit.providers.resolve import resolve

    wanted = _wanted()
    if name is not None:
        profile = registry.find(name)
        if not wanted.allows(profile):
            where = settings.user_file()
            raise UsageError(f"{name} is not allowed: add {profile.provider} to providers.allow in {where}")
        wanted = replace(wanted, models={}, allow=[profile.provider])
    panel = resolve(wanted, os.environ)
    endpoints = [endpoint for tier in panel.endpoints.values() for endpoint in tier]
    return list({endpoint.model: endpoint for endpoint in endpoints}.values()), panel.reason


def _wanted() -> PanelRequest:
    from judgekit.config import settings
    from judgekit.judging import panel

    return panel.wanted(settings.load(Path(environment.project_root(str(Path.cwd())))))


def _fetch(name: str) -> None:
    from judgekit.providers import local

    if not name:
        known = ", ".join(local.CATALOGUE)
        raise UsageError(f"set JUDGEKIT_LOCAL_MODEL to a model that can be fetched: {known}")
    found = None
    with contextlib.suppress(UsageError):
        found = local.resolve(name)
    # Fetched before: that is verified, and fetched again only if it is damaged. Elsewhere it is the user's.
    if found is None or found.parent == local.folder():
        local.fetch(name, warn)
