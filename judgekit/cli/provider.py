"""`judgekit provider`: which models can be reached, and whether they answer."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from judgekit.cli.output import note, progress, project_path, say, source_text, warn
from judgekit.errors import Exit, UsageError

if TYPE_CHECKING:
    from judgekit.providers.resolve import PanelRequest

app = typer.Typer(no_args_is_help=True, help="Providers of models.")


@app.command("list")
def list_() -> None:
    """List providers in the order of use, and why each can or cannot be used here."""
    from judgekit.config import settings
    from judgekit.judging import panel
    from judgekit.providers.resolve import provider_report

    project = project_path()
    for state in provider_report(os.environ, _wanted()):
        models = ", ".join(dict.fromkeys(state.models.values()))
        mark = "usable" if state.usable else "-"
        say(f"{state.name:<18} {mark:<7} {state.why}{f'; {models}' if models else ''}")
    for family, tiers in panel.by_author(settings.load(project), project):
        if shown := ", ".join(f"{tier} {own.model}" for tier, jury in tiers.items() for own in jury):
            say(f"{f'texts by {family}' if family else 'asked':<18} {shown}")


@app.command()
def check(
    name: Annotated[str | None, Argument(help="Provider; by default the one that would be used.")] = None,
    fetch: Annotated[bool, Option("--fetch", help="Download the local model first if missing.")] = False,
) -> int:
    """Have each model of a provider judge a sentence, and say what was seen; exit code 2 when one cannot."""
    from judgekit.config import settings
    from judgekit.judging import trial
    from judgekit.providers import gateway, local, registry, running
    from judgekit.providers.resolve import resolve

    if fetch:
        if not (local_model := os.environ.get("JUDGEKIT_LOCAL_MODEL", "")):
            known = ", ".join(local.CATALOGUE)
            raise UsageError(f"set JUDGEKIT_LOCAL_MODEL to a model that can be fetched: {known}")
        place = None
        with contextlib.suppress(UsageError):
            place = local.resolve(local_model)
        # A model in our folder is verified, and fetched again only if it is damaged. Others are the user's.
        if place is None or place.parent == local.folder():
            fetch_model(local_model)
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

    async def try_all() -> list[trial.Trial]:
        async with contextlib.aclosing(gateway.open_gateway(os.environ)) as opened:
            return [await trial.try_model(opened, endpoint) for endpoint in endpoints.values()]

    code = Exit.ACCEPTED
    for tried in running.run(try_all()):
        answer, usage = tried.answer, tried.answer.usage
        if answer.failure is not None:
            outcome = f"{answer.failure.kind}: {answer.failure.message}"
            code = Exit.HUMAN_NEEDED
        else:
            cost = ""
            if usage.cost_usd is not None:
                cost = f", ${usage.cost_usd:.6f}{source_text(usage.cost_source)}"
            outcome = f"answered in {answer.latency_ms} ms{cost}"
        if tried.observed:
            outcome += f"; {tried.observed}"
        say(f"{tried.endpoint.profile.provider:<18} {tried.endpoint.model}: {outcome}")
    return code


def fetch_model(model: str) -> None:
    """Download a local model; of what is said in between a terminal shows the last line, a log nothing."""
    from judgekit.providers import local

    said: list[str] = []

    def show(line: str) -> None:
        said.append(line)
        (progress if said[1:] else note)(line)

    local.fetch(model, show)
    progress("")
    note(*said[1:][-1:])


def _wanted() -> PanelRequest:
    from judgekit.config import settings
    from judgekit.judging import panel

    return panel.wanted(settings.load(project_path()))
