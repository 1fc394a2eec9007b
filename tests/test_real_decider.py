"""With a real decision model behind the wire: rows, candidates, pairs and a prompt are judged by it.

It is far too small to be right, and nothing is claimed of its verdicts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import claude_client
import claude_standin
import decider
import hooking
import pytest
import sample_store
from claude_standin import REPLY
from outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.real_client, pytest.mark.timeout(600)]

CONFIG = f"judge: {{tiers: {{quick: {decider.MODEL}}}}}\n"
HOOK = f"{CONFIG}retrieval: {{judge: on, mode: lenient, deadline: 20}}\n"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with decider.serving() as running:
        yield running


@pytest.fixture
def project(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a store of memories, for which the model judges; it is the current folder."""
    sample_store.write(tmp_path)
    hooking.by_user(CONFIG)
    monkeypatch.setenv("JUDGEKIT_DECISIONS_BASE", address)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_it_passes_the_check(project: Path) -> None:
    done = run("provider", "check")
    assert (done.code, done.err) == (0, "")
    assert f"{decider.MODEL}: answered in" in done.out
    assert "says yes with 0." in done.out


def test_rows_get_verdicts_with_probabilities(project: Path) -> None:
    rows = []
    for number in range(8):
        row = {"id": str(number), "question": "How often?", "answer": f"{number} times."}
        rows.append(json.dumps(row) + "\n")
    (project / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    words = ("--rubric", "answer-quality", "--mode", "lenient", "--out", "out.jsonl")
    done = run("judge", "--data", "rows.jsonl", *words)
    assert done.code in (0, 2), done.err
    results = [json.loads(line) for line in (project / "out.jsonl").read_text().splitlines()]
    assert len(results) == len(rows)
    for result in results:
        assert result.get("error") is None
        assert set(result["scores"]) == {"correct", "complete", "direct"}
        assert all(1 <= score <= 5 for score in result["scores"].values())


def test_candidates_are_decided_one_by_one(project: Path) -> None:
    done = run("search", "refresh a JWT and its rate limits", "--judge", "--json")
    assert done.code == 0
    assert done.json["degraded"] is None, done.err
    tiers = {result["kept_by"] for result in done.json["results"]}
    assert tiers <= {"quick", "deep", "tiebreaker"}


def test_a_pair_gets_an_answer_in_each_order(project: Path) -> None:
    (project / "a.md").write_text("Use a lock.\n", encoding="utf-8")
    (project / "b.md").write_text("Hope for the best.\n", encoding="utf-8")
    words = ("--prompt", "How do two processes write one file?", "--format", "json")
    done = run("compare", "a.md", "b.md", *words)
    assert done.json["verdict"] in ("A", "B", "tie"), done.out
    for round_ in done.json["rounds"]:
        assert round_["failure"] is None
        assert sum(round_["opinion"]["probabilities"]["better"].values()) == pytest.approx(
            1, abs=1e-3
        )
    assert {tuple(round_["order"]) for round_ in done.json["rounds"]} == {("A", "B"), ("B", "A")}


def test_a_prompt_of_the_real_client_is_judged_by_it(tmp_path: Path, address: str) -> None:
    client_program = claude_client.find()
    if client_program is None:
        pytest.skip(f"no Claude Code client: name one in {claude_client.VARIABLE}")
    with claude_standin.Standin() as api:
        client = claude_client.Client(client_program, tmp_path, api)
        recording = tmp_path / "replies.jsonl"
        client.variables["JUDGEKIT_DECISIONS_BASE"] = address
        client.variables["JUDGEKIT_ENGINE"] = "0"
        client.variables["JUDGEKIT_RECORD"] = str(recording)
        client.project.mkdir()
        sample_store.write(client.project)
        user_file = tmp_path / "home" / ".config" / "judgekit" / "config.yaml"
        user_file.parent.mkdir(parents=True)
        user_file.write_text(HOOK, encoding="utf-8")
        client.install_hook()
        answer = client.ask(hooking.QUESTION)
        assert (answer.code, answer.stdout.strip()) == (0, REPLY), answer
        assert hooking.QUESTION in json.dumps(api.messages(), ensure_ascii=False)
    (reply,) = [json.loads(line) for line in recording.read_text().splitlines()]
    assert reply["model"] == decider.MODEL
    answers = json.loads(reply["reply"]["text"])
    assert answers
    for probabilities in answers.values():
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-3)
