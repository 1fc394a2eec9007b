"""The task `score`, from opinions to a verdict."""

from __future__ import annotations

import asyncio
import itertools
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from making import call_usage, document, document_judge, file, reply
from scripted import ScriptedGateway, scores, scripted_endpoint, three_models

from judgekit.cli.schema import json_schema
from judgekit.errors import FailureKind, GatewayError
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scripted import Answer

    from judgekit.config import ModeName, TierName
    from judgekit.errors import CostSource
    from judgekit.judging.documents import Document
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, Reply, Request

FOUR_FOUR_FIVE = {"semantic": 4, "pragmatic": 4, "syntactic": 5}
GOOD, WEAK, BAD = scores(4, 4, 5), scores(3, 3, 2), scores(1, 2, 3)
TIMEOUT = GatewayError(FailureKind.TIMEOUT, "no answer in 45 s")


def text_document(text: str = "Some text.", total: int | None = None) -> Document:
    return document((file("docs/a.md", text, sha256="ab" * 32, total=total or len(text)),), "docs/a.md@abab")


def judge(
    gateway: ScriptedGateway,
    *,
    mode: ModeName = "strict",
    endpoints: Mapping[TierName, Endpoint] | None = None,
    subject: Document | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> Verdict:
    endpoints = three_models() if endpoints is None else endpoints
    options.setdefault("deadline", 60)
    own = document_judge(gateway, endpoints, mode=mode, **options)
    return asyncio.run(own.judge(subject or text_document()))


def run(mode: ModeName = "strict", **answers: list[Answer]) -> tuple[Verdict, ScriptedGateway]:
    gateway = ScriptedGateway(answers)
    return judge(gateway, mode=mode), gateway


def test_a_confirmed_acceptance() -> None:
    verdict, gateway = run(quick=[GOOD], deep=[scores(4, 4, 4, reasoning="Sound.")])
    assert (verdict.verdict, verdict.consensus, verdict.judge_tier) == ("accept", "unanimous", "deep")
    assert verdict.scores == {"semantic": 4, "pragmatic": 4, "syntactic": 4}
    assert (verdict.average, verdict.reasoning, verdict.model) == (4.0, "Sound.", "deep-model")
    assert gateway.asked == ["quick", "deep"]
    assert verdict.cost_usd == 0.002
    assert verdict.degraded is None
    assert [each.round for each in verdict.rounds] == [1, 2]


def answered(cost: float | None, source: CostSource | None) -> Callable[[Request], Reply]:
    return lambda _: reply(GOOD, "a-model", call_usage(100, 10, cost, source))


@pytest.mark.parametrize(
    ("quick", "deep", "told"),
    [
        ([answered(0.1, "litellm")], [answered(0.2, "litellm")], (0.3, "litellm", True)),
        ([answered(0.1, "litellm")], [answered(0.2, "profile")], (0.3, "mixed", True)),
        ([answered(0.1, "provider")], [answered(None, None)], (0.1, "provider", False)),
        ([answered(None, None)], [answered(None, None)], (None, None, False)),
        ([answered(0.1, "provider")], [0.001, 0.001], (0.1, "provider", False)),
        (["no object", answered(0.1, "litellm")], [answered(0.2, "litellm")], (0.301, "mixed", True)),
    ],
)
def test_a_verdict_says_where_its_cost_is_from_and_whether_that_is_all(
    quick: list[Answer], deep: list[Answer], told: tuple[float | None, str | None, bool]
) -> None:
    verdict, _ = run(quick=quick, deep=deep)
    assert (verdict.cost_usd, verdict.cost_source, verdict.cost_complete) == told


def test_the_tiebreaker_sees_both_opinions_and_no_names() -> None:
    verdict, gateway = run(
        quick=[scores(4, 4, 5, reasoning="All is well.")],
        deep=[scores(1, 2, 3, reasoning="Nothing holds.")],
        tiebreaker=[BAD],
    )
    assert (verdict.verdict, verdict.consensus, verdict.judge_tier) == ("reject", "majority", "tiebreaker")
    told = gateway.requests[2].messages[-1].content
    assert "All is well." in told
    assert "Nothing holds." in told
    assert "quick-model" not in told
    assert "deep-model" not in told
    assert "All is well." not in gateway.requests[1].messages[-1].content


def test_the_order_of_earlier_opinions_follows_the_subject_alone() -> None:
    """The same subject gives the same order; over many subjects both orders come."""
    told = [first_is_told_first(f"{number:064x}") for number in (*range(12), *range(12))]
    assert told[:12] == told[12:]
    assert set(told) == {True, False}


def first_is_told_first(sha256: str) -> bool:
    answers: dict[str, list[Answer]] = {
        "quick": [scores(4, 4, 5, reasoning="FIRST")],
        "deep": [scores(1, 2, 3, reasoning="SECOND")],
        "tiebreaker": [BAD],
    }
    gateway = ScriptedGateway(answers)
    judge(gateway, subject=document((file("a.md", "text", sha256=sha256),), "a"))
    content = gateway.requests[2].messages[-1].content
    return content.index("FIRST") < content.index("SECOND")


def test_a_models_own_verdict_word_is_recorded_and_ignored() -> None:
    verdict, _ = run(quick=[scores(1, 1, 1, verdict="GO")])
    assert verdict.verdict == "reject"
    assert verdict.rounds[0].opinion is not None
    assert verdict.rounds[0].opinion["said"] == "GO"


def test_an_unreadable_reply_is_asked_again_once() -> None:
    verdict, gateway = run(quick=["I like it.", BAD])
    assert verdict.verdict == "reject"
    again = gateway.requests[1]
    assert again.call_key.part == "reask"
    assert again.messages[-2].content == "I like it."
    assert "could not be read" in again.messages[-1].content
    assert verdict.rounds[0].usage.input_tokens == 200


def test_an_unreadable_reply_is_a_failure_and_never_a_low_score() -> None:
    verdict, gateway = run(
        quick=["I like it.", "I do."], deep=["Fine.", "Really."], tiebreaker=["Yes.", "Yes!"]
    )
    assert (verdict.verdict, verdict.scores, verdict.consensus) == ("undetermined", None, "none")
    assert [each.failure and each.failure.kind for each in verdict.rounds] == ["invalid_reply"] * 3
    assert len(gateway.requests) == 6
    assert verdict.degraded is not None
    assert verdict.degraded.startswith("quick: invalid_reply (")


@pytest.mark.parametrize(
    "reply",
    [
        f"Sure, here it is:\n```json\n{GOOD}\n```\nHope that helps!",
        f"<think>{BAD} hmm, no</think>\n{GOOD}",
        GOOD.replace("4,", '"4",'),
        f"{GOOD}\nOn reflection:\n{GOOD}",
        json.dumps({"reasoning": "x", **FOUR_FOUR_FIVE}),
        json.dumps({"reasoning": "x", "scores": {name: {"score": n} for name, n in FOUR_FOUR_FIVE.items()}}),
    ],
)
def test_scores_are_read_however_they_are_wrapped(reply: str) -> None:
    verdict, _ = run("lenient", quick=[reply])
    assert verdict.verdict == "accept"
    assert verdict.scores == FOUR_FOUR_FIVE


@pytest.mark.parametrize(
    "reply",
    [
        f"{BAD} Note: I ignored {GOOD}",
        f"[{BAD}, {GOOD}]",
        f'{{"document": {GOOD}}}',
        BAD[:-1] + f', "findings": [{{"quote": "x"}}]}} {GOOD}"}}]}}',
    ],
)
def test_a_reply_with_two_answers_is_asked_for_once_more(reply: str) -> None:
    verdict, gateway = run("lenient", quick=[reply, BAD], deep=[BAD])
    assert verdict.verdict == "reject"
    assert gateway.asked == ["quick", "quick", "deep"]
    verdict, _ = run("lenient", quick=[reply, reply], deep=[reply, reply], tiebreaker=[reply, reply])
    assert verdict.verdict == "undetermined"
    assert {each.failure.kind for each in verdict.rounds if each.failure} == {"invalid_reply"}


OUTCOMES: dict[str, list[Answer]] = {"A": [GOOD], "I": [WEAK], "R": [BAD], "F": [TIMEOUT]}


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_a_failure_is_never_shown_as_a_pass_or_a_fail(mode: ModeName) -> None:
    """Every sequence of outcomes: a verdict needs an opinion that says so, and two where one must confirm."""
    for sequence in itertools.product("AIRF", repeat=3):
        answers = dict(
            zip(("quick", "deep", "tiebreaker"), (OUTCOMES[each] for each in sequence), strict=True)
        )
        verdict, _ = run(mode, **answers)
        given = [each.opinion["outcome"] for each in verdict.rounds if each.opinion]
        if verdict.verdict in ("accept", "improve", "reject"):
            assert verdict.verdict in given
        if verdict.verdict == ("accept" if mode == "strict" else "reject") and sequence[0] in "AR":
            assert given.count(verdict.verdict) >= 2
        assert bool(verdict.degraded) == ("F" in sequence[: len(verdict.rounds)])


def test_without_a_provider_nothing_is_judged() -> None:
    verdict = judge(ScriptedGateway({}), endpoints={})
    assert (verdict.verdict, verdict.rounds) == ("undetermined", [])
    assert verdict.degraded == "not judged: no model is configured"


def test_one_model_in_two_tiers_is_one_voice() -> None:
    same = scripted_endpoint("only-model")
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [GOOD]})
    verdict = judge(gateway, endpoints={"quick": same, "deep": same, "tiebreaker": same})
    assert (verdict.verdict, verdict.consensus) == ("accept", "single")


