"""What is said about a rubric, its cases and its changes before any model is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from judgekit.config import files
from judgekit.rubric import lint, loader
from judgekit.rubric.lint import changes
from judgekit.rubric.loader import read_cases
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Cases = list[dict[str, object]]


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Path]:
    """Write the rubric `ours@1.0.0`: the bundled one on quality, with texts replaced, and cases beside it."""

    def write(*cases: dict[str, object], version: str = "1.0.0", **replaced: str) -> Path:
        text = (files.folder("rubrics") / "kls@1.0.0.yaml").read_text(encoding="utf-8")
        text = text.replace("rubric: kls", "rubric: ours").replace("version: 1.0.0", f"version: {version}")
        for before, after in replaced.items():
            assert before.replace("__", ": ") in text
            text = text.replace(before.replace("__", ": "), after)
        path = tmp_path / ".judgekit" / "rubrics" / f"ours@{version}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        lines = "".join(json.dumps(case) + "\n" for case in cases)
        path.with_name(f"ours@{version}.cases.jsonl").write_text(lines, encoding="utf-8")
        return path

    return write


def scored(name: str, strict: str = "accept", lenient: str = "accept", **more: object) -> dict[str, object]:
    label = {"strict": strict, "lenient": lenient}
    return {"id": name, "text": f"Text of {name}.", "why": "So.", "label": label, **more}


def said(path: Path) -> list[str]:
    loaded = loader.load_rubric(path)
    return [str(remark) for remark in lint.remarks(loaded, read_cases(loaded))]


GOOD = [scored(f"good-{number}") for number in range(5)]
BAD = [scored(f"bad-{number}", "reject", "reject") for number in range(5)]
TEN = [*GOOD, scored("fair", "improve", "accept"), *BAD]
ALWAYS = "a judge that always gives the same verdict would look good"
TERMS = "    terms: [structure, format, order, section, heading, reference, link, complete]\n"


def test_nothing_is_wrong_with_bundled_rubrics_nor_to_be_said_of_the_newer() -> None:
    for loaded in loader.rubrics():
        remarks = lint.remarks(loaded, read_cases(loaded))
        assert [remark for remark in remarks if remark.wrong] == []
        older = {"kls", "answer-preference", "memory-relevance", "memory-two-criteria"}
        assert loaded.rubric.rubric in older or remarks == []


def test_what_is_said_of_cases(own: Callable[..., Path]) -> None:
    twice = "ours@1.0.0.cases.jsonl:5: id: line 1 has the id 'good-3' already; give"
    odd = "cases.jsonl:1: label: odd: no scores give reject in strict and accept in lenient; change"
    one_sided = [scored("odd", "improve"), *(scored(f"good-{number}") for number in range(11))]
    table: list[tuple[Cases, list[str]]] = [
        (TEN, []),
        ([], ["ours@1.0.0.cases.jsonl: no labelled cases"]),
        ([GOOD[0], BAD[0]], ["2 cases: agreement is not meaningful below 10"]),
        ([scored("good-3"), *TEN], [twice]),
        ([scored("odd", "reject", "accept"), *TEN], [odd]),
        (
            one_sided,
            [f"{n} of 12 should be accepted in {m}: {ALWAYS}" for n, m in ((11, "strict"), (12, "lenient"))],
        ),
        ([*GOOD, *BAD], ["strict and lenient agree on every case; add a case where they differ"]),
    ]
    for cases, remarks in table:
        found = said(own(*cases))
        assert len(found) == len(remarks)
        assert all(remark in line for remark, line in zip(remarks, found, strict=True)), found
    given = "given: {sources: The sources, needs: [sources, description]}\nscale:"
    cases = [scored("with", files={"a": "A."}, description="For us."), scored("without", description=" ")]
    found = [line for line in said(own(*cases, **{"scale:": given})) if ":2: " in line]
    assert [line.partition(":2: ")[2].partition(": ")[0] for line in found] == ["files", "description"]


def test_odd_rubrics(own: Callable[..., Path], tmp_path: Path) -> None:
    accept, mean = "    accept: {each: 3}\n", "    accept: {each: 3, mean: 3.5}"
    for before, after, remark in (
        (mean, "    accept: {each: 3}", "strict and lenient decide the same; make them differ"),
        (accept, "    accept: {each: 5}\n", "lenient should accept whatever strict accepts"),
        ("order, section, heading", "order, domain, heading", "other dimensions have domain too"),
        (TERMS, "", "no terms"),
    ):
        assert remark in "\n".join(said(own(*TEN, **{before: after})))
    path = own(*TEN)
    text = path.read_text(encoding="utf-8")
    for before, after in (("accept", "x"), ("reject", "accept"), ("x", "reject")):
        text = text.replace(f"confirm: {before}", f"confirm: {after}")
    path.write_text(text, encoding="utf-8")
    (only,) = said(path)
    assert "strict confirms rejections and lenient confirms acceptances; is that reversed?" in only
    lines = loader.find_rubric("memory-relevance").path.read_text(encoding="utf-8").splitlines()
    lenient = next(line for line in lines if line.startswith("    lenient: Is this"))
    strict = lenient.replace("lenient", "strict")
    text = "\n".join(strict if "    strict: Is" in line else line for line in lines)
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("rubric: memory-relevance", "rubric: mine"), encoding="utf-8")
    assert any("strict and lenient are the same; make them differ" in line for line in said(path))


def test_every_pair_of_outcomes_that_scores_can_give() -> None:
    rubric = loader.find_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    both = {("accept", "accept"), ("improve", "improve"), ("reject", "reject")}
    assert lint.outcomes(rubric) == {*both, ("improve", "accept")}
    (dimension, *_) = rubric.dimensions.values()
    many = rubric.model_copy(update={"dimensions": {f"d{number}": dimension for number in range(9)}})
    assert lint.outcomes(many) is None  # too many to go through


def compared(tmp_path: Path, labels: str, before: str = "", after: str = "", b: str = "b") -> list[str]:
    """Return what is said of a rubric that compares and of cases with these labels: A, B, T for a tie."""
    path = tmp_path / "ours@1.0.0.yaml"
    text = loader.find_rubric("answer-preference").path.read_text(encoding="utf-8")
    path.write_text(text.replace("rubric: answer-preference", "rubric: ours").replace(before, after))
    pair = {"prompt": "p", "a": "a", "b": b, "why": "w"}
    named = [dict.fromkeys(lint.MODES, {"T": "tie"}.get(letter, letter)) for letter in labels]
    cases = [{"id": str(number), **pair, "label": label} for number, label in enumerate(named)]
    path.with_name("ours@1.0.0.cases.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    return said(path)


def test_what_is_said_of_pairs(tmp_path: Path) -> None:
    assert compared(tmp_path, "AABBABABTT") == []
    first, second = compared(tmp_path, "AAAAAAAATT")
    assert "in strict 8 labels are A and 0 are B: swap some of the texts" in first
    assert "in lenient" in second
    assert len(compared(tmp_path, "TTTTTTTTTT")) == 2
    wrong, _ = compared(tmp_path, "AT", b="a")
    assert "1: label: 0: a and b are the same text, which is always a tie" in wrong
    (only,) = compared(tmp_path, "AABBABABTT", "lenient: {confirm: reject}", "lenient: {confirm: accept}")
    assert "strict and lenient confirm the same" in only


def test_what_changed_is_said_key_by_key(own: Callable[..., Path]) -> None:
    def lines(**replaced: str) -> list[str]:
        before, after = own(), own(version="1.1.0", **replaced)
        first, *others = changes(loader.load_rubric(before).rubric, loader.load_rubric(after).rubric)
        assert first == "version: '1.0.0' -> '1.1.0'"
        return others

    assert lines() == []
    was, now = (
        f"Does the text {words} accurately?" for words in ("represent its domain", "describe its subject")
    )
    assert lines(**{"mean: 3.5": "mean: 4", "represent its domain": "describe its subject"}) == [
        f"dimensions.semantic.question: {was!r} -> {now!r}",
        "modes.strict.accept.mean: 3.5 -> 4",
    ]
    [found] = lines(**{"      - no contradictions, neither": "      - nothing made up, neither"})
    assert found.startswith("dimensions.semantic.look_for: without 'no contradictions, neither inside")
    assert "; with 'nothing made up, neither inside" in found
    order = lines(**{"[accurate, correct,": "[correct, accurate,"})
    assert order == ["dimensions.semantic.terms: in another order"]
    assert lines(**{", mean: 3.5": ""}) == ["modes.strict.accept.mean: removed, was 3.5"]
    tone = lines(**{"modes:\n": "  tone: {question: 'Is it kind?'}\nmodes:\n"})
    assert tone == ["dimensions.tone: new, (question 'Is it kind?')"]
    rubric = loader.find_rubric("memory-relevance").rubric
    assert changes(rubric, rubric) == []
