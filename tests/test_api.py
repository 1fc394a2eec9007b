"""The Python API: texts with their context, one model, async twins, and verdicts that print well."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from loopback import SILENT, Loopback, says
from looped import looped
from scripted import scores

import judgekit
from judgekit import InputError, Text, UsageError
from judgekit.judging.verdict import Override
from judgekit.rubric.loader import find_rubric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loopback import Answer, Asked

GOOD = says(scores(4, 4, 5, reasoning="It says what to do.\nAnd why."))
ONE = {"note": "One text."}


def by_rubric(asked: Asked) -> Answer:
    """Give the best score to every dimension that is asked for."""
    names = asked.body["response_format"]["json_schema"]["schema"]["properties"]["scores"][
        "properties"
    ]
    found = ", ".join(f'"{name}": 5' for name in names)
    return says(f'{{"reasoning": "It rests on it.", "scores": {{{found}}}, "findings": []}}')


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Loopback]]:
    """Return a function that starts a scripted server and configures it as the model that judges."""
    monkeypatch.chdir(tmp_path)
    begun: list[Loopback] = []

    def begin(*script: Any) -> Loopback:  # noqa: ANN401 - as Loopback takes it
        begun.append(Loopback(*script).__enter__())
        monkeypatch.setenv("JUDGEKIT_API_BASE", begun[-1].base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "configured")
        return begun[-1]

    yield begin
    for server in begun:
        server.__exit__(None, None, None)


def wait_for(there: Callable[[], bool]) -> None:
    while not there():
        time.sleep(0.01)


def test_a_text_brings_what_models_are_shown_with_it(serve: Callable[..., Loopback]) -> None:
    server = serve(by_rubric)
    text = Text(
        "It is blue.",
        "Which colour?",
        "One sentence.",
        sources=["The sky is blue."],
        author_family="openai",
    )
    texts: dict[str, str | Text] = {
        "note": text,
        "other": Text("It is red.", sources={"sky": "The sky is red."}),
        "bare": "Green.",
    }
    found = judgekit.judge_texts(
        texts, rubric="groundedness", author_family="google", mode="lenient"
    )
    words = ["accept", "accept", "undetermined"]
    assert [verdict.verdict for verdict in found] == words
    assert [verdict.accepted for verdict in found] == [True, True, False]
    assert [verdict.author.family for verdict in found] == ["openai", "google", "google"]
    assert [[each.path for each in verdict.subjects] for verdict in found] == [
        ["note", "source 1"],
        ["other", "sky"],
        ["bare"],
    ]
    first, other = sorted(
        (request.text for request in server.requests), key=lambda sent: "is red" in sent
    )
    shown = ("Which colour?", "One sentence.", 'role="source"', "The sky is blue.", "It is blue.")
    assert all(part in first for part in shown)
    assert "The sky is red." in other
    assert "needs sources" in str(found[2])


def test_sources_are_no_parts_of_a_text_whose_rubric_has_no_heading_for_them(
    serve: Callable[..., Loopback],
) -> None:
    server = serve(GOOD)
    with pytest.raises(
        InputError, match=r"^other: the rubric kls@1\.0\.0 takes no sources; name one that"
    ):
        judgekit.judge_texts(ONE | {"other": Text("It is.", sources=["So."])})
    assert server.requests == []


def test_a_reference_is_shown_where_a_rubric_has_a_heading(
    serve: Callable[..., Loopback], tmp_path: Path
) -> None:
    server = serve(by_rubric)
    own = find_rubric("kls").path.read_text(encoding="utf-8").replace("rubric: kls", "rubric: own")
    (tmp_path / "own.yaml").write_text(f"{own}\ngiven: {{reference: The expected answer}}\n")
    (tmp_path / "a.md").write_text("Rome.")
    text = Text("Rome.", reference="It is Rome.")
    judgekit.judge_texts({"a": text}, rubric="own.yaml", mode="lenient")
    judgekit.judge("a.md", rubric="own.yaml", mode="lenient", reference="It is Rome.")
    judgekit.judge_texts({"a": text}, mode="lenient")
    assert ["It is Rome." in request.text for request in server.requests] == [True, True, False]


def test_what_the_command_line_takes_is_taken(
    serve: Callable[..., Loopback], tmp_path: Path
) -> None:
    server = serve(GOOD)
    (tmp_path / "a.md").write_text("One text.")
    calls: list[Callable[..., object]] = [
        lambda **given: judgekit.judge("a.md", mode="lenient", **given),
        lambda **given: judgekit.judge_texts({"b": "Another."}, mode="lenient", **given),
        lambda **given: judgekit.compare(
            "x", "y", prompt="p", rubric="kls", mode="lenient", **given
        ),
    ]
    for call in calls:
        made = []
        for more in ({}, {"cache": True}, {"cache": False}, {"model": "mine"}):
            before = len(server.requests)
            call(**more)
            made.append([request.body["model"] for request in server.requests[before:]])
        first, cached, again, mine = made
        assert first
        assert (cached, again) == ([], first)
        assert set(mine) == {"mine"}
    verdict = judgekit.judge_texts(ONE, model="openai/gpt-4.1")[0]
    assert "the model openai/gpt-4.1 is named by --model, but set OPENAI_API_KEY" in str(verdict)


def test_as_many_are_judged_at_a_time_as_are_wanted(serve: Callable[..., Loopback]) -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    def answer(_: Asked) -> Answer:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.1)
        with lock:
            under_way -= 1
        return GOOD

    serve(answer)
    texts = {str(number): f"Text {number}." for number in range(6)}
    for concurrency in (1, 3):
        most = 0
        judgekit.judge_texts(texts, mode="lenient", concurrency=concurrency, cache=False)
        assert most == concurrency


def test_rows_are_judged_as_they_are_read_in_order_or_as_complete(
    serve: Callable[..., Loopback],
) -> None:
    others = threading.Semaphore(0)

    def answer(asked: Asked) -> Answer:
        if "more " in asked.text and "more 0" not in asked.text:
            return SILENT
        if "slow" in asked.text:
            assert all(others.acquire(timeout=20) for _ in range(5))
        others.release()
        return GOOD

    server = serve(answer)
    rows: list[dict[str, Any]] = [{"said": "slow", "n": 0}, {"said": " ", "n": 1}]
    rows += [{"said": f"text {number}", "n": number} for number in range(2, 9)]
    given: dict[str, Any] = {
        "fields": {"text": "said"},
        "concurrency": 2,
        "cache": False,
        "mode": "lenient",
    }
    assert [each["n"] for each in judgekit.judge_rows(rows, **given)] == [*range(9)]
    found = [*judgekit.judge_rows(iter(rows), **given, as_completed=True)]
    assert sorted(each["n"] for each in found) == [*range(9)] != [each["n"] for each in found]
    assert {each["n"]: (each["verdict"], each["error"]) for each in found}[1] == (
        "undetermined",
        "said: empty; nothing to judge",
    )
    assert found[-1]["judged"]["schema"] == "judgekit/verdict@1"
    asked = len(server.requests)
    endless = judgekit.judge_rows(
        ({"said": f"more {number}"} for number in itertools.count()), **given
    )
    assert next(endless)["id"] == 1
    end = (
        time.monotonic() + 5
    )  # the loop of these calls stands still between two rows: some may not begin
    wait_for(lambda: len(server.requests) == asked + 3 or time.monotonic() > end)
    endless.close()
    assert asked < len(server.requests) <= asked + 3


@looped
async def test_rows_can_be_awaited_and_given_up(serve: Callable[..., Loopback]) -> None:
    server = serve(by_rubric)
    pairs = [{"a": "One.", "b": "Two.", "prompt": "p", "id": f"p{number}"} for number in range(2)]
    found = [
        each async for each in judgekit.ajudge_rows(pairs, task="compare", rubric="answer-quality")
    ]
    assert [(each["id"], each["verdict"]) for each in found] == [("p0", "tie"), ("p1", "tie")]
    assert len(server.requests) > 1
    with pytest.raises(InputError, match="row 2: expected a mapping of columns, got list"):
        [each async for each in judgekit.ajudge_rows([{"text": "One."}, ["Two."]])]  # type: ignore[list-item]
    with pytest.raises(InputError, match="no rows"):
        [each async for each in judgekit.ajudge_rows([])]


def test_twins_take_the_same_and_wait_or_not() -> None:
    for name in ("judge", "judge_texts", "compare"):
        blocking, other = getattr(judgekit, name), getattr(judgekit, f"a{name}")
        assert inspect.signature(blocking) == inspect.signature(other)
        assert (blocking.__name__, blocking.__doc__) == (name, other.__doc__)
        found = [inspect.iscoroutinefunction(each) for each in (blocking, other)]
        assert found == [False, True]


@looped
async def test_async_twins_leave_the_loop_free_and_end_their_calls_when_cancelled(
    serve: Callable[..., Loopback],
) -> None:
    server = serve(SILENT)
    await judgekit.ajudge_texts(ONE, deadline=0.1)  # loads what judging needs
    before = len(server.requests)
    texts = {str(number): f"Text {number}." for number in range(9)}
    task = asyncio.create_task(judgekit.ajudge_texts(texts, concurrency=2))
    async with asyncio.timeout(20):
        await asyncio.to_thread(wait_for, lambda: len(server.requests) >= before + 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.3)
    assert len(server.requests) == before + 2  # the other seven are not begun
    with pytest.raises(UsageError, match="expected 2 to 26 texts"):
        await judgekit.acompare("x", prompt="p")


def test_a_verdict_prints_in_three_lines(serve: Callable[..., Loopback]) -> None:
    serve(GOOD)
    (verdict,) = judgekit.judge_texts(ONE, mode="lenient")
    lines = [
        "accept: note",
        "semantic 4, pragmatic 4, syntactic 5 (mean 4.33); stand-in; cost unknown",
        "It says what to do. And why.",
    ]
    assert str(verdict).splitlines() == lines
    rows: list[tuple[dict[str, Any], int, str]] = [
        ({"cost_usd": 0.0123, "cost_complete": True}, 1, "stand-in; 0.0123 USD"),
        ({"cost_usd": 0.0123, "cost_complete": False}, 1, "stand-in; at least 0.0123 USD"),
        ({"task_id": "T-1@2"}, 0, "accept: T-1@2"),
        ({"reasoning": "a b " * 200}, 2, "a b a b"),
        ({"reasoning": ""}, 2, "no reason given"),
        ({"verdict": "undetermined", "degraded": "no model found"}, 2, "no model found"),
        ({"rounds": [], "model": None, "scores": None}, 1, "no scores; no model was asked; "),
    ]
    for change, place, said in rows:
        line = str(verdict.model_copy(update=change)).splitlines()[place]
        assert said in line
        assert len(line) <= 200
    person = Override(decision="accept", why="I looked.", who="ada", at=datetime.now(UTC))
    by_hand = str(verdict.model_copy(update={"human_override": person, "rounds": []}))
    assert by_hand.splitlines()[1:] == [
        f"{lines[1].partition(';')[0]}; decided by ada; no cost",
        "I looked.",
    ]


def test_a_comparison_prints_in_three_lines(serve: Callable[..., Loopback]) -> None:
    serve(lambda asked: says(scores(5, 5, 5) if "better" in asked.text else scores(2, 2, 2)))
    found = judgekit.compare("well", "better", "best", prompt="p", rubric="kls", mode="lenient")
    assert str(found).splitlines() == [
        "B is better than A, C",
        "A 2, B 5, C 2; stand-in; cost unknown",
        "Because.",
    ]
    assert str(found.model_copy(update={"verdict": "tie"})).startswith("tie: A, B, C\n")
    alike = judgekit.compare("same", "same", prompt="p")
    assert str(alike).splitlines()[:2] == ["tie: A, B", "no model was asked; no cost"]


def test_what_is_printed_moves_no_terminal(serve: Callable[..., Loopback]) -> None:
    hostile = "a\x1b[2J\r\u202eb\u2066\x07\u200b\x9b31m\ud800\n"
    serve(says(scores(4, 4, 4, reasoning=hostile)))
    (verdict,) = judgekit.judge_texts({hostile: hostile}, mode="lenient")
    comparison = judgekit.compare(hostile, "x", prompt=hostile, rubric="kls", mode="lenient")
    odd = verdict.model_copy(
        update={
            "task_id": hostile,
            "model": hostile,
            "degraded": hostile,
            "verdict": "undetermined",
        }
    )
    for record in (verdict, comparison, odd):
        lines = str(record).split("\n")
        assert len(lines) == 3
        assert all(line.isprintable() for line in lines), lines
    assert lines[0] == r"undetermined: a\x1b[2J\r\u202eb\u2066\x07\u200b\x9b31m\ud800\n"


def test_printing_changes_no_record(serve: Callable[..., Loopback]) -> None:
    serve(GOOD)
    (verdict,) = judgekit.judge_texts(ONE, mode="lenient")
    assert "accepted" not in verdict.record()
    assert "accepted" not in type(verdict).model_json_schema()["properties"]
