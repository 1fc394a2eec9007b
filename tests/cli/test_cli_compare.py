"""`judgekit compare`: exit codes, formats, what would be sent."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from loopback import fails, says

from judgekit.cli.schema import json_schema

if TYPE_CHECKING:
    from loopback import Answer, Asked
    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project")
PROMPT = ("--prompt", "Write a sound document.")
EXAMPLE = Path(__file__).parents[2] / "examples" / "comparing"
LENIENT = (*PROMPT, "--mode", "lenient")
TWO = ("compare", "good.md", "bad.md")


def prefers_the_good_one(asked: Asked) -> Answer:
    found = re.findall(r"The text (\w+):\s+<[^>]*>\s+# Good", asked.text)
    return says(json.dumps({"reasoning": "It is \x1b[1msound.", "better": found[0]}))


def likes_the_first(asked: Asked) -> Answer:
    found = re.findall(r"The text (\w+):", asked.text)
    return says(json.dumps({"reasoning": "First.", "better": found[0]}))


@pytest.mark.parametrize(
    ("answer", "code", "word"),
    [
        (prefers_the_good_one, 0, "B"),
        (likes_the_first, 0, "tie"),
        (says("no JSON"), 2, "undetermined"),
        (fails(401, "no such key"), 2, "undetermined"),
    ],
)
def test_the_exit_code_of_a_comparison(served: Served, answer: Answer, code: int, word: str) -> None:
    done, _ = served(answer, "compare", "bad.md", "good.md", *PROMPT, "--format", "jsonl")
    (line,) = done.out.splitlines()
    record = json.loads(line)
    assert (done.code, record["verdict"], bool(done.err)) == (code, word, code == 2)
    jsonschema.Draft202012Validator(json_schema("comparison")).validate(record)


def test_winner_reason_and_who_decided(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = served(prefers_the_good_one, "compare", "bad.md", "good.md", *LENIENT)
    first, *rest = done.out.splitlines()
    assert (done.code, first.split()) == (0, ["B", "good.md"])
    decided = "2 rounds; decided by quick (single, 100% ahead in votes)"
    assert f"answer-preference@1.0.0, lenient; {decided}" in done.out
    assert "sound." in rest[-1]
    assert "\x1b" not in done.out
    assert served(prefers_the_good_one, *TWO, *LENIENT, "--format", "json")[0].json["verdict"] == "A"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"# Good\n\nFrom a pipe.\n")))
    done, _ = served(prefers_the_good_one, "compare", "bad.md", "-", *LENIENT)
    assert done.out.splitlines()[0].split() == ["B", "-"]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["good.md", *PROMPT], 64, "expected 2 to 26 texts, got 1"),
        (["good.md", "bad.md"], 64, "--prompt"),
        (["good.md", "bad.md", "--prompt", " "], 64, "--prompt is empty"),
        (["-", "-", *PROMPT], 64, "standard input (-) is given twice; give it once"),
        (["good.md", "gone.md", *PROMPT], 65, "gone.md: cannot be read"),
        (["good.md", ".claude", *PROMPT], 65, "judgekit: .claude: a folder; compare takes files\n"),
        ([*TWO[1:], *PROMPT, "--rubric", "nope"], 64, "no rubric 'nope'"),
        ([*TWO[1:], *PROMPT, "--rubric", "memory-relevance"], 64, "task 'select'"),
        ([*TWO[1:], *PROMPT, "--format", "sarif"], 64, "sarif"),
        ([*TWO[1:], *PROMPT, "--author-family", ""], 64, "is a variable unset?"),
        (
            [*TWO[1:], *PROMPT, *["--author-family=x"] * 3],
            64,
            "expected one for all or 2, one for each; got 3",
        ),
    ],
)
def test_mistakes_are_said_in_one_line(judgekit: Run, arguments: list[str], code: int, problem: str) -> None:
    done = judgekit("compare", *arguments)
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1)
    assert problem in done.err


def test_what_is_sent_and_what_is_not(served: Served) -> None:
    done, asked = served(prefers_the_good_one, *TWO, *PROMPT, "--show-prompt")
    assert (done.code, asked) == (0, [])
    assert done.out.count("=== compare: ") == 6  # three tiers in two orders
    assert done.out.count("Write a sound document.") == 6
    done, asked = served(prefers_the_good_one, *TWO, *LENIENT, "--max-cost", "0")
    assert (done.code, "budget" in done.err, asked) == (2, True, [])
    secret = "glpat-" + "x1Y2z3A4b5C6d7E8f9G0"
    Path("bad.md").write_text(f"# Bad\n\n{secret}\n", encoding="utf-8")
    done, asked = served(prefers_the_good_one, *TWO, *LENIENT)
    assert "1 secret was removed before sending" in done.err
    assert all(secret not in request.text for request in asked)


@pytest.mark.parametrize(
    ("names", "letter", "said"),
    [
        ("list prose", "A", "4 rounds; decided by deep (unanimous, 100% ahead in votes)"),
        ("prose list", "B", "4 rounds; decided by deep (unanimous, 100% ahead in votes)"),
        ("list prose wrong", "A", "5 rounds; decided by deep (unanimous, ahead by 2)"),
    ],
)
def test_the_guide(
    judgekit: Run, monkeypatch: pytest.MonkeyPatch, names: str, letter: str, said: str
) -> None:
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.setenv("JUDGEKIT_REPLAY", "replies.jsonl")
    prompt = Path("prompt.txt").read_text(encoding="utf-8").strip()
    files = [f"{name}.txt" for name in names.split()]
    done = judgekit("compare", *files, "--prompt", prompt, "--mode", "strict")
    assert (done.code, done.out.split()[:2]) == (0, [letter, "list.txt"])
    assert said in done.out


@pytest.mark.parametrize(
    ("families", "wrote", "told"),
    [
        (
            "openai anthropic",
            ["openai", "anthropic"],
            "which wrote A; models favour texts of their own family",
        ),
        ("openai", ["openai", "openai"], "judged only by models of openai, which wrote A and B"),
        ("anthropic none", ["anthropic", None], ""),
        ("", [None, None], ""),
    ],
)
def test_who_wrote_them_is_told_with_what_came_of_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, families: str, wrote: list[str | None], told: str
) -> None:
    for tier in ("QUICK", "DEEP", "TIEBREAKER"):
        monkeypatch.setenv(f"JUDGEKIT_{tier}_MODEL", "gpt-4o-mini")
    arguments = [f"--author-family={family}" for family in families.split()]
    table, _ = served(prefers_the_good_one, *TWO, *LENIENT, *arguments)
    done, _ = served(prefers_the_good_one, *TWO, *LENIENT, *arguments, "--format", "json")
    assert [each["family"] for each in done.json["subjects"]] == wrote
    independent = {"openai": False, "anthropic": True}[wrote[0]] if wrote[0] else None
    assert done.json["independent"] is independent
    assert ("not independent" in table.out) == bool(told)
    assert told in table.out


def test_a_tie_is_told_without_a_winner_who_is_ahead(served: Served) -> None:
    def threes(asked: Asked) -> Answer:
        names = re.findall(r'"(\w+)": <whole number>', asked.text)
        return says(json.dumps({"reasoning": "", "scores": dict.fromkeys(names, 3)}))

    voted = served(likes_the_first, *TWO, *LENIENT)[0].out
    scored = served(threes, *TWO, *LENIENT, "--rubric", "kls")[0].out
    assert voted.startswith("tie")
    assert "decided by deep (single), " in voted
    assert "The answer changed with the order of the two texts" in voted
    assert "decided by deep (single, the best two 0 apart), " in scored


@pytest.mark.parametrize(
    "command",
    [
        (*TWO, *PROMPT, "--max-cost"),
        (*TWO, *PROMPT, "--deadline"),
        ("judge", "good.md", "--max-cost"),
        ("judge", "good.md", "--deadline"),
        ("rubric", "check", "kls", "--at-least"),
    ],
)
def test_a_limit_is_a_number(judgekit: Run, command: tuple[str, ...]) -> None:
    for number in ("nan", "inf", "-inf"):
        done = judgekit(*command[:-1], f"{command[-1]}={number}")
        assert (done.code, done.out) == (64, "")
        assert command[-1] in done.err


@pytest.mark.parametrize("rubric", [(), ("--rubric", "answer-quality")])
def test_nobody_is_asked_about_the_same_text(judgekit: Run, rubric: tuple[str, ...]) -> None:
    Path("copy.md").write_bytes(Path("good.md").read_bytes())
    done = judgekit("compare", "good.md", "copy.md", *PROMPT, *rubric)
    assert (done.code, done.err) == (0, "")
    assert "; 0 rounds; no model was asked, " in done.out
    assert "The two texts are the same." in done.out
