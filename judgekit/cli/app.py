"""The command line's boundary: parses, runs a command, and turns errors into a line and an exit code."""

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
from judgekit.cli.interruption import KEPT_MESSAGE_BY_COMMAND
from judgekit.cli.output import make_printable, warn
from judgekit.config import KEYS_BY_SECTION
from judgekit.errors import NO_SQLITE, Exit, JudgekitError, describe_error, lacks_sqlite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

COMMANDS = {
    "search": "search.search",
    "index": "search.app",
    "judge": "judge.judge",
    "compare": "judge.compare",
    "report": "report.report",
    "gate": "gate.gate",
    "calibrate": "calibrate.calibrate",
    "label": "label.label",
    "override": "label.override",
    "escalate": "label.escalate",
    "schema": "schema.schema",
    "doctor": "doctor.doctor",
    "config": "config.config",
    "cache": "config.cache",
    "demo": "demo.demo",
    "engine": "engine.app",
    "serve": "engine.serving",
    "rubric": "rubric.app",
    "provider": "provider.app",
    "ledger": "ledger.app",
    "kpi": "ledger.print_kpis",
    "promote": "ledger.promote",
    "triage": "ledger.print_triage",
    "hook": "app.hook",
    "eval": "evaluate.app",
    "init": "init.init",
    "install": "install.installing",
    "uninstall": "install.uninstalling",
}
"""Each command's module, and the function or group in it; `help.toml` sets the order in the help."""


