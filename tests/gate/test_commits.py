"""Which files a push changes, and who changed them, asked of real repositories."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.errors import InputError
from judgekit.gate import commits
from judgekit.gate.remotes import RefUpdate
from judgekit.git import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.gate.commits import ChangedFile, PushedChanges

ZEROS = "0" * 40
CLAUDE = "Claude <noreply@anthropic.com>"


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return GitRepo(tmp_path / "origin.git", "--bare").folder


@pytest.fixture
def work(tmp_path: Path, origin: Path) -> GitRepo:
    """Return a clone with one pushed commit, of `old.md`."""
    work = GitRepo(tmp_path / "work")
    work("remote", "add", "origin", str(origin))
    work.commit("first", old_md="old\n")
    work("push", "--quiet", "origin", "main")
    return work


def push(work: GitRepo, *refs: str, remote: str = "origin", **options: str) -> PushedChanges:
    """Return what pushing `refs` would change, `main` by default; `before` stands for the remote's ref."""
    before = options.get("before")
    updates = []
    for ref in refs or ("main",):
        told = (
            before or work("rev-parse", f"refs/remotes/origin/{ref}", stdin=b"") if ref == "main" else ZEROS
        )
        updates.append(RefUpdate(ref, work("rev-parse", ref), f"refs/heads/{ref}", told))
    return commits.of_push(Repository(work.folder), updates, remote, lambda change: True)


def paths(pushed: PushedChanges) -> list[str]:
    return sorted(change.path for change in pushed.changes)


def content(work: GitRepo, change: ChangedFile) -> str:
    return work("cat-file", "blob", change.blob)


def test_what_new_commits_add_and_change_is_found_with_its_author(work: GitRepo) -> None:
    work.commit("change", old_md="new\n")
    made = work.commit(
        f"add\n\nCo-Authored-By: {CLAUDE}\nReviewed-by: Bo <bo@example.org>\n", ("Eve", "e@x"), new_md="x"
    )
    pushed = push(work)
    assert paths(pushed) == ["new.md", "old.md"]
    new = next(change for change in pushed.changes if change.path == "new.md")
    assert new.commit.oid == made
    assert (new.commit.author, new.commit.committer) == ("Eve <e@x>", "Committer <committer@example.org>")
    assert new.commit.trailers == (f"Co-Authored-By: {CLAUDE}", "Reviewed-by: Bo <bo@example.org>")


def test_the_newest_change_of_a_file_counts(work: GitRepo) -> None:
    work.commit("one", a_md="1\n")
    newest = work.commit("two", ("Eve", "e@x"), a_md="2\n")
    work.commit("other", b_md="b\n")
    a = next(change for change in push(work).changes if change.path == "a.md")
    assert (a.commit.oid, content(work, a)) == (newest, "2")


def test_the_working_tree_is_not_read(work: GitRepo) -> None:
    work.commit("one", a_md="committed\n")
    work.write("a.md", "edited\n")
    work.write("untracked.md")
    [a] = push(work).changes
    assert content(work, a) == "committed"


def test_what_is_removed_or_taken_back_in_the_push_is_left_out(work: GitRepo) -> None:
    work.commit("add", a_md="a\n", old_md="changed\n")
    work("rm", "--quiet", "a.md")
    work.commit("take back", old_md="old\n")
    assert paths(push(work)) == []


def test_a_moved_file_or_a_new_mode_is_no_change_of_content(work: GitRepo) -> None:
    work("mv", "old.md", "moved.md")
    work.commit("move")
    (work.folder / "moved.md").chmod(0o755)
    work.commit("run bit")
    assert paths(push(work)) == []


def test_a_file_that_is_moved_and_changed_is_found_under_its_new_name(work: GitRepo) -> None:
    work("mv", "old.md", "moved.md")
    work.commit("move and change", moved_md="old\nand new\n")
    assert paths(push(work)) == ["moved.md"]


