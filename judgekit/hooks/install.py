"""Installs the prompt hook: plans changes of settings files, and checks that clients would run it."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

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
DEADLINE = 10.0  # seconds for a prompt that asks no model


def get_settings_path(scope: Scope, project: Path, client: Client = CLAUDE_CODE) -> Path:
    """Return the path of a client's user or project settings. It may not exist."""
    if scope == "user":
        variable, usual_folder, name = client.user
        folder = Path(os.environ.get(variable) or usual_folder)
        return folder.expanduser().absolute() / name
    return project / client.shared[scope]


def _list_places(project: Path, client: Client) -> Iterator[tuple[Scope, Path]]:
    """Yield each scope that a client knows, with the path of its settings file."""
    for scope in SCOPES:
        if scope in ("user", *client.shared):  # every client has user settings
            yield scope, get_settings_path(scope, project, client)


def load_settings(path: Path) -> dict[str, Any]:
    """Load a settings file; {} if it can't be read."""
    try:
        return entries.parse_settings(path.read_bytes().decode(), str(path))
    except (OSError, UnicodeDecodeError, ConfigError):
        return {}


def plan_install(scope: Scope, project: Path, client: Client = CLAUDE_CODE) -> FileChange:
    """Plan the installation of the hook in the settings file of a client (a coding agent).

    Raises `ConfigError` or `InputError` if the file can't be read. Raises `UsageError` if the project is the
    home folder, because the project's settings file is then the user's.
    """
    path = get_settings_path(scope, project, client)
    if scope != "user" and path.resolve() == get_settings_path("user", project, client).resolve():
        raise UsageError(
            f"{path} is your own settings file: use --scope user, or change to a project"
        )

    # In `removal`, `before` is the current content, and `after` the content without our entries.
    removal = plan_uninstall(scope, project, client)
    if scope == "project":  # the file is shared with other machines
        hook = entries.build_portable_entry(client)
    else:
        hook = entries.build_fastest_entry(client=client)

    text = (removal.before or b"").decode()
    with_hook = entries.add_hook(text, hook, str(path), client)
    after = removal.before if with_hook == text else _encode(with_hook)
    return removal._replace(after=after, original=removal.after)


def plan_uninstall(scope: Scope, project: Path, client: Client = CLAUDE_CODE) -> FileChange:
    """Plan the removal of the hook from a client's settings file.

    If nothing else remains in the file, it's deleted. If it's unchanged since the installation, the earlier
    content is restored exactly. Raises `ConfigError` or `InputError` if the file can't be read.
    """
    path = get_settings_path(scope, project, client)
    before = files.read_content(path)
    try:
        text = (before or b"").decode()
    except UnicodeDecodeError as error:
        line = (before or b"").count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte {error.start}); save it as UTF-8; nothing was changed"
        raise ConfigError(problem, path=path, line=line) from None

    after = before
    if entries.list_our_entries(entries.parse_settings(text, str(path))):
        after = _remove_ours(path, before or b"", text)
    return FileChange(path, before, after=after, is_users=scope == "user")


def _remove_ours(path: Path, before: bytes, text: str) -> bytes | None:
    """Return a settings file's content without our entries; None if the file is to be deleted."""
    record = files.find_record(path)
    if record is not None and files.is_unchanged(path, before):
        return record.before
    text_without_ours = entries.remove_hooks(text, str(path))
    if text_without_ours:
        return _encode(text_without_ours)
    # If the file existed before the installation, leave it empty. Otherwise delete it.
    was_empty_file = record is not None and record.before == b""
    return b"" if was_empty_file else None


def _encode(text: str) -> bytes:
    """Encode settings text as UTF-8."""
    # JSON can contain half a surrogate pair, which UTF-8 can't encode, so write that as an escape.
    return text.encode("utf-8", "backslashreplace")


def list_notes(project: Path, client: Client = CLAUDE_CODE) -> Iterator[str]:
    """Yield notes about anything that prevents a client from running hooks, and about duplicate hooks."""
    if client is CLAUDE_CODE:
        yield from _list_managed_switches()
    yield from list_obstacles(project, client)
    places = _list_answering_places(project, client)
    if len(places) > 1:
        joined_places = " and in ".join(places)
        remedy = f"keep one (judgekit uninstall {client.command} --scope SCOPE)"
        yield f"each prompt is answered {len(places)} times: the hook is in {joined_places}; {remedy}"


