"""What a calibration is bound to: how opinions are read, judgekit's words and bars, how a profile asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from calibrated import (
    DEEP,
    GOOD,
    KLS,
    NEARLY,
    PLAIN,
    POINTWISE,
    TELLING,
    case,
    judged,
    known,
    learned,
    misfit,
    read_so,
)
from making import judge_options, prompt_candidate
from scripted import scores
from telling import telling_reply

from judgekit.evaluation import cases as labelled
from judgekit.evaluation import samples
from judgekit.judging import calibration, compare, fence, logprobs, pointwise, prompt, select
from judgekit.judging.verdict import rubric_ref
from judgekit.providers import base, registry
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from judgekit.judging.calibration import Calibration
    from judgekit.judging.logprobs import ScoreSource
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, PanelModels

# --- How opinions are read


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
def test_it_holds_for_how_scores_are_read(quick: dict[str, Any], how: ScoreSource, fits: Endpoint) -> None:
    found = read_so(quick)
    assert found.read["quick"] == {"small": how}
    for endpoint in (PLAIN, TELLING, POINTWISE):
        why = misfit(found, {"quick": endpoint, "deep": DEEP})
        assert (why is None) == (endpoint is fits), why
        assert why is None or why.startswith("what quick said was ")


def test_the_two_ways_are_told_and_older_ones_hold_where_probabilities_play_no_part() -> None:
    own = read_so({"scores": GOOD})
    assert misfit(own, {"quick": TELLING, "deep": DEEP}) == (
        "what quick said was taken as it stood in the reply"
        " and is an expectation over tokens' probabilities now"
    )
    older = own.model_copy(update={"read": {}})
    assert misfit(older, {"quick": PLAIN, "deep": DEEP}) is None
    assert misfit(older, {"quick": POINTWISE, "deep": DEEP}) is None
    unknown = str(misfit(older, {"quick": TELLING, "deep": DEEP}))
    assert unknown.startswith("it does not say how the scores of quick were read")
    # Of samples fractions are no sign of probabilities.
    sampled = read_so({"scores": NEARLY}, samples=3)
    assert sampled.read["quick"] == {"small": "whole"}
    assert misfit(sampled, {"quick": PLAIN, "deep": DEEP}, judge_options(samples=3)) is None


@pytest.mark.parametrize(
    ("name", "single_tokens", "fits"),
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
def test_criteria_one_by_one_matter_where_there_are_two_ways(
    name: str,
    single_tokens: bool,  # noqa: FBT001 - a table
    fits: bool,  # noqa: FBT001 - the same
) -> None:
    loaded, model = loader.find_rubric(name), replace(PLAIN, pointwise=single_tokens)
    how = {"small": "points" if single_tokens else "whole"}
    own = {"rubric": rubric_ref(loaded), "prompt_sha256": loaded.rubric.prompt.sha256, "wording_sha256": None}
    tiers = {"models": {"quick": "small", "deep": "small"}, "read": {"quick": how, "deep": how}}
    found = known().model_copy(update=own | tiers)
    # Where single tokens answer, several samples play no part either.
    for options in [judge_options(each=True)] + [judge_options(samples=3, each=True)] * single_tokens:
        now = calibration.fingerprint({"quick": model, "deep": model}, loaded.rubric, options)
        why = calibration.misfit(found, loaded, now)
        assert (why is None) == fits, why


def test_probabilities_of_candidates_are_those_of_tokens_unless_they_were_counted() -> None:
    for more, how in (({}, "points"), ({"samples": 3}, "whole")):
        quick = {"model": "small", "probabilities": {"m1": 0.9}, **more}
        assert samples.score_sources([case(1, quick=quick)])[0]["quick"] == {"small": how}


def mixed(told: int, untold: int, wrong: int = 0) -> list[labelled.Case]:
    """Return accepted cases: some read by probabilities, others not, of which some are wrong."""
    deep = {"model": "large", "scores": GOOD}
    quick = {"model": "small", "scores": NEARLY, "read": "expected"}
    found = [case(number, quick=quick, deep=deep) for number in range(told)]
    quick = {"model": "small", "scores": GOOD, "read": "untold"}
    labels = ["reject"] * wrong + ["accept"] * (untold - wrong)
    return found + [case(told + at, label, quick=quick, deep=deep) for at, label in enumerate(labels)]


def test_gates_are_learned_of_opinions_that_were_read_alike() -> None:
    found = learned(mixed(told=120, untold=60, wrong=60))
    (gate,) = found.gates
    assert (gate.labels, gate.errors) == (120, 0)
    assert found.read["quick"] == {"small": "expected"}
    assert found.read_otherwise == {"quick": 60}
    # The others go up: what is measured on all labels says so.
    assert found.with_gates.by_gate == 120
    assert found.with_gates.calls["deep"] == 60
    few = learned(mixed(told=50, untold=40))
    assert few.gates == []
    assert [rule.labels for rule in few.not_promised] == [50]


TOLD = telling_reply(scores(5, 5, 5), {"5": 0.9, "4": 0.1})
UNTOLD = scores(5, 5, 5)


def test_an_opinion_that_could_not_be_read_so_goes_up_and_that_is_said() -> None:
    def judge(found: Calibration, quick: Any, **how: Any) -> tuple[Verdict, list[str]]:  # noqa: ANN401 - any option
        answers = {"quick": [quick], "deep": [UNTOLD]}
        return judged(answers, {"quick": TELLING, "deep": DEEP}, finality=found.rules(), **how)

    found = learned(mixed(told=120, untold=0))
    verdict, asked = judge(found, lambda _: TOLD)
    assert (verdict.verdict, asked, verdict.degraded) == ("accept", ["quick"], None)
    verdict, asked = judge(found, UNTOLD)
    assert (verdict.verdict, asked, verdict.calibration) == ("accept", ["quick", "deep"], found.id)
    assert verdict.degraded == (
        f"calibration {found.id} does not cover quick: its scores were taken as it stood in the "
        "reply, without the probabilities that were asked for"
    )
    both, _ = judge(found, UNTOLD, calibration_warning="calibration not used: x.json")
    assert both.degraded == f"calibration not used: x.json; {verdict.degraded}"
    without = learned(mixed(told=0, untold=120))
    assert judge(without, UNTOLD)[1] == ["quick"]
    assert judge(without, lambda _: TOLD)[1] == ["quick", "deep"]


# --- The words and bars that it is bound to


@pytest.mark.parametrize("name", ["kls", "memory-relevance", "memory-two-criteria", "answer-preference"])
def test_judgekits_own_words_are_known_by_a_hash(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rubric = loader.find_rubric(name).rubric
    before = calibration.wording(rubric, "strict")
    # Labels of candidates are drawn by a secret of each installation.
    monkeypatch.setattr(fence, "_secret", lambda: b"of another installation")
    assert calibration.wording(rubric, "strict") == before
    with monkeypatch.context() as patch:
        patch.setattr(prompt, "ANSWER", "Answer with one JSON object:")
        assert calibration.wording(rubric, "strict") != before
    # The words for models of single tokens count, too.
    if isinstance(rubric, CompareRubric):
        monkeypatch.setattr(compare, "FIRST", "one")
    else:
        for each in ("rating_question", "candidate_context"):
            monkeypatch.setattr(prompt, each, lambda *_: "Which?")
    assert calibration.wording(rubric, "strict") != before


IDLE = prompt_candidate("idle", "T", category="FACT", text="Deep.")
BARS: list[tuple[str, Any, str, Any]] = [
    ("kls", prompt, "idle_question", lambda _: "How long is it?"),
    ("kls", pointwise, "LEAST_LEAD", 0.5),
    ("kls", pointwise, "LEAST_MASS", 0.5),
    ("kls", logprobs, "LEAST_MASS", 0.5),
    ("kls", logprobs, "SURE", 0.5),
    ("memory-relevance", pointwise, "IDLE", "How deep is the Danube?"),
    ("memory-relevance", pointwise, "IDLE_MEMORY", IDLE),
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
        before = calibration.wording(loaded, "strict")
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert calibration.wording(loaded, "strict") != before, name
    # A new one belongs into `wording`, and here.
    bars = {name for name in vars(pointwise) if name.startswith(("LEAST_", "MOST_", "IDLE"))}
    assert bars == {name for _, module, name, _ in BARS if module is pointwise}


def test_other_words_make_it_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    panel: PanelModels = {"quick": PLAIN, "deep": DEEP}
    found = read_so({"scores": GOOD})
    assert misfit(found, panel) is None
    monkeypatch.setattr(prompt, "ANSWER", "Answer with one JSON object:")
    assert misfit(found, panel) == "judgekit's own prompts, or how it reads replies, have changed"
    assert misfit(found.model_copy(update={"wording_sha256": None}), panel) is None


# --- How a profile asks


def endpoint(**changed: Any) -> Endpoint:  # noqa: ANN401 - any key of a profile
    profile = registry.find("llama-server").model_copy(update={"logprobs": False, **changed})
    return base.endpoint(profile, "openai/m", {}, base="http://127.0.0.1:9")


CHANGED = f"how its provider's profile asks {endpoint().model} has changed"


def asked_by(quick: Endpoint | list[Endpoint], deep: Endpoint) -> Calibration:
    """Return a calibration that was learned of the answers of these models, asked as they are here."""
    now = calibration.fingerprint({"quick": quick, "deep": deep}, KLS.rubric)
    own: dict[str, Any] = {"models": now.models, "asking": now.asking, "read": {}}
    return known().model_copy(update=own)


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
    """A model may sit in two tiers, or twice in one, under profiles that ask it in different ways."""
    fast, slow, other = (endpoint(thinking={"": tokens}) for tokens in (0, 4000, 100))
    tiers, jury = asked_by(fast, slow), asked_by([fast, slow], slow)
    for quick, deep, why in ((fast, slow, None), (other, slow, CHANGED), (slow, fast, CHANGED)):
        assert misfit(tiers, {"quick": quick, "deep": deep}) == why
    for two, why in (([slow, fast], None), ([other, slow], CHANGED), ([fast, other], CHANGED)):
        assert misfit(jury, {"quick": two, "deep": slow}) == why
    # Of two of one name each may be read in its way.
    both, plain, telling = (
        calibration.fingerprint({"quick": each}, KLS.rubric).able["quick"]["small"]
        for each in ([PLAIN, TELLING], PLAIN, TELLING)
    )
    assert both == plain | telling > plain


def test_a_programs_arguments_count_and_a_recordings_do_not() -> None:
    profile = registry.find("claude-code")
    one = replace(PLAIN, profile=profile)
    other = replace(PLAIN, profile=profile.model_copy(update={"argv": ["claude", "--effort", "high"]}))
    assert calibration.profile_sha256(one) != calibration.profile_sha256(other)
    assert calibration.profile_sha256(replace(PLAIN, profile=registry.find("replay"))) is None
