"""judgekit's entries in a client's settings: recognises our hooks, adds them and removes them.

Looking through site-packages for start-up files (`site`) takes a quarter of a bare `python -c pass`; a script
or `python -m` pays for it, and for finding itself, before the first line of ours runs. So the hook's
interpreter is started isolated (`-I`: no `PYTHON*` variables, nothing from the current folder) and without
`site` (`-S`), and is told the package's folder. Code that needs third-party packages adds their folder later.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from judgekit.errors import ConfigError
from judgekit.hooks.clients import CLAUDE_CODE, Client
from judgekit.programs import ROOT, UNSET_PYTHON_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

# The owner of the settings, or hooks, of an installation.
Scope: TypeAlias = Literal["user", "project", "local"]
HookEntry: TypeAlias = tuple[str, object, dict[str, Any]]  # the event, its tools, and the hook

PYTHON_OPTIONS = ("-I", "-S", "-c")
# Seconds, after which the client continues without an answer; its default for a prompt
DEFAULT_TIMEOUT_SECONDS = 30
# At an agent's stop, `stop.deadline` is 60 at most, and litellm is imported; the other events ask no model.
TIMEOUT_SECONDS_BY_EVENT = {
    "PostToolUse": 10,
    "AfterTool": 10,
    "Stop": 75,
    "AfterAgent": 75,
    "SessionStart": 10,
}

# For settings that others share: it names no path of this machine and says nothing where judgekit is not
# installed. The exit code is 0 whatever happens: 2, which a stranger's `judgekit` may end with, would erase
# the prompt. Nothing of the current folder is started or imported: PATH and Python's variables may name it.
PORTABLE_COMMAND = (
    f'{UNSET_PYTHON_VARIABLES}; j=$(command -v judgekit); case $j in /*) "$j" hook ;; esac; exit 0'
)

_MAX_COMMAND_CHARS = 4096  # characters of a command that may be ours
_OPERATORS = frozenset("();<>|&")  # of a shell
# The words of a command, joined by NULs, that runs the hook in whichever form.
_OUR_COMMAND_PATTERN = re.compile(
    r"(?:^|[\0/\\])judgekit(?:\.exe)?\0hook$"
    r"|\0-m\0judgekit\.hooks\."
    r"|\0-c\0[^\0]*\b(?:from|import) judgekit\.hooks\b"
)
_BLANK_CHARS = "\ufeff \t\r\n"
_INDENT_PATTERN = re.compile(rf'[{_BLANK_CHARS}]*\{{[ \t]*\r?\n([ \t]*)"')
_REMEDY = "fix the file; nothing was changed"


def build_command(python: str | None = None) -> list[str]:
    """Return the argument vector that starts the hook without a shell, using absolute paths."""
    return [python or sys.executable, *PYTHON_OPTIONS, build_code()]


def build_code(root: str = ROOT) -> str:
    """Return the line of Python that runs the hook from the package in the folder `root`."""
    root_literal = ascii(root)  # a Python string with escapes for characters outside ASCII
    # Remove `root` from Python's path after the import, so that no other package in that folder can shadow
    # the standard library.
    return (
        f"import sys; sys.path.insert(0, {root_literal}); "
        "from judgekit.hooks.claude_code import run; del sys.path[0]; run()"
    )


def build_fastest_entry(python: str | None = None, client: Client = CLAUDE_CODE) -> dict[str, Any]:
    """Build the hook entry that starts fastest, with the absolute path of a Python."""
    program, *arguments = build_command(python)
    if client.shell:  # the client passes a single string to a shell
        return build_portable_entry(client) | {"command": shlex.join([program, *arguments])}
    return build_portable_entry(client) | {"command": program, "args": arguments}


def build_portable_entry(client: Client = CLAUDE_CODE) -> dict[str, Any]:
    """Build the hook entry that works on any machine, for shared settings."""
    return {
        "type": "command",
        "command": PORTABLE_COMMAND,
        "timeout": DEFAULT_TIMEOUT_SECONDS
        * client.time_units_per_second,  # in the client's unit, such as milliseconds
        **client.extra_keys,
    }


def is_ours(hook: object) -> bool:
    """Whether a client's hook runs judgekit's prompt hook, in any form, and nothing else."""
    joined_words = "\0".join(get_argument_vector(hook))
    return _OUR_COMMAND_PATTERN.search(joined_words) is not None


def get_argument_vector(hook: object) -> list[str]:
    """Split a hook's command into the program and its arguments.

    Returns [] if it isn't a single command, or if it's too long to be ours.
    """
    if not isinstance(hook, dict) or hook.get("type") != "command":
        return []

    command = hook.get("command")
    if not isinstance(command, str) or len(command) > _MAX_COMMAND_CHARS:
        return []

    # With separate arguments, the command is only the program.
    arguments = hook.get("args")
    if isinstance(arguments, list):
        return [command, *map(str, arguments)]
    if command == PORTABLE_COMMAND:  # a shell script that runs `judgekit hook`
        return ["judgekit", "hook"]
    return _split_command(command)


def _split_command(line: str) -> list[str]:
    """Split a shell command into words. Returns [] if it's malformed, or if it's more than one command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)  # operators become words
    lexer.whitespace_split = True  # otherwise, words would also end at a `:` or `@`
    lexer.commenters = ""  # otherwise, the rest of a line after a `#` would be lost
    try:
        words = list(lexer)
    except ValueError:  # a quote isn't closed
        return []

    has_operator = any(_is_operator(word) for word in words)
    has_line_break = "\n" in line.strip()
    if has_operator or has_line_break:  # either joins commands
        return []
    return words


