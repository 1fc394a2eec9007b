"""Models are asked about labelled cases: again, in another order, in juries, about pairs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Answer, Asked, Loopback, says
from scripted import scores

from judgekit.evaluation import report, runner, samples
from judgekit.evaluation.cases import Case
from judgekit.evaluation.runner import again, reordered
from judgekit.judging import fence
from judgekit.providers import litellm
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from judgekit.evaluation.report import JudgeReport

GOOD, BAD = scores(5, 5, 5), scores(1, 1, 1)
SELECT: dict[str, Any] = {
    "id": "s",
    "query": "How do we deploy?",
    "candidates": [{"id": f"m{number}", "title": f"Title {number}"} for number in range(6)],
    "label": ["m1"],
}
PAIR: dict[str, Any] = {"id": "p", "prompt": "Why?", "a": "Because.", "b": "No idea.", "label": "A"}


@pytest.fixture(scope="module", autouse=True)
def _litellm_is_loaded() -> None:
    litellm.load()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, JudgeReport]]:
    """Return what measures the models of a server on cases, and returns each judge's report."""

    def run(
        answer: Callable[[Asked], Answer], cases: list[Case], rubric: str, models: str = "small"
    ) -> dict[str, JudgeReport]:
        with Loopback(answer) as server:
            monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
            monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", models)
            monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "large")
            loaded = loader.find_rubric(rubric)
            opinions = runner.ask(cases, tmp_path, loaded, "strict")
        found = report.report(opinions.cases, "cases.jsonl", loaded, "strict")
        return {judge.judge: judge for judge in found.judges}

    return run


def case(**content: Any) -> Case:  # noqa: ANN401 - any JSON
    return Case.model_validate(content)


def shown(asked: Asked) -> list[str]:
    """Return the labels of the candidates, in the order in which they are shown."""
    return re.findall(r"^\[(\w+)\] ", asked.text, re.MULTILINE)


def documents(count: int) -> list[Case]:
    return [case(id=str(number), text=f"# {number}\n", label="accept") for number in range(count)]


def test_each_original_is_asked_again_and_candidates_in_another_order() -> None:
    found = again(
        [case(**SELECT), *documents(1), case(**PAIR), case(**{**SELECT, "id": "v", "variant": "injected"})]
    )
    assert [(each.id, each.variant, each.pair) for each in found] == [
        ("s", "original", ""),
        ("s (rerun)", "rerun", "s"),
        ("s (swapped)", "swapped", "s"),
        ("0", "original", ""),
        ("0 (rerun)", "rerun", "0"),
        ("p", "original", ""),
        ("p (rerun)", "rerun", "p"),
        ("v", "injected", ""),
    ]


def test_another_order_turns_most_pairs() -> None:
    ids = [f"m{number}" for number in range(6)]
    own = reordered("a query", ids)
    usual, other = list(fence.labels("a query", ids)), list(fence.labels("a query", list(own.values())))
    back = {shown: each for each, shown in own.items()}
    place = {back[each]: at for at, each in enumerate(other)}
    as_judge = [(a, b) for at, a in enumerate(usual) for b in usual[at + 1 :] if place[a] > place[b]]
    assert set(back) == set(other)
    assert len(as_judge) >= 8  # of 15


def test_a_model_that_answers_otherwise_the_second_time_is_found_out(
    measured: Callable[..., dict[str, JudgeReport]],
) -> None:
    """The second question is not answered from the cache."""
    seen: list[str] = []

    def answer(asked: Asked) -> Answer:
        seen.append(f"{asked.body['model']}{'# 0' in asked.text}")
        return says(BAD if seen[-1] == "smallTrue" and seen.count("smallTrue") == 2 else GOOD)

    found = measured(answer, again(documents(2)), "kls")
    assert found["quick"].rerun_flips.pairs == 2
    assert found["quick"].rerun_flips.rate is not None
    assert found["quick"].rerun_flips.rate.value == 0.5


def test_a_model_that_keeps_what_stands_first_flips_with_the_order(
    measured: Callable[..., dict[str, JudgeReport]],
) -> None:
    def first(asked: Asked) -> Answer:
        return says(json.dumps({"keep": shown(asked)[:1]}))

    judge_report = measured(first, again([case(**SELECT)]), "memory-relevance")["quick"]
    assert judge_report.rerun_flips.rate is not None
    assert (judge_report.rerun_flips.pairs, judge_report.rerun_flips.rate.value) == (6, 0)
    assert judge_report.order_flips.rate is not None
    assert judge_report.order_flips.pairs == 6
    assert judge_report.order_flips.rate.value == pytest.approx(2 / 6)  # another one is first now


