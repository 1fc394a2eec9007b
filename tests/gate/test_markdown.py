"""Nothing that a file or a model says acts in an issue."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgekit.gate import issues

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


@given(st.text())
def test_any_text_stays_inside_its_code(text: str) -> None:
    shown = issues.inline(text, 50)
    assert code_spans(shown) in ("", issues.NOTHING)
    assert len(shown) <= 52


@given(st.text(alphabet="~`\n a"))
def test_no_run_of_marks_ends_a_block(text: str) -> None:
    first, *inside, last = issues.block(text).split("\n")
    assert first == last
    assert first not in inside
    assert not [line for line in inside if line.strip().startswith(first)]


def test_characters_that_hide_are_left_out_of_a_block() -> None:
    assert issues.block("a\x1b[31mb\u202ec\u200bd") == "~~~\na[31mbcd\n~~~"


def test_long_texts_are_cut_and_wrapped() -> None:
    shown = issues.wrapped("word " * 100, 300, "1. ", "   ")
    assert len(shown.splitlines()) == 4
    assert all(len(line) <= issues.WIDTH for line in shown.splitlines())
    assert shown.endswith("…")
    assert shown.splitlines()[1].startswith("   word")
