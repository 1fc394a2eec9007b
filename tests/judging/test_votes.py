"""What models in both orders, and tiers one after another, come to: pure rules, told as tables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from making import finality_rule, finality_rules
from scripted import of_family, scripted_endpoint

from judgekit.config import TIERS
from judgekit.judging.compare import ended
from judgekit.judging.escalation import EscalationRules, Final
from judgekit.judging.jury import TierVote, Vote, outcomes
from judgekit.judging.jury import tier_vote as cast_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgekit.config import ModeName, TierName
    from judgekit.judging.compare import Ended
    from judgekit.judging.escalation import FinalityRules
    from judgekit.judging.jury import JuryRule, PairWord

WORDS: dict[str, PairWord] = {"A": "A", "B": "B", "T": "tie"}


def tier_vote(letters: str) -> TierVote:
    """Return the votes that letters stand for: A, B, T for a tie; none for F, a tier that failed."""
    votes = [None if letter == "F" else Vote(WORDS[letter], f"why {letter}") for letter in letters]
    return cast_by([(of_family(f"{at}"), vote) for at, vote in enumerate(votes)])


def walked(
    said: Sequence[str],
    mode: ModeName,
    *,
    cut: Sequence[TierName] = (),
    finality: FinalityRules | None = None,
) -> tuple[Ended, int]:
    """Return how a comparison ends when the tiers say this in turn, and how many of them were asked."""
    script = dict(zip(TIERS, said, strict=False))
    rules = EscalationRules("accept" if mode == "strict" else "reject", TIERS, cut, finality=finality)
    heard: dict[TierName, TierVote] = {}
    step = rules.next({})
    while not isinstance(step, Final):
        heard[step] = tier_vote(script[step])
        step = rules.next(outcomes(heard), {tier: each.lead for tier, each in heard.items()})
    return ended(step, heard, mode, rules), len(heard)


@pytest.mark.parametrize(
    ("votes", "word", "lead"),
    [
        ("A", "A", 1.0),
        ("B", "B", 1.0),
        ("T", "tie", 0.0),
        ("AAB", "A", 1 / 3),
        ("ABT", "tie", 0.0),
        ("BTT", "B", 1 / 3),
        ("BBB", "B", 1.0),
        ("F", None, 0.0),
    ],
)
def test_a_jury_says_what_most_say_ties_aside(votes: str, word: str | None, lead: float) -> None:
    found = tier_vote(votes)
    assert found.word == word
    assert found.lead == pytest.approx(lead)
    tied = word == "tie" and "T" not in votes
    assert found.reasoning == ("" if word is None or tied else f"why {word[0].upper()}")


@pytest.mark.parametrize(
    ("said", "mode", "verdict", "tiers", "consensus"),
    [
        # Strict: a win of the quick tier needs a deeper one that says the same.
        ("AA", "strict", "A", 2, "unanimous"),
        ("BB", "strict", "B", 2, "unanimous"),
        ("AT", "strict", "tie", 2, "single"),
        ("ABA", "strict", "A", 3, "majority"),
        ("ABB", "strict", "B", 3, "majority"),
        ("BAT", "strict", "escalate", 3, "none"),
        ("BAF", "strict", "escalate", 3, "none"),
        ("TA", "strict", "A", 2, "single"),
        ("TT", "strict", "tie", 2, "unanimous"),
        ("FB", "strict", "B", 2, "single"),
        ("AFA", "strict", "A", 3, "unanimous"),
        ("AFB", "strict", "escalate", 3, "none"),
        ("AFF", "strict", "undetermined", 3, "none"),
        ("FFF", "strict", "undetermined", 3, "none"),
        ("FFB", "strict", "B", 3, "single"),
        # Lenient: the first win that holds in both orders is final.
        ("A", "lenient", "A", 1, "single"),
        ("B", "lenient", "B", 1, "single"),
        ("TB", "lenient", "B", 2, "single"),
        ("TT", "lenient", "tie", 2, "unanimous"),
        ("FT", "lenient", "tie", 2, "single"),
        ("TFA", "lenient", "A", 3, "single"),
        ("TFF", "lenient", "undetermined", 3, "none"),
    ],
)
def test_tiers_one_after_another(said: str, mode: ModeName, verdict: str, tiers: int, consensus: str) -> None:
    found, asked = walked(said, mode)
    assert (found.verdict, asked, found.consensus) == (verdict, tiers, consensus)


@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("said", ["AAA", "ABA", "ABB", "TAB", "TBA", "AFB", "BTA"])
def test_the_names_of_the_two_play_no_part(said: str, mode: ModeName) -> None:
    """Swapping A and B everywhere swaps the verdict, and nothing else."""
    swap = str.maketrans("AB", "BA")
    found, asked = walked(said, mode)
    other, other_asked = walked(said.translate(swap), mode)
    assert other.verdict == (found.verdict.translate(swap) if len(found.verdict) == 1 else found.verdict)
    assert (other_asked, other.consensus, other.tier) == (asked, found.consensus, found.tier)


def test_a_win_on_a_cut_text_goes_up_in_both_modes() -> None:
    for mode in ("strict", "lenient"):
        found, asked = walked("AA", mode, cut=["quick"])
        assert (found.verdict, asked, found.truncated) == ("A", 2, False)


@pytest.mark.parametrize("mode", ["strict", "lenient"])
@pytest.mark.parametrize("said", ["AA", "BB", "ABB", "TB", "TT", "AT"])
def test_nothing_is_known_when_no_model_saw_both_texts_whole(said: str, mode: ModeName) -> None:
    found, _ = walked(said, mode, cut=TIERS)
    assert (found.verdict, found.truncated, found.tier) == ("undetermined", True, None)
    assert found.degraded == "no model saw the whole of both texts, so the result is open"


def test_a_tie_is_one_as_soon_as_one_that_says_so_saw_both_texts_whole() -> None:
    assert walked("TT", "strict", cut=["quick"])[0].verdict == "tie"
    assert walked("AT", "strict", cut=["quick"])[0].verdict == "tie"
    assert walked("AT", "strict", cut=["deep"])[0].verdict == "undetermined"


TRUSTED = finality_rules("c", (finality_rule("quick", "accept", 0.6),), last="deep")
DISTRUSTED = finality_rules("c", (), last="deep")
AGAINST_A_TIE = finality_rule("deep", "improve", 0.3, after="accept", stands="quick")
STANDING = finality_rules("c", (finality_rule("quick", "accept", 0.6), AGAINST_A_TIE), last="deep")


@pytest.mark.parametrize(
    ("said", "finality", "mode", "verdict", "tiers"),
    [
        (["AAA", "F"], TRUSTED, "strict", "A", 1),
        (["AAB", "B"], TRUSTED, "strict", "B", 2),
        (["AAB", "T"], TRUSTED, "strict", "tie", 2),
        (["AAB", "T"], TRUSTED, "lenient", "tie", 2),  # labels trust its wins, but no narrow ones
        (["AAB", "T"], DISTRUSTED, "lenient", "tie", 2),
        (["AAA", "B"], DISTRUSTED, "lenient", "B", 2),
        (["ABT", "T"], TRUSTED, "lenient", "tie", 2),
        (["AAB", "T"], STANDING, "lenient", "A", 2),  # a third ahead: labels let it stand against a tie
        (["BBA", "T"], STANDING, "lenient", "B", 2),
        (["AABT", "T"], STANDING, "lenient", "tie", 2),  # only a quarter ahead
        (["AAB", "B"], STANDING, "lenient", "B", 2),
        (["ABT", "T"], STANDING, "lenient", "tie", 2),  # no win that could stand
        (["AAB", "T"], STANDING, "strict", "tie", 2),
        (["F", "T"], STANDING, "lenient", "tie", 2),
    ],
)
def test_a_calibration_says_which_wins_are_final(
    said: list[str], finality: FinalityRules, mode: ModeName, verdict: str, tiers: int
) -> None:
    found, asked = walked(said, mode, finality=finality)
    assert (found.verdict, asked) == (verdict, tiers)


def test_the_tier_whose_win_stands_is_named_with_its_lead() -> None:
    found, _ = walked(["AAB", "T"], "lenient", finality=STANDING)
    assert (found.tier, found.consensus, found.reasoning) == ("quick", "single", "why A")
    assert found.lead == pytest.approx(1 / 3)


def test_a_win_on_a_cut_text_does_not_stand_against_a_tie() -> None:
    found, asked = walked(["AAB", "T"], "lenient", cut=["quick"], finality=STANDING)
    assert (found.verdict, asked) == ("tie", 2)


# --- who agreed


@pytest.mark.parametrize(
    ("said", "rule", "word", "agreement"),
    [
        ("AA", "mean", "A", None),
        ("TT", "mean", "tie", None),
        ("AAB", "mean", "A", "majority"),
        ("AAB", "majority", "A", "majority"),
        ("AB", "mean", "tie", "none"),  # nobody voted for it
        ("ABT", "mean", "tie", "single"),
        ("ATT", "mean", "A", "single"),
        ("ATT", "majority", "tie", "majority"),
        ("AATTT", "mean", "A", "none"),
        ("AB", "majority", "tie", "none"),
    ],
)
def test_a_divided_jury_agrees_as_far_as_its_families_said_the_word(
    said: str, rule: JuryRule, word: str, agreement: str | None
) -> None:
    models = [dataclasses.replace(scripted_endpoint(str(at)), family=f"f{at}") for at in range(len(said))]
    found = cast_by(
        [(endpoint, Vote(WORDS[each])) for endpoint, each in zip(models, said, strict=True)], rule
    )
    assert (found.word, found.agreement) == (word, agreement)


def test_a_win_that_none_but_its_own_family_gave_is_final_in_no_tier_but_the_last() -> None:
    heard: dict[TierName, TierVote] = {"quick": tier_vote("AAA")}
    for finality in (None, TRUSTED, STANDING):
        rules = EscalationRules("reject", TIERS, finality=finality, partial={"quick"})
        assert rules.next(outcomes(heard), {"quick": 1.0}) == "deep"
    told: dict[TierName, TierVote] = {"quick": tier_vote("T"), "deep": tier_vote("AAA")}
    own = EscalationRules("reject", TIERS, finality=TRUSTED, partial={"deep"})
    assert own.next(outcomes(told), {"deep": 1.0}) == "tiebreaker"
    assert EscalationRules("reject", TIERS, finality=TRUSTED).next(outcomes(told), {"deep": 1.0}) == Final(
        "accept", "single", "deep"
    )
