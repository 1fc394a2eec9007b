from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from judgekit.config import files

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, time
from pathlib import Path
from judgekit.config import files
with files.held(Path(sys.argv[1]), seconds=5, waiting=lambda: None):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_free_lock_is_taken_without_waiting(tmp_path: Path) -> None:
    for _ in range(2):
        with files.held(tmp_path / "lock", seconds=0, waiting=lambda: pytest.fail("nobody holds it")):
            pass


def test_it_is_held_against_others_and_freed_by_death(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waits: list[str] = []
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(TimeoutError, match="held by another process"),
            files.held(path, seconds=0.3, waiting=lambda: waits.append("waited")),
        ):
            pytest.fail("two held it")
        assert waits == ["waited"]
    finally:
        holder.kill()
        holder.communicate(timeout=10)
    with files.held(path, seconds=5, waiting=lambda: None):
        pass
