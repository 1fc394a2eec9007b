"""The task select, from labels to decisions, and from a query to memories where models have no part in it."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import sample_store
import secret_texts
from loopback import SILENT, Asked, Loopback, fails, says
from loopback import Answer as Served
from making import (
    call_usage,
    candidate_judge,
    finality_rules,
    prompt_candidate,
    query,
    reply,
)
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

from judgekit.config.settings import get_user_config_path
from judgekit.errors import FailureKind, GatewayError
from judgekit.hooks import claude_code, entries, explain, judged
from judgekit.hooks.context import READ_SECONDS
from judgekit.judging import fence, search
from judgekit.judging.verdict import Decision, RubricRef, Selection, SelectOpinion
from judgekit.providers import litellm, replay
from judgekit.providers.per_process import PerProcess
from judgekit.providers.registry import Limits
from judgekit.providers.replay import Recorder, ReplayGateway
from judgekit.retrieval.confidence import Candidate
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scripted import Answer

    from judgekit.config import ModeName, TierName
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
AMPLE_TIME = "judge: 'on', timeout: 60, deadline: 60"


def judge(
    gateway: Gateway,
    mode: ModeName = "strict",
    rubric: str = "memory-relevance",
    count: int = 3,
    turns: tuple[str, ...] = (),
    **options: Any,  # noqa: ANN401 - passed on
) -> Selection:
    tiers = options.pop("tiers", three_models())
    options.setdefault("timeout", 30)
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
            return json.dumps(
                {"relevant": labels(request, (A, B)), "useful": labels(request, (A, C))}
            )
        text = "\n".join(message.content for message in request.messages)
        return keep(A, B)(request) if "- relevant:" in text else keep(A, C)(request)

    gateway = ByModel({"m": answer})
    selection = judge(
        gateway,
        mode,
        "memory-two-criteria",
        tiers={"deep": [of_family("m")]},
        criteria="each" if each else "together",
    )
    assert "".join(own.id for own in selection.decisions if own.decision == "kept") == kept
    parts = [request.call_key.part for _, request in gateway.requests]
    assert (parts, len(selection.rounds)) == (["relevant", "useful"] if each else [""], 1)


def test_what_a_model_bears_is_shared_among_the_candidates() -> None:
    modest = PROFILE.model_copy(update={"limits": Limits(context_chars=300)})
    endpoint = dataclasses.replace(scripted_endpoint("modest"), profile=modest)
    gateway = ScriptedGateway({"quick": [keep()]})
    own = candidate_judge(gateway, {"quick": endpoint}, mode="strict")
    asyncio.run(
        own.select(query("q"), [prompt_candidate(name, name, text="x" * 2000) for name in "abc"])
    )
    assert "x" * 100 in gateway.requests[0].messages[-1].content
    assert "x" * 101 not in gateway.requests[0].messages[-1].content


def test_a_recording_holds_on_another_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels come from a secret of the installation; a recording is about candidates, not about labels."""
    recording = tmp_path / "replies.jsonl"
    scripted = ScriptedGateway({"quick": [keep(A, B)], "deep": [keep(B)], "tiebreaker": [keep()]})
    here = judge(Recorder(scripted, recording))
    monkeypatch.setenv("JUDGEKIT_HOME", str(tmp_path / "elsewhere"))
    fence._load_secret.cache_clear()
    there = judge(ReplayGateway(), tiers=replay.load_recorded_models(recording))
    assert words(here) == ["dropped", "kept", "dropped"]
    assert there.decisions == here.decisions
    kept = [
        [own.opinion and sorted(own.opinion.keep) for own in found.rounds]
        for found in (here, there)
    ]
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


