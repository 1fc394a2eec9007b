"""The prompt hook as the client starts it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from memory_store import MemoryStore, jwt_store

if TYPE_CHECKING:
    from collections.abc import Mapping

QUESTION = "How do we refresh the JWT?"
SCRIPT = Path(sys.executable).with_name("judgekit")


def payload(store: MemoryStore, prompt: str = QUESTION) -> bytes:
    return json.dumps({"prompt": prompt, "cwd": str(store.project)}).encode()


def hook(
    stdin: bytes, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "judgekit", "hook", *arguments]
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return jwt_store(tmp_path / "project", 499)


@pytest.mark.skipif(not SCRIPT.exists(), reason="judgekit is not installed beside this Python")
def test_the_console_script_answers_like_the_module(store: MemoryStore) -> None:
    done = subprocess.run(
        [SCRIPT, "hook"], input=payload(store), capture_output=True, timeout=120, check=True
    )
    assert done.stdout == hook(payload(store)).stdout
    assert b"JWT token refresh flow -> decisions/jwt.json" in done.stdout


@pytest.mark.parametrize("stdin", [b"", b"\xff\x00"])
def test_bad_input_is_one_line_and_exit_code_0(stdin: bytes) -> None:
    done = hook(stdin)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"judgekit: stdin: ")


def test_the_output_is_utf8_whatever_the_locale_says(store: MemoryStore) -> None:
    store.add("jwt", "JWT refresh für Übersee — 流程", listed=False)
    environment = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = hook(payload(store), environment=environment)
    assert done.returncode == 0
    assert "JWT refresh für Übersee — 流程" in done.stdout.decode("utf-8")
    assert done.stderr == b""


def test_warnings_of_python_do_not_reach_the_agent(store: MemoryStore) -> None:
    hook(payload(store))  # makes the index: with all of Python's own checks that takes its time
    done = hook(payload(store), environment={"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"})
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.startswith(b"<memory-context")


CLOSED = ">&-", "2>&-", "<&-", ">&- 2>&- <&-", ">/dev/full", "| true"


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell closes the descriptors")
@pytest.mark.parametrize("redirection", CLOSED)
def test_closed_and_full_descriptors_are_survived(store: MemoryStore, redirection: str) -> None:
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    command = f'{{ "$0" -m judgekit hook; echo "code $?" >&3; }} {redirection}'
    if redirection == "| true":
        command = f'{{ sleep 0.2; "$0" -m judgekit hook; echo "code $?" >&3; }} {redirection}'
    done = subprocess.run(
        ["sh", "-c", f"exec 3>&1; {command}", sys.executable],
        input=payload(store),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"code 0" in done.stdout
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_folder_that_is_gone_is_no_crash(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = 'rmdir "$1"; exec "$0" -m judgekit hook'
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(gone)],
        cwd=gone,
        env=environment,
        input=b'{"prompt": "How do we refresh the JWT?"}',
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.count(b"\n") <= 1


def test_hooks_at_once_all_answer(store: MemoryStore) -> None:
    """The very first ones, which all find no index, and later ones while memories are added."""
    command = [sys.executable, "-m", "judgekit", "hook"]
    expected = b"JWT token refresh flow -> decisions/jwt.json"
    for round_ in range(2):
        running = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(6)
        ]
        store.add(f"added-{round_}", "Something else", listed=False)
        outputs = [process.communicate(payload(store), timeout=120) for process in running]
        assert [process.returncode for process in running] == [0] * 6
        assert all(expected in out for out, _ in outputs)
        assert [err for _, err in outputs] == [b""] * 6


def test_a_killed_first_run_leaves_nothing_in_the_way(store: MemoryStore, isolated: Path) -> None:
    running = subprocess.Popen([sys.executable, "-m", "judgekit", "hook"], stdin=subprocess.PIPE)
    assert running.stdin is not None
    running.stdin.write(payload(store))
    running.stdin.close()
    folder = isolated / "judgekit" / "cache" / "index"
    for _ in range(10_000):
        if running.poll() is not None or (folder.is_dir() and any(folder.iterdir())):
            break
    running.kill()
    running.wait(timeout=60)
    done = hook(payload(store))
    assert b"JWT token refresh flow" in done.stdout
    assert done.stderr == b""
