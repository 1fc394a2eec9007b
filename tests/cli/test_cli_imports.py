"""What commands import before they do anything: a person waits for each module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import imports
import pytest
import typer.main

from judgekit.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator


def _helps(command: object, words: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Yield the `--help` of a command and of all commands in it."""
    yield [*words, "--help"]
    for name, each in sorted(getattr(command, "commands", {}).items()):
        yield from _helps(each, (*words, name))


COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # a group, as it has several


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_nothing_heavy(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]  # the same
    done = imports.of(*_helps(command, (name,)))
    assert set(done.codes) == {0}
    assert "Usage: " in done.out
    assert done.imported == {}


@pytest.mark.parametrize("words", [["--help"], ["--version"]])
def test_the_program_itself_imports_nothing_heavy(words: list[str]) -> None:
    done = imports.of(words)
    assert (done.codes, done.imported) == ([0], {})


def test_an_import_is_found_with_who_asked_for_it() -> None:
    """The probe can fail."""
    done = imports.of(["schema", "verdict"], heavy=["judgekit.cli.schemas"])
    assert done.imported == {"judgekit.cli.schemas": "judgekit.cli.schema"}
