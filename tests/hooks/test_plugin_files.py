"""The plugin's files agree with each other, with the package, and with what the command line really has."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import plugin_copy
import pytest
import sample_store
import typer.main
from ruamel.yaml import YAML
from typer.core import TyperGroup

import judgekit
from judgekit.cli.app import application
from judgekit.hooks import entries
from judgekit.judging import fence
from judgekit.rubric import loader
from judgekit.rubric.schema import SelectRubric
from tests import docs

if TYPE_CHECKING:
    from pathlib import Path

ROOT = plugin_copy.ROOT
SKILLS = sorted(ROOT.glob("skills/*/SKILL.md"))
PLUGIN = json.loads((ROOT / ".claude-plugin/plugin.json").read_text())
MARKETPLACE = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text())


def front_matter(skill: Path) -> dict[str, str]:
    _, head, _ = skill.read_text().split("---\n", 2)
    found: dict[str, str] = YAML(typ="safe", pure=True).load(head)
    return found


def commands(skill: Path) -> list[list[str]]:
    lines = [fence.text.splitlines() for fence in docs.fences(skill.read_text()) if fence.language == "sh"]
    return [shlex.split(line) for block in lines for line in block]


COMMANDS = [(skill.parent.name, words) for skill in SKILLS for words in commands(skill)]


def test_the_manifests_and_the_hooks_agree_with_the_package() -> None:
    (listed,) = MARKETPLACE["plugins"]
    assert listed["source"] == "./"
    for key in listed.keys() & PLUGIN.keys():
        assert listed[key] == PLUGIN[key]
    assert {"name", "description", "license"} <= listed.keys() & PLUGIN.keys()
    assert PLUGIN["version"] == judgekit.__version__
    assert "version" not in listed  # said once
    hooks = json.loads((ROOT / "hooks/hooks.json").read_text())["hooks"]
    for event, matchers in hooks.items():
        for hook in matchers[0]["hooks"]:
            assert '. "${CLAUDE_PLUGIN_ROOT}/bin/judgekit"' in hook["command"]
            assert hook["timeout"] == entries.TIMEOUTS.get(event, entries.TIMEOUT)
    assert (ROOT / "bin/judgekit").stat().st_mode & 0o111 == 0o111


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.parent.name)
def test_a_skill_is_described_and_asks_before_anything_is_sent(skill: Path) -> None:
    head = front_matter(skill)
    assert set(head) == {"name", "description", "allowed-tools"}
    assert head["name"] == skill.parent.name
    assert "Use it " in head["description"]
    assert len(head["description"]) <= 1024
    assert len(skill.read_text().splitlines()) <= 100
    assert re.search(r"(is|are) data\b", skill.read_text())
    allowed = re.findall(r"Bash\(([^)]*):\*\)", head["allowed-tools"])
    assert allowed
    shown = [shlex.join(words) for words in commands(skill)]
    for prefix in allowed:
        assert [line for line in shown if line.startswith(prefix)], prefix
        assert "--no-judge" in prefix or "judgekit rubric" in prefix  # neither sends, nor reads any file
    assert [line for line in shown if not line.startswith(tuple(allowed))]  # and what does, asks


def test_both_skills_show_commands() -> None:
    assert {name for name, _ in COMMANDS} == {"memory-search", "judge"}


@pytest.mark.parametrize("line", [shlex.join(words) for _, words in COMMANDS])
def test_commands_of_a_skill_exist_with_their_options(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "judgekit"
    command = typer.main.get_command(application())
    context = command.make_context("judgekit", [], resilient_parsing=True)
    while isinstance(command, TyperGroup):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    command.make_context("judgekit", words)  # raises where an option or an argument is wrong


@pytest.mark.parametrize(
    "words",
    [words for _, words in COMMANDS if words[1] in {"search", "rubric"} and "--judge" not in words],
    ids=" ".join,
)
def test_commands_that_ask_no_model_run(words: list[str], tmp_path: Path) -> None:
    sample_store.write(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout


def test_the_question_of_the_search_skill_is_the_rubrics() -> None:
    rubric = loader.find_rubric("memory-relevance").rubric
    assert isinstance(rubric, SelectRubric)
    text = " ".join((ROOT / "skills/memory-search/SKILL.md").read_text().split())
    assert f'the question is: "{rubric.criteria["relevant"].lenient}"' in text


def test_the_fence_of_the_search_skill_is_the_one_of_the_code() -> None:
    text = (ROOT / "skills/memory-search/SKILL.md").read_text()
    assert f"<{fence.Fence('NONCE').tag}>" in text


def test_the_judge_skill_names_every_outcome_with_its_exit_code() -> None:
    rows = re.findall(r"^\| (\d) \| (\w+) \|", (ROOT / "skills/judge/SKILL.md").read_text(), re.MULTILINE)
    assert rows == [
        ("0", "accept"),
        ("1", "reject"),
        ("2", "improve"),
        ("2", "escalate"),
        ("2", "undetermined"),
    ]
