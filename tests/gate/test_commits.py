"""What git says of a push, which files it changes, who changed them, and which of them are judged."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from git_repo import GitRepo

from judgekit.errors import InputError
from judgekit.gate import commits
from judgekit.gate.commits import ChangedFile, ChangeFilter, Commit, RefUpdate
from judgekit.git import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from judgekit.gate.commits import PushedChanges

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


def test_lines_of_git_are_updates() -> None:
    old, new = "a" * 40, "b" * 40
    assert commits.parse("") == commits.parse("\n") == []
    [update] = commits.parse(f"main@{{1 day ago}} {new} refs/heads/main {old}\n")
    assert update == ("main@{1 day ago}", new, "refs/heads/main", old)
    assert (update.deletes, update.is_new) == (False, False)
    for length in (40, 64):
        zeros, other = "0" * length, "c" * length
        deleted, made = commits.parse(f"(delete) {zeros} refs/heads/a {other}\nHEAD {other} b {zeros}\n")
        assert (deleted.deletes, deleted.is_new) == (True, False)
        assert (made.deletes, made.is_new) == (False, True)
    for line in ("refs/heads/main", f"a {new} b", f"a {new[1:]} b {old}", f"a {new} b {old}x"):
        with pytest.raises(InputError, match=r"^stdin:2: expected <local ref>"):
            commits.parse(f"HEAD {new} refs/heads/b {ZEROS}\n{line}\n")


COMMIT = Commit(
    "a" * 40,
    "Ada <ada@example.org>",
    "Bo <bo@example.org>",
    (f"Co-authored-by: {CLAUDE}", "Generated-By: some-tool 1.2"),
)


@pytest.mark.parametrize(
    ("paths", "authors", "meant"),
    [
        (["*.md"], [], True),
        (["*.MD"], [], True),
        (["docs/"], [], False),
        (["*", "!a.md"], [], False),
        (["*.md"], ["ada *"], True),
        (["*.md"], ["*bo@example.org>"], True),
        (["*.md"], ["CLAUDE *"], True),
        (["*.md"], ["generated-by: *"], True),
        (["*.md"], ["Generated-By: other*"], False),
        (["*.md"], ["ada"], False),
        (["*.md"], ["Eve *", "*claude*"], True),
        (["*.txt"], ["*"], False),
    ],
)
def test_changes_are_chosen_by_path_and_by_who_made_them(
    paths: list[str], authors: list[str], *, meant: bool
) -> None:
    change = ChangedFile(COMMIT, "a.md", "b" * 40)
    assert ChangeFilter((paths, authors))(change) is meant
    assert ChangeFilter((["*.rst"], []), (paths, authors))(change) is meant
    assert COMMIT.people == ["Ada <ada@example.org>", "Bo <bo@example.org>", CLAUDE]


def test_the_newest_change_of_a_file_counts_with_its_author(work: GitRepo) -> None:
    message = f"add\n\nCo-Authored-By: {CLAUDE}\nReviewed-by: Bo <bo@example.org>\n"
    work.commit("one", a_md="1\n", old_md="new\n")
    made = work.commit(message, ("Eve", "e@x"), a_md="2\n")
    work.write("a.md", "edited\n")
    pushed = push(work)
    assert paths(pushed) == ["a.md", "old.md"]
    a = min(pushed.changes, key=lambda change: change.path)
    assert (a.commit.oid, content(work, a)) == (made, "2")
    assert (a.commit.author, a.commit.committer) == ("Eve <e@x>", "Committer <committer@example.org>")
    assert a.commit.trailers == (f"Co-Authored-By: {CLAUDE}", "Reviewed-by: Bo <bo@example.org>")
    assert [commit.author for commit in a.earlier] == ["Ada <ada@example.org>"]


def test_what_is_removed_taken_back_or_only_moved_is_left_out(work: GitRepo) -> None:
    work.commit("add", a_md="a\n", old_md="changed\n")
    work("rm", "--quiet", "a.md")
    work.commit("take back", old_md="old\n")
    assert paths(push(work)) == []
    work("reset", "--quiet", "--hard", "origin/main")
    work("mv", "old.md", "moved.md")
    (work.folder / "moved.md").chmod(0o755)
    (work.folder / "link.md").symlink_to("moved.md")
    work("update-index", "--add", "--cacheinfo", f"160000,{work('rev-parse', 'HEAD')},module.md")
    work.commit("move")
    assert paths(push(work)) == []
    work.commit("change", moved_md="old\nand new\n")
    assert paths(push(work)) == ["moved.md"]


def test_what_is_new_to_the_remote(work: GitRepo, origin: Path) -> None:
    work.commit("theirs", theirs_md="x\n")
    work("push", "--quiet", "origin", "main:shared")
    work("fetch", "--quiet", "origin")
    work("switch", "--quiet", "-c", "topic")
    work.commit("mine", mine_md="x\n")
    assert paths(push(work, "topic")) == paths(push(work, "topic", remote=str(origin))) == ["mine.md"]
    work("switch", "--quiet", "main")
    work("merge", "--quiet", "topic")
    assert paths(push(work)) == paths(push(work, "main", "topic")) == ["mine.md"]
    assert paths(push(work, before="d" * 40)) == ["mine.md"], "over a commit that is not here"
    only = GitRepo(work.folder.parent / "only")
    only.commit("first", a_md="a\n")
    only.commit("second", b_md="b\n")
    assert paths(push(only, "main", before=ZEROS)) == ["a.md", "b.md"]


def test_of_a_merge_only_what_it_made_itself_is_its_own(work: GitRepo) -> None:
    work("switch", "--quiet", "-c", "side")
    work.commit("side", old_md="side\n", side_md="x\n")
    work("switch", "--quiet", "main")
    work.commit("main", old_md="main\n")
    work.run("merge", "--quiet", "side")
    merge = work.commit("resolved", ("Mia", "m@x"), old_md="both\n")
    by = {change.path: change.commit for change in push(work).changes}
    assert sorted(by) == ["old.md", "side.md"]
    assert by["old.md"].oid == merge
    assert by["side.md"].author == "Ada <ada@example.org>"


def test_tags_and_deletions(work: GitRepo) -> None:
    blob = work("hash-object", "-w", "--stdin", stdin=b"x")
    work.commit("tagged", a_md="a\n")
    work("tag", "-a", "v1", "-m", "one")
    updates = [
        RefUpdate("(delete)", ZEROS, "refs/heads/main", work("rev-parse", "main~")),
        RefUpdate("refs/tags/blob", blob, "refs/tags/blob", ZEROS),
        RefUpdate("refs/tags/v1", work("rev-parse", "v1"), "refs/tags/v1", ZEROS),
    ]
    pushed = commits.of_push(Repository(work.folder), updates, "origin", lambda change: True)
    assert paths(pushed) == ["a.md"]
    assert pushed.unjudged == [
        "refs/tags/blob: it points to no commit in this clone, so its files are not judged"
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="names that Windows cannot hold")
def test_any_name_is_read(work: GitRepo) -> None:
    names = ["with space.md", 'quo"te.md', "new\nline.md", "tab\t.md", "ü.md", ":colon.md", "-dash.md"]
    if sys.platform == "linux":
        names.append(os.fsdecode(b"latin-\xe9.md"))
    for name in names:
        work.write(name)
    work.commit("names")
    assert paths(push(work)) == sorted(names)


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
    assert pushed.unjudged == ["more than 2 new commits; only files changed by the newest are judged"]


def test_since_compares_with_the_base(work: GitRepo) -> None:
    work.commit("one", a_md="x\n")
    repository = Repository(work.folder)
    assert paths(commits.since(repository, "origin/main", "HEAD", lambda change: True)) == ["a.md"]
    with pytest.raises(InputError, match=r"^nowhere: not a commit of this repository"):
        commits.since(repository, "nowhere", "HEAD", lambda change: True)
