"""No text that a project, a model or a file's name brings along commands the user's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from judgekit.cli.output import printable, say, verdict_text, warn
from judgekit.errors import ConfigError, InputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from outcome import Run

    from judgekit.errors import CostSource

TITLE = "\x1b]0;EVIL\x07"


@pytest.mark.parametrize("command", [TITLE, "\x1b[2J", "\x1b[1;1H", "\x1bc", "\x9b2J", "\r", "\x08", "\x1b["])
def test_commands_are_escaped(command: str) -> None:
    shown = printable(f"a{command}b")
    assert shown.isprintable()
    assert shown.startswith("a\\x")


def test_colours_tabs_and_lines_pass() -> None:
    text = "\x1b[32m\x1b[1mACCEPT\x1b[0m\ta\nb é"
    assert printable(text) == text


def test_both_streams_are_guarded_and_complaints_have_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    say(TITLE)
    warn(TITLE)
    streams = capsys.readouterr()
    assert "\x1b" not in streams.out + streams.err
    assert "EVIL" in streams.out
    warn("\x1b[31mred")
    assert capsys.readouterr().err == "judgekit: \\x1b[31mred\n"


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


@pytest.mark.parametrize(
    "command", [("judge",), ("compare", "--prompt", "q", "x"), ("eval", "judge"), ("triage",)]
)
def test_a_name_colours_no_error(judgekit: Run, project: Path, command: tuple[str, ...]) -> None:
    assert project.is_dir()
    done = judgekit(*command, "miss\x1b[31m\nX")
    assert done.code != 0
    assert "\x1b" not in done.err
    assert len(done.err.splitlines()) == 1


# What a judging cost

RECORD: dict[str, Any] = {
    "verdict": "accept",
    "scores": {"semantic": 4},
    "average": 4,
    "task_id": "a.md@1",
    "rubric": {"id": "kls", "version": "1.0.0"},
    "mode": "strict",
    "rounds": [
        {
            "tier": "quick",
            "model": "custom/m",
            "opinion": {"outcome": "accept"},
            "failure": None,
            "usage": {"unpriced_calls": 1},
        }
    ],
    "model": "m",
    "consensus": "single",
    "duration_ms": 1500,
    "degraded": None,
    "reasoning": "",
    "findings": [],
}


@pytest.mark.parametrize(
    ("cost", "source", "complete", "end"),
    [
        (0.0123, "provider", True, "1.5 s, $0.0123 (as the provider reports)"),
        (0.0123, "litellm", False, "1.5 s, at least $0.0123 (by litellm's prices)"),
        (0.0123, "profile", True, "1.5 s, $0.0123 (by the prices of the provider's profile)"),
        (0.0123, "mixed", True, "1.5 s, $0.0123 (from several sources)"),
        (0.0, "cache", True, "1.5 s, $0.0000 (all replies cached)"),
        (None, None, False, "1.5 s, cost unknown (no price for custom/m)"),
        (0.0, "local", True, "1.5 s, cost 0 (local)"),
        (None, None, True, "1.5 s"),
        (0.0123, None, None, "1.5 s, $0.0123"),
    ],
)
def test_the_line_says_what_it_cost_and_how_sure_that_is(
    cost: float | None, source: CostSource | None, *, complete: bool | None, end: str
) -> None:
    record = RECORD | {"cost_usd": cost, "cost_source": source, "cost_complete": complete}
    assert verdict_text(record).endswith(end)
    assert verdict_text(RECORD | {"cost_usd": 0.5}).endswith("$0.5000")  # of an older version
