"""No text that a project, a model or a file's name brings along commands the user's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.cli.output import printable, say, warn
from judgekit.errors import ConfigError, InputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run

TITLE = "\x1b]0;EVIL\x07"


@pytest.mark.parametrize("command", [TITLE, "\x1b[2J", "\x1b[1;1H", "\x1bc", "\x9b2J", "\r", "\x08", "\x1b["])
def test_commands_are_escaped(command: str) -> None:
    shown = printable(f"a{command}b")
    assert shown.isprintable()
    assert shown.startswith("a\\x")


def test_colours_tabs_and_lines_pass() -> None:
    text = "\x1b[32m\x1b[1mACCEPT\x1b[0m\ta\nb é"
    assert printable(text) == text


def test_both_streams_are_guarded(capsys: pytest.CaptureFixture[str]) -> None:
    say(TITLE)
    warn(TITLE)
    streams = capsys.readouterr()
    assert "\x1b" not in streams.out + streams.err
    assert "EVIL" in streams.out


def test_what_is_wrong_with_a_file_is_one_line_whatever_its_name(tmp_path: Path) -> None:
    error = ConfigError(
        "expected\na mapping", path=tmp_path / f"x{TITLE}\n y.json", line=3, key=f"a\n{TITLE}"
    )
    assert str(error).isprintable()
    assert ":3: " in str(error)


@pytest.mark.parametrize("kind", [InputError, UsageError])
def test_what_is_wrong_with_what_was_given_is_one_line(kind: type[InputError | UsageError]) -> None:
    assert str(kind(f"miss\x1b[31m{TITLE}\nX: cannot be read")) == (
        "miss\\x1b[31m\\x1b]0;EVIL\\x07\\nX: cannot be read"
    )


def test_complaints_have_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    warn("\x1b[31mred")
    assert capsys.readouterr().err == "judgekit: \\x1b[31mred\n"


@pytest.mark.parametrize(
    "command", [("judge",), ("compare", "--prompt", "q", "x"), ("eval", "judge"), ("triage",)]
)
def test_a_name_colours_no_error(judgekit: Run, project: Path, command: tuple[str, ...]) -> None:
    assert project.is_dir()
    done = judgekit(*command, "miss\x1b[31m\nX")
    assert done.code != 0
    assert "\x1b" not in done.err
    assert len(done.err.splitlines()) == 1