def test_a_model_that_looks_at_content_does_not(measured: Callable[..., dict[str, JudgeReport]]) -> None:
    def right(asked: Asked) -> Answer:
        (label,) = re.findall(r"^\[(\w+)\] (?:\w+: )?Title 1\b", asked.text, re.MULTILINE)
        return says(json.dumps({"keep": [label]}))

    judge_report = measured(right, again([case(**SELECT)]), "memory-relevance")["quick"]
    assert judge_report.accuracy is not None
    assert judge_report.order_flips.rate is not None
    assert (judge_report.accuracy.value, judge_report.order_flips.rate.value) == (1, 0)


def test_a_model_that_prefers_the_first_text_flips_with_the_order(
    measured: Callable[..., dict[str, JudgeReport]],
) -> None:
    def first(asked: Asked) -> Answer:
        label = re.findall(r"^The text (\w+):", asked.text, re.MULTILINE)[0]
        return says(json.dumps({"reasoning": "It stands first.", "better": label}))

    judge_report = measured(first, [case(**PAIR)], "answer-preference")["quick"]
    assert judge_report.order_flips.rate is not None
    assert (judge_report.order_flips.pairs, judge_report.order_flips.rate.value) == (1, 1)
    assert [(confusion.label, confusion.said) for confusion in judge_report.confusion] == [("A", "tie")]
    assert judge_report.cost.calls == 2


def test_a_jury_is_measured_as_one_and_each_of_its_models(
    measured: Callable[..., dict[str, JudgeReport]],
) -> None:
    def answer(asked: Asked) -> Answer:
        return says(BAD if asked.body["model"] == "two" else GOOD)

    found = measured(answer, documents(3), "kls", models="one,two,three")
    assert list(found) == ["quick", "deep", "quick: custom/one", "quick: custom/two", "quick: custom/three"]
    accuracies = {
        name: judge_report.accuracy.value for name, judge_report in found.items() if judge_report.accuracy
    }
    assert accuracies["quick: custom/one"] == 1
    assert accuracies["quick: custom/two"] == 0
    assert found["quick"].model == "custom/one + custom/two + custom/three"
    assert found["quick"].cost.calls == 3


def test_what_was_asked_is_what_a_calibration_is_bound_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_SAMPLES", "2")
    monkeypatch.setenv("JUDGEKIT_JUDGE_CRITERIA", "each")

    def answer(asked: Asked) -> Answer:
        name = next(each for each in ("semantic", "pragmatic", "syntactic") if f'"{each}"' in asked.text)
        return says(json.dumps({"reasoning": "Fine.", "scores": {name: 4}, "findings": []}))

    with Loopback(answer) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "small")
        opinions = runner.ask(documents(1), tmp_path, loader.find_rubric("kls"), "strict")
    recorded = opinions.cases[0].judges["quick"]
    assert (recorded.samples, recorded.criteria, recorded.calls) == (2, "each", 6)
    asked = samples.asked(opinions.cases)
    assert (asked.samples, asked.criteria, asked.jury) == (2, "each", "mean")
    assert {tier: list(models) for tier, models in opinions.asking.items()} == {
        tier: [model] for tier, model in opinions.models.items()
    }


@pytest.mark.parametrize(
    ("rubric", "one"),
    [
        ("kls", {"id": "d", "text": "# Guide", "label": "accept"}),
        ("memory-relevance", SELECT),
        ("answer-preference", PAIR),
    ],
)
def test_the_users_limit_of_cost_holds(
    monkeypatch: pytest.MonkeyPatch,
    measured: Callable[..., dict[str, JudgeReport]],
    rubric: str,
    one: dict[str, Any],
) -> None:
    asked: list[Asked] = []

    def answer(question: Asked) -> Answer:
        asked.append(question)
        return says(GOOD)

    monkeypatch.setenv("JUDGEKIT_JUDGE_MAX_COST_USD", "0")
    measured(answer, [case(**one)], rubric)
    assert asked == []


def test_further_files_and_the_task_are_shown(measured: Callable[..., dict[str, JudgeReport]]) -> None:
    texts: list[str] = []

    def answer(asked: Asked) -> Answer:
        texts.append(asked.text)
        return says(GOOD)

    whole = case(
        id="t",
        text="Main.",
        label="accept",
        files={"other.py": "print(1)"},
        description="Do it",
        acceptance="Done",
    )
    measured(answer, [whole], "kls")
    assert all(part in texts[0] for part in ("Main.", "other.py", "print(1)", "Do it", "Done"))
