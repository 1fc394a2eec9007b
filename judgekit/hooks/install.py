"""Installs the prompt hook: which settings file, what it would hold, and whether the client would run it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from judgekit import programs
from judgekit.errors import ConfigError, JudgekitError, UsageError
from judgekit.hooks import context, entries, files
from judgekit.hooks.clients import CLAUDE_CODE, CLIENTS, CODEX, Client
from judgekit.hooks.entries import Scope
from judgekit.hooks.files import FileChange

if TYPE_CHECKING:
    from collections.abc import Iterator

State: TypeAlias = Literal["ok", "note", "wrong"]
Finding: TypeAlias = tuple[State, str, str]
"""A state, a subject and a text: `note` is worth knowing, `wrong` keeps something from working."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
PLUGIN = "judgekit"  # its name; the client lists it as NAME@MARKETPLACE
MANAGED = {
    "darwin": "/Library/Application Support/ClaudeCode",
    "win32": r"C:\Program Files\ClaudeCode",
}
DEADLINE = 10.0  # seconds: a prompt for which no model is asked


def settings_file(scope: Scope, project: Path, client: Client = CLAUDE_CODE) -> Path:
    if scope == "user":
        variable, folder, name = client.user
        return Path(os.environ.get(variable) or folder).expanduser().absolute() / name
    return project / client.shared[scope]


def _places(project: Path, client: Client) -> Iterator[tuple[Scope, Path]]:
    for scope in SCOPES:
        if scope in ("user", *client.shared):
            yield scope, settings_file(scope, project, client)


def settings(path: Path) -> dict[str, Any]:
    """Return what stands in a settings file; nothing where it cannot be read."""
    try:
        return entries.loaded(path.read_bytes().decode(), str(path))
    except (OSError, UnicodeDecodeError, ConfigError):
        return {}


def plan_install(scope: Scope, project: Path, client: Client = CLAUDE_CODE) -> FileChange:
    """Return what installing the hook would change.

    Raises `ConfigError` when the file is not what the client reads, `InputError` when it cannot be read, and
    `UsageError` when the project's file is the user's own.
    """
    path = settings_file(scope, project, client)
    if scope != "user" and path.resolve() == settings_file("user", project, client).resolve():
        raise UsageError(
            f"{path} is your own settings file: use --scope user, or change to a project"
        )
    removal = plan_uninstall(scope, project, client)
    if scope == "project":
        hook = entries.portable(client)
    else:
        hook = entries.fastest(client=client)
    text = (removal.before or b"").decode()
    with_hook = entries.installed(text, hook, str(path), client)
    return removal._replace(
        after=removal.before if with_hook == text else _encoded(with_hook), original=removal.after
    )


def plan_uninstall(scope: Scope, project: Path, client: Client = CLAUDE_CODE) -> FileChange:
    """Return what taking the hook out would change: a file that holds nothing else goes.

    Without our entries the file is what it was before, byte for byte, where nobody has changed it since.
    Raises `ConfigError` when the file is not what the client reads, and `InputError` when it cannot be read.
    """
    path = settings_file(scope, project, client)
    before = original = files.read(path)
    try:
        text = (before or b"").decode()
    except UnicodeDecodeError as error:
        line = (before or b"").count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte {error.start}); save it as UTF-8; nothing was changed"
        raise ConfigError(problem, path=path, line=line) from None
    if entries.ours(entries.loaded(text, str(path))):
        record = files.recorded(path)
        if record and record.sha256 == hashlib.sha256(before or b"").hexdigest():
            original = record.before
        else:
            left = entries.uninstalled(text, str(path))
            if left:
                original = _encoded(left)
            elif record and record.before == b"":
                original = b""
            else:
                original = None
    return FileChange(path, before, after=original, is_users=scope == "user")


def _encoded(text: str) -> bytes:
    # Half of a pair of surrogates can only stand escaped.
    return text.encode("utf-8", "backslashreplace")


