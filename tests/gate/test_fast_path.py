"""Most pushes change nothing that is judged, and are let go without importing what judging needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from git_repo import GitRepo, beside_origin

from judgekit.config import settings
from judgekit.gate import policy
from judgekit.gate.policy import commits_of
from judgekit.gate.remotes import RefUpdate
from judgekit.git import Repository

HEAVY = ("pydantic", "typer", "ruamel", "litellm", "json.decoder.x")


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    work = beside_origin(tmp_path)
    work.write(".judgekit/config.yaml", "gate: {paths: ['*.md']}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    return work


def update(work: GitRepo) -> RefUpdate:
    return RefUpdate("main", work("rev-parse", "main"), "refs/heads/main", work("rev-parse", "origin/main"))


def glanced(work: GitRepo) -> bool:
    return policy.nothing_to_judge(Repository(work.folder), [update(work)], "origin")


def keep(work: GitRepo) -> None:
    repository = Repository(work.folder)
    policy.keep(repository, commits_of(repository, [update(work)], "origin"), ["*.md"], [])


def test_what_is_chosen_is_not_known_before_a_full_run(work: GitRepo) -> None:
    work.commit("code", a_py="x\n")
    assert not glanced(work)
    keep(work)
    assert glanced(work)


def test_something_to_judge_is_seen(work: GitRepo) -> None:
    keep(work)
    work.commit("text", a_md="x\n")
    assert not glanced(work)


def test_a_deletion_needs_no_rules(work: GitRepo) -> None:
    gone = RefUpdate("(delete)", "0" * 40, "refs/heads/x", work("rev-parse", "main"))
    assert policy.nothing_to_judge(Repository(work.folder), [gone], "origin")
    assert policy.nothing_to_judge(Repository(work.folder), [], "origin")


def test_other_rules_on_the_remote_are_read_anew(work: GitRepo) -> None:
    keep(work)
    work.write(".judgekit/config.yaml", "gate: {paths: ['*.py']}\n")
    work.commit("other rules")
    work("push", "--quiet", "origin", "main")
    work.commit("code", a_py="x\n")
    assert not glanced(work)


def test_other_rules_of_the_users_are_read_anew(work: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(work)
    work.commit("code", a_py="x\n")
    monkeypatch.setenv("JUDGEKIT_GATE_PATHS", "*.py")
    assert not glanced(work)
    monkeypatch.delenv("JUDGEKIT_GATE_PATHS")
    assert glanced(work)
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text("gate: {paths: ['*.py']}\n")
    assert not glanced(work)


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"key": 1}'])
def test_a_damaged_file_is_read_anew(work: GitRepo, content: str) -> None:
    keep(work)
    [kept] = (Path(os.environ["JUDGEKIT_HOME"]) / "cache" / "gate").iterdir()
    kept.write_text(content)
    work.commit("code", a_py="x\n")
    assert not glanced(work)


def test_a_push_of_nothing_relevant_imports_nothing_heavy(work: GitRepo) -> None:
    keep(work)
    work.commit("code", a_py="x\n")
    line = " ".join(update(work))
    program = (
        "import sys; sys.argv = ['judgekit', 'gate', '--pre-push', 'origin', 'url']\n"
        "from judgekit.__main__ import main; code = main()\n"
        f"print([code, *(name for name in {HEAVY!r} if name in sys.modules)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=work.folder,
        input=line.encode(),
        capture_output=True,
        check=False,
    )
    # Once by the process that does the work, once by the one that waits for it.
    assert (set(done.stdout.split()), done.stderr) == ({b"[0]"}, b"")
