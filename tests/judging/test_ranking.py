"""Several subjects compared by scores: who goes up a tier, who wins, families, and who wrote them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import making
import pytest
from scripted import (
    OWN,
    PROFILE,
    THREE,
    TWO,
    NothingOpen,
    ended,
    endpoint,
    panel_of,
    scripted_endpoint,
)

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.standing import average_scores, list_contenders, usual_margins
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scripted import Tiers

    from judgekit.config import ModeName
    from judgekit.judging.documents import ComparisonInput, File
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.verdict import Comparison
    from judgekit.providers.base import Endpoint, Reply, Request

DIMENSIONS = ("semantic", "pragmatic", "syntactic")


def text_file(letter: str, tail: str = "") -> File:
    return making.file(f"{letter}.md", f"I am text {letter}.{tail}")


def some_texts(letters: str, wrote: Sequence[str | None] = (), tail: str = "") -> ComparisonInput:
    return making.comparison_input(
        "Say who you are.", [text_file(letter, tail) for letter in letters], wrote
    )


class Ranking(NothingOpen):
    """Each model gives A, B, C, … its digits in turn, or those of the tier that asks; 0 fails."""

    def __init__(self, said: Mapping[str, str | Mapping[str, str]], usd: float = 0.001) -> None:
        self.said, self.usd = said, usd
        self.asked: list[str] = []
        self.requests: list[Request] = []
        self.busy = self.most = 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0.001)
        self.busy -= 1
        (letter,) = set(re.findall(r"I am text (\w)\.", request.messages[1].content))
        self.asked.append(f"{scripted_endpoint.model} {letter}")
        said = self.said[scripted_endpoint.model]
        digits = said if isinstance(said, str) else said[request.call_key.tier]
        score = int(digits["ABCDEF".index(letter)])
        if not score:
            raise GatewayError(FailureKind.TIMEOUT, "no answer")
        part = request.call_key.part.partition("/")[0]
        names = [part] if part in DIMENSIONS else DIMENSIONS
        found = {
            "reasoning": f"About {letter}.",
            "scores": dict.fromkeys(names, score),
            "findings": [],
        }
        return making.reply(
            json.dumps(found), scripted_endpoint.model, making.call_usage(10, 1, self.usd)
        )


def rank(
    panel: Ranking,
    by_tier: Tiers = THREE,
    letters: str = "ABC",
    *,
    mode: ModeName = "lenient",
    wrote: Sequence[str | None] = (),
    tail: str = "",
    margins: Mapping[str, float] | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> Comparison:
    kls = loader.find_rubric("kls")
    own = kls._replace(rubric=kls.rubric.model_copy(update={"margins": margins or {}}))
    settings = making.judge_settings(panel_of(by_tier), own, mode, timeout=60, **options)
    judge = RankingJudge(panel, settings)
    return asyncio.run(judge.judge(some_texts(letters, wrote, tail)))


def means(comparison: Comparison) -> list[float | None]:
    return [subject.score for subject in comparison.subjects]


ALL_UP = "qA qB qC dA dB tA tB"


def test_only_while_the_best_are_near_they_go_up() -> None:
    cases: list[
        tuple[tuple[str, ...], ModeName, dict[str, float], str, tuple[str, str | None, str]]
    ] = [
        (("352",), "lenient", {}, "qA qB qC", ("B", "quick", "single")),  # a clear lead ends it
        (
            ("442", "35"),
            "lenient",
            {},
            "qA qB qC dA dB",
            ("B", "deep", "majority"),
        ),  # only the near go up
        (
            ("352", "34"),
            "strict",
            {},
            "qA qB qC dB dA",
            ("B", "deep", "unanimous"),
        ),  # the best two at least
        (("341", "52"), "lenient", {"quick": 2.0}, "qA qB qC dB dA", ("A", "deep", "majority")),
        (("503", "352"), "lenient", {}, "qA qB qC dA dB dC", ("B", "deep", "single")),  # one failed
        (("441", "04", "40"), "lenient", {}, ALL_UP, ("undetermined", None, "none")),
        # Who is near at the end ties in strict and wins in lenient mode.
        (("441", "44", "44"), "lenient", {}, ALL_UP, ("tie", "tiebreaker", "majority")),
        (("441", "44", "45"), "lenient", {}, ALL_UP, ("B", "tiebreaker", "majority")),
        (
            ("441", "44", "45"),
            "strict",
            {"tiebreaker": 0.5},
            ALL_UP,
            ("tie", "tiebreaker", "majority"),
        ),
    ]
    for said, mode, margins, asked, expected in cases:
        panel = Ranking(dict(zip("qdt", said, strict=False)))
        comparison = rank(panel, mode=mode, margins=margins)
        assert [each.replace(" ", "") for each in panel.asked] == asked.split()
        assert ended(comparison) == expected
        assert ("timeout" in str(comparison.degraded)) == any("0" in digits for digits in said)


@pytest.mark.parametrize(
    ("deep", "digits"),
    [
        pytest.param("m", "54", id="it stands in all tiers"),
        pytest.param("other", "00", id="the other model fails"),
        pytest.param("other", "40", id="the other model fails on one text"),
    ],
)
def test_one_model_alone_is_single(deep: str, digits: str) -> None:
    by_tier = {"quick": "44", "deep": digits, "tiebreaker": "54"}
    panel = {"quick": "m", "deep": deep, "tiebreaker": "m"}
    comparison = rank(Ranking({"m": by_tier, "other": digits}), panel, "AB")
    assert comparison.verdict == "A"
    assert comparison.consensus == "single"


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_copies_are_scored_once_and_tie(mode: ModeName) -> None:
    for letters in ("AA", "AAA"):
        panel = Ranking({})
        comparison = rank(panel, letters=letters, mode=mode)
        assert (comparison.verdict, comparison.lead, comparison.rounds, panel.asked) == (
            "tie",
            0.0,
            [],
            [],
        )
        assert comparison.degraded is rank(panel, {}, letters, mode=mode).degraded is None
    for digits, verdict, lead in (("52", "tie", 0.0), ("25", "B", 3.0)):
        panel = Ranking({"q": digits, "d": digits})
        comparison = rank(panel, TWO, "ABA", mode=mode)
        assert (comparison.verdict, comparison.lead) == (verdict, lead)
        assert means(comparison) == [int(digits[0]), int(digits[1]), int(digits[0])]
        assert len(panel.asked) == len(set(panel.asked))


def test_the_end_of_the_budget_is_told_in_the_figures_of_the_whole() -> None:
    panel = Ranking({"q": "444"}, usd=0.9)
    comparison = rank(panel, max_cost_usd=1.0)
    assert (len(panel.requests), round(comparison.cost_usd or 0, 4)) == (2, 1.8)
    assert "1.8000 of 1 US dollars are spent" in str(comparison.degraded)
    assert "0.0000" not in str(comparison.degraded)


def test_as_many_are_asked_at_a_time_as_the_provider_bears() -> None:
    for bears, most in ((1, 1), (3, 3), (None, 12)):
        limits = PROFILE.limits.model_copy(update={"concurrency": bears})
        modest = endpoint("m", profile=PROFILE.model_copy(update={"limits": limits}))
        panel = Ranking({"m": "4321"})
        rank(panel, {"quick": modest}, "ABCD", samples=3)
        assert (panel.most, len(panel.asked)) == (most, 12)


def test_a_lead_that_a_family_gives_its_own_text_is_confirmed_by_another() -> None:
    wrote = ["anthropic", "openai", "openai"]
    panel = Ranking({"anthropic/m": "521", "openai/m": "255"})
    comparison = rank(panel, OWN, wrote=wrote)
    assert panel.asked[3:] == ["openai/m A", "openai/m B"]
    assert (comparison.verdict, comparison.judge_tier, comparison.independent) == (
        "tie",
        "deep",
        False,
    )
    against = Ranking({"anthropic/m": "251", "openai/m": "555"})
    assert ended(rank(against, OWN, wrote=wrote))[:2] == ("B", "quick")
    # Nor does a calibration make such a lead final; nor is who failed behind an outcome.
    finality = making.finality_rules("c", (making.finality_rule("quick", "accept", 1.0),))
    panel = Ranking({"x/a": "52", "x/b": "52"})
    two = {"quick": "x/a", "deep": "x/b"}
    assert ended(rank(panel, two, "AB", wrote=["x", "none"], finality=finality))[:2] == (
        "A",
        "deep",
    )
    assert ended(rank(panel, two, "AB", finality=finality))[:2] == ("A", "quick")
    failed = rank(Ranking({"x/m": "04", "y/m": "25"}), {"quick": "x/m", "deep": "y/m"}, "AB")
    assert (failed.verdict, failed.families, failed.independent) == ("B", ["y"], None)


class Believing(Ranking):
    """Gives each text its score of a dimension, and of an idle subject: by token probabilities."""

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        context, _, question = request.messages[-1].content.rpartition("\n\n")
        (name,) = set(re.findall(r"I am text (\w)\.", context))
        score = self.said[name]["Danube" in question]  # type: ignore[index]  # two digits
        return making.reply(
            score,
            scripted_endpoint.model,
            making.call_usage(10, 1, 0.0),
            logprobs=({score: -0.01},),
        )


def test_scores_are_compared_as_a_small_model_first_gave_them() -> None:
    """A text that would be accepted alone, and then isn't believed, must not fall behind a worse one."""
    gateway, small = (
        Believing({"A": "45", "B": "31", "C": "21"}),
        scripted_endpoint("small", pointwise=True),
    )
    comparison = rank(gateway, {"quick": small})
    assert (comparison.verdict, means(comparison), len(gateway.requests)) == ("A", [4, 3, 2], 9)
    alone = making.document_judge(
        Believing({"A": "45"}), {"quick": small}, mode="lenient", timeout=60
    )
    verdict = asyncio.run(alone.judge(making.document((text_file("A"),), "A")))
    assert (verdict.verdict, len(verdict.rounds)) == ("improve", 1)


