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
from judgekit.cli.output import emit, project_path, say
from judgekit.config import files
from judgekit.errors import ConfigError, Exit, JudgekitError
from judgekit.retrieval import command, index_file, search
from judgekit.text import counted

if TYPE_CHECKING:
    from judgekit.config.settings import Config
    from judgekit.hooks.install import Finding as Check
    from judgekit.hooks.install import State
    from judgekit.rubric.loader import Section


def doctor(
    as_json: AsJson = False,
    live: Annotated[
        bool, Option("--live", help="Also ask each model once, which costs; the price first.")
    ] = False,
    _out: OutOption = None,
) -> int:
    """Check the installation, the project and the models; exit code 78 when something is wrong."""
    checks: list[Check] = []
    for check in _check_all(project_path(), is_live=live):
        checks.append(check)
        if not as_json:
            say("{:<5}  {}: {}".format(*check))
    if as_json:
        names = ("state", "subject", "text")
        emit(json.dumps([dict(zip(names, check, strict=True)) for check in checks]))
    if any(state == "wrong" for state, *_ in checks):
        return Exit.BAD_CONFIG
    return 0


def _check_all(project: Path, *, is_live: bool) -> Iterator[Check]:
    """Yield all checks, in the order in which they're printed."""
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
    """Yield checks; if an error ends them, yield it as a failed check of `subject`."""
    try:
        yield from checks
    except JudgekitError as error:
        yield "wrong", subject, str(error)


def _check_storage() -> Iterator[Check]:
    """Check that SQLite can search texts, and that the cache's folder can be written."""
    if index_file.available():
        yield "ok", "search index", "SQLite with FTS5"
    else:
        lost = "this Python's SQLite has no FTS5: search covers titles and tags only"
        yield "note", "search index", lost
    folder = environment.cache_home()
    try:
        environment.private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            yield "ok", "cache", folder
    except OSError as error:
        lost = f"{folder} cannot be written ({error.strerror}): every query builds its index again"
        yield "note", "cache", lost


def _check_configuration(project: Path, *, is_live: bool) -> Iterator[Check]:
    """Check the settings and everything they name; if they can't be read, only say so."""
    from judgekit.config import settings

    try:
        config = settings.load(project)
    except JudgekitError as error:
        yield "wrong", "configuration", str(error)
        return
    files_there = [str(path) for path in settings.sources(project) if path.is_file()]
    yield "ok", "configuration", ", ".join(files_there) or "none; the defaults apply"
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
    words = config.retrieval.command
    if words:
        deadline = config.retrieval.deadline
        yield from _report_errors(
            "retrieval.command", _check_search_command(words, deadline, project)
        )
    for root in config.retrieval.roots:
        yield from _report_errors(f"store {root}", _check_store(root, project))
    yield from _report_errors("retrieval.pin", _check_pins(config, project))
    off = settings.explain_off(project)
    if off:
        yield "note", "prompt hook", f"switched off here: {off}"
    unheeded = settings.judge_without_effect(project)
    if unheeded:
        yield "note", "judge of prompts", unheeded


def _check_hooks(project: Path) -> Iterator[Check]:
    """Check the prompt hooks and git's hook of a project."""
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
    """Read all rubrics, which raises an error if one is wrong."""
    from judgekit.rubric import loader

    count = len(list(loader.rubrics(project)))
    yield "ok", "rubrics", f"{counted(count, 'is', 'are')} valid"


def _check_named_rubric(section: Section, rubric: str, project: Path) -> Iterator[Check]:
    """Check a rubric that the configuration names, since otherwise only judging would read it."""
    from judgekit.rubric import loader

    loaded = loader.configured_rubric(section, rubric, project)
    if loaded.source:
        other = f"{section} uses {loaded.name}, not the bundled {loaded.rubric.rubric}"
        yield "note", "rubrics", f"{other}: {loaded.path}"


def _check_providers() -> Iterator[Check]:
    """Read the profiles of providers, and check that the user's settings name only known ones."""
    from judgekit.config.settings import load, wrong
    from judgekit.providers import registry

    known = {profile.provider for profile in registry.profiles()}
    yield "ok", "providers", f"{counted(len(known), 'profile is', 'profiles are')} sound"
    try:
        config = load(None).providers
    except ConfigError:  # the check of the configuration reports it
        return
    for key, names in (("allow", config.allow), ("order", config.order)):
        for name in names or ():
            if registry.unaliased(name) not in known:
                problem = f"no provider {name!r}; judgekit provider list shows all"
                yield "wrong", "providers", str(wrong("providers", key, problem, None))


