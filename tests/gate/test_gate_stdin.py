"""What the gate is told on stdin and by variables, and what it says where that is of no use."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from judgekit.hooks.pre_push import skipped_by

if TYPE_CHECKING:
    import pytest
    from pushing import World


def ask(world: World, told: bytes, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "judgekit", "gate", "--pre-push", "origin", "../origin.git"],
        cwd=world.work.folder,
        env=os.environ | environ,
        input=told,
        capture_output=True,
        check=False,
        timeout=120,
    )


def test_what_is_no_line_of_gits_is_said_and_noted(world: World) -> None:
    done = ask(world, b"garbage\n")
    assert done.returncode == 0
    assert b"UNDETERMINED, not judged: stdin:1: expected <local ref>" in done.stderr
    (line,) = world.ledger()
    assert line["schema"].startswith("judgekit/fault@")


def test_a_variable_that_says_no_skips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0", "false", "False", "no", "off", "1", "true", "yes", "wip"):
        monkeypatch.setenv("JUDGEKIT_SKIP", value)
        assert skipped_by() == ("JUDGEKIT_SKIP" if value in ("1", "true", "yes", "wip") else None)
