"""Rows judged in Python under a promise of agreement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from agreeing import LARGE, SMALL, TwoModels, write_rows
from hooking import own_profile

import judgekit
from judgekit import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 100


@pytest.fixture
def server(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoModels]:
    prices = "price: {small: {input: 1, output: 1}, large: {input: 100, output: 100}}"
    own_profile(isolated, "openai-compatible", more=prices)
    with TwoModels() as running:
        monkeypatch.setenv("JUDGEKIT_API_BASE", running.base)
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", SMALL)
        monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", LARGE)
        yield running


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "rows.jsonl"
    write_rows(path, [(5, 5) if number % 2 else (1, 1) for number in range(COUNT)])
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_come_in_order_with_the_promise(server: TwoModels, rows: list[dict[str, Any]]) -> None:
    results = list(judgekit.judge_rows(rows, rubric="kls", mode="lenient", agree=0.8))
    assert [row["id"] for row in results] == [row["id"] for row in rows]
    assert all(row["judged"]["promise"]["share"] == 0.8 for row in results)


def test_the_strong_model_is_asked_less(server: TwoModels, rows: list[dict[str, Any]]) -> None:
    list(judgekit.judge_rows(rows, rubric="kls", mode="lenient", agree=0.8))
    assert server.calls[LARGE] < COUNT


BESIDE: dict[str, dict[str, Any]] = {
    "a model": {"model": "openai-compatible/other"},
    "a comparison": {"task": "compare"},
    "a share above 1": {"agree": 1.5},
    "a share in words": {"agree": "most"},
    "another way to agree": {"agree_on": "mood"},
}


@pytest.mark.parametrize("arguments", BESIDE.values(), ids=BESIDE)
def test_what_no_promise_can_be_made_about_is_refused(
    server: TwoModels, rows: list[dict[str, Any]], arguments: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        list(judgekit.judge_rows(rows, rubric="kls", **{"agree": 0.9, **arguments}))
