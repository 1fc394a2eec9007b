from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest

from judgekit.engine import judges as prepared
from judgekit.engine.judges import Judges
from judgekit.environment import Brought
from judgekit.errors import ConfigError
from judgekit.judging import service
from judgekit.judging.service import JudgeRequest
from judgekit.providers.base import models_by_tier
from judgekit.providers.gateway import open_gateway

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from judgekit.judging.score import DocumentJudge

WISH = JudgeRequest()
MODEL = {"JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1", "JUDGEKIT_MODEL": "stand-in"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".judgekit").mkdir()
    return tmp_path


async def get(
    judges: Judges,
    project: Path | None,
    judge_request: JudgeRequest = WISH,
    variables: Mapping[str, str] = MODEL,
) -> DocumentJudge:
    with Brought({**os.environ, **variables}):
        return await judges.get(project, judge_request)


def test_the_same_is_made_once(project: Path) -> None:
    async def run() -> None:
        judges = Judges(open_gateway({}))
        first = await get(judges, project)
        assert await get(judges, project) is first
        assert await get(judges, project, variables={**MODEL, "PWD": "/elsewhere", "SHLVL": "7"}) is first

    asyncio.run(run())


def test_those_who_ask_at_once_wait_for_one(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    make = service.document_judge

    def counted(*given: object) -> object:
        nonlocal made
        made += 1
        return make(*given)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(service, "document_judge", counted)

    async def run() -> None:
        judges = Judges(open_gateway({}))
        found = await asyncio.gather(*(get(judges, project) for _ in range(20)))
        assert len({id(document_judge) for document_judge in found}) == 1

    asyncio.run(run())
    assert made == 1


def test_others_have_judges_of_their_own(project: Path) -> None:
    async def run() -> None:
        judges = Judges(open_gateway({}))
        first = await get(judges, project)
        other = {**MODEL, "JUDGEKIT_MODEL": "another"}
        ((endpoint, *_), *_) = models_by_tier((await get(judges, project, variables=other)).panel).values()
        assert endpoint.model.endswith("another")
        assert (await get(judges, project, JudgeRequest(mode="lenient"))).mode == "lenient"
        assert (await get(judges, None)) is not first

    asyncio.run(run())


def test_a_change_of_configuration_is_seen_at_once(project: Path, isolated: Path) -> None:
    own = isolated / "judgekit"
    own.mkdir()

    async def run() -> None:
        judges = Judges(open_gateway({}))
        assert (await get(judges, project)).mode == "strict"
        (project / ".judgekit/config.yaml").write_text("judge: {mode: lenient}\n")
        assert (await get(judges, project)).mode == "lenient"
        (own / "config.yaml").write_text("judge: {deadline: 7}\n")
        assert (await get(judges, project)).deadline == 7

    asyncio.run(run())


def test_what_is_wrong_is_said_each_time_until_it_is_mended(project: Path) -> None:
    config = project / ".judgekit/config.yaml"
    config.write_text("judge: {mode: gentle}\n")

    async def run() -> None:
        judges = Judges(open_gateway({}))
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"judge\.mode"):
                await get(judges, project)
        config.write_text("judge: {mode: strict}\n")
        assert (await get(judges, project)).mode == "strict"

    asyncio.run(run())


def test_an_old_one_is_made_anew_whatever_the_clock_says(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local server may have come up since; the clock of the wall may jump, that one does not."""

    async def run() -> None:
        judges = Judges(open_gateway({}))
        first = await get(judges, project)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        assert await get(judges, project) is first
        monkeypatch.setattr(prepared, "SECONDS", -1.0)
        assert await get(judges, project) is not first

    asyncio.run(run())


def test_not_more_than_some_are_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MOST", 2)

    async def run() -> None:
        judges = Judges(open_gateway({}))
        for seconds in range(1, 6):
            await get(judges, project, JudgeRequest(deadline=seconds))
        assert len(judges._kept) == 2

    asyncio.run(run())


def test_who_goes_away_takes_nobody_elses_judge_along(project: Path) -> None:
    async def run() -> None:
        judges = Judges(open_gateway({}))
        first, second = (asyncio.create_task(get(judges, project)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).mode == "strict"

    asyncio.run(run())


def test_what_is_not_used_any_more_is_let_go(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        judges = Judges(open_gateway({}))
        await get(judges, project, variables={**MODEL, "JUDGEKIT_API_KEY": "sk-of-somebody"})
        monkeypatch.setattr(prepared, "SECONDS", -1.0)
        await get(judges, project)
        assert "sk-of-somebody" not in repr(judges._kept)

    asyncio.run(run())