def notes(project: Path, client: Client = CLAUDE_CODE) -> Iterator[str]:
    """Yield what keeps a client from running the hook at all, and why it answers a prompt twice."""
    managed = Path(MANAGED.get(sys.platform, "/etc/claude-code"))
    files = (
        managed / "managed-settings.json",
        *sorted((managed / "managed-settings.d").glob("*.json")),
    )
    for path in files if client is CLAUDE_CODE else ():
        for switch in ("disableAllHooks", "allowManagedHooksOnly"):
            if settings(path).get(switch) is True:
                yield f"{path} (managed) sets {switch}: Claude Code runs none of your hooks"
    (switch, off) = client.off
    answers: dict[str, str] = {}  # equal commands are merged, not by Codex
    for scope, path in _places(project, client):
        file, general = _general(path, client)
        if _at(general, switch) is off:
            said = switch if off else f"{switch} = false"
            yield f"{file} sets {said}: {client.title} runs no hooks until you remove it"
        for event, _, hook in entries.ours(settings(path)):
            if event == client.prompt:
                command = json.dumps([hook.get("command"), hook.get("args")])
                answers.setdefault(scope if client is CODEX else command, f"the {scope} settings")
                if client is CODEX and not _trusted(path, project):
                    yield f"{path}: not trusted yet; {client.trust}"
    if client is CLAUDE_CODE and plugin_enabled(project):
        answers["plugin"] = "the plugin"
    if len(answers) > 1:
        where = " and in ".join(answers.values())
        remedy = f"keep one (judgekit uninstall {client.command} --scope SCOPE)"
        yield f"each prompt is answered {len(answers)} times: the hook is in {where}; {remedy}"


def _general(path: Path, client: Client) -> tuple[Path, dict[str, Any]]:
    """Return the file beside the hooks that may switch them off, and what it says."""
    if client is not CODEX:
        return path, settings(path)
    file = path.with_name("config.toml")
    try:
        return file, tomllib.loads(file.read_bytes().decode())
    except (OSError, ValueError, RecursionError):
        return file, {}


def _trusted(path: Path, project: Path) -> bool:
    """Whether Codex has noted that it may run a hook of a file; an older one, perhaps."""
    state = _at(_general(settings_file("user", project, CODEX), CODEX)[1], "hooks.state")
    names = (f"{path}:", f"{path.resolve()}:")
    return isinstance(state, dict) and any(key.startswith(names) for key in state)


def _at(data: object, keys: str) -> object:
    for key in keys.split("."):
        if isinstance(data, dict):
            data = data.get(key)
        else:
            data = None
    return data


def plugin_enabled(project: Path) -> bool:
    """Whether our plugin is switched on; the narrower scope's word holds."""
    enabled: dict[str, Any] = {}
    for scope in SCOPES:
        plugins = settings(settings_file(scope, project)).get("enabledPlugins")
        enabled |= plugins if isinstance(plugins, dict) else {}
    return any(name.partition("@")[0] == PLUGIN and on for name, on in enabled.items())


def check_prompt_hooks(project: Path) -> Iterator[Finding]:
    """Yield what there is to say about the prompt hook; each that may be run is asked once, for 10 s."""
    broken: list[Finding] = []
    where: list[str] = []
    found: list[Finding] = []
    noted: list[Finding] = []
    for client in CLIENTS:
        if client is CLAUDE_CODE:
            of = ""
        else:
            of = f" of {client.title}"
        is_there = client is CLAUDE_CODE
        for scope, path in _places(project, client):
            try:
                plan_uninstall(scope, project, client)
            except JudgekitError as error:
                broken.append(
                    ("wrong", "prompt hook", str(error).removesuffix("; nothing was changed"))
                )
            if hooks := {event: hook for event, _, hook in reversed(entries.ours(settings(path)))}:
                is_there = True
                where.append(f"the {scope} settings{of}")
                lines = _of_scope(client, scope, hooks)
                found += [
                    (state, f"prompt hook, {scope}{of}", f"{path}: {line}") for state, line in lines
                ]
        if is_there:
            noted += [("note", f"prompt hook{of}", line) for line in notes(project, client)]
    where += ["the plugin"] * plugin_enabled(project)
    yield from broken
    if where:
        yield "ok", "prompt hook", f"set up in {', '.join(where)}"
    elif not broken:
        yield "note", "prompt hook", "not set up; judgekit install claude-code sets it up"
    yield from (*found, *noted)


