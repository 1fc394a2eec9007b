"""What commands import before they do anything: a person waits for each module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import imports
import pytest
import typer.main

from judgekit.cli.app import COMMANDS, application

if TYPE_CHECKING:
    from collections.abc import Iterator


def _helps(command: object, words: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Yield the `--help` of a command and of all commands in it."""
    yield [*words, "--help"]
    for name, each in sorted(getattr(command, "commands", {}).items()):
        yield from _helps(each, (*words, name))


def test_help_imports_nothing_heavy() -> None:
    done = imports.of(*_helps(typer.main.get_command(application())))
    assert set(done.codes) == {0}
    assert "Usage: " in done.out
    assert done.imported == {}


def test_a_command_imports_no_other_command() -> None:
    others = [
        f"judgekit.cli.{module.partition('.')[0]}" for name, module in COMMANDS.items() if name != "schema"
    ]
    assert imports.of(["schema", "verdict"], heavy=others).imported.keys() <= {"judgekit.cli.app"}


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_the_program_itself_imports_nothing_heavy(words: list[str]) -> None:
    done = imports.of(words)
    assert (done.codes, done.imported) == ([0], {})


def test_an_import_is_found_with_who_asked_for_it() -> None:
    """The probe can fail."""
    done = imports.of(["schema", "verdict"], heavy=["judgekit.retrieval.profiles"])
    assert done.imported == {"judgekit.retrieval.profiles": "judgekit.cli.schema"}