def test_a_learned_threshold_is_that_of_its_model_rubric_and_mode(tmp_path: Path) -> None:
    def hardly(request: Request) -> Reply:
        """Say yes with a probability of 0.53, and to the idle request no."""
        likely = 0.01 if "Danube" in request.messages[-1].content else 0.53
        tokens = {"yes": math.log(likely), "no": math.log(1 - likely)}
        return reply("yes", "small", call_usage(30, 1), logprobs=(tokens,))

    name = "qwen2.5-coder-1.5b"
    other = tmp_path / f"{name}.gguf"
    other.write_bytes(b"GGUF")  # a file of the user's own
    cases: list[tuple[str, ModeName, str, str]] = [
        (f"local/{name}", "lenient", "memory-relevance", "dropped"),
        (f"local/{name}", "strict", "memory-relevance", "kept"),
        (f"local/{name}", "lenient", "memory-two-criteria", "kept"),
        (f"local/{other}", "lenient", "memory-relevance", "kept"),
        ("local/smollm2-135m", "lenient", "memory-relevance", "kept"),
        (f"other/{name}", "lenient", "memory-relevance", "kept"),
    ]
    for model, mode, rubric, expected in cases:
        endpoint = scripted_endpoint(model, pointwise=True)
        found = judge(
            ScriptedGateway({"quick": [hardly] * 4}),
            mode,
            rubric,
            count=1,
            tiers={"quick": endpoint},
        )
        assert words(found) == [expected], (model, mode, rubric)
        assert ((found.decisions[0].probability or 0) < 0.5) == (expected == "dropped")


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
        script: list[Answer] = [
            TIMEOUT if letter == "F" else for_what_is_asked for letter in answers
        ]
        selection = judge(ScriptedGateway({"quick": script}), tiers=SMALL)
        assert (words(selection), selection.degraded) == (
            decided,
            "quick: timeout (no answer in 3 s)",
        )


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
    assert {decision.id for decision in selection.decisions if decision.decision == "kept"} == {
        "m3",
        "m30",
    }
    assert sorted(own.messages[-1].content.count("Title ") for own in gateway.requests) == [
        10,
        10,
        11,
    ]
    assert [(own.tier, own.usage.input_tokens) for own in selection.rounds] == [("quick", 300)]

    selection = judge(
        ScriptedGateway({"quick": [keep("Title 3."), TIMEOUT]}), count=16, tiers=ALONE
    )
    decided = words(selection)  # a batch that failed leaves only its own open
    assert (decided[3], decided.count("dropped")) == ("kept", 7)
    assert decided[8:] == ["undetermined"] * 8
    assert selection.degraded == "quick: timeout (no answer in 3 s)"


def test_a_round_lists_the_candidates_of_a_batch_that_failed() -> None:
    gateway = ScriptedGateway({"quick": [keep("Title 3."), TIMEOUT]})
    (row,) = judge(gateway, count=16, tiers=ALONE).rounds
    assert isinstance(row.opinion, SelectOpinion)
    assert row.opinion.keep == ["m3"]
    assert row.opinion.unjudged == [f"m{number}" for number in range(8, 16)]


def sat(answers: Answers, *tiers: str, **options: Any) -> tuple[list[str], Selection, ByModel]:  # noqa: ANN401
    gateway = ByModel(answers)
    panel = {
        tier: list(map(of_family, models))
        for tier, models in zip(three_models(), tiers, strict=False)
    }
    selection = judge(gateway, tiers=panel, **options)
    return words(selection), selection, gateway


@pytest.mark.parametrize(
    ("name", "decision", "because"),
    [
        ("a", "kept", "quick and deep agree"),
        ("b", "dropped", "two of three agree"),
        ("c", "dropped", "quick needs no confirmation"),
    ],
)
def test_each_candidate_says_why_its_judging_ended(name: str, decision: str, because: str) -> None:
    gateway = ScriptedGateway({"quick": [keep(A, B)], "deep": [keep(A)], "tiebreaker": [keep()]})
    decisions = {own.id: own for own in judge(gateway).decisions}
    assert decisions[name].decision == decision
    assert decisions[name].because == because


def test_the_share_of_samples_that_keep_a_candidate_is_its_probability() -> None:
    def drawn(request: Request) -> str:
        """Keep the first always, the second in three samples of four, the third in two of them."""
        return keep(*(A, B, C)[: 1 + (request.sample > 1) + (request.sample > 2)])(request)

    decided, selection, gateway = sat({"m": drawn}, "m", samples=4)
    assert decided == ["kept", "kept", "undetermined"]
    assert [decision.probability for decision in selection.decisions] == [1.0, 0.75, None]
    assert [request.call_key.part for _, request in gateway.requests] == [
        f"sample{n}" for n in range(1, 5)
    ]
    (one,) = selection.rounds
    likely = {"a": 1.0, "b": 0.75, "c": 0.5}
    assert one.opinion == SelectOpinion(keep=["a", "b"], unjudged=[], probabilities=likely)
    assert one.usage.input_tokens == 400


def candidate(name: str, label: str) -> Candidate:
    hit = Candidate(
        name,
        f"Title {name}",
        "decision",
        tags=(),
        updated=0,
        root="/r",
        place=f"{name}.json",
        kind="claude-memory",
    )
    hit.confidence_label, hit.confidence, hit.bm25 = label, 0.5, 1.0
    return hit


FOUND = [
    candidate("a", "high"),
    candidate("b", "low"),
    candidate("c", "high"),
    candidate("d", "low"),
]


def selection(**decisions: str) -> Selection:
    return Selection(
        rubric=RubricRef(id="r", version="1.0.0", sha256=""),
        mode="strict",
        prompt_sha256="",
        decisions=[
            Decision(id=name, decision=word, tier=None if word == "undetermined" else "quick")
            for name, word in decisions.items()
        ],
        degraded="quick: timeout" if "undetermined" in decisions.values() else None,
        duration_ms=1,
    )


