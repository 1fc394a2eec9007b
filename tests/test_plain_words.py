"""Wrong values at every key of every schema: the error names the key and the expected value."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import document
from ledger_lines import label, verdict
from pydantic import TypeAdapter, ValidationError

from judgekit.config import files as bundled
from judgekit.config.settings import Config
from judgekit.config.yamlfile import explain_first_error, load_yaml
from judgekit.engine import app
from judgekit.engine.team import LinesBody, TeamBody
from judgekit.evaluation import cases as labelled
from judgekit.ledger import records
from judgekit.providers import replay
from judgekit.providers.registry import ProfileFile
from judgekit.retrieval import profiles
from judgekit.rubric import schema as cases
from judgekit.rubric.schema import RubricFile

if TYPE_CHECKING:
    from collections.abc import Iterator

WRONG: tuple[Any, ...] = (
    None, True, 7, -1, 0.5, math.nan, math.inf, 10**30, "", "?", "x" * 5000, "\n", [], [7], [[]], ["a", "a"],
    {}, {"x": 7}, {"": {}}, {"strict": 7}, [{}], [None],
)  # fmt: skip
MARKS = re.compile(
    r"constrained|function-|tagged-union|literal\[|list\[|dict\[|nullable|is-instance|\[key\]|json-or-python"
    r"|Input should|String should|Value should|List should|Dictionary|Assertion|pydantic|ValidationError"
    r"|lax-or-strict|union|model-type|instance of|Unable to|frozen|valid (string|integer|number|dict|list)"
    r"|Object should|Keys should|tuple|timezone|Decimal|regexp|str\b|NoneType|ScalarFloat|CommentedMap",
    re.IGNORECASE,
)  # fmt: skip


def bundled_file(folder: str, name: str) -> dict[str, Any]:
    return load_yaml(Path(bundled.get_data_folder(folder)) / name)


def files(folder: str, pattern: str = "*.yaml") -> list[dict[str, Any]]:
    return [load_yaml(path) for path in sorted(bundled.get_data_folder(folder).glob(pattern))]


def lines(folder: str, pattern: str) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text().split("\n")[0])
        for path in bundled.get_data_folder(folder).glob(pattern)
    ]


def case_lines(task: str) -> list[dict[str, Any]]:
    names = [file["rubric"] for file in files("rubrics") if file["task"] == task]
    return lines("rubrics", f"{names[0]}@*.cases.jsonl")


def line_of_ledger(record: records.Record) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(records.serialise_record(record))
    return found


VERDICT = verdict()
LABELLED = {
    "id": "a",
    "text": "t",
    "files": {"b": "c"},
    "candidates": [{"id": "c", "title": "d"}],
    "label": {"strict": "accept", "lenient": ["a"]},
    "judges": {"deep": {"jury": [{"scores": {"semantic": 4}}]}, "quick": {"reply": "x"}},
}
RECORDING = {
    "replay": 1, "subject": "a", "rubric": "kls@1.0.0", "tier": "quick", "model": "m",
    "reply": {"text": "{}", "model": "m", "logprobs": [{"a": 0.5}]},
}  # fmt: skip
LANGUAGE = {
    "language": "English", "version": "1.0.0", "stop": ["the"], "common": ["use"],
    "prefix": {"min_length": 3}, "irregular": {"ran": "run"}, "abbreviations": {"db": ["data base"]},
}  # fmt: skip
LABEL = label(VERDICT, "go")
SKIP = records.Skip(variable="JUDGEKIT_SKIP", who="ada", terminal=True)
OVERRIDE = records.OverrideLine(task_id="a", decision="accept", why="y", who="ada", terminal=True)
CARRIED = {"environ": {"A": "b"}, "cwd": "/"}
by_task = {file["task"]: file for file in files("rubrics")}
EXAMPLES: dict[str, tuple[Any, list[Any]]] = {
    "rubric": (RubricFile, [by_task[each] for each in ("score", "select", "compare")]),
    "provider": (ProfileFile, files("providers", "[co][lp]*.yaml")),
    "retrieval": (profiles.RetrievalProfileFile, [files("retrieval", "claude-memory.yaml")[0]]),
    "language": (profiles.LanguageFile, [LANGUAGE]),
    "configuration": (Config, [Config().model_dump(mode="json")]),
    "score cases": (cases.ScoreCase, case_lines("score")),
    "select cases": (cases.SelectCase, case_lines("select")),
    "compare cases": (cases.CompareCase, case_lines("compare")),
    "labelled cases": (labelled.Case, [LABELLED]),
    "queries": (labelled.CollectionQuery, [{"id": "a", "text": "b"}]),
    "recordings": (replay.RecordedLine, [RECORDING]),
    "ledger": (records.Line, [line_of_ledger(each) for each in (VERDICT, LABEL, SKIP, OVERRIDE)]),
    "shared judge": (TeamBody, [{"document": document(), "wish": {"rubric": "kls", "deadline": 3}}]),
    "shared ledger": (LinesBody, [{"lines": [{}]}]),
    "engine": (app.JudgeBody, [{**CARRIED, "document": document(), "wish": {"mode": "strict"}}]),
}  # fmt: skip


def mutated(data: Any, *, inner: bool = False) -> Iterator[Any]:  # noqa: ANN401 - any JSON
    """Yield data with one value at a time replaced, one key too many, and one that is missing."""
    if inner:
        yield from WRONG
    if isinstance(data, dict):
        yield {**data, "no-such-key": 1}
        for key, value in data.items():
            yield {name: each for name, each in data.items() if name != key}
            for changed in mutated(value, inner=True):
                yield {**data, key: changed}
    elif isinstance(data, list) and data:
        for changed in mutated(data[0], inner=True):
            yield [changed, *data[1:]]


def keys(data: Any) -> set[str]:  # noqa: ANN401 - any JSON
    """Return all keys of mappings, and places in lists, in some data."""
    inside = (
        data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
    )
    return {str(key) for key in inside}.union(*map(keys, inside.values()))


SLOW = {"rubric"}  # whose examples have many keys


@pytest.mark.parametrize(
    "schema",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in EXAMPLES],
)
def test_what_is_wrong_is_said_in_plain_words_and_with_the_keys_of_the_file(schema: str) -> None:
    model, examples = EXAMPLES[schema]
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    known = keys(adapter.json_schema())
    found: set[str] = set()
    for example in examples:
        adapter.validate_python(example)
        for data in mutated(example):
            try:
                adapter.validate_python(data)
            except ValidationError as error:
                told = explain_first_error(error.errors(include_url=False), data)
                assert {str(part) for part in told.location} <= keys(data) | known, told
                assert told.text.strip()
                assert "\n" not in told.text
                found.add(re.sub(r", got .*", "", told.text))
    assert found
    assert [each for each in found if MARKS.search(each)] == []


def test_a_scale_without_end_costs_nothing() -> None:
    endless = copy.deepcopy(by_task["score"])
    endless["scale"]["max"] = 10**15
    with pytest.raises(ValidationError, match="one label for each whole number"):
        RubricFile.model_validate(endless)