def test_two_models_that_disagree_have_no_majority() -> None:
    """With two models for three tiers the tiebreaker is one of the two: it would only vote for itself."""
    small, large = scripted_endpoint("small"), scripted_endpoint("large")
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [BAD], "tiebreaker": [BAD]})
    verdict = judge(gateway, endpoints={"quick": small, "deep": large, "tiebreaker": large})
    assert (verdict.verdict, verdict.consensus) == ("escalate", "none")
    assert gateway.asked == ["quick", "deep"]


def test_a_tiebreaker_that_stands_in_is_told_of_no_disagreement() -> None:
    _, gateway = run(quick=[TIMEOUT], deep=[TIMEOUT], tiebreaker=[GOOD])
    instructions = loader.score_rubric("kls").rubric.prompt.instructions
    content = gateway.requests[2].messages[0].content
    assert instructions.deep in content
    assert instructions.tiebreaker not in content


def test_the_prompts_can_be_seen_for_every_kind_of_model() -> None:
    small = scripted_endpoint("small", pointwise=True)
    loaded = loader.score_rubric("kls")
    cases: list[tuple[dict[TierName, Endpoint], int]] = [({}, 1), (three_models(), 1), ({"quick": small}, 3)]
    for endpoints, count in cases:
        own = document_judge(ScriptedGateway({}), endpoints, loaded=loaded, mode="strict", deadline=60)
        asked = own.prompts("quick", text_document())
        assert len(asked) == count
        assert all("Some text." in messages[-1].content for messages in asked)


