"""One way to the engine: what callers make of its answers, and for which reasons they go on without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import private_folder

from judgekit import environment
from judgekit.engine import answers, client
from judgekit.engine.client import (
    Connection,
    EngineAddress,
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


def raises(error: Exception) -> Callable[..., Any]:
    def called(*_: object, **__: object) -> Any:  # noqa: ANN401 - never returns
        raise error

    return called


def test_an_error_is_raised_as_in_this_process() -> None:
    kinds = {"config": ConfigError, "usage": UsageError, "input": InputError}
    for kind in (*kinds, "size", "internal", "unheard of"):
        told = {"error": {"kind": kind, "message": "a.yaml:1: wrong", "exit_code": 78}}
        with pytest.raises(kinds.get(kind, EngineFault), match=r"^a\.yaml:1: wrong$"):
            answers.value(answer(told, status=422))
    nothing: tuple[object, ...] = ({}, [], {"error": "x"}, None)
    for said in nothing:
        with pytest.raises(EngineFault, match="without a message"):
            answers.value(answer(said, status=500))
    with pytest.raises(EngineLost, match="not JSON"):
        answers.value(Response(200, iter([b"<html>"])))


def test_events_come_as_they_are_sent_to_an_end_or_are_lost() -> None:
    begin, end = {"event": "begin", "count": 1}, {"event": "end"}
    text = b'{"event": "begin", "count": 1}\n{"event": "end"}'
    for size in (1, 7, 100):
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        assert list(answers.events(Response(200, iter(pieces)))) == [begin, end]
    with pytest.raises(EngineLost, match="ended too early"):
        list(answers.events(answer(begin)))
    error = {"event": "error", "error": {"kind": "usage", "message": "no rubric"}}
    for refused in (answer(begin, error), answer(error, status=422)):
        with pytest.raises(UsageError, match="no rubric"):
            list(answers.events(refused))


@pytest.mark.parametrize(
    "reason",
    [NoEngine("x"), NotStarted("x"), EngineBusy("x", 1), EngineLost("x"), EngineHung("x"), EngineFault("x")],
)
def test_for_each_reason_the_caller_goes_on(reason: NoEngine) -> None:
    said: list[str] = []

    def locally(why: NoEngine) -> NoEngine:
        why.tell(said.append)
        return why

    with environment.Brought({}):
        done = client.call("task", bytes, raises(AssertionError()), locally, begin=raises(reason))
    assert (done, said) == (reason, ["x; continuing in this process"])


def test_one_that_is_switched_off_is_not_asked_and_nothing_is_said() -> None:
    off = (
        "A=",
        "JUDGEKIT_ENGINE=0",
        "JUDGEKIT_ENGINE=Off",
        "JUDGEKIT_REPLAY=a.jsonl",
        "JUDGEKIT_RECORD=a.jsonl",
    )
    for each in (*off, "JUDGEKIT_ENGINE=1"):
        with environment.Brought(dict([each.split("=")])):
            use = not each.startswith("A")  # else the user's file says so
            none = raises(AssertionError() if each in off else NoEngine())
            reason = client.call("task", bytes, answers.value, lambda why: why, use=use, begin=none)
        assert isinstance(reason, EngineOff) == (each in off), each
        if each in off:
            reason.tell(raises(AssertionError()))


def test_what_is_wrong_with_a_request_is_no_reason_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "ask", lambda *_, **__: answer({"error": {"kind": "usage"}}, status=422))
    monkeypatch.setattr(Connection, "open", lambda _: None)
    with environment.Brought({}), pytest.raises(UsageError):
        client.call("task", bytes, answers.value, raises(AssertionError()), begin=Connection)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the connection lead to where nobody listens any more."""
    with private_folder() as folder:
        place = EngineAddress(str(folder), "kin", "code")
        monkeypatch.setattr(client, "connect_or_start", lambda: Connection(place))
        yield


def here(things: Iterable[int], on_answer: Callable[[Any], None]) -> None:
    for thing in things:
        on_answer(-thing)


def number(thing: int) -> bytes:
    return b"%d" % thing


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("started", [True, False])
def test_what_no_engine_does_is_done_here_in_order(monkeypatch: pytest.MonkeyPatch, *, started: bool) -> None:
    if not started:
        monkeypatch.setattr(client, "connect_or_start", raises(NotStarted("the engine could not start (x)")))
    said: list[str] = []
    done: list[int] = []
    answers.many("judge", range(1, 51), number, here, done.append, at_once=3, warn=said.append)
    assert done == [-thing for thing in range(1, 51)]
    why = "the engine refused the request or stopped" if started else "the engine could not start (x)"
    assert said == [f"{why}; continuing in this process"]


@pytest.mark.usefixtures("alone")
def test_answers_that_came_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = iter([EngineBusy("full", 0.01)])

    def ask(self: Connection, method: str, path: str, body: bytes, *, seconds: float) -> Response:
        for error in busy:  # asked again
            raise error
        if int(body) % 3:
            return answer(int(body))
        raise EngineFault("its own")

    monkeypatch.setattr(Connection, "ask", ask)
    done: list[int] = []
    answers.many("judge", range(1, 20), number, here, done.append, at_once=1, warn=print)
    assert done == [1, 2, *(-thing for thing in range(3, 20))]


@pytest.mark.usefixtures("alone")
def test_no_more_is_taken_than_is_needed_and_an_error_is_raised_where_it_is_met() -> None:
    taken: list[int] = []

    def things() -> Iterator[int]:
        for thing in range(1000):
            taken.append(thing)
            yield thing

    def first(rest: Iterable[int], _: object) -> None:
        next(iter(rest))
        raise InputError("enough")

    with pytest.raises(InputError, match="enough"):
        answers.many("judge", things(), number, first, print, at_once=2, warn=print)
    assert len(taken) <= answers.AHEAD * 2
    with pytest.raises(InputError, match="no such thing"):
        answers.many("judge", [1], raises(InputError("no such thing")), here, print, at_once=1, warn=print)
