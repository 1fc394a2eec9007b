"""Two texts before a panel: families, several replies, criteria one by one, and who wrote the texts."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from math import log
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from making import call_usage, comparison_input, file, finality_rule, finality_rules, judge_options, reply
from scripted import scripted_endpoint

from judgekit.cli.schema import json_schema
from judgekit.errors import FailureKind, GatewayError
from judgekit.judging.compare import PairJudge
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from judgekit.config.names import ModeName
    from judgekit.judging.comparison import Comparison
    from judgekit.judging.jury import JuryRule
    from judgekit.judging.subject import File
    from judgekit.providers.base import Endpoint, PanelModels, Reply, Request

CRITERIA = ["instruction", "correctness", "help"]


def text_file(text: str) -> File:
    return file(f"{text}.md", text)


PAIR = comparison_input("Name three rivers.", (text_file("A"), text_file("B")))


def endpoint(name: str) -> Endpoint:
    """Return a model whose family stands before the slash; without one the family is not known."""
    family, _, _ = name.rpartition("/")
    return dataclasses.replace(scripted_endpoint(name), family=family or "unknown")


class Panel:
    """Each model prefers A, B or neither (T), always the first (1), or fails (F): a letter a sample.

    A word by criterion says what it prefers where that one is asked about alone.
    """

    def __init__(self, said: Mapping[str, str | Mapping[str, str]]) -> None:
        self.said = said
        self.requests: list[Request] = []
        self.asked: list[str] = []

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        self.asked.append(scripted_endpoint.model)
        word = self.word(scripted_endpoint.model, request)
        if word == "F":
            raise GatewayError(FailureKind.TIMEOUT, "no answer")
        by_text = {each: label for label, each in request.labels.items()}
        text = request.messages[-1].content
        first = min(request.labels, key=lambda label: text.index(f"The text {label}:"))
        wins = {"1": first} | {each: by_text[text_file(each).sha256] for each in "AB"}
        said = {"reasoning": f"{scripted_endpoint.model} says so.", "better": wins.get(word, "tie")}
        return reply(json.dumps(said), scripted_endpoint.model, call_usage(10, 1, 0.001))

    def word(self, model: str, request: Request) -> str:
        said = self.said[model]
        if not isinstance(said, str):
            return said[request.call_key.part.partition("/")[0]]
        return said[max(request.sample, 1) - 1] if len(said) > 1 else said

    async def aclose(self) -> None:
        """Nothing is open."""


def compare(
    panel: Panel,
    by_tier: Mapping[str, str | Sequence[str]],
    *,
    mode: ModeName = "lenient",
    wrote: Sequence[str | None] = (),
    **options: Any,  # noqa: ANN401 - passed on
) -> Comparison:
    told: Any = {
        tier: endpoint(each) if isinstance(each, str) else [endpoint(name) for name in each]
        for tier, each in by_tier.items()
    }
    judge = PairJudge(panel, told, loader.comparing_rubric("answer-preference"), mode, 60, **options)
    return asyncio.run(judge.judge(dataclasses.replace(PAIR, authors=tuple(wrote))))


# --- families


@pytest.mark.parametrize(
    ("said", "rule", "word", "lead"),
    [
        # Two models of one family against one of another: a family each.
        ({"x/1": "A", "x/2": "A", "y/1": "B"}, "mean", "tie", 0.0),
        ({"x/1": "A", "x/2": "A", "y/1": "T"}, "mean", "A", 0.5),
        ({"x/1": "A", "x/2": "B", "y/1": "B"}, "mean", "B", 0.5),
        ({"x/1": "A", "x/2": "T", "y/1": "B"}, "mean", "B", 0.25),
        # Of an unknown family each is one of its own.
        ({"1": "A", "2": "A", "3": "B"}, "mean", "A", 0.3333),
        # The word of more than half of the families, or none.
        ({"x/1": "A", "x/2": "T", "y/1": "B"}, "majority", "tie", 0.0),
        ({"x/1": "A", "y/1": "A", "z/1": "B"}, "majority", "A", 0.3333),
        ({"x/1": "A", "y/1": "T", "z/1": "T"}, "majority", "tie", 0.0),
        ({"x/1": "A", "y/1": "T", "z/1": "T"}, "mean", "A", 0.3333),
    ],
)
def test_each_family_of_a_jury_has_one_vote(
    said: dict[str, str], rule: JuryRule, word: str, lead: float
) -> None:
    comparison = compare(Panel(said), {"quick": list(said)}, options=judge_options(jury=rule))
    assert (comparison.verdict, comparison.lead) == (word, lead)
    assert len(comparison.rounds) == 2 * len(said)


@pytest.mark.parametrize(
    ("quick", "deep", "rule", "expected"),
    [
        ("AB", "", "mean", ("tie", "none", [])),  # nobody voted for it
        ("ATT", "", "mean", ("A", "single", ["x"])),
        ("TTT", "ATT", "majority", ("tie", "majority", ["x", "y", "z"])),
        ("AAB", "AAA", "mean", ("A", "majority", ["x", "y", "z"])),  # one said B all the same
        ("AAA", "AAA", "mean", ("A", "unanimous", ["x", "y", "z"])),
    ],
)
def test_the_consensus_is_what_the_families_said(
    quick: str, deep: str, rule: JuryRule, expected: tuple[str, str, list[str]]
) -> None:
    said = {f"{family}/q": word for family, word in zip("xyz", quick, strict=False)}
    more = {f"{family}/d": word for family, word in zip("xyz", deep, strict=False)}
    by_tier = {"quick": list(said), **({"deep": list(more)} if more else {})}
    comparison = compare(Panel(said | more), by_tier, mode="strict", options=judge_options(jury=rule))
    assert (comparison.verdict, comparison.consensus, comparison.families) == expected


# --- several replies


@pytest.mark.parametrize(
    ("replies", "word", "lead"),
    [
        ("AAA", "A", 1.0),
        ("AAB", "A", 0.3333),
        ("ABT", "tie", 0.0),
        ("11A", "A", 0.3333),  # what the order decides is a tie
        ("111", "tie", 0.0),
        ("FBB", "B", 1.0),  # two of three have a word
    ],
)
def test_several_replies_in_both_orders_are_averaged(replies: str, word: str, lead: float) -> None:
    panel = Panel({"m": replies})
    comparison = compare(panel, {"quick": "m"}, options=judge_options(samples=3))
    assert (comparison.verdict, comparison.lead, len(comparison.rounds)) == (word, lead, 6)
    assert [compare_round.sample for compare_round in comparison.rounds] == [1, 1, 2, 2, 3, 3]
    assert [request.sample for request in panel.requests] == [1, 1, 2, 2, 3, 3]


def test_calls_that_failed_alike_are_told_once() -> None:
    class Numbered(Panel):
        """Fails with another message each time."""

        def word(self, model: str, request: Request) -> str:
            self.asked.append(model)
            kind = FailureKind.TIMEOUT if request.sample < 3 else FailureKind.RATE_LIMIT
            raise GatewayError(kind, f"call {len(self.requests)}")

    comparison = compare(Numbered({}), {"quick": "m"}, options=judge_options(samples=3))
    assert (comparison.degraded, len(comparison.rounds)) == (
        "quick: timeout (call 1); quick: rate_limit (call 5)",
        6,
    )


# --- criteria one by one


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ("AAA", "A"),
        ("ABB", "A"),  # the most important that sets them apart decides
        ("TBA", "B"),
        ("1BA", "B"),  # what the order decides sets nothing apart
        ("TTA", "A"),
        ("TTT", "tie"),
    ],
)
def test_criteria_can_be_asked_about_one_by_one(words: str, word: str) -> None:
    panel = Panel({"m": dict(zip(CRITERIA, words, strict=True))})
    comparison = compare(panel, {"quick": "m"}, options=judge_options(each=True))
    assert (comparison.verdict, len(comparison.rounds)) == (word, 6)
    assert [compare_round.criterion for compare_round in comparison.rounds[::2]] == CRITERIA
    rubric = loader.comparing_rubric("answer-preference").rubric
    assert isinstance(rubric, CompareRubric)
    first, _, _ = (panel.requests[at].messages[0].content for at in (0, 2, 4))
    assert rubric.criteria["instruction"] in first
    assert rubric.criteria["help"] not in first


def test_a_criterion_without_an_answer_is_no_word() -> None:
    panel = Panel({"m": {"instruction": "A", "correctness": "F", "help": "A"}})
    comparison = compare(panel, {"quick": "m"}, options=judge_options(each=True))
    assert (comparison.verdict, comparison.degraded) == ("undetermined", "quick: timeout (no answer)")


def test_replies_and_criteria_together() -> None:
    panel = Panel({"m": dict(zip(CRITERIA, "TBA", strict=True))})
    comparison = compare(panel, {"quick": "m"}, options=judge_options(samples=2, each=True))
    assert (comparison.verdict, len(comparison.rounds)) == ("B", 12)
    record = json.loads(comparison.model_dump_json(by_alias=True))
    jsonschema.validate(record, json_schema("comparison"))
    assert [(each["sample"], each["criterion"]) for each in record["rounds"][:3]] == [
        (1, "instruction"),
        (1, "instruction"),
        (1, "correctness"),
    ]


@pytest.mark.parametrize(("first", "word"), [(0.51, "tie"), (0.54, "tie"), (0.56, "A"), (0.9, "A")])
def test_a_pointwise_model_that_hardly_leans_to_one_finds_a_tie(first: float, word: str) -> None:
    class Leaning(Panel):
        async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
            text = request.messages[-1].content
            likely = first if text.index("\nA\n") < text.index("\nB\n") else 1 - first
            return reply(
                "1",
                scripted_endpoint.model,
                call_usage(),
                logprobs=({"1": log(likely), "2": log(1 - likely)},),
            )

    by_tier: PanelModels = {"quick": scripted_endpoint("small", pointwise=True)}
    judge = PairJudge(Leaning({}), by_tier, loader.comparing_rubric("answer-preference"), "lenient", 60)
    assert asyncio.run(judge.judge(PAIR)).verdict == word


# --- who wrote them


def test_of_a_jury_the_others_remain() -> None:
    panel = Panel({"anthropic/m": "A", "mistral/m": "B"})
    comparison = compare(panel, {"quick": ["anthropic/m", "mistral/m"]}, wrote=["anthropic", None])
    assert (comparison.verdict, set(panel.asked)) == ("B", {"mistral/m"})
    assert comparison.independent is None  # who wrote B is not said


def test_a_family_without_a_favourite_goes_before_one_that_has_one() -> None:
    """Both texts are of the one family, one of them also of the other."""
    panel = Panel({"anthropic/m": "A", "openai/m": "B"})
    comparison = compare(
        panel,
        {"quick": ["openai/m", "anthropic/m"]},
        wrote=["anthropic", "anthropic, openai"],
    )
    assert (comparison.verdict, set(panel.asked), comparison.independent) == ("A", {"anthropic/m"}, False)


def test_a_win_that_a_family_gives_its_own_text_needs_another_voice() -> None:
    """Lenient ends with the first win; but not with one for the judge's own kind."""
    own = {"quick": "anthropic/m", "deep": "openai/m"}
    panel = Panel({"anthropic/m": "A", "openai/m": "B"})
    each_its_own = compare(panel, own, wrote=["anthropic", "openai"])
    assert (each_its_own.verdict, each_its_own.judge_tier) == ("escalate", None)
    assert (each_its_own.families, each_its_own.independent) == (["anthropic", "openai"], False)
    agreed = compare(Panel({"anthropic/m": "A", "openai/m": "A"}), own, wrote=["anthropic", "openai"])
    assert (agreed.verdict, agreed.judge_tier, agreed.independent) == ("A", "deep", False)
    against = compare(Panel({"anthropic/m": "B", "openai/m": "A"}), own, wrote=["anthropic", "openai"])
    assert (against.verdict, against.judge_tier) == ("B", "quick")
    unsaid = compare(Panel({"anthropic/m": "A", "openai/m": "B"}), own)
    assert (unsaid.verdict, unsaid.judge_tier, unsaid.independent) == ("A", "quick", None)


