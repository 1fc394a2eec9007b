"""Reaches a model through a program: the prompt goes to its stdin, the reply is what it prints.

The program is an agent that reads hostile text, so it gets an empty folder to work in, an environment with
nothing but what its profile names, and a mark that keeps judgekit from starting it again from within.

Prepares one run of a program: its folder, its arguments, its environment and what it reads.

Reads what a program printed: its reply, what that took, and why it failed.

Ends what a program left running in sessions of its own, which no signal to its group reaches.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.errors import CallUsage, FailureKind, GatewayError
from judgekit.providers import base as schema
from judgekit.providers import failures, running
from judgekit.providers.base import INSIDE, Reply, secret_values
from judgekit.providers.pace import Paces, no_turn
from judgekit.providers.registry import PLACEHOLDERS, CommandProfile
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.providers.base import Endpoint, Message, Request
    from judgekit.providers.registry import CommandUsage


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
        messages = schema.with_schema(messages, request.schema, "text")
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    spoken = _transcript([message for message in messages if message.role != "system"])
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
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in messages)


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
            found = next((path for source in sources if (path := _theirs(source, endpoint.parameters))), None)
            if found:
                (folder / name).symlink_to(found)
    except OSError as error:
        message = f"the folder for {profile.argv[0]} cannot be laid out ({error.strerror})"
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=CallUsage()) from None


def _theirs(source: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a file of the user's, or None when it is not there."""
    first, _, rest = source.partition("/")
    base = environ.get("HOME" if first == "~" else first.removeprefix("$"))
    path = os.path.join(base, rest) if base else ""  # noqa: PTH118 - a string is wanted, and none to resolve
    return path if path and os.path.isfile(path) else None  # noqa: PTH113 - as above


# Where programs that print JSON say what went wrong.
_MOST = 1e15  # of a count or an amount: what is more is no number of either
_EXPLANATIONS = ("error.data.message", "error.message", "message", "error")


def reply_of(output: str, profile: CommandProfile, endpoint: Endpoint) -> Reply:
    """Return the reply; raises `GatewayError` of kind `INVALID_REPLY` where there is none."""
    program = profile.argv[0]
    if profile.reply == "text":
        if not output.strip():
            raise GatewayError(FailureKind.INVALID_REPLY, f"{program} printed nothing")
        return Reply(output.strip(), endpoint.model)
    values = list(_printed_values(output, profile))
    usage = _usage(values, profile, endpoint).of_call()
    text = _text(values, profile)
    if not text:
        said = explained(output, profile)
        wanted = f"{program} printed no {_wanted(profile)}"
        raise GatewayError(FailureKind.INVALID_REPLY, f"{wanted}: {said}" if said else wanted, usage=usage)
    return Reply(text, _model(values, profile) or endpoint.model, usage)


def explained(output: str, profile: CommandProfile) -> str:
    """Return what a program that prints JSON says went wrong, in its own words; "" where it does not."""
    if profile.reply == "text":
        return ""
    values = list(_printed_values(output, profile))
    keys = ((profile.reply_key,) if profile.reply_key and profile.reply == "json" else ()) + _EXPLANATIONS
    for value in reversed(values):
        for each in (each for key in keys for each in at(value, key)):
            if isinstance(each, str) and each.strip():
                return " ".join(each.split())
    return ""


