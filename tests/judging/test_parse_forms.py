"""Forms that models give their answers, and that are read: each row is one answer."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, ValidationError

from judgekit.errors import InvalidReply
from judgekit.judging.extract import extract

if TYPE_CHECKING:
    from collections.abc import Mapping


WRAPPED = {
    "bare": '{"relevance": 2}',
    "prose before": 'Having read both texts, I answer:\n\n{"relevance": 2}',
    "prose after": '{"relevance": 2}\n\nThe passage names the river but not its length.',
    "braces in prose": 'The set {a, b} and {x} are not it, {"relevance": 2} is, not {} or { }.',
    "fence": '```json\n{"relevance": 2}\n```',
    "fence without a language": '```\n{\n  "relevance": 2\n}\n```\nAnything else?',
    "unclosed fence": '```json\n{"relevance": 2}',
    "thinking": '<think>It could be {"relevance": 0}, or not.</think>\n{"relevance": 2}',
    "end of thinking alone": 'Maybe 3, maybe {"relevance": 2}?\n</think>\n\n{"relevance": 2}',
    "thinking that breaks off": '<think>Start {"relevance": 3, "explanation": "as</think>{"relevance": 2}',
    "thinking that opens a brace": '<think>Shape: {"relevance": the number}</think>{"relevance": 2}',
    "only in thinking": '<think>So {"relevance": 2} it is.</think>\nThe answer is above.',
    "list": '[{"relevance": 2}]',
    "list that trails off": '[{"relevance": 2},',
    "second verdict that is the same": '{"relevance": 2}\nOn reflection:\n{"relevance": 2}',
    "second verdict that is none": '{"relevance": 2}\nOn reflection:\n{"relevance": "high"}',
    "second verdict that trails off": '{"relevance": 2}\nOn reflection:\n{"relevance": 3',
    "placeholder echoed": 'Format: {"relevance": <0-3>}\n{"relevance": 2}',
    "placeholder after": '{"relevance": 2} as asked: {"relevance": 0|1|2|3}',
    "schema echoed": '{"type": "object", "properties": {"relevance": {"type": "integer", "minimum": 0}}}\n'
    '{"relevance": 2}',
    "wrapped": '{"result": {"relevance": 2}}',
    "wrapped twice": '{"status": "ok", "response": {"evaluation": {"relevance": 2}}}',
    "wrapped in a list": '{"results": [{"relevance": 2}]}',
    "byte order mark": '\ufeff{"relevance": 2}',
    "text around without a space": 'json{"relevance": 2}</s><|im_end|>',
    "surplus brace": '{"relevance": 2}}',
}

MISSPELT = {
    "quoted number": '{"relevance": "2"}',
    "quoted with spaces": '{"relevance": " 2 "}',
    "float": '{"relevance": 2.0}',
    "quoted float": '{"relevance": "2.0"}',
    "score inside": '{"relevance": {"score": 2, "why": "It names the river."}}',
    "value inside, quoted": '{"relevance": {"Value": "2"}}',
    "case": '{"Relevance": 2}',
    "single quotes": "{'relevance': 2, 'explanation': 'It\\'s close.'}",
    "apostrophe in single quotes": "{'explanation': 'It's close, isn't it', 'relevance': 2}",
    "Python literals": "{'done': True, 'next': None, 'relevance': 2}",
    "bare key": "{relevance: 2}",
    "bare keys": '{explanation: "the "old", known one", relevance: 2}',
    "bare value": '{"level": high, "relevance": 2}',
    "typographic quotes": "{“relevance”: 2, “explanation”: “It says “close”, no more”}",
    "typographic end": '{"explanation”: "It is close.”, "relevance”: 2}',
    "trailing comma": '{"explanation": "Close.", "relevance": 2,}',
    "line comment": '{\n  // the grade\n  "relevance": 2 // of three\n}',
    "hash comment": '{\n  "relevance": 2, # of three\n  "explanation": "Close."\n}',
    "block comment": '{"relevance": /* of three */ 2 /* good */, "explanation": "Close."}',
    "comment after the brace": '{ // verdict\n"relevance": 2}',
    "unescaped quotes": '{"explanation": "The gun is a "Bofors" of 1936.", "relevance": 2}',
    "unescaped quotes with a comma": '{"explanation": "Of the "Bofors", a gun, it says", "relevance": 2}',
    "unescaped quotes at both ends": '{"explanation": ""Bofors" is not "Oerlikon"", "relevance": 2}',
    "unescaped quotes with a colon": '{"explanation": "It says "gun": a "Bofors".", "relevance": 2}',
    "unescaped object in a string": '{"explanation": "It holds {"level": 3} as text", "relevance": 2}',
    "escaped object in a string": '{"relevance": 2, "explanation": "It holds {\\"relevance\\": 3}."}',
    "raw newlines": '{"explanation": "First.\n\n- Second.\n", "relevance": 2}',
    "bad escapes": '{"explanation": "50\\% of \\alpha, it\\\'s \\u00e9 and \\u00", "relevance": 2}',
    "missing comma": '{"explanation": "Close." "relevance": 2}',
    "missing commas, one a line": '{\n  "relevance": 2\n  "explanation": "Close."\n}',
    "missing comma after an object": '{"more": {"a": 1} "relevance": 2}',
    "doubled comma": '{"explanation": "Close.",, "relevance": 2}',
    "another value missing": '{"level": , "relevance": 2}',
    "the same twice": '{"relevance": 2, "explanation": "Close.", "relevance": 2}',
    "restated behind, as another key": '{"relevance": 2}, "explanation": "Close."}',
    "never closed": '{"relevance": 2, "explanation": "Close."',
    "never closed, then prose": '{"relevance": 2, "explanation": "Close."\n\nHope this helps!',
    "never closed, with a comma": '{"relevance": 2,\n\nThe passage is close.',
    "broken in a string": '{"relevance": 2, "explanation": "The passa',
    "broken in a list": '{"relevance": 2, "explanation": ["a", "b"',
    "broken in a key": '{"relevance": 2, "expl',
    "broken after a key": '{"relevance": 2, "explanation"',
    "broken after a colon": '{"relevance": 2, "confidence":',
    "broken after the comma": '{"relevance": 2,',
    "broken after the line": '{\n  "relevance": 2\n',
    "quoted, broken after the comma": '{"relevance": "2",',
    "broken, then a fence": '```json\n{\n  "relevance": 2\n```',
    "explanation first, first broken": '{"explanation": "It\n{"explanation": "is", "relevance": 2}',
    "lone surrogate": '{"explanation": "\ud83d", "relevance": 2}',
    "NUL": '{"explanation": "\0", "relevance": 2}\0',
}

SCORES = {
    "as asked": '{"reasoning": "Fine.", "scores": {"semantic": 4, "pragmatic": 3, "syntactic": 5}}',
    "flat": '{"reasoning": "Fine.", "semantic": 4, "pragmatic": 3, "syntactic": 5}',
    "objects": '{"reasoning": "Fine.", "scores": {"semantic": {"score": 4, "why": "a"}, '
    '"pragmatic": {"score": "3"}, "syntactic": {"rating": 5.0}}}',
    "flat objects": '{"reasoning": "Fine.", "semantic": {"score": 4}, "pragmatic": {"score": 3}, '
    '"syntactic": {"score": 5}}',
    "list": '{"reasoning": "Fine.", "scores": [{"dimension": "semantic", "score": 4}, '
    '{"dimension": "Pragmatic", "score": 3}, {"dimension": "syntactic", "score": "5"}]}',
    "other name": '{"reasoning": "Fine.", "ratings": {"semantic": 4, "pragmatic": 3, "syntactic": 5}}',
    "wrapped": '{"result": {"reasoning": "Fine.", "scores": {"Semantic": 4, "pragmatic": 3, "SYNTACTIC":5}}}',
    "verdict added": '{"reasoning": "Fine.", "scores": {"semantic": 4, "pragmatic": 3, "syntactic": 5, '
    '"mean": 4.0}, "verdict": "accept"}',
    "never closed": '{"reasoning": "Fine.", "scores": {"semantic": 4, "pragmatic": 3, "syntactic": 5}',
    "never closed inside": '{"reasoning": "Fine.", "scores": {"semantic": 4, "pragmatic": 3, "syntactic": 5,',
    "scores first": '{"scores": {"semantic": 4, "pragmatic": 3, "syntactic": 5}, "reasoning": "Fine.", "fin',
}


@pytest.mark.parametrize("raw", [*WRAPPED.values(), *MISSPELT.values()], ids=[*WRAPPED, *MISSPELT])
def test_one_number_is_read(raw: str, relevance: type[BaseModel]) -> None:
    assert extract(raw, relevance).model_dump()["relevance"] == 2


@pytest.mark.parametrize("raw", SCORES.values(), ids=SCORES)
def test_scores_are_read_nested_and_flat(raw: str, nested: type[BaseModel], flat: type[BaseModel]) -> None:
    wanted = {"semantic": 4, "pragmatic": 3, "syntactic": 5}
    assert extract(raw, nested).model_dump() == {"reasoning": "Fine.", "scores": wanted}
    assert extract(raw, flat).model_dump() == {"reasoning": "Fine.", **wanted}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"relevance": 1, "explanation": "a \\"b\\" c"}', 'a "b" c'),
        ('{"relevance": 1, "explanation": "a "b", c"}', 'a "b", c'),
        ('{"relevance": 1, "explanation": "\\u00e9\\ud83d\\ude00\\n\\/"}', "é😀\n/"),
        ('{"relevance": 1, "explanation": "\\ud83d"}', "�"),
        ('{"relevance": 1, "explanation": "50\\% \\alpha"}', "50\\% \\alpha"),
        ('{"relevance": 1, "explanation": "a\nb"}', "a\nb"),
        ('{"relevance": 1, "explanation": "“a”, b"}', "“a”, b"),
        ('{"relevance": 1, "explanation": "{\\"a\\": [1}"}', '{"a": [1}'),
        ("{'relevance': 1, 'explanation': 'it's \"a\"'}", 'it\'s "a"'),
        ('{"relevance": 1, "explanation": 12}', "12"),
        ('{"relevance": 1, "explanation": null}', ""),
    ],
)
def test_text_is_kept(raw: str, text: str, relevance: type[BaseModel]) -> None:
    assert extract(raw, relevance).model_dump() == {"relevance": 1, "explanation": text}


class Grade(enum.Enum):
    HIGH = "High Quality"
    LOW = "Low Quality"


class Kinds(BaseModel):
    winner: Literal["A", "B", "tie"] | None = None
    level: Literal[1, 2] = 1
    grade: Grade = Grade.LOW
    keep: list[str] = []
    weights: dict[str, int] = {}
    pair: tuple[int, str] = (0, "")
    share: float | None = None
    either: int | str = 0
    flag: bool = False
    more: Any = None


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ('{"winner": "TIE"}', {"winner": "tie"}),
        ('{"winner": " b "}', {"winner": "B"}),
        ('{"winner": null}', {"winner": None}),
        ('{"level": "2"}', {"level": 2}),
        ('{"level": 2.0}', {"level": 2}),
        ('{"grade": "high quality"}', {"grade": Grade.HIGH}),
        ('{"keep": ["a1", "b2"]}', {"keep": ["a1", "b2"]}),
        ('{"keep": [a1, b2]}', {"keep": ["a1", "b2"]}),
        ('{"keep": ["a1" \n "b2",]}', {"keep": ["a1", "b2"]}),
        ('{"keep": [7, 12]}', {"keep": ["7", "12"]}),
        ('{"keep": ["say "a", or b", "c"]}', {"keep": ['say "a", or b', "c"]}),
        ('{"keep": []}', {"keep": []}),
        ('{"keep": null}', {"keep": []}),
        ('{"weights": {"a": "1", "b": {"score": 2}}}', {"weights": {"a": 1, "b": 2}}),
        ('{"weights": [{"name": "a", "score": 1}]}', {"weights": {"a": 1}}),
        ('{"pair": ["1", "x"]}', {"pair": (1, "x")}),
        ('{"share": "0.25"}', {"share": 0.25}),
        ('{"share": 1}', {"share": 1.0}),
        ('{"either": "x"}', {"either": "x"}),
        ('{"flag": True}', {"flag": True}),
        ('{"flag": "false"}', {"flag": False}),
        ('{"more": {"a": [1, {"b": null}]}}', {"more": {"a": [1, {"b": None}]}}),
    ],
)
def test_kinds_of_values(raw: str, wanted: Mapping[str, object]) -> None:
    read = extract(raw, Kinds)
    assert {name: getattr(read, name) for name in read.model_fields_set or wanted} == wanted


class Aliased(BaseModel):
    overall: int = Field(validation_alias=AliasChoices("O", "overall"))
    topic: int = Field(alias="T")
    final_score: int = 0


@pytest.mark.parametrize(
    "raw",
    ['{"O": 2, "T": 1, "final_score": 3}', '{"Overall": 2, "t": 1, "Final Score": 3, "other": {}}'],
)
def test_aliases_and_alike_keys(raw: str) -> None:
    read = extract(raw, Aliased)
    assert (read.overall, read.topic, read.final_score) == (2, 1, 3)


def test_an_exact_key_wins_over_an_alike_one(relevance: type[BaseModel]) -> None:
    assert extract('{"RELEVANCE": 1, "relevance": 2}', relevance).model_dump()["relevance"] == 2


def test_a_root_model_is_read() -> None:
    class Weights(RootModel[dict[str, int]]):
        pass

    assert extract('So: {"a": "1", "b": 2}', Weights).root == {"a": 1, "b": 2}


@pytest.mark.parametrize(("extra", "read"), [("ignore", True), ("allow", True), ("forbid", False)])
def test_the_models_own_setting_decides_about_extras(
    extra: Literal["ignore", "allow", "forbid"], *, read: bool
) -> None:
    class Configured(BaseModel):
        model_config = ConfigDict(extra=extra)
        relevance: int

    if read:
        assert extract('{"relevance": 1, "note": "x"}', Configured).relevance == 1
    else:
        with pytest.raises(InvalidReply, match="note"):
            extract('{"relevance": 1, "note": "x"}', Configured)


def test_a_model_in_strict_mode_gets_numbers() -> None:
    class Exact(BaseModel):
        model_config = ConfigDict(strict=True)
        relevance: int

    with pytest.raises(ValidationError):
        Exact.model_validate({"relevance": "2"})
    assert extract('{"relevance": "2"}', Exact).relevance == 2
    assert extract('{"relevance": 2.0}', Exact).relevance == 2
