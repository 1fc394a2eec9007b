"""What a calibration is bound to: how opinions are read, what models are told, how a profile asks them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from making import document, document_judge, file, judge_options, promise, prompt_candidate
from scripted import ScriptedGateway, scores, scripted_endpoint
from telling import telling_reply

from judgekit.evaluation import cases as labelled
from judgekit.evaluation import samples
from judgekit.evaluation.calibrate import learn
from judgekit.judging import calibration as bound
from judgekit.judging import compare, fence, logprobs, pointwise, prompt, select
from judgekit.judging.verdict import rubric_ref
from judgekit.providers import base, registry
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from judgekit.judging.calibration import Calibration
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, PanelModels
    from judgekit.rubric.loader import LoadedRubric

MADE = datetime(2026, 11, 1, tzinfo=UTC)
GOOD = {"semantic": 5.0, "pragmatic": 5.0, "syntactic": 5.0}
NEARLY = {"semantic": 4.8, "pragmatic": 4.7, "syntactic": 4.9}
PLAIN, DEEP = scripted_endpoint("small"), scripted_endpoint("large")
TELLING, POINTWISE = replace(PLAIN, logprobs=True), replace(PLAIN, pointwise=True)


@pytest.fixture
def kls() -> LoadedRubric:
    return loader.score_rubric("kls")


def case(number: int, quick: dict[str, Any], label: str = "accept", **how: Any) -> labelled.Case:  # noqa: ANN401
    judges = {"quick": {"model": "small", **quick}, "deep": {"model": "large", "scores": GOOD}}
    said = {tier: {**each, **how} for tier, each in judges.items()}
    return labelled.Case.model_validate({"id": str(number), "label": label, "judges": said})


def known(kls: LoadedRubric, quick: dict[str, Any], **how: Any) -> Calibration:  # noqa: ANN401 - any setting
    return learned(kls, [case(number, quick, **how) for number in range(120)])


def learned(kls: LoadedRubric, cases: list[labelled.Case], **options: Any) -> Calibration:  # noqa: ANN401
    models, wanted = samples.models(cases), promise(0.05)
    return learn(cases, models, kls, "strict", wanted, made=MADE, labels_sha256="0" * 64, **options)


def misfit(calibration: Calibration, kls: LoadedRubric, quick: Endpoint, **options: Any) -> str | None:  # noqa: ANN401
    now = bound.fingerprint({"quick": quick, "deep": DEEP}, kls.rubric, judge_options(**options))
    return bound.misfit(calibration, kls, now)


# --- how it is read --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quick", "how", "fits"),
    [
        ({"scores": GOOD}, "whole", PLAIN),
        ({"reply": scores(5, 5, 5)}, "whole", PLAIN),
        ({"scores": NEARLY}, "expected", TELLING),
        ({"scores": NEARLY, "read": "expected"}, "expected", TELLING),
        ({"scores": GOOD, "read": "expected"}, "expected", TELLING),
        ({"scores": NEARLY, "read": "partly"}, "partly", TELLING),
        ({"scores": GOOD, "read": "untold"}, "untold", TELLING),
        ({"scores": NEARLY, "read": "points"}, "points", POINTWISE),
    ],
)
def test_it_holds_for_how_scores_are_read(
    kls: LoadedRubric, quick: dict[str, Any], how: ScoreSource, fits: Endpoint
) -> None:
    calibration = known(kls, quick)
    assert calibration.read["quick"] == {"small": how}
    for endpoint in (PLAIN, TELLING, POINTWISE):
        why = misfit(calibration, kls, endpoint)
        assert (why is None) == (endpoint is fits), why
        assert why is None or why.startswith("what quick said was ")


def test_the_two_ways_are_told_and_older_ones_hold_where_probabilities_play_no_part(
    kls: LoadedRubric,
) -> None:
    own = known(kls, {"scores": GOOD})
    assert misfit(own, kls, TELLING) == (
        "what quick said was taken as it stood in the reply"
        " and is an expectation over tokens' probabilities now"
    )
    older = own.model_copy(update={"read": {}})
    assert misfit(older, kls, PLAIN) is None
    assert misfit(older, kls, POINTWISE) is None
    assert str(misfit(older, kls, TELLING)).startswith("it does not say how the scores of quick were read")


def test_of_samples_fractions_are_no_sign_of_probabilities(kls: LoadedRubric) -> None:
    calibration = known(kls, {"scores": NEARLY}, samples=3)
    assert calibration.read["quick"] == {"small": "whole"}
    assert misfit(calibration, kls, PLAIN, samples=3) is None


def test_where_single_tokens_answer_samples_and_criteria_play_no_part(kls: LoadedRubric) -> None:
    calibration = known(kls, {"scores": NEARLY, "read": "points"})
    deep = replace(DEEP, pointwise=True)
    panel = bound.fingerprint(
        {"quick": POINTWISE, "deep": deep}, kls.rubric, judge_options(samples=3, each=True)
    )
    both = calibration.model_copy(update={"read": {**calibration.read, "deep": {"large": "points"}}})
    assert bound.misfit(both, kls, panel) is None


@pytest.mark.parametrize(
    ("name", "pointwise", "fits"),
    [
        ("kls", True, True),
        ("kls", False, False),
        ("memory-relevance", False, True),  # it has one criterion
        ("memory-two-criteria", True, True),
        ("memory-two-criteria", False, False),
        ("answer-preference", True, False),  # of pairs such a model is asked about all criteria together
        ("answer-preference", False, False),
    ],
)
def test_criteria_one_by_one_matter_where_there_are_two_ways(name: str, pointwise: bool, fits: bool) -> None:  # noqa: FBT001 - a table
    loaded = loader.find_rubric(name)
    rubric = loaded.rubric
    model = replace(PLAIN, pointwise=pointwise)
    now = bound.fingerprint({"quick": model, "deep": model}, rubric, judge_options(each=True))
    read: dict[str, ScoreSource] = {"small": "points" if pointwise else "whole"}
    own = known(loader.score_rubric("kls"), {"scores": GOOD}).model_copy(
        update={
            "rubric": rubric_ref(loaded),
            "prompt_sha256": rubric.prompt.sha256,
            "wording_sha256": None,
            "models": {"quick": "small", "deep": "small"},
            "read": {"quick": read, "deep": read},
        }
    )
    why = bound.misfit(own, loaded, now)
    assert (why is None) == fits, why


def test_probabilities_of_candidates_are_those_of_tokens_unless_they_were_counted() -> None:
    said = {"probabilities": {"m1": 0.9}}
    assert samples.score_sources([case(1, said)])[0]["quick"] == {"small": "points"}
    assert samples.score_sources([case(1, said, samples=3)])[0]["quick"] == {"small": "whole"}


# --- an endpoint that tells probabilities only sometimes -------------------------------------------------


def mixed(told: int, untold: int, wrong: int = 0) -> list[labelled.Case]:
    """Return accepted cases: some read by probabilities, others not, of which some are wrong."""
    found = [case(number, {"scores": NEARLY, "read": "expected"}) for number in range(told)]
    for number in range(untold):
        label = "reject" if number < wrong else "accept"
        found.append(case(told + number, {"scores": GOOD, "read": "untold"}, label))
    return found


def test_gates_are_learned_of_opinions_that_were_read_alike(kls: LoadedRubric) -> None:
    calibration = learned(kls, mixed(told=120, untold=60, wrong=60))
    (gate,) = calibration.gates
    assert (gate.labels, gate.errors) == (120, 0)
    assert calibration.read["quick"] == {"small": "expected"}
    assert calibration.read_otherwise == {"quick": 60}
    # The others go up: what is measured on all labels says so.
    assert calibration.with_gates.by_gate == 120
    assert calibration.with_gates.calls["deep"] == 60


def test_with_too_few_that_were_read_alike_nothing_is_promised(kls: LoadedRubric) -> None:
    calibration = learned(kls, mixed(told=50, untold=40))
    assert calibration.gates == []
    assert [rule.labels for rule in calibration.not_promised] == [50]


def judged(kls: LoadedRubric, calibration: Calibration, quick: Any, **more: Any) -> tuple[Verdict, list[str]]:  # noqa: ANN401
    gateway = ScriptedGateway({"quick": [quick], "deep": [scores(5, 5, 5)]})
    panel: PanelModels = {"quick": TELLING, "deep": DEEP}
    own = document_judge(gateway, panel, loaded=kls, mode="strict", finality=calibration.rules(), **more)
    return asyncio.run(own.judge(document((file("a.md", "# A"),), "a.md"))), gateway.asked


TOLD = telling_reply(scores(5, 5, 5), {"5": 0.9, "4": 0.1})
UNTOLD = scores(5, 5, 5)


def test_an_opinion_that_could_not_be_read_so_goes_up_and_that_is_said(kls: LoadedRubric) -> None:
    calibration = learned(kls, mixed(told=120, untold=0))
    verdict, asked = judged(kls, calibration, lambda _: TOLD)
    assert (verdict.verdict, asked, verdict.degraded) == ("accept", ["quick"], None)
    verdict, asked = judged(kls, calibration, UNTOLD)
    assert (verdict.verdict, asked, verdict.calibration) == ("accept", ["quick", "deep"], calibration.id)
    assert verdict.degraded == (
        f"calibration {calibration.id} does not cover quick: its scores were taken as it stood in the "
        "reply, without the probabilities that were asked for"
    )
    both, _ = judged(kls, calibration, UNTOLD, calibration_warning="calibration not used: x.json")
    assert both.degraded == f"calibration not used: x.json; {verdict.degraded}"


def test_what_was_learned_without_probabilities_lets_no_opinion_with_them_through(kls: LoadedRubric) -> None:
    calibration = learned(kls, mixed(told=0, untold=120))
    assert judged(kls, calibration, UNTOLD)[1] == ["quick"]
    assert judged(kls, calibration, lambda _: TOLD)[1] == ["quick", "deep"]


# --- what models are told --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kls", "memory-relevance", "memory-two-criteria", "answer-preference"])
def test_what_judgekit_says_itself_is_known_by_a_hash(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rubric = loader.find_rubric(name).rubric
    before = bound.wording(rubric, "strict")
    # Labels of candidates are drawn by a secret of each installation.
    monkeypatch.setattr(fence, "_secret", lambda: b"of another installation")
    assert bound.wording(rubric, "strict") == before
    with monkeypatch.context() as patch:
        patch.setattr(prompt, "ANSWER", "Answer with one JSON object:")
        assert bound.wording(rubric, "strict") != before
    # What models of single tokens are told counts, too.
    if isinstance(rubric, CompareRubric):
        monkeypatch.setattr(compare, "FIRST", "one")
    else:
        for each in ("rating_question", "candidate_context"):
            monkeypatch.setattr(prompt, each, lambda *_: "Which?")
    assert bound.wording(rubric, "strict") != before


IDLE_QUESTION = (prompt, "idle_question", lambda _: "How long is it?")
BARS = [
    ("kls", *IDLE_QUESTION),
    ("kls", pointwise, "LEAST_LEAD", 0.5),
    ("kls", pointwise, "LEAST_MASS", 0.5),
    ("kls", logprobs, "LEAST_MASS", 0.5),
    ("kls", logprobs, "SURE", 0.5),
    ("memory-relevance", pointwise, "IDLE", "How deep is the Danube?"),
    (
        "memory-relevance",
        pointwise,
        "IDLE_MEMORY",
        prompt_candidate("idle", "T", category="FACT", text="Deep."),
    ),
    ("memory-relevance", pointwise, "LEAST_GAIN", 9.0),
    ("memory-relevance", pointwise, "LEAST_GAIN_OVER_MEMORY", 9.0),
    ("memory-relevance", select, "KEEP_AT", 0.9),
    ("memory-two-criteria", pointwise, "LEAST_GAIN", 9.0),
    ("answer-preference", compare, "LEAST_LEANING", 0.9),
    ("answer-preference", pointwise, "LEAST_MASS", 0.5),
]


def test_so_do_idle_questions_and_the_numbers_by_which_answers_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Opinions change with them: gates that were learned before would stand for others."""
    for rubric, module, name, value in BARS:
        loaded = loader.find_rubric(rubric).rubric
        before = bound.wording(loaded, "strict")
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert bound.wording(loaded, "strict") != before, name


