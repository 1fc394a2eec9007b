"""What a push opens issues for, and that it never waits or fails for one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from fake_gh import FakeGh
from git_repo import GitRepo, ask_gate, beside_origin
from loopback import Answer, Asked, Loopback
from loopback import says as reply
from scripted import scores

from judgekit.config import settings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    work = beside_origin(tmp_path)
    work.commit("first")
    ask_gate(work)
    return work


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGh:
    made = FakeGh.make(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setenv("GH_REPO", "acme/docs")
    return made


def disagrees(asked: Asked) -> Answer:
    """Answer as three models that find no majority, and reject what says TODO."""
    model = str(asked.body["model"]).rpartition("/")[2]
    if "\nTODO" in asked.text:
        return reply(scores(1, 1, 1), model=model)
    by_tier = {"quick": scores(1, 1, 1), "deep": scores(4, 4, 4), "tiebreaker": scores(3, 3, 2)}
    return reply(by_tier[model], model=model)


def push(work: GitRepo, **files: str) -> tuple[int, str]:
    """Commit files, push them, and return the exit code and what was said."""
    with Loopback(disagrees) as server:
        tiers = {f"JUDGEKIT_{tier}_MODEL".upper(): tier for tier in ("quick", "deep", "tiebreaker")}
        work.commit("change", **files)
        done = work.run("push", "origin", "main", stdin=b"", JUDGEKIT_API_BASE=server.base, **tiers)
    return done.returncode, os.fsdecode(done.stdout + done.stderr)


def by_user(text: str) -> None:
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text(text)


def test_disagreement_opens_one_issue_that_later_pushes_update(work: GitRepo, gh: FakeGh) -> None:
    by_user('escalate: {issues: "on"}\n')
    code, said = push(work, a_md="# A\n\nOne.\n")
    assert code == 0, said
    assert "issue opened: https://github.com/acme/docs/issues/1 (a.md)" in said
    _, said = push(work, b_txt="not judged\n")
    assert "issue" not in said
    _, said = push(work, a_md="# A\n\nTwo.\n")
    assert "issue updated: https://github.com/acme/docs/issues/1 (a.md)" in said
    assert len(gh.issues) == 1
    assert work("rev-parse", "HEAD") in gh.issues[0]["body"]


def test_nothing_is_opened_by_default(work: GitRepo, gh: FakeGh) -> None:
    code, said = push(work, a_md="# A\n\nOne.\n", b_md="# B\n\nTODO\n")
    assert (code, gh.calls) == (0, [])
    assert "UNDETERMINED" in said
    assert "NO-GO" in said


def test_a_blocked_push_may_open_one_too(work: GitRepo, gh: FakeGh) -> None:
    by_user('escalate: {issues: "on", rejects: true}\ngate: {mode: blocking}\n')
    code, said = push(work, b_md="# B\n\nTODO\n")
    assert code == 1
    assert gh.issues[0]["title"] == "[JUDGE-DISAGREEMENT] Review needed: b.md"
    assert said.count("issue opened") == 1


@pytest.mark.parametrize("behaviour", [{"list": [["HTTP 502", 1]]}, {"create": [["boom", 1]]}, {"sleep": 40}])
def test_a_gh_that_fails_holds_up_nothing(work: GitRepo, gh: FakeGh, behaviour: dict[str, object]) -> None:
    by_user('escalate: {issues: "on"}\n')
    gh.tell(**behaviour)
    start = time.monotonic()
    code, said = push(work, a_md="# A\n\nOne.\n")
    assert code == 0, said
    assert said.count("no issue was opened for 1: ") == 1
    assert work("rev-parse", "main") == work("ls-remote", "origin", "refs/heads/main").split()[0]
    assert time.monotonic() - start < 39


def test_a_remote_elsewhere_is_one_line(work: GitRepo, gh: FakeGh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GH_REPO")
    by_user('escalate: {issues: "on"}\n')
    code, said = push(work, a_md="# A\n\nOne.\n")
    assert code == 0
    assert "the project's remote is not on GitHub" in said
    assert gh.calls == []
