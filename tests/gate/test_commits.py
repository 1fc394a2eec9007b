"""What git says of a push, which files it changes, who changed them, and which of them are judged."""

from __future__ import annotations

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
