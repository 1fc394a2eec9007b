from __future__ import annotations

import re
from math import isclose, log2
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from judgekit.config.settings import RetrievalConfig
from judgekit.evaluation import retrieval
from judgekit.evaluation.collection import CollectionDocument
from judgekit.evaluation.retrieval import CollectionIndex, Seen, told
from judgekit.hooks import claude_code
from judgekit.retrieval.compiled import Profiles
from judgekit.retrieval.confidence import Candidate
from judgekit.retrieval.profiles import compile_profiles

if TYPE_CHECKING:
    from collections.abc import Callable
GRADES = {"q1": {"a": 2, "b": 1}, "q2": {"a": 1}, "q3": {"a": 0}}


def hit(name: str, confidence: float) -> Candidate:
    made = Candidate(name, name, "decision", tags=(), updated=0.0, root="", place=name, kind="claude-memory")
    made.confidence, made.bm25 = confidence, confidence
    made.confidence_label = "high" if confidence >= 0.5 else "medium" if confidence >= 0.3 else "low"
    made.worth_mentioning = confidence >= 0.15
    return made


def hits(text: str) -> list[Candidate]:
    """Return candidates from text such as `a.9 b.4`: a name of one letter and a confidence."""
    return [hit(each[0], float(each[1:])) for each in text.split()]


def seen(query: str, text: str, elsewhere: str | None = None, ranking: str = "") -> Seen:
    found = hits(text)
    ids = list(ranking) or [candidate.id for candidate in found]
    return Seen(query, ids, found, None if elsewhere is None else hits(elsewhere))


def test_metrics_are_means_over_the_judged_queries() -> None:
    found = retrieval.metrics_of(
        [seen("q1", "", ranking="ba"), seen("q2", ""), seen("q3", "", ranking="a"), seen("nobody", "a.9")],
        GRADES,
    )
    values = {name: figure.value for name, figure in found.items() if figure}
    assert isclose(values["nDCG@10"], (1 + 2 / log2(3)) / (2 + 1 / log2(3)) / 3)
    assert isclose(values["R@10"], 1 / 3)
    assert isclose(values["P@3"], (2 / 3) / 3)
    assert isclose(values["MRR"], 1 / 3)


def test_without_judged_queries_there_is_no_figure() -> None:
    assert set(retrieval.metrics_of([seen("nobody", "a.9")], GRADES).values()) == {None}


def test_confidence_counts_the_hits_that_a_search_lists() -> None:
    many = " ".join(f"{name}.2" for name in "cdefghijklmn")
    confidence_report = retrieval.confidence_of([seen("q1", "a.9 b.4"), seen("nobody", many)], GRADES)
    assert confidence_report.hits == 2 + 10
    assert [(each.low, each.count, each.relevant) for each in confidence_report.bins] == [
        (0.2, 10, 0.0),
        (0.4, 1, 1.0),
        (0.9, 1, 1.0),
    ]
    assert [(label.label, label.count) for label in confidence_report.labels] == [
        ("high", 1),
        ("medium", 1),
        ("low", 10),
    ]
    assert isclose(confidence_report.brier or 0, (0.1**2 + 0.6**2 + 10 * 0.2**2) / 12)
    assert isclose(confidence_report.ece or 0, (0.1 + 0.6 + 10 * 0.2) / 12)


def test_injection_by_hand() -> None:
    prompts = [
        seen("q1", "a.9 b.8 c.7 d.6 e.2"),  # two of three are right; a fourth is only mentioned
        seen("q2", "b.9 a.4"),  # what is right is only mentioned
        seen("q3", "a.4"),
        seen("nobody", "x.1"),
    ]
    injection = retrieval.injection_of(prompts, GRADES)
    assert (injection.prompts, injection.answerable) == (4, 2)
    assert injection.injected is not None
    assert injection.nudged is not None
    assert injection.precision is not None
    assert injection.coverage is not None
    assert (injection.injected.value, injection.nudged.value) == (0.5, 0.75)
    assert (injection.precision.value, injection.coverage.value) == (0.5, 0.5)


