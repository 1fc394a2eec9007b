"""A file of replies that another process holds: who waits for it holds up nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loopback import Loopback, says

from judgekit import environment
from judgekit.judging import cache, documents, service
from judgekit.judging.documents import file_of
from judgekit.providers.gateway import open_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgekit.judging.verdict import Verdict

VERDICT = '{"reasoning": "fine", "scores": {"semantic": 4, "pragmatic": 4, "syntactic": 4}, "findings": []}'


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """Return the model that judges; it accepts everything."""
    with Loopback(says(VERDICT)) as server:
        monkeypatch.setenv("JUDGEKIT_API_BASE", server.base)
        monkeypatch.setenv("JUDGEKIT_MODEL", "stand-in")
        monkeypatch.setenv("JUDGEKIT_API_KEY", "a-key")
        yield server


def held() -> sqlite3.Connection:
    """Return a connection that lets no other one in."""
    path = Path(environment.cache_home()) / "replies.sqlite"
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("DELETE FROM reply WHERE key = ''")
    return connection


async def judged() -> Verdict:
    judge, _ = service.document_judge(open_gateway({}))
    return await judge.judge(documents.document([file_of("a.md", "Some words.")]))


def test_an_event_loop_goes_on_while_a_reply_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, model: Loopback
) -> None:
    """Were the loop to wait, nobody would let go of the file before the wait is given up."""
    asyncio.run(judged())
    before = len(model.requests)
    monkeypatch.setattr(cache, "_WAIT", 30.0)

    async def work() -> Verdict:
        holder = held()
        waits = asyncio.create_task(judged())
        for _ in range(30):
            await asyncio.sleep(0.01)
        assert not waits.done()
        holder.close()
        return await waits

    assert asyncio.run(work()).verdict == "accept"
    assert len(model.requests) == before  # what was kept was found


def test_a_file_that_stays_locked_costs_a_call_and_no_verdict(model: Loopback) -> None:
    asyncio.run(judged())
    before = len(model.requests)
    holder = held()
    assert asyncio.run(judged()).verdict == "accept"
    holder.close()
    assert len(model.requests) > before
