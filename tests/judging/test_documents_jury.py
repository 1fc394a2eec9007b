"""Several models in a tier, several replies of a model, and a call for each dimension."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from making import document, document_judge, file, judge_options
from scripted import PROFILE, ByModel, of_family, scores

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging.fence import without_nonce
from judgekit.providers.registry import Limits

if TYPE_CHECKING:
    from scripted import Answer

    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import PanelModels, Request

GOOD, WEAK, BAD = scores(4, 4, 5), scores(3, 3, 2), scores(1, 4, 4)
DOWN = GatewayError(FailureKind.TIMEOUT, "no answer in 45 s")
DOCUMENT = document((file("docs/a.md", "Some text.", sha256="ab" * 32),), "docs/a.md@abab")
Answers = dict[str, "Answer"]


def judge(panel: PanelModels, answers: Answers, **options: Any) -> tuple[Verdict, ByModel]:  # noqa: ANN401
    gateway = ByModel(answers)
    options.setdefault("deadline", 60)
    own = document_judge(gateway, panel, mode=options.pop("mode", "strict"), **options)
    return asyncio.run(own.judge(DOCUMENT)), gateway


def panel_of(**tiers: str) -> PanelModels:
    """Return a panel by the names of their models, which are separated by blanks."""
    return {tier: tuple(map(of_family, named.split())) for tier, named in tiers.items()}  # type: ignore[misc]  # tiers all


def test_all_models_of_a_tier_are_asked_at_once_and_each_has_a_round() -> None:
    verdict, gateway = judge(panel_of(quick="a b c", deep="d"), {"a": GOOD, "b": GOOD, "c": GOOD, "d": GOOD})
    assert (verdict.verdict, verdict.consensus, verdict.judge_tier) == ("accept", "unanimous", "deep")
    told = [(each.round, each.tier, each.model) for each in verdict.rounds]
    assert told == [(1, "quick", "a"), (2, "quick", "b"), (3, "quick", "c"), (4, "deep", "d")]
    assert (gateway.most, verdict.cost_usd) == (3, 0.004)


def test_a_limit_of_cost_asks_one_after_another_and_stops() -> None:
    verdict, gateway = judge(
        panel_of(quick="a b c"), dict.fromkeys("abc", GOOD), max_cost_usd=0.002, mode="lenient"
    )
    assert (gateway.most, gateway.asked) == (1, ["a", "b"])
    assert (verdict.verdict, verdict.consensus) == ("accept", "unanimous")
    assert verdict.rounds[2].failure is not None
    assert verdict.rounds[2].failure.kind == "budget"


def test_a_jury_that_agrees_is_unanimous_by_itself() -> None:
    verdict, _ = judge(panel_of(quick="a b", deep="d"), {"a": BAD, "b": scores(1, 2, 2)})
    assert (verdict.verdict, verdict.consensus, verdict.judge_tier) == ("reject", "unanimous", "quick")
    assert verdict.scores == {"semantic": 1, "pragmatic": 3, "syntactic": 3}
    assert verdict.model == "a, b"


def test_families_that_disagree_send_a_document_up() -> None:
    """Strict lets a quick rejection stand; one that divides the jury does not."""
    verdict, gateway = judge(panel_of(quick="a b c", deep="d"), {"a": BAD, "b": BAD, "c": GOOD, "d": GOOD})
    assert gateway.asked == ["a", "b", "c", "d"]
    assert (verdict.verdict, verdict.consensus, verdict.judge_tier) == ("accept", "single", "deep")


def test_a_juror_that_fails_does_not_spoil_the_others() -> None:
    verdict, _ = judge(panel_of(deep="a b c"), {"a": GOOD, "b": DOWN, "c": GOOD})
    assert (verdict.verdict, verdict.model) == ("accept", "a, c")
    assert verdict.degraded == "deep: timeout (no answer in 45 s)"
    assert [bool(each.failure) for each in verdict.rounds] == [False, True, False]


@pytest.mark.parametrize("answers", [{"a": GOOD, "b": DOWN, "c": DOWN}, {"a": GOOD, "b": DOWN, "c": "No."}])
def test_a_tier_of_which_most_fail_has_failed(answers: Answers) -> None:
    verdict, _ = judge(panel_of(deep="a b c"), answers)
    assert (verdict.verdict, verdict.scores, verdict.consensus) == ("undetermined", None, "none")
    assert verdict.rounds[0].opinion is not None


def test_the_tiebreaker_is_shown_every_opinion_that_counted() -> None:
    answers: Answers = {
        "a": scores(4, 4, 5, reasoning="FROM A"),
        "b": scores(4, 5, 4, reasoning="FROM B"),
        "c": scores(1, 1, 1, reasoning="FROM C"),
        "d": BAD,
    }
    verdict, gateway = judge(panel_of(quick="a b", deep="c", tiebreaker="d"), answers)
    assert (verdict.verdict, verdict.consensus) == ("reject", "majority")
    told = gateway.requests[-1][1].messages[-1].content
    assert all(f"FROM {each}" in told for each in "ABC")


def test_in_which_order_a_jury_is_named_plays_no_part() -> None:
    answers: Answers = {"a": GOOD, "b": scores(5, 5, 5), "c": scores(4, 5, 5), "d": BAD, "e": GOOD}
    told = []
    for quick in ("a b c", "c b a", "b a c"):
        verdict, gateway = judge(panel_of(quick=quick, deep="d", tiebreaker="e"), answers)
        (asked,) = [request for model, request in gateway.requests if model == "e"]
        told.append((verdict.verdict, [without_nonce(message.content) for message in asked.messages]))
    assert told[0] == told[1] == told[2]


def test_a_margin_sends_close_scores_up() -> None:
    close = scores(1, 3, 3)  # one point below what rejects
    three = panel_of(quick="a", deep="b", tiebreaker="c")
    answers: Answers = {"a": close, "b": GOOD, "c": GOOD}
    assert judge(three, answers)[1].asked == ["a"]
    assert judge(three, answers, options=judge_options(margin=1.0))[1].asked == ["a"]
    verdict, gateway = judge(three, answers, options=judge_options(margin=1.5))
    assert (verdict.verdict, gateway.asked) == ("accept", ["a", "b", "c"])


def drawn(request: Request) -> str:
    """Answer 3, 4, 5, 3 … on one dimension, by the number of the sample."""
    return scores(2 + request.sample % 3 + 1, 4, 4, reasoning=f"Sample {request.sample}.")


def test_samples_are_averaged_and_stand_in_one_round() -> None:
    verdict, gateway = judge(panel_of(deep="a"), {"a": drawn}, options=judge_options(samples=4))
    requests = [request for _, request in gateway.requests]
    assert [request.sample for request in requests] == [1, 2, 3, 4]
    assert [request.call_key.part for request in requests] == ["sample1", "sample2", "sample3", "sample4"]
    assert gateway.most == 4
    assert verdict.scores == {"semantic": 4, "pragmatic": 4, "syntactic": 4}
    assert verdict.reasoning in ("Sample 1.", "Sample 4.")
    (one,) = verdict.rounds
    assert one.opinion is not None
    assert (one.opinion["samples"], one.usage.input_tokens, verdict.cost_usd) == (4, 400, 0.004)


@pytest.mark.parametrize(
    ("failing", "verdict", "counted"), [({2}, "accept", 2), ({2, 3}, "undetermined", None)]
)
def test_most_samples_must_be_readable(failing: set[int], verdict: str, counted: int | None) -> None:
    def answer(request: Request) -> str:
        return "I would rather not." if request.sample in failing else GOOD

    judged, gateway = judge(panel_of(deep="a"), {"a": answer}, options=judge_options(samples=3))
    opinion = judged.rounds[0].opinion
    assert (judged.verdict, opinion and opinion["samples"]) == (verdict, counted)
    parts = [
        request.call_key.part for _, request in gateway.requests if request.call_key.part.endswith("reask")
    ]
    assert sorted(parts) == [f"sample{each}/reask" for each in sorted(failing)]


def test_a_local_server_is_asked_for_one_sample_at_a_time() -> None:
    modest = PROFILE.model_copy(update={"limits": Limits(concurrency=1)})
    _, gateway = judge(
        {"deep": of_family("a", profile=modest)}, {"a": drawn}, options=judge_options(samples=3, each=True)
    )
    assert (gateway.most, len(gateway.requests)) == (1, 9)


def text_of(request: Request) -> str:
    return "\n".join(message.content for message in request.messages)


def one_score(request: Request) -> str:
    """Answer about the one dimension that is asked about."""
    (name,) = request.schema["properties"]["scores"]["properties"]  # type: ignore[index]  # there is one
    value = {"semantic": 4, "pragmatic": 5, "syntactic": 3}[name]
    found = {"dimension": "", "location": "", "issue": f"{name} issue", "suggestion": "", "quote": ""}
    return json.dumps({"reasoning": f"About {name}.", "scores": {name: value}, "findings": [found]})


def test_each_dimension_may_have_a_call_of_its_own() -> None:
    verdict, gateway = judge(panel_of(deep="a"), {"a": one_score}, options=judge_options(each=True))
    assert [request.call_key.part for _, request in gateway.requests] == [
        "semantic",
        "pragmatic",
        "syntactic",
    ]
    assert gateway.most == 3
    assert verdict.scores == {"semantic": 4, "pragmatic": 5, "syntactic": 3}
    assert verdict.verdict == "accept"
    assert (
        verdict.reasoning
        == "semantic: About semantic.\npragmatic: About pragmatic.\nsyntactic: About syntactic."
    )
    assert [(finding.dimension, finding.issue) for finding in verdict.findings][1] == (
        "pragmatic",
        "pragmatic issue",
    )
    assert len(verdict.rounds) == 1
    prompts = [text_of(request) for _, request in gateway.requests]
    assert ["- semantic:" in prompt for prompt in prompts] == [True, False, False]


def test_a_dimension_that_fails_fails_the_round() -> None:
    def answer(request: Request) -> str:
        return "No." if "- pragmatic:" in text_of(request) else one_score(request)

    verdict, gateway = judge(panel_of(deep="a"), {"a": answer}, options=judge_options(each=True))
    assert (verdict.verdict, verdict.scores) == ("undetermined", None)
    assert verdict.rounds[0].failure is not None
    assert verdict.rounds[0].failure.kind == "invalid_reply"
    assert "pragmatic/reask" in [request.call_key.part for _, request in gateway.requests]


def test_the_tiebreaker_is_told_earlier_scores_of_its_dimension_alone() -> None:
    def high(request: Request) -> str:
        return one_score(request).replace(": 3", ": 4")

    def low(request: Request) -> str:
        return one_score(request).replace(": 4", ": 1")

    three = panel_of(quick="a", deep="b", tiebreaker="c")
    verdict, gateway = judge(three, {"a": high, "b": low, "c": high}, options=judge_options(each=True))
    assert (verdict.verdict, verdict.consensus) == ("accept", "majority")
    told = [request.messages[-1].content for model, request in gateway.requests if model == "c"]
    assert ["semantic 1" in each and "pragmatic 5" not in each for each in told] == [True, False, False]