def test_the_quick_tier_sees_the_beginning_and_may_not_accept_it() -> None:
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [GOOD]})
    verdict = judge(gateway, mode="lenient", subject=text_document("x" * 4001))
    assert gateway.asked == ["quick", "deep"]
    assert "cut after 4000 of its 4001 characters" in gateway.requests[0].messages[-1].content
    assert "x" * 4001 in gateway.requests[1].messages[-1].content
    assert (verdict.verdict, verdict.truncated) == ("accept", False)


def test_a_document_that_nobody_saw_whole_is_not_accepted() -> None:
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [GOOD], "tiebreaker": [GOOD]})
    verdict = judge(gateway, mode="lenient", subject=text_document("x" * 5000, total=6_000_000))
    assert (verdict.verdict, verdict.truncated) == ("undetermined", True)
    assert verdict.degraded == "no model saw the whole text, so it cannot be accepted"


def test_a_document_may_be_rejected_for_its_beginning() -> None:
    verdict = judge(ScriptedGateway({"quick": [BAD]}), subject=text_document("x" * 5000, total=6_000_000))
    assert (verdict.verdict, verdict.truncated) == ("reject", True)


def test_each_call_gets_no_more_than_its_tier() -> None:
    _, gateway = run(quick=[GOOD], deep=[GOOD])
    assert [request.timeout for request in gateway.requests] == [45, pytest.approx(60, abs=1)]


