"""Outcomes that decision models settle alone, and questions to a model that writes."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import hooking
import pytest
from deciding import DecisionServer
from git_repo import GitRepo
from judged_by_decisions import QUICK, WRITER, address, deciding_alone, deciding_before, written
from loopback import Loopback, says
from scripted import finding, scores

from judgekit import environment
from judgekit.cli.formats.table import render_verdict
from judgekit.config import files
from judgekit.errors import FailureKind
from judgekit.judging.decisions import State, ask_decisions
from judgekit.judging.round import Session
from judgekit.providers import registry
from judgekit.providers.base import CallKey, build_endpoint
from judgekit.providers.decisions import DecisionQuestion
from judgekit.providers.litellm import LitellmGateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loopback import Answer
    from outcome import Run

JUDGE = ("judge", "--no-engine", "--format", "json")
POOR = says(scores(1, 1, 2, reasoning="Nothing says when to stop.", findings=[finding()]))
MIDDLING = says(scores(3, 3, 2, reasoning="It could say more.", findings=[finding()]))
SOUND = says(scores(4, 4, 5))


EXPLAINED = {
    "one that agrees": (POOR, "reject"),
    "one that finds it middling": (MIDDLING, "escalate"),
    "one that disagrees": (SOUND, "escalate"),
}
TIEBREAKERS = {"": "", "of its own": ", tiebreaker: openai-compatible/third"}


@pytest.mark.parametrize("tiebreaker", TIEBREAKERS.values(), ids=TIEBREAKERS)
@pytest.mark.parametrize(("answer", "word"), EXPLAINED.values(), ids=EXPLAINED)
def test_an_explanation_turns_no_rejection_into_an_acceptance(
    judgekit: Run, project: Path, answer: Answer, word: str, tiebreaker: str
) -> None:
    document = written(project)
    with deciding_before(answer) as (server, _):
        hooking.by_user(f"judge: {{tiers: {{quick: {QUICK}, deep: {WRITER}{tiebreaker}}}}}\n")
        rated(server, 0)
        plain = judgekit(*JUDGE, document).json[0]["verdict"]
        explained = judgekit(*JUDGE, document, "--explain").json[0]["verdict"]
    assert plain == "reject"
    assert explained == word


@pytest.fixture
def document(project: Path) -> str:
    return written(project)


@pytest.fixture
def server(project: Path) -> Iterator[DecisionServer]:
    with deciding_alone() as running:
        yield running


def rated(server: DecisionServer, level: int) -> None:
    """Have the server be sure of a level, counted from 0."""

    def sure(body: dict[str, Any]) -> None:
        for answer in body["answers"].values():
            if "probabilities" in answer:
                shares = dict.fromkeys(answer["probabilities"], 0.0)
                answer["probabilities"] = shares | {str(level): 1.0}
                answer["score"] = float(level)

    server.change = sure


# --- One document


def test_an_acceptance_is_undetermined_where_it_must_be_confirmed_and_no_other_model_can(
    judgekit: Run, server: DecisionServer, document: str
) -> None:
    done = judgekit(*JUDGE, document)
    (verdict,) = done.json
    assert (done.code, verdict["verdict"]) == (2, "undetermined")
    assert "judgekit calibrate" in verdict["degraded"]
    assert "--mode lenient" in verdict["degraded"]
    assert len(server.requests) == 1

    done = judgekit(*JUDGE, document, "--mode", "lenient")
    (verdict,) = done.json
    assert (done.code, verdict["verdict"], verdict["judge_tier"]) == (0, "accept", "quick")
    likely = verdict["rounds"][0]["opinion"]["probabilities"]["semantic"]
    assert list(likely) == ["1", "2", "3", "4", "5"]
    assert likely["4"] == 0.75
    assert verdict["scores"]["semantic"] == 3.69
    assert "decided by vllm-decisions/small alone, in probabilities and without reasons" in done.err


def test_a_rejection_is_final_and_says_that_it_has_no_reasons(
    judgekit: Run, server: DecisionServer, document: str
) -> None:
    rated(server, 0)
    done = judgekit("judge", "--no-engine", document)
    assert (done.code, done.out.split()[0]) == (1, "REJECT")
    assert "reasons: none (decided by probabilities)" in done.out
    (verdict,) = judgekit(*JUDGE, document).json
    assert (verdict["reasoning"], verdict["findings"]) == ("", [])


def test_a_terminal_shows_the_probabilities_of_the_last_round_that_has_any(
    judgekit: Run, server: DecisionServer, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rated(server, 0)
    (verdict,) = judgekit(*JUDGE, document).json
    verdict["rounds"].append({**verdict["rounds"][-1], "opinion": None})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert "semantic  █▁▁▁▁  1: 100%" in render_verdict(verdict)


def test_reasons_for_a_rejection_are_written_where_they_are_asked_for(
    judgekit: Run, project: Path, document: str
) -> None:
    with deciding_before(POOR) as (server, writer):
        rated(server, 0)
        (verdict,) = judgekit(*JUDGE, document).json
        assert (verdict["verdict"], verdict["judge_tier"]) == ("reject", "quick")
        assert writer.requests == []

        (verdict,) = judgekit(*JUDGE, document, "--explain").json
    assert (verdict["verdict"], verdict["judge_tier"]) == ("reject", "deep")
    assert verdict["findings"][0]["issue"] == "no way back is given"
    assert "when to stop" in verdict["reasoning"]


def test_rows_are_judged_again_where_reasons_are_asked_for(judgekit: Run, project: Path) -> None:
    row = json.dumps({"text": "Restart the server when it hangs."})
    (project / "rows.jsonl").write_text(f"{row}\n", encoding="utf-8")
    rows = ("judge", "--no-engine", "--data", "rows.jsonl", "--out", "out.jsonl")
    with deciding_before(POOR) as (server, writer):
        rated(server, 0)
        assert "1 judged" in judgekit(*rows).err
        assert "1 reused" in judgekit(*rows).err
        assert writer.requests == []

        assert "1 judged" in judgekit(*rows, "--explain").err
    assert "no way back is given" in (project / "out.jsonl").read_text(encoding="utf-8")


def test_what_is_to_be_improved_is_asked_of_a_model_that_can_say_what(
    judgekit: Run, project: Path, document: str
) -> None:
    with deciding_before(MIDDLING) as (server, writer):
        rated(server, 2)
        (verdict,) = judgekit(*JUDGE, document).json
    assert (verdict["verdict"], verdict["judge_tier"]) == ("improve", "deep")
    assert verdict["findings"][0]["suggestion"] == "say how to roll back"
    assert (len(server.requests), len(writer.requests)) == (1, 1)


def test_an_acceptance_is_confirmed_by_a_model_that_writes(
    judgekit: Run, project: Path, document: str
) -> None:
    with deciding_before(SOUND) as (server, writer):
        rated(server, 4)
        done = judgekit(*JUDGE, document)
    (verdict,) = done.json
    assert (done.code, verdict["verdict"], verdict["consensus"]) == (0, "accept", "unanimous")
    assert "alone" not in done.err
    assert len(writer.requests) == 1


def test_one_dimension_without_an_answer_fails_the_round_and_the_next_tier_is_asked(
    judgekit: Run, project: Path, document: str
) -> None:
    def refuse(body: dict[str, Any]) -> None:
        body["answers"]["pragmatic"] = {"type": "refusal", "refusal": "not about this"}

    with deciding_before(SOUND) as (server, writer):
        server.change = refuse
        (verdict,) = judgekit(*JUDGE, document).json
    first, second = verdict["rounds"]
    assert first["opinion"] is None
    assert first["failure"]["kind"] == FailureKind.REFUSAL
    assert "'pragmatic' was refused: not about this" in first["failure"]["message"]
    assert (second["tier"], verdict["verdict"]) == ("deep", "accept")
    assert len(writer.requests) == 1


def test_a_limit_above_what_is_read_of_a_text_is_not_the_one_that_is_named(
    judgekit: Run, project: Path, isolated: Path
) -> None:
    hooking.own_profile(isolated, "vllm-decisions", "context_chars: 60000", "context_chars: 800000")
    document = written(project, "# Retries\n\n" + "Retry five times, then give up.\n" * 15_000)
    with deciding_before(SOUND):
        (verdict,) = judgekit(*JUDGE, document).json
    message = verdict["rounds"][0]["failure"]["message"]
    assert "the text is longer than the 399,997 characters that " in message  # a line is not cut


def test_a_text_beyond_the_limit_is_not_sent_and_the_next_tier_is_asked(
    judgekit: Run, project: Path, isolated: Path
) -> None:
    hooking.own_profile(isolated, "vllm-decisions", "context_chars: 60000", "context_chars: 2000")
    document = written(project, "# Retries\n\n" + "Retry five times, then give up.\n" * 100)
    with deciding_before(SOUND) as (server, writer):
        (verdict,) = judgekit(*JUDGE, document).json
    assert verdict["rounds"][0]["failure"]["kind"] == FailureKind.CONTEXT_WINDOW
    assert "is longer than the" in verdict["rounds"][0]["failure"]["message"]
    assert (len(server.requests), len(writer.requests)) == (0, 1)
    assert verdict["verdict"] == "accept"


def eleven_points() -> str:
    """Return a bundled rubric with a scale from 0 to 10."""
    text = next(files.get_data_folder("rubrics").glob("answer-quality@*.yaml")).read_text(
        encoding="utf-8"
    )
    labels = ", ".join(f"{point}: better than {point - 1}" for point in range(11))
    scale = f"scale:\n  min: 0\n  max: 10\n  labels: {{{labels}}}\n"
    before, _, rest = text.partition("scale:\n")
    own = before.replace("rubric: answer-quality", "rubric: eleven")
    return f"{own}{scale}dimensions:\n{rest.partition('dimensions:' + chr(10))[2]}"


def test_a_scale_of_more_than_ten_points_is_refused_with_what_to_do(
    judgekit: Run, server: DecisionServer, project: Path, document: str
) -> None:
    (project / "eleven.yaml").write_text(eleven_points(), encoding="utf-8")
    words = ("--rubric", "eleven.yaml", "--description", "What is to be done?")
    done = judgekit(*JUDGE, document, *words)
    assert done.code == 2, done.err
    (verdict,) = done.json
    assert "the scale of the rubric has 11 points" in verdict["degraded"]
    assert "a smaller scale (1 to 5), or a model that writes" in verdict["degraded"]
    assert server.requests == []


def test_the_prompt_that_is_shown_is_what_is_sent(
    judgekit: Run, server: DecisionServer, document: str
) -> None:
    done = judgekit("judge", document, "--show-prompt", "--no-engine")
    assert (done.code, server.requests) == (0, [])
    for part in ("Retry five times", '"name": "semantic"', '"type": "score"', '"label": "5"'):
        assert part in done.out
    judgekit(*JUDGE, document)
    (request,) = server.requests
    for question in request.body["questions"].values():
        assert question["instructions"] in done.out


# --- Candidates, and many questions


def test_all_candidates_stand_in_one_request_and_one_that_is_refused_stays_undecided(
    judgekit: Run, server: DecisionServer, project: Path
) -> None:
    store = project / ".claude" / "memory" / "decisions"
    for number in range(15):
        memory = {
            "id": f"retry-{number}",
            "title": f"Retry rule {number}",
            "category": "decision",
            "tags": ["retry"],
            "text": f"A request is retried {number} times with a growing pause.",
        }
        (store / f"retry-{number}.json").write_text(json.dumps(memory), encoding="utf-8")

    def refuse_first(body: dict[str, Any]) -> None:
        first = next(iter(body["answers"]))
        body["answers"][first] = {"type": "refusal", "refusal": "not this one"}

    server.change = refuse_first
    done = judgekit("search", "retry a request", "--judge", "-n", "20", "--json")
    request = server.requests[0]
    assert len(request.body["questions"]) >= 15
    for later in server.requests[1:]:  # the deeper tiers, about the one that is left
        assert len(later.body["questions"]) == 1
    kept_by = [result["kept_by"] for result in done.json["results"]]
    assert kept_by.count("quick") == len(request.body["questions"]) - 1
    assert "was refused: not this one" in done.json["degraded"]
    decided = [result for result in done.json["results"] if result["kept_by"] == "quick"]
    assert {result["confidence"] for result in decided} == {0.8}


def test_more_questions_than_a_request_takes_are_asked_in_several() -> None:
    questions = [
        DecisionQuestion(f"q{number}", "predicate", f"Does {number} hold?") for number in range(300)
    ]

    async def ask(server: DecisionServer) -> Any:  # noqa: ANN401 - an answer
        model = build_endpoint(registry.find("vllm-decisions"), "small", address(server))
        gateway = LitellmGateway()
        try:
            state = State("You decide.", "The text.", CallKey("subject", "rubric@1", "quick"))
            return await ask_decisions(Session(gateway, 60.0), model, state, questions, 60.0)
        finally:
            await gateway.aclose()

    with DecisionServer() as server:
        server.probability = lambda instruction, _: int(instruction.split()[1]) / 1000
        answer = asyncio.run(ask(server))
        sizes = sorted(len(request.body["questions"]) for request in server.requests)
    assert sizes == [44, 128, 128]
    assert answer.failure is None
    assert answer.usage.input_tokens == 3000
    for number in range(300):
        assert answer.value[f"q{number}"]["yes"] == number / 1000


# --- A pair


def test_a_pair_is_asked_in_both_orders(
    judgekit: Run, server: DecisionServer, project: Path
) -> None:
    (project / "a.md").write_text("Use a lock.\n", encoding="utf-8")
    (project / "b.md").write_text("Hope for the best.\n", encoding="utf-8")

    server.better = "Use a lock"
    words = ("compare", "a.md", "b.md", "--prompt", "How do I write a file from two processes?")
    done = judgekit(*words, "--mode", "lenient", "--no-engine", "--format", "json")
    assert done.json["verdict"] == "A"
    first, second = (request.body["state"] for request in server.requests)
    assert {state.index("lock") < state.index("Hope") for state in (first, second)} == {True, False}
    (choice,) = {json.dumps(request.body["questions"]) for request in server.requests}
    assert json.loads(choice)["better"]["type"] == "choice"
    assert "a model that writes gives reasons: name one with --model" in done.err


def test_the_reasons_for_a_choice_come_with_a_model_that_writes(
    judgekit: Run, project: Path
) -> None:
    (project / "a.md").write_text("Use a lock.\n", encoding="utf-8")
    (project / "b.md").write_text("Hope for the best.\n", encoding="utf-8")
    words = ("compare", "a.md", "b.md", "--prompt", "How do I write a file?", "--no-engine")
    reply = json.dumps({"reasoning": "A lock keeps the file whole.", "better": "tie"})
    with deciding_before(says(reply)) as (_, writer):
        done = judgekit(*words, "--mode", "lenient", "--model", "hosted_vllm/writer")
    assert "A lock keeps the file whole" in done.out
    assert "alone" not in done.err
    assert writer.requests


# --- The gate


@pytest.fixture
def pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change a document since the branch `base`; the repository is the current folder."""
    work = GitRepo(tmp_path / "work")
    work.commit("base", readme_txt="x\n")
    work("branch", "base")
    work.commit("change", retries_md="# Retries\n\nRetry.\n")
    monkeypatch.chdir(work.folder)


