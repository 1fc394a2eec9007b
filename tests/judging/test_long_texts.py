"""Texts that take long to prepare: others are judged meanwhile, and the deadline is the deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from engine_processes import use
from loopback import Loopback, says

import judgekit
from judgekit.errors import FailureKind
from judgekit.judging import documents, fence, outgoing, service, writing
from judgekit.judging.documents import make_file
from judgekit.judging.request import JudgeRequest
from judgekit.providers.gateway import open_gateway
from judgekit.redaction.redact import redact
from judgekit.replies import reading
from judgekit.replies.extract import read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from judgekit.judging.verdict import Verdict

pytestmark = pytest.mark.slow

VERDICT = '{"reasoning": "fine", "scores": {"semantic": 4, "pragmatic": 4, "syntactic": 4}, "findings": []}'
SLOW = "Slow. " + "Some words. " * 2000
ENOUGH = 60.0  # seconds; slow steps here take longer unless they're given up


class Endless:
    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun = threading.Event()

    def before(self, work: Callable[..., Any], slow: Callable[..., bool]) -> Callable[..., Any]:
        def instead(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the work takes
            if slow(*given):
                self.begun.set()
                until = time.monotonic() + 2 * ENOUGH
                while not self.over.is_set() and time.monotonic() < until:
                    pass
            return work(*given, **named)

        return instead


@pytest.fixture
def endless() -> Iterator[Endless]:
    found = Endless()
    yield found
    found.over.set()


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with Loopback(says(VERDICT)) as server:
        use(monkeypatch, server)
        judgekit.judge_texts({"first.md": "The first one loads what judging needs."})
        server.requests.clear()
        yield server


def is_slow(text: object, *_: object) -> bool:
    return "Slow." in str(text)


def test_the_deadline_comes_while_secrets_are_looked_for_or_a_prompt_is_made(
    endless: Endless, monkeypatch: pytest.MonkeyPatch, model: Loopback
) -> None:
    def judged() -> Verdict:
        start = time.monotonic()
        slow, other = judgekit.judge_texts(
            {"slow.md": SLOW, "other.md": "Other words."}, deadline=3
        )
        assert time.monotonic() - start < ENOUGH
        assert (slow.verdict, other.verdict) == ("undetermined", "accept")
        return slow

    with monkeypatch.context() as patch:
        patch.setattr(outgoing, "redact", endless.before(redact, is_slow))
        slow = judged()
    assert slow.rounds == []
    assert str(slow.degraded).startswith("not judged: timeout (the deadline passed")
    assert not any("Slow." in request.text for request in model.requests)
    made = endless.before(
        writing.make_messages, lambda asked: is_slow(asked.context(fence.Fence()))
    )
    monkeypatch.setattr(writing, "make_messages", made)
    assert {own.failure.kind for own in judged().rounds if own.failure} == {FailureKind.TIMEOUT}


def test_the_deadline_comes_while_a_reply_is_read(
    endless: Endless, monkeypatch: pytest.MonkeyPatch, model: Loopback
) -> None:
    monkeypatch.setattr(reading, "read_answer", endless.before(read_answer, is_slow))
    model._script = (says(SLOW + VERDICT),)
    (verdict,) = judgekit.judge_texts({"a.md": "Some words."}, deadline=3)
    assert verdict.verdict == "undetermined"
    assert verdict.rounds[0].failure is not None
    assert verdict.rounds[0].failure.kind == FailureKind.TIMEOUT


@pytest.mark.parametrize("texts", [("A text.", SLOW), ("A text.", "Another.", SLOW)])
def test_the_deadline_of_a_comparison_comes_too(
    endless: Endless, monkeypatch: pytest.MonkeyPatch, texts: tuple[str, ...]
) -> None:
    monkeypatch.setattr(outgoing, "redact", endless.before(redact, is_slow))
    comparison = judgekit.compare(*texts, prompt="Which is better?", deadline=2)
    assert comparison.verdict == "undetermined"
    assert comparison.degraded is not None
    assert "timeout (the deadline passed" in comparison.degraded


def test_an_event_loop_goes_on_meanwhile(endless: Endless, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that is judged in one loop, as by an engine, only the slow text waits."""
    monkeypatch.setattr(outgoing, "redact", endless.before(redact, is_slow))

    async def work() -> tuple[str, str]:
        judge, _ = service.build_document_judge(
            open_gateway({}), None, JudgeRequest(deadline=ENOUGH, cache=False)
        )
        slow, other = (
            documents.build_document([make_file("a.md", text)]) for text in (SLOW, "Other words.")
        )
        waits = asyncio.create_task(judge.judge(slow))
        while not endless.begun.is_set():  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.01)
        verdict = await judge.judge(other)
        assert not waits.done()
        endless.over.set()
        return verdict.verdict, (await waits).verdict

    assert asyncio.run(work()) == ("accept", "accept")
