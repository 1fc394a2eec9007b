"""Calibrations are kept, found, refused when stale or damaged, and bound to the judge they're for."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import (
    PanelModels,
    document,
    document_judge,
    file,
    judge_settings,
    promise,
    prompt_candidate,
    reply,
)
from scripted import ScriptedGateway, scores, scripted_endpoint, telling_reply, three_models

from judgekit.errors import ConfigError, InputError
from judgekit.evaluation import cases as labelled
from judgekit.evaluation import samples
from judgekit.evaluation.calibrate import Opinions, learn
from judgekit.judging import (
    calibration_files,
    calibration_fit,
    claims,
    compare_question,
    decisions,
    fence,
    pointwise,
    question,
    select_question,
    writing,
)
from judgekit.judging.binomial import (
    compute_lower_tail,
    compute_upper_bound,
    count_labels_needed,
    lower,
)
from judgekit.judging.calibration import Calibration
from judgekit.judging.questionnaire import TypedQuestion
from judgekit.judging.questions_hash import hash_questions
from judgekit.judging.verdict import build_rubric_ref
from judgekit.providers import base, registry
from judgekit.replies import logprobs
from judgekit.rubric import loader

if TYPE_CHECKING:
    from collections.abc import Callable

    from judgekit.config import TierName
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, Reply


MADE = datetime(2026, 11, 1, tzinfo=UTC)
PANEL = three_models()
MODELS: dict[TierName, str] = {tier: endpoint.model for tier, endpoint in PANEL.items()}
KLS = loader.find_rubric("kls")
GOOD = {"semantic": 5.0, "pragmatic": 5.0, "syntactic": 5.0}
NEARLY = {"semantic": 4.8, "pragmatic": 4.7, "syntactic": 4.9}
PLAIN, DEEP = scripted_endpoint("small"), scripted_endpoint("large")
TELLING, POINTWISE = replace(PLAIN, has_logprobs=True), replace(PLAIN, is_pointwise=True)


def case(number: int, label: str = "accept", /, **judges: dict[str, Any]) -> labelled.Case:
    return labelled.Case.model_validate({"id": str(number), "label": label, "judges": judges})


def cases(count: int = 120, wrong: int = 0, **how: Any) -> list[labelled.Case]:  # noqa: ANN401 - any setting
    """Return cases in which the quick tier accepts with a large margin, `wrong` of them wrongly."""
    found = []
    for number in range(count):
        label = "reject" if number < wrong else "accept"
        deep = {"model": MODELS["deep"], "reply": scores(*(5 if label == "accept" else 1,) * 3)}
        third = {"model": MODELS["tiebreaker"], "failure": "not_recorded"}
        quick = {"model": MODELS["quick"], "scores": GOOD}
        found.append(
            case(number, label, quick=quick | how, deep=deep | how, tiebreaker=third | how)
        )
    return found


def learned(
    found: list[labelled.Case], rate: float = 0.05, reference: TierName | None = None
) -> Calibration:
    models, wanted = samples.find_models(found), promise(rate, reference=reference)
    return learn(Opinions(found, models, {}), KLS, "strict", wanted, made=MADE, digest="0" * 64)


@functools.cache
def known(rate: float = 0.05) -> Calibration:
    return learned(cases(), rate)


def read_so(quick: dict[str, Any], **how: Any) -> Calibration:  # noqa: ANN401 - any setting
    judges = {
        "quick": {"model": "small", **quick, **how},
        "deep": {"model": "large", "scores": GOOD, **how},
    }
    return learned([case(number, **judges) for number in range(120)])


def find(project: Path | None = None, **more: Any) -> tuple[FinalityRules | None, str]:  # noqa: ANN401 - any option
    finality, warning = calibration_files.find(judge_settings(PANEL, KLS, **more), project)
    return finality, warning or ""


def misfit(
    one: Calibration,
    panel: PanelModels,
    **more: Any,  # noqa: ANN401 - any setting
) -> str | None:
    now = calibration_fit.fingerprint_panel(judge_settings(panel, KLS, **more))
    return next(calibration_fit.explain_misfits(one, KLS, now), None)


def judged(
    answers: dict[str, list[Any]],
    panel: PanelModels = PANEL,
    **how: Any,  # noqa: ANN401 - any option
) -> tuple[Verdict, list[str]]:
    """Judge by the calibration found, or by given rules; return the verdict with the tiers asked."""
    gateway, (rules, warning) = ScriptedGateway(answers), find()
    how = {"finality": rules, "calibration_warning": warning or None} | how
    own = document_judge(gateway, panel, loaded=KLS, mode="strict", **how)
    return asyncio.run(own.judge(document((file("a.md", "# A"),), "a.md"))), gateway.asked


NOTHING = None, None


def keep(one: Calibration) -> Path:
    """Put a calibration beside the user's own, and return its path."""
    return calibration_files.write(one, None)


