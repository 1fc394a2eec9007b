"""judgekit's entries in the text of a Claude Code settings file: find them, add them, take them out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit.errors import ConfigError
from judgekit.install import forms, jsontext
from judgekit.install.forms import is_ours

if TYPE_CHECKING:
    from collections.abc import Iterator

# The events that the hook answers and the tools they are about: a prompt, an edit that may be a memory's, an
# agent's stop and a session's start; the last two cost the start of an interpreter where judging is off.
EVENTS: dict[str, str | None] = {
    "UserPromptSubmit": None,
    "PostToolUse": "Edit|Write|MultiEdit|NotebookEdit",
    "Stop": None,
    "SessionStart": None,
}
_UNTOUCHED = "nothing was changed"


class Entry(NamedTuple):
    """One hook of ours: on which event, for which tools, what it is, and the way to it in the text."""

    event: str
    matcher: object
    hook: dict[str, Any]
    trail: jsontext.Trail


def found(text: str, path: str) -> list[Entry]:
    """Return our entries in the text of a settings file.

    Raises `ConfigError` with the path and the line when the text is not JSON or not an object.
    """
    return [] if jsontext.is_blank(text) else list(_entries(text, _root(text, path)))


def installed(text: str, hook: dict[str, Any], path: str) -> str:
    """Return the text with `hook` on each of our events, given its time, and with no other entry of ours.

    A blank text becomes a whole one. Raises `ConfigError` when `hooks` or one of our events has a shape that
    cannot take an entry.
    """
    entries = {each.event: (each.matcher, each.hook) for each in found(text, path)}
    wanted = {event: (matcher, forms.timed(hook, event)) for event, matcher in EVENTS.items()}
    if len(found(text, path)) == len(EVENTS) and entries == wanted:
        return text
    text = uninstalled(text, path)
    groups = {event: _group(*each) for event, each in wanted.items()}
    if jsontext.is_blank(text):
        return text + jsontext.document({"hooks": {event: [group] for event, group in groups.items()}})
    if not jsontext.member(_root(text, path), "hooks"):
        whole = {event: [group] for event, group in groups.items()}
        return jsontext.appended(text, _root(text, path), whole, "hooks")
    for event, group in groups.items():
        text = _added(text, event, group, path)
    return text


def uninstalled(text: str, path: str) -> str:
    """Return the text without our entries and what was made for them; blank when nothing else is left."""
    entries = found(text, path)
    while entries:
        text = jsontext.without(text, entries[0].trail)
        entries = found(text, path)
    return text


def _added(text: str, event: str, group: dict[str, Any], path: str) -> str:
    root = _root(text, path)
    hooks = jsontext.member(root, "hooks")
    if hooks is None or hooks.value.kind != "object":
        raise _unexpected(text, path, hooks.start if hooks else 0, "hooks", "an object of events")
    groups = jsontext.member(hooks.value, event)
    if groups is None:
        return jsontext.appended(text, hooks.value, [group], event)
    if groups.value.kind != "array":
        raise _unexpected(text, path, groups.start, f"hooks.{event}", "an array of matchers")
    for number, each in enumerate(groups.value.children):
        if not _is_group(each.value):
            wanted = "an object with an array 'hooks' of objects"
            raise _unexpected(text, path, each.start, f"hooks.{event}.{number}", wanted)
    return jsontext.appended(text, groups.value, group)


def _is_group(value: jsontext.Value) -> bool:
    """Whether a value is what the client reads hooks from."""
    listed = jsontext.member(value, "hooks") if value.kind == "object" else None
    return (
        listed is not None
        and listed.value.kind == "array"
        and all(each.value.kind == "object" for each in listed.value.children)
    )


def _group(matcher: str | None, hook: dict[str, Any]) -> dict[str, Any]:
    return {"hooks": [hook]} if matcher is None else {"matcher": matcher, "hooks": [hook]}


def _entries(text: str, root: jsontext.Value) -> Iterator[Entry]:
    """Yield our entries; whatever has another shape is not ours and is passed over."""
    hooks = jsontext.member(root, "hooks")
    for event in hooks.value.children if hooks and hooks.value.kind == "object" else ():
        for group in event.value.children if event.value.kind == "array" else ():
            listed = jsontext.member(group.value, "hooks")
            if hooks is None or listed is None or listed.value.kind != "array":
                continue
            trail = [(root, hooks), (hooks.value, event), (event.value, group)]
            yield from _of_group(text, listed.value, trail)


def _of_group(text: str, listed: jsontext.Value, trail: jsontext.Trail) -> Iterator[Entry]:
    """Yield a group's entries; the way ends at the group where it holds nothing else."""
    hooks = [(child, jsontext.plain(text, child.value)) for child in listed.children]
    alone = all(is_ours(hook) for _, hook in hooks)
    _, event = trail[1]
    group = trail[2][1].value
    matcher = jsontext.member(group, "matcher")
    for child, hook in hooks:
        if is_ours(hook):
            way = trail if alone else [*trail, (listed, child)]
            tools = jsontext.plain(text, matcher.value) if matcher else None
            yield Entry(str(event.key), tools, hook, way)


def _root(text: str, path: str) -> jsontext.Value:
    try:
        root = jsontext.parse(text)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON, column {error.colno}: {error.msg}; mend the file, {_UNTOUCHED}"
        raise ConfigError(problem, path=path, line=error.lineno) from None
    if root.kind != "object":
        raise _unexpected(text, path, root.start, "", "an object of settings")
    return root


def _unexpected(text: str, path: str, place: int, key: str, expected: str) -> ConfigError:
    line = text.count("\n", 0, place) + 1
    return ConfigError(f"expected {expected}; mend the file, {_UNTOUCHED}", path=path, line=line, key=key)
