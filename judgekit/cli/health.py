"""Checks of an installation, each with what to do when it fails."""

from __future__ import annotations

import importlib.util
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from judgekit import environment
from judgekit.config import files as checkout
from judgekit.config.settings import load, sources, user_roots, wrong
from judgekit.environment import __version__
from judgekit.errors import JudgekitError
from judgekit.hooks import git_status, install
from judgekit.judging.panel import resolve_panel
from judgekit.providers import registry
from judgekit.retrieval import index_file, search
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Check(NamedTuple):
    """One finding: `note` is worth knowing, `wrong` keeps something from working."""

    state: Literal["ok", "note", "wrong"]
    subject: str
    text: str


def checks(folder: Path | None = None) -> Iterator[Check]:
    """Yield all findings for the project around `folder` (the current one)."""
    project = Path(environment.project_root(str(folder or Path.cwd())))
    yield Check("ok", "judgekit", f"{__version__}, Python {platform.python_version()} at {sys.executable}")
    yield _fts5()
    yield _cache()
    yield _guarded("configuration", lambda: _configuration(project))
    yield _guarded("rubrics", lambda: f"{len(list(loader.rubrics(project)))} are sound")
    yield from _named_rubrics(project)
    yield _guarded("providers", lambda: f"{len(registry.profiles())} profiles are sound")
    yield from _named_providers()
    yield from _models(project)
    yield from _stores(project)
    yield from _hook(project)
    yield from (Check(finding.state, "git hook", finding.text) for finding in git_status.findings(project))
    yield from _switches()


def _guarded(subject: str, check: Callable[[], str]) -> Check:
    try:
        return Check("ok", subject, check())
    except JudgekitError as error:
        return Check("wrong", subject, str(error))


def _fts5() -> Check:
    if not index_file.available():
        lost = "this Python's SQLite has no FTS5: memories are found by keywords in titles and tags only"
        return Check("note", "search index", lost)
    return Check("ok", "search index", "SQLite with FTS5")


def _cache() -> Check:
    folder = environment.cache_home()
    try:
        environment.private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            return Check("ok", "cache", folder)
    except OSError as error:
        return Check(
            "note",
            "cache",
            f"{folder} cannot be written ({error.strerror}): indexes are built anew each time",
        )


def _configuration(project: Path) -> str:
    load(project)
    files = [str(path) for path in sources(project) if path.is_file()]
    return ", ".join(files) if files else "none, the defaults hold"


def _named_rubrics(project: Path) -> Iterator[Check]:
    """Yield what is wrong with the rubrics that the configuration names: it is used only when judging."""
    try:
        settings = load(project)
    except JudgekitError:  # said already
        return
    named: dict[loader.Section, str] = {
        "judge": settings.judge.rubric,
        "gate": settings.gate.rubric,
        "retrieval": settings.retrieval.rubric,
    }
    for section, rubric in named.items():
        try:
            loaded = loader.configured_rubric(section, rubric, project)
            if loaded.source:
                told = f"{section} uses {loaded.name}, not the {loaded.rubric.rubric} that judgekit brings"
                yield Check("note", "rubrics", f"{told}: {loaded.path}")
        except JudgekitError as error:
            yield Check("wrong", "rubrics", str(error))


def _named_providers() -> Iterator[Check]:
    """Yield the names of providers in the user's configuration that nobody has."""
    try:
        own, known = load(None).providers, {profile.provider for profile in registry.profiles()}
    except JudgekitError:
        return
    for key, names in (("allow", own.allow), ("order", own.order)):
        for name in names or ():
            if registry.unaliased(name) not in known:
                problem = f"no provider {name!r}; judgekit provider list shows which there are"
                yield Check("wrong", "providers", str(wrong("providers", key, problem, None)))


def _models(project: Path) -> Iterator[Check]:
    try:
        settings = load(project)
        panel, reason = resolve_panel(settings, project)
    except JudgekitError as error:
        yield Check("wrong", "models", str(error))
        return
    if settings.server.url is not None:
        yield Check("ok", "shared judge", f"documents go to {settings.server.url}")
    elif not panel:
        yield Check("note", "models", f"{reason}. Until then BM25 answers alone and documents are not judged")
    for tier, jury in panel.items():
        named = ", ".join(f"{endpoint.model} ({endpoint.profile.title})" for endpoint in jury)
        yield Check("ok", f"models, {tier}", named)
    if not importlib.util.find_spec("xllamacpp"):
        told = f"not installed; one that needs no key: {checkout.install_extra('local')}"
        yield Check("note", "local model", told)


def _stores(project: Path) -> Iterator[Check]:
    try:
        roots = load(project).retrieval.roots
    except JudgekitError:
        return
    for root in roots:
        yield _guarded(f"store {root}", lambda root=root: _store(root, project))  # type: ignore[misc]  # a default binds


def _store(root: str, project: Path) -> str:
    folder = search.resolve(root, str(project))
    if not Path(folder).is_dir():
        return f"none at {folder}: the hook stays silent here"
    ranked_candidates = search.search(
        "judgekit", [root], project=str(project), limit=1, trusted=user_roots() or ()
    )
    return "; ".join([folder, *ranked_candidates.notes])


def _hook(project: Path) -> Iterator[Check]:
    found = list(install.findings(project))
    plugin = install.plugin_enabled(project)
    where = [f"the {scope_status.scope} settings" for scope_status in found] + ["the plugin"] * plugin
    if where:
        yield Check("ok", "prompt hook", f"set up in {', '.join(where)}")
    else:
        yield Check("note", "prompt hook", "not set up; judgekit install claude-code sets it up")
    for status in found:
        yield from _found_hook(status)
    for line in (*install.doubled(project), *install.switched_off(project)):
        yield Check("note", "prompt hook", line)


def _found_hook(scope_status: install.ScopeStatus) -> Iterator[Check]:
    subject = f"prompt hook, {scope_status.scope}"
    again = f"judgekit install claude-code --scope {scope_status.scope} sets it up anew"
    if scope_status.problem and scope_status.portable:
        yield Check(
            "note", subject, f"{scope_status.path}: {scope_status.form}, silent here: {scope_status.problem}"
        )
    elif scope_status.problem:
        yield Check(
            "wrong", subject, f"{scope_status.path}: {scope_status.form}: {scope_status.problem}; {again}"
        )
    else:
        answer = (
            "it answers" if scope_status.asked else "not asked: only you know whether to trust this command"
        )
        yield Check("ok", subject, f"{scope_status.path}: {scope_status.form}; {answer}")
    if scope_status.missing:
        yield Check(
            "note", subject, f"{scope_status.path}: not called on {', '.join(scope_status.missing)}; {again}"
        )


def _switches() -> Iterator[Check]:
    if environment.is_on("JUDGEKIT_DISABLE"):
        yield Check("note", "JUDGEKIT_DISABLE", "is set: every hook is silent")
    keys = [name for name, value in environment.environ().items() if name.endswith("_API_KEY") and value]
    if not keys:
        unseen = "hooks do not see a key that only an interactive shell's start file sets"
        yield Check("note", "keys", f"none is set in this shell; {unseen}")