def test_a_new_branch_brings_only_what_no_ref_of_the_remote_has(work: GitRepo) -> None:
    work.commit("theirs", theirs_md="x\n")
    work("push", "--quiet", "origin", "main:shared")
    work("fetch", "--quiet", "origin")
    work("switch", "--quiet", "-c", "topic")
    work.commit("mine", mine_md="x\n")
    assert paths(push(work, "topic")) == ["mine.md"]


def test_a_first_push_brings_everything(tmp_path: Path) -> None:
    work = GitRepo(tmp_path / "work")
    work.commit("first", a_md="a\n")
    work.commit("second", b_md="b\n")
    assert paths(push(work, "main", before=ZEROS)) == ["a.md", "b.md"]


def test_others_commits_that_are_merged_from_the_remote_are_not_blamed(work: GitRepo) -> None:
    work("switch", "--quiet", "-c", "theirs")
    work.commit("theirs", ("Eve", "e@x"), theirs_md="x\n")
    work("push", "--quiet", "origin", "theirs")
    work("switch", "--quiet", "main")
    work.commit("mine", mine_md="x\n")
    work("merge", "--quiet", "--no-edit", "theirs")
    assert paths(push(work)) == ["mine.md"]


def test_of_a_merge_only_what_it_made_itself_is_its_own(work: GitRepo) -> None:
    work("switch", "--quiet", "-c", "side")
    work.commit("side", old_md="side\n", side_md="x\n")
    work("switch", "--quiet", "main")
    work.commit("main", old_md="main\n")
    work.run("merge", "--quiet", "side")
    merge = work.commit("resolved", ("Mia", "m@x"), old_md="both\n")
    pushed = push(work)
    assert paths(pushed) == ["old.md", "side.md"]
    by = {change.path: change.commit for change in pushed.changes}
    assert by["old.md"].oid == merge
    assert by["side.md"].author == "Ada <ada@example.org>"


def test_a_forced_push_over_a_commit_that_is_not_here_brings_what_is_new(work: GitRepo) -> None:
    work.commit("mine", mine_md="x\n")
    assert paths(push(work, before="d" * 40)) == ["mine.md"]


def test_a_forced_push_compares_with_what_the_remote_has(work: GitRepo) -> None:
    work.commit("pushed before", a_md="a\n")
    work("push", "--quiet", "origin", "main")
    work("reset", "--quiet", "--hard", "HEAD~1")
    work.commit("another way", a_md="a\n", b_md="b\n")
    assert paths(push(work)) == ["b.md"]


def test_a_deletion_or_a_tag_of_no_commit_brings_nothing(work: GitRepo) -> None:
    blob = work("hash-object", "-w", "--stdin", stdin=b"x")
    updates = [
        RefUpdate("(delete)", ZEROS, "refs/heads/main", work("rev-parse", "main")),
        RefUpdate("refs/tags/blob", blob, "refs/tags/blob", ZEROS),
    ]
    assert commits.of_push(Repository(work.folder), updates, "origin", lambda change: True).changes == []


def test_an_annotated_tag_brings_its_commits(work: GitRepo) -> None:
    work.commit("tagged", a_md="a\n")
    work("tag", "-a", "v1", "-m", "one")
    update = RefUpdate("refs/tags/v1", work("rev-parse", "v1"), "refs/tags/v1", ZEROS)
    pushed = commits.of_push(Repository(work.folder), [update], "origin", lambda change: True)
    assert paths(pushed) == ["a.md"]


def test_several_refs_name_a_file_once(work: GitRepo) -> None:
    work.commit("one", a_md="a\n")
    work("branch", "copy")
    assert paths(push(work, "main", "copy")) == ["a.md"]


def test_a_remote_given_by_its_url_is_known_by_the_others(work: GitRepo, origin: Path) -> None:
    work.commit("mine", mine_md="x\n")
    assert paths(push(work, remote=str(origin))) == ["mine.md"]


