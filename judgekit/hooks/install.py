"""Installs the prompt hook: plans changes of settings files, and checks that clients would run it."""

from __future__ import annotations

import codecs
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
MANAGED_FOLDER_BY_PLATFORM = {
    "darwin": "/Library/Application Support/ClaudeCode",
    "win32": r"C:\Program Files\ClaudeCode",
}
MAX_PROMPT_SECONDS = 10.0  # seconds for a prompt that asks no model


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
    is_for_project = scope != "user"
    if is_for_project and _is_users_file(path, project, client):
        raise UsageError(
            f"{path} is your own settings file: use --scope user, or change to a project"
        )

    # A later uninstallation restores the original, which is the content without any entries of ours.
    removal = plan_uninstall(scope, project, client)
    original = removal.after

    current = removal.before
    current_text = (current or b"").decode()
    text_with_hook = entries.add_hook(current_text, _build_entry(scope, client), str(path), client)
    is_installed = text_with_hook == current_text
    after = current if is_installed else _encode(text_with_hook)
    return removal._replace(after=after, original_content=original)


def _is_users_file(path: Path, project: Path, client: Client) -> bool:
    """Whether a settings file is the user's, also if a link leads there."""
    users_path = get_settings_path("user", project, client)
    return path.resolve() == users_path.resolve()


def _build_entry(scope: Scope, client: Client) -> dict[str, Any]:
    """Build the hook entry for a scope: the fastest one, or one that works on any machine."""
    if scope == "project":  # the file is shared with other machines
        return entries.build_portable_entry(client)
    return entries.build_fastest_entry(client=client)


def plan_uninstall(scope: Scope, project: Path, client: Client = CLAUDE_CODE) -> FileChange:
    """Plan the removal of the hook from a client's settings file.

    If nothing else remains in the file, it's deleted. If it's unchanged since the installation, the earlier
    content is restored exactly. Raises `ConfigError` or `InputError` if the file can't be read.
    """
    path = get_settings_path(scope, project, client)
    before = files.read_content(path)
    content = before or b""  # a missing file is like an empty one
    text = _decode_settings(path, content)

    our_entries = entries.list_our_entries(entries.parse_settings(text, str(path)))
    after = _build_content_without_ours(path, content, text) if our_entries else before
    return FileChange(path, before, after=after, is_user_file=scope == "user")


def _decode_settings(path: Path, content: bytes) -> str:
    """Decode a settings file. Raises `ConfigError` with the line if it isn't UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte {error.start}); save it as UTF-8; nothing was changed"
        raise ConfigError(problem, path=path, line=line) from None


def _build_content_without_ours(path: Path, content: bytes, text: str) -> bytes | None:
    """Build a settings file's content without our entries; None if the file is to be deleted.

    `content` is the file's current content, and `text` is the same, decoded.
    """
    installation = files.find_record(path)
    if installation is not None and files.is_unchanged(path, content):
        # Nobody has edited the file since, so the earlier content can be restored exactly.
        return installation.before

    remaining_text = entries.remove_hooks(text, str(path))
    if remaining_text:
        return _encode(remaining_text)

    # Keep the file only if it existed before the installation, and was empty.
    was_empty_file = installation is not None and installation.before == b""
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

    places = _list_places_with_hook(project, client)
    if len(places) > 1:
        joined_places = " and in ".join(places)
        remedy = f"keep one (judgekit uninstall {client.command} --scope SCOPE)"
        yield f"each prompt is answered {len(places)} times: the hook is in {joined_places}; {remedy}"


def _list_managed_switches() -> Iterator[str]:
    """Yield a remark about each setting in an organisation's files that disables the user's hooks."""
    managed_folder = Path(MANAGED_FOLDER_BY_PLATFORM.get(sys.platform, "/etc/claude-code"))
    more_files = sorted((managed_folder / "managed-settings.d").glob("*.json"))
    for path in (managed_folder / "managed-settings.json", *more_files):
        for switch in ("disableAllHooks", "allowManagedHooksOnly"):
            if load_settings(path).get(switch) is True:
                yield f"{path} (managed) sets {switch}: Claude Code runs none of your hooks"


def list_obstacles(project: Path, client: Client) -> Iterator[str]:
    """Yield a remark for each setting of the client that prevents our hooks from running."""
    all_prompt_hooks: list[dict[str, Any]] = []
    for _, path in _list_places(project, client):
        data = load_settings(path)
        prompt_hooks = _select_prompt_hooks(data, client)
        if not prompt_hooks:
            continue

        all_prompt_hooks += prompt_hooks
        if client.takes_only_hooks:
            yield from _list_flaws(path, data, client)
        if client is CODEX:
            yield from _list_codex_states(path, project)

    yield from _list_disabling_settings(project, client, all_prompt_hooks)


def _select_prompt_hooks(data: dict[str, Any], client: Client) -> list[dict[str, Any]]:
    """Select our hooks for prompts from a client's settings."""
    our_entries = entries.list_our_entries(data)
    return [hook for event, _, hook in our_entries if event == client.prompt_event]


