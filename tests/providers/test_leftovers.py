"""What is ended of the processes that run, and what is not."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from judgekit.providers import command

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = secrets.token_hex(16)  # tests of other processes look through the whole machine, too
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux alone shows")


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def started(running: list[subprocess.Popen[bytes]], **variables: str) -> subprocess.Popen[bytes]:
    code = "import time; print(flush=True); time.sleep(60)"
    environ = {"PATH": os.environ["PATH"], **variables}
    process = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
    running.append(process)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()  # now it has the environment it was given
    return process


def test_those_with_the_mark_are_ended(running: list[subprocess.Popen[bytes]]) -> None:
    marked = [started(running, JUDGEKIT_INSIDE=MARK) for _ in range(2)]
    assert command.kill_marked("JUDGEKIT_INSIDE", MARK) == len(marked)
    assert [process.wait(5) for process in marked] == [-9, -9]


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"JUDGEKIT_INSIDE": "1"},
        {"JUDGEKIT_INSIDE": f"{MARK}0"},
        {"JUDGEKIT_INSIDE": f"0{MARK}"},
        {"NOT_JUDGEKIT_INSIDE": MARK},
        {"NOTE": f"JUDGEKIT_INSIDE={MARK}"},
    ],
    ids=["nothing", "another", "longer", "shorter", "another name", "within"],
)
def test_others_are_left_alone(running: list[subprocess.Popen[bytes]], variables: dict[str, str]) -> None:
    other = started(running, **variables)
    assert command.kill_marked("JUDGEKIT_INSIDE", MARK) == 0
    assert other.poll() is None


def test_where_no_environment_can_be_read_nothing_is_ended(
    running: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = started(running, JUDGEKIT_INSIDE=MARK)
    monkeypatch.setattr(command, "_PROCESSES", "/nowhere")
    assert command.kill_marked("JUDGEKIT_INSIDE", MARK) == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    assert command.kill_marked("JUDGEKIT_INSIDE", MARK) == 0
    assert marked.poll() is None
