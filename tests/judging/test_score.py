"""The task `score`, from opinions to a verdict: tiers, juries, samples, small models, a recording."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from making import PanelModels, call_usage, document, document_judge, file, reply
from scripted import ByModel, ScriptedGateway, of_family, scores, scripted_endpoint, three_models

from judgekit.cli.formats.table import render_verdict
from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import documents, findings, service
from judgekit.judging.fence import replace_nonces
from judgekit.judging.verdict import Finding
from judgekit.providers import running
from judgekit.providers.replay import Recorder
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scripted import Answer

    from judgekit.config import ModeName, TierName
    from judgekit.errors import CostSource
    from judgekit.judging.documents import Document
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import Endpoint, Reply, Request

GOOD, BAD = scores(4, 4, 5), scores(1, 2, 3)
TIMEOUT = GatewayError(FailureKind.TIMEOUT, "no answer in 45 s")
INSTRUCTIONS = loader.find_rubric("kls").rubric.prompt.instructions
Answers = dict[str, "Answer"]


def text_document(
    text: str = "Some text.", total: int | None = None, sha256: str = "ab" * 32
) -> Document:
    return document(
        (file("docs/a.md", text, sha256=sha256, total=total or len(text)),), "docs/a.md@abab"
    )


def judge(
    gateway: ScriptedGateway | ByModel,
    *,
    mode: ModeName = "strict",
    panel: PanelModels | None = None,
    subject: Document | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> Verdict:
    options.setdefault("timeout", 60)
    own = document_judge(gateway, three_models() if panel is None else panel, mode=mode, **options)
    return asyncio.run(own.judge(subject or text_document()))


def run(mode: ModeName = "strict", **answers: list[Answer]) -> tuple[Verdict, ScriptedGateway]:
    gateway = ScriptedGateway(answers)
    return judge(gateway, mode=mode), gateway


def ended(verdict: Verdict) -> tuple[str, str, str | None]:
    return verdict.verdict, verdict.consensus, verdict.judge_tier


def failures(verdict: Verdict) -> list[str | None]:
    return [own.failure.kind if own.failure else None for own in verdict.rounds]


def test_a_confirmed_acceptance() -> None:
    verdict, gateway = run(quick=[GOOD], deep=[scores(4, 4, 4, reasoning="Sound.")])
    assert ended(verdict) == ("accept", "unanimous", "deep")
    assert verdict.scores == {"semantic": 4, "pragmatic": 4, "syntactic": 4}
    assert (verdict.average, verdict.reasoning, verdict.model) == (4.0, "Sound.", "deep-model")
    assert (verdict.cost_usd, verdict.degraded) == (0.002, None)
    assert [own.round for own in verdict.rounds] == [1, 2]
    # Each call gets no more seconds than its tier.
    assert [own.timeout for own in gateway.requests] == [45, pytest.approx(60, abs=1)]


def answered(cost: float | None, source: CostSource | None) -> Callable[[Request], Reply]:
    return lambda _: reply(GOOD, "a-model", call_usage(100, 10, cost, source))


def test_a_verdict_says_where_its_cost_is_from_and_whether_that_is_all() -> None:
    cases: list[tuple[list[Answer], list[Answer], tuple[float | None, str | None, bool]]] = [
        ([answered(0.1, "litellm")], [answered(0.2, "profile")], (0.3, "mixed", True)),
        ([answered(0.1, "provider")], [answered(None, None)], (0.1, "provider", False)),
        ([answered(0.1, "provider")], [0.001, 0.001], (0.1, "provider", False)),
        (
            ["no object", answered(0.1, "litellm")],
            [answered(0.2, "litellm")],
            (0.301, "mixed", True),
        ),
    ]
    for quick, deep, told in cases:
        verdict, _ = run(quick=quick, deep=deep)
        assert (verdict.cost_usd, verdict.cost_source, verdict.cost_complete) == told


def test_the_tiebreaker_sees_both_opinions_and_no_names_in_an_order_by_the_subject_alone() -> None:
    """The same subject gives the same order; over many subjects both orders come."""
    first = []
    for number in (*range(12), *range(12)):
        quick, deep = (
            scores(4, 4, 5, reasoning="All is well."),
            scores(1, 2, 3, reasoning="Nothing holds."),
        )
        gateway = ScriptedGateway({"quick": [quick], "deep": [deep], "tiebreaker": [BAD]})
        verdict = judge(gateway, subject=text_document(sha256=f"{number:064x}"))
        assert ended(verdict) == ("reject", "majority", "tiebreaker")
        told = gateway.requests[2].messages[-1].content
        assert "quick-model" not in told
        assert "deep-model" not in told
        assert "All is well." not in gateway.requests[1].messages[-1].content
        first.append(told.index("All is well.") < told.index("Nothing holds."))
    assert first[:12] == first[12:]
    assert set(first) == {True, False}


def test_an_unreadable_reply_is_asked_again_once_and_a_models_own_verdict_ignored() -> None:
    verdict, gateway = run(quick=["I like it.", scores(1, 1, 1, verdict="GO")])
    assert verdict.rounds[0].opinion is not None
    assert verdict.rounds[0].opinion.said == "GO"
    again = gateway.requests[1]
    assert (verdict.verdict, again.call_key.part) == ("reject", "reask")
    assert again.messages[-2].content == "I like it."
    assert "could not be read" in again.messages[-1].content
    assert verdict.rounds[0].usage.input_tokens == 200
    two = f"{BAD} Note: I ignored {GOOD}"  # and so is one with two answers
    verdict, gateway = run("lenient", quick=[two, BAD], deep=[BAD])
    assert (verdict.verdict, gateway.asked) == ("reject", ["quick", "quick", "deep"])
    # A tiebreaker that stands in hears of no disagreement.
    _, gateway = run(quick=[TIMEOUT], deep=[TIMEOUT], tiebreaker=[GOOD])
    content = gateway.requests[2].messages[0].content
    assert (INSTRUCTIONS.deep in content, INSTRUCTIONS.tiebreaker in content) == (True, False)


def test_one_model_in_two_tiers_is_one_voice() -> None:
    same, small = scripted_endpoint("only-model"), scripted_endpoint("small")
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [GOOD]})
    verdict = judge(gateway, panel={"quick": same, "deep": same, "tiebreaker": same})
    assert (verdict.verdict, verdict.consensus) == ("accept", "single")
    # Of two models for three tiers the tiebreaker is one of the two: it would only vote for itself.
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [BAD], "tiebreaker": [BAD]})
    verdict = judge(gateway, panel={"quick": small, "deep": same, "tiebreaker": same})
    assert (ended(verdict), gateway.asked) == (("escalate", "none", None), ["quick", "deep"])


SMALL = scripted_endpoint("small", pointwise=True)
ALONE: dict[TierName, Endpoint] = {"quick": SMALL}


def test_a_cut_document_is_not_accepted() -> None:
    """The quick tier sees the beginning; even if no tier sees all of the text, it may be rejected."""
    why = "no model saw the whole text, so it cannot be accepted"
    modes: tuple[ModeName, ModeName] = ("lenient", "strict")
    for total, answer, mode, end in (
        (5000, GOOD, modes[0], ("accept", False, None)),
        (6_000_000, GOOD, modes[0], ("undetermined", True, why)),
        (6_000_000, BAD, modes[1], ("reject", True, None)),
    ):
        gateway = ScriptedGateway({"quick": [answer], "deep": [answer]})
        found = judge(gateway, mode=mode, subject=text_document("x" * 5000, total))
        assert (found.verdict, found.truncated, found.degraded) == end
        assert gateway.asked == (["quick"] if answer == BAD else ["quick", "deep"])
        shown = [request.messages[-1].content for request in gateway.requests]
        if total == 5000:
            assert "cut after 4000 of its 5000 characters" in shown[0]
            assert "x" * 5000 in shown[1]


def test_of_a_cut_document_a_failure_is_said_alone() -> None:
    """Had the tier that failed answered, it might have seen the whole text."""
    down = GatewayError(FailureKind.TIMEOUT, "no answer")
    gateway = ScriptedGateway({"quick": [GOOD], "deep": [down], "tiebreaker": [down]})
    subject = text_document("x" * 5000, total=6_000_000)
    verdict = judge(gateway, mode="lenient", subject=subject)
    assert verdict.verdict == "undetermined"
    assert verdict.degraded == "deep, tiebreaker: timeout (no answer)"


def rated(score: str) -> Reply:
    return reply(score, "small", call_usage(50, 1), logprobs=({score: -0.01},))


def sure(request: Request) -> Reply:
    """Return a good score, and the lowest for a subject that the text does not have."""
    return rated("1" if "Danube" in request.messages[-1].content else "4")


def contexts(gateway: ScriptedGateway) -> set[str]:
    return {request.messages[-1].content.rpartition("\n\n")[0] for request in gateway.requests}


@pytest.mark.parametrize(
    ("last", "outcome"),
    # A model that rates everything high isn't believed.
    [(lambda _: rated("1"), "accept"), (lambda _: rated("4"), "improve"), (TIMEOUT, None)],
)
def test_what_a_pointwise_model_would_accept_is_weighed_against_an_idle_subject(
    last: Answer, outcome: str | None
) -> None:
    gateway = ScriptedGateway({"quick": [sure, sure, sure, last]})
    verdict = judge(gateway, mode="lenient", panel=ALONE)
    (own,) = verdict.rounds
    assert (own.opinion and own.opinion.outcome) == outcome
    assert failures(verdict) == ([None] if outcome else ["timeout"])
    assert verdict.verdict == (outcome or "undetermined")
    assert own.usage.input_tokens == (200 if outcome else 150)
    assert (gateway.requests[-1].call_key.part, len(contexts(gateway))) == ("idle", 1)
    poor = ScriptedGateway({"quick": [lambda _: rated("2")] * 3})  # nothing to weigh
    judge(poor, mode="lenient", panel=ALONE)
    assert len(poor.requests) == 3


def test_a_pointwise_model_is_not_asked_the_same_twice_but_about_what_it_did_not_see() -> None:
    gateway = ScriptedGateway({"quick": [sure] * 4})
    verdict = judge(gateway, panel=dict.fromkeys(three_models(), SMALL))
    assert (verdict.verdict, verdict.consensus, len(gateway.requests)) == ("accept", "single", 4)
    rounds = [(own.tier, own.usage.input_tokens) for own in verdict.rounds]
    assert rounds == [("quick", 200), ("deep", 0)]
    gateway = ScriptedGateway({"quick": [sure] * 4, "deep": [sure] * 4})
    judge(gateway, panel={"quick": SMALL, "deep": SMALL}, subject=text_document("x" * 4001))
    assert gateway.asked == ["quick"] * 4 + ["deep"] * 4


def sat(answers: Answers, *tiers: str, **options: Any) -> tuple[Verdict, ByModel]:  # noqa: ANN401 - passed on
    """Judge with a jury in each tier, by the names of its models; "" leaves a tier out."""
    gateway = ByModel(answers)
    named: Mapping[TierName, str] = dict(zip(three_models(), tiers, strict=False))
    panel = {tier: tuple(map(of_family, models)) for tier, models in named.items() if models}
    return judge(gateway, panel=panel, **options), gateway


SPLIT = scores(1, 4, 4)


def test_a_jury() -> None:
    cases: list[tuple[Answers, list[str], str, tuple[str, str, str | None]]] = [
        (dict.fromkeys("abcd", GOOD), ["abc", "d"], "abcd", ("accept", "unanimous", "deep")),
        # A jury that agrees is unanimous by itself.
        ({"a": SPLIT, "b": scores(1, 2, 2)}, ["ab", "d"], "ab", ("reject", "unanimous", "quick")),
        # Strict lets a quick rejection stand; one that divides the jury does not.
        (
            {"a": SPLIT, "b": SPLIT, "c": GOOD, "d": GOOD},
            ["abc", "d"],
            "abcd",
            ("accept", "single", "deep"),
        ),
        # One failure doesn't spoil the others; if most of a tier fail, the tier has failed.
        ({"a": GOOD, "b": TIMEOUT, "c": GOOD}, ["", "abc"], "abc", ("accept", "unanimous", "deep")),
        (
            {"a": GOOD, "b": TIMEOUT, "c": TIMEOUT},
            ["", "abc"],
            "abc",
            ("undetermined", "none", None),
        ),
        (
            {"a": GOOD, "b": TIMEOUT, "c": "No."},
            ["", "abc"],
            "abcc",
            ("undetermined", "none", None),
        ),
    ]
    for answers, tiers, asked, end in cases:
        verdict, gateway = sat(answers, *tiers)
        assert ended(verdict) == end
        assert sorted(gateway.asked) == sorted(asked)
        assert gateway.most == max(map(len, tiers))  # all models of a tier at once
        rounds = [(own.round, own.model) for own in verdict.rounds]
        assert rounds == [(number, model) for number, model in enumerate(dict.fromkeys(asked), 1)]
        failed = [own.model for own in verdict.rounds if own.failure]
        assert failed == [
            model for model, answer in answers.items() if answer is TIMEOUT or answer == "No."
        ]
        deciding = [own.model for own in verdict.rounds if own.tier == end[2] and own.opinion]
        assert verdict.model == (", ".join(deciding) or None)
        assert (verdict.scores is None) == (end[2] is None)
        told = "deep: timeout (no answer in 45 s)"
        assert (verdict.degraded or told).startswith(told)


def test_the_tiebreaker_is_shown_the_same_in_whatever_order_a_jury_is_named() -> None:
    said = {"a": (4, 4, 5), "b": (5, 5, 5), "c": (4, 5, 5), "d": (1, 1, 1)}
    answers: Answers = {
        name: scores(*each, reasoning=f"FROM {name}") for name, each in said.items()
    }
    told = []
    for quick in ("abc", "cba", "bac"):
        _, gateway = sat({**answers, "e": BAD}, quick, "d", "e")
        (asked,) = [request for model, request in gateway.requests if model == "e"]
        told.append(replace_nonces(asked.messages[-1].content))
    assert all(f"FROM {name}" in told[0] for name in said)
    assert told[0] == told[1] == told[2]


def test_a_margin_sends_close_scores_up() -> None:
    answers: Answers = {
        "a": scores(1, 3, 3),
        "b": GOOD,
        "c": GOOD,
    }  # one point below the bar for rejecting
    for margin, asked in ((0.0, "a"), (1.0, "a"), (1.5, "abc")):
        verdict, gateway = sat(answers, *"abc", margin=margin)
        assert (verdict.verdict, "".join(gateway.asked)) == (
            "accept" if asked == "abc" else "reject",
            asked,
        )


# --- several replies, and a call for each dimension


def test_most_samples_must_be_readable() -> None:
    def answer(request: Request) -> str:
        return GOOD if request.sample <= readable else "I would rather not."

    for readable, verdict in ((2, "accept"), (1, "undetermined")):
        judged, gateway = sat({"a": answer}, "", "a", samples=3)
        opinion = judged.rounds[0].opinion
        assert (judged.verdict, opinion and opinion.samples) == (verdict, opinion and readable)
        parts = sorted(request.call_key.part for _, request in gateway.requests)
        again = [part for part in parts if part.endswith("reask")]
        assert again == [f"sample{at}/reask" for at in range(readable + 1, 4)]


def alone_on(request: Request) -> str:
    (name,) = request.schema["properties"]["scores"]["properties"]  # type: ignore[index]  # there is one
    score = {"semantic": 4, "pragmatic": 5, "syntactic": 3}[name]
    found = {
        "dimension": "",
        "location": "",
        "issue": f"{name} issue",
        "suggestion": "",
        "quote": "",
    }
    return json.dumps({"reasoning": f"About {name}.", "scores": {name: score}, "findings": [found]})


def test_each_dimension_may_have_a_call_of_its_own() -> None:
    names = ["semantic", "pragmatic", "syntactic"]
    verdict, gateway = sat({"a": alone_on}, "", "a", criteria="each")
    assert [request.call_key.part for _, request in gateway.requests] == names
    assert (gateway.most, len(verdict.rounds), verdict.verdict) == (3, 1, "accept")
    assert verdict.scores == {"semantic": 4, "pragmatic": 5, "syntactic": 3}
    assert verdict.reasoning == "\n".join(f"{name}: About {name}." for name in names)
    findings = [(finding.dimension, finding.issue) for finding in verdict.findings]
    assert findings == [(name, f"{name} issue") for name in names]

    def failing(request: Request) -> str:
        return "No." if "pragmatic" in request.call_key.part else alone_on(request)

    # A dimension that fails fails the round.
    verdict, gateway = sat({"a": failing}, "", "a", criteria="each")
    assert (verdict.verdict, verdict.scores, failures(verdict)) == (
        "undetermined",
        None,
        ["invalid_reply"],
    )


def kls() -> ScoreRubric:
    rubric = loader.find_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    return rubric


def with_terms(**wanted: list[str]) -> ScoreRubric:
    rubric = kls()
    (dimension, *_) = rubric.dimensions.values()
    named = {name: dimension.model_copy(update={"terms": each}) for name, each in wanted.items()}
    return rubric.model_copy(update={"dimensions": named})


def test_a_text_is_about_the_dimensions_whose_terms_it_has() -> None:
    for text, dimensions in (
        ("It contradicts itself; a reader cannot act on it.", ("semantic", "pragmatic")),
        ("Syntactic: fine.", ("syntactic",)),
        (
            "The wrongdoer ordered a subdomain.",
            ("syntactic",),
        ),  # a form of order, the others of nothing
        ("", ()),
    ):
        assert tuple(findings.mentions(text, kls())) == dimensions, text
    rubric = with_terms(when=["time zone"], other=["clock"])
    assert findings.mentions("Which time zones?", rubric) == {"when": 1}
    assert findings.mentions("There is time in this zone.", rubric) == {}
    assert findings.mentions("Un résumé?", with_terms(short=["resume"])) == {
        "short": 1
    }  # accents or not


def test_a_finding_gets_the_dimension_it_is_about() -> None:
    for finding, dimension in (
        (Finding(issue="This link leads nowhere."), "syntactic"),
        (
            Finding(issue="Rollback is left as a TODO.", suggestion="Say what a reader must do."),
            "pragmatic",
        ),
        (Finding(dimension="PRAGMATIC", issue="The link is broken."), "pragmatic"),
        (Finding(dimension="accuracy and facts", issue="The name is wrong."), "semantic"),
        (Finding(issue="Wrong order."), ""),  # one term of each of two dimensions
        (Finding(issue="Too cheerful.", quote="the wrong, outdated domain"), ""),
    ):
        assert findings.place_findings([finding], kls()) == (
            finding.model_copy(update={"dimension": dimension}),
        )


def test_opinions_and_findings_are_tagged_and_a_person_sees_which_scores_nobody_explained() -> None:
    def judged(reasoning: str, *findings: dict[str, str]) -> Verdict:
        given = {"semantic": 4, "pragmatic": 2, "syntactic": 3}
        said = json.dumps({"reasoning": reasoning, "scores": given, "findings": list(findings)})
        return run("lenient", quick=[said], deep=[said])[0]

    verdict = judged("Accurate. A section is missing.")
    dimensions = [each.opinion and each.opinion.dimensions for each in verdict.rounds]
    assert dimensions == [["semantic", "pragmatic", "syntactic"]] * len(verdict.rounds)
    unexplained = judged("Nothing is wrong.", {"issue": "The link is broken."})
    assert "    no reason given for pragmatic\n" in render_verdict(unexplained.record())
    for said in (verdict, judged("Fine.")):  # words that tell nothing are no reproach
        assert "nothing is said about" not in render_verdict(said.record())


JURY: PanelModels = {
    "quick": (
        scripted_endpoint("quick-a"),
        scripted_endpoint("quick-b"),
        scripted_endpoint("quick-c"),
    ),
    "deep": (scripted_endpoint("deep-a"),),
    "tiebreaker": (scripted_endpoint("third", pointwise=True),),
}
LIKELY = {"yes": math.log(0.7), "no": math.log(0.3), "4": math.log(0.6), "3": math.log(0.4)}


def token(_: object) -> Reply:
    return reply("4", "third", call_usage(7, 1, 0.01), logprobs=(LIKELY,))


def test_a_recording_gives_the_same_verdict_each_time(
    tmp_path: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the configuration on: who judges, and how, is found anew each time."""
    recording, guide = tmp_path / "recording.jsonl", documents.build_document([file("docs/a.md")])
    (isolated / "judgekit").mkdir()
    (isolated / "judgekit" / "config.yaml").write_text("judge: {samples: 2, jury: majority}\n")
    good, bad = scores(4, 4, 5, reasoning="Sound."), scores(1, 2, 3, reasoning="Wrong.")
    answers: dict[str, list[Answer]] = {
        "quick": [good, "unreadable", good, *[bad] * 20],
        "deep": [bad] * 5,
        "tiebreaker": [token] * 3,
    }
    own = document_judge(
        Recorder(ScriptedGateway(answers), recording), JURY, jury="majority", samples=2
    )
    first = asyncio.run(own.judge(guide))
    monkeypatch.setenv("JUDGEKIT_REPLAY", str(recording))
    for again in (running.run(service.ajudge_documents([guide]))[0] for _ in range(2)):
        assert (again.verdict, again.scores) == (first.verdict, first.scores)
        assert [own.opinion for own in again.rounds] == [own.opinion for own in first.rounds]
        assert [own.model for own in again.rounds][:3] == ["quick-a", "quick-b", "quick-c"]
