from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from judgekit.judging import fence

FORKING = """
import os
from judgekit.judging import fence
fence.token(1)
child = os.fork()
if child:
    os.waitpid(child, 0)
os.write(1, fence.token(8).encode() + b" ")
"""


@pytest.mark.parametrize("size", [1, 8, 16, 4095, 4097])
def test_a_token_has_the_wanted_size(size: int) -> None:
    assert re.fullmatch(rf"[0-9a-f]{{{2 * size}}}", fence.token(size))


def test_nothing_is_handed_out_twice() -> None:
    drawn = [fence.token(8) for _ in range(5000)]
    assert len(set(drawn)) == len(drawn)


def test_nothing_is_handed_out_twice_to_threads() -> None:
    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(lambda _: [fence.token(8) for _ in range(500)], range(16)))
    drawn = [each for part in parts for each in part]
    assert len(set(drawn)) == len(drawn)


def test_the_system_is_asked_once_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    monkeypatch.setattr(fence, "_stock", b"")
    monkeypatch.setattr(os, "urandom", urandom)
    assert {fence.token(8) for _ in range(100)} == {"00" * 8}
    assert len(asked) == 1
    monkeypatch.setattr(fence, "_stock", b"")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_draws_anew() -> None:
    # In a process of its own, which has no threads: forking others is frowned upon.
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True, timeout=60)
    theirs, ours = done.stdout.split()
    assert len(theirs) == len(ours) == 16
    assert theirs != ours