def ours(project: Path, one: Calibration | None = None, **change: Any) -> Path:  # noqa: ANN401 - any JSON
    """Put a calibration where a project's are, with other values of some keys."""
    path = project / ".judgekit" / "calibrations" / "ours.json"
    calibration_files.write(one or known(), path)
    path.write_text(json.dumps({**json.loads((one or known()).format_json()), **change}))
    return path


def test_what_was_learned_comes_back_from_its_file(tmp_path: Path) -> None:
    calibration_files.write(known(), tmp_path / "deep" / "c.json")
    assert calibration_files.read_calibration(tmp_path / "deep" / "c.json") == known()
    assert known().schema_ == "judgekit/calibration@2"
    assert [gate.outcome for gate in known().gates] == ["accept"]
    assert known().with_gates.calls == {"quick": 120, "deep": 0, "tiebreaker": 0}
    assert known().without.calls == {"quick": 120, "deep": 120, "tiebreaker": 0}
    assert known().id == learned(cases()).id != known(0.06).id
    assert Path(keep(known()).parent).stat().st_mode & 0o077 == 0
    for count, wrong, rate in (
        (1, 1, 0.2),
        (60, 0, 0.05),
        (300, 0, 0.01),
        (300, 3, 0.05),
        (300, 30, 0.2),
    ):
        for one in (learned(cases(count, wrong), rate), learned(cases(count, wrong), rate, "deep")):
            calibration_files.write(one, tmp_path / "c.json")
            assert (
                calibration_files.read_calibration(tmp_path / "c.json") == one
            )  # its gates follow from its counts


def test_a_stale_one_is_not_used_and_said() -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"prompt_sha256": "1" * 64}, "the prompt has changed"),
        ({"models": {**MODELS, "deep": "older"}}, "deep was older and is deep-model now"),
        (
            {"models": {"quick": MODELS["quick"], "deep": MODELS["deep"]}},
            "tiebreaker was nobody and is",
        ),
        (
            {"rubric": {"id": "kls", "version": "1.0.0", "sha256": "2" * 64}},
            "made for a different kls",
        ),
    ]
    for change, why in changes:
        keep(
            Calibration.model_validate(
                {**json.loads(known().format_json()), "id": "other", **change}
            )
        )
        rules, warning = find()
        assert (rules, why in warning) == (None, True), warning
        verdict, asked = judged({"quick": [scores(1, 1, 1)]})
        assert (verdict.verdict, asked) == ("reject", ["quick"])
        assert (verdict.calibration, verdict.degraded) == (None, warning)
    # Beside one that fits it isn't named; opinions that the fitting one doesn't let through go up.
    keep(known())
    verdict, asked = judged({"quick": [scores(1, 1, 1)], "deep": [scores(1, 2, 2)]})
    assert (verdict.verdict, asked, verdict.degraded) == ("reject", ["quick", "deep"], None)


def test_the_newest_that_fits_and_the_projects_before_the_users(tmp_path: Path) -> None:
    new = known(0.06).model_copy(update={"made": MADE + timedelta(days=1)})
    keep(new)
    keep(known())
    assert find(tmp_path)[0] == new.build_finality_rules()
    calibration_files.accept(ours(tmp_path, known(0.07)))
    assert find(tmp_path)[0] == known(0.07).build_finality_rules()
    assert calibration_files.find(judge_settings(PANEL, KLS, "lenient"), tmp_path) == NOTHING


OURS = '"rubric": {"id": "kls", "version": "1.0.0"}, "mode": "strict"'
SCHEMA = '{"schema": "judgekit/calibration@2"'
OTHERS = (OURS.replace("kls", "other"), OURS.replace("strict", "lenient"))


