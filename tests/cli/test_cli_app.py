"""The application that is built for one command is the whole one, as far as that command goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from judgekit.cli.app import app, with_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Outcome

WHOLE: Any = typer.main.get_command(app)
COMMANDS = sorted(WHOLE.commands)


def _shape(command: Any) -> Any:  # noqa: ANN401 - typer's own classes, which it does not export
    """Return the options and the commands of a command, down to the last."""
    own = [(each.name, each.opts, each.required, str(each.default)) for each in command.params]
    below = {name: _shape(each) for name, each in getattr(command, "commands", {}).items()}
    return own, command.help, below


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_is_what_it_is_among_the_others(name: str) -> None:
    alone: Any = typer.main.get_command(with_only([name, "--whatever", "judge"]))
    assert list(alone.commands) == [name]
    assert _shape(alone.commands[name]) == _shape(WHOLE.commands[name])
    assert _shape(alone)[:2] == _shape(WHOLE)[:2]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["no-such-command"], ["", "judge"]])
def test_all_are_there_where_none_is_named(arguments: list[str]) -> None:
    assert with_only(arguments) is app


def test_the_application_itself_stays_whole() -> None:
    with_only(["judge"])
    again: Any = typer.main.get_command(app)
    assert sorted(again.commands) == COMMANDS


def test_help_says_the_same_of_one_command(judgekit: Callable[..., Outcome]) -> None:
    told = judgekit("rubric", "list", "--help")
    assert told.code == 0
    assert "rubric list" in told.out


def test_a_command_that_does_not_exist_is_said(judgekit: Callable[..., Outcome]) -> None:
    told = judgekit("jugde", "a.md")
    assert told.code == 64
    assert "jugde" in told.err
