"""The task `select`, from labels to decisions: tiers, juries, samples, small models, long lists."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from making import call_usage, candidate_judge, judge_options, prompt_candidate, query, reply
from scripted import (
    PROFILE,
    ByModel,
    ScriptedGateway,
    keep,
    labels,
    of_family,
    scripted_endpoint,
    three_models,
)

from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import fence
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
A, B, C = (f"Title {name}" for name in "abc")
REQUEST = "How do we refresh the JWT?"
TIMEOUT = GatewayError(FailureKind.TIMEOUT, "no answer in 3 s")
SMALL: dict[TierName, Endpoint] = {"quick": scripted_endpoint("small", pointwise=True)}
Answers = dict[str, "Answer"]


def judge(
    gateway: Gateway,
    mode: ModeName = "strict",
    rubric: str = "memory-relevance",
    count: int = 3,
    turns: tuple[str, ...] = (),
    **options: Any,  # noqa: ANN401 - passed on
) -> Selection:
    tiers = options.pop("tiers", three_models())
    options.setdefault("deadline", 30)
    own = candidate_judge(gateway, tiers, loaded=loader.find_rubric(rubric), mode=mode, **options)
    many = [prompt_candidate(f"m{at}", f"Title {at}.", category="DECISION") for at in range(count)]
    shown = CANDIDATES[:count] if count <= len(CANDIDATES) else many
    return asyncio.run(own.select(query(REQUEST, turns), shown))


def words(selection: Selection) -> list[str]:
    return [decision.decision for decision in selection.decisions]


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(("mode", "kept"), [("strict", "a"), ("lenient", "abc")])
def test_two_criteria_are_combined_by_code(mode: ModeName, kept: str, *, each: bool) -> None:
    """They are asked about in one call, or in a call of its own for each."""

    def answer(request: Request) -> str:
        if not each:
            return json.dumps({"relevant": labels(request, (A, B)), "useful": labels(request, (A, C))})
        text = "\n".join(message.content for message in request.messages)
        return keep(A, B)(request) if "- relevant:" in text else keep(A, C)(request)

    gateway = ByModel({"m": answer})
    options = judge_options(each=each)
    selection = judge(gateway, mode, "memory-two-criteria", tiers={"deep": [of_family("m")]}, options=options)
    assert "".join(own.id for own in selection.decisions if own.decision == "kept") == kept
    parts = [request.call_key.part for _, request in gateway.requests]
    assert (parts, len(selection.rounds)) == (["relevant", "useful"] if each else [""], 1)


def test_what_a_model_bears_is_shared_among_the_candidates() -> None:
    modest = PROFILE.model_copy(update={"limits": Limits(context_chars=300)})
    endpoint = dataclasses.replace(scripted_endpoint("modest"), profile=modest)
    gateway = ScriptedGateway({"quick": [keep()]})
    own = candidate_judge(gateway, {"quick": endpoint}, mode="strict")
    asyncio.run(own.select(query("q"), [prompt_candidate(name, name, text="x" * 2000) for name in "abc"]))
    assert "x" * 100 in gateway.requests[0].messages[-1].content
    assert "x" * 101 not in gateway.requests[0].messages[-1].content


def test_a_recording_holds_on_another_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels come from a secret of the installation; a recording is about candidates, not about labels."""
    recording = tmp_path / "replies.jsonl"
    scripted = ScriptedGateway({"quick": [keep(A, B)], "deep": [keep(B)], "tiebreaker": [keep()]})
    here = judge(Recorder(scripted, recording))
    monkeypatch.setenv("JUDGEKIT_HOME", str(tmp_path / "elsewhere"))
    fence._secret.cache_clear()
    there = judge(ReplayGateway(), tiers=replay.recorded_models(recording))
    assert words(here) == ["dropped", "kept", "dropped"]
    assert there.decisions == here.decisions
    kept = [[own.opinion and sorted(own.opinion["keep"]) for own in found.rounds] for found in (here, there)]
    assert kept[0] == kept[1] != []


# --- a small model is asked about each candidate


def said(likely: bool) -> Reply:  # noqa: FBT001 - it is what is said
    tokens = {"yes": -0.1, "no": -3.0} if likely else {"yes": -3.0, "no": -0.1}
    return reply("yes", "small", call_usage(30, 1), logprobs=(tokens,))


def for_what_is_asked(request: Request) -> Reply:
    """Say yes, unless request or memory is the idle one."""
    return said("Danube" not in request.messages[-1].content)


def for_anything(_: Request) -> Reply:
    """Say yes, as to a text that claims to answer whatever is asked."""
    return said(likely=True)


def talked_over(request: Request) -> Reply:
    """Say yes to any memory, as beside a turn that claims to be the answer."""
    return said("/idle/" not in request.call_key.part)


