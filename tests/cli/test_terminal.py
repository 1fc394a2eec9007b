"""No text that a project, a model or a file's name brings along commands the user's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.cli.output import complain, printable, say
from judgekit.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

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
    complain(TITLE)
    streams = capsys.readouterr()
    assert "\x1b" not in streams.out + streams.err
    assert "EVIL" in streams.out


def test_what_is_wrong_with_a_file_is_one_line_whatever_its_name(tmp_path: Path) -> None:
    error = ConfigError(
        "expected\na mapping", path=tmp_path / f"x{TITLE}\n y.json", line=3, key=f"a\n{TITLE}"
    )
    assert str(error).isprintable()
    assert ":3: " in str(error)
