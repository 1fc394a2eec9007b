"""Real pushes through a real hook, with a model server on this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo, ask_gate, beside_origin
from loopback import Loopback, fails
from scripted import by_content

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    work = beside_origin(tmp_path)
    work.write(".judgekit/config.yaml", "gate: {mode: blocking}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    ask_gate(work)
    return work


def push(work: GitRepo, server: Loopback, **environ: str) -> subprocess.CompletedProcess[bytes]:
    known = {"JUDGEKIT_API_BASE": server.base, "JUDGEKIT_MODEL": "stand-in"}
    return work.run("push", "origin", "main", stdin=b"", **known | environ)


def arrived(work: GitRepo) -> bool:
    return work("rev-parse", "main") == work("ls-remote", "origin", "refs/heads/main").split()[0]


def test_a_good_document_passes_and_a_bad_one_is_held_up(work: GitRepo) -> None:
    with Loopback(by_content) as server:
        work.commit("good", good_md="# Good\n\nA sound document.\n")
        done = push(work, server)
        assert done.returncode == 0, done.stderr
        assert arrived(work)
        work.commit("bad", bad_md="# Bad\n\nTODO\n")
        done = push(work, server)
    shown = os.fsdecode(done.stdout + done.stderr)
    assert done.returncode == 1
    assert not arrived(work)
    assert "NO-GO" in shown
    assert "judgekit override bad.md@" in shown
    assert "JUDGEKIT_SKIP=1 git push" in shown


def test_our_own_failure_does_not_hold_up_a_push(work: GitRepo) -> None:
    work.commit("bad", bad_md="# Bad\n\nTODO\n")
    with Loopback(fails(500)) as server:
        done = push(work, server)
    assert done.returncode == 0, done.stderr
    assert b"UNDETERMINED" in done.stdout + done.stderr
    assert arrived(work)


def test_an_unchanged_push_again_makes_no_call_and_a_skipped_one_none(work: GitRepo) -> None:
    work.commit("bad", bad_md="# Bad\n\nTODO\n")
    with Loopback(by_content) as server:
        push(work, server)
        before = len(server.requests)
        assert push(work, server).returncode == 1
        assert len(server.requests) == before
        done = push(work, server, GIT_JUDGE_SKIP="1")
        assert len(server.requests) == before
    assert done.returncode == 0
    assert b"GIT_JUDGE_SKIP is set" in done.stderr
    assert arrived(work)
