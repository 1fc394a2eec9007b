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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, programs
from judgekit.errors import FailureKind, GatewayError, Usage
from judgekit.providers.base import (
    INSIDE_VARIABLE,
    MAX_MESSAGE_CHARS,
    Reply,
    add_schema,
    hide_secrets,
    list_secrets,
)
from judgekit.providers.pace import Paces, Turn
from judgekit.providers.registry import PLACEHOLDERS, CommandProfile
from judgekit.text import split_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from judgekit.providers.base import Endpoint, Messages, Request
    from judgekit.providers.registry import Price

DEFAULT_MODEL = "default"  # the model's name if the program is to choose
MAX_OUTPUT_BYTES = 1_000_000
_WORK_FOLDER = "work"  # the empty working folder, next to the profile's files
_SCHEMA_FILE = "schema.json"
_PLACEHOLDER_PATTERN = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
# The keys at which programs that print JSON report an error
_ERROR_KEYS = ("error.data.message", "error.message", "message", "error")
_MAX_AMOUNT = 1e15  # a larger number can't be a count or an amount
_MAX_STDERR_BYTES = 100_000_000  # bytes kept on disk
_STDERR_TAIL_BYTES = 8_000  # read from its end
_CHECK_SECONDS = 0.05  # seconds between checks of how much a program has printed
_MAX_KILL_ROUNDS = 5
_CLEANUP_SECONDS = 3.0  # seconds to end a program's processes before our own process may exit


@dataclass(eq=False)
class CommandGateway:
    """Runs a program once per request. A profile may limit how many run at once for its provider."""

    _paces: Paces = field(default_factory=Paces)

    async def complete(self, endpoint: Endpoint, request: Request) -> Reply:
        """Run the program once and return its reply. Raises `GatewayError` if it gives no valid reply."""
        profile = endpoint.profile
        if not isinstance(profile, CommandProfile):
            raise GatewayError(FailureKind.BAD_REQUEST, f"{profile.provider} is not a command")
        _refuse_loop()

        # The program needs no deadline of its own: `_paces.call` stops it at the request's deadline.
        async def run_in_turn(turn: Turn, _deadline: float) -> Reply:
            async with turn():  # waits until the provider's limits allow another call
                return await _run_in_temporary_folder(profile, endpoint, request)

        timeout_message = f"{profile.argv[0]} did not reply"
        return await self._paces.call(
            endpoint, request, run_in_turn, timeout_message, _CLEANUP_SECONDS
        )

    async def aclose(self) -> None: ...


def _refuse_loop() -> None:
    """Raise `GatewayError` if this process was started by a program that judgekit runs.

    Otherwise, judgekit and the program could start each other without end.
    """
    if environment.environ().get(INSIDE_VARIABLE):
        problem = "judgekit started it through another program (a loop)"
        raise GatewayError(FailureKind.COMMAND_FAILED, problem, usage=Usage())


async def _run_in_temporary_folder(
    profile: CommandProfile, endpoint: Endpoint, request: Request
) -> Reply:
    """Run the program in a temporary folder, and parse its reply.

    The reply is in `profile.reply_file`, or in the program's output if the profile has no such file.
    """
    with tempfile.TemporaryDirectory(prefix="judgekit-", ignore_cleanup_errors=True) as folder:
        invocation = prepare(profile, endpoint, request, Path(folder))
        output = await _run_program(invocation, endpoint, profile)
        if profile.reply_file is not None:
            output = _read_file(Path(folder, profile.reply_file))
        return parse_reply(output, profile, endpoint)


def _read_file(path: Path) -> str:
    """Read up to `MAX_OUTPUT_BYTES` bytes of a file as text. Without the file, return ""."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(MAX_OUTPUT_BYTES).decode(errors="replace")


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
    system, prompt = _build_prompt(request, _find_placeholders(profile))
    values = _make_placeholder_values(profile, endpoint, request, system, folder)

    files = {name: _fill(text, values) for name, text in profile.files.items()}
    if request.schema is not None:
        files[_SCHEMA_FILE] = values["schema"]
    _create_files(profile, endpoint, files, folder)

    environ = _build_environ(profile, endpoint, values)
    arguments = _fill_arguments(profile.argv, values)
    return Invocation(arguments, prompt, environ, folder / _WORK_FOLDER)


def _find_placeholders(profile: CommandProfile) -> set[str]:
    """Find the placeholders, such as `schema`, in a profile's arguments, files and variables."""
    templates = " ".join((*profile.argv, *profile.files.values(), *profile.set_env.values()))
    return set(_PLACEHOLDER_PATTERN.findall(templates))


