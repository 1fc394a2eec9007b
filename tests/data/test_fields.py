"""The columns of each field, the reading of cells, and the questions to models about a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from judgekit.data import fields
from judgekit.data.fields import FieldError, Fields, Unjudgeable, choose_fields
from judgekit.data.sources import DataRow
from judgekit.errors import UsageError
from judgekit.evaluation.labels import NOT_UNDERSTOOD_PREFIX
from judgekit.judging.documents import ComparisonInput, Document, TaskDescription
from judgekit.rubric.schema import Given

ARENA = (
    "a from response_a, b from response_b, prompt from question, winner from winner, author_a from model_a,"
    " author_b from model_b"
)
ALL = Given(reference="The expected answer", sources="The sources")


def row(**columns: Any) -> DataRow:  # noqa: ANN401 - whatever a cell holds
    return DataRow(1, columns)


def judged(columns: dict[str, Any], given: Given = ALL, **settings: Any) -> Document:  # noqa: ANN401 - handed on
    mapped = settings.pop("mapped", {})
    found = choose_fields("judge", [*columns], mapped, "rows.jsonl")
    return fields.read_document(found, DataRow(1, columns), "7", given, **settings)


def compared(columns: dict[str, Any], **settings: Any) -> ComparisonInput:  # noqa: ANN401 - handed on
    return fields.read_comparison(
        choose_fields("compare", [*columns], {}, "rows.jsonl"), DataRow(1, columns), **settings
    )


# --- Which column gives which field


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        # Usual layouts of datasets.
        (
            "question answer contexts",
            "text from answer, description from question, sources from contexts",
        ),
        (
            "problem completion solution",
            "text from completion, description from problem, reference from solution",
        ),
        ("instruction input output", "text from output, description from instruction and input"),
        ("input question output", "text from output, description from question (not input)"),
        (
            "question answer prediction",
            "text from prediction (not answer), description from question",
        ),
        ("Actual-Output expectedOutput", "text from Actual-Output, reference from expectedOutput"),
        ("document summary", "text from summary, sources from document"),
        ("document", "text from document"),
        ("prompt messages", "conversation from messages, description from prompt"),
        ("messages completion x", "text from completion; not used: messages, x"),
        ("text label author", "text from text, author from author, label from label"),
        ("text TEXT", "text from text; not used: TEXT"),
        ("id text meta", "text from text; not used: id, meta"),
    ],
)
def test_columns_are_found_by_their_usual_names(columns: str, told: str) -> None:
    assert choose_fields("judge", columns.split(), {}, "rows.jsonl").describe() == told


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("question answer predicted_answer", "predicted_answer"),
        ("question answer generated_answer", "generated_answer"),
        ("question answer llm_answer", "llm_answer"),
        ("question answer hypothesis", "hypothesis"),
        ("question answer result", "result"),
        ("question answer gpt4_response", "gpt4_response"),
        ("question answer expected_response_2 gold_response", "answer"),
        ("question answer answer_id response_time output_tokens", "answer"),
        ("question answer notes", "answer"),
    ],
)
def test_what_the_model_said_goes_before_what_is_right(columns: str, text: str) -> None:
    assert choose_fields("judge", columns.split(), {}, "rows.jsonl").column_by_field["text"] == text


@pytest.mark.parametrize(
    ("columns", "both"),
    [
        ("question output response", "output, response"),
        ("question text prediction", "text, prediction"),
        ("question gpt_response claude_response", "gpt_response, claude_response"),
        ("question answer my_llm_answer", "answer, my_llm_answer"),
        ("question answer sql_predicted", "answer, sql_predicted"),
    ],
)
def test_where_two_columns_may_be_the_text_it_is_asked_which(columns: str, both: str) -> None:
    first, second = both.split(", ")
    with pytest.raises(UsageError) as caught:
        choose_fields("judge", columns.split(), {}, "rows.jsonl")
    problem = f"rows.jsonl: {both} may each be the text to judge"
    assert str(caught.value) == f"{problem}; choose with --map text={first} or --map text={second}"
    for column in (first, second):
        assert (
            choose_fields("judge", columns.split(), {"text": column}, "rows.jsonl").column_by_field[
                "text"
            ]
            == column
        )


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            "question model_a model_b winner response_a response_b",
            ARENA,
        ),
        ("prompt chosen rejected", "a from chosen, b from rejected, prompt from prompt"),
        ("a output_1 output_2", "a from output_1, b from output_2; not used: a"),
        ("prompt completions", "texts from completions, prompt from prompt"),
        ("a b texts", "a from a, b from b; not used: texts"),
    ],
)
def test_two_columns_that_belong_together_are_compared(columns: str, told: str) -> None:
    assert choose_fields("compare", columns.split(), {}, "rows.jsonl").describe() == told


def test_what_the_user_names_comes_first() -> None:
    columns = ["answer", "output", "question", "notes", "messages"]
    for given, told in (
        (
            ["text=notes"],
            "text from notes, description from question; not used: answer, output, messages",
        ),
        (
            ["text=notes", "description="],
            "text from notes; not used: answer, output, question, messages",
        ),
        (
            ["reference=answer"],
            "text from output, description from question, reference from answer; not used: notes, messages",
        ),
        (
            ["conversation=messages"],
            "conversation from messages, description from question; not used: answer, output, notes",
        ),
        (
            ["text=", "description="],
            "conversation from messages; not used: answer, output, question, notes",
        ),
    ):
        assert (
            choose_fields("judge", columns, fields.parse_map(given), "rows.jsonl").describe()
            == told
        )
    assert "used" not in choose_fields("judge", ["text", "key"], {}, "rows.jsonl").describe("key")
    many = choose_fields(
        "judge", ["text", "\x1b[31m", *(f"c{n}" for n in range(20))], {}, "rows.jsonl"
    ).describe()
    assert many.startswith(r"text from text; not used: \x1b[31m, c0, ")
    assert many.endswith("c10 and 9 more")


@pytest.mark.parametrize(
    ("columns", "given", "problem"),
    [
        ("a b", ["x"], "--map x: expected FIELD=COLUMN, such as text=answer"),
        ("a b", ["text=a", "text=b"], "--map text: given twice; give it once"),
        (
            "a b",
            ["txt=a"],
            f"--map txt=a: unknown field; use one of {', '.join(fields.USUAL_NAMES_BY_TASK['judge'])}",
        ),
        (
            "answr b",
            ["text=answer"],
            "--map text=answer: rows.jsonl has no such column (did you mean answr?); it has answr, b",
        ),
        (
            "a b",
            [],
            (
                "rows.jsonl: no column for text; name it with --map text=COLUMN, or compare these texts with "
                "judgekit compare --data. It has a, b"
            ),
        ),
        (
            "c d",
            [],
            "rows.jsonl: no column for text; name it with --map text=COLUMN. It has c, d",
        ),
        (
            "a b",
            ["text=a", "conversation=b"],
            "--map text and --map conversation: give only one of them",
        ),
    ],
)
def test_a_wrong_map_says_what_there_is(columns: str, given: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_fields("judge", columns.split(), fields.parse_map(given), "rows.jsonl")
    assert str(caught.value) == problem
    with pytest.raises(
        UsageError, match="no column for a and b; name it with --map a=COLUMN --map b=COLUMN"
    ):
        choose_fields("compare", ["answer"], {}, "rows.jsonl")


def test_the_page_lists_every_usual_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rows.md").read_text(encoding="utf-8")
    for field, names in (
        each for task in fields.USUAL_NAMES_BY_TASK.values() for each in task.items()
    ):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{field}` |")]
        assert line.rpartition(" | ")[2] == f"{', '.join(f'`{name}`' for name in names.split())} |"


# --- The parts of a document


def test_a_row_is_a_document_with_what_the_rubric_shows() -> None:
    columns = {
        "question": "Why?", "acceptance": "Short.", "answer": "So.", "gold": "Because.",
        "context": "It is so.", "author": "gpt-4o", "more": 1,
    }  # fmt: skip
    full, plain = judged(columns), judged(columns, Given())
    assert full.task == TaskDescription("Why?", "Short.", "Because.")
    assert plain.task == TaskDescription("Why?", "Short.")
    assert [(file.path, file.alias, file.text) for file in full.files] == [
        ("7", "text", "So."),
        ("source 1", "", "It is so."),
    ]
    assert plain.files == full.files[:1], (
        "a rubric without sources would judge them as parts of the text"
    )
    assert (full.author.family, full.task_id.partition("@")[0]) == ("gpt-4o", "7")
    # If the row says nothing, the command line does.
    fixed: Any = {"fixed": TaskDescription("Who?", "Long.", "It."), "family": "google"}
    bare = judged({"text": "So.", "question": " ", "gold": None, "author": ""}, **fixed)
    assert (bare.task, bare.author.family) == (TaskDescription("Who?", "Long.", "It."), "google")
    assert judged(columns, **fixed).task == full.task


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("So.", "So."),
        (42, "42"),
        (1.5, "1.5"),
        (True, "true"),
        ("\ud800 a", "? a"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_a_text_is_a_text_or_a_number(cell: object, text: str) -> None:
    assert judged({"text": cell}).files[0].text == text


@pytest.mark.parametrize("cell", [None, "", "  \n", "\u200b", float("nan")])
def test_a_row_without_a_text_is_not_judged(cell: object) -> None:
    for columns in ({"text": "a", "more": 1}, {"answer": "a"}):
        found = choose_fields("judge", [*columns], {}, "rows.jsonl")
        name = next(iter(columns))
        with pytest.raises(Unjudgeable, match=f"^{name}: empty; nothing to judge$"):
            fields.read_document(found, DataRow(2, {**columns, name: cell}), "2", ALL)
        with pytest.raises(Unjudgeable, match=f"^{name}: empty; nothing to judge$"):
            fields.read_document(found, DataRow(2, {}), "2", ALL)


@pytest.mark.parametrize(
    ("columns", "column", "problem"),
    [
        ({"answer": ["a"]}, "answer", "expected a text, got a list; a conversation is given with --map"),
        ({"answer": {"a": 1}}, "answer", "expected a text, got an object"),
        ({"text": "a", "gold": ["b", "c"]}, "gold", "got a list; to leave the column out: --map reference="),
        ({"text": "a", "context": [["b"]]}, "context", "got a list; to leave the column out: --map sources="),
        ({"text": "a", "context": [{"b": "c"}]}, "context", "expected a text, got an object"),
        ({"messages": 3}, "messages", "expected a list of messages with role and content, got a number"),
        ({"messages": "{"}, "messages", "of messages with role and content, got the text '{'"),
        ({"messages": "[" * 100_000}, "messages", "expected a list of messages with role and content, got"),
        ({"messages": ["hi"]}, "messages", "role and content; message 1 is a text"),
        ({"messages": [{"content": "a"}]}, "messages", "role and content; message 1 has no role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages", "message 1: expected a text or"),
        ({"messages": [{"role": "user", "tool_calls": [3]}]}, "messages", "message 1: expected an object"),
    ],
)  # fmt: skip
def test_a_cell_of_the_wrong_type_says_what_was_expected(
    columns: dict[str, Any], column: str, problem: str
) -> None:
    with pytest.raises(FieldError) as caught:
        judged(columns)
    assert caught.value.column == column
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("cell", "sources"),
    [
        ("One.", {"source 1": "One."}),
        (["One.", None, " ", 2], {"source 1": "One.", "source 4": "2"}),
        ('["One.", "Two."]', {"source 1": "One.", "source 2": "Two."}),
        ('{"minutes": "One."}', {"minutes": "One."}),
        ({"minutes": "One.", "study": "Two."}, {"minutes": "One.", "study": "Two."}),
        ({"text": "One.", "title": "A\nstudy"}, {"A study": "One."}),
        (
            [{"page_content": "One."}, {"content": "Two.", "id": 9}],
            {"source 1": "One.", "9": "Two."},
        ),
        (
            [{"chunk": "One.", "score": 1}, {"body": "Two."}],
            {"source 1": "One.", "source 2": "Two."},
        ),
        ([{"chunk": {"text": "One.", "id": "c"}}], {"c": "One."}),
        ([{"node": {"text": "One.", "id_": "n1"}, "score": 1}], {"n1": "One."}),
        ({"node": {"text": "One."}}, {"source 1": "One."}),
        ([{"passage": "One."}, {"snippet": "Two."}], {"source 1": "One.", "source 2": "Two."}),
        ([{"document": {"page_content": "One.", "metadata": {"title": "A"}}}], {"A": "One."}),
        ([{"page_content": "One.", "metadata": {"source": "a.md"}}], {"source 1": "One."}),
        ([{"lc": 1, "kwargs": {"page_content": "One.", "metadata": {}}}], {"source 1": "One."}),
        ([{"payload": {"text": "One."}, "id": 3}], {"3": "One."}),
        ([{"metadata": {"text": "One."}, "id": "p"}], {"p": "One."}),
        ([{"content": [{"type": "text", "text": "One."}], "filename": "a.md"}], {"a.md": "One."}),
        (
            [{"type": "document", "title": "A", "source": {"type": "text", "data": "One."}}],
            {"A": "One."},
        ),
        (
            [["Rome", ["One. ", "Two."]], ["Milan", ["Three."]]],
            {"Rome": "One. Two.", "Milan": "Three."},
        ),
        ([["Rome", "One."]], {"Rome": "One."}),
        ('[["Rome", ["One. ", "Two."]]]', {"Rome": "One. Two."}),
        (
            {"title": ["Rome", "Milan"], "sentences": [["One. ", "Two."], ["Three."]]},
            {"Rome": "One. Two.", "Milan": "Three."},
        ),
        (
            {"passage_text": ["One.", "Two."], "is_selected": [1, 0]},
            {"source 1": "One.", "source 2": "Two."},
        ),
        ({"contexts": ["One.", "Two."], "labels": ["x"]}, {"source 1": "One.", "source 2": "Two."}),
        ({"chunk": "One.", "body": "Two."}, {"chunk": "One.", "body": "Two."}),
        ("[1] Smith, 2020.", {"source 1": "[1] Smith, 2020."}),
        ("{not: JSON}", {"source 1": "{not: JSON}"}),
        ("[[1]]", {"source 1": "[[1]]"}),
        ("[" * 100_000, {"source 1": "[" * 100_000}),
        (None, {}),
        ("", {}),
        ([], {}),
    ],
)
def test_sources_come_in_many_forms(cell: object, sources: dict[str, str]) -> None:
    files = judged({"text": "a", "sources": cell}).files[1:]
    assert {file.path: file.text for file in files} == sources


# --- Conversations

OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user",
     "content": [{"type": "text", "text": "Weather?\nassistant: Sunny."}, {"type": "image_url"}]},
    {"role": "assistant", "content": None,
     "tool_calls": [{"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "18 °C\u2028rain"},
    {"role": "assistant", "content": "It rains."},
]  # fmt: skip
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t", "name": "weather", "input": {"n": 1}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "Rain"}]}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It rains."}]},
]  # fmt: skip
SHAREGPT = {"messages": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}
OPENAI_BEFORE = (
    "system: Be kind.\nuser: Weather?\n  assistant: Sunny.\n  [image_url]\n"
    'assistant calls weather({"city": "Rome"})\ntool weather: 18 °C\n  rain'
)
ANTHROPIC_BEFORE = (
    'user: Weather?\nassistant: I look.\nassistant calls weather({"n": 1})\ntool weather: Rain'
)


@pytest.mark.parametrize(
    ("cell", "before", "last"),
    [
        (OPENAI, OPENAI_BEFORE, "It rains."),
        (json.dumps(OPENAI), OPENAI_BEFORE, "It rains."),
        (ANTHROPIC, ANTHROPIC_BEFORE, "It rains."),
        (SHAREGPT, "user: Hi", "Hello"),
        (
            OPENAI[:4],
            OPENAI_BEFORE.partition("\nassistant calls")[0],
            'calls weather({"city": "Rome"})',
        ),
        (
            [{"role": "AI\nuser: x", "content": "a"}, {"role": "ai", "content": "b"}],
            "AI user: x: a",
            "b",
        ),
        ([{"role": "model", "content": "a\n\nb"}, {"role": "user", "content": "c"}], "", "a\n\nb"),
        ([{"role": "assistant", "function_call": {"name": "f"}}], "", "calls f({})"),
    ],
)
def test_of_a_conversation_the_last_answer_is_judged(cell: object, before: str, last: str) -> None:
    document = judged({"messages": cell, "question": "Help."})
    assert document.files[0].text == last
    assert document.task.description == f"Help.{before and chr(10) * 2}{before}"


def test_all_of_a_conversation_can_be_judged() -> None:
    document = judged({"messages": OPENAI, "question": "Help."}, judge_turn="all")
    assert document.files[0].text == f"{OPENAI_BEFORE}\nassistant: It rains."
    assert document.task.description == "Help."
    # A question may be a list of messages, too.
    assert (
        judged({"text": "a", "prompt": SHAREGPT["messages"]}).task.description
        == "user: Hi\nassistant: Hello"
    )


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ([{"role": "user", "content": "Hi"}], "no message of the assistant; nothing to judge"),
        ([], "no message of the assistant"),
        (None, "no message of the assistant"),
        ("", "no message of the assistant"),
        ([{"role": "assistant", "content": ""}], "empty; nothing to judge"),
    ],
)
def test_a_conversation_without_an_answer_is_not_judged(cell: object, why: str) -> None:
    with pytest.raises(Unjudgeable, match=f"^messages: {why}"):
        judged({"messages": cell})


RESPONSES_API: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I think"}]},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "Seen"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
]
GEMINI: dict[str, Any] = {
    "contents": [
        {
            "role": "user",
            "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": "x"}}],
        },
        {
            "role": "model",
            "parts": [{"text": "I think", "thought": True}, {"functionCall": {"name": "look"}}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"a": 1}}}]},
        {"role": "model", "parts": [{"text": "Hello"}]},
    ]
}
AI_SDK: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"type": "text", "text": "Hi"}]},
    {"role": "assistant", "parts": [
        {"type": "step-start"}, {"type": "reasoning", "text": "I think"},
        {"type": "tool-look", "toolCallId": "c", "input": {"n": 1}, "output": "Seen"}]},
    {"role": "assistant", "content": "", "parts": [{"type": "text", "text": "Hello"}]},
]  # fmt: skip
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "human", "content": "Hi"},
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "AIMessage"],
     "kwargs": {"content": "", "tool_calls": [{"name": "look", "args": {}, "id": "c"}]}},
    {"type": "tool", "data": {"content": "Seen", "tool_call_id": "c"}},
    {"type": "ai", "data": {"content": "Hello"}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "before", "last"),
    [
        (
            RESPONSES_API,
            "user: Hi\n  [input_image]\nassistant calls look({})\ntool look: Seen",
            "Hello",
        ),
        (GEMINI, 'user: Hi\n  [image]\nassistant calls look({})\ntool look: {"a": 1}', "Hello"),
        (AI_SDK, 'user: Hi\nassistant calls look({"n": 1})\ntool look: Seen', "Hello"),
        (LANGCHAIN, "user: Hi\nassistant calls look({})\ntool look: Seen", "Hello"),
        ([{"role": "assistant", "content": {"answer": "Rome."}}], "", "Rome."),
        ([{"role": "assistant", "content": None, "refusal": "I cannot."}], "", "I cannot."),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}], "", "No."),
        (
            [
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "x"}, {"text": "Yes"}],
                }
            ],
            "",
            "Yes",
        ),
    ],
)
def test_conversations_of_other_tools_are_read(cell: object, before: str, last: str) -> None:
    document = judged({"messages": cell})
    assert document.files[0].text == last
    assert document.task.description == before


HI = {"role": "user", "content": "Hi"}
BEDROCK: list[dict[str, Any]] = [
    {"role": "user", "content": [{"text": "Hi"}, {"image": {"format": "png", "source": {"bytes": "x"}}}]},
    {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "I think"}}}, {"text": "I look."},
        {"toolUse": {"toolUseId": "t", "name": "look", "input": {"n": 1}}}]},
    {"role": "user", "content": [
        {"toolResult": {"toolUseId": "t", "content": [{"json": {"a": 1}}, {"text": "Seen"}]}},
        {"cachePoint": {"type": "default"}}]},
    {"role": "assistant", "content": [{"text": "Hello"}]},
]  # fmt: skip
RESPONSE: dict[str, Any] = {
    "instructions": "Be kind.", "input": "Hi",
    "output": [
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}],
}  # fmt: skip
GEMINI_CODE: list[dict[str, Any]] = [
    {"parts": [{"text": "Hi"}]},
    {"role": "model", "parts": [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}]},
    {"role": "model", "parts": [{"function_call": {"name": "look", "args": {}}}]},
    {"role": "function", "parts": [{"function_response": {"name": "look", "response": {"a": 1}}}]},
    {"role": "model", "parts": [{"text": "Hello"}]},
]  # fmt: skip
AI_SDK_PARTS: list[dict[str, Any]] = [
    HI,
    {"role": "assistant", "content": "", "parts": [
        {"type": "tool-invocation",
         "toolInvocation": {"toolName": "look", "toolCallId": "c", "args": {"n": 1}, "result": "Seen"}},
        {"type": "data-weather", "data": {"n": 1}}]},
    {"role": "assistant", "parts": [{"type": "source-url", "url": "x"}, {"type": "text", "text": "Hello"}]},
]  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "before", "last"),
    [
        (
            BEDROCK,
            (
                "user: Hi\n  [image]\nassistant: I look.\n"
                'assistant calls look({"n": 1})\ntool look: {"a": 1}\n  Seen'
            ),
            "Hello",
        ),
        ({"system": [{"text": "x"}], "messages": BEDROCK[-1:]}, "", "Hello"),
        (RESPONSE, "system: Be kind.\nuser: Hi", "Hello"),
        ({"input": [HI], "output_text": "Hello"}, "user: Hi", "Hello"),
        ({"object": "list", "data": [HI, *RESPONSE["output"]]}, "user: Hi", "Hello"),
        (
            GEMINI_CODE,
            'user: Hi\nassistant calls code(1)\ntool code: 1\nassistant calls look({})\ntool look: {"a": 1}',
            "Hello",
        ),
        (
            AI_SDK_PARTS,
            'user: Hi\nassistant: [data-weather]\nassistant calls look({"n": 1})\ntool look: Seen',
            "[source-url]\nHello",
        ),
        (
            [
                {"type": "HumanMessage", "content": "Hi"},
                {"type": "AIMessageChunk", "content": "Hello"},
            ],
            "user: Hi",
            "Hello",
        ),
        (
            {
                "messages": [
                    [{"type": "human", "content": "Hi"}, {"type": "ai", "content": "Hello"}]
                ]
            },
            "user: Hi",
            "Hello",
        ),
        (
            [{"speaker": "user", "text": "Hi"}, {"speaker": "bot", "text": "Hello"}],
            "user: Hi",
            "Hello",
        ),
        (
            [{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Hello"}],
            "user: Hi",
            "Hello",
        ),
        (
            {"messages": [HI], "choices": [{"message": {"role": "assistant", "content": "Hello"}}]},
            "user: Hi",
            "Hello",
        ),
        (
            {"contents": [HI], "candidates": [{"content": {"parts": [{"text": "Hello"}]}}]},
            "user: Hi",
            "Hello",
        ),
        (
            [HI, {"role": "assistant", "content": None, "audio": {"transcript": "Hello"}}],
            "user: Hi",
            "Hello",
        ),
        (
            [
                {"role": "user", "content": [{"type": "search_result", "content": []}]},
                {
                    "role": "assistant",
                    "content": [{"citationsContent": {"content": [{"text": "Hello"}]}}],
                },
            ],
            "user: [search_result]",
            "Hello",
        ),
        (
            [
                {"role": "user", "content": [{"guardContent": {"text": {"text": "Hi"}}}]},
                RESPONSE["output"][1],
            ],
            "user: Hi",
            "Hello",
        ),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"type": "custom", "custom": {"name": "look", "input": "x"}}],
                },
                RESPONSE["output"][1],
            ],
            "assistant calls look(x)",
            "Hello",
        ),
    ],
)
def test_conversations_in_more_forms_are_read(cell: object, before: str, last: str) -> None:
    document = judged({"messages": cell})
    assert document.files[0].text == last
    assert document.task.description == before


@pytest.mark.parametrize(
    "cell",
    [
        [HI, {"role": "assistant", "content": "Hello"}],
        [{"role": "assistant", "content": "Hello"}],
        {"role": "assistant", "content": "Hello"},
        {"role": "model", "parts": [{"text": "Hello"}]},
        RESPONSE["output"],
    ],
)
def test_messages_in_the_place_of_a_text_are_read(cell: object) -> None:
    assert judged({"output": cell}).files[0].text == "Hello"


def test_messages_in_the_place_of_a_text_bring_what_was_said_before() -> None:
    cell = [HI, {"role": "assistant", "content": "Hello"}]
    assert judged({"output": cell}).task.description == "user: Hi"


@pytest.mark.parametrize(
    ("columns", "description"),
    [
        ({"instruction": "Sum up.", "input": "A story."}, "Sum up.\n\nA story."),
        ({"instruction": "Sum up.", "input": ""}, "Sum up."),
        ({"instruction": "Sum up.", "input": None}, "Sum up."),
        ({"instruction": "", "input": "A story."}, "A story."),
        ({"Instruction": "Add.", "Input": 3}, "Add.\n\n3"),
        ({"question": "Why?", "instruction": "Sum up.", "input": "A story."}, "Why?"),
    ],
)
def test_an_instruction_goes_on_with_its_input(columns: dict[str, Any], description: str) -> None:
    assert judged({**columns, "output": "a"}).task.description == description


def test_the_prompt_of_two_texts_goes_on_with_the_input() -> None:
    columns = {"instruction": "Sum up.", "input": "A story.", "output_1": "a", "output_2": "b"}
    assert compared(columns).prompt == "Sum up.\n\nA story."


def test_two_messages_are_compared() -> None:
    said = [{"role": "assistant", "content": text} for text in ("Yes", "No")]
    found = compared({"prompt": "Why?", "response_a": said[0], "response_b": said[1]})
    assert [file.text for file in found.files] == ["Yes", "No"]


def test_what_two_conversations_share_is_their_prompt() -> None:
    sides = [[HI, {"role": "assistant", "content": text}] for text in ("Yes", "No")]
    found = compared({"chosen": sides[0], "rejected": sides[1]})
    assert found.prompt == "Hi"
    assert [file.text for file in found.files] == ["Yes", "No"]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            {"role": "assistant", "content": {"answer": "Rome", "sure": True}},
            "got an object with the keys answer, sure",
        ),
        (
            {"role": "assistant", "content": [{"type": "chart", "data": [1]}]},
            "got a part of the type chart",
        ),
        (
            {"role": "assistant", "content": 7},
            "expected a text or a list of parts as content, got a number",
        ),
        ({"role": "assistant", "body": "Rome"}, "expected content or parts, got only role, body"),
        ({"content": "Rome"}, "message 1 has no role"),
        ("Rome", "message 1 is a text"),
    ],
)
def test_what_is_not_understood_is_never_half_read(message: object, problem: str) -> None:
    for judge_turn in ("last", "all"):
        with pytest.raises(FieldError, match="message 1") as caught:
            judged({"messages": [message]}, judge_turn=judge_turn)
        assert caught.value.column == "messages"
        assert problem in str(caught.value)


def test_a_conversation_of_blanks_is_not_judged() -> None:
    blank = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": [{"type": "thinking"}]},
    ]
    for judge_turn in ("last", "all"):
        with pytest.raises(Unjudgeable):
            judged({"messages": blank}, judge_turn=judge_turn)


# --- Comparisons and labels


def test_two_conversations_are_compared_by_their_last_answers() -> None:
    said = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    other = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "No."}]
    found = compared({"prompt": "Why?", "chosen": said, "rejected": other})
    assert [file.text for file in found.files] == ["So.", "No."]


def test_a_row_can_hold_texts_to_compare() -> None:
    pair = {
        "question": "Why?",
        "answer_a": "So.",
        "answer_b": "No.",
        "model_a": "gpt-4o",
        "model_b": None,
    }
    found = compared(pair, prompt="Who?", families=["google"])
    assert (found.prompt, found.authors) == ("Why?", ("gpt-4o", "google"))
    assert [(file.path, file.text) for file in found.files] == [("A", "So."), ("B", "No.")]
    for cell in (["x", "y", 3], '["x", "y", 3]'):
        several = compared({"responses": cell}, prompt="Who?", families=["google", None])
        assert (several.prompt, several.authors) == ("Who?", ("google", None, None))
        assert [file.text for file in several.files] == ["x", "y", "3"]
    lacking: list[tuple[dict[str, Any], str]] = [
        ({"a": "x", "b": " "}, "b"),
        ({"texts": ["x", ""]}, "texts B"),
    ]
    for columns, column in lacking:
        with pytest.raises(Unjudgeable, match=f"^{column}: empty; nothing to compare"):
            compared(columns)
    for wrong, got in (
        (["x"], "1 of them"),
        ("x", "a text"),
        (["x"] * 27, "27 of them"),
        (None, "nothing"),
    ):
        with pytest.raises(
            FieldError, match=f"^texts: expected a list of 2 to 26 texts, got {got}"
        ):
            compared({"texts": wrong})


@pytest.mark.parametrize(
    ("words", "letter"),
    [
        (("A", "a ", "model_a", "Answer A", "first", "[[A]]", "gpt-4o", "left"), "A"),
        (("B", "model-b", "assistant_b", "rejected", "claude"), "B"),
        (("tie", "Tie", "tie (bothbad)", "both_bad", "draw", "equal"), "tie"),
        ((1, "1", 1.0), "1"),
        ((2, "2", [0, 1]), "2"),
        (("", None), ""),
    ],
)
def test_a_winner_is_a_letter_or_a_tie(words: tuple[object, ...], letter: str) -> None:
    found = choose_fields(
        "compare", ["answer_a", "answer_b", "model_a", "model_b", "winner"], {}, "rows.jsonl"
    )
    for word in words:
        named = row(winner=word, model_a="gpt-4o", model_b="claude")
        assert fields.read_winner(found, named) == letter, word
    found = choose_fields(
        "compare", ["answer_a", "answer_b", "model_a", "model_b", "winner"], {}, ""
    )
    for word in ("who knows", True, "c", ["A"], "same-model"):
        named = row(winner=word, model_a="same-model", model_b="same-model")
        assert fields.read_winner(found, named).startswith(NOT_UNDERSTOOD_PREFIX), word
    own = Fields({"a": "ours", "b": "theirs", "winner": "won"}, {}, [])
    assert [fields.read_winner(own, row(won=word)) for word in ("Theirs", "ours")] == ["B", "A"]
    assert fields.read_winner(Fields({"a": "ours", "b": "theirs"}, {}, []), row(won="ours")) == ""


# --- What decides what is sent


def test_the_content_of_a_row_is_what_is_sent_and_nothing_else() -> None:
    columns = {"text": "a", "question": "q", "gold": "g", "context": ["s"], "more": 1}
    same = fields.hash_content(judged(columns))
    found = choose_fields("judge", [*columns], {}, "rows.jsonl")
    assert (
        fields.hash_content(
            fields.read_document(found, DataRow(9, columns | {"more": 2}), "other", ALL)
        )
        == same
    )
    for change in (
        {"text": "b"},
        {"question": "r"},
        {"gold": "h"},
        {"context": ["s", "t"]},
        {"author": "x"},
    ):
        assert fields.hash_content(judged(columns | change)) != same, change
    assert fields.hash_content(judged(columns, Given())) == fields.hash_content(
        judged(columns | {"gold": "h"}, Given())
    )
    moved = judged({"text": "a", "question": "", "acceptance": "q", "gold": "g", "context": ["s"]})
    assert fields.hash_content(moved) != same
    pair = {"a": "x", "b": "y", "prompt": "p", "more": 1}
    assert fields.hash_content(compared(pair)) == fields.hash_content(compared(pair | {"more": 2}))
    for change in ({"a": "z"}, {"a": "y", "b": "x"}, {"prompt": "r"}, {"author_b": "google"}):
        assert fields.hash_content(compared(pair | change)) != fields.hash_content(
            compared(pair)
        ), change
