"""`--estimate`: the costs of judging, without sending or writing anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback
from pushing import bad, good
from scripted import by_content

if TYPE_CHECKING:
    from outcome import Run, Served, Use

pytestmark = pytest.mark.usefixtures("no_servers")
JUDGE = ("judge", "--rubric", "kls", "--no-engine")
ROWS = (*JUDGE, "--data", "rows.jsonl")
ESTIMATE = (*ROWS, "--estimate", "--format", "json")


@pytest.fixture(autouse=True)
def rows(project: Path) -> None:
    write([{"id": f"r{number}", "answer": good(str(number))} for number in range(10)])


def write(rows: list[dict[str, Any]]) -> None:
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure models with a key; no server listens, since nothing is sent."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")


@pytest.mark.usefixtures("openai")
def test_calls_are_told_by_tier(judgekit: Run) -> None:
    found = judgekit(*ESTIMATE).json
    assert {model["tier"]: model["calls"] for model in found["models"]} == {
        "quick": 10,
        "deep": 10,
        "tiebreaker": 10,
    }
    assert found["calls"] == [10, 30]


@pytest.mark.usefixtures("openai")
def test_costs_are_those_of_the_known_prices(judgekit: Run) -> None:
    least, most = judgekit(*ESTIMATE).json["usd"]
    assert 0 < least < most


@pytest.mark.usefixtures("openai")
def test_a_longer_text_has_more_tokens(judgekit: Run) -> None:
    before = judgekit(*ESTIMATE).json["models"][0]["tokens_read"]
    write([{"id": f"r{number}", "answer": "word " * 800} for number in range(10)])
    after = judgekit(*ESTIMATE).json["models"][0]["tokens_read"]
    assert after > before + 9_000


@pytest.mark.usefixtures("openai")
def test_many_rows_count_with_the_mean_of_the_first(judgekit: Run) -> None:
    few = judgekit(*ESTIMATE).json["models"][0]
    write([{"id": f"r{number}", "answer": good("1")} for number in range(1_000)])
    many = judgekit(*ESTIMATE).json["models"][0]
    assert many["calls"] == 1_000
    assert many["tokens_read"] == pytest.approx(few["tokens_read"] * 100, rel=0.02)


@pytest.mark.parametrize(
    "words",
    [
        ROWS,
        (*ROWS, "--out", "out.jsonl"),
        (*JUDGE, "good.md", "bad.md"),
        ("compare", "good.md", "bad.md", "--prompt", "x"),
    ],
)
def test_nothing_is_sent(served: Served, words: tuple[str, ...]) -> None:
    done, asked = served(by_content, *words, "--estimate")
    assert (done.code, asked) == (0, [])
    assert "nothing was sent" in done.out


def test_nothing_is_written(served: Served) -> None:
    before = set(Path().iterdir())
    served(by_content, *ROWS, "--estimate", "--out", "out.jsonl")
    assert set(Path().iterdir()) == before


def test_rows_that_have_a_result_are_left_out(use: Use, judgekit: Run) -> None:
    with Loopback(by_content) as server:  # under the same address in both runs
        use(server)
        judgekit(*ROWS, "--out", "out.jsonl", "--limit", "4")
        results = Path("out.jsonl").read_bytes()
        done = judgekit(*ROWS, "--out", "out.jsonl", "--estimate")
    assert "rows.jsonl: 6 rows to judge; 4 rows have a result already" in done.out
    assert Path("out.jsonl").read_bytes() == results


def test_a_server_here_costs_nothing(served: Served) -> None:
    done, _ = served(by_content, *ESTIMATE)
    assert done.json["usd"] == [0, 0]


def test_an_unknown_price_is_said(judgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_API_BASE", "https://models.example.org/v1")
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
    done = judgekit(*ROWS, "--estimate")
    assert "cost unknown (no price for custom/stand-in)" in done.out


def test_without_a_model_it_says_so(judgekit: Run) -> None:
    done = judgekit(*ROWS, "--estimate")
    assert (done.code, "calls, tokens and costs are unknown" in done.out) == (0, True)


def test_an_unreadable_row_is_said(judgekit: Run) -> None:
    write([{"id": "a", "answer": ["x", 5]}])
    assert judgekit(*ROWS, "--estimate").code == 65


def test_a_limit_of_calls_a_minute_makes_it_longer(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    write([{"id": f"r{number}", "answer": bad(str(number))} for number in range(640)])
    quick, slow = (
        judgekit(*ESTIMATE).json["minutes"],
        judgekit(*ESTIMATE, "-j", "1").json["minutes"],
    )
    assert quick[0] < slow[0]