def _list_disabling_settings(
    project: Path, client: Client, prompt_hooks: list[dict[str, Any]]
) -> Iterator[str]:
    """Yield remarks on settings that disable a client's hooks, either all of them or ours."""
    for file, general in _list_switches(project, client):
        yield from _list_general_switches(file, general, client)
        for key in client.disabled_lists:
            names = _get_value(general, key)
            if isinstance(names, list):
                yield from _check_disabled_names(file, key, names, prompt_hooks, client)


def _list_general_switches(file: Path, general: dict[str, Any], client: Client) -> Iterator[str]:
    """Yield a remark on each setting in a file that disables all hooks of a client."""
    # `disableAllHooks` does so if it's true, and others such as `features.hooks` if they're false.
    for switch, disabling_value in client.off_settings:
        is_disabling = _get_value(general, switch) is disabling_value
        if is_disabling:
            setting = switch if disabling_value else f"{switch} = false"
            yield f"{file} sets {setting}: {client.title} runs no hooks until you remove it"


def _check_disabled_names(
    file: Path, key: str, names: list[Any], prompt_hooks: list[dict[str, Any]], client: Client
) -> Iterator[str]:
    """Yield a remark if our prompt hook is in `names`, the disabled hooks that a file lists under `key`."""
    if not prompt_hooks:
        return
    first_hook = prompt_hooks[0]  # all of ours have the same name
    # The client lists a hook without a name by its command.
    name = first_hook.get("name") or first_hook.get("command")
    if name in names:
        yield f"{file} lists {name} in {key}: {client.title} skips the hook; take it off that list"


def _list_flaws(path: Path, data: dict[str, Any], client: Client) -> Iterator[str]:
    """Yield remarks on flaws that make a client ignore a whole file of hooks."""
    effect = f"{client.title} ignores the whole file, with all its hooks"

    other_keys = ", ".join(key for key in data if key != "hooks")
    if other_keys:
        yield f"{path} has another key than hooks ({other_keys}): {effect}; remove it"

    if _has_byte_order_mark(path):
        yield f"{path} begins with a byte order mark: {effect}; save it without one"

    for event, groups in data.get("hooks", {}).items():
        if not _is_list_of_groups(groups):
            yield f"{path}: hooks.{event} is no list of hooks: {effect}; correct it"


def _has_byte_order_mark(path: Path) -> bool:
    """Whether a file begins with a byte order mark. False if it can't be read."""
    try:
        return path.read_bytes().startswith(codecs.BOM_UTF8)
    except OSError:
        return False


def _is_list_of_groups(groups: object) -> bool:
    """Whether a value in a client's settings is a list of hook groups."""
    return isinstance(groups, list) and all(_is_group(group) for group in groups)


def _is_group(group: object) -> bool:
    """Whether a value in a client's settings has the form of a hook group."""
    if not isinstance(group, dict):
        return False
    hooks = group.get("hooks", [])
    if not isinstance(hooks, list):
        return False
    return all(isinstance(hook, dict) and "type" in hook for hook in hooks)


