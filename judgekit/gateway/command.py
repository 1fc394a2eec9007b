"""Reaches a model through a program: the prompt goes to its stdin, the reply is what it prints.

The program is an agent that reads hostile text, so it gets an empty folder to work in, an environment with
nothing but what its profile names, and a mark that keeps judgekit from starting it again from within.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.errors import FailureKind, GatewayError
from judgekit.gateway import failures, schema
from judgekit.gateway.base import Reply
from judgekit.gateway.endpoints import INSIDE, secrets
from judgekit.provider import CommandProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.gateway.base import Endpoint, Message, Request

MAX_OUTPUT = 1_000_000
_MAX_STDERR = 8_000
_DYING = 1.0  # seconds, of which a killed program needs milliseconds


class CommandGateway:
    """Runs one process a request."""

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Return what the program printed, as `Gateway.complete` says."""
        profile = endpoint.profile
        if not isinstance(profile, CommandProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a command")
        if environment.environ().get(INSIDE):
            raise GatewayError(FailureKind.COMMAND_FAILED, "a program that judgekit runs started it again")
        argv, prompt = invocation(profile, endpoint, request)
        try:
            async with asyncio.timeout(request.timeout):
                output = await _run(argv, prompt, endpoint, profile)
        except TimeoutError:
            message = f"{argv[0]} gave no reply within {request.timeout:.3g} s"
            raise GatewayError(FailureKind.TIMEOUT, message) from None
        return Reply(_reply_text(output, profile, argv[0]), endpoint.model)

    async def aclose(self) -> None:
        """Nothing stays open."""


def invocation(profile: CommandProfile, endpoint: Endpoint, request: Request) -> tuple[list[str], str]:
    """Return the arguments and the standard input of one call.

    The system message is an argument where the profile has a place for it, and the first paragraph of the
    prompt where it has none; the subject is never an argument.
    """
    takes_schema = any("{schema}" in part for part in profile.argv)
    messages = request.messages
    if not takes_schema:
        messages = schema.told(messages, request.schema, "text")
    system = "\n\n".join(each.content for each in messages if each.role == "system")
    takes_system = any("{system}" in part for part in profile.argv)
    spoken = [each for each in messages if each.role != "system"]
    values = {
        "{model}": endpoint.model.removeprefix(f"{profile.provider}/"),
        "{system}": system,
        "{schema}": json.dumps(request.schema) if request.schema is not None else "{}",
    }
    argv = [_filled(part, values) for part in profile.argv]
    return argv, _transcript(spoken) if takes_system else f"{system}\n\n{_transcript(spoken)}"


def _filled(part: str, values: dict[str, str]) -> str:
    # One replacement only, so that a text which contains another placeholder stays as it is.
    return next((part.replace(name, value) for name, value in values.items() if name in part), part)


def _transcript(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"[{each.role}]\n{each.content}" for each in messages)


async def _run(argv: list[str], prompt: str, endpoint: Endpoint, profile: CommandProfile) -> str:
    with tempfile.TemporaryDirectory(prefix="judgekit-", ignore_cleanup_errors=True) as folder:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=_environment(endpoint, profile),
                start_new_session=True,
            )
        except OSError as error:
            message = f"{argv[0]} cannot be started ({error.strerror})"
            raise GatewayError(FailureKind.COMMAND_FAILED, message) from None
        try:
            output, errors, _ = await asyncio.gather(_read(process), _tail(process), _feed(process, prompt))
            code = await process.wait()
        finally:
            await _end(process)
    if code:
        line = failures.redact(
            _last_line(errors) or _explained(output, profile) or "no message", secrets(endpoint)
        )
        raise GatewayError(FailureKind.COMMAND_FAILED, f"{argv[0]} exited with {code}: {line}")
    return output.decode(errors="replace")


def _environment(endpoint: Endpoint, profile: CommandProfile) -> dict[str, str]:
    return {**endpoint.parameters, **profile.set_env, "JUDGEKIT_DISABLE": "1", INSIDE: "1"}


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


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the program with everything that it started and did not wait for, and let go of its pipes.

    A child in a session of its own outlives the group and may hold the pipes open as long as it likes.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    transport = process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - no public way to the pipes
    for descriptor in range(3):
        pipe = transport.get_pipe_transport(descriptor)
        if not isinstance(pipe, asyncio.WriteTransport):
            pipe.close()
        elif pipe.get_write_buffer_size() or not pipe.is_closing():
            pipe.abort()  # closing would wait until someone has read what is left
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _DYING)


def _explained(output: bytes, profile: CommandProfile) -> str:
    """Return what a program said that fails in its own format."""
    text = output.decode(errors="replace")
    if profile.reply == "json":
        with contextlib.suppress(GatewayError):
            text = _from_json(text, profile.reply_key or "", "")
    return _last_line(text.encode())


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][: failures.MAX_MESSAGE] if lines else ""


def _reply_text(output: str, profile: CommandProfile, name: str) -> str:
    text = output.strip() if profile.reply == "text" else _from_json(output, profile.reply_key or "", name)
    if not text:
        raise GatewayError(FailureKind.INVALID_REPLY, f"{name} printed nothing")
    return text


def _from_json(output: str, key: str, name: str) -> str:
    try:
        found: Any = json.loads(output)
        for part in key.split(".") if key else ():
            found = found[part]
    except (ValueError, KeyError, TypeError):
        message = f"{name} printed no JSON with {key!r}"
        raise GatewayError(FailureKind.INVALID_REPLY, message) from None
    return found if isinstance(found, str) else json.dumps(found)