def test_a_damaged_file_is_said_if_it_is_meant_and_not_used() -> None:
    cases: list[tuple[str, str, bool]] = [
        *(
            ("kls-strict-0123456789ab.json", text, True)
            for text in ("{", "[]", "{}", '{"schema": "judgekit/calibration@2"}')
        ),
        ("ours.json", f"{SCHEMA}, {OURS}}}", True),
        ("ours.json", f'{SCHEMA}, {OURS}, "made": ', True),
        # A verdict says nothing of files that have nothing to do with it.
        ("notes.json", "{}", False),
        *(("ours.json", f"{SCHEMA}, {other}}}", False) for other in OTHERS),
        ("bytes.json", "\xff\xfe", False),
        ("kls-lenient-0123456789ab.json", "{", False),
    ]
    for name, text, said in cases:
        path = keep(known()).with_name(name)
        keep(known()).unlink()
        path.write_text(text, encoding="latin-1")
        rules, warning = find()
        assert rules is None
        assert warning.startswith(f"calibration not used: {path}") if said else warning == ""
        assert "\n" not in warning
        if said:
            with pytest.raises(ConfigError):
                calibration_files.read_calibration(path)
        path.unlink()


def test_a_folder_full_of_files_is_read_in_part(tmp_path: Path) -> None:
    path = ours(tmp_path)
    calibration_files.accept(path)
    for number in range(calibration_files.MAX_READ + 4):
        other = path.with_name(f"{number:03}.json")
        other.write_text("[" * 30_000)
        os.utime(other, (1, 1))
    before = time.process_time()
    rules, warning = find(tmp_path)
    assert time.process_time() - before < 2  # a parser of YAML takes seconds for each
    assert rules == known().build_finality_rules(), "the newest are read"
    assert (
        f"25 files that may be for kls, strict; read {calibration_files.MAX_READ} of them"
        in warning
    )
    path.write_text(f'{SCHEMA}, {OURS}, "x": [{"1," * calibration_files.MAX_BYTES}1]}}')
    assert "larger than 64000 bytes" in find(tmp_path)[1]


