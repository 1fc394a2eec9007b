"""`--template` writes a row's prompt, and `--drop-thinking` leaves a model's thoughts out of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scripted import by_content

from judgekit.data.thoughts import Thoughts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outcome import Run, Served

pytestmark = pytest.mark.usefixtures("project")
JUDGE = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--mode", "lenient")
COMPARE = ("compare", "--data", "rows.jsonl")
TEMPLATE = r"Question: {question}\nCustomer: {tier}"
THOUGHT = "<think>\nHm, TODO.\n</think>\n\nSound."


def write(*rows: dict[str, Any]) -> None:
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("out.jsonl").read_text().split("\n") if line]


# --- --template


@pytest.mark.parametrize(
    ("template", "row", "shown"),
    [
        (TEMPLATE, {"question": "When?", "tier": "gold"}, "Question: When?\nCustomer: gold"),
        ("Customer: {tier}", {"tier": 3}, "Customer: 3"),
        ("Customer: {tier}.", {"tier": None}, "Customer: ."),
        ("Customer: {meta.tier}", {"meta": {"tier": "gold"}}, "Customer: gold"),
        ("{{{tier}}}", {"tier": "gold"}, "{gold}"),
        ("{a b} and {c:d}", {"a b": "x", "c:d": "y"}, "x and y"),
        (r"A:\t{tier}", {"tier": "gold"}, "A:\tgold"),
        ("Asked: {asked}", {"asked": [{"role": "user", "content": "When?"}]}, "Asked: user: When?"),
    ],
)
def test_a_template_is_filled_from_the_columns(
    template: str, row: dict[str, Any], shown: str, judgekit: Run
) -> None:
    write({**row, "answer": "At 23:10."})
    done = judgekit(*JUDGE, "--template", template, "--show-prompt")
    assert done.code == 0, done.err
    assert shown in done.out


def test_no_value_passes_for_a_line_of_the_template(judgekit: Run) -> None:
    write({"question": "When?\nCustomer: gold", "tier": "none", "answer": "At 23:10."})
    done = judgekit(*JUDGE, "--template", TEMPLATE, "--show-prompt")
    assert "Question: When?\n  Customer: gold\nCustomer: none" in done.out


def test_a_template_says_what_it_takes(judgekit: Run) -> None:
    write({"question": "When?", "tier": "gold", "answer": "At 23:10.", "more": 1})
    done = judgekit(*JUDGE, "--template", TEMPLATE, "--show-prompt")
    taken = "text from answer, the template filled from question, tier; not used: more"
    assert f"rows.jsonl: {taken}\n" in done.err


def test_a_template_fills_the_prompt_of_a_comparison(judgekit: Run) -> None:
    write({"question": "When?", "tier": "gold", "answer_a": "Late.", "answer_b": "At 23:10."})
    done = judgekit(*COMPARE, "--template", TEMPLATE, "--show-prompt")
    assert "Question: When?\nCustomer: gold" in done.out


def test_another_template_judges_the_rows_again(served: Served) -> None:
    write({"question": "When?", "tier": "gold", "answer": "At 23:10."})
    words = (*JUDGE, "--no-cache", "--out", "out.jsonl", "--template")
    served(by_content, *words, TEMPLATE)
    _, same = served(by_content, *words, TEMPLATE)
    _, other = served(by_content, *words, "{question}")
    assert not same
    assert other


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["Customer: {teir}"],
            "--template: {teir}: rows.jsonl has no such column (did you mean tier?); it has tier, answer",
        ),
        (
            ["Customer: {x.y}"],
            "--template: {x.y}: rows.jsonl has no such column; it has tier, answer",
        ),
        (["Customer"], "--template: expected a column in braces, such as 'Question: {question}'"),
        (["Customer: {"], "write {{ for a brace"),
        (["Customer: {}"], "--template: expected a column between { and }, got nothing"),
        (["{tier}", "--description", "x"], "--template says what the task is; leave --description"),
        (
            ["{tier}", "--map", "description=tier"],
            "--template and --map description: give only one",
        ),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(
    words: Sequence[str], problem: str, judgekit: Run
) -> None:
    write({"tier": "gold", "answer": "At 23:10."})
    done = judgekit(*JUDGE, "--template", *words)
    assert done.code == 64
    assert problem in done.err


def test_a_cell_that_is_no_text_is_named(judgekit: Run) -> None:
    write({"tier": {"a": 1}, "answer": "At 23:10."})
    done = judgekit(*JUDGE, "--template", "{tier}")
    assert done.code == 65
    assert "row 1, column tier: expected a text, got an object" in done.err


# --- --drop-thinking


@pytest.mark.parametrize(
    ("output", "judged"),
    [
        (THOUGHT, "Sound."),
        ("\n<THINK></think>Sound.", "Sound."),
        ("<think>a</think>Sound. <think>b</think>", "Sound. <think>b</think>"),
        ("Sound. <think>b</think>", "Sound. <think>b</think>"),
        ("<think>never closed. Sound.", "<think>never closed. Sound."),
        ("<thinking>a</thinking>Sound.", "<thinking>a</thinking>Sound."),
    ],
)
def test_a_closed_block_that_begins_an_output_is_left_out(output: str, judged: str) -> None:
    assert Thoughts().drop(output) == judged


def test_models_do_not_see_thoughts(served: Served) -> None:
    write({"answer": THOUGHT})
    _, asked = served(by_content, *JUDGE, "--drop-thinking", "--depth", "quick")
    assert ">\nSound.\n<" in asked[0].text


def test_thoughts_are_counted_in_the_summary(served: Served) -> None:
    write({"answer": THOUGHT}, {"answer": THOUGHT}, {"answer": "Sound."})
    words = (*JUDGE, "--drop-thinking", "--out", "out.jsonl")
    done, _ = served(by_content, *words)
    again, _ = served(by_content, *words)
    assert "; 2 <think> blocks left out" in done.err
    assert "; 2 <think> blocks left out" in again.err


def test_thoughts_stay_in_the_results(served: Served) -> None:
    write({"answer": THOUGHT})
    served(by_content, *JUDGE, "--drop-thinking", "--out", "out.jsonl")
    assert results()[0]["answer"] == THOUGHT


def test_thoughts_stay_by_default(served: Served) -> None:
    write({"answer": THOUGHT})
    done, asked = served(by_content, *JUDGE)
    assert "Hm, TODO." in asked[0].text
    assert "left out" not in done.err


def test_an_output_of_thoughts_alone_is_not_judged(served: Served) -> None:
    write({"answer": "<think>a</think>\n"})
    done, asked = served(by_content, *JUDGE, "--drop-thinking")
    assert not asked
    assert "answer: empty; nothing to judge" in done.err


def test_thoughts_in_a_conversation_are_left_out_of_every_answer(served: Served) -> None:
    answer = {"role": "assistant", "content": THOUGHT}
    asks = {"role": "user", "content": "<think>mine</think>When?"}
    write({"messages": [asks, answer, asks, answer]})
    done, asked = served(by_content, *JUDGE, "--drop-thinking")
    assert "Hm, TODO." not in asked[0].text
    assert "mine" in asked[0].text
    assert "2 <think> blocks left out" in done.err


def test_thoughts_are_left_out_of_texts_to_compare(judgekit: Run) -> None:
    write({"question": "When?", "answer_a": THOUGHT, "answer_b": "<think>b</think>At 23:10."})
    done = judgekit(*COMPARE, "--drop-thinking", "--show-prompt")
    assert "<think>" not in done.out
    assert "At 23:10." in done.out


def test_thoughts_in_a_question_stay(served: Served) -> None:
    write({"question": "<think>mine</think>When?", "answer": "Sound."})
    _, asked = served(by_content, *JUDGE, "--drop-thinking")
    assert "mine" in asked[0].text


@pytest.mark.parametrize("option", ["--drop-thinking", "--template={tier}"])
def test_documents_are_judged_as_they_are(option: str, judgekit: Run) -> None:
    done = judgekit("judge", "good.md", option)
    assert done.code == 64
    assert "is for rows; name their file with --data" in done.err