def test_every_bar_of_a_pointwise_model_is_bound() -> None:
    """A new one belongs into `bound`, and here."""
    bars = {name for name in vars(pointwise) if name.startswith(("LEAST_", "MOST_", "IDLE"))}
    assert bars == {name for _, module, name, _ in BARS if module is pointwise}


def test_other_words_make_it_stale(kls: LoadedRubric, monkeypatch: pytest.MonkeyPatch) -> None:
    calibration = known(kls, {"scores": GOOD})
    assert misfit(calibration, kls, PLAIN) is None
    monkeypatch.setattr(prompt, "ANSWER", "Answer with one JSON object:")
    assert misfit(calibration, kls, PLAIN) == (
        "judgekit's own prompts, or how it reads replies, have changed"
    )
    older = calibration.model_copy(update={"wording_sha256": None})
    assert misfit(older, kls, PLAIN) is None


# --- how a profile asks ----------------------------------------------------------------------------------


def endpoint(**changed: Any) -> Endpoint:  # noqa: ANN401 - any key of a profile
    profile = registry.find("llama-server").model_copy(update={"logprobs": False, **changed})
    return base.endpoint(profile, "openai/m", {}, base="http://127.0.0.1:9")


def test_it_holds_for_how_a_profile_asks(kls: LoadedRubric) -> None:
    cases = [case(number, {"scores": GOOD}) for number in range(120)]
    quick = {"model": endpoint().model}
    named = [
        each.model_copy(
            update={"judges": {**each.judges, "quick": each.judges["quick"].model_copy(update=quick)}}
        )
        for each in cases
    ]
    digest = bound.profile_sha256(endpoint())
    assert digest is not None
    calibration = learned(kls, named, asking={"quick": {endpoint().model: digest}})
    assert misfit(calibration, kls, endpoint(title="Another", rank=3)) is None
    for changed in (
        {"arguments": {"": {"reasoning_effort": "high"}}},
        {"thinking": {"": 4000}},
        {"limits": endpoint().profile.limits.model_copy(update={"context_chars": 900})},
        {"output": "text", "outputs": {}},
    ):
        assert misfit(calibration, kls, endpoint(**changed)) == (
            f"how its provider's profile asks {endpoint().model} has changed"
        )
    recorded = learned(kls, named)
    assert misfit(recorded, kls, endpoint(thinking={"": 4000})) is None