@pytest.mark.skipif(sys.platform == "win32", reason="names that Windows cannot hold")
def test_any_name_is_read(work: GitRepo) -> None:
    names = ["with space.md", 'quo"te.md', "new\nline.md", "tab\t.md", "ü.md", ":colon.md", "-dash.md"]
    if sys.platform == "linux":
        names.append(os.fsdecode(b"latin-\xe9.md"))
    for name in names:
        work.write(name)
    work.commit("names")
    assert paths(push(work)) == sorted(names)


@pytest.mark.skipif(sys.platform == "win32", reason="makes a symbolic link")
def test_links_and_submodules_are_no_files(work: GitRepo, tmp_path: Path) -> None:
    (work.folder / "link.md").symlink_to("old.md")
    head = work("rev-parse", "HEAD")
    work("update-index", "--add", "--cacheinfo", f"160000,{head},module.md")
    work("commit", "--quiet", "-m", "links")
    assert paths(push(work)) == []


def test_a_sha256_repository_is_read(tmp_path: Path) -> None:
    work = GitRepo(tmp_path / "work", "--object-format=sha256")
    work.commit("first", a_md="a\n")
    assert paths(push(work, "main", before="0" * 64)) == ["a.md"]


def test_a_linked_worktree_and_a_bare_repository_are_read(
    work: GitRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    work("worktree", "add", "--quiet", "-b", "topic", str(tree))
    linked = GitRepo(tree)
    linked.commit("there", a_md="a\n")
    assert paths(push(linked, "topic")) == ["a.md"]
    work("clone", "--quiet", "--bare", str(work.folder), str(tmp_path / "bare.git"))
    monkeypatch.setenv("GIT_DIR", ".")  # as git tells its hooks there
    assert paths(push(GitRepo(tmp_path / "bare.git"), "topic")) == ["a.md", "old.md"]


def test_the_oldest_commit_of_a_shallow_clone_is_not_taken_for_the_author_of_all(
    work: GitRepo, origin: Path, tmp_path: Path
) -> None:
    work("clone", "--quiet", "--depth=1", f"file://{origin}", str(tmp_path / "shallow"), "--branch=main")
    shallow = GitRepo(tmp_path / "shallow")
    shallow.commit("mine", mine_md="x\n")
    assert paths(push(shallow)) == ["mine.md"]
    shallow("remote", "remove", "origin")
    assert paths(push(shallow, "main", before=ZEROS)) == ["mine.md"]


def test_of_a_long_history_the_newest_commits_are_looked_at(
    work: GitRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MAX_COMMITS", 2)
    for name in "abc":
        work.commit(name, **{f"{name}_md": "x\n"})
    pushed = push(work)
    assert paths(pushed) == ["b.md", "c.md"]
    assert pushed.unjudged == ["more than 2 commits are new; only what the newest changed is judged"]


def test_only_what_is_wanted_is_looked_up(work: GitRepo) -> None:
    work.commit("both", a_md="x\n", b_txt="x\n")
    update = RefUpdate("main", work("rev-parse", "main"), "refs/heads/main", work("rev-parse", "origin/main"))
    pushed = commits.of_push(
        Repository(work.folder), [update], "origin", lambda change: change.path.endswith(".txt")
    )
    assert paths(pushed) == ["b.txt"]


def test_since_compares_with_the_base(work: GitRepo) -> None:
    work.commit("one", a_md="x\n")
    repository = Repository(work.folder)
    assert paths(commits.since(repository, "origin/main", "HEAD", lambda change: True)) == ["a.md"]
    with pytest.raises(InputError, match=r"^nowhere: no commit of this repository"):
        commits.since(repository, "nowhere", "HEAD", lambda change: True)


def test_a_replaced_commit_is_seen_as_it_is_pushed(work: GitRepo) -> None:
    bad = work.commit("bad", a_md="bad\n")
    work("reset", "--quiet", "--hard", "HEAD~1")
    good = work.commit("good", b_md="good\n")
    work("reset", "--quiet", "--hard", bad)
    work("replace", bad, good)
    assert paths(push(work)) == ["a.md"]