def _is_operator(word: str) -> bool:
    """Whether a word consists of operators alone, such as `&&` or `|`."""
    return all(char in _OPERATORS for char in word)


def list_our_entries(settings: dict[str, Any]) -> list[HookEntry]:
    """List our entries in a client's settings: each has an event, its tools and the hook."""
    entries = []
    for event, group in _list_groups(settings):
        for hook in group["hooks"]:
            if is_ours(hook):
                entries.append((event, group.get("matcher"), hook))
    return entries


def _list_groups(settings: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each group of hooks with its event, skipping any that the client couldn't read."""
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict):
        return
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            continue
        for group in groups:
            if isinstance(group, dict) and isinstance(group.get("hooks"), list):
                yield event, group


def add_hook(text: str, hook: dict[str, Any], path: str, client: Client = CLAUDE_CODE) -> str:
    """Add `hook` for each event that we handle to a client's settings. Returns the new settings text.

    Our earlier entries are replaced. In the settings, `hooks` must map each event to a list of groups,
    otherwise `ConfigError` is raised.
    """
    settings = parse_settings(text, path)
    new_entries = _build_entries(hook, client)
    if _has_same_entries(list_our_entries(settings), new_entries):
        return text

    _remove_our_entries(settings)
    hooks = settings.setdefault("hooks", {})
    if not isinstance(hooks, dict):
        raise _build_shape_error(path, key="hooks", expected="an object of events")

    for event, tools, timed_hook in new_entries:
        groups = hooks.setdefault(event, [])
        _check_groups(groups, event, path)
        groups.append(_build_group(tools, timed_hook))
    return _format_like(settings, text)


def _build_entries(hook: dict[str, Any], client: Client) -> list[HookEntry]:
    """Build the entries of `hook` for all events that we handle, each with the event's timeout."""
    new_entries: list[HookEntry] = []
    for event, tools in client.events.items():
        seconds = TIMEOUT_SECONDS_BY_EVENT.get(event, DEFAULT_TIMEOUT_SECONDS)
        # In the client's unit, such as milliseconds.
        timeout = seconds * client.time_units_per_second
        new_entries.append((event, tools, hook | {"timeout": timeout}))
    return new_entries


def _has_same_entries(entries: list[HookEntry], other_entries: list[HookEntry]) -> bool:
    """Whether two lists have the same entries, in any order."""
    # Compare strings, since dicts can't be sorted.
    texts = sorted(str(entry) for entry in entries)
    other_texts = sorted(str(entry) for entry in other_entries)
    return texts == other_texts


def _build_group(tools: object, hook: dict[str, Any]) -> dict[str, Any]:
    """Build a group with one hook, for some tools only unless `tools` is None."""
    if tools is None:
        return {"hooks": [hook]}
    return {"matcher": tools, "hooks": [hook]}


