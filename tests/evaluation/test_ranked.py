"""Which lead of the best of several subjects may be final: learned, promised, and judged by."""

from __future__ import annotations

import asyncio
import functools
import json
import random
from datetime import UTC, datetime
from math import sqrt
from typing import TYPE_CHECKING, Any, cast

import pytest
from making import comparison_input, file, finality_rule, finality_rules, judge_options, promise
from scripted import scripted_endpoint

from judgekit.errors import InputError
from judgekit.evaluation import cases as labelled
from judgekit.evaluation import samples
from judgekit.evaluation.calibrate import choose_rules, learn, ranked
from judgekit.judging import calibration
from judgekit.judging.ranking import RankingJudge
from judgekit.providers import registry, replay
from judgekit.providers.base import Endpoint, models_by_tier
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from judgekit.config import ModeName, TierName
    from judgekit.evaluation.samples import Sample
    from judgekit.judging.calibration import Calibration
    from judgekit.judging.documents import File
    from judgekit.judging.escalation import FinalityRules
    from judgekit.providers.base import PanelModels
    from judgekit.rubric.schema import ScoreRubric

pytestmark = pytest.mark.slow

MADE = datetime(2026, 11, 1, tzinfo=UTC)
LOADED = loader.comparing_rubric("answer-quality")
RUBRIC = cast("ScoreRubric", LOADED.rubric)
ONE: dict[TierName, list[str]] = {"quick": ["small"], "deep": ["large"]}
Given = dict[str, list[float]]


def case(number: int, best: str, **said: Given | dict[str, Any]) -> labelled.Case:
    judges = {
        tier: {"model": ONE.get(tier, [tier])[0], "points": each} if "A" in each else each  # type: ignore[call-overload]
        for tier, each in said.items()
    }
    texts = [f"{number} {letter}" for letter in "ABC"]
    return labelled.Case.model_validate(
        {"id": str(number), "prompt": "p", "subjects": texts, "label": best, "judges": judges}
    )


def points(*values: float) -> Given:
    return {letter: [value] for letter, value in zip("ABC", values, strict=True)}


def learned(
    cases: list[labelled.Case], mode: ModeName = "lenient", reference: TierName | None = None
) -> Calibration:
    models = samples.models(cases)
    wanted = promise(reference=reference)
    return learn(cases, models, LOADED, mode, wanted, made=MADE, labels_sha256="0" * 64)


def wide_and_narrow(wide: int, narrow: int, wrong: int) -> list[labelled.Case]:
    """Return cases with wide quick leads that are right, and narrow ones of which some are wrong."""
    found = [case(at, "A", quick=points(5, 3, 2), deep=points(5, 2, 2)) for at in range(wide)]
    for at in range(narrow):
        best = "B" if at < wrong else "A"
        deep = points(2, 5, 1) if best == "B" else points(5, 2, 1)
        found.append(case(wide + at, best, quick=points(4, 3.5, 1), deep=deep))
    return found


# --- what is learned -------------------------------------------------------------------------------------


def test_wide_leads_may_be_final_and_narrow_ones_go_up() -> None:
    known = learned(wide_and_narrow(wide=120, narrow=60, wrong=20))
    (gate,) = known.gates
    assert (gate.tier, gate.outcome, gate.least_margin, gate.after) == ("quick", "accept", 2, None)
    assert (gate.labels, gate.errors, gate.bound <= 0.05) == (120, 0, True)
    (refused,) = known.not_promised
    assert (refused.least_margin, refused.errors) == (0.5, 20)
    assert (known.subjects and known.subjects.model_dump()) == {"least": 3, "most": 3, "all": 540}
    # Calls are counted subject by subject; of narrow ones the best two go up.
    assert known.with_gates.calls == {"quick": 540, "deep": 120}
    assert (known.with_gates.by_gate, known.with_gates.errors, known.with_gates.decided) == (120, 0, 180)
    # Without labels a lead of half a point is wide enough on a scale of four.
    assert (known.without.calls, known.without.errors) == ({"quick": 540, "deep": 0}, 20)
    against = learned(wide_and_narrow(wide=300, narrow=60, wrong=20), reference="deep")
    assert (against.rules().last, [gate.least_margin for gate in against.gates]) == ("deep", [2])


