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
    secret_values,
    with_schema,
    without_values,
)
from judgekit.providers.pace import Paces, Turn
from judgekit.providers.registry import PLACEHOLDERS, CommandProfile
from judgekit.text import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.providers.base import Endpoint, Messages, Request

DEFAULT = "default"  # the model's name if the program is to choose
MAX_OUTPUT = 1_000_000
_WORK_FOLDER = "work"  # the empty working folder; the profile's files go beside it
_SCHEMA = "schema.json"
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
# Keys under which programs that print JSON say what went wrong.
_EXPLANATIONS = ("error.data.message", "error.message", "message", "error")
_MAX_AMOUNT = 1e15  # a larger number can't be a count or an amount
_MAX_STDERR = 100_000_000  # bytes kept on disk
_ERROR_TAIL_BYTES = 8_000  # bytes read from the end of it
_CHECK_SECONDS = 0.05  # seconds between checks of how much a program has printed
_CLEANUP_SECONDS = 3.0  # seconds to end a program's processes before our own process may exit


@dataclass(eq=False)
class CommandGateway:
    """Runs a program once per request. A profile may limit how many run at once for its provider."""

    _paces: Paces = field(default_factory=Paces)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Run the program once and read its reply; raises `GatewayError`."""
        profile = endpoint.profile
        if not isinstance(profile, CommandProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a command")
        if environment.environ().get(INSIDE):
            # This judgekit was itself started by a program that another judgekit runs.
            problem = "judgekit started it through another program (a loop)"
            raise GatewayError(FailureKind.COMMAND_FAILED, problem, usage=Usage())

        async def work(turn: Turn, _: float) -> Reply:
            """Wait for a turn, and run the program in a folder that's deleted afterwards."""
            async with turn():
                with tempfile.TemporaryDirectory(
                    prefix="judgekit-", ignore_cleanup_errors=True
                ) as folder:
                    invocation = prepare(profile, endpoint, request, Path(folder))
                    output = await _run_program(invocation, endpoint, profile)
                    if profile.reply_file is not None:
                        output = _read_file(Path(folder, profile.reply_file))
                    return reply_of(output, profile, endpoint)

        problem = f"{profile.argv[0]} did not reply"
        return await self._paces.call(endpoint, request, work, problem, _CLEANUP_SECONDS)

    async def aclose(self) -> None: ...


def _read_file(path: Path) -> str:
    """Read at most `MAX_OUTPUT` bytes from the beginning of a file as text; "" if there's no such file."""
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
    """Create the program's files in the empty `folder`, and build its invocation; raises `GatewayError`.

    If the profile has no placeholder for the system message, the system message is put before the prompt. The
    prompt goes to the program's standard input, and never into an argument.
    """
    templates = " ".join((*profile.argv, *profile.files.values(), *profile.set_env.values()))
    placeholders = set(_PLACEHOLDER.findall(templates))
    messages = request.messages
    if placeholders.isdisjoint({"schema", "schema_file"}):
        messages = with_schema(messages, request.schema, "text")
    system, prompt = _split_system_and_prompt(messages)
    if placeholders.isdisjoint({"system", "system_json"}):
        prompt = f"{system}\n\n{prompt}"
    values = _make_placeholder_values(profile, endpoint, request, system, folder)

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

    environ = dict(endpoint.parameters)
    for name, value in profile.set_env.items():
        environ[name] = _fill(value, values)
    environ["JUDGEKIT_DISABLE"] = "1"
    environ[INSIDE] = secrets.token_hex(16)
    return Invocation(_fill_arguments(profile.argv, values), prompt, environ, folder / _WORK_FOLDER)


