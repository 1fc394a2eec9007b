"""Reaches a model through a program: the prompt goes to its stdin, and it prints the reply.

The program is an agent that reads hostile text. So it gets an empty working folder, an environment with only
the variables its profile names, and a mark that keeps judgekit from starting it again from within. The mark
also finds processes that a signal to its group doesn't reach.
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
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.providers.base import (
    INSIDE,
    MAX_MESSAGE,
    Reply,
    add_schema,
    hide_secrets,
    list_secrets,
)
from judgekit.providers.pace import Paces, Turn
from judgekit.providers.registry import PLACEHOLDERS, CommandProfile
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.providers.base import Endpoint, Messages, Request

DEFAULT = "default"  # the model's name if the program is to choose
MAX_OUTPUT = 1_000_000
_WORK_FOLDER = "work"  # the empty working folder, next to the profile's files
_SCHEMA = "schema.json"
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
# The keys at which programs that print JSON report an error
_ERROR_KEYS = ("error.data.message", "error.message", "message", "error")
_MAX_AMOUNT = 1e15  # a larger number can't be a count or an amount
_MAX_STDERR = 100_000_000  # bytes kept on disk
_STDERR_TAIL_BYTES = 8_000  # read from its end
_CHECK_SECONDS = 0.05  # seconds between checks of how much a program has printed
_MAX_KILL_ROUNDS = 5
_CLEANUP_SECONDS = 3.0  # seconds to end a program's processes before our own process may exit


@dataclass(eq=False)
class CommandGateway:
    """Runs a program once per request. A profile may limit how many run at once for its provider."""

    _paces: Paces = field(default_factory=Paces)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Run the program once and return its reply. Raises `GatewayError`."""
        profile = endpoint.profile
        if not isinstance(profile, CommandProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a command")
        if environment.environ().get(INSIDE):
            # This process was started by a program that judgekit runs. That program must not judge in turn.
            problem = "judgekit started it through another program (a loop)"
            raise GatewayError(FailureKind.COMMAND_FAILED, problem, usage=Usage())

        async def work(turn: Turn, _: float) -> Reply:
            """Wait for a turn, run the program in a temporary folder, and parse its output."""
            async with turn():
                with tempfile.TemporaryDirectory(
                    prefix="judgekit-", ignore_cleanup_errors=True
                ) as folder:
                    invocation = prepare(profile, endpoint, request, Path(folder))
                    output = await _run_program(invocation, endpoint, profile)
                    if profile.reply_file is not None:
                        output = _read_file(Path(folder, profile.reply_file))
                    return parse_reply(output, profile, endpoint)

        problem = f"{profile.argv[0]} did not reply"
        return await self._paces.call(endpoint, request, work, problem, _CLEANUP_SECONDS)

    async def aclose(self) -> None: ...


def _read_file(path: Path) -> str:
    """Read up to `MAX_OUTPUT` bytes of a file as text. Without the file, return ""."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(MAX_OUTPUT).decode(errors="replace")


class Invocation(NamedTuple):
    argv: list[str]
    prompt: str
    environ: dict[str, str]
    cwd: Path


def prepare(
    profile: CommandProfile, endpoint: Endpoint, request: Request, folder: Path
) -> Invocation:
    """Create the program's files in the empty `folder`, and build its invocation.

    Raises `GatewayError` if the files can't be written.
    """
    # A profile uses placeholders, such as `{schema}`, in its arguments, files and variables. If it has none
    # for the schema or the system message, add these to the prompt.
    templates = " ".join((*profile.argv, *profile.files.values(), *profile.set_env.values()))
    placeholders = set(_PLACEHOLDER.findall(templates))
    messages = request.messages
    if placeholders.isdisjoint({"schema", "schema_file"}):
        messages = add_schema(messages, request.schema, "text")
    system, prompt = _split_system_and_prompt(messages)
    if placeholders.isdisjoint({"system", "system_json"}):
        prompt = f"{system}\n\n{prompt}"
    values = _make_placeholder_values(profile, endpoint, request, system, folder)

    # Create the program's files.
    files = {name: _fill(text, values) for name, text in profile.files.items()}
    if request.schema is not None:
        files[_SCHEMA] = values["schema"]
    try:
        (folder / _WORK_FOLDER).mkdir()
        _write_files(folder, files)
        _link_files(folder, profile.links, endpoint.parameters)
    except OSError as error:
        problem = f"the folder for {profile.argv[0]} cannot be created ({error.strerror})"
        raise GatewayError(FailureKind.COMMAND_FAILED, problem, usage=Usage()) from None

    # Build the environment. It disables judgekit inside the program, and its mark identifies the program's
    # processes.
    environ = dict(endpoint.parameters)
    for name, value in profile.set_env.items():
        environ[name] = _fill(value, values)
    environ["JUDGEKIT_DISABLE"] = "1"
    environ[INSIDE] = secrets.token_hex(16)
    return Invocation(_fill_arguments(profile.argv, values), prompt, environ, folder / _WORK_FOLDER)


def _fill_arguments(templates: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Fill in the placeholders in arguments. Drop an argument if its model or schema is empty."""
    empty_placeholders = {name for name in ("model", "schema", "schema_file") if not values[name]}
    arguments = []
    for template in templates:
        if empty_placeholders.isdisjoint(_PLACEHOLDER.findall(template)):
            arguments.append(_fill(template, values))
    return arguments


def _split_system_and_prompt(messages: Messages) -> tuple[str, str]:
    """Return the system messages joined to one text, and the other messages joined to a prompt.

    If there are multiple other messages, each has a heading with its role, such as `[user]`.
    """
    instructions = []
    other_messages = []
    for message in messages:
        if message.role == "system":
            instructions.append(message.content)
        else:
            other_messages.append(message)

    system = "\n\n".join(instructions)
    if len(other_messages) == 1:
        return system, other_messages[0].content
    return system, "\n\n".join(f"[{message.role}]\n{message.content}" for message in other_messages)


def _make_placeholder_values(
    profile: CommandProfile, endpoint: Endpoint, request: Request, system: str, folder: Path
) -> dict[str, str]:
    """Map each placeholder, such as `model`, to its value for a request.

    `schema` and `schema_file` are "" if the request has no schema. `model` is "" if the program chooses the
    model.
    """
    model = endpoint.model.removeprefix(f"{profile.provider}/")
    values = dict.fromkeys(PLACEHOLDERS, "")
    values["model_json"] = json.dumps(model)
    values["system"] = system
    values["system_json"] = json.dumps(system)
    values["folder"] = str(folder)
    if model != DEFAULT:
        values["model"] = model
    if request.schema is not None:
        values["schema"] = json.dumps(request.schema)
        values["schema_file"] = str(folder / _SCHEMA)
    return values


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")


def _link_files(
    folder: Path, links: Mapping[str, Iterable[str]], environ: Mapping[str, str]
) -> None:
    """Link the user's files into `folder`, such as a stored login.

    Each link points to its first source that exists, if any.
    """
    for name, sources in links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        target = _first_file(sources, environ)
        if target:
            link.symlink_to(target)


def _first_file(sources: Iterable[str], environ: Mapping[str, str]) -> Path | None:
    """Return the first file that exists, or None.

    Sources start with `~/` or a variable, as in `$CODEX_HOME/auth.json`.
    """
    for source in sources:
        base, _, path_below = source.partition("/")
        if base == "~":
            base = "$HOME"
        if not base.startswith("$"):
            continue
        folder = environ.get(base.removeprefix("$"))
        if folder and os.path.isfile(Path(folder, path_below)):  # noqa: PTH113 - raises nothing
            return Path(folder, path_below)
    return None


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in a text with their values."""
    # In one pass, because a value may contain another placeholder's name.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def parse_reply(output: str, profile: CommandProfile, endpoint: Endpoint) -> Reply:
    """Parse a program's output in the profile's format.

    Raises `GatewayError` (`INVALID_REPLY`) if the output contains no reply.
    """
    if profile.reply == "text":
        if not output.strip():
            problem = f"{profile.argv[0]} printed nothing"
            raise GatewayError(FailureKind.INVALID_REPLY, problem)
        return Reply(output.strip(), endpoint.model)

    values = _parse_json_output(output, profile)
    usage = _read_usage(values, profile, endpoint).of_call()
    text = _find_reply_text(values, profile)
    if not text:
        problem = _describe_missing_reply(output, profile)
        raise GatewayError(FailureKind.INVALID_REPLY, problem, usage=usage)

    # The last name of a model counts, because the program may have switched to another one.
    model = ""
    for value in values:
        for name in find_values(value, profile.model_key or ""):
            if isinstance(name, str):
                model = name
    return Reply(text, model or endpoint.model, usage)


def _describe_missing_reply(output: str, profile: CommandProfile) -> str:
    """Describe the JSON that's missing from a program's output, and add the error in the output, if any."""
    problem = f"{profile.argv[0]} printed no JSON"
    if profile.reply_key:
        problem += f" with {profile.reply_key!r}"
        for name, value in profile.reply_where.items():
            problem += f" where {name} is {value!r}"
    error = find_error_message(output, profile)
    return f"{problem}: {error}" if error else problem


def _find_reply_text(values: Sequence[Any], profile: CommandProfile) -> str:
    """Return the last reply in a program's JSON output as text, or "" if there's none.

    The profile says which objects contain a reply (`reply_where`) and under which key (`reply_key`).
    """
    text = ""
    for value in values:
        if not _has_values(value, profile.reply_where):
            continue
        answer = value  # without a key, the object itself is the reply
        if profile.reply_key:
            answers = find_values(value, profile.reply_key)
            answer = answers[-1] if answers else None
        if isinstance(answer, str):
            text = answer.strip()
        elif answer is not None:
            text = json.dumps(answer)
    return text


def find_error_message(output: str, profile: CommandProfile) -> str:
    """Return the last error message in a program's JSON output, or "" if it has none."""
    if profile.reply == "text":
        return ""
    keys = list(_ERROR_KEYS)
    if profile.reply_key and profile.reply == "json":
        keys.insert(0, profile.reply_key)  # some programs put the error in the reply's place
    for value in reversed(_parse_json_output(output, profile)):
        for key in keys:
            for message in find_values(value, key):
                if isinstance(message, str) and message.strip():
                    return " ".join(message.split())
    return ""


def find_values(value: Any, key: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return all values at a dotted key in JSON, such as `usage.tokens` or `items.*.text`.

    A `*` matches all keys of an object, and all items of a list.
    """
    values = [value]
    for part in key.split("."):
        # Replace the values by those one level deeper.
        inner_values: list[Any] = []
        for outer_value in values:
            items: dict[str, Any] = {}
            if isinstance(outer_value, dict):
                items = outer_value
            elif isinstance(outer_value, list):
                items = {str(index): item for index, item in enumerate(outer_value)}
            if part == "*":
                inner_values += items.values()
            elif part in items:
                inner_values.append(items[part])
        values = inner_values
    return values


def _parse_json_output(output: str, profile: CommandProfile) -> list[Any]:
    """Parse the JSON objects and lists that a program printed, and return them as a list.

    For the format `json`, the list has at most one value. For `jsonl`, lines that aren't JSON are skipped.
    """
    lines = output.split("\n")  # not splitlines(), because strings in JSON can contain U+2028
    if profile.reply == "json":
        # Other output, such as a warning, can precede the JSON. So try the complete output, and the output
        # from the first line that looks like JSON.
        json_lines = dropwhile(lambda line: not line.startswith(("{", "[")), lines)
        json_texts = [output, "\n".join(json_lines)]
    else:
        json_texts = lines

    values = []
    for text in json_texts:
        with contextlib.suppress(ValueError, RecursionError):
            value, _ = json.JSONDecoder().raw_decode(text.lstrip())
            if isinstance(value, dict | list):
                values.append(value)
    if profile.reply == "json":
        return values[:1]
    return values


def _has_values(value: Any, expected: Mapping[str, Any]) -> bool:  # noqa: ANN401 - any JSON
    """Whether JSON has the expected value at each dotted key."""
    return all(
        find_values(value, key) == [expected_value] for key, expected_value in expected.items()
    )


def _read_usage(values: Sequence[Any], profile: CommandProfile, endpoint: Endpoint) -> Usage:
    """Read a call's tokens and cost from a program's JSON output, if it reports them."""
    keys = profile.usage
    if keys is None:
        return Usage()
    # The profile tells which objects report the usage. The last report counts.
    reports = [value for value in values if _has_values(value, keys.where)]
    if not reports:
        return Usage()
    report = reports[-1]

    prompt_tokens = _add_up(report, keys.input)
    reply_tokens = _add_up(report, keys.output)
    cache_read = _add_up(report, keys.cache_read)
    cache_write = _add_up(report, keys.cache_write)

    # If the profile has a price, use that rather than the reported cost.
    if endpoint.price is not None:
        cost = endpoint.price.of(prompt_tokens, reply_tokens, cache_read, cache_write)
        return Usage(prompt_tokens, reply_tokens, cost, "profile", cache_read, cache_write)
    amounts = _list_numbers(report, keys.cost) if keys.cost else []
    if amounts:
        cost = max(0.0, sum(amounts))
        return Usage(prompt_tokens, reply_tokens, cost, "provider", cache_read, cache_write)
    return Usage(prompt_tokens, reply_tokens, None, None, cache_read, cache_write)


def _add_up(report: Any, keys: Iterable[str]) -> int:  # noqa: ANN401 - any JSON
    """Add up all numbers at the given dotted keys."""
    total = 0.0
    for key in keys:
        total += sum(_list_numbers(report, key))
    return int(max(0.0, total))


def _list_numbers(report: Any, key: str) -> list[float]:  # noqa: ANN401 - any JSON
    """Return all valid counts and amounts of money at a dotted key."""
    amounts = []
    for value in find_values(report, key):
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        # Python's JSON parser accepts NaN and infinity, so exclude them here.
        if abs(value) < _MAX_AMOUNT:
            amounts.append(float(value))
    return amounts


def _get_size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


async def _kill_program(process: asyncio.subprocess.Process, mark: str) -> None:
    """Kill a program if it's still running, and all processes that it has left behind."""
    was_still_running = process.returncode is None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)  # the program and its children
    if was_still_running:
        kill_marked(mark)  # also those in other sessions
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), timeout=1)  # normally takes milliseconds


