"""Margins of a rubric chosen from labels, and that the judge comes to the same by them."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import pytest
from making import comparison_input, file

from bench.judged.margins import Ranked, Walked, credit, grid, learn, measured, walk
from judgekit.judging.ranking import RankingJudge, Voter
from judgekit.providers import registry, replay
from judgekit.providers.base import Endpoint, models_by_tier
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.config import ModeName, TierName

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


@pytest.mark.parametrize("seed", range(4))
def test_the_judge_comes_to_what_was_measured(seed: int, tmp_path: Path) -> None:
    """The margins would promise nothing if the judge walked another way than the learner."""
    draw = random.Random(seed)
    mode: ModeName = "lenient" if seed % 2 else "strict"
    items = [_drawn(draw, number) for number in range(12)]
    margins: dict[TierName, float] = {"quick": draw.choice([0.3, 1.0]), "deep": draw.choice([0.0, 0.5])}
    recording = tmp_path / "replies.jsonl"
    recording.write_text("".join(map(_lines, items)), encoding="utf-8")
    profile = registry.find("replay")
    panel = {
        tier: [Endpoint(profile, name, name, profile.output, api_base=str(recording))] * 2
        for tier, (name, _) in MODELS.items()
    }
    kls = loader.comparing_rubric("kls")
    own = kls._replace(rubric=kls.rubric.model_copy(update={"margins": margins}))
    judge = RankingJudge(replay.ReplayGateway(), models_by_tier(panel), own, mode, 60)
    for item in items:
        texts = tuple(file(letter, f"{item.id} {letter}") for letter in item.letters)
        comparison = asyncio.run(judge.judge(comparison_input("p", texts)))
        expected = walk(item, margins, mode)
        word = expected.leaders[0] if len(expected.leaders) == 1 else "tie"
        assert comparison.verdict == (word if expected.leaders else "undetermined")
        assert len(comparison.rounds) == expected.calls
    assert 0 < measured(items, margins, mode).calls <= 4


def _drawn(draw: random.Random, number: int) -> Ranked:
    def scores() -> dict[str, list[float]]:
        return {each: [float(draw.randint(1, 5)) for _ in range(2)] for each in "ABC"}

    return Ranked(str(number), "A", {"quick": {SMALL: scores()}, "deep": {LARGE: scores()}})


def _lines(item: Ranked) -> str:
    found = []
    for tier, model in MODELS.items():
        for letter in item.letters:
            for value in item.said[tier][model][letter]:
                points = dict.fromkeys(("semantic", "pragmatic", "syntactic"), value)
                text = json.dumps({"reasoning": "", "scores": points, "findings": []})
                line = {"replay": 1, "subject": file("", f"{item.id} {letter}").sha256, "rubric": "kls@1.0.0"}
                line |= {"tier": tier, "model": model.model, "reply": {"text": text, "model": model.model}}
                found.append(json.dumps(line) + "\n")
    return "".join(found)