def _fill_arguments(templates: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Fill in a command's arguments, without those for a model or a schema if there's none to fill in."""
    empty_placeholders = {name for name in ("model", "schema", "schema_file") if not values[name]}
    arguments = []
    for template in templates:
        if empty_placeholders.isdisjoint(_PLACEHOLDER.findall(template)):
            arguments.append(_fill(template, values))
    return arguments


def _split_system_and_prompt(messages: Messages) -> tuple[str, str]:
    """Join the system messages into one text, and the other messages into the prompt.

    If the prompt has several messages, each is headed by its role, such as `[user]`.
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
    """Map each placeholder that a profile may use to its value for a request.

    Without a schema, the value of `schema` and `schema_file` is "". So is `model` if the program chooses.
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
    """Create links in `folder` to files of the user's, such as a stored login.

    Each link leads to the first of its sources that exists. If none exists, there's no link.
    """
    for name, sources in links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        target = _first_file(sources, environ)
        if target:
            link.symlink_to(target)


def _first_file(sources: Iterable[str], environ: Mapping[str, str]) -> Path | None:
    """Find the first of several files that exists, or None.

    Each source begins with `~/`, or with a variable for a folder as in `$CODEX_HOME/auth.json`.
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
    """Replace each placeholder in a text by its value."""
    # In one pass, so that placeholders within a value aren't replaced.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def reply_of(output: str, profile: CommandProfile, endpoint: Endpoint) -> Reply:
    """Read a program's output as a reply, in the form that the profile describes.

    Raises `GatewayError` (`INVALID_REPLY`) if the output holds no reply.
    """
    if profile.reply == "text":
        if not output.strip():
            problem = f"{profile.argv[0]} printed nothing"
            raise GatewayError(FailureKind.INVALID_REPLY, problem)
        return Reply(output.strip(), endpoint.model)
    values = _parse_printed(output, profile)
    usage = _read_usage(values, profile, endpoint).of_call()
    text = _find_text(values, profile)
    if not text:
        problem = _describe_no_reply(output, profile)
        raise GatewayError(FailureKind.INVALID_REPLY, problem, usage=usage)
    model = ""  # the last one named
    for value in values:
        for name in at(value, profile.model_key or ""):
            if isinstance(name, str):
                model = name
    return Reply(text, model or endpoint.model, usage)


def _describe_no_reply(output: str, profile: CommandProfile) -> str:
    """Describe the reply that's missing from a program's JSON, with the program's own error if it has one."""
    problem = f"{profile.argv[0]} printed no JSON"
    if profile.reply_key:
        problem += f" with {profile.reply_key!r}"
        for name, value in profile.reply_where.items():
            problem += f" where {name} is {value!r}"
    reason = explained(output, profile)
    return f"{problem}: {reason}" if reason else problem


def _find_text(values: Sequence[Any], profile: CommandProfile) -> str:
    """Find the text of the reply in the JSON values that a program printed; "" if there's none.

    If several values hold a reply, the last one counts. A reply that isn't a text is written as JSON.
    """
    text = ""
    for value in values:
        if not _has_values(value, profile.reply_where):
            continue
        answer = value
        if profile.reply_key:
            answers = at(value, profile.reply_key)
            answer = answers[-1] if answers else None
        if isinstance(answer, str):
            text = answer.strip()
        elif answer is not None:
            text = json.dumps(answer)
    return text


def explained(output: str, profile: CommandProfile) -> str:
    """Find the error message in a program's JSON output, such as the `error.message` of the last value.

    "" if there's no message, or if the program prints plain text.
    """
    if profile.reply == "text":
        return ""
    keys = list(_EXPLANATIONS)
    if profile.reply_key and profile.reply == "json":
        keys.insert(0, profile.reply_key)
    for value in reversed(_parse_printed(output, profile)):
        for key in keys:
            for message in at(value, key):
                if isinstance(message, str) and message.strip():
                    return " ".join(message.split())
    return ""


def at(value: Any, key: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """List the values at a dotted key in JSON, such as `usage.tokens` or `items.*.text`.

    The list is empty if there's no such key. It may have several values if the key has a `*`, which stands
    for all keys of an object, or all items of a list.
    """
    values = [value]
    for part in key.split("."):
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


def _parse_printed(output: str, profile: CommandProfile) -> list[Any]:
    """Parse the JSON objects and lists that a program printed.

    For `jsonl`, that's one of each line that can be parsed. For `json`, it's one in all, or none.
    """
    lines = output.split("\n")  # not splitlines(): JSON allows U+2028 and the like within strings
    json_texts = lines
    if profile.reply == "json":
        # Other output, such as a warning, may stand before the JSON.
        from_json = dropwhile(lambda line: not line.startswith(("{", "[")), lines)
        json_texts = [output, "\n".join(from_json)]
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
    """Whether JSON has exactly the expected value at each of the dotted keys."""
    return all(at(value, key) == [expected_value] for key, expected_value in expected.items())


def _read_usage(values: Sequence[Any], profile: CommandProfile, endpoint: Endpoint) -> Usage:
    """Read the tokens and the cost of a call from the JSON values that a program printed.

    They're in the last value that the profile's `usage.where` describes. If there's no such value, the usage
    is empty. A price in the profile comes before a cost in the output.
    """
    keys = profile.usage
    if keys is None:
        return Usage()
    statements = [value for value in values if _has_values(value, keys.where)]
    if not statements:
        return Usage()
    statement = statements[-1]
    prompt_tokens = _add_up(statement, keys.input)
    reply_tokens = _add_up(statement, keys.output)
    cache_read = _add_up(statement, keys.cache_read)
    cache_write = _add_up(statement, keys.cache_write)
    if endpoint.price is not None:
        cost = endpoint.price.of(prompt_tokens, reply_tokens, cache_read, cache_write)
        return Usage(prompt_tokens, reply_tokens, cost, "profile", cache_read, cache_write)
    amounts = _list_amounts(statement, keys.cost) if keys.cost else []
    if amounts:
        cost = max(0.0, sum(amounts))
        return Usage(prompt_tokens, reply_tokens, cost, "provider", cache_read, cache_write)
    return Usage(prompt_tokens, reply_tokens, None, None, cache_read, cache_write)


def _add_up(statement: Any, keys: Iterable[str]) -> int:  # noqa: ANN401 - any JSON
    """Add up the numbers at several dotted keys; a key without a number adds nothing."""
    total = 0.0
    for key in keys:
        total += sum(_list_amounts(statement, key))
    return int(max(0.0, total))


def _list_amounts(statement: Any, key: str) -> list[float]:  # noqa: ANN401 - any JSON
    """List the numbers at a dotted key that can be counts or amounts of money."""
    amounts = []
    for value in at(statement, key):
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        # Python's JSON parser accepts NaN and infinity, which are no amounts.
        if abs(value) < _MAX_AMOUNT:
            amounts.append(float(value))
    return amounts


def _get_size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


async def _kill_program(process: asyncio.subprocess.Process, mark: str) -> None:
    """Kill a program and the processes that it left behind.

    If the program was still running, as its call was cut off, this includes processes in other sessions.
    """
    is_cut_off = process.returncode is None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)  # the program and its children
    if is_cut_off:
        kill_marked(mark)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), 1)  # normally milliseconds


