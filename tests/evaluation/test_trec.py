from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from judgekit.environment import __version__
from judgekit.errors import InputError, UsageError
from judgekit.evaluation import collection

if TYPE_CHECKING:
    from pathlib import Path


def test_the_format(tmp_path: Path) -> None:
    collection.write(tmp_path / "run", [("q/1", ["b", "a"]), ("q/2", []), ("q/3", ["ü"])])
    tag = f"judgekit-{__version__}"
    assert (tmp_path / "run").read_text(encoding="utf-8").splitlines() == [
        f"q/1 Q0 b 1 2 {tag}",
        f"q/1 Q0 a 2 1 {tag}",
        f"q/3 Q0 ü 1 1 {tag}",
    ]


def test_scores_fall_at_every_step(tmp_path: Path) -> None:
    names = [f"d{number}" for number in range(100)]
    collection.write(tmp_path / "run", [("q", names)])
    rows = [line.split(" ") for line in (tmp_path / "run").read_text().splitlines()]
    assert [row[2] for row in sorted(rows, key=lambda row: -float(row[4]))] == names
    assert len({float(row[4]) for row in rows}) == 100


@pytest.mark.parametrize("name", ["a b", "a\u2003b", " a", ""])
def test_ids_with_spaces_have_no_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no place for ids with spaces"):
        collection.check(tmp_path / "run", ["fine", name])


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be written \(.+\); name another file for --run"):
        collection.check(tmp_path / "missing" / "run", [])
    with pytest.raises(UsageError, match="cannot be written"):
        collection.write(tmp_path, [])


def test_checking_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("earlier\n")
    collection.check(tmp_path / "run", ["a"])
    assert (tmp_path / "run").read_text() == "earlier\n"
