"""The task `select`, from labels to decisions."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from making import call_usage, candidate_judge, prompt_candidate, query, reply
from scripted import PROFILE, ScriptedGateway, keep, labels, scripted_endpoint, three_models

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import fence, pointwise
from judgekit.providers import replay
from judgekit.providers.registry import Limits
from judgekit.providers.replay import Recorder, ReplayGateway
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

    from scripted import Answer

    from judgekit.config import ModeName, TierName
    from judgekit.judging.verdict import Selection
    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

CANDIDATES = [
    prompt_candidate(name, f"Title {name}", category="DECISION", tags=("x",), text=f"Body {name}")
    for name in "abc"
]
TIMEOUT = GatewayError(FailureKind.TIMEOUT, "no answer in 3 s")


def judge(
    gateway: Gateway,
    mode: ModeName = "strict",
    rubric: str = "memory-relevance",
    **options: Any,  # noqa: ANN401
) -> Selection:
    tiers = options.pop("tiers", three_models())
    options.setdefault("deadline", 30)
    own = candidate_judge(gateway, tiers, loaded=loader.select_rubric(rubric), mode=mode, **options)
    return asyncio.run(own.select(query("How do we refresh the JWT?"), CANDIDATES))


def judge_many(gateway: Gateway, count: int, **options: Any) -> Selection:  # noqa: ANN401
    own = candidate_judge(
        gateway,
        {"quick": scripted_endpoint("quick-model")},
        mode="strict",
        **options,
    )
    many = [
        prompt_candidate(f"m{number}", f"Title {number}.", category="DECISION") for number in range(count)
    ]
    return asyncio.run(own.select(query("How do we refresh the JWT?"), many))


def run(
    mode: ModeName = "strict", rubric: str = "memory-relevance", **answers: list[Answer]
) -> tuple[dict[str, str], ScriptedGateway, Selection]:
    gateway = ScriptedGateway(answers)
    selection = judge(gateway, mode, rubric)
    return {decision.id: decision.decision for decision in selection.decisions}, gateway, selection


def shown_in(request: Request) -> list[str]:
    return sorted(name for name in "abc" if f"Title {name}" in request.messages[-1].content)


def test_strict_confirms_what_is_kept_and_only_that() -> None:
    decided, gateway, selection = run(
        quick=[keep("Title a", "Title b")], deep=[keep("Title a")], tiebreaker=[keep("Title b")]
    )
    assert decided == {"a": "kept", "b": "kept", "c": "dropped"}
    assert [shown_in(request) for request in gateway.requests] == [["a", "b", "c"], ["a", "b"], ["b"]]
    assert [decision.tier for decision in selection.decisions] == ["deep", "tiebreaker", "quick"]


def test_lenient_confirms_what_is_dropped_and_only_that() -> None:
    decided, gateway, _ = run("lenient", quick=[keep("Title a")], deep=[keep("Title b")], tiebreaker=[keep()])
    assert decided == {"a": "kept", "b": "dropped", "c": "dropped"}
    assert [shown_in(request) for request in gateway.requests] == [["a", "b", "c"], ["b", "c"], ["b"]]


@pytest.mark.parametrize(("mode", "kept"), [("strict", {"a"}), ("lenient", {"a", "b", "c"})])
def test_two_criteria_are_combined_by_code(mode: ModeName, kept: set[str]) -> None:
    def answer(request: Request) -> str:
        return json.dumps(
            {
                "relevant": labels(request, ("Title a", "Title b")),
                "useful": labels(request, ("Title a", "Title c")),
            }
        )

    decided, _, _ = run(mode, "memory-two-criteria", quick=[answer], deep=[answer])
    assert {name for name, decision in decided.items() if decision == "kept"} == kept


def test_the_hooks_single_tier_decides_alone() -> None:
    quick = {"quick": three_models()["quick"]}
    gateway = ScriptedGateway({"quick": [keep("Title a")]})
    selection = judge(gateway, tiers=quick, call_seconds=3.0, deadline=8)
    assert [decision.decision for decision in selection.decisions] == ["kept", "dropped", "dropped"]
    assert gateway.requests[0].timeout == 3


SMALL: dict[TierName, Endpoint] = {"quick": scripted_endpoint("small", pointwise=True)}


def said(likely: bool) -> Reply:  # noqa: FBT001 - it is what is said
    tokens = {"yes": -0.1, "no": -3.0} if likely else {"yes": -3.0, "no": -0.1}
    return reply("yes", "small", call_usage(30, 1), logprobs=(tokens,))


def for_what_is_asked(request: Request) -> Reply:
    """Say yes, unless the request is the idle one."""
    return said(pointwise.IDLE not in request.messages[-1].content)


def for_anything(_: Request) -> Reply:
    """Say yes, as to a text that claims to answer whatever is asked."""
    return said(likely=True)


def test_a_pointwise_model_is_asked_about_each_candidate() -> None:
    def answer(request: Request) -> Reply:
        return for_what_is_asked(request) if "Title b" in request.messages[-1].content else said(likely=False)

    gateway = ScriptedGateway({"quick": [answer] * 4})
    selection = judge(gateway, tiers=SMALL)
    assert [decision.decision for decision in selection.decisions] == ["dropped", "kept", "dropped"]
    assert selection.decisions[1].probability == pytest.approx(0.948, abs=0.001)
    assert len(gateway.requests) == 4
    assert selection.rounds[0].usage.input_tokens == 120


def test_what_a_pointwise_model_would_keep_for_any_request_is_dropped() -> None:
    gateway = ScriptedGateway({"quick": [for_anything] * 6})
    selection = judge(gateway, tiers=SMALL)
    assert [decision.decision for decision in selection.decisions] == ["dropped"] * 3
    assert all(
        decision.probability is not None and decision.probability < 0.5 for decision in selection.decisions
    )


def test_every_criterion_has_to_be_earned() -> None:
    """Lenient keeps a memory when either holds; the second one holds for any request."""

    def answer(request: Request) -> Reply:
        useful = request.call_key.part.endswith("useful")
        return for_anything(request) if useful else said(likely=False)

    gateway = ScriptedGateway({"quick": [answer] * 12})
    selection = judge(gateway, "lenient", "memory-two-criteria", tiers=SMALL)
    assert [decision.decision for decision in selection.decisions] == ["dropped"] * 3


def test_the_idle_request_changes_the_request_and_nothing_else() -> None:
    gateway = ScriptedGateway({"quick": [for_anything] * 6})
    own = candidate_judge(gateway, SMALL, mode="strict")
    asyncio.run(own.select(query("How do we refresh the JWT?", ("user: Before.",)), CANDIDATES[:1]))
    first, idle = gateway.requests
    assert idle.messages[:-1] == first.messages[:-1]
    asked = first.messages[-1].content
    assert idle.messages[-1].content == asked.replace("How do we refresh the JWT?", pointwise.IDLE)
    assert (first.call_key.part, idle.call_key.part) == ("a/relevant", "a/idle/relevant")


def _with_turns(answer: Answer, count: int = 1, *more: Answer) -> tuple[Selection, ScriptedGateway]:
    gateway = ScriptedGateway({"quick": [answer, *more] if more else [answer] * 7})
    own = candidate_judge(gateway, SMALL, mode="strict")
    wanted = query("How do we refresh the JWT?", ("user: Before.",))
    return asyncio.run(own.select(wanted, CANDIDATES[:count])), gateway


def _of_what_is_asked(request: Request) -> Reply:
    """Say yes, unless request or memory is the idle one."""
    return said("Danube" not in request.messages[-1].content)


def test_what_a_turn_makes_likely_of_any_memory_is_dropped() -> None:
    def talked_over(request: Request) -> Reply:
        """Say yes to any memory, as beside a turn that claims to be the answer."""
        return said("/idle/" not in request.call_key.part)

    for selection, decided in (
        (_with_turns(talked_over)[0], "dropped"),
        (_with_turns(_of_what_is_asked)[0], "kept"),
        (_with_turns(_of_what_is_asked, 1, _of_what_is_asked, TIMEOUT)[0], "undetermined"),
    ):
        assert [decision.decision for decision in selection.decisions] == [decided]


def test_the_idle_memory_stands_in_for_the_memory_once_for_all() -> None:
    selection, gateway = _with_turns(_of_what_is_asked, 3)
    assert [decision.decision for decision in selection.decisions] == ["kept"] * 3
    parts = [request.call_key.part for request in gateway.requests]
    assert parts == [
        *("a/relevant", "a/idle/relevant", "a/idle-memory/relevant"),
        *("b/relevant", "b/idle/relevant"),
        *("c/relevant", "c/idle/relevant"),
    ]
    first, memory = gateway.requests[0].messages[-1].content, gateway.requests[2].messages[-1].content
    assert pointwise.IDLE_MEMORY.title in memory
    assert "Title a" not in memory
    assert memory.endswith(first[first.index("The conversation so far") :])


@pytest.mark.parametrize(
    ("answers", "decided"),
    [
        # A call that fails about a candidate, or about the idle request beside it, leaves that one open.
        ("YYFYY", ["kept", "undetermined", "kept"]),
        ("YFYYYY", ["undetermined", "kept", "kept"]),
    ],
)
def test_a_pointwise_model_that_fails_on_one_candidate_leaves_that_one_open(
    answers: str, decided: list[str]
) -> None:
    script: list[Answer] = [TIMEOUT if letter == "F" else for_what_is_asked for letter in answers]
    selection = judge(ScriptedGateway({"quick": script}), tiers=SMALL)
    assert [decision.decision for decision in selection.decisions] == decided
    assert selection.degraded == "quick: timeout (no answer in 3 s)"


def test_a_pointwise_model_sees_worked_examples_first() -> None:
    gateway = ScriptedGateway({"quick": [for_what_is_asked] * 6})
    judge(gateway, tiers=SMALL)
    roles = [message.role for message in gateway.requests[0].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    answers = [message.content for message in gateway.requests[0].messages if message.role == "assistant"]
    assert answers == ["yes", "no"]
    asked = gateway.requests[0].messages[-1].content
    assert asked.index("Title a") < asked.index("How do we refresh the JWT?")


def test_a_tiebreaker_that_stands_in_is_told_of_no_disagreement() -> None:
    _, gateway, _ = run(quick=[TIMEOUT], deep=[TIMEOUT], tiebreaker=[keep()])
    instructions = loader.select_rubric("memory-relevance").rubric.prompt.instructions
    assert instructions.deep in gateway.requests[2].messages[0].content


def test_what_a_model_bears_is_shared_among_the_candidates() -> None:
    modest = PROFILE.model_copy(update={"limits": Limits(context_chars=300)})
    endpoint = dataclasses.replace(scripted_endpoint("modest"), profile=modest)
    gateway = ScriptedGateway({"quick": [keep()]})
    own = candidate_judge(gateway, {"quick": endpoint}, mode="strict")
    asyncio.run(own.select(query("q"), [prompt_candidate(name, name, text="x" * 2000) for name in "abc"]))
    assert "x" * 100 in gateway.requests[0].messages[-1].content
    assert "x" * 101 not in gateway.requests[0].messages[-1].content


def test_rounds_name_candidates_by_id_not_by_label() -> None:
    _, _, selection = run(quick=[keep("Title b")], deep=[keep("Title b")])
    assert selection.rounds[0].opinion == {"keep": ["b"], "unjudged": []}


def test_the_matter_is_the_same_whatever_the_order() -> None:
    seen = set()
    for order in (CANDIDATES, CANDIDATES[::-1]):
        gateway = ScriptedGateway({"quick": [keep()]})
        own = candidate_judge(gateway, three_models(), mode="strict")
        asyncio.run(own.select(query("q"), order))
        seen.add(gateway.requests[0].call_key)
    assert len(seen) == 1


def test_a_recording_holds_on_another_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels come from a secret of the installation; a recording is about candidates, not about labels."""
    recording = tmp_path / "replies.jsonl"
    scripted = ScriptedGateway(
        {"quick": [keep("Title a", "Title b")], "deep": [keep("Title b")], "tiebreaker": [keep()]}
    )
    here = judge(Recorder(scripted, recording))
    monkeypatch.setenv("JUDGEKIT_HOME", str(tmp_path / "elsewhere"))
    fence._secret.cache_clear()
    there = judge(ReplayGateway(), tiers=replay.recorded_models(recording))
    assert [decision.decision for decision in here.decisions] == ["dropped", "kept", "dropped"]
    assert there.decisions == here.decisions
    assert [each.opinion for each in there.rounds] != []
    assert [each.opinion and sorted(each.opinion["keep"]) for each in there.rounds] == [
        each.opinion and sorted(each.opinion["keep"]) for each in here.rounds
    ]


