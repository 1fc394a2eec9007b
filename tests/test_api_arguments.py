"""Wrong arguments of the Python API: one error of ours that names the argument, whatever was passed."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import judgekit
from judgekit import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = {"a": "One text.", "b": "Another."}
NO_TEXT = (7, b"bytes", ["a"], {"a": 1}, object())
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
            }.items(),
        )
    ),
    (judgekit.judge_texts, {}, "texts", ({}, [], ["a"], "a", None, 7, {1: "a"}, {"a": None}, {"a": b"b"})),
    (lambda paths: judgekit.judge(*paths), {}, "paths", ([None], [7], [b"a.md"], [["a.md"]], [])),
    (judgekit.judge, {}, "task_id", NO_TEXT),
    (judgekit.judge, {}, "description", NO_TEXT),
    (lambda texts: judgekit.compare(*texts, prompt="p"), {}, "texts", ([], ["a"], ["a", None], ["a", b"b"])),
    (lambda prompt: judgekit.compare("a", "b", prompt=prompt), {}, "prompt", (None, *NO_TEXT)),
    (judgekit.search, {}, "query", (None, *NO_TEXT)),
    (judgekit.search, {"query": "a"}, "roots", ("folder", 7, [7], [None], ["no such folder"])),
    (judgekit.search, {"query": "a"}, "mode", ("loose", 7)),
    (judgekit.search, {"query": "a"}, "limit", (0, -1, 1.5, "3", None, True)),
    (judgekit.search, {"query": "a"}, "project", (7, ["a"], b"a")),
    (judgekit.hook, {}, "payload", (None, [], "a", 7, {}, {"prompt": 7}, {1: 2})),
    (judgekit.rubrics, {}, "project", (7, ["a"], b"a")),
    (judgekit.find_rubric, {}, "reference", (None, "", "no-such", *NO_TEXT)),
]


def test_what_is_wrong_is_said_by_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("One text.")
    for call, others, name, values in WRONG:
        for value in values:
            with pytest.raises((UsageError, InputError)) as raised:
                call(**others, **{name: value})
            assert str(raised.value).strip(), (name, value)
            assert "\n" not in str(raised.value), (name, value)