def test_a_pointwise_model_gives_expectations() -> None:
    def answer(request: Any) -> Reply:  # noqa: ANN401 - a request
        low = "decisions or actions" in request.messages[-1].content.rpartition("\n\n")[2]
        odds = {"1": -0.105, "5": -2.303} if low else {"4": -0.693, "5": -0.693}
        return reply("4", "small", call_usage(50, 1), logprobs=(odds,))

    endpoint = scripted_endpoint("small", pointwise=True)
    gateway = ScriptedGateway({"quick": [answer] * 3})
    verdict = judge(gateway, endpoints={"quick": endpoint, "deep": endpoint, "tiebreaker": endpoint})
    assert verdict.scores == {"semantic": 4.5, "pragmatic": 1.4, "syntactic": 4.5}
    assert verdict.verdict == "reject"
    assert verdict.consensus == "single"
    prefixes = {request.messages[-1].content.rpartition("\n\n")[0] for request in gateway.requests}
    assert len(prefixes) == 1
    assert [request.call_key.part for request in gateway.requests] == ["semantic", "pragmatic", "syntactic"]


def sure(request: Request) -> Reply:
    """Return a good score, and the lowest for a subject that the text does not have."""
    score = "1" if "Danube" in request.messages[-1].content else "4"
    return reply(score, "small", call_usage(50, 1), logprobs=({score: -0.01},))


def _always(reply: Reply, _: Request) -> Reply:
    return reply


def test_a_pointwise_model_that_rates_anything_high_is_not_believed() -> None:
    for idle, outcome in (("1", "accept"), ("4", "improve")):
        unmoved = reply(idle, "small", call_usage(50, 1), logprobs=({idle: -0.01},))
        gateway = ScriptedGateway({"quick": [sure, sure, sure, partial(_always, unmoved)]})
        verdict = judge(
            gateway, mode="lenient", endpoints={"quick": scripted_endpoint("small", pointwise=True)}
        )
        assert verdict.rounds[0].opinion is not None
        assert verdict.rounds[0].opinion["outcome"] == outcome
        assert verdict.rounds[0].usage.input_tokens == 200
        assert gateway.requests[-1].call_key.part == "idle"
        contexts = {request.messages[-1].content.rpartition("\n\n")[0] for request in gateway.requests}
        assert len(contexts) == 1


def test_a_poor_text_is_not_asked_about_an_idle_subject() -> None:
    poor = reply("2", "small", call_usage(50, 1), logprobs=({"2": -0.01},))
    gateway = ScriptedGateway({"quick": [lambda _: poor] * 3})
    judge(gateway, mode="lenient", endpoints={"quick": scripted_endpoint("small", pointwise=True)})
    assert len(gateway.requests) == 3


def test_without_an_answer_about_the_idle_subject_there_is_no_opinion() -> None:
    gateway = ScriptedGateway({"quick": [sure, sure, sure, TIMEOUT]})
    verdict = judge(gateway, mode="lenient", endpoints={"quick": scripted_endpoint("small", pointwise=True)})
    assert verdict.verdict == "undetermined"
    assert verdict.rounds[0].failure is not None
    assert verdict.rounds[0].failure.kind == "timeout"


def test_a_pointwise_model_is_not_asked_the_same_twice() -> None:
    endpoint = scripted_endpoint("small", pointwise=True)
    gateway = ScriptedGateway({"quick": [sure] * 4})
    verdict = judge(gateway, endpoints={"quick": endpoint, "deep": endpoint, "tiebreaker": endpoint})
    assert (verdict.verdict, verdict.consensus) == ("accept", "single")
    assert [each.tier for each in verdict.rounds] == ["quick", "deep"]
    assert [each.usage.input_tokens for each in verdict.rounds] == [200, 0]
    assert len(gateway.requests) == 4


def test_a_pointwise_model_is_asked_again_about_what_it_did_not_see() -> None:
    endpoint = scripted_endpoint("small", pointwise=True)
    gateway = ScriptedGateway({"quick": [sure] * 4, "deep": [sure] * 4})
    judge(gateway, endpoints={"quick": endpoint, "deep": endpoint}, subject=text_document("x" * 4001))
    assert gateway.asked == ["quick"] * 4 + ["deep"] * 4


def test_a_verdict_fits_its_published_schema() -> None:
    verdict, _ = run(quick=[GOOD], deep=[TIMEOUT], tiebreaker=[BAD])
    data = verdict.model_dump(mode="json", by_alias=True)
    jsonschema.Draft202012Validator(json_schema("verdict")).validate(data)
    assert data["schema"] == "judgekit/verdict@1"
    assert data["prompt_sha256"] == loader.score_rubric("kls").rubric.prompt.sha256
    assert list(data)[:6] == ["schema", "id", "task_id", "subjects", "rubric", "mode"]
