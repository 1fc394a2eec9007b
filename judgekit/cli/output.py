"""Printing for commands: results to stdout, everything else to stderr; and the options for it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from judgekit import environment
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import escape_ci_commands, escape_for_json, escape_name, format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from judgekit.providers.base import Message

_COLOUR_CODE_PATTERN: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL_CHAR_PATTERN: Final = re.compile(
    r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]"
)
"""Control sequences that a terminal obeys, except colours, tabs and line breaks."""
_MAX_NOTICES: Final = 100  # limited, because a server runs for months


@dataclass
class Streams:
    """The verbosity, the command line, and the file for results, if any, with the results so far.

    `is_for_file` is set while something is rendered for another file. `notices` are the last lines meant for
    stderr, including those that -q left out.
    """

    is_quiet: bool = False
    is_verbose: bool = False
    command_words: Sequence[str] = ()
    result_file: Path | None = None
    results: list[str] = field(default_factory=list)
    is_for_file: bool = False
    notices: deque[str] = field(default_factory=partial(deque, maxlen=_MAX_NOTICES))


current = Streams()  # of the running command


def note(*lines: str) -> None:
    """Print lines that -q omits, such as progress, hints and summaries."""
    current.notices += lines
    if not current.is_quiet:
        _write_to_stderr(*lines)


def warn(*lines: object) -> None:
    """Print lines to stderr, each marked as ours."""
    current.notices += map(str, lines)
    _write_to_stderr(*lines)


def _write_to_stderr(*lines: object) -> None:
    """Write lines to stderr without colours, each marked as ours."""
    if sys.stderr is None:  # e.g. under pythonw
        return
    for line in lines:
        without_colours = str(line).replace("\x1b", "\\x1b")
        marked_text = without_colours.replace("\n", "\njudgekit: ")
        sys.stderr.write(f"judgekit: {make_printable(marked_text)}\n")


def say(text: str = "") -> None:
    """Print a result for people, in colour on a terminal, depending on NO_COLOR and FORCE_COLOR.

    Raises `typer.Exit` if the reader has closed the pipe, and `InputError` if it can't be written.
    """
    if current.result_file is not None:  # written at the end of the command
        current.results.append(strip_colours(make_printable(text, "utf-8")))
        return
    with _explain_output_errors():
        typer.echo(make_printable(text), color=_choose_colour())


def _choose_colour() -> bool | None:
    """Choose from the environment whether to print in colour; None means only on a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    is_forced = os.environ.get("FORCE_COLOR", "") not in ("", "0")
    if is_forced:
        return True
    is_dumb_terminal = os.environ.get("TERM") == "dumb"
    return False if is_dumb_terminal else None


def emit(text: str, escape: Callable[[str], str] = escape_for_json) -> None:
    """Print a result for programs, such as JSON, as UTF-8.

    `escape` escapes dangerous characters the way the result's format does it. Raises `typer.Exit` if the
    reader has closed the pipe, and `InputError` if the result can't be written.
    """
    result = escape(text)
    if current.result_file is not None:  # written at the end of the command
        current.results.append(result)
    elif sys.stdout is not None:  # it's None e.g. under pythonw
        _write_as_utf8(result)


def _write_as_utf8(line: str) -> None:
    """Write a line to standard output as UTF-8, whatever encoding the terminal has."""
    with _explain_output_errors():
        sys.stdout.flush()  # print earlier text first: `buffer` bypasses what is still waiting
        sys.stdout.buffer.write(f"{line}\n".encode())
        sys.stdout.flush()


def get_terminal_width() -> int | None:
    """Return the terminal's width in columns; None if results go to a file or pipe."""
    if current.result_file is not None or current.is_for_file:
        return None
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


@contextlib.contextmanager
def render_for_file() -> Iterator[None]:
    """In this context, render for a file, without cutting text to the terminal's width."""
    current.is_for_file = True
    try:
        yield
    finally:
        current.is_for_file = False


@contextlib.contextmanager
def _explain_output_errors() -> Iterator[None]:
    """Turn an error while writing to stdout into an exit code or an `InputError`."""
    try:
        yield
    except OSError as error:
        # Otherwise, the interpreter would try again at exit and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(Exit.OUTPUT_LOST) from None
        raise InputError(f"cannot write the output: {error.strerror}") from None


def make_printable(text: str, encoding: str = "") -> str:
    """Fit text to the terminal's encoding, and escape control characters except colours."""
    encoding = encoding or getattr(sys.stdout, "encoding", None) or "utf-8"
    text = _CONTROL_CHAR_PATTERN.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return escape_ci_commands(text.encode(encoding, "backslashreplace").decode(encoding))


def strip_colours(text: str) -> str:
    return _COLOUR_CODE_PATTERN.sub("", text)


def get_project_path() -> Path:
    return Path(environment.find_project_root())


def confirm(question: str, action: str) -> None:
    """Ask for confirmation of an action, and abort on a no. Without a terminal, raise `UsageError`."""
    from judgekit.ledger.labels import is_at_terminal

    if not is_at_terminal():
        raise UsageError(f"no terminal to ask for confirmation; add --yes to {action}")
    typer.confirm(question, abort=True, err=True)


def read_key() -> str:
    """Wait for a key press and return the key; "q" at the end of input."""
    try:
        return typer.getchar().lower()
    except EOFError:
        return "q"


def note_sent(providers: Iterable[str], secrets: int = 0) -> None:
    """Print how many secrets were removed, and which providers were substitutes.

    A substitute judges a text in place of models of the family that wrote it.
    """
    if secrets:
        note(f"{format_count(secrets, 'secret was', 'secrets were')} removed before sending")
    names = ", ".join(sorted(set(providers)))
    if names:
        reason = "used in place of models of the author's family"
        remedy = "providers.allow in your own configuration chooses the allowed providers"
        note(f"{names}: {reason}; {remedy}")


def say_prompts(
    title: str, prompts: Iterable[tuple[str, str, Iterable[Iterable[Message]]]]
) -> None:
    """Print the prompts that would be sent, by tier, model and round."""
    for tier, model, rounds in prompts:
        for messages in rounds:
            parts = [f"=== {escape_name(f'{title}: {tier} ({model})')}"]
            for message in messages:
                parts.append(f"--- {message.role}\n{message.content}")
            say("\n".join(parts))