def _list_codex_states(path: Path, project: Path) -> Iterator[str]:
    """Yield a remark on each reason why Codex won't run our hook in the settings file `path`.

    Codex runs a hook if the user trusts it and hasn't switched it off. A project's hook also needs a trusted
    project.
    """
    config_file, general = _read_switches(get_settings_path("user", project, CODEX), CODEX)
    hook_states = _select_hook_states(general, path)
    if not hook_states:  # a hook without a state isn't trusted yet
        yield f"{path}: not trusted yet; {CODEX.trust}"

    for key, state in hook_states.items():
        is_of_prompt_hook = ":user_prompt_submit:" in key
        if is_of_prompt_hook and _is_switched_off(state):
            yield f"{config_file} switches the hook of {path} off; type /hooks in codex to switch it on"

    is_in_project = path.is_relative_to(project)
    if is_in_project and _is_untrusted(project, general):
        yield f"{config_file} says that {project} is untrusted: Codex runs no hooks of it"


def _select_hook_states(general: dict[str, Any], path: Path) -> dict[str, Any]:
    """Select the state of each hook in the settings file `path`: whether Codex trusts it, and it's on."""
    states = _get_value(general, "hooks.state")
    if not isinstance(states, dict):
        return {}
    # A key starts with the path of the hook's file, in which Codex may have resolved links.
    prefixes = (f"{path}:", f"{path.resolve()}:")
    return {key: state for key, state in states.items() if key.startswith(prefixes)}


def _is_switched_off(state: object) -> bool:
    """Whether Codex's state of a hook says that the user has switched it off."""
    return isinstance(state, dict) and state.get("enabled") is False


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

    machine_file = _find_machine_file(client)
    if machine_file is not None:
        yield machine_file, load_settings(machine_file)


def _find_machine_file(client: Client) -> Path | None:
    """Find a client's machine-wide settings file; None if it has none on this platform."""
    if not client.machine_settings:
        return None
    # The table has the usual path for each platform, and an environment variable that overrides it.
    usual_path = client.machine_settings.get(sys.platform)
    variable = client.machine_settings["variable"]
    path = os.environ.get(variable) or usual_path
    return Path(path) if path else None


def list_left_hooks(project: Path, client: Client) -> Iterator[str]:
    """Yield a remark about each settings file that still has our hook.

    Codex also keeps the state of each hook in a file of its own, which can be left over too.
    """
    for scope, path in _list_places(project, client):
        has_our_hook = bool(entries.list_our_entries(load_settings(path)))
        if has_our_hook:
            remedy = f"judgekit uninstall {client.command} --scope {scope} removes it"
            yield f"the hook is still in {path}; {remedy}"
        elif client is CODEX:
            yield from _list_left_states(path, project)

    if client is CLAUDE_CODE and is_plugin_enabled(project):
        yield "the plugin still answers prompts; /plugin in Claude Code removes it"


def _list_left_states(path: Path, project: Path) -> Iterator[str]:
    """Yield a remark if Codex's configuration still has states of the hooks in the settings file `path`."""
    config_file, general = _read_switches(get_settings_path("user", project, CODEX), CODEX)
    states = _get_value(general, "hooks.state")
    if not isinstance(states, dict):
        return

    has_left_state = any(key.startswith(f"{path}:") for key in states)
    if has_left_state:
        yield f"{config_file} still has Codex's notes of the hooks of {path}; you may delete them"


def _list_places_with_hook(project: Path, client: Client) -> list[str]:
    """Name the settings that make a client run our prompt hook, one for each time that it runs."""
    place_by_run: dict[str, str] = {}
    for scope, path in _list_places(project, client):
        for hook in _select_prompt_hooks(load_settings(path), client):
            if client is CODEX:
                run: str = scope  # Codex runs equal hooks of two files twice
            else:
                # Other clients run hooks with equal commands only once.
                run = json.dumps([hook.get("command"), hook.get("args")])
            place_by_run.setdefault(run, f"the {scope} settings")

    if client is CLAUDE_CODE and is_plugin_enabled(project):
        place_by_run["plugin"] = "the plugin"
    return list(place_by_run.values())


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
    is_on_by_plugin: dict[str, Any] = {}
    for scope in SCOPES:  # the most specific scope comes last, so it overrides the others
        plugins = load_settings(get_settings_path(scope, project)).get("enabledPlugins")
        if isinstance(plugins, dict):
            is_on_by_plugin.update(plugins)

    return any(is_on and _is_our_plugin(plugin) for plugin, is_on in is_on_by_plugin.items())