def test_where_nothing_is_injected_there_is_no_precision() -> None:
    injection = retrieval.injection_of([seen("q1", "a.4")], GRADES)
    assert injection.precision is None
    assert injection.coverage is not None
    assert injection.coverage.value == 0.0


def test_elsewhere_is_counted_where_it_was_asked() -> None:
    assert retrieval.elsewhere_of([seen("q1", "a.9")]) is None
    other_scope = retrieval.elsewhere_of([seen("q1", "", "a.9"), seen("q2", "", "a.2"), seen("q3", "a.9")])
    assert other_scope is not None
    assert other_scope.prompts == 2
    assert other_scope.injected is not None
    assert other_scope.nudged is not None
    assert (other_scope.injected.value, other_scope.nudged.value) == (0.5, 0.5)


PROMPTS = [
    "copper kettle on the stove",
    "the night train to Lisbon, and the harbour",
    "lantern lantern lantern",
    "what about the garden wall and the copper lantern in the harbour?",
    "nothing of this kind",
]
NOTES = {  # all of different length, so that no two score the same
    "kettle": "The copper kettle stands on the stove.",
    "train": "The night train to Lisbon.",
    "harbour": "A lantern hangs over boats and nets in the harbour.",
    "garden": "The garden wall.",
    "lantern": "The copper lantern of the garden, dented, green and old.",
    "lantern-two": "Another lantern with a crack.",
    "lantern-three": "Lanterns of paper, oil and glass, bought at markets in spring.",
    "lantern-four": "A lantern for ships: red, heavy, rusty, older than anybody remembers, unlit since.",
}


LABELS = [
    "",
    "labels: {high: 0.0001, medium: 0.0001, mention: 0.0001}",
    "labels: {high: 1, medium: 1, mention: 0}",
]


@pytest.mark.parametrize("labels", LABELS, ids=["as shipped", "all high", "none high"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_hook_tells_the_same(
    tmp_path: Path, write_store: Callable[[Path, list[CollectionDocument]], None], prompt: str, labels: str
) -> None:
    documents = [CollectionDocument(id=name, title=name, text=text) for name, text in NOTES.items()]
    write_store(tmp_path / ".claude" / "memory", documents)
    own = tmp_path / ".judgekit" / "retrieval" / "claude-memory.yaml"
    own.parent.mkdir(parents=True)
    shipped = (Path(__file__).parents[2] / "retrieval" / own.name).read_text(encoding="utf-8")
    own.write_text(re.sub(r"(?m)^labels: .*$", labels, shipped) if labels else shipped, encoding="utf-8")
    profile = Profiles(compile_profiles(tmp_path)).by_kind["claude-memory"]
    text, notes = claude_code.answer({"prompt": prompt, "cwd": str(tmp_path)})
    injected_memories = told(CollectionIndex(documents, profile).candidates(prompt, retrieval.POOL))
    assert notes == []
    if labels and prompt != PROMPTS[-1]:
        assert injected_memories.injected if labels == LABELS[1] else injected_memories.mentioned
    assert re.findall(r"([\w-]+)\.json", text) == [candidate.id for candidate in injected_memories.injected]
    assert ("<memory-nudge>" in text) == bool(injected_memories.mentioned)


def test_the_hooks_limits_are_those_of_the_default_configuration() -> None:
    assert RetrievalConfig().pool == retrieval.POOL
    assert RetrievalConfig().max_inject == retrieval.MAX_INJECTED


def test_what_is_not_injected_is_mentioned_if_it_is_worth_it() -> None:
    injected_memories = told(hits("a.9 b.8 c.7 d.6 e.2 f.1"))
    assert [candidate.id for candidate in injected_memories.injected] == ["a", "b", "c"]
    assert [candidate.id for candidate in injected_memories.mentioned] == ["d", "e"]
    far = told([hit(str(place), 0.2) for place in range(20)])
    assert len(far.mentioned) == retrieval.POOL
