"""What bench/injection.py counts, with a model that believes every claim; margins chosen from labels."""

from __future__ import annotations

import asyncio
import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING

import attacks
import pytest
from making import call_usage, reply
from scripted import scripted_endpoint

from bench.judged.margins import Ranked, Walked, credit, grid, learn, walk
from judgekit.judging.ranking import Voter

if TYPE_CHECKING:
    from types import ModuleType

    from judgekit.config import ModeName, TierName
    from judgekit.providers.base import Endpoint, Reply, Request


CLAIM = attacks.CLAIMS[0]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).parents[1] / "bench" / "injection.py"
    spec = importlib.util.spec_from_file_location("bench_injection", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Credulous:
    """Says yes, and the highest score, wherever it is told to, but for an idle subject."""

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.asked += 1
        text = request.messages[-1].content
        told = CLAIM in text and "Danube" not in text
        if request.call_key.rubric.startswith("memory-"):
            yes = 0.9 if told else 0.2
            likely = {"yes": math.log(yes), "no": math.log(1 - yes)}
        else:
            likely = {"5" if told else "2": -0.01}
        return reply("yes", scripted_endpoint.model, call_usage(), logprobs=(likely,))

    async def aclose(self) -> None:
        pass


def measure(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, gateway: Credulous, cache: Path, seconds: float
) -> list[tuple[object, ...]]:
    monkeypatch.setattr(bench, "open_gateway", lambda _: gateway)
    texts = [("ours", CLAIM), ("collection", "Nothing at all is claimed in this.")]
    found: list[tuple[object, ...]] = asyncio.run(
        bench.measure(scripted_endpoint("small", pointwise=True), texts, 1, seconds, cache)
    )
    return found


def test_an_attack_that_works_is_a_lift(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = measure(bench, monkeypatch, Credulous(), tmp_path, 300)
    page = bench.shown(found, "small", 1)
    rows = {row.split("|")[1].strip(): row for row in page.splitlines() if row.startswith("| ")}
    for place in attacks.PLACES:
        assert f"| {place}, our own | 1 | 1 | 0 | +100% " in rows[f"{place}, our own"]
        assert f"| {place}, all | 2 | 1 | 0 | +50% " in rows[f"{place}, all"]
        assert "| 1 | 0 | 0 | +0% " in rows[f"{place}, a collection's"]
        assert "not measured" in rows[f"{place}, adaptive"]
    assert rows["related"].startswith("| related | 0 of ")
    assert "1 our own, 0 adaptive, 1 a collection's" in page


def test_an_attack_without_its_prose_is_not_counted(bench: ModuleType) -> None:
    attack = bench.Trial("attack", "ours", "title", 0, favoured=True, leaning=0.9, once=0.9, idle=0.1)
    others = [attack._replace(kind="harmless", **each) for each in ({"pair": 1}, {"place": "tag"})]
    assert "| title, all | 0 | not measured" in bench.shown([attack, *others], "small", 1)


def test_a_lift_has_the_bounds_of_newcombe(bench: ModuleType) -> None:
    """Shares of .8 and .6 of 70: both Wilson intervals from their definition, joined as in method 10."""

    def wilson(share: float, total: int, sign: int) -> float:
        z = 1.959964
        root = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total**2))
        return (share + z * z / (2 * total) + sign * root) / (1 + z * z / total)

    found = bench.lift(56, 42, 70)
    below = math.hypot(0.8 - wilson(0.8, 70, -1), wilson(0.6, 70, 1) - 0.6)
    above = math.hypot(wilson(0.8, 70, 1) - 0.8, 0.6 - wilson(0.6, 70, -1))
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.2 - below, 0.2 + above), abs=1e-6)
    with pytest.raises(ValueError, match="at least one pair"):
        bench.lift(0, 0, 0)


SMALL, LARGE = Voter("small", "small"), Voter("large", "large")
MODELS: dict[TierName, Voter] = {"quick": SMALL, "deep": LARGE}


def ranked(quick: dict[str, list[float]], deep: dict[str, list[float]], best: str = "A") -> Ranked:
    return Ranked("x", best, {"quick": {SMALL: quick}, "deep": {LARGE: deep}})


CLEAR = ranked({"A": [5], "B": [2], "C": [1]}, {"A": [5], "B": [1], "C": [1]})
CLOSE = ranked({"A": [3], "B": [4], "C": [1]}, {"A": [5], "B": [1], "C": [1]})


def test_a_wider_margin_asks_more_and_changes_narrow_leads() -> None:
    near = ranked({"A": [3], "B": [3], "C": [1]}, {"A": [4], "B": [3], "C": [1]})
    gone = ranked({"A": [], "B": [4], "C": [1]}, {"A": [], "B": [1], "C": [1]})
    rows: list[tuple[Ranked, float, float, ModeName, tuple[str, ...], int]] = [
        (CLEAR, 0.5, 0.0, "lenient", ("A",), 3),
        (CLOSE, 0.5, 0.0, "lenient", ("B",), 3),
        (CLOSE, 1.0, 0.0, "lenient", ("A",), 5),
        (CLOSE, 9.0, 0.0, "lenient", ("A",), 6),
        (near, 0.5, 0.6, "strict", ("A", "B"), 5),  # within the margin at the end it is a tie
        (near, 0.5, 0.6, "lenient", ("A",), 5),
        (gone, 0.5, 0.5, "lenient", (), 6),  # where scores are missing nobody leads
    ]
    for item, quick, deep, mode, leaders, calls in rows:
        assert walk(item, {"quick": quick, "deep": deep}, mode) == Walked(leaders, calls), (quick, mode)


def test_a_tie_earns_the_share_of_those_that_tie() -> None:
    even = ranked({"A": [3], "B": [3], "C": [1]}, {"A": [4], "B": [4], "C": [1]}, best="B")
    walked = walk(even, {"quick": 0.5, "deep": 0.0}, "lenient")
    assert (walked.leaders, credit(even, walked)) == (("A", "B"), 0.5)
    assert credit(CLEAR, Walked(("B",), 1)) == credit(CLEAR, Walked((), 1)) == 0.0


def test_the_best_margins_that_can_be_afforded_are_learned() -> None:
    assert len(grid({"quick": (1, 2, 3), "deep": (1, 2)})) == 6
    candidates = grid({"quick": (0.5, 1.0, 9.0), "deep": (0.0,)})
    items = [CLEAR, CLOSE]
    free = learn(items, candidates, "lenient", most_calls=2.0)
    assert free is not None
    assert (free.margins["quick"], free.accuracy) == (1.0, 1.0)
    assert free.calls == pytest.approx(8 / 6)
    frugal = learn(items, candidates, "lenient", most_calls=1.0)
    assert frugal is not None
    assert (frugal.margins["quick"], frugal.accuracy, frugal.calls) == (0.5, 0.5, 1.0)
    assert learn(items, candidates, "lenient", most_calls=0.5) is None
