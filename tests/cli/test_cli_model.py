"""`--model`: one model in every tier, whatever variables, files and a project say; errors are named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from git_repo import GitRepo
from hooking import by_user
from loopback import Loopback, says
from outcome import by_project
from scripted import scores

from judgekit.engine import client

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Run, Served, Use

pytestmark = pytest.mark.usefixtures("project", "no_servers")
JUDGE = ("judge", "good.md", "--format", "jsonl")
COMPARE = ("compare", "good.md", "bad.md", "--prompt", "p", "--rubric", "kls", "--format", "jsonl")
UNSURE = says(scores(3, 3, 2))  # so that every tier is asked
TIERS = {"quick": "a", "deep": "b", "tiebreaker": "c"}


def by_nobody() -> None:
    """Name no model but in variables."""


@pytest.mark.parametrize("words", [JUDGE, COMPARE], ids=["judge", "compare"])
@pytest.mark.parametrize(
    "configure",
    [
        by_nobody,
        lambda: by_user("judge: {tiers: {quick: custom/theirs}}\n"),
        lambda: by_project("judge: {tiers: {deep: anthropic/claude-opus-5-5}}\n"),
    ],
    ids=["variables", "user", "project"],
)
def test_one_model_judges_in_every_tier(
    served: Served, words: tuple[str, ...], configure: Callable[[], None]
) -> None:
    configure()
    for name in ("mine", "custom/mine"):
        done, asked = served(UNSURE, *words, "--no-cache", "--model", name, **TIERS)
        assert {request.body["model"] for request in asked} == {"mine"}, done
        assert {each["tier"] for each in done.json["rounds"]} >= {"quick", "deep"}


def test_a_model_that_cannot_be_asked_is_said(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, use: Use
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    wrong = {
        "no-such": "the model no-such is named by --model, but no allowed provider serves it",
        "openai/a,openai/b": "",
        "mistral/m": "the model mistral/m is named by --model, but set MISTRAL_API_KEY",
        "claude-code/x": "the model claude-code/x is named by --model, but no allowed provider serves it",
        "\udcff\x1b": "the model ?\\x1b is named by --model, but no allowed provider serves it",
    }
    for name, said in wrong.items():
        if said:
            done = judgekit(*JUDGE, "--model", name)
            assert (done.code, done.json["rounds"]) == (2, [])
            assert said in done.err
    shown = judgekit("judge", "good.md", "--show-prompt", "--model", "openai/a,b").out
    assert "(openai/a,b)" in shown  # the name of one model, as it stands
    for words in (JUDGE, COMPARE):
        done = judgekit(*words, "--model", " ")
        assert (done.code, "--model: expected a model such as" in done.err) == (64, True)


def test_a_shared_judge_chooses_its_models_itself(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_SERVER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("JUDGEKIT_SERVER_TOKEN", "jk_x")
    done = judgekit(*JUDGE, "--model", "mine")
    assert (
        done.code,
        "--model mine: the shared judge (server.url) chooses models" in done.err,
    ) == (64, True)


def test_a_project_that_says_who_wrote_a_text_adds_no_provider(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_project("judge: {author_family: anthropic}\n")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with Loopback(UNSURE) as openai, Loopback(UNSURE) as own:
        monkeypatch.setenv("OPENAI_BASE_URL", openai.base)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", own.base)
        judgekit(*JUDGE, "--model", "anthropic/claude-haiku-5-5")
        assert (bool(own.requests), openai.requests) == (True, [])


def test_an_engine_is_told_of_a_model_only_where_one_is_named(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGEKIT_ENGINE", "1")
    sent: list[dict[str, Any]] = []

    def many(
        _: str,
        documents: list[object],
        body: Callable[[object], bytes],
        *given: object,
        **more: object,
    ) -> None:
        sent.extend(json.loads(body(document))["wish"] for document in documents)

    monkeypatch.setattr("judgekit.engine.answers.run_many", many)
    monkeypatch.setattr(client, "is_enabled", lambda: True)
    judgekit(*JUDGE)
    judgekit(*JUDGE, "--model", "mine")
    assert ["model" in wish for wish in sent] == [False, True]


def test_a_recording_is_replayed_where_a_shared_judge_is_configured(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user("server: {url: 'http://127.0.0.1:9', token_file: none}\n")
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.setenv("JUDGEKIT_REPLAY", str(examples / "python" / "replies.jsonl"))
    done = judgekit("judge", str(examples / "documents" / "good.md"), "--format", "jsonl")
    assert (done.code, done.json["model"]) == (0, "example/deep"), done.err


CASES = (
    '{"id": "1", "text": "# A", "label": "accept"}\n{"id": "2", "text": "# B", "label": "reject"}\n'
)


@pytest.mark.parametrize(
    "words",
    [
        "search token --judge --no-engine",
        "gate --base HEAD~1 --no-engine",
        "eval judge cases.jsonl --rubric kls",
        "calibrate cases.jsonl --rubric kls --mode lenient",
        "rubric check kls --run --mode lenient",
        "rubric diff kls kls --run --mode lenient",
    ],
)
def test_every_command_that_judges_asks_the_named_model(
    served: Served, project: Path, words: str
) -> None:
    (project / "cases.jsonl").write_text(CASES)
    repository = GitRepo(project)
    repository("init", "--quiet")
    repository.commit(a_md="# A\n")
    repository.commit(a_md="# A\n\nMore.\n")
    done, asked = served(UNSURE, *words.split(), "--model", "mine", **TIERS)
    assert {request.body["model"] for request in asked} == {"mine"}, done


def test_a_model_that_would_not_be_asked_is_refused_or_said(
    judgekit: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = json.dumps(
        {"scores": dict.fromkeys(("knowledge", "logic", "semantic"), 5), "reasoning": "r"}
    )
    recorded = {"id": "1", "label": "accept", "judges": {"quick": {"model": "m", "reply": reply}}}
    (project / "cases.jsonl").write_text(json.dumps(recorded))
    for words in (
        "search token",
        "rubric check kls",
        "rubric diff kls kls",
        "eval judge cases.jsonl --rubric kls",
        "calibrate cases.jsonl --rubric kls --mode lenient",
    ):
        done = judgekit(*words.split(), "--model", "mine")
        assert (done.code, done.err.startswith("judgekit: --model")) == (64, True), done
    examples = Path(__file__).parents[2] / "examples"
    monkeypatch.setenv("JUDGEKIT_REPLAY", str(examples / "python" / "replies.jsonl"))
    done = judgekit("judge", str(examples / "documents" / "good.md"), "--model", "mine")
    assert (done.code, done.out) == (64, "")
    assert re.search(
        "--model mine: .*replies.jsonl has no replies of this model; it has ", done.err
    )
    name = done.err.rstrip().rpartition(" ")[2]
    done = judgekit("judge", str(examples / "documents" / "good.md"), "--model", name, "--no-cache")
    assert done.code in (0, 1, 2)
