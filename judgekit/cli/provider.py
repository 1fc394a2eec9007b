"""`judgekit provider`: which models can be reached, and whether they answer."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from judgekit import environment
from judgekit.cli.output import say, source_text, warn
from judgekit.errors import CallUsage, Exit, FailureKind, GatewayError, UsageError

if TYPE_CHECKING:
    from judgekit.providers.base import Reply
    from judgekit.providers.resolve import PanelRequest

app = typer.Typer(no_args_is_help=True, help="Providers of models.")


@app.command("list")
def list_() -> int:
    """List providers in the order of use, and why each can or cannot be used here."""
    from judgekit.providers.resolve import provider_report

    for state in provider_report(os.environ, _wanted()):
        models = ", ".join(dict.fromkeys(state.models.values()))
        mark = "usable" if state.usable else "-"
        say(f"{state.name:<18} {mark:<7} {state.why}{f'; {models}' if models else ''}")
    return 0


@app.command()
def check(
    name: Annotated[
        str | None, Argument(help="Provider to check; by default the one that would be used.")
    ] = None,
    fetch: Annotated[
        bool, Option("--fetch", help="Download the local model first if it is missing.")
    ] = False,
) -> int:
    """Send one short request to each model of a provider; exit code 2 when one does not answer."""
    import asyncio

    from judgekit.config import settings
    from judgekit.providers import gateway, registry
    from judgekit.providers.resolve import resolve

    if fetch:
        _fetch(os.environ.get("JUDGEKIT_LOCAL_MODEL", ""))
    wanted = _wanted()
    if name is not None:
        profile = registry.find(name)
        if not wanted.allows(profile):
            where = settings.user_file()
            raise UsageError(f"{name} is not allowed: add {profile.provider} to providers.allow in {where}")
        wanted = replace(wanted, models={}, allow=[profile.provider])
    panel = resolve(wanted, os.environ)
    endpoints = {endpoint.model: endpoint for tier in panel.endpoints.values() for endpoint in tier}
    if not endpoints:
        warn(panel.reason)
        return Exit.HUMAN_NEEDED

    async def ask_all() -> list[tuple[Reply | GatewayError, int]]:
        async with contextlib.aclosing(gateway.open_gateway(os.environ)) as opened:
            return [await gateway.check(opened, endpoint) for endpoint in endpoints.values()]

    code = Exit.ACCEPTED
    for (model, endpoint), (found, milliseconds) in zip(
        endpoints.items(), asyncio.run(ask_all()), strict=True
    ):
        usage, named = found.usage or CallUsage(), ""
        if isinstance(found, GatewayError) and found.kind is not FailureKind.TRUNCATED:
            outcome, code = f"{found.kind}: {found.message}", Exit.HUMAN_NEEDED
        else:  # cut short is an answer, too: sixteen tokens are few for a model that explains itself
            if model == "default" and not isinstance(found, GatewayError):
                named = f" as {found.model}"
            cost = (
                "" if usage.cost_usd is None else f", ${usage.cost_usd:.6f}{source_text(usage.cost_source)}"
            )
            outcome = f"answered in {milliseconds} ms{named}{cost}"
        say(f"{endpoint.profile.provider:<18} {model}: {outcome}")
    return code


def _wanted() -> PanelRequest:
    from judgekit.config import settings
    from judgekit.judging import panel

    return panel.wanted(settings.load(Path(environment.project_root())))


def _fetch(name: str) -> None:
    from judgekit.providers import local

    if not name:
        known = ", ".join(local.CATALOGUE)
        raise UsageError(f"set JUDGEKIT_LOCAL_MODEL to a model that can be fetched: {known}")
    found = None
    with contextlib.suppress(UsageError):
        found = local.resolve(name)
    # A model in our folder is verified, and fetched again only if it is damaged. Elsewhere it is the user's.
    if found is None or found.parent == local.folder():
        local.fetch(name, warn)
