"""Wrong arguments of the Python API: one error of ours that names the argument, whatever was passed."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import judgekit
from judgekit import InputError, JudgekitError, UsageError, config
from judgekit.providers import servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TEXTS = {"a": "One text.", "b": "Another."}
NO_TEXT = (7, b"bytes", ["a"], {"a": 1}, object())


def text(**given: Any) -> object:  # noqa: ANN401 - wrong on purpose
    return judgekit.judge_texts(
        {"a": judgekit.Text(**{"text": "One."} | given)}, rubric="groundedness"
    )


def rows(**given: Any) -> list[object]:  # noqa: ANN401 - wrong on purpose
    return [*judgekit.judge_rows(**{"rows": [{"text": "One."}]} | given)]


class Odd:
    """What Python itself cannot show."""

    def __repr__(self) -> str:
        raise RuntimeError


WRONG: list[tuple[Callable[..., Any], dict[str, Any], str, tuple[Any, ...]]] = [
    *(
        (call, {}, name, values)
        for call, (name, values) in product(
            (
                lambda **given: judgekit.judge_texts(TEXTS, **given),
                lambda **given: judgekit.judge("a.md", **given),
                lambda **given: judgekit.compare("x", "y", prompt="p", **given),
            ),
            {
                "mode": ("loose", "", 7, ["strict"], b"strict"),
                "rubric": ("no-such", "", "../x", "KLS", *NO_TEXT),
                "deadline": (0, -1, float("nan"), float("inf"), "9", True, [1]),
                "max_cost_usd": (-1, float("nan"), float("inf"), "9", True, [1]),
                "author_family": (7, b"x", {"a": 1}, [7]),
                "model": ("", " ", *NO_TEXT),
                "cache": (None, 0, 1, "yes"),
            }.items(),
        )
    ),
    *(
        (call, {}, "concurrency", (0, -1, 257, 1.5, "8", None, True))
        for call in (
            judgekit.judge,
            lambda concurrency: judgekit.judge_texts(TEXTS, concurrency=concurrency),
        )
    ),
    (lambda **given: judgekit.judge("a.md", **given), {}, "explain", (None, 0, 1, "yes", [True])),
    (
        judgekit.judge_texts,
        {},
        "texts",
        ({}, [], ["a"], "a", None, 7, {1: "a"}, {"a": None}, {"a": b"b"}),
    ),
    *(
        (text, {}, name, values)
        for name, values in {
            "text": (None, "", "\u200b", *NO_TEXT),
            **dict.fromkeys(("description", "acceptance", "reference"), (None, *NO_TEXT)),
            "author_family": NO_TEXT,
            "sources": ("one", b"two", 7, [7], [None], [""], {7: "a"}, {"a": 7}, {"a": " "}, None),
        }.items()
    ),
    *(
        (rows, {}, name, values)
        for name, values in {
            "rows": (None, 7, "text", b"", [], [7], [["text"]], [{"other": "One."}]),
            "fields": (7, ["text"], {"text": 7}, {"nope": "text"}, {"text": "nope"}),
            "id_column": (7, "nope"),
            "task": (None, "score", 7),
            "judge_turn": (None, "first", 7),
            "as_completed": (None, 1, "yes"),
            "concurrency": (0, None),
            "description": (None, 7),
        }.items()
    ),
    (lambda paths: judgekit.judge(*paths), {}, "paths", ([None], [7], [b"a.md"], [["a.md"]], [])),
    (judgekit.judge, {}, "task_id", NO_TEXT),
    (judgekit.judge, {}, "description", NO_TEXT),
    (
        lambda texts: judgekit.compare(*texts, prompt="p"),
        {},
        "texts",
        ([], ["a"], ["a", None], ["a", b"b"]),
    ),
    *(
        (lambda **given: judgekit.compare("a", "b", prompt="p", **given), {}, name, (value,))
        for name, value in (("depth", "quick"), ("explain", True))
    ),
    (lambda prompt: judgekit.compare("a", "b", prompt=prompt), {}, "prompt", (None, *NO_TEXT)),
    (judgekit.search, {}, "query", (None, *NO_TEXT)),
    (judgekit.search, {"query": "a"}, "roots", ("folder", 7, [7], [None], ["no such folder"])),
    (judgekit.search, {"query": "a"}, "mode", ("loose", 7)),
    (judgekit.search, {"query": "a"}, "limit", (0, -1, 1.5, "3", None, True)),
    (judgekit.search, {"query": "a"}, "project", (7, ["a"], b"a")),
    (judgekit.hook, {}, "payload", (None, [], "a", 7, {}, {"prompt": 7}, {1: 2})),
    (judgekit.rubrics, {}, "project", (7, ["a"], b"a")),
    (judgekit.find_rubric, {}, "reference", (None, "", "no-such", *NO_TEXT)),
    (judgekit.find_rubric, {"reference": "kls"}, "project", (7, ["a"], b"a", "a" * 5000, "\0")),
]
ANYTHING: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        1.5,
        10**400,
        10**5000,
        float("nan"),
        b"x",
        "",
        "\ud800",
        "\0",
        "a\n\x1b",
        "a" * 5000,
    ),
    *(
        [],
        ["a"],
        [None],
        {},
        {"a": 1},
        {"\ud800": "\ud800"},
        object(),
        int,
        Odd(),
        Path("x"),
        range(3),
    ),
)


class Model(BaseModel):
    a: int


PUBLIC: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **dict.fromkeys(("judge", "ajudge"), (("a.md",), {})),
    **dict.fromkeys(("judge_texts", "ajudge_texts"), ((TEXTS,), {})),
    **dict.fromkeys(("compare", "acompare"), (("x", "y"), {"prompt": "p"})),
    **dict.fromkeys(("judge_rows", "ajudge_rows"), (([{"text": "One."}],), {})),
    "search": ((), {"query": "text", "roots": ["."]}),
    "hook": ((), {"payload": {"prompt": "One text?"}}),
    "rubrics": ((), {}),
    "find_rubric": ((), {"reference": "kls"}),
    "extract": ((), {"raw": '{"a": 1}', "model": Model}),
}


async def all_of(found: AsyncIterator[object]) -> list[object]:
    return [each async for each in found]


def test_what_is_wrong_is_said_by_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("One text.")
    for call, others, name, values in WRONG:
        for value in values:
            with pytest.raises((UsageError, InputError)) as raised:
                call(**others, **{name: value})
            assert str(raised.value).strip(), (name, value)
            assert "\n" not in str(raised.value), (name, value)


@pytest.mark.parametrize("name", PUBLIC)
def test_whatever_is_passed_raises_nothing_but_errors_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(servers, "list_models", lambda bases, seconds=0.3: [None] * len(bases))
    Path("a.md").write_text("One text.")
    call, (args, given) = getattr(judgekit, name), PUBLIC[name]
    for parameter, value in product(inspect.signature(call).parameters.values(), ANYTHING):
        first = parameter.kind is parameter.VAR_POSITIONAL or parameter.name in ("texts", "rows")
        own = ((value, *args[1:]), given) if first else (args, given | {parameter.name: value})
        found = None
        with suppress(JudgekitError):
            found = call(*own[0], **own[1])
            found = asyncio.run(found) if inspect.iscoroutine(found) else found
            found = asyncio.run(all_of(found)) if inspect.isasyncgen(found) else found
            found = [*found] if inspect.isgenerator(found) else found
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, BaseModel):
                assert each.model_dump_json(), (parameter.name, type(value))


def test_every_function_is_tried() -> None:
    functions = {name for name in judgekit.__all__ if inspect.isroutine(getattr(judgekit, name))}
    assert functions == set(PUBLIC)


def test_an_option_that_has_no_words_of_its_own_is_checked_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(config.EXPECTED_BY_ARGUMENT, "mode")
    wrong: dict[str, Any] = {"mode": "loose"}
    with pytest.raises(UsageError, match=r"^judge_texts: mode: .*'strict' or 'lenient'"):
        judgekit.judge_texts(TEXTS, **wrong)
