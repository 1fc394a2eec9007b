"""Reaches a model through a program: the prompt goes to its stdin, the reply is what it prints.

The program is an agent that reads hostile text, so it gets an empty folder to work in, an environment with
nothing but what its profile names, and a mark that keeps judgekit from starting it again from within.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from judgekit import environment, programs
from judgekit.errors import FailureKind, GatewayError
from judgekit.gateway import failures, leftovers, one_loop, printed
from judgekit.gateway.endpoints import INSIDE, secrets
from judgekit.gateway.invocation import Invocation, prepare
from judgekit.gateway.pace import Paces, no_turn
from judgekit.provider import CommandProfile
from judgekit.text import lines_of
from judgekit.usage import Usage

if TYPE_CHECKING:
    from judgekit.gateway.base import Endpoint, Reply, Request

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
            raise GatewayError(FailureKind.COMMAND_FAILED, told, usage=Usage())
        begun, end = False, time.monotonic() + request.timeout

        async def in_turn() -> Reply:
            nonlocal begun
            async with self._paces.of(endpoint).turn(end):
                begun = True
                return await _reply(profile, endpoint, request)

        try:
            async with asyncio.timeout(request.timeout):
                return await one_loop.inside(in_turn, patience=_TIDYING)
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
        return printed.reply_of(output, profile, endpoint)


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
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=Usage()) from None
    leaving = asyncio.create_task(_end_after(process))
    try:
        output, errors, _ = await asyncio.gather(_read(process), _tail(process), _feed(process, call.prompt))
        code = await process.wait()
    finally:
        cut_off = process.returncode is None
        leaving.cancel()
        _kill(process)
        if cut_off:
            leftovers.end(INSIDE, call.environ[INSIDE])
        await _end(process)
    text = output.decode(errors="replace")
    if code:
        line = printed.explained(text, profile) or _last_line(errors) or _last_line(output) or "no message"
        told = failures.redact(line[: failures.MAX_MESSAGE], secrets(endpoint))
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