def check_agent_command() -> Finding:
    """Try, in a login shell that knows nothing of this one, what the hints tell an agent to run."""
    subject = "an agent's search"
    shell = os.environ.get("SHELL") or "/bin/sh"
    bare = {}
    for name in ("HOME", "USER", "LOGNAME"):
        if name in os.environ:
            bare[name] = os.environ[name]
    bare |= {"PATH": os.defpath, "SHELL": shell}
    by_name = _ends_well([shell, "-lc", f"{context.PROGRAM} --version"], bare)
    if by_name:
        return "ok", subject, f"a login shell finds {context.PROGRAM}"
    remedy = "install it with `uv tool install .` or `pipx install .`, in your checkout, to have it there"
    path = os.path.join(os.path.dirname(sys.executable), context.PROGRAM)
    lost = f"a login shell does not find {context.PROGRAM}"
    if _ends_well([path, "--version"], bare):
        return "note", subject, f"{lost}, so hints to an agent may name {path}; {remedy}"
    return "note", subject, f"{lost}, so hints to an agent name files to read; {remedy}"


def _ends_well(words: list[str], environ: dict[str, str]) -> bool:
    try:
        code, _, _ = programs.run(words, environ, seconds=DEADLINE)
    except (programs.Unfinished, OSError):
        return False
    return code == 0


def _of_scope(
    client: Client, scope: Scope, hooks: dict[str, dict[str, Any]]
) -> Iterator[tuple[State, str]]:
    hook = hooks.get(client.prompt) or [*hooks.values()][-1]
    words = entries.argument_vector(hook)
    portable = hook == entries.portable(client)
    form = f"{'the fastest' if words[1:3] == ['-I', '-S'] else 'another'} form, {words[0]}"
    if hook["command"] == entries.PORTABLE:
        form = "the portable form"
    asked = scope == "user" or portable or hook == entries.fastest(client=client)
    if asked:
        trouble = problem(hook)
    else:
        trouble = _gone(words[0])
    again = f"run judgekit install {client.command} --scope {scope} again"
    if trouble and portable:
        yield "note", f"{form}, inactive here: {trouble}"
    elif trouble:
        yield "wrong", f"{form}: {trouble}; {again}"
    else:
        unasked = "not run: decide yourself whether to trust this command"
        yield "ok", f"{form}; {'it answers' if asked else unasked}"
    if missing := [event for event in client.events if event not in hooks]:
        yield "note", f"not called on {', '.join(missing)}; {again}"


def problem(hook: dict[str, Any], deadline: float = DEADLINE) -> str | None:
    """Run a hook of ours on a tiny store of its own, `deadline` seconds at most; return what is wrong."""
    words = entries.argument_vector(hook)
    if gone := _gone(words[0]):
        return gone
    if "args" not in hook:  # the client starts a shell
        words = [programs.find("sh", os.environ) or "/bin/sh", "-c", str(hook["command"])]
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("JUDGEKIT_")
    }
    with tempfile.TemporaryDirectory(
        prefix="judgekit-doctor-", ignore_cleanup_errors=True
    ) as folder:
        store = Path(folder, ".claude", "memory")
        store.mkdir(parents=True)
        (store / "doctor.md").write_text(
            "# The doctor asks the prompt hook a question\n", encoding="utf-8"
        )
        question = "What does the doctor ask the prompt hook?"
        event = json.dumps(
            {"hook_event_name": CLAUDE_CODE.prompt, "prompt": question, "cwd": folder}
        )
        environ["JUDGEKIT_HOME"] = str(Path(folder, "home"))
        try:
            code, output, errors = programs.run(
                words, environ, event, seconds=deadline, folder=folder
            )
        except programs.Unfinished:
            return f"it does not respond within {deadline:g} s"
        except OSError as error:
            return f"it cannot be started ({error.strerror})"
    said = errors.strip().rpartition("\n")[2] or "it prints nothing"
    if code:
        return f"it ends with code {code}: {said}"
    return None if b"<memory-" in output else f"it does not respond: {said}"


def _gone(program: str) -> str | None:
    if Path(program).is_absolute():
        return None if Path(program).is_file() else f"its program {program} no longer exists"
    is_there = programs.find(program, os.environ)
    return None if is_there else f"its program {program} is not on this shell's PATH"
