"""What clients make of the engine's answers, and how a crowd of them keeps its order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from engine_processes import private_folder

from judgekit.engine import asking, client, many
from judgekit.engine.address import EngineAddress
from judgekit.engine.client import EngineLost, NoEngine, Response
from judgekit.errors import ConfigError, InputError, JudgekitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def answer(*lines: object, status: int = 200) -> Response:
    return Response(status, iter([f"{json.dumps(line)}\n".encode() for line in lines]))


@pytest.mark.parametrize(
    ("kind", "raised", "code"),
    [
        ("config", ConfigError, 78),
        ("usage", UsageError, 64),
        ("input", InputError, 65),
        ("internal", asking.EngineError, 70),
        ("unheard of", asking.EngineError, 70),
    ],
)
def test_an_error_is_raised_as_in_this_process(kind: str, raised: type[JudgekitError], code: int) -> None:
    told = {"error": {"kind": kind, "message": "a.yaml:1: wrong", "exit_code": code}}
    with pytest.raises(raised, match=r"^a\.yaml:1: wrong$") as caught:
        asking.value(answer(told, status=422))
    assert caught.value.exit_code == code


@pytest.mark.parametrize("told", [{}, [], {"error": "x"}, None])
def test_an_error_that_says_nothing_is_one_all_the_same(told: object) -> None:
    with pytest.raises(asking.EngineError, match="says nothing"):
        asking.value(answer(told, status=500))


def test_what_is_no_json_is_a_loss() -> None:
    with pytest.raises(EngineLost, match="no JSON"):
        asking.value(Response(200, iter([b"<html>"])))


def test_events_come_to_an_end_or_are_lost() -> None:
    begin, end = {"event": "begin", "count": 1}, {"event": "end"}
    assert list(asking.events(answer(begin, end))) == [begin, end]
    with pytest.raises(EngineLost, match="middle"):
        list(asking.events(answer(begin)))
    with pytest.raises(UsageError, match="no rubric"):
        list(
            asking.events(
                answer(begin, {"event": "error", "error": {"kind": "usage", "message": "no rubric"}})
            )
        )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineAddress]:
    """Return a place where nobody listens, and where no engine can be started."""

    def cannot() -> client.Connection:
        raise NoEngine("none can be started")

    monkeypatch.setattr(client, "connect_or_start", cannot)
    with private_folder() as folder:
        yield EngineAddress(str(folder), "kin", "code")


def test_what_nobody_answers_comes_back_whole_and_in_order(alone: EngineAddress) -> None:
    said: list[str] = []
    crowd = many.Crowd[int](alone, "/v1/judge", lambda thing: b"%d" % thing, at_once=3, lost=said.append)
    slots = list(crowd.answers(range(50)))
    assert [slot.thing for slot in slots] == list(range(50))
    assert {slot.record for slot in slots} == {None}
    assert len(said) == 1


def test_no_more_is_taken_than_is_needed(alone: EngineAddress) -> None:
    taken: list[int] = []

    def things() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    crowd = many.Crowd[int](alone, "/v1/judge", lambda thing: b"%d" % thing, at_once=2)
    answers = crowd.answers(things())
    next(answers)
    assert len(taken) <= many.AHEAD * 2
    answers.close()  # type: ignore[attr-defined]  # a generator
    assert len(taken) <= many.AHEAD * 2


def test_what_cannot_be_written_is_raised_where_it_is_taken(alone: EngineAddress) -> None:
    def body(_: int) -> bytes:
        raise InputError("no such thing")

    with pytest.raises(InputError, match="no such thing"):
        list(many.Crowd[int](alone, "/v1/judge", body, at_once=1).answers([1]))