def test_ties_and_cut_texts_pass_no_gate_and_a_tier_that_failed_is_passed_over() -> None:
    even = case(0, "tie", quick=points(4, 4, 1), deep=points(4, 4, 1))
    cut = {"model": "small", "points": points(5, 1, 1), "cut": True}
    for each in (even, case(0, "A", quick=cut, deep=points(5, 1, 1))):
        known = learned([each] * 200)
        assert (known.gates, known.not_promised) == ([], [])
    small, large = ({"model": name, "failure": "timeout"} for name in ("small", "large"))
    cases = [case(at, "A", quick=small, deep=points(5, 1, 1)) for at in range(10)]
    known = learned([*cases, case(10, "A", quick=points(5, 1, 1), deep=large)])
    assert (known.with_gates.decided, known.with_gates.errors) == (10, 0)  # the last one is left open


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"label": "D"}, "label: expected A, B, C, tie"),
        ({"label": "accept"}, "label: expected A, B, C, tie"),
        ({"subjects": ["one"]}, "at least two texts"),
        ({"subjects": []}, "in all cases, or in none"),
        ({"judges": {"quick": {"model": "small", "points": {"Z": [1]}}}}, "expected points for A, B, C"),
        ({"judges": {"quick": {"model": "small", "choice": "A"}}}, "expected points for A, B, C"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], problem: str) -> None:
    cases = wide_and_narrow(2, 0, 0)
    given = {**json.loads(cases[0].model_dump_json(exclude_unset=True)), **change}
    with pytest.raises(InputError, match=problem):
        learned([labelled.Case.model_validate(given), cases[1]])
    other, models = loader.find_rubric("answer-preference"), samples.models(cases)
    with pytest.raises(InputError, match="name a rubric of the task 'score'"):
        learn(cases, models, other, "strict", promise(), made=MADE, labels_sha256="0" * 64)


# --- when it is used -------------------------------------------------------------------------------------


def test_it_holds_for_as_many_texts_as_were_compared() -> None:
    known = learned(wide_and_narrow(120, 0, 0))
    models: PanelModels = {"quick": scripted_endpoint("small"), "deep": scripted_endpoint("large")}
    panel = calibration.fingerprint(models, RUBRIC)
    majority = calibration.fingerprint(models, RUBRIC, judge_options(jury="majority"))
    assert calibration.misfit(known, LOADED, panel, 3) is None
    assert calibration.misfit(known, LOADED, majority, 3) is None  # scores are averaged, whatever juries do
    assert calibration.misfit(known, LOADED, panel, 9) == "it was made for 3 texts, not for 9"


# --- the judge comes to the same -------------------------------------------------------------------------


def drawn(draw: random.Random, number: int, models: Mapping[TierName, Sequence[str]]) -> labelled.Case:
    def said(name: str) -> dict[str, Any]:
        points = {"points": {each: [float(draw.randint(1, 5))] for each in "ABC"}}
        return {"model": name, "family": name[:1]} | (
            points if draw.random() < 0.9 else {"failure": "not_recorded"}
        )

    judges = {
        tier: {"jury": list(map(said, names))} if len(names) > 1 else said(names[0])
        for tier, names in models.items()
    }
    texts = [f"{number} {letter}" for letter in "ABC"]
    given = {"id": str(number), "prompt": "p", "subjects": texts, "label": "A", "judges": judges}
    return labelled.Case.model_validate(given)


def text_file(text: str) -> File:
    return file(text, text)


def lines(case: labelled.Case) -> Iterator[str]:
    for tier, recorded in case.judges.items():
        for each in recorded.jury or [recorded]:
            for letter, text in zip("ABC", case.subjects, strict=True):
                if each.points is None:
                    continue
                scores = dict.fromkeys(RUBRIC.dimensions, each.points[letter][0])
                reply = json.dumps({"reasoning": "", "scores": scores, "findings": []})
                line = {"replay": 1, "subject": text_file(text).sha256, "rubric": RUBRIC.ref, "tier": tier}
                yield (
                    json.dumps({**line, "model": each.model, "reply": {"text": reply, "model": each.model}})
                    + "\n"
                )


PANELS: list[dict[TierName, list[str]]] = [
    {"quick": ["small"], "deep": ["large"]},
    {"quick": ["a1", "a2", "b1"], "deep": ["large"], "tiebreaker": ["x", "y"]},
    {"quick": ["small"], "deep": ["large"], "tiebreaker": ["large"]},
    {"quick": ["small"], "deep": ["a", "b", "c"], "tiebreaker": ["c"]},
]
GATES = [
    None,
    finality_rules("c"),
    finality_rules("c", (finality_rule("quick", "accept", 1.0),)),
    finality_rules(
        "c", (finality_rule("quick", "accept", 2.0), finality_rule("deep", "accept", 0.1, after="accept"))
    ),
    finality_rules(
        "c",
        (finality_rule("quick", "accept", 1.5), finality_rule("deep", "accept", 0.1, after="improve")),
        last="deep",
    ),
]


