"""Ctrl-C: one line that says what is kept, exit code 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from loopback import SILENT, Loopback, says

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="interrupts processes otherwise")
GOOD = '{"reasoning": "sound", "scores": {"semantic": 5, "pragmatic": 5, "syntactic": 5}, "findings": []}'
COMMANDS = {
    "judge": (
        ["judge", "a.md", "b.md", "-j", "1", "--mode", "lenient", "--no-engine"],
        "1 verdict is complete",
    ),
    "compare": (["compare", "a.md", "b.md", "--prompt", "p"], "complete replies are cached"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_kept_is_said_in_one_line(command: str, tmp_path: Path) -> None:
    words, kept = COMMANDS[command]
    (tmp_path / "a.md").write_text("# A page\n\nWith a text.\n")
    (tmp_path / "b.md").write_text("# Another page\n\nWith another text.\n")
    with Loopback(says(GOOD), SILENT) as server:
        code, said = interrupted(words, tmp_path, server, requests=2 if command == "judge" else 1)
    assert code == 130, said
    lines = said.rstrip("\n").split("\n")
    assert [line for line in lines if "interrupted" in line] == lines[-1:]
    assert kept in lines[-1]
    assert lines[-1].endswith("run the same command to continue")
    assert "Traceback" not in said


def interrupted(words: Sequence[str], folder: Path, server: Loopback, requests: int) -> tuple[int, str]:
    """Run a command until the model was asked so often, interrupt it, and return its exit code and stderr."""
    environ = {**os.environ, "JUDGEKIT_API_BASE": server.base, "JUDGEKIT_MODEL": "stand-in"}
    command = [sys.executable, "-m", "judgekit", *words]
    with subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while len(server.requests) < requests and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    return process.returncode, said
