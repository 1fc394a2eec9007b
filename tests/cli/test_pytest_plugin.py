"""The pytest plugin in a project of its own: results of tests, recordings, the summary, its imports."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, fails, says
from scripted import scores

from tests import docs

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Answer, Asked
    from outcome import Use

    Run = Callable[..., tuple[int, str]]

ROOT = Path(__file__).parents[2]
PLUGIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
    "pytest11"
]["judgekit"]
TESTS = """
import os
import pytest

@pytest.mark.parametrize("word", ["ACCEPT", "IMPROVE", "REJECT", "ESCALATE"])
def test_text(assert_accepted, word):
    verdict = assert_accepted(f"It says {word}.", rubric="kls", mode="strict", description="A sentence.")
    assert verdict.verdict == "accept" and verdict.scores["semantic"] == 4

def test_broken(assert_accepted):
    assert_accepted("It says BROKEN.")

def test_needs(assert_accepted):
    assert_accepted("It says ACCEPT.", rubric="answer-quality")

def test_misspelt(assert_accepted):
    assert_accepted("It says ACCEPT.", desciption="A sentence.")

def test_question(assert_accepted):
    question, more = os.environ.get("QUESTION", ""), {"reference": "ACCEPT", "deadline": 30, "cache": False}
    assert_accepted("It says ACCEPT.", description=question, **more)

def test_without_a_judge():
    assert "judge" in "judgekit"
