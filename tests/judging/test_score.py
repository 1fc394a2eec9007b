"""The task `score`, from opinions to a verdict: tiers, juries, samples, small models."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from making import call_usage, document, document_judge, file, judge_options, reply
from scripted import PROFILE, ByModel, ScriptedGateway, of_family, scores, scripted_endpoint, three_models

from judgekit.cli.schema import json_schema
from judgekit.errors import FailureKind, GatewayError
from judgekit.judging.fence import without_nonce
from judgekit.providers.registry import Limits
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scripted import Answer

    from judgekit.config import ModeName, TierName
    from judgekit.errors import CostSource
    from judgekit.judging.documents import Document
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, PanelModels, Reply, Request

FOUR_FOUR_FIVE = {"semantic": 4, "pragmatic": 4, "syntactic": 5}
GOOD, WEAK, BAD = scores(4, 4, 5), scores(3, 3, 2), scores(1, 2, 3)
TIMEOUT = GatewayError(FailureKind.TIMEOUT, "no answer in 45 s")
INSTRUCTIONS = loader.score_rubric("kls").rubric.prompt.instructions
Answers = dict[str, "Answer"]


def text_document(text: str = "Some text.", total: int | None = None, sha256: str = "ab" * 32) -> Document:
    return document((file("docs/a.md", text, sha256=sha256, total=total or len(text)),), "docs/a.md@abab")


def judge(
    gateway: ScriptedGateway | ByModel,
    *,
    mode: ModeName = "strict",
    panel: PanelModels | None = None,
    subject: Document | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> Verdict:
    options.setdefault("deadline", 60)
    own = document_judge(gateway, three_models() if panel is None else panel, mode=mode, **options)
    return asyncio.run(own.judge(subject or text_document()))


def run(mode: ModeName = "strict", **answers: list[Answer]) -> tuple[Verdict, ScriptedGateway]:
    gateway = ScriptedGateway(answers)
    return judge(gateway, mode=mode), gateway


def ended(verdict: Verdict) -> tuple[str, str, str | None]:
    return verdict.verdict, verdict.consensus, verdict.judge_tier


def failures(verdict: Verdict) -> list[str | None]:
    return [own.failure.kind if own.failure else None for own in verdict.rounds]


def test_a_confirmed_acceptance() -> None:
    verdict, gateway = run(quick=[GOOD], deep=[scores(4, 4, 4, reasoning="Sound.")])
    assert ended(verdict) == ("accept", "unanimous", "deep")
    assert verdict.scores == {"semantic": 4, "pragmatic": 4, "syntactic": 4}
    assert (verdict.average, verdict.reasoning, verdict.model) == (4.0, "Sound.", "deep-model")
    assert (verdict.cost_usd, verdict.degraded) == (0.002, None)
    assert [own.round for own in verdict.rounds] == [1, 2]
    # Each call gets no more seconds than its tier.
    assert [own.timeout for own in gateway.requests] == [45, pytest.approx(60, abs=1)]


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


def test_the_tiebreaker_sees_both_opinions_and_no_names_in_an_order_by_the_subject_alone() -> None:
    """The same subject gives the same order; over many subjects both orders come."""
    first = []
    for number in (*range(12), *range(12)):
        quick, deep = scores(4, 4, 5, reasoning="All is well."), scores(1, 2, 3, reasoning="Nothing holds.")
        gateway = ScriptedGateway({"quick": [quick], "deep": [deep], "tiebreaker": [BAD]})
        verdict = judge(gateway, subject=text_document(sha256=f"{number:064x}"))
        assert ended(verdict) == ("reject", "majority", "tiebreaker")
        told = gateway.requests[2].messages[-1].content
        assert "quick-model" not in told
        assert "deep-model" not in told
        assert "All is well." not in gateway.requests[1].messages[-1].content
        first.append(told.index("All is well.") < told.index("Nothing holds."))
    assert first[:12] == first[12:]
    assert set(first) == {True, False}


def test_a_tiebreaker_that_stands_in_is_told_of_no_disagreement() -> None:
    _, gateway = run(quick=[TIMEOUT], deep=[TIMEOUT], tiebreaker=[GOOD])
    content = gateway.requests[2].messages[0].content
    assert (INSTRUCTIONS.deep in content, INSTRUCTIONS.tiebreaker in content) == (True, False)


def test_a_models_own_verdict_word_is_recorded_and_ignored() -> None:
    verdict, _ = run(quick=[scores(1, 1, 1, verdict="GO")])
    assert verdict.verdict == "reject"
    assert verdict.rounds[0].opinion is not None
    assert verdict.rounds[0].opinion["said"] == "GO"


def test_an_unreadable_reply_is_asked_again_once_and_never_a_low_score() -> None:
    verdict, gateway = run(quick=["I like it.", BAD])
    again = gateway.requests[1]
    assert (verdict.verdict, again.call_key.part) == ("reject", "reask")
    assert again.messages[-2].content == "I like it."
    assert "could not be read" in again.messages[-1].content
    assert verdict.rounds[0].usage.input_tokens == 200
    unread: list[Answer] = ["I like it.", "I do."]
    verdict, gateway = run(quick=unread, deep=unread, tiebreaker=unread)
    assert (ended(verdict), verdict.scores) == (("undetermined", "none", None), None)
    assert (failures(verdict), len(gateway.requests)) == (["invalid_reply"] * 3, 6)
    assert str(verdict.degraded).startswith("quick, deep, tiebreaker: invalid_reply (")


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
    assert (verdict.verdict, verdict.scores) == ("accept", FOUR_FOUR_FIVE)


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
    assert (verdict.verdict, gateway.asked) == ("reject", ["quick", "quick", "deep"])
    verdict, _ = run("lenient", quick=[reply, reply], deep=[reply, reply], tiebreaker=[reply, reply])
    assert (verdict.verdict, set(failures(verdict))) == ("undetermined", {"invalid_reply"})


OUTCOMES: dict[str, list[Answer]] = {"A": [GOOD], "I": [WEAK], "R": [BAD], "F": [TIMEOUT]}


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_a_failure_is_never_shown_as_a_pass_or_a_fail(mode: ModeName) -> None:
    """Every sequence of outcomes: a verdict needs an opinion that says so, and two where one must confirm."""
    for sequence in itertools.product("AIRF", repeat=3):
        answers = dict(zip(three_models(), (OUTCOMES[letter] for letter in sequence), strict=True))
        verdict, _ = run(mode, **answers)
        given = [own.opinion["outcome"] for own in verdict.rounds if own.opinion]
        if verdict.verdict in ("accept", "improve", "reject"):
            assert verdict.verdict in given
        if verdict.verdict == ("accept" if mode == "strict" else "reject") and sequence[0] in "AR":
            assert given.count(verdict.verdict) >= 2
        assert bool(verdict.degraded) == ("F" in sequence[: len(verdict.rounds)])


def test_without_a_provider_nothing_is_judged() -> None:
    verdict = judge(ScriptedGateway({}), panel={})
    assert (verdict.verdict, verdict.rounds) == ("undetermined", [])
    assert verdict.degraded == "not judged: no model is configured"


def test_one_model_in_two_tiers_is_one_voice() -> None:
    same, small = scripted_endpoint("only-model"), scripted_endpoint("small")
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [GOOD]})
    verdict = judge(gateway, panel={"quick": same, "deep": same, "tiebreaker": same})
    assert (verdict.verdict, verdict.consensus) == ("accept", "single")
    # Of two models for three tiers the tiebreaker is one of the two: it would only vote for itself.
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [BAD], "tiebreaker": [BAD]})
    verdict = judge(gateway, panel={"quick": small, "deep": same, "tiebreaker": same})
    assert (ended(verdict), gateway.asked) == (("escalate", "none", None), ["quick", "deep"])


SMALL = scripted_endpoint("small", pointwise=True)
ALONE: dict[TierName, Endpoint] = {"quick": SMALL}


def test_the_prompts_can_be_seen_for_every_kind_of_model() -> None:
    cases: list[tuple[dict[TierName, Endpoint], int]] = [({}, 1), (three_models(), 1), (ALONE, 3)]
    for panel, count in cases:
        asked = document_judge(ScriptedGateway({}), panel, mode="strict").prompts("quick", text_document())
        assert len(asked) == count
        assert all("Some text." in messages[-1].content for messages in asked)


@pytest.mark.parametrize(
    ("answers", "mode", "total", "verdict", "truncated", "degraded"),
    [
        # The quick tier sees the beginning and may not accept it.
        ({"quick": [GOOD], "deep": [GOOD]}, "lenient", None, "accept", False, None),
        (
            {"quick": [GOOD], "deep": [GOOD]},
            "lenient",
            6_000_000,
            "undetermined",
            True,
            "no model saw the whole text, so it cannot be accepted",
        ),
        ({"quick": [BAD]}, "strict", 6_000_000, "reject", True, None),  # but it may be rejected
    ],
)
def test_a_cut_document(
    answers: dict[str, list[Answer]],
    mode: ModeName,
    total: int | None,
    verdict: str,
    truncated: bool,  # noqa: FBT001 - a column
    degraded: str | None,
) -> None:
    gateway = ScriptedGateway(answers)
    found = judge(gateway, mode=mode, subject=text_document("x" * 5000, total))
    assert gateway.asked == list(answers)
    if total is None:
        assert "cut after 4000 of its 5000 characters" in gateway.requests[0].messages[-1].content
        assert "x" * 5000 in gateway.requests[1].messages[-1].content
    assert (found.verdict, found.truncated, found.degraded) == (verdict, truncated, degraded)


def test_a_verdict_fits_its_published_schema() -> None:
    verdict, _ = run(quick=[GOOD], deep=[TIMEOUT], tiebreaker=[BAD])
    data = verdict.model_dump(mode="json", by_alias=True)
    jsonschema.Draft202012Validator(json_schema("verdict")).validate(data)
    assert data["schema"] == "judgekit/verdict@1"
    assert data["prompt_sha256"] == loader.score_rubric("kls").rubric.prompt.sha256
    assert list(data)[:6] == ["schema", "id", "task_id", "subjects", "rubric", "mode"]


# --- small models


def rated(score: str) -> Reply:
    return reply(score, "small", call_usage(50, 1), logprobs=({score: -0.01},))


def sure(request: Request) -> Reply:
    """Return a good score, and the lowest for a subject that the text does not have."""
    return rated("1" if "Danube" in request.messages[-1].content else "4")


def contexts(gateway: ScriptedGateway) -> set[str]:
    return {request.messages[-1].content.rpartition("\n\n")[0] for request in gateway.requests}


def test_a_pointwise_model_gives_expectations() -> None:
    def answer(request: Request) -> Reply:
        low = "decisions or actions" in request.messages[-1].content.rpartition("\n\n")[2]
        odds = {"1": -0.105, "5": -2.303} if low else {"4": -0.693, "5": -0.693}
        return reply("4", "small", call_usage(50, 1), logprobs=(odds,))

    gateway = ScriptedGateway({"quick": [answer] * 3})
    verdict = judge(gateway, panel=dict.fromkeys(three_models(), SMALL))
    assert verdict.scores == {"semantic": 4.5, "pragmatic": 1.4, "syntactic": 4.5}
    assert (verdict.verdict, verdict.consensus, len(contexts(gateway))) == ("reject", "single", 1)
    assert [request.call_key.part for request in gateway.requests] == ["semantic", "pragmatic", "syntactic"]


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (lambda _: rated("1"), "accept"),
        (lambda _: rated("4"), "improve"),  # what rates anything high is not believed
        (TIMEOUT, None),
    ],
)
def test_what_a_pointwise_model_would_accept_is_weighed_against_an_idle_subject(
    last: Answer, outcome: str | None
) -> None:
    gateway = ScriptedGateway({"quick": [sure, sure, sure, last]})
    verdict = judge(gateway, mode="lenient", panel=ALONE)
    (own,) = verdict.rounds
    assert (own.opinion and own.opinion["outcome"]) == outcome
    assert (failures(verdict), verdict.verdict) == (
        (["timeout"], "undetermined") if outcome is None else ([None], outcome)
    )
    assert own.usage.input_tokens == (200 if outcome else 150)
    assert (gateway.requests[-1].call_key.part, len(contexts(gateway))) == ("idle", 1)
    poor = ScriptedGateway({"quick": [lambda _: rated("2")] * 3})  # nothing to weigh
    judge(poor, mode="lenient", panel=ALONE)
    assert len(poor.requests) == 3


def test_a_pointwise_model_is_not_asked_the_same_twice_but_about_what_it_did_not_see() -> None:
    gateway = ScriptedGateway({"quick": [sure] * 4})
    verdict = judge(gateway, panel=dict.fromkeys(three_models(), SMALL))
    assert (verdict.verdict, verdict.consensus, len(gateway.requests)) == ("accept", "single", 4)
    rounds = [(own.tier, own.usage.input_tokens) for own in verdict.rounds]
    assert rounds == [("quick", 200), ("deep", 0)]
    gateway = ScriptedGateway({"quick": [sure] * 4, "deep": [sure] * 4})
    judge(gateway, panel={"quick": SMALL, "deep": SMALL}, subject=text_document("x" * 4001))
    assert gateway.asked == ["quick"] * 4 + ["deep"] * 4


# --- juries


def sat(answers: Answers, *tiers: str, **options: Any) -> tuple[Verdict, ByModel]:  # noqa: ANN401 - passed on
    """Judge with a jury in each tier, by the names of its models; "" leaves a tier out."""
    gateway = ByModel(answers)
    named: Mapping[TierName, str] = dict(zip(three_models(), tiers, strict=False))
    panel = {tier: tuple(map(of_family, models)) for tier, models in named.items() if models}
    return judge(gateway, panel=panel, **options), gateway


SPLIT = scores(1, 4, 4)


@pytest.mark.parametrize(
    ("answers", "tiers", "asked", "end"),
    [
        (dict.fromkeys("abcd", GOOD), ["abc", "d"], "abcd", ("accept", "unanimous", "deep")),
        # A jury that agrees is unanimous by itself.
        ({"a": SPLIT, "b": scores(1, 2, 2)}, ["ab", "d"], "ab", ("reject", "unanimous", "quick")),
        # Strict lets a quick rejection stand; one that divides the jury does not.
        ({"a": SPLIT, "b": SPLIT, "c": GOOD, "d": GOOD}, ["abc", "d"], "abcd", ("accept", "single", "deep")),
        # One that fails does not spoil the others; a tier of which most fail has failed.
        ({"a": GOOD, "b": TIMEOUT, "c": GOOD}, ["", "abc"], "abc", ("accept", "unanimous", "deep")),
        ({"a": GOOD, "b": TIMEOUT, "c": TIMEOUT}, ["", "abc"], "abc", ("undetermined", "none", None)),
        ({"a": GOOD, "b": TIMEOUT, "c": "No."}, ["", "abc"], "abcc", ("undetermined", "none", None)),
    ],
)
def test_a_jury(answers: Answers, tiers: list[str], asked: str, end: tuple[str, str, str | None]) -> None:
    verdict, gateway = sat(answers, *tiers)
    assert ended(verdict) == end
    assert sorted(gateway.asked) == sorted(asked)
    assert gateway.most == max(map(len, tiers))  # all models of a tier at once
    rounds = [(own.round, own.model) for own in verdict.rounds]
    assert rounds == [(number, model) for number, model in enumerate(dict.fromkeys(asked), 1)]
    failed = [own.model for own in verdict.rounds if own.failure]
    assert failed == [model for model, answer in answers.items() if answer is TIMEOUT or answer == "No."]
    deciding = [own.model for own in verdict.rounds if own.tier == end[2] and own.opinion]
    assert verdict.model == (", ".join(deciding) or None)
    assert (verdict.scores is None) == (end[2] is None)


def test_the_scores_of_a_jury_are_the_mean() -> None:
    verdict, _ = sat({"a": SPLIT, "b": scores(1, 2, 2)}, "ab", "d")
    assert verdict.scores == {"semantic": 1, "pragmatic": 3, "syntactic": 3}
    failed, _ = sat({"a": GOOD, "b": TIMEOUT, "c": GOOD}, "", "abc")
    assert failed.degraded == "deep: timeout (no answer in 45 s)"


def test_a_limit_of_cost_asks_one_after_another_and_stops() -> None:
    verdict, gateway = sat(dict.fromkeys("abc", GOOD), "abc", max_cost_usd=0.002, mode="lenient")
    assert (gateway.most, gateway.asked) == (1, ["a", "b"])
    assert (verdict.verdict, verdict.consensus) == ("accept", "unanimous")
    assert failures(verdict) == [None, None, "budget"]


def test_the_tiebreaker_is_shown_every_opinion_that_counted_in_whatever_order_a_jury_is_named() -> None:
    answers: Answers = {
        **{
            name: scores(*values, reasoning=f"FROM {name}")
            for name, values in {"a": (4, 4, 5), "b": (5, 5, 5), "c": (4, 5, 5), "d": (1, 1, 1)}.items()
        },
        "e": BAD,
    }
    told = []
    for quick in ("abc", "cba", "bac"):
        verdict, gateway = sat(answers, quick, "d", "e")
        assert ended(verdict) == ("reject", "majority", "tiebreaker")
        (asked,) = [request for model, request in gateway.requests if model == "e"]
        told.append([without_nonce(message.content) for message in asked.messages])
    assert all(f"FROM {name}" in told[0][-1] for name in "abcd")
    assert told[0] == told[1] == told[2]


def test_a_margin_sends_close_scores_up() -> None:
    answers: Answers = {"a": scores(1, 3, 3), "b": GOOD, "c": GOOD}  # one point below what rejects
    for margin, asked in ((0.0, "a"), (1.0, "a"), (1.5, "abc")):
        verdict, gateway = sat(answers, *"abc", options=judge_options(margin=margin))
        assert (verdict.verdict, "".join(gateway.asked)) == ("accept" if asked == "abc" else "reject", asked)


# --- several replies, and a call for each dimension


def drawn(request: Request) -> str:
    """Answer 3, 4, 5, 3 … on one dimension, by the number of the sample."""
    return scores(2 + request.sample % 3 + 1, 4, 4, reasoning=f"Sample {request.sample}.")


def test_samples_are_averaged_and_stand_in_one_round() -> None:
    verdict, gateway = sat({"a": drawn}, "", "a", options=judge_options(samples=4))
    requests = [request for _, request in gateway.requests]
    assert [request.sample for request in requests] == [1, 2, 3, 4]
    assert [request.call_key.part for request in requests] == ["sample1", "sample2", "sample3", "sample4"]
    assert (gateway.most, verdict.scores) == (4, {"semantic": 4, "pragmatic": 4, "syntactic": 4})
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

    judged, gateway = sat({"a": answer}, "", "a", options=judge_options(samples=3))
    opinion = judged.rounds[0].opinion
    assert (judged.verdict, opinion and opinion["samples"]) == (verdict, counted)
    parts = [request.call_key.part for _, request in gateway.requests]
    assert sorted(part for part in parts if part.endswith("reask")) == [
        f"sample{at}/reask" for at in sorted(failing)
    ]


def test_a_local_server_is_asked_for_one_sample_at_a_time() -> None:
    modest = of_family("a", profile=PROFILE.model_copy(update={"limits": Limits(concurrency=1)}))
    gateway = ByModel({"a": drawn})
    judge(gateway, panel={"deep": modest}, options=judge_options(samples=3, each=True))
    assert (gateway.most, len(gateway.requests)) == (1, 9)


def alone_on(value: int = 0) -> Callable[[Request], str]:
    """Answer about the one dimension that is asked about."""

    def answer(request: Request) -> str:
        (name,) = request.schema["properties"]["scores"]["properties"]  # type: ignore[index]  # there is one
        score = value or {"semantic": 4, "pragmatic": 5, "syntactic": 3}[name]
        found = {"dimension": "", "location": "", "issue": f"{name} issue", "suggestion": "", "quote": ""}
        return json.dumps({"reasoning": f"About {name}.", "scores": {name: score}, "findings": [found]})

    return answer


def test_each_dimension_may_have_a_call_of_its_own() -> None:
    names = ["semantic", "pragmatic", "syntactic"]
    verdict, gateway = sat({"a": alone_on()}, "", "a", options=judge_options(each=True))
    assert [request.call_key.part for _, request in gateway.requests] == names
    assert (gateway.most, len(verdict.rounds), verdict.verdict) == (3, 1, "accept")
    assert verdict.scores == {"semantic": 4, "pragmatic": 5, "syntactic": 3}
    assert verdict.reasoning == "\n".join(f"{name}: About {name}." for name in names)
    findings = [(finding.dimension, finding.issue) for finding in verdict.findings]
    assert findings == [(name, f"{name} issue") for name in names]
    shown = [
        "- semantic:" in "".join(own.content for own in request.messages) for _, request in gateway.requests
    ]
    assert shown == [True, False, False]


def test_a_dimension_that_fails_fails_the_round() -> None:
    def answer(request: Request) -> str:
        text = "".join(message.content for message in request.messages)
        return "No." if "- pragmatic:" in text else alone_on()(request)

    verdict, gateway = sat({"a": answer}, "", "a", options=judge_options(each=True))
    assert (verdict.verdict, verdict.scores, failures(verdict)) == ("undetermined", None, ["invalid_reply"])
    assert "pragmatic/reask" in [request.call_key.part for _, request in gateway.requests]


def test_the_tiebreaker_is_told_earlier_scores_of_its_dimension_alone() -> None:
    answers: Answers = {"a": alone_on(4), "b": alone_on(1), "c": alone_on(4)}
    verdict, gateway = sat(answers, *"abc", options=judge_options(each=True))
    assert ended(verdict) == ("accept", "majority", "tiebreaker")
    told = [request.messages[-1].content for model, request in gateway.requests if model == "c"]
    assert ["semantic 1" in text and "pragmatic 1" not in text for text in told] == [True, False, False]
