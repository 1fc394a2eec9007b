"""judgekit's entries in Claude Code's settings file: adds them, finds them and takes them out.

JSON is edited as text, so that what is not edited stays byte for byte.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from judgekit.errors import ConfigError
from judgekit.hooks import launch
from judgekit.programs import OWN_PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


MAX_DEPTH = 200  # containers in containers
BYTE_ORDER_MARK = "\ufeff"

_DECODER = json.JSONDecoder()  # for strings alone: it lets more pass as a number than it should
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INDENTED = re.compile(r"\n([ \t]+)\Z")


class Value(NamedTuple):
    """A value and where it stands in the text; `children` are what an object or array holds."""

    start: int
    end: int
    kind: Literal["object", "array", "string", "other"]
    children: tuple[Child, ...] = ()


class Child(NamedTuple):
    """A member of an object, from its key on, or an item of an array (its key is None)."""

    start: int
    key: str | None
    value: Value

    @property
    def end(self) -> int:
        """Where the child's value ends."""
        return self.value.end


Trail = list[tuple[Value, Child]]  # containers from the root inwards, each with the child that leads on


def parse(text: str) -> Value:
    """Return the value that `text` is; a byte order mark may stand before it.

    Raises `json.JSONDecodeError` for anything that RFC 8259 does not allow, and for more than `MAX_DEPTH`
    containers in each other.
    """
    value = _value(text, _skip(text, 1 if text.startswith(BYTE_ORDER_MARK) else 0), MAX_DEPTH)
    end = _skip(text, value.end)
    if end != len(text):
        raise json.JSONDecodeError("expected the end of the file", text, end)
    return value


def is_blank(text: str) -> bool:
    """Whether `text` holds nothing but whitespace and perhaps a byte order mark."""
    return not text.removeprefix(BYTE_ORDER_MARK).strip(" \t\n\r")


def member(container: Value, key: str) -> Child | None:
    """Return an object's member; the last one where a key stands twice, as every reader takes it."""
    return next((child for child in reversed(container.children) if child.key == key), None)


def plain(text: str, value: Value) -> Any:  # noqa: ANN401 - any JSON value
    """Return what a value means."""
    return json.loads(text[value.start : value.end])


def appended(text: str, container: Value, content: object, key: str | None = None) -> str:
    """Return `text` with one more child at the end of a container, laid out like its surroundings."""
    if not container.children:
        place = container.end - 1
        return text[:place] + _rendered(text, place, content, key) + text[place:]
    last = container.children[-1]
    gap = text[len(text[: last.start].rstrip(" \t\n\r")) : last.start]
    gap = gap[gap.rindex("\n") :] if "\n" in gap else gap or " "
    if "\r\n" in text:
        gap = gap.replace("\n", "\r\n")
    indent = gap.lstrip("\r\n") if "\n" in gap else None
    return f"{text[: last.end]},{gap}{_rendered(text, last.start, content, key, indent)}{text[last.end :]}"


