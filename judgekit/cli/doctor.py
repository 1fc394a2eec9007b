"""`judgekit doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import importlib.util
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from judgekit import environment
from judgekit.cli.output import say
from judgekit.errors import Exit, JudgekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from judgekit.config.settings import Config
    from judgekit.hooks.install import ScopeStatus


class Check(NamedTuple):
    """One finding: `note` is worth knowing, `wrong` keeps something from working."""

    state: Literal["ok", "note", "wrong"]
    subject: str
    text: str


def doctor() -> int:
    """Check the installation, the project and the models; exit code 78 when something is wrong."""
    checks = list(_checks(Path(environment.project_root(str(Path.cwd())))))
    for check in checks:
        say(f"{check.state:<5}  {check.subject}: {check.text}")
    return Exit.BAD_CONFIG if any(check.state == "wrong" for check in checks) else 0


def _checks(project: Path) -> Iterator[Check]:
    from judgekit.config.settings import load
    from judgekit.hooks import git_hook
    from judgekit.providers import registry
    from judgekit.rubric import loader

    python = f"Python {platform.python_version()} at {sys.executable}"
    yield Check("ok", "judgekit", f"{environment.__version__}, {python}")
    yield from _storage()
    yield _guarded("configuration", lambda: _configuration(project))
    yield _guarded("rubrics", lambda: f"{len(list(loader.rubrics(project)))} are valid")
    try:
        settings = load(project)
    except JudgekitError as error:
        settings, problem = None, error
    if settings is not None:
        yield from _named_rubrics(settings, project)
    yield _guarded("providers", lambda: f"{len(registry.profiles())} profiles are sound")
    yield from _named_providers()
    if settings is None:
        yield Check("wrong", "models", str(problem))
    else:
        yield from _models(settings, project)
        for root in settings.retrieval.roots:
            yield _guarded(f"store {root}", lambda root=root: _store(root, project))  # type: ignore[misc]  # a default binds
    yield from _hook(project)
    yield from (Check(state, "git hook", text) for state, text in git_hook.findings(project))
    if environment.is_on("JUDGEKIT_DISABLE"):
        yield Check("note", "JUDGEKIT_DISABLE", "is set: every hook is inactive")
    if not any(name.endswith("_API_KEY") and value for name, value in environment.environ().items()):
        unseen = "hooks do not see keys that are set only for interactive shells"
        yield Check("note", "keys", f"no key is set in this shell; {unseen}")


def _guarded(subject: str, check: Callable[[], str]) -> Check:
    try:
        return Check("ok", subject, check())
    except JudgekitError as error:
        return Check("wrong", subject, str(error))


def _storage() -> Iterator[Check]:
    from judgekit.retrieval import index_file

    if index_file.available():
        yield Check("ok", "search index", "SQLite with FTS5")
    else:
        lost = "this Python's SQLite has no FTS5: search covers titles and tags only"
        yield Check("note", "search index", lost)
    folder = environment.cache_home()
    try:
        environment.private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            yield Check("ok", "cache", folder)
    except OSError as error:
        lost = f"{folder} cannot be written ({error.strerror}): every query builds its index again"
        yield Check("note", "cache", lost)


def _configuration(project: Path) -> str:
    from judgekit.config.settings import load, sources

    load(project)
    return ", ".join(str(path) for path in sources(project) if path.is_file()) or "none; the defaults apply"


def _named_rubrics(settings: Config, project: Path) -> Iterator[Check]:
    """Yield what is wrong with the rubrics that the configuration names: it is used only when judging."""
    from judgekit.rubric import loader

    named: dict[loader.Section, str] = {
        "judge": settings.judge.rubric,
        "gate": settings.gate.rubric,
        "retrieval": settings.retrieval.rubric,
    }
    for section, rubric in named.items():
        try:
            loaded = loader.configured_rubric(section, rubric, project)
            if loaded.source:
                told = f"{section} uses {loaded.name}, not the bundled {loaded.rubric.rubric}"
                yield Check("note", "rubrics", f"{told}: {loaded.path}")
        except JudgekitError as error:
            yield Check("wrong", "rubrics", str(error))


def _named_providers() -> Iterator[Check]:
    """Yield the names of providers in the user's configuration that nobody has."""
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
                yield Check("wrong", "providers", str(wrong("providers", key, problem, None)))


def _models(settings: Config, project: Path) -> Iterator[Check]:
    from judgekit.config import files
    from judgekit.judging.panel import resolve_panel

    try:
        panel, reason = resolve_panel(settings, project)
    except JudgekitError as error:
        yield Check("wrong", "models", str(error))
        return
    if settings.server.url is not None:
        yield Check("ok", "shared judge", f"documents go to {settings.server.url}")
    elif not panel:
        yield Check(
            "note", "models", f"{reason}. Until then search uses BM25 alone, and documents are not judged"
        )
    for tier, jury in panel.items():
        named = ", ".join(f"{endpoint.model} ({endpoint.profile.title})" for endpoint in jury)
        yield Check("ok", f"models, {tier}", named)
    if not importlib.util.find_spec("xllamacpp"):
        told = f"not installed; to judge without a key: {files.install_extra('local')}"
        yield Check("note", "local model", told)


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
        yield Check("ok", "prompt hook", f"set up in {', '.join(where)}")
    else:
        yield Check("note", "prompt hook", "not set up; judgekit install claude-code sets it up")
    for status in statuses:
        yield from _scope(status)
    for line in (*install.doubled(project), *install.switched_off(project)):
        yield Check("note", "prompt hook", line)


def _scope(status: ScopeStatus) -> Iterator[Check]:
    subject, told = f"prompt hook, {status.scope}", f"{status.path}: {status.form}"
    again = f"run judgekit install claude-code --scope {status.scope} again"
    if status.problem and status.portable:
        yield Check("note", subject, f"{told}, inactive here: {status.problem}")
    elif status.problem:
        yield Check("wrong", subject, f"{told}: {status.problem}; {again}")
    else:
        unasked = "not run: decide yourself whether to trust this command"
        yield Check("ok", subject, f"{told}; {'it answers' if status.asked else unasked}")
    if status.missing:
        yield Check("note", subject, f"{status.path}: not called on {', '.join(status.missing)}; {again}")
