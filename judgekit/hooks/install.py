"""Installs the prompt hook: which settings file, what it would hold, and whether the client would run it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from judgekit import environment, programs
from judgekit.errors import ConfigError, UsageError
from judgekit.git import GitError, Repository
from judgekit.hooks import entries, files
from judgekit.hooks.entries import Scope
from judgekit.hooks.files import FileChange

if TYPE_CHECKING:
    from collections.abc import Iterator

SCOPES: tuple[Scope, ...] = get_args(Scope)
PLUGIN = "judgekit"  # its name; the client lists it as NAME@MARKETPLACE
MANAGED = {
    "darwin": "/Library/Application Support/ClaudeCode",
    "win32": r"C:\Program Files\ClaudeCode",
}
PROMPT = "UserPromptSubmit"
DEADLINE = 10.0  # seconds: a prompt for which no model is asked
_QUESTION = "What does the doctor ask the prompt hook?"
_MEMORY = "The doctor asks the prompt hook a question"


def settings_file(scope: Scope, project: Path) -> Path:
    if scope == "user":
        folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path("~/.claude").expanduser())
        return folder.absolute() / "settings.json"
    return project / ".claude" / ("settings.json" if scope == "project" else "settings.local.json")


def settings(path: Path) -> dict[str, Any]:
    """Return what stands in a settings file; nothing where it cannot be read."""
    try:
        data = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def planned_change(scope: Scope, project: Path, python: str | None = None, *, installs: bool) -> FileChange:
    """Return what installing the hook, or taking it out, would change: a file that holds nothing else goes.

    Without our entries the file is what it was before, byte for byte, where nobody has changed it since.
    `python` is the interpreter that runs the hook (this one); the project scope, which is shared, names none.

    Raises `ConfigError` when the file is not what Claude Code reads, `InputError` when it cannot be read, and
    `UsageError` when the project's file is the user's own.
    """
    path = settings_file(scope, project)
    if installs and scope != "user" and path.resolve() == settings_file("user", project).resolve():
        raise UsageError(f"{path} is your own settings file: use --scope user, or change to a project")
    before = original = files.read(path)
    try:
        text = (before or b"").decode()
    except UnicodeDecodeError as error:
        line = (before or b"").count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte {error.start}); save it as UTF-8, nothing was changed"
        raise ConfigError(problem, path=path, line=line) from None
    if entries.found(text, str(path)):
        record = files.recorded(path)
        if record and record.sha256 == hashlib.sha256(before or b"").hexdigest():
            original = record.before
        else:
            left = entries.uninstalled(text, str(path))
            original = _encoded(left) if left else b"" if record and record.before == b"" else None
    if not installs:
        return FileChange(path, before, original)
    hook = entries.portable() if scope == "project" else entries.fastest(python)
    after = entries.installed(text, hook, str(path))
    return FileChange(path, before, before if after == text else _encoded(after), original)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # half of a pair of surrogates can only stand escaped


def notes(scope: Scope, project: Path) -> Iterator[str]:
    """Yield what a user who installs in `scope` should know, a line each."""
    yield from switched_off(project)
    yield from doubled(project)
    path = settings_file(scope, project)
    for event, group in entries.listed(settings(path)):
        for hook in group["hooks"] if event == PROMPT else ():
            if entries.mentions_us(hook):
                shown = f"{path} also has a hook that seems to run judgekit: {hook.get('command')}"
                yield f"{shown}; each prompt may be answered twice; remove one"
    if scope == "project":
        if programs.find("judgekit", environment.environ()) is None:
            lost = "judgekit is not on this shell's PATH, where the shared hook looks for it"
            yield f"{lost}, so the hook adds nothing here; use --scope local to name this installation"
        return
    prefix = Path(sys.prefix)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    places = {"a temporary folder": Path(tempfile.gettempdir()), "a cache": caches}
    kind = next((kind for kind, at in places.items() if at.resolve() in prefix.resolve().parents), None)
    if kind:
        told = f"this judgekit is installed in {kind} ({prefix}), which may be cleared"
        yield f"{told}; install it in a permanent place and run this again"
    elif scope == "user" and project in prefix.parents and (project / ".git").exists():
        told = f"the hook of all projects now depends on {prefix.relative_to(project)} of this project"
        yield f"{told}; use --scope local to install it only here"
    repository = Repository(path.parent)
    with contextlib.suppress(GitError):
        is_tracked = scope == "local" and repository.holds("rev-parse", "--git-dir")
        if is_tracked and not repository.holds("check-ignore", "--quiet", path.name):
            told = "git does not ignore .claude/settings.local.json, which has paths of this machine"
            yield f"{told}; add it to .gitignore"


def switched_off(project: Path) -> Iterator[str]:
    """Yield the settings that keep Claude Code from running the hook at all."""
    folder = Path(MANAGED.get(sys.platform, "/etc/claude-code"))
    for path in (folder / "managed-settings.json", *sorted((folder / "managed-settings.d").glob("*.json"))):
        for switch in ("disableAllHooks", "allowManagedHooksOnly"):
            if settings(path).get(switch) is True:
                yield f"{path} (managed) sets {switch}: Claude Code runs none of your hooks"
    for scope in SCOPES:
        path = settings_file(scope, project)
        if settings(path).get("disableAllHooks") is True:
            yield f"{path} sets disableAllHooks: Claude Code runs no hooks until you remove it"


def doubled(project: Path) -> Iterator[str]:
    """Yield one line when a prompt is answered more than once: the client merges equal commands only."""
    seen: dict[str, str] = {}
    for scope in SCOPES:
        for event, _, hook in entries.ours(settings(settings_file(scope, project))):
            if event == PROMPT:
                command = json.dumps([hook.get("command"), hook.get("args")])
                seen.setdefault(command, f"the {scope} settings")
    if plugin_enabled(project):
        seen["plugin"] = "the plugin"
    if len(seen) > 1:
        where = " and in ".join(seen.values())
        remedy = "keep one (judgekit uninstall claude-code --scope SCOPE)"
        yield f"each prompt is answered {len(seen)} times: the hook is in {where}; {remedy}"


def plugin_enabled(project: Path) -> bool:
    """Whether our plugin is switched on; the narrower scope's word holds."""
    enabled: dict[str, Any] = {}
    for scope in SCOPES:
        plugins = settings(settings_file(scope, project)).get("enabledPlugins")
        enabled |= plugins if isinstance(plugins, dict) else {}
    return any(name.partition("@")[0] == PLUGIN and on for name, on in enabled.items())


