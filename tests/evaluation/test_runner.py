"""Models are asked about labelled cases: every tier for its opinion, or as judging would."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Answer, Asked, Loopback, says
from making import PanelModels, call_usage, finality_rules, judge_settings, reply
from scripted import PROFILE, NothingOpen, scores, scripted_endpoint

from judgekit.config.settings import get_user_config_path
from judgekit.evaluation import report, runner, samples
from judgekit.evaluation.cases import Case
from judgekit.evaluation.runner import add_variants, ask_about_case
from judgekit.evaluation.task import join_answers
from judgekit.evaluation.tasks import choose_task
from judgekit.judging.jury import ORDERS, Vote, combine_calls, combine_votes
from judgekit.judging.named_inputs import NamedInputs
from judgekit.judging.question import ModelTurn
from judgekit.judging.round import Answer as Told
from judgekit.judging.score import DocumentJudge
from judgekit.providers import litellm
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareCase, ScoreCase, SelectCase

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.config import TierName
    from judgekit.evaluation.calibrate import Opinions
    from judgekit.evaluation.cases import Recorded
    from judgekit.evaluation.report import Flips, JudgeReport
    from judgekit.evaluation.task import Tried
    from judgekit.judging.jury import JuryRule, PairWord
    from judgekit.providers.base import Endpoint, Reply, Request
    from judgekit.rubric.schema import Case as RubricCase

    Ask = Callable[..., Opinions]
    Measured = Callable[..., dict[str, JudgeReport]]

GOOD, BAD = scores(5, 5, 5), scores(1, 1, 1)
SELECT: dict[str, Any] = {
    "id": "s",
    "query": "How do we deploy?",
    "candidates": [{"id": f"m{number}", "title": f"Title {number}"} for number in range(6)],
    "label": ["m1"],
}
PAIRS = loader.find_rubric("answer-preference")
CRITERIA = 3
WORDS: tuple[PairWord | None, ...] = ("A", "B", "tie", None)
PAIR: dict[str, Any] = {"id": "p", "prompt": "Why?", "a": "Because.", "b": "No idea.", "label": "A"}


@pytest.fixture(scope="module", autouse=True)
def _litellm_is_loaded() -> None:
    litellm.load()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    def run(
        answer: Callable[[Asked], Answer], cases: list[Case], rubric: str, models: str = "small"
    ) -> Opinions:
        with Loopback(answer) as server:
            monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
            monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", models)
            monkeypatch.setenv("JUDGEKIT_DEEP_MODEL", "large")
            return runner.ask(
                cases, NamedInputs(tmp_path, tmp_path), loader.find_rubric(rubric), "strict"
            )

    return run


@pytest.fixture
def measured(ask: Ask) -> Measured:
    def run(
        answer: Callable[[Asked], Answer], cases: list[Case], rubric: str, models: str = "small"
    ) -> dict[str, JudgeReport]:
        answered = ask(answer, cases, rubric, models).cases
        found = report.report(answered, "cases.jsonl", loader.find_rubric(rubric), "strict")
        return {judge.judge: judge for judge in found.judges}

    return run


def case(**content: Any) -> Case:  # noqa: ANN401 - any JSON
    return Case.model_validate(content)


def shown(asked: Asked) -> list[str]:
    """Return the labels of the candidates, in the order in which they are shown."""
    return re.findall(r"^\[(\w+)\] ", asked.text, re.MULTILINE)


def documents(count: int) -> list[Case]:
    return [case(id=str(number), text=f"# {number}\n", label="accept") for number in range(count)]


def first_memory(asked: Asked) -> Answer:
    return says(json.dumps({"keep": shown(asked)[:1]}))


def right_memory(asked: Asked) -> Answer:
    (label,) = re.findall(r"^\[(\w+)\] (?:\w+: )?Title 1\b", asked.text, re.MULTILINE)
    return says(json.dumps({"keep": [label]}))


def first_text(asked: Asked) -> Answer:
    label = re.findall(r"^The text (\w+):", asked.text, re.MULTILINE)[0]
    return says(json.dumps({"reasoning": "It stands first.", "better": label}))


def test_a_model_that_answers_otherwise_is_found_out(measured: Measured) -> None:
    times_asked = count(1)

    def answer(asked: Asked) -> Answer:
        is_first_document = asked.body["model"] == "small" and "# 0" in asked.text
        return says(BAD if is_first_document and next(times_asked) == 2 else GOOD)

    def rate(flips: Flips) -> tuple[int, float | None]:
        return flips.pairs, flips.rate.value if flips.rate else None

    # The second question is not answered from the cache.
    assert rate(measured(answer, add_variants(documents(2)), "kls")["quick"].rerun_flips) == (
        2,
        0.5,
    )
    memories = add_variants([case(**SELECT)])
    found = measured(first_memory, memories, "memory-relevance")["quick"]
    assert rate(found.rerun_flips) == (6, 0)
    assert rate(found.order_flips) == (6, 2 / 6)  # another one is first now
    found = measured(right_memory, memories, "memory-relevance")["quick"]
    assert found.accuracy is not None
    assert (found.accuracy.value, rate(found.order_flips)) == (1, (6, 0))
    found = measured(first_text, [case(**PAIR)], "answer-preference")["quick"]
    assert rate(found.order_flips) == (1, 1)
    assert [(confusion.label, confusion.said) for confusion in found.confusion] == [("A", "tie")]
    assert found.cost.calls == 2


def test_a_jury_is_measured_as_one_and_each_of_its_models(measured: Measured) -> None:
    def answer(asked: Asked) -> Answer:
        return says(BAD if asked.body["model"] == "two" else GOOD)

    found = measured(answer, documents(3), "kls", models="one,two,three")
    assert list(found) == [
        "quick",
        "deep",
        "quick: custom/one",
        "quick: custom/two",
        "quick: custom/three",
    ]
    for name, share in (("one", 1), ("two", 0)):
        accuracy = found[f"quick: custom/{name}"].accuracy
        assert accuracy is not None
        assert accuracy.value == share
    assert found["quick"].model == "custom/one + custom/two + custom/three"
    assert found["quick"].cost.calls == 3


def test_what_was_asked_is_what_a_calibration_is_bound_to(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_SAMPLES", "2")
    monkeypatch.setenv("JUDGEKIT_JUDGE_CRITERIA", "each")

    texts: list[str] = []
    task = {"files": {"other.py": "print(1)"}, "description": "Do it", "acceptance": "Done"}

    def answer(asked: Asked) -> Answer:
        texts.append(asked.text)
        name = next(
            each for each in ("semantic", "pragmatic", "syntactic") if f'"{each}"' in asked.text
        )
        return says(json.dumps({"reasoning": "Fine.", "scores": {name: 4}, "findings": []}))

    found = ask(answer, [case(id="t", text="Main.", label="accept", **task)], "kls")
    assert all(part in texts[0] for part in ("Main.", "other.py", "print(1)", "Do it", "Done"))
    recorded = found.cases[0].judges["quick"]
    assert (recorded.samples, recorded.criteria, recorded.calls) == (2, "each", 6)
    asked = samples.find_options(found.cases)
    assert (asked.samples, asked.criteria, asked.jury) == (2, "each", "mean")


@settings(deadline=None)
@given(
    data=st.data(),
    count=st.integers(1, 3),
    criteria=st.sampled_from([1, CRITERIA]),
    rule=st.sampled_from(["mean", "majority"]),
    families=st.lists(st.sampled_from(["x", "y", "unknown"]), min_size=1, max_size=4),
)
def test_a_record_comes_to_the_word_and_the_lead_of_the_judge(
    data: st.DataObject, count: int, criteria: int, rule: JuryRule, families: list[str]
) -> None:
    endpoints = [
        dataclasses.replace(scripted_endpoint(f"m{at}"), family=name)
        for at, name in enumerate(families)
    ]
    calls = count * criteria * len(ORDERS)
    settings = judge_settings(
        {"quick": endpoints},
        PAIRS,
        jury=rule,
        samples=count,
        criteria="each" if criteria > 1 else "together",
    )
    task = choose_task(PAIRS.rubric, "strict")
    votes, answers = [], []
    for endpoint in endpoints:
        words = data.draw(st.lists(st.sampled_from(WORDS), min_size=calls, max_size=calls))
        each = [
            Told(Vote(word) if word else None, None, call_usage(), 0, endpoint.model)
            for word in words
        ]
        vote = combine_calls([one.value for one in each], criteria)
        votes.append(vote)
        turn = ModelTurn(endpoint, each, Told(vote, None, call_usage(), 0, endpoint.model))
        answers.append(task.record(case(**PAIR), turn, settings))
    expected = combine_votes(list(zip(endpoints, votes, strict=True)), rule)
    recorded = {"quick": join_answers(answers, settings, is_cut=False)}
    answered = Case.model_validate_json(case(**PAIR, judges=recorded).model_dump_json())
    assert task.read_answers(answered, answered.judges["quick"]) == {"": expected.word}
    (sample,) = task.build_samples(answered)
    assert sample.opinions["quick"].margin == pytest.approx(expected.lead)


def test_models_are_measured_on_texts_that_their_own_family_wrote(ask: Ask) -> None:
    """Independence is for judging: otherwise nobody could measure a model on its own family's texts."""
    get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
    get_user_config_path().write_text("judge: {author_family: openai, samples: 3}\n")

    def answer(asked: Asked) -> Answer:
        found = re.findall(r"The text (\w+):\s+<[^>]*>\s+Because", asked.text)
        return says(json.dumps({"reasoning": "r", "better": found[0]}))

    found = ask(answer, [case(**PAIR)], "answer-preference", "gpt-4o-mini,gpt-4o")
    quick, deep = (found.cases[0].judges[tier] for tier in ("quick", "deep"))
    assert [recorded.model for recorded in quick.jury or []] == [
        "custom/gpt-4o-mini",
        "custom/gpt-4o",
    ]
    assert [recorded.probabilities for recorded in quick.jury or []] == [{"A": 1.0, "B": 0.0}] * 2
    assert (deep.model, deep.samples, deep.calls) == ("custom/large", 3, 6)
    assert samples.find_options(found.cases).samples == 3