def test_nor_does_a_calibration_make_such_a_win_final() -> None:
    """Labels do not know who wrote the texts."""
    by_tier = {"quick": "x/a", "deep": "x/b"}
    finality = finality_rules(
        "c",
        (
            finality_rule("quick", "accept", 0.5),
            finality_rule("deep", "improve", 0.5, after="accept", stands="quick"),
        ),
    )
    for deep, verdict in (("A", "A"), ("T", "tie")):
        panel = Panel({"x/a": "A", "x/b": deep})
        comparison = compare(panel, by_tier, wrote=["x", "none"], finality=finality)
        assert (comparison.verdict, comparison.judge_tier, set(panel.asked)) == (
            verdict,
            "deep",
            {"x/a", "x/b"},
        )
    unsaid = Panel({"x/a": "A", "x/b": "T"})
    assert (compare(unsaid, by_tier, finality=finality).judge_tier, set(unsaid.asked)) == ("quick", {"x/a"})
    against = Panel({"x/a": "B", "x/b": "T"})
    assert compare(against, by_tier, wrote=["x", "none"], finality=finality).judge_tier == "quick"


@pytest.mark.parametrize(
    ("wrote", "left"),
    [
        (["x", "x, y"], "y"),  # x wrote both, and judges all the same
        (["x", None], "x"),  # of what is not said nobody left
        (["x", "unknown"], "x"),
        (["x", "mistral"], "x"),  # which judges nowhere
    ],
)
def test_who_left_is_named(wrote: list[str | None], left: str) -> None:
    finality = finality_rules("c", (finality_rule("quick", "accept"),))
    comparison = compare(
        Panel({"x/a": "A", "y/b": "A"}), {"quick": "x/a", "deep": "y/b"}, wrote=wrote, finality=finality
    )
    assert comparison.degraded == f"calibration c not used: {left} wrote this, others judge it"


def test_secrets_are_counted() -> None:
    secret = f"ghp_{'Ab3dEf6hIj9k' * 3}"
    subject = dataclasses.replace(PAIR, prompt=f"Use {secret}.")
    panel = Panel({"m": "A"})
    loaded = loader.comparing_rubric("answer-preference")
    judge = PairJudge(panel, {"quick": endpoint("m")}, loaded, "lenient", 60)
    assert asyncio.run(judge.judge(subject)).redacted == 1
    assert all(secret not in request.messages[-1].content for request in panel.requests)
