"""`judgekit eval memories --fit` with a model that gives probabilities: above which one it may inject."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from deciding import DecisionServer
from hooking import by_project, by_user
from judged_by_decisions import QUICK, address
from memory_store import write_topics

from judgekit.config import settings
from judgekit.hooks import claude_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outcome import Run

COUNT = 30
THINGS = ("lantern", "harbour", "violin", "glacier", "orchard", "kiln", "beehive", "canal")
PARTS = ("wick", "crane", "varnish", "survey")
TOPICS = [f"{thing} {part}" for thing in THINGS for part in PARTS][:COUNT]
COMMAND = ("eval", "memories", "--prompts", "prompts.txt", "--labels", "labels.jsonl")
MODEL = "small"  # as it answers
JUDGED = f"judge: {{tiers: {{quick: {QUICK}}}}}\nretrieval: {{judge: on}}\nengine: {{use: false}}\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_topics(tmp_path, TOPICS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server() -> Iterator[DecisionServer]:
    with DecisionServer() as running, patch.dict(os.environ, address(running)):
        by_user(JUDGED)
        yield running


@pytest.fixture
def likely(server: DecisionServer) -> DecisionServer:
    """The server says .9 of the memory that the prompt is about, .7 of its thing, and .2 of others."""

    def rate(question: str, state: str) -> float:
        label = re.findall(r"\[(\w+)\]", question)[0]
        asked = re.findall(r"handle the (\w+ \w+) here", state)[0]
        memory = re.findall(rf"\[{label}\] decision: Handling of the (\w+ \w+)", state)[0]
        if memory == asked:
            return 0.9
        return 0.7 if memory.split()[0] == asked.split()[0] else 0.2

    server.probability = rate
    return server


def prompt(topic: str) -> str:
    return f"How do we handle the {topic} here?"


def write_prompts(count: int = COUNT) -> None:
    """Write prompts, and answers about every memory: the one with the prompt's topic is relevant."""
    topics = TOPICS[:count]
    Path("prompts.txt").write_text("".join(f"{prompt(topic)}\n" for topic in topics))
    lines = []
    for asked in topics:
        for topic in TOPICS:
            memory = f".claude/memory/decisions/{topic.replace(' ', '-')}.json"
            answer = {"prompt": prompt(asked), "memory": memory, "relevant": topic == asked}
            lines.append(f"{json.dumps(answer)}\n")
    Path("labels.jsonl").write_text("".join(lines))


def ask_hook(project: Path, topic: str) -> str:
    text, _ = claude_code.answer_prompt({"prompt": prompt(topic), "cwd": str(project)})
    return text


def titles(text: str) -> list[str]:
    return re.findall(r"Handling of the (\w+ \w+) ->", text)


def fit_of_model(judgekit: Run) -> dict[str, Any]:
    fits: list[dict[str, Any]] = judgekit(*COMMAND, "--fit", "--json").json["fits"]
    return next(fit for fit in fits if fit.get("is_model"))


@pytest.mark.usefixtures("likely", "world")
def test_a_threshold_is_learned_for_the_model_that_judges(judgekit: Run) -> None:
    write_prompts()
    fit = fit_of_model(judgekit)
    assert fit["kind"] == MODEL
    assert fit["before"] == {}
    assert fit["after"] == {"inject_above": 0.9}
    assert fit["precision"]["value"] == 1


@pytest.mark.usefixtures("likely", "world")
def test_the_threshold_is_written_beside_what_the_user_wrote(judgekit: Run) -> None:
    write_prompts()
    by_user(f"# mine\n{JUDGED}")
    fit = fit_of_model(judgekit)
    own = settings.get_user_config_path()
    assert fit["written"] == [str(own)]
    assert own.read_text().startswith("# mine\n")
    assert settings.load(None).retrieval.inject_above == {MODEL: 0.9}


@pytest.mark.usefixtures("likely", "world")
def test_the_threshold_is_said_in_words(judgekit: Run) -> None:
    write_prompts()
    said = judgekit(*COMMAND, "--fit").out
    assert f"Threshold of {MODEL}: none" in said
    assert "changed to: inject_above 0.9; this holds in all your projects" in said


@pytest.mark.usefixtures("likely")
def test_above_the_threshold_its_yes_injects(world: Path) -> None:
    by_user(JUDGED.replace("{judge: on}", f"{{judge: on, inject_above: {{{MODEL}: 0.9}}}}"))
    text = ask_hook(world, "lantern wick")
    assert titles(text) == ["lantern wick"]
    assert 'confidence="0.90"' in text


@pytest.mark.usefixtures("likely")
def test_the_likeliest_is_injected_first(world: Path) -> None:
    by_user(JUDGED.replace("{judge: on}", f"{{judge: on, inject_above: {{{MODEL}: 0.6}}}}"))
    injected = titles(ask_hook(world, "lantern varnish"))
    assert injected[0] == "lantern varnish"
    assert {topic.split()[0] for topic in injected} == {"lantern"}


@pytest.mark.usefixtures("likely")
def test_below_the_threshold_nothing_is_injected(world: Path) -> None:
    by_user(JUDGED.replace("{judge: on}", f"{{judge: on, inject_above: {{{MODEL}: 0.95}}}}"))
    assert titles(ask_hook(world, "lantern wick")) == []


@pytest.mark.usefixtures("likely")
def test_a_threshold_of_another_model_counts_for_nothing(world: Path) -> None:
    by_user(JUDGED.replace("{judge: on}", "{judge: on, inject_above: {another/model: 0.1}}"))
    _, notes = claude_code.answer_prompt({"prompt": prompt("lantern wick"), "cwd": str(world)})
    assert "it only drops" in notes[0]


@pytest.mark.usefixtures("likely", "world")
def test_too_few_labels_leave_the_model_without_a_threshold(judgekit: Run) -> None:
    write_prompts(8)
    fit = fit_of_model(judgekit)
    assert fit["after"] == {}
    assert "too few labels for inject_above: 0.9" in fit["refused"]
    assert fit["more"] == 12


@pytest.mark.usefixtures("likely", "world")
def test_without_answers_about_what_it_is_surest_of_nothing_is_fitted(judgekit: Run) -> None:
    write_prompts()
    Path("labels.jsonl").write_text("")
    fit = fit_of_model(judgekit)
    assert fit["refused"] == "no threshold has an answer about each injection"


@pytest.mark.usefixtures("likely")
def test_a_project_may_not_set_it(world: Path, judgekit: Run) -> None:
    by_project(world, "retrieval: {inject_above: {small: 0.1}}\n")
    done = judgekit("config", "show")
    assert done.code == 78
    assert "only the user's configuration may decide how sure a model must be" in done.err