def test_what_a_pointwise_model_would_keep_for_any_request_is_dropped() -> None:
    selection = judge(ScriptedGateway({"quick": [for_anything] * 6}), tiers=SMALL)
    assert words(selection) == ["dropped"] * 3
    assert all((decision.probability or 1) < 0.5 for decision in selection.decisions)

    def answer(request: Request) -> Reply:
        """Lenient keeps a memory when either criterion holds; the second one holds for any request."""
        useful = request.call_key.part.endswith("useful")
        return for_anything(request) if useful else said(likely=False)

    gateway = ScriptedGateway({"quick": [answer] * 12})
    assert words(judge(gateway, "lenient", "memory-two-criteria", tiers=SMALL)) == ["dropped"] * 3


def test_what_a_turn_makes_likely_of_any_memory_is_dropped() -> None:
    cases: list[tuple[list[Answer], str]] = [
        ([talked_over] * 7, "dropped"),
        ([for_what_is_asked] * 7, "kept"),
        ([for_what_is_asked, for_what_is_asked, TIMEOUT], "undetermined"),
    ]
    for answers, decided in cases:
        gateway = ScriptedGateway({"quick": answers})
        assert words(judge(gateway, count=1, turns=("user: Before.",), tiers=SMALL)) == [decided]


def test_a_pointwise_model_that_fails_on_one_candidate_leaves_that_one_open() -> None:
    # A call about the candidate, or about the idle request beside it.
    for answers, decided in (
        ("YYFYY", ["kept", "undetermined", "kept"]),
        ("YFYYYY", ["undetermined", "kept", "kept"]),
    ):
        script: list[Answer] = [TIMEOUT if letter == "F" else for_what_is_asked for letter in answers]
        selection = judge(ScriptedGateway({"quick": script}), tiers=SMALL)
        assert (words(selection), selection.degraded) == (decided, "quick: timeout (no answer in 3 s)")


# --- long lists


class Meeting(ScriptedGateway):
    """Answers only when as many calls as expected are waiting at the same time."""

    def __init__(self, calls: int, answer: Answer) -> None:
        super().__init__({"quick": [answer] * calls})
        self.all_here = asyncio.Barrier(calls)

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        await asyncio.wait_for(self.all_here.wait(), 5)
        return await super().complete(scripted_endpoint, request)


ALONE: dict[TierName, Endpoint] = {"quick": scripted_endpoint("quick-model")}


def test_a_long_list_is_judged_in_equal_batches_at_the_same_time() -> None:
    gateway = Meeting(3, keep("Title 3.", "Title 30."))
    selection = judge(gateway, count=31, tiers=ALONE)
    assert {decision.id for decision in selection.decisions if decision.decision == "kept"} == {"m3", "m30"}
    assert sorted(own.messages[-1].content.count("Title ") for own in gateway.requests) == [10, 10, 11]
    assert [(own.tier, own.usage.input_tokens) for own in selection.rounds] == [("quick", 300)]

    selection = judge(ScriptedGateway({"quick": [keep("Title 3."), TIMEOUT]}), count=16, tiers=ALONE)
    decided = words(selection)  # a batch that failed leaves only its own open
    assert (decided[3], decided.count("dropped")) == ("kept", 7)
    assert decided[8:] == ["undetermined"] * 8
    assert selection.degraded == "quick: timeout (no answer in 3 s)"


# --- juries and samples


def sat(answers: Answers, *tiers: str, **options: Any) -> tuple[list[str], Selection, ByModel]:  # noqa: ANN401
    """Judge with a jury in each tier, by the names of its models."""
    gateway = ByModel(answers)
    panel = {tier: list(map(of_family, models)) for tier, models in zip(three_models(), tiers, strict=False)}
    selection = judge(gateway, tiers=panel, **options)
    return words(selection), selection, gateway


def test_the_share_of_samples_that_keep_a_candidate_is_its_probability() -> None:
    def drawn(request: Request) -> str:
        """Keep the first always, the second in three samples of four, the third in two of them."""
        return keep(*(A, B, C)[: 1 + (request.sample > 1) + (request.sample > 2)])(request)

    decided, selection, gateway = sat({"m": drawn}, "m", options=judge_options(samples=4))
    assert decided == ["kept", "kept", "undetermined"]
    assert [decision.probability for decision in selection.decisions] == [1.0, 0.75, None]
    assert [request.call_key.part for _, request in gateway.requests] == [f"sample{n}" for n in range(1, 5)]
    (one,) = selection.rounds
    likely = {"a": 1.0, "b": 0.75, "c": 0.5}
    assert one.opinion == {"keep": ["a", "b"], "unjudged": [], "probabilities": likely}
    assert one.usage.input_tokens == 400