class ScopeStatus(NamedTuple):
    """What is known of the hook in one scope: `problem` is None where it answers or was not `asked`.

    `missing` are the events it is not called on.
    """

    scope: Scope
    path: Path
    form: str
    portable: bool
    asked: bool
    missing: tuple[str, ...]
    problem: str | None


def findings(project: Path) -> Iterator[ScopeStatus]:
    """Yield one finding for every scope in which the hook is set up; each is asked once, for 10 s at most."""
    for scope in SCOPES:
        path = settings_file(scope, project)
        hooks = {event: hook for event, _, hook in reversed(entries.ours(settings(path)))}
        if not hooks:
            continue
        hook = hooks.get(PROMPT) or [*hooks.values()][-1]
        asked = scope == "user" or hook in (entries.portable(), entries.fastest())
        missing = tuple(event for event in entries.EVENTS if event not in hooks)
        trouble = problem(hook) if asked else _gone(hook)
        yield ScopeStatus(scope, path, _form(hook), hook == entries.portable(), asked, missing, trouble)


def _form(hook: dict[str, Any]) -> str:
    words = entries.argument_vector(hook) or []
    if hook.get("command") == entries.PORTABLE:
        return "the portable form"
    if hook.get("command") == entries.OLDER:
        lost = "an outdated form, which PATH and PYTHONPATH can mislead"
        return f"{lost}; renew it with judgekit install claude-code"
    if hook == entries.fastest():
        return f"the fastest form, {words[0]}"
    if words[1:3] == list(entries.OPTIONS[:2]):
        return f"the fastest form, of another installation, {words[0]}"
    return f"another form, {' '.join(words)}"


def problem(hook: dict[str, Any], deadline: float = DEADLINE) -> str | None:
    """Run a hook of ours on a tiny store, `deadline` seconds at most; return what is wrong, None if nothing.

    It sees no configuration of the user, and leaves no trace.
    """
    gone = _gone(hook)
    if gone:
        return gone
    # Where there is no `args` the client starts a shell.
    shell = [programs.find("sh", os.environ) or "/bin/sh", "-c", str(hook["command"])]
    argv = entries.argument_vector(hook) or [] if "args" in hook else shell
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JUDGEKIT_")}
    with tempfile.TemporaryDirectory(prefix="judgekit-doctor-", ignore_cleanup_errors=True) as folder:
        store = Path(folder, ".claude", "memory")
        (store / "decisions").mkdir(parents=True)
        memory: dict[str, Any] = {
            "schema_version": "1.0",
            "category": "decision",
            "id": "doctor",
            "title": _MEMORY,
        }
        memory |= {"record_status": "active", "tags": ["doctor"], "content": {"decision": _MEMORY}}
        (store / "decisions" / "doctor.json").write_text(json.dumps(memory), encoding="utf-8")
        line = f"- [DECISION] {_MEMORY} -> .claude/memory/decisions/doctor.json #tags:doctor\n"
        (store / "index.md").write_text(line, encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603 - what the user's own settings run on every prompt
                argv,
                input=json.dumps({"hook_event_name": PROMPT, "prompt": _QUESTION, "cwd": folder}).encode(),
                cwd=folder,
                env={**kept, "JUDGEKIT_HOME": str(Path(folder, "home"))},
                capture_output=True,
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it does not respond within {deadline:g} s"
        except OSError as error:
            return f"it cannot be started ({error.strerror})"
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "it prints nothing"
    if done.returncode:
        return f"it ends with code {done.returncode}: {said}"
    return None if b"<memory-" in done.stdout else f"it does not respond: {said}"


def _gone(hook: dict[str, Any]) -> str | None:
    program = (entries.argument_vector(hook) or [""])[0]
    if Path(program).is_absolute():
        return None if Path(program).is_file() else f"its program {program} no longer exists"
    is_there = programs.find(program, os.environ)
    return None if is_there else f"its program {program} is not on this shell's PATH"
