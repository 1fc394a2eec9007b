"""A prompt gets like memories once, and old ones with their age; hostile copies cost no more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeAlias

import alike_notes
import pytest
from alike_notes import NEWEST, QUESTION, put
from hooking import by_user

from judgekit.hooks import explain
from judgekit.retrieval.confidence import Candidate, fold_alike
from judgekit.retrieval.parts import Part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Run: TypeAlias = "Callable[..., tuple[str, list[str]]]"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return alike_notes.write(tmp_path / "project" / ".claude" / "memory")


def ask(run: Run, notes: Path, prompt: str = QUESTION) -> str:
    payload: dict[str, Any] = {"prompt": prompt, "cwd": str(notes.parents[1])}
    text, errors = run(payload)
    assert errors == []
    return text


def test_copies_are_injected_once(run: Run, notes: Path) -> None:
    text = ask(run, notes)
    assert text.count("<result ") == 1
    assert f"{alike_notes.TITLE} (and 2 alike) -> {NEWEST}" in text


def test_an_old_memory_says_its_age(run: Run, notes: Path) -> None:
    put(notes / "violin.md", "Varnish the violin with amber and oil.", days=213)
    assert 'age="7 months">violin -> violin.md' in ask(run, notes, "violin varnish, amber and oil")


def test_a_pinned_memory_says_its_age(run: Run, notes: Path) -> None:
    put(notes / "violin.md", "Varnish the violin with amber and oil.", days=800)
    by_user("retrieval: {pin: [violin]}\n")
    assert 'confidence="pinned" age="2 years">violin' in ask(run, notes)


def _hit(number: int, text: str, part: Part) -> Candidate:
    hit = Candidate(str(number), "", "", (), number, "/notes", f"{number}.md", "markdown")
    hit.text = text
    hit.stem_count = text.count(" ") + 1
    hit.part = part
    return hit


@pytest.mark.parametrize("word", ["same", "{number}", "same{number}x{place}"])
def test_the_work_grows_with_the_text_alone(word: str) -> None:
    part = Part("", [])
    costs = []
    for words in (2_000, 16_000):
        hits = []
        for number in range(30):
            text = " ".join([word.format(number=number, place=place) for place in range(words)])
            hits.append(_hit(number, text, part))
        started = time.process_time()
        fold_alike(hits)
        costs.append(time.process_time() - started)
    assert costs[1] < 24 * max(costs[0], 0.03)


def test_an_explanation_names_what_says_the_same(notes: Path) -> None:
    report = explain.explain_prompt(QUESTION, str(notes.parents[1]))
    assert (
        "says the same as 2 older: .claude/memory/deploy-2.md, .claude/memory/deploy-1.md" in report
    )
