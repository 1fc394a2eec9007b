"""The flow behind `judgekit compare`, and the same from Python."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, says
from making import comparison_input, file

import judgekit
from judgekit.errors import ConfigError, InputError, UsageError
from judgekit.judging import service
from judgekit.judging.documents import file_of

if TYPE_CHECKING:
    from pathlib import Path

    from loopback import Answer, Asked

    from judgekit.judging.documents import ComparisonInput

PROMPT = "Say yes."


def prefers_yes(asked: Asked) -> Answer:
    """Prefer the text that says yes over the wire; score it 5 and any other 2."""
    text = str(asked.text)
    if '"scores"' in text:
        value = 5 if "\nyes\n" in text else 2
        return says(json.dumps({"reasoning": "", "scores": dict.fromkeys(_dimensions(text), value)}))
    label = re.findall(r"The text (\w+):\s+<[^>]*>\s+yes\s", text)
    return says(json.dumps({"reasoning": "It says yes.", "better": label[0] if label else "tie"}))


def _dimensions(text: str) -> list[str]:
    return re.findall(r'"(\w+)": <whole number>', text)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loopback:
    monkeypatch.chdir(tmp_path)
    loopback = Loopback(prefers_yes)
    monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
    return loopback


def test_two_texts_from_python(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    with server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        comparison = judgekit.compare("no", "yes", prompt=PROMPT, mode="lenient")
    assert isinstance(comparison, judgekit.Comparison)
    assert (comparison.verdict, comparison.reasoning, comparison.rubric.id) == (
        "B",
        "It says yes.",
        service.FOR_TWO,
    )
    assert [subject.letter for subject in comparison.subjects] == ["A", "B"]
    assert comparison.consensus == "single"


def test_three_texts_are_scored(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    with server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        comparison = judgekit.compare("no", "maybe", "yes", prompt=PROMPT, mode="lenient", rubric="kls")
    assert (comparison.verdict, [subject.score for subject in comparison.subjects]) == ("C", [2, 2, 5])


@pytest.mark.parametrize("count", [0, 1, 27])
def test_a_number_of_texts_that_cannot_be_compared(count: int) -> None:
    with pytest.raises(UsageError, match="expected"):
        judgekit.compare(*["yes"] * count, prompt=PROMPT)


def test_an_empty_text_is_no_text() -> None:
    with pytest.raises(InputError, match="B: empty"):
        judgekit.compare("yes", " \n", prompt=PROMPT)


@pytest.mark.parametrize(
    ("rubric", "count", "problem"),
    [
        ("answer-preference", 3, "compares two texts, but there are 3"),
        ("memory-relevance", 2, "is for the task 'select'"),
        ("no-such", 2, "no rubric 'no-such'"),
    ],
)
def test_rubrics_that_do_not_fit(rubric: str, count: int, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        judgekit.compare(*map(str, range(count)), prompt=PROMPT, rubric=rubric)


def test_a_rubric_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("rubric: bad\nversion: 1.0.0\ntask: compare\ntitle: T\ncriteria: {}\n")
    with pytest.raises(ConfigError, match="missing key"):
        judgekit.compare("a", "b", prompt=PROMPT, rubric=str(path))


def test_without_a_model_it_is_undetermined_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = tuple(file(name, name, sha256=name * 64, total=1) for name in "ab")
    comparison = service.compare(comparison_input(PROMPT, files))
    assert (comparison.verdict, comparison.rounds) == ("undetermined", [])
    assert "not judged: no model found" in str(comparison.degraded)


def test_who_wrote_them_is_said_for_all_or_for_each(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def families(given: str | list[str | None] | None) -> list[str | None]:
        comparison = judgekit.compare("no", "yes", prompt=PROMPT, mode="lenient", author_family=given)
        return [subject.family for subject in comparison.subjects]

    with server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        assert families(None) == [None, None]
        assert families("Claude") == ["anthropic", "anthropic"]
        assert families(["gpt-4o", None]) == ["openai", None]
        (tmp_path / ".judgekit").mkdir()
        (tmp_path / ".judgekit" / "config.yaml").write_text("judge: {author_family: mistral}\n")
        assert families(["gpt-4o", None]) == ["openai", "mistral"]
        assert families(["gpt-4o", "none"]) == ["openai", None]
    with pytest.raises(UsageError, match="got 3"):
        judgekit.compare("no", "yes", prompt=PROMPT, author_family=["a", "b", "c"])


@pytest.mark.parametrize(("rubric", "calls"), [(None, 2 * 2 * 3), ("answer-quality", 2 * 2 * 3)])
def test_samples_and_criteria_are_those_of_the_configuration(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rubric: str | None, calls: int
) -> None:
    (tmp_path / ".judgekit").mkdir()
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("JUDGEKIT_HOME", str(home))
    (home / "config.yaml").write_text("judge: {samples: 2, criteria: each}\n")
    with server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        comparison = judgekit.compare("no", "yes", prompt=PROMPT, mode="lenient", rubric=rubric)
        assert len(server.requests) == calls
    assert comparison.verdict == "B"


def test_a_reply_that_was_kept_costs_no_second_call(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        first = judgekit.compare("no", "yes", prompt=PROMPT, mode="lenient")
        asked = len(server.requests)
        second = judgekit.compare("no", "yes", prompt=PROMPT, mode="lenient")
        swapped = judgekit.compare("yes", "no", prompt=PROMPT, mode="lenient")
    assert (first.verdict, second.verdict, swapped.verdict) == ("B", "B", "A")
    assert len(server.requests) == asked


def three_texts(*authors: str | None) -> ComparisonInput:
    return comparison_input("Why?", tuple(file_of(each, each) for each in "abc"), authors)


@pytest.mark.parametrize(
    ("authors", "wrote", "sided"),
    [
        ([], [], []),
        (["none", "none", "none"], [], []),
        (["anthropic"] * 3, ["anthropic"], []),
        (["Claude", "gpt-4o", "none"], ["anthropic", "openai"], ["anthropic", "openai"]),
        # Of the third nothing is said: it may be anybody's.
        (["anthropic", "openai"], ["anthropic", "openai", "unknown"], ["anthropic", "openai"]),
        (["anthropic", "unknown", "none"], ["anthropic", "unknown"], ["anthropic"]),
        (["anthropic, openai", "openai", "openai"], ["anthropic", "openai"], ["anthropic"]),
        (["unknown"] * 3, ["unknown"], []),
    ],
)
def test_which_families_wrote_and_which_of_them_have_a_favourite(
    authors: list[str], wrote: list[str], sided: list[str]
) -> None:
    found = three_texts(*authors)
    assert (list(found.wrote), list(found.sided)) == (wrote, sided)


def test_a_configuration_speaks_for_subjects_of_which_nothing_is_said() -> None:
    found = three_texts("openai", None, "none").written_by("anthropic")
    assert [found.families(each) for each in "ABC"] == [("openai",), ("anthropic",), ()]
    assert three_texts().written_by(None).wrote == ()
    assert [three_texts().written_by("mistral").author(each) for each in "ABC"] == ["mistral"] * 3


def test_a_subject_is_one_with_its_order_and_its_prompt() -> None:
    one = three_texts()
    other = comparison_input("How?", one.files)
    assert len({*map(one.shown_sha256, ("AB", "BA", "ABC")), other.shown_sha256("AB")}) == 4
    assert one.shown_sha256("AB") == three_texts("openai").shown_sha256("AB")