def _check_models(config: Config, project: Path) -> Iterator[Check]:
    """Name the models that judge, also those for texts of a known family, or say what's lost without any."""
    from judgekit.cli.provider import list_models
    from judgekit.judging.panel import by_author, resolve_panel

    panel, reason = resolve_panel(config, project)
    if not panel:
        lost = "search uses BM25 alone, and documents are not judged"
        if config.server.url is not None:
            lost = "search uses BM25 alone, and texts are not compared; documents go to the shared judge"
        yield "note", "models", f"{reason}. Until then {lost}"
    for tier, jury in panel.items():
        models = [f"{endpoint.model} ({endpoint.profile.title})" for endpoint in jury]
        yield "ok", f"models, {tier}", ", ".join(models)
    for family, tiers in by_author(config, project):
        if not family:  # texts by unknown authors go to the panel above
            continue
        yield "ok", f"texts by {family}", list_models(tiers)
    if not importlib.util.find_spec("xllamacpp"):
        remedy = f"to judge without a key: {files.install_extra('local')}"
        yield "note", "local model", f"not installed; {remedy}"


def _check_shared_judge(config: Config) -> Iterator[Check]:
    """Ask the shared judge for its list of rubrics, a request that needs the token but sends no text."""
    from judgekit.judging import shared

    server = shared.configured(config)
    if server is not None:
        count = counted(server.check(), "rubric", "rubrics")
        accepts = f"it takes the token, and has {count}"
        yield "ok", "shared judge", f"documents go to {server.url}; {accepts}"


def _ask_models(config: Config, project: Path) -> Iterator[Check]:
    """Let each model judge a sentence, after a line with the highest possible cost."""
    from judgekit.cli.provider import describe_trial
    from judgekit.judging import trial
    from judgekit.judging.panel import resolve_panel
    from judgekit.providers import running

    panel, _ = resolve_panel(config, project)
    by_model = {}
    for jury in panel.values():
        for endpoint in jury:
            by_model[endpoint.model] = endpoint
    if not by_model:
        yield "note", "models, live", "no model is set up on this machine, so none is asked"
        return
    endpoints = list(by_model.values())
    yield "note", "models, live", trial.cost_in_words(endpoints)
    for tried in running.run(trial.try_models(endpoints)):
        is_fit = tried.answer.failure is None and not tried.is_blind
        state: State = "ok" if is_fit else "wrong"
        yield state, f"model {tried.endpoint.model}", describe_trial(tried)


def _check_search_command(words: list[str], seconds: float, project: Path) -> Iterator[Check]:
    """Search with the configured command, within its time limit; raises an error if it doesn't answer."""
    hits = command.ask("judgekit", words, seconds, {"project": str(project), "limit": 1})
    answer = f"it answers ({len(hits)} found for the word judgekit)"
    yield "ok", "retrieval.command", f"{words[0]}: {answer}"


def _check_pins(config: Config, project: Path) -> Iterator[Check]:
    """Report pins that name no memory, and suggest one that may be meant."""
    from judgekit.config.settings import user_roots
    from judgekit.retrieval import pins
    from judgekit.retrieval.compiled import Profiles
    from judgekit.retrieval.profiles import compile_profiles

    retrieval = config.retrieval
    if not retrieval.pin:
        return
    profiles = Profiles(compile_profiles(project))
    ranked = search.search(
        "judgekit",
        retrieval.roots,
        project=str(project),
        limit=1,
        trusted=user_roots() or (),
        profiles=profiles,
        pins=retrieval.pin,
    )
    notes = pins.suggest(
        list(ranked.pin_by_note), ranked.pin_by_note, ranked.searched_roots, profiles
    )
    for note in notes:
        yield "note", "prompt hook", note


def _check_store(root: str, project: Path) -> Iterator[Check]:
    """Search in a store, and report a folder that doesn't exist."""
    from judgekit.config.settings import user_roots

    folder = search.resolve(root, str(project))
    if not Path(folder).is_dir():
        missing = f"no folder at {folder}, so the hook finds nothing there"
        yield "note", f"store {root}", f"{missing}; create it, or name another in retrieval.roots"
        return
    ranked = search.search(
        "judgekit", [root], project=str(project), limit=1, trusted=user_roots() or ()
    )
    if ranked.empty_roots:
        yield "note", f"store {root}", index_file.describe_empty(folder)
    else:
        yield "ok", f"store {root}", folder
    for line in ranked.notes:
        yield "note", f"store {root}", line
