"""`judgekit doctor`: checks what works here and what doesn't, and says what to do about it."""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from judgekit import environment
from judgekit.cli.options import AsJson, OutOption
from judgekit.cli.output import emit, get_project_path, say
from judgekit.config import files
from judgekit.errors import ConfigError, Exit, JudgekitError
from judgekit.retrieval import command, index_file, search
from judgekit.text import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from judgekit.config.settings import Config
    from judgekit.hooks.install import Finding as Check
    from judgekit.hooks.install import State
    from judgekit.providers.base import Endpoint
    from judgekit.providers.resolve import Tiers
    from judgekit.rubric.loader import Section

_ANY_QUERY = "judgekit"  # what a search reports about stores and pins doesn't depend on its query


def doctor(
    as_json: AsJson = False,
    live: Annotated[
        bool, Option("--live", help="Also ask each model once, which costs; the price first.")
    ] = False,
    _out: OutOption = None,
) -> int:
    """Check the installation, the project and the models; exit code 78 when something is wrong."""
    checks: list[Check] = []
    for check in _check_all(get_project_path(), is_live=live):
        checks.append(check)
        state, subject, text = check
        if not as_json:
            say(f"{state:<5}  {subject}: {text}")

    if as_json:
        names = ("state", "subject", "text")
        emit(json.dumps([dict(zip(names, check, strict=True)) for check in checks]))

    if any(state == "wrong" for state, *_ in checks):
        return Exit.BAD_CONFIG
    return 0


def _check_all(project: Path, *, is_live: bool) -> Iterator[Check]:
    """Yield all checks in the order in which they're printed."""
    python = f"Python {platform.python_version()} at {sys.executable}"
    yield "ok", "judgekit", f"{environment.__version__}, {python}"
    yield from _check_storage()
    yield from _report_errors("rubrics", _check_rubrics(project))
    yield from _report_errors("providers", _check_providers())
    yield from _check_configuration(project, is_live=is_live)
    yield from _check_hooks(project)
    variables = environment.environ()
    if not any(value for name, value in variables.items() if name.endswith("_API_KEY")):
        unseen = "hooks do not see keys that are set only for interactive shells"
        yield "note", "keys", f"no key is set in this shell; {unseen}"


