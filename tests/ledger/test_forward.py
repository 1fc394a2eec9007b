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


def add(ledger: Ledger, *ids: str) -> None:
    ledger.add(*(Skip(id=each, variable="X", who="ada", terminal=True, remote="", refs=[]) for each in ids))


def test_each_line_is_handed_on_once(ledger: Ledger) -> None:
    team = Team()
    add(ledger, "a", "b")
    assert forward(ledger, team).lines == 2
    assert forward(ledger, team).lines == 0
    add(ledger, "c")
    assert forward(ledger, team).lines == 1
    assert team.ids == ["a", "b", "c"]


def test_there_need_be_no_ledger(ledger: Ledger) -> None:
    assert forward(ledger, Team()).lines == 0
    assert not ledger.folder.exists()


def test_what_is_not_taken_is_handed_on_later(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MOST_LINES", 2)
    add(ledger, *"abcdefg")
    away = Team(most=4)
    with pytest.raises(JudgekitError, match="away"):
        forward(ledger, away)
    assert away.ids == list("abcd")
    team = Team()
    assert forward(ledger, team).lines == 3
    assert team.ids == list("efg")


def test_a_line_that_is_being_written_waits(ledger: Ledger) -> None:
    add(ledger, "a")
    (path,) = ledger.folder.glob("*.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    team = Team()
    assert forward(ledger, team).lines == 1
    path.write_bytes(whole + whole.replace(b'"a"', b'"b"'))
    assert forward(ledger, team).lines == 1
    assert team.ids == ["a", "b"]


def test_damage_holds_up_nothing(ledger: Ledger) -> None:
    add(ledger, "a")
    (path,) = ledger.folder.glob("*.jsonl")
    path.write_bytes(b"{broken\n" + path.read_bytes())
    (ledger.folder / export.PLACES).write_text("[nonsense")
    team = Team()
    assert forward(ledger, team).lines == 1


def test_a_file_that_was_written_anew_is_handed_on_anew(ledger: Ledger) -> None:
    add(ledger, "a", "b")
    forward(ledger, Team())
    (path,) = ledger.folder.glob("*.jsonl")
    fresh = path.with_name("fresh")
    fresh.write_bytes(path.read_bytes().splitlines(keepends=True)[1] * 5)
    fresh.replace(path)
    team = Team()
    forward(ledger, team)
    assert set(team.ids) == {"b"}
    store.purge(ledger.folder, date.max)
    assert forward(ledger, team).lines == 0


def test_of_two_at_once_one_does_it(ledger: Ledger) -> None:
    add(ledger, "a")
    with files.held(ledger.folder / export.LOCK, seconds=1):
        assert forward(ledger, Team()).lines == 0
    assert forward(ledger, Team()).lines == 1


def test_what_is_said_about_them_is_passed_on(ledger: Ledger) -> None:
    add(ledger, "a")
    assert forward(ledger, Team(remark="one of them is odd")).remarks == ("one of them is odd",)


def test_when_the_time_is_over_the_rest_waits(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MOST_LINES", 2)
    add(ledger, *"abcde")
    team = Team()
    assert forward(ledger, team, seconds=0).lines == 2
    assert forward(ledger, team).lines == 3
    assert team.ids == list("abcde")