def test_a_projects_own_counts_only_when_the_user_accepted_these_bytes(
    tmp_path: Path, isolated: Path
) -> None:
    path = ours(tmp_path)
    rules, warning = find(tmp_path)
    assert rules is None
    assert "calibrate accept .judgekit/calibrations/ours.json" in warning
    calibration_files.accept(path)
    assert find(tmp_path) == (known().build_finality_rules(), "")
    (kept,) = isolated.rglob("accepted.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text() + "\n")
    assert find(tmp_path)[0] is None
    # Accepted ones stay accepted, in any folder.
    for number, one in enumerate((known(), known(0.06))):
        calibration_files.accept(ours(tmp_path / str(number), one))
    for number, one in enumerate((known(), known(0.06))):
        assert find(tmp_path / str(number))[0] == one.build_finality_rules()


SHOWN = {"tier": "quick", "outcome": "accept", "labels": 120, "errors": 0, "bound": 0.03}
OF_A_GATE: list[tuple[str, dict[str, Any]]] = [
    *(("labels", {"labels": count}) for count in (0, 121)),
    ("labels", {"errors": 9}),
    *(("errors", {"errors": count}) for count in (-1, 121)),
    ("gains", {"errors": 9, "gains": 9}),
    *(("bound", {"bound": rate}) for rate in (0.01, 0.06)),
    ("tier", {"tier": "tiebreaker"}),
    ("after", {"after": "reject"}),
    ("stands", {"tier": "deep", "stands": "quick"}),
]
FLAWS: list[tuple[str, dict[str, Any]]] = [
    *((f"gates.0.{key}", {"gates": [{**SHOWN, **change}]}) for key, change in OF_A_GATE),
    ("gates.0", {"gates": [SHOWN, SHOWN]}),
    ("gates.0.labels", {"gates": [SHOWN, {**SHOWN, "outcome": "reject"}]}),
    ("promise.reference", {"promise": {"rate": 0.05, "confidence": 0.95, "reference": "quick"}}),
    ("gates.0.labels", {"promise": {"rate": 0.001, "confidence": 0.95}}),
    ("cases", {"cases": -5}),
    ("gates.0.labels", {"cases": 60}),
    ("with_gates.errors", {"with_gates": {"decided": 9, "errors": 10, "calls": {}}}),
    ("without.decided", {"without": {"decided": 121, "errors": 0, "calls": {}}}),
    ("without.calls.quick", {"without": {"decided": 1, "errors": 0, "calls": {"quick": -1}}}),
]


@pytest.mark.parametrize(("key", "change"), FLAWS)
def test_gates_that_do_not_follow_from_the_counts_are_not_used(
    tmp_path: Path, key: str, change: dict[str, Any]
) -> None:
    path = ours(tmp_path, **change)
    with pytest.raises(ConfigError) as refused:
        calibration_files.accept(path)
    assert refused.value.key == key
    assert find(tmp_path)[0] is None
    own = keep(known())
    own.write_text(path.read_text())  # a user's own file is no better
    for project in (None, tmp_path):
        rules, warning = find(project)
        assert rules is None
        assert str(own) in warning
        assert key in warning
        assert "\n" not in warning


def test_labels_that_hold_for_nothing_are_refused() -> None:
    found, other = cases(2), cases(2, model="another")
    with pytest.raises(InputError, match=r"judges\.quick\.model"):
        samples.find_models([found[0], other[1]])
    with pytest.raises(InputError, match="the same samples, criteria, rule and redact"):
        samples.find_options([found[0], *cases(2, samples=2)[1:]])
    with pytest.raises(InputError, match="opinions of quick and deep"):
        learned(
            [each.model_copy(update={"judges": {"quick": each.judges["quick"]}}) for each in found]
        )


def test_it_holds_for_the_options() -> None:
    table: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {}, ""),
        ({}, {"jury": "majority"}, ""),  # no tier has a jury
        ({}, {"samples": 3}, "judge.samples was 1 and is 3 now"),
        ({}, {"criteria": "each"}, "judge.criteria was together and is each now"),
        ({"samples": 3}, {"samples": 3}, ""),
        ({"criteria": "each"}, {"criteria": "each"}, ""),
        ({}, {"redact": False}, "judge.redact was true and is false now"),
        ({"redact": False}, {}, "judge.redact was false and is true now"),
    ]
    for how, options, why in table:
        path = keep(learned(cases(**how)))
        rules, warning = find(**options)
        assert ((rules is None), why in warning) == (bool(why), True), (how, options, warning)
        path.unlink()
    older = json.loads(known().format_json())
    del older["asked"]  # from before there were samples: one for a single reply
    found = Calibration.model_validate(older)
    assert misfit(found, PANEL) is None
    assert misfit(found, PANEL, samples=2) == "judge.samples was 1 and is 2 now"


def test_it_holds_for_the_models_of_a_jury_in_any_order_and_for_how_they_agree() -> None:
    def of(*names: str) -> Calibration:
        jury = [{"model": name, "family": name, "scores": GOOD} for name in names]
        judges: dict[str, Any] = {
            "quick": {"jury": jury},
            "deep": {"model": "large", "scores": GOOD},
        }
        return learned([case(number, **judges) for number in range(100)])

    def panel(*quick: str) -> PanelModels:
        return {"quick": tuple(map(scripted_endpoint, quick)), "deep": DEEP}

    found = of("one", "two")
    assert found.models == {"quick": "one + two", "deep": "large"}
    assert misfit(found, panel("one", "two")) is misfit(found, panel("two", "one")) is None
    majority = misfit(found, panel("one", "two"), jury="majority")
    assert majority == "judge.jury was mean and is majority now"
    assert misfit(found, panel("one")) == "quick was one + two and is one now"
    assert of("two", "one").id == found.id


def test_it_holds_for_how_scores_are_read() -> None:
    for quick, how, fits in (
        ({"scores": GOOD}, "whole", PLAIN),
        ({"scores": NEARLY}, "expected", TELLING),
        ({"scores": GOOD, "read": "expected"}, "expected", TELLING),
        ({"scores": NEARLY, "read": "partly"}, "partly", TELLING),
        ({"scores": GOOD, "read": "untold"}, "untold", TELLING),
        ({"scores": NEARLY, "read": "points"}, "points", POINTWISE),
    ):
        found = read_so(quick)
        assert found.read["quick"] == {"small": how}
        for endpoint in (PLAIN, TELLING, POINTWISE):
            why = misfit(found, {"quick": endpoint, "deep": DEEP})
            assert (why is None) == (endpoint is fits), (quick, why)
            assert why is None or why.startswith("what quick said was ")


