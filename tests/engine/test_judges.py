"""What an engine keeps: judges, turns at a provider, and a gateway that is lent to threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import pytest
from asking import custom, request
from looped import looped
from making import reply

from judgekit.engine import app, judges
from judgekit.engine.app import Carried
from judgekit.engine.judges import Judges, Service, ThreadGateway, in_thread, rss_bytes
from judgekit.environment import Brought
from judgekit.errors import ConfigError
from judgekit.judging import redact, service
from judgekit.judging.service import JudgeRequest
from judgekit.providers import litellm, running
from judgekit.providers.base import models_by_tier
from judgekit.providers.gateway import before_asking, open_gateway
from judgekit.providers.pace import caller

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.judging.documents import Document
    from judgekit.judging.score import DocumentJudge
    from judgekit.providers.base import Endpoint, Reply, Request

WISH = JudgeRequest()
MODEL = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", "JUDGEKIT_MODEL": "stand-in"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".judgekit").mkdir()
    return tmp_path


class Kept(Judges):
    """Judges through a gateway of their own."""

    def __init__(self) -> None:
        super().__init__(open_gateway({}))

    async def of(
        self, project: Path | None, wish: JudgeRequest = WISH, variables: Mapping[str, str] = MODEL
    ) -> DocumentJudge:
        with Brought({**os.environ, **variables}):
            return await self.get(project, wish)


@looped
async def test_the_same_is_made_once_and_another_anew(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = service.document_judge

    def counted(*given: Any) -> object:  # noqa: ANN401 - handed on as it came
        made.append(given)
        return make(*given)

    monkeypatch.setattr(service, "document_judge", counted)
    kept = Kept()
    first, *others = await asyncio.gather(*(kept.of(project) for _ in range(20)))
    assert all(other is first for other in others)
    assert len(made) == 1
    monkeypatch.setattr(time, "time", lambda: 0.0)  # the clock of the wall may jump, that one does not
    assert await kept.of(project, variables={**MODEL, "PWD": "/elsewhere", "SHLVL": "7"}) is first
    other = await kept.of(project, variables={**MODEL, "JUDGEKIT_MODEL": "another"})
    ((endpoint, *_), *_) = models_by_tier(other.panel).values()
    assert endpoint.model.endswith("another")
    assert (await kept.of(project, JudgeRequest(mode="lenient"))).mode == "lenient"
    assert await kept.of(None) is not first


@looped
async def test_a_change_of_configuration_is_seen_at_once(project: Path, isolated: Path) -> None:
    own, config = isolated / "judgekit/config.yaml", project / ".judgekit/config.yaml"
    own.parent.mkdir()
    kept = Kept()
    assert (await kept.of(project)).mode == "strict"
    config.write_text("judge: {mode: gentle}\n")
    for _ in range(2):  # what is wrong is said each time
        with pytest.raises(ConfigError, match=r"judge\.mode"):
            await kept.of(project)
    config.write_text("judge: {mode: lenient}\n")
    assert (await kept.of(project)).mode == "lenient"
    own.write_text("judge: {deadline: 7}\n")
    assert (await kept.of(project)).deadline == 7


@looped
async def test_old_ones_and_too_many_are_let_go(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "MOST", 2)
    kept = Kept()
    for seconds in range(1, 6):
        await kept.of(project, JudgeRequest(deadline=seconds))
    assert len(kept._kept) == 2
    first = await kept.of(project, variables={**MODEL, "JUDGEKIT_API_KEY": "sk-of-somebody"})
    monkeypatch.setattr(judges, "SECONDS", -1.0)
    assert await kept.of(project) is not first
    assert "sk-of-somebody" not in repr(kept._kept)


@looped
async def test_who_goes_away_takes_nobody_elses_judge_along(project: Path) -> None:
    kept = Kept()
    first, second = (asyncio.create_task(kept.of(project)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).mode == "strict"


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
@looped
async def test_a_modest_provider_is_asked_for_no_more_than_it_bears(
    monkeypatch: pytest.MonkeyPatch, bearable: int | None, most: int
) -> None:
    """However many clients ask at a time: each has one document under way."""
    monkeypatch.setattr(service, "max_concurrency", lambda _, at_once: bearable or at_once)
    own, judge = Service(lambda _: None), Counting()
    document_judge = cast("DocumentJudge", judge)
    told = await asyncio.gather(*(own.judged(document_judge, cast("Document", None)) for _ in range(10)))
    assert cast("list[str]", told) == ["verdict"] * 10
    assert judge.most == most


@looped
async def test_one_document_does_not_wait_for_a_thousand_of_another_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two at a time: what comes last is judged after those that are under way, and at most one turn."""
    monkeypatch.setattr(service, "max_concurrency", lambda *_: 2)
    own, judge = Service(lambda _: None), Counting()
    finished: list[str] = []

    async def ask(client: str) -> None:
        with app.on_behalf_of(Carried(environ={}, cwd="/", client=client)):
            await own.judged(cast("DocumentJudge", judge), cast("Document", None))
        finished.append(client)

    many = [asyncio.create_task(ask("many")) for _ in range(1000)]
    while judge.now < 2:  # noqa: ASYNC110 - until both turns are taken, and all others wait
        await asyncio.sleep(0)
    await ask("one")
    assert finished.index("one") <= 4
    await asyncio.gather(*many)
    assert len(finished) == 1001