def document(content: object) -> str:
    """Return a text of its own."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def without(text: str, trail: Sequence[tuple[Value, Child]]) -> str:
    """Return `text` without the child that a trail leads to, and without containers that were made for it.

    Blank when nothing is left: what then remains is what stood before the outermost container.
    """
    container, child = trail[-1]
    others = container.children
    if len(others) > 1:
        position = others.index(child)
        start, end = (
            (others[position - 1].end, child.end) if position else (child.start, others[position + 1].start)
        )
        return text[:start] + text[end:]
    if text[child.end] in "}]":
        return text[: child.start] + text[child.end :]
    return without(text, trail[:-1]) if len(trail) > 1 else text[: container.start]


def _rendered(text: str, place: int, content: object, key: str | None, indent: str | None = None) -> str:
    """Return a child's text; its lines after the first are indented like the line it begins on."""
    if indent is None:
        line = text[text.rfind("\n", 0, place) + 1 : place]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
    name = "" if key is None else f"{json.dumps(key)}: "
    lines = json.dumps(content, indent=_unit(text), ensure_ascii=False).split("\n")
    return name + f"{_newline(text)}{indent}".join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return what the text indents its first child with; two spaces where it does not."""
    root = parse(text)
    found = _INDENTED.search(text[: root.children[0].start]) if root.children else None
    return found[1] if found else "  "


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> Value:
    first = text[at : at + 1]
    if first == '"':
        return Value(at, _DECODER.raw_decode(text, at)[1], "string")
    if first in ("{", "["):
        if not depth:
            raise json.JSONDecodeError("nested too deeply", text, at)
        return _container(text, at, depth - 1, "}" if first == "{" else "]")
    found = _SCALAR.match(text, at)
    if not found:
        raise json.JSONDecodeError("expected a value", text, at)
    return Value(at, found.end(), "other")


def _container(text: str, start: int, depth: int, closing: str) -> Value:
    kind: Literal["object", "array"] = "object" if closing == "}" else "array"
    children: list[Child] = []
    at = _skip(text, start + 1)
    if text[at : at + 1] == closing:
        return Value(start, at + 1, kind)
    while True:
        children.append(_child(text, at, depth, named=kind == "object"))
        at = _skip(text, children[-1].end)
        if text[at : at + 1] == closing:
            return Value(start, at + 1, kind, tuple(children))
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError(f"expected , or {closing}", text, at)
        at = _skip(text, at + 1)


def _child(text: str, at: int, depth: int, *, named: bool) -> Child:
    if not named:
        return Child(at, None, _value(text, at, depth))
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("expected a key in double quotes", text, at)
    key, end = _DECODER.raw_decode(text, at)
    colon = _skip(text, end)
    if text[colon : colon + 1] != ":":
        raise json.JSONDecodeError("expected : after a key", text, colon)
    return Child(at, key, _value(text, _skip(text, colon + 1), depth))


TIMEOUT = 30  # seconds, after which the client goes on without an answer; its own default for a prompt
# Where an agent stops, `stop.deadline` is 60 at most, and litellm is imported; the others ask no model.
TIMEOUTS = {"PostToolUse": 10, "Stop": 75, "SessionStart": 10}

# For settings that others share: it names no path of this machine and says nothing where judgekit is not
# installed. The exit code is 0 whatever happens: 2, which a stranger's `judgekit` may end with, would erase
# the prompt.
# Nothing of the current folder is started or imported: PATH and Python's variables may name it.
PORTABLE = f'{OWN_PYTHON}; j=$(command -v judgekit); case $j in /*) "$j" hook ;; esac; exit 0'
OLDER = "if command -v judgekit >/dev/null; then judgekit hook; fi; exit 0"

_RUNNERS = {"env", "exec", "nice", "pipx", "poetry", "timeout", "uv", "uvx"}
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?|py")
_LONGEST = 4096  # characters of a command that may be ours
_MOST_WORDS = 100  # of one
_IMPORT = re.compile(r"\b(?:from|import) judgekit\.hooks\b")
_MENTION = re.compile(r"\bjudgekit\b(?:(?!\bjudgekit\b).)*\bhook")


def fastest(python: str | None = None) -> dict[str, Any]:
    """Return the hook that starts fastest with an interpreter of this machine (this one)."""
    program, *arguments = launch.command(python)
    return {"type": "command", "command": program, "args": arguments, "timeout": TIMEOUT}


def portable() -> dict[str, Any]:
    """Return the hook for settings that others share."""
    return {"type": "command", "command": PORTABLE, "timeout": TIMEOUT}


def timed(hook: dict[str, Any], event: str) -> dict[str, Any]:
    """Return a hook with the time that an event takes."""
    return hook | {"timeout": TIMEOUTS[event]} if event in TIMEOUTS else hook


def is_ours(hook: object) -> bool:
    """Whether a hook of the client runs judgekit's prompt hook and nothing else, in whichever form."""
    words = argument_vector(hook)
    if words is None:
        return False
    if _name(words[0]) in _RUNNERS:
        return any(_runs_us(words[position:]) for position in range(1, len(words)))
    return _runs_us(words)


def mentions_us(hook: object) -> bool:
    """Whether a hook that is not ours seems to run judgekit among other things."""
    if is_ours(hook) or not isinstance(hook, dict):
        return False
    arguments = hook.get("args")
    parts = [hook.get("command"), *(arguments if isinstance(arguments, list) else ())]
    return bool(_MENTION.search(" ".join(part for part in parts if isinstance(part, str))))


def argument_vector(hook: object) -> list[str] | None:
    """Return the program and its arguments that a hook starts; None for anything but one plain command.

    The portable form counts as what it starts.
    """
    if not isinstance(hook, dict) or hook.get("type") != "command":
        return None
    command, arguments = hook.get("command"), hook.get("args")
    if not isinstance(command, str) or not command.strip() or len(command) > _LONGEST:
        return None
    if isinstance(arguments, list):
        return [command, *(str(argument) for argument in arguments)] if len(arguments) < _MOST_WORDS else None
    if command in (PORTABLE, OLDER):
        return ["judgekit", "hook"]
    return _split(command)


def _split(command: str) -> list[str] | None:
    """Return the words of a shell command that is one plain command, else None."""
    if "\n" in command.strip():
        return None
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = ""
    try:
        found = list(words)
    except ValueError:
        return None
    if not 0 < len(found) <= _MOST_WORDS or any(set(word) <= set("();<>|&") for word in found):
        return None
    return found


def _runs_us(words: list[str]) -> bool:
    name = _name(words[0])
    if name == "judgekit":
        return words[1:2] == ["hook"]
    if not _PYTHON.fullmatch(name):
        return False
    for option, value, *rest in (words[position:] for position in range(1, len(words) - 1)):
        if option == "-m":
            return (value, *rest[:1]) == ("judgekit", "hook") or value.startswith("judgekit.hooks.")
        if option == "-c":
            return bool(_IMPORT.search(value))
    return False


def _name(word: str) -> str:
    """Return a program's name without its folder and, on Windows, its ending."""
    return re.split(r"[/\\]", word)[-1].lower().removesuffix(".exe")


