"""Several subjects compared by scores: who goes up a tier, and who wins."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from making import call_usage, comparison_input, document, document_judge, file, reply
from scripted import ScriptedGateway, scores, scripted_endpoint, three_models

from judgekit.cli.schema import json_schema
from judgekit.errors import FailureKind, GatewayError
from judgekit.judging.ranking import RankingJudge
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgekit.config.names import ModeName, TierName
    from judgekit.judging.comparison import Comparison, ComparisonInput
    from judgekit.providers.base import Endpoint, PanelModels, Reply, Request

TIMEOUT = GatewayError(FailureKind.TIMEOUT, "no answer in 45 s")


class Scorer(ScriptedGateway):
    """Gives each text the score that stands for its tier in `given`; None fails."""

    def __init__(self, given: Mapping[str, Mapping[str, float | None]]) -> None:
        super().__init__({})
        self.given = given

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        """Return the score of the text in the prompt."""
        (name,) = set(re.findall(r"I am text (\w)\.", request.messages[1].content))
        value = self.given[request.call_key.tier][name]
        self.answers[request.call_key.tier] = [
            TIMEOUT if value is None else scores(value, value, value, reasoning=f"About {name}.")
        ]
        return await super().complete(scripted_endpoint, request)

    @property
    def about(self) -> list[str]:
        """Which text each tier was asked about, in order."""
        found = []
        for request in self.requests:
            (name,) = set(re.findall(r"I am text (\w)\.", request.messages[1].content))
            found.append(f"{request.call_key.tier} {name}")
        return found


def lettered_texts(letters: str = "ABC", *, tail: str = "") -> ComparisonInput:
    texts = [f"I am text {letter}.{tail}" for letter in letters]
    files = [file(text[:11], text) for text in texts]
    return comparison_input("Say who you are.", tuple(files))


def rank(
    gateway: ScriptedGateway,
    *,
    mode: ModeName = "lenient",
    panel: PanelModels | None = None,
    subject: ComparisonInput | None = None,
    margins: Mapping[TierName, float] | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> Comparison:
    options.setdefault("deadline", 60)
    panel = three_models() if panel is None else panel
    kls = loader.comparing_rubric("kls")
    own = kls._replace(rubric=kls.rubric.model_copy(update={"margins": margins or {}}))
    judge = RankingJudge(gateway, panel, own, mode, **options)
    return asyncio.run(judge.judge(subject or lettered_texts()))


def test_a_clear_lead_ends_it_in_lenient_mode() -> None:
    gateway = Scorer({"quick": {"A": 3, "B": 5, "C": 2}})
    comparison = rank(gateway)
    assert (comparison.verdict, comparison.judge_tier, comparison.lead, comparison.consensus) == (
        "B",
        "quick",
        2.0,
        "single",
    )
    assert [subject.score for subject in comparison.subjects] == [3, 5, 2]
    assert gateway.about == ["quick A", "quick B", "quick C"]
    assert comparison.reasoning == "About B."


@pytest.mark.parametrize("letters", ["AA", "AAA"])
@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_the_same_text_is_a_tie_and_nobody_is_asked(letters: str, mode: ModeName) -> None:
    gateway = Scorer({})
    comparison = rank(gateway, mode=mode, subject=lettered_texts(letters))
    assert (comparison.verdict, comparison.lead, comparison.rounds, comparison.degraded) == (
        "tie",
        0.0,
        [],
        None,
    )
    assert comparison.decided
    assert gateway.requests == []
    assert rank(gateway, mode=mode, subject=lettered_texts(letters), panel={}).degraded is None


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_copies_of_the_best_are_a_tie(mode: ModeName) -> None:
    gateway = Scorer({tier: {"A": 5, "B": 2} for tier in ("quick", "deep")})
    comparison = rank(gateway, mode=mode, subject=lettered_texts("ABA"))
    assert (comparison.verdict, comparison.lead) == ("tie", 0.0)
    assert [subject.score for subject in comparison.subjects] == [5, 2, 5]
    assert len({subject.tier for subject in comparison.subjects if subject.letter in "AC"}) == 1
    assert gateway.about[:2] == ["quick A", "quick B"]
    assert set(gateway.about[2:]) <= {"deep A", "deep B"}


def test_only_those_near_the_best_go_up() -> None:
    given = {"quick": {"A": 4, "B": 4, "C": 2}, "deep": {"A": 3, "B": 5}}
    gateway = Scorer(given)
    comparison = rank(gateway)
    assert gateway.about[3:] == ["deep A", "deep B"]
    assert (comparison.verdict, comparison.judge_tier) == ("B", "deep")
    assert [(subject.score, subject.tier) for subject in comparison.subjects] == [
        (3.5, "deep"),
        (4.5, "deep"),
        (2, "quick"),
    ]


def test_strict_wants_the_best_two_confirmed() -> None:
    gateway = Scorer({"quick": {"A": 3, "B": 5, "C": 2}, "deep": {"A": 3, "B": 4}})
    comparison = rank(gateway, mode="strict")
    assert gateway.about[3:] == ["deep B", "deep A"]
    assert (comparison.verdict, comparison.judge_tier, comparison.consensus) == ("B", "deep", "unanimous")


def test_who_is_near_at_the_end_ties_in_strict_and_wins_in_lenient_mode() -> None:
    close = {"A": 4, "B": 4, "C": 1}
    given: dict[str, dict[str, float | None]] = {
        "quick": dict(close),
        "deep": dict(close),
        "tiebreaker": {"A": 4, "B": 4.0},
    }
    assert rank(Scorer(given)).verdict == "tie"
    given["tiebreaker"] = {"A": 4, "B": 5}
    lenient, strict = rank(Scorer(given)), rank(Scorer(given), mode="strict")
    assert (lenient.verdict, lenient.judge_tier, lenient.consensus) == ("B", "tiebreaker", "majority")
    assert lenient.lead == pytest.approx(1 / 3, abs=1e-4)
    assert strict.verdict == "B"  # a third is more than a twentieth of the scale
    assert rank(Scorer(given), mode="strict", margins={"tiebreaker": 0.5}).verdict == "tie"


def test_a_tier_that_failed_for_one_of_them_is_not_counted() -> None:
    given: dict[str, dict[str, float | None]] = {
        "quick": {"A": 5, "B": None, "C": 3},
        "deep": {"A": 3, "B": 5, "C": 2},
    }
    comparison = rank(Scorer(given))
    assert (comparison.verdict, comparison.judge_tier) == ("B", "deep")
    assert comparison.degraded == "quick: timeout (no answer in 45 s)"


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_a_needed_second_opinion_that_fails_leaves_it_undetermined(mode: ModeName) -> None:
    given: dict[str, dict[str, float | None]] = {
        "quick": {"A": 4, "B": 4, "C": 1},
        "deep": {"A": None, "B": 4},
        "tiebreaker": {"A": 4, "B": None},
    }
    comparison = rank(Scorer(given), mode=mode)
    assert (comparison.verdict, comparison.decided, comparison.judge_tier) == ("undetermined", False, None)
    assert "timeout" in str(comparison.degraded)


def test_a_jury_and_repeated_samples_are_averaged() -> None:
    """A model that stands twice in a tier is asked twice."""
    endpoint, two = scripted_endpoint("one"), scripted_endpoint("two")
    gateway = ScriptedGateway(
        {"quick": [scores(*[value] * 3) for value in (5, 2, 3, 2, 4, 4)]},
    )
    comparison = rank(gateway, panel={"quick": [endpoint, endpoint, two]}, subject=lettered_texts("AB"))
    assert [subject.score for subject in comparison.subjects] == [4.0, pytest.approx(8 / 3, abs=1e-4)]
    assert [compare_round.model for compare_round in comparison.rounds] == ["one", "one", "two"] * 2


def test_cut_texts_go_up_and_never_win_unseen() -> None:
    tail = " x" * 3000
    given = {"quick": {"A": 2, "B": 5}, "deep": {"A": 2, "B": 4}}
    comparison = rank(Scorer(given), subject=lettered_texts("AB", tail=tail))
    assert (comparison.verdict, comparison.judge_tier) == ("B", "deep")
    alone = rank(
        Scorer(given), panel={"quick": scripted_endpoint("m")}, subject=lettered_texts("AB", tail=tail)
    )
    assert (alone.verdict, alone.truncated) == ("undetermined", True)


def test_the_record_follows_its_published_schema() -> None:
    given = {"quick": {"A": 4, "B": 4, "C": 2}, "deep": {"A": 3, "B": 5}}
    record = json.loads(rank(Scorer(given)).model_dump_json(by_alias=True))
    jsonschema.validate(record, json_schema("comparison"))
    assert [each["order"] for each in record["rounds"]] == [["A"], ["B"], ["C"], ["A"], ["B"]]


def test_what_would_be_sent_can_be_shown() -> None:
    judge = RankingJudge(Scorer({}), three_models(), loader.comparing_rubric("kls"), "strict", 60)
    texts = [messages[1].content for messages in judge.prompts("quick", lettered_texts())]
    assert [re.findall(r"I am text (\w)\.", text) for text in texts] == [["A"], ["B"], ["C"]]
    assert all("Say who you are." in text for text in texts)


def test_a_rubric_may_have_margins_of_its_own() -> None:
    given = {"quick": {"A": 3, "B": 4, "C": 1}, "deep": {"A": 5, "B": 2}}
    assert rank(Scorer(given)).verdict == "B"
    assert rank(Scorer(given), margins={"quick": 2.0}).verdict == "A"


def test_the_end_of_the_budget_is_told_in_the_figures_of_the_whole() -> None:
    class Dear(Scorer):
        async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
            reply = await super().complete(scripted_endpoint, request)
            return dataclasses.replace(reply, usage=call_usage(1, 1, 0.9))

    gateway = Dear({"quick": {"A": 4, "B": 4, "C": 4}})
    comparison = rank(gateway, max_cost_usd=1.0)
    assert len(gateway.requests) == 2
    assert "1.8000 of 1 US dollars are spent" in str(comparison.degraded)
    assert "0.0000" not in str(comparison.degraded)


# --- a small model


class Believing(ScriptedGateway):
    """Gives each text its score of a dimension, and of an idle subject: by token probabilities."""

    def __init__(self, given: Mapping[str, tuple[int, int]]) -> None:
        super().__init__({})
        self.given = given

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        context, _, question = request.messages[-1].content.rpartition("\n\n")
        (name,) = set(re.findall(r"I am text (\w)\.", context))
        score = str(self.given[name]["Danube" in question])
        return reply(score, scripted_endpoint.model, call_usage(10, 1, 0.0), logprobs=({score: -0.01},))


def test_scores_are_compared_as_a_small_model_first_gave_them() -> None:
    """What would be accepted alone, and then not believed, must not fall behind a worse text."""
    gateway = Believing({"A": (4, 5), "B": (3, 1), "C": (2, 1)})
    comparison = rank(gateway, panel={"quick": scripted_endpoint("small", pointwise=True)})
    assert [subject.score for subject in comparison.subjects] == [4, 3, 2]
    assert (comparison.verdict, len(gateway.requests)) == ("A", 9)
    alone = document_judge(
        Believing({"A": (4, 5)}),
        {"quick": scripted_endpoint("small", pointwise=True)},
        mode="lenient",
        deadline=60,
    )
    verdict = asyncio.run(alone.judge(document(lettered_texts("A").files, "A")))
    assert (verdict.verdict, len(verdict.rounds)) == ("improve", 1)
