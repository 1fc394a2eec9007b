"""What commands print (results to stdout, everything else to stderr), and the options that several take."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from judgekit import environment, outputs
from judgekit.config import ModeName
from judgekit.errors import Exit, InputError, UsageError
from judgekit.text import escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from judgekit.providers.base import Message

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL: Final = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""What terminals take for a command, but for colours, tabs and line breaks."""


@dataclass
class Streams:
    """How much goes to stderr; the command line; the file that results go to, if any, and those so far."""

    quiet: bool = False
    verbose: bool = False
    words: Sequence[str] = ()
    file: Path | None = None
    results: list[str] = field(default_factory=list)


current = Streams()  # of the command that runs


def note(*lines: str) -> None:
    """Print lines that -q leaves out: progress, a hint, a summary."""
    if not current.quiet:
        warn(*lines)


def warn(*lines: object) -> None:
    """Print lines to stderr, each marked as ours; nothing where there is no stderr."""
    for line in lines if sys.stderr is not None else ():
        # No complaint has colours.
        text = str(line).replace("\x1b", "\\x1b").replace("\n", "\njudgekit: ")
        sys.stderr.write(f"judgekit: {printable(text)}\n")


def say(text: str = "") -> None:
    """Print a result for people; in colour on a terminal, or where FORCE_COLOR asks, but not with NO_COLOR.

    Raises `typer.Exit` where nobody reads it, and `InputError` where it cannot be written.
    """
    if current.file is not None:
        current.results.append(colourless(printable(text, "utf-8")))
        return
    forced = os.environ.get("FORCE_COLOR", "0") not in ("", "0")
    dumb = os.environ.get("TERM") == "dumb"
    colour = True if forced else False if dumb else None
    with _stdout():
        typer.echo(printable(text), color=False if os.environ.get("NO_COLOR") else colour)


def emit(text: str) -> None:
    """Print a result for programs: UTF-8, whatever the terminal's encoding is; raises as `say` does."""
    if current.file is not None:
        current.results.append(text)
    elif sys.stdout is not None:
        with _stdout():
            sys.stdout.flush()
            sys.stdout.buffer.write(f"{text}\n".encode())
            sys.stdout.flush()


@contextlib.contextmanager
def _stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The interpreter must not try, and fail loudly, again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(Exit.OUTPUT_LOST) from None
        raise InputError(f"cannot write the output: {error.strerror}") from None


def into_file(path: Path | None) -> Path | None:
    """Have the results written to a file when the command ends; raises as `unread` does."""
    current.file = unread(_in_folder(path))
    return path


def page_file(path: Path | None) -> Path | None:
    """Return where a page is to be written; raises as `unread` does, and for another ending."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html {path}: name a file that ends in .html")
    return unread(_in_folder(path))


def _in_folder(path: Path | None) -> Path | None:
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written; there is no folder {path.parent}")
    return path


def unread(path: Path | None) -> Path | None:
    """Return where to write; raises `UsageError` where the command reads this file or none may be written."""
    if path is not None and not outputs.is_stream(str(path)):
        with _named_output(path):
            outputs.place_of(str(path))
    named = []
    for word in current.words:
        named.append(Path(word.rpartition("=")[2] if word.startswith("-") else word))
    if path and path.exists() and sum(each.resolve() == path.resolve() for each in named) > 1:
        raise UsageError(f"{path}: the command reads this file; name another one for the result")
    return path


def printable(text: str, encoding: str = "") -> str:
    """Return text in the terminal's encoding, with what it would obey escaped; colours, our own, pass."""
    encoding = encoding or getattr(sys.stdout, "encoding", None) or "utf-8"
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def colourless(text: str) -> str:
    return _COLOUR.sub("", text)


def write_file(path: Path, text: str) -> None:
    """Write a file at once, so that none is half written (a device as it is), and say so."""
    with _named_output(path):
        if outputs.is_stream(str(path)):
            path.write_text(text, encoding="utf-8")
        else:
            outputs.write_atomically(str(path), text)
    note(f"Wrote {path}")


@contextlib.contextmanager
def _named_output(path: Path) -> Iterator[None]:
    try:
        yield
    except outputs.RefusedOutputError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def project_path() -> Path:
    return Path(environment.project_root())


def watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and not current.quiet


def progress(text: str) -> None:
    """Show on a terminal how far something is, in place of what was shown before; "" ends it."""
    if watched():
        width = shutil.get_terminal_size().columns - 1  # a longer line would not be written over
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()


