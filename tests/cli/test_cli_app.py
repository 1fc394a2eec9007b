"""The application that is built for one command is the whole one, as far as that command goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from judgekit.cli.app import COMMANDS, application

if TYPE_CHECKING:
    from outcome import Run

WHOLE: Any = typer.main.get_command(application())


def _shape(command: Any) -> Any:  # noqa: ANN401 - typer's own classes, which it does not export
    """Return the options and the commands of a command, down to the last."""
    own = [(param.name, param.opts, param.required, str(param.default)) for param in command.params]
    below = {name: _shape(each) for name, each in getattr(command, "commands", {}).items()}
    return own, command.help, below


def test_a_command_alone_is_what_it_is_among_the_others() -> None:
    assert list(WHOLE.commands) == list(COMMANDS)
    for name in COMMANDS:
        alone: Any = typer.main.get_command(application(name))
        assert list(alone.commands) == [name]
        assert _shape(alone.commands[name]) == _shape(WHOLE.commands[name])
        assert _shape(alone)[:2] == _shape(WHOLE)[:2]
    assert _shape(typer.main.get_command(application("no-such-command"))) == _shape(WHOLE)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["judge", "--deadlin", "3"], "(judgekit judge --help lists the options)"),
        (["rubric", "show"], "(judgekit rubric show --help lists the options)"),
        (["judge", "a.md", "--deadline", "soon"], "'soon' is not a number."),
        (["judge", "a.md", "-j", "two"], "'two' is not a whole number."),
        (["jugde"], "(judgekit --help lists the options)"),
        (["jugde", "a.md"], "jugde"),
        (
            ["judge", "a.md", "--task-id", ""],
            "--task-id: expected a name for all paths together, got nothing",
        ),
        (["search", " "], "QUERY: expected words to search for, got nothing"),
    ],
)
def test_a_wrong_command_line_is_one_line(judgekit: Run, arguments: list[str], told: str) -> None:
    done = judgekit(*arguments)
    assert (done.code, done.out, len(done.err.splitlines())) == (64, "", 1)
    assert done.err.startswith("judgekit: ")
    assert told in done.err


@pytest.mark.parametrize("group", [[], ["rubric"], ["install"], ["ledger"]])
def test_a_group_without_a_command_is_its_help(judgekit: Run, group: list[str]) -> None:
    done = judgekit(*group)
    assert (done.code, done.out) == (64, "")
    assert done.err.startswith("Usage: ")
    assert "shows what there is" not in done.err