"""
FINDING = {
    "dimension": "semantic",
    "location": "line 1",
    "issue": "a false sentence",
    "suggestion": "say what is true",
    "quote": "It says",
}
REPLIES = {
    "ACCEPT": [scores(4, 4, 5)],
    "IMPROVE": [scores(3, 3, 3)],
    "REJECT": [scores(1, 1, 2, reasoning="It is wrong.\x1b]0;title\x07", findings=[FINDING])],
    "ESCALATE": [scores(4, 4, 5), scores(1, 1, 2), scores(3, 3, 3)],
}


def answering() -> Callable[[Asked], Answer]:
    """Return a model that replies as the word in a text wants, to each tier in its turn."""
    turns: Counter[str] = Counter()

    def answer(asked: Asked) -> Answer:
        found = re.search(r"It says ([A-Z]+)", asked.text)
        assert found
        word = found[1]
        if word == "BROKEN":
            return fails(400)
        turns[word] += 1
        return says(REPLIES[word][(turns[word] - 1) % len(REPLIES[word])])

    return answer


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Run pytest in a project that has tests of texts; return its exit code and output."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nstrict = true\n")
    (tmp_path / "test_texts.py").write_text(TESTS)

    def call(*words: str) -> tuple[int, str]:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
        }
        environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
        plugins = ("-p", PLUGIN, "-p", "xdist", "-p", "no:cacheprovider", "-rA")
        command = [sys.executable, "-m", "pytest", *plugins, *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return call


def outcomes(printed: str) -> dict[str, str]:
    return {
        name: word
        for word, name in re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\S+)", printed, re.MULTILINE)
    }


def timeless(printed: str) -> str:
    return re.sub(r"[\d.]+ s, cost.*", "S s, cost unknown", printed)


JUDGED = {
    "test_text[ACCEPT]": "PASSED",
    "test_text[IMPROVE]": "FAILED",
    "test_text[REJECT]": "FAILED",
    "test_text[ESCALATE]": "FAILED",
    "test_question": "PASSED",
}
UNTOUCHED = {"test_needs": "FAILED", "test_misspelt": "FAILED", "test_without_a_judge": "PASSED"}
REJECTED = """\
E       AssertionError: reject; to be accepted, each score must be at least 3, and their mean 3.5
E           mean 1.33  semantic 1  pragmatic 1  syntactic 2
E           kls@1.0.0, strict; quick reject; decided by stand-in (single), S s, cost unknown
E           It is wrong.]0;title
E           no reason given for pragmatic, syntactic
E           - semantic in line 1: a false sentence
E             > "It says"
E             -> say what is true
E           text: It says REJECT.
"""
SAID = (
    "mean 3  semantic 3  pragmatic 3  syntactic 3",
    "quick accept, deep reject, tiebreaker improve; undecided",
    "UsageError: assert_accepted: answer-quality@1.0.0 needs description; pass description=\n",
    "got an unexpected keyword argument 'desciption'",
)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_what_was_recorded_is_replayed_without_a_model(
    run: Run, use: Use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    with Loopback(answering()) as server:
        use(server)
        code, first = run("--judge-record", "kept", *workers)
    asked = len(server.requests)
    assert code == 1
    assert outcomes(first) == JUDGED | UNTOUCHED
    assert REJECTED in timeless(first)
    assert "pytest_plugin.py" not in first
    assert [said for said in SAID if said not in first] == []
    why = "quick, deep, tiebreaker: bad_request (it went wrong)"
    assert f": not judged: {why}\n" in first.partition("SKIPPED [1] test_texts.py:")[2]
    assert f"judgekit: 5 verdicts, cost unknown\njudgekit: 1 test not judged: {why}\n" in first
    kept = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "kept").iterdir())
    assert kept == ["test-question", *(f"test-text-{word}" for word in sorted(REPLIES))]

    monkeypatch.setenv("QUESTION", "Another one, of which nothing was recorded.")
    code, second = run("--judge-replay", "kept", *workers)
    assert outcomes(second) == JUDGED | UNTOUCHED | dict.fromkeys(
        ("test_broken", "test_question"), "FAILED"
    )
    assert REJECTED in timeless(second)
    todo = "run pytest --judge-record kept where a model is set up"
    for word in ("BROKEN", "ACCEPT"):
        assert re.search(
            rf"the text 'It says {word}.' was not recorded: kept/\S+ is missing; {todo}\n", second
        )
    assert "judgekit: 4 verdicts, replayed from kept\n" in second
    assert len(server.requests) == asked


@pytest.mark.slow
def test_a_recording_that_lacks_a_reply_fails_the_test(run: Run, use: Use, tmp_path: Path) -> None:
    with Loopback(answering()) as server:
        use(server)
        run("--judge-record", "kept", "-k", "question")
    (file,) = (tmp_path / "kept").iterdir()
    assert file.stat().st_mode & 0o77 == 0
    file.write_text(file.read_text().replace('"rubric":"kls@1.0.0"', '"rubric":"kls@0.9.0"'))
    code, printed = run("-o", "judge_replay=kept", "-k", "question")
    assert code == 1
    assert re.search(
        r"was not recorded: \S+ has no quick reply of custom/stand-in under kls@1.0.0 for", printed
    )


def test_without_a_model_a_test_is_skipped(run: Run, no_servers: None) -> None:
    code, printed = run("-k", "REJECT or nothing")
    assert "judgekit: 1 test not judged: no model found" in printed
    assert code == 0


EXAMPLE = {
    "reasoning": "It is direct, but the command is wrong: --hard throws away what should be kept.",
    "scores": {"correct": 1, "complete": 2, "direct": 4},
    "findings": [
        {
            "dimension": "correct",
            "location": "the command",
            "issue": "--hard discards the changes of the commit",
            "suggestion": "use git reset --soft HEAD~1",
            "quote": "git reset --hard HEAD~1",
        },
        {"dimension": "complete", "issue": "no word on undoing several commits"},
    ],
}


@pytest.mark.slow
def test_the_page_shows_what_is_printed(
    run: Run, no_servers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences = list(docs.fences((ROOT / "docs/pytest.md").read_text(encoding="utf-8")))
    (test,) = (fence.text for fence in fences if fence.language == "python")
    (tmp_path / "test_texts.py").write_text(test)
    printed = run()[1]
    with Loopback(says(json.dumps(EXAMPLE), model="gpt-6-luna", usage=(912, 164))) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "jk-test-0123456789abcdef")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base)
        printed += run("--judge-record", "recordings")[1]
    (tmp_path / "test_texts.py").write_text(test.replace("--hard", "--soft"))
    printed += run("--judge-replay", "recordings")[1]
    printed = re.sub(r"\d+\.\d s,", "1.0 s,", printed)
    shown = [
        line for fence in fences if fence.language == "text" for line in fence.text.splitlines()
    ]
    assert [line for line in shown if line not in printed.splitlines()] == []
    assert len(shown) > 12


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            "--judge-record a --judge-replay b",
            4,
            "--judge-record and --judge-replay exclude each other",
        ),
        ("-m judge --collect-only -q", 0, "8/9 tests collected"),
        ("-m 'not judge'", 0, "1 passed, 8 deselected"),
        ("--markers", 0, "@pytest.mark.judge: "),
    ],
)
def test_options_and_the_mark(run: Run, words: str, code: int, said: str) -> None:
    done = run(*shlex.split(words))
    assert (done[0], said in done[1]) == (code, True)


def test_the_plugin_imports_pytest_and_the_standard_library_alone() -> None:
    code = (
        "import sys, pytest; before = {*sys.modules}; "
        f"import {PLUGIN}; print(*{{*sys.modules}} - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    found = {
        name
        for name in done.stdout.split()
        if name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert found == {"judgekit", "judgekit.cli", PLUGIN}


@pytest.mark.parametrize("option", [(), ("--judge-replay", "kept")], ids=["live", "replayed"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("None", "expected a text, got NoneType: None"),
        ("7", "expected a text, got int: 7"),
        ('""', "the text is blank, ''; nothing to judge"),
        ('" \\n"', "the text is blank, "),
    ],
)
def test_what_is_no_text_is_said(
    run: Run, tmp_path: Path, option: tuple[str, ...], text: str, said: str
) -> None:
    test = f"def test_it(assert_accepted):\n    assert_accepted({text}, rubric='kls')\n"
    (tmp_path / "test_texts.py").write_text(test)
    (tmp_path / "kept").mkdir()
    code, printed = run(*option)
    assert code == 1
    assert f"assert_accepted: {said}" in printed
    assert "was not recorded" not in printed
