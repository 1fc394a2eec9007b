"""A command that is told to end takes along what it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
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


def test_who_handles_the_signal_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with terminable():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_it_leaves_the_signal_as_it_was() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with terminable():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_another_thread_changes_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with terminable():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


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
