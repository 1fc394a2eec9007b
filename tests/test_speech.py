"""The check of docstrings finds bad ones, and lets good ones pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests import speech

if TYPE_CHECKING:
    from pathlib import Path

VAGUE = {
    "Return what changes when a file does.": "'Return what': name the thing that comes back",
    "Yield which rows are left.": "'Yield which': name the thing that comes back",
    "Returns whether it\n    is empty.": "'Returns whether it': name the thing that comes back",
    "Raise an error where there is no file.": '\'where there\': write "if" or "when"',
}
LONG = "def find(a):\n    b = a\n    c = b\n    d = c\n    return d\n"


def problems(tmp_path: Path, source: str) -> list[str]:
    path = tmp_path / "module.py"
    path.write_text(source)
    return [line.partition(": ")[2] for line in speech.check(path)]


@pytest.mark.parametrize(("text", "problem"), VAGUE.items())
def test_vague_docstrings_are_found(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, f'def find():\n    """{text}"""\n') == [problem]


def test_a_long_public_function_needs_a_docstring(tmp_path: Path) -> None:
    assert problems(tmp_path, LONG) == ["find has no docstring"]


def test_a_file_that_may_lack_docstrings_is_checked_for_vague_ones(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(f'"""Raise where it is wrong."""\n{LONG}')
    (problem,) = speech.check(path, may_lack=True)
    assert problem.endswith(': \'where it\': write "if" or "when"')


@pytest.mark.parametrize(
    ("room", "file"),
    [
        ("judging", "judgekit/judging/escalation.py"),
        ("tests", "tests/support/golden.py"),
        ("bench", "bench/judged/margins.py"),
    ],
)
def test_a_room_names_its_files_and_no_room_names_all(room: str, file: str) -> None:
    path = speech.ROOT / file
    assert path in speech.list_files([room])
    assert path not in speech.list_files(["replies"])
    assert path in speech.list_files([])


@pytest.mark.parametrize(
    "source",
    [
        LONG.replace("find", "_find"),
        "def is_empty(self):\n    return not self\n",
        'def find():\n    """Return the rows that are left, if there are any."""\n',
    ],
)
def test_others_pass(tmp_path: Path, source: str) -> None:
    assert problems(tmp_path, source) == []
