"""The doors through which decision models are asked: rows, recordings, caches, budgets, keys, the engine."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hooking
import pytest
from deciding import DecisionServer
from engine_processes import private_folder
from judged_by_decisions import QUICK, deciding_alone, written
from loopback import Loopback, says
from scripted import scores

from judgekit import api
from judgekit.hooks import claude_code
from judgekit.judging import decisions, question

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from outcome import Run

    from judgekit.providers.decisions import DecisionQuestion

ROWS = ("judge", "--data", "rows.jsonl", "--rubric", "answer-quality", "--mode", "lenient")
JUDGE = ("judge", "--no-engine", "--mode", "lenient", "--format", "json")
SOUND = says(scores(4, 4, 5))


@pytest.fixture
def document(project: Path) -> str:
    return written(project)


@pytest.fixture
def server(project: Path) -> Iterator[DecisionServer]:
    with deciding_alone() as running:
        yield running


@pytest.fixture
def rows(project: Path) -> int:
    lines = []
    for number in range(5):
        row = {"id": f"r{number}", "question": "How often?", "answer": f"{number} times."}
        lines.append(json.dumps(row) + "\n")
    (project / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    return len(lines)


# --- Rows


def test_rows_are_judged_one_request_each_and_none_twice(
    judgekit: Run, server: DecisionServer, rows: int
) -> None:
    done = judgekit(*ROWS, "--out", "out.jsonl", "--no-engine")
    assert done.code == 0, done.err
    assert len(server.requests) == rows
    results = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert {result["verdict"] for result in results} == {"accept"}
    assert "decided by vllm-decisions/small alone, in probabilities and without reasons" in done.err

    judgekit(*ROWS, "--out", "out.jsonl", "--no-engine")
    assert len(server.requests) == rows


@pytest.mark.slow
def test_rows_and_documents_are_judged_in_the_engine_as_well(
    judgekit: Run,
    server: DecisionServer,
    rows: int,
    document: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with private_folder() as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        monkeypatch.setenv("JUDGEKIT_ENGINE", "1")
        done = judgekit(*ROWS, "--out", "out.jsonl")
        assert done.code == 0, done.err
        words = ("judge", document, "--mode", "lenient", "--format", "json", "--no-cache")
        (verdict,) = judgekit(*words).json
        judgekit("engine", "stop")
    assert verdict["verdict"] == "accept"
    assert "probabilities" in verdict["rounds"][0]["opinion"]
    assert len(server.requests) == rows + 1


def test_batches_are_refused_with_the_reason(
    judgekit: Run, server: DecisionServer, rows: int
) -> None:
    done = judgekit(*ROWS, "--out", "out.jsonl", "--batch", "--no-engine")
    assert done.code != 0
    assert "decision models have no batches" in done.err
    assert server.requests == []


def test_python_judges_documents_with_it(server: DecisionServer, document: str) -> None:
    (verdict,) = api.judge(document, mode="lenient")
    assert verdict.verdict == "accept"
    (round_,) = verdict.rounds
    assert round_.opinion is not None
    assert round_.opinion.probabilities["semantic"]["4"] == 0.75
    assert len(server.requests) == 1


# --- What is kept: recordings and replies


def test_a_recording_gives_the_same_verdict_without_a_server(
    judgekit: Run, project: Path, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_RECORD", "replies.jsonl")
    with deciding_alone() as server:
        (verdict,) = judgekit(*JUDGE, document).json
        assert len(server.requests) == 1
    monkeypatch.delenv("JUDGEKIT_RECORD")
    monkeypatch.setenv("JUDGEKIT_REPLAY", "replies.jsonl")
    (again,) = judgekit(*JUDGE, document, "--no-cache").json
    assert (again["verdict"], again["scores"]) == (verdict["verdict"], verdict["scores"])
    assert again["rounds"][0]["opinion"] == verdict["rounds"][0]["opinion"]


def reword_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask decision models about the same in other words."""
    usual = decisions._make_questions

    def reworded(*asked: Any) -> list[DecisionQuestion]:  # noqa: ANN401 - handed on
        return [each._replace(instruction=f"{each.instruction}!") for each in usual(*asked)]

    monkeypatch.setattr(decisions, "_make_questions", reworded)
    monkeypatch.setattr(question, "_hashes", {})  # in another process they are hashed anew


