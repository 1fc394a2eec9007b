"""Reaches a model through a program: the prompt goes to its stdin, the reply is what it prints.

The program is an agent that reads hostile text, so it gets an empty folder to work in, an environment with
nothing but what its profile names, and a mark that keeps judgekit from starting it again from within. By that
mark everything is found that it left running, also in sessions of its own, which no signal to its group
reaches.
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
from judgekit.providers import failures, running
from judgekit.providers.base import INSIDE, Reply, secret_values, with_schema
from judgekit.providers.pace import Paces, no_turn
from judgekit.providers.registry import PLACEHOLDERS, CommandProfile
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from judgekit.providers.base import Endpoint, Request


DEFAULT = "default"  # the model's name where the program is to choose
MAX_OUTPUT = 1_000_000
_WORK = "work"  # the empty folder; what the profile lays out stands beside it
_SCHEMA = "schema.json"
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
# Where programs that print JSON say what went wrong.
_EXPLANATIONS = ("error.data.message", "error.message", "message", "error")
_MOST = 1e15  # of a count or an amount: what is more is no number of either
_MAX_STDERR = 8_000
_POLL = 0.05
_LAST_WORDS = 0.3  # seconds for what an ended program has written and nobody has read yet
_DYING = 1.0  # seconds, of which a killed program needs milliseconds
_TIDYING = 3.0  # seconds to end what a program has started, of which milliseconds are needed
_ROUNDS = 5  # what is found may start another while it is looked for
_PROCESSES = "/proc"


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
            problem = "judgekit started it through another program (a loop)"
            raise GatewayError(FailureKind.COMMAND_FAILED, problem, usage=CallUsage())
        begun, end = False, time.monotonic() + request.timeout

        async def in_turn() -> Reply:
            nonlocal begun
            async with self._paces.of(endpoint).turn(end):
                begun = True
                with tempfile.TemporaryDirectory(prefix="judgekit-", ignore_cleanup_errors=True) as folder:
                    call = prepare(profile, endpoint, request, Path(folder))
                    output = await _run(call, endpoint, profile)
                    if profile.reply_file is not None:
                        output = _content(Path(folder, profile.reply_file))
                    return reply_of(output, profile, endpoint)

        try:
            async with asyncio.timeout(request.timeout):
                return await running.inside(in_turn, patience=_TIDYING)
        except TimeoutError:
            if not begun:
                raise no_turn(request) from None
            message = f"{profile.argv[0]} did not reply within {request.timeout:.3g} s"
            raise GatewayError(FailureKind.TIMEOUT, message) from None

    async def aclose(self) -> None:
        """Nothing stays open."""


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
    templates = " ".join([*profile.argv, *profile.files.values(), *profile.set_env.values()])
    placed = {name.partition("_")[0] for name in _PLACEHOLDER.findall(templates)}
    messages, schema = request.messages, request.schema
    if "schema" not in placed:
        messages = with_schema(messages, schema, "text")
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    others = [message for message in messages if message.role != "system"]
    prompt = "\n\n".join(f"[{message.role}]\n{message.content}" for message in others)
    prompt = others[0].content if len(others) == 1 else prompt
    model = endpoint.model.removeprefix(f"{profile.provider}/")
    values = {
        "model": "" if model == DEFAULT else model,
        "model_json": json.dumps(model),
        "system": system,
        "system_json": json.dumps(system),
        "schema": "" if schema is None else json.dumps(schema),
        "schema_file": "" if schema is None else str(folder / _SCHEMA),
        "folder": str(folder),
    }
    # An argument is left out that is there for a model or a schema, of which there is none.
    idle = {name for name in ("model", "schema", "schema_file") if not values[name]}
    argv = [part for part in profile.argv if idle.isdisjoint(_PLACEHOLDER.findall(part))]
    files = {name: _filled(text, values) for name, text in profile.files.items()}
    if schema is not None:
        files[_SCHEMA] = values["schema"]
    try:
        (folder / _WORK).mkdir()
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="replace")
        for name, sources in profile.links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            theirs = next(
                (path for source in sources if (path := _theirs(source, endpoint.parameters))), None
            )
            if theirs:
                (folder / name).symlink_to(theirs)
    except OSError as error:
        message = f"the folder for {profile.argv[0]} cannot be created ({error.strerror})"
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=CallUsage()) from None
    set_env = {name: _filled(value, values) for name, value in profile.set_env.items()}
    return Invocation(
        [_filled(part, values) for part in argv],
        prompt if "system" in placed else f"{system}\n\n{prompt}",
        {**endpoint.parameters, **set_env, "JUDGEKIT_DISABLE": "1", INSIDE: secrets.token_hex(16)},
        folder / _WORK,
    )


def _filled(text: str, values: Mapping[str, str]) -> str:
    # In one pass, so that a text which contains another placeholder stays as it is.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _theirs(source: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a file of the user's, or None when it is not there."""
    first, _, rest = source.partition("/")
    base = environ.get("HOME" if first == "~" else first.removeprefix("$"))
    path = os.path.join(base, rest) if base else ""  # noqa: PTH118 - a string is wanted, and none to resolve
    return path if path and os.path.isfile(path) else None  # noqa: PTH113 - as above


# What a program printed