# The events that the hook answers and the tools they are about: a prompt, an edit that may be a memory's, an
# agent's stop and a session's start; the last two cost the start of an interpreter where judging is off.
EVENTS: dict[str, str | None] = {
    "UserPromptSubmit": None,
    "PostToolUse": "Edit|Write|MultiEdit|NotebookEdit",
    "Stop": None,
    "SessionStart": None,
}
_UNTOUCHED = "nothing was changed"


class HookEntry(NamedTuple):
    """One hook of ours: on which event, for which tools, what it is, and the way to it in the text."""

    event: str
    matcher: object
    hook: dict[str, Any]
    trail: Trail


def found(text: str, path: str) -> list[HookEntry]:
    """Return our entries in the text of a settings file.

    Raises `ConfigError` with the path and the line when the text is not JSON or not an object.
    """
    return [] if is_blank(text) else list(_entries(text, _root(text, path)))


def installed(text: str, hook: dict[str, Any], path: str) -> str:
    """Return the text with `hook` on each of our events, given its time, and with no other entry of ours.

    A blank text becomes a whole one. Raises `ConfigError` when `hooks` or one of our events has a shape that
    cannot take an entry.
    """
    entries = {hook_entry.event: (hook_entry.matcher, hook_entry.hook) for hook_entry in found(text, path)}
    wanted = {event: (matcher, timed(hook, event)) for event, matcher in EVENTS.items()}
    if len(found(text, path)) == len(EVENTS) and entries == wanted:
        return text
    text = uninstalled(text, path)
    groups = {event: _group(*each) for event, each in wanted.items()}
    if is_blank(text):
        return text + document({"hooks": {event: [group] for event, group in groups.items()}})
    if not member(_root(text, path), "hooks"):
        whole = {event: [group] for event, group in groups.items()}
        return appended(text, _root(text, path), whole, "hooks")
    for event, group in groups.items():
        text = _added(text, event, group, path)
    return text


def uninstalled(text: str, path: str) -> str:
    """Return the text without our entries and what was made for them; blank when nothing else is left."""
    entries = found(text, path)
    while entries:
        text = without(text, entries[0].trail)
        entries = found(text, path)
    return text


def _added(text: str, event: str, group: dict[str, Any], path: str) -> str:
    root = _root(text, path)
    hooks = member(root, "hooks")
    if hooks is None or hooks.value.kind != "object":
        raise _unexpected(text, path, hooks.start if hooks else 0, "hooks", "an object of events")
    groups = member(hooks.value, event)
    if groups is None:
        return appended(text, hooks.value, [group], event)
    if groups.value.kind != "array":
        raise _unexpected(text, path, groups.start, f"hooks.{event}", "an array of matchers")
    for number, child in enumerate(groups.value.children):
        if not _is_group(child.value):
            wanted = "an object with an array 'hooks' of objects"
            raise _unexpected(text, path, child.start, f"hooks.{event}.{number}", wanted)
    return appended(text, groups.value, group)


def _is_group(value: Value) -> bool:
    """Whether a value is what the client reads hooks from."""
    listed = member(value, "hooks") if value.kind == "object" else None
    return (
        listed is not None
        and listed.value.kind == "array"
        and all(child.value.kind == "object" for child in listed.value.children)
    )


def _group(matcher: str | None, hook: dict[str, Any]) -> dict[str, Any]:
    return {"hooks": [hook]} if matcher is None else {"matcher": matcher, "hooks": [hook]}


def _entries(text: str, root: Value) -> Iterator[HookEntry]:
    """Yield our entries; whatever has another shape is not ours and is passed over."""
    hooks = member(root, "hooks")
    for event in hooks.value.children if hooks and hooks.value.kind == "object" else ():
        for group in event.value.children if event.value.kind == "array" else ():
            listed = member(group.value, "hooks")
            if hooks is None or listed is None or listed.value.kind != "array":
                continue
            trail = [(root, hooks), (hooks.value, event), (event.value, group)]
            yield from _of_group(text, listed.value, trail)


def _of_group(text: str, listed: Value, trail: Trail) -> Iterator[HookEntry]:
    """Yield a group's entries; the way ends at the group where it holds nothing else."""
    hooks = [(child, plain(text, child.value)) for child in listed.children]
    alone = all(is_ours(hook) for _, hook in hooks)
    _, event = trail[1]
    group = trail[2][1].value
    matcher = member(group, "matcher")
    for child, hook in hooks:
        if is_ours(hook):
            way = trail if alone else [*trail, (listed, child)]
            tools = plain(text, matcher.value) if matcher else None
            yield HookEntry(str(event.key), tools, hook, way)


def _root(text: str, path: str) -> Value:
    try:
        root = parse(text)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON, column {error.colno}: {error.msg}; mend the file, {_UNTOUCHED}"
        raise ConfigError(problem, path=path, line=error.lineno) from None
    if root.kind != "object":
        raise _unexpected(text, path, root.start, "", "an object of settings")
    return root


def _unexpected(text: str, path: str, place: int, key: str, expected: str) -> ConfigError:
    line = text.count("\n", 0, place) + 1
    return ConfigError(f"expected {expected}; mend the file, {_UNTOUCHED}", path=path, line=line, key=key)