def _check_groups(groups: object, event: str, path: str) -> None:
    """Raise `ConfigError` if the client couldn't read the groups of an event."""
    if not isinstance(groups, list):
        raise _build_shape_error(path, key=f"hooks.{event}", expected="an array of matchers")

    for number, group in enumerate(groups):
        if not _has_list_of_hooks(group):
            key = f"hooks.{event}.{number}"
            expected = "an object with an array 'hooks' of objects"
            raise _build_shape_error(path, key=key, expected=expected)


def _has_list_of_hooks(group: object) -> bool:
    """Whether a group is an object with a list of hooks, which are objects too."""
    if not isinstance(group, dict):
        return False
    hooks = group.get("hooks")
    return isinstance(hooks, list) and all(isinstance(hook, dict) for hook in hooks)


def remove_hooks(text: str, path: str) -> str:
    """Remove our entries from settings text, along with containers that become empty.

    Returns the new text, or "" if no settings remain.
    """
    settings = parse_settings(text, path)
    _remove_our_entries(settings)
    return _format_like(settings, text) if settings else ""


def _remove_our_entries(settings: dict[str, Any]) -> None:
    """Remove our entries from settings, along with any group, event or `hooks` section that this empties."""
    # List all groups first, since the loop removes some.
    groups = list(_list_groups(settings))
    for event, group in groups:
        is_empty_already = not group["hooks"]
        if is_empty_already:  # then it had no entry of ours, so leave it as it is
            continue

        other_hooks = [hook for hook in group["hooks"] if not is_ours(hook)]
        if other_hooks:
            group["hooks"] = other_hooks
        else:
            _remove_group(settings, event, group)


def _remove_group(settings: dict[str, Any], event: str, group: dict[str, Any]) -> None:
    """Remove a group from settings, and then the event and the section if they're empty."""
    hooks = settings["hooks"]
    hooks[event] = [other_group for other_group in hooks[event] if other_group is not group]
    if not hooks[event]:
        del hooks[event]
    if not hooks:
        del settings["hooks"]


def _format_like(settings: dict[str, Any], old_text: str) -> str:
    """Format settings as JSON with the indentation, line endings and outer whitespace of the old text."""
    # If the old text has a \uXXXX escape, escape every character outside ASCII.
    has_escapes = "\\u" in old_text
    body = json.dumps(settings, indent=_find_indent(old_text), ensure_ascii=has_escapes)
    if "\r\n" in old_text:
        body = body.replace("\n", "\r\n")

    old_body = old_text.strip(_BLANK_CHARS)
    if not old_body:  # only whitespace, or a byte order mark
        return f"{old_text}{body}\n"
    blanks_before, _, blanks_after = old_text.partition(old_body)
    return blanks_before + body + blanks_after


def _find_indent(text: str) -> str | None:
    """Find a JSON text's indentation; None if it's all on one line.

    If there's no indented line to copy, e.g. in `{}`, it's two spaces.
    """
    indent_match = _INDENT_PATTERN.match(text)
    if indent_match:
        return indent_match[1]

    body = text.strip(_BLANK_CHARS)
    has_content = body.strip("{} \t") != ""  # anything besides the braces
    is_one_line = "\n" not in body
    if has_content and is_one_line:
        return None
    return "  "


def parse_settings(text: str, path: str) -> dict[str, Any]:
    """Parse the text of the settings file at `path`. A blank file is {}.

    Raises `ConfigError` if it isn't a JSON object.
    """
    if not text.strip(_BLANK_CHARS):
        return {}

    text_without_mark = text.removeprefix("\ufeff")  # the byte order mark
    try:
        settings = json.loads(text_without_mark)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON, column {error.colno}: {error.msg}; {_REMEDY}"
        raise ConfigError(problem, path=path, line=error.lineno) from None
    except (ValueError, RecursionError) as error:  # a number is too long, or nesting too deep
        raise ConfigError(f"not valid JSON: {error}; {_REMEDY}", path=path) from None

    if not isinstance(settings, dict):
        raise _build_shape_error(path, expected="an object of settings")
    return settings


def _build_shape_error(path: str, expected: str, key: str = "") -> ConfigError:
    """Build the error for a value of the wrong shape in a client's settings, or for all of them."""
    return ConfigError(f"expected {expected}; {_REMEDY}", path=path, key=key)