def reply_of(output: str, profile: CommandProfile, endpoint: Endpoint) -> Reply:
    """Return the reply; raises `GatewayError` of kind `INVALID_REPLY` where there is none."""
    program, key = profile.argv[0], profile.reply_key
    if profile.reply == "text":
        if not output.strip():
            raise GatewayError(FailureKind.INVALID_REPLY, f"{program} printed nothing")
        return Reply(output.strip(), endpoint.model)
    values = _printed_values(output, profile)
    usage = _usage(values, profile, endpoint).of_call()
    wanted = [value for value in values if _holds(value, profile.reply_where)]
    texts = [place[-1] for value in wanted if (place := at(value, key) if key else [value])]
    texts = [text for text in texts if text is not None]
    text = (texts[-1] if isinstance(texts[-1], str) else json.dumps(texts[-1])).strip() if texts else ""
    if not text:
        where = "".join(f" where {name} is {value!r}" for name, value in profile.reply_where.items())
        problem = f"{program} printed no " + (f"JSON with {key!r}{where}" if key else "JSON")
        why = explained(output, profile)
        raise GatewayError(FailureKind.INVALID_REPLY, f"{problem}: {why}" if why else problem, usage=usage)
    models = [model for value in values for model in at(value, profile.model_key or "")]
    model = next((model for model in reversed(models) if isinstance(model, str)), "")
    return Reply(text, model or endpoint.model, usage)


def explained(output: str, profile: CommandProfile) -> str:
    """Return what a program that prints JSON says went wrong, in its own words; "" where it does not."""
    if profile.reply == "text":
        return ""
    keys = ((profile.reply_key,) if profile.reply_key and profile.reply == "json" else ()) + _EXPLANATIONS
    for value in reversed(_printed_values(output, profile)):
        for words in (words for key in keys for words in at(value, key)):
            if isinstance(words, str) and words.strip():
                return " ".join(words.split())
    return ""


def at(value: Any, key: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return what stands at a dotted key in JSON: nothing, one thing, or several where it has a `*`."""
    values = [value]
    for part in key.split("."):
        inner: list[Any] = []
        for outer in values:
            if part == "*" and isinstance(outer, dict | list):
                inner.extend(outer.values() if isinstance(outer, dict) else outer)
            elif isinstance(outer, dict) and part in outer:
                inner.append(outer[part])
            elif isinstance(outer, list) and part.isdecimal() and int(part) < len(outer):
                inner.append(outer[int(part)])
        values = inner
    return values


def _printed_values(output: str, profile: CommandProfile) -> list[Any]:
    """Return the JSON that was printed; words before, after or between are passed over."""
    lines = output.split("\n")  # texts may hold other line separators, which JSON takes as they are
    if profile.reply == "jsonl":
        return [value for line in lines for value in _parsed(line)]
    start = next((place for place, line in enumerate(lines) if line.startswith(("{", "["))), len(lines))
    return _parsed(output) or _parsed("\n".join(lines[start:]))


def _parsed(text: str) -> list[Any]:
    """Return the JSON with which a text begins, none where it is not a list or a mapping."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return []
    return [value] if isinstance(value, dict | list) else []


def _holds(value: Any, where: Mapping[str, Any]) -> bool:  # noqa: ANN401 - any JSON
    return all(at(value, key) == [wanted] for key, wanted in where.items())


def _usage(values: Sequence[Any], profile: CommandProfile, endpoint: Endpoint) -> CallUsage:
    keys = profile.usage
    stating = [value for value in values if keys and _holds(value, keys.where)]
    if keys is None or not stating:
        return CallUsage()

    def numbers(*places: str) -> list[float]:
        # NaN and infinity, which Python reads in JSON, are none.
        there = [number for key in places for number in at(stating[-1], key)]
        sound = [
            number for number in there if isinstance(number, int | float) and not isinstance(number, bool)
        ]
        return [float(number) for number in sound if abs(number) < _MOST]

    kinds = (keys.input, keys.output, keys.cache_read, keys.cache_write)
    counts = [int(max(0.0, sum(numbers(*kind)))) for kind in kinds]
    read, written, cache_read, cache_write = counts
    costs = numbers(keys.cost) if keys.cost else []
    if endpoint.price is not None:
        price = endpoint.price.of(read, written, cache_read, cache_write)
        return CallUsage(read, written, price, "profile", cache_read, cache_write)
    if not costs:
        return CallUsage(read, written, None, None, cache_read, cache_write)
    return CallUsage(read, written, max(0.0, sum(costs)), "provider", cache_read, cache_write)


# The process


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
            kill_marked(INSIDE, call.environ[INSIDE])
        await _end(process)
    text = output.decode(errors="replace")
    if code:
        line = explained(text, profile) or _last_line(errors) or _last_line(output) or "no message"
        words = failures.without_values(line[: failures.MAX_MESSAGE], secret_values(endpoint))
        raise GatewayError(FailureKind.COMMAND_FAILED, f"{program} exited with {code}: {words}")
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


def kill_marked(variable: str, mark: str) -> int:
    """Kill every process that was started with `variable` set to `mark`; return how many were found.

    `mark` must be one that nobody else has chosen.
    """
    if sys.platform != "linux":
        return 0
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = (
            set(_marked(f"{variable}={mark}".encode())) - killed
        )  # a dying one can still be read for a while
        if not found:
            break
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed |= found
    return len(killed)


def _marked(setting: bytes) -> Iterator[int]:
    """Yield the processes of this user whose environment has a setting."""
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir(_PROCESSES)):  # noqa: PTH208 - names are wanted, no paths
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if setting in Path(_PROCESSES, name, "environ").read_bytes().split(b"\0"):
                    yield int(name)


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in lines_of(output.decode(errors="replace")) if line.strip()]
    return lines[-1][: failures.MAX_MESSAGE] if lines else ""