def pressed() -> str:
    """Return the key that a person presses; "q" at the end of the input."""
    try:
        return typer.getchar().lower()
    except EOFError:
        return "q"


_CACHED = ": complete replies are cached{}; run the same command to continue"
KEPT: dict[str, str | None] = {
    **dict.fromkeys(("judge", "compare"), _CACHED.format(", unless with --no-cache")),
    **dict.fromkeys(("search", "gate", "calibrate", "eval", "rubric"), _CACHED.format("")),
    "demo": ": what was downloaded is kept; run the same command to continue",
    "index": ": what was read is kept; the same command starts over, the next query reads only the rest",
    "escalate": "; issues that are up to date stay so; run the same command for the rest",
    **dict.fromkeys(("kpi", "triage"), "; the ledger is unchanged"),
}
"""What an interrupted command says is kept; None where it has said so itself."""


def keeps(command: str, message: str) -> None:
    """Set what an interruption of a command from now on says is kept."""
    KEPT[command] = f"; {message}"


def ask_only(model: str) -> str:
    """Have one model asked in every tier, here and in the engine; raises `UsageError` for an empty name."""
    check_filled("--model", "a model such as anthropic/claude-haiku-5-5", model)
    os.environ["JUDGEKIT_ONLY_MODEL"] = model
    return model


def finite(given: float | None) -> float | None:
    """Return a number that was given; raises `typer.BadParameter` for an infinite one and for NaN."""
    if given is not None and not math.isfinite(given):
        raise typer.BadParameter(f"expected a number, got {given:g}")
    return given


RubricOption = Annotated[
    str | None, Option("--rubric", help="Rubric: ID, ID@VERSION or a YAML file.")
]
_MODE = Option("--mode", help="strict avoids wrong acceptance, lenient wrong rejection.")
ModeOption = Annotated[ModeName | None, _MODE]
_MODEL = Option("--model", metavar="NAME", parser=ask_only, help="Model to ask in every tier.")
ModelOption = Annotated[str | None, _MODEL]
_HTML = Option("--html", metavar="FILE.html", callback=page_file, help="Also write a page.")
HtmlOption = Annotated[Path | None, _HTML]
_OUT = Option(
    "--out", metavar="FILE", callback=into_file, help="Write the result to this file, at once."
)
OutOption = Annotated[Path | None, _OUT]
NoCache = Annotated[bool, Option("--no-cache", help="Do not use cached replies.")]
NoEngine = Annotated[bool, Option("--no-engine", help="Judge in this process, without the engine.")]
ShowPrompt = Annotated[bool, Option("--show-prompt", help="Print the prompts; send nothing.")]
_REPEAT = Option(
    min=1, max=20, help="Ask about each case so often; count flips, and how far scores move."
)
Repeat = Annotated[int, _REPEAT]
_KEEP = Option(
    "--keep", help="With --repeat: keep the noise, for the gate to say which verdicts are within."
)
Keep = Annotated[bool, _KEEP]
_DEADLINE = Option(
    min=0.1, max=3600, callback=finite, help="Time limit of each judgement, in seconds."
)
Deadline = Annotated[float | None, _DEADLINE]
_COST = Option(
    min=0, callback=finite, metavar="USD", help="Stop calling models after spending this (USD)."
)
MaxCost = Annotated[float | None, _COST]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
FAMILY = ("--author-family", "a family such as anthropic")


def check_filled(option: str, expected: str, *given: str | None) -> None:
    """Raise `UsageError` for an option that is given and empty, as where a script's variable is unset."""
    if any(value is not None and not value.strip() for value in given):
        raise UsageError(f"{option}: expected {expected}, got nothing; is a variable unset?")


def tell_sent(providers: Iterable[str], secrets: int = 0) -> None:
    """Say how many secrets were left out, and which providers were asked because of who wrote a text."""
    if secrets:
        note(
            f"{'1 secret was' if secrets == 1 else f'{secrets} secrets were'} removed before sending"
        )
    if names := ", ".join(sorted(set(providers))):
        why = "used in place of models of the author's family"
        note(
            f"{names}: {why}; providers.allow in your own configuration chooses the allowed providers"
        )


def say_prompts(
    title: str, prompts: Iterable[tuple[str, str, Iterable[Iterable[Message]]]]
) -> None:
    """Print prompts as they would be sent: for each tier and its model, the messages of each round."""
    for tier, model, rounds in prompts:
        for messages in rounds:
            parts = (f"--- {message.role}\n{message.content}" for message in messages)
            say("\n".join([f"=== {escaped(f'{title}: {tier} ({model})')}", *parts]))