def _build_prompt(request: Request, placeholders: set[str]) -> tuple[str, str]:
    """Build the system message and the prompt.

    Without a placeholder for the schema, it's added to the system message. Without a placeholder for the
    system message, that's added to the prompt.
    """
    messages = request.messages
    has_schema_placeholder = "schema" in placeholders or "schema_file" in placeholders
    if not has_schema_placeholder:
        messages = add_schema(messages, request.schema, mode="text")
    system, prompt = _split_system_and_prompt(messages)
    has_system_placeholder = "system" in placeholders or "system_json" in placeholders
    if not has_system_placeholder:
        prompt = f"{system}\n\n{prompt}"
    return system, prompt


def _fill_arguments(templates: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Fill in the placeholders in arguments.

    An argument such as `--model={model}` is left out if there's no model, and likewise without a schema.
    """
    arguments = []
    for template in templates:
        if not _lacks_value(template, values):
            arguments.append(_fill(template, values))
    return arguments


def _lacks_value(template: str, values: Mapping[str, str]) -> bool:
    """Whether an argument has a placeholder for a model or schema, but there's none.

    Other values, such as the system message, may be empty.
    """
    for name in _PLACEHOLDER_PATTERN.findall(template):
        if name in ("model", "schema", "schema_file") and not values[name]:
            return True
    return False


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

    Placeholders without a value, such as `schema` in a request without a schema, are "".
    """
    model = endpoint.model.removeprefix(f"{profile.provider}/")
    values = dict.fromkeys(PLACEHOLDERS, "")
    if model != DEFAULT_MODEL:  # otherwise the program chooses the model
        values["model"] = model
    # This one always has a value, because "" is no valid JSON.
    values["model_json"] = json.dumps(model)
    values["system"] = system
    values["system_json"] = json.dumps(system)
    values["folder"] = str(folder)
    if request.schema is not None:
        values["schema"] = json.dumps(request.schema)
        values["schema_file"] = str(folder / _SCHEMA_FILE)
    return values


def _create_files(
    profile: CommandProfile, endpoint: Endpoint, files: Mapping[str, str], folder: Path
) -> None:
    """Fill `folder` with the working folder, `files`, and links to the user's own files.

    Raises `GatewayError` if one can't be created.
    """
    environ = endpoint.parameters  # a command's parameters are its environment variables
    try:
        (folder / _WORK_FOLDER).mkdir()
        _write_files(folder, files)
        _link_files(folder, profile.links, environ)
    except OSError as error:
        problem = f"the folder for {profile.argv[0]} cannot be created ({error.strerror})"
        no_usage = Usage()  # the program hasn't run, so nothing was spent
        raise GatewayError(FailureKind.COMMAND_FAILED, problem, usage=no_usage) from None


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")


def _link_files(
    folder: Path, links: Mapping[str, Iterable[str]], environ: Mapping[str, str]
) -> None:
    """Create links in `folder` to files of the user, such as a stored login.

    `links` maps each link's name to the paths that it can point to. It points to the first one that exists.
    """
    for name, paths in links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        target = _find_first_file(paths, environ)
        if target:
            link.symlink_to(target)


def _find_first_file(sources: Iterable[str], environ: Mapping[str, str]) -> Path | None:
    """Return the first file that exists, or None.

    A source is a file's path that starts with `~/` or a variable, as in `$CODEX_HOME/auth.json`.
    """
    for source in sources:
        path = _expand_source(source, environ)
        if path and os.path.isfile(path):  # noqa: PTH113 - `Path.is_file` can raise an error
            return path
    return None


def _expand_source(source: str, environ: Mapping[str, str]) -> Path | None:
    """Replace the `~` or variable at the start of a source. Without one, or if it's unset, return None."""
    start, _, path_below = source.partition("/")
    variable = "$HOME" if start == "~" else start
    if not variable.startswith("$"):
        return None
    folder = environ.get(variable.removeprefix("$"))
    return Path(folder, path_below) if folder else None


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in a text with their values."""
    # In one pass, because a value may contain another placeholder's name.
    return _PLACEHOLDER_PATTERN.sub(lambda match: values[match[1]], text)


def _build_environ(
    profile: CommandProfile, endpoint: Endpoint, values: Mapping[str, str]
) -> dict[str, str]:
    """Build the program's environment. The profile's variables are templates, filled in with `values`."""
    environ = dict(endpoint.parameters)  # a command's parameters are its environment variables
    for name, template in profile.set_env.items():
        environ[name] = _fill(template, values)
    environ["JUDGEKIT_DISABLE"] = "1"  # the program must not use judgekit in turn
    # Marks the program's processes, to find them later.
    environ[INSIDE_VARIABLE] = secrets.token_hex(16)
    return environ


def parse_reply(output: str, profile: CommandProfile, endpoint: Endpoint) -> Reply:
    """Parse a program's output in the profile's format.

    Raises `GatewayError` (`INVALID_REPLY`) if the output contains no reply.
    """
    reply_format = profile.reply
    if reply_format == "text":
        return _parse_text_reply(output, profile, endpoint)

    values = _parse_json_output(output, profile)
    # Read the usage first, because a call without a reply costs money too. If it has no cost, it counts as a
    # call of unknown cost.
    usage = _read_usage(values, profile, endpoint).count_as_call()
    text = _find_reply_text(values, profile)
    if not text:
        problem = _describe_missing_reply(output, profile)
        raise GatewayError(FailureKind.INVALID_REPLY, problem, usage=usage)
    model = _find_last_model(values, profile) or endpoint.model
    return Reply(text, model, usage)


def _parse_text_reply(output: str, profile: CommandProfile, endpoint: Endpoint) -> Reply:
    """Return the whole output as the reply. Raises `GatewayError` (`INVALID_REPLY`) if it's blank."""
    text = output.strip()
    if not text:
        problem = f"{profile.argv[0]} printed nothing"
        raise GatewayError(FailureKind.INVALID_REPLY, problem)
    return Reply(text, endpoint.model)


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
        if _has_values(value, profile.reply_where):
            reply = _get_reply(value, profile.reply_key)
            if reply is not None:
                text = _convert_to_text(reply)
    return text


def _get_reply(value: Any, key: str | None) -> Any:  # noqa: ANN401 - any JSON
    """Return the last value at the key, or None. Without a key, the object itself is the reply."""
    if not key:
        return value
    replies = find_values(value, key)
    return replies[-1] if replies else None


def _convert_to_text(reply: Any) -> str:  # noqa: ANN401 - any JSON
    """Convert a reply to text, as JSON unless it's a string."""
    return reply.strip() if isinstance(reply, str) else json.dumps(reply)


def _find_last_model(values: Sequence[Any], profile: CommandProfile) -> str:
    """Return the last model named in the output, or "" if none is named."""
    # If the profile has no such key, look for "", which programs don't print.
    model_key = profile.model_key or ""
    model = ""
    for value in values:
        for name in find_values(value, model_key):
            if isinstance(name, str):
                # This replaces an earlier name, because a program can switch to another model.
                model = name
    return model


def find_error_message(output: str, profile: CommandProfile) -> str:
    """Return the last error message in a program's JSON output, or "" if it has none."""
    if profile.reply == "text":
        return ""
    keys = _list_error_keys(profile)
    for value in reversed(_parse_json_output(output, profile)):
        message = _find_first_text(value, keys)
        if message:
            return message
    return ""


def _list_error_keys(profile: CommandProfile) -> list[str]:
    """List the keys that can hold an error message, the likeliest first."""
    if profile.reply == "json" and profile.reply_key:
        return [profile.reply_key, *_ERROR_KEYS]  # some programs put the error in the reply's place
    return list(_ERROR_KEYS)


def _find_first_text(value: Any, keys: Sequence[str]) -> str:  # noqa: ANN401 - any JSON
    """Return the first text at one of the keys, on one line, or "" if all are blank."""
    for key in keys:
        for text in find_values(value, key):
            if isinstance(text, str) and text.strip():
                return " ".join(text.split())
    return ""


def find_values(value: Any, key: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return all values at a dotted key in JSON, such as `usage.tokens` or `items.*.text`.

    A `*` matches all keys of an object, and all items of a list.
    """
    values = [value]
    for part in key.split("."):
        inner_values: list[Any] = []
        for outer_value in values:
            inner_values += _find_inner_values(outer_value, part)
        values = inner_values
    return values


def _find_inner_values(value: Any, part: str) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return the values one level deeper: at a key of an object, at an index of a list, or all for `*`."""
    items: dict[str, Any] = {}
    if isinstance(value, dict):
        items = value
    elif isinstance(value, list):
        items = {str(index): item for index, item in enumerate(value)}
    if part == "*":
        return list(items.values())
    return [items[part]] if part in items else []


def _parse_json_output(output: str, profile: CommandProfile) -> list[Any]:
    """Parse the JSON objects and lists that a program printed, and return them as a list.

    For the format `json`, the list has at most one value. For `jsonl`, lines that aren't JSON are skipped.
    """
    lines = output.split("\n")  # not splitlines(), because strings in JSON can contain U+2028
    if profile.reply == "json":
        # Other output, such as a warning, can precede the JSON, so also try without it.
        values = _parse_texts([output, _skip_to_json(lines)])
        return values[:1]
    return _parse_texts(lines)


def _skip_to_json(lines: Sequence[str]) -> str:
    """Return the output from the first line that looks like JSON, or ""."""
    for index, line in enumerate(lines):
        if line.startswith(("{", "[")):
            return "\n".join(lines[index:])
    return ""


def _parse_texts(texts: Iterable[str]) -> list[Any]:
    """Parse the texts that start with a JSON object or list, and skip the others."""
    values = []
    for text in texts:
        with contextlib.suppress(ValueError, RecursionError):
            value, _ = json.JSONDecoder().raw_decode(text.lstrip())
            if isinstance(value, dict | list):
                values.append(value)
    return values


def _has_values(value: Any, expected: Mapping[str, Any]) -> bool:  # noqa: ANN401 - any JSON
    """Whether JSON has the expected value at each dotted key."""
    return all(
        find_values(value, key) == [expected_value] for key, expected_value in expected.items()
    )


def _read_usage(values: Sequence[Any], profile: CommandProfile, endpoint: Endpoint) -> Usage:
    """Read a call's tokens and cost from a program's JSON output, if it reports them."""
    usage_keys = profile.usage
    if usage_keys is None:
        return Usage()
    reports = [value for value in values if _has_values(value, usage_keys.where)]
    if not reports:
        return Usage()
    last_report = reports[-1]
    usage = Usage(
        input_tokens=_add_up(last_report, usage_keys.input),
        output_tokens=_add_up(last_report, usage_keys.output),
        cache_read_tokens=_add_up(last_report, usage_keys.cache_read),
        cache_write_tokens=_add_up(last_report, usage_keys.cache_write),
    )

    # The profile's price overrides a reported cost.
    if endpoint.price is not None:
        cost = _compute_cost(usage, endpoint.price)
        return replace(usage, cost_usd=cost, cost_source="profile")
    return _add_reported_cost(usage, last_report, usage_keys.cost)


def _add_reported_cost(usage: Usage, report: Any, key: str | None) -> Usage:  # noqa: ANN401 - any JSON
    """Add the cost at a key of a report, if there's one. A negative cost counts as 0."""
    amounts = _list_numbers(report, key) if key else []
    if not amounts:
        return usage
    cost = max(0.0, sum(amounts))
    return replace(usage, cost_usd=cost, cost_source="provider")


def _compute_cost(usage: Usage, price: Price) -> float:
    """Compute the cost of a call's tokens in US dollars."""
    return price.compute_cost(
        usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens
    )


def _add_up(report: Any, keys: Iterable[str]) -> int:  # noqa: ANN401 - any JSON
    """Add up all numbers at the given dotted keys, such as `usage.input_tokens`.

    A negative total counts as 0.
    """
    total = 0.0
    for key in keys:
        total += sum(_list_numbers(report, key))
    return max(0, int(total))


def _list_numbers(report: Any, key: str) -> list[float]:  # noqa: ANN401 - any JSON
    """Return all numbers at a dotted key, except those too large for a count or an amount of money."""
    numbers = []
    for value in find_values(report, key):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # This also excludes NaN and infinity, which Python's JSON parser accepts.
        if is_number and abs(value) < _MAX_AMOUNT:
            numbers.append(float(value))
    return numbers


async def _kill_program(process: asyncio.subprocess.Process, mark: str) -> None:
    """Kill a program and its process group. If it was still running, also kill all processes with `mark`."""
    was_still_running = process.returncode is None
    _kill_group(process)
    # If the program ended by itself, it can have left a process on purpose, such as a server in its own
    # session, so don't kill that.
    if was_still_running:
        kill_marked(mark)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), timeout=1)  # normally takes milliseconds


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill a program and its children in the same process group. On Windows, kill only the program."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