def _list_managed_switches() -> Iterator[str]:
    """Yield a remark about each setting by an organisation that disables hooks."""
    managed = Path(MANAGED.get(sys.platform, "/etc/claude-code"))
    more_files = sorted((managed / "managed-settings.d").glob("*.json"))
    for path in (managed / "managed-settings.json", *more_files):
        for switch in ("disableAllHooks", "allowManagedHooksOnly"):
            if load_settings(path).get(switch) is True:
                yield f"{path} (managed) sets {switch}: Claude Code runs none of your hooks"


def list_obstacles(project: Path, client: Client) -> Iterator[str]:
    """Yield a remark for each setting of the client that prevents our hooks from running."""
    prompt_hooks: list[dict[str, Any]] = []
    for _, path in _list_places(project, client):
        data = load_settings(path)
        file_hooks = [
            hook for event, _, hook in entries.list_our_entries(data) if event == client.prompt
        ]
        if not file_hooks:
            continue

        prompt_hooks += file_hooks

        # `alone` marks clients that ignore a file of hooks if it contains anything else.
        if client.takes_only_hooks:
            yield from _list_flaws(path, data, client)
        if client is CODEX:
            yield from _list_codex_states(path, project)

    yield from _list_switched_off(project, client, prompt_hooks)


def _list_switched_off(
    project: Path, client: Client, prompt_hooks: list[dict[str, Any]]
) -> Iterator[str]:
    """Yield remarks on settings that disable a client's hooks, either all of them or ours."""
    for file, general in _list_switches(project, client):
        for switch, disabling_value in client.off_settings:
            if _get_value(general, switch) is disabling_value:
                setting = switch if disabling_value else f"{switch} = false"
                yield f"{file} sets {setting}: {client.title} runs no hooks until you remove it"
        for key in client.disabled_lists:
            names = _get_value(general, key)
            if isinstance(names, list):
                yield from _list_disabled(file, key, names, prompt_hooks, client)


def _list_disabled(
    file: Path, key: str, names: list[Any], prompt_hooks: list[dict[str, Any]], client: Client
) -> Iterator[str]:
    """Yield a remark if our prompt hook is in a file's list of disabled hooks."""
    if not prompt_hooks:
        return
    first_hook = prompt_hooks[0]
    name = first_hook.get("name") or first_hook.get("command")
    if name in names:
        yield f"{file} lists {name} in {key}: {client.title} skips the hook; take it off that list"


def _list_flaws(path: Path, data: dict[str, Any], client: Client) -> Iterator[str]:
    """Yield remarks on flaws that make a client ignore a whole file of hooks."""
    effect = f"{client.title} ignores the whole file, with all its hooks"
    keys = ", ".join(key for key in data if key != "hooks")
    if keys:
        yield f"{path} has another key than hooks ({keys}): {effect}; remove it"
    with contextlib.suppress(OSError):
        if path.read_bytes().startswith(codecs.BOM_UTF8):
            yield f"{path} begins with a byte order mark: {effect}; save it without one"
    for event, groups in data.get("hooks", {}).items():
        if not isinstance(groups, list) or not all(map(_is_group, groups)):
            yield f"{path}: hooks.{event} is no list of hooks: {effect}; correct it"


def _is_group(group: object) -> bool:
    """Whether a value in a client's settings has the form of a hook group."""
    if not isinstance(group, dict):
        return False
    hooks = group.get("hooks", [])
    if not isinstance(hooks, list):
        return False
    return all(isinstance(hook, dict) and "type" in hook for hook in hooks)


