"""What the gate is told on stdin and by variables, and what it says where that is of no use."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from pushing import bad

from judgekit.hooks.pre_push import skipped_by

if TYPE_CHECKING:
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
    assert b"UNDETERMINED, nothing was judged: stdin:1: expected <local ref>" in done.stderr
    (line,) = world.ledger()
    assert line["schema"].startswith("judgekit/fault@")


@pytest.mark.parametrize("value", ["", "0", "false", "False", "no", "off"])
def test_a_variable_that_says_no_skips_nothing(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_SKIP", value)
    assert skipped_by() is None


@pytest.mark.parametrize("value", ["1", "true", "yes", "wip"])
def test_any_other_value_skips(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEKIT_SKIP", value)
    assert skipped_by() == "JUDGEKIT_SKIP"


def test_a_skip_that_cannot_be_noted_does_not_say_it_was(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    (world.home / "judgekit" / "state").mkdir(parents=True, exist_ok=True)
    (world.home / "judgekit" / "state" / "ledger").write_text("in the way")
    push = world.push(JUDGEKIT_SKIP="1")
    assert "this push is not judged (not noted: " in push.err
    assert "noted in the ledger" not in push.err


def test_a_block_that_cannot_be_noted_offers_no_override(world: World) -> None:
    world.work.commit("bad", a_md=bad("a"))
    (world.home / "judgekit" / "state").mkdir(parents=True, exist_ok=True)
    (world.home / "judgekit" / "state" / "ledger").write_text("in the way")
    push = world.push(code=1)
    assert "or go past the gate this once: JUDGEKIT_SKIP=1 git push (no override holds" in push.err
    assert "judgekit override" not in push.err
    assert "which is noted" not in push.err


def test_a_fault_is_noted_without_the_paths_of_this_machine(world: World) -> None:
    file = world.home / "judgekit" / "config.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("gate: {mode: sometimes}\n")
    world.work.commit("bad", a_md=bad("a"))
    (line,) = world.push().of("fault")
    assert line["problem"].startswith("~/judgekit/config.yaml:1: gate.mode: ")
