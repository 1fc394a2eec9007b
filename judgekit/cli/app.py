"""The command line's one boundary: parses, runs a command, turns errors into a line and an exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main
from typer.exceptions import TyperException

from judgekit import environment
from judgekit.cli import common, output, output_files
from judgekit.cli.interruption import KEPT
from judgekit.cli.output import printable, warn
from judgekit.config import KEYS
from judgekit.errors import Exit, JudgekitError, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

COMMANDS = {
    **{name: f"{name}.{name}" for name in ("search", "judge", "report", "gate", "calibrate")},
    **{name: f"{name}.{name}" for name in ("label", "schema", "doctor", "config", "demo")},
    **{name: f"{name}.app" for name in ("engine", "rubric", "provider", "ledger")},
    **{name: f"ledger.{name}" for name in ("kpi", "promote", "triage")},
    **{name: f"label.{name}" for name in ("override", "escalate")},
    "compare": "judge.compare",
    "cache": "config.cache",
    "hook": "app.hook",
    "eval": "evaluate.app",
    "index": "search.app",
    "serve": "engine.serving",
    "install": "install.installing",
    "uninstall": "install.uninstalling",
}
"""Each command's module and the function or group in it; `help.toml` has the order of the help."""


@functools.cache
def application(command: str = "") -> Any:  # noqa: ANN401 - typer's own group, which it does not name
    """Return the application with one command, whose module alone is imported, or with all of them."""
    app = typer.Typer(
        name="judgekit",
        help="Judge content that you are about to trust: retrieval proposes, models judge, code decides.",
        epilog="judgekit help COMMAND explains a command. -q, -v and -V may follow a command, too.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(lambda: None)
    for name in [command] if command in COMMANDS else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(".")
        entry = getattr(import_module(f"judgekit.cli.{module}"), attribute)
        if isinstance(entry, typer.Typer):
            app.add_typer(entry, name=name)
        else:
            app.command(name)(entry)
    group = typer.main.get_command(app)
    common.extend(group)
    return group


def hook(
    _explain: Annotated[
        str,
        typer.Option(
            "--explain", metavar="PROMPT", help="Explain why each memory would be injected or not."
        ),
    ] = "",
    _stats: Annotated[
        bool,
        typer.Option("--stats", help="Say what became of the memories injected in this project."),
    ] = False,
    _json: Annotated[
        bool, typer.Option("--json", help="Print the figures of --stats as JSON.")
    ] = False,
) -> int:
    """Answer the hook of a coding agent: JSON on stdin, context on stdout; the exit code is always 0."""
    from judgekit.hooks.claude_code import main

    return main()  # which reads the command line itself, as it must without typer


def run(arguments: list[str] | None = None) -> int:
    if arguments is None:
        words = sys.argv[1:]
    else:
        words = arguments
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    command = next((word for word in words if not word.startswith("-")), "")
    output.current = output.Streams(words=words)
    with terminable():
        ours = [name for name in os.environ if name.startswith("JUDGEKIT_")]
        # Tests have variables of their own.
        unknown = {name for name in ours if not name.startswith("JUDGEKIT_TEST_")} - {
            *environment.NAMES
        }
        if command != "hook" and unknown:
            _warn_of_unknown(unknown)
        try:
            code = int(application(command)(words, "judgekit", standalone_mode=False) or 0)
            if output.current.file is not None:
                text = "".join(f"{each}\n" for each in output.current.results)
                output_files.write_file(output.current.file, text)
        except TyperException as error:
            message = error.format_message()
            context = getattr(error, "ctx", None)
            where = context.command_path if context else "judgekit"
            if "\n" in message:  # the help of a group that was named alone
                sys.stderr.write(f"{printable(message)}\n")
            else:
                warn(f"{message} ({where} --help lists the options)")
            return Exit.USAGE
        except JudgekitError as error:
            warn(str(error))
            return error.exit_code
        except (KeyboardInterrupt, typer.Abort):
            code = Exit.INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the one boundary: a fault of ours is said in one line
            if (
                isinstance(error, FileNotFoundError) and error.filename is None
            ):  # as os.getcwd raises it
                warn("the current folder was removed; change to another one")
                return Exit.BAD_INPUT
            if isinstance(error, OSError) and _is_of_home(error):
                remedy = "make it a writable folder, or set JUDGEKIT_HOME to a folder elsewhere"
                warn(f"{error.filename} cannot be written ({error.strerror}); {remedy}")
                return Exit.BAD_CONFIG
            if output.current.verbose or os.environ.get("JUDGEKIT_TRACEBACK"):
                sys.excepthook(*sys.exc_info())
            warn(f"{problem_of(error)}; add -v to see where")
            return Exit.INTERNAL
        if code == Exit.INTERRUPTED and (kept := KEPT.get(command, "")) is not None:
            warn(f"interrupted{kept}")  # typer makes a code of Ctrl-C, too
        return code


def _is_of_home(error: OSError) -> bool:
    """Whether a file or folder of the user's home, or of judgekit's own folders, is what cannot be used."""
    name = f"{error.filename}/"
    own = (environment.config_home(), environment.cache_home(), environment.state_home())
    return any(f"{folder}/".startswith(name) or name.startswith(f"{folder}/") for folder in own)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Make SIGTERM an interruption, so that a command ends the programs that it started, and dies of it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    came = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process at once
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if came:
            if running := sys.modules.get("judgekit.providers.running"):
                running.end()  # a process that a signal ends runs no exit functions
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(
                    OSError, ValueError, AttributeError
                ):  # closed, or never there
                    stream.flush()
            signal.raise_signal(signal.SIGTERM)  # whoever waits for this process sees what ended it


def _warn_of_unknown(names: set[str]) -> None:
    keys = (
        f"JUDGEKIT_{section}_{key}".upper() for section in KEYS for key in KEYS[section].split()
    )
    known = [*environment.NAMES, *keys]
    if names.issubset(known):
        return
    import difflib
    from pathlib import Path

    profiles = sorted(Path(environment.PROVIDERS.path()).glob("*.yaml"))
    texts = "".join(
        path.read_text(encoding="utf-8", errors="replace") for path in profiles if path.is_file()
    )
    for name in sorted(names):
        if (
            name not in known and name not in texts
        ):  # a provider's profile of the user's own may name any
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            if near:
                meant = f"; did you mean {near[0]}?"
            else:
                meant = ""
            warn(f"{name}: judgekit has no such variable, so it has no effect{meant}")