def _report_errors(subject: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks. If an error ends them, yield it as a failed check of `subject`."""
    try:
        yield from checks
    except JudgekitError as error:
        yield "wrong", subject, str(error)


def _check_storage() -> Iterator[Check]:
    """Check that SQLite has full-text search, and that the cache folder is writable."""
    if index_file.has_full_text_search():
        yield "ok", "search index", "SQLite with FTS5"
    else:
        consequence = "this Python's SQLite has no FTS5: search covers titles and tags only"
        yield "note", "search index", consequence

    folder = environment.cache_home()
    try:
        environment.make_private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            yield "ok", "cache", folder
    except OSError as error:
        consequence = (
            f"{folder} cannot be written ({error.strerror}): every query builds its index again"
        )
        yield "note", "cache", consequence


def _check_configuration(project: Path, *, is_live: bool) -> Iterator[Check]:
    """Check that the settings can be read, and then everything they refer to."""
    from judgekit.config import settings

    try:
        config = settings.load(project)
    except JudgekitError as error:
        yield "wrong", "configuration", str(error)
        return

    existing_files = [str(path) for path in settings.list_config_paths(project) if path.is_file()]
    yield "ok", "configuration", ", ".join(existing_files) or "none; the defaults apply"

    rubrics: dict[Section, str] = {
        "judge": config.judge.rubric,
        "gate": config.gate.rubric,
        "retrieval": config.retrieval.rubric,
    }
    for section, rubric in rubrics.items():
        yield from _report_errors("rubrics", _check_named_rubric(section, rubric, project))
    if config.server.url is not None:
        yield from _report_errors("shared judge", _check_shared_judge(config))

    yield from _report_errors("models", _check_models(config, project))
    if is_live:
        yield from _report_errors("models, live", _ask_models(config, project))

    search_command = config.retrieval.command
    if search_command:
        deadline = config.retrieval.deadline
        yield from _report_errors(
            "retrieval.command", _check_search_command(search_command, deadline, project)
        )

    for root in config.retrieval.roots:
        yield from _report_errors(f"store {root}", _check_store(root, project))
    yield from _report_errors("retrieval.pin", _check_pins(config, project))

    # Finally, report what's switched off or has no effect.
    reason_off = settings.describe_disabling_setting(project)
    if reason_off:
        yield "note", "prompt hook", f"switched off here: {reason_off}"
    judge_without_effect = settings.describe_judge_without_effect(project)
    if judge_without_effect:
        yield "note", "judge of prompts", judge_without_effect


def _check_hooks(project: Path) -> Iterator[Check]:
    """Check the prompt hooks and git hook of a project."""
    from judgekit.hooks import git_hook, install

    is_installed = False
    for state, subject, text in install.check_prompt_hooks(project):
        yield state, subject, text
        if (state, subject) == ("ok", "prompt hook"):
            is_installed = True

    if is_installed:
        yield install.check_agent_command()
    yield from git_hook.check_git_hook(project)
    if environment.is_on("JUDGEKIT_DISABLE"):
        yield "note", "JUDGEKIT_DISABLE", "is set: every hook is inactive"


def _check_rubrics(project: Path) -> Iterator[Check]:
    """Read all rubrics; raises an error if any is invalid."""
    from judgekit.rubric import loader

    count = len(list(loader.load_rubrics(project)))
    yield "ok", "rubrics", f"{format_count(count, 'is', 'are')} valid"


def _check_named_rubric(section: Section, rubric: str, project: Path) -> Iterator[Check]:
    """Load a rubric named in the settings, and note if it replaces a bundled one.

    Raises an error if it's invalid. Without this check, that would only be found when judging.
    """
    from judgekit.rubric import loader

    loaded = loader.load_configured_rubric(section, rubric, project)
    if loaded.source:
        rubric_in_use = f"{section} uses {loaded.name}, not the bundled {loaded.rubric.rubric}"
        yield "note", "rubrics", f"{rubric_in_use}: {loaded.path}"


def _check_providers() -> Iterator[Check]:
    """Read the provider profiles, and check that they include all providers in the user's settings."""
    from judgekit.config.settings import load
    from judgekit.providers import registry

    known_providers = {profile.provider for profile in registry.list_profiles()}
    yield (
        "ok",
        "providers",
        f"{format_count(len(known_providers), 'profile is', 'profiles are')} sound",
    )
    try:
        config = load(None).providers
    except ConfigError:  # another check reports this
        return

    yield from _find_unknown_providers("allow", config.allow, known_providers)
    yield from _find_unknown_providers("order", config.order, known_providers)


def _find_unknown_providers(
    key: str, names: Iterable[str] | None, known_providers: Collection[str]
) -> Iterator[Check]:
    """Yield a failed check for each provider name without a profile.

    `key` is the setting that lists the names, such as `order`.
    """
    from judgekit.config.settings import build_error
    from judgekit.providers import registry

    for name in names or ():
        if registry.resolve_alias(name) in known_providers:
            continue
        problem = f"no provider {name!r}; judgekit provider list shows all"
        yield "wrong", "providers", str(build_error("providers", key, problem, project=None))


def _check_models(config: Config, project: Path) -> Iterator[Check]:
    """List the models that judge, and those that judge texts written by each model family."""
    from judgekit.cli.provider import list_models
    from judgekit.judging.panel import list_tiers_by_author, resolve_panel

    panel, reason = resolve_panel(config, project)
    if not panel:  # describe what doesn't work without a model
        limits = "search uses BM25 alone, and documents are not judged"
        if config.server.url is not None:
            limits = "search uses BM25 alone, and texts are not compared; documents go to the shared judge"
        yield "note", "models", f"{reason}. Until then {limits}"

    for tier, jury in panel.items():
        models = [f"{endpoint.model} ({endpoint.profile.title})" for endpoint in jury]
        yield "ok", f"models, {tier}", ", ".join(models)

    for family, tiers in list_tiers_by_author(config, project):
        if not family:  # for unknown authors, the models above judge
            continue
        yield "ok", f"texts by {family}", list_models(tiers)

    if not importlib.util.find_spec("xllamacpp"):
        remedy = f"to judge without a key: {files.install_extra('local')}"
        yield "note", "local model", f"not installed; {remedy}"


def _check_shared_judge(config: Config) -> Iterator[Check]:
    """Check that the shared judge accepts the token. Asks for its rubrics, and sends no content."""
    from judgekit.judging import shared

    server = shared.find_shared_judge(config)
    if server is not None:
        count = format_count(server.check(), "rubric", "rubrics")
        answer = f"it takes the token, and has {count}"
        yield "ok", "shared judge", f"documents go to {server.url}; {answer}"


def _ask_models(config: Config, project: Path) -> Iterator[Check]:
    """Have each model judge a sentence. The first line tells the highest possible cost."""
    from judgekit.cli.provider import describe_trial
    from judgekit.judging import trial
    from judgekit.judging.panel import resolve_panel
    from judgekit.providers import running

    panel, _ = resolve_panel(config, project)
    endpoints = _list_models_once(panel)
    if not endpoints:
        yield "note", "models, live", "no model is set up on this machine, so none is asked"
        return

    yield "note", "models, live", trial.describe_max_cost(endpoints)
    for model_trial in running.run(trial.try_models(endpoints)):
        has_answered = model_trial.answer.failure is None
        is_fit = has_answered and not model_trial.is_blind  # a blind one can't tell yes from no
        state: State = "ok" if is_fit else "wrong"
        yield state, f"model {model_trial.endpoint.model}", describe_trial(model_trial)


def _list_models_once(panel: Tiers) -> list[Endpoint]:
    """List a panel's models, each one once: the same model can be in several juries."""
    by_model = {}
    for jury in panel.values():
        for endpoint in jury:
            by_model[endpoint.model] = endpoint
    return list(by_model.values())


def _check_search_command(words: list[str], seconds: float, project: Path) -> Iterator[Check]:
    """Search with the configured command; raises an error if it doesn't answer in time."""
    hits = command.ask("judgekit", words, seconds, {"project": str(project), "limit": 1})
    answer = f"it answers ({len(hits)} found for the word judgekit)"
    yield "ok", "retrieval.command", f"{words[0]}: {answer}"


def _check_pins(config: Config, project: Path) -> Iterator[Check]:
    """Report pins that match no memory, with a suggestion for each."""
    from judgekit.config.settings import read_user_roots
    from judgekit.retrieval import pins
    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.profiles import compile_profiles

    retrieval = config.retrieval
    if not retrieval.pin:
        return

    profiles = Profiles(compile_profiles(project))
    # Every search looks up the pins, so any query will do.
    ranked = search.search(
        _ANY_QUERY,
        retrieval.roots,
        project=str(project),
        limit=1,
        trusted=read_user_roots() or (),
        profiles=profiles,
        pins=retrieval.pin,
    )
    unmatched_pin_notes = list(ranked.pin_by_note)  # the keys: a note for each pin without a memory
    notes_with_suggestions = pins.suggest(
        unmatched_pin_notes, ranked.pin_by_note, ranked.searched_roots, profiles
    )
    for note in notes_with_suggestions:
        yield "note", "prompt hook", note


def _check_store(root: str, project: Path) -> Iterator[Check]:
    """Search in a store, and report problems such as a missing folder."""
    from judgekit.config.settings import read_user_roots

    subject = f"store {root}"
    folder = search.resolve_root(root, str(project))
    if not Path(folder).is_dir():
        problem = f"no folder at {folder}, so the hook finds nothing there"
        remedy = "create it, or name another in retrieval.roots"
        yield "note", subject, f"{problem}; {remedy}"
        return

    ranked = search.search(
        _ANY_QUERY, [root], project=str(project), limit=1, trusted=read_user_roots() or ()
    )
    if ranked.empty_roots:
        yield "note", subject, index_file.describe_empty(folder)
    else:
        yield "ok", subject, folder
    for store_note in ranked.notes:
        yield "note", subject, store_note