def test_criteria_one_by_one_matter_where_there_are_two_ways() -> None:
    for name, single_tokens, fits in (
        ("kls", True, True),
        ("kls", False, False),
        ("memory-relevance", False, True),  # it has one criterion
        ("memory-two-criteria", True, True),
        ("memory-two-criteria", False, False),
        (
            "answer-preference",
            True,
            False,
        ),  # of pairs such a model is asked about all criteria together
        ("answer-preference", False, False),
    ):
        loaded, model = loader.find_rubric(name), replace(PLAIN, is_pointwise=single_tokens)
        how, own = {"small": "points" if single_tokens else "whole"}, loaded.rubric.prompt.sha256
        was = {"rubric": build_rubric_ref(loaded), "prompt_sha256": own, "questions_sha256": None}
        tiers = {"models": {"quick": "small", "deep": "small"}, "read": {"quick": how, "deep": how}}
        found = known().model_copy(update=was | tiers)
        # Where single tokens answer, several samples play no part either.
        for times in [1, 3] if single_tokens else [1]:
            now = calibration_fit.fingerprint_panel(
                judge_settings(
                    {"quick": model, "deep": model}, loaded, samples=times, criteria="each"
                )
            )
            assert any(calibration_fit.explain_misfits(found, loaded, now)) != fits, (
                name,
                single_tokens,
            )


def mixed(told: int, untold: int, wrong: int = 0) -> list[labelled.Case]:
    """Return accepted cases: some read by probabilities, others not, and some of the latter wrong."""
    deep = {"model": "large", "scores": GOOD}
    quick = {"model": "small", "scores": NEARLY, "read": "expected"}
    found = [case(number, quick=quick, deep=deep) for number in range(told)]
    quick = {"model": "small", "scores": GOOD, "read": "untold"}
    labels = ["reject"] * wrong + ["accept"] * (untold - wrong)
    return found + [
        case(told + at, label, quick=quick, deep=deep) for at, label in enumerate(labels)
    ]


def test_gates_are_learned_of_opinions_that_were_read_alike() -> None:
    found = learned(mixed(told=120, untold=60, wrong=60))
    (gate,) = found.gates
    assert (gate.labels, gate.errors) == (120, 0)
    assert found.read["quick"] == {"small": "expected"}
    assert found.read_otherwise == {"quick": 60}
    # The others go up: what is measured on all labels says so.
    assert found.with_gates.by_gate == 120
    assert found.with_gates.calls["deep"] == 60


MOVING: PanelModels = {"quick": PLAIN, "deep": DEEP}


def answered_by(model: str) -> Reply:
    return reply(scores(5, 5, 5), model)


def moving(answered: str, *, other: int = 0) -> Calibration:
    """Learn from cases that one model answered, and of `other` cases another one."""
    deep = {"model": "large", "scores": GOOD}
    quick = {"model": "small", "scores": GOOD}
    found = []
    for number in range(120 + other):
        name = answered if number < 120 else "small-0"
        found.append(case(number, quick={**quick, "answered": name}, deep=deep))
    return learned(found)


@pytest.mark.parametrize("answered", ["small", "vendor/small", "small-2026-01-01"])
def test_a_calibration_holds_for_the_model_that_answered(answered: str) -> None:
    answers: dict[str, list[Any]] = {
        "quick": [lambda _: answered_by(answered)],
        "deep": [UNTOLD],
    }
    then = "small" if answered == "vendor/small" else answered
    verdict, asked = judged(answers, MOVING, finality=moving(then).build_finality_rules())
    assert asked == ["quick"]
    assert verdict.degraded is None