@looped
async def test_the_next_begins_when_the_one_before_asks_ends_fails_or_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judges, "LONGEST", 0.01)
    seen: list[str] = []
    own, end = Service(lambda _: None), asyncio.Event()

    async def work(name: str) -> None:
        async with own.beginning():
            for step in range(3):
                seen.append(f"{name}{step}")
                await asyncio.sleep(0)
            if name in "ab":
                for _ in range(2):  # of the next tier nothing is left to be given back
                    cast("Any", before_asking.get())()
            if name == "c":
                raise ValueError
            await end.wait()

    works = [asyncio.create_task(work(name)) for name in "abcdefg"]
    await asyncio.sleep(0)
    works[5].cancel()  # it waits for its turn
    while "g2" not in seen:  # noqa: ASYNC110 - d and e wait for something else for too long
        await asyncio.sleep(0.01)
    end.set()
    await asyncio.gather(*works, return_exceptions=True)
    async with own.beginning():
        assert before_asking.get() is not None
    assert before_asking.get() is None
    assert seen == [f"{name}{step}" for name in "abcdeg" for step in range(3)]


@pytest.mark.parametrize("missing", [False, True])
@looped
async def test_what_a_judging_needs_is_there_before_anybody_asks(
    monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    """Who asks does not wait for more than models; what cannot be loaded is no reason not to start."""
    steps: list[str] = []
    own = Service(lambda _: None)

    async def loaded() -> None:
        steps.append("models")
        if missing:
            raise ImportError

    def load() -> None:
        steps.append(f"secrets, ready: {own.ready.is_set()}")
        if missing:
            raise ImportError

    monkeypatch.setattr(litellm, "loaded", loaded)
    monkeypatch.setattr(redact, "load", load)
    told = own.health(3, 1, leaving=False)
    assert (told["protocol"], told["pid"], told["ready"]) == (1, os.getpid(), False)
    assert (told["requests"], told["waiting"], told["leaving"]) == (3, 1, False)
    await own.prepare()
    assert steps == ["models", "secrets, ready: True"]
    assert own.health(3, 1, leaving=False)["ready"] is not missing
    assert 10_000_000 < rss_bytes() < 10_000_000_000


class Held:
    """A gateway that answers in the thread it was made for, or not at all."""

    def __init__(self, *, silent: bool = False) -> None:
        self.threads: list[int] = []
        self.callers: list[str] = []
        self.asked = threading.Event()
        self.closed = self.cancelled = False
        self._silent = silent

    async def complete(self, endpoint: Endpoint, _: Request) -> Reply:
        self.threads.append(threading.get_ident())
        self.callers.append(caller.get())
        self.asked.set()
        try:
            await asyncio.sleep(60 if self._silent else 0)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return reply("{}", endpoint.model)

    async def aclose(self) -> None:
        self.closed = True


def flow() -> str:
    """Ask twice, as a flow does: with a gateway of its own, in an event loop of its own."""

    async def run() -> str:
        async with aclosing(open_gateway({})) as gateway:
            await gateway.complete(custom("http://127.0.0.1:1/v1"), request())
            return (await gateway.complete(custom("http://127.0.0.1:1/v1"), request())).model

    return running.run(run())


@looped
async def test_a_flow_uses_the_gateway_of_the_loop_that_lends_it_in_the_turns_of_its_client() -> None:
    gateway = Held()
    caller.set("4711")
    assert (await in_thread(gateway, flow)).endswith("stand-in")
    assert gateway.threads == [threading.get_ident()] * 2
    assert gateway.callers == ["4711"] * 2
    assert not gateway.closed
    assert not isinstance(open_gateway({}), Held)  # nothing is lent beyond the flow


@looped
async def test_a_flow_nobody_waits_for_ends() -> None:
    gateway, ended = Held(silent=True), threading.Event()

    def work() -> None:
        try:
            flow()
        finally:
            ended.set()

    task = asyncio.create_task(in_thread(gateway, work))
    await asyncio.to_thread(gateway.asked.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 20)
    assert (gateway.cancelled, len(gateway.threads)) == (True, 1)


@looped
async def test_a_call_that_is_made_while_the_gateway_is_taken_back_is_cancelled_too() -> None:
    """Who takes back looks through the calls at the very moment at which one is being noted down."""
    lent = ThreadGateway(Held(silent=True), asyncio.get_running_loop())

    class TakenBackMeanwhile(set[Any]):
        def add(self, call: Any) -> None:  # noqa: ANN401 - as in a set
            lent.take_back()
            super().add(call)

    lent._calls = TakenBackMeanwhile()
    with pytest.raises(asyncio.CancelledError):
        await lent.complete(custom("http://127.0.0.1:1/v1"), request())
