"""A session's start: the engine is started where prompts are judged, and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import sample_store

from judgekit.engine import client
from judgekit.hooks import session

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(client, "start", lambda _: found.append(True))
    monkeypatch.delenv("JUDGEKIT_ENGINE")
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    sample_store.write(tmp_path)
    return tmp_path


def test_where_prompts_are_judged_it_is_started(
    project: Path, started: list[bool], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_JUDGE", "on")
    session.begin(str(project))
    assert started == [True]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"JUDGEKIT_RETRIEVAL_JUDGE": "on", "JUDGEKIT_ENGINE": "0"},
        {"JUDGEKIT_RETRIEVAL_JUDGE": "on", "JUDGEKIT_RETRIEVAL_ENABLED": "false"},
    ],
    ids=json.dumps,
)
def test_elsewhere_it_is_not(
    project: Path, started: list[bool], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session.begin(str(project))
    assert started == []


def test_what_was_in_vain_lately_is_left_alone(
    project: Path, started: list[bool], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_JUDGE", "on")
    for _ in range(3):
        session.begin(str(project))
    assert started == [True]
    assert capfd.readouterr() == ("", "")


def test_a_project_alone_starts_nothing(project: Path, started: list[bool]) -> None:
    (project / ".judgekit").mkdir(exist_ok=True)
    (project / ".judgekit" / "config.yaml").write_text("retrieval: {judge: on}\n")
    session.begin(str(project))
    assert started == []
