"""One way to the engine: what callers make of its answers, and for which reasons they go on without it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import private_folder

from judgekit import environment
from judgekit.engine import answers, client
from judgekit.engine.address import EngineAddress
from judgekit.engine.client import (
    Connection,
    EngineBusy,
    EngineFault,
    EngineHung,
    EngineLost,
    EngineOff,
    NoEngine,
    NotStarted,
    Response,
)
from judgekit.errors import ConfigError, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def answer(*lines: object, status: int = 200) -> Response:
    return Response(status, iter([f"{json.dumps(line)}\n".encode() for line in lines]))


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("config", ConfigError),
        ("usage", UsageError),
        ("input", InputError),
        ("size", EngineFault),
        ("internal", EngineFault),
        ("unheard of", EngineFault),
    ],
)
def test_an_error_is_raised_as_in_this_process(kind: str, raised: type[Exception]) -> None:
    told = {"error": {"kind": kind, "message": "a.yaml:1: wrong", "exit_code": 78}}
    with pytest.raises(raised, match=r"^a\.yaml:1: wrong$"):
        answers.value(answer(told, status=422))


@pytest.mark.parametrize("told", [{}, [], {"error": "x"}, None])
def test_an_error_that_says_nothing_is_one_all_the_same(told: object) -> None:
    with pytest.raises(EngineFault, match="without a message"):
        answers.value(answer(told, status=500))


def test_what_is_no_json_is_a_loss() -> None:
    with pytest.raises(EngineLost, match="not JSON"):
        answers.value(Response(200, iter([b"<html>"])))


def test_events_come_to_an_end_or_are_lost() -> None:
    begin, end = {"event": "begin", "count": 1}, {"event": "end"}
    assert list(answers.events(answer(begin, end))) == [begin, end]
    with pytest.raises(EngineLost, match="ended too early"):
        list(answers.events(answer(begin)))
    error = {"event": "error", "error": {"kind": "usage", "message": "no rubric"}}
    with pytest.raises(UsageError, match="no rubric"):
        list(answers.events(answer(begin, error)))


def raises(error: Exception) -> Callable[..., Any]:
    def called(*_: object, **__: object) -> Any:  # noqa: ANN401 - never returns
        raise error

    return called


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (NoEngine("none"), "none; continuing in this process"),
        (
            NotStarted("the engine could not start (x)"),
            "the engine could not start (x); continuing in this process",
        ),
        (EngineBusy("full", 1.0), "full; continuing in this process"),
        (EngineLost("lost"), "lost; continuing in this process"),
        (EngineHung("hung"), "hung; continuing in this process"),
        (EngineFault("too large"), "too large; continuing in this process"),
    ],
)
def test_for_each_reason_the_caller_goes_on(reason: NoEngine, line: str) -> None:
    said: list[str] = []

    def locally(why: NoEngine) -> str:
        why.tell(said.append)
        return f"here: {type(why).__name__}"

    with environment.Brought({}):
        done = client.call("task", bytes, raises(AssertionError()), locally, begin=raises(reason))
    assert (done, said) == (f"here: {type(reason).__name__}", [line])


@pytest.mark.parametrize("variables", [{}, {"JUDGEKIT_ENGINE": "0"}, {"JUDGEKIT_REPLAY": "a.jsonl"}])
def test_one_that_is_switched_off_is_not_asked_and_nothing_is_said(variables: dict[str, str]) -> None:
    with environment.Brought(variables):
        reason = client.call(
            "task", bytes, answers.value, lambda why: why, use=bool(variables), begin=raises(AssertionError())
        )
    assert isinstance(reason, EngineOff)
    reason.tell(raises(AssertionError()))


def test_what_is_wrong_with_a_request_is_no_reason_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "ask", lambda *_, **__: answer({"error": {"kind": "usage"}}, status=422))
    monkeypatch.setattr(Connection, "open", lambda _: None)
    with environment.Brought({}), pytest.raises(UsageError):
        client.call("task", bytes, answers.value, raises(AssertionError()), begin=Connection)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the first connection lead to where nobody listens, and no other engine be started."""
    started: list[Connection] = []

    def once() -> Connection:
        if started:
            raise NotStarted("none can be started")
        started.append(Connection(EngineAddress(str(folder), "kin", "code")))
        return started[0]

    monkeypatch.setattr(client, "connect_or_start", once)
    monkeypatch.setattr(Connection, "__enter__", lambda self: self)
    with private_folder() as folder:
        yield


def here(things: Iterable[int], on_answer: Callable[[Any], None]) -> None:
    for thing in things:
        on_answer(-thing)


@pytest.mark.usefixtures("alone")
def test_what_no_engine_does_is_done_here_in_order() -> None:
    said: list[str] = []
    done: list[int] = []
    answers.many(
        "judge", range(50), lambda thing: b"%d" % thing, here, done.append, at_once=3, warn=said.append
    )
    assert done == [-number for number in range(50)]
    assert [line.rpartition(";")[2].rpartition(":")[2].strip() for line in said] == [
        "another engine takes over",
        "continuing in this process",
    ]


def test_without_any_engine_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "connect_or_start", raises(NotStarted("the engine could not start (x)")))
    said: list[str] = []
    done: list[int] = []
    answers.many("judge", range(3), lambda _: b"", here, done.append, at_once=3, warn=said.append)
    assert (done, said) == ([0, -1, -2], ["the engine could not start (x); continuing in this process"])


@pytest.mark.usefixtures("alone")
def test_answers_that_came_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(self: Connection, method: str, path: str, body: bytes, *, seconds: float) -> Response:
        if int(body) % 3:
            return answer(int(body))
        raise EngineFault("its own")

    monkeypatch.setattr(Connection, "ask", ask)
    done: list[int] = []
    answers.many("judge", range(1, 20), lambda thing: b"%d" % thing, here, done.append, at_once=4, warn=print)
    assert list(map(abs, done)) == list(range(1, 20))
    assert done[0] == 1
    assert done[2] == -3


@pytest.mark.usefixtures("alone")
def test_no_more_is_taken_than_is_needed() -> None:
    taken: list[int] = []

    def things() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    def first(rest: Iterable[int], _: object) -> None:
        next(iter(rest))
        raise InputError("enough")

    with pytest.raises(InputError, match="enough"):
        answers.many("judge", things(), lambda thing: b"%d" % thing, first, print, at_once=2, warn=print)
    assert len(taken) <= answers.AHEAD * 2


@pytest.mark.usefixtures("alone")
def test_what_cannot_be_written_is_raised_where_it_is_taken() -> None:
    with pytest.raises(InputError, match="no such thing"):
        answers.many("judge", [1], raises(InputError("no such thing")), here, print, at_once=1, warn=print)


def test_a_command_that_asks_the_engine_imports_nothing_heavy() -> None:
    modules = "judgekit.cli.judge, judgekit.cli.search, judgekit.judging.documents, judgekit.engine.answers"
    code = f"import {modules}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"pydantic", "ruamel", "httpx", "litellm", "asyncio"} & set(loaded.split()) == set()
