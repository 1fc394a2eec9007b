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
    own = [(param.name, param.opts, param.required, str(param.default)) for param in command.params]
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
    outcome = judgekit("rubric", "list", "--help")
    assert outcome.code == 0
    assert "rubric list" in outcome.out


def test_a_command_that_does_not_exist_is_said(judgekit: Callable[..., Outcome]) -> None:
    outcome = judgekit("jugde", "a.md")
    assert outcome.code == 64
    assert "jugde" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["judge", "--deadlin", "3"], "(judgekit judge --help shows what there is)"),
        (["rubric", "show"], "(judgekit rubric show --help shows what there is)"),
        (["judge", "a.md", "--deadline", "soon"], "'soon' is not a number."),
        (["judge", "a.md", "-j", "two"], "'two' is not a whole number."),
        (["jugde"], "(judgekit --help shows what there is)"),
        (
            ["judge", "a.md", "--task-id", ""],
            "--task-id: expected a name for all paths together, got nothing",
        ),
        (["search", " "], "QUERY: expected what to look for, in words, got nothing"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    judgekit: Callable[..., Outcome], arguments: list[str], told: str
) -> None:
    done = judgekit(*arguments)
    assert (done.code, done.out, len(done.err.splitlines())) == (64, "", 1)
    assert done.err.startswith("judgekit: ")
    assert told in done.err


@pytest.mark.parametrize("group", [[], ["rubric"], ["install"], ["ledger"]])
def test_a_group_without_a_command_is_its_help(judgekit: Callable[..., Outcome], group: list[str]) -> None:
    done = judgekit(*group)
    assert (done.code, done.out) == (64, "")
    assert done.err.startswith("Usage: ")
    assert "shows what there is" not in done.err