def at(value: Any, key: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return what stands at a dotted key in JSON: nothing, one thing, or several where it has a `*`."""
    found = [value]
    for part in key.split("."):
        found = [inner for each in found for inner in _step(each, part)]
    return found


def _step(value: Any, part: str) -> Iterator[Any]:  # noqa: ANN401 - any JSON
    if part == "*" and isinstance(value, dict | list):
        yield from value.values() if isinstance(value, dict) else value
    elif isinstance(value, dict) and part in value:
        yield value[part]
    elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
        yield value[int(part)]


def _printed_values(output: str, profile: CommandProfile) -> Iterator[Any]:
    """Yield the JSON that was printed; words before, after or between are passed over."""
    if profile.reply == "json" and (whole := list(_parsed(output))):
        yield from whole
        return
    lines = output.split("\n")  # texts may hold other line separators, which JSON takes as they are
    if profile.reply == "jsonl":
        for line in lines:
            yield from _parsed(line)
        return
    start = next((place for place, line in enumerate(lines) if line.startswith(("{", "["))), None)
    if start is not None:
        yield from _parsed("\n".join(lines[start:]))


def _parsed(text: str) -> Iterator[Any]:
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict | list):
        yield value


def _text(values: Sequence[Any], profile: CommandProfile) -> str:
    for value in reversed([value for value in values if _holds(value, profile.reply_where)]):
        found = at(value, profile.reply_key) if profile.reply_key else [value]
        if found and found[-1] is not None:
            text = found[-1] if isinstance(found[-1], str) else json.dumps(found[-1])
            return text.strip()
    return ""


def _holds(value: Any, where: Mapping[str, Any]) -> bool:  # noqa: ANN401 - any JSON
    return all(at(value, key) == [wanted] for key, wanted in where.items())


def _wanted(profile: CommandProfile) -> str:
    where = "".join(f" where {key} is {value!r}" for key, value in profile.reply_where.items())
    return f"JSON with {profile.reply_key!r}{where}" if profile.reply_key else "JSON"


def _model(values: Sequence[Any], profile: CommandProfile) -> str:
    found = [each for value in values for each in at(value, profile.model_key or "")]
    return next((each for each in reversed(found) if isinstance(each, str)), "")


def _usage(values: Sequence[Any], profile: CommandProfile, endpoint: Endpoint) -> CallUsage:
    command_usage = profile.usage
    saying = [value for value in values if command_usage and _holds(value, command_usage.where)]
    if command_usage is None or not saying:
        return CallUsage()
    counts = _counts(saying[-1], command_usage)
    stated = (
        _sum(saying[-1], [command_usage.cost])
        if command_usage.cost and _numbers(saying[-1], [command_usage.cost])
        else None
    )
    if endpoint.price is not None:
        return CallUsage(*counts[:2], endpoint.price.of(*counts), "profile", *counts[2:])
    return CallUsage(*counts[:2], stated, None if stated is None else "provider", *counts[2:])


def _counts(value: Any, told: CommandUsage) -> tuple[int, int, int, int]:  # noqa: ANN401 - any JSON
    read, written = int(_sum(value, told.input)), int(_sum(value, told.output))
    return read, written, int(_sum(value, told.cache_read)), int(_sum(value, told.cache_write))


def _sum(value: Any, keys: Sequence[str]) -> float:  # noqa: ANN401 - any JSON
    return max(0.0, float(sum(_numbers(value, keys))))


def _numbers(value: Any, keys: Sequence[str]) -> list[float]:  # noqa: ANN401 - any JSON
    """Return the numbers there; NaN and infinity, which Python reads in JSON, are none."""
    found = [each for key in keys for each in at(value, key)]
    numbers = [each for each in found if isinstance(each, int | float) and not isinstance(each, bool)]
    return [float(number) for number in numbers if abs(number) < _MOST]


_ROUNDS = 5  # what is found may start another while it is looked for
_PROCESSES = "/proc"


def end(variable: str, mark: str) -> int:
    """Kill every process that was started with `variable` set to `mark`; return how many were found.

    `mark` must be one that nobody else has chosen.
    """
    if sys.platform != "linux":
        return 0
    wanted = f"{variable}={mark}".encode()
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(_with(wanted)) - killed  # one that is dying can still be read for a while
        if not found:
            break
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed |= found
    return len(killed)


def _with(setting: bytes) -> Iterator[int]:
    """Yield the processes of this user whose environment has a setting."""
    with contextlib.suppress(OSError):
        for name in os.listdir(_PROCESSES):  # noqa: PTH208 - names are wanted, no paths
            if name.isdecimal() and setting in _environment(name):
                yield int(name)


def _environment(process: str) -> list[bytes]:
    """Return the settings of a process; none where it has ended or is another user's."""
    try:
        return Path(_PROCESSES, process, "environ").read_bytes().split(b"\0")
    except OSError:
        return []


MAX_OUTPUT = 1_000_000
_MAX_STDERR = 8_000
_POLL = 0.05
_LAST_WORDS = 0.3  # seconds for what an ended program has written and nobody has read yet
_DYING = 1.0  # seconds, of which a killed program needs milliseconds
_TIDYING = 3.0  # seconds to end what a program has started, of which milliseconds are needed


class CommandGateway:
    """Runs one process a request, no more of one provider's at a time than its profile allows."""

    def __init__(self) -> None:
        self._paces = Paces()

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return what the program printed, as `Gateway.complete` says."""
        profile = endpoint.profile
        if not isinstance(profile, CommandProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a command")
        if environment.environ().get(INSIDE):
            told = "a program that judgekit runs started it again"
            raise GatewayError(FailureKind.COMMAND_FAILED, told, usage=CallUsage())
        begun, end = False, time.monotonic() + request.timeout

        async def in_turn() -> Reply:
            nonlocal begun
            async with self._paces.of(endpoint).turn(end):
                begun = True
                return await _reply(profile, endpoint, request)

        try:
            async with asyncio.timeout(request.timeout):
                return await running.inside(in_turn, patience=_TIDYING)
        except TimeoutError:
            if not begun:
                raise no_turn(request) from None
            message = f"{profile.argv[0]} gave no reply within {request.timeout:.3g} s"
            raise GatewayError(FailureKind.TIMEOUT, message) from None

    async def aclose(self) -> None:
        """Nothing stays open."""


async def _reply(profile: CommandProfile, endpoint: Endpoint, request: Request) -> Reply:
    with tempfile.TemporaryDirectory(prefix="judgekit-", ignore_cleanup_errors=True) as folder:
        call = prepare(profile, endpoint, request, Path(folder))
        output = await _run(call, endpoint, profile)
        if profile.reply_file is not None:
            output = _content(Path(folder, profile.reply_file))
        return reply_of(output, profile, endpoint)


async def _run(call: Invocation, endpoint: Endpoint, profile: CommandProfile) -> str:
    program = profile.argv[0]
    try:
        process = await asyncio.create_subprocess_exec(
            programs.find(program, call.environ) or "",
            *call.argv[1:],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=call.cwd,
            env={**call.environ, "PATH": programs.search_path(call.environ)},
            start_new_session=True,
        )
    except OSError as error:
        message = f"{program} cannot be started ({error.strerror})"
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=CallUsage()) from None
    leaving = asyncio.create_task(_end_after(process))
    try:
        output, errors, _ = await asyncio.gather(_read(process), _tail(process), _feed(process, call.prompt))
        code = await process.wait()
    finally:
        cut_off = process.returncode is None
        leaving.cancel()
        _kill(process)
        if cut_off:
            end(INSIDE, call.environ[INSIDE])
        await _end(process)
    text = output.decode(errors="replace")
    if code:
        line = explained(text, profile) or _last_line(errors) or _last_line(output) or "no message"
        told = failures.without_values(line[: failures.MAX_MESSAGE], secret_values(endpoint))
        raise GatewayError(FailureKind.COMMAND_FAILED, f"{program} exited with {code}: {told}")
    return text


def _content(path: Path) -> str:
    """Return what a program wrote to the file of its reply, "" where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(MAX_OUTPUT).decode(errors="replace")


async def _feed(process: asyncio.subprocess.Process, prompt: str) -> None:
    assert process.stdin is not None  # noqa: S101 - opened as a pipe
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(prompt.encode(errors="replace"))
        await process.stdin.drain()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.close()
        await process.stdin.wait_closed()


async def _read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None  # noqa: S101 - opened as a pipe
    output = b""
    while chunk := await process.stdout.read(65536):
        output += chunk
        if len(output) > MAX_OUTPUT:
            raise GatewayError(FailureKind.COMMAND_FAILED, f"printed more than {MAX_OUTPUT} bytes")
    return output


async def _tail(process: asyncio.subprocess.Process) -> bytes:
    assert process.stderr is not None  # noqa: S101 - opened as a pipe
    errors = b""
    while chunk := await process.stderr.read(65536):
        errors = (errors + chunk)[-_MAX_STDERR:]
    return errors


async def _end_after(process: asyncio.subprocess.Process) -> None:
    """When the program itself has ended, wait for no child of its that keeps the pipes open."""
    while process.returncode is None:  # noqa: ASYNC110 - asyncio tells of it only when the pipes are closed
        await asyncio.sleep(_POLL)
    await asyncio.sleep(_LAST_WORDS)
    await _end(process)


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the program with everything that it started and did not wait for, in its own session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program with its session, and let go of its pipes.

    A child in a session of its own may hold the pipes open as long as it likes.
    """
    _kill(process)
    transport = process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - no public way to the pipes
    for descriptor in range(3):
        pipe = transport.get_pipe_transport(descriptor)
        if not isinstance(pipe, asyncio.WriteTransport):
            pipe.close()
        elif pipe.get_write_buffer_size() or not pipe.is_closing():
            pipe.abort()  # closing would wait until someone has read what is left
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _DYING)


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in lines_of(output.decode(errors="replace")) if line.strip()]
    return lines[-1][: failures.MAX_MESSAGE] if lines else ""
