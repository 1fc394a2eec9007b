"""What all commands have in common: -q, -v and -V; help in groups, with whole summaries and examples."""

from __future__ import annotations

import functools
import os
from typing import Any

import typer
from typer.core import TyperOption

from judgekit import environment
from judgekit.cli import output

_LONGEST = 1000  # characters; no summary is cut


def extend(command: Any, *, top: bool = True) -> None:  # noqa: ANN401 - typer's own, which it does not name
    """Add to a command and those below it the options that all understand, and what their help lacks."""
    for names, help_ in _OPTIONS.items():
        option = TyperOption(
            param_decls=[*names],
            callback=_apply,
            help=help_,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            hidden=not top,
        )
        command.params.append(option)
    subcommands = getattr(command, "commands", {})
    if subcommands:
        command.format_commands = functools.partial(_write_commands, subcommands)
    if not subcommands or command.invoke_without_command:
        command.format_epilog = _write_example
    for subcommand in subcommands.values():
        extend(subcommand, top=False)


def _write_commands(commands: dict[str, Any], ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
    """Write the commands of a group with their summaries; judgekit's own in the groups of help.toml."""
    groups = {"Commands": list(commands)} if ctx.parent else help_table()["groups"]
    width = max(map(len, commands))
    for title, names in groups.items():
        rows = []
        for name in names:
            if name in commands:
                rows.append((name.ljust(width), commands[name].get_short_help_str(_LONGEST)))
        with formatter.section(title):
            formatter.write_dl(rows)


def _write_example(ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
    formatter.write_paragraph()
    name = ctx.command_path.partition(" ")[2]
    formatter.write(f"Example: {help_table()['examples'].get(name, ctx.command_path)}\n")


@functools.cache
def help_table() -> dict[str, Any]:
    return environment.table(__file__, "help.toml")


def _apply(_context: object, option: Any, is_given: bool) -> None:  # noqa: ANN401 - typer's own
    """Do as an option says; -v shows calls of this process on stderr, since the engine's cannot be seen."""
    if not is_given:
        return
    if option.name == "version":
        output.say(f"judgekit {environment.__version__}")
        raise typer.Exit
    if option.name == "quiet":
        output.current.quiet = True
    if option.name == "verbose":
        import logging

        class OnStderr(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                output.warn(record.getMessage())

        output.current.verbose = True
        os.environ["JUDGEKIT_VERBOSE"] = "1"
        log = logging.getLogger("judgekit")
        log.handlers = [OnStderr()]
        log.propagate = False
        log.setLevel(logging.INFO)


_OPTIONS = {
    ("-q", "--quiet"): "Print only results and errors.",
    ("-v", "--verbose"): "Show each call to a model (made without the engine) and tracebacks.",
    ("-V", "--version"): "Print the version.",
}
