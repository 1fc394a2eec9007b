"""The table of quick x deep x tiebreaker x mode, the gates of a calibration, and juries, written out."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from escalating import CONFIRM, LENIENT, LETTERS, STRICT, Confirm, lines
from making import finality_rule, finality_rules
from scripted import of_family, scripted_endpoint

from judgekit.config import TIERS
from judgekit.judging import jury
from judgekit.judging.compare import convert_end_to_word
from judgekit.judging.escalation import ESCALATION_TABLE, decide
from judgekit.judging.evidence import FAILED, Standing, TierEvidence, measure_margin, read_pair
from judgekit.judging.jury import Mark, Opinion, Vote
from judgekit.judging.rows import find_families
from judgekit.judging.steps import Ask, End, EscalationRules
from judgekit.rubric import loader
from judgekit.rubric.schema import ScoreRubric

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from judgekit.config import ModeName, Outcome, TierName
    from judgekit.judging.escalation import Row
    from judgekit.judging.finality import FinalityRules
    from judgekit.judging.jury import JuryRule, PairWord, TierVote
    from judgekit.judging.steps import Task
    from judgekit.judging.verdict import Consensus, Finding, VerdictWord
    from judgekit.providers.base import Endpoint


# Both modes. d = a jury without a majority among its families, a, i and r = one whose majority says so.
DIVIDED = """
A single     dA rA FdA FaA dFA ddA IdA
I single     dI ddI
R single     dR ddR
A majority   Fda dda
E none       FdF dFF ddd ddF IFd
I majority   ddi
R majority   ddr Idr
"""
DIVIDED_STRICT = """
A unanimous  AdA AaA
A majority   Ada ARa AFa
I single     AdI
E none       AdR Adr AdF Add ARi ARd AFr
R majority   ARr
"""
# Both modes. ' = the margin to a threshold is smaller than is asked for.
CLOSE = """
I unanimous  II' I'I' FI'I
A single     FI'A
R single     FI'R
U none       FI'F FR'F IA'F
A unanimous  FA'A
E none       FA'R IA'R
A majority   IA'A
I majority   IA'I
R majority   IR'R
"""
CLOSE_STRICT = """
R unanimous  R'R R'R' R'FR
I single     R'I
A majority   R'AA AI'A
R majority   R'AR
A unanimous  A'A'
U none       AI'F
I majority   AI'I
E none       AI'R
"""
CLOSE_LENIENT = """
A unanimous  A'A
R majority   A'RR RI'R
A majority   A'RA
I single     A'I
U none       A'FF
R unanimous  RR'
"""


class Final(NamedTuple):
    """How a judging ends: the verdict, the consensus, and the tier that settled it."""

    verdict: VerdictWord
    consensus: Consensus
    tier: TierName | None


UNDETERMINED = Final("undetermined", "none", None)
ESCALATE = Final("escalate", "none", None)


def run(
    outcomes: str,
    confirm: Confirm,
    tiers: tuple[TierName, ...] = TIERS,
    truncated: Collection[TierName] = (),
    models: Mapping[TierName, Collection[str]] = {},
    finality: FinalityRules | None = None,
    margins: Sequence[float] = (),
) -> tuple[str, Final]:
    """Feed outcomes to the rules; return the letters used and the end."""
    rules = EscalationRules(confirm, tiers, models=models, finality=finality, margin=0.5)
    heard: dict[TierName, TierEvidence] = {}
    told: list[str] = re.findall(r"\w'?", outcomes)
    for used in range(len(told) + 1):
        step = decide(heard, rules)
        if isinstance(step, End):
            return "".join(told[:used]), Final(step.verdict, step.consensus, step.tier)
        if used < len(told):
            letter = told[used][0]
            usual = 0.0 if finality else 0.49 if told[used].endswith("'") else 0.5
            agreement: Consensus = "none" if letter == "d" else "majority"
            heard[step.tier] = TierEvidence(
                outcome=LETTERS[letter.upper()] if letter != "d" else "improve",
                margin=margins[used] if used < len(margins) else usual,
                agreement=agreement if letter.islower() else None,
                is_divided=letter.islower(),
                sees_whole_text=step.tier not in truncated,
            )
    raise AssertionError(f"{outcomes}: the judging asks for more than {len(tiers)} tiers")


def test_the_table_is_right_and_complete() -> None:
    cases = [*lines(STRICT, "accept"), *lines(LENIENT, "reject")]
    for confirm, outcomes, verdict, consensus in cases:
        tier = None if consensus == "none" else TIERS[len(outcomes) - 1]
        assert run(outcomes, confirm) == (outcomes, Final(verdict, consensus, tier)), (
            confirm,
            outcomes,
        )
    for confirm in CONFIRM:
        listed = {case[1] for case in cases if case[0] == confirm}
        for each in itertools.product("AIRF", repeat=3):
            assert run("".join(each), confirm)[0] in listed, (confirm, each)


def test_what_divides_a_jury_or_is_close_goes_up() -> None:
    for confirm, outcomes, verdict, consensus in (
        *lines(DIVIDED, "accept", "reject"),
        *lines(DIVIDED_STRICT, "accept"),
        *lines(CLOSE, "accept", "reject"),
        *lines(CLOSE_STRICT, "accept"),
        *lines(CLOSE_LENIENT, "reject"),
    ):
        used, final = run(outcomes, confirm)
        found = (used, final.verdict, final.consensus)
        assert found == (outcomes, verdict, consensus), (confirm, outcomes)


@pytest.mark.parametrize("confirm", CONFIRM)
def test_a_divided_jury_counts_as_one_that_failed_until_no_tier_is_left(confirm: Confirm) -> None:
    """In quick and deep, whatever the majority said; but a divided jury never ends in `undetermined`."""
    for outcomes in itertools.product("AIRFd", "AIRFdair", "AIRF"):
        plain = "".join("F" if outcome in "dair" else outcome for outcome in outcomes)
        used, final = run("".join(outcomes), confirm)
        instead, expected = run(plain, confirm)
        assert len(used) == len(instead)
        if any(letter.islower() for letter in used) and expected.verdict == "undetermined":
            assert final.verdict == "escalate"
        else:
            assert final == expected


ONE: tuple[TierName, ...] = ("quick",)
TWO: tuple[TierName, ...] = ("quick", "deep")
NO_QUICK: tuple[TierName, ...] = ("deep", "tiebreaker")
NO_DEEP: tuple[TierName, ...] = ("quick", "tiebreaker")
JURY: dict[TierName, Collection[str]] = dict.fromkeys(TIERS, ("a", "b", "c"))
SAME: dict[TierName, Collection[str]] = dict.fromkeys(TIERS, ("one",))
SHARED: dict[TierName, Collection[str]] = {"quick": ["a", "b"], "deep": ["c"], "tiebreaker": ["b"]}


def test_fewer_tiers_the_same_voices_and_cut_texts() -> None:
    cases: list[tuple[str, Confirm, dict[str, Any], str, str]] = [
        # A single tier decides alone, its jury by a majority or not at all.
        *[
            (letter, confirm, {"tiers": ONE}, verdict, consensus)
            for confirm in CONFIRM
            for letter, verdict, consensus in (
                ("A", "accept", "single"),
                ("I", "improve", "single"),
                ("R", "reject", "single"),
                ("F", "undetermined", "none"),
                ("a", "accept", "majority"),
                ("i", "improve", "majority"),
                ("r", "reject", "majority"),
                ("d", "escalate", "none"),
            )
        ],
        # Of two tiers the second is the last.
        ("Aa", "accept", {"tiers": TWO}, "accept", "majority"),
        ("Ai", "accept", {"tiers": TWO}, "improve", "majority"),
        ("Ar", "accept", {"tiers": TWO}, "escalate", "none"),
        ("Ad", "accept", {"tiers": TWO}, "escalate", "none"),
        ("dr", "accept", {"tiers": TWO}, "reject", "majority"),
        # Without a quick tier the deep one starts; without a deep one the tiebreaker confirms.
        ("A", "accept", {"tiers": NO_QUICK}, "accept", "single"),
        ("FR", "accept", {"tiers": NO_QUICK}, "reject", "single"),
        ("AA", "accept", {"tiers": NO_DEEP}, "accept", "unanimous"),
        ("AF", "accept", {"tiers": NO_DEEP}, "undetermined", "none"),
        # A jury in every tier is not asked a third time.
        ("da", "accept", {"models": JURY}, "accept", "majority"),
        ("Aa", "accept", {"models": JURY}, "accept", "majority"),
        ("dd", "accept", {"models": JURY}, "escalate", "none"),
        # A close opinion stands if the tiebreaker isn't another model.
        ("FI'", "accept", {"models": SAME}, "improve", "single"),
        # A tiebreaker that is one of those who disagree is not asked.
        ("AR", "accept", {"models": SHARED}, "escalate", "none"),
        ("ARA", "accept", {"models": {**SHARED, "tiebreaker": ["b", "d"]}}, "accept", "majority"),
        # An acceptance of a cut text goes up: lenient would have ended after the first.
        ("AA", "reject", {"tiers": TWO, "truncated": {"quick"}}, "accept", "unanimous"),
        ("AR", "reject", {"tiers": TWO, "truncated": {"quick"}}, "escalate", "none"),
        ("AF", "reject", {"tiers": TWO, "truncated": {"quick"}}, "undetermined", "none"),
        ("R", "accept", {"tiers": TWO, "truncated": {"quick"}}, "reject", "single"),
        ("AA", "accept", {"truncated": {"quick", "deep"}}, "undetermined", "none"),
    ]
    for outcomes, confirm, options, verdict, consensus in cases:
        used, final = run(outcomes, confirm, **options)
        found = (used, final.verdict, final.consensus)
        assert found == (outcomes, verdict, consensus), (outcomes, confirm, options)


# --- the gates of a calibration


def test_the_margin_is_the_distance_to_another_outcome() -> None:
    rubric = loader.find_rubric("kls").rubric
    assert isinstance(rubric, ScoreRubric)
    cases: list[tuple[ModeName, tuple[float, ...], float]] = [
        ("strict", (5, 5, 5), 1.5),  # the mean is 1.5 above 3.5, the least score 2 above 3
        ("strict", (3, 5, 5), 0),
        ("strict", (4, 4, 3.5), 0.3333),
        ("lenient", (5, 5, 4), 1),
        ("lenient", (3, 3, 3), 0),
        ("strict", (1, 5, 5), 1),
        ("strict", (1.9, 5, 5), 0.1),
        ("strict", (2, 5, 5), 0),  # improve, and at the edge of a rejection
        ("strict", (3, 3, 3), 0.5),  # improve: accepted with half a point more in the mean
        ("lenient", (2.5, 4, 4), 0.5),
    ]
    for mode, scores, expected in cases:
        assert (
            measure_margin(rubric, dict(zip(rubric.dimensions, scores, strict=True)), mode)
            == expected
        )
        for others in itertools.product((1, 1.5, 2, 2.9, 3, 3.5, 4, 5), repeat=3):
            assert (
                measure_margin(rubric, dict(zip(rubric.dimensions, others, strict=True)), mode) >= 0
            )


NONE, ACCEPTS = finality_rules("c"), finality_rules("c", (finality_rule("quick", "accept", 1.0),))
BY_DEEP = finality_rules("c", (finality_rule("deep", "reject", 0.0, after="accept"),))
LAST_DEEP, LAST_THIRD = finality_rules("c", last="deep"), finality_rules("c", last="tiebreaker")


def test_what_gates_let_through() -> None:
    cases: list[tuple[FinalityRules, str, float, Collection[TierName], Final]] = [
        (ACCEPTS, "A", 1.0, (), Final("accept", "single", "quick")),
        (
            ACCEPTS,
            "AA",
            0.5,
            (),
            Final("accept", "unanimous", "deep"),
        ),  # with less margin it goes up
        # Outcomes without a gate go up; strict alone would have ended after the first rejection.
        (ACCEPTS, "RR", 2.0, (), Final("reject", "unanimous", "deep")),
        # An acceptance of a cut text is not final for all gates.
        (ACCEPTS, "AA", 2.0, {"quick"}, Final("accept", "unanimous", "deep")),
        (ACCEPTS, "AA", 2.0, {"quick", "deep"}, UNDETERMINED),
        # A gate of the deep tier looks at the earlier opinions.
        (BY_DEEP, "AR", 0.0, (), Final("reject", "single", "deep")),
        (BY_DEEP, "RAA", 0.0, (), Final("accept", "majority", "tiebreaker")),
        (BY_DEEP, "FR", 0.0, (), Final("reject", "single", "deep")),  # as without a calibration
        # The last opinion is final, and none before it is; if it fails, the table holds.
        (LAST_THIRD, "AAR", 0.0, (), Final("reject", "single", "tiebreaker")),
        (LAST_THIRD, "RRR", 0.0, (), Final("reject", "unanimous", "tiebreaker")),
        (LAST_DEEP, "AR", 0.0, (), Final("reject", "single", "deep")),
        (LAST_DEEP, "AFA", 0.0, (), Final("accept", "unanimous", "tiebreaker")),
        (LAST_DEEP, "AFF", 0.0, (), UNDETERMINED),
        (LAST_THIRD, "AAF", 0.0, (), Final("accept", "unanimous", "deep")),
        (LAST_THIRD, "ARF", 0.0, (), ESCALATE),
    ]
    for finality, outcomes, sure, truncated, expected in cases:
        found = run(outcomes, "accept", truncated=truncated, finality=finality, margins=[sure])
        assert found == (outcomes, expected)
    assert not finality_rules("c", last="quick").is_final(
        "quick", {"quick": None}, {}
    )  # a failure never is


def test_without_any_gate_everything_goes_up_and_the_table_holds() -> None:
    for outcomes in map("".join, itertools.product("AIRF", repeat=3)):
        used, final = run(outcomes, "accept", finality=NONE)
        assert len(used) > 1
        if outcomes[:2] in ("AR", "RA"):
            agreed = outcomes[2] in "AR"
            found = (used, final.consensus == "majority", final.verdict == "escalate")
            assert found == (outcomes, agreed, not agreed)
        if outcomes[:2] in ("RI", "AI", "IA", "IR"):
            assert final.verdict == LETTERS[outcomes[1]]
    assert run("A", "accept", ONE, finality=NONE)[1] == Final("accept", "single", "quick")


RULES: tuple[JuryRule, JuryRule] = ("mean", "majority")
NAMES = ("semantic", "pragmatic", "syntactic")
A, I, R = (4, 4, 4), (3, 3, 2), (1, 4, 4)  # noqa: E741 - the letters of the table
RUBRIC = loader.find_rubric("kls").rubric


def decide_by_scores(scores: Mapping[str, float]) -> Outcome:
    return RUBRIC.decide(scores, "strict")  # type: ignore[union-attr]  # it scores


def endpoint(name: str) -> Endpoint:
    """Return a model; the part of its name after `_` tells models of one family apart."""
    return dataclasses.replace(scripted_endpoint(name), family=name.split("_", maxsplit=1)[0])


def said(*values: float, reasoning: str = "", findings: tuple[Finding, ...] = ()) -> Opinion:
    scores = dict(zip(NAMES, map(float, values), strict=True))
    return Opinion(decide_by_scores(scores), scores, reasoning, findings)


def sat(rule: JuryRule, **models: tuple[float, ...]) -> Opinion:
    return jury.combine_opinions(
        [(endpoint(name), said(*values)) for name, values in models.items()], rule, decide_by_scores
    )


def test_the_outcome_of_a_jury_and_whether_it_is_divided() -> None:
    cases: list[
        tuple[dict[str, tuple[float, ...]], tuple[str, bool | None], tuple[str, bool | None]]
    ] = [
        ({"a": (4, 4, 4), "b": (4, 5, 4), "c": (5, 5, 4)}, ("accept", None), ("accept", None)),
        # What every family says stands against its mean: each misses another thing.
        ({"a": (2, 5, 5), "b": (5, 2, 5)}, ("improve", None), ("improve", None)),
        ({"a": (1, 5, 5), "b": (5, 1, 5)}, ("reject", None), ("reject", None)),
        ({"a": A, "b": A, "c": R}, ("accept", True), ("accept", True)),
        ({"a": A, "b": A, "c": (1, 3, 2)}, ("improve", False), ("accept", True)),
        ({"a": (5, 5, 5), "b": (4, 4, 5), "c": (2, 5, 5)}, ("accept", True), ("accept", True)),
        ({"a": R, "b": R, "c": A}, ("improve", False), ("reject", True)),
        ({"a": (1, 1, 1), "b": (1, 1, 1), "c": A}, ("improve", False), ("reject", True)),
        ({"a": (1, 1, 1), "b": (1, 1, 1), "c": I}, ("reject", True), ("reject", True)),
        ({"a": A, "b": R}, ("improve", False), ("improve", False)),
        ({"a": (5, 5, 5), "b": (1, 4, 4)}, ("accept", False), ("improve", False)),
        ({"a": A, "b": I, "c": R}, ("improve", False), ("improve", False)),
        # A family has one vote, however many of it sit there; by itself it is not divided.
        (
            {"a_1": A, "a_2": (5, 5, 5), "a_3": A, "b": (1, 1, 1)},
            ("improve", False),
            ("improve", False),
        ),
        ({"a_1": A, "a_2": R}, ("improve", None), ("improve", None)),
    ]
    for models, mean, majority in cases:
        for rule, expected in zip(RULES, (mean, majority), strict=True):
            opinion = sat(rule, **models)
            assert (rule, opinion.outcome, opinion.divided) == (rule, *expected), models


def test_the_scores_of_a_jury() -> None:
    for rule in RULES:
        agreed = sat(rule, a=(4, 4, 4), b=(4, 5, 4), c=(5, 5, 4)).scores
        assert agreed == {"semantic": 4.33, "pragmatic": 4.67, "syntactic": 4.0}
    # A majority shows the scores of those that make it; a family's models count as one.
    assert sat("majority", a=(4, 4, 4), b=(5, 5, 5), c=R).scores == dict.fromkeys(NAMES, 4.5)
    assert sat("mean", a=(4, 4, 4), b=(5, 5, 5), c=(3, 3, 3)).scores == dict.fromkeys(NAMES, 4.0)
    assert sat("mean", a_1=A, a_2=(5, 5, 5), b=(1, 1, 1)).scores["semantic"] == round(
        (4.5 + 1) / 2, 2
    )


def test_candidates_are_marked_by_family() -> None:
    """A chance is a probability, or whether the model keeps the candidate."""
    cases: list[tuple[JuryRule, dict[str, float], Mark]] = [
        ("mean", {"a": True, "b": True, "c": False}, Mark("accept", None, divided=True)),
        ("mean", {"a": True, "b": False}, Mark("improve", None, divided=False)),
        ("mean", {"a": False, "b": False}, Mark("reject")),
        ("mean", {"a": 0.9, "b": 0.2}, Mark("accept", 0.55, divided=False)),
        ("mean", {"a": 0.9, "b": 0.45, "c": 0.4}, Mark("accept", 0.5833, divided=False)),
        ("majority", {"a": 0.9, "b": 0.45, "c": 0.4}, Mark("reject", 0.5833, divided=True)),
        ("mean", {"a": 0.9, "b": True}, Mark("accept")),
        ("mean", {"a_1": True, "a_2": True, "b": False}, Mark("improve", None, divided=False)),
        ("majority", {"a_1": True, "a_2": True, "a_3": False, "b": True}, Mark("accept")),
    ]
    for rule, chances, mark in cases:
        voices: list[tuple[Endpoint, dict[str, Mark | None]]] = []
        for name, own in chances.items():
            likely = None if isinstance(own, bool) else own
            voices.append(
                (endpoint(name), {"m": Mark("accept" if own >= 0.5 else "reject", likely)})
            )
        assert jury.combine_marks(voices, len(voices), rule) == {"m": mark}, chances


def test_a_candidate_that_half_of_the_jury_left_out_has_no_mark() -> None:
    kept: dict[str, Mark | None] = {"m": Mark("accept"), "n": Mark("accept")}
    voices: list[tuple[Endpoint, dict[str, Mark | None]]] = [
        (endpoint("a"), kept),
        (endpoint("b"), {"m": Mark("accept"), "n": None}),
    ]
    assert jury.combine_marks(voices, 3, "mean") == {"m": Mark("accept"), "n": None}
    assert jury.combine_marks(voices, 4, "mean") == {"m": None, "n": None}


WORDS: dict[str, PairWord] = {"A": "A", "B": "B", "T": "tie"}


def tier_vote(letters: str, rule: JuryRule = "mean") -> TierVote:
    """Return the votes that letters stand for: A, B, T for a tie; none for F, a tier that failed."""
    votes = [None if letter == "F" else Vote(WORDS[letter], f"why {letter}") for letter in letters]
    return jury.combine_votes([(of_family(f"{at}"), vote) for at, vote in enumerate(votes)], rule)


class Compared(NamedTuple):
    """How a pair ends, seen by letters."""

    word: str
    end: End
    votes: dict[TierName, TierVote]


def walked(
    tiers: Sequence[str],
    mode: ModeName,
    *,
    cut: Sequence[TierName] = (),
    finality: FinalityRules | None = None,
) -> Compared:
    """Return the end of a comparison in which the tiers say this in turn."""
    script = dict(zip(TIERS, tiers, strict=False))
    confirm: Confirm = "accept" if mode == "strict" else "reject"
    rules = EscalationRules(confirm, TIERS, "pair", mode, finality=finality)
    votes: dict[TierName, TierVote] = {}
    step = decide({}, rules)
    while isinstance(step, Ask):
        votes[step.tier] = tier_vote(script[step.tier])
        step = decide(read_pair(votes, cut=cut), rules)
    return Compared(convert_end_to_word(step, jury.find_favourite(votes)), step, votes)


TRUSTED = finality_rules("c", (finality_rule("quick", "accept", 0.6),), last="deep")
DISTRUSTED = finality_rules("c", (), last="deep")
AGAINST_A_TIE = finality_rule("deep", "improve", 0.3, after="accept", stands="quick")
STANDING = finality_rules("c", (finality_rule("quick", "accept", 0.6), AGAINST_A_TIE), last="deep")


def test_what_is_said_of_cut_texts() -> None:
    modes: tuple[ModeName, ModeName] = ("strict", "lenient")
    for mode in modes:
        found = walked("AA", mode, cut=["quick"])  # a win on a cut text goes up
        assert (found.word, len(found.votes)) == ("A", 2)
        for letters in ("AA", "BB", "ABB", "TB", "TT", "AT"):  # no model saw both texts whole
            found = walked(letters, mode, cut=TIERS)
            assert (found.word, found.end.tier) == ("undetermined", None)
            assert found.end.because == "nobody saw all of the texts"
    # A tie is one as soon as one that says so saw both texts whole.
    assert walked("TT", "strict", cut=["quick"]).word == "tie"
    assert walked("AT", "strict", cut=["quick"]).word == "tie"
    assert walked("AT", "strict", cut=["deep"]).word == "undetermined"


def test_a_calibration_says_which_wins_are_final() -> None:
    cases: list[tuple[list[str], FinalityRules, ModeName, list[TierName], str, int]] = [
        (["AAA", "F"], TRUSTED, "strict", [], "A", 1),
        (["AAB", "B"], TRUSTED, "strict", [], "B", 2),
        (["AAB", "T"], TRUSTED, "strict", [], "tie", 2),
        (
            ["AAB", "T"],
            TRUSTED,
            "lenient",
            [],
            "tie",
            2,
        ),  # labels trust its wins, but no narrow ones
        (["AAB", "T"], DISTRUSTED, "lenient", [], "tie", 2),
        (["AAA", "B"], DISTRUSTED, "lenient", [], "B", 2),
        (["ABT", "T"], TRUSTED, "lenient", [], "tie", 2),
        (
            ["AAB", "T"],
            STANDING,
            "lenient",
            [],
            "A",
            2,
        ),  # a third ahead: labels let it stand against a tie
        (["BBA", "T"], STANDING, "lenient", [], "B", 2),
        (["AABT", "T"], STANDING, "lenient", [], "tie", 2),  # only a quarter ahead
        (["AAB", "B"], STANDING, "lenient", [], "B", 2),
        (["ABT", "T"], STANDING, "lenient", [], "tie", 2),  # no win that could stand
        (["AAB", "T"], STANDING, "strict", [], "tie", 2),
        (["F", "T"], STANDING, "lenient", [], "tie", 2),
        (["AAB", "T"], STANDING, "lenient", ["quick"], "tie", 2),  # nor a win on a cut text
    ]
    for tiers, finality, mode, cut, verdict, asked in cases:
        found = walked(tiers, mode, cut=cut, finality=finality)
        assert (found.word, len(found.votes)) == (verdict, asked), (tiers, mode, cut)
        if verdict in "AB" and tiers[1] == "T":  # the tier whose win stands is named with its lead
            assert (found.end.tier, found.end.consensus) == ("quick", "majority")
            assert found.votes["quick"].reasoning == f"why {verdict}"
            assert found.votes["quick"].lead == pytest.approx(1 / 3)


def test_a_win_that_only_its_own_family_gave_is_final_in_no_tier_but_the_last() -> None:
    own_win = TierEvidence("accept", 1.0, is_own_family=True)
    win = TierEvidence("accept", 1.0)
    tie = TierEvidence("improve")
    for finality in (None, TRUSTED, STANDING):
        rules = EscalationRules("reject", TIERS, "pair", "lenient", finality=finality)
        assert decide({"quick": own_win}, rules) == Ask("deep")
    rules = EscalationRules("reject", TIERS, "pair", "lenient", finality=TRUSTED)
    assert decide({"quick": tie, "deep": own_win}, rules) == Ask("tiebreaker")
    end = decide({"quick": tie, "deep": win}, rules)
    assert isinstance(end, End)
    assert (end.verdict, end.consensus, end.tier) == ("accept", "single", "deep")


def test_a_decision_model_accepts_by_its_leaning_whatever_its_scores_come_to() -> None:
    """A model that always leans to no may be right when it leans least, if labels say so."""
    finality = finality_rules(rules=[finality_rule("quick", "accept", leaning=-0.5)])
    rules = EscalationRules("accept", TIERS, finality=finality)
    outcomes: tuple[Outcome, ...] = ("accept", "improve", "reject")
    for outcome in outcomes:
        near = TierEvidence(outcome, leaning=-0.1)
        end = decide({"quick": near}, rules)
        assert isinstance(end, End)
        assert (end.verdict, end.tier) == ("accept", "quick")
        assert decide({"quick": TierEvidence(outcome, leaning=-0.6)}, rules) == Ask("deep")
        assert decide({"quick": dataclasses.replace(near, sees_whole_text=False)}, rules) == Ask(
            "deep"
        )


# --- Every combination of three tiers' evidence

WHOLE: tuple[TierEvidence, ...] = (
    TierEvidence("accept", 1.0, leaning=0.5),
    TierEvidence("accept", 0.1, sees_whole_text=False),
    TierEvidence("accept", 1.0, leaning=0.1, gives_reasons=False, families=frozenset({"own"})),
    TierEvidence("improve", 0.1),
    TierEvidence("improve", 1.0, leaning=-0.1, gives_reasons=False),
    TierEvidence("reject", 1.0),
    TierEvidence("reject", 0.1, leaning=-0.5, gives_reasons=False),
    TierEvidence("accept", 1.0, agreement="majority", is_divided=True),
    TierEvidence("improve", 0.1, agreement="none", is_divided=True),
    TierEvidence("accept", 1.0, is_own_family=True, families=frozenset({"own"})),
    FAILED,
)


def standing(*order: str, near: int, level: int = 1) -> Standing:
    return Standing(order, near, level, leader=order[0], heard_models=frozenset())


RANKED: tuple[TierEvidence, ...] = (
    TierEvidence("accept", 1.0, standing=standing("A", "B", "C", near=1)),
    TierEvidence("accept", 0.1, standing=standing("B", "A", "C", near=2)),
    TierEvidence("accept", None, sees_whole_text=False, standing=standing("A", "B", "C", near=1)),
    TierEvidence("improve", None, standing=standing("A", "B", "C", near=3, level=2)),
    TierEvidence(
        "accept",
        1.0,
        is_own_family=True,
        families=frozenset({"own"}),
        standing=standing("C", "A", "B", near=1),
    ),
    FAILED,
)
STANDS = finality_rule("deep", "improve", 0.3, after="accept", stands="quick")
LEANS = finality_rule("quick", "accept", leaning=0.3)
CALIBRATIONS: tuple[FinalityRules | None, ...] = (
    None,
    finality_rules("c", (STANDS, LEANS, finality_rule("quick", "reject", 0.5))),
    finality_rules("c", (finality_rule("deep", "accept", 0.5, after="accept"),), last="deep"),
    finality_rules("c", (finality_rule("quick", "accept", 0.5),), last="tiebreaker"),
)
PANELS: tuple[tuple[TierName, ...], ...] = (TIERS, TWO, NO_DEEP, ONE)


def rules_of(task: Task) -> list[EscalationRules]:
    """Return rules of a task that differ in all that matters to it."""
    all_rules = []
    modes: tuple[ModeName, ...] = ("strict", "lenient")
    writers: tuple[tuple[TierName, ...], ...] = ((), ("quick", "deep"))
    choices = itertools.product(modes, CALIBRATIONS, PANELS, writers, ({}, SHARED))
    for mode, finality, tiers, deciding, models in choices:
        rules = EscalationRules(
            outcome_to_confirm="accept" if mode == "strict" else "reject",
            tiers=tiers,
            task=task,
            mode=mode,
            models=models,
            deciding_tiers=deciding,
            finality=finality,
            margin=0.5,
            needs_proof=mode == "strict" and task != "ranking",
            needs_reasons=True,
            independence="require",
            authors={"accept": ["own"], "reject": ["other"]},
            letters=("A", "B", "C"),
            copied_letters=["B"],
        )
        all_rules.append(rules)
        if tiers == ONE and finality is None:
            all_rules.append(dataclasses.replace(rules, is_promised=True))
    return all_rules


class Walk(NamedTuple):
    """One judging: the tiers asked, and its end."""

    rules: EscalationRules
    heard: Mapping[TierName, TierEvidence]
    end: End


@functools.cache
def walks(task: Task) -> list[Walk]:
    """Judge every combination of three tiers' evidence under all rules; what isn't asked plays no part."""
    kinds = RANKED if task == "ranking" else WHOLE
    found = []
    open_walks: list[tuple[EscalationRules, dict[TierName, TierEvidence]]] = []
    open_walks += [(rules, {}) for rules in rules_of(task)]
    while open_walks:
        rules, heard = open_walks.pop()
        step = decide(heard, rules)
        if isinstance(step, End):
            found.append(Walk(rules, heard, step))
        else:
            assert step.tier in rules.tiers
            assert step.tier not in heard
            open_walks += [(rules, {**heard, step.tier: kind}) for kind in kinds]
    return found


TASKS: tuple[Task, ...] = ("document", "candidate", "pair", "ranking")


def accepting(walk: Walk) -> list[TierEvidence]:
    """Return the evidence behind an acceptance: in a ranking that of the last tier, which has all scores."""
    assert walk.end.tier is not None
    if walk.rules.task == "ranking":
        return [walk.heard[walk.end.tier]]
    behind = [each for each in walk.heard.values() if each.outcome == "accept"]
    return [*behind, walk.heard[walk.end.tier]]


@pytest.mark.parametrize("task", TASKS)
def test_no_acceptance_rests_on_cut_texts_alone(task: Task) -> None:
    for walk in walks(task):
        if walk.end.verdict == "accept":
            assert any(evidence.sees_whole_text for evidence in accepting(walk)), walk


@pytest.mark.parametrize("task", TASKS)
def test_no_acceptance_rests_on_the_own_family_alone(task: Task) -> None:
    for walk in walks(task):
        if walk.end.verdict == "accept":
            families = find_families(walk.heard, walk.rules, walk.end)
            assert families != {"own"}, walk


@pytest.mark.parametrize("task", ["document", "candidate", "pair"])
def test_in_strict_mode_decision_models_alone_accept_as_something_promises(task: Task) -> None:
    promises = ("a calibration lets it through", "a promise of agreement may let it through")
    for walk in walks(task):
        if walk.end.verdict == "accept" and walk.rules.mode == "strict":
            tiers = {tier for tier, each in walk.heard.items() if each.outcome == "accept"}
            is_proven = not {*tiers, walk.end.tier} <= set(walk.rules.deciding_tiers)
            assert is_proven or walk.end.because in promises, walk


@pytest.mark.parametrize("task", TASKS)
def test_an_open_end_names_no_tier_and_another_names_one_that_spoke(task: Task) -> None:
    for walk in walks(task):
        is_open = walk.end.verdict in ("undetermined", "escalate")
        assert is_open == (walk.end.tier is None), walk
        assert is_open or walk.end.tier in walk.heard, walk


def asks(row: Row) -> bool:
    return inspect.isfunction(row.choose_step) and row.choose_step.__name__.startswith("ask_")


ENDING = [row for row in ESCALATION_TABLE if not asks(row)]


@pytest.mark.parametrize("row", ENDING, ids=lambda row: f"{row.name}: {row.applies.__name__}")
def test_every_row_that_ends_a_judging_does_so(row: Row) -> None:
    ends = set()
    for task in row.tasks:
        for walk in walks(task):
            end: End | None = walk.end
            while end is not None:
                ends.add(end.because)
                end = end.overruled_end
    assert row.name in ends


@pytest.mark.parametrize("deep", ["accept", "reject"])
@pytest.mark.parametrize("quick", ["accept", "improve", "reject", None])
def test_the_last_word_of_a_calibration_stands_though_no_model_gives_reasons(
    quick: Outcome | None, deep: Outcome
) -> None:
    """Its improve owes reasons that no model can give, but that lets no earlier opinion through."""
    finality = finality_rules("c", last="tiebreaker")
    rules = EscalationRules(
        "reject", TIERS, mode="lenient", deciding_tiers=TIERS, finality=finality
    )
    heard: dict[TierName, TierEvidence] = {
        "quick": TierEvidence(quick, gives_reasons=False),
        "deep": TierEvidence(deep, gives_reasons=False),
        "tiebreaker": TierEvidence("improve", gives_reasons=False),
    }
    end = decide(heard, rules)
    assert isinstance(end, End)
    assert end.verdict != deep or quick == deep


def test_a_jury_that_gives_reasons_and_is_divided_does_not_make_it_unanimous() -> None:
    rules = EscalationRules("accept", ("quick", "deep"), deciding_tiers=["deep"])
    quick = TierEvidence("improve", agreement="none", is_divided=True, models=frozenset("ab"))
    deep = TierEvidence("improve", gives_reasons=False, models=frozenset("c"))
    end = decide({"quick": quick, "deep": deep}, rules)
    assert isinstance(end, End)
    assert end.because == "a model that writes agrees"
    assert end.consensus == "single"
