from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from engine_processes import private_folder

from judgekit.config import settings
from judgekit.engine import client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outcome import Run


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a runtime folder; engines in it end with the test."""
    with private_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        (folder / "judgekit").mkdir(mode=0o700)
        yield folder / "judgekit"


def test_start_see_and_stop(judgekit: Run, runtime: Path) -> None:
    assert judgekit("engine", "status").out.startswith("no engine is running")
    assert json.loads(judgekit("engine", "status", "--json").out) == {"engines": []}
    started = judgekit("engine", "start")
    assert started.code == 0, started.err
    assert str(runtime) in started.out
    again = judgekit("engine", "start")
    (told,) = json.loads(judgekit("engine", "status", "--json").out)["engines"]
    assert told["ready"] is True
    for said in (started.out, again.out, judgekit("engine", "status").out):
        assert f"process {told['pid']}: ready" in said
    stopped = judgekit("engine", "stop")
    assert (stopped.code, stopped.out.endswith(": stopped\n")) == (0, True)
    assert judgekit("engine", "stop").out == "no engine is running\n"


def test_stop_now(judgekit: Run, runtime: Path) -> None:
    client.connect_or_start().close()
    assert judgekit("engine", "stop", "--now").out.endswith(": stopped\n")
    assert json.loads(judgekit("engine", "status", "--json").out) == {"engines": []}


def test_a_wrong_configuration_is_said(judgekit: Run, runtime: Path) -> None:
    path = settings.user_file()
    path.parent.mkdir(parents=True)
    path.write_text("engine: {idle_minutes: 0}\n")
    outcome = judgekit("engine", "start")
    assert (outcome.code, outcome.out) == (78, "")
    assert f"{path}:1: engine.idle_minutes: expected a number above 0" in outcome.err


def test_who_wants_no_engine_is_promised_none(
    judgekit: Run, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGEKIT_ENGINE", raising=False)
    assert "starts one" in judgekit("engine", "status").out
    monkeypatch.setenv("JUDGEKIT_ENGINE", "0")
    assert judgekit("engine", "status").out == "no engine is running; it is switched off here\n"


def test_where_none_can_be_started(judgekit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "start", lambda _=None: None)
    outcome = judgekit("engine", "start")
    assert (outcome.code, outcome.out) == (70, "")
    assert "the engine could not start" in outcome.err
    assert len(outcome.err.splitlines()) == 1
