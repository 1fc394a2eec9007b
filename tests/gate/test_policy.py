"""Whose rules hold for a push."""

from __future__ import annotations

import re
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.config import settings
from judgekit.errors import ConfigError
from judgekit.gate import policy
from judgekit.gate.policy import commits_of
from judgekit.gate.remotes import RefUpdate
from judgekit.git import Repository
from judgekit.rubric import loader

if TYPE_CHECKING:
    from pathlib import Path

ZEROS = "0" * 40
RULES = ".judgekit/config.yaml"


@pytest.fixture
def work(tmp_path: Path) -> GitRepo:
    """Return a clone whose remote wants blocking, with a newer commit that wants everything allowed."""
    GitRepo(tmp_path / "origin.git", "--bare")
    work = GitRepo(tmp_path / "work")
    work("remote", "add", "origin", str(tmp_path / "origin.git"))
    work.write(RULES, "gate: {mode: blocking}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    work.write(RULES, "gate: {mode: advisory, paths: []}\n")
    work.commit("laxer rules")
    return work


def update(work: GitRepo, remote_oid: str, ref: str = "refs/heads/main") -> RefUpdate:
    return RefUpdate(ref, work("rev-parse", "HEAD"), ref, remote_oid)


def mode_for(work: GitRepo, *updates: RefUpdate, remote: str = "origin") -> str:
    repository = Repository(work.folder)
    with policy.rules(repository, next(iter(commits_of(repository, updates, remote)), None)) as folder:
        return settings.load(folder).gate.mode


def test_a_push_does_not_choose_its_own_rules(work: GitRepo) -> None:
    assert mode_for(work, update(work, work("rev-parse", "origin/main"))) == "blocking"


def test_a_new_branch_goes_by_the_remotes_rules(work: GitRepo) -> None:
    assert mode_for(work, update(work, ZEROS, "refs/heads/new")) == "blocking"


def test_a_forced_push_over_something_unknown_goes_by_the_remotes_rules(work: GitRepo) -> None:
    assert mode_for(work, update(work, "d" * 40)) == "blocking"


@pytest.mark.parametrize("default", ["main", "trunk"])
def test_a_branch_that_was_given_laxer_rules_goes_by_the_default_branch(work: GitRepo, default: str) -> None:
    if default != "main":
        work("push", "--quiet", "origin", f"origin/main:refs/heads/{default}")
        work("remote", "set-head", "origin", default)
        work("push", "--quiet", "--force", "origin", "HEAD:main")
    work("push", "--quiet", "origin", "HEAD:topic")
    topic = work("rev-parse", "origin/topic")
    assert mode_for(work, update(work, topic, "refs/heads/topic")) == "blocking"


def test_without_a_default_branch_a_branch_goes_by_its_own_rules(work: GitRepo) -> None:
    strict = work("rev-parse", "origin/main")
    work("update-ref", "refs/remotes/origin/other", strict)
    work("update-ref", "-d", "refs/remotes/origin/main")
    assert mode_for(work, update(work, strict, "refs/heads/topic")) == "blocking"
    assert mode_for(work, update(work, strict, "refs/heads/topic"), remote="url://x") == "blocking"


def test_a_push_elsewhere_goes_by_the_rules_that_are_known(work: GitRepo) -> None:
    assert mode_for(work, update(work, ZEROS), remote="elsewhere") == "blocking"


def test_a_first_push_brings_its_rules(work: GitRepo) -> None:
    work("update-ref", "-d", "refs/remotes/origin/main")
    assert mode_for(work, update(work, ZEROS), remote="elsewhere") == "advisory"


def test_without_any_commit_the_defaults_hold(work: GitRepo) -> None:
    work("update-ref", "-d", "refs/remotes/origin/main")
    assert mode_for(work, remote="elsewhere") == "advisory" == settings.Config().gate.mode
    with policy.rules(Repository(work.folder), None) as folder:
        assert list(folder.iterdir()) == []


def test_rubrics_come_with_the_rules(work: GitRepo) -> None:
    own = (loader.find_rubric("kls").path).read_text(encoding="utf-8").replace("rubric: kls", "rubric: own")
    work.write("rules/own.yaml", own)
    work.write(".judgekit/rubrics/own@1.0.0.yaml", own)
    work.write(RULES, "gate: {rubric: rules/own.yaml}\n")
    commit = work.commit("own rubric")
    with policy.rules(Repository(work.folder), commit) as folder:
        named = settings.load(folder).gate.rubric
        assert loader.score_rubric(named, folder).rubric.rubric == "own"
        assert loader.score_rubric("own", folder).origin == "project"


def test_a_mistake_is_named_as_git_names_the_file(work: GitRepo) -> None:
    work.write(RULES, "gate:\n  mode: maybe\n")
    commit = work.commit("wrong")
    with (
        pytest.raises(ConfigError, match=rf"^{commit[:12]}:\.judgekit/config\.yaml:2: gate\.mode: "),
        policy.rules(Repository(work.folder), commit) as folder,
    ):
        settings.load(folder)


def test_links_and_names_that_lead_out_are_not_written(
    work: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (work.folder / ".judgekit/folder").symlink_to(tmp_path)
    (work.folder / ".judgekit/link.yaml").symlink_to("/etc/passwd")
    links = work.commit("links")
    tree = work("hash-object", "-w", "--stdin", stdin=b"out")
    for name in ("out.yaml", "..", "..", ".judgekit"):
        mode = b"100644" if name.endswith(".yaml") else b"40000"
        entry = mode + b" " + name.encode() + b"\0" + bytes.fromhex(tree)
        tree = work("hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=entry)
    outside = work("commit-tree", tree, "-m", "a tree made by hand")
    for commit in (links, outside):
        with policy.rules(Repository(work.folder), commit) as folder:
            assert {path.name for path in folder.rglob("*")} <= {".judgekit", "config.yaml"}
            assert list(tmp_path.rglob("out.yaml")) == []


@pytest.mark.parametrize(
    "name", [".judgekit", RULES, ".judgekit/rubrics", ".judgekit/rubrics/kls@1.0.0.yaml"]
)
def test_rules_that_are_links_are_not_left_out_in_silence(work: GitRepo, tmp_path: Path, name: str) -> None:
    path = work.folder / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path)
    commit = work.commit("a link")
    told = rf"^{commit[:12]}:{re.escape(name)}: no regular file; "
    with pytest.raises(ConfigError, match=told), policy.rules(Repository(work.folder), commit):
        raise AssertionError


@pytest.mark.parametrize("name", [RULES, ".judgekit/rubrics/kls@1.0.0.yaml"])
def test_rules_that_are_too_large_are_not_left_out_in_silence(work: GitRepo, name: str) -> None:
    work.write(name, "# x\n" * 30_000)
    commit = work.commit("large")
    told = rf"^{commit[:12]}:{re.escape(name)}: larger than 100 kB, or "
    with pytest.raises(ConfigError, match=told), policy.rules(Repository(work.folder), commit):
        raise AssertionError


def test_what_decides_nothing_may_be_missing(work: GitRepo) -> None:
    work.write(".judgekit/notes.txt", "# x\n" * 30_000)
    work.write(".claude/memory/memory-config.json", " " * 200_000)
    with policy.rules(Repository(work.folder), work.commit("large")) as folder:
        assert settings.load(folder).gate.mode == "advisory"


@pytest.fixture
def partial(work: GitRepo, tmp_path: Path) -> GitRepo:
    """Return a clone without blobs, and without a working tree that would fetch them."""
    origin = tmp_path / "origin.git"
    GitRepo(origin)("config", "uploadpack.allowFilter", "true")
    words = (
        "clone",
        "--quiet",
        "--filter=blob:none",
        "--no-checkout",
        f"file://{origin}",
        str(tmp_path / "partial"),
    )
    work(*words)
    return GitRepo(tmp_path / "partial")


def test_rules_that_a_partial_clone_lacks_are_named_with_a_remedy(partial: GitRepo) -> None:
    commit = partial("rev-parse", "HEAD")
    told = (
        rf"^{commit[:12]}:\.judgekit/config\.yaml: .* not in this clone \(git show {commit[:12]}:\.judgekit/c"
    )
    with pytest.raises(ConfigError, match=told), policy.rules(Repository(partial.folder), commit):
        raise AssertionError
    partial("show", f"{commit[:12]}:{RULES}")
    with policy.rules(Repository(partial.folder), commit) as folder:
        assert settings.load(folder).gate.mode == "blocking"


def test_one_blob_that_a_partial_clone_lacks_costs_no_other(partial: GitRepo) -> None:
    lacking = partial("rev-parse", f"HEAD:{RULES}")
    here = [partial("hash-object", "-w", "--stdin", stdin=text) for text in (b"one", b"two")]
    wanted = [here[0], lacking, here[1], lacking]
    found = list(Repository(partial.folder).blobs(wanted, 100))
    assert found == [(here[0], b"one"), (lacking, None), (here[1], b"two"), (lacking, None)]
