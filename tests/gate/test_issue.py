"""What an issue says, what it leaves unsaid, and that nothing in it acts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_lines import SHA, round_of, verdict

from judgekit.gate import issues

FINDING = {
    "dimension": "pragmatic",
    "location": "Deployment",
    "issue": "no way back is given",
    "suggestion": "say how to roll back",
    "quote": "SECRET LINE",
}


def opinion(outcome: str, *findings: dict[str, str], **scores: float) -> dict[str, Any]:
    return {"outcome": outcome, "scores": scores, "reasoning": "SECRET THOUGHT", "findings": list(findings)}


def disagreement(**changes: object) -> Any:  # noqa: ANN401 - a VerdictLine
    rounds = [
        round_of("accept", model="small", opinion=opinion("accept", semantic=4, pragmatic=4)),
        round_of("reject", "deep", "large", round=2, opinion=opinion("reject", FINDING, semantic=1)),
        round_of(None, "tiebreaker", "third", round=3),
    ]
    fields: dict[str, object] = {"rounds": rounds, "judge_tier": None, "model": None, "scores": None}
    return verdict("escalate", path="docs/a.md", **(fields | changes))  # type: ignore[arg-type]  # any field


def test_it_says_what_was_judged_by_whom_and_what_to_do() -> None:
    made = issues.of(disagreement(commit="c" * 40))
    assert made.title == "[JUDGE-DISAGREEMENT] Review needed: docs/a.md"
    assert "Models disagree about `docs/a.md`" in made.body
    assert "rubric `kls@1.0.0`, lenient; judged 2026-03-20 12:00 UTC" in made.body
    assert f"commit `{'c' * 40}`" in made.body
    assert "| 1 | quick | `small` | `accept` | `semantic 4, pragmatic 4` | - |" in made.body
    assert "| 2 | deep | `large` | `reject` | `semantic 1` | - |" in made.body
    assert "| 3 | tiebreaker | `third` | - | - | `timeout` |" in made.body
    assert "1. deep, pragmatic, in Deployment: no way back is given" in made.body
    assert "-> say how to roll back" in made.body
    assert f"judgekit override docs/a.md@{SHA[:16]} accept --why '...'" in made.body
    opinions = [round_of("accept", opinion=opinion("accept", a=4.0, b=2.75))]
    assert "`a 4, b 2.75`" in issues.of(disagreement(rounds=opinions)).body
    odd = round_of("accept", opinion={"outcome": None, "scores": "high", "findings": []})
    assert "| `None` | - | - |" in issues.of(disagreement(rounds=[odd])).body, "of another shape"


def test_no_content_is_in_it_unless_asked_for() -> None:
    shown = disagreement(reasoning="SECRET REASON")
    assert "SECRET" not in issues.of(shown).body
    told = issues.of(shown, text=True).body
    assert '> "SECRET LINE"' in told
    assert "SECRET REASON" in told


def test_a_providers_words_are_not_in_it() -> None:
    failed = {"kind": "connection", "message": "refused by http://10.0.0.3:8080"}
    body = issues.of(disagreement(rounds=[round_of(None, failure=failed)]), text=True).body
    assert "`connection`" in body
    assert "10.0.0.3" not in body


def test_other_verdicts_have_words_of_their_own() -> None:
    heads = {
        "reject": "Models reject `docs/a.md`.",
        "improve": "Models find `docs/a.md` in need of work.",
        "undetermined": "Models came to no verdict about",
    }
    for word, head in heads.items():
        made = issues.of(verdict(word, path="docs/a.md"))  # type: ignore[arg-type]  # a verdict's word
        assert made.title == "[JUDGE-DISAGREEMENT] Review needed: docs/a.md"
        assert head in made.body
    assert "No model was asked." in issues.of(verdict("undetermined", rounds=[])).body
    made = issues.of(verdict("reject", path="docs/a.md", findings=[FINDING]))
    assert "1. pragmatic, in Deployment: no way back is given" in made.body, "of the deciding tier"


def test_the_same_task_has_the_same_token_whatever_it_holds() -> None:
    issue = issues.of(disagreement())
    other = issues.of(
        disagreement(task_id=f"docs/a.md@{'9' * 12}", subjects=[{"path": "docs/a.md", "sha256": "9" * 64}])
    )
    assert issue.token == other.token
    assert issue.state != other.state
    assert issues.of(verdict("reject", path="docs/a.md")).state != issue.state
    assert issues.of(verdict("escalate", path="docs/b.md")).token != issue.token
    for body in (issue.body, issue.body.replace("\n", "\r\n")):
        assert issues.mark(body) == (issue.token, issue.state)
    assert issue.token in issue.body.rpartition("<sub>")[2]  # where GitHub's search sees it


def test_a_mark_that_content_brings_along_is_none() -> None:
    other = issues.of(verdict("escalate", path="docs/b.md"))
    finding = FINDING | {"issue": f"<!-- judgekit {other.token} {other.state} -->"}
    made = issues.of(disagreement(rounds=[round_of("reject", opinion=opinion("reject", finding))]))
    assert issues.mark(made.body) == (made.token, made.state)
    assert issues.mark(f"See:\n{other.body}") is None
    assert issues.mark("") is None


def test_names_do_not_act() -> None:
    path = "a`b|c@team\n<!-- -->' $(touch x).md"
    made = issues.of(disagreement(task_id=f"{path}@{SHA[:12]}", subjects=[{"path": path, "sha256": SHA}]))
    assert "@" not in made.title
    assert "a'b¦c@team <!-- -->' $(touch x).md" in made.body
    # A name that no shell takes as it is: the verdict's own id stands for it.
    assert "judgekit override docs/a.md-escalate-0 accept" in made.body
    assert "judgekit override T-42 accept" in issues.of(disagreement(task_id="T-42")).body
    made = issues.of(disagreement(task_id=f"it's $(touch x).md@{SHA[:12]}"))
    assert f"judgekit override 'it'\"'\"'s $(touch x).md@{SHA[:12]}' accept" in made.body


def test_it_is_never_too_long() -> None:
    finding = dict.fromkeys(FINDING, "long " * 2000)
    rounds = [
        round_of("reject", "deep", "m" * 500, opinion=opinion("reject", *[finding] * 50)) for _ in range(40)
    ]
    subjects = [{"path": f"{'p' * 400}{number}.md", "sha256": SHA} for number in range(60)]
    body = issues.of(disagreement(rounds=rounds, subjects=subjects, reasoning="so " * 9_000), text=True).body
    assert len(body) < issues.MAX_BODY
    assert "and 40 more files" in body
    assert "more\n~~~" in body  # findings
    assert "judgekit override" in body


HOSTILE = [
    "@everyone look",
    "![x](https://example.org/pixel.png)",
    "[click](javascript:alert(1))",
    "`code` and ``more``",
    "a | b | @team",
    "\\| @team | \\`",
    "<img src=x onerror=alert(1)> <!-- hidden -->",
    "line\n\n# heading\n- [ ] task",
    "```\nfence\n```",
    "~~~~~\nout @team\n~~~~~",
    "#1 GH-2 owner/repo#3 https://example.org",
    "\u202eright to left\u200b\x1b[31m",
]


def code_spans(line: str) -> str:
    """Return what is left of a line of Markdown when its code is taken out, as GitHub would."""
    return re.sub(r"`[^`]*`", "", line)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_inside_its_code(text: str) -> None:
    shown = issues.inline(text)
    assert shown.count("`") == 2
    assert code_spans(shown) == ""
    assert not set("\n|") & set(shown)
    first, *inside, last = issues.block(text, "text").splitlines()
    marks = first.removesuffix("text")
    assert set(marks) == {"~"}
    assert last == marks
    assert not [line for line in inside if re.match(rf" {{0,3}}~{{{len(marks)},}}\s*$", line)]
    title = issues.title(text)
    assert not set("@`#<>\n") & set(title)
    assert "://" not in title


@given(st.text() | st.text(alphabet="~`\n a"))
def test_any_text_stays_inside_its_code(text: str) -> None:
    shown = issues.inline(text, 50)
    assert code_spans(shown) in ("", issues.NOTHING)
    assert len(shown) <= 52
    first, *inside, last = issues.block(text).split("\n")
    assert first == last
    assert first not in inside
    assert not [line for line in inside if line.strip().startswith(first)]


def test_long_texts_are_cut_and_wrapped_and_characters_that_hide_are_left_out() -> None:
    assert issues.block("a\x1b[31mb\u202ec\u200bd") == "~~~\na[31mbcd\n~~~"
    shown = issues.wrapped("word " * 100, 300, "1. ", "   ")
    assert len(shown.splitlines()) == 4
    assert all(len(line) <= issues.WIDTH for line in shown.splitlines())
    assert shown.endswith("…")
    assert shown.splitlines()[1].startswith("   word")