@pytest.mark.parametrize(
    ("then", "now"), [("small-1", "small-2"), ("small-1", "small"), ("small", "small-2")]
)
def test_a_model_that_answers_under_the_same_name_needs_a_calibration_of_its_own(
    then: str, now: str
) -> None:
    found = moving(then)
    answers: dict[str, list[Any]] = {"quick": [lambda _: answered_by(now)], "deep": [UNTOLD]}
    verdict, asked = judged(answers, MOVING, finality=found.build_finality_rules())
    assert asked == ["quick", "deep"]
    assert verdict.calibration is None
    assert f"it was made for {then} as quick, and {now} answers as small now" in str(
        verdict.degraded
    )


def test_nothing_is_learned_of_the_answers_of_another_model() -> None:
    found = moving("small-1", other=30)
    assert found.answered["quick"] == {"small": "small-1"}
    assert found.read_otherwise == {"quick": 30}


TOLD = dataclasses.replace(telling_reply(scores(5, 5, 5), {"5": 0.9, "4": 0.1}), model="small")
UNTOLD = scores(5, 5, 5)


def test_an_opinion_that_could_not_be_read_so_goes_up_and_that_is_said() -> None:
    def judge(found: Calibration, quick: Any, **how: Any) -> tuple[Verdict, list[str]]:  # noqa: ANN401 - any option
        answers = {"quick": [quick], "deep": [UNTOLD]}
        return judged(
            answers, {"quick": TELLING, "deep": DEEP}, finality=found.build_finality_rules(), **how
        )

    found = learned(mixed(told=120, untold=0))
    verdict, asked = judge(found, lambda _: TOLD)
    assert (verdict.verdict, asked, verdict.degraded) == ("accept", ["quick"], None)
    verdict, asked = judge(found, UNTOLD)
    assert (verdict.verdict, asked, verdict.calibration) == ("accept", ["quick", "deep"], found.id)
    assert verdict.degraded == (
        f"calibration {found.id} does not cover quick: its scores were taken as it stood in the "
        "reply, without the probabilities that were asked for"
    )
    without = learned(mixed(told=0, untold=120))
    assert judge(without, UNTOLD)[1] == ["quick"]
    assert judge(without, lambda _: TOLD)[1] == ["quick", "deep"]


# --- The words and bars that it is bound to


RUBRICS = ("kls", "memory-relevance", "answer-preference")


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function by which words count that a test has changed: a process hashes them once."""
    return lambda: monkeypatch.setattr(question, "_hashes", {})


@pytest.mark.parametrize("rubric", RUBRICS)
def test_what_models_are_asked_is_known_by_a_hash_that_holds_everywhere(
    rubric: str, words: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loader.find_rubric(rubric)
    before = hash_questions(loaded, "strict")
    # Labels of candidates and texts are drawn by a secret of each installation.
    monkeypatch.setattr(fence, "_load_secret", lambda: b"of another installation")
    words()
    assert hash_questions(loaded, "strict") == before


def reword_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reword the question for a model that writes."""
    for sheet in (writing._ScoreSheet, writing._Listing, writing._Choice):
        usual = sheet.write

        def reworded(asked: Any, usual: Any = usual) -> Any:  # noqa: ANN401 - of any kind
            written = usual(asked)
            return written._replace(rules=[f"{rule}!" for rule in written.rules])

        monkeypatch.setattr(sheet, "write", reworded)


def reword_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for another schema of a reply."""
    usual = writing.form_of

    def other_form(asked: Any) -> Any:  # noqa: ANN401 - a questionnaire, and a form
        return type("Other", (usual(asked),), {"sent": {"type": "array"}})

    monkeypatch.setattr(writing, "form_of", other_form)


def reword_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reword the questions to a decision model."""
    usual = decisions._make_questions

    def reworded(*asked: Any) -> Any:  # noqa: ANN401 - handed on
        return [each._replace(instruction=f"{each.instruction}!") for each in usual(*asked)]

    monkeypatch.setattr(decisions, "_make_questions", reworded)


