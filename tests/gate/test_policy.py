"""Whose rules hold for a push."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from git_repo import GitRepo, beside_origin

from judgekit.config import settings
from judgekit.errors import ConfigError
from judgekit.gate import policy
from judgekit.gate.commits import RefUpdate
from judgekit.gate.policy import commits_of
from judgekit.git import Repository

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


def test_a_push_goes_by_the_remotes_rules_whatever_it_pushes(work: GitRepo) -> None:
    strict = work("rev-parse", "origin/main")
    assert mode_for(work, update(work, strict)) == "blocking"
    assert mode_for(work, update(work, ZEROS, "refs/heads/new")) == "blocking"
    assert mode_for(work, update(work, "d" * 40)) == "blocking", "forced over something unknown"
    assert mode_for(work, update(work, ZEROS), remote="elsewhere") == "blocking", "by those that are known"
    work("update-ref", "refs/remotes/origin/other", strict)
    work("update-ref", "-d", "refs/remotes/origin/main")
    assert mode_for(work, update(work, strict, "refs/heads/topic")) == "blocking"
    assert mode_for(work, update(work, strict, "refs/heads/topic"), remote="url://x") == "blocking"
    work("update-ref", "-d", "refs/remotes/origin/other")
    assert mode_for(work, update(work, ZEROS), remote="elsewhere") == "advisory", "a first push"
    assert mode_for(work, remote="elsewhere") == "advisory" == settings.Config().gate.mode
    with policy.rules(Repository(work.folder), None) as folder:
        assert list(folder.iterdir()) == []


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


def refuses(work: GitRepo, commit: str, problem: str) -> None:
    """Check that the rules of a commit are refused, with the file named as git names it."""
    with (
        pytest.raises(ConfigError, match=rf"^{commit[:12]}:{problem}"),
        policy.rules(Repository(work.folder), commit) as folder,
    ):
        settings.load(folder)


@pytest.mark.parametrize(
    "name", [".judgekit", RULES, ".judgekit/rubrics", ".judgekit/rubrics/kls@1.0.0.yaml"]
)
def test_rules_that_are_links_too_large_or_wrong_are_not_left_out_in_silence(
    work: GitRepo, tmp_path: Path, name: str
) -> None:
    path = work.folder / name
    if name.endswith(".yaml"):
        work.write(name, "# x\n" * 30_000)
        refuses(work, work.commit("large"), rf"{re.escape(name)}: larger than 100 kB, or ")
    work.write(RULES, "gate:\n  mode: maybe\n")
    (work.folder / ".judgekit/rubrics/kls@1.0.0.yaml").unlink(missing_ok=True)
    refuses(work, work.commit("wrong"), r"\.judgekit/config\.yaml:2: gate\.mode: ")
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(tmp_path)
    refuses(work, work.commit("a link"), rf"{re.escape(name)}: not a regular file, and the gate")


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
    words = ("--quiet", "--filter=blob:none", "--no-checkout", f"file://{origin}")
    work("clone", *words, str(tmp_path / "partial"))
    return GitRepo(tmp_path / "partial")


def test_rules_that_a_partial_clone_lacks_are_named_with_a_remedy(partial: GitRepo) -> None:
    commit = partial("rev-parse", "HEAD")
    remedy = rf"\(fetch it with: git show {commit[:12]}:\.judgekit/c"
    refuses(partial, commit, rf"\.judgekit/config\.yaml: .* not in this clone {remedy}")
    partial("show", f"{commit[:12]}:{RULES}")
    with policy.rules(Repository(partial.folder), commit) as folder:
        assert settings.load(folder).gate.mode == "blocking"


def test_one_blob_that_a_partial_clone_lacks_costs_no_other(partial: GitRepo) -> None:
    lacking = partial("rev-parse", f"HEAD:{RULES}")
    here = [partial("hash-object", "-w", "--stdin", stdin=text) for text in (b"one", b"two")]
    wanted = [here[0], lacking, here[1], lacking]
    found = list(Repository(partial.folder).blobs(wanted, 100))
    assert found == [(here[0], b"one"), (lacking, None), (here[1], b"two"), (lacking, None)]


# A push that brings nothing to judge ends before anything heavy is imported.

HEAVY = ("pydantic", "typer", "ruamel", "litellm")


@pytest.fixture
def chosen(tmp_path: Path) -> GitRepo:
    work = beside_origin(tmp_path / "chosen")
    work.write(RULES, "gate: {paths: ['*.md']}\n")
    work.commit("rules")
    work("push", "--quiet", "origin", "main")
    return work


def main_of(work: GitRepo) -> RefUpdate:
    return update(work, work("rev-parse", "origin/main"))


def nothing_to_judge(work: GitRepo) -> bool:
    return policy.nothing_to_judge(Repository(work.folder), [main_of(work)], "origin")


def keep(work: GitRepo) -> None:
    repository = Repository(work.folder)
    policy.keep(repository, commits_of(repository, [main_of(work)], "origin"), ["*.md"], [])


def test_what_decides_a_choice_makes_it_read_again(chosen: GitRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = RefUpdate("(delete)", "0" * 40, "refs/heads/x", chosen("rev-parse", "main"))
    for updates in ([gone], []):  # need no rules
        assert policy.nothing_to_judge(Repository(chosen.folder), updates, "origin")
    chosen.commit("code", a_py="x\n")
    assert not nothing_to_judge(chosen), "before a full run"
    keep(chosen)
    assert nothing_to_judge(chosen)
    with monkeypatch.context() as patch:
        patch.setenv("JUDGEKIT_GATE_PATHS", "*.py")
        assert not nothing_to_judge(chosen)
    [kept] = (Path(os.environ["JUDGEKIT_HOME"]) / "cache" / "gate").iterdir()
    for content in ("", "no JSON", "[]", '{"key": 1}'):
        kept.write_text(content)
        assert not nothing_to_judge(chosen)
    keep(chosen)
    settings.user_file().parent.mkdir(parents=True, exist_ok=True)
    settings.user_file().write_text("gate: {paths: ['*.py']}\n")
    assert not nothing_to_judge(chosen)
    settings.user_file().unlink()
    keep(chosen)
    chosen.commit("text", a_md="x\n")
    assert not nothing_to_judge(chosen), "something to judge"
    chosen.write(RULES, "gate: {paths: ['*.py']}\n")
    chosen.commit("other rules")
    chosen("push", "--quiet", "origin", "main")
    chosen.commit("no code", a_txt="x\n")
    assert not nothing_to_judge(chosen), "other rules on the remote"


def test_a_push_of_nothing_relevant_imports_nothing_heavy(chosen: GitRepo) -> None:
    keep(chosen)
    chosen.commit("code", a_py="x\n")
    line = " ".join(main_of(chosen))
    program = (
        "import sys; sys.argv = ['judgekit', 'gate', '--pre-push', 'origin', 'url']\n"
        "from judgekit.__main__ import main; code = main()\n"
        f"print([code, *(name for name in {HEAVY!r} if name in sys.modules)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=chosen.folder,
        input=line.encode(),
        capture_output=True,
        check=False,
    )
    # Once by the process that does the work, once by the one that waits for it.
    assert (set(done.stdout.split()), done.stderr) == ({b"[0]"}, b"")
