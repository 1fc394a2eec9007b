"""Handing a ledger's lines on: all of them, in order, from where the last time ended."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING

import pytest

from judgekit.config import files
from judgekit.errors import JudgekitError
from judgekit.ledger import Ledger, Skip, export, store
from judgekit.ledger.export import forward

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Team:
    """Takes lines, until it does not."""

    def __init__(self, most: int = 10**9, remark: str | None = None) -> None:
        self.ids: list[str] = []
        self.remark = remark
        self._most = most

    def __call__(self, lines: Sequence[bytes]) -> str | None:
        if len(self.ids) >= self._most:
            raise JudgekitError("the team is away")
        self.ids += [json.loads(line)["id"] for line in lines]
        return self.remark


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "docs-0123456789ab", "docs-0123456789ab")


def add(ledger: Ledger, ids: str) -> Path:
    ledger.add(*(Skip(id=each, variable="X", who="ada", terminal=True, remote="", refs=[]) for each in ids))
    (path,) = store.files([ledger.folder])
    return path


def sent(ledger: Ledger) -> str:
    team = Team()
    done = forward(ledger, team)
    assert done.lines == len(team.ids)
    return "".join(team.ids)


def test_each_line_is_handed_on_once(ledger: Ledger) -> None:
    assert sent(ledger) == ""
    assert not ledger.folder.exists()
    add(ledger, "ab")
    assert forward(ledger, Team(remark="one of them is odd")).remarks == ("one of them is odd",)
    assert sent(ledger) == ""
    add(ledger, "c")
    with files.held(ledger.folder / export.LOCK, seconds=1):  # of two at once one does it
        assert sent(ledger) == ""
    assert sent(ledger) == "c"


def test_what_is_not_taken_or_late_is_handed_on_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MOST_LINES", 2)
    add(ledger, "abcdefg")
    away = Team(most=4)
    with pytest.raises(JudgekitError, match="away"):
        forward(ledger, away)
    assert away.ids == list("abcd")
    assert forward(ledger, Team(), seconds=0).lines == 2
    assert sent(ledger) == "g"


def test_a_line_that_is_being_written_waits_and_damage_holds_up_nothing(ledger: Ledger) -> None:
    path = add(ledger, "a")
    whole = path.read_bytes()
    path.write_bytes(b"{broken\n" + whole + whole[:20])
    (ledger.folder / export.PLACES).write_text("[nonsense")
    assert sent(ledger) == "a"
    path.write_bytes(b"{broken\n" + whole + whole.replace(b'"a"', b'"b"'))
    assert sent(ledger) == "b"


def test_a_file_that_was_written_anew_is_handed_on_anew(ledger: Ledger) -> None:
    path = add(ledger, "ab")
    assert sent(ledger) == "ab"
    fresh = path.with_name("fresh")
    fresh.write_bytes(path.read_bytes().splitlines(keepends=True)[1] * 5)
    fresh.replace(path)
    assert set(sent(ledger)) == {"b"}
    store.purge(ledger.folder, date.max)
    assert sent(ledger) == ""
