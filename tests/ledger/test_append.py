from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from datetime import date
from typing import TYPE_CHECKING

import ledger_writer
import pytest

from judgekit.config.files import held
from judgekit.ledger import store
from judgekit.ledger.store import LedgerError

if TYPE_CHECKING:
    from pathlib import Path

DAY = date(2026, 3, 20)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes, limits and signals")


def add(folder: Path, *lines: bytes) -> None:
    store.append(folder, [(DAY, line) for line in lines])


def content(folder: Path) -> bytes:
    files = [folder / "2026-03-20.jsonl", *(folder / f"2026-03-20.{number}.jsonl" for number in range(1, 50))]
    return b"".join(file.read_bytes() for file in files if file.exists())


def test_lines_follow_each_other(tmp_path: Path) -> None:
    add(tmp_path / "x", b"1\n")
    add(tmp_path / "x", b"2\n", b"3\n")
    assert content(tmp_path / "x") == b"1\n2\n3\n"


def test_each_line_goes_to_its_day(tmp_path: Path) -> None:
    store.append(tmp_path, [(DAY, b"1\n"), (date(2026, 3, 19), b"2\n")])
    assert (tmp_path / "2026-03-19.jsonl").read_bytes() == b"2\n"


@POSIX
@pytest.mark.parametrize("target", ["gone", "state"])
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "state").symlink_to(target)
    with pytest.raises(LedgerError) as error:
        add(tmp_path / "state" / "x", b"1\n")
    assert f"({tmp_path / 'state'} is a link that leads to no folder); make that folder" in str(error.value)
    assert "free space" not in str(error.value)


def test_a_torn_tail_does_not_swallow_the_next_line(tmp_path: Path) -> None:
    (tmp_path / "2026-03-20.jsonl").write_bytes(b'1\n{"sche')
    add(tmp_path, b"2\n")
    assert content(tmp_path) == b'1\n{"sche\n2\n'


@POSIX
def test_all_of_it_is_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        add(tmp_path / "state" / "x", b"1\n")
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")}
    assert modes == {"x": 0o700, ".lock": 0o600, "2026-03-20.jsonl": 0o600}


def test_a_full_file_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 4)
    for number in range(5):
        add(tmp_path, b"%d\n" % number)
    found = [path.read_bytes() for path in store.files([tmp_path])]
    assert found == [b"0\n1\n", b"2\n3\n", b"4\n"]


def test_a_short_write_is_taken_away_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a full disk does: the first write falls short, the second fails."""
    add(tmp_path, b"1\n")
    real, calls = os.write, 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(28, "No space left on device")
        return real(descriptor, bytes(data)[:3])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(LedgerError, match=r"No space left on device.*free space there") as caught:
            add(tmp_path, b"123456\n")
    assert (content(tmp_path), caught.value.written) == (b"1\n", 0)
    add(tmp_path, b"2\n")
    assert content(tmp_path) == b"1\n2\n"


@POSIX
def test_a_limit_on_files_leaves_whole_lines(tmp_path: Path) -> None:
    """The kernel's own short write: a file may not grow beyond 1,000 bytes."""
    code = (
        "import sys, resource, datetime, pathlib\n"
        "from judgekit.ledger.store import append, LedgerError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: append(pathlib.Path(sys.argv[1]), [(datetime.date(2026, 3, 20), b'x' * 299 + b'\\n')] * 9)\n"
        "except LedgerError as error: print(error.written, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("3 ")
    assert "File too large" in done.stdout
    assert content(tmp_path) == (b"x" * 299 + b"\n") * 3


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small tmpfs")
def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=False).returncode:
        pytest.skip("not allowed to mount here")
    try:
        with pytest.raises(LedgerError, match="No space left on device") as caught:
            add(tmp_path / "x", *[b"y" * 2999 + b"\n"] * 9)
        kept = content(tmp_path / "x")
        assert kept == (b"y" * 2999 + b"\n") * caught.value.written
        assert caught.value.written >= 2
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@POSIX
def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"file/x: the ledger cannot be written"):
        add(tmp_path / "file" / "x", b"1\n")


def test_a_writer_that_hangs_does_not_hang_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SECONDS", 0.05)
    with (
        held(tmp_path / store.LOCK, seconds=1),
        pytest.raises(LedgerError, match="held by another process"),
    ):
        store.append(tmp_path, [(DAY, b"1\n")])


@POSIX
def test_a_thousand_appends_from_twenty_writers_some_of_them_killed(tmp_path: Path) -> None:
    """Each line is whole but the last of a killed writer; what a writer had finished is there, in order."""
    chance = random.Random(4)
    killed = chance.sample(range(20), 6)
    plans = [100_000 if number in killed else 72 for number in range(20)]  # the killed would go on and on
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["ledger_writer"])
    start = processes.Event()
    names = [str(name) for name in range(20)]
    writers = [
        processes.Process(target=ledger_writer.write, args=(str(tmp_path), name, times, start))
        for name, times in zip(names, plans, strict=True)
    ]
    for name, fork_server_process in zip(names, writers, strict=True):
        (tmp_path / name).touch()
        fork_server_process.start()
    start.set()
    for number in killed:
        _wait_for(tmp_path / names[number], chance.randrange(1, 30))
        writers[number].kill()
    for writer in writers:
        writer.join(120)
    finished = {name: _finished(tmp_path / name) for name in names}
    found: dict[str, list[int]] = {name: [] for name in names}
    torn = 0
    for raw in content(tmp_path).splitlines():
        try:
            line = json.loads(raw)
        except ValueError:
            torn += 1
        else:
            assert line["text"] == ledger_writer.text(line["number"])
            found[line["by"]].append(line["number"])
    assert [writer.exitcode for writer in writers] == [-9 if number in killed else 0 for number in range(20)]
    assert torn <= len(killed)
    assert sum(len(each) for each in found.values()) >= 1000
    for name in names:
        assert found[name] == list(range(len(found[name])))
        assert finished[name] <= len(found[name]) <= finished[name] + 1


def _finished(path: Path) -> int:
    return len(path.read_text().splitlines())


def _wait_for(path: Path, lines: int) -> None:
    """Wait until a writer has come so far; it is killed in the middle of its work."""
    deadline = time.monotonic() + 60
    while _finished(path) < lines and time.monotonic() < deadline:
        time.sleep(0.001)


@POSIX
def test_a_writer_killed_in_the_middle_of_its_line(tmp_path: Path) -> None:
    """The writer dies after half its line; the others go on and the reader says which line is torn."""
    code = (
        "import os, sys, signal, datetime, pathlib\n"
        "from judgekit.ledger import store\n"
        "real = os.write\n"
        "def write(descriptor, data):\n"
        "    real(descriptor, bytes(data)[:9]); os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.write = write\n"
        'store.append(pathlib.Path(sys.argv[1]), [(datetime.date(2026, 3, 20), b\'{"schema": "x"}\\n\')])\n'
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    add(tmp_path, b"{}\n")
    assert content(tmp_path) == b'{"schema"\n{}\n'
    said: list[store.Damage] = []
    assert list(store.records([tmp_path], damaged=said.append)) == []
    assert [damage.line for damage in said] == [1, 2]
    assert "not JSON (cut off when its writer was killed, or edited)" in str(said[0])