def _is_our_plugin(full_name: str) -> bool:
    """Whether a plugin's full name is that of our plugin, such as `judgekit@MARKETPLACE`."""
    name, _, _ = full_name.partition("@")
    return name == PLUGIN


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

    The findings are the places that have our hooks, problems with the settings files, details about each
    hook, and notes about the client.
    """
    of_client = "" if client is CLAUDE_CODE else f" of {client.title}"
    findings = _ClientFindings(places=[], problems=[], details=[], notes=[])
    for scope, path in _list_places(project, client):
        findings.problems.extend(_check_settings_file(scope, project, client))

        hooks = _map_first_hooks(path)
        if hooks:
            findings.places.append(f"the {scope} settings{of_client}")
            subject = f"prompt hook, {scope}{of_client}"
            for state, text in _describe_hooks(client, scope, hooks):
                findings.details.append((state, subject, f"{path}: {text}"))

    # Skip notes about clients that the user doesn't seem to use.
    is_used = bool(findings.places) or client is CLAUDE_CODE
    if is_used:
        for note in list_notes(project, client):
            findings.notes.append(("note", f"prompt hook{of_client}", note))
    return findings


def _check_settings_file(scope: Scope, project: Path, client: Client) -> Iterator[Finding]:
    """Yield the problem with a settings file, if there's one."""
    try:
        plan_uninstall(scope, project, client)  # finds any problem, and changes nothing
    except JudgekitError as error:
        problem = str(error).removesuffix("; nothing was changed")
        yield "wrong", "prompt hook", problem


def _map_first_hooks(path: Path) -> dict[str, dict[str, Any]]:
    """Return our first hook for each event in a settings file."""
    hooks: dict[str, dict[str, Any]] = {}
    for event, _, hook in entries.list_our_entries(load_settings(path)):
        hooks.setdefault(event, hook)
    return hooks


def check_agent_command() -> Finding:
    """Check that a fresh login shell can run judgekit, because our hints tell agents to search with it."""
    subject = "an agent's search"
    bare_environ = _build_bare_environ()

    # A login shell sets its own PATH.
    login_shell = [bare_environ["SHELL"], "-lc"]
    if _runs_without_error([*login_shell, f"{context.PROGRAM} --version"], bare_environ):
        return "ok", subject, f"a login shell finds {context.PROGRAM}"

    consequence = _describe_hints(bare_environ)  # for our hints to agents
    problem = f"a login shell does not find {context.PROGRAM}, so {consequence}"
    remedy = "install it with `uv tool install .` or `pipx install .`, in your checkout, to have it there"
    return "note", subject, f"{problem}; {remedy}"


def _build_bare_environ() -> dict[str, str]:
    """Build a minimal environment to start a shell in: who the user is, and the system's default PATH."""
    bare_environ = {"PATH": os.defpath, "SHELL": os.environ.get("SHELL") or "/bin/sh"}
    for name in ("HOME", "USER", "LOGNAME"):
        if name in os.environ:
            bare_environ[name] = os.environ[name]
    return bare_environ


def _describe_hints(environ: dict[str, str]) -> str:
    """Describe how our hints to an agent refer to memories if its login shell doesn't find judgekit.

    The hints name judgekit's full path if that one can be run, otherwise the memories' files.
    """
    path = os.path.join(os.path.dirname(sys.executable), context.PROGRAM)
    if _runs_without_error([path, "--version"], environ):
        return f"hints to an agent may name {path}"
    return "hints to an agent name files to read"


def _runs_without_error(words: list[str], environ: dict[str, str]) -> bool:
    """Whether a program ends in time with exit code 0."""
    try:
        code, _, _ = programs.run(words, environ, seconds=MAX_PROMPT_SECONDS)
    except (programs.Unfinished, OSError):
        return False
    return code == 0


def _describe_hooks(
    client: Client, scope: Scope, hooks: dict[str, dict[str, Any]]
) -> Iterator[tuple[State, str]]:
    """Yield findings about our hooks in a settings file: on their command, and on events that have no hook.

    `hooks` maps events to our hooks.
    """
    again = f"run judgekit install {client.command} --scope {scope} again"
    # We install the same command for all events, so check only one, if possible the hook for prompts.
    hook = hooks.get(client.prompt_event) or next(iter(hooks.values()))
    yield _describe_command(hook, client, scope, again)

    # An earlier version, which handled fewer events, can have installed the hooks.
    missing_events = [event for event in client.events if event not in hooks]
    if missing_events:
        yield "note", f"not called on {', '.join(missing_events)}; {again}"