def test_what_a_tier_did_not_see_whole_is_noted_and_learned_as_judging_takes_it(ask: Ask) -> None:
    """The quick tier of this rubric sees the beginnings of long texts: its wins are never final there."""
    limit = PAIRS.rubric.tiers.quick.max_chars
    assert limit is not None

    def answer(asked: Asked) -> Answer:
        found = re.findall(r"The text (\w+)\b[^<]*<[^>]*>\s+a word", asked.text)
        return says(json.dumps({"reasoning": "r", "better": found[0]}))

    for share, cut in ((0.4, False), (0.6, True)):
        texts = {letter: f"{letter} {'word ' * int(share * limit / 5)}" for letter in "ab"}
        (answered,) = ask(answer, [case(**{**PAIR, **texts})], "answer-preference").cases
        noted = {tier: recorded.cut for tier, recorded in answered.judges.items()}
        assert noted == {"quick": cut, "deep": False}
        (sample,) = choose_task(PAIRS.rubric, "strict").build_samples(answered)
        assert (sample.outcome("quick"), sample.margin("quick")) == ("accept", None if cut else 1.0)


# --- several subjects: within the limits that hold for the case as a whole

RANKING = loader.find_rubric("answer-quality")
SUBJECTS = ["One.", "Two.", "Three.", "Four."]
CASE = Case.model_validate({"id": "c", "prompt": "Why?", "subjects": SUBJECTS, "label": "A"})
QUICK, DEEP = scripted_endpoint("quick-model"), scripted_endpoint("deep-model")