@functools.cache
def build_application(command: str = "") -> Any:  # noqa: ANN401 - typer's own group, which it does not name
    """Build the application with all commands, or with only the given one, to import less."""
    app = typer.Typer(
        name="judgekit",
        help="Judge content that you are about to trust: retrieval proposes, models judge, code decides.",
        epilog="judgekit help COMMAND explains a command. -q, -v and -V may follow a command, too.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    app.callback()(lambda: None)  # otherwise typer wouldn't make a group of a single command

    names = list(COMMANDS)
    if command in COMMANDS:
        names = [command]
    for name in names:
        _add_command(app, name)

    group = typer.main.get_command(app)
    common.add_common_options(group)
    return group


def _add_command(app: typer.Typer, name: str) -> None:
    """Import a command or a group of commands, and add it to the application."""
    module, _, attribute = COMMANDS[name].partition(".")
    entry = getattr(import_module(f"judgekit.cli.{module}"), attribute)
    if isinstance(entry, typer.Typer):
        app.add_typer(entry, name=name)
    else:
        app.command(name)(entry)


def hook(
    # These options are only declared for the help. `main` reads the command line itself, because it must
    # also work without typer.
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

    # It reads the command line itself, because it must also work without typer.
    return main()


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code. Any failure is printed as a line."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    command = next((word for word in words if not word.startswith("-")), "")
    output.current = output.Streams(command_words=words)
    with interrupt_on_sigterm():
        if command != "hook":  # it runs with each prompt, and would warn every time
            _warn_of_unknown_variables()
        try:
            code = _run_command(command, words)
        except TyperException as error:
            _print_usage_error(error)
            return Exit.USAGE
        except JudgekitError as error:
            warn(str(error))
            return error.exit_code
        except (KeyboardInterrupt, typer.Abort):
            code = Exit.INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the one boundary: report our own faults in a line
            return _print_fault(error)

        if code == Exit.INTERRUPTED:  # also if typer has caught Ctrl-C itself
            _warn_of_interruption(command)
        return code


def _run_command(command: str, words: list[str]) -> int:
    """Run a command, and with `--out`, write its results to the file. Returns the exit code."""
    application = build_application(command)
    returned = application(words, "judgekit", standalone_mode=False)
    code = int(returned or 0)  # many commands return None
    if output.current.result_file is not None:
        text = "".join(f"{result}\n" for result in output.current.results)
        output_files.write_file(output.current.result_file, text)
    return code


def _warn_of_interruption(command: str) -> None:
    """Print that a command was interrupted, and what's kept, unless its own summary says so."""
    kept_note = KEPT_MESSAGE_BY_COMMAND.get(command, "")
    # In the table, None marks a command that prints its own summary.
    has_own_summary = kept_note is None
    if not has_own_summary:
        warn(f"interrupted{kept_note}")


def _print_usage_error(error: TyperException) -> None:
    """Print the problem with the command line, and the command that lists the options."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "judgekit"
    if "\n" in message:  # the help of a group that was called without a command
        sys.stderr.write(f"{make_printable(message)}\n")
    else:
        warn(f"{message} ({command} --help lists the options)")


def _print_fault(error: Exception) -> Exit:
    """Print a line about an unexpected error, and return its exit code."""
    if isinstance(error, FileNotFoundError) and error.filename is None:  # raised by `os.getcwd`
        warn("the current folder was removed; change to another one")
        return Exit.BAD_INPUT
    if isinstance(error, OSError) and _is_in_own_folders(error):
        remedy = "make it a writable folder, or set JUDGEKIT_HOME to a folder elsewhere"
        warn(f"{error.filename} cannot be written ({error.strerror}); {remedy}")
        return Exit.BAD_CONFIG
    if lacks_sqlite(error):
        warn(NO_SQLITE)
        return Exit.BAD_CONFIG

    if output.current.is_verbose or os.environ.get("JUDGEKIT_TRACEBACK"):
        sys.excepthook(type(error), error, error.__traceback__)
    warn(f"{describe_error(error)}; add -v to see where")
    return Exit.INTERNAL


def _is_in_own_folders(error: OSError) -> bool:
    """Whether an error is about one of judgekit's folders, a file in it, or a parent folder."""
    name = f"{error.filename}/"  # with a slash, so that only complete names are compared
    homes = (environment.config_home(), environment.cache_home(), environment.state_home())
    for home in homes:
        folder = f"{home}/"
        is_above = folder.startswith(name)
        is_inside = name.startswith(folder)
        if is_above or is_inside:
            return True
    return False


@contextlib.contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an interruption, so that the command first ends the programs it started.

    Afterwards, the signal ends the process. Does nothing outside the main thread, or if something else
    handles SIGTERM.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    is_unhandled = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    can_handle = is_main_thread and is_unhandled
    if not can_handle:
        yield
        return

    is_terminated = False

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_terminated
        is_terminated = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM ends the process at once
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if is_terminated:
            _end_by_sigterm()


def _end_by_sigterm() -> None:
    """End the programs that were started, flush the output, and let SIGTERM end this process."""
    running = sys.modules.get("judgekit.providers.running")
    if running:
        running.end()  # a process that's killed by a signal doesn't run its exit functions
    for stream in (sys.stdout, sys.stderr):
        # The stream can be closed or missing.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # Let the parent process see that the signal ended this one.
    signal.raise_signal(signal.SIGTERM)


def _warn_of_unknown_variables() -> None:
    """Warn about variables that start with JUDGEKIT_ but have no effect. Those for our tests are ignored."""
    known_names = _list_known_variables()
    unknown_names = []
    for name in sorted(os.environ):
        is_ours = name.startswith("JUDGEKIT_") and not name.startswith("JUDGEKIT_TEST_")
        if is_ours and name not in known_names:
            unknown_names.append(name)
    if not unknown_names:
        return

    import difflib

    text_of_profiles = _read_profiles()
    for name in unknown_names:
        if name in text_of_profiles:  # it has an effect: a profile reads it
            continue
        close_matches = difflib.get_close_matches(name, known_names, n=1, cutoff=0.8)
        remedy = f"; did you mean {close_matches[0]}?" if close_matches else ""
        warn(f"{name}: judgekit has no such variable, so it has no effect{remedy}")


def _list_known_variables() -> list[str]:
    """List our environment variables, including those for configuration keys."""
    known_names = list(environment.VARIABLE_NAMES)
    for section, keys in KEYS_BY_SECTION.items():
        known_names += [f"JUDGEKIT_{section}_{key}".upper() for key in keys.split()]
    return known_names


def _read_profiles() -> str:
    """Read the user's own provider profiles as text, since they can name any variable."""
    from pathlib import Path

    profile_texts = []
    for path in sorted(Path(environment.PROVIDERS.path()).glob("*.yaml")):
        if path.is_file():
            profile_texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "".join(profile_texts)