async def _run_program(invocation: Invocation, endpoint: Endpoint, profile: CommandProfile) -> str:
    """Run the program and return its output. Raises `GatewayError` if it fails or prints too much."""
    # Use files rather than pipes, because reading a pipe could hang: a child process that outlives the
    # program would keep the pipe open.
    with (
        tempfile.TemporaryFile() as prompt,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        prompt.write(invocation.prompt.encode(errors="replace"))
        prompt.seek(0)
        process = await _start_program(profile.argv[0], invocation, prompt, stdout, stderr)
        try:
            stderr_size = await _wait_for_exit(process, stdout, stderr)
        finally:
            await _kill_program(process, invocation.environ[INSIDE])
        stdout.seek(0)
        stderr.seek(max(0, stderr_size - _STDERR_TAIL_BYTES))
        output = stdout.read().decode(errors="replace")
        errors = stderr.read().decode(errors="replace")

    # If the program failed, quote the error in its JSON output, or the last line that it printed.
    if process.returncode:
        lines = ["no message", *lines_of(output), *lines_of(errors)]
        last_line = [line.strip() for line in lines if line.strip()][-1]
        reason = find_error_message(output, profile) or last_line
        safe_reason = hide_secrets(reason[:MAX_MESSAGE], list_secrets(endpoint))
        message = f"{profile.argv[0]} exited with {process.returncode}: {safe_reason}"
        raise GatewayError(FailureKind.COMMAND_FAILED, message)
    return output


async def _wait_for_exit(
    process: asyncio.subprocess.Process, stdout: IO[bytes], stderr: IO[bytes]
) -> int:
    """Wait until a program has exited, and return the size of its stderr in bytes.

    Raises `GatewayError` as soon as the program has printed too much.
    """
    while True:
        # Interrupt the wait regularly, to check the size of the output.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _CHECK_SECONDS)
        stderr_size = _get_size(stderr)
        if _get_size(stdout) > MAX_OUTPUT or stderr_size > _MAX_STDERR:
            problem = f"printed more than {MAX_OUTPUT} bytes"
            raise GatewayError(FailureKind.COMMAND_FAILED, problem)
        if process.returncode is not None:
            return stderr_size


async def _start_program(
    program: str,
    invocation: Invocation,
    prompt: IO[bytes],
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> asyncio.subprocess.Process:
    """Start the program with files as its input and output. Raises `GatewayError` if it can't be started."""
    _, *arguments = invocation.argv
    environ = invocation.environ
    # Start the program in a new session, so that its child processes can be killed with it.
    try:
        return await asyncio.create_subprocess_exec(
            programs.find(program, environ) or "",
            *arguments,
            stdin=prompt,
            stdout=stdout,
            stderr=stderr,
            cwd=invocation.cwd,
            env={**environ, "PATH": programs.search_path(environ)},
            start_new_session=True,
        )
    except OSError as error:
        message = f"{program} cannot be started ({error.strerror})"
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=Usage()) from None


def kill_marked(mark: str) -> int:
    """Kill all processes whose environment variable `INSIDE` is `mark`, and return the number of processes.

    Only Linux lists the variables of other processes. On other systems, this does nothing and returns 0.
    """
    if sys.platform != "linux":
        return 0
    killed_processes: set[int] = set()
    # Repeat the search a few times, because a process can start another one meanwhile.
    for _ in range(_MAX_KILL_ROUNDS):
        marked_processes = _find_marked(mark)
        # Stop if there are no new processes. Killed ones are still listed for a moment.
        if marked_processes <= killed_processes:
            break
        for process in marked_processes - killed_processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed_processes |= marked_processes
    return len(killed_processes)


def _find_marked(mark: str) -> set[int]:
    """Return the ids of the processes with the variable `INSIDE` set to `mark`."""
    setting = f"{INSIDE}={mark}".encode()
    processes = set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if setting in file.read_bytes().split(b"\0"):
                processes.add(int(file.parent.name))
    return processes
