"""`judgekit doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import importlib.util
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from judgekit import environment
from judgekit.cli.output import say
from judgekit.errors import Exit, JudgekitError

if TYPE_CHECKING:
    from judgekit.config.settings import Config

# A state, a subject and a text: `note` is worth knowing, `wrong` keeps something from working.
Check: TypeAlias = tuple[Literal["ok", "note", "wrong"], str, str]


def doctor() -> int:
    """Check the installation, the project and the models; exit code 78 when something is wrong."""
    states = set()
    for state, subject, text in [*_checks(Path(environment.project_root()))]:
        states.add(state)
        say(f"{state:<5}  {subject}: {text}")
    return Exit.BAD_CONFIG if "wrong" in states else 0


def _checks(project: Path) -> Iterator[Check]:
    from judgekit.config import settings
    from judgekit.hooks import git_hook
    from judgekit.providers import registry
    from judgekit.rubric import loader

    def configuration() -> str:
        settings.load(project)
        files = [str(path) for path in settings.sources(project) if path.is_file()]
        return ", ".join(files) or "none; the defaults apply"

    python = f"Python {platform.python_version()} at {sys.executable}"
    yield "ok", "judgekit", f"{environment.__version__}, {python}"
    yield from _storage()
    yield _guarded("configuration", configuration)
    yield _guarded("rubrics", lambda: f"{len(list(loader.rubrics(project)))} are valid")
    try:
        config, problem = settings.load(project), ""
    except JudgekitError as error:
        config, problem = None, str(error)
    if config is not None:
        yield from _named_rubrics(config, project)
    yield _guarded("providers", lambda: f"{len(registry.profiles())} profiles are sound")
    yield from _named_providers()
    if config is None:
        yield "wrong", "models", problem
    else:
        yield from _models(config, project)
        for root in config.retrieval.roots:
            yield _guarded(f"store {root}", partial(_store, root, project))
    yield from _hook(project)
    yield from ((state, "git hook", text) for state, text in git_hook.findings(project))
    if environment.is_on("JUDGEKIT_DISABLE"):
        yield "note", "JUDGEKIT_DISABLE", "is set: every hook is inactive"
    if not any(name.endswith("_API_KEY") and value for name, value in environment.environ().items()):
        unseen = "hooks do not see keys that are set only for interactive shells"
        yield "note", "keys", f"no key is set in this shell; {unseen}"


def _guarded(subject: str, check: Callable[[], str]) -> Check:
    try:
        return "ok", subject, check()
    except JudgekitError as error:
        return "wrong", subject, str(error)


def _storage() -> Iterator[Check]:
    from judgekit.retrieval import index_file

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


def _named_rubrics(config: Config, project: Path) -> Iterator[Check]:
    """Check the rubrics that the configuration names, which judging alone would read."""
    from judgekit.rubric import loader

    named: dict[loader.Section, str] = {
        "judge": config.judge.rubric,
        "gate": config.gate.rubric,
        "retrieval": config.retrieval.rubric,
    }
    for section, rubric in named.items():
        try:
            loaded = loader.configured_rubric(section, rubric, project)
        except JudgekitError as error:
            yield "wrong", "rubrics", str(error)
            continue
        if loaded.source:
            other = f"{section} uses {loaded.name}, not the bundled {loaded.rubric.rubric}"
            yield "note", "rubrics", f"{other}: {loaded.path}"


def _named_providers() -> Iterator[Check]:
    """Check the names of providers in the user's configuration."""
    from judgekit.config.settings import load, wrong
    from judgekit.providers import registry

    try:
        own, known = load(None).providers, {profile.provider for profile in registry.profiles()}
    except JudgekitError:
        return
    for key, names in (("allow", own.allow), ("order", own.order)):
        for name in names or ():
            if registry.unaliased(name) not in known:
                problem = f"no provider {name!r}; judgekit provider list shows all"
                yield "wrong", "providers", str(wrong("providers", key, problem, None))


def _models(config: Config, project: Path) -> Iterator[Check]:
    from judgekit.config import files
    from judgekit.judging.panel import resolve_panel

    try:
        panel, reason = resolve_panel(config, project)
    except JudgekitError as error:
        yield "wrong", "models", str(error)
        return
    if config.server.url is not None:
        yield "ok", "shared judge", f"documents go to {config.server.url}"
    elif not panel:
        without = "Until then search uses BM25 alone, and documents are not judged"
        yield "note", "models", f"{reason}. {without}"
    for tier, jury in panel.items():
        models = ", ".join(f"{endpoint.model} ({endpoint.profile.title})" for endpoint in jury)
        yield "ok", f"models, {tier}", models
    if not importlib.util.find_spec("xllamacpp"):
        how = f"not installed; to judge without a key: {files.install_extra('local')}"
        yield "note", "local model", how


def _store(root: str, project: Path) -> str:
    from judgekit.config.settings import user_roots
    from judgekit.retrieval import search

    folder = search.resolve(root, str(project))
    if not Path(folder).is_dir():
        return f"none at {folder}: the hook adds nothing here"
    ranked = search.search("judgekit", [root], project=str(project), limit=1, trusted=user_roots() or ())
    return "; ".join([folder, *ranked.notes])


def _hook(project: Path) -> Iterator[Check]:
    from judgekit.hooks import install

    statuses = list(install.findings(project))
    where = [f"the {status.scope} settings" for status in statuses]
    where += ["the plugin"] * install.plugin_enabled(project)
    if where:
        yield "ok", "prompt hook", f"set up in {', '.join(where)}"
    else:
        yield "note", "prompt hook", "not set up; judgekit install claude-code sets it up"
    for status in statuses:
        subject, form = f"prompt hook, {status.scope}", f"{status.path}: {status.form}"
        again = f"run judgekit install claude-code --scope {status.scope} again"
        if status.problem and status.portable:
            yield "note", subject, f"{form}, inactive here: {status.problem}"
        elif status.problem:
            yield "wrong", subject, f"{form}: {status.problem}; {again}"
        else:
            unasked = "not run: decide yourself whether to trust this command"
            yield "ok", subject, f"{form}; {'it answers' if status.asked else unasked}"
        if status.missing:
            yield "note", subject, f"{status.path}: not called on {', '.join(status.missing)}; {again}"
    for line in (*install.doubled(project), *install.switched_off(project)):
        yield "note", "prompt hook", line