class Meeting(ScriptedGateway):
    """Answers only when as many calls as expected are waiting at the same time."""

    def __init__(self, calls: int, answer: Answer) -> None:
        super().__init__({"quick": [answer] * calls})
        self.all_here = asyncio.Barrier(calls)

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        await asyncio.wait_for(self.all_here.wait(), 5)
        return await super().complete(scripted_endpoint, request)


def test_a_long_list_is_judged_in_equal_batches_at_the_same_time() -> None:
    gateway = Meeting(3, keep("Title 3.", "Title 30."))
    selection = judge_many(gateway, 31)
    assert {decision.id for decision in selection.decisions if decision.decision == "kept"} == {"m3", "m30"}
    assert sorted(request.messages[-1].content.count("Title ") for request in gateway.requests) == [
        10,
        10,
        11,
    ]
    assert [(each.tier, each.usage.input_tokens) for each in selection.rounds] == [("quick", 300)]


def test_a_batch_that_failed_leaves_only_its_own_undetermined() -> None:
    gateway = ScriptedGateway({"quick": [keep("Title 3."), TIMEOUT]})
    selection = judge_many(gateway, 16)
    decided = [decision.decision for decision in selection.decisions]
    assert decided[3] == "kept"
    assert decided.count("dropped") == 7
    assert decided[8:] == ["undetermined"] * 8
    assert selection.degraded == "quick: timeout (no answer in 3 s)"


def test_with_a_limit_on_cost_batches_wait_for_each_other() -> None:
    """Each call costs 0.001: the third would pass the limit."""
    gateway = ScriptedGateway({"quick": [keep()] * 3})
    selection = judge_many(gateway, 45, max_cost_usd=0.002)
    assert len(gateway.requests) == 2
    assert [decision.decision for decision in selection.decisions].count("undetermined") == 15