async def _run_program(invocation: Invocation, endpoint: Endpoint, profile: CommandProfile) -> str:
    """Run the program and return its output; raises `GatewayError` if it fails or prints too much."""
    # The program writes to files, not to pipes. A child process that it leaves behind could hold a pipe open,
    # and we'd wait for its end.
    with (
        tempfile.TemporaryFile() as prompt,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        prompt.write(invocation.prompt.encode(errors="replace"))
        prompt.seek(0)
        process = await _start_program(profile.argv[0], invocation, prompt, output, errors)
        try:
            errors_size = await _wait_for_exit(process, output, errors)
        finally:
            await _kill_program(process, invocation.environ[INSIDE])
        output.seek(0)
        errors.seek(max(0, errors_size - _ERROR_TAIL_BYTES))
        printed = output.read().decode(errors="replace")
        complaints = errors.read().decode(errors="replace")

    if process.returncode:
        # The last line counts: of the errors, or else of the output, or else "no message".
        lines = ["no message", *lines_of(printed), *lines_of(complaints)]
        last_line = [line.strip() for line in lines if line.strip()][-1]
        reason = explained(printed, profile) or last_line
        safe_reason = without_values(reason[:MAX_MESSAGE], secret_values(endpoint))
        message = f"{profile.argv[0]} exited with {process.returncode}: {safe_reason}"
        raise GatewayError(FailureKind.COMMAND_FAILED, message)
    return printed


async def _wait_for_exit(
    process: asyncio.subprocess.Process, output: IO[bytes], errors: IO[bytes]
) -> int:
    """Wait until a program has ended, and return the size of its errors in bytes.

    Raises `GatewayError` soon after the program has printed too much.
    """
    while True:
        # The timeout only interrupts the waiting, to check how much a running program has printed.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _CHECK_SECONDS)
        errors_size = _get_size(errors)
        if _get_size(output) > MAX_OUTPUT or errors_size > _MAX_STDERR:
            problem = f"printed more than {MAX_OUTPUT} bytes"
            raise GatewayError(FailureKind.COMMAND_FAILED, problem)
        if process.returncode is not None:
            return errors_size


async def _start_program(
    program: str,
    invocation: Invocation,
    prompt: IO[bytes],
    output: IO[bytes],
    errors: IO[bytes],
) -> asyncio.subprocess.Process:
    """Start the program, with files for its input, output and errors; raises `GatewayError`."""
    _, *arguments = invocation.argv
    environ = invocation.environ
    try:
        return await asyncio.create_subprocess_exec(
            programs.find(program, environ) or "",
            *arguments,
            stdin=prompt,
            stdout=output,
            stderr=errors,
            cwd=invocation.cwd,
            env={**environ, "PATH": programs.search_path(environ)},
            start_new_session=True,
        )
    except OSError as error:
        message = f"{program} cannot be started ({error.strerror})"
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=Usage()) from None


def kill_marked(mark: str) -> int:
    """Kill every process with the variable `INSIDE` set to `mark`. Returns the number of processes.

    Only Linux lists the variables of processes. On other systems nothing is killed, and the number is 0.
    """
    if sys.platform != "linux":
        return 0
    killed_processes: set[int] = set()
    # Several passes, since a process may start another while we search.
    for _ in range(5):
        marked_processes = _find_marked(mark)
        # Stop if there are no new processes. Killed ones stay listed for a moment.
        if marked_processes <= killed_processes:
            break
        for process in marked_processes - killed_processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed_processes |= marked_processes
    return len(killed_processes)


def _find_marked(mark: str) -> set[int]:
    """Find the ids of the processes whose environment has `INSIDE` set to `mark`."""
    setting = f"{INSIDE}={mark}".encode()
    processes = set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if setting in file.read_bytes().split(b"\0"):
                processes.add(int(file.parent.name))
    return processes