def _list_codex_states(path: Path, project: Path) -> Iterator[str]:
    """Yield a remark if Codex won't run our hook in the settings file `path`.

    Codex must trust the hook and, unless it's the user's, the project. The user can also switch the hook off.
    """
    file, general = _read_switches(get_settings_path("user", project, CODEX), CODEX)
    states = _get_value(general, "hooks.state")
    if not isinstance(states, dict):
        states = {}

    # Select the states of all hooks in `path`. Their keys start with the path.
    prefixes = (f"{path}:", f"{path.resolve()}:")
    hook_states = {}
    for key, state in states.items():
        if key.startswith(prefixes):
            hook_states[key] = state

    # A hook without a state isn't trusted yet.
    if not hook_states:
        yield f"{path}: not trusted yet; {CODEX.trust}"
    for key, state in hook_states.items():
        is_off = isinstance(state, dict) and state.get("enabled") is False
        if is_off and ":user_prompt_submit:" in key:
            yield f"{file} switches the hook of {path} off; type /hooks in codex to switch it on"

    # Codex ignores the hooks of an untrusted project, but runs the user's own.
    is_users = not path.is_relative_to(project)
    if not is_users and _is_untrusted(project, general):
        yield f"{file} says that {project} is untrusted: Codex runs no hooks of it"


def _is_untrusted(project: Path, general: dict[str, Any]) -> bool:
    """Whether Codex's configuration marks a project as untrusted."""
    projects = _get_value(general, "projects")
    if not isinstance(projects, dict):
        return False
    facts = projects.get(str(project))
    return isinstance(facts, dict) and facts.get("trust_level") == "untrusted"


def _list_switches(project: Path, client: Client) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield each file that can disable hooks, with its content, including a machine-wide one."""
    for _, path in _list_places(project, client):
        yield _read_switches(path, client)
    if client.machine_settings:
        name = os.environ.get(client.machine_settings["variable"]) or client.machine_settings.get(
            sys.platform
        )
        if name:
            yield Path(name), load_settings(Path(name))


def list_left_hooks(project: Path, client: Client) -> Iterator[str]:
    """Yield a remark about each settings file that still has our hook, or about Codex's notes on it."""
    for scope, path in _list_places(project, client):
        if entries.list_our_entries(load_settings(path)):
            remedy = f"judgekit uninstall {client.command} --scope {scope} removes it"
            yield f"the hook is still in {path}; {remedy}"
        elif client is CODEX:
            file, general = _read_switches(get_settings_path("user", project, CODEX), CODEX)
            states = _get_value(general, "hooks.state")
            if isinstance(states, dict) and any(key.startswith(f"{path}:") for key in states):
                yield f"{file} still has Codex's notes of the hooks of {path}; you may delete them"

    if client is CLAUDE_CODE and is_plugin_enabled(project):
        yield "the plugin still answers prompts; /plugin in Claude Code removes it"


def _list_answering_places(project: Path, client: Client) -> list[str]:
    """Name the settings with a hook of ours that answers prompts.

    Most clients run hooks with equal commands only once, so list only the first of these.
    """
    places: dict[str, str] = {}
    for scope, path in _list_places(project, client):
        for event, _, hook in entries.list_our_entries(load_settings(path)):
            if event == client.prompt:
                command = json.dumps([hook.get("command"), hook.get("args")])
                key = scope if client is CODEX else command  # Codex runs equal hooks twice
                places.setdefault(key, f"the {scope} settings")
    if client is CLAUDE_CODE and is_plugin_enabled(project):
        places["plugin"] = "the plugin"
    return list(places.values())


def _read_switches(path: Path, client: Client) -> tuple[Path, dict[str, Any]]:
    """Read the file that can disable the hooks in `path`. Returns its path and content.

    Codex uses the `config.toml` next to `path`. For all other clients, it's `path` itself.
    """
    if client is not CODEX:
        return path, load_settings(path)
    file = path.with_name("config.toml")
    try:
        return file, tomllib.loads(file.read_bytes().decode())
    except (OSError, ValueError, RecursionError):
        return file, {}


def _get_value(data: object, keys: str) -> object:
    """Return the value at a dotted key, such as `hooks.state`; None if it's missing."""
    value = data
    for key in keys.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def is_plugin_enabled(project: Path) -> bool:
    """Whether our plugin is enabled. A project's settings override the user's."""
    switches: dict[str, Any] = {}
    for scope in SCOPES:  # from the user's to the most specific, which overrides the others
        plugins = load_settings(get_settings_path(scope, project)).get("enabledPlugins")
        if isinstance(plugins, dict):
            switches |= plugins
    for full_name, is_on in switches.items():
        name, _, _ = full_name.partition("@")
        if name == PLUGIN and is_on:
            return True
    return False