def test_a_model_that_failed_is_asked_again() -> None:
    level = {"points": points(4, 4, 4)}
    deep = {"jury": [{"model": each, **level} for each in "ab"] + [{"model": "c", "failure": "timeout"}]}
    third = {"model": "c", "points": points(5, 4, 4)}
    given = case(0, "A", quick=points(4, 4, 4), deep=deep, tiebreaker=third)
    (item,) = ranked([given], RUBRIC, "lenient")
    turns = list(item.turns(None))
    assert [step.tier for _, step, _ in turns] == ["quick", "deep", "tiebreaker"]
    assert turns[-1][2] == "A"
    again = {"model": "large", **level}
    heard = case(0, "A", quick=points(4, 4, 4), deep=again, tiebreaker=again)
    (item,) = ranked([heard], RUBRIC, "lenient")
    assert [step.tier for _, step, _ in item.turns(None)] == ["quick", "deep"]


@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("finality", GATES)
@pytest.mark.parametrize("panel", PANELS)
def test_the_judge_comes_to_what_was_measured(
    panel: dict[TierName, list[str]], finality: FinalityRules | None, mode: ModeName, tmp_path: Path
) -> None:
    """A promise would be empty if the judge walked another way than the learner."""
    draw = random.Random(f"{panel} {finality} {mode}")
    cases = [drawn(draw, number, panel) for number in range(10)]
    recording = tmp_path / "replies.jsonl"
    recording.write_text("".join(line for each in cases for line in lines(each)), encoding="utf-8")
    profile = registry.find("replay")
    asked: PanelModels = {
        tier: [Endpoint(profile, name, name[:1], profile.output, api_base=str(recording)) for name in names]
        for tier, names in panel.items()
    }
    judge = RankingJudge(replay.ReplayGateway(), models_by_tier(asked), LOADED, mode, 60, finality=finality)
    for item in ranked(cases, RUBRIC, mode):
        comparison = asyncio.run(
            judge.judge(comparison_input("p", tuple(map(text_file, item.case.subjects))))
        )
        turns = list(item.turns(finality))
        assert comparison.verdict == (turns[-1][2] or "undetermined")
        assert len(comparison.rounds) == sum(calls for calls, _, _ in turns)
        assert comparison.calibration == (finality and finality.id)


# --- the promise -----------------------------------------------------------------------------------------

RUNS, CONFIDENCE = 200, 0.9
LEADS = {2.0: (5, 3, 1), 1.0: (4, 3, 1), 0.5: (4, 3.5, 1)}


@functools.cache
def subject(lead: float, right: bool, deep_right: bool) -> Sample:  # noqa: FBT001 - a table
    deep = points(5, 1, 1) if deep_right == right else points(1, 5, 1)
    drawn = case(0, "A" if right else "C", quick=points(*LEADS[lead]), deep=deep)
    return ranked([drawn], RUBRIC, "lenient")[0].sample()


@pytest.mark.parametrize("rates", [(0.052, 0.055, 0.3), (0.01, 0.075, 0.4), (0.005, 0.03, 0.06)])
def test_of_all_calibrations_no_more_break_their_promise_than_promised(
    rates: tuple[float, float, float],
) -> None:
    """How often the best is wrong rises as leads shrink; the rate of each gate is a sum and no estimate."""
    draw = random.Random(1122)
    errors = dict(zip(LEADS, rates, strict=True))
    broke = chose = 0
    for _ in range(RUNS):
        drawn = [
            subject(lead, draw.random() >= errors[lead], draw.random() >= 0.05)
            for lead in draw.choices(list(LEADS), k=500)
        ]
        finality = choose_rules(drawn, ("quick", "deep"), promise(0.05, CONFIDENCE)).finality
        least = min((gate.least_margin for gate in finality.rules), default=None)
        chose += least is not None
        if least is not None:
            inside = [errors[lead] for lead in LEADS if lead >= least]
            broke += sum(inside) / len(inside) > 0.05
    share = 1 - CONFIDENCE
    assert broke / RUNS <= share + 3 * sqrt(share * CONFIDENCE / RUNS)
    assert chose / RUNS > (0.5 if rates[0] < 0.05 else -1)


def test_what_a_gate_lets_through_is_the_labelled_best_or_counts_as_wrong() -> None:
    """Of three, a deeper tier may name another wrong one: that is no agreement with the label."""
    given = case(0, "C", quick=points(5, 4, 1), deep=points(1, 5, 1))
    (item,) = ranked([given], RUBRIC, "lenient")
    assert item.sample().wrong == frozenset(("quick", "deep"))
