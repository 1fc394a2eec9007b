"""The reply cache between processes that write, read and die, on full disks and in damaged files."""

from __future__ import annotations

import hashlib
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from making import reply
from scripted import scripted_endpoint

from judgekit.judging import cache as reply_cache
from judgekit.judging.cache import ReplyCache
from judgekit.providers.base import CallKey, Message, Reply, Request

if TYPE_CHECKING:
    from pathlib import Path

WRITERS = 4
QUESTIONS = 60
# One process that keeps and finds replies until it is killed or has done its rounds; it prints what is wrong.
WRITER = """
import pathlib, random, sys
sys.path[:0] = {paths!r}
import test_reply_cache_stress as stress
cache = stress.ReplyCache(pathlib.Path({file!r}))
draw = random.Random(int(sys.argv[1]))
wrong = 0
for _ in range(int(sys.argv[2])):
    number = draw.randrange(stress.QUESTIONS)
    if draw.random() < 0.5:
        cache.keep(stress.scripted_endpoint("m"), stress.question(number), stress.answer(number))
    else:
        wrong += not stress.is_right(cache, number)
print(wrong)
"""


def question(number: int) -> Request:
    return Request((Message("user", f"question {number}"),), CallKey("s", "kls@1.0.0", "quick"), 5, 100)


def answer(number: int) -> Reply:
    """Return the one right answer, so that a torn or mixed-up one shows; some fill several pages."""
    text = hashlib.sha256(str(number).encode()).hexdigest()
    return reply(text * (1 + number % 7 * 40), "m")


def is_right(cache: ReplyCache, number: int) -> bool:
    reply = cache.find(scripted_endpoint("m"), question(number))
    return reply is None or reply.text == answer(number).text


def writer(file: Path, seed: int, rounds: int) -> subprocess.Popen[str]:
    code = WRITER.format(
        paths=[each for each in sys.path if each.endswith(("judging", "support"))], file=str(file)
    )
    code = code.replace("sys.path[:0] = [", f"sys.path[:0] = [{__file__.rpartition('/')[0]!r}, ")
    return subprocess.Popen(
        [sys.executable, "-c", code, str(seed), str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_that_write_read_and_die_never_get_a_wrong_reply(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "replies.sqlite"
    lasting = [writer(file, seed, 300) for seed in range(WRITERS - 2)]
    doomed = [writer(file, seed, 10_000_000) for seed in range(2)]
    try:
        deadline = time.monotonic() + 60
        while not _rows(file) and time.monotonic() < deadline:
            time.sleep(0.05)
        draw = random.Random(7)
        for process in doomed:
            time.sleep(draw.random())
            process.kill()
        ends = [each.communicate(timeout=120) for each in lasting]
    finally:
        for process in (*lasting, *doomed):
            process.kill()
            process.communicate(timeout=10)
    assert ends == [("0\n", "")] * len(lasting)
    cache = ReplyCache(file)
    cache.keep(scripted_endpoint("m"), question(0), answer(0))
    assert all(is_right(cache, number) for number in range(QUESTIONS))
    assert cache.find(scripted_endpoint("m"), question(0)) is not None
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _rows(file: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM reply").fetchone()[0])
    except sqlite3.Error:
        return 0


@pytest.mark.parametrize("seed", range(8))
def test_a_file_with_bytes_gone_wrong_is_begun_anew_or_right(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "replies.sqlite"
    cache = ReplyCache(file)
    for number in range(QUESTIONS):
        cache.keep(scripted_endpoint("m"), question(number), answer(number))
    with closing(cache._open()) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    draw, content = random.Random(seed), bytearray(file.read_bytes())
    for place in draw.sample(range(0, len(content), 4096), 3):
        content[place : place + 200] = draw.randbytes(200)
    file.write_bytes(content[: -draw.randrange(1, 5000)])
    again = ReplyCache(file)
    found = [again.find(scripted_endpoint("m"), question(number)) for number in range(QUESTIONS)]
    assert all(reply is None or reply.text == answer(number).text for number, reply in enumerate(found))
    for number in (1, 2):  # the first may find out that the file is damaged
        again.keep(scripted_endpoint("m"), question(number), answer(number))
    assert again.find(scripted_endpoint("m"), question(2)) is not None


def test_a_renewal_spares_what_another_process_began_anew(tmp_path: Path) -> None:
    file = tmp_path / "replies.sqlite"
    file.write_bytes(b"no database at all, but long enough to be looked at")
    late = ReplyCache(file)
    with pytest.raises(sqlite3.DatabaseError):
        late._open()
    early = ReplyCache(file)
    assert early.find(scripted_endpoint("m"), question(1)) is None
    early.keep(scripted_endpoint("m"), question(1), answer(1))
    late._remove()
    assert late.find(scripted_endpoint("m"), question(1)) is not None


def test_the_file_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_cache, "MAX_BYTES", 400_000)
    monkeypatch.setattr(reply_cache, "_TRIM_EVERY", 10)
    file = tmp_path / "replies.sqlite"
    cache = ReplyCache(file)
    for number in range(200):
        cache.keep(scripted_endpoint("m"), question(number), reply(f"{number}" + "x" * 20_000, "m"))
        assert file.stat().st_size <= 400_000
    kept = [number for number in range(200) if cache.find(scripted_endpoint("m"), question(number))]
    assert kept == list(range(kept[0], 200))  # the newest
    assert 3 <= len(kept) < 20
    cache.keep(scripted_endpoint("m"), question(200), reply("x" * reply_cache.MAX_REPLY, "m"))
    assert cache.find(scripted_endpoint("m"), question(200)) is None, "too long"
    monkeypatch.setattr(reply_cache, "_TRIM_EVERY", 100)
    full = ReplyCache(tmp_path / "full.sqlite")
    for number in range(60):  # far more than there is room for, before the next look at what is too much
        full.keep(scripted_endpoint("m"), question(number), reply("x" * 20_000, "m"))
    assert any(full.find(scripted_endpoint("m"), question(number)) for number in range(50, 60))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are POSIX")
def test_a_full_disk_costs_a_call_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "replies.sqlite"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
    program = writer(file, 1, 0)
    program.communicate(timeout=60)
    code = limit + str(program.args[2]) if isinstance(program.args, list) else ""
    done = subprocess.run(
        [sys.executable, "-c", code, "1", "300"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    assert all(path.stat().st_size <= 60_000 for path in tmp_path.iterdir())
    cache = ReplyCache(file)
    cache.keep(scripted_endpoint("m"), question(1), answer(1))
    assert cache.find(scripted_endpoint("m"), question(1)) is not None