async def _run_program(invocation: Invocation, endpoint: Endpoint, profile: CommandProfile) -> str:
    """Run the program and return its output. Raises `GatewayError` if it fails or prints too much."""
    # A child process that outlives the program would keep a pipe open, and reading it could hang, so use
    # files instead.
    with (
        tempfile.TemporaryFile() as prompt,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        prompt.write(invocation.prompt.encode(errors="replace"))
        prompt.seek(0)
        mark = invocation.environ[INSIDE_VARIABLE]  # which only this program and its children have
        process = await _start_program(profile.argv[0], invocation, prompt, stdout, stderr)
        try:
            stderr_size = await _wait_for_exit(process, stdout, stderr)
        finally:
            # Even if the program has exited, its child processes can still be running.
            await _kill_program(process, mark)
        output = _read_from(stdout, 0)
        errors = _read_from(stderr, max(0, stderr_size - _STDERR_TAIL_BYTES))

    exit_code = process.returncode
    if exit_code:
        reason = find_error_message(output, profile) or _find_last_line(output, errors)
        safe_reason = hide_secrets(reason[:MAX_MESSAGE_CHARS], list_secrets(endpoint))
        message = f"{profile.argv[0]} exited with {exit_code}: {safe_reason}"
        raise GatewayError(FailureKind.COMMAND_FAILED, message)
    return output


def _read_from(file: IO[bytes], position: int) -> str:
    """Read a file's text from a position in bytes to the end."""
    file.seek(position)
    return file.read().decode(errors="replace")


def _find_last_line(output: str, errors: str) -> str:
    """Return the last line of a program's stderr that isn't blank, or else of its stdout."""
    for line in reversed([*split_lines(output), *split_lines(errors)]):
        if line.strip():
            return line.strip()
    return "no message"


async def _wait_for_exit(
    process: asyncio.subprocess.Process, stdout: IO[bytes], stderr: IO[bytes]
) -> int:
    """Wait until a program has exited, and return the size of its stderr in bytes.

    Raises `GatewayError` as soon as the program has printed too much.
    """
    while True:
        # Wait in short steps, because the output can get too long before the program exits.
        await _wait_briefly(process)
        stderr_size = _get_size(stderr)
        _refuse_long_output("stdout", _get_size(stdout), MAX_OUTPUT_BYTES)
        _refuse_long_output("stderr", stderr_size, _MAX_STDERR_BYTES)
        has_exited = process.returncode is not None
        if has_exited:
            return stderr_size


def _refuse_long_output(stream: str, size: int, limit: int) -> None:
    """Raise `GatewayError` if a program has printed more than `limit` bytes to `stream`."""
    if size > limit:
        problem = f"printed more than {limit} bytes to {stream}"
        raise GatewayError(FailureKind.COMMAND_FAILED, problem)


async def _wait_briefly(process: asyncio.subprocess.Process) -> None:
    """Wait for a program's exit, but at most until its output has to be checked again."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _CHECK_SECONDS)


def _get_size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


async def _start_program(
    program: str,
    invocation: Invocation,
    prompt: IO[bytes],
    stdout: IO[bytes],
    stderr: IO[bytes],
) -> asyncio.subprocess.Process:
    """Start the program with files as its input and output. Raises `GatewayError` if it can't be started."""
    environ = invocation.environ
    try:
        path = programs.find(program, environ) or ""  # starting "" raises `OSError`
        return await asyncio.create_subprocess_exec(
            path,
            *invocation.argv[1:],  # without the program's name
            stdin=prompt,
            stdout=stdout,
            stderr=stderr,
            cwd=invocation.cwd,
            env={**environ, "PATH": programs.search_path(environ)},
            start_new_session=True,  # so that its child processes can be killed with it
        )
    except OSError as error:
        message = f"{program} cannot be started ({error.strerror})"
        no_usage = Usage()  # the program hasn't run, so nothing was spent
        raise GatewayError(FailureKind.COMMAND_FAILED, message, usage=no_usage) from None


def kill_marked(mark: str) -> int:
    """Kill all processes whose variable `INSIDE_VARIABLE` is `mark`, and return their number.

    Only Linux lists the variables of other processes. On other systems, this does nothing and returns 0.
    """
    if sys.platform != "linux":
        return 0
    killed_processes: set[int] = set()
    # A process can start another one during the search, so repeat it a few times.
    for _ in range(_MAX_KILL_ROUNDS):
        new_processes = _find_marked(mark) - killed_processes  # killed ones are listed for a moment
        if not new_processes:
            break
        for process in new_processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        killed_processes |= new_processes
    return len(killed_processes)


def _find_marked(mark: str) -> set[int]:
    """Return the ids of the processes with the variable `INSIDE_VARIABLE` set to `mark`."""
    setting = f"{INSIDE_VARIABLE}={mark}".encode()
    processes = set()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if setting in file.read_bytes().split(b"\0"):
                processes.add(int(file.parent.name))
    return processes
