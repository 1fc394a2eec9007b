"""What changed between two rubrics is said key by key, and which answers change with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judgekit.evaluation import runner
from judgekit.evaluation.runner import Tried
from judgekit.rubric import loader
from judgekit.rubric.lint import changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def lines(own: Callable[..., Path], **replaced: str) -> list[str]:
    before, after = own(), own(version="1.1.0", **replaced)
    return changes(loader.load_rubric(before).rubric, loader.load_rubric(after).rubric)


def test_only_the_version(own: Callable[..., Path]) -> None:
    assert lines(own) == ["version: '1.0.0' -> '1.1.0'"]


def test_texts_and_numbers(own: Callable[..., Path]) -> None:
    _, *said = lines(own, **{"mean: 3.5": "mean: 4", "represent its domain": "describe its subject"})
    question = "dimensions.semantic.question"
    was, now = (
        "Does the text represent its domain accurately?",
        "Does the text describe its subject accurately?",
    )
    assert said == [f"{question}: {was!r} -> {now!r}", "modes.strict.accept.mean: 3.5 -> 4"]


def test_lists_say_what_went_and_what_came(own: Callable[..., Path]) -> None:
    _, said = lines(own, **{"      - no contradictions, neither": "      - nothing made up, neither"})
    assert said.startswith("dimensions.semantic.look_for: without 'no contradictions, neither inside")
    assert "; with 'nothing made up, neither inside" in said


def test_a_list_in_another_order(own: Callable[..., Path]) -> None:
    _, said = lines(own, **{"[accurate, correct,": "[correct, accurate,"})
    assert said == "dimensions.semantic.terms: in another order"


def test_what_is_new_and_what_is_gone(own: Callable[..., Path]) -> None:
    _, said = lines(own, **{", mean: 3.5": ""})
    assert said == "modes.strict.accept.mean: removed, was 3.5"
    _, said = lines(own, **{"modes:\n": "  tone: {question: 'Is it kind?'}\nmodes:\n"})
    assert said == "dimensions.tone: new, (question 'Is it kind?')"


def test_nothing_differs_from_itself() -> None:
    rubric = loader.find_rubric("memory-relevance").rubric
    assert changes(rubric, rubric) == []


def test_answers_that_flip() -> None:
    before = [Tried("a", "strict", "accept", "improve"), Tried("b", "strict", "reject", "reject")]
    before += [Tried("c", "lenient", "accept", "improve"), Tried("d", "strict", "accept", "accept")]
    after = [Tried("a", "strict", "accept", "accept"), Tried("b", "strict", "reject", "improve")]
    after += [Tried("c", "lenient", "accept", "reject"), Tried("d", "strict", "accept", "accept")]
    after += [Tried("only-now", "strict", "accept", "reject")]
    found = runner.flips(before, after)
    assert [(new.case, said, new.said) for said, new in found] == [
        ("a", "improve", "accept"),
        ("b", "reject", "improve"),
        ("c", "improve", "reject"),
    ]
