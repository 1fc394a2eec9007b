"""Labels mean the same in `report`, `eval judge`, `calibrate` and the summary of rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback import says
from scripted import scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loopback import Answer, Asked
    from outcome import Outcome, Run, Served

pytestmark = pytest.mark.usefixtures("project")
KLS = ("--rubric", "kls", "--mode", "strict")
INTO = ("judge", "--data", "rows.jsonl", *KLS, "--out", "out.jsonl")
PAIRS = ("compare", "--data", "rows.jsonl", "--mode", "lenient")


def write(path: str, rows: Iterable[object]) -> str:
    Path(path).write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    return path


def by_word(asked: Asked) -> Answer:
    """Accept texts that say zeta, reject those that say omega, and want anything else improved.

    Only at the beginning of a line: the random letters of a fence may hold a word by chance.
    """
    if re.search(r"^zeta\b", asked.text, re.MULTILINE):
        return says(scores(5, 5, 5))
    return says(
        scores(1, 1, 1) if re.search(r"^omega\b", asked.text, re.MULTILINE) else scores(3, 3, 3)
    )


def first_is_better(asked: Asked) -> Answer:
    [name] = re.findall(r"The text (\w+):\s+<[^>]*>\s+Rome", asked.text)
    return says(json.dumps({"reasoning": "Rome.", "better": name}))


def summary(err: str) -> str:
    return err.splitlines()[-1]


WORDS = (("pass", "fail"), ("C", "I"), (1, 0), (True, False))
MORE_WORDS = (
    ("yes", "no"),
    ("Correct", "Incorrect"),
    ("1", "0"),
    (1.0, 0.0),
    ("faithful", "hallucinated"),
)
TEXTS = ["zeta 1", "zeta 2", "zeta 3", "omega 4", "so so 5", "so so 6", "so so 7", "zeta 8"]
IS_GOOD = [True, True, True, False, False, False, True, False]


@pytest.mark.parametrize(
    "words",
    [*WORDS, *(pytest.param(words, marks=pytest.mark.slow) for words in MORE_WORDS)],
    ids=repr,
)
def test_labels_without_improve_say_accepted_or_not_in_every_command(
    served: Served, judgekit: Run, words: tuple[object, object]
) -> None:
    labels = [words[0] if is_good else words[1] for is_good in IS_GOOD]
    rows = [
        {"id": number, "answer": text, "label": label}
        for number, (text, label) in enumerate(zip(TEXTS, labels, strict=True))
    ]
    write("rows.jsonl", rows)
    write("labels.jsonl", ({"id": row["id"], "label": row["label"]} for row in rows))
    done, _ = served(by_word, *INTO)
    assert "6 of 8 labels agree (75%)" in summary(done.err)
    found = judgekit("report", "out.jsonl", "--labels", "labels.jsonl", "--json").json
    assert found["labelled"]["accuracy"]["value"] == 0.75
    assert {each["id"] for each in found["labelled"]["wrong"]} == {"6", "7"}
    measure = ("eval", "judge", "rows.jsonl", "--rubric", "kls", "--models", "one", "--json")
    done, _ = served(by_word, *measure)
    assert done.json["judges"][0]["accuracy"]["value"] == 0.75
    write(
        "cases.jsonl",
        ({"id": str(row["id"]), "text": row["answer"], "label": row["label"]} for row in rows),
    )
    done, _ = served(by_word, *measure[:2], "cases.jsonl", *measure[3:])
    assert done.json["judges"][0]["accuracy"]["value"] == 0.75


def test_beside_an_improve_the_words_are_compared(served: Served, judgekit: Run) -> None:
    labels = ["accept", "pass", "good", "fail", "reject", "improve", "accept", "reject"]
    rows = [{"id": n, "answer": text, "label": labels[n]} for n, text in enumerate(TEXTS)]
    write("rows.jsonl", rows)
    done, _ = served(by_word, *INTO)
    assert "5 of 8 labels agree (62%)" in summary(done.err)
    found = judgekit("report", "out.jsonl", "--labels", "rows.jsonl", "--json").json
    assert found["labelled"]["accuracy"]["value"] == 0.625
    done, _ = served(
        by_word, "eval", "judge", "rows.jsonl", "--rubric", "kls", "--models", "a", "--json"
    )
    assert done.json["judges"][0]["accuracy"]["value"] == 0.625


def test_calibrate_takes_an_improve_for_what_is_to_be_rejected(judgekit: Run) -> None:
    def said(scored: int) -> dict[str, Any]:
        points = dict.fromkeys(("semantic", "pragmatic", "syntactic"), scored)
        return {tier: {"model": f"custom/{tier}", "scores": points} for tier in ("quick", "deep")}

    def rules(label: str) -> dict[str, Any]:
        cases = [{"id": f"g{n}", "label": "pass", "judges": said(5)} for n in range(100)]
        cases += [{"id": f"b{n}", "label": label, "judges": said(3)} for n in range(100)]
        done = judgekit("calibrate", write("cases.jsonl", cases), *KLS, "--out", "c.json", "--json")
        assert done.code == 0
        found: dict[str, Any] = done.json
        return found

    assert rules("fail")["without"]["errors"] == 0
    assert {gate["outcome"] for gate in rules("fail")["gates"]} == {"accept", "improve"}


def test_what_is_not_understood_is_left_out_and_counted_never_refused(
    served: Served, judgekit: Run
) -> None:
    rows = [
        {"id": 1, "answer": "zeta", "label": "pass"},
        {"id": 2, "answer": "omega", "label": "MEH"},
        {"id": 3, "answer": "zeta too", "label": ""},
        {"id": 4, "answer": "omega too", "label": 7},
        {"id": 5, "answer": " ", "label": "pass"},
    ]
    write("rows.jsonl", rows)
    done, _ = served(by_word, *INTO)
    assert "1 of 1 labels agree (100%)" in summary(done.err)
    assert "left out: 1 blank label, 2 labels that are not understood, such as '" in summary(
        done.err
    )
    done = judgekit("report", "out.jsonl", "--labels", "rows.jsonl")
    assert done.code == 0
    assert (
        "Labels left out: 1 blank label, 2 labels that are not understood, such as 'MEH'."
        in done.out
    )
    done, _ = served(by_word, "eval", "judge", "rows.jsonl", "--rubric", "kls", "--models", "one")
    assert (done.code, "rows.jsonl: 1 labelled item" in done.out) == (0, True)
    left = "1 blank label, 2 labels that are not understood, such as 'MEH', 1 row with a blank text"
    assert f"left out: {left}" in done.out
    write("none.jsonl", [{"id": 1, "label": "MEH"}])
    done = judgekit("report", "out.jsonl", "--labels", "none.jsonl")
    assert (done.code, "1 label that is not understood" in done.out) == (0, True)


def test_numbers_are_scores_where_not_all_are_0_or_1(served: Served) -> None:
    rows = [{"id": n, "answer": f"{text} {n}", "label": n % 5 + 1} for n, text in enumerate(TEXTS)]
    write("rows.jsonl", rows)
    done, _ = served(
        by_word, "eval", "judge", "rows.jsonl", "--rubric", "kls", "--models", "one", "--json"
    )
    assert (done.json["judges"][0]["accuracy"], done.json["judges"][0]["scores"]["items"]) == (
        None,
        8,
    )
    done, _ = served(by_word, *INTO)
    assert "labels agree" not in summary(done.err)
    assert "left out: 8 labels that are not understood, such as '" in summary(done.err)


WINNERS = (
    "A>B",
    "A>>B",
    "[[A>B]]",
    "B<A",
    "B << A",
    "chosen",
    "chosen>rejected",
    "model_a > model_b",
    1,
    "A",
)


@pytest.mark.parametrize("winner", WINNERS, ids=repr)
def test_an_order_of_two_texts_names_the_better_one(served: Served, winner: object) -> None:
    write(
        "rows.jsonl",
        [{"question": "Q?", "response_A": "Rome.", "response_B": "Milan.", "label": winner}],
    )
    done, _ = served(first_is_better, *PAIRS)
    assert "1 of 1 labels agree (100%)" in summary(done.err)


@pytest.mark.parametrize(
    "winner", ["A=B", "A == B", 0, "0", "tie (both bad)", "B>A", "B>>A", "rejected"], ids=repr
)
def test_a_tie_and_the_other_text_are_no_win_of_the_first(served: Served, winner: object) -> None:
    write(
        "rows.jsonl",
        [{"question": "Q?", "response_A": "Rome.", "response_B": "Milan.", "label": winner}],
    )
    done, _ = served(first_is_better, *PAIRS)
    assert "0 of 1 labels agree (0%)" in summary(done.err)


@pytest.mark.parametrize("winner", ["A>=B", "who knows", "A>A", "A>C", "math"], ids=repr)
def test_winners_that_are_not_understood_are_counted(served: Served, winner: str) -> None:
    write(
        "rows.jsonl",
        [{"question": "Q?", "response_A": "Rome.", "response_B": "Milan.", "label": winner}],
    )
    done, _ = served(first_is_better, *PAIRS)
    assert f"left out: 1 label that is not understood, such as '{winner}'" in summary(done.err)


def test_labels_of_comparisons_may_be_orders_too(judgekit: Run) -> None:
    write(
        "out.jsonl",
        [{"id": 1, "verdict": "A"}, {"id": 2, "verdict": "C"}, {"id": 3, "verdict": "tie"}],
    )
    write(
        "labels.jsonl",
        [{"id": 1, "winner": "A>B"}, {"id": 2, "winner": "C"}, {"id": 3, "winner": "A=B"}],
    )
    found = judgekit("report", "out.jsonl", "--labels", "labels.jsonl", "--json").json
    assert (found["labelled"]["accuracy"]["value"], set(found["win_rates"])) == (1, {"A", "B", "C"})


def test_letters_of_other_programs_are_outcomes_where_nothing_was_compared(judgekit: Run) -> None:
    write("out.jsonl", [{"id": n, "verdict": "C" if n % 4 else "I"} for n in range(8)])
    found = judgekit("report", "out.jsonl", "--json").json
    assert (found["task"], found["verdicts"]) == ("judge", {"accept": 6, "reject": 2})
    write("out.jsonl", [{"id": 1, "verdict": "C", "scores": {"A": 1, "B": 2, "C": 3}}])
    assert judgekit("report", "out.jsonl", "--json").json["verdicts"] == {"C": 1}


def test_ids_that_never_match_are_shown_with_the_remedy(judgekit: Run) -> None:
    write("out.jsonl", [{"id": n, "key": f"k{n}", "verdict": "accept"} for n in range(5)])
    write("labels.jsonl", [{"id": f"row-{n}", "key": f"k{n}", "label": "pass"} for n in range(5)])
    done = judgekit("report", "out.jsonl", "--labels", "labels.jsonl")
    assert (
        "No id of the labels is in the results: those of the results begin with 0, 1, 2, "
        in done.out
    )
    assert (
        "those of the labels with row-0, row-1, row-2. Name the column of ids with --id COLUMN."
        in done.out
    )
    done = judgekit("report", "out.jsonl", "--labels", "labels.jsonl", "--id", "key")
    assert "agreement with labels   1.000" in done.out or "of 5 labels" in done.out
    done = judgekit("report", "out.jsonl", "--id", "nothing")
    assert (done.code, "--id nothing: neither the results nor the labels" in done.err) == (64, True)


def test_columns_of_other_names_are_named_in_each_command(served: Served, judgekit: Run) -> None:
    rows = [
        {"key": n, "output": text, "other_output": "never", "gold": "pass" if good else "fail"}
        for n, (text, good) in enumerate(zip(TEXTS, IS_GOOD, strict=True))
    ]
    write("rows.jsonl", rows)
    named = ("--map", "text=output", "--map", "label=gold", "--id", "key")
    done, _ = served(by_word, *INTO, *named)
    assert "6 of 8 labels agree" in summary(done.err)
    done, _ = served(
        by_word, "eval", "judge", "rows.jsonl", "--rubric", "kls", "--models", "m", *named, "--json"
    )
    assert done.json["judges"][0]["accuracy"]["value"] == 0.75
    done, _ = served(by_word, "calibrate", "rows.jsonl", *KLS, *named)
    assert "no column" not in done.err
    assert "may each be the text" not in done.err
    done = judgekit("report", "out.jsonl", "--labels", "rows.jsonl", *named, "--json")
    assert {each["text"] for each in done.json["worst"]} == set(TEXTS[3:7])
    assert done.json["labelled"]["accuracy"]["value"] == 0.75
    done = judgekit("report", "out.jsonl", "--map", "text=outptu")
    assert (done.code, "--map text=outptu: out.jsonl has no such column" in done.err) == (64, True)


def test_a_report_of_results_whose_text_is_in_doubt_still_works(judgekit: Run) -> None:
    write("out.jsonl", [{"id": 1, "output": "x", "model_output": "y", "verdict": "reject"}])
    done = judgekit("report", "out.jsonl", "--json")
    assert (done.code, done.json["worst"][0]["text"]) == (0, "")
    assert (
        judgekit("report", "out.jsonl", "--map", "text=output", "--json").json["worst"][0]["text"]
        == "x"
    )


# A column is read as a set

OUTCOMES: dict[str, tuple[Sequence[str], list[str]]] = {
    "P beside F": (["P"] * 6 + ["F"] * 4, ["accept"] * 6 + ["reject"] * 4),
    "P beside C and I": ("CCCCCIIIP", ["accept"] * 5 + ["reject"] * 3 + ["improve"]),
    "R beside W": ("RRRRWWWW", ["accept"] * 4 + ["reject"] * 4),
    "G beside B": ("GGGGBBBB", ["accept"] * 4 + ["reject"] * 4),
    "Y beside N": ("YYYYNNNN", ["accept"] * 4 + ["reject"] * 4),
    "right beside wrong": (["right"] * 4 + ["wrong"] * 4, ["accept"] * 4 + ["reject"] * 4),
    "a stray among words": (
        ["pass"] * 9 + ["fail"] * 9 + ["later"],
        ["accept"] * 9 + ["reject"] * 9,
    ),
}
OUTCOME_PAIRS = {
    "approved": "rejected",
    "Approve": "Deny",
    "ok": "not ok",
    "OK": "NOK",
    "agree": "disagree",
    "acceptable": "not acceptable",
    "satisfied": "unsatisfied",
    "complete": "incomplete",
    "pos": "neg",
}
HALF_PAIRS: dict[str, Sequence[object]] = {
    "helpful": ["helpful"] * 10 + ["harmful"] * 10,
    "right": ["right"] * 10 + ["left"] * 10,
    "rejected": ["rejected"] * 10 + ["chosen"] * 10,
    "C": ["C"] * 10 + ["D"] * 10,
}
DOUBTFUL: dict[str, Sequence[object]] = {
    "P alone": ["P"] * 10,
    "P beside blanks": ["P", "", "P", None],
}


def agreement_of(judgekit: Run, values: Iterable[object], verdicts: Iterable[str]) -> Outcome:
    """Report results with these verdicts and the labels, row by row."""
    write("out.jsonl", [{"id": n, "verdict": word} for n, word in enumerate(verdicts)])
    write("labels.jsonl", [{"id": n, "label": value} for n, value in enumerate(values)])
    return judgekit("report", "out.jsonl", "--labels", "labels.jsonl", "--json")


@pytest.mark.parametrize("case", OUTCOMES)
def test_labels_mean_what_explains_their_column(judgekit: Run, case: str) -> None:
    values, outcomes = OUTCOMES[case]
    found = agreement_of(judgekit, values, [*outcomes, "accept"][: len(values)]).json["labelled"]
    assert found["accuracy"]["value"] == 1
    assert found["labels"] == len(outcomes)


@pytest.mark.parametrize(("good", "bad"), OUTCOME_PAIRS.items())
def test_a_pair_of_words_is_an_outcome(judgekit: Run, good: str, bad: str) -> None:
    values = [good] * 4 + [bad] * 4
    found = agreement_of(judgekit, values, ["accept"] * 4 + ["reject"] * 4).json["labelled"]
    assert found["labels"] == 8
    assert found["accuracy"]["value"] == 1


def test_a_stray_number_among_0_and_1_is_left_out(judgekit: Run) -> None:
    values = [*([1] * 9), *([0] * 9), -1]
    found = agreement_of(judgekit, values, ["accept"] * 9 + ["reject"] * 10).json["labelled"]
    assert found["labels"] == 18
    assert found["accuracy"]["value"] == 1
    assert found["not_compared"]["unknown"] == 1


@pytest.mark.parametrize("case", HALF_PAIRS)
def test_half_a_pair_of_words_is_no_label(judgekit: Run, case: str) -> None:
    values = HALF_PAIRS[case]
    found = agreement_of(judgekit, values, ["accept"] * len(values)).json["labelled"]
    assert found["labels"] == 0
    assert found["not_compared"]["unknown"] == len(values)


@pytest.mark.parametrize("case", DOUBTFUL)
def test_a_column_that_reads_in_two_ways_is_a_question(judgekit: Run, case: str) -> None:
    values = DOUBTFUL[case]
    done = agreement_of(judgekit, values, ["accept"] * len(values))
    assert done.code == 64
    assert "(P: accept or improve); write accept, improve or reject instead" in done.err


@pytest.mark.parametrize("words", [("eval", "judge"), ("calibrate",)])
def test_it_is_a_question_before_any_model_is_asked(served: Served, words: tuple[str, ...]) -> None:
    write("rows.jsonl", [{"id": n, "answer": f"zeta {n}", "label": "P"} for n in range(4)])
    done, asked = served(by_word, *words, "rows.jsonl", *KLS)
    assert done.code == 64
    assert asked == []


def test_a_run_over_rows_keeps_its_verdicts_and_says_why_nothing_is_compared(
    served: Served,
) -> None:
    write("rows.jsonl", [{"id": n, "answer": f"zeta {n}", "label": "P"} for n in range(4)])
    done, _ = served(by_word, *INTO)
    assert done.code == 0
    assert "labels not compared: the labels 'P' can be read in 2 ways" in summary(done.err)


PREFERENCES: dict[str, tuple[Sequence[object], list[str]]] = {
    "signed": ([-3, -1, 2, 3, 0], ["A", "A", "B", "B", "tie"]),
    "signed texts": (["-2", "-1", "1", "2"], ["A", "A", "B", "B"]),
    "from 1": ([1, 2, 2, 1], ["A", "B", "B", "A"]),
    "from 1 with ties": ([0, 1, 2, 1], ["tie", "A", "B", "A"]),
    "marked": ([[1, 0], [0, 1]], ["A", "B"]),
    "letters": (["a", "b", "tie"], ["A", "B", "tie"]),
}


@pytest.mark.parametrize("case", PREFERENCES)
def test_winners_mean_what_explains_their_column(judgekit: Run, case: str) -> None:
    values, letters = PREFERENCES[case]
    found = agreement_of(judgekit, values, letters).json["labelled"]
    assert found["accuracy"]["value"] == 1
    assert found["labels"] == len(letters)


def test_0_and_1_alone_are_a_question(judgekit: Run) -> None:
    done = agreement_of(judgekit, [0, 1, 1, 0], ["A", "B", "B", "A"])
    assert done.code == 64
    assert "write the letter of the text, or tie instead" in done.err


@pytest.mark.parametrize("prefix", ["winner_", "winner_model_"])
def test_winners_may_be_marked_in_columns_of_their_own(judgekit: Run, prefix: str) -> None:
    sides = ["a", "b", "tie"]
    write("out.jsonl", [{"id": n, "verdict": word} for n, word in enumerate(["A", "B", "tie"])])
    rows = []
    for number, winner in enumerate(sides):
        tie = {"winner_tie": int(winner == "tie")}
        rows.append(
            {"id": number, **{f"{prefix}{side}": int(side == winner) for side in "ab"}, **tie}
        )
    write("labels.jsonl", rows)
    done = judgekit("report", "out.jsonl", "--labels", "labels.jsonl", "--json")
    assert done.json["labelled"]["accuracy"]["value"] == 1


def test_marked_winners_count_in_the_summary(served: Served) -> None:
    texts = {"question": "Q?", "response_A": "Rome.", "response_B": "Milan."}
    write("rows.jsonl", [{**texts, "winner_model_a": 1, "winner_model_b": 0, "winner_tie": 0}])
    done, _ = served(first_is_better, *PAIRS)
    assert "1 of 1 labels agree (100%)" in summary(done.err)


GRADES = {
    "C, I and P": (["C", "I", "C", "P", "I", "C", "C"], {"accept": 4, "improve": 1, "reject": 2}),
    "P and F": (["P", "P", "F"], {"accept": 2, "reject": 1}),
    "A and B": (["A", "B", "A"], {"A": 2, "B": 1}),
    "C and I": (["C", "I"], {"accept": 1, "reject": 1}),
}


@pytest.mark.parametrize("case", GRADES)
def test_verdicts_of_other_programs_are_read_as_a_set(judgekit: Run, case: str) -> None:
    words, counts = GRADES[case]
    write("out.jsonl", [{"id": n, "verdict": word} for n, word in enumerate(words)])
    assert judgekit("report", "out.jsonl", "--json").json["verdicts"] == counts