class Costly(NothingOpen):
    """Answers after a while, and counts each call's cost and the calls at a time."""

    def __init__(self, usd: float = 0.9, seconds: float = 0.0) -> None:
        self.usd, self.seconds = usd, seconds
        self.requests: list[Request] = []
        self.busy = self.most = 0

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.seconds)
        self.busy -= 1
        scores = dict.fromkeys(RANKING.rubric.dimensions, 3)  # type: ignore[union-attr]  # a rubric that scores
        text = json.dumps({"reasoning": "r", "scores": scores, "findings": []})
        return reply(text, scripted_endpoint.model, call_usage(10, 1, self.usd))


def bearing(endpoint: Endpoint, calls: int) -> Endpoint:
    limits = PROFILE.limits.model_copy(update={"concurrency": calls})
    return dataclasses.replace(endpoint, profile=PROFILE.model_copy(update={"limits": limits}))


def asked(
    gateway: Costly,
    panel: PanelModels,
    **limits: Any,  # noqa: ANN401 - any limit
) -> dict[TierName, Recorded]:
    settings = judge_settings(panel, RANKING, "lenient", finality=finality_rules(), **limits)
    judge = DocumentJudge(gateway, settings)
    return asyncio.run(ask_about_case(judge, CASE, NamedInputs(Path(), Path())))


