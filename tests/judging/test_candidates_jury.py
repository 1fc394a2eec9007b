"""Several models in a tier, several replies, and a call for each criterion, about candidates."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from making import call_usage, candidate_judge, judge_options, prompt_candidate, query, reply
from scripted import ByModel, keep, labels, of_family

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import pointwise
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripted import Answer

    from judgekit.judging.verdict import Selection
    from judgekit.providers.base import Endpoint, Reply, Request

CANDIDATES = [
    prompt_candidate(name, f"Title {name}", category="DECISION", tags=("x",), text=f"Body {name}")
    for name in "abc"
]
A, B, C = (f"Title {name}" for name in "abc")
DOWN = GatewayError(FailureKind.TIMEOUT, "no answer in 3 s")
Answers = dict[str, "Answer"]


def judge(
    tiers: dict[Any, list[Endpoint]],
    answers: Answers,
    rubric: str = "memory-relevance",
    **options: Any,  # noqa: ANN401 - passed on
) -> tuple[dict[str, str], Selection, ByModel]:
    gateway = ByModel(answers)
    mode = options.pop("mode", "strict")
    own = candidate_judge(gateway, tiers, loaded=loader.select_rubric(rubric), mode=mode, **options)
    selection = asyncio.run(own.select(query("How do we refresh the JWT?"), CANDIDATES))
    return {decision.id: decision.decision for decision in selection.decisions}, selection, gateway


def test_a_jury_decides_about_each_candidate_and_only_the_divided_go_up() -> None:
    tiers = {"quick": [of_family("m"), of_family("n")], "deep": [of_family("o")]}
    answers: Answers = {"m": keep(A, B), "n": keep(A), "o": keep(B)}
    decided, selection, gateway = judge(tiers, answers, mode="lenient")
    assert decided == {"a": "kept", "b": "kept", "c": "dropped"}
    assert [decision.tier for decision in selection.decisions] == ["quick", "deep", "deep"]
    assert [(each.round, each.tier, each.model) for each in selection.rounds] == [
        (1, "quick", "m"),
        (2, "quick", "n"),
        (3, "deep", "o"),
    ]
    assert A not in gateway.requests[-1][1].messages[-1].content


def test_most_of_the_last_jury_decide_and_half_of_it_does_not() -> None:
    three = {"quick": [of_family("m"), of_family("n"), of_family("o")]}
    decided, _, _ = judge(three, {"m": keep(A, B), "n": keep(A), "o": keep(A)})
    assert decided == {"a": "kept", "b": "dropped", "c": "dropped"}
    two = {"quick": [of_family("m"), of_family("n")]}
    decided, selection, _ = judge(two, {"m": keep(A, B), "n": keep(A)})
    assert decided == {"a": "kept", "b": "undetermined", "c": "dropped"}
    assert selection.decisions[1].tier is None


def test_a_juror_that_fails_does_not_spoil_the_others_but_most_must_answer() -> None:
    three = {"quick": [of_family("m"), of_family("n"), of_family("o")]}
    decided, selection, _ = judge(three, {"m": keep(A), "n": DOWN, "o": keep(A)})
    assert decided == {"a": "kept", "b": "dropped", "c": "dropped"}
    assert [each.failure and each.failure.kind for each in selection.rounds] == [None, "timeout", None]
    decided, selection, _ = judge(three, {"m": keep(A), "n": DOWN, "o": DOWN})
    assert set(decided.values()) == {"undetermined"}
    assert selection.degraded == "quick: timeout (no answer in 3 s)"


def leaning(yes: float) -> Callable[[Request], Reply]:
    """Answer yes with a probability, as a model with token probabilities does; hardly to an idle request."""

    def answer(request: Request) -> Reply:
        likely = 0.05 if pointwise.IDLE in request.messages[-1].content else yes
        return reply(
            "yes",
            "small",
            call_usage(1, 1),
            logprobs=({"yes": math.log(likely), "no": math.log(1 - likely)},),
        )

    return answer


def test_probabilities_are_averaged_where_every_model_has_them() -> None:
    jury = {"quick": [of_family("m", pointwise=True), of_family("n", pointwise=True)]}
    _, selection, _ = judge(jury, {"m": leaning(0.9), "n": leaning(0.7)})
    assert selection.decisions[0].probability == pytest.approx(0.8)
    _, mixed, _ = judge(
        {"quick": [of_family("m", pointwise=True), of_family("n")]}, {"m": leaning(0.9), "n": keep(A)}
    )
    assert mixed.decisions[0].probability is None


def text_of(request: Request) -> str:
    return "\n".join(message.content for message in request.messages)


def drawn(request: Request) -> str:
    """Keep the first always, the second in three samples of four, the third in two of them."""
    kept = [A, *([B] if request.sample > 1 else []), *([C] if request.sample > 2 else [])]
    return json.dumps({"keep": labels(request, tuple(kept))})


def test_the_share_of_samples_that_keep_a_candidate_is_its_probability() -> None:
    decided, selection, gateway = judge(
        {"quick": [of_family("m")]}, {"m": drawn}, options=judge_options(samples=4)
    )
    assert decided == {"a": "kept", "b": "kept", "c": "undetermined"}
    assert [decision.probability for decision in selection.decisions] == [1.0, 0.75, None]
    assert [request.call_key.part for _, request in gateway.requests] == [f"sample{n}" for n in range(1, 5)]
    (one,) = selection.rounds
    assert one.opinion == {
        "keep": ["a", "b"],
        "unjudged": [],
        "probabilities": {"a": 1.0, "b": 0.75, "c": 0.5},
    }
    assert one.usage.input_tokens == 400


def test_a_model_with_probabilities_is_not_asked_repeatedly() -> None:
    small = {"quick": [of_family("m", pointwise=True)]}
    _, _, gateway = judge(small, {"m": leaning(0.4)}, options=judge_options(samples=8))
    assert len(gateway.requests) == len(CANDIDATES)


@pytest.mark.parametrize(("failing", "decision"), [({1}, "kept"), ({1, 2}, "undetermined")])
def test_most_samples_must_be_readable(failing: set[int], decision: str) -> None:
    def answer(request: Request) -> str:
        return "None of them." if request.sample in failing else keep(A)(request)

    decided, _, _ = judge({"quick": [of_family("m")]}, {"m": answer}, options=judge_options(samples=3))
    assert decided["a"] == decision


@pytest.mark.parametrize(("mode", "kept"), [("strict", {"a"}), ("lenient", {"a", "b", "c"})])
def test_each_criterion_may_have_a_call_of_its_own(mode: str, kept: set[str]) -> None:
    def answer(request: Request) -> str:
        return keep(A, B)(request) if "- relevant:" in text_of(request) else keep(A, C)(request)

    decided, selection, gateway = judge(
        {"deep": [of_family("m")]},
        {"m": answer},
        "memory-two-criteria",
        mode=mode,
        options=judge_options(each=True),
    )
    assert {each for each, decision in decided.items() if decision == "kept"} == kept
    assert [request.call_key.part for _, request in gateway.requests] == ["relevant", "useful"]
    assert len(selection.rounds) == 1