def check_prompt_hooks(project: Path) -> Iterator[Finding]:
    """Check the prompt hook in all clients' settings. Yields problems first, then a summary and details.

    Hooks that are safe to run are tried, for at most 10 s each.
    """
    problems: list[Finding] = []
    details: list[Finding] = []
    notes: list[Finding] = []
    places: list[str] = []  # where the hook is set up, such as "the user settings"

    for client in CLIENTS:
        findings = _check_client(client, project)
        problems += findings.problems
        details += findings.details
        notes += findings.notes
        places += findings.places
    if is_plugin_enabled(project):
        places.append("the plugin")

    yield from problems
    if places:
        yield "ok", "prompt hook", f"set up in {', '.join(places)}"
    elif not problems:
        yield "note", "prompt hook", "not set up; judgekit install claude-code sets it up"
    yield from details
    yield from notes


class _ClientFindings(NamedTuple):
    """The places of a client's hooks, and findings: on its files, on each hook, and on what else matters."""

    places: list[str]
    problems: list[Finding]
    details: list[Finding]
    notes: list[Finding]


def _check_client(client: Client, project: Path) -> _ClientFindings:
    """Check a client's settings files and our hooks in them.

    Returns the places where hooks are set up, with problems, details and notes about them.
    """
    of_client = "" if client is CLAUDE_CODE else f" of {client.title}"
    findings = _ClientFindings(places=[], problems=[], details=[], notes=[])
    for scope, path in _list_places(project, client):
        # Planning a removal finds any problem with the settings file.
        try:
            plan_uninstall(scope, project, client)
        except JudgekitError as error:
            problem = str(error).removesuffix("; nothing was changed")
            findings.problems.append(("wrong", "prompt hook", problem))

        hooks = _map_first_hooks(path)
        if not hooks:
            continue

        findings.places.append(f"the {scope} settings{of_client}")
        for state, text in _describe_hooks(client, scope, hooks):
            detail: Finding = (state, f"prompt hook, {scope}{of_client}", f"{path}: {text}")
            findings.details.append(detail)

    # Skip notes about clients that the user doesn't seem to use.
    if findings.places or client is CLAUDE_CODE:
        for note in list_notes(project, client):
            findings.notes.append(("note", f"prompt hook{of_client}", note))
    return findings


def _map_first_hooks(path: Path) -> dict[str, dict[str, Any]]:
    """Return our first hook for each event in a settings file."""
    hooks: dict[str, dict[str, Any]] = {}
    for event, _, hook in entries.list_our_entries(load_settings(path)):
        hooks.setdefault(event, hook)
    return hooks


def check_agent_command() -> Finding:
    """Check that a fresh login shell can run judgekit, because our hints tell agents to search with it."""
    subject = "an agent's search"

    # Start the shell without this process's variables, especially its PATH.
    shell = os.environ.get("SHELL") or "/bin/sh"
    bare_environ = {"PATH": os.defpath, "SHELL": shell}
    for name in ("HOME", "USER", "LOGNAME"):
        if name in os.environ:
            bare_environ[name] = os.environ[name]

    # A login shell sets its own PATH.
    if _runs_without_error([shell, "-lc", f"{context.PROGRAM} --version"], bare_environ):
        return "ok", subject, f"a login shell finds {context.PROGRAM}"

    # Otherwise the hints name the program in this Python's folder, if it works.
    path = os.path.join(os.path.dirname(sys.executable), context.PROGRAM)
    if _runs_without_error([path, "--version"], bare_environ):
        hint = f"hints to an agent may name {path}"
    else:
        hint = "hints to an agent name files to read"

    problem = f"a login shell does not find {context.PROGRAM}, so {hint}"
    remedy = "install it with `uv tool install .` or `pipx install .`, in your checkout, to have it there"
    return "note", subject, f"{problem}; {remedy}"


def _runs_without_error(words: list[str], environ: dict[str, str]) -> bool:
    """Whether a program ends in time with exit code 0."""
    try:
        code, _, _ = programs.run(words, environ, seconds=DEADLINE)
    except (programs.Unfinished, OSError):
        return False
    return code == 0


