"""The task `compare`: two texts, in both orders of every model; its flow on the wire and from Python."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from math import log
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, says
from making import (
    call_usage,
    comparison_input,
    file,
    finality_rule,
    finality_rules,
    judge_settings,
    reply,
)
from scripted import OWN, THREE, TWO, NothingOpen, ended, panel_of, scripted_endpoint

import judgekit
from judgekit.errors import FailureKind, GatewayError
from judgekit.judging import service
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import make_file
from judgekit.judging.verdict import PairOpinion
from judgekit.providers import replay
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareRubric

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from loopback import Answer, Asked
    from scripted import Tiers

    from judgekit.config import ModeName
    from judgekit.judging.documents import ComparisonInput
    from judgekit.judging.jury import JuryRule
    from judgekit.judging.verdict import Comparison
    from judgekit.providers.base import Endpoint, Gateway, Reply, Request

CRITERIA = ["instruction", "correctness", "help"]
LOADED = loader.find_rubric("answer-preference")


def two_texts(
    first: str = "A", second: str = "B", prompt: str = "Name three rivers."
) -> ComparisonInput:
    return comparison_input(prompt, (file("a.md", first), file("b.md", second)))


class Pairing(NothingOpen):
    """Each model prefers A, B or neither (T), always the first (1), or fails (F): a letter a sample.

    A word by criterion says what it prefers where that one is asked about alone. What is no letter is the
    text of its reply.
    """

    def __init__(
        self, said: Mapping[str, str | Mapping[str, str]], subject: ComparisonInput | None = None
    ) -> None:
        self.said, self.subject = said, subject or two_texts()
        self.requests: list[Request] = []
        self.asked: list[str] = []

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        self.asked.append(scripted_endpoint.model)
        word = self.word(scripted_endpoint.model, request)
        if word == "F":
            raise GatewayError(FailureKind.TIMEOUT, "no answer")
        by_text = {sha256: label for label, sha256 in request.labels.items()}
        wins = {"1": shown_labels(request)[0], "T": "tie"}
        wins |= {letter: by_text[self.subject.file(letter).sha256] for letter in "AB"}
        said = {"reasoning": f"{scripted_endpoint.model} says so.", "better": wins.get(word)}
        text = json.dumps(said) if word in wins else word.format(**wins)
        return reply(text, scripted_endpoint.model, call_usage(10, 1, 0.001))

    def word(self, model: str, request: Request) -> str:
        said = self.said[model]
        if not isinstance(said, str):
            return said[request.call_key.part.partition("/")[0]]
        return said[max(request.sample, 1) - 1] if len(said) > 1 and request.sample else said


def shown_labels(request: Request) -> list[str]:
    return re.findall(r"^The text (\w+):$", request.messages[1].content, re.MULTILINE)


def compare(
    panel: Gateway,
    by_tier: Tiers,
    subject: ComparisonInput | None = None,
    *,
    mode: ModeName = "lenient",
    wrote: Sequence[str | None] = (),
    **options: Any,  # noqa: ANN401 - passed on
) -> Comparison:
    settings = judge_settings(panel_of(by_tier), LOADED, mode, **{"timeout": 60, **options})
    judge = PairJudge(panel, settings)
    return asyncio.run(
        judge.judge(dataclasses.replace(subject or two_texts(), authors=tuple(wrote)))
    )


def test_tiers_are_asked_in_both_orders_under_the_same_labels() -> None:
    cases: list[tuple[str, ModeName, tuple[str, str | None, str], float | None, str]] = [
        ("AAA", "strict", ("A", "deep", "unanimous"), 1.0, "AAAA"),  # a win is confirmed
        (
            "1AA",
            "lenient",
            ("A", "deep", "single"),
            1.0,
            "ABAA",
        ),  # a model that prefers the first place finds a tie
        ("ABB", "strict", ("B", "tiebreaker", "majority"), 1.0, "AABBBB"),
        ("ATT", "strict", ("tie", "deep", "single"), 0.0, "AATT"),
        ("BAT", "strict", ("escalate", None, "none"), None, "BBAATT"),
        ("AFA", "strict", ("A", "tiebreaker", "unanimous"), 1.0, "AAFFAA"),
        ("TFF", "lenient", ("undetermined", None, "none"), None, "TTFFFF"),
        ("FFF", "strict", ("undetermined", None, "none"), None, "FFFFFF"),
    ]
    for said, mode, end, lead, words in cases:
        panel = Pairing(dict(zip("qdt", said, strict=True)))
        comparison = compare(panel, THREE, mode=mode)
        assert (ended(comparison), comparison.lead) == (end, lead)
        opinions = [own.opinion for own in comparison.rounds]
        preferred = [isinstance(own, PairOpinion) and own.better for own in opinions]
        assert [better or None for better in preferred] == [
            {"T": "tie", "F": None}.get(word, word) for word in words
        ]
        assert ["".join(own.order) for own in comparison.rounds] == ["AB", "BA"] * (len(words) // 2)
        decided = end[1] is not None
        assert (comparison.decided, comparison.degraded is None) == (decided, "F" not in words)
        assert not decided or end[0] == "tie" or comparison.reasoning.endswith("says so.")
        first, second = map(shown_labels, panel.requests[:2])
        assert first == second[::-1]
        assert not set(first) & {"A", "B", "1", "2"}
        assert len({request.call_key.subject for request in panel.requests[:2]}) == 2
        # The other letters in the models' mouths are the other letters in the verdict, and nothing else.
        swap = str.maketrans("AB", "BA")
        other = compare(
            Pairing(dict(zip("qdt", said.translate(swap), strict=True))), THREE, mode=mode
        )
        assert ended(other) == (end[0].translate(swap) if end[0] in "AB" else end[0], *end[1:])


@pytest.mark.parametrize(
    "deep",
    [
        pytest.param("m", id="it stands in all tiers"),
        pytest.param("other", id="the other model fails"),
    ],
)
def test_one_model_alone_is_single(deep: str) -> None:
    panel = {"quick": "m", "deep": deep, "tiebreaker": "m"}
    comparison = compare(Pairing({"m": "A", "other": "F"}), panel, mode="strict")
    assert comparison.verdict == "A"
    assert comparison.consensus == "single"


@pytest.mark.parametrize(("split", "consensus"), [("A", "unanimous"), ("B", "majority")])
@pytest.mark.parametrize("place", ["quick", "deep"])
def test_two_tiers_that_agree_are_a_majority_if_the_families_of_one_were_split(
    place: str, split: str, consensus: str
) -> None:
    panel: dict[str, Sequence[str]] = {"quick": ["one"], "deep": ["one"]}
    panel[place] = ["x/1", "y/1", "z/1"]
    gateway = Pairing({"one": "A", "x/1": "A", "y/1": "A", "z/1": split})
    comparison = compare(gateway, panel, mode="strict")
    assert comparison.because == "quick and deep agree"
    assert comparison.consensus == consensus


def test_one_order_alone_is_no_opinion() -> None:
    class Half(Pairing):
        def word(self, model: str, request: Request) -> str:
            return "F" if model == "q" and len(self.requests) == 2 else super().word(model, request)

    comparison = compare(Half({"q": "A", "d": "A"}), TWO)
    assert (comparison.verdict, comparison.judge_tier) == ("A", "deep")
    assert comparison.degraded == "quick: timeout (no answer)"


@pytest.mark.parametrize(
    "text",
    ['{{"reasoning": "x", "better": "A"}}', '{{"reasoning": "x"}}', "The first one is better."],
)
def test_a_reply_without_an_offered_label_is_a_failure_and_never_a_vote(text: str) -> None:
    comparison = compare(Pairing({"q": text, "d": "B"}), TWO)
    assert (comparison.verdict, comparison.judge_tier) == ("B", "deep")
    assert {own.failure.kind for own in comparison.rounds if own.failure} == {
        FailureKind.INVALID_REPLY
    }


def test_a_cut_text_goes_up_and_the_prompt_says_that_it_is_cut() -> None:
    panel = Pairing({"q": "B", "d": "B"}, two_texts("x" * 7000))
    comparison = compare(panel, TWO, panel.subject)
    assert (comparison.verdict, comparison.judge_tier, comparison.truncated) == ("B", "deep", False)
    assert comparison.degraded == "cut: A for quick"
    assert "cut after 6000 of its 7000 characters" in panel.requests[0].messages[-1].content
    assert "x" * 7000 in panel.requests[2].messages[-1].content
    unseen = two_texts("x" * 300_000)
    modes: tuple[ModeName, ModeName] = ("strict", "lenient")
    for comparison in (
        compare(Pairing({"q": "A", "d": "A"}, unseen), TWO, unseen, mode=mode) for mode in modes
    ):
        assert (comparison.verdict, comparison.truncated) == ("undetermined", True)
        assert comparison.degraded == (
            "no model saw the whole of both texts, so the result is open; cut: A for quick, A for deep"
        )


def test_reasons_call_the_texts_by_their_letters() -> None:
    said = '{{"reasoning": "{A} names rivers, {B} and x{B} do not.", "better": "{A}"}}'
    panel = Pairing({"q": said, "d": said})
    comparison = compare(panel, TWO, mode="strict")
    labels = {sha256: label for label, sha256 in panel.requests[0].labels.items()}
    told = f"A names rivers, B and x{labels[panel.subject.file('B').sha256]} do not."
    assert comparison.reasoning == told
    assert {own.opinion.reasoning for own in comparison.rounds if own.opinion} == {told}


def test_a_recording_serves_both_orders_and_the_swapped_texts(tmp_path: Path) -> None:
    recording = tmp_path / "replies.jsonl"
    gateway = replay.Recorder(Pairing({"m": "A"}), recording)
    assert compare(gateway, {"quick": "m"}).verdict == "A"
    models: Any = replay.load_recorded_models(recording)
    again = replay.ReplayGateway()
    assert compare(again, models).verdict == "A"
    assert compare(again, models, two_texts("B", "A")).verdict == "B"
    assert compare(again, models, two_texts(prompt="Name four rivers.")).verdict == "undetermined"


class Leaning(Pairing):
    """Gives the probability that the text A is better, wherever it stands; `biased` means the first place."""

    def __init__(self, likely: float, *, biased: bool = False) -> None:
        super().__init__({})
        self.likely, self.biased = likely, biased

    async def complete(self, scripted_endpoint: Endpoint, request: Request) -> Reply:
        self.requests.append(request)
        text = request.messages[-1].content
        first = self.biased or text.index("\nA\n") < text.index("\nB\n")
        likely = self.likely if first else 1 - self.likely
        return reply(
            "1", scripted_endpoint.model, logprobs=({"1": log(likely), "2": log(1 - likely)},)
        )


@pytest.mark.parametrize(
    ("likely", "word"), [(0.51, "tie"), (0.54, "tie"), (0.56, "A"), (0.9, "A"), (0.1, "B")]
)
def test_a_pointwise_model_that_hardly_leans_to_one_finds_a_tie(likely: float, word: str) -> None:
    small = {"quick": scripted_endpoint("small", pointwise=True)}
    assert compare(Leaning(likely), small).verdict == word
    assert compare(Leaning(likely, biased=True), small).verdict == "tie"
    alone = Leaning(likely)
    assert compare(alone, small, samples=3, criteria="each").verdict == word
    assert len(alone.requests) == 6  # about each criterion once in each order


def test_each_family_of_a_jury_has_one_vote() -> None:
    cases: list[tuple[dict[str, str], JuryRule, str, float | None]] = [
        # Two models of one family against one of another: a family each.
        ({"x/1": "A", "x/2": "A", "y/1": "B"}, "mean", "tie", 0.0),
        ({"x/1": "A", "x/2": "A", "y/1": "T"}, "mean", "A", 0.5),
        ({"x/1": "A", "x/2": "B", "y/1": "B"}, "mean", "B", 0.5),
        ({"x/1": "A", "x/2": "T", "y/1": "B"}, "mean", "B", 0.25),
        # Of an unknown family each is one of its own.
        ({"1": "A", "2": "A", "3": "B"}, "mean", "A", 0.3333),
        ({"1": "A", "2": "A", "3": "F"}, "mean", "A", 1.0),
        ({"1": "A", "2": "F", "3": "F"}, "mean", "undetermined", None),
        # The word of more than half of the families, or none.
        ({"x/1": "A", "x/2": "T", "y/1": "B"}, "majority", "tie", 0.0),
        ({"x/1": "A", "y/1": "A", "z/1": "B"}, "majority", "A", 0.3333),
        ({"x/1": "A", "y/1": "T", "z/1": "T"}, "majority", "tie", 0.0),
        ({"x/1": "A", "y/1": "T", "z/1": "T"}, "mean", "A", 0.3333),
        ({"1": "A", "2": "A", "3": "T", "4": "T", "5": "T"}, "mean", "A", 0.4),
    ]
    for said, rule, word, lead in cases:
        comparison = compare(Pairing(said), {"quick": list(said)}, jury=rule)
        assert (comparison.verdict, comparison.lead) == (word, lead), (said, rule)
        assert [own.model for own in comparison.rounds] == [model for model in said for _ in "AB"]


def test_several_replies_in_both_orders_are_averaged() -> None:
    cases: list[tuple[str, str, float | None]] = [
        ("AAB", "A", 0.3333),
        ("ABT", "tie", 0.0),
        ("11A", "A", 0.3333),  # if the order decides, it's a tie
        ("111", "tie", 0.0),
        ("FBB", "B", 1.0),  # two of three have a word
        ("FFB", "undetermined", None),
    ]
    for replies, word, lead in cases:
        panel = Pairing({"m": replies})
        comparison = compare(panel, {"quick": "m"}, samples=3)
        assert (comparison.verdict, comparison.lead, len(comparison.rounds)) == (word, lead, 6), (
            replies
        )
        assert [own.sample for own in comparison.rounds] == [1, 1, 2, 2, 3, 3]
        assert [request.sample for request in panel.requests] == [1, 1, 2, 2, 3, 3]


def test_criteria_can_be_asked_about_one_by_one() -> None:
    cases: list[tuple[str, int, str]] = [
        ("AAA", 1, "A"),
        ("ABB", 1, "A"),  # the most important that sets them apart decides
        ("TBA", 1, "B"),
        ("TBA", 2, "B"),
        ("1BA", 1, "B"),  # if the order decides, nothing is told apart
        ("TTA", 1, "A"),
        ("TTT", 1, "tie"),
        ("AFA", 1, "undetermined"),  # a criterion without an answer is no word
    ]
    for words, samples, word in cases:
        panel = Pairing({"m": dict(zip(CRITERIA, words, strict=True))})
        comparison = compare(panel, {"quick": "m"}, samples=samples, criteria="each")
        assert comparison.verdict == word
        numbers = range(1, samples + 1) if samples > 1 else [None]
        parts = [(number, name) for number in numbers for name in CRITERIA for _ in "AB"]
        assert [(own.sample, own.criterion) for own in comparison.rounds] == parts
        assert isinstance(LOADED.rubric, CompareRubric)
        assert LOADED.rubric.criteria["instruction"] in panel.requests[0].messages[0].content
        assert LOADED.rubric.criteria["help"] not in panel.requests[0].messages[0].content


def test_a_win_that_a_family_gives_its_own_text_needs_another_voice() -> None:
    cases: list[tuple[str, list[str | None], tuple[str, str | None, bool | None]]] = [
        # Lenient ends with the first win, but not with one for the judge's own kind.
        ("AB", ["anthropic", "openai"], ("escalate", None, False)),
        ("AA", ["anthropic", "openai"], ("A", "deep", False)),
        ("BA", ["anthropic", "openai"], ("B", "quick", False)),
        ("AB", [], ("A", "quick", None)),
        # Who did not write judges in place of who did.
        ("AB", ["anthropic", "none"], ("B", "quick", True)),
        ("AB", ["openai", None], ("A", "quick", None)),
    ]
    for words, wrote, end in cases:
        comparison = compare(Pairing(dict(zip(OWN.values(), words, strict=True))), OWN, wrote=wrote)
        assert (comparison.verdict, comparison.judge_tier, comparison.independent) == end, (
            words,
            wrote,
        )


def test_a_calibration_for_other_models_is_not_used_and_who_left_is_named() -> None:
    finality = finality_rules("c", (finality_rule("quick", "accept"),))
    cases: list[tuple[list[str | None], str]] = [
        (["x", "x, y"], "y"),  # x wrote both, and still judges
        (["x", None], "x"),  # of what is not said none left
        (["x", "mistral"], "x"),  # which judges nowhere
    ]
    for wrote, left in cases:
        panel = Pairing({"x/a": "A", "y/b": "A"})
        comparison = compare(panel, {"quick": "x/a", "deep": "y/b"}, wrote=wrote, finality=finality)
        told = f"calibration c not used: {left} wrote this text, so other models judge it"
        assert (comparison.degraded, comparison.calibration) == (told, None)


PROMPT = "Say yes."


def prefers_yes(asked: Asked) -> Answer:
    text = str(asked.text)
    if '"scores"' in text:
        value = 5 if "\nyes\n" in text else 2
        return says(
            json.dumps({"reasoning": "", "scores": dict.fromkeys(_dimensions(text), value)})
        )
    label = re.findall(r"The text (\w+):\s+<[^>]*>\s+yes\s", text)
    return says(json.dumps({"reasoning": "It says yes.", "better": label[0] if label else "tie"}))


def _dimensions(text: str) -> list[str]:
    return re.findall(r'"(\w+)": <whole number>', text)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loopback]:
    monkeypatch.chdir(tmp_path)
    with Loopback(prefers_yes) as loopback:
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        monkeypatch.setenv("JUDGEKIT_API_BASE", loopback.base)
        yield loopback


@pytest.mark.usefixtures("server")
def test_texts_are_compared_from_python() -> None:
    comparison = judgekit.compare("no", "yes", prompt=PROMPT, mode="lenient")
    assert isinstance(comparison, judgekit.Comparison)
    found = (comparison.verdict, comparison.reasoning, comparison.rubric.id, comparison.consensus)
    assert found == ("B", "It says yes.", service.PAIR_RUBRIC, "single")
    three = judgekit.compare("no", "maybe", "yes", prompt=PROMPT, mode="lenient", rubric="kls")
    assert (three.verdict, [subject.score for subject in three.subjects]) == ("C", [2, 2, 5])


@pytest.mark.usefixtures("server")
def test_who_wrote_them_is_said_for_all_or_for_each(tmp_path: Path) -> None:
    def families(given: str | list[str | None] | None) -> list[str | None]:
        comparison = judgekit.compare(
            "no", "yes", prompt=PROMPT, mode="lenient", author_family=given
        )
        return [subject.family for subject in comparison.subjects]

    assert families(None) == [None, None]
    assert families("Claude") == ["anthropic", "anthropic"]
    assert families(["gpt-4o", None]) == ["openai", None]
    (tmp_path / ".judgekit").mkdir()
    (tmp_path / ".judgekit" / "config.yaml").write_text("judge: {author_family: mistral}\n")
    assert families(["gpt-4o", None]) == ["openai", "mistral"]


def three_texts(*authors: str | None) -> ComparisonInput:
    return comparison_input("Why?", tuple(make_file(each, each) for each in "abc"), authors)


def test_which_families_wrote_and_which_of_them_have_a_favourite() -> None:
    cases: list[tuple[list[str], list[str], list[str]]] = [
        ([], [], []),
        (["anthropic"] * 3, ["anthropic"], []),
        (["Claude", "gpt-4o", "none"], ["anthropic", "openai"], ["anthropic", "openai"]),
        # Of the third nothing is said: it may be anybody's.
        (["anthropic", "openai"], ["anthropic", "openai", "unknown"], ["anthropic", "openai"]),
        (["anthropic", "unknown", "none"], ["anthropic", "unknown"], ["anthropic"]),
        (["anthropic, openai", "openai", "openai"], ["anthropic", "openai"], ["anthropic"]),
    ]
    for authors, wrote, families_of_some_texts in cases:
        found = three_texts(*authors)
        assert (list(found.author_families), list(found.families_of_some_texts)) == (
            wrote,
            families_of_some_texts,
        )
