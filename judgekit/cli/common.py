"""The common parts of all commands: -q, -v and -V, and help in groups, with whole summaries and examples."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperOption

from judgekit import environment
from judgekit.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    _HelpRow = tuple[str, str]
    """The name of an argument or option, with its value's, and the description."""

WHOLE_HELP_KEY = "judgekit.whole_help"
"""The context key that asks for a list of all options."""
_MAX_SUMMARY_CHARS = 1000  # characters, so that no summary is cut


def add_common_options(command: Any, *, path: str = "", top: bool = True) -> None:  # noqa: ANN401 - typer's own, which it does not name
    """Add the common options to a command and its subcommands, and put our help in place of typer's.

    `path` is the command's full name, such as `eval memories`. Only the top command's help lists the common
    options.
    """
    for names, help_ in _HELP_BY_OPTION.items():
        command.params.append(_build_common_option(names, help_, hidden=not top))
    _replace_help(command, path)
    subcommands = getattr(command, "commands", {})
    for name, subcommand in subcommands.items():
        add_common_options(subcommand, path=f"{path} {name}".strip(), top=False)


def _build_common_option(names: Sequence[str], help_: str, *, hidden: bool) -> TyperOption:
    """Build an option that takes effect before all others, and isn't passed to the command."""
    return TyperOption(
        param_decls=[*names],
        callback=_apply_common_option,
        help=help_,
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=hidden,
    )


def _replace_help(command: Any, path: str) -> None:  # noqa: ANN401 - typer's own
    """Replace the parts of typer's help for a command with ours."""
    subcommands = getattr(command, "commands", {})
    if subcommands:
        command.format_commands = functools.partial(_write_commands, subcommands)
    groups = load_help_table()["options"].get(path)
    if groups:
        command.params.append(_build_help_all_option())
        command.format_options = functools.partial(_write_options, command, groups)

    is_runnable = not subcommands or command.invoke_without_command
    if is_runnable:  # otherwise there's nothing to give an example of
        command.format_epilog = _write_example


def _write_commands(commands: dict[str, Any], ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
    """Write commands with summaries: at the top level in help.toml's groups, else in one list."""
    groups = {"Commands": list(commands)}
    is_top_level = ctx.parent is None
    if is_top_level:
        groups = load_help_table()["groups"]

    width = max(map(len, commands))  # the same in all groups
    for title, names in groups.items():
        rows = []
        for name in names:
            if name not in commands:  # `judgekit --help judge` imports only the command judge
                continue
            summary = commands[name].get_short_help_str(_MAX_SUMMARY_CHARS)
            rows.append((name.ljust(width), summary))
        with formatter.section(title):
            formatter.write_dl(rows)


def _build_help_all_option() -> TyperOption:
    """Build the option `--help-all`, for commands whose options don't fit on a screen."""
    return TyperOption(
        param_decls=["--help-all"],
        callback=_print_whole_help,
        help="Show all options and exit.",
        is_flag=True,
        is_eager=True,
        expose_value=False,
    )


def _print_whole_help(context: Any, _option: object, is_given: bool) -> None:  # noqa: ANN401 - typer's own
    if is_given:
        context.meta[WHOLE_HELP_KEY] = True
        output.say(context.get_help())
        raise typer.Exit


def _write_options(command: Any, groups: dict[str, list[str]], ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
    """Write the help for a command's arguments and options, with the options in groups.

    Options without a group are only listed by `--help-all`.
    """
    arguments, rows_by_option = _read_help_rows(command, ctx)
    sections = {"Arguments": arguments}
    # Move each option from `rows_by_option` to its group.
    for title, names in groups.items():
        sections[title] = [rows_by_option.pop(name) for name in names]

    # Take the help options out before the remaining ones are listed, since their section comes last.
    help_rows = [rows_by_option.pop(name) for name in ("--help", "--help-all")]
    if ctx.meta.get(WHOLE_HELP_KEY):
        sections["Other options"] = list(rows_by_option.values())
    sections["Help"] = help_rows

    for title, rows in sections.items():
        with formatter.section(title):
            formatter.write_dl(rows)


def _read_help_rows(command: Any, ctx: Any) -> tuple[list[_HelpRow], dict[str, _HelpRow]]:  # noqa: ANN401 - typer's own
    """Return a row of help for each argument, and for each option by its long name, without hidden ones."""
    arguments = []
    rows_by_option = {}
    for parameter in command.get_params(ctx):
        row = parameter.get_help_record(ctx)
        if row is None:
            continue
        if parameter.param_type_name == "argument":
            arguments.append(row)
        else:
            long_name = max(parameter.opts, key=len)
            rows_by_option[long_name] = row
    return arguments, rows_by_option


def _write_example(ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
    """Write the command's example from help.toml, or else the bare command."""
    formatter.write_paragraph()
    _, _, name = ctx.command_path.partition(" ")  # without `judgekit`
    example = load_help_table()["examples"].get(name, ctx.command_path)
    formatter.write(f"Example: {example}\n")


@functools.cache
def load_help_table() -> dict[str, Any]:
    return environment.read_toml(__file__, "help.toml")


def _apply_common_option(_context: object, option: Any, is_given: bool) -> None:  # noqa: ANN401 - typer's own
    """Apply -q, -v or -V."""
    if not is_given:
        return
    if option.name == "version":
        output.say(f"judgekit {environment.__version__}")
        raise typer.Exit

    if option.name == "quiet":
        output.current.is_quiet = True
    if option.name == "verbose":
        output.current.is_verbose = True
        # This also switches the engine off, because its calls can't be logged here.
        os.environ["JUDGEKIT_VERBOSE"] = "1"
        _log_to_stderr()


def _log_to_stderr() -> None:
    """Log judgekit's calls to models to stderr."""
    import logging

    class OnStderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            output.warn(record.getMessage())

    log = logging.getLogger("judgekit")
    log.handlers = [OnStderr()]
    log.propagate = False
    log.setLevel(logging.INFO)


_HELP_BY_OPTION = {
    ("-q", "--quiet"): "Print only results and errors.",
    ("-v", "--verbose"): "Show each call to a model (made without the engine) and tracebacks.",
    ("-V", "--version"): "Print the version.",
}
