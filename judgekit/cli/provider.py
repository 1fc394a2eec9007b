"""`judgekit provider`: which models can be reached, and whether they answer."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from judgekit.cli import progress
from judgekit.cli.formats.table import describe_cost_source
from judgekit.cli.output import get_project_path, note, say, warn
from judgekit.errors import Exit, UsageError
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from judgekit.judging.trial import Trial
    from judgekit.providers.resolve import PanelRequest, ProviderState, Tiers

app = typer.Typer(no_args_is_help=True, help="Providers of models.")


@app.command("list")
def list_() -> None:
    """List providers in the order of use, and why each can or cannot be used here."""
    from judgekit.providers.resolve import list_provider_states

    states = list_provider_states(os.environ, _build_panel_request())
    width = max(len(state.name) for state in states)
    _say_providers(states, width)
    _say_models_by_author(width)


def _say_providers(states: Sequence[ProviderState], width: int) -> None:
    """Print each provider, whether it's usable, why, and its models."""
    for state in states:
        mark = "usable" if state.is_usable else "-"
        models = ", ".join(dict.fromkeys(state.models.values()))
        details = f"{state.why}; {models}" if models else state.why
        say(f"{state.name:<{width}} {mark:<7} {details}")


def _say_models_by_author(width: int) -> None:
    """Print which models judge texts by any author, and which judge texts by each model family."""
    from judgekit.config import settings
    from judgekit.judging import panel

    project = get_project_path()
    for family, tiers in panel.list_tiers_by_author(settings.load(project), project):
        is_for_any_author = not family  # the family is "" for these
        title = "asked" if is_for_any_author else f"texts by {family}"
        models = list_models(tiers)
        if models:
            say(f"{title:<{width}} {models}")


def list_models(tiers: Tiers) -> str:
    """List the models in a line, each after its tier; "" if there are none."""
    models = []
    for tier, jury in tiers.items():
        models += [f"{tier} {endpoint.model}" for endpoint in jury]
    return ", ".join(models)


@app.command()
def check(
    name: Annotated[
        str | None, Argument(help="Provider; by default the one that would be used.")
    ] = None,
    fetch: Annotated[
        bool, Option("--fetch", help="Download the local model first if missing.")
    ] = False,
) -> int:
    """Let each model of a provider judge a sentence, and report how it went.

    Exit code 1 when a decision model cannot tell right from wrong, 2 when a model does not answer.
    """
    from judgekit.config import settings
    from judgekit.judging import trial
    from judgekit.providers import registry, running
    from judgekit.providers.resolve import list_named_models, resolve

    if fetch:
        _fetch_local_model()

    # Find the models to ask: a provider's, or those that judging would use.
    request = _build_panel_request()
    profile = None
    if name is not None:
        profile = registry.find(name)
        if not request.allows(profile):
            remedy = (
                f"add {profile.provider} to providers.allow in {settings.get_user_config_path()}"
            )
            raise UsageError(f"{name} is not allowed: {remedy}")
        models = list_named_models(profile, request)
        request = replace(request, models=models, allowed_providers=[profile.provider])

    panel = resolve(request, os.environ)
    endpoints = {}
    for tier in panel.endpoints.values():
        for endpoint in tier:
            # Ask a model only once, even if it's in multiple tiers.
            endpoints[endpoint.model] = endpoint

    # The shared judge counts like a model.
    server_code = _check_shared_judge() if name is None else None
    code = Exit.ACCEPTED if server_code is None else server_code
    if not endpoints and server_code is not None:
        lost = "search uses BM25 alone, and texts are not compared"
        say(f"{'models':<18} none on this machine: {lost}")
        return code
    if not endpoints:
        warn(panel.reason)
        if isinstance(profile, registry.DecisionsProfile):
            note(f"name a model in judge.tiers.quick, such as {profile.provider}/MODEL")
        return Exit.HUMAN_NEEDED

    # Let each model judge the sentence.
    for model_trial in running.run(trial.try_models([*endpoints.values()])):
        if model_trial.is_blind:
            code = Exit.REJECTED
        elif model_trial.answer.failure is not None and code is not Exit.REJECTED:
            code = Exit.HUMAN_NEEDED
        endpoint = model_trial.endpoint
        outcome = describe_trial(model_trial)
        say(f"{endpoint.profile.provider:<18} {endpoint.model}: {outcome}")

    return code


def _fetch_local_model() -> None:
    """Download the model in JUDGEKIT_LOCAL_MODEL if it's missing or damaged.

    Raises `UsageError` if the variable isn't set.
    """
    from judgekit.providers import local

    name = os.environ.get("JUDGEKIT_LOCAL_MODEL", "")
    if not name:
        known = ", ".join(local.CATALOGUE)
        raise UsageError(f"set JUDGEKIT_LOCAL_MODEL to a model that can be fetched: {known}")

    # A file outside judgekit's folder of models belongs to the user, so don't touch it.
    path = _find_local_model(name)
    belongs_to_user = path is not None and path.parent != local.get_models_folder()
    if not belongs_to_user:
        fetch_model(name)  # also repairs a damaged model


def _find_local_model(name: str) -> Path | None:
    """Find a model's file; None if it's missing."""
    from judgekit.providers import local

    try:
        return local.resolve(name)
    except UsageError:
        return None


def _check_shared_judge() -> Exit | None:
    """Check the shared judge and print the result. Returns the exit code; None without a shared judge."""
    from judgekit.config import settings
    from judgekit.judging import shared

    server = shared.find_shared_judge(settings.load(get_project_path()))
    if server is None:
        return None

    try:
        rubric_count = server.check()
    except shared.SharedError as error:
        warn(str(error))
        return Exit.HUMAN_NEEDED

    rubrics = format_count(rubric_count, "rubric", "rubrics")
    answer = f"takes the token and has {rubrics}"
    say(f"{'shared judge':<18} {server.url}: {answer}; documents are judged there")
    return Exit.ACCEPTED


def describe_trial(tried: Trial) -> str:
    """Describe a trial in a line: its time, cost and findings, or why it failed."""
    failure = tried.answer.failure
    usage = tried.answer.usage
    if failure is not None:
        line = f"{failure.kind}: {failure.message}"
    else:
        line = f"answered in {tried.answer.latency_ms} ms"
        if usage.cost_usd is not None:
            line += f", ${usage.cost_usd:.6f}{describe_cost_source(usage.cost_source)}"

    if tried.observed:
        return f"{line}; {tried.observed}"
    return line


def fetch_model(model: str) -> None:
    """Download a local model and show the progress."""
    from judgekit.providers import local

    lines: list[str] = []

    def show(line: str) -> None:
        # Progress is shown only on a terminal, so a log gets just the notes: the first and the last line.
        is_first = not lines
        lines.append(line)
        if is_first:
            note(line)
        else:
            progress.show(line)

    local.fetch(model, show)
    progress.clear()
    if len(lines) > 1:  # a single line was already printed as a note
        note(lines[-1])


def _build_panel_request() -> PanelRequest:
    """Collect the models, providers and their order that this project's settings ask for."""
    from judgekit.config import settings
    from judgekit.judging import panel

    return panel.collect_panel_request(settings.load(get_project_path()))