GATE = ("gate", "--base", "base", "--block")


def test_a_push_is_held_by_findings_of_a_model_that_writes(judgekit: Run, pushed: None) -> None:
    with deciding_before(POOR) as (server, writer):
        rated(server, 0)
        done = judgekit(*GATE)
    assert (done.code, done.out.split()[0]) == (1, "NO-GO")
    assert "no way back is given" in done.out
    assert (len(server.requests), len(writer.requests)) == (1, 1)


def test_no_push_is_held_without_a_finding(judgekit: Run, pushed: None) -> None:
    with deciding_alone() as server:
        rated(server, 0)
        done = judgekit(*GATE)
    assert (done.code, done.out.split()[0]) == (0, "UNDETERMINED")
    assert "no model gave a finding: name one that writes in judge.tiers.deep" in done.out


def test_the_record_of_a_push_says_that_a_finding_is_missing(judgekit: Run, pushed: None) -> None:
    with deciding_alone() as server:
        rated(server, 0)
        done = judgekit(*GATE, "--format", "jsonl")
    assert json.loads(done.out.splitlines()[0])["because"] == "no model gave a finding"


# --- Known costs


@pytest.mark.parametrize(("usd", "words"), [(0.0, "at least 0"), (0.001, "at least 0.0020 USD")])
def test_a_tier_without_a_price_makes_the_cost_of_rows_a_least_one(
    judgekit: Run, project: Path, usd: float, words: str
) -> None:
    rows = [json.dumps({"text": f"Restart the server {number} times."}) for number in range(2)]
    (project / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    judge = ("judge", "--no-engine", "--data", "rows.jsonl", "--out", "out.jsonl")
    with deciding_before(SOUND) as (server, _):
        profile = (files.get_data_folder("providers") / "vllm-decisions.yaml").read_text(
            encoding="utf-8"
        )
        priced = f"{profile}price: {{small: {{input: {usd * 1000}, output: 0}}}}\n"
        folder = Path(environment.PROVIDERS.path())
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vllm-decisions.yaml").write_text(priced, encoding="utf-8")
        done = judgekit(*judge, "--mode", "strict")
        assert len(server.requests) == 2
    assert words in done.err
    assert "cost 0 (local)" not in done.err
    told = judgekit("report", "out.jsonl").out.splitlines()[0]
    assert f"at least {2 * usd:.4f} USD" in told


def test_a_model_that_fills_two_tiers_is_said_once_with_its_calls(
    judgekit: Run, project: Path
) -> None:
    rows = [json.dumps({"text": f"Restart the server {number} times."}) for number in range(4)]
    (project / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    judge = ("judge", "--no-engine", "--data", "rows.jsonl", "--mode", "strict")
    hooking.by_user(f"judge: {{tiers: {{quick: {WRITER}}}}}\n")
    with Loopback(POOR, SOUND) as writer, patch.dict(os.environ, JUDGEKIT_API_BASE=writer.base):
        done = judgekit(*judge, "-j", "1")
        assert len(writer.requests) == 7
        quick = judgekit(*judge, "--depth", "quick", "--no-cache")
    assert done.err.count("fills several tiers: 1.8 calls a row; --depth quick asks once") == 1
    assert "fills several tiers" not in quick.err


def test_tiers_of_different_models_are_not_called_one(judgekit: Run, project: Path) -> None:
    row = json.dumps({"text": "Restart the server when it hangs."})
    (project / "rows.jsonl").write_text(f"{row}\n", encoding="utf-8")
    with deciding_before(SOUND):
        done = judgekit("judge", "--no-engine", "--data", "rows.jsonl", "--mode", "strict")
    assert "fills several tiers" not in done.err