def test_two_of_one_name_are_told_apart(kls: LoadedRubric) -> None:
    """A model may sit in two tiers, or twice in one, under profiles that ask it in different ways."""
    fast, slow, other = (endpoint(thinking={"": tokens}) for tokens in (0, 4000, 100))

    def asking(quick: Endpoint | list[Endpoint], deep: Endpoint) -> bound.Asking:
        return bound.fingerprint({"quick": quick, "deep": deep}, kls.rubric).asking

    def changed(quick: Endpoint | list[Endpoint], deep: Endpoint, was: bound.Asking) -> str | None:
        now = bound.fingerprint({"quick": quick, "deep": deep}, kls.rubric)
        names = {"quick": now.models["quick"], "deep": now.models["deep"]}
        read: dict[str, Any] = {"asking": was, "models": names, "read": {}}
        return bound.misfit(known(kls, {"scores": GOOD}).model_copy(update=read), kls, now)

    told = f"how its provider's profile asks {fast.model} has changed"
    tiers = asking(fast, slow)
    assert changed(fast, slow, tiers) is None
    assert (changed(other, slow, tiers), changed(fast, other, tiers)) == (told, told)
    assert changed(slow, fast, tiers) == told
    jury = asking([fast, slow], slow)
    assert changed([slow, fast], slow, jury) is None
    assert (changed([other, slow], slow, jury), changed([fast, other], slow, jury)) == (told, told)


def test_of_two_of_one_name_each_may_be_read_in_its_way(kls: LoadedRubric) -> None:
    able = bound.fingerprint({"quick": [PLAIN, TELLING]}, kls.rubric).able["quick"]["small"]
    alone = [
        bound.fingerprint({"quick": each}, kls.rubric).able["quick"]["small"] for each in (PLAIN, TELLING)
    ]
    assert able == alone[0] | alone[1] > alone[0]


def test_a_programs_arguments_count_and_a_recordings_do_not() -> None:
    profile = registry.find("claude-code")
    one = replace(PLAIN, profile=profile)
    other = replace(PLAIN, profile=profile.model_copy(update={"argv": ["claude", "--effort", "high"]}))
    assert bound.profile_sha256(one) != bound.profile_sha256(other)
    assert bound.profile_sha256(replace(PLAIN, profile=registry.find("replay"))) is None
