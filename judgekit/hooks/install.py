"""Installs the prompt hook: which settings file, what it would hold, and whether the client would run it."""

from __future__ import annotations

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
from judgekit.hooks.files import FileChange
from judgekit.hooks.launch import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator


SCOPES: tuple[Scope, ...] = get_args(Scope)


def settings_file(scope: Scope, project: Path) -> Path:
    """Return the settings file of a scope, for the project in the folder `project`."""
    if scope == "user":
        folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path("~/.claude").expanduser())
        return folder.absolute() / "settings.json"
    return project / ".claude" / ("settings.json" if scope == "project" else "settings.local.json")


def project_folder(folder: Path | None = None) -> Path:
    """Return the project around `folder` (the current one)."""
    return Path(environment.project_root(str(folder or Path.cwd())))


def planned_install(scope: Scope, project: Path, python: str | None = None) -> FileChange:
    """Return what installing the hook would change.

    `python` is the interpreter that runs it (this one); the project scope, which is shared, names none.

    Raises `ConfigError` when the file is not what Claude Code reads, `InputError` when it cannot be read, and
    `UsageError` when the project's file is the user's own.
    """
    path = settings_file(scope, project)
    if scope != "user" and path.resolve() == settings_file("user", project).resolve():
        raise UsageError(f"{path} is your own settings file: use --scope user, or change to a project")
    before = files.read(path)
    hook = entries.portable() if scope == "project" else entries.fastest(python)
    text = _text(path, before)
    after = entries.installed(text, hook, str(path))
    return FileChange(path, before, before if after == text else _bytes(after))


def planned_uninstall(scope: Scope, project: Path) -> FileChange:
    """Return what taking the hook out would change: a file that holds nothing else goes.

    Raises as `planned_install` does.
    """
    path = settings_file(scope, project)
    before = files.read(path)
    return FileChange(path, before, _original(path, before))


def install(change: FileChange) -> None:
    """Write a planned installation.

    Raises `InputError` when that cannot be done; then nothing has changed.
    """
    if change.changes and change.after is not None:
        original = _original(change.path, change.before)
        made = files.replace(*change)
        files.remember(change.path, made, original, change.after)


def uninstall(change: FileChange) -> None:
    """Carry out a planned removal, that of folders made for it too. Raises as `install` does."""
    if change.changes:
        files.replace(*change)
        files.forget(change.path)


def _original(path: Path, content: bytes | None) -> bytes | None:
    """Return what a settings file is without our entries.

    That is what it was before, byte for byte, where nobody has changed it since.
    """
    text = _text(path, content)
    if not entries.found(text, str(path)):
        return content
    record = files.recorded(path)
    if record and record.sha256 == hashlib.sha256(content or b"").hexdigest():
        return record.before
    left = entries.uninstalled(text, str(path))
    return _bytes(left) if left else b"" if record and record.before == b"" else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # half of a pair of surrogates can only stand escaped


def _text(path: Path, content: bytes | None) -> str:
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        line = (content or b"").count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte {error.start}); save it as UTF-8, nothing was changed"
        raise ConfigError(problem, path=path, line=line) from None


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
                "judgekit is not on this shell's PATH, where the shared hook looks for it, so the hook "
                "adds nothing here; use --scope local to name this installation"
            )
        return
    yield from _interpreter(scope, project)
    if scope == "local" and _is_shared(settings_file(scope, project)):
        yield (
            "git does not ignore .claude/settings.local.json, which has paths of this machine; add it to "
            ".gitignore"
        )


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
        for entry in installed(scope, project):
            if entry.event == "UserPromptSubmit":
                command = json.dumps([entry.hook.get("command"), entry.hook.get("args")])
                seen.setdefault(command, f"the {scope} settings")
    if plugin_enabled(project):
        seen["plugin"] = "the plugin"
    if len(seen) > 1:
        where = " and in ".join(seen.values())
        remedy = "keep one (judgekit uninstall claude-code --scope SCOPE)"
        yield f"each prompt is answered {len(seen)} times: the hook is in {where}; {remedy}"


def installed(scope: Scope, project: Path) -> list[entries.HookEntry]:
    """Return our entries in a scope's settings; none where the file cannot be read or is not JSON."""
    return entries.ours(settings(settings_file(scope, project)))