def test_a_calibration_says_which_lead_is_final() -> None:
    gate = making.finality_rules("c", (making.finality_rule("quick", "accept", 2.0),))
    unread = making.finality_rules("c", gate.rules, read=frozenset({("quick", "q", "points")}))
    last = making.finality_rules("c", last="deep")
    cases: list[tuple[str, FinalityRules, ModeName, str]] = [
        ("531", gate, "strict", "q"),
        ("531", gate, "lenient", "q"),
        ("541", gate, "lenient", "qd"),  # not far enough ahead
        ("551", gate, "lenient", "qdt"),
        ("531", unread, "lenient", "qd"),  # read otherwise than the scores that it was learned from
        ("531", last, "lenient", "qd"),
    ]
    for digits, finality, mode, asked in cases:
        panel = Ranking(dict.fromkeys("qdt", digits))
        rank(panel, mode=mode, finality=finality)
        assert "".join(dict.fromkeys(each[0] for each in panel.asked)) == asked, (digits, mode)
    # Nor is a lead final, or a win, of texts that no model saw whole.
    panel, tail = Ranking({"q": "25", "d": "24"}), " x" * 3000
    assert ended(rank(panel, TWO, "AB", tail=tail, finality=gate))[:2] == ("B", "deep")
    alone = rank(panel, {"quick": "q"}, "AB", tail=tail)
    assert (alone.verdict, alone.truncated) == ("undetermined", True)


