"""The flow from a query to memories, above all what happens where models have no part in it."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
import sample_store
import secret_texts
from loopback import SILENT, Answer, Asked, Loopback, fails, says
from making import finality_rules, query

from judgekit.config.settings import user_file
from judgekit.hooks import claude_code, entries, judged
from judgekit.hooks.context import PATIENCE
from judgekit.judging import search
from judgekit.judging.calibration import UsableCalibration
from judgekit.judging.verdict import Decision, RubricRef, Selection
from judgekit.providers import litellm
from judgekit.retrieval.confidence import Candidate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judgekit.config import ModeName


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


CANDIDATES = [candidate("a", "high"), candidate("b", "low"), candidate("c", "high"), candidate("d", "low")]


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
        ("strict", {"a": "dropped", "b": "undetermined", "c": "undetermined", "d": "undetermined"}, "b"),
        ("lenient", {"a": "dropped", "b": "undetermined", "c": "kept", "d": "dropped"}, "bc"),
    ]
    for mode, decided, kept in cases:
        found, degraded = search.apply(selection(**decided), CANDIDATES, mode, top_k=2)
        assert "".join(hit.id for hit, _ in found) == kept
        assert (degraded is not None) == ("undetermined" in decided.values())
        for hit, keeper in found:
            assert keeper == ("bm25" if decided[hit.id] == "undetermined" else "quick")
        alone, why = search.apply("no model found", CANDIDATES, mode, top_k=2)  # without any judge
        expected = "ac" if mode == "strict" else "abcd"
        assert ("".join(hit.id for hit, _ in alone), why) == (expected, "no model found")


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

    def call(prompt: str, server: Loopback | None, settings: str = "judge: 'on'") -> tuple[str, str]:
        user_file().parent.mkdir(parents=True, exist_ok=True)
        user_file().write_text(f"retrieval: {{{settings}}}\n")
        if server:
            monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
            monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        payload = json.dumps({"prompt": prompt, "cwd": str(project), "transcript_path": "/nowhere.jsonl"})
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(payload.encode())))
        monkeypatch.setattr(sys, "argv", ["judgekit", "hook"])
        capfd.readouterr()
        assert claude_code.main() == 0
        out, err = capfd.readouterr()
        return out, err

    return call


def keeping(title: str) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        label = next(line[1:5] for line in asked.text.splitlines() if line.startswith("[") and title in line)
        return says(json.dumps({"keep": [label]}))

    return answer


PROMPT = "What about the queue, the payment tables and the JWT refresh?"


def test_of_a_long_prompt_models_see_the_best_parts_first(hook: Callable[..., tuple[str, str]]) -> None:
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


def test_no_passage_shows_a_half_of_a_secret(hook: Callable[..., tuple[str, str]], project: Path) -> None:
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
    hook: Callable[..., tuple[str, str]], answer: Answer
) -> None:
    with Loopback(answer) as server:
        out, err = hook("How do we refresh the JWT?", server, "judge: 'on', timeout: 1, deadline: 2")
    assert sample_store.JWT.title in out
    assert out.count("<result") == 1
    assert err.startswith("judgekit: quick: ")
    assert err.count("\n") == 1


def test_importing_litellm_costs_no_call_its_time_but_the_deadlines(
    hook: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, loaded, lock = litellm.load(), list[object](), threading.Lock()

    def load() -> object:
        with lock:
            if not loaded:
                time.sleep(1.5)  # longer than a call may take
                loaded.append(found)
            return found

    monkeypatch.setattr(litellm, "_loaded", loaded)
    monkeypatch.setattr(litellm, "load", load)
    alone, _ = hook(PROMPT, None, "judge: 'off'")
    with Loopback(keeping(sample_store.JWT.title)) as server:
        out, err = hook(PROMPT, server, "judge: 'on', timeout: 1.4, deadline: 20")
        assert (len(server.requests), err, out.count("<result")) == (1, "", 1)
        loaded.clear()
        out, err = hook(PROMPT, server, "judge: 'on', timeout: 1, deadline: 0.2")
        assert len(server.requests) == 1
    assert (out, err.count("\n")) == (alone, 1)
    assert "retrieval.deadline" in err
    with lock:  # until what was left behind is done
        pass


def test_judging_ends_before_the_client_gives_up(
    hook: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search.HOOK_SECONDS == judged.MOST_SECONDS  # here as in the engine
    start_and_end = 3  # seconds, on a busy machine
    assert PATIENCE + search.HOOK_SECONDS + start_and_end < entries.TIMEOUT
    monkeypatch.setattr(search, "HOOK_SECONDS", 1.0)
    began = time.monotonic()
    with Loopback(SILENT) as server:
        out, err = hook("How do we refresh the JWT?", server, "judge: 'on', timeout: 60, deadline: 60")
    assert time.monotonic() - began < 20
    assert sample_store.JWT.title in out
    assert err.startswith("judgekit: quick: ")


@pytest.mark.parametrize(("inject", "prompt"), [("tiered", PROMPT), ("top_k", "How do we refresh the JWT?")])
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
    ("inject", "mode", "most"), [("top_k", "lenient", 1), ("tiered", "strict", 0), ("tiered", "strict", 20)]
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
    assert [line for line in out.splitlines() if line.startswith("<result")] == results[: min(most, 3)]
    assert err.startswith("judgekit: quick: ")


def test_a_project_cannot_switch_the_judge_on(hook: Callable[..., tuple[str, str]], project: Path) -> None:
    (project / ".judgekit").mkdir()
    (project / ".judgekit" / "config.yaml").write_text("retrieval: {judge: 'on'}\n")
    with Loopback() as server:
        out, _ = hook("How do we refresh the JWT?", server, "judge: 'off'")
        assert server.requests == []
    assert sample_store.JWT.title in out


def test_a_calibration_says_nothing_of_requests_with_a_conversation_before_them() -> None:
    learned = UsableCalibration(finality_rules("c"))
    assert search.measured_for(query("q"), learned) == learned
    assert search.measured_for(query("q", ("t",)), UsableCalibration()) == UsableCalibration()
    usable_calibration = search.measured_for(query("q", ("t",)), learned)
    assert usable_calibration.finality is None
    assert str(usable_calibration.calibration_warning).startswith(
        "calibration c not used: its labelled requests had no earlier conversation"
    )
    damaged = UsableCalibration(finality_rules("c"), "calibration not used: x.json: cannot be read")
    assert str(search.measured_for(query("q", ("t",)), damaged).calibration_warning).endswith(
        f"; {damaged.calibration_warning}"
    )
