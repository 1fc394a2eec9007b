"""The command line's one boundary: parses, runs a command, turns errors into a line and an exit code.

A command that is told to end ends what it started, and dies of the signal as ever.
"""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import typer
from typer.exceptions import TyperException

from judgekit import environment
from judgekit.cli import (
    calibrate,
    compare,
    demo,
    doctor,
    engine,
    escalate,
    evaluate,
    gate,
    index,
    install,
    interruption,
    judge,
    kpi,
    label,
    ledger,
    override,
    promote,
    provider,
    rubric,
    schema,
    search,
    serve,
    triage,
)
from judgekit.cli.output import printable, warn
from judgekit.errors import Exit, JudgekitError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType


class Termination:
    """While it is entered, SIGTERM is an interruption, so that programs of command providers are ended.

    A second one ends the process at once. Nothing changes where somebody handles the signal already.
    """

    def __init__(self) -> None:
        self._came = self._mine = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._mine = True
            signal.signal(signal.SIGTERM, self._interrupt)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._came:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never there
                    stream.flush()
            signal.raise_signal(signal.SIGTERM)  # whoever waits for this process sees what ended it

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt


app = typer.Typer(
    name="judgekit",
    help="Judge content that you are about to trust: retrieval proposes, models judge, code decides.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("search")(search.search)
app.command("judge")(judge.judge)
app.command("compare")(compare.compare)
app.command("gate")(gate.gate)
app.command("calibrate")(calibrate.calibrate)
app.add_typer(evaluate.app, name="eval")
app.add_typer(index.app, name="index")
app.add_typer(engine.app, name="engine")
app.add_typer(serve.app, name="serve")
app.add_typer(rubric.app, name="rubric")
app.add_typer(provider.app, name="provider")
app.add_typer(ledger.app, name="ledger")
app.command("label")(label.label)
app.command("kpi")(kpi.kpi)
app.command("promote")(promote.promote)
app.command("triage")(triage.triage)
app.command("override")(override.override)
app.command("escalate")(escalate.escalate)
app.command("schema")(schema.schema)
app.add_typer(install.installing, name="install")
app.add_typer(install.uninstalling, name="uninstall")
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


@app.command("hook")
def hook(
    explain: str = typer.Option(
        "", metavar="PROMPT", help="Say why memories would or would not be injected."
    ),
) -> int:
    """Answer a coding agent's hook: JSON on stdin, context on stdout, always exit code 0."""
    from judgekit.hooks.claude_code import main

    del explain  # main reads it from the command line, as it must without typer
    return main()


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version."),  # noqa: FBT003 - typer's default
) -> None:
    if version:
        from judgekit.environment import __version__

        sys.stdout.write(f"judgekit {__version__}\n")
        raise typer.Exit


_NUMBERS = (
    ("float", "is not a number"),
    ("integer", "is not a whole number"),
    ("int", "is not a whole number"),
)


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    with Termination():
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    if not _has_a_folder():
        warn("the current folder is gone; change to one that exists")
        return Exit.BAD_INPUT
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] != ["hook"]:
        _tell_unknown_variables()
    try:
        asked = with_only(words)
        code = int(asked(args=arguments, standalone_mode=False) or 0)
    except TyperException as error:
        _say_how(error)
        return Exit.USAGE
    except JudgekitError as error:
        warn(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one boundary: a fault of ours is said in one line
        if os.environ.get("JUDGEKIT_TRACEBACK"):
            sys.excepthook(*sys.exc_info())
        kind = type(error).__name__
        warn(f"a fault of judgekit itself ({kind}: {error}); JUDGEKIT_TRACEBACK=1 shows where")
        return Exit.INTERNAL
    if code == Exit.INTERRUPTED:  # typer makes a code of Ctrl-C, too
        warn(interruption.line(next(iter(sys.argv[1:] if arguments is None else arguments), "")))
    return code


def _tell_unknown_variables() -> None:
    """Say which variables look like ours and are none; the hooks, which do not come here, say nothing."""
    given = [each for each in os.environ if each.startswith("JUDGEKIT_") and each not in environment.NAMES]
    if not (given := [each for each in given if not each.startswith("JUDGEKIT_TEST_")]):
        return
    import difflib
    from pathlib import Path

    from judgekit.config import settings

    known = [*environment.NAMES, *settings.variable_names()]
    own = sorted((Path(environment.config_home()) / "providers").glob("*.yaml"))
    named = "".join(path.read_text(encoding="utf-8", errors="replace") for path in own if path.is_file())
    for name in sorted(set(given) - set(known)):
        if name not in named:  # a provider's profile of the user's own may name any
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            meant = f"; did you mean {near[0]}?" if near else ""
            warn(f"{name}: judgekit knows no such variable, and it has no effect{meant}")


def _say_how(error: TyperException) -> None:
    """Say what is wrong with a command line, and whose help to read; of a group alone that is all."""
    message = error.format_message()
    if "\n" in message:
        sys.stderr.write(f"{printable(message)}\n")
        return
    for kind, words in _NUMBERS:
        message = message.replace(f"is not a valid {kind} range", words).replace(
            f"is not a valid {kind}", words
        )
    names: list[str] = []
    context = getattr(error, "ctx", None)
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    warn(f"{message} ({' '.join(['judgekit', *names])} --help shows what there is)")


def with_only(arguments: Sequence[str]) -> typer.Typer:
    """Return the application with no other command than the one that is asked for.

    Building all of them is a quarter of the CPU that a short command takes. Where none is named, or one that
    does not exist, all are there, for what is said of them.
    """
    commands = [
        registered_command
        for registered_command in app.registered_commands
        if registered_command.name in arguments[:1]
    ]
    groups = [
        registered_group
        for registered_group in app.registered_groups
        if registered_group.name in arguments[:1]
    ]
    if not commands and not groups:
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = commands, groups
    return alone


def _has_a_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - only whether it is there
    except FileNotFoundError:
        return False
    return True