def reword_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reword the questions to a model of one token."""
    usual = pointwise._phrase_question
    monkeypatch.setattr(pointwise, "_phrase_question", lambda question: f"{usual(question)}!")


REWORDINGS = (reword_written, reword_schema, reword_decided, reword_points)


@pytest.mark.parametrize("rubric", RUBRICS)
@pytest.mark.parametrize("reword", REWORDINGS)
def test_another_word_of_any_asker_is_another_hash(
    reword: Callable[[pytest.MonkeyPatch], None],
    rubric: str,
    words: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = loader.find_rubric(rubric)
    before = hash_questions(loaded, "strict")
    reword(monkeypatch)
    words()
    assert hash_questions(loaded, "strict") != before


def test_a_question_about_a_claim_is_one_of_them(
    words: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loader.find_rubric("groundedness")
    before = hash_questions(loaded, "strict")
    monkeypatch.setattr(claims, "claim_questions", lambda *_: [])
    words()
    assert hash_questions(loaded, "strict") != before


@pytest.mark.parametrize("reword", REWORDINGS)
def test_a_calibration_holds_for_the_words_that_models_were_asked_in(
    reword: Callable[[pytest.MonkeyPatch], None],
    words: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = known()
    assert misfit(found, PANEL) is None
    reword(monkeypatch)
    words()
    why = "judgekit's own prompts, or how it reads replies, have changed"
    assert misfit(found, PANEL) == why


@pytest.mark.parametrize(
    ("hashes", "is_used"),
    [
        ({"questions_sha256": None}, True),
        ({"questions_sha256": None, "wording_sha256": "0" * 64}, False),
    ],
)
def test_a_calibration_that_notes_less_of_the_words_is_not_used(
    hashes: dict[str, str | None], *, is_used: bool
) -> None:
    found = known().model_copy(update=hashes)
    assert (misfit(found, PANEL) is None) == is_used


IDLE = prompt_candidate("idle", "T", category="FACT", text="Deep.")
RATING = TypedQuestion("How long is it?")
BARS: list[tuple[str, Any, str, Any]] = [
    ("kls", pointwise, "IDLE_RATING", RATING),
    *(("kls", pointwise, name, 0.5) for name in ("MIN_LEAD", "MIN_MASS")),
    *(("kls", logprobs, name, 0.5) for name in ("MIN_PROBABILITY_MASS", "MAX_SCORE_DEVIATION")),
    *(("memory-relevance", pointwise, f"MIN_GAIN{of}", 9.0) for of in ("", "_OVER_MEMORY")),
    ("memory-relevance", pointwise, "IDLE_REQUEST", "How deep is the Danube?"),
    ("memory-relevance", pointwise, "IDLE_MEMORY", IDLE),
    ("memory-relevance", select_question, "KEEP_AT", 0.9),
    ("memory-relevance", select_question, "POINTWISE_CHARS", 200),
    ("answer-preference", compare_question, "MIN_LEANING", 0.9),
]


@pytest.mark.parametrize(("rubric", "module", "name", "value"), BARS)
def test_so_do_idle_questions_and_the_numbers_by_which_answers_are_read(
    monkeypatch: pytest.MonkeyPatch,
    words: Callable[[], None],
    rubric: str,
    module: Any,  # noqa: ANN401 - any module
    name: str,
    value: Any,  # noqa: ANN401 - of any bar
) -> None:
    """Opinions change with them: gates that were learned before would stand for others."""
    loaded = loader.find_rubric(rubric)
    before = hash_questions(loaded, "strict")
    monkeypatch.setattr(module, name, value)
    words()
    assert hash_questions(loaded, "strict") != before


def test_every_bar_of_a_model_of_one_token_is_tried_above() -> None:
    bars = {name for name in vars(pointwise) if name.startswith(("MIN_", "MAX_", "IDLE"))}
    assert bars == {name for _, module, name, _ in BARS if module is pointwise}


def endpoint(**changed: Any) -> Endpoint:  # noqa: ANN401 - any key of a profile
    profile = registry.find("llama-server").model_copy(update={"logprobs": False, **changed})
    return base.build_endpoint(profile, "openai/m", {}, base="http://127.0.0.1:9")


CHANGED = f"how its provider's profile asks {endpoint().model} has changed"


def asked_by(quick: Endpoint | list[Endpoint], deep: Endpoint) -> Calibration:
    now = calibration_fit.fingerprint_panel(judge_settings({"quick": quick, "deep": deep}, KLS))
    return known().model_copy(update={"models": now.models, "asking": now.asking, "read": {}})


def test_it_holds_for_how_a_profile_asks() -> None:
    found = asked_by(endpoint(), DEEP)
    assert misfit(found, {"quick": endpoint(title="Another", rank=3), "deep": DEEP}) is None
    for changed in (
        {"arguments": {"": {"reasoning_effort": "high"}}},
        {"thinking": {"": 4000}},
        {"limits": endpoint().profile.limits.model_copy(update={"context_chars": 900})},
        {"output": "text", "outputs": {}},
    ):
        assert misfit(found, {"quick": endpoint(**changed), "deep": DEEP}) == CHANGED
    recorded = found.model_copy(update={"asking": {}})
    assert misfit(recorded, {"quick": endpoint(thinking={"": 4000}), "deep": DEEP}) is None


def test_two_of_one_name_are_told_apart() -> None:
    fast, slow, other = (endpoint(thinking={"": tokens}) for tokens in (0, 4000, 100))
    tiers, jury = asked_by(fast, slow), asked_by([fast, slow], slow)
    for quick, deep, why in ((fast, slow, None), (other, slow, CHANGED), (slow, fast, CHANGED)):
        assert misfit(tiers, {"quick": quick, "deep": deep}) == why
    for two, why in (([slow, fast], None), ([other, slow], CHANGED), ([fast, other], CHANGED)):
        assert misfit(jury, {"quick": two, "deep": slow}) == why


# Limits as any table of the Clopper-Pearson interval has them (one-sided .05, two-sided .05).
KNOWN = [
    (0, 59, 0.05, 0.0495),
    (0, 20, 0.025, 0.1684),
    (1, 10, 0.025, 0.4450),
    (3, 10, 0.025, 0.6525),
]


def test_known_bounds_and_closed_forms() -> None:
    for errors, total, level, bound in KNOWN:
        assert compute_upper_bound(errors, total, level) == pytest.approx(bound, abs=1e-4)
    for total, level in itertools.product((1, 7, 59, 1000, 40_000), (0.05, 0.01, 0.0001)):
        assert compute_upper_bound(0, total, level) == pytest.approx(
            1 - level ** (1 / total), rel=1e-9
        )
        assert lower(total, total, level) == pytest.approx(level ** (1 / total), rel=1e-9)
    assert (compute_upper_bound(0, 0, 0.05), lower(0, 0, 0.05)) == (1, 0)
    with pytest.raises(ValueError, match="got 3"):
        compute_upper_bound(3, 2, 0.05)


@given(st.integers(1, 60), st.data(), st.floats(0.01, 0.99))
def test_the_tail_is_the_sum_of_its_terms(total: int, data: st.DataObject, rate: float) -> None:
    errors = data.draw(st.integers(0, total))
    terms = sum(
        comb(total, seen) * rate**seen * (1 - rate) ** (total - seen) for seen in range(errors + 1)
    )
    assert compute_lower_tail(errors, total, rate) == pytest.approx(min(terms, 1), rel=1e-9)


@given(st.integers(1, 300), st.data(), st.floats(0.001, 0.4))
def test_at_the_bound_the_tail_is_the_level(total: int, data: st.DataObject, level: float) -> None:
    errors = data.draw(st.integers(0, total - 1))
    bound = compute_upper_bound(errors, total, level)
    assert compute_lower_tail(errors, total, bound) == pytest.approx(level, rel=1e-6)
    assert bound > errors / total
    assert compute_upper_bound(errors + 1, total, level) > bound
    assert lower(errors, total, 0.05) <= errors / total <= compute_upper_bound(errors, total, 0.05)


def test_how_many_labels_show_a_rate() -> None:
    for rate, level, count in ((0.05, 0.05, 59), (0.01, 0.05, 299), (0.05, 0.005, 104)):
        assert count_labels_needed(rate, level) == count
        assert (
            compute_upper_bound(0, count, level) <= rate < compute_upper_bound(0, count - 1, level)
        )
    some = count_labels_needed(0.05, 0.05, 0.02)
    assert some is not None
    assert compute_upper_bound(round(0.02 * some), some, 0.05) <= 0.05
    assert some > 59
    # No number of labels can show something false.
    assert (
        count_labels_needed(0.05, 0.05, 0.05) is count_labels_needed(0.05, 0.05, 0.0499999) is None
    )