def _describe_command(
    hook: dict[str, Any], client: Client, scope: Scope, again: str
) -> tuple[State, str]:
    """Describe the form of a hook's command, and whether it answers.

    `again` is the advice to the user if it doesn't.
    """
    program, *arguments = entries.get_argument_vector(hook)
    form = _name_form(hook, program, arguments)
    is_portable = hook == entries.build_portable_entry(client)
    is_fastest = hook == entries.build_fastest_entry(client=client)

    # A project's settings can come from a stranger, so only run a command that we would have written.
    is_trusted = scope == "user" or is_portable or is_fastest
    if is_trusted:
        problem = find_problem(hook)  # runs the command
    else:
        problem = _describe_absence(program)

    if problem and is_portable:
        # The portable form is for settings that others share, so it needn't answer on every machine.
        return "note", f"{form}, inactive here: {problem}"
    if problem:
        return "wrong", f"{form}: {problem}; {again}"
    if is_trusted:
        return "ok", f"{form}; it answers"
    return "ok", f"{form}; not run: decide yourself whether to trust this command"


def _name_form(hook: dict[str, Any], program: str, arguments: list[str]) -> str:
    """Name the form of a hook's command: portable, fastest or another."""
    if hook["command"] == entries.PORTABLE_COMMAND:
        return "the portable form"
    if arguments[:2] == ["-I", "-S"]:  # Python starts fastest with these
        return f"the fastest form, {program}"
    return f"another form, {program}"


def find_problem(hook: dict[str, Any], deadline: float = MAX_PROMPT_SECONDS) -> str | None:
    """Run our hook with a prompt in a temporary project. Returns the problem, or None if it answers.

    `deadline` is in seconds.
    """
    program, *_ = entries.get_argument_vector(hook)
    absence = _describe_absence(program)
    if absence:
        return absence

    words = _build_words(hook)
    environ = _copy_environ_without_settings()
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

    return _find_problem_in_answer(code, output, errors)


def _build_words(hook: dict[str, Any]) -> list[str]:
    """Build the argument vector with which a client runs a hook."""
    if "args" in hook:
        return entries.get_argument_vector(hook)
    # Without separate arguments, the client passes the command to a shell.
    shell = programs.find("sh", os.environ) or "/bin/sh"
    return [shell, "-c", str(hook["command"])]


def _copy_environ_without_settings() -> dict[str, str]:
    """Copy the environment without the user's judgekit settings."""
    environ = {}
    for name, value in os.environ.items():
        if not name.startswith("JUDGEKIT_"):
            environ[name] = value
    return environ


def _prepare_trial(folder: str) -> str:
    """Create a memory in a temporary project. Returns the JSON event of a prompt that finds it."""
    store = Path(folder, ".claude", "memory")
    store.mkdir(parents=True)
    memory = "# The doctor asks the prompt hook a question\n"
    (store / "doctor.md").write_text(memory, encoding="utf-8")
    question = "What does the doctor ask the prompt hook?"
    return json.dumps(
        {"hook_event_name": CLAUDE_CODE.prompt_event, "prompt": question, "cwd": folder}
    )


def _find_problem_in_answer(code: int, output: bytes, errors: str) -> str | None:
    """Find the problem with a hook's answer, explained by the last line of stderr; None if it's fine."""
    _, _, last_line = errors.strip().rpartition("\n")
    explanation = last_line or "it prints nothing"
    if code:
        return f"it ends with code {code}: {explanation}"

    has_memory_tag = b"<memory-" in output
    if not has_memory_tag:
        return f"it does not respond: {explanation}"
    return None


def _describe_absence(program: str) -> str | None:
    """Describe the problem if a hook's program is missing; None if it exists."""
    path = Path(program)
    if path.is_absolute():
        return None if path.is_file() else f"its program {program} no longer exists"

    path_of_program = programs.find(program, os.environ)
    return None if path_of_program else f"its program {program} is not on this shell's PATH"