ONE = {"A": [4.0], "B": [2.0]}


def test_a_tiebreaker_of_which_every_model_was_heard_is_not_asked() -> None:
    for models, deep, third, asked in (
        ({"a": "444"}, ["a"], ["a"], False),
        ({"a": "444"}, ["a"], ["m"], False),
        ({"a": "444", "z": "444"}, ["a"], ["a", "z"], True),
        ({"a": "444", "b": "444", "c": "044"}, ["a", "b", "c"], ["c"], True),  # it failed
        ({"a": "044"}, ["a"], ["m"], True),  # it stands in
    ):
        panel = Ranking({"m": "444", **models})
        rounds = rank(panel, {"quick": "m", "deep": deep, "tiebreaker": third}).rounds
        assert any(own.tier == "tiebreaker" for own in rounds) == asked, (models, third)


def test_the_mean_of_each_subject() -> None:
    cases: list[
        tuple[list[tuple[str, dict[str, list[float]]]], int | None, tuple[float, float] | None]
    ] = [
        (
            [("m", {"A": [4.0, 5.0], "B": [3.0, 3.0]}), ("n", {"A": [3.0], "B": [4.0]})],
            None,
            (4.0, 10 / 3),
        ),
        # A model that failed for one subject counts for none: its leniency would lift the others alone.
        ([("kind", {"A": [5.0]}), ("stern", {"A": [2.0], "B": [3.0]})], None, (2.0, 3.0)),
        # Most of a jury must have scored them all.
        ([("one", ONE), ("two", {"A": [1.0]})], 3, None),
        ([("one", ONE), ("two", {"A": [1.0]})], 1, (4.0, 2.0)),
        ([("one", ONE), ("two", {"A": [1.0]}), ("three", ONE)], 3, (4.0, 2.0)),
        # One that was not asked about a loser counts.
        ([("m", {**ONE, "C": [1.0]}), ("n", {"A": [5.0], "B": [3.0]})], None, (4.5, 2.5)),
        # The models of a family that count weigh together as one.
        ([("x", {"A": [5.0], "B": [1.0]}), ("x", {"A": [3.0]}), ("y", ONE)], None, (4.5, 1.5)),
    ]
    for scored, least, wanted in cases:
        found = average_scores(scored, "AB", least)
        assert found == (
            wanted and {"A": pytest.approx(wanted[0]), "B": pytest.approx(wanted[1])}
        ), scored


def test_who_is_near_the_best_by_shares_of_the_scale() -> None:
    for margin, near in ((0.0, "B"), (0.24, "B"), (0.25, "BA"), (1.0, "BAC")):
        assert list_contenders({"A": 4.0, "B": 4.25, "C": 3.25}, margin) == list(near)
    assert list_contenders({"A": 0.1 + 0.2, "B": 0.3}, 0.0) == [
        "A",
        "B",
    ]  # equal but for the last bit
    rubric = loader.find_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    expected = {"quick": 0.4, "deep": 0.2, "tiebreaker": 0.2}  # of a scale from 1 to 5
    assert usual_margins(rubric) == pytest.approx(expected)
