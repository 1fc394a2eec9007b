"""Rows of Python programs: any value comes through or is an error of ours, in the words of Python."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import pathlib
import pickle
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from loopback import Loopback, says
from scripted import scores

import judgekit
from judgekit import ConfigError, InputError, UsageError
from judgekit.data.fields import FieldError
from judgekit.errors import FailureKind, GatewayError, StoreError, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    at: dt.date


class Array:
    """Stands for an array of another library."""

    def tolist(self) -> list[int]:
        return [1, 2]


class Opaque:
    pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Loopback]:
    monkeypatch.chdir(tmp_path)
    with Loopback(says(scores(4, 4, 5))) as begun:
        monkeypatch.setenv("JUDGEKIT_API_BASE", begun.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        yield begun


def judged(*rows: dict[Any, Any], **given: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - handed on
    return list(judgekit.judge_rows(list(rows), mode="lenient", **given))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (NOON, "2026-01-02T12:00:00+00:00"),
        (NOON.date(), "2026-01-02"),
        (dt.timedelta(minutes=1), 60.0),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"bytes", "bytes"),
        (b"\xff\x00", "/wA="),
        ({2, 1}, [1, 2]),
        ((1, Colour.RED), [1, "red"]),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (Point(1, NOON.date()), {"x": 1, "at": "2026-01-02"}),
        (Array(), [1, 2]),
        ({1: {None: "x"}}, {"1": {"None": "x"}}),
        (float("nan"), None),
    ],
)
def test_values_that_json_has_no_word_for_come_through(
    server: Loopback, value: object, plain: object
) -> None:
    [found] = judged({"text": "One.", "value": value, 5: "five"})
    assert (found["verdict"], found["value"], found["5"]) == ("accept", plain, "five")
    assert json.loads(json.dumps(found["value"])) == plain
    assert len(server.requests) == 1


def in_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("\ud800", "expected text, got half of a surrogate pair"),
        pytest.param(
            10**5000, "expected a shorter number, got one of thousands of digits", id="long"
        ),
        (in_itself(), "expected at most 100 lists and objects inside each other, got more"),
        (
            Opaque(),
            "expected text, a number, a list or an object, got Opaque; convert it, or leave it out",
        ),
    ],
)
def test_other_values_are_an_error_before_any_call(
    server: Loopback, value: object, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        judged({"text": "One."}, {"text": "Two.", "value": value})
    assert str(caught.value) == f"rows: row 2: value: {problem}"
    assert caught.value.__context__ is None or not isinstance(
        caught.value.__context__, RuntimeError
    )
    assert not server.requests


def test_errors_speak_of_python(server: Loopback) -> None:
    for row, given, problem in (
        (
            {"q": "x"},
            {},
            "rows: no column for text; name it with fields={'text': 'COLUMN'}. It has q",
        ),
        (
            {"text": "x"},
            {"fields": {"txt": "text"}},
            "fields={'txt': 'text'}: unknown field; use one of ",
        ),
        (
            {"text": "x"},
            {"id_column": "key"},
            "id_column='key': rows has no such column; it has text",
        ),
        (
            {"output": "x", "response": "y"},
            {},
            "choose with fields={'text': 'output'} or fields={'text': 'response'}",
        ),
    ):
        with pytest.raises(UsageError) as caught:
            judged(row, **given)
        assert problem in str(caught.value)
        assert "--" not in str(caught.value)
    [found] = judged({"text": ["a"]})
    assert (
        found["error"]
        == "text: expected a text, got a list; a conversation is given with fields={'conversation': 'COLUMN'}"
    )
    assert not server.requests


@pytest.mark.parametrize(
    "error",
    [
        GatewayError(FailureKind.RATE_LIMIT, "slow down", retry_after=3.0, usage=Usage(1, 2)),
        ConfigError("expected a number", path="config.yaml", line=3, key="judge.deadline"),
        StoreError("busy", 5, status=429, wire_name="limit"),
        FieldError("text", "expected a text"),
        InputError("a.md: empty"),
    ],
)
def test_errors_cross_from_one_process_to_another(error: judgekit.JudgekitError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), other.__dict__) == (type(error), str(error), error.__dict__)


def test_what_is_public_is_listed() -> None:
    assert set(judgekit.__all__) <= set(dir(judgekit))


def test_a_message_is_not_told_in_the_course_of_another_error(tmp_path: pathlib.Path) -> None:
    script = "import judgekit; judgekit.judge_texts({'a': 'One.'}, rubric='no-such')"
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert "no-such" in done.stderr
    assert "During handling" not in done.stderr
    assert "no running event loop" not in done.stderr