def _describe_hooks(
    client: Client, scope: Scope, hooks: dict[str, dict[str, Any]]
) -> Iterator[tuple[State, str]]:
    """Yield findings about our hooks in a settings file.

    They describe the form of the command, whether it answers, and which events lack our hook. `hooks` maps
    events to our hooks.
    """
    # We install the same command for all events, so check only one, if possible the hook for prompts.
    hook = hooks.get(client.prompt) or next(iter(hooks.values()))
    program, *arguments = entries.get_argument_vector(hook)
    is_portable = hook == entries.build_portable_entry(client)
    if hook["command"] == entries.PORTABLE:
        form = "the portable form"
    elif arguments[:2] == ["-I", "-S"]:
        form = f"the fastest form, {program}"
    else:
        form = f"another form, {program}"

    # A project's settings can come from a stranger, so only run a command that we would have written.
    is_run = scope == "user" or is_portable or hook == entries.build_fastest_entry(client=client)
    problem = find_problem(hook) if is_run else _describe_absence(program)
    again = f"run judgekit install {client.command} --scope {scope} again"
    if problem and is_portable:
        yield "note", f"{form}, inactive here: {problem}"
    elif problem:
        yield "wrong", f"{form}: {problem}; {again}"
    elif is_run:
        yield "ok", f"{form}; it answers"
    else:
        yield "ok", f"{form}; not run: decide yourself whether to trust this command"

    # An earlier version, which handled fewer events, can have installed the hooks.
    missing_events = [event for event in client.events if event not in hooks]
    if missing_events:
        yield "note", f"not called on {', '.join(missing_events)}; {again}"


def find_problem(hook: dict[str, Any], deadline: float = DEADLINE) -> str | None:
    """Run our hook with a prompt in a temporary project. Returns the problem, or None if it answers.

    `deadline` is in seconds.
    """
    # If the program is missing, there's nothing to run.
    words = entries.get_argument_vector(hook)
    absence = _describe_absence(words[0])
    if absence:
        return absence

    if "args" not in hook:  # the client starts a shell
        words = [programs.find("sh", os.environ) or "/bin/sh", "-c", str(hook["command"])]

    # Omit the user's judgekit settings from the environment.
    environ = {}
    for name, value in os.environ.items():
        if not name.startswith("JUDGEKIT_"):
            environ[name] = value

    with tempfile.TemporaryDirectory(
        prefix="judgekit-doctor-", ignore_cleanup_errors=True
    ) as folder:
        environ["JUDGEKIT_HOME"] = str(Path(folder, "home"))
        event = _prepare_trial(folder)
        try:
            code, output, errors = programs.run(
                words, environ, event, seconds=deadline, folder=folder
            )
        except programs.Unfinished:
            return f"it does not respond within {deadline:g} s"
        except OSError as error:
            return f"it cannot be started ({error.strerror})"

    # An answer contains a memory tag. Otherwise the last line of stderr says what's wrong.
    _, _, last_line = errors.strip().rpartition("\n")
    if not last_line:
        last_line = "it prints nothing"
    if code:
        return f"it ends with code {code}: {last_line}"
    if b"<memory-" not in output:
        return f"it does not respond: {last_line}"
    return None


def _prepare_trial(folder: str) -> str:
    """Create a memory in a temporary project. Returns the JSON event of a prompt that finds it."""
    store = Path(folder, ".claude", "memory")
    store.mkdir(parents=True)
    memory = "# The doctor asks the prompt hook a question\n"
    (store / "doctor.md").write_text(memory, encoding="utf-8")
    question = "What does the doctor ask the prompt hook?"
    return json.dumps({"hook_event_name": CLAUDE_CODE.prompt, "prompt": question, "cwd": folder})


def _describe_absence(program: str) -> str | None:
    """Describe that a hook's program is missing; None if it exists."""
    if Path(program).is_absolute():
        if Path(program).is_file():
            return None
        return f"its program {program} no longer exists"
    if programs.find(program, os.environ):
        return None
    return f"its program {program} is not on this shell's PATH"