def test_a_recording_holds_for_the_words_in_which_a_decision_model_was_asked(
    judgekit: Run, server: DecisionServer, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_RECORD", "replies.jsonl")
    judgekit(*JUDGE, document)
    monkeypatch.delenv("JUDGEKIT_RECORD")
    monkeypatch.setenv("JUDGEKIT_REPLAY", "replies.jsonl")
    reword_questions(monkeypatch)
    (verdict,) = judgekit(*JUDGE, document, "--no-cache").json
    assert verdict["verdict"] == "undetermined"
    assert "replies.jsonl has no quick words-" in verdict["degraded"]


def test_a_kept_reply_does_so_too(
    judgekit: Run, server: DecisionServer, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgekit(*JUDGE, document)
    reword_questions(monkeypatch)
    judgekit(*JUDGE, document)
    assert len(server.requests) == 2


def test_a_second_run_asks_nobody(judgekit: Run, server: DecisionServer, document: str) -> None:
    (first,) = judgekit(*JUDGE, document).json
    (second,) = judgekit(*JUDGE, document).json
    assert len(server.requests) == 1
    assert second["scores"] == first["scores"]


def test_a_refusal_is_not_kept(judgekit: Run, server: DecisionServer, document: str) -> None:
    def refuse(body: dict[str, Any]) -> None:
        body["answers"]["semantic"] = {"type": "refusal", "refusal": "not now"}

    server.change = refuse
    assert judgekit(*JUDGE, document).json[0]["verdict"] == "undetermined"
    server.change = lambda body: body
    assert judgekit(*JUDGE, document).json[0]["verdict"] == "accept"
    assert len(server.requests) == 2


def test_a_budget_ends_a_run(
    judgekit: Run, project: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DecisionServer() as server:
        monkeypatch.setenv("TYPESAFE_API_KEY", "sk-decides")
        monkeypatch.setenv("TYPESAFE_API_BASE", server.base)
        words = (*ROWS, "--out", "out.jsonl", "--no-engine", "-j", "1", "--max-cost")
        done = judgekit(*words, "0.0001")  # a row costs 0.000042 USD
        assert "because --max-cost is reached" in done.err
        assert 0 < len(server.requests) < rows
        done = judgekit(*words, "1")
        assert done.code == 0
        assert len(server.requests) == rows


# --- Which model judges


def test_the_key_of_a_provider_that_only_decides_judges_alone_and_says_so(
    judgekit: Run, project: Path, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DecisionServer() as server, Loopback(SOUND) as writer:
        monkeypatch.setenv("TYPESAFE_API_KEY", "sk-decides")
        monkeypatch.setenv("TYPESAFE_API_BASE", server.base)
        done = judgekit(*JUDGE, document)
        assert done.json[0]["model"] == "jev-1.13.0"
        assert "decided by typesafe/jev-1.13.0 alone" in done.err
        assert len(server.requests) == 1

        monkeypatch.setenv("OPENAI_API_KEY", "sk-chats")
        monkeypatch.setenv("OPENAI_BASE_URL", writer.base)
        done = judgekit(*JUDGE, document, "--no-cache")
        assert done.json[0]["verdict"] == "accept"
        assert "alone" not in done.err
        assert (len(server.requests), len(writer.requests)) == (1, 1)


def test_a_name_that_moves_is_warned_about(
    judgekit: Run, project: Path, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DecisionServer() as server:
        monkeypatch.setenv("TYPESAFE_API_KEY", "sk-decides")
        monkeypatch.setenv("TYPESAFE_API_BASE", server.base)
        server.change = lambda body: body.update(model="jev-1.13.0")
        done = judgekit(*JUDGE, document, "--model", "typesafe/jev-latest")
    assert done.err.count("typesafe/jev-latest moves on") == 1
    assert "it was answered by jev-1.13.0" in done.err


def test_beside_a_named_decision_model_the_same_key_writes_in_the_deeper_tiers(
    judgekit: Run, project: Path, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DecisionServer() as server, Loopback(SOUND) as writer:
        # One address serves both: /v1/decisions decides, /v1/chat/completions writes.
        monkeypatch.setenv("OPENAI_API_KEY", "sk-both")
        monkeypatch.setenv("OPENAI_BASE_URL", writer.base)
        hooking.by_user("judge: {tiers: {quick: openai-decisions/gpt-6-luna}}\n")
        done = judgekit("provider", "list")
    asked = next(line for line in done.out.splitlines() if line.startswith("asked"))
    assert "quick openai-decisions/gpt-6-luna" in asked
    assert "deep openai/gpt-6-sol" in asked
    assert "tiebreaker openai/gpt-6.1-sol" in asked
    assert server.requests == []


# --- What is said about them


def test_the_list_of_providers_says_how_a_decision_model_is_named(
    judgekit: Run, project: Path, no_servers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-both")
    lines = judgekit("provider", "list").out.splitlines()
    by_name = {line.split()[0]: line for line in lines}
    assert "set JUDGEKIT_DECISIONS_BASE" in by_name["vllm-decisions"]
    assert "set PERPLEXITYAI_API_KEY or PERPLEXITY_API_KEY" in by_name["perplexity"]
    assert "used only where one of its models is named" in by_name["openai-decisions"]
    columns = set()
    for line in lines:
        name, mark = line.split()[:2]
        if mark in ("usable", "-"):
            columns.add(line.index(f" {mark} ", len(name)))
    assert len(columns) == 1


def test_a_named_decision_model_is_usable_in_the_list(
    judgekit: Run, server: DecisionServer, no_servers: None
) -> None:
    lines = judgekit("provider", "list").out.splitlines()
    (line,) = [line for line in lines if line.startswith("vllm-decisions")]
    assert line.split()[1] == "usable"
    assert "JUDGEKIT_DECISIONS_BASE set" in line


def test_a_check_asks_two_questions_and_shows_the_probabilities(
    judgekit: Run, server: DecisionServer
) -> None:
    server.probability = lambda instruction, _: 0.95 if "boils" in instruction else 0.05
    done = judgekit("provider", "check")
    assert done.code == 0, done.err
    assert "says yes with 0.95 where that is right, with 0.05 where it is wrong" in done.out
    (request,) = server.requests
    assert len(request.body["questions"]) == 2

    server.probability = None
    done = judgekit("provider", "check")
    assert "it does not tell them apart" in done.out
    assert done.code == 1


def test_a_check_of_a_provider_asks_the_model_that_the_configuration_names(
    judgekit: Run, server: DecisionServer
) -> None:
    server.probability = lambda instruction, _: 0.95 if "boils" in instruction else 0.05
    done = judgekit("provider", "check", "vllm-decisions")
    assert done.code == 0, done.err
    assert QUICK in done.out
    assert len(server.requests) == 1


def test_the_doctor_names_it_and_asks_it_when_told_to(
    judgekit: Run, server: DecisionServer
) -> None:
    done = judgekit("doctor")
    assert f"models, quick: {QUICK}" in done.out
    assert server.requests == []
    done = judgekit("doctor", "--live")
    assert "says yes with 0.80" in done.out
    assert f"wrong  model {QUICK}: " in done.out
    assert done.code == 78
    assert len(server.requests) == 1


# --- Doors that say of an acceptance that nothing vouches for it

WITHOUT = "without a calibration"


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "junit", "sarif"])
def test_every_format_says_that_an_acceptance_is_uncalibrated(
    judgekit: Run, server: DecisionServer, document: str, form: str
) -> None:
    done = judgekit(
        "judge", document, "--no-engine", "--no-cache", "--mode", "lenient", "--format", form
    )
    assert done.code == 0
    assert WITHOUT in done.out
    assert WITHOUT in done.err


def test_rows_say_how_many_acceptances_are_uncalibrated(
    judgekit: Run, server: DecisionServer, project: Path
) -> None:
    rows = [json.dumps({"id": number, "text": f"Text {number}."}) for number in range(3)]
    (project / "rows.jsonl").write_text("\n".join(rows))
    done = judgekit(
        "judge", "--data", "rows.jsonl", "--no-engine", "--mode", "lenient", "--out", "out.jsonl"
    )
    assert "accepted 3 texts without a calibration" in done.err
    first = json.loads((project / "out.jsonl").read_text().splitlines()[0])
    assert WITHOUT in first["judged"]["degraded"]
    assert first["error"] is None


def test_a_search_says_that_what_it_kept_is_uncalibrated(
    judgekit: Run, server: DecisionServer, project: Path
) -> None:
    done = judgekit("search", "JWT refresh", "--judge")
    assert WITHOUT in done.err


def test_a_comparison_says_that_its_winner_is_uncalibrated(
    judgekit: Run, server: DecisionServer, project: Path
) -> None:
    (project / "one.md").write_text("The better text.")
    (project / "two.md").write_text("Another text.")
    server.better = "The better text."
    done = judgekit("compare", "one.md", "two.md", "--prompt", "Write a text.", "--mode", "lenient")
    assert WITHOUT in done.err


def test_a_rejection_needs_no_such_word(
    judgekit: Run, server: DecisionServer, document: str
) -> None:
    server.level = 0
    done = judgekit("judge", document, "--no-engine", "--no-cache", "--format", "json")
    assert done.json[0]["verdict"] == "reject"
    assert WITHOUT not in done.out + done.err


# --- The prompt hook


def test_a_prompt_is_judged_in_one_request_and_bm25_answers_where_that_fails(
    project: Path,
    server: DecisionServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hooking.by_user(f"judge: {{tiers: {{quick: {QUICK}}}}}\nretrieval: {{judge: on}}\n")
    prompt = {
        "prompt": "How does the JWT refresh work?",
        "cwd": str(project),
        "hook_event_name": "UserPromptSubmit",
    }

    def hook() -> tuple[str, str]:
        raw = io.TextIOWrapper(io.BytesIO(json.dumps(prompt).encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", raw)
        monkeypatch.setattr(sys, "argv", ["judgekit", "hook"])
        assert claude_code.main() == 0
        said = capsys.readouterr()
        return said.out, said.err

    out, err = hook()
    assert "JWT refresh flow" in out
    assert len(server.requests) == 1, err

    server.answer = (500, b'{"error": {"message": "it broke"}}', {})
    prompt["prompt"] = "How does the refresh of a JWT work here?"
    out, err = hook()
    assert "JWT refresh flow" in out
    assert "it broke" in err


PROMPT = "How does the JWT refresh work?"


@pytest.fixture
def hook(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[str, str]]:
    def answer(prompt: str) -> tuple[str, str]:
        event = {"prompt": prompt, "cwd": str(project), "hook_event_name": "UserPromptSubmit"}
        raw = io.TextIOWrapper(io.BytesIO(json.dumps(event).encode()), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", raw)
        monkeypatch.setattr(sys, "argv", ["judgekit", "hook"])
        assert claude_code.main() == 0
        said = capsys.readouterr()
        return said.out, said.err

    return answer


def test_without_a_calibration_the_hook_shows_nothing_that_bm25_would_not(
    server: DecisionServer, hook: Callable[[str], tuple[str, str]]
) -> None:
    by_bm25, _ = hook(PROMPT)
    hooking.by_user(f"judge: {{tiers: {{quick: {QUICK}}}}}\nretrieval: {{judge: on}}\n")
    server.yes = 0.99
    by_judge, said = hook(PROMPT)
    assert by_judge == by_bm25
    assert len(server.requests) == 1
    assert "it only drops" in said


def test_without_a_calibration_the_hook_leaves_out_what_the_model_drops(
    server: DecisionServer, hook: Callable[[str], tuple[str, str]]
) -> None:
    hooking.by_user(f"judge: {{tiers: {{quick: {QUICK}}}}}\nretrieval: {{judge: on}}\n")
    server.yes = 0.01
    by_judge, _ = hook(PROMPT)
    assert "JWT" not in by_judge
    assert len(server.requests) == 1


def test_its_probability_keeps_or_drops_a_memory(
    project: Path, server: DecisionServer, judgekit: Run
) -> None:
    server.yes = 0.1
    done = judgekit("search", "JWT refresh", "--judge", "--mode", "strict", "--json")
    assert done.json["results"] == []
    assert len(server.requests) >= 1