def plugin_enabled(project: Path) -> bool:
    """Whether our plugin is switched on; the narrower scope's word holds."""
    enabled: dict[str, Any] = {}
    for scope in SCOPES:
        found = settings(settings_file(scope, project)).get("enabledPlugins")
        enabled |= found if isinstance(found, dict) else {}
    return any(name.partition("@")[0] == PLUGIN and on for name, on in enabled.items())


def settings(path: Path) -> dict[str, Any]:
    """Return what stands in a settings file; nothing where it cannot be read."""
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _strangers(scope: Scope, project: Path) -> Iterator[str]:
    """Yield hooks that run judgekit among other things: they are not ours to change."""
    path = settings_file(scope, project)
    for event, group in entries.listed(settings(path)):
        for hook in group["hooks"] if event == "UserPromptSubmit" else ():
            if entries.mentions_us(hook):
                yield (
                    f"{path} also has a hook that seems to run judgekit: {hook.get('command')}; each "
                    "prompt may be answered twice; remove one"
                )


def _interpreter(scope: Scope, project: Path) -> Iterator[str]:
    """Yield a warning when this interpreter is likely to go before the hook does."""
    prefix = Path(sys.prefix)
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    for folder, kind in ((Path(tempfile.gettempdir()), "a temporary folder"), (Path(caches), "a cache")):
        if folder.resolve() in prefix.resolve().parents:
            yield (
                f"this judgekit is installed in {kind} ({prefix}), which may be cleared; install it in a "
                "permanent place and run this again"
            )
            return
    if scope == "user" and project in prefix.parents and (project / ".git").exists():
        yield (
            f"the hook of all projects now depends on {prefix.relative_to(project)} of this project; use "
            "--scope local to install it only here"
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


DEADLINE = 10.0  # seconds: a prompt for which no model is asked
_PROMPT = "What does the doctor ask the prompt hook?"
_MEMORY = "The doctor asks the prompt hook a question"


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
        hooks = {event: hook for event, _, hook in reversed(installed(scope, project))}
        if not hooks:
            continue
        hook = hooks.get("UserPromptSubmit") or [*hooks.values()][-1]
        asked = scope == "user" or hook in (entries.portable(), entries.fastest())
        yield ScopeStatus(
            scope,
            settings_file(scope, project),
            form(hook),
            hook == entries.portable(),
            asked,
            tuple(event for event in entries.EVENTS if event not in hooks),
            problem(hook) if asked else _gone(hook),
        )


def form(hook: dict[str, Any]) -> str:
    """Return in a few words how a hook of ours is started."""
    words = entries.argument_vector(hook) or []
    if hook.get("command") == entries.PORTABLE:
        return "the portable form"
    if hook.get("command") == entries.OLDER:
        return (
            "an outdated form, which PATH and PYTHONPATH can mislead; renew it with judgekit install "
            "claude-code"
        )
    if hook == entries.fastest():
        return f"the fastest form, {words[0]}"
    if words[1:3] == entries.fastest()["args"][:2]:
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
        _write_store(Path(folder, ".claude", "memory"))
        payload = {"hook_event_name": "UserPromptSubmit", "prompt": _PROMPT, "cwd": folder}
        try:
            done = subprocess.run(  # noqa: S603 - what the user's own settings run on every prompt
                argv,
                input=json.dumps(payload).encode(),
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
    words = entries.argument_vector(hook) or [""]
    if Path(words[0]).is_absolute():
        return None if Path(words[0]).is_file() else f"its program {words[0]} no longer exists"
    return (
        None if programs.find(words[0], os.environ) else f"its program {words[0]} is not on this shell's PATH"
    )


def _write_store(store: Path) -> None:
    (store / "decisions").mkdir(parents=True)
    memory = {
        "schema_version": "1.0",
        "category": "decision",
        "id": "doctor",
        "title": _MEMORY,
        "record_status": "active",
        "tags": ["doctor"],
        "content": {"decision": _MEMORY},
    }
    (store / "decisions" / "doctor.json").write_text(json.dumps(memory), encoding="utf-8")
    line = f"- [DECISION] {_MEMORY} -> .claude/memory/decisions/doctor.json #tags:doctor\n"
    (store / "index.md").write_text(line, encoding="utf-8")
