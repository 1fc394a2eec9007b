"""`judgekit doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import importlib.util
import json
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

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
    for check in _checks(project_path(), is_live=live):
        checks.append(check)
        if not as_json:
            say("{:<5}  {}: {}".format(*check))
    if as_json:
        emit(
            json.dumps(
                [dict(zip(("state", "subject", "text"), check, strict=True)) for check in checks]
            )
        )
    if any(state == "wrong" for state, *_ in checks):
        return Exit.BAD_CONFIG
    return 0


def _checks(project: Path, *, is_live: bool) -> Iterator[Check]:
    from judgekit.config import settings
    from judgekit.hooks import git_hook, install
    from judgekit.rubric import loader

    python = f"Python {platform.python_version()} at {sys.executable}"
    yield "ok", "judgekit", f"{environment.__version__}, {python}"
    yield from _storage()
    yield from _guarded("rubrics", _rubrics(project))
    yield from _guarded("providers", _providers())
    try:
        config = settings.load(project)
    except JudgekitError as error:
        yield "wrong", "configuration", str(error)
    else:
        found = [str(path) for path in settings.sources(project) if path.is_file()]
        yield "ok", "configuration", ", ".join(found) or "none; the defaults apply"
        for section in get_args(loader.Section):
            yield from _guarded(
                "rubrics", _named_rubric(section, getattr(config, section).rubric, project)
            )
        if config.server.url is not None:
            yield from _guarded("shared judge", _shared_judge(config))
        yield from _guarded("models", _models(config, project))
        if is_live:
            yield from _guarded("models, live", _live_models(config, project))
        if words := config.retrieval.command:
            yield from _guarded(
                "retrieval.command", _command(words, config.retrieval.deadline, project)
            )
        for root in config.retrieval.roots:
            yield from _guarded(f"store {root}", _store(root, project))
        if unheeded := settings.judge_without_effect(project):
            yield "note", "judge of prompts", unheeded
    of_hooks = list(install.check_prompt_hooks(project))
    yield from of_hooks
    if any((state, subject) == ("ok", "prompt hook") for state, subject, _ in of_hooks):
        yield install.check_agent_command()
    yield from git_hook.check_git_hook(project)
    if environment.is_on("JUDGEKIT_DISABLE"):
        yield "note", "JUDGEKIT_DISABLE", "is set: every hook is inactive"
    if not any(
        name.endswith("_API_KEY") and value for name, value in environment.environ().items()
    ):
        unseen = "hooks do not see keys that are set only for interactive shells"
        yield "note", "keys", f"no key is set in this shell; {unseen}"


def _guarded(subject: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks; an error that ends them is one."""
    try:
        yield from checks
    except JudgekitError as error:
        yield "wrong", subject, str(error)


def _storage() -> Iterator[Check]:
    if index_file.available():
        yield "ok", "search index", "SQLite with FTS5"
    else:
        yield (
            "note",
            "search index",
            "this Python's SQLite has no FTS5: search covers titles and tags only",
        )
    folder = environment.cache_home()
    try:
        environment.private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            yield "ok", "cache", folder
    except OSError as error:
        lost = f"{folder} cannot be written ({error.strerror}): every query builds its index again"
        yield "note", "cache", lost


def _rubrics(project: Path) -> Iterator[Check]:
    from judgekit.rubric import loader

    yield "ok", "rubrics", f"{counted(len(list(loader.rubrics(project))), 'is', 'are')} valid"


def _named_rubric(section: Section, rubric: str, project: Path) -> Iterator[Check]:
    """Check a rubric that the configuration names, which judging alone would read."""
    from judgekit.rubric import loader

    loaded = loader.configured_rubric(section, rubric, project)
    if loaded.source:
        other = f"{section} uses {loaded.name}, not the bundled {loaded.rubric.rubric}"
        yield "note", "rubrics", f"{other}: {loaded.path}"


def _providers() -> Iterator[Check]:
    from judgekit.config.settings import load, wrong
    from judgekit.providers import registry

    known = {profile.provider for profile in registry.profiles()}
    yield "ok", "providers", f"{counted(len(known), 'profile is', 'profiles are')} sound"
    try:
        own = load(None).providers
    except ConfigError:  # which is said of the configuration
        return
    for key, names in (("allow", own.allow), ("order", own.order)):
        for name in names or ():
            if registry.unaliased(name) not in known:
                problem = f"no provider {name!r}; judgekit provider list shows all"
                yield "wrong", "providers", str(wrong("providers", key, problem, None))


def _models(config: Config, project: Path) -> Iterator[Check]:
    from judgekit.judging.panel import by_author, resolve_panel

    panel, reason = resolve_panel(config, project)
    if not panel:
        lost = "search uses BM25 alone, and documents are not judged"
        if config.server.url is not None:
            lost = "search uses BM25 alone, and texts are not compared; documents go to the shared judge"
        yield "note", "models", f"{reason}. Until then {lost}"
    for tier, jury in panel.items():
        models = ", ".join(f"{endpoint.model} ({endpoint.profile.title})" for endpoint in jury)
        yield "ok", f"models, {tier}", models
    for family, tiers in list(by_author(config, project))[1:]:
        models = ", ".join(
            f"{tier} {endpoint.model}" for tier, jury in tiers.items() for endpoint in jury
        )
        yield "ok", f"texts by {family}", models
    if not importlib.util.find_spec("xllamacpp"):
        yield (
            "note",
            "local model",
            f"not installed; to judge without a key: {files.install_extra('local')}",
        )


def _shared_judge(config: Config) -> Iterator[Check]:
    """Ask the shared judge which rubrics it has: a request with the token, and without a text."""
    from judgekit.judging import shared

    server = shared.configured(config)
    if server is not None:
        count = counted(server.check(), "rubric", "rubrics")
        yield (
            "ok",
            "shared judge",
            f"documents go to {server.url}; it takes the token, and has {count}",
        )


def _live_models(config: Config, project: Path) -> Iterator[Check]:
    """Have each model judge a sentence, after a line that says what that costs at most."""
    from judgekit.cli.provider import outcome
    from judgekit.judging import trial
    from judgekit.judging.panel import resolve_panel
    from judgekit.providers import running

    panel, _ = resolve_panel(config, project)
    endpoints = {}
    for jury in panel.values():
        for endpoint in jury:
            endpoints[endpoint.model] = endpoint
    if not endpoints:
        yield "note", "models, live", "no model is set up on this machine, so none is asked"
        return
    yield "note", "models, live", trial.cost_in_words([*endpoints.values()])
    for tried in running.run(trial.try_models([*endpoints.values()])):
        state: State = "ok" if tried.answer.failure is None else "wrong"
        yield state, f"model {tried.endpoint.model}", outcome(tried)


def _command(words: list[str], seconds: float, project: Path) -> Iterator[Check]:
    found = command.ask("judgekit", words, seconds, {"project": str(project), "limit": 1})
    yield (
        "ok",
        "retrieval.command",
        f"{words[0]}: it answers ({len(found)} found for the word judgekit)",
    )


def _store(root: str, project: Path) -> Iterator[Check]:
    from judgekit.config.settings import user_roots

    folder = search.resolve(root, str(project))
    if not Path(folder).is_dir():
        missing = f"no folder at {folder}, so the hook finds nothing there"
        yield "note", f"store {root}", f"{missing}; create it, or name another in retrieval.roots"
        return
    ranked = search.search(
        "judgekit", [root], project=str(project), limit=1, trusted=user_roots() or ()
    )
    yield "ok", f"store {root}", folder
    for line in ranked.notes:
        yield "note", f"store {root}", line