def test_where_nothing_was_decided_bm25_decides() -> None:
    cases: list[tuple[ModeName, dict[str, str], str]] = [
        ("strict", {"a": "kept", "b": "dropped", "c": "kept", "d": "kept"}, "acd"),
        ("strict", dict.fromkeys("abcd", "undetermined"), "ab"),
        ("lenient", dict.fromkeys("abcd", "undetermined"), "abcd"),
        (
            "strict",
            {"a": "dropped", "b": "undetermined", "c": "undetermined", "d": "undetermined"},
            "b",
        ),
        ("lenient", {"a": "dropped", "b": "undetermined", "c": "kept", "d": "dropped"}, "bc"),
    ]
    for mode, decided, kept in cases:
        found = search.choose_results(selection(**decided), FOUND, mode, top_k=2)
        assert "".join(own.hit.id for own in found) == kept
        for own in found:
            is_open = decided[own.hit.id] == "undetermined"
            assert own.kept_by == ("bm25" if is_open else "quick")
        # Without any judge.
        alone = search.choose_by_bm25(FOUND, mode, top_k=2)
        expected = "ac" if mode == "strict" else "abcd"
        assert "".join(own.hit.id for own in alone) == expected


@pytest.fixture
def project(tmp_path: Path) -> Path:
    sample_store.write(tmp_path)
    return tmp_path


@pytest.fixture
def hook(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[[str, Loopback | None, str], tuple[str, str]]:
    """Run the prompt hook with a judge switched on in the user's configuration.

    litellm is imported before, so that a busy machine does not spend the hook's few seconds on it.
    """
    litellm.load()

    def call(prompt: str, server: Loopback | None, settings: str = AMPLE_TIME) -> tuple[str, str]:
        get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
        get_user_config_path().write_text(f"retrieval: {{{settings}}}\n")
        if server:
            monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
            monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        payload = json.dumps(
            {"prompt": prompt, "cwd": str(project), "transcript_path": "/nowhere.jsonl"}
        )
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(payload.encode())))
        monkeypatch.setattr(sys, "argv", ["judgekit", "hook"])
        capfd.readouterr()
        assert claude_code.main() == 0
        out, err = capfd.readouterr()
        return out, err

    return call


def keeping(title: str) -> Callable[[Asked], Served]:
    def answer(asked: Asked) -> Served:
        label = next(
            line[1:5] for line in asked.text.splitlines() if line.startswith("[") and title in line
        )
        return says(json.dumps({"keep": [label]}))

    return answer


PROMPT = "What about the queue, the payment tables and the JWT refresh?"


def test_of_a_long_prompt_models_see_the_best_parts_first(
    hook: Callable[..., tuple[str, str]],
) -> None:
    secret = secret_texts.form("anthropic", 4)
    talk = " ".join(
        f"Then my sister number {n} told a story about her garden and its fence." for n in range(9)
    )
    with Loopback(keeping(sample_store.JWT.title)) as server:
        hook(f"{talk} Why does the JWT refresh fail with {secret}? {talk}", server)
    (asked,) = server.requests
    request = asked.text.partition("The request:")[2]
    assert "refresh fail with" in request[:200]
    assert "sister number 0 told" in request
    assert not [at for at in range(len(secret) - 8) if secret[at : at + 8] in asked.text]


def test_no_passage_shows_a_half_of_a_secret(
    hook: Callable[..., tuple[str, str]], project: Path
) -> None:
    path, secret = project / sample_store.JWT.path, secret_texts.form("anthropic", 4)
    record = json.loads(path.read_text())
    for count in (27, 29, 31):  # the passage that fits ends within the secret
        text = f"How do we refresh the JWT? {'some1 ' * count}{secret} {'More. ' * 60}"
        path.write_text(json.dumps({**record, "content": {"decision": text}}))
        with Loopback(keeping(sample_store.JWT.title)) as server:
            hook("How do we refresh the JWT?", server)
        (asked,) = server.requests
        assert "some1 [redacted: Anthropic key]" in asked.text
        assert not [at for at in range(len(secret) - 8) if secret[at : at + 8] in asked.text], count


@pytest.mark.parametrize("answer", [SILENT, fails(401), fails(500), says("?")])
def test_a_judge_that_fails_leaves_what_bm25_is_sure_of(
    hook: Callable[..., tuple[str, str]], answer: Served
) -> None:
    with Loopback(answer) as server:
        out, err = hook(
            "How do we refresh the JWT?", server, "judge: 'on', timeout: 1, deadline: 2"
        )
    assert sample_store.JWT.title in out
    assert out.count("<result") == 1
    assert err.startswith("judgekit: quick: ")
    assert err.count("\n") == 1


