"""What else decides whether Claude Code runs the hook, and how often: switches, policies, plugins, scopes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment, programs
from judgekit.errors import JudgekitError
from judgekit.git import GitError, Repository
from judgekit.install import claude_code, entries, forms
from judgekit.install.scopes import SCOPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.install.scopes import Scope

PLUGIN = "judgekit"  # its name; the client lists it as NAME@MARKETPLACE
MANAGED = {
    "darwin": "/Library/Application Support/ClaudeCode",
    "win32": r"C:\Program Files\ClaudeCode",
}


def notes(scope: Scope, project: Path) -> Iterator[str]:
    """Yield what a user who installs in `scope` should know, a line each."""
    yield from switched_off(project)
    yield from doubled(project)
    yield from _strangers(scope, project)
    if scope == "project":
        if programs.find("judgekit", environment.environ()) is None:
            yield (
                "judgekit is not on this shell's PATH, where the shared hook looks for it: it will be silent "
                "here; --scope local names this installation"
            )
        return
    yield from _interpreter(scope, project)
    if scope == "local" and _is_shared(claude_code.settings_file(scope, project)):
        yield "git does not ignore .claude/settings.local.json, which names paths of this machine: ignore it"


def switched_off(project: Path) -> Iterator[str]:
    """Yield the settings that keep Claude Code from running the hook at all."""
    for path in _managed_files():
        for switch in ("disableAllHooks", "allowManagedHooksOnly"):
            if settings(path).get(switch) is True:
                yield f"{path} (managed) sets {switch}: Claude Code runs no hook of yours"
    for scope in SCOPES:
        path = claude_code.settings_file(scope, project)
        if settings(path).get("disableAllHooks") is True:
            yield f"{path} sets disableAllHooks: Claude Code runs no hook until that is removed"


def doubled(project: Path) -> Iterator[str]:
    """Yield one line when a prompt is answered more than once: the client merges equal commands only."""
    seen: dict[str, str] = {}
    for scope in SCOPES:
        for entry in installed(scope, project):
            if entry.event == "UserPromptSubmit":
                command = json.dumps([entry.hook.get("command"), entry.hook.get("args")])
                seen.setdefault(command, f"the {scope} settings")
    if plugin_enabled(project):
        seen["plugin"] = "the plugin"
    if len(seen) > 1:
        where = " and in ".join(seen.values())
        remedy = "keep one (judgekit uninstall claude-code --scope SCOPE)"
        yield f"each prompt gets {len(seen)} answers: the hook is in {where}; {remedy}"


def installed(scope: Scope, project: Path) -> list[entries.Entry]:
    """Return our entries in a scope's settings; none where the file cannot be read or is not JSON."""
    path = claude_code.settings_file(scope, project)
    with contextlib.suppress(OSError, UnicodeDecodeError, JudgekitError):
        return entries.found(path.read_bytes().decode(), str(path))
    return []


def plugin_enabled(project: Path) -> bool:
    """Whether our plugin is switched on; the narrower scope's word holds."""
    enabled: dict[str, Any] = {}
    for scope in SCOPES:
        found = settings(claude_code.settings_file(scope, project)).get("enabledPlugins")
        enabled |= found if isinstance(found, dict) else {}
    return any(name.partition("@")[0] == PLUGIN and on for name, on in enabled.items())


def settings(path: Path) -> dict[str, Any]:
    """Return what stands in a settings file; nothing where it cannot be read."""
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _managed_files() -> list[Path]:
    folder = Path(MANAGED.get(sys.platform, "/etc/claude-code"))
    return [folder / "managed-settings.json", *sorted((folder / "managed-settings.d").glob("*.json"))]


def _strangers(scope: Scope, project: Path) -> Iterator[str]:
    """Yield hooks that run judgekit among other things: they are not ours to change."""
    path = claude_code.settings_file(scope, project)
    hooks = settings(path).get("hooks")
    groups = hooks.get("UserPromptSubmit") if isinstance(hooks, dict) else None
    for group in groups if isinstance(groups, list) else ():
        listed = group.get("hooks") if isinstance(group, dict) else None
        for hook in listed if isinstance(listed, list) else ():
            if forms.mentions_us(hook):
                yield (
                    f"{path} also has a hook that seems to run judgekit: {hook.get('command')}; if it does, "
                    "each prompt gets two answers; remove one"
                )


def _interpreter(scope: Scope, project: Path) -> Iterator[str]:
    """Yield a warning when this interpreter is likely to go before the hook does."""
    prefix = Path(sys.prefix)
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    for folder, kind in ((Path(tempfile.gettempdir()), "a temporary folder"), (Path(caches), "a cache")):
        if folder.resolve() in prefix.resolve().parents:
            yield (
                f"this judgekit lies in {kind} ({prefix}): when that is cleared the hook is gone; install "
                "judgekit in a lasting place and repeat this"
            )
            return
    if scope == "user" and project in prefix.parents and (project / ".git").exists():
        yield (
            f"the hook of all projects now depends on this one's {prefix.relative_to(project)}: "
            "--scope local sets it up for this project alone"
        )


def _is_shared(path: Path) -> bool:
    """Whether a file lies in a git repository that does not ignore it."""
    repository = Repository(path.parent)
    try:
        return repository.holds("rev-parse", "--git-dir") and not repository.holds(
            "check-ignore", "--quiet", path.name
        )
    except GitError:
        return False
