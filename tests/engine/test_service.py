from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, cast

import pytest

from judgekit.engine import app, judges
from judgekit.engine.app import Carried
from judgekit.engine.judges import Service, rss_bytes
from judgekit.judging import redact
from judgekit.judging import service as assess
from judgekit.providers import litellm
from judgekit.providers.gateway import before_asking

if TYPE_CHECKING:
    from judgekit.judging.score import DocumentJudge
    from judgekit.judging.subject import Document


class Counting:
    """A judge that counts how many documents it judges at a time."""

    models_by_tier: dict[str, tuple[object, ...]] = {}

    def __init__(self) -> None:
        self.now = self.most = 0

    async def judge(self, _: object) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        if told := before_asking.get():
            told()
        await asyncio.sleep(0.001)
        self.now -= 1
        return "verdict"


@pytest.mark.parametrize(("bearable", "most"), [(1, 1), (3, 3), (None, 10)])
def test_a_modest_provider_is_asked_for_no_more_than_it_bears(
    monkeypatch: pytest.MonkeyPatch, bearable: int | None, most: int
) -> None:
    """However many clients ask at a time: each has one document under way."""
    monkeypatch.setattr(assess, "max_concurrency", lambda _, at_once: bearable or at_once)

    async def run() -> int:
        service, judge = Service(lambda _: None), Counting()
        document_judge = cast("DocumentJudge", judge)
        told = await asyncio.gather(
            *(service.judged(document_judge, cast("Document", None)) for _ in range(10))
        )
        assert cast("list[str]", told) == ["verdict"] * 10
        return judge.most

    assert asyncio.run(run()) == most


def test_it_says_how_it_is() -> None:
    async def run() -> dict[str, Any]:
        return Service(lambda _: None).health(3, 1, leaving=False)

    told = asyncio.run(run())
    assert (told["protocol"], told["pid"], told["ready"]) == (1, os.getpid(), False)
    assert (told["requests"], told["waiting"], told["leaving"]) == (3, 1, False)


@pytest.mark.parametrize("missing", [False, True])
def test_what_a_judging_needs_is_there_before_anybody_asks(
    monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    """Who asks does not wait for more than models; what cannot be loaded is no reason not to start."""
    steps: list[str] = []
    service: list[Service] = []

    async def loaded() -> None:
        steps.append("models")
        if missing:
            raise ImportError

    def load() -> None:
        steps.append(f"secrets, ready: {service[0].ready.is_set()}")
        if missing:
            raise ImportError

    monkeypatch.setattr(litellm, "loaded", loaded)
    monkeypatch.setattr(redact, "load", load)

    async def run() -> None:
        service.append(Service(lambda _: None))
        await service[0].prepare()

    asyncio.run(run())
    assert steps == ["models", "secrets, ready: True"]


def test_memory_is_known() -> None:
    assert 10_000_000 < rss_bytes() < 10_000_000_000


def test_one_document_does_not_wait_for_a_thousand_of_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at a time: what comes last is judged after those that are under way, and at most one turn."""
    monkeypatch.setattr(assess, "max_concurrency", lambda *_: 2)

    async def run() -> int:
        service, judge = Service(lambda _: None), Counting()
        finished: list[str] = []

        async def ask(client: str) -> None:
            with app.on_behalf_of(Carried(environ={}, cwd="/", client=client)):
                await service.judged(cast("DocumentJudge", judge), cast("Document", None))
            finished.append(client)

        many = [asyncio.create_task(ask("many")) for _ in range(1000)]
        while judge.now < 2:  # noqa: ASYNC110 - until both turns are taken, and all others wait
            await asyncio.sleep(0)
        await ask("one")
        place = finished.index("one")
        await asyncio.gather(*many)
        assert len(finished) == 1001
        return place

    assert asyncio.run(run()) <= 4


def test_the_next_begins_when_the_one_before_asks_ends_fails_or_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judges, "LONGEST", 0.01)
    seen: list[str] = []

    async def work(service: Service, name: str, *, end: asyncio.Event) -> None:
        async with service.beginning():
            for step in range(3):
                seen.append(f"{name}{step}")
                await asyncio.sleep(0)
            if name in "ab":
                for _ in range(2):  # of the next tier nothing is left to be given back
                    cast("Any", before_asking.get())()
            if name == "c":
                raise ValueError
            await end.wait()

    async def run() -> None:
        service, end = Service(lambda _: None), asyncio.Event()
        works = [asyncio.create_task(work(service, name, end=end)) for name in "abcdefg"]
        await asyncio.sleep(0)
        works[5].cancel()  # it waits for its turn
        while "g2" not in seen:  # noqa: ASYNC110 - d and e wait for something else for too long
            await asyncio.sleep(0.01)
        end.set()
        await asyncio.gather(*works, return_exceptions=True)
        async with service.beginning():
            assert before_asking.get() is not None
        assert before_asking.get() is None

    asyncio.run(asyncio.wait_for(run(), 10))
    assert seen == [f"{name}{step}" for name in "abcdeg" for step in range(3)]