def test_a_memory_that_a_failing_judge_left_undecided_is_not_logged_as_dropped(
    hook: Callable[..., tuple[str, str]], project: Path
) -> None:
    with Loopback(fails(500)) as server:
        hook(PROMPT, server, f"{AMPLE_TIME}, log: true")
    (line,) = explain.read_log(str(project))
    assert line["judged"] > 0
    assert line["dropped"] == 0


def test_importing_litellm_costs_no_call_its_time_but_the_deadlines(
    hook: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = litellm.load()

    def import_slowly() -> object:
        time.sleep(1.5)  # longer than a call may take
        return module

    def forget_import() -> None:
        monkeypatch.setattr(litellm, "_imported", [])
        monkeypatch.setattr(litellm, "_load_state", PerProcess(litellm._LoadState))

    monkeypatch.setattr(litellm, "_import_quietly", import_slowly)
    forget_import()
    alone, _ = hook(PROMPT, None, "judge: 'off'")
    with Loopback(keeping(sample_store.JWT.title)) as server:
        out, err = hook(PROMPT, server, "judge: 'on', timeout: 1.4, deadline: 20")
        assert (len(server.requests), err, out.count("<result")) == (1, "", 1)
        forget_import()
        out, err = hook(PROMPT, server, "judge: 'on', timeout: 1, deadline: 0.2")
        assert len(server.requests) == 1
    assert (out, err.count("\n")) == (alone, 1)
    assert "retrieval.deadline" in err
    litellm.load()  # waits until abandoned work is done


def test_judging_ends_before_the_client_gives_up(
    hook: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search.HOOK_SECONDS == judged.MAX_SECONDS  # here as in the engine
    start_and_end = 3  # seconds, on a busy machine
    assert READ_SECONDS + search.HOOK_SECONDS + start_and_end < entries.DEFAULT_TIMEOUT_SECONDS
    monkeypatch.setattr(search, "HOOK_SECONDS", 1.0)
    began = time.monotonic()
    with Loopback(SILENT) as server:
        out, err = hook("How do we refresh the JWT?", server, AMPLE_TIME)
    assert time.monotonic() - began < 20
    assert sample_store.JWT.title in out
    assert err.startswith("judgekit: quick: ")


@pytest.mark.parametrize(
    ("inject", "prompt"), [("tiered", PROMPT), ("top_k", "How do we refresh the JWT?")]
)
def test_without_a_provider_the_hook_answers_as_without_a_judge_and_says_so(
    hook: Callable[..., tuple[str, str]], inject: str, prompt: str
) -> None:
    alone, nothing = hook(prompt, None, f"judge: 'off', inject: {inject}")
    assert (nothing, bool(alone)) == ("", True)
    out, err = hook(prompt, None, f"judge: 'on', inject: {inject}, fallback_top_k: 0")
    assert out == alone
    assert err.startswith("judgekit: no model found")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("inject", "mode", "most"),
    [("top_k", "lenient", 1), ("tiered", "strict", 0), ("tiered", "strict", 20)],
)
def test_where_tiers_fail_the_hook_injects_the_first_that_bm25_finds(
    hook: Callable[..., tuple[str, str]], inject: str, mode: str, most: int
) -> None:
    alone, _ = hook(PROMPT, None, "judge: 'off', inject: top_k, max_inject: 20")
    with Loopback(fails(401)) as server:
        out, err = hook(
            PROMPT, server, f"judge: 'on', inject: {inject}, mode: {mode}, fallback_top_k: {most}"
        )
    results = [line for line in alone.splitlines() if line.startswith("<result")]
    assert [line for line in out.splitlines() if line.startswith("<result")] == results[
        : min(most, 3)
    ]
    assert err.startswith("judgekit: quick: ")


def test_a_project_cannot_switch_the_judge_on(
    hook: Callable[..., tuple[str, str]], project: Path
) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("retrieval: {judge: 'on'}\n")
    with Loopback() as server:
        out, _ = hook("How do we refresh the JWT?", server, "judge: 'off'")
        assert server.requests == []
    assert sample_store.JWT.title in out


def test_a_calibration_says_nothing_of_requests_with_a_conversation_before_them() -> None:
    warned = "x.json: cannot be read"
    learned = candidate_judge(
        ScriptedGateway({}), {}, finality=finality_rules("c"), calibration_warning=warned
    )
    unlearned, before = learned.with_settings(finality=None), query("q", ("t",))
    assert learned.adapt_to_query(query("q")) is learned
    assert unlearned.adapt_to_query(before) is unlearned
    without = learned.adapt_to_query(before)
    assert without.settings.finality is None
    assert str(without.settings.calibration_warning).startswith(
        "calibration c not used: its labelled requests had no earlier conversation"
    )
    assert str(without.settings.calibration_warning).endswith(f"; {warned}")
