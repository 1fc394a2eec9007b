"""Prepares one run of a program: its folder, its arguments, its environment and what it reads."""

from __future__ import annotations

import json
import os
import re
import secrets
from typing import TYPE_CHECKING, NamedTuple

from judgekit.errors import FailureKind, GatewayError
from judgekit.gateway import schema
from judgekit.gateway.endpoints import INSIDE
from judgekit.provider import PLACEHOLDERS
from judgekit.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from judgekit.gateway.base import Endpoint, Message, Request
    from judgekit.provider import CommandProfile

DEFAULT = "default"  # the model's name where the program is to choose
_WORK = "work"  # the empty folder; what the profile lays out stands beside it
_SCHEMA = "schema.json"
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


class Invocation(NamedTuple):
    """How a program is started: `prompt` goes to its stdin."""

    argv: list[str]
    prompt: str
    environ: dict[str, str]
    cwd: Path


def prepare(profile: CommandProfile, endpoint: Endpoint, request: Request, folder: Path) -> Invocation:
    """Lay out `folder`, which must be empty, and return how to start the program in it.

    The system message goes where the profile has a place for it, and before the prompt where it has none;
    the subject is never an argument. Raises `GatewayError` when the folder cannot be laid out.
    """
    texts = [*profile.argv, *profile.files.values(), *profile.set_env.values()]
    messages = request.messages
    if not _names("schema", texts):
        messages = schema.told(messages, request.schema, "text")
    system = "\n\n".join(each.content for each in messages if each.role == "system")
    spoken = _transcript([each for each in messages if each.role != "system"])
    values = _values(profile, endpoint, request, system, folder)
    _lay_out(profile, endpoint, request, values, folder)
    environ = {name: _filled(value, values) for name, value in profile.set_env.items()}
    return Invocation(
        [_filled(part, values) for part in profile.argv if not _is_idle(part, values)],
        spoken if _names("system", texts) else f"{system}\n\n{spoken}",
        {**endpoint.parameters, **environ, "JUDGEKIT_DISABLE": "1", INSIDE: secrets.token_hex(16)},
        folder / _WORK,
    )


def _values(
    profile: CommandProfile, endpoint: Endpoint, request: Request, system: str, folder: Path
) -> dict[str, str]:
    model = endpoint.model.removeprefix(f"{profile.provider}/")
    asked = request.schema
    return {
        "model": "" if model == DEFAULT else model,
        "model_json": json.dumps(model),
        "system": system,
        "system_json": json.dumps(system),
        "schema": "" if asked is None else json.dumps(asked),
        "schema_file": "" if asked is None else str(folder / _SCHEMA),
        "folder": str(folder),
    }


def _names(what: str, texts: Sequence[str]) -> bool:
    """Whether a placeholder that begins with `what` stands in one of the texts."""
    return any(name.startswith(what) for text in texts for name in _PLACEHOLDER.findall(text))


def _is_idle(part: str, values: Mapping[str, str]) -> bool:
    """Whether an argument is there for a model or a schema, of which there is none."""
    idle = [name for name in ("model", "schema", "schema_file") if not values[name]]
    return any(name in idle for name in _PLACEHOLDER.findall(part))


def _filled(text: str, values: Mapping[str, str]) -> str:
    # In one pass, so that a text which contains another placeholder stays as it is.
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _transcript(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"[{each.role}]\n{each.content}" for each in messages)


def _lay_out(
    profile: CommandProfile, endpoint: Endpoint, request: Request, values: Mapping[str, str], folder: Path
) -> None:
    texts = {name: _filled(text, values) for name, text in profile.files.items()}
    if request.schema is not None:
        texts[_SCHEMA] = json.dumps(request.schema)
    try:
        (folder / _WORK).mkdir()
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
        for name, sources in profile.links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            found = next((path for each in sources if (path := _theirs(each, endpoint.parameters))), None)
            if found:
                (folder / name).symlink_to(found)
    except OSError as error:
        message = f"the folder for {profile.argv[0]} cannot be laid out ({error.strerror})"
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=Usage()) from None


def _theirs(source: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a file of the user's, or None when it is not there."""
    first, _, rest = source.partition("/")
    base = environ.get("HOME" if first == "~" else first.removeprefix("$"))
    path = os.path.join(base, rest) if base else ""  # noqa: PTH118 - a string is wanted, and none to resolve
    return path if path and os.path.isfile(path) else None  # noqa: PTH113 - as above
