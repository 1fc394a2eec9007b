"""`judgekit init`: its questions, its files, and that the command it names works."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted import by_content

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("rows")
ROWS = "id,question,reply\n1,Which port?,It is 8080.\n2,Who?,Ann.\n"
CONFIG = Path(".judgekit/config.yaml")
MODEL = "openai/gpt-6-luna"


@pytest.fixture
def rows(project: Path) -> None:
    (project / "rows.csv").write_text(ROWS)


def answered(judgekit: Run, what: str, where: str = "rows.csv") -> list[str]:
    """Run `init` with all answers, and return the commands that it names."""
    done = judgekit("init", "--what", what, "--model", MODEL, "--where", where)
    assert done.code == 0, done.err
    return [line.strip() for line in done.out.split("\n") if line.startswith("  judgekit ")]


def test_the_configuration_names_the_rubric_and_the_model(judgekit: Run) -> None:
    answered(judgekit, "answers")
    assert CONFIG.read_text() == f"judge:\n  rubric: my-answers\n  tiers:\n    quick: {MODEL}\n"


@pytest.mark.parametrize(
    ("what", "where", "rubric"),
    [
        ("answers", "rows.csv", "my-answers"),
        ("documents", "good.md", "my-documents"),
    ],
)
def test_the_named_command_judges_by_the_written_rubric(
    judgekit: Run, served: Served, what: str, where: str, rubric: str
) -> None:
    command, *_ = answered(judgekit, what, where)
    CONFIG.write_text(CONFIG.read_text().partition("  tiers:")[0])  # the stand-in is asked
    done, asked = served(by_content, *shlex.split(command)[1:], "--mode", "lenient")
    assert asked, done.err
    assert rubric in done.out or rubric in Path("results.jsonl").read_text()


def test_questions_are_asked_at_a_terminal(
    judgekit: Run, at_terminal: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_terminal()
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(f"essays\nanswers\n{MODEL}\ngone.csv\nrows.csv\n")
    )
    done = judgekit("init")
    assert done.code == 0, done.err
    assert "expected one of answers, expected, sources, pairs, documents" in done.err
    assert "gone.csv: cannot be read" in done.err
    assert "text from reply" in done.err


def test_columns_with_names_of_ones_own_are_left_to_the_command(judgekit: Run) -> None:
    Path("rows.csv").write_text("ticket,customer,agent\n1,Which port?,8080\n")
    command, *_ = answered(judgekit, "answers")
    assert command == "judgekit judge --data rows.csv --map text=COLUMN --out results.jsonl"


def test_the_rubric_is_named_if_the_configuration_has_another(judgekit: Run) -> None:
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text("judge: {rubric: kls}\n")
    command, *_ = answered(judgekit, "answers")
    assert "--rubric my-answers" in command


def test_what_is_there_is_kept(judgekit: Run) -> None:
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text("# ours\njudge: {rubric: kls}\n")
    answered(judgekit, "answers")
    answered(judgekit, "answers")
    assert CONFIG.read_text().startswith("# ours\njudge: {rubric: kls,")


def test_without_a_terminal_the_options_are_named(judgekit: Run) -> None:
    done = judgekit("init", "--what", "answers")
    assert done.code == 64
    assert "no terminal to ask questions at; give --model, --where" in done.err


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (("--model", "nobody/knows"), "expected PROVIDER/MODEL, or later", 64),
        (("--where", "gone.csv"), "gone.csv: cannot be read", 65),
        (("--what", "essays"), "expected one of answers", 64),
    ],
)
def test_a_wrong_answer_writes_nothing(
    judgekit: Run, options: tuple[str, ...], message: str, code: int
) -> None:
    usual = ("--what", "answers", "--model", MODEL, "--where", "rows.csv")
    done = judgekit("init", *usual, *options)
    assert message in done.err
    assert done.code == code
    assert not CONFIG.exists()
