"""A command that is told to end takes along what it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from judgekit.cli.app import terminable
from judgekit.config import settings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends processes otherwise")

PROGRAM = """#!{python}
import os, time
open({place!r}, "w").write(str(os.getpid()))
time.sleep(60)
"""
PROFILE = """\
provider: my-program
title: A program of mine
kind: command
detect: {command: my-program}
argv: [my-program]
models: {quick: default}
output: text
"""


def test_a_program_that_is_asked_ends_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, program = tmp_path / "pid", tmp_path / "bin" / "my-program"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(python=sys.executable, place=str(place)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    profile = settings.user_file().parent / "providers" / "my-program.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(PROFILE)
    settings.user_file().write_text("providers: {allow: [my-program]}\n")
    (tmp_path / "a.md").write_text("# A page\n\nWith a text.\n")
    command = [sys.executable, "-m", "judgekit", "judge", "a.md", "--no-engine"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as judging:
        assert _waited(lambda: place.exists() and place.read_text() != "")
        judging.terminate()
        assert judging.wait(20) == -signal.SIGTERM
        assert judging.stderr is not None
        assert b"Traceback" not in judging.stderr.read()
    asked = int(place.read_text())
    assert _waited(lambda: not _lives(asked))


def test_nothing_changes_but_while_it_is_entered_on_the_main_thread() -> None:
    assert handlers() == (signal.SIG_DFL, True, signal.SIG_DFL)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handlers).result() == (signal.SIG_DFL, False, signal.SIG_DFL)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert handlers() == (signal.SIG_IGN, False, signal.SIG_IGN)  # who handles it already goes on
    finally:
        signal.signal(signal.SIGTERM, before)


def handlers() -> tuple[object, bool, object]:
    """Return who handles the signal before and after, and whether that differs in between."""
    before = signal.getsignal(signal.SIGTERM)
    with terminable():
        differs = signal.getsignal(signal.SIGTERM) is not before
    return before, differs, signal.getsignal(signal.SIGTERM)


def _waited(happens: object, seconds: float = 30) -> bool:
    assert callable(happens)
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(happens())


def _lives(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    if Path("/proc/self").exists():
        return status.exists() and "State:\tZ" not in status.read_text()
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