def test_limits_of_cost_and_time_hold_for_the_case_and_not_for_each_call() -> None:
    both: PanelModels = {"quick": QUICK, "deep": DEEP}
    gateway = Costly()
    found = asked(gateway, both, max_cost_usd=1.0)
    assert len(gateway.requests) == 2  # the first left something, the second took more than that
    assert found["quick"].points == {"A": [3.0], "B": [3.0]}
    assert found["deep"].failure == "budget"
    gateway = Costly(usd=0.1)
    asked(
        gateway, both, max_cost_usd=0.1 + 0.1 + 0.1
    )  # a little more than three: nearly nothing is left
    assert len(gateway.requests) == 3
    gateway = Costly(seconds=0.1)
    found = asked(gateway, {"quick": bearing(QUICK, 1), "deep": bearing(DEEP, 1)}, timeout=0.25)
    assert len(gateway.requests) < len(SUBJECTS)
    assert found["deep"].failure == "timeout"
    assert max(request.timeout for request in gateway.requests[1:]) < 0.25


def test_subjects_and_models_are_asked_at_once_but_no_more_than_a_provider_bears() -> None:
    for quick, most, requests in (([QUICK, DEEP], 8, 8), ([bearing(QUICK, 2)], 2, 4)):
        gateway = Costly(seconds=0.01)
        asked(gateway, {"quick": quick})
        assert (gateway.most, len(gateway.requests)) == (most, requests)


# --- as judging would

SECRET = "-".join(("sk", "ant", "api03", "q7Xw" * 20))
BOTH = {"strict": ["m1"], "lenient": ["m1"]}
DEPLOYING = {"id": "m1", "title": "Deploying", "text": f"export ANTHROPIC_API_KEY={SECRET}"}
MEMORY = {
    "query": "How do we deploy?",
    "candidates": [DEPLOYING],
    "why": "Asked for.",
    "label": BOTH,
}
SELECT_CASE = SelectCase.model_validate({"id": "s", **MEMORY})
GUIDE = {"text": "# Guide\n", "why": "It is.", "label": {"strict": "accept", "lenient": "accept"}}
SCORE_CASE = ScoreCase.model_validate({"id": "d", **GUIDE})
NUMBERS = {"prompt": "What is 17 x 24?", "a": "404", "b": "408", "why": "17 x 4 is 68."}
COMPARE_CASE = CompareCase.model_validate(
    {"id": "p", **NUMBERS, "label": {"strict": "B", "lenient": "B"}}
)


def kept(asked: Asked) -> Answer:
    return says(json.dumps({"reasoning": "r", "keep": shown(asked)}))


def larger(asked: Asked) -> Answer:
    found = re.findall(r"The text (\w+):\s+<[^>]*>\s+(\d+)\s", asked.text)
    return says(
        json.dumps({"reasoning": "It is right.", "better": max(found, key=lambda each: each[1])[0]})
    )


def tried(
    monkeypatch: pytest.MonkeyPatch, rubric: str, *cases: RubricCase
) -> tuple[list[Tried], list[str]]:
    answers = {"kls": lambda _: says(GOOD), "answer-preference": larger}
    with Loopback(answers.get(rubric, kept)) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "small")
        found = runner.judge_cases(loader.find_rubric(rubric), cases, modes=["strict"])
        return found, [request.text for request in server.requests]


@pytest.mark.parametrize(
    ("rubric", "one"),
    [("kls", SCORE_CASE), ("memory-relevance", SELECT_CASE), ("answer-preference", COMPARE_CASE)],
)
def test_cost_limit_holds(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, rubric: str, one: RubricCase
) -> None:
    monkeypatch.setenv("JUDGEKIT_JUDGE_MAX_COST_USD", "0")
    found, sent = tried(monkeypatch, rubric, one)
    assert sent == []
    assert [(each.said, each.agrees) for each in found] == [("undetermined", False)]
    assert runner.count_agreements(found)[:3] == (0, 0, 1)

    def answer(_: Asked) -> Answer:
        raise AssertionError("a model was asked")

    ask(answer, [case(**one.model_dump())], rubric)


def test_candidates_are_sent_as_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found, sent = tried(monkeypatch, "memory-relevance", SELECT_CASE)
    assert [each.said for each in found] == ["kept"]
    assert SECRET not in "".join(sent)
    get_user_config_path().parent.mkdir(parents=True, exist_ok=True)
    get_user_config_path().write_text("judge: {redact: false, samples: 3}\n")
    _, sent = tried(monkeypatch, "memory-relevance", SELECT_CASE)
    assert SECRET in "".join(sent)
    assert len(sent) % 3 == 0
